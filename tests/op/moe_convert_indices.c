/*
 * moe_convert_indices: every conversion of what moe_permute makes, against the oracle on every kernel table and several
 * thread counts.
 */
#include "support_random.h"

#include "oracle/moe_convert_indices.h"

static struct {
    int short_tokens, full_tokens, empty_rows, empty_experts;
} seen;

struct permuted {
    int64_t tokens, experts, rows;
    int32_t *indices;
    int64_t *offsets;
};

static void permute(struct permuted *p, uint64_t *rng, bool capacity)
{
    const int64_t n_tokens = 1 + rng_below(rng, 20), n_experts = 1 + rng_below(rng, 7);
    uint8_t *map = need(n_tokens * n_experts, 1);
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
    p->indices = need(p->rows, 4);
    p->offsets = need(n_experts, 8);
    DLTensor tokens = sy_tensor(p->indices, SY_U8, 2, (int64_t[]){n_tokens, 0}),
             routing = sy_tensor(map, SY_BOOL, 2, (int64_t[]){n_tokens, n_experts}),
             out = sy_tensor(p->indices, SY_U8, 2, (int64_t[]){p->rows, 0}),
             indices = sy_tensor(p->indices, SY_I32, 1, &p->rows),
             ends = sy_tensor(p->offsets, SY_I64, 1, (int64_t[]){n_experts + 1});
    const sy_moe_permute_args args = {.tokens = &tokens,
                                      .routing_map = &routing,
                                      .num_out_tokens = p->rows,
                                      .drop_and_pad = capacity,
                                      .zero_pad = capacity && rng_below(rng, 2),
                                      .permuted_tokens = &out,
                                      .sorted_indices = &indices,
                                      .expert_offsets = &ends};
    expect_status(contexts[0], sy_moe_permute(contexts[0], &args), SY_OK);
}

/* Converts with the oracle and with every context; returns the result, to be converted further. */
static int32_t *convert(const struct permuted *p, sy_index_form from, sy_index_form to, int64_t k,
                        const int32_t *in, uint64_t *rng)
{
    const int64_t columns = 2 * p->experts + 1,
                  lengths[] = {
                      [SY_INDEX_SLOT] = p->tokens * k, [SY_INDEX_ROW] = p->rows, [SY_INDEX_TE] = p->tokens};
    const struct convert_case c = {from, to, p->tokens, p->rows, k, p->experts, in, p->offsets};
    const bool te_out = to == SY_INDEX_TE;
    struct tensor *x = any_tensor(rng, SY_I32, from == SY_INDEX_TE ? 2 : 1, lengths[from], columns),
                  *ends = any_tensor(rng, SY_I64, 1, p->experts + 1, 0),
                  *y = any_tensor(rng, SY_I32, te_out ? 2 : 1, lengths[to], columns);
    tensor_put(x, in);
    tensor_put(ends, p->offsets);
    int32_t *want = need(lengths[to] * (te_out ? columns : 1), 4);
    oracle_moe_convert_indices(&c, want);
    const sy_moe_convert_indices_args args = {.sorted_indices = &x->t,
                                              .expert_offsets = te_out || rng_below(rng, 2) ? &ends->t : NULL,
                                              .from = from,
                                              .to = to,
                                              .num_tokens = p->tokens,
                                              .num_rows = p->rows,
                                              .k = to == SY_INDEX_SLOT ? k : 0,
                                              .converted_indices = &y->t};
    const struct output out = {"converted_indices", y, want, true};
    const sy_fault none = {.status = SY_OK};
    for (int i = 0; i < n_contexts; i++) {
        fill_outputs(&out, 1);
        expect_outputs(contexts[i], sy_moe_convert_indices(contexts[i], &args), &none, &out, 1);
    }
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
            const int32_t *a = convert(&p, start, other, k, p.indices, &rng),
                          *b = convert(&p, other, third, k, a, &rng),
                          *c = convert(&p, third, start, k, b, &rng);
            expect_bytes(c, p.indices, (size_t)p.rows * 4);
        }
        for (int64_t i = 0; i < p.rows; i++) {
            seen.short_tokens += !capacity && p.indices[i] < 0;
            seen.full_tokens += !capacity && p.indices[i] >= 0;
            seen.empty_rows += capacity && p.indices[i] < 0;
        }
        for (int64_t e = 0; e < p.experts; e++)
            seen.empty_experts += p.offsets[e] == p.offsets[e + 1];
        free_all();
    }
    expect_hard(seen, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(round_trips)};
    return cmocka_run_group_tests_name("op_moe_convert_indices", tests, open_contexts, close_contexts);
}
