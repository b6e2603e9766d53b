/* The operators as Python calls them: the fields of the library's descriptions, inputs first, then scalars, then outputs. */
#include <pthread.h>
#include <string.h>

#include "binding.h"

enum { MOST_OPERATORS = 64 };

static struct syp_operator operators[MOST_OPERATORS]; /* written once, by make_all */

static const struct syp_field plane_fields[SYP_PLANE_VALUES] = {
    {"cache", SYP_TENSOR, offsetof(sy_kv_plane, cache), NULL},
    {"rows", SYP_TENSOR, offsetof(sy_kv_plane, rows), NULL},
    {"format", SYP_FORMAT, offsetof(sy_kv_plane, format), NULL},
    {"scale", SYP_TENSOR, offsetof(sy_kv_plane, scale), NULL},
    {"global_scale", SYP_TENSOR, offsetof(sy_kv_plane, global_scale), NULL},
};

/* ---- The table ---- */

static enum syp_kind tensor_kind(const sy_op_info *info, const sy_field_info *field)
{
    if (field->flags & SY_FIELD_PER_ROW) /* one number may be given for all rows */
        return field->types & 1u << SY_TYPE_F32 ? SYP_REALS : SYP_INTEGERS;
    return info->mesh && !(field->flags & SY_FIELD_SHARED) ? SYP_TENSORS : SYP_TENSOR;
}

static void add_field(struct syp_operator *op, int at, enum syp_kind kind)
{
    const sy_field_info *field = sy_op_field(op->info, at);
    op->at[op->n_fields] = at;
    op->fields[op->n_fields++] = (struct syp_field){field->name, kind, field->offset, field};
}

static void add_tensors(struct syp_operator *op, bool outputs)
{
    for (int i = 0; i < op->info->n_tensors; i++) {
        const sy_field_info *field = sy_op_field(op->info, i);
        if (((field->flags & SY_FIELD_OUT) != 0) == outputs && !(field->flags & SY_FIELD_AGAIN))
            add_field(op, i, tensor_kind(op->info, field));
    }
}

static void add_scalars(struct syp_operator *op)
{
    static const enum syp_kind kinds[SY_N_KINDS] = {
        [SY_KIND_BOOL] = SYP_BOOL,      [SY_KIND_INT] = SYP_INT,   [SY_KIND_I64] = SYP_I64,
        [SY_KIND_U32] = SYP_U32,        [SY_KIND_U64] = SYP_U64,   [SY_KIND_F32] = SYP_F32,
        [SY_KIND_F64] = SYP_F64,        [SY_KIND_ENUM] = SYP_ENUM, [SY_KIND_FORMAT] = SYP_FORMAT,
        [SY_KIND_ROUTING] = SYP_POINTER};
    for (int i = op->info->n_tensors; i < op->info->n_fields; i++) {
        const sy_field_info *field = sy_op_field(op->info, i);
        if (field->kind == SY_KIND_PLANES) { /* their tensors come after all other values */
            op->planes = field->offset;
            op->num_planes = sy_op_field(op->info, ++i)->offset;
            op->plane_bytes = sy_op_field(op->info, ++i)->offset;
            continue;
        }
        add_field(op, i, kinds[field->kind]);
    }
}

static void make_all(void)
{
    for (int i = 0; i < sy_op_count() && i < MOST_OPERATORS; i++) {
        struct syp_operator *op = &operators[i];
        op->info = sy_op_at(i);
        if (op->info->args_bytes > SYP_ARGS_BYTES || op->info->n_fields > SY_MAX_FIELDS)
            continue; /* no fields: it cannot be called */
        add_tensors(op, false);
        add_scalars(op);
        op->n_given = op->n_fields;
        add_tensors(op, true);
    }
}

const struct syp_operator *syp_find_operator(const char *name, size_t length)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_all);
    for (int i = 0; i < MOST_OPERATORS && operators[i].info != NULL; i++) {
        const sy_op_info *info = operators[i].info;
        if (operators[i].n_fields > 0 && strlen(info->name) == length &&
            memcmp(info->name, name, length) == 0)
            return &operators[i];
    }
    return NULL;
}

/* ---- Calls ---- */

/* The values after the fields are planes, five values each. Returns how many values were read. */
static int take_planes(const struct syp_operator *op, union syp_args *args, const struct syp_value *values,
                       int n, struct syp_planes *room)
{
    const int count = n / SYP_PLANE_VALUES;
    if (op->planes == 0 || n % SYP_PLANE_VALUES != 0 || count > SY_KV_MAX_PLANES)
        return 0;
    struct syp_storage storage = {.n_numbers = 0};
    memset(room->planes, 0, (size_t)count * sizeof *room->planes);
    for (int i = 0; i < n; i++) {
        sy_kv_plane *plane = &room->planes[i / SYP_PLANE_VALUES];
        if (!syp_set_field(plane, &plane_fields[i % SYP_PLANE_VALUES], &values[i], &storage))
            return i;
        if (plane->format == &storage.format) {
            room->formats[i / SYP_PLANE_VALUES] = storage.format;
            plane->format = &room->formats[i / SYP_PLANE_VALUES];
        }
    }
    const sy_kv_plane *first = room->planes;
    memcpy((char *)args + op->planes, &first, sizeof first);
    memcpy((char *)args + op->num_planes, &(int64_t){count}, sizeof(int64_t));
    memcpy((char *)args + op->plane_bytes, &(size_t){sizeof *first}, sizeof(size_t));
    return n;
}

int syp_take_values(const struct syp_operator *op, union syp_args *args, const struct syp_value *values,
                    int n, struct syp_storage *storage, struct syp_planes *room)
{
    int i = 0;
    for (; i < n && i < op->n_fields; i++)
        if (!syp_set_field(args, &op->fields[i], &values[i], storage))
            return i;
    return i < n ? i + take_planes(op, args, values + i, n - i, room) : n;
}

sy_status syp_run_in(sy_ctx *ctx, const sy_op_info *op, const void *args, enum syp_what what,
                     sy_shape *shapes)
{
    sy_query query;
    if (what == SYP_CALL)
        return sy_call(ctx, op, args, op->args_bytes);
    return what == SYP_QUERY ? sy_call_query(ctx, op, args, op->args_bytes, &query)
                             : sy_infer(ctx, op, args, op->args_bytes, shapes, op->n_tensors);
}

int syp_run(const struct syp_operator *op, const union syp_args *args, const struct syp_value *values, int n,
            void *stream, enum syp_what what, sy_shape *shapes)
{
    int at = 0;
    const DLTensor *there = syp_on_device(values, n, &at);
    if (there != NULL) {
        const char *argument = at < op->n_fields ? op->fields[at].name : plane_fields[0].name;
        return (int)syp_call_on_device(there->device, stream, op->info, argument, args, what, shapes);
    }
    sy_ctx *ctx = syp_context();
    if (ctx == NULL)
        return -1;
    const sy_status status = syp_run_in(ctx, op->info, args, what, shapes);
    if (status != SY_OK)
        syp_forget_failure();
    return (int)status;
}
