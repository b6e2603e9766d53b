/*
 * Help pages. Those of the operators are printed from their rows in ops.h; the rest is text.
 */
#include <ctype.h>
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
     "  diff4             fails when at least 100 elements differ and all differences have the same sign\n"
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
    {"ops", "Lists the operators; with --json the full description of each: fields, types, shapes, "
            "words, defaults.\n"
            "The JSON is the library's own description (switchyard_describe.h), for authors of bindings.\n"
            "Devices: cpu, and cuda where libswitchyard_cuda is found and has the operator.\n"
            "\n"
            "Usage: switchyard ops [--json] [--device-library FILE]\n"
            "\n"
            "More about one: switchyard help OP\n"},
    {"info",
     "Prints version, kernel tables this CPU can run, threads, the optional parts of this build and the "
     "CUDA devices.\n"
     "\n"
     "Usage: switchyard info [--json] [--isa NAME] [--threads N] [--device-library FILE]\n"},
    {"bench",
     "Checks every operator against a plain loop, then times it beside a plain copy (or read) of "
     "the same bytes.\n"
     "\n"
     "Usage: switchyard bench [OP...] [options]\n"
     "\n"
     "OP is a group of cases as --list prints it, mostly an operator, or a prefix: moe, kv, all_to_all.\n"
     "Under mpirun `bench all_to_all [--quick]` times the exchange between processes, next to MPI_Alltoallv "
     "of the\n"
     "same rows.\n"
     "\n"
     "Options:\n"
     "  --shape TEXT      only cases whose shape contains TEXT, upper or lower case; may be repeated\n"
     "  --list            list group and shape of the cases, run none\n"
     "  --cold            buffers that rotate through more than the caches hold; the default\n"
     "  --warm            the same buffers every time, for the limit too; --cold --warm: a row for each\n"
     "  --quick           small shapes, few repetitions\n"
     "  --check           only check the cases, time none\n"
     "  --peers           afterwards the same work by PyTorch and NumPy, where python3 has them; on a "
     "device\n"
     "                    by PyTorch and FlashInfer there\n"
     "  --json            one JSON object\n"
     "  --markdown        a Markdown table, with machine, version and command\n"
     "  --threads N       largest number of threads; default: all\n"
     "  --isa NAME        kernel table, see: switchyard info\n"
     "  --device cuda[:N] on a CUDA device, at shapes for it; results are compared with the CPU's\n"
     "  --device-library FILE  another libswitchyard_cuda\n"
     "\n"
     "Columns: median time and spread; bytes that must move and their rate; that rate as a share of "
     "the limit\n"
     "measured in the same run; time as a multiple of the limit's; time of the plain loop.\n"
     "Peers run on the interpreter that SWITCHYARD_PYTHON or PYTHON names, else python3; what is missing is "
     "left "
     "out.\n"
     "On a device: calls in CUDA graphs over rotated buffers, median of nine replays, beside a copy or read "
     "of "
     "2 GiB.\n"
     "Exit: 0 done, 1 a result was wrong, 2 wrong usage.\n"
     "\n"
     "Try it:\n"
     "  switchyard bench --quick\n"
     "  switchyard bench --check\n"
     "  switchyard bench sample --shape greedy --shape k=50\n"
     "  switchyard bench moe_permute kv_gather --threads 2 --warm\n"
     "  switchyard bench --peers --markdown\n"
     "  switchyard bench --device cuda kv moe_permute\n"
     "  mpirun -n 2 switchyard bench all_to_all\n"},
    {"demo",
     "One decode step of a mixture-of-experts model at real shapes, explained line by line: route, permute,\n"
     "experts, unpermute, the same over a mesh of four devices, paged KV write and sparse read, sample.\n"
     "Every result is checked, every operator timed next to a plain copy or read of the same bytes. Writes "
     "an\n"
     "HTML page with the results. Under mpirun: the exchange of such a step between processes.\n"
     "\n"
     "Usage: switchyard demo [--out FILE] [--threads N] [--isa NAME] [--device cuda[:N]]\n"
     "\n"
     "Options:\n"
     "  --out FILE        where the page goes; default demo.html, under mpirun demo-mpi.html\n"
     "  --device cuda[:N] the operators that a CUDA device has run there\n"
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
     "  --experts E       default 256; neighbours are on one device\n"
     "  --k K             different experts of each token; default 8\n"
     "  --tokens N        of each device; default 128\n"
     "  --skew S          expert e is drawn in proportion to (e+1)^-S; default 0: uniform\n"
     "  --seed N          default 1\n"
     "  --places P        of experts and their replicas, P/D on each device: moe_place, by the drawn loads\n"
     "\n"
     "  --replica RULE    the host that serves an expert of several: first, round_robin, hash, balanced or\n"
     "                    local, which prefers its node (--node); default all of them\n"
     "\n"
     "Rows and the wire:\n"
     "  --hidden H        elements of a row; default 7168\n"
     "  --type bf16|fp8   rows of dispatch; fp8 has an f32 scale per 128 elements. Rows come back in bf16\n"
     "  --latency X       microseconds of one round; default 2\n"
     "  --message X       microseconds of one message; default 0.3\n"
     "  --bandwidth X     GB/s of a device in each direction; default 50\n"
     "  --node N          devices that follow each other and have links of their own; default 1: none\n"
     "  --node-latency X  microseconds of a round inside a node; default 2\n"
     "  --node-bandwidth X  GB/s of a device inside its node in each direction; default 450\n"
     "  --preset NAME     h100 (and H200): --node 8 --latency 5 --bandwidth 50 (400 Gb/s) --node-latency 2\n"
     "                    --node-bandwidth 450 (NVLink 4); b200: with 900; gb200: with 900 and --node 72.\n"
     "                    Assumptions, not measurements; options after it change them\n"
     "  --output-concat-dim 1|2  how dispatch ordered expert_metadata; default 1\n"
     "\n"
     "Output:\n"
     "  --matrix          rows of every pair; the default up to 16 devices\n"
     "  --table           a table of the formula for uniform routing; --devices and --tokens may be lists\n"
     "  --json            one JSON object\n"
     "\n"
     "Model of one device: latency + (peers, at most its rows) * message + bytes of the fuller direction /\n"
     "bandwidth; the slowest device counts. With nodes the slower of both kinds of links counts. Metadata:\n"
     "log2(D) rounds and the table of all indices. Uniform routing: a device of L experts is missed with\n"
     "C(E-L,K)/C(E,K); K*(1-1/D) slots of a token are remote.\n"
     "Exit: 0 done, 2 wrong usage or unreadable file.\n"
     "\n"
     "Try it:\n"
     "  switchyard sim-a2a --devices 8\n"
     "  switchyard sim-a2a --devices 256 --skew 1 --type fp8\n"
     "  switchyard sim-a2a --devices 64 --preset h100\n"
     "  switchyard sim-a2a --devices 32 --skew 0.6 --places 288 --replica local\n"
     "  switchyard sim-a2a --table --tokens 32,128,2048\n"},
    {NULL, NULL},
};

static void list_operators(FILE *out)
{
    for (int i = 0; sy_op_at(i); i++)
        fprintf(out, "  %-22s  %s\n", sy_op_at(i)->name, sy_op_at(i)->summary);
}

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
          "  demo              one decode step at real shapes, explained line by line\n"
          "  sim-a2a [FILE]    rows, bytes and time of an exchange between up to 1024 devices\n"
          "  ops [--json]      list the operators, or print their descriptions\n"
          "  info              version, kernel tables, threads\n"
          "  help [COMMAND]    more about a command; also COMMAND --help\n"
          "\n"
          "Operators:\n",
          out);
    list_operators(out);
    fputs("\n"
          "Options of run, bench, demo and info:\n"
          "  --isa NAME        kernel table by name (switchyard info lists them); default: the best\n"
          "  --threads N       largest number of threads; default: all\n"
          "  --device NAME     cpu (default), cuda or cuda:N; --device-library FILE: another "
          "libswitchyard_cuda\n"
          "\n"
          "switchyard --version prints the version.\n"
          "\n"
          "Try it:\n"
          "  switchyard example moe_permute in.safetensors\n"
          "  switchyard run moe_permute in.safetensors out.safetensors --num-out-tokens 8\n"
          "  switchyard show out.safetensors\n",
          out);
}

static void run_page(FILE *out)
{
    fputs(
        "Runs one operator: tensors by name from IN, every output under its name to OUT (safetensors "
        "files).\n"
        "\n"
        "Usage: switchyard run OP IN OUT [--field value ...] [--isa NAME] [--threads N] [--device cuda[:N]]\n"
        "\n"
        "Operators:\n",
        out);
    list_operators(out);
    fputs("\n"
          "A field may also be given in the metadata of IN as switchyard.<field>, e.g. "
          "switchyard.num_out_tokens.\n"
          "IN may be left out for an operator without input tensors.\n"
          "Switches may be written --drop-and-pad or --drop-and-pad=true.\n"
          "With --device cuda the tensors are copied to the device and the results back; files and messages "
          "are "
          "the same.\n"
          "For an operator that has a field device it stands before OP.\n"
          "Exit: 0 done, 1 rejected by the operator, 2 wrong usage or unreadable file. OUT is written whole "
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

/* "[T,H] or [N]" of "T H | N"; stacked tensors of devices have one dimension more. */
static void shape_text(const struct op *op, const sy_field_info *tensor, char *text, size_t bytes)
{
    const char *const first = op->info->mesh && !(tensor->flags & SY_FIELD_SHARED) ? "[D," : "[";
    const char *const bar = strchr(tensor->shape, '|');
    const bool two = bar && !strchr(bar + 1, '|'); /* "one or other", else "one, other, third" */
    size_t used = 0;
    if (tensor->flags & SY_FIELD_PER_ROW) {
        snprintf(text, bytes, "per row");
        return;
    }
    for (const char *word = tensor->shape; *word != '\0' && used < bytes;) {
        const size_t length = strcspn(word, " ");
        const bool start = word == tensor->shape || word[-2] == '|';
        used += (size_t)snprintf(text + used, bytes - used, "%s%.*s", start ? first : ",", (int)length, word);
        word += length + (word[length] == ' ');
        const bool more = word[0] == '|';
        if ((more || *word == '\0') && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "]%s", !more ? "" : two ? " or " : ", ");
        word += more ? 2 : 0;
    }
}

/* "F32 F16 BF16", "as tokens", "F32 or as logits" */
static void types_text(const struct op *op, const sy_field_info *tensor, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    if (tensor->flags & (SY_FIELD_ANY_WORD | SY_FIELD_ANY_BYTES)) {
        snprintf(text, bytes, tensor->flags & SY_FIELD_ANY_WORD ? "1, 2, 4 or 8 bytes" : "any");
        return;
    }
    for (int t = 0; t < SY_N_TYPES; t++)
        if (tensor->types >> t & 1u) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? " " : "",
                                     sy_type_name((sy_type)t));
        }
    for (char *c = text; *c != '\0'; c++)
        *c = (char)toupper((unsigned char)*c);
    const sy_field_info *const like = tensor->like > 0 ? op_tensor(op, tensor->like - 1) : NULL;
    if (like)
        snprintf(text + used, bytes - used, "%sas %s", used > 0 ? " or " : "", op_file_name(like).text);
}

static void print_tensors(FILE *out, const struct op *op, bool outputs)
{
    char shapes[SY_MAX_FIELDS][64], types[SY_MAX_FIELDS][40];
    int shape = 0, type = 0;
    const sy_field_info *tensor;
    for (int i = 0; (tensor = op_tensor(op, i)) != NULL; i++) {
        shape_text(op, tensor, shapes[i], sizeof shapes[i]);
        types_text(op, tensor, types[i], sizeof types[i]);
        shape = wider(shape, shapes[i]);
        type = wider(type, types[i]);
    }
    for (int i = 0; (tensor = op_tensor(op, i)) != NULL; i++) {
        if (outputs ? !(tensor->flags & SY_FIELD_OUT) : !op_reads(tensor))
            continue;
        const bool optional = tensor->flags & (SY_FIELD_OPTIONAL | SY_FIELD_KEEPS);
        const bool extra = outputs && (tensor->flags & SY_FIELD_EXTRA);
        char name[40], option[40] = "";
        snprintf(name, sizeof name, "%s%s", op_file_name(tensor).text, !outputs && optional ? "?" : "");
        if (extra)
            op_option_name(tensor->words, option, sizeof option);
        fprintf(out, "  %-16s  %-*s  %-*s  %s%s%s\n", name, shape, shapes[i], type, types[i], tensor->help,
                extra ? "; with " : "", option);
    }
}

/* "--pad error|zero|skip", "--top-k N", "--list" */
static void option_form(const struct op_option *option, char *text, size_t bytes)
{
    op_option_name(option->name, text, bytes);
    const size_t used = strlen(text);
    if (option->kind == OP_WORD) {
        snprintf(text + used, bytes - used, " ");
        op_words_text(option->words, "|", text + used + 1, bytes - used - 1);
    } else if (option->kind == OP_MESH) {
        snprintf(text + used, bytes - used, " RxC");
    } else if (option->kind == OP_FLOAT || option->kind == OP_DOUBLE || option->kind == OP_ROW_F32) {
        snprintf(text + used, bytes - used, " X");
    } else if (option->kind != OP_BOOL) {
        snprintf(text + used, bytes - used, " N");
    }
}

/* The default of an option. */
static void default_text(const struct op_option *option, char *text, size_t bytes)
{
    const char *words = option->words;
    int length = 0;
    const char *const first = option->kind == OP_WORD ? op_next_word(&words, &length) : NULL;
    text[0] = '\0';
    if (option->required)
        snprintf(text, bytes, " (required)");
    else if (option->preset)
        snprintf(text, bytes, " (default %s)", option->preset);
    else if (first && !(length == 1 && first[0] == '-'))
        snprintf(text, bytes, " (default %.*s)", length, first);
}

static void print_options(FILE *out, const struct op *op)
{
    enum {
        OPTION_WIDTH = 26,
        LINE = 100
    }; /* a longer text gets its own line, and one that is too long two */
    for (const struct op_option *option = op->options; option->name; option++) {
        char form[160], fallback[48];
        option_form(option, form, sizeof form);
        default_text(option, fallback, sizeof fallback);
        const bool fits = strlen(form) <= OPTION_WIDTH;
        int first = 0; /* of a form that is too long */
        if (strlen(form) > LINE)
            for (first = LINE; first > 0 && form[first - 1] != '|';)
                first--;
        if (first > 0)
            fprintf(out, "  %.*s\n      ", first, form);
        fprintf(out, "  %-*s%s  %s%s\n", fits ? OPTION_WIDTH : 0, form + first,
                fits ? "" : "\n                            ", option->text, fallback);
    }
}

static void print_planes(FILE *out, const struct op *op)
{
    if (op->planes) {
        const char *words = op->planes->words;
        int length = (int)strcspn(words, " |");
        words += strcspn(words, " ") + 1;
        const int rows = (int)strcspn(words, " ");
        fprintf(out, "\nSeveral planes with the same slots: %.*s.0, %.*s.1, ... and %.*s.0, %.*s.1, ...\n",
                length, op->planes->words, length, op->planes->words, rows, words, rows, words);
    }
    if (op->info->mesh)
        fputs(
            "\nD devices, G of them in a group. Instead of stacked tensors there may be one per device: "
            "input.0,\n"
            "input.1, ...; then all tensors except expert_mapping are numbered, and so are the outputs.\n"
            "Runs in one process, or with the same files and results in D: mpirun -n D switchyard run ...\n",
            out);
}

static void op_page(FILE *out, const struct op *op)
{
    fprintf(out, "%s: %s.\n", op->name, op->info->summary);
    if (op->alias)
        fprintf(out, "Also known as %s.\n", op->alias);
    fputc('\n', out);
    const bool inputs = op_has_inputs(op);
    fprintf(out, "Usage: switchyard run %s %sOUT [options]\n\n", op->name, inputs ? "IN " : "[IN] ");
    fputs(inputs ? "Tensors in (? optional):\n" : "Tensors in: none; IN may hold metadata.\n", out);
    print_tensors(out, op, false);
    fputs("\nTensors out:\n", out);
    print_tensors(out, op, true);
    print_planes(out, op);
    fputs("\nOptions, or metadata of IN as switchyard.<field>:\n", out);
    print_options(out, op);
    fprintf(out, "\nTry it (%s):\n", op->example->text);
    if (inputs)
        fprintf(out, "  switchyard example %s in.safetensors\n", op->name);
    fprintf(out, "  switchyard run %s %sout.safetensors", op->name, inputs ? "in.safetensors " : "");
    op_example_print_options(out, op->example);
    fputs("\n  switchyard show out.safetensors\n", out);
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
