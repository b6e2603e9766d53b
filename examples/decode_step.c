/*
 * A small decode step: two sequences with one token each. moe_dispatch writes the rows to the slots of their
 * experts, kv_gather collects the cache rows that each sequence attends to, and sample picks the next tokens.
 * The arithmetic in between, which is not part of Switchyard, is a line or two of plain C.
 */
#include <stdio.h>
#include <switchyard.h>

enum { BATCH = 2, HIDDEN = 2, EXPERTS = 2, CAPACITY = 2, SLOTS = EXPERTS * CAPACITY };
enum { BLOCK = 2, SELECTED = 3, VOCAB = 4 };

static sy_ctx *ctx;

static int failed(const char *step)
{
    fprintf(stderr, "%s: %s\n", step, sy_ctx_error(ctx));
    return 1;
}

/* Rows to expert slots, the experts, rows back. */
static sy_status experts(float hidden[BATCH][HIDDEN])
{
    float gates[BATCH] = {0.5f, 1.0f};
    int32_t expert[BATCH] = {1, 0}, slot[BATCH] = {0, 0}; /* the result of a router */
    float slots[SLOTS][HIDDEN];
    DLTensor g = sy_tensor(gates, SY_F32, 1, (int64_t[]){BATCH});
    DLTensor e = sy_tensor(expert, SY_I32, 1, (int64_t[]){BATCH});
    DLTensor l = sy_tensor(slot, SY_I32, 1, (int64_t[]){BATCH});
    DLTensor x = sy_tensor(hidden, SY_F32, 2, (int64_t[]){BATCH, HIDDEN});
    DLTensor d = sy_tensor(slots, SY_F32, 2, (int64_t[]){SLOTS, HIDDEN});
    const sy_moe_dispatch_args args = {
        .gates = &g,
        .indices = &e,
        .locations = &l,
        .input = &x,
        .num_experts = EXPERTS,
        .capacity = CAPACITY,
        .zero_unwritten = true, /* the buffer is not initialised, and an expert reads all its slots */
        .dispatch = &d,
    };
    const sy_status status = sy_moe_dispatch(ctx, &args);
    if (status != SY_OK)
        return status;
    printf("expert slots:");
    for (int r = 0; r < SLOTS; r++)
        printf("  e%d.%d [%g %g]", r / CAPACITY, r % CAPACITY, slots[r][0], slots[r][1]);
    printf("\n");
    for (int b = 0; b < BATCH; b++) /* expert e multiplies by e + 1 */
        for (int h = 0; h < HIDDEN; h++)
            hidden[b][h] = slots[expert[b] * CAPACITY + slot[b]][h] * (float)(expert[b] + 1);
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
    DLTensor c = sy_tensor(cache, SY_F32, 2, (int64_t[]){8, HIDDEN});
    DLTensor t = sy_tensor(table, SY_I32, 2, (int64_t[]){BATCH, 2});
    DLTensor i = sy_tensor(selected, SY_I32, 2, (int64_t[]){BATCH, SELECTED});
    DLTensor o = sy_tensor(rows, SY_F32, 3, (int64_t[]){BATCH, SELECTED, HIDDEN});
    const sy_kv_gather_args args = {
        .cache = &c, .indices = &i, .block_table = &t, .block_size = BLOCK, .pad = SY_PAD_ZERO, .out = &o};
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
    int32_t top_k[1] = {3};
    float temperature[1] = {0.8f};
    int64_t seed[1] = {1}, step[1] = {0}, request[BATCH] = {700, 701};
    for (int b = 0; b < BATCH; b++)
        for (int v = 0; v < VOCAB; v++)
            logits[b][v] = hidden[b][v % HIDDEN] - (float)v;
    DLTensor x = sy_tensor(logits, SY_F32, 2, (int64_t[]){BATCH, VOCAB});
    DLTensor k = sy_tensor(top_k, SY_I32, 1, (int64_t[]){1});
    DLTensor t = sy_tensor(temperature, SY_F32, 1, (int64_t[]){1});
    DLTensor s = sy_tensor(seed, SY_I64, 1, (int64_t[]){1});
    DLTensor r = sy_tensor(request, SY_I64, 1, (int64_t[]){BATCH});
    DLTensor n = sy_tensor(step, SY_I64, 1, (int64_t[]){1});
    DLTensor out = sy_tensor(token, SY_I64, 1, (int64_t[]){BATCH});
    const sy_sample_args args = {
        .logits = &x, .top_k = &k, .temperature = &t, .seed = &s, .offset = &n, .stream = &r, .token = &out};
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
