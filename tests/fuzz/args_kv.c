/*
 * Valid calls of the operators on whole pages, made from the bytes, and caches and planes for all operators on them.
 * Arena contents come after, so that most numbers are out of range; sizes are small enough that some are not.
 */
#include "args.h"

static const DLDataType i32 = {0, 32, 1}, i64 = {0, 64, 1};

static DLDataType index_type(struct reader *r)
{
    return pick(r, 2) ? i64 : i32;
}

static DLDataType row_type(struct reader *r)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {1, 8, 1}};
    return types[pick(r, 3)];
}

void make_cache(struct call *c, const DLTensor **field, DLDataType type, sy_kv_layout layout, bool flat,
                int64_t blocks, int64_t size, int64_t width)
{
    if (layout == SY_KV_HND)
        add(c, "cache", field, type, 3, blocks, width, size);
    else if (flat)
        add(c, "cache", field, type, 2, blocks * size, width, 0);
    else
        add(c, "cache", field, type, 3, blocks, size, width);
}

int64_t make_planes(struct call *c, struct reader *r, sy_kv_layout layout, int64_t blocks, int64_t size,
                    int64_t outer, int64_t inner, bool to_cache)
{
    const int64_t n = pick(r, 3);
    for (int64_t i = 0; i < n; i++) {
        const int64_t width = 1 + pick(r, 5);
        const DLDataType type = row_type(r);
        make_cache(c, &c->planes[i].cache, type, layout, false, blocks, size, width);
        if (to_cache)
            output(c);
        if (outer < 0)
            add(c, "rows of a plane", &c->planes[i].rows, type, 2, inner, width, 0);
        else
            add(c, "rows of a plane", &c->planes[i].rows, type, 3, outer, inner, width);
        if (!to_cache)
            output(c);
    }
    return n;
}

/* A table of `rows` rows, or as many lists of pages. */
void make_table(struct call *c, struct reader *r, int64_t rows, int64_t columns, const struct table_fields *f)
{
    if (pick(r, 3)) {
        add(c, "block_table", f->block_table, index_type(r), 2, rows, columns, 0);
        return;
    }
    add(c, "page_indices", f->page_indices, index_type(r), 1, rows * columns, 0, 0);
    add(c, "indptr", f->indptr, index_type(r), 1, rows + 1, 0, 0);
    if (pick(r, 2))
        add(c, "last_page_len", f->last_page_len, index_type(r), 1, rows, 0, 0);
}

void make_ragged(struct call *c, struct reader *r)
{
    sy_kv_ragged_args *a = &c->args.ragged;
    const int64_t blocks = pick(r, 7), size = 1 + pick(r, 5), width = 1 + pick(r, 9), batch = pick(r, 4);
    const int64_t requests = pick(r, 2) ? pick(r, 4) : batch, columns = pick(r, 5);
    const DLDataType type = row_type(r);
    a->block_size = size;
    a->layout = pick(r, 4) ? SY_KV_NHD : SY_KV_HND;
    make_cache(c, &a->cache, type, a->layout, pick(r, 2), blocks, size, width);
    make_table(c, r, requests, columns,
               &(struct table_fields){&a->block_table, &a->page_indices, &a->indptr, &a->last_page_len});
    add(c, "cu_lens", &a->cu_lens, index_type(r), 1, batch + 1, 0, 0);
    const int64_t rows = pick(r, 20);
    add(c, "out", &a->out, type, 2, rows, width, 0);
    output(c);
    a->planes = c->planes;
    a->num_planes = make_planes(c, r, a->layout, blocks, size, -1, rows, false);
    c->numbers[c->n_numbers++] = &a->num_planes;
    if (pick(r, 2))
        add(c, "starts", &a->starts, index_type(r), 1, batch, 0, 0);
    if (requests != batch || pick(r, 2))
        add(c, "req_id", &a->req_id, index_type(r), 1, batch, 0, 0);
    c->numbers[c->n_numbers++] = &a->block_size;
    c->enums[c->n_enums++] = &a->layout;
}

sy_status run_ragged(sy_ctx *ctx, struct call *c)
{
    return sy_kv_ragged(ctx, &c->args.ragged);
}

sy_status query_ragged(sy_ctx *ctx, struct call *c, sy_query *q)
{
    return sy_kv_ragged_query(ctx, &c->args.ragged, q);
}

/* Both forms, with up to one further plane. */
void make_blocks(struct call *c, struct reader *r)
{
    sy_kv_blocks_args *a = &c->args.blocks;
    const int64_t n_src = pick(r, 7), n_dst = pick(r, 7), size = 1 + pick(r, 5), width = 1 + pick(r, 9);
    const bool two = pick(r, 2), flat = pick(r, 2);
    const DLDataType type = row_type(r);
    a->block_size = size;
    make_cache(c, two ? &a->src : &a->cache, type, SY_KV_NHD, flat, n_src, size, width);
    if (!two)
        output(c);
    else {
        make_cache(c, &a->dst, type, SY_KV_NHD, pick(r, 2), n_dst, size, width);
        output(c);
    }
    add(c, "pairs", &a->pairs, index_type(r), 2, pick(r, 6), 2, 0);
    a->planes = c->planes;
    a->num_planes = pick(r, 2);
    if (a->num_planes > 0) {
        add(c, "cache of a plane", &c->planes[0].cache, type, 3, n_src, size, width);
        if (!two)
            output(c);
        else {
            add(c, "dst of a plane", &c->planes[0].rows, type, 3, n_dst, size, width);
            output(c);
        }
    }
    c->numbers[c->n_numbers++] = &a->block_size;
    c->numbers[c->n_numbers++] = &a->num_planes;
}

sy_status run_blocks(sy_ctx *ctx, struct call *c)
{
    return sy_kv_blocks(ctx, &c->args.blocks);
}

sy_status query_blocks(sy_ctx *ctx, struct call *c, sy_query *q)
{
    return sy_kv_blocks_query(ctx, &c->args.blocks, q);
}
