/*
 * The four operators of the demo, each with a check that shares nothing with the library.
 */
#include "demo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/number.h"

/* Every buffer of a step, freed together. */
struct pile {
    void *items[12];
    int n;
    bool failed;
};

static void *take(struct pile *pile, size_t count, size_t bytes)
{
    void *const data = bench_alloc(count, bytes);
    pile->failed = pile->failed || !data;
    pile->items[pile->n++] = data;
    return data;
}

static bool drop(struct pile *pile)
{
    for (int i = 0; i < pile->n; i++)
        free(pile->items[i]);
    return !pile->failed;
}

static void random_rows(uint16_t *rows, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        rows[i] = bf16_from_float((float)bench_unit(&seed) * 4 - 2);
}

/* ---- moe_permute --------------------------------------------------------------------------------------- */

static sy_status call_permute(sy_ctx *ctx, const void *args)
{
    return sy_moe_permute(ctx, args);
}

/* Every row must be the token that sorted_indices leads to, and no row may be reached twice. */
static bool permute_is_right(const struct demo *demo, const uint16_t *tokens, const uint16_t *rows,
                             const int32_t *index)
{
    enum { ROWS = DEMO_TOKENS * DEMO_K, ROW_BYTES = DEMO_HIDDEN * 2 };
    uint8_t *const seen = bench_alloc(ROWS, 1);
    bool good = seen != NULL;
    int64_t first_row[DEMO_EXPERTS + 1] = {0};
    for (int e = 0; e < DEMO_EXPERTS; e++)
        first_row[e + 1] = first_row[e] + demo->load[e];
    for (int64_t t = 0; t < DEMO_TOKENS && good; t++) {
        int slot = 0;
        for (int e = 0; e < DEMO_EXPERTS && good; e++) {
            if (demo->map[t * DEMO_EXPERTS + e] == 0)
                continue;
            const int64_t row = index[t * DEMO_K + slot++];
            good = row >= first_row[e] && row < first_row[e + 1] && seen[row] == 0 &&
                   memcmp(rows + row * DEMO_HIDDEN, tokens + t * DEMO_HIDDEN, ROW_BYTES) == 0;
            if (good)
                seen[row] = 1;
        }
    }
    free(seen);
    return good;
}

bool demo_permute(struct demo *demo)
{
    const int64_t n_rows = (int64_t)DEMO_TOKENS * DEMO_K;
    struct pile pile = {.n = 0};
    uint16_t *const tokens = take(&pile, (size_t)DEMO_TOKENS * DEMO_HIDDEN, 2);
    uint16_t *const rows = take(&pile, (size_t)n_rows * DEMO_HIDDEN, 2);
    int32_t *const index = take(&pile, (size_t)n_rows, sizeof *index);
    float *const probs = take(&pile, (size_t)n_rows, sizeof *probs);
    if (pile.failed)
        return drop(&pile);
    random_rows(tokens, (size_t)DEMO_TOKENS * DEMO_HIDDEN, 1);
    const DLTensor x = sy_tensor(tokens, SY_BF16, 2, (int64_t[]){DEMO_TOKENS, DEMO_HIDDEN});
    const DLTensor map = sy_tensor(demo->map, SY_BOOL, 2, (int64_t[]){DEMO_TOKENS, DEMO_EXPERTS});
    const DLTensor weights = sy_tensor(demo->weights, SY_F32, 2, (int64_t[]){DEMO_TOKENS, DEMO_EXPERTS});
    const DLTensor y = sy_tensor(rows, SY_BF16, 2, (int64_t[]){n_rows, DEMO_HIDDEN});
    const DLTensor i = sy_tensor(index, SY_I32, 1, (int64_t[]){n_rows});
    const DLTensor p = sy_tensor(probs, SY_F32, 1, (int64_t[]){n_rows});
    const sy_moe_permute_args args = {.tokens = &x,
                                      .routing_map = &map,
                                      .probs = &weights,
                                      .num_out_tokens = n_rows,
                                      .permuted_tokens = &y,
                                      .sorted_indices = &i,
                                      .permuted_probs = &p};
    const size_t out_bytes = (size_t)n_rows * DEMO_HIDDEN * 2;
    const double small = 2.0 * DEMO_TOKENS * DEMO_EXPERTS + 12.0 * (double)n_rows;
    struct demo_step *const step = demo_measure(demo, "moe_permute", call_permute, &args,
                                                (double)out_bytes * (DEMO_K + 1) / DEMO_K + small,
                                                &(struct bench_work){.copy_bytes = out_bytes});
    snprintf(step->what, sizeof step->what,
             "copies every token row to its %d experts: %d rows of 4 KiB, grouped by expert", DEMO_K,
             (int)n_rows);
    demo_tell(step, "each row leads back to its token through sorted_indices, none is missing",
              permute_is_right(demo, tokens, rows, index));
    return drop(&pile);
}

/* ---- moe_dispatch -------------------------------------------------------------------------------------- */

static sy_status call_dispatch(sy_ctx *ctx, const void *args)
{
    return sy_moe_dispatch(ctx, args);
}

static bool dispatch_is_right(const int32_t *indices, const int32_t *locations, const float *gates,
                              const uint16_t *tokens, const uint16_t *slots)
{
    enum { SLOTS = DEMO_EXPERTS * DEMO_CAPACITY };
    uint16_t *const want = bench_alloc((size_t)SLOTS * DEMO_HIDDEN, 2);
    for (int64_t t = 0; want && t < DEMO_TOKENS; t++) {
        if (locations[t] >= DEMO_CAPACITY)
            continue;
        uint16_t *const slot = want + ((int64_t)indices[t] * DEMO_CAPACITY + locations[t]) * DEMO_HIDDEN;
        for (int h = 0; h < DEMO_HIDDEN; h++)
            slot[h] = bf16_from_float(gates[t] * bf16_to_float(tokens[t * DEMO_HIDDEN + h]));
    }
    const bool good = want && memcmp(want, slots, (size_t)SLOTS * DEMO_HIDDEN * 2) == 0;
    free(want);
    return good;
}

bool demo_dispatch(struct demo *demo)
{
    const int64_t n_slots = (int64_t)DEMO_EXPERTS * DEMO_CAPACITY;
    struct pile pile = {.n = 0};
    uint16_t *const tokens = take(&pile, (size_t)DEMO_TOKENS * DEMO_HIDDEN, 2);
    uint16_t *const slots = take(&pile, (size_t)n_slots * DEMO_HIDDEN, 2);
    int32_t *const locations = take(&pile, DEMO_TOKENS, sizeof *locations);
    float *const gates = take(&pile, DEMO_TOKENS, sizeof *gates);
    if (pile.failed)
        return drop(&pile);
    random_rows(tokens, (size_t)DEMO_TOKENS * DEMO_HIDDEN, 2);
    memset(slots, 0xa5, (size_t)n_slots * DEMO_HIDDEN * 2);
    int32_t used[DEMO_EXPERTS] = {0};
    int64_t fit = 0;
    for (int64_t t = 0; t < DEMO_TOKENS; t++) {
        gates[t] = demo->weights[t * DEMO_EXPERTS + demo->first[t]];
        locations[t] = used[demo->first[t]]++;
        fit += locations[t] < DEMO_CAPACITY;
    }
    int64_t flat[1] = {DEMO_TOKENS};
    const DLTensor g = sy_tensor(gates, SY_F32, 1, flat), i = sy_tensor(demo->first, SY_I32, 1, flat);
    const DLTensor l = sy_tensor(locations, SY_I32, 1, flat);
    const DLTensor x = sy_tensor(tokens, SY_BF16, 2, (int64_t[]){DEMO_TOKENS, DEMO_HIDDEN});
    const DLTensor d = sy_tensor(slots, SY_BF16, 2, (int64_t[]){n_slots, DEMO_HIDDEN});
    const sy_moe_dispatch_args args = {.gates = &g,
                                       .indices = &i,
                                       .locations = &l,
                                       .input = &x,
                                       .num_experts = DEMO_EXPERTS,
                                       .capacity = DEMO_CAPACITY,
                                       .zero_unwritten = true,
                                       .unique_slots = true,
                                       .dispatch = &d};
    const size_t copied = (size_t)fit * DEMO_HIDDEN * 2, filled = (size_t)(n_slots - fit) * DEMO_HIDDEN * 2;
    struct demo_step *const step = demo_measure(
        demo, "moe_dispatch", call_dispatch, &args, 2 * (double)copied + (double)filled + 12.0 * DEMO_TOKENS,
        &(struct bench_work){.copy_bytes = copied, .fill_bytes = filled});
    snprintf(step->what, sizeof step->what,
             "scales first choices into %d experts of %d slots: %d tokens fit, %d find their expert full",
             DEMO_EXPERTS, DEMO_CAPACITY, (int)fit, (int)(DEMO_TOKENS - fit));
    demo_tell(step, "every slot holds gate x row rounded to bf16, every empty slot is zero",
              dispatch_is_right(demo->first, locations, gates, tokens, slots));
    return drop(&pile);
}

/* ---- kv_gather ----------------------------------------------------------------------------------------- */

static sy_status call_gather(sy_ctx *ctx, const void *args)
{
    return sy_kv_gather(ctx, args);
}

bool demo_gather(struct demo *demo)
{
    enum { BLOCKS = DEMO_CONTEXT / DEMO_BLOCK, ROW_BYTES = DEMO_ROW * 2 };
    struct pile pile = {.n = 0};
    uint16_t *const cache = take(&pile, (size_t)DEMO_CONTEXT * DEMO_ROW, 2);
    uint16_t *const rows = take(&pile, (size_t)DEMO_SELECTED * DEMO_ROW, 2);
    int32_t *const indices = take(&pile, DEMO_SELECTED, sizeof *indices);
    int32_t *const table = take(&pile, BLOCKS, sizeof *table);
    if (pile.failed)
        return drop(&pile);
    bench_fill_random(cache, (size_t)DEMO_CONTEXT * DEMO_ROW * 2, 3);
    uint64_t seed = 4;
    for (int i = 0; i < BLOCKS; i++)
        table[i] = (i * 211 + 17) % BLOCKS; /* 211 shares no factor with the blocks: a shuffle */
    for (int j = 0; j < DEMO_SELECTED; j++)
        indices[j] = (int32_t)(bench_random(&seed) % DEMO_CONTEXT);
    const DLTensor c = sy_tensor(cache, SY_BF16, 2, (int64_t[]){DEMO_CONTEXT, DEMO_ROW});
    const DLTensor i = sy_tensor(indices, SY_I32, 1, (int64_t[]){DEMO_SELECTED});
    const DLTensor b = sy_tensor(table, SY_I32, 1, (int64_t[]){BLOCKS});
    const DLTensor o = sy_tensor(rows, SY_BF16, 2, (int64_t[]){DEMO_SELECTED, DEMO_ROW});
    const sy_kv_gather_args args = {
        .cache = &c, .indices = &i, .block_table = &b, .block_size = DEMO_BLOCK, .out = &o};
    const size_t out_bytes = (size_t)DEMO_SELECTED * DEMO_ROW * 2;
    struct demo_step *const step =
        demo_measure(demo, "kv_gather", call_gather, &args, 2 * (double)out_bytes + 4.0 * DEMO_SELECTED,
                     &(struct bench_work){.copy_bytes = out_bytes});
    snprintf(step->what, sizeof step->what,
             "fetches %d of %d cached tokens, 1152 bytes each, from shuffled blocks of %d", DEMO_SELECTED,
             DEMO_CONTEXT, DEMO_BLOCK);
    bool good = true;
    for (int64_t j = 0; j < DEMO_SELECTED; j++) {
        const int64_t row = (int64_t)table[indices[j] / DEMO_BLOCK] * DEMO_BLOCK + indices[j] % DEMO_BLOCK;
        good = good && memcmp(rows + j * DEMO_ROW, cache + row * DEMO_ROW, ROW_BYTES) == 0;
    }
    demo_tell(step, "every row is the cache row its block table names", good);
    return drop(&pile);
}

/* ---- sample -------------------------------------------------------------------------------------------- */

static sy_status call_sample(sy_ctx *ctx, const void *args)
{
    return sy_sample(ctx, args);
}

/* The most likely tokens of a row, best first, by insertion; lower tokens first among equals. */
static void most_likely(const uint16_t *logits, int32_t best[DEMO_SHOWN])
{
    int n = 0;
    for (int32_t i = 0; i < DEMO_VOCAB; i++) {
        const float x = bf16_to_float(logits[i]);
        if (n == DEMO_SHOWN && x <= bf16_to_float(logits[best[n - 1]]))
            continue;
        int at = n < DEMO_SHOWN ? n++ : n - 1;
        for (; at > 0 && bf16_to_float(logits[best[at - 1]]) < x; at--)
            best[at] = best[at - 1];
        best[at] = i;
    }
}

/*
 * The picked token is a survivor, and the survivors are the shortest prefix of the best k that holds 0.9 of
 * them.
 */
static bool sample_is_right(const uint16_t *logits, int64_t kept, int64_t token)
{
    int32_t best[DEMO_SHOWN];
    most_likely(logits, best);
    double weight[DEMO_TOP_K], total = 0, sum = 0;
    for (int i = 0; i < DEMO_TOP_K; i++) {
        weight[i] = exp((double)bf16_to_float(logits[best[i]]) - (double)bf16_to_float(logits[best[0]]));
        total += weight[i];
    }
    bool found = false;
    if (kept < 1 || kept > DEMO_TOP_K)
        return false;
    for (int64_t i = 0; i < kept; i++) {
        sum += weight[i];
        found = found || best[i] == token;
    }
    /* 1e-5 of slack: these are double sums, the operator's are integers. */
    return found && sum >= (0.9 - 1e-5) * total && sum - weight[kept - 1] < (0.9 + 1e-5) * total;
}

/* What the page shows of row 0. */
static void remember(struct demo *demo, const uint16_t *logits, int64_t kept, int64_t token)
{
    most_likely(logits, demo->likely_token);
    const double top = (double)bf16_to_float(logits[demo->likely_token[0]]);
    double total = 0;
    for (int i = 0; i < DEMO_VOCAB; i++)
        total += exp((double)bf16_to_float(logits[i]) - top);
    for (int i = 0; i < DEMO_SHOWN; i++)
        demo->likely[i] = exp((double)bf16_to_float(logits[demo->likely_token[i]]) - top) / total;
    demo->kept = kept;
    demo->picked = token;
}

bool demo_sample(struct demo *demo)
{
    struct pile pile = {.n = 0};
    uint16_t *const logits = take(&pile, (size_t)DEMO_BATCH * DEMO_VOCAB, 2);
    if (pile.failed)
        return drop(&pile);
    uint64_t seed = 6;
    for (size_t i = 0; i < (size_t)DEMO_BATCH * DEMO_VOCAB; i++) {
        const double rank = bench_unit(&seed) * DEMO_VOCAB;
        logits[i] = bf16_from_float((float)(12 - 0.9 * log(1 + rank) + 0.3 * bench_normal(&seed)));
    }
    int64_t token[DEMO_BATCH], k[1] = {DEMO_TOP_K}, one[1] = {1}, flat[1] = {DEMO_BATCH};
    int32_t kept[DEMO_BATCH];
    uint64_t key[1] = {2024};
    float p[1] = {0.9f};
    const DLTensor x = sy_tensor(logits, SY_BF16, 2, (int64_t[]){DEMO_BATCH, DEMO_VOCAB});
    const DLTensor top_k = sy_tensor(k, SY_I64, 1, one), top_p = sy_tensor(p, SY_F32, 1, one);
    const DLTensor seeds = sy_tensor(key, SY_U64, 1, one);
    const DLTensor out = sy_tensor(token, SY_I64, 1, flat), count = sy_tensor(kept, SY_I32, 1, flat);
    const sy_sample_args args = {
        .logits = &x, .top_k = &top_k, .top_p = &top_p, .seed = &seeds, .token = &out, .kept = &count};
    const size_t bytes = (size_t)DEMO_BATCH * DEMO_VOCAB * 2;
    struct demo_step *const step = demo_measure(demo, "sample", call_sample, &args, (double)bytes,
                                                &(struct bench_work){.read_bytes = bytes});
    snprintf(step->what, sizeof step->what,
             "picks one of %d tokens in each of %d rows: top-k %d, top-p 0.9, seeded draw", DEMO_VOCAB,
             DEMO_BATCH, DEMO_TOP_K);
    bool good = step->good;
    for (int b = 0; b < DEMO_BATCH && good; b++)
        good = sample_is_right(logits + (size_t)b * DEMO_VOCAB, kept[b], token[b]);
    if (good)
        remember(demo, logits, kept[0], token[0]);
    demo_tell(step,
              "the survivors are the shortest list that holds 0.9 of the best 50, the token is one of them",
              good);
    return drop(&pile);
}
