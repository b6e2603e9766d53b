/*
 * kv_gather, kv_translate and kv_slots against the oracle: seeded shapes with flat and paged caches, block tables and lists
 * of pages, one to three dimensions of indices, every policy and mix of integer types, strides, gaps and planted faults;
 * then sizes large enough to be split over threads. What the generator must have produced is counted and asserted at the end. Examples and rules are
 * in tests/examples.
 */
#include "support.h"

#include "oracle/kv_gather.h"

static struct {
    int code[GATHER_ROW + 1], slots_code[GATHER_ROW + 1], padded[3], past_count[3], partial, shared,
        unreached, paged, paged_gap, rank[4], req, counts, seq_lens, mixed, gap, offset, misaligned, no_rows,
        shared_request, element[17], lists, last_page_len, no_pages;
} seen;

struct fixture {
    struct gather_case in;
    bool paged;
    int rank;         /* of indices                              */
    int64_t lead[2];  /* its leading dimensions                  */
    int64_t width[2]; /* D, or D1 and D2 of a paged cache        */
    DLDataType element, index_type, table_type, req_type, count_type, length_type;
    struct tensor cache, indices, table, indptr, last_page_len, req_id, counts, seq_lens, out;
    unsigned char *dense_cache, *want;
    int64_t *dense_indices, *dense_table, *dense_indptr, *dense_last, *dense_req, *dense_counts,
        *dense_lengths;
    sy_kv_gather_args args;
};

static struct layout any_layout(uint64_t *rng, size_t element, int inner)
{
    struct layout at = {.inner = inner, .strided = rng_below(rng, 2)};
    if (rng_below(rng, 3) == 0)
        at.row_gap = 1 + rng_below(rng, 9);
    if (rng_below(rng, 3) == 0)
        at.byte_offset = (uint64_t)(1 + rng_below(rng, 4)) * element;
    if (rng_below(rng, 3) == 0)
        at.misalign = (size_t)rng_below(rng, 64);
    seen.gap += at.row_gap > 0;
    seen.offset += at.byte_offset > 0;
    seen.misaligned += at.misalign % element != 0;
    return at;
}

static int64_t *int_array(int64_t count)
{
    int64_t *array = calloc((size_t)count + 1, sizeof *array);
    assert_non_null(array);
    return array;
}

/* Stores 64-bit numbers as the tensor's own integer type. */
static void put_ints(struct tensor *x, const int64_t *values, int64_t count)
{
    const size_t bytes = type_bytes(x->t.dtype);
    unsigned char *dense = malloc((size_t)count * bytes + 1);
    assert_non_null(dense);
    for (int64_t i = 0; i < count; i++)
        memcpy(dense + (size_t)i * bytes, &values[i], bytes);
    tensor_put(x, dense);
    free(dense);
}

static DLDataType any_int(uint64_t *rng)
{
    return rng_below(rng, 2) ? SY_I32 : SY_I64;
}

static void choose_sizes(struct fixture *f, uint64_t *rng)
{
    static const DLDataType elements[] = {{kDLInt, 8, 1},    {kDLBfloat, 16, 1}, {kDLUInt, 24, 1},
                                          {kDLFloat, 32, 1}, {kDLFloat, 64, 1},  {kDLComplex, 128, 1}};
    struct gather_case *in = &f->in;
    f->rank = 1 + (int)rng_below(rng, 3);
    f->lead[0] = f->rank == 3 ? 1 + rng_below(rng, 3) : 1;
    f->lead[1] = f->rank >= 2 ? 1 + rng_below(rng, 5) : 1;
    f->paged = rng_below(rng, 2);
    f->width[0] = 1 + rng_below(rng, 20);
    f->width[1] = f->paged ? 1 + rng_below(rng, 3) : 1;
    f->element = elements[rng_below(rng, COUNT_OF(elements))];
    in->batch = f->lead[0] * f->lead[1];
    in->k = 1 + rng_below(rng, 12);
    in->block_size = rng_below(rng, 3) ? 1 + rng_below(rng, 9) : 1 << rng_below(rng, 5);
    const int64_t blocks = 1 + rng_below(rng, 12);
    in->rows = blocks * in->block_size - (f->paged ? 0 : rng_below(rng, in->block_size));
    in->table_len = 1 + rng_below(rng, 8);
    in->row_bytes = (size_t)(f->width[0] * f->width[1]) * type_bytes(f->element);
    in->pad = (enum gather_pad)rng_below(rng, 3);
    f->index_type = any_int(rng);
    f->table_type = any_int(rng);
    f->req_type = any_int(rng);
    f->count_type = any_int(rng);
    f->length_type = any_int(rng);
}

/* Entries of the table or of all lists; those of sequence r, and its first. */
static int64_t all_pages(const struct gather_case *in)
{
    return in->indptr ? in->table_len : in->table_rows * in->table_len;
}

static int64_t n_pages(const struct gather_case *in, int64_t r)
{
    return in->indptr ? in->indptr[r + 1] - in->indptr[r] : in->table_len;
}

static int64_t first_page(const struct gather_case *in, int64_t r)
{
    return in->indptr ? in->indptr[r] : r * in->table_len;
}

/* Lists of up to table_len pages in place of the table, with unused pages before and after them. */
static void fill_lists(struct fixture *f, uint64_t *rng)
{
    struct gather_case *in = &f->in;
    int64_t *at = f->dense_indptr = int_array(in->table_rows + 1);
    in->indptr = at;
    f->dense_last = int_array(in->table_rows);
    at[0] = rng_below(rng, 3);
    for (int64_t r = 0; r < in->table_rows; r++) {
        at[r + 1] = at[r] + rng_below(rng, in->table_len + 1);
        f->dense_last[r] = at[r + 1] == at[r] ? -1 : 1 + rng_below(rng, in->block_size);
        seen.no_pages += at[r + 1] == at[r];
    }
    in->table_len = at[in->table_rows] + rng_below(rng, 3);
    if (!in->seq_lens && rng_below(rng, 2))
        in->last_page_len = f->dense_last;
    seen.lists++;
    seen.last_page_len += in->last_page_len != NULL;
}

/* Entries that exist; a third of the blocks are unmapped and are avoided by the indices below. */
static void fill_table(struct fixture *f, uint64_t *rng)
{
    struct gather_case *in = &f->in;
    const int64_t blocks = (in->rows + in->block_size - 1) / in->block_size;
    for (int64_t i = 0; i < all_pages(in); i++)
        f->dense_table[i] =
            rng_below(rng, 3) == 0 ? -1 - rng_below(rng, 2) * 1000000 : rng_below(rng, blocks);
}

/* A token whose row exists, or -1 after some tries; padding under ERROR would be a fault, so the caller shortens. */
static int64_t live_token(const struct fixture *f, uint64_t *rng, int64_t b)
{
    const struct gather_case *in = &f->in;
    const int64_t r = in->req_id ? f->dense_req[b] : b, pages = n_pages(in, r);
    const int64_t missing = in->last_page_len && pages > 0 ? in->block_size - in->last_page_len[r] : 0;
    const int64_t limit = in->seq_lens ? f->dense_lengths[b] : pages * in->block_size - missing;
    for (int i = 0; i < 60 && limit > 0; i++) {
        const int64_t t = rng_below(rng, limit);
        if (t / in->block_size >= pages)
            continue;
        const int64_t block = f->dense_table[first_page(in, r) + t / in->block_size];
        if (block >= 0 && block * in->block_size + t % in->block_size < in->rows)
            return t;
    }
    return -1;
}

/* Index rows without a fault: where no live token is left, or now and then, padding of the policy. */
static void fill_indices(struct fixture *f, uint64_t *rng)
{
    struct gather_case *in = &f->in;
    for (int64_t b = 0; b < in->batch; b++)
        for (int64_t j = 0; j < in->k; j++) {
            int64_t *t = &f->dense_indices[b * in->k + j];
            *t = live_token(f, rng, b);
            if (in->pad != GATHER_ERROR && rng_below(rng, 5) == 0)
                *t = -1;
            if (*t == -1 && in->pad == GATHER_ERROR) {
                if (f->dense_counts[b] > j)
                    f->dense_counts[b] = j;
                in->counts = f->dense_counts;
            }
        }
    for (int64_t i = 0; in->counts && i < in->batch * in->k; i++)
        if (i % in->k >= f->dense_counts[i / in->k])
            f->dense_indices[i] = rng_below(rng, 2) ? INT32_MIN : 99999;
}

static void note_case(const struct fixture *f)
{
    const struct gather_case *in = &f->in;
    int uses[64] = {0};
    seen.rank[f->rank]++;
    seen.paged += f->paged;
    seen.req += in->req_id != NULL;
    seen.counts += in->counts != NULL;
    seen.seq_lens += in->seq_lens != NULL;
    seen.mixed += f->index_type.bits != f->table_type.bits;
    seen.shared_request += in->req_id && in->batch > in->table_rows;
    seen.element[type_bytes(f->element)]++;
    for (int64_t i = 0; i < in->batch * in->k; i++) {
        const int64_t b = i / in->k, r = in->req_id ? in->req_id[b] : b, t = in->indices[i];
        if (in->counts && i % in->k >= in->counts[b]) {
            seen.past_count[in->pad]++;
            continue;
        }
        if (t == -1) {
            seen.padded[in->pad]++;
            continue;
        }
        const int64_t block = in->table[first_page(in, r) + t / in->block_size];
        seen.partial += (block + 1) * in->block_size > in->rows;
        uses[block]++;
    }
    for (size_t i = 0; i < COUNT_OF(uses); i++)
        seen.shared += uses[i] > 1;
    for (int64_t i = 0; i < all_pages(in); i++)
        seen.unreached += in->table[i] < 0;
}

static void fixture_fill(struct fixture *f, uint64_t *rng)
{
    struct gather_case *in = &f->in;
    in->table_rows = in->batch;
    if (rng_below(rng, 2)) {
        in->req_id = f->dense_req = int_array(in->batch);
        in->table_rows = 1 + rng_below(rng, 3);
        for (int64_t b = 0; b < in->batch; b++)
            f->dense_req[b] = rng_below(rng, in->table_rows);
    }
    if (rng_below(rng, 2)) {
        in->seq_lens = f->dense_lengths = int_array(in->batch);
        for (int64_t b = 0; b < in->batch; b++)
            f->dense_lengths[b] = rng_below(rng, in->table_len * in->block_size + 20);
    }
    if (rng_below(rng, 3) == 0)
        fill_lists(f, rng);
    f->dense_counts = int_array(in->batch);
    for (int64_t b = 0; b < in->batch; b++)
        f->dense_counts[b] = in->k;
    if (rng_below(rng, 2)) {
        in->counts = f->dense_counts;
        for (int64_t b = 0; b < in->batch; b++)
            f->dense_counts[b] = rng_below(rng, in->k + 1);
    }
    in->table = f->dense_table = int_array(all_pages(in));
    in->indices = f->dense_indices = int_array(in->batch * in->k);
    f->dense_cache = malloc((size_t)in->rows * in->row_bytes + 1);
    f->want = malloc((size_t)(in->batch * in->k) * in->row_bytes + 1);
    assert_true(f->dense_cache && f->want);
    rng_fill(rng, f->dense_cache, (size_t)in->rows * in->row_bytes);
    rng_fill(rng, f->want, (size_t)(in->batch * in->k) * in->row_bytes);
    in->cache = f->dense_cache;
    fill_table(f, rng);
    fill_indices(f, rng);
    note_case(f);
}

static const DLTensor *row_array(struct tensor *x, DLDataType type, const int64_t *values, int64_t batch,
                                 uint64_t *rng)
{
    struct layout at = {0};
    if (values == NULL)
        return NULL;
    if (rng)
        at = any_layout(rng, type_bytes(type), 1);
    tensor_make(x, type, 1, &batch, &at);
    put_ints(x, values, batch);
    return &x->t;
}

static void fixture_tensors(struct fixture *f, uint64_t *rng)
{
    const struct gather_case *in = &f->in;
    const size_t element = type_bytes(f->element);
    const int skip = 3 - f->rank, inner = f->paged ? 2 : 1;
    const int64_t paged_shape[] = {in->rows / in->block_size, in->block_size, f->width[0], f->width[1]};
    const int64_t flat_shape[] = {in->rows, f->width[0]}, index_shape[] = {f->lead[0], f->lead[1], in->k},
                  out_shape[] = {f->lead[0], f->lead[1], in->k, f->width[0], f->width[1]},
                  table_shape[] = {in->table_rows, in->table_len};
    struct layout at[4] = {{.inner = inner}, {0}, {0}, {.inner = inner}};
    if (rng) {
        at[0] = any_layout(rng, element, inner);
        at[1] = any_layout(rng, type_bytes(f->index_type), 1);
        at[2] = any_layout(rng, type_bytes(f->table_type), 1);
        at[3] = any_layout(rng, element, inner);
        if (f->paged && rng_below(rng, 2)) /* pages of other layers between ours */
            at[0].outer_gap = 1 + rng_below(rng, 50);
    }
    seen.paged_gap += at[0].outer_gap > 0;
    if (f->paged)
        tensor_make(&f->cache, f->element, 4, paged_shape, &at[0]);
    else
        tensor_make(&f->cache, f->element, 2, flat_shape, &at[0]);
    tensor_make(&f->indices, f->index_type, f->rank, index_shape + skip, &at[1]);
    const int table_rank = in->table_rows == 1 && (rng == NULL || rng_below(rng, 2)) ? 1 : 2;
    if (in->indptr)
        tensor_make(&f->table, f->table_type, 1, &in->table_len, &at[2]);
    else
        tensor_make(&f->table, f->table_type, table_rank, table_shape + 2 - table_rank, &at[2]);
    tensor_make(&f->out, f->element, f->rank + inner, out_shape + skip, &at[3]);
    tensor_put(&f->cache, f->dense_cache);
    tensor_put(&f->out, f->want);
    put_ints(&f->indices, in->indices, in->batch * in->k);
    put_ints(&f->table, in->table, all_pages(in));
    f->args = (sy_kv_gather_args){
        .cache = &f->cache.t,
        .indices = &f->indices.t,
        .block_table = in->indptr ? NULL : &f->table.t,
        .page_indices = in->indptr ? &f->table.t : NULL,
        .indptr = row_array(&f->indptr, f->req_type, in->indptr, in->table_rows + 1, rng),
        .last_page_len = row_array(&f->last_page_len, f->length_type, in->last_page_len, in->table_rows, rng),
        .req_id = row_array(&f->req_id, f->req_type, in->req_id, in->batch, rng),
        .counts = row_array(&f->counts, f->count_type, in->counts, in->batch, rng),
        .seq_lens = row_array(&f->seq_lens, f->length_type, in->seq_lens, in->batch, rng),
        .block_size = in->block_size,
        .pad = (sy_kv_pad)in->pad,
        .out = &f->out.t};
}

static void fixture_free(struct fixture *f)
{
    struct tensor *all[] = {&f->cache,  &f->indices, &f->table,    &f->indptr, &f->last_page_len,
                            &f->req_id, &f->counts,  &f->seq_lens, &f->out};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
    free(f->dense_cache);
    free(f->want);
    free(f->dense_indices);
    free(f->dense_table);
    free(f->dense_indptr);
    free(f->dense_last);
    free(f->dense_req);
    free(f->dense_counts);
    free(f->dense_lengths);
}

static void expect_outcome(sy_ctx *ctx, sy_status status, const struct gather_fault *want)
{
    static const sy_fault_code codes[] = {SY_FAULT_NONE,        SY_FAULT_LENGTH_RANGE, SY_FAULT_REQ_RANGE,
                                          SY_FAULT_INDEX_RANGE, SY_FAULT_TABLE_SHORT,  SY_FAULT_BLOCK_RANGE,
                                          SY_FAULT_ROW_RANGE};
    expect_status(ctx, status, want->code == GATHER_FINE ? SY_OK : SY_ERR_INDEX);
    if (want->code != GATHER_FINE)
        expect_fault(ctx, codes[want->code], want->batch, want->position, want->value, want->limit);
}

static void fixture_check(const struct fixture *f, const struct gather_fault *want, sy_ctx *ctx)
{
    unsigned char *before = tensor_snapshot(&f->out);
    expect_outcome(ctx, sy_kv_gather(ctx, &f->args), want);
    if (want->code == GATHER_FINE)
        tensor_expect(&f->out, f->want, before, "out");
    else
        tensor_expect_unchanged(&f->out, before, "out");
    free(before);
}

/* A cache whose row r holds the number r: rows gathered from it are slots. To be freed. */
static int64_t *number_cache(struct gather_case *in)
{
    int64_t *numbers = int_array(in->rows);
    for (int64_t r = 0; r < in->rows; r++)
        numbers[r] = r;
    in->cache = (const unsigned char *)numbers;
    in->row_bytes = sizeof *numbers;
    in->pad = in->pad == GATHER_ERROR ? GATHER_ERROR : GATHER_SKIP;
    return numbers;
}

/* The slots of a call; -1 for padding and past counts. */
static struct gather_fault find_slots(const struct fixture *f, int64_t *slots)
{
    struct gather_case in = f->in;
    const int64_t n = in.batch * in.k;
    int64_t *numbers = number_cache(&in);
    for (int64_t i = 0; i < n; i++)
        slots[i] = -1;
    const struct gather_fault fault = oracle_kv_gather(&in, (unsigned char *)slots);
    for (int64_t i = 0; i < n; i++)
        if (in.counts && i % in.k >= in.counts[i / in.k])
            slots[i] = -1;
    free(numbers);
    return fault;
}

/* kv_translate of the same tokens, on every thread count. */
static void check_translate(const struct fixture *f)
{
    const int64_t n = f->in.batch * f->in.k;
    int64_t *want = int_array(n), *live = int_array(f->in.batch);
    const struct gather_fault fault = find_slots(f, want);
    for (int64_t i = 0; i < n; i++)
        live[i / f->in.k] += want[i] >= 0;
    for (int i = 0; i < TEST_CONTEXTS; i++) {
        struct tensor slots, valid, want_slots, want_valid;
        struct tensor *const made[] = {&slots, &valid, &want_slots, &want_valid};
        for (int k = 0; k < 4; k++)
            tensor_make(made[k], k % 2 ? f->index_type : f->count_type, k % 2 ? 1 : f->rank,
                        k % 2 ? &f->in.batch : f->indices.shape, &(struct layout){.row_gap = k % 2 ? 0 : i});
        if (fault.code == GATHER_FINE) {
            put_ints(&want_slots, want, n);
            put_ints(&want_valid, live, f->in.batch);
        }
        const sy_kv_translate_args args = {.indices = f->args.indices,
                                           .block_table = f->args.block_table,
                                           .page_indices = f->args.page_indices,
                                           .indptr = f->args.indptr,
                                           .last_page_len = f->args.last_page_len,
                                           .req_id = f->args.req_id,
                                           .counts = f->args.counts,
                                           .seq_lens = f->args.seq_lens,
                                           .block_size = f->in.block_size,
                                           .num_rows = f->in.rows,
                                           .pad = f->args.pad,
                                           .slots = &slots.t,
                                           .valid = &valid.t};
        sy_query query;
        expect_status(test_contexts[i], sy_kv_translate_query(test_contexts[i], &args, &query), SY_OK);
        assert_int_equal(query.rows, n);
        expect_outcome(test_contexts[i], sy_kv_translate(test_contexts[i], &args), &fault);
        tensor_expect_unchanged(&slots, want_slots.mem, "slots");
        tensor_expect_unchanged(&valid, want_valid.mem, "valid");
        for (int k = 0; k < 4; k++)
            tensor_free(made[k]);
    }
    free(want);
    free(live);
}

/* Tokens up to counts, with the sequence of each. */
static int64_t list_tokens(const struct gather_case *in, int64_t *batch, int64_t *position)
{
    int64_t n = 0;
    for (int64_t i = 0; i < in->batch * in->k; i++) {
        const int64_t b = i / in->k;
        if (in->counts && i % in->k >= in->counts[b])
            continue;
        batch[n] = in->req_id ? in->req_id[b] : b;
        position[n++] = in->indices[i];
    }
    return n;
}

/* Their slots, looked up one by one: the lists, then the first token that is wrong. */
static struct gather_fault find_token_slots(const struct gather_case *in, int64_t n, const int64_t *batch,
                                            const int64_t *position, int64_t *slots)
{
    struct gather_case one = *in;
    int64_t *numbers = number_cache(&one);
    struct gather_fault fault = {0};
    one.batch = one.k = 1;
    one.counts = one.seq_lens = NULL;
    for (int64_t i = 0; i < n && fault.code == GATHER_FINE; i++) {
        one.req_id = in->table_rows == 1 ? NULL : &batch[i];
        one.indices = &position[i];
        slots[i] = -1;
        fault = oracle_kv_gather(&one, (unsigned char *)&slots[i]);
        if (fault.code > GATHER_LENGTH) {
            fault.batch = -1;
            fault.position = i;
        }
    }
    free(numbers);
    return fault;
}

/* kv_slots of the same tokens, as one row or two, on every thread count. */
static void check_slots(const struct fixture *f)
{
    const struct gather_case *in = &f->in;
    int64_t *values[3];
    for (int k = 0; k < 3; k++)
        values[k] = int_array(in->batch * in->k);
    const int64_t n = list_tokens(in, values[0], values[1]);
    const struct gather_fault fault = find_token_slots(in, n, values[0], values[1], values[2]);
    const DLDataType types[] = {f->table_type, f->index_type, f->count_type, f->count_type};
    seen.slots_code[fault.code]++;
    for (int i = 0; i < TEST_CONTEXTS && n > 0; i++) {
        const int64_t shape[] = {n % 2 == 0 ? 2 : 1, n % 2 == 0 ? n / 2 : n};
        struct tensor x[4]; /* batch, position, slots that are wanted, slots */
        for (int k = 0; k < 4; k++) {
            tensor_make(&x[k], types[k], 2, shape, &(struct layout){.row_gap = k > 1 ? i : i * k});
            if (k < 2 || (k == 2 && fault.code == GATHER_FINE))
                put_ints(&x[k], values[k], n);
        }
        const sy_kv_slots_args args = {.batch = in->table_rows == 1 ? NULL : &x[0].t,
                                       .position = &x[1].t,
                                       .block_table = f->args.block_table,
                                       .page_indices = f->args.page_indices,
                                       .indptr = f->args.indptr,
                                       .last_page_len = f->args.last_page_len,
                                       .block_size = in->block_size,
                                       .num_rows = in->rows,
                                       .pad = f->args.pad,
                                       .slots = &x[3].t};
        sy_ctx *ctx = test_contexts[i];
        sy_query query;
        expect_status(ctx, sy_kv_slots_query(ctx, &args, &query), SY_OK);
        assert_int_equal(query.rows, n);
        expect_outcome(ctx, sy_kv_slots(ctx, &args), &fault);
        tensor_expect_unchanged(&x[3], x[2].mem, "slots");
        for (int k = 0; k < 4; k++)
            tensor_free(&x[k]);
    }
    for (int k = 0; k < 3; k++)
        free(values[k]);
}

static uint64_t running_seed;

static int tell_seed(void **state)
{
    (void)state;
    if (running_seed != 0)
        print_error("the failing case has seed %llu\n", (unsigned long long)running_seed);
    running_seed = 0;
    return 0;
}

/* Changes one number of the case into something that may be wrong in one of the six ways, or not at all. */
static void plant(struct fixture *f, uint64_t *rng)
{
    struct gather_case *in = &f->in;
    const int64_t b = rng_below(rng, in->batch), at = b * in->k + rng_below(rng, in->k);
    const int64_t odd[] = {-1, -2, INT32_MIN, INT32_MAX, in->table_len * in->block_size, in->rows, in->k + 1};
    const int64_t value = odd[rng_below(rng, COUNT_OF(odd))];
    const int64_t where = rng_below(rng, 10), pages = all_pages(in);
    if (where == 0 && in->counts)
        f->dense_counts[b] = value;
    else if (where == 1 && in->seq_lens)
        f->dense_lengths[b] = value;
    else if (where == 2 && in->req_id)
        f->dense_req[b] = value;
    else if (where <= 4 && pages > 0)
        f->dense_table[rng_below(rng, pages)] = value;
    else if (where == 5 && !in->indptr) { /* the last row of the last block, which may be missing */
        const int64_t q = rng_below(rng, in->table_len), r = in->req_id ? f->dense_req[b] : b;
        if (r >= 0 && r < in->table_rows)
            f->dense_table[r * in->table_len + q] = (in->rows - 1) / in->block_size;
        f->dense_indices[at] = (q + 1) * in->block_size - 1;
    } else if (where == 6 && in->indptr)
        f->dense_indptr[rng_below(rng, in->table_rows + 1)] = value;
    else if (where == 7 && in->last_page_len)
        f->dense_last[rng_below(rng, in->table_rows)] = value;
    else
        f->dense_indices[at] = value;
}

/* state: number of planted faults; none, one or several. */
static void random_shapes(void **state)
{
    const uintptr_t faults = (uintptr_t)*state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        uint64_t rng = running_seed = seed * 1000 + faults;
        struct fixture f = {0};
        choose_sizes(&f, &rng);
        fixture_fill(&f, &rng);
        for (uintptr_t i = 0; i < faults; i++)
            plant(&f, &rng);
        fixture_tensors(&f, &rng);
        const struct gather_fault want = oracle_kv_gather(&f.in, f.want);
        seen.code[want.code]++;
        if (faults == 0 && want.code != GATHER_FINE)
            fail_msg("the generator made a fault by accident");
        for (size_t i = 0; i < (want.code == GATHER_FINE ? 1 : TEST_CONTEXTS); i++)
            fixture_check(&f, &want, test_contexts[(seed + i) % 4]);
        check_translate(&f);
        check_slots(&f);
        fixture_free(&f);
    }
    running_seed = 0;
}

/* Random tokens of random blocks, or runs of tokens whose rows follow each other, in blocks that do as well. */
static void fill_large(struct fixture *f, uint64_t *rng, bool runs)
{
    const int64_t batch = f->in.batch, k = f->in.k;
    int64_t t = 0;
    for (int64_t i = 0; i < batch * 50; i++)
        f->dense_table[i] = runs ? i % 40 : rng_below(rng, 40);
    for (int64_t i = 0; i < batch * k; i++) {
        const bool pad = f->in.pad != GATHER_ERROR && rng_below(rng, runs ? 900 : 9) == 0;
        t = runs && rng_below(rng, i % 1000 < 500 ? 5 : 400) > 0 ? (t + 1) % 800 : rng_below(rng, 800);
        f->dense_indices[i] = pad ? -1 : t;
    }
    for (int64_t b = 0; b < batch; b++)
        f->dense_counts[b] = k - rng_below(rng, k / 8);
}

/* Several megabytes of output for every thread count. */
static void large(int64_t batch, int64_t k, int64_t width, bool paged, enum gather_pad pad, bool runs)
{
    uint64_t rng = 5;
    struct fixture f = {.in = {.batch = batch,
                               .k = k,
                               .table_rows = batch,
                               .table_len = 50,
                               .rows = 40 * 16,
                               .block_size = 16,
                               .row_bytes = (size_t)width * 2,
                               .pad = pad},
                        .paged = paged,
                        .rank = 2,
                        .lead = {1, batch},
                        .width = {width, 1},
                        .element = SY_BF16,
                        .index_type = SY_I32,
                        .table_type = SY_I64,
                        .count_type = SY_I32};
    f.in.table = f.dense_table = int_array(batch * 50);
    f.in.indices = f.dense_indices = int_array(batch * k);
    f.in.counts = f.dense_counts = int_array(batch);
    f.in.cache = f.dense_cache = malloc((size_t)f.in.rows * f.in.row_bytes);
    f.want = malloc((size_t)(batch * k) * f.in.row_bytes);
    assert_true(f.dense_cache && f.want && (size_t)(batch * k) * f.in.row_bytes > 4 << 20);
    rng_fill(&rng, f.dense_cache, (size_t)f.in.rows * f.in.row_bytes);
    rng_fill(&rng, f.want, (size_t)(batch * k) * f.in.row_bytes);
    fill_large(&f, &rng, runs);
    fixture_tensors(&f, NULL);
    unsigned char *old = tensor_snapshot(&f.out);
    struct gather_fault want = oracle_kv_gather(&f.in, f.want);
    assert_int_equal(want.code, GATHER_FINE);
    for (int i = 0; i < TEST_CONTEXTS; i++) {
        memcpy(f.out.mem, old, f.out.bytes);
        fixture_check(&f, &want, test_contexts[i]);
    }
    check_translate(&f);
    check_slots(&f);
    /* Faults in many places at once: the smallest position is the one reported, and nothing is written. */
    for (int64_t i = batch * k - 1; i > batch * k / 3; i -= 1 + batch * k / 40)
        f.dense_indices[i] = i % 2 ? 800 + i : -2;
    put_ints(&f.indices, f.dense_indices, batch * k);
    want = oracle_kv_gather(&f.in, f.want);
    assert_int_equal(want.code, GATHER_INDEX);
    for (int i = 0; i < TEST_CONTEXTS; i++)
        fixture_check(&f, &want, test_contexts[i]);
    check_translate(&f);
    check_slots(&f);
    free(old);
    fixture_free(&f);
}

static void large_flat_for_every_thread_count(void **state)
{
    (void)state;
    large(3, 1500, 577, false, GATHER_ZERO, false);
}

static void large_paged_for_every_thread_count(void **state)
{
    (void)state;
    large(7, 701, 512, true, GATHER_SKIP, false);
}

static void many_short_rows_for_every_thread_count(void **state)
{
    (void)state;
    large(2000, 409, 3, false, GATHER_ERROR, false);
}

static void few_long_rows_for_every_thread_count(void **state)
{
    (void)state;
    large(1, 8, 300001, false, GATHER_ERROR, false);
}

/* Runs of one row up to hundreds, cut by padding, by the ends of sequences and tasks, and by their length. */
static void runs_for_every_thread_count(void **state)
{
    (void)state;
    large(3, 2100, 577, false, GATHER_ZERO, true);
    large(2, 3000, 512, true, GATHER_SKIP, true);
    large(1, 4500, 600, false, GATHER_ERROR, true);
    large(5, 50000, 10, false, GATHER_ERROR, true);
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    const int all[] = {seen.code[GATHER_FINE],
                       seen.code[GATHER_LENGTH],
                       seen.code[GATHER_REQ],
                       seen.code[GATHER_INDEX],
                       seen.code[GATHER_TABLE],
                       seen.code[GATHER_BLOCK],
                       seen.code[GATHER_ROW],
                       seen.slots_code[GATHER_FINE],
                       seen.slots_code[GATHER_LENGTH],
                       seen.slots_code[GATHER_REQ],
                       seen.slots_code[GATHER_INDEX],
                       seen.slots_code[GATHER_BLOCK],
                       seen.slots_code[GATHER_ROW],
                       seen.lists,
                       seen.last_page_len,
                       seen.no_pages,
                       seen.padded[1],
                       seen.padded[2],
                       seen.past_count[0],
                       seen.past_count[1],
                       seen.past_count[2],
                       seen.partial,
                       seen.shared,
                       seen.unreached,
                       seen.paged,
                       seen.paged_gap,
                       seen.rank[1],
                       seen.rank[2],
                       seen.rank[3],
                       seen.req,
                       seen.counts,
                       seen.seq_lens,
                       seen.mixed,
                       seen.gap,
                       seen.offset,
                       seen.misaligned,
                       seen.shared_request,
                       seen.element[1],
                       seen.element[2],
                       seen.element[3],
                       seen.element[4],
                       seen.element[8],
                       seen.element[16]};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 5)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

/* k = 0 or B = 0 succeeds whatever the other arrays hold, and needs no data. */
static void nothing_asked(void **state)
{
    (void)state;
    sy_ctx *ctx = test_contexts[1];
    for (int i = 0; i < 2; i++) {
        const int64_t b = i ? 0 : 3, k = i ? 4 : 0;
        int64_t cache_shape[] = {4, 2}, index_shape[] = {b, k}, table_shape[] = {b, 2},
                out_shape[] = {b, k, 2};
        float cache_data[8] = {0};
        int32_t table_data[6] = {-1, -1, -1, -1, -1, -1};
        const DLTensor cache = sy_tensor(cache_data, SY_F32, 2, cache_shape),
                       indices = sy_tensor(NULL, SY_I32, 2, index_shape),
                       table = sy_tensor(i ? NULL : table_data, SY_I32, 2, table_shape),
                       out = sy_tensor(NULL, SY_F32, 3, out_shape);
        sy_query query;
        const sy_kv_gather_args args = {
            .cache = &cache, .indices = &indices, .block_table = &table, .block_size = 2, .out = &out};
        expect_status(ctx, sy_kv_gather_query(ctx, &args, &query), SY_OK);
        assert_int_equal(query.rows, 0);
        expect_status(ctx, sy_kv_gather(ctx, &args), SY_OK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_asked),
        {"random_without_faults", random_shapes, NULL, tell_seed, (void *)0},
        {"random_with_one_fault", random_shapes, NULL, tell_seed, (void *)1},
        {"random_with_three_faults", random_shapes, NULL, tell_seed, (void *)3},
        {"random_with_six_faults", random_shapes, NULL, tell_seed, (void *)6},
        cmocka_unit_test(large_flat_for_every_thread_count),
        cmocka_unit_test(large_paged_for_every_thread_count),
        cmocka_unit_test(many_short_rows_for_every_thread_count),
        cmocka_unit_test(few_long_rows_for_every_thread_count),
        cmocka_unit_test(runs_for_every_thread_count),
        cmocka_unit_test(the_random_cases_were_hard),
    };
    return cmocka_run_group_tests_name("op_kv_gather", tests, test_open_contexts, test_close_contexts);
}
