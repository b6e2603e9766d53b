/*
 * Page lists in place of a block table, for the four operators that look tokens up: random lists. A case is one run of
 * tokens of each sequence, so that all four can be asked for the same rows; the truth is the oracle of kv_gather, and row r
 * of the cache holds the number r. Examples and rules are in tests/examples.
 */
#include "support.h"

#include "oracle/kv_gather.h"

/* ---- A case ------------------------------------------------------------------------------------------------- */

enum { BATCH = 6, LISTS = 6, PAGES = 64, TOKENS = 80, ROWS = 200 };

struct input {
    int64_t batch, lists, n_pages, block_size, rows;
    bool req_given, lens_given, last_given, wide;
    int64_t page_indices[PAGES], indptr[LISTS + 1], last_page_len[LISTS];
    int64_t req_id[BATCH], seq_lens[BATCH], starts[BATCH],
        n[BATCH]; /* tokens [start, start + n) of each sequence */
};

/* The same numbers as tensors of int32 or int64. */
struct ints {
    DLTensor t;
    int64_t shape[2];
    union {
        int32_t narrow[BATCH * TOKENS];
        int64_t wide[BATCH * TOKENS];
    } as;
};

static const DLTensor *make_ints(struct ints *x, bool wide, const int64_t *values, int64_t rows,
                                 int64_t columns)
{
    const int64_t n = columns > 0 ? rows * columns : rows;
    for (int64_t i = 0; i < n; i++)
        if (wide)
            x->as.wide[i] = values[i];
        else
            x->as.narrow[i] = (int32_t)values[i];
    x->shape[0] = rows;
    x->shape[1] = columns;
    x->t = sy_tensor(&x->as, wide ? SY_I64 : SY_I32, columns > 0 ? 2 : 1, x->shape);
    return &x->t;
}

struct call {
    struct ints pages, indptr, last, req, lens, indices, counts, starts, cu_lens, batch, position;
    int64_t k, n; /* positions of a row of indices, and all that are live */
    int64_t cu[BATCH + 1], tokens[BATCH * TOKENS], flat_batch[BATCH * TOKENS], flat[BATCH * TOKENS];
    int64_t cache[ROWS], want[BATCH * TOKENS];
    struct gather_fault fault;
};

/* Index rows of k tokens, of which n[b] count; the live ones once more in one row. */
static void lay_out(const struct input *in, struct call *c)
{
    c->k = 1;
    c->n = 0;
    for (int64_t b = 0; b < in->batch; b++)
        c->k = in->n[b] > c->k ? in->n[b] : c->k;
    for (int64_t b = 0; b < in->batch; b++) {
        c->cu[b] = c->n;
        for (int64_t u = 0; u < c->k; u++)
            c->tokens[b * c->k + u] = u < in->n[b] ? in->starts[b] + u : -7;
        for (int64_t u = 0; u < in->n[b]; u++) {
            c->flat_batch[c->n] = in->req_given ? in->req_id[b] : b;
            c->flat[c->n++] = in->starts[b] + u;
        }
    }
    c->cu[in->batch] = c->n;
    for (int64_t r = 0; r < ROWS; r++)
        c->cache[r] = r;
}

static void find_truth(const struct input *in, struct call *c)
{
    const struct gather_case truth = {.batch = in->batch,
                                      .k = c->k,
                                      .table_rows = in->lists,
                                      .table_len = in->n_pages,
                                      .rows = in->rows,
                                      .block_size = in->block_size,
                                      .row_bytes = sizeof(int64_t),
                                      .pad = GATHER_ERROR,
                                      .cache = (const unsigned char *)c->cache,
                                      .indices = c->tokens,
                                      .table = in->page_indices,
                                      .req_id = in->req_given ? in->req_id : NULL,
                                      .counts = in->n,
                                      .seq_lens = in->lens_given ? in->seq_lens : NULL,
                                      .indptr = in->indptr,
                                      .last_page_len = in->last_given ? in->last_page_len : NULL};
    c->fault = oracle_kv_gather(&truth, (unsigned char *)c->want);
}

static void expect_outcome(sy_ctx *ctx, sy_status status, const struct call *c, int64_t batch,
                           int64_t position)
{
    static const sy_fault_code codes[] = {SY_FAULT_NONE,        SY_FAULT_LENGTH_RANGE, SY_FAULT_REQ_RANGE,
                                          SY_FAULT_INDEX_RANGE, SY_FAULT_TABLE_SHORT,  SY_FAULT_BLOCK_RANGE,
                                          SY_FAULT_ROW_RANGE};
    const struct gather_fault *f = &c->fault;
    expect_status(ctx, status, f->code == GATHER_FINE ? SY_OK : SY_ERR_INDEX);
    if (f->code != GATHER_FINE)
        expect_fault(ctx, codes[f->code], batch, position, f->value, f->limit);
}

static const int64_t untouched = INT64_C(0x5a5a5a5a5a5a5a5a);

static void clear(int64_t *out)
{
    for (int64_t i = 0; i < BATCH * TOKENS; i++)
        out[i] = untouched;
}

/* ---- The four operators ------------------------------------------------------------------------------------- */

static void check_gather(sy_ctx *ctx, const struct input *in, struct call *c, int64_t *out)
{
    const DLTensor cache = sy_tensor(c->cache, SY_I64, 2, (int64_t[]){in->rows, 1}),
                   rows = sy_tensor(out, SY_I64, 3, (int64_t[]){in->batch, c->k, 1});
    const sy_kv_gather_args args = {.cache = &cache,
                                    .indices = make_ints(&c->indices, in->wide, c->tokens, in->batch, c->k),
                                    .req_id = in->req_given ? &c->req.t : NULL,
                                    .counts = make_ints(&c->counts, in->wide, in->n, in->batch, 0),
                                    .seq_lens = in->lens_given ? &c->lens.t : NULL,
                                    .block_size = in->block_size,
                                    .out = &rows,
                                    .page_indices = &c->pages.t,
                                    .indptr = &c->indptr.t,
                                    .last_page_len = in->last_given ? &c->last.t : NULL};
    clear(out);
    expect_outcome(ctx, sy_kv_gather(ctx, &args), c, c->fault.batch, c->fault.position);
    for (int64_t i = 0; i < in->batch * c->k; i++)
        assert_true(out[i] == (c->fault.code == GATHER_FINE ? c->want[i] : untouched));
}

static void check_translate(sy_ctx *ctx, const struct input *in, struct call *c, int64_t *out)
{
    const DLTensor slots = sy_tensor(out, SY_I64, 2, (int64_t[]){in->batch, c->k});
    const sy_kv_translate_args args = {.indices = &c->indices.t,
                                       .req_id = in->req_given ? &c->req.t : NULL,
                                       .counts = &c->counts.t,
                                       .seq_lens = in->lens_given ? &c->lens.t : NULL,
                                       .block_size = in->block_size,
                                       .num_rows = in->rows,
                                       .slots = &slots,
                                       .page_indices = &c->pages.t,
                                       .indptr = &c->indptr.t,
                                       .last_page_len = in->last_given ? &c->last.t : NULL};
    clear(out);
    expect_outcome(ctx, sy_kv_translate(ctx, &args), c, c->fault.batch, c->fault.position);
    for (int64_t i = 0; i < in->batch * c->k; i++) {
        const bool live = i % c->k < in->n[i / c->k];
        assert_true(out[i] == (c->fault.code != GATHER_FINE ? untouched : live ? c->want[i] : -1));
    }
}

static void check_ragged(sy_ctx *ctx, const struct input *in, struct call *c, int64_t *out)
{
    const DLTensor cache = sy_tensor(c->cache, SY_I64, 2, (int64_t[]){in->rows, 1}),
                   rows = sy_tensor(out, SY_I64, 2, (int64_t[]){c->n + 1, 1});
    const sy_kv_ragged_args args = {.cache = &cache,
                                    .cu_lens = make_ints(&c->cu_lens, in->wide, c->cu, in->batch + 1, 0),
                                    .starts = make_ints(&c->starts, in->wide, in->starts, in->batch, 0),
                                    .req_id = in->req_given ? &c->req.t : NULL,
                                    .block_size = in->block_size,
                                    .out = &rows,
                                    .page_indices = &c->pages.t,
                                    .indptr = &c->indptr.t,
                                    .last_page_len = in->last_given ? &c->last.t : NULL};
    clear(out);
    expect_outcome(ctx, sy_kv_ragged(ctx, &args), c, c->fault.batch, c->fault.position);
    for (int64_t b = 0; b < in->batch; b++)
        for (int64_t u = 0; u < in->n[b]; u++)
            assert_true(out[c->cu[b] + u] ==
                        (c->fault.code == GATHER_FINE ? c->want[b * c->k + u] : untouched));
    assert_true(out[c->n] == untouched);
}

static void check_slots(sy_ctx *ctx, const struct input *in, struct call *c, int64_t *out)
{
    const bool whole_list = c->fault.code <= GATHER_LENGTH;
    const DLTensor slots = sy_tensor(out, SY_I64, 1, &c->n);
    const sy_kv_slots_args args = {.batch = make_ints(&c->batch, in->wide, c->flat_batch, c->n, 0),
                                   .position = make_ints(&c->position, in->wide, c->flat, c->n, 0),
                                   .block_size = in->block_size,
                                   .num_rows = in->rows,
                                   .slots = &slots,
                                   .page_indices = &c->pages.t,
                                   .indptr = &c->indptr.t,
                                   .last_page_len = in->last_given ? &c->last.t : NULL};
    clear(out);
    expect_outcome(ctx, sy_kv_slots(ctx, &args), c, whole_list ? c->fault.batch : -1,
                   whole_list ? -1 : c->cu[c->fault.batch] + c->fault.position);
    for (int64_t b = 0; b < in->batch; b++)
        for (int64_t u = 0; u < in->n[b]; u++)
            assert_true(out[c->cu[b] + u] ==
                        (c->fault.code == GATHER_FINE ? c->want[b * c->k + u] : untouched));
}

/* Lengths of the caller's own are only known to kv_gather and kv_translate. */
static struct gather_fault check(const struct input *in)
{
    static struct call c;
    static int64_t out[BATCH * TOKENS];
    lay_out(in, &c);
    find_truth(in, &c);
    make_ints(&c.pages, in->wide, in->page_indices, in->n_pages, 0);
    make_ints(&c.indptr, !in->wide, in->indptr, in->lists + 1, 0);
    make_ints(&c.last, in->wide, in->last_page_len, in->lists, 0);
    make_ints(&c.req, in->wide, in->req_id, in->batch, 0);
    make_ints(&c.lens, in->wide, in->seq_lens, in->batch, 0);
    for (int i = 0; i < TEST_CONTEXTS; i++) {
        check_gather(test_contexts[i], in, &c, out);
        check_translate(test_contexts[i], in, &c, out);
        if (!in->lens_given)
            check_ragged(test_contexts[i], in, &c, out);
        if (!in->lens_given && c.n > 0)
            check_slots(test_contexts[i], in, &c, out);
    }
    return c.fault;
}

/* ---- Random ------------------------------------------------------------------------------------------------- */

static int seen[GATHER_ROW + 1], seen_empty, seen_skipped;

static void fill(struct input *in, uint64_t *rng)
{
    const int64_t full = in->rows / in->block_size, pages = rng_below(rng, 3);
    in->indptr[0] = pages;
    seen_skipped += pages > 0;
    for (int64_t r = 0; r < in->lists; r++) {
        in->indptr[r + 1] = in->indptr[r] + rng_below(rng, 6);
        in->last_page_len[r] = in->indptr[r + 1] == in->indptr[r] ? -1 : 1 + rng_below(rng, in->block_size);
        seen_empty += in->last_page_len[r] < 0;
    }
    in->n_pages = in->indptr[in->lists] + rng_below(rng, 3);
    for (int64_t i = 0; i < in->n_pages; i++) {
        const bool used = i >= in->indptr[0] && i < in->indptr[in->lists];
        in->page_indices[i] = used ? rng_below(rng, full) : -1;
    }
    for (int64_t b = 0; b < in->batch; b++) {
        in->req_id[b] = rng_below(rng, in->lists);
        const int64_t r = in->req_given ? in->req_id[b] : b, list = in->indptr[r + 1] - in->indptr[r];
        const int64_t missing = in->last_given && list > 0 ? in->block_size - in->last_page_len[r] : 0;
        in->seq_lens[b] = rng_below(rng, list * in->block_size + 1);
        const int64_t length = in->lens_given ? in->seq_lens[b] : list * in->block_size - missing;
        in->starts[b] = rng_below(rng, length + 1);
        in->n[b] = rng_below(rng, length - in->starts[b] + 1);
    }
}

static void plant(struct input *in, uint64_t *rng)
{
    const int64_t odd[] = {-1,       -2, in->n_pages + 1, in->block_size + 1, 0, in->rows / in->block_size,
                           INT32_MIN};
    const int64_t value = odd[rng_below(rng, COUNT_OF(odd))], b = rng_below(rng, in->batch);
    switch (rng_below(rng, 5)) {
    case 0:
        in->indptr[rng_below(rng, in->lists + 1)] = value;
        break;
    case 1:
        in->last_page_len[rng_below(rng, in->lists)] = value;
        break;
    case 2:
        in->starts[b] += rng_below(rng, 3) - 1;
        break;
    case 3:
        if (in->lens_given)
            in->seq_lens[b] += 1 + rng_below(rng, in->block_size);
        in->n[b] += 1 + rng_below(rng, 2);
        break;
    default:
        if (in->n_pages > 0)
            in->page_indices[rng_below(rng, in->n_pages)] =
                rng_below(rng, 2) ? in->rows / in->block_size : value; /* a partial block, or none */
        break;
    }
}

static void random_lists(void **state)
{
    const bool faulty = *state != NULL;
    for (uint64_t seed = 1; seed <= 400; seed++) {
        static struct input in;
        uint64_t rng = seed * 2 + faulty;
        in = (struct input){.batch = 1 + rng_below(&rng, BATCH), .block_size = 1 + rng_below(&rng, 9)};
        in.req_given = rng_below(&rng, 2);
        in.lists = in.req_given ? 1 + rng_below(&rng, LISTS) : in.batch;
        in.rows = in.block_size * (1 + rng_below(&rng, 12)) + rng_below(&rng, in.block_size);
        in.last_given = rng_below(&rng, 2);
        in.lens_given = !in.last_given && rng_below(&rng, 2);
        in.wide = rng_below(&rng, 2);
        fill(&in, &rng);
        if (faulty)
            plant(&in, &rng);
        seen[check(&in).code]++;
    }
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    for (int i = 0; i <= GATHER_ROW; i++)
        if (i != GATHER_REQ && seen[i] < 5)
            fail_msg("fault %d occurred only %d times", i, seen[i]);
    assert_true(seen_empty > 20 && seen_skipped > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"random_lists", random_lists, NULL, NULL, NULL},
        {"random_lists_with_a_fault", random_lists, NULL, NULL, (void *)1},
        cmocka_unit_test(the_random_cases_were_hard),
    };
    return cmocka_run_group_tests_name("op_kv_lists", tests, test_open_contexts, test_close_contexts);
}
