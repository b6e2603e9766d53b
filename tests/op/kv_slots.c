/*
 * kv_slots: random calls against the oracle, on every thread count, and the three operators of a cache together: slots,
 * scatter, gather. Examples and rules are in tests/examples.
 */
#include "support.h"

#include "oracle/kv_slots.h"

#define L(...) ((const int64_t[]){__VA_ARGS__})

/* ---- A call ------------------------------------------------------------------------------------------------- */

enum { MOST = 140000, MOST_TABLE = 64 }; /* more tokens than one task keeps the slots of */

/* n tokens as [lead, n / lead], numbers stored as the types asked for. */
struct input {
    int64_t n, lead, table_rows, table_len, block_size, rows;
    sy_kv_pad pad;
    bool no_batch, wide_batch, wide_position, wide_table, wide_slots, strided;
    int64_t batch[MOST], position[MOST], table[MOST_TABLE];
};

struct truth {
    sy_fault_code code;
    int64_t position, value, limit;
    int64_t slots[MOST];
};

static void find_truth(const struct input *in, struct truth *out)
{
    static const sy_fault_code codes[] = {SY_FAULT_NONE, SY_FAULT_REQ_RANGE, SY_FAULT_INDEX_RANGE,
                                          SY_FAULT_BLOCK_RANGE, SY_FAULT_ROW_RANGE};
    const struct slots_case truth = {.n = in->n,
                                     .table_rows = in->table_rows,
                                     .table_len = in->table_len,
                                     .block_size = in->block_size,
                                     .rows = in->rows,
                                     .slot_bits = in->wide_slots ? 64 : 32,
                                     .padding = in->pad != SY_PAD_ERROR,
                                     .batch = in->no_batch ? NULL : in->batch,
                                     .position = in->position,
                                     .table = in->table};
    const struct slots_fault fault = oracle_kv_slots(&truth, out->slots);
    out->code = codes[fault.code];
    out->position = fault.position;
    out->value = fault.value;
    out->limit = fault.limit;
}

static void make_ints(struct tensor *x, bool wide_type, const int64_t *shape, const int64_t *values,
                      bool strided)
{
    tensor_make(x, wide_type ? SY_I64 : SY_I32, 2, shape, &(struct layout){.row_gap = strided ? 3 : 0});
    for (int64_t i = 0; i < shape[0] * shape[1]; i++)
        memcpy((unsigned char *)tensor_row(x, i / shape[1]) + (size_t)(i % shape[1]) * type_bytes(x->t.dtype),
               &values[i], type_bytes(x->t.dtype));
}

static void check_on(sy_ctx *ctx, const struct input *in, const struct truth *want)
{
    struct tensor batch, position, table, slots;
    const int64_t shape[] = {in->lead, in->n / in->lead}, table_shape[] = {in->table_rows, in->table_len};
    make_ints(&batch, in->wide_batch, shape, in->batch, in->strided);
    make_ints(&position, in->wide_position, shape, in->position, false);
    make_ints(&table, in->wide_table, table_shape, in->table, in->strided);
    tensor_make(&slots, in->wide_slots ? SY_I64 : SY_I32, 2, shape,
                &(struct layout){.row_gap = in->strided ? 5 : 0});
    unsigned char *before = tensor_snapshot(&slots), *dense = malloc((size_t)in->n * 8 + 1);
    assert_non_null(dense);
    const size_t bytes = type_bytes(slots.t.dtype);
    for (int64_t i = 0; i < in->n; i++)
        memcpy(dense + (size_t)i * bytes, &want->slots[i], bytes);
    const sy_kv_slots_args args = {.batch = in->no_batch ? NULL : &batch.t,
                                   .position = &position.t,
                                   .block_table = &table.t,
                                   .block_size = in->block_size,
                                   .num_rows = in->rows,
                                   .pad = in->pad,
                                   .slots = &slots.t};
    sy_query query;
    expect_status(ctx, sy_kv_slots_query(ctx, &args, &query), SY_OK);
    assert_int_equal(query.rows, in->n);
    expect_status(ctx, sy_kv_slots(ctx, &args), want->code == SY_FAULT_NONE ? SY_OK : SY_ERR_INDEX);
    if (want->code == SY_FAULT_NONE) {
        tensor_expect(&slots, dense, before, "slots");
    } else {
        expect_fault(ctx, want->code, -1, want->position, want->value, want->limit);
        tensor_expect_unchanged(&slots, before, "slots");
    }
    free(before);
    free(dense);
    tensor_free(&batch);
    tensor_free(&position);
    tensor_free(&table);
    tensor_free(&slots);
}

static struct truth want;

static void check(const struct input *in)
{
    find_truth(in, &want);
    for (int i = 0; i < TEST_CONTEXTS; i++)
        check_on(test_contexts[i], in, &want);
}

/* ---- Random ------------------------------------------------------------------------------------------------- */

static int seen_codes[64];

static void fill(struct input *in, uint64_t *rng, int64_t n_faults)
{
    const int64_t blocks = in->rows / in->block_size;
    for (int64_t i = 0; i < in->table_rows * in->table_len; i++)
        in->table[i] = rng_below(rng, blocks);
    for (int64_t i = 0; i < in->n; i++) {
        in->batch[i] = rng_below(rng, in->table_rows);
        in->position[i] = rng_below(rng, in->table_len * in->block_size);
        if (in->pad != SY_PAD_ERROR && rng_below(rng, 7) == 0)
            in->position[i] = -1;
    }
    const int64_t odd[] = {-1, -2, in->table_len * in->block_size, INT32_MIN, in->table_rows, blocks};
    for (int64_t i = 0; i < n_faults; i++) {
        int64_t *where[] = {&in->batch[rng_below(rng, in->n)], &in->position[rng_below(rng, in->n)],
                            &in->table[rng_below(rng, in->table_rows * in->table_len)]};
        *where[rng_below(rng, 3)] = odd[rng_below(rng, COUNT_OF(odd))];
    }
}

static void random_calls(void **state)
{
    const int64_t n_faults = (int64_t)(uintptr_t)*state;
    static struct input in;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint64_t rng = seed * 10 + (uint64_t)n_faults;
        in = (struct input){.lead = 1 + rng_below(&rng, 3), .table_rows = 1 + rng_below(&rng, 6)};
        in.n = in.lead * (1 + rng_below(&rng, 40));
        in.table_len = 1 + rng_below(&rng, 8);
        in.block_size = 1 + rng_below(&rng, 9);
        in.rows = in.block_size + rng_below(&rng, 80);
        in.pad = (sy_kv_pad)rng_below(&rng, 3);
        in.no_batch = in.table_rows == 1;
        in.wide_batch = rng_below(&rng, 2);
        in.wide_position = rng_below(&rng, 2);
        in.wide_table = rng_below(&rng, 2);
        in.wide_slots = rng_below(&rng, 2);
        in.strided = rng_below(&rng, 2);
        fill(&in, &rng, n_faults);
        check(&in);
        seen_codes[want.code]++;
    }
}

static void large_for_every_thread_count(void **state)
{
    (void)state;
    static struct input in;
    for (int64_t n_faults = 0; n_faults < 4; n_faults++) {
        uint64_t rng = 3;
        in = (struct input){
            .n = MOST, .lead = 5, .table_rows = 7, .table_len = 9, .block_size = 12, .rows = 101};
        in.wide_slots = true;
        if (n_faults % 2 == 1) {
            in.block_size = 16;
            in.wide_position = true;
            in.wide_batch = n_faults == 3;
        }
        fill(&in, &rng, n_faults);
        check(&in);
        seen_codes[want.code]++;
    }
}

static void the_random_cases_were_hard(void **state)
{
    (void)state;
    const sy_fault_code all[] = {SY_FAULT_NONE, SY_FAULT_REQ_RANGE, SY_FAULT_INDEX_RANGE,
                                 SY_FAULT_BLOCK_RANGE, SY_FAULT_ROW_RANGE};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (seen_codes[all[i]] < 5)
            fail_msg("%s occurred only %d times", sy_fault_name(all[i]), seen_codes[all[i]]);
}

/* ---- Together ----------------------------------------------------------------------------------------------- */

/* Tokens of two sequences are written in any order; gathered by position, each sequence is whole again. */
static void slots_scatter_gather(void **state)
{
    (void)state;
    enum { S = 3, TOKENS = 7, BLOCKS = 7, N = 2 * TOKENS };
    int32_t table[2][3] = {{6, 1, 4}, {0, 5, 2}}, batch[N], position[N], slots[N], rows[N],
            indices[2][TOKENS], cache[BLOCKS * S] = {0}, out[2][TOKENS];
    for (int i = 0; i < N; i++) {
        const int token = i * 5 % N;
        batch[i] = token / TOKENS;
        position[i] = token % TOKENS;
        rows[i] = 100 * batch[i] + position[i];
        indices[i / TOKENS][i % TOKENS] = i % TOKENS;
    }
    const DLTensor t = sy_tensor(table, SY_I32, 2, (int64_t[]){2, 3}),
                   b = sy_tensor(batch, SY_I32, 1, (int64_t[]){N}),
                   p = sy_tensor(position, SY_I32, 1, (int64_t[]){N}),
                   s = sy_tensor(slots, SY_I32, 1, (int64_t[]){N}),
                   r = sy_tensor(rows, SY_I32, 2, (int64_t[]){N, 1}),
                   c = sy_tensor(cache, SY_I32, 3, (int64_t[]){BLOCKS, S, 1}),
                   i = sy_tensor(indices, SY_I32, 2, (int64_t[]){2, TOKENS}),
                   o = sy_tensor(out, SY_I32, 3, (int64_t[]){2, TOKENS, 1});
    sy_ctx *ctx = test_contexts[1];
    expect_status(ctx,
                  sy_kv_slots(ctx, &(sy_kv_slots_args){.batch = &b,
                                                       .position = &p,
                                                       .block_table = &t,
                                                       .block_size = S,
                                                       .num_rows = BLOCKS * S,
                                                       .slots = &s}),
                  SY_OK);
    expect_status(
        ctx,
        sy_kv_scatter(ctx, &(sy_kv_scatter_args){.cache = &c, .src = &r, .slots = &s, .check_unique = true}),
        SY_OK);
    expect_status(
        ctx,
        sy_kv_gather(
            ctx,
            &(sy_kv_gather_args){.cache = &c, .indices = &i, .block_table = &t, .block_size = S, .out = &o}),
        SY_OK);
    for (int at = 0; at < N; at++)
        assert_int_equal(out[at / TOKENS][at % TOKENS], 100 * (at / TOKENS) + at % TOKENS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"random_without_faults", random_calls, NULL, NULL, (void *)0},
        {"random_with_one_fault", random_calls, NULL, NULL, (void *)1},
        {"random_with_four_faults", random_calls, NULL, NULL, (void *)4},
        cmocka_unit_test(large_for_every_thread_count),
        cmocka_unit_test(the_random_cases_were_hard),
        cmocka_unit_test(slots_scatter_gather),
    };
    return cmocka_run_group_tests_name("op_kv_slots", tests, test_open_contexts, test_close_contexts);
}
