/*
 * The operators by number and by name, and calls of an operator that is known by its description only.
 */
#include "ops/all_to_all.h"

#define OP(ID, op) &syi_op_##op,
static const struct syi_op *const operators[] = {SYI_OPERATORS(OP)};
#undef OP

#define OP(ID, op) &syi_exchange_##op,
static const struct syi_exchange_op *const exchanges[] = {SYI_MESH_OPERATORS(OP)}; /* the last operators */
#undef OP

int sy_op_count(void)
{
    return SYI_N_OPS;
}

const sy_op_info *sy_op_at(int number)
{
    return number >= 0 && number < SYI_N_OPS ? &operators[number]->info : NULL;
}

const sy_op_info *sy_op_find(const char *name)
{
    for (int i = 0; name != NULL && i < SYI_N_OPS; i++)
        if (strcmp(operators[i]->info.name, name) == 0)
            return &operators[i]->info;
    return NULL;
}

const char *sy_kind_name(sy_kind kind)
{
    static const char *const names[] = {"tensor", "bool", "int",    "i64",    "u32",     "u64", "f32",
                                        "f64",    "enum", "format", "planes", "routing", "size"};
    _Static_assert(sizeof names / sizeof *names == SY_N_KINDS, "a name for every kind");
    return (unsigned)kind < SY_N_KINDS ? names[kind] : "another kind";
}

/* The operator that a description is of, when it can be called by it; `function` is for the sentence. Of one between
   devices, for which there is a comm: its exchange. */
static sy_status find_op(sy_ctx *ctx, const char *function, const sy_op_info *info, const struct syi_op **op,
                         const struct syi_exchange_op **exchange)
{
    if (ctx == NULL)
        return SY_ERR_NULL;
    syi_clear_fault(ctx, function);
    if (info == NULL || sy_op_at(info->number) != info)
        return syi_fail(ctx, SY_ERR_NULL, "op", "is %s, want what sy_op_at or sy_op_find returned",
                        info == NULL ? "NULL" : "no description of this library");
    *op = operators[info->number];
    if (exchange != NULL)
        *exchange = info->mesh ? exchanges[info->number - SYI_N_BACKEND_OPS] : NULL;
    else if (info->mesh)
        return syi_fail(ctx, SY_ERR_UNSUPPORTED, "op",
                        "is %s, which runs between devices, want sy_%s with a comm", info->name, info->name);
    return SY_OK;
}

sy_status sy_call(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t args_bytes)
{
    const struct syi_op *found = NULL;
    SYI_TRY(find_op(ctx, "sy_call", op, &found, NULL));
    return syi_run(ctx, found, args, args_bytes);
}

sy_status sy_call_mesh(sy_ctx *ctx, sy_comm *comm, const sy_op_info *op, const void *args, size_t args_bytes)
{
    const struct syi_op *found = NULL;
    const struct syi_exchange_op *exchange = NULL;
    SYI_TRY(find_op(ctx, "sy_call_mesh", op, &found, &exchange));
    return exchange != NULL ? syi_exchange_run(ctx, comm, exchange, args, args_bytes)
                            : syi_run(ctx, found, args, args_bytes);
}

sy_status sy_call_query_n(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t args_bytes,
                          sy_query *query, size_t query_bytes)
{
    const struct syi_op *found = NULL;
    SYI_TRY(find_op(ctx, "sy_call_query", op, &found, NULL));
    return syi_query(ctx, found, args, args_bytes, query, query_bytes);
}

sy_status sy_call_mesh_query_n(sy_ctx *ctx, sy_comm *comm, const sy_op_info *op, const void *args,
                               size_t args_bytes, sy_query *query, size_t query_bytes)
{
    const struct syi_op *found = NULL;
    const struct syi_exchange_op *exchange = NULL;
    SYI_TRY(find_op(ctx, "sy_call_mesh_query", op, &found, &exchange));
    return exchange != NULL ? syi_a2a_query(ctx, comm, exchange, args, args_bytes, query, query_bytes)
                            : syi_query(ctx, found, args, args_bytes, query, query_bytes);
}

/* Where the shapes go, with none in it. */
static sy_status clear_shapes(sy_ctx *ctx, const sy_op_info *op, sy_shape *shapes, int n)
{
    if (shapes == NULL)
        return syi_fail(ctx, SY_ERR_NULL, "shapes", "is NULL, want room for %d", op->n_tensors);
    if (n < op->n_tensors)
        return syi_fail(ctx, SY_ERR_VALUE, "n", "is %d, want %d or more", n, op->n_tensors);
    for (int i = 0; i < n; i++)
        shapes[i] = (sy_shape){.rank = -1};
    return SY_OK;
}

sy_status sy_infer(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t args_bytes, sy_shape *shapes,
                   int n)
{
    const struct syi_op *found = NULL;
    sy_query query;
    SYI_TRY(find_op(ctx, "sy_infer", op, &found, NULL));
    SYI_TRY(clear_shapes(ctx, op, shapes, n));
    return syi_infer(ctx, found, args, args_bytes, &query, shapes);
}

sy_status sy_infer_mesh(sy_ctx *ctx, sy_comm *comm, const sy_op_info *op, const void *args, size_t args_bytes,
                        sy_shape *shapes, int n)
{
    const struct syi_op *found = NULL;
    const struct syi_exchange_op *exchange = NULL;
    sy_query query;
    SYI_TRY(find_op(ctx, "sy_infer_mesh", op, &found, &exchange));
    SYI_TRY(clear_shapes(ctx, op, shapes, n));
    return exchange != NULL ? syi_a2a_infer(ctx, comm, exchange, args, args_bytes, &query, shapes, n)
                            : syi_infer(ctx, found, args, args_bytes, &query, shapes);
}
