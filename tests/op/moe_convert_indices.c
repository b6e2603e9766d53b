/*
 * moe_convert_indices: the worked examples of its page, every conversion of what moe_permute makes against the oracle
 * on every kernel table and several thread counts, and faults with their positions.
 */
#include "support.h"

#include "oracle/moe_convert_indices.h"

static sy_ctx *contexts[16];
static int n_contexts;
static struct {
    int short_tokens, full_tokens, empty_rows, empty_experts;
} seen;

static int open_contexts(void **state)
{
    static const int threads[] = {1, 2, 3, 8};
    const char *isa;
    (void)state;
    for (int i = 0; (isa = sy_isa_name(i)) != NULL; i++)
        for (size_t j = 0; j < COUNT_OF(threads) && n_contexts < (int)COUNT_OF(contexts); j++)
            contexts[n_contexts++] = test_ctx(threads[j], isa);
    return 0;
}

static int close_contexts(void **state)
{
    (void)state;
    while (n_contexts > 0)
        sy_ctx_destroy(contexts[--n_contexts]);
    return 0;
}

/* One call on dense arrays; the output begins as 0xA5 bytes. */
struct convert {
    sy_index_form from, to;
    int64_t tokens, rows, k;
    int64_t in_shape[2], out_shape[2], n_offsets;
    const int32_t *in;
    const int64_t *offsets;
};

static sy_status run(const struct convert *c, int32_t *out)
{
    DLTensor in = sy_tensor((void *)(uintptr_t)c->in, SY_I32, c->from == SY_INDEX_TE ? 2 : 1,
                            (int64_t *)(uintptr_t)c->in_shape),
             offsets = sy_tensor((void *)(uintptr_t)c->offsets, SY_I64, 1, (int64_t[]){c->n_offsets}),
             converted =
                 sy_tensor(out, SY_I32, c->to == SY_INDEX_TE ? 2 : 1, (int64_t *)(uintptr_t)c->out_shape);
    const int64_t n = c->out_shape[0] * (c->to == SY_INDEX_TE ? c->out_shape[1] : 1);
    const sy_moe_convert_indices_args args = {.sorted_indices = &in,
                                              .expert_offsets = c->offsets ? &offsets : NULL,
                                              .from = c->from,
                                              .to = c->to,
                                              .num_tokens = c->tokens,
                                              .num_rows = c->rows,
                                              .k = c->k,
                                              .converted_indices = &converted};
    memset(out, 0xA5, (size_t)n * 4);
    return sy_moe_convert_indices(contexts[0], &args);
}

#define I(...) ((const int32_t[]){__VA_ARGS__})
#define L(...) ((const int64_t[]){__VA_ARGS__})

/* ---- Examples: four tokens, three experts; moe_permute's first example ----------------------------------------- */

static const int32_t slots[] = {0, 5, 3, 6, 1, 4, 2, 7}, rows[] = {0, 2, 3, 1, 2, 0, 1, 3};
static const int32_t te[] = {5, 0, -1, 2, 0, -1, 2, 6, 3, -1, 2, 1, -1, 2,
                             4, 1, -1, 1, 0, -1, 2, 7, 2, -1, 2, 0, -1, 2};
static const int64_t offsets[] = {0, 3, 5, 8};

static void every_pair_of_forms(void **state)
{
    const struct convert pairs[] = {
        {SY_INDEX_SLOT, SY_INDEX_ROW, 4, 0, 0, {8}, {8}, 0, slots, NULL},
        {SY_INDEX_SLOT, SY_INDEX_TE, 4, 0, 0, {8}, {4, 7}, 4, slots, offsets},
        {SY_INDEX_ROW, SY_INDEX_SLOT, 4, 0, 0, {8}, {8}, 0, rows, NULL},
        {SY_INDEX_ROW, SY_INDEX_TE, 4, 8, 0, {8}, {4, 7}, 4, rows, offsets},
        {SY_INDEX_TE, SY_INDEX_SLOT, 4, 8, 0, {4, 7}, {8}, 0, te, NULL},
        {SY_INDEX_TE, SY_INDEX_ROW, 4, 8, 0, {4, 7}, {8}, 0, te, NULL},
    };
    const int32_t *const want[] = {rows, te, slots, te, slots, rows};
    int32_t out[28];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(pairs); i++) {
        expect_status(contexts[0], run(&pairs[i], out), SY_OK);
        expect_bytes(out, want[i], pairs[i].to == SY_INDEX_TE ? sizeof te : sizeof slots);
    }
}

/* Tokens with fewer experts than slots, and zero rows behind the live ones. */
static void short_tokens_and_empty_rows(void **state)
{
    const struct convert to_row = {SY_INDEX_SLOT,          SY_INDEX_ROW, 3, 0, 0, {6}, {6}, 0,
                                   I(0, 2, 1, -1, -1, -1), NULL};
    const struct convert to_slot = {SY_INDEX_ROW,           SY_INDEX_SLOT, 3, 0, 0, {6}, {6}, 0,
                                    I(0, 1, 0, -1, -1, -1), NULL};
    const struct convert to_te = {SY_INDEX_ROW,           SY_INDEX_TE, 3, 0, 0, {6}, {3, 5}, 3,
                                  I(0, 1, 0, -1, -1, -1), L(0, 2, 3)};
    int32_t out[15];
    (void)state;
    expect_status(contexts[0], run(&to_row, out), SY_OK);
    expect_bytes(out, I(0, 1, 0, -1, -1, -1), 24);
    expect_status(contexts[0], run(&to_slot, out), SY_OK);
    expect_bytes(out, I(0, 2, 1, -1, -1, -1), 24);
    expect_status(contexts[0], run(&to_te, out), SY_OK);
    expect_bytes(out, I(2, 0, 1, 0, 2, 1, -1, 0, -1, 1, -1, -1, -1, -1, 0), 60);
}

/* Capacity mode: a token has as many rows as experts took it, so slots are asked for. */
static void capacity_rows_need_k(void **state)
{
    const struct convert c = {SY_INDEX_ROW, SY_INDEX_SLOT, 3, 0, 2, {4}, {6}, 0, I(0, 2, 0, 1), NULL};
    struct convert none = c;
    int32_t out[6];
    (void)state;
    expect_status(contexts[0], run(&c, out), SY_OK);
    expect_bytes(out, I(0, 2, 3, -1, 1, -1), 24);
    none.k = 0;
    none.out_shape[0] = 3;
    expect_status(contexts[0], run(&none, out), SY_ERR_ROUTING);
    expect_fault(contexts[0], SY_FAULT_ROW_OVERFULL, -1, 0, 2, 1);
    assert_non_null(strstr(sy_ctx_error(contexts[0]), "gives token 0 2 rows, want at most k = 1"));
}

/* Slots in any order, and the padding and order of a TE map that is read, do not matter. */
static void order_of_the_input_is_free(void **state)
{
    const struct convert slot = {SY_INDEX_SLOT,  SY_INDEX_TE, 2, 4, 0, {4}, {2, 5}, 3,
                                 I(3, 0, 2, -1), L(0, 2, 4)};
    const struct convert map = {
        SY_INDEX_TE, SY_INDEX_SLOT, 2, 4, 2, {2, 5}, {4}, 0, I(0, 3, 77, 77, 2, 2, -5, 1, 1, 1), NULL};
    int32_t out[10];
    (void)state;
    expect_status(contexts[0], run(&slot, out), SY_OK);
    expect_bytes(out, I(3, 0, 1, 0, 2, 2, -1, 1, -1, 1), 40);
    expect_status(contexts[0], run(&map, out), SY_OK);
    expect_bytes(out, I(0, 3, 2, -1), 16);
}

static void empty_shapes(void **state)
{
    const struct convert nothing[] = {
        {SY_INDEX_SLOT, SY_INDEX_ROW, 0, 0, 0, {0}, {0}, 0, slots, NULL},
        {SY_INDEX_ROW, SY_INDEX_SLOT, 0, 0, 0, {0}, {0}, 0, slots, NULL},
        {SY_INDEX_TE, SY_INDEX_ROW, 0, 0, 0, {0, 3}, {0}, 0, slots, NULL},
    };
    const struct convert no_rows = {SY_INDEX_ROW, SY_INDEX_TE, 2, 0, 0, {0}, {2, 3}, 2, rows, L(0, 0)};
    const struct convert no_experts = {SY_INDEX_SLOT, SY_INDEX_TE, 2, 0, 0, {2}, {2, 1}, 1, I(-1, -1), L(0)};
    int32_t out[6];
    (void)state;
    for (size_t i = 0; i < COUNT_OF(nothing); i++)
        expect_status(contexts[0], run(&nothing[i], out), SY_OK);
    expect_status(contexts[0], run(&no_rows, out), SY_OK);
    expect_bytes(out, I(-1, -1, 0, -1, -1, 0), 24);
    expect_status(contexts[0], run(&no_experts, out), SY_OK);
    expect_bytes(out, I(0, 0), 8);
}

/* ---- Faults --------------------------------------------------------------------------------------------------- */

struct fault_case {
    struct convert call;
    sy_fault want; /* without the argument */
};

static void check_fault(const struct fault_case *c)
{
    int32_t out[16], untouched[16];
    memset(untouched, 0xA5, sizeof untouched);
    memset(out, 0xA5, sizeof out);
    expect_status(contexts[0], run(&c->call, out), c->want.status);
    expect_fault(contexts[0], c->want.code, c->want.batch, c->want.position, c->want.value, c->want.limit);
    expect_bytes(out, untouched, sizeof out);
}

#define REFUSED(status, code, batch, position, value, limit) \
    { \
        SY_ERR_##status, SY_FAULT_##code, "", batch, position, value, limit \
    }

static void wrong_rows_and_tokens(void **state)
{
    const struct convert to_row = {.to = SY_INDEX_ROW, .tokens = 2, .in_shape = {4}, .out_shape = {4}};
    struct fault_case outside = {to_row, REFUSED(ROUTING, SLOT_RANGE, -1, 1, -2, 4)};
    struct fault_case past = {to_row, REFUSED(ROUTING, SLOT_RANGE, -1, 2, 3, 3)};
    struct fault_case twice = {to_row, REFUSED(ROUTING, DUPLICATE, -1, 3, 3, 1)};
    struct fault_case token = {to_row, REFUSED(ROUTING, SLOT_RANGE, -1, 2, 2, 2)};
    (void)state;
    outside.call.in = I(0, -2, 4, 1);
    check_fault(&outside);
    past.call.in = I(0, 1, 3, 1);
    past.call.rows = past.call.out_shape[0] = 3;
    check_fault(&past);
    twice.call.in = I(0, 3, 1, 3);
    check_fault(&twice);
    token.call.in = I(0, 1, 2, -2);
    token.call.from = SY_INDEX_ROW;
    token.call.to = SY_INDEX_SLOT;
    check_fault(&token);
}

static void wrong_te_maps(void **state)
{
    const struct convert call = {.from = SY_INDEX_TE,
                                 .to = SY_INDEX_ROW,
                                 .tokens = 2,
                                 .rows = 4,
                                 .in_shape = {2, 3},
                                 .out_shape = {4}};
    struct fault_case cases[] = {
        {call, REFUSED(ROUTING, SLOT_RANGE, 1, 2, 2, 2)},  {call, REFUSED(ROUTING, SLOT_RANGE, 1, 2, -1, 2)},
        {call, REFUSED(ROUTING, SLOT_RANGE, 1, 0, -1, 4)}, {call, REFUSED(ROUTING, SLOT_RANGE, 1, 0, 4, 4)},
        {call, REFUSED(ROUTING, DUPLICATE, 1, 0, 3, 0)},
    };
    const int32_t in[][6] = {
        {0, 0, 1, 1, 0, 2}, {0, 0, 1, 1, 0, -1}, {0, 0, 1, -1, 0, 1}, {0, 0, 1, 4, 0, 1}, {3, 0, 1, 3, 0, 1}};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cases[i].call.in = in[i];
        check_fault(&cases[i]);
    }
}

static void wrong_offsets(void **state)
{
    const struct convert call = {.from = SY_INDEX_ROW,
                                 .to = SY_INDEX_TE,
                                 .tokens = 2,
                                 .in_shape = {2},
                                 .out_shape = {2, 5},
                                 .n_offsets = 3};
    struct fault_case cases[] = {
        {call, REFUSED(INDEX, LENGTH_RANGE, -1, 0, 1, 0)},
        {call, REFUSED(INDEX, LENGTH_RANGE, -1, 0, -1, 0)},
        {call, REFUSED(INDEX, LENGTH_RANGE, -1, 2, 1, 2)},
        {call, REFUSED(INDEX, LENGTH_RANGE, -1, 2, 3, 2)},
        {call, REFUSED(ROUTING, SLOT_RANGE, -1, 2, 1, 2)},
        {call, REFUSED(ROUTING, ROW_OVERFULL, -1, 1, 2, 1)},
    };
    const int64_t ends[][3] = {{1, 1, 2}, {-1, 1, 2}, {0, 2, 1}, {0, 1, 3}, {0, 0, 1}, {0, 2, 2}};
    const int32_t apart[] = {0, 1}, both[] = {1, 1};
    (void)state;
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        cases[i].call.offsets = ends[i];
        cases[i].call.in = i == 5 ? both : apart;
        if (i == 5) { /* two rows of one expert to one token */
            cases[i].call.n_offsets = 2;
            cases[i].call.out_shape[1] = 3;
        }
        check_fault(&cases[i]);
    }
}

/* ---- What moe_permute makes, against the oracle ----------------------------------------------------------------- */

struct permuted {
    int64_t tokens, experts, rows;
    int32_t *indices;
    int64_t *offsets;
};

static void permute(struct permuted *p, uint64_t *rng, bool capacity)
{
    const int64_t n_tokens = 1 + rng_below(rng, 20), n_experts = 1 + rng_below(rng, 7);
    uint8_t *map = calloc((size_t)(n_tokens * n_experts), 1);
    assert_non_null(map);
    int64_t most = 0;
    for (int64_t t = 0; t < n_tokens; t++) {
        int64_t n = 0;
        for (int64_t e = 0; e < n_experts; e++)
            n += map[t * n_experts + e] = rng_below(rng, 3) == 0 && e != 2;
        most = n > most ? n : most;
    }
    p->tokens = n_tokens;
    p->experts = n_experts;
    p->rows = capacity ? n_experts * rng_below(rng, n_tokens + 1) : n_tokens * most;
    p->indices = calloc((size_t)p->rows + 1, 4);
    p->offsets = calloc((size_t)n_experts + 1, 8);
    assert_true(p->indices && p->offsets);
    DLTensor tokens = sy_tensor(p->indices, SY_U8, 2, (int64_t[]){n_tokens, 0}),
             routing = sy_tensor(map, SY_BOOL, 2, (int64_t[]){n_tokens, n_experts}),
             out = sy_tensor(p->indices, SY_U8, 2, (int64_t[]){p->rows, 0}),
             indices = sy_tensor(p->indices, SY_I32, 1, &p->rows),
             ends = sy_tensor(p->offsets, SY_I64, 1, (int64_t[]){n_experts + 1});
    expect_status(
        contexts[0],
        sy_moe_permute(contexts[0], &(sy_moe_permute_args){.tokens = &tokens,
                                                           .routing_map = &routing,
                                                           .num_out_tokens = p->rows,
                                                           .drop_and_pad = capacity,
                                                           .zero_pad = capacity && rng_below(rng, 2),
                                                           .permuted_tokens = &out,
                                                           .sorted_indices = &indices,
                                                           .expert_offsets = &ends}),
        SY_OK);
    free(map);
}

/* Converts with the oracle and with every context; returns the result, to be converted further. */
static int32_t *convert(const struct permuted *p, sy_index_form from, sy_index_form to, int64_t slots_in,
                        int64_t slots_out, const int32_t *in, uint64_t *rng)
{
    const int64_t columns = 2 * p->experts + 1;
    const int64_t in_shape[2] = {from == SY_INDEX_SLOT  ? p->tokens * slots_in
                                 : from == SY_INDEX_ROW ? p->rows
                                                        : p->tokens,
                                 columns},
                  out_shape[2] = {to == SY_INDEX_SLOT  ? p->tokens * slots_out
                                  : to == SY_INDEX_ROW ? p->rows
                                                       : p->tokens,
                                  columns};
    struct convert_case c = {from,       to, p->tokens, p->rows, from == SY_INDEX_SLOT ? slots_in : slots_out,
                             p->experts, in, p->offsets};
    const struct layout at = {.row_gap = rng_below(rng, 3), .misalign = (size_t)rng_below(rng, 64)};
    const bool te_out = to == SY_INDEX_TE;
    struct tensor x, ends, y;
    tensor_make(&x, SY_I32, from == SY_INDEX_TE ? 2 : 1, in_shape, from == SY_INDEX_TE ? &at : NULL);
    tensor_make(&ends, SY_I64, 1, (int64_t[]){p->experts + 1}, NULL);
    tensor_make(&y, SY_I32, te_out ? 2 : 1, out_shape, te_out ? &at : NULL);
    tensor_put(&x, in);
    tensor_put(&ends, p->offsets);
    int32_t *want = calloc((size_t)(out_shape[0] * (te_out ? columns : 1)) + 1, 4);
    assert_non_null(want);
    oracle_moe_convert_indices(&c, want);
    const sy_moe_convert_indices_args args = {.sorted_indices = &x.t,
                                              .expert_offsets = te_out || rng_below(rng, 2) ? &ends.t : NULL,
                                              .from = from,
                                              .to = to,
                                              .num_tokens = p->tokens,
                                              .num_rows = p->rows,
                                              .k = to == SY_INDEX_SLOT ? slots_out : 0,
                                              .converted_indices = &y.t};
    for (int i = 0; i < n_contexts; i++) {
        memset(y.mem, 0xA5, y.bytes);
        unsigned char *before = tensor_snapshot(&y);
        expect_status(contexts[i], sy_moe_convert_indices(contexts[i], &args), SY_OK);
        tensor_expect(&y, want, before, "converted_indices");
        free(before);
    }
    tensor_free(&x);
    tensor_free(&ends);
    tensor_free(&y);
    return want;
}

/* Around the ring of forms, both ways round, and back to where it began. */
static void round_trips(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 120; seed++) {
        uint64_t rng = seed;
        struct permuted p;
        const bool capacity = seed % 3 == 0;
        permute(&p, &rng, capacity);
        const int64_t k = capacity ? p.experts : p.rows / p.tokens;
        const sy_index_form start = capacity ? SY_INDEX_ROW : SY_INDEX_SLOT;
        const sy_index_form other = seed % 2 ? SY_INDEX_TE : capacity ? SY_INDEX_SLOT : SY_INDEX_ROW;
        const sy_index_form third =
            (sy_index_form)(SY_INDEX_SLOT + SY_INDEX_ROW + SY_INDEX_TE - start - other);
        if (k > 0 && p.rows > 0) {
            int32_t *a = convert(&p, start, other, k, k, p.indices, &rng),
                    *b = convert(&p, other, third, k, k, a, &rng);
            int32_t *c = convert(&p, third, start, k, k, b, &rng);
            expect_bytes(c, p.indices, (size_t)p.rows * 4);
            free(a);
            free(b);
            free(c);
        }
        for (int64_t i = 0; i < p.rows; i++) {
            seen.short_tokens += !capacity && p.indices[i] < 0;
            seen.full_tokens += !capacity && p.indices[i] >= 0;
            seen.empty_rows += capacity && p.indices[i] < 0;
        }
        for (int64_t e = 0; e < p.experts; e++)
            seen.empty_experts += p.offsets[e] == p.offsets[e + 1];
        free(p.indices);
        free(p.offsets);
    }
    const int all[] = {seen.short_tokens, seen.full_tokens, seen.empty_rows, seen.empty_experts};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 20)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_pair_of_forms),  cmocka_unit_test(short_tokens_and_empty_rows),
        cmocka_unit_test(capacity_rows_need_k), cmocka_unit_test(order_of_the_input_is_free),
        cmocka_unit_test(empty_shapes),         cmocka_unit_test(wrong_rows_and_tokens),
        cmocka_unit_test(wrong_te_maps),        cmocka_unit_test(wrong_offsets),
        cmocka_unit_test(round_trips),
    };
    return cmocka_run_group_tests_name("op_moe_convert_indices", tests, open_contexts, close_contexts);
}
