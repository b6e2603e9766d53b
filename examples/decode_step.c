/*
 * A small decode step: two sequences with one token each. moe_dispatch writes the rows to the places of
 * their experts, kv_gather collects the cache rows that each sequence attends to, and sample picks the next tokens.
 * The arithmetic in between, which is not part of Switchyard, is a line or two of plain C.
 */
#include <stdio.h>
#include <switchyard.h>

enum { BATCH = 2, HIDDEN = 2, EXPERTS = 2, CAPACITY = 2, PLACES = EXPERTS * CAPACITY };
enum { BLOCK = 2, SELECTED = 3, VOCAB = 4 };

static sy_ctx *ctx;

static int failed(const char *step)
{
    fprintf(stderr, "%s: %s\n", step, sy_ctx_error(ctx));
    return 1;
}

/* Rows to the places of experts, the experts, rows back. */
static sy_status experts(float hidden[BATCH][HIDDEN])
{
    float gates[BATCH] = {0.5f, 1.0f};
    int32_t expert[BATCH] = {1, 0}, place[BATCH] = {0, 0}; /* the result of a router */
    float places[PLACES][HIDDEN];
    sy_view g, e, l, x, d;
    const sy_moe_dispatch_args args = {
        .gates = sy_vec(&g, gates, SY_F32, BATCH),
        .indices = sy_vec(&e, expert, SY_I32, BATCH),
        .locations = sy_vec(&l, place, SY_I32, BATCH),
        .input = sy_mat(&x, hidden, SY_F32, BATCH, HIDDEN),
        .num_experts = EXPERTS,
        .capacity = CAPACITY,
        .zero_unwritten = true, /* the buffer is not initialised, and an expert reads all its places */
        .dispatch = sy_mat(&d, places, SY_F32, PLACES, HIDDEN),
    };
    const sy_status status = sy_moe_dispatch(ctx, &args);
    if (status != SY_OK)
        return status;
    printf("places of experts:");
    for (int r = 0; r < PLACES; r++)
        printf("  e%d.%d [%g %g]", r / CAPACITY, r % CAPACITY, places[r][0], places[r][1]);
    printf("\n");
    for (int b = 0; b < BATCH; b++) /* expert e multiplies by e + 1 */
        for (int h = 0; h < HIDDEN; h++)
            hidden[b][h] = places[expert[b] * CAPACITY + place[b]][h] * (float)(expert[b] + 1);
    return SY_OK;
}

/* The cache rows of the tokens a sparse attention selected, added to the hidden state in place of
   attention. */
static sy_status attend(float hidden[BATCH][HIDDEN])
{
    float cache[8][HIDDEN] = {{0, 1}, {10, 11}, {20, 21}, {30, 31}, {40, 41}, {50, 51}, {60, 61}, {70, 71}};
    int32_t table[BATCH][2] = {{3, 0}, {1, 2}}; /* the blocks of sequence 0, then of sequence 1 */
    int32_t selected[BATCH][SELECTED] = {{2, 0, 1},
                                         {3, -1, -1}}; /* logical tokens; -1 pads the shorter list */
    float rows[BATCH][SELECTED][HIDDEN];
    sy_view c, t, i;
    const DLTensor out = sy_tensor(rows, SY_F32, 3, (const int64_t[]){BATCH, SELECTED, HIDDEN});
    const sy_kv_gather_args args = {.cache = sy_mat(&c, cache, SY_F32, 8, HIDDEN),
                                    .indices = sy_mat(&i, selected, SY_I32, BATCH, SELECTED),
                                    .block_table = sy_mat(&t, table, SY_I32, BATCH, 2),
                                    .block_size = BLOCK,
                                    .pad = SY_PAD_ZERO,
                                    .out = &out};
    const sy_status status = sy_kv_gather(ctx, &args);
    if (status != SY_OK)
        return status;
    for (int b = 0; b < BATCH; b++) {
        printf("sequence %d reads:", b);
        for (int j = 0; j < SELECTED; j++) {
            printf("  [%g %g]", rows[b][j][0], rows[b][j][1]);
            for (int h = 0; h < HIDDEN; h++)
                hidden[b][h] += rows[b][j][h] / 100;
        }
        printf("\n");
    }
    return SY_OK;
}

/* Logits to tokens: top-k and temperature for all rows; a draw belongs to a sequence (seed and stream) and
   a step (offset), so it stays the same when the sequence moves to another row. */
static sy_status pick(float hidden[BATCH][HIDDEN], int64_t token[BATCH])
{
    float logits[BATCH][VOCAB];
    const int64_t request[BATCH] = {700, 701}, step = 0;
    for (int b = 0; b < BATCH; b++)
        for (int v = 0; v < VOCAB; v++)
            logits[b][v] = hidden[b][v % HIDDEN] - (float)v;
    sy_view x, k, t, s, n, r, out;
    const sy_sample_args args = {.logits = sy_mat(&x, logits, SY_F32, BATCH, VOCAB),
                                 .top_k = sy_number_i64(&k, 3),
                                 .temperature = sy_number_f32(&t, 0.8f),
                                 .seed = sy_number_i64(&s, 1),
                                 .offset = sy_number_i64(&n, step),
                                 .stream = sy_vec(&r, request, SY_I64, BATCH),
                                 .token = sy_vec(&out, token, SY_I64, BATCH)};
    return sy_sample(ctx, &args);
}

int main(void)
{
    float hidden[BATCH][HIDDEN] = {{1, 2}, {3, 4}};
    int64_t token[BATCH];
    if (sy_ctx_create(&ctx, NULL) != SY_OK || experts(hidden) != SY_OK)
        return failed("experts");
    if (attend(hidden) != SY_OK)
        return failed("attend");
    if (pick(hidden, token) != SY_OK)
        return failed("pick");
    for (int b = 0; b < BATCH; b++) /* the same two lines on every machine */
        printf("sequence %d: next token %lld\n", b, (long long)token[b]);
    sy_ctx_destroy(ctx);
    return 0;
}
