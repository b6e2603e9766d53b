/* The operators as Python calls them: the fields of the library's descriptions, inputs first, then numbers, then outputs. */
#include <pthread.h>
#include <string.h>

#include "binding.h"

enum { MOST_OPERATORS = 64 };

static struct syp_operator operators[MOST_OPERATORS]; /* written once, by make_all */

static enum syp_kind tensor_kind(const sy_op_info *info, const sy_field_info *field)
{
    if (field->flags & SY_FIELD_PER_ROW) /* one number may be given for all rows */
        return field->types & 1u << SY_TYPE_F32 ? SYP_REALS : SYP_INTEGERS;
    return info->mesh && !(field->flags & SY_FIELD_SHARED) ? SYP_TENSORS : SYP_TENSOR;
}

static void add_tensors(struct syp_operator *op, bool outputs)
{
    for (int i = 0; i < op->info->n_tensors; i++) {
        const sy_field_info *field = sy_op_field(op->info, i);
        if (((field->flags & SY_FIELD_OUT) != 0) == outputs && !(field->flags & SY_FIELD_AGAIN))
            op->fields[op->n_fields++] =
                (struct syp_field){field->name, tensor_kind(op->info, field), field->offset, field};
    }
}

static void add_numbers(struct syp_operator *op)
{
    static const enum syp_kind kinds[SY_N_KINDS] = {
        [SY_KIND_BOOL] = SYP_BOOL,     [SY_KIND_INT] = SYP_INT,  [SY_KIND_I64] = SYP_I64,
        [SY_KIND_U32] = SYP_U32,       [SY_KIND_U64] = SYP_U64,  [SY_KIND_F32] = SYP_F32,
        [SY_KIND_F64] = SYP_F64,       [SY_KIND_ENUM] = SYP_INT, [SY_KIND_FORMAT] = SYP_FORMAT,
        [SY_KIND_ROUTING] = SYP_HANDLE};
    for (int i = op->info->n_tensors; i < op->info->n_fields; i++) {
        const sy_field_info *field = sy_op_field(op->info, i);
        if (field->kind == SY_KIND_PLANES) { /* their tensors come after all other values */
            op->planes = field->offset;
            op->num_planes = sy_op_field(op->info, ++i)->offset;
            op->plane_bytes = sy_op_field(op->info, ++i)->offset;
            continue;
        }
        op->fields[op->n_fields++] =
            (struct syp_field){field->name, kinds[field->kind], field->offset, field};
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
        add_numbers(op);
        add_tensors(op, true);
    }
}

const struct syp_operator *syp_find_operator(TVMFFIByteArray name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, make_all);
    for (int i = 0; i < MOST_OPERATORS && operators[i].info != NULL; i++) {
        const sy_op_info *info = operators[i].info;
        if (operators[i].n_fields > 0 && strlen(info->name) == name.size &&
            memcmp(info->name, name.data, name.size) == 0)
            return &operators[i];
    }
    return NULL;
}
