/*
 * Help pages. Those of the operators are printed from their rows in ops.h; the rest is the text of help.txt.
 */
#include <ctype.h>
#include <string.h>

#include "cli.h"
#include "ops.h"

/* help_text is the general page, then pages that begin with a line "= " and their command. A line "@" is the list of operators. */
static const char *next_line(const char *line)
{
    const char *const end = strchr(line, '\n');
    return end ? end + 1 : line + strlen(line);
}

/* The first line of a command's page; NULL: it has none. */
static const char *find_page(const char *command)
{
    const size_t length = strlen(command);
    for (const char *line = help_text; *line != '\0'; line = next_line(line))
        if (strncmp(line, "= ", 2) == 0 && strncmp(line + 2, command, length) == 0 &&
            line[2 + length] == '\n')
            return next_line(line);
    return NULL;
}

static void print_page(FILE *out, const char *line)
{
    for (; *line != '\0' && *line != '='; line = next_line(line)) {
        if (*line != '@')
            fprintf(out, "%.*s", (int)(next_line(line) - line), line);
        for (int i = 0; *line == '@' && sy_op_at(i); i++)
            fprintf(out, "  %-22s  %s\n", sy_op_at(i)->name, sy_op_at(i)->summary);
    }
}

void help_general(FILE *out)
{
    fprintf(out, "switchyard %s: the operators that move and pick tokens in large language models\n\n",
            sy_version());
    print_page(out, help_text);
}

/* ---- Operator pages ---- */

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
    } else if (option->kind != OP_BOOL) {
        snprintf(text + used, bytes - used, option->type.code == kDLFloat ? " X" : " N");
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
    const bool run = strcmp(command, "run") == 0;
    const struct op *const op = run && operator_name ? find_op(operator_name) : NULL;
    const char *const page = find_page(command);
    if (op)
        op_page(out, op);
    else if (page)
        print_page(out, page);
    return page && (op || !run || !operator_name);
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
