/*
 * kv_ragged: planes, then random calls with block tables and lists of pages against the oracle, on every thread count.
 * Examples and rules are in tests/examples.
 */
#include "support.h"

#include "oracle/kv_ragged.h"

/* ---- A call ------------------------------------------------------------------------------------------------- */

enum { MOST_BATCH = 64, MOST_TABLE = 4096 };

/* Numbers stored as the types asked for. The cache has `width` 16-bit elements in a row, of bytes the seed makes. */
struct input {
    int64_t batch, table_rows, table_len, block_size, rows, out_rows, width;
    bool paged, lists, last_given, starts_given, req_given, lens_given, wide_lens, wide_starts, wide_table,
        wide_req;
    int64_t n_pages; /* of all lists, which have up to table_len */
    int64_t indptr[MOST_BATCH + 1], last_page_len[MOST_BATCH];
    int64_t row_gap, block_gap, out_gap;
    int64_t cu_lens[MOST_BATCH + 1], starts[MOST_BATCH], req_id[MOST_BATCH], seq_lens[MOST_BATCH],
        table[MOST_TABLE];
};

static const sy_fault_code codes[] = {SY_FAULT_NONE,        SY_FAULT_LENGTH_RANGE, SY_FAULT_REQ_RANGE,
                                      SY_FAULT_INDEX_RANGE, SY_FAULT_TABLE_SHORT,  SY_FAULT_BLOCK_RANGE,
                                      SY_FAULT_ROW_RANGE};

static void make_ints(struct tensor *x, bool wide_type, int rank, const int64_t *shape, const int64_t *values)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n *= shape[d];
    tensor_make(x, wide_type ? SY_I64 : SY_I32, rank, shape, &(struct layout){.row_gap = rank > 1 ? 3 : 0});
    const size_t bytes = type_bytes(x->t.dtype), in_row = (size_t)shape[rank - 1];
    for (int64_t i = 0; i < n; i++)
        memcpy((unsigned char *)tensor_row(x, i / shape[rank - 1]) + (size_t)i % in_row * bytes, &values[i],
               bytes);
}

struct tensors {
    struct tensor cache, table, indptr, last_page_len, cu_lens, starts, req_id, seq_lens, out;
    unsigned char *dense, *want; /* the cache and out as dense rows */
};

static void make_tensors(const struct input *in, struct tensors *x)
{
    const int64_t flat[] = {in->rows, in->width}, out[] = {in->out_rows, in->width};
    const int64_t paged[] = {in->rows / in->block_size, in->block_size, in->width};
    const struct layout cache_layout = {.row_gap = in->row_gap, .outer_gap = in->block_gap};
    uint64_t rng = 11;
    *x = (struct tensors){.dense = malloc((size_t)(in->rows * in->width) * 2 + 1),
                          .want = malloc((size_t)(in->out_rows * in->width) * 2 + 1)};
    assert_true(x->dense && x->want);
    rng_fill(&rng, x->dense, (size_t)(in->rows * in->width) * 2);
    tensor_make(&x->cache, SY_F16, in->paged ? 3 : 2, in->paged ? paged : flat, &cache_layout);
    tensor_put(&x->cache, x->dense);
    if (in->lists)
        make_ints(&x->table, in->wide_table, 1, &in->n_pages, in->table);
    else
        make_ints(&x->table, in->wide_table, 2, (int64_t[]){in->table_rows, in->table_len}, in->table);
    make_ints(&x->indptr, in->wide_req, 1, (int64_t[]){in->table_rows + 1}, in->indptr);
    make_ints(&x->last_page_len, in->wide_lens, 1, &in->table_rows, in->last_page_len);
    make_ints(&x->cu_lens, in->wide_lens, 1, (int64_t[]){in->batch + 1}, in->cu_lens);
    make_ints(&x->starts, in->wide_starts, 1, &in->batch, in->starts);
    make_ints(&x->req_id, in->wide_req, 1, &in->batch, in->req_id);
    make_ints(&x->seq_lens, in->wide_lens, 1, &in->batch, in->seq_lens);
    tensor_make(&x->out, SY_F16, 2, out, &(struct layout){.row_gap = in->out_gap});
    memset(x->want, 0xA5, (size_t)(in->out_rows * in->width) * 2);
}

static void free_tensors(struct tensors *x)
{
    struct tensor *all[] = {&x->cache,  &x->table,    &x->indptr, &x->last_page_len, &x->cu_lens, &x->starts,
                            &x->req_id, &x->seq_lens, &x->out};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
    free(x->dense);
    free(x->want);
}

static struct gather_fault find_truth(const struct input *in, const struct tensors *x)
{
    const struct ragged_case truth = {.gather = {.batch = in->batch,
                                                 .table_rows = in->table_rows,
                                                 .table_len = in->lists ? in->n_pages : in->table_len,
                                                 .block_size = in->block_size,
                                                 .rows = in->rows,
                                                 .row_bytes = (size_t)in->width * 2,
                                                 .req_id = in->req_given ? in->req_id : NULL,
                                                 .seq_lens = in->lens_given ? in->seq_lens : NULL,
                                                 .table = in->table,
                                                 .indptr = in->lists ? in->indptr : NULL,
                                                 .last_page_len = in->last_given ? in->last_page_len : NULL,
                                                 .cache = x->dense},
                                      .out_rows = in->out_rows,
                                      .cu_lens = in->cu_lens,
                                      .starts = in->starts_given ? in->starts : NULL};
    return oracle_kv_ragged(&truth, x->want);
}

static void check_on(sy_ctx *ctx, const struct input *in, const struct tensors *x,
                     const struct gather_fault *want)
{
    const sy_kv_ragged_args args = {.cache = &x->cache.t,
                                    .block_table = in->lists ? NULL : &x->table.t,
                                    .page_indices = in->lists ? &x->table.t : NULL,
                                    .indptr = in->lists ? &x->indptr.t : NULL,
                                    .last_page_len = in->last_given ? &x->last_page_len.t : NULL,
                                    .cu_lens = &x->cu_lens.t,
                                    .starts = in->starts_given ? &x->starts.t : NULL,
                                    .req_id = in->req_given ? &x->req_id.t : NULL,
                                    .block_size = in->block_size,
                                    .out = &x->out.t,
                                    .seq_lens = in->lens_given ? &x->seq_lens.t : NULL};
    memset(x->out.mem, 0xA5, x->out.bytes);
    unsigned char *before = tensor_snapshot(&x->out);
    sy_query query;
    expect_status(ctx, sy_kv_ragged_query(ctx, &args, &query), SY_OK);
    assert_int_equal(query.rows, 0);
    expect_status(ctx, sy_kv_ragged(ctx, &args), want->code == GATHER_FINE ? SY_OK : SY_ERR_INDEX);
    if (want->code == GATHER_FINE) {
        tensor_expect(&x->out, x->want, before, "out");
    } else {
        expect_fault(ctx, codes[want->code], want->batch, want->position, want->value, want->limit);
        tensor_expect_unchanged(&x->out, before, "out");
    }
    free(before);
}

/* What the oracle says, after every thread count said the same. */
static struct gather_fault check(const struct input *in)
{
    struct tensors x;
    make_tensors(in, &x);
    const struct gather_fault want = find_truth(in, &x);
    for (int i = 0; i < TEST_CONTEXTS; i++)
        check_on(test_contexts[i], in, &x, &want);
    free_tensors(&x);
    return want;
}

/* ---- Planes ------------------------------------------------------------------------------------------------- */

/* Latent and rope parts of one row, each to its own output and to half of a wider one. */
static void planes_are_calls_of_their_own(void **state)
{
    (void)state;
    enum { S = 3, BLOCKS = 4, N = 7 };
    int32_t cache[BLOCKS * S][5], table[3] = {2, 0, 3}, cu_lens[2] = {0, N}, wide_out[N][5], first[N][3],
                                  second[N][2];
    for (int i = 0; i < BLOCKS * S * 5; i++)
        cache[i / 5][i % 5] = 100 + i;
    memset(wide_out, 0, sizeof wide_out);
    int64_t strides[2] = {5, 1};
    DLTensor latent = sy_tensor(cache, SY_I32, 2, (int64_t[]){BLOCKS * S, 3}),
             rope = sy_tensor(&cache[0][3], SY_I32, 2, (int64_t[]){BLOCKS * S, 2}),
             left = sy_tensor(wide_out, SY_I32, 2, (int64_t[]){N, 3}),
             right = sy_tensor(&wide_out[0][3], SY_I32, 2, (int64_t[]){N, 2});
    latent.strides = rope.strides = left.strides = right.strides = strides;
    const DLTensor t = sy_tensor(table, SY_I32, 1, (int64_t[]){3}),
                   l = sy_tensor(cu_lens, SY_I32, 1, (int64_t[]){2}),
                   a = sy_tensor(first, SY_I32, 2, (int64_t[]){N, 3}),
                   b = sy_tensor(second, SY_I32, 2, (int64_t[]){N, 2});
    sy_kv_ragged_args args = {.cache = &latent, .block_table = &t, .cu_lens = &l, .block_size = S, .out = &a};
    sy_ctx *ctx = test_contexts[1];
    expect_status(ctx, sy_kv_ragged(ctx, &args), SY_OK);
    args.cache = &rope;
    args.out = &b;
    expect_status(ctx, sy_kv_ragged(ctx, &args), SY_OK);
    args.cache = &latent;
    args.out = &left;
    args.planes = &(sy_kv_plane){.cache = &rope, .rows = &right};
    args.num_planes = 1;
    args.plane_bytes = sizeof(sy_kv_plane);
    expect_status(ctx, sy_kv_ragged(ctx, &args), SY_OK);
    for (int i = 0; i < N; i++) {
        const int token_row = table[i / S] * S + i % S;
        expect_bytes(wide_out[i], cache[token_row], sizeof wide_out[i]);
        expect_bytes(wide_out[i], first[i], sizeof first[i]);
        expect_bytes(&wide_out[i][3], second[i], sizeof second[i]);
    }
}

/* ---- Random ------------------------------------------------------------------------------------------------- */

static int seen_codes[GATHER_ROW + 1], seen_cut_pages, seen_empty, seen_rest, seen_lists, seen_no_pages;

/* Lists with unused pages before and after them. */
static void fill_lists(struct input *in, uint64_t *rng)
{
    in->indptr[0] = rng_below(rng, 3);
    for (int64_t r = 0; r < in->table_rows; r++) {
        in->indptr[r + 1] = in->indptr[r] + rng_below(rng, in->table_len + 1);
        const bool empty = in->indptr[r + 1] == in->indptr[r];
        in->last_page_len[r] = empty ? -1 : 1 + rng_below(rng, in->block_size);
        seen_no_pages += empty;
    }
    in->n_pages = in->indptr[in->table_rows] + rng_below(rng, 3);
    seen_lists++;
}

/* Tokens that the pages of sequence b have. */
static int64_t length_of(const struct input *in, int64_t b)
{
    const int64_t r = in->req_given ? in->req_id[b] : b;
    const int64_t pages = in->lists ? in->indptr[r + 1] - in->indptr[r] : in->table_len;
    return pages * in->block_size - (in->last_given && pages > 0 ? in->block_size - in->last_page_len[r] : 0);
}

static void fill(struct input *in, uint64_t *rng, int64_t n_faults)
{
    const int64_t most = in->table_len * in->block_size, full = in->rows / in->block_size;
    if (in->lists)
        fill_lists(in, rng);
    const int64_t n_pages = in->lists ? in->n_pages : in->table_rows * in->table_len;
    for (int64_t i = 0; i < n_pages; i++) /* the partial block rarely, and as a fault */
        in->table[i] = n_faults > 1 && rng_below(rng, 30) == 0 ? full : rng_below(rng, full);
    for (int64_t b = 0; b < in->batch; b++) {
        in->req_id[b] = rng_below(rng, in->table_rows);
        const int64_t length = length_of(in, b), start = length > 0 ? rng_below(rng, length) : 0,
                      tokens = rng_below(rng, length - start + 1);
        in->starts[b] = in->starts_given ? start : 0;
        in->cu_lens[b + 1] = in->cu_lens[b] + (rng_below(rng, 5) ? tokens : 0);
        in->seq_lens[b] = in->starts[b] + tokens + rng_below(rng, 2) * in->block_size;
        seen_cut_pages += start % in->block_size != 0 && tokens > in->block_size;
        seen_empty += in->cu_lens[b + 1] == in->cu_lens[b];
    }
    const int64_t rest = rng_below(rng, 3);
    in->out_rows = in->cu_lens[in->batch] + rest;
    seen_rest += rest > 0;
    if (n_faults > 0 && rng_below(rng, 4) == 0) { /* a sequence that goes on where its table row ends */
        const int64_t b = rng_below(rng, in->batch);
        in->seq_lens[b] = in->starts[b] = length_of(in, b);
        in->seq_lens[b] += 9;
    }
    const int64_t odd[] = {-1, -2, INT32_MIN, most, most - 1, full, in->out_rows + 1, full, 0};
    for (int64_t i = 0; i < n_faults; i++) {
        int64_t *where[] = {&in->cu_lens[rng_below(rng, in->batch + 1)],
                            &in->starts[rng_below(rng, in->batch)],
                            &in->req_id[rng_below(rng, in->batch)],
                            &in->seq_lens[rng_below(rng, in->batch)],
                            &in->table[rng_below(rng, n_pages + 1)],
                            in->lists ? &in->indptr[rng_below(rng, in->table_rows + 1)]
                                      : &in->table[rng_below(rng, n_pages + 1)],
                            in->lists ? &in->last_page_len[rng_below(rng, in->table_rows)]
                                      : &in->table[rng_below(rng, n_pages + 1)]};
        *where[rng_below(rng, COUNT_OF(where))] = odd[rng_below(rng, COUNT_OF(odd))];
    }
}

static void choose(struct input *in, uint64_t *rng)
{
    *in = (struct input){.batch = 1 + rng_below(rng, 6), .width = 1 + rng_below(rng, 9)};
    in->req_given = rng_below(rng, 2);
    in->table_rows = in->req_given ? 1 + rng_below(rng, 4) : in->batch;
    in->table_len = 1 + rng_below(rng, 7);
    in->block_size = 1 + rng_below(rng, 9);
    in->rows = in->block_size * (1 + rng_below(rng, 11));
    in->paged = rng_below(rng, 2);
    if (!in->paged)
        in->rows += rng_below(rng, in->block_size);
    in->starts_given = rng_below(rng, 3) > 0;
    in->lists = rng_below(rng, 3) == 0;
    in->last_given = in->lists && rng_below(rng, 2);
    in->lens_given = !in->last_given && rng_below(rng, 2);
    in->wide_lens = rng_below(rng, 2);
    in->wide_starts = rng_below(rng, 2);
    in->wide_table = rng_below(rng, 2);
    in->wide_req = rng_below(rng, 2);
    in->row_gap = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 4);
    in->block_gap = in->paged && rng_below(rng, 3) == 0 ? 5 : 0;
    in->out_gap = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 4);
}

static void random_calls(void **state)
{
    const int64_t n_faults = (int64_t)(uintptr_t)*state;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        static struct input in;
        uint64_t rng = seed * 10 + (uint64_t)n_faults;
        choose(&in, &rng);
        fill(&in, &rng, n_faults);
        seen_codes[check(&in).code]++;
    }
}

/* Runs long enough to be cut in the middle of a page, on every thread count. */
static void large_for_every_thread_count(void **state)
{
    (void)state;
    static struct input in;
    for (int64_t n_faults = 0; n_faults < 4; n_faults++) {
        uint64_t rng = 3 + (uint64_t)n_faults;
        in = (struct input){.batch = 40,
                            .table_rows = 40,
                            .table_len = 20,
                            .block_size = 12,
                            .rows = 1000,
                            .width = 300,
                            .starts_given = true,
                            .row_gap = n_faults == 2 ? 4 : 0};
        fill(&in, &rng, n_faults);
        assert_true(in.out_rows * in.width * 2 > 8 * 65536);
        seen_codes[check(&in).code]++;
    }
}

/* A page of more than one piece, and many sequences of one token. */
static void long_pages_and_short_runs(void **state)
{
    (void)state;
    static struct input in;
    in = (struct input){.batch = 2,
                        .table_rows = 2,
                        .table_len = 1,
                        .block_size = 2000,
                        .rows = 4000,
                        .out_rows = 3999,
                        .width = 400,
                        .starts_given = true,
                        .table = {1, 0},
                        .starts = {1, 0},
                        .cu_lens = {0, 1999, 3999}};
    assert_int_equal(check(&in).code, GATHER_FINE);
    in = (struct input){.batch = MOST_BATCH,
                        .table_rows = MOST_BATCH,
                        .table_len = 3,
                        .block_size = 4,
                        .rows = 100,
                        .out_rows = MOST_BATCH,
                        .width = 5000,
                        .starts_given = true};
    for (int64_t b = 0; b < MOST_BATCH; b++) {
        in.cu_lens[b + 1] = b + 1;
        in.starts[b] = b * 5 % 12;
        for (int64_t q = 0; q < 3; q++)
            in.table[b * 3 + q] = (b * 7 + q) % 25;
    }
    assert_int_equal(check(&in).code, GATHER_FINE);
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT_OF(seen_codes); i++)
        if (seen_codes[i] < 5)
            fail_msg("%s occurred only %d times", sy_fault_name(codes[i]), seen_codes[i]);
    assert_true(seen_cut_pages > 20 && seen_empty > 20 && seen_rest > 20);
    assert_true(seen_lists > 100 && seen_no_pages > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planes_are_calls_of_their_own),
        {"random_without_faults", random_calls, NULL, NULL, (void *)0},
        {"random_with_one_fault", random_calls, NULL, NULL, (void *)1},
        {"random_with_four_faults", random_calls, NULL, NULL, (void *)4},
        cmocka_unit_test(large_for_every_thread_count),
        cmocka_unit_test(long_pages_and_short_runs),
        cmocka_unit_test(the_random_cases_were_hard),
    };
    return cmocka_run_group_tests_name("op_kv_ragged", tests, test_open_contexts, test_close_contexts);
}
