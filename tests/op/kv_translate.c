/*
 * kv_translate: random calls against the oracle of kv_gather: gathered from a cache whose row r holds the number r, the
 * rows are the slots. Then tokens shared by ranks. Examples and rules are in tests/examples.
 */
#include "support.h"

#include "oracle/kv_gather.h"

#define L(...) ((const int64_t[]){__VA_ARGS__})

/* ---- A call ------------------------------------------------------------------------------------------------- */

/* Numbers are written as int64 and stored as the types asked for. `rows` 0: the call is not told. */
struct example {
    int64_t block_size, rows, batch, k, table_rows, table_len;
    sy_kv_pad pad;
    const int64_t *indices, *table, *req_id, *counts, *seq_lens;
    const int64_t *want;
    bool wide_indices, wide_table, wide_slots, strided;
};

struct call {
    struct tensor indices, table, req_id, counts, seq_lens, slots, valid;
    sy_kv_translate_args args;
};

static int64_t elements(const struct tensor *x)
{
    int64_t n = 1;
    for (int d = 0; d < x->t.ndim; d++)
        n *= x->shape[d];
    return n;
}

static void *element(const struct tensor *x, int64_t i)
{
    const int64_t last = x->shape[x->t.ndim - 1];
    return (unsigned char *)tensor_row(x, i / last) + (size_t)(i % last) * type_bytes(x->t.dtype);
}

static const DLTensor *make_ints(struct tensor *x, bool wide, int rank, const int64_t *shape,
                                 const int64_t *values, bool strided)
{
    if (values == NULL)
        return NULL;
    tensor_make(x, wide ? SY_I64 : SY_I32, rank, shape, &(struct layout){.row_gap = strided ? 3 : 0});
    for (int64_t i = 0; i < elements(x); i++)
        memcpy(element(x, i), &values[i], type_bytes(x->t.dtype));
    return &x->t;
}

static int64_t get_int(const struct tensor *x, int64_t i)
{
    int32_t narrow;
    int64_t wide;
    if (x->t.dtype.bits == 64) {
        memcpy(&wide, element(x, i), sizeof wide);
        return wide;
    }
    memcpy(&narrow, element(x, i), sizeof narrow);
    return narrow;
}

static void call_make(struct call *c, const struct example *ex)
{
    memset(c, 0, sizeof *c);
    const int64_t index_shape[] = {ex->batch, ex->k}, per_row[] = {ex->batch},
                  table_shape[] = {ex->table_rows ? ex->table_rows : ex->batch, ex->table_len};
    sy_kv_translate_args *a = &c->args;
    a->indices = make_ints(&c->indices, ex->wide_indices, 2, index_shape, ex->indices, ex->strided);
    a->block_table = make_ints(&c->table, ex->wide_table, 2, table_shape, ex->table, ex->strided);
    a->req_id = make_ints(&c->req_id, ex->wide_table, 1, per_row, ex->req_id, false);
    a->counts = make_ints(&c->counts, ex->wide_indices, 1, per_row, ex->counts, false);
    a->seq_lens = make_ints(&c->seq_lens, ex->wide_slots, 1, per_row, ex->seq_lens, false);
    tensor_make(&c->slots, ex->wide_slots ? SY_I64 : SY_I32, 2, index_shape,
                &(struct layout){.row_gap = ex->strided ? 2 : 0});
    tensor_make(&c->valid, ex->wide_table ? SY_I64 : SY_I32, 1, per_row, NULL);
    a->block_size = ex->block_size;
    a->num_rows = ex->rows;
    a->pad = ex->pad;
    a->slots = &c->slots.t;
    a->valid = &c->valid.t;
}

static void call_free(struct call *c)
{
    struct tensor *all[] = {&c->indices,  &c->table, &c->req_id, &c->counts,
                            &c->seq_lens, &c->slots, &c->valid};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
}

/* Every slot, every count of valid ones, and no byte between the rows. */
static void expect_slots(const struct call *c, const struct example *ex, const unsigned char *before)
{
    unsigned char *dense = malloc((size_t)(ex->batch * ex->k) * 8 + 1);
    assert_non_null(dense);
    const size_t bytes = type_bytes(c->slots.t.dtype);
    for (int64_t i = 0; i < ex->batch * ex->k; i++)
        memcpy(dense + (size_t)i * bytes, &ex->want[i], bytes);
    tensor_expect(&c->slots, dense, before, "slots");
    for (int64_t b = 0; b < ex->batch; b++) {
        int64_t live = 0;
        for (int64_t j = 0; j < ex->k; j++)
            live += ex->want[b * ex->k + j] >= 0;
        assert_int_equal(get_int(&c->valid, b), live);
    }
    free(dense);
}

static void check(const struct example *ex)
{
    struct call c;
    sy_query query;
    for (int i = 0; i < TEST_CONTEXTS; i++) {
        call_make(&c, ex);
        unsigned char *before = tensor_snapshot(&c.slots);
        expect_status(test_contexts[i], sy_kv_translate_query(test_contexts[i], &c.args, &query), SY_OK);
        assert_int_equal(query.rows, ex->batch * ex->k);
        expect_status(test_contexts[i], sy_kv_translate(test_contexts[i], &c.args), SY_OK);
        expect_slots(&c, ex, before);
        free(before);
        call_free(&c);
    }
}

static void check_refused(const struct example *ex, sy_fault_code code, int64_t batch, int64_t position,
                          int64_t value, int64_t limit)
{
    struct call c;
    for (int i = 0; i < TEST_CONTEXTS; i++) {
        call_make(&c, ex);
        unsigned char *slots = tensor_snapshot(&c.slots), *valid = tensor_snapshot(&c.valid);
        expect_status(test_contexts[i], sy_kv_translate(test_contexts[i], &c.args), SY_ERR_INDEX);
        expect_fault(test_contexts[i], code, batch, position, value, limit);
        assert_non_null(strstr(sy_ctx_error(test_contexts[i]), "kv_translate: "));
        tensor_expect_unchanged(&c.slots, slots, "slots");
        tensor_expect_unchanged(&c.valid, valid, "valid");
        free(slots);
        free(valid);
        call_free(&c);
    }
}

/* ---- Random ------------------------------------------------------------------------------------------------- */

static struct {
    int code[GATHER_ROW + 1], padded, past_count, partial;
} seen;

enum { MOST_ROWS = 200, MOST_POSITIONS = 140000 }; /* more than one task keeps */

struct random {
    struct example ex;
    int64_t indices[MOST_POSITIONS], table[400], req_id[16], counts[16], seq_lens[16], want[MOST_POSITIONS];
};

/* The truth through the cache of numbers; under ERROR the oracle clears what lies past counts. */
static struct gather_fault truth(struct random *r)
{
    static int64_t numbers[MOST_ROWS];
    struct example *ex = &r->ex;
    for (int64_t i = 0; i < MOST_ROWS; i++)
        numbers[i] = i;
    const struct gather_case in = {.batch = ex->batch,
                                   .k = ex->k,
                                   .table_rows = ex->table_rows,
                                   .table_len = ex->table_len,
                                   .rows = ex->rows,
                                   .block_size = ex->block_size,
                                   .row_bytes = sizeof(int64_t),
                                   .pad = ex->pad == SY_PAD_ERROR ? GATHER_ERROR : GATHER_SKIP,
                                   .cache = (const unsigned char *)numbers,
                                   .indices = ex->indices,
                                   .table = ex->table,
                                   .req_id = ex->req_id,
                                   .counts = ex->counts,
                                   .seq_lens = ex->seq_lens};
    memset(r->want, 0xFF, sizeof r->want); /* -1 */
    const struct gather_fault fault = oracle_kv_gather(&in, (unsigned char *)r->want);
    for (int64_t i = 0; fault.code == GATHER_FINE && i < ex->batch * ex->k; i++) {
        if (ex->counts && i % ex->k >= ex->counts[i / ex->k]) {
            r->want[i] = -1;
            seen.past_count++;
        }
        seen.padded += r->want[i] < 0;
        seen.partial += r->want[i] >= ex->rows / ex->block_size * ex->block_size;
    }
    return fault;
}

static void fill(struct random *r, uint64_t *rng, int64_t faults)
{
    struct example *ex = &r->ex;
    const int64_t blocks = (ex->rows + ex->block_size - 1) / ex->block_size;
    for (int64_t i = 0; i < ex->table_rows * ex->table_len; i++)
        r->table[i] = rng_below(rng, faults ? blocks : ex->rows / ex->block_size);
    for (int64_t b = 0; b < ex->batch; b++) {
        r->req_id[b] = rng_below(rng, ex->table_rows);
        r->counts[b] = rng_below(rng, ex->k + 1);
        r->seq_lens[b] = 1 + rng_below(rng, ex->table_len * ex->block_size + (faults ? 4 : 0));
        for (int64_t j = 0; j < ex->k; j++) {
            int64_t *t = &r->indices[b * ex->k + j];
            *t = rng_below(rng, ex->seq_lens ? r->seq_lens[b] : ex->table_len * ex->block_size);
            if (ex->pad != SY_PAD_ERROR && rng_below(rng, 6) == 0)
                *t = -1;
        }
    }
    for (int64_t i = 0; i < faults; i++) {
        const int64_t odd[] = {-1, -2, INT32_MAX, ex->rows, ex->table_len * ex->block_size - 1, blocks - 1};
        int64_t *where[] = {&r->indices[rng_below(rng, ex->batch * ex->k)],
                            &r->table[rng_below(rng, ex->table_rows * ex->table_len)],
                            &r->req_id[rng_below(rng, ex->batch)], &r->counts[rng_below(rng, ex->batch)],
                            &r->seq_lens[rng_below(rng, ex->batch)]};
        *where[rng_below(rng, rng_below(rng, 4) ? 2 : 5)] = odd[rng_below(rng, COUNT_OF(odd))];
    }
}

static void check_random(struct random *r)
{
    static const sy_fault_code codes[] = {SY_FAULT_NONE,        SY_FAULT_LENGTH_RANGE, SY_FAULT_REQ_RANGE,
                                          SY_FAULT_INDEX_RANGE, SY_FAULT_TABLE_SHORT,  SY_FAULT_BLOCK_RANGE,
                                          SY_FAULT_ROW_RANGE};
    const struct gather_fault f = truth(r);
    seen.code[f.code]++;
    r->ex.want = r->want;
    if (f.code == GATHER_FINE)
        check(&r->ex);
    else
        check_refused(&r->ex, codes[f.code], f.batch, f.position, f.value, f.limit);
}

static void random_calls(void **state)
{
    const int64_t faults = (int64_t)(uintptr_t)*state;
    static struct random r;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint64_t rng = seed * 10 + (uint64_t)faults;
        memset(&r, 0, sizeof r);
        struct example *ex = &r.ex;
        ex->batch = 1 + rng_below(&rng, 6);
        ex->k = 1 + rng_below(&rng, 20);
        ex->table_rows = 1 + rng_below(&rng, 5);
        ex->table_len = 1 + rng_below(&rng, 6);
        ex->block_size = 1 + rng_below(&rng, 9);
        ex->rows = ex->block_size + rng_below(&rng, 60);
        ex->pad = (sy_kv_pad)rng_below(&rng, 3);
        ex->wide_indices = rng_below(&rng, 2);
        ex->wide_table = rng_below(&rng, 2);
        ex->wide_slots = rng_below(&rng, 2);
        ex->strided = rng_below(&rng, 2);
        ex->indices = r.indices;
        ex->table = r.table;
        ex->req_id = r.req_id;
        ex->counts = rng_below(&rng, 2) ? r.counts : NULL;
        ex->seq_lens = rng_below(&rng, 2) ? r.seq_lens : NULL;
        fill(&r, &rng, faults);
        check_random(&r);
    }
}

/* Several tasks, whose borders fall inside rows. */
static void large_for_every_thread_count(void **state)
{
    (void)state;
    static struct random r;
    for (int64_t faults = 0; faults < 4; faults += 3) {
        uint64_t rng = 17;
        memset(&r, 0, sizeof r);
        r.ex = (struct example){.batch = 7,
                                .k = MOST_POSITIONS / 7,
                                .table_rows = 7,
                                .table_len = 50,
                                .block_size = 16,
                                .rows = MOST_ROWS - 6,
                                .pad = SY_PAD_SKIP,
                                .wide_slots = true,
                                .indices = r.indices,
                                .table = r.table,
                                .counts = r.counts};
        fill(&r, &rng, faults);
        check_random(&r);
    }
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    const int all[] = {seen.code[GATHER_FINE],  seen.code[GATHER_LENGTH],
                       seen.code[GATHER_REQ],   seen.code[GATHER_INDEX],
                       seen.code[GATHER_BLOCK], seen.code[GATHER_ROW],
                       seen.code[GATHER_TABLE], seen.padded,
                       seen.past_count,         seen.partial};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 3)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

/* Tokens dealt out to ranks like cards, a run at a time: each has a slot on one rank, in the order they came. */
static void shared_tokens(void **state)
{
    enum { TOKENS = 60, BLOCKS = 30 };
    int64_t indices[TOKENS], slots[TOKENS], valid[1], table[BLOCKS];
    (void)state;
    for (int i = 0; i < BLOCKS; i++)
        table[i] = i * 7 % BLOCKS;
    for (int i = 0; i < TOKENS; i++)
        indices[i] = i;
    const DLTensor x = sy_tensor(indices, SY_I64, 1, (int64_t[]){TOKENS}),
                   y = sy_tensor(slots, SY_I64, 1, (int64_t[]){TOKENS}),
                   v = sy_tensor(valid, SY_I64, 1, (int64_t[]){1}),
                   t = sy_tensor(table, SY_I64, 1, (int64_t[]){BLOCKS});
    for (int64_t world = 0; world < 5; world++)
        for (int64_t run = 0; run < 4; run++)
            for (int64_t rank = 0; rank < (world > 0 ? world : 1); rank++) {
                const int64_t size = 2 + run, ranks = world > 0 ? world : 1, of_run = run > 0 ? run : 1;
                sy_kv_translate_args args = {.indices = &x,
                                             .block_table = &t,
                                             .block_size = size,
                                             .slots = &y,
                                             .valid = &v,
                                             .world = world,
                                             .rank = rank,
                                             .interleave = run};
                sy_ctx *ctx = test_contexts[(world + run) % 4];
                expect_status(ctx, sy_kv_translate(ctx, &args), SY_OK);
                int64_t turn = 0, in_run = 0, own = 0; /* whose card it is, and how many this rank has */
                for (int64_t i = 0; i < TOKENS; i++) {
                    const bool mine = turn == rank;
                    assert_int_equal(slots[i], mine ? table[own / size] * size + own % size : -1);
                    own += mine;
                    if (++in_run == of_run) {
                        in_run = 0;
                        turn = turn + 1 == ranks ? 0 : turn + 1;
                    }
                }
                assert_int_equal(valid[0], own);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_tokens),
        {"random_without_faults", random_calls, NULL, NULL, (void *)0},
        {"random_with_one_fault", random_calls, NULL, NULL, (void *)1},
        {"random_with_four_faults", random_calls, NULL, NULL, (void *)4},
        cmocka_unit_test(large_for_every_thread_count),
        cmocka_unit_test(the_random_cases_were_hard),
    };
    return cmocka_run_group_tests_name("op_kv_translate", tests, test_open_contexts, test_close_contexts);
}
