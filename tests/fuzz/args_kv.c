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
        const int64_t width = 1 + extent(r, 5);
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

/* Codes, rope and scales behind each other; now and then a field that is anything. */
static void make_format(struct call *c, struct reader *r)
{
    static const DLDataType codes[] = {{10, 8, 1}, {12, 8, 1}, {0, 8, 1}};
    sy_kv_format *f = &c->format;
    static const size_t sizes[] = {0, 7, 8, 24, 40, SIZE_MAX};
    static const char *const names[] = {"q8_0", "q4_0", "nvfp4", "nvfp4_amax"};
    f->bytes = pick(r, 30) ? sizeof *f : sizes[pick(r, 6)];
    const int32_t groups = 1 + pick(r, 3);
    f->q_type = codes[pick(r, 3)];
    f->scales = (sy_kv_scales)pick(r, 3);
    if (f->scales != SY_SCALES_TENSOR) {
        f->scale_type = pick(r, 2) ? (DLDataType){14, 8, 1} : (DLDataType){2, 32, 1};
        f->group = 1 + pick(r, 9);
        f->q_count = groups * f->group;
        f->rope_bytes = 2 * pick(r, 4);
        f->rope_off = f->q_count + pick(r, 2);
        f->row_bytes = f->rope_off + f->rope_bytes + pick(r, 2);
        const int32_t scales = groups * f->scale_type.bits / 8;
        if (f->scales == SY_SCALES_ROW) {
            f->scale_off = f->row_bytes;
            f->row_bytes += scales;
        } else {
            f->scale_bytes = scales + pick(r, 3);
        }
    }
    if (pick(r, 4) == 3)
        (void)sy_kv_format_named(names[pick(r, 4)], f);
    int32_t *const fields[] = {&f->row_bytes, &f->q_off,       &f->q_count,  &f->group,
                               &f->scale_off, &f->scale_bytes, &f->rope_off, &f->rope_bytes};
    if (pick(r, 6) == 5)
        *fields[pick(r, 8)] = (int32_t)hostile(r);
    if (pick(r, 12) == 11)
        f->scales = (sy_kv_scales)(pick(r, 9) - 2);
}

/* A size from a field, unless it was spoiled. */
static int64_t sane(int64_t size, int64_t instead)
{
    return size > 0 && size < 40 ? size : instead;
}

static void make_packed(struct call *c, struct reader *r, struct own_plane *own, int64_t blocks, int64_t size)
{
    const DLDataType u8 = {1, 8, 1}, f32 = {2, 32, 1};
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};
    make_format(c, r);
    const sy_kv_format *f = *own->format = &c->format;
    const int64_t of_group = f->q_type.bits == 4 ? 18 : 34, groups = 1 + pick(r, 3);
    const bool inlined = f->scales == SY_SCALES_INLINE, fp4 = f->q_type.code == 17;
    const int64_t row = inlined ? of_group * groups
                        : fp4   ? 8 * groups
                                : sane(f->row_bytes, 1 + pick(r, 9)),
                  record = sane(f->scale_bytes, 1);
    own->type = types[pick(r, 3)];
    if (f->scales == SY_SCALES_BLOCK)
        add(c, "cache", own->cache, u8, 2, blocks, size * (row + record) + pick(r, 3), 0);
    else
        add(c, "cache", own->cache, u8, 3, blocks, size, row);
    if (own->to_cache)
        output(c);
    own->width = inlined                         ? 32 * groups
                 : fp4                           ? 2 * row
                 : f->scales == SY_SCALES_TENSOR ? row
                                                 : sane((int64_t)f->q_count + f->rope_bytes / 2, 1);
    if (f->scales != SY_SCALES_TENSOR)
        return;
    const int64_t parts = fp4 ? groups : pick(r, 2) ? 1 : row;
    if (fp4) {
        add(c, "global_scale", own->global, f32, 1, 1, 0, 0);
        add(c, "scale", own->scale, u8, 3, blocks, size, parts);
    } else if (pick(r, 2))
        add(c, "scale", own->scale, f32, 1, parts, 0, 0);
    else
        add(c, "scale", own->scale, f32, 3, blocks, size, parts);
    if (own->to_cache)
        output(c);
}

void make_own(struct call *c, struct reader *r, struct own_plane *own, sy_kv_layout layout, int64_t blocks,
              int64_t size)
{
    if (pick(r, 3) == 2) {
        make_packed(c, r, own, blocks, size);
        return;
    }
    own->type = row_type(r);
    own->width = 1 + extent(r, 9);
    make_cache(c, own->cache, own->type, layout, pick(r, 2), blocks, size, own->width);
    if (own->to_cache)
        output(c);
}

void make_ragged(struct call *c, struct reader *r)
{
    sy_kv_ragged_args *a = &c->args.ragged;
    const int64_t blocks = extent(r, 7), size = 1 + pick(r, 5), batch = extent(r, 4);
    const int64_t requests = pick(r, 2) ? pick(r, 4) : batch, columns = extent(r, 5);
    struct own_plane own = {
        .cache = &a->cache, .scale = &a->scale, .global = &a->global_scale, .format = &a->format};
    a->block_size = size;
    a->layout = pick(r, 4) ? SY_KV_NHD : SY_KV_HND;
    make_own(c, r, &own, a->layout, blocks, size);
    make_table(c, r, requests, columns,
               &(struct table_fields){&a->block_table, &a->page_indices, &a->indptr, &a->last_page_len});
    add(c, "cu_lens", &a->cu_lens, index_type(r), 1, batch + 1, 0, 0);
    const int64_t rows = extent(r, 20);
    add(c, "out", &a->out, own.type, 2, rows, own.width, 0);
    output(c);
    a->planes = c->planes;
    a->num_planes = make_planes(c, r, a->layout, blocks, size, -1, rows, false);
    a->plane_bytes = sizeof(sy_kv_plane);
    if (pick(r, 2))
        add(c, "starts", &a->starts, index_type(r), 1, batch, 0, 0);
    if (a->last_page_len == NULL && pick(r, 2))
        add(c, "seq_lens", &a->seq_lens, index_type(r), 1, batch, 0, 0);
    if (requests != batch || pick(r, 2))
        add(c, "req_id", &a->req_id, index_type(r), 1, batch, 0, 0);
}

/* Both forms, with up to one further plane. */
void make_blocks(struct call *c, struct reader *r)
{
    sy_kv_blocks_args *a = &c->args.blocks;
    const int64_t n_src = extent(r, 7), n_dst = extent(r, 7), size = 1 + pick(r, 5), width = 1 + extent(r, 9);
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
    add(c, "pairs", &a->pairs, index_type(r), 2,
        pick(r, 3) ? pick(r, (int)(n_src + n_dst) / 2 + 1) : extent(r, 6), 2, 0);
    a->planes = c->planes;
    a->num_planes = pick(r, 2);
    a->plane_bytes = sizeof(sy_kv_plane);
    if (a->num_planes > 0) {
        add(c, "cache of a plane", &c->planes[0].cache, type, 3, n_src, size, width);
        if (!two)
            output(c);
        else {
            add(c, "dst of a plane", &c->planes[0].rows, type, 3, n_dst, size, width);
            output(c);
        }
    }
}
