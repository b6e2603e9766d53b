/*
 * Checks of paged caches. Blocks, rows and heads of a cache may all have strides of their own.
 */
#include "ops/kv.h"

/* ---- The caches of a call ---- */

/* Where the dimensions of a cache stand. Blocks come first, unless it is flat. */
struct dims {
    bool flat;
    int rows;  /* of a block, or of a flat cache */
    int heads; /* may have a stride of their own; 0: there are none */
    int elems; /* from here on, elements lie next to each other */
};

static struct dims dims_of(const struct syi_call *call, const DLTensor *cache, sy_kv_layout layout)
{
    if (syi_kv_by_block(call)) /* rows are what the block makes of its bytes */
        return (struct dims){false, 0, 0, 1};
    if (layout == SY_KV_HND)
        return (struct dims){false, 2, 1, 3};
    if (cache->ndim == 2)
        return (struct dims){true, 0, 0, 1};
    return cache->ndim == 3 ? (struct dims){false, 1, 0, 2} : (struct dims){false, 1, 2, 3};
}

/* Dimension d says what a row holds: it is neither that of blocks nor that of rows. */
static bool is_of_row(struct dims dims, int d)
{
    return d > 0 && d != dims.rows;
}

int64_t syi_kv_rows_of_block(const struct syi_call *call, const DLTensor *cache, sy_kv_layout layout)
{
    const struct dims dims = dims_of(call, cache, layout);
    return dims.rows == 0 ? 0 : cache->shape[dims.rows];
}

/* ---- Structs that grow ---- */

enum { MOST_BYTES = 4096 }; /* of a struct: more is memory that was never set */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

sy_status syi_check_format_bytes(struct syi_call *call, const char *name, const sy_kv_format *given)
{
    if (given->bytes < sizeof given->bytes || given->bytes > MOST_BYTES)
        return syi_fail(call->ctx, SY_ERR_VALUE, name, "has bytes %zu, want sizeof(sy_kv_format), %zu",
                        given->bytes, sizeof *given);
    return syi_check_tail(call, name, given, given->bytes, sizeof *given);
}

static sy_status check_format_bytes(struct syi_call *call, void *data)
{
    (void)data;
    return call->sets.given != NULL ? syi_check_format_bytes(call, "format", call->sets.given) : SY_OK;
}

sy_kv_format syi_known_format(const sy_kv_format *given)
{
    sy_kv_format known;
    memset(&known, 0, sizeof known);
    memcpy(&known, given, least(given->bytes, sizeof known));
    return known;
}

static void take_format(struct syi_plane_sets *sets, const sy_kv_format *given)
{
    sets->given = given;
    sets->format = given != NULL ? &sets->known : NULL;
    sets->known = given != NULL ? syi_known_format(given) : (sy_kv_format){0};
}

static const void *further_of(const struct syi_plane_sets *sets, int64_t i)
{
    return (const unsigned char *)sets->more + (size_t)i * sets->more_bytes;
}

sy_kv_plane syi_kv_further(const struct syi_plane_sets *sets)
{
    sy_kv_plane plane = {.format = NULL};
    memcpy(&plane, further_of(sets, sets->now - 1), least(sets->more_bytes, sizeof plane));
    return plane;
}

sy_status syi_kv_take_more(struct syi_call *call, struct syi_kv_more more)
{
    if (more.n > 0 && more.planes == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "planes", "is missing, want %lld planes", (long long)more.n);
    if (more.n <= 0 || more.n > SY_KV_MAX_PLANES)
        return SY_OK; /* rejected among the values */
    if (more.bytes == 0 || more.bytes > MOST_BYTES)
        return syi_fail(call->ctx, SY_ERR_VALUE, "plane_bytes", "is %zu, want sizeof(sy_kv_plane), %zu",
                        more.bytes, sizeof *more.planes);
    call->sets.n = more.n;
    call->sets.more = more.planes;
    call->sets.more_bytes = more.bytes;
    for (int64_t i = 0; i < more.n; i++)
        SYI_TRY(syi_check_tail(call, "planes", further_of(&call->sets, i), more.bytes, sizeof *more.planes));
    return SY_OK;
}

/* ---- The tensors of a plane ---- */

static sy_kv_plane own_plane(const struct syi_call *call)
{
    const struct syi_plane_sets *sets = &call->sets;
    const sy_field_info *rules = call->op->info.fields;
    const unsigned char *args = (const unsigned char *)&call->args;
    sy_kv_plane plane = {.format = NULL};
    memcpy(&plane.cache, args + rules[sets->rules[0]].offset, sizeof plane.cache);
    memcpy(&plane.rows, args + rules[sets->rules[1]].offset, sizeof plane.rows);
    if (sets->own_format != 0) {
        memcpy(&plane.format, args + sets->own_format, sizeof plane.format);
        memcpy(&plane.scale, args + rules[sets->rules[2]].offset, sizeof plane.scale);
        memcpy(&plane.global_scale, args + rules[sets->rules[4]].offset, sizeof plane.global_scale);
    }
    return plane;
}

/* An operator that packs rows has two rules for scale: one for all rows is read, one for each is written. */
static void take_scale(struct syi_call *call, const DLTensor *scale)
{
    const int in = call->sets.rules[2], out = call->sets.rules[3];
    const bool written = out != 0 && scale != NULL && scale->ndim > 1;
    if (in != 0)
        call->tensor[in] = written ? NULL : scale;
    if (out != 0)
        call->tensor[out] = written ? scale : NULL;
}

/* The call's own tensors, or those of a further plane. */
static void take_plane(struct syi_call *call)
{
    struct syi_plane_sets *sets = &call->sets;
    const int cache = sets->rules[0], dense = sets->rules[1];
    const sy_kv_plane plane = sets->now > 0 ? syi_kv_further(sets) : own_plane(call);
    take_format(sets, plane.format);
    call->tensor[cache] = syi_looked_at(call, cache) ? plane.cache : NULL;
    call->tensor[dense] = syi_looked_at(call, dense) ? plane.rows : NULL;
    call->tail[dense] = plane.cache != NULL && plane.cache->ndim > 3 && syi_kv_unpacked(call) == 0
                            ? (uint8_t)(plane.cache->ndim - 2)
                            : 1;
    take_scale(call, plane.scale);
    if (sets->rules[4] != 0)
        call->tensor[sets->rules[4]] = plane.global_scale;
}

sy_status syi_kv_check_num_planes(struct syi_call *call, int64_t n_planes)
{
    return syi_check_value(call, "num_planes", n_planes, 0, SY_KV_MAX_PLANES);
}

sy_status syi_kv_check_options(struct syi_call *call, const struct syi_kv_subject *subject)
{
    SYI_TRY(syi_check_enum(call, "layout", (int)subject->layout));
    return syi_kv_check_num_planes(call, subject->more.n);
}

static bool row_elems_of(const DLTensor *cache, struct dims dims, int64_t *elems)
{
    *elems = 1;
    for (int d = 0; d < cache->ndim; d++)
        if (is_of_row(dims, d) && !syi_mul(*elems, cache->shape[d], elems))
            return false;
    return true;
}

static sy_status check_row(struct syi_call *call, void *data)
{
    const struct syi_kv_subject *subject = data;
    const DLTensor *t = call->tensor[subject->cache];
    const char *name = syi_name(call, subject->cache);
    if (subject->layout == SY_KV_HND && t->ndim < 3 && !syi_kv_by_block(call))
        return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_BAD_RANK, name, t->ndim, 3,
                             "has rank %lld, want 3 or more: HND is [blocks,heads,S,...]");
    const struct dims dims = dims_of(call, t, subject->layout);
    for (int d = 0; d < t->ndim; d++)
        if (is_of_row(dims, d) && t->shape[d] == 0) {
            return syi_fail_with(call->ctx, SY_ERR_SHAPE, SY_FAULT_EMPTY, name, 0, 1,
                                 "has extent 0 in dimension %d, want rows of at least one element", d);
        }
    struct syi_kv_rows rows = {dims.flat ? -1 : t->shape[0], t->shape[dims.rows], 0,
                               dims.heads > 0 ? t->shape[dims.heads] : 1};
    /* What cannot be counted is rejected among the sizes. */
    return row_elems_of(t, dims, &rows.elems) ? syi_kv_check_packed(call, subject, &rows) : SY_OK;
}

sy_status syi_kv_check_caches(struct syi_call *call, struct syi_kv_subject *subject,
                              const struct syi_kv_table_rules *tables)
{
    call->sets = (struct syi_plane_sets){
        .rules = {subject->cache, subject->dense, subject->scale, subject->scale_out, subject->global},
        .own_format = subject->format,
        .take = take_plane};
    take_plane(call);
    SYI_TRY(syi_kv_take_more(call, subject->more));
    SYI_TRY(syi_for_every_plane(call, check_format_bytes, NULL));
    if (tables != NULL)
        SYI_TRY(syi_kv_check_given(call, tables));
    SYI_TRY(syi_check_tensors(call, false));
    SYI_TRY(syi_for_every_plane(call, syi_kv_check_format, subject));
    return syi_for_every_plane(call, check_row, subject);
}

sy_status syi_kv_check_block_size(struct syi_call *call, int64_t block_size)
{
    if (block_size >= 1)
        return SY_OK;
    return syi_fail_code(call, SY_ERR_VALUE, SY_FAULT_BAD_BLOCK_SIZE, "block_size", block_size, 1,
                         "is %lld, want 1 or more");
}

static sy_status check_blocks(struct syi_call *call, void *data)
{
    const struct syi_kv_subject *subject = data;
    const DLTensor *t = call->tensor[subject->cache];
    const struct dims dims = dims_of(call, t, subject->layout);
    if (syi_kv_by_block(call))
        return syi_kv_check_packed_blocks(call, subject);
    if (dims.flat || t->shape[dims.rows] == subject->block_size)
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_SHAPE, syi_name(call, subject->cache),
                    "has blocks of %lld rows, want %lld (a flat cache has rank 2)",
                    (long long)t->shape[dims.rows], (long long)subject->block_size);
}

sy_status syi_kv_check_blocks(struct syi_call *call, struct syi_kv_subject *subject)
{
    return syi_for_every_plane(call, check_blocks, subject);
}

static sy_status number_blocks(struct syi_call *call, int64_t n_blocks, int64_t block_size,
                               struct syi_kv_pool *pool)
{
    const uint64_t size = (uint64_t)block_size;
    pool->block_size = block_size;
    pool->block_shift = (size & (size - 1)) == 0 ? __builtin_ctzll(size) : -1;
    pool->block_magic = size > 1 && size <= UINT32_MAX ? UINT64_MAX / size + 1 : 0;
    pool->n_blocks = n_blocks;
    if (syi_mul(n_blocks, block_size, &pool->n_rows))
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_OVERFLOW, "block_size",
                    "is %lld for %lld blocks, want fewer than 2^63 rows", (long long)block_size,
                    (long long)n_blocks);
}

static sy_status number_rows(struct syi_call *call, int64_t n_rows, int64_t block_size,
                             struct syi_kv_pool *pool)
{
    const int64_t n_blocks = n_rows / block_size + (n_rows % block_size != 0);
    SYI_TRY(number_blocks(call, n_blocks, block_size, pool));
    pool->n_rows = n_rows;
    return SY_OK;
}

/* The first plane numbers the rows, the others must have as many. */
static sy_status check_pool(struct syi_call *call, void *data)
{
    const struct syi_kv_subject *subject = data;
    const DLTensor *t = call->tensor[subject->cache];
    struct syi_kv_pool own, *pool = call->sets.now == 0 ? &subject->planes->pool : &own;
    const struct dims dims = dims_of(call, t, subject->layout);
    const int64_t n_blocks = t->shape[dims.rows] > 0 ? t->shape[0] : 0;
    SYI_TRY(dims.flat ? number_rows(call, t->shape[0], subject->block_size, pool)
                      : number_blocks(call, n_blocks, subject->block_size, pool));
    const int64_t want = subject->planes->pool.n_rows;
    if (pool->n_rows == want)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_SHAPE, syi_name(call, subject->cache), pool->n_rows, want,
                          "has %lld rows, want %lld as in the first plane");
}

static bool row_bytes_of(const DLTensor *cache, struct dims dims, int64_t *bytes)
{
    return row_elems_of(cache, dims, bytes) && syi_mul(*bytes, (int64_t)syi_elem_bytes(cache->dtype), bytes);
}

static sy_status check_volume(struct syi_call *call, void *data)
{
    struct syi_kv_subject *subject = data;
    const DLTensor *t = call->tensor[subject->cache];
    int64_t row_bytes, dense_bytes, bytes;
    if (!row_bytes_of(t, dims_of(call, t, subject->layout), &row_bytes) ||
        !syi_kv_dense_bytes(call, subject, row_bytes, &dense_bytes) ||
        !syi_mul(subject->n, dense_bytes, &bytes))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, syi_name(call, subject->dense),
                        "would have more than 2^63-1 bytes");
    if (syi_kv_unpacked(call) > 0 && call->sets.format->row_bytes > 0)
        row_bytes = (int64_t)call->sets.format->row_bytes + call->sets.format->scale_bytes;
    subject->planes->packed |= call->sets.format != NULL;
    uint64_t *sum = &subject->planes->slot_bytes;
    *sum = syi_size_add(*sum, syi_size_add((size_t)row_bytes, (size_t)dense_bytes));
    return SY_OK;
}

sy_status syi_kv_check_volume(struct syi_call *call, struct syi_kv_subject *subject)
{
    SYI_TRY(syi_for_every_plane(call, check_pool, subject));
    if (subject->n >= INT64_C(1) << 32)
        return syi_fail(call->ctx, SY_ERR_OVERFLOW,
                        syi_name(call, subject->outer >= 0 ? subject->outer : subject->dense),
                        "has %lld positions, want fewer than 2^32", (long long)subject->n);
    return syi_for_every_plane(call, check_volume, subject);
}

static sy_status check_dense(struct syi_call *call, void *data)
{
    const struct syi_kv_subject *subject = data;
    const DLTensor *t = call->tensor[subject->cache];
    const DLTensor *outer = subject->outer >= 0 ? call->tensor[subject->outer] : NULL;
    const struct dims dims = dims_of(call, t, subject->layout);
    int64_t shape[2 * SYI_MAX_RANK] = {subject->n};
    int rank = outer != NULL ? outer->ndim : 1;
    for (int d = 0; outer != NULL && d < rank; d++)
        shape[d] = outer->shape[d];
    if (syi_kv_unpacked(call) > 0)
        shape[rank++] = syi_kv_unpacked(call);
    for (int d = 0; d < t->ndim && syi_kv_unpacked(call) == 0; d++)
        if (is_of_row(dims, d))
            shape[rank++] = t->shape[d];
    if (call->sets.format != NULL && syi_is_fp4_format(call->sets.format)) /* bytes of two codes */
        shape[rank - 1] = shape[rank - 1] <= INT64_MAX / 2 ? 2 * shape[rank - 1] : INT64_MAX;
    return syi_check_shape(call, subject->dense, rank, shape);
}

sy_status syi_kv_check_dense(struct syi_call *call, struct syi_kv_subject *subject)
{
    return syi_for_every_plane(call, check_dense, subject);
}

/* A dimension of a cache and how many elements a step along it takes. The stride of one of a single element means
   nothing and may be anything. */
struct step {
    const char *what;
    int64_t extent, stride;
};

static struct step step_of(const DLTensor *cache, int dim, const char *what)
{
    const int64_t extent = cache->shape[dim];
    return (struct step){what, extent, extent > 1 ? syi_stride(cache, dim) : 0};
}

/* Steps do not make pieces of *reach elements overlap; then the elements from the first to behind the last. */
static sy_status check_step(struct syi_call *call, int cache, struct step step, int64_t *reach)
{
    if (step.extent <= 1)
        return SY_OK;
    SYI_TRY(syi_check_step(call, syi_name(call, cache), step.what, step.stride, *reach));
    *reach += (step.extent - 1) * step.stride;
    return SY_OK;
}

/* The heads of a row do not follow each other. */
static bool heads_apart(const DLTensor *cache, struct dims dims)
{
    int64_t elems;
    return dims.heads > 0 && cache->shape[dims.heads] > 1 &&
           syi_kv_product(cache, dims.elems, cache->ndim, &elems) && syi_stride(cache, dims.heads) != elems;
}

static sy_status check_strides(struct syi_call *call, void *data)
{
    const struct syi_kv_subject *subject = data;
    const DLTensor *t = call->tensor[subject->cache];
    const struct dims dims = dims_of(call, t, subject->layout);
    int64_t reach = 0;
    if (subject->planes->pool.n_rows == 0)
        return SY_OK; /* no row exists; every live index fails on its block */
    SYI_TRY(syi_check_row(call, subject->cache, t->ndim - dims.elems, &reach));
    struct step inner = {0}, outer = {0};
    if (!syi_kv_by_block(call))
        inner = step_of(t, dims.rows, "row");
    if (dims.heads > 0)
        outer = step_of(t, dims.heads, "head");
    if (outer.extent > 1 && outer.stride < inner.stride) {
        const struct step heads = outer;
        outer = inner;
        inner = heads;
    }
    SYI_TRY(check_step(call, subject->cache, inner, &reach));
    SYI_TRY(check_step(call, subject->cache, outer, &reach));
    if (!dims.flat)
        SYI_TRY(check_step(call, subject->cache, step_of(t, 0, "block"), &reach));
    return syi_kv_check_packed_pieces(call, subject, heads_apart(t, dims));
}

sy_status syi_kv_check_strides(struct syi_call *call, struct syi_kv_subject *subject)
{
    SYI_TRY(syi_for_every_plane(call, check_strides, subject));
    return syi_check_layout(call);
}

static void view_strides(const DLTensor *t, struct dims dims, const struct syi_kv_pool *pool,
                         struct syi_kv_plane *plane)
{
    const int64_t elem_bytes = (int64_t)syi_elem_bytes(t->dtype);
    plane->row_stride = step_of(t, dims.rows, "row").stride * elem_bytes;
    if (!dims.flat)
        plane->block_stride = step_of(t, 0, "block").stride * elem_bytes;
    /* When this product does not fit there is one block, and block 0 needs no stride. */
    else if (!syi_mul(pool->block_size, plane->row_stride, &plane->block_stride))
        plane->block_stride = 0;
    if (!heads_apart(t, dims))
        return;
    plane->n_heads = t->shape[dims.heads];
    plane->head_bytes = plane->row_bytes / (size_t)plane->n_heads;
    plane->head_stride = syi_stride(t, dims.heads) * elem_bytes;
}

static sy_status view_plane(struct syi_call *call, void *data)
{
    const struct syi_kv_subject *subject = data;
    const struct syi_kv_pool *pool = &subject->planes->pool;
    const DLTensor *t = call->tensor[subject->cache];
    const struct dims dims = dims_of(call, t, subject->layout);
    struct syi_kv_plane *plane = &call->planes[call->sets.now];
    int64_t row_bytes = 0;
    row_bytes_of(t, dims, &row_bytes);
    *plane = (struct syi_kv_plane){.cache = syi_data(call, subject->cache),
                                   .row_bytes = (size_t)row_bytes,
                                   .n_heads = 1,
                                   .head_bytes = (size_t)row_bytes,
                                   .dense = syi_rows_of(call, subject->dense)};
    if (pool->n_rows > 0)
        view_strides(t, dims, pool, plane);
    if (call->sets.format != NULL)
        syi_kv_view_codec(call, subject, plane);
    return SY_OK;
}

sy_status syi_kv_view_planes(struct syi_call *call, struct syi_kv_subject *subject)
{
    subject->planes->n = call->sets.n + 1;
    SYI_TRY(syi_take_scratch(call));
    if (call->query)
        return SY_OK;
    subject->planes->at = call->planes;
    return syi_for_every_plane(call, view_plane, subject);
}

/* ---- Where blocks are ---- */

static const DLTensor *tensor_at(const struct syi_call *call, int i)
{
    return i >= 0 ? call->tensor[i] : NULL;
}

static bool has_lists(const struct syi_call *call, const struct syi_kv_table_rules *rules)
{
    return call->tensor[rules->page_indices] != NULL;
}

sy_status syi_kv_check_given(struct syi_call *call, const struct syi_kv_table_rules *rules)
{
    const DLTensor *pages = call->tensor[rules->page_indices], *indptr = call->tensor[rules->indptr];
    if (pages == NULL && indptr == NULL && tensor_at(call, rules->last_page_len) == NULL)
        return call->tensor[rules->table] != NULL
                   ? SY_OK
                   : syi_fail(call->ctx, SY_ERR_NULL, "block_table",
                              "is missing, want a tensor, or page_indices and indptr");
    if (pages == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "page_indices", "is missing while %s is given, want both",
                        indptr != NULL ? "indptr" : "last_page_len");
    if (indptr == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "indptr",
                        "is missing while page_indices is given, want both");
    return SY_OK;
}

sy_status syi_kv_check_lists(struct syi_call *call, const struct syi_kv_table_rules *rules, int64_t *rows)
{
    const DLTensor *table = call->tensor[rules->table];
    if (!has_lists(call, rules)) {
        *rows = table->ndim == 2 ? table->shape[0] : 1;
        return SY_OK;
    }
    *rows = call->tensor[rules->indptr]->shape[0] - 1;
    if (*rows >= 0)
        return rules->last_page_len >= 0 ? syi_check_vector(call, rules->last_page_len, *rows) : SY_OK;
    return syi_fail_code(call, SY_ERR_SHAPE, SY_FAULT_EMPTY, "indptr", 0, 1,
                         "has shape [0], want an entry for each list and one for the end");
}

sy_status syi_kv_check_table(struct syi_call *call, const struct syi_kv_table_rules *rules, int req_id,
                             int64_t batch, const char *each)
{
    const bool lists = has_lists(call, rules);
    int64_t rows;
    SYI_TRY(syi_kv_check_lists(call, rules, &rows));
    SYI_TRY(syi_check_vector(call, req_id, batch));
    if (call->tensor[req_id] == NULL && rows != batch)
        return syi_fail(call->ctx, SY_ERR_SHAPE, lists ? "indptr" : "block_table",
                        "has %lld %s, want %lld, one for each %s (or give req_id)", (long long)rows,
                        lists ? "lists" : "rows", (long long)batch, each);
    return SY_OK;
}

/* Values: a table or lists, not both. */
static sy_status check_form(struct syi_call *call, const struct syi_kv_table_rules *rules)
{
    if (!has_lists(call, rules) || call->tensor[rules->table] == NULL)
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_VALUE, "page_indices", "is given beside block_table, want one of them");
}

sy_status syi_kv_count_table(struct syi_call *call, const struct syi_kv_table_rules *rules,
                             int64_t block_size, struct syi_kv_table *table)
{
    const bool lists = has_lists(call, rules);
    const DLTensor *t = call->tensor[lists ? rules->page_indices : rules->table];
    int64_t n;
    SYI_TRY(syi_kv_check_lists(call, rules, &table->rows));
    table->len = t->shape[t->ndim - 1];
    if (syi_mul(table->len, block_size, &n))
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_OVERFLOW, lists ? "page_indices" : "block_table",
                    "has %lld %s of %lld tokens, want fewer than 2^63 tokens", (long long)table->len,
                    lists ? "pages" : "columns", (long long)block_size);
}

static struct syi_column column_at(const struct syi_call *call, int i)
{
    return i >= 0 ? syi_column_of(call, i) : (struct syi_column){.type = SY_TYPE_OTHER};
}

void syi_kv_view_table(const struct syi_call *call, const struct syi_kv_table_rules *rules,
                       struct syi_kv_table *table)
{
    const int entries = has_lists(call, rules) ? rules->page_indices : rules->table;
    table->entries = syi_rows_of(call, entries);
    table->type = syi_type_at(call, entries);
    table->indptr = syi_column_of(call, rules->indptr);
    table->last_page_len = column_at(call, rules->last_page_len);
}

/* ---- Positions ---- */

sy_status syi_kv_check_pages(struct syi_call *call, const struct syi_kv_page_rules *rules)
{
    const DLTensor *indices = call->tensor[rules->indices];
    int64_t batch;
    if (!syi_kv_product(indices, 0, indices->ndim - 1, &batch))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "indices", "has more than 2^63-1 rows");
    SYI_TRY(syi_kv_check_table(call, &rules->tables, rules->req_id, batch, "row of indices"));
    SYI_TRY(syi_check_vector(call, rules->counts, batch));
    return syi_check_vector(call, rules->seq_lens, batch);
}

sy_status syi_kv_check_page_form(struct syi_call *call, const struct syi_kv_page_rules *rules)
{
    SYI_TRY(check_form(call, &rules->tables));
    if (tensor_at(call, rules->seq_lens) == NULL || call->tensor[rules->tables.last_page_len] == NULL)
        return SY_OK;
    return syi_fail(call->ctx, SY_ERR_VALUE, "last_page_len", "is given beside seq_lens, want one of them");
}

sy_status syi_kv_check_positions(struct syi_call *call, const struct syi_kv_page_rules *rules,
                                 int64_t block_size, struct syi_kv_pages *pages)
{
    const DLTensor *indices = call->tensor[rules->indices];
    syi_kv_product(indices, 0, indices->ndim - 1, &pages->batch); /* fits: the elements were counted */
    pages->k = indices->shape[indices->ndim - 1];
    SYI_TRY(syi_kv_count_table(call, &rules->tables, block_size, &pages->table));
    if (pages->batch * pages->k >= INT64_C(1) << 32)
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, syi_name(call, rules->indices),
                        "has %lld rows of %lld, want fewer than 2^32 positions", (long long)pages->batch,
                        (long long)pages->k);
    return SY_OK;
}

void syi_kv_view_pages(const struct syi_call *call, const struct syi_kv_page_rules *rules, sy_kv_pad pad,
                       struct syi_kv_pages *pages)
{
    pages->indices = syi_rows_of(call, rules->indices);
    pages->index_type = syi_type_at(call, rules->indices);
    syi_kv_view_table(call, &rules->tables, &pages->table);
    pages->req_id = column_at(call, rules->req_id);
    pages->counts = column_at(call, rules->counts);
    pages->seq_lens = column_at(call, rules->seq_lens);
    pages->pad = pad;
}

/* ---- Slots as numbers ---- */

/* Slots that int32 can name. */
static const int64_t narrow_slots = (int64_t)INT32_MAX + 1;

sy_status syi_kv_check_slot_rows(struct syi_call *call, const struct syi_kv_page_rules *rules,
                                 const struct syi_kv_slot_args *a)
{
    SYI_TRY(syi_kv_check_page_form(call, rules));
    SYI_TRY(syi_kv_check_block_size(call, a->block_size));
    if (syi_type_at(call, a->slots) == SY_TYPE_I32 && a->num_rows > narrow_slots)
        return syi_fail_value(call, SY_ERR_VALUE, "num_rows", a->num_rows, narrow_slots,
                              "is %lld, want at most %lld: slots is i32");
    return syi_check_value(call, "num_rows", a->num_rows, 0, INT64_MAX);
}

sy_status syi_kv_check_slots(struct syi_call *call, const struct syi_kv_page_rules *rules,
                             const struct syi_kv_slot_args *a)
{
    SYI_TRY(syi_kv_check_slot_rows(call, rules, a));
    return syi_check_enum(call, "pad", (int)a->pad);
}

sy_status syi_kv_check_share(struct syi_call *call, int64_t world, int64_t rank, int64_t interleave)
{
    SYI_TRY(syi_check_value(call, "world", world, 0, INT32_MAX));
    SYI_TRY(syi_check_value(call, "rank", rank, 0, world > 0 ? world - 1 : 0));
    return syi_check_value(call, "interleave", interleave, 0, INT32_MAX);
}

sy_status syi_kv_number_slots(struct syi_call *call, const struct syi_kv_page_rules *rules,
                              const struct syi_kv_slot_args *a, struct syi_kv_pages *pages)
{
    SYI_TRY(syi_check_sizes(call));
    SYI_TRY(syi_kv_check_positions(call, rules, a->block_size, pages));
    return syi_kv_number_rows(call, a, &pages->pool);
}

sy_status syi_kv_number_rows(struct syi_call *call, const struct syi_kv_slot_args *a,
                             struct syi_kv_pool *pool)
{
    int64_t n = a->num_rows;
    if (n == 0)
        n = syi_type_at(call, a->slots) == SY_TYPE_I32 ? narrow_slots
                                                       : INT64_MAX / a->block_size * a->block_size;
    return number_rows(call, n, a->block_size, pool);
}
