/*
 * The operators, from the library's descriptions.
 */
#include "ops.h"

#include <stdio.h>
#include <string.h>

#include "cli.h"

/* ---- Words ---- */

const char *op_next_word(const char **words, int *length)
{
    const char *const word = *words;
    const size_t all = strcspn(word, " ");
    const char *const bar = memchr(word, '|', all);
    const char *const own = bar ? bar + 1 : word;
    *length = (int)(word + all - own);
    *words = word + all + (word[all] == ' ');
    return own;
}

static bool is_word(const char *word, size_t length, const char *text)
{
    return strlen(text) == length && memcmp(word, text, length) == 0;
}

bool op_word_value(const char *words, const char *text, int *value)
{
    int length;
    for (int i = 0; *words != '\0'; i++) {
        const char *const first = words, *const word = op_next_word(&words, &length);
        if ((is_word(word, (size_t)length, text) && strcmp(text, "-") != 0) ||
            (word != first && is_word(first, (size_t)(word - 1 - first), text))) {
            *value = i;
            return true;
        }
    }
    return false;
}

void op_words_text(const char *words, const char *join, char *text, size_t bytes)
{
    size_t used = 0;
    int length;
    text[0] = '\0';
    while (*words != '\0' && used < bytes) {
        const char *const word = op_next_word(&words, &length);
        if (length != 1 || word[0] != '-')
            used += (size_t)snprintf(text + used, bytes - used, "%s%.*s", used > 0 ? join : "", length, word);
    }
}

void op_option_name(const char *name, char *text, size_t bytes)
{
    snprintf(text, bytes, "--%s", name);
    for (char *c = text; *c != '\0'; c++)
        if (*c == '_')
            *c = '-';
}

/* ---- Options ---- */

/* A tensor of one number per row may be given as an option; the type it then has. */
static DLDataType row_type(uint32_t types)
{
    return types & 1u << SY_TYPE_F32   ? SY_F32
           : types & 1u << SY_TYPE_U32 ? SY_U32
           : types & 1u << SY_TYPE_U64 ? SY_U64
                                       : SY_I64;
}

static void add_option(struct op *op, struct op_option option)
{
    int n = 0;
    while (op->options[n].name && strcmp(op->options[n].name, option.name) != 0)
        n++;
    if (n < OP_MAX_OPTIONS - 1 && !op->options[n].name)
        op->options[n] = option;
}

/* The numbers of a tensor as an option, or the switch that requests an output. */
static void add_tensor_option(struct op *op, const sy_field_info *field, int i)
{
    if (field->flags & SY_FIELD_PER_ROW)
        add_option(op, (struct op_option){.name = field->name,
                                          .kind = OP_ROW,
                                          .type = row_type(field->types),
                                          .offset = offsetof(struct op_call, args) + field->offset,
                                          .text = "one value for all rows"});
    if (field->flags & SY_FIELD_EXTRA)
        add_option(op,
                   (struct op_option){.name = field->words,
                                      .kind = OP_BOOL,
                                      .offset = offsetof(struct op_call, asked) + (size_t)i * sizeof(bool),
                                      .text = "write more outputs, see above"});
}

/* Whether an operator with a format makes numbers of codes: its last output has them, or it reads scales. */
static bool makes_numbers(const sy_op_info *info)
{
    const sy_field_info *const last = sy_op_field(info, info->n_tensors - 1);
    const bool numbers = last->types == 0 || (last->types >> SY_TYPE_BF16 & 1u);
    for (int i = 0; i < info->n_tensors; i++)
        if (!(sy_op_field(info, i)->flags & SY_FIELD_OUT) &&
            (sy_op_field(info, i)->types >> SY_TYPE_F8_E8M0 & 1u))
            return true;
    return numbers && (last->flags & (SY_FIELD_OUT | SY_FIELD_INOUT)) == SY_FIELD_OUT;
}

static void add_scalar_option(struct op *op, const sy_field_info *field)
{
    static const DLDataType types[SY_N_KINDS] = {
        [SY_KIND_INT] = {kDLInt, 32, 1},   [SY_KIND_I64] = {kDLInt, 64, 1},
        [SY_KIND_U32] = {kDLUInt, 32, 1},  [SY_KIND_U64] = {kDLUInt, 64, 1},
        [SY_KIND_F32] = {kDLFloat, 32, 1}, [SY_KIND_F64] = {kDLFloat, 64, 1},
    };
    const bool number = types[field->kind].bits > 0;
    const bool format = field->kind == SY_KIND_FORMAT, logprob = strcmp(field->name, "logprob_mode") == 0;
    add_option(op, (struct op_option){.name = logprob ? "logprob" : field->name,
                                      .alias = logprob ? field->name : NULL,
                                      .kind = number                        ? OP_NUMBER
                                              : field->kind == SY_KIND_BOOL ? OP_BOOL
                                                                            : OP_WORD,
                                      .type = types[field->kind],
                                      .offset = format ? offsetof(struct op_call, format)
                                                       : offsetof(struct op_call, args) + field->offset,
                                      .required = (field->flags & SY_FIELD_REQUIRED) != 0,
                                      .preset = field->preset,
                                      .words = field->words,
                                      .text = field->help});
    if (format && makes_numbers(op->info))
        add_option(op, (struct op_option){.name = "out_type",
                                          .kind = OP_WORD,
                                          .offset = offsetof(struct op_call, out_type),
                                          .needs = field->name,
                                          .preset = "bf16",
                                          .words = "bf16 f16 f32",
                                          .text = strcmp(field->name, "format") == 0
                                                      ? "of unpacked rows, with --format"
                                                      : "of the sums, with --row-format"});
}

/* Not options: planes come from files, a routing exists in a process only, hints for chips have no effect. */
static bool is_option(const sy_field_info *field)
{
    static const char *const others[] = {"num_planes", "memory", "subdevice_id", "reuse_routing"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(field->name, others[i]) == 0)
            return false;
    return field->kind != SY_KIND_PLANES && field->kind != SY_KIND_SIZE && field->kind != SY_KIND_ROUTING;
}

static void make_options(struct op *op)
{
    const sy_op_info *const info = op->info;
    if (info->mesh)
        add_option(op, (struct op_option){.name = "mesh",
                                          .kind = OP_MESH,
                                          .offset = offsetof(struct op_call, mesh.extent),
                                          .required = true,
                                          .text = "devices: rows x columns"});
    for (int i = 0; i < info->n_fields; i++) {
        const sy_field_info *const field = sy_op_field(info, i);
        if (field->kind == SY_KIND_TENSOR)
            add_tensor_option(op, field, i);
        else if (is_option(field))
            add_scalar_option(op, field);
        if (field->kind == SY_KIND_PLANES)
            op->planes = field;
    }
    if (strcmp(info->name, "moe_dispatch_grad_gate") == 0)
        add_option(op, (struct op_option){.name = "f32_gates",
                                          .kind = OP_BOOL,
                                          .offset = offsetof(struct op_call, f32_gates),
                                          .text = "write f32 gradients, whatever the rows are"});
}

/* NULL past the end. */
static const struct op *op_at(int number)
{
    static struct op ops[64];
    const sy_op_info *const info = number < 64 ? sy_op_at(number) : NULL;
    if (!info)
        return NULL;
    struct op *const op = &ops[number];
    if (op->info)
        return op;
    op->info = info;
    op->name = info->name;
    op->alias = strcmp(info->name, "moe_combine") == 0 ? "moe_dispatch_grad_data" : NULL;
    op->example = op_example_of(info->name);
    op->size = info->mesh ? op_size_mesh : op_size_outputs;
    make_options(op);
    return op;
}

const struct op *find_op(const char *name)
{
    const struct op *op;
    for (int i = 0; (op = op_at(i)) != NULL; i++)
        if (strcmp(op->name, name) == 0 || (op->alias && strcmp(op->alias, name) == 0))
            return op;
    return NULL;
}

int unknown_op(const char *help, const char *name)
{
    const char *names[65] = {NULL};
    for (int i = 0; i < 64 && sy_op_at(i); i++)
        names[i] = sy_op_at(i)->name;
    const char *const close = closest_name(name, names);
    char list[1024] = "";
    for (int i = 0; names[i]; i++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", used > 0 ? ", " : "", names[i]);
    }
    return usage_error(help, "unknown operator %s (%s%s%sthere are: %s)", name, close ? "did you mean " : "",
                       close ? close : "", close ? "? " : "", list);
}

/* ---- Tensors ---- */

const sy_field_info *op_tensor(const struct op *op, int i)
{
    return i < op->info->n_tensors ? sy_op_field(op->info, i) : NULL;
}

struct op_name op_file_name(const sy_field_info *tensor)
{
    struct op_name name;
    const char *const bracket = strchr(tensor->name, '[');
    int length = (int)(bracket ? bracket - tensor->name : (int)strlen(tensor->name));
    if (!bracket)
        snprintf(name.text, sizeof name.text, "%.24s", tensor->name);
    else if (tensor->name[length - 1] == 's' &&
             !(tensor->flags & SY_FIELD_OUT)) /* planes: each is one plane */
        snprintf(name.text, sizeof name.text, "%.*s.%c", length - 1, tensor->name, bracket[1]);
    else
        snprintf(name.text, sizeof name.text, "%.*s.%c", length, tensor->name, bracket[1]);
    return name;
}

bool op_reads(const sy_field_info *tensor)
{
    return (!(tensor->flags & SY_FIELD_OUT) || (tensor->flags & (SY_FIELD_INOUT | SY_FIELD_KEEPS))) &&
           !(tensor->flags & SY_FIELD_AGAIN);
}

bool op_changes(const sy_op_info *op, size_t offset)
{
    for (int i = 0; i < op->n_tensors; i++)
        if (sy_op_field(op, i)->offset == offset && (sy_op_field(op, i)->flags & SY_FIELD_OUT))
            return true;
    return false;
}

/* The part of a plane that a tensor is: 0 its cache, 1 its rows, 2 its scale; -1: none. */
static int part_of_plane(const struct op *op, const sy_field_info *tensor)
{
    int part;
    return op->planes && op_word_value(op->planes->words, tensor->name, &part) ? part : -1;
}

bool op_is_numbered(const struct op *op, const sy_field_info *tensor)
{
    return op->info->mesh ? !(tensor->flags & SY_FIELD_SHARED) : part_of_plane(op, tensor) >= 0;
}

bool op_has_inputs(const struct op *op)
{
    const sy_field_info *tensor;
    for (int i = 0; (tensor = op_tensor(op, i)) != NULL; i++)
        if (op_reads(tensor))
            return true;
    return false;
}

const DLTensor **op_pointer(const struct op *op, struct op_call *call, const sy_field_info *tensor, int plane)
{
    static const size_t parts[] = {offsetof(sy_kv_plane, cache), offsetof(sy_kv_plane, rows),
                                   offsetof(sy_kv_plane, scale), offsetof(sy_kv_plane, global_scale)};
    enum { PARTS = sizeof parts / sizeof *parts };
    const int part = plane > 0 ? part_of_plane(op, tensor) : -1;
    char *const at = part >= 0 && part < PARTS ? (char *)&call->planes[plane - 1] + parts[part]
                                               : (char *)call->args.bytes + tensor->offset;
    return (const DLTensor **)(void *)at;
}

struct op_name op_plane_name(const struct op_call *call, const char *name, int64_t i)
{
    struct op_name full;
    snprintf(full.text, sizeof full.text, call->numbered ? "%.16s.%d" : "%.16s", name, (int)i);
    return full;
}
