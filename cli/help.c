/*
 * Help pages. Those of the operators are printed from their rows in ops.h; the rest is text.
 */
#include <string.h>

#include "cli.h"
#include "ops.h"

static const struct {
    const char *name, *text;
} pages[] = {
    {"compare",
     "Compares two safetensors files tensor by tensor with the accuracy metrics of the accelerator vendors.\n"
     "\n"
     "Usage: switchyard compare A B [options]      A: evaluated, B: baseline\n"
     "\n"
     "Options:\n"
     "  --metric LIST     bits (default), diff1, diff2, diff3, diff3_1, diff3_2, diff4; commas between\n"
     "  --tol X           tolerance of every metric, or diff1=X,diff3=Y; default 3e-3 for diff1 and diff2, "
     "else 0\n"
     "  --tensor NAME     only this tensor; may be repeated\n"
     "  --json            one JSON object\n"
     "\n"
     "Metrics (e evaluated, b baseline, in double precision):\n"
     "  bits              elements with different bits; any NaN equals any NaN\n"
     "  diff1             sum |e-b| / sum |b|\n"
     "  diff2             sqrt( sum (e-b)^2 / sum b^2 )\n"
     "  diff3             largest relative error, where b is tiny the absolute one\n"
     "  diff3_1, diff3_2  largest relative error; largest absolute error\n"
     "  diff4             fails when 100 or more elements differ and all to one side\n"
     "\n"
     "A tensor that only one file has, or with another type or shape, fails.\n"
     "Exit: 0 all pass, 1 something failed, 2 wrong usage or unreadable file.\n"
     "\n"
     "Try it:\n"
     "  switchyard example kv_gather a.safetensors\n"
     "  switchyard compare a.safetensors a.safetensors --metric bits,diff3\n"},
    {"show", "Prints what is inside a safetensors file, with the first values of every tensor.\n"
             "\n"
             "Usage: switchyard show FILE\n"
             "\n"
             "Try it:\n"
             "  switchyard example sample in.safetensors\n"
             "  switchyard show in.safetensors\n"},
    {"example", "Writes a small input file of an operator and prints the commands that use it.\n"
                "\n"
                "Usage: switchyard example OP FILE\n"
                "\n"
                "Try it:\n"
                "  switchyard example moe_permute in.safetensors\n"},
    {"info", "Prints version, kernel tables this CPU can run, threads and the optional parts of this build.\n"
             "\n"
             "Usage: switchyard info [--json] [--isa NAME] [--threads N]\n"},
    {"bench",
     "Checks every operator against a plain loop, then times it beside a plain copy (or read) of "
     "the same bytes.\n"
     "\n"
     "Usage: switchyard bench [OP...] [options]\n"
     "\n"
     "OP is an operator, or how the names of several begin: moe, kv, all_to_all. With mpirun before it,\n"
     "`bench all_to_all [--quick]` times the exchange between processes, beside MPI_Alltoallv of the same "
     "rows.\n"
     "\n"
     "Options:\n"
     "  --shape TEXT      only cases whose shape holds TEXT, in any case of letters; may be repeated\n"
     "  --list            list operator and shape of the cases, run none\n"
     "  --cold            buffers that rotate through more than the caches hold; the default\n"
     "  --warm            the same buffers every time, for the limit too; --cold --warm: a row for each\n"
     "  --quick           small shapes, few repetitions\n"
     "  --peers           afterwards the same work by PyTorch and NumPy, where python3 has them\n"
     "  --json            one JSON object\n"
     "  --markdown        a table to paste into a document, with what is needed to judge or repeat it\n"
     "  --threads N       most threads; default: all\n"
     "  --isa NAME        kernel table, see: switchyard info\n"
     "\n"
     "Columns: median time and spread; bytes that must move and their rate; that rate as a share of "
     "the limit\n"
     "measured in the same run; time as a multiple of the limit's; time of the plain loop.\n"
     "Peers run on the interpreter that SWITCHYARD_PYTHON or PYTHON names, else python3; what is missing is "
     "left "
     "out.\n"
     "Exit: 0 done, 1 a result was wrong, 2 wrong usage.\n"
     "\n"
     "Try it:\n"
     "  switchyard bench --quick\n"
     "  switchyard bench sample --shape greedy --shape k=50\n"
     "  switchyard bench moe_permute kv_gather --threads 2 --warm\n"
     "  switchyard bench --peers --markdown\n"
     "  mpirun -n 2 switchyard bench all_to_all\n"},
    {"demo",
     "One decode step of a mixture-of-experts model at real shapes, told line by line: route, permute,\n"
     "experts, unpermute, the same over a mesh of four devices, paged KV write and sparse read, sample.\n"
     "Every result is checked, every operator timed beside a plain copy or read of the same bytes. Ends "
     "with\n"
     "a page to look at. With mpirun before it: the exchange of such a step between processes.\n"
     "\n"
     "Usage: switchyard demo [--out FILE] [--threads N] [--isa NAME]\n"
     "\n"
     "Options:\n"
     "  --out FILE        where the page goes; default demo.html, under mpirun demo-mpi.html\n"
     "\n"
     "Exit: 0 done, 1 a check failed, 2 wrong usage or a page that cannot be written.\n"},
    {"sim-a2a",
     "Counts what all_to_all_dispatch and all_to_all_combine send between D devices, and estimates the "
     "time.\n"
     "The routing is that of FILE (expert_mapping, and expert_indices or expert_metadata), or drawn.\n"
     "\n"
     "Usage: switchyard sim-a2a [FILE] [options]\n"
     "\n"
     "A drawn routing:\n"
     "  --devices D       up to 1024; default 64\n"
     "  --experts E       default 256; neighbours live on one device\n"
     "  --k K             different experts of each token; default 8\n"
     "  --tokens N        of each device; default 128\n"
     "  --skew S          expert e is drawn in proportion to (e+1)^-S; default 0: uniform\n"
     "  --seed N          default 1\n"
     "\n"
     "Rows and the wire:\n"
     "  --hidden H        elements of a row; default 7168\n"
     "  --type bf16|fp8   rows of dispatch; fp8 has an f32 scale per 128 elements. Rows come back in bf16\n"
     "  --latency X       microseconds of one round; default 2\n"
     "  --message X       microseconds of one message; default 0.3\n"
     "  --bandwidth X     GB/s of a device in each direction; default 50\n"
     "  --output-concat-dim 1|2  how dispatch ordered expert_metadata; default 1\n"
     "\n"
     "Output:\n"
     "  --matrix          rows of every pair; by itself up to 16 devices\n"
     "  --table           a table of the formula for uniform routing; --devices and --tokens may be lists\n"
     "  --json            one JSON object\n"
     "\n"
     "Model of one device: latency + (peers, at most its rows) * message + bytes of the fuller direction /\n"
     "bandwidth; the slowest device counts. Metadata: log2(D) rounds and the table of all indices. Uniform\n"
     "routing: a device of L experts is missed with C(E-L,K)/C(E,K); K*(1-1/D) slots of a token are remote.\n"
     "Exit: 0 done, 2 wrong usage or unreadable file.\n"
     "\n"
     "Try it:\n"
     "  switchyard sim-a2a --devices 8\n"
     "  switchyard sim-a2a --devices 256 --skew 1 --type fp8\n"
     "  switchyard sim-a2a --table --tokens 32,128,2048\n"},
    {NULL, NULL},
};

void help_general(FILE *out)
{
    fprintf(out, "switchyard %s: the operators that move and pick tokens in large language models\n\n",
            sy_version());
    fputs("Usage: switchyard COMMAND ...\n"
          "\n"
          "Commands:\n"
          "  run OP IN OUT     run an operator on the tensors of a safetensors file\n"
          "  compare A B       compare two files by accuracy metrics\n"
          "  show FILE         print what is inside a file\n"
          "  example OP FILE   write a small input file of an operator\n"
          "  bench [OP...]     check, then time the operators against the limits of this machine\n"
          "  demo              one decode step at real shapes, told line by line\n"
          "  sim-a2a [FILE]    rows, bytes and time of an exchange between up to 1024 devices\n"
          "  info              version, kernel tables, threads\n"
          "  help [COMMAND]    more about a command; also COMMAND --help\n"
          "\n"
          "Operators:\n",
          out);
    for (const struct op *const *op = all_ops; *op; op++)
        fprintf(out, "  %-22s  %s\n", (*op)->name, (*op)->summary);
    fputs("\n"
          "Everywhere:\n"
          "  --isa NAME        kernel table by name (switchyard info lists them); default: the best\n"
          "  --threads N       most threads; default: all\n"
          "  --version         print the version\n"
          "\n"
          "Try it:\n"
          "  switchyard example moe_permute in.safetensors\n"
          "  switchyard run moe_permute in.safetensors out.safetensors --num-out-tokens 8\n"
          "  switchyard show out.safetensors\n",
          out);
}

static void run_page(FILE *out)
{
    fputs("Runs one operator: tensors by name from IN, every output under its name to OUT (safetensors "
          "files).\n"
          "\n"
          "Usage: switchyard run OP IN OUT [--field value ...] [--isa NAME] [--threads N]\n"
          "\n"
          "Operators:\n",
          out);
    for (const struct op *const *op = all_ops; *op; op++)
        fprintf(out, "  %-22s  %s\n", (*op)->name, (*op)->summary);
    fputs("\n"
          "A field may also stand in the metadata of IN as switchyard.<field>, e.g. "
          "switchyard.num_out_tokens.\n"
          "IN may be left out for an operator without input tensors.\n"
          "Switches may be written --drop-and-pad or --drop-and-pad=true.\n"
          "Exit: 0 done, 1 refused by the operator, 2 wrong usage or unreadable file. OUT is written whole "
          "or not at all.\n"
          "\n"
          "More: switchyard run OP --help\n",
          out);
}

/* ---- Operator pages ------------------------------------------------------------------------------------ */

static int wider(int width, const char *text)
{
    return (int)strlen(text) > width ? (int)strlen(text) : width;
}

static void print_tensors(FILE *out, const struct op *op, bool outputs)
{
    int shape = 0, types = 0;
    for (const struct op_tensor *tensor = op->tensors; tensor->name; tensor++) {
        shape = wider(shape, tensor->shape);
        types = wider(types, tensor->types);
    }
    for (const struct op_tensor *tensor = op->tensors; tensor->name; tensor++) {
        const bool is_input = tensor->role != OP_OUTPUT;
        const bool is_output =
            tensor->role == OP_OUTPUT || tensor->role == OP_INOUT || tensor->role == OP_UPDATED;
        if ((outputs ? !is_output : !is_input) || tensor->text[0] == '\0')
            continue;
        const bool optional = tensor->role == OP_OPTIONAL || tensor->role == OP_INOUT;
        char name[32];
        snprintf(name, sizeof name, "%s%s", tensor->name, !outputs && optional ? "?" : "");
        fprintf(out, "  %-16s  %-*s  %-*s  %s\n", name, shape, tensor->shape, types, tensor->types,
                tensor->text);
    }
}

/* "--pad error|zero|skip", "--top-k N", "--list" */
static void option_form(const struct op_field *field, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "--%s", field->name);
    for (char *c = text; *c != '\0'; c++)
        *c = *c == '_' ? '-' : *c;
    if (field->kind == OP_WORD)
        for (int i = 0; i < OP_MAX_WORDS && field->words[i] && used < bytes; i++)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", i > 0 ? "|" : " ", field->words[i]);
    else if (field->kind == OP_MESH)
        snprintf(text + used, bytes - used, " RxC");
    else if (field->kind == OP_AXIS)
        snprintf(text + used, bytes - used, " none|0|1");
    else if (field->kind == OP_FLOAT || field->kind == OP_DOUBLE || field->kind == OP_ROW_F32)
        snprintf(text + used, bytes - used, " X");
    else if (field->kind != OP_BOOL)
        snprintf(text + used, bytes - used, " N");
}

static void print_options(FILE *out, const struct op *op)
{
    for (const struct op_field *field = op->fields; field->name; field++) {
        char form[64], fallback[48] = "";
        option_form(field, form, sizeof form);
        if (field->required)
            snprintf(fallback, sizeof fallback, " (required)");
        else if (field->preset)
            snprintf(fallback, sizeof fallback, " (default %s)", field->preset);
        fprintf(out, "  %-26s  %s%s\n", form, field->text, fallback);
    }
}

static void print_planes(FILE *out, const struct op *op)
{
    if (op->plane_rows)
        fprintf(out, "\nSeveral planes with the same slots: %s.0, %s.1, ... and %s.0, %s.1, ...\n",
                op->plane_caches[0], op->plane_caches[0], op->plane_rows, op->plane_rows);
    if (op->mesh_dim)
        fputs("\nD devices, G of them in a group. Instead of stacked tensors there may be one per device: "
              "input.0,\n"
              "input.1, ...; then all are numbered, but for expert_mapping, and so are the outputs.\n"
              "In one process, or with the same files and the same result in D: mpirun -n D switchyard run "
              "...\n",
              out);
}

static void op_page(FILE *out, const struct op *op)
{
    fprintf(out, "%s: %s.\n", op->name, op->summary);
    if (op->alias)
        fprintf(out, "Also known as %s.\n", op->alias);
    fputc('\n', out);
    const bool inputs = op_has_inputs(op);
    fprintf(out, "Usage: switchyard run %s %sOUT [options]\n\n", op->name, inputs ? "IN " : "[IN] ");
    fputs(inputs ? "Tensors in (? optional):\n" : "Tensors in: none; IN may bring metadata.\n", out);
    print_tensors(out, op, false);
    fputs("\nTensors out:\n", out);
    print_tensors(out, op, true);
    print_planes(out, op);
    fputs("\nOptions, or metadata of IN as switchyard.<field>:\n", out);
    print_options(out, op);
    fprintf(out, "\nTry it (%s):\n", op->example_text);
    if (inputs)
        fprintf(out, "  switchyard example %s in.safetensors\n", op->name);
    fprintf(out, "  switchyard run %s %sout.safetensors%s%s\n", op->name, inputs ? "in.safetensors " : "",
            op->example_options[0] ? " " : "", op->example_options);
    fputs("  switchyard show out.safetensors\n", out);
}

bool help_page(FILE *out, const char *command, const char *operator_name)
{
    if (strcmp(command, "run") == 0) {
        const struct op *const op = operator_name ? find_op(operator_name) : NULL;
        if (op)
            op_page(out, op);
        else
            run_page(out);
        return op || !operator_name;
    }
    for (int i = 0; pages[i].name; i++)
        if (strcmp(pages[i].name, command) == 0) {
            fputs(pages[i].text, out);
            return true;
        }
    return false;
}

int help_command(struct common *common, struct arg_list *list)
{
    (void)common;
    const struct arg command = arg_next(list), name = arg_next(list);
    if (command.kind == ARG_END) {
        help_general(stdout);
        return EXIT_DONE;
    }
    /* `help moe_permute` means its page under run. */
    const struct op *const op = find_op(command.text);
    if (op)
        return help_page(stdout, "run", op->name) ? EXIT_DONE : EXIT_USAGE;
    if (name.kind != ARG_END && !find_op(name.text))
        return unknown_op(NULL, name.text);
    if (help_page(stdout, command.text, name.kind == ARG_END ? NULL : name.text))
        return EXIT_DONE;
    return usage_error(NULL, "no help about %s", command.text);
}
