/*
 * switchyard example OP FILE: a small input file of an operator, for the first try. Examples are text in the format of tests/examples:
 * lines NAME TYPE EXTENTS: VALUES and NAME: VALUE. The build embeds the first case of each file there.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "ops.h"
#include "output.h"

/* Operators between devices have no such file. */
static const struct op_example mesh_examples[] = {
    {"all_to_all_dispatch", "two devices with two tokens and two of four experts each",
     "input f32 2,1,1,2,2: 11 -11 12 -12 21 -21 22 -22\n"
     "expert_indices u16 2,1,1,2,2: 0 2 1 0 3 2 2 0\n"
     "expert_mapping u16 4,2: 1 0 1 0 0 1 0 1\n"
     "mesh: 1x2\n"},
    {"all_to_all_combine", "what the experts of all_to_all_dispatch's example made of its tokens",
     "input f32 2,2,2,2,2: 11 -11 12 -12 0 0 22 -22 0 0 24 -24 0 0 0 0 33 -33 0 0 63 -63 66 -66 0 0 0 0 84 "
     "-84 0 0\n"
     "expert_metadata u16 2,1,2,2,2: 0 2 1 0 3 2 2 0 0 2 1 0 3 2 2 0\n"
     "expert_mapping u16 4,2: 1 0 1 0 0 1 0 1\n"
     "mesh: 1x2\n"},
    {NULL, "", ""}};

static const struct op_example *find(const struct op_example *examples, const char *name)
{
    while (examples->op && strcmp(examples->op, name) != 0)
        examples++;
    return examples;
}

const struct op_example *op_example_of(const char *name)
{
    const struct op_example *const found = find(op_examples, name);
    return found->op ? found : find(mesh_examples, name);
}

/* The line after this one. */
static const char *next_line(const char *line)
{
    return line + strcspn(line, "\n") + 1;
}

void op_example_print_options(FILE *out, const struct op_example *example)
{
    for (const char *line = example->fields; *line != '\0'; line = next_line(line)) {
        const int name = (int)strcspn(line, ": "), value = (int)strcspn(line + name, "\n") - 2;
        if (line[name] != ':')
            continue; /* a tensor */
        fputs(" --", out);
        for (int i = 0; i < name; i++)
            fputc(line[i] == '_' ? '-' : line[i], out);
        if (strncmp(line + name, ": true\n", 7) != 0)
            fprintf(out, " %.*s", value, line + name + 2);
    }
}

/* One value, as the element i of a tensor. */
static void store(const DLTensor *to, int64_t i, double value)
{
    char *const at = (char *)to->data + (size_t)i * st_type_bytes(to->dtype);
    const float f32 = (float)value;
    const int64_t integer = (int64_t)value; /* little-endian: the first bytes are those of a narrower one */
    if (to->dtype.code == 2)
        memcpy(at, &f32, sizeof f32);
    else
        memcpy(at, &integer, st_type_bytes(to->dtype));
}

/* The values of a tensor; "5*0" is five of them. */
static void store_values(const DLTensor *to, int64_t n, const char *text)
{
    for (int64_t i = 0; i < n;) {
        char *end;
        double value = strtod(text, &end);
        int64_t times = 1;
        if (*end == '*') {
            times = (int64_t)value;
            value = strtod(end + 1, &end);
        }
        for (; times > 0 && i < n; times--)
            store(to, i++, value);
        text = end;
    }
}

/* Tensors of an example, in `outputs`. False: no memory. */
static bool example_tensors(const struct op_example *example, struct op_outputs *outputs)
{
    for (const char *line = example->fields; *line != '\0'; line = next_line(line)) {
        char name[32], type_name[16], *end;
        int used = 0, rank = 0;
        int64_t shape[SY_MAX_RANK], n = 1;
        DLDataType type = SY_F32;
        if (line[strcspn(line, ": ")] == ':')
            continue;                                               /* an option */
        sscanf(line, "%31s %15[a-z0-9]%n", name, type_name, &used); /* the first of several types */
        for (char *c = type_name; *c != '\0'; c++)
            *c = (char)toupper((unsigned char)*c);
        st_type_from_name(type_name, &type);
        for (line += used + strcspn(line + used, " "); *line != ':';
             line = end) { /* each number follows a space or a comma */
            n *= shape[rank] = strtoll(line + 1, &end, 10);
            rank++;
        }
        const DLTensor *const tensor = op_output(outputs, name, type, rank, shape);
        if (!tensor)
            return false;
        store_values(tensor, n, line + 1);
    }
    return true;
}

/* ---- The command ---- */

static int save_example(const struct op *op, const char *path)
{
    enum { MOST = 16 };
    struct st_item items[MOST];
    struct op_outputs tensors = {0};
    struct st_message message = {"out of memory"};
    bool saved = example_tensors(op->example, &tensors);
    for (int i = 0; i < tensors.n && i < MOST; i++)
        items[i] = (struct st_item){tensors.made[i]->name, &tensors.made[i]->view};
    saved = saved && st_save(path, items, (size_t)tensors.n, &message);
    op_outputs_free(&tensors);
    if (!saved)
        return plain_error("%s: %s", path, message.text);
    FILE *const out = output_is_stdout(path) ? stderr : stdout;
    fprintf(out, "Wrote ");
    text_print(out, path);
    fprintf(out, ": %s. Next:\n  switchyard run %s ", op->example->text, op->name);
    text_print(out, path);
    fprintf(out, " out.safetensors");
    op_example_print_options(out, op->example);
    fprintf(out, "\n  switchyard show out.safetensors\n");
    return EXIT_DONE;
}

int command_example(struct common *common, struct arg_list *list)
{
    (void)common;
    const char *words[2] = {NULL, NULL};
    int n = 0;
    for (struct arg arg = arg_next(list); arg.kind != ARG_END; arg = arg_next(list)) {
        if (arg.kind == ARG_OPTION)
            return usage_error("example", "example has no option --%.*s", arg.length, arg.text);
        if (n == 2)
            return usage_error("example", "one word too many: %s", arg.text);
        words[n++] = arg.text;
    }
    if (n < 2)
        return usage_error("example", "example needs an operator and a file");
    const struct op *const op = find_op(words[0]);
    return op ? save_example(op, words[1]) : unknown_op("example", words[0]);
}
