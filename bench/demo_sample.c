/*
 * The demo's last step: logits over the vocabulary, and one token per sequence.
 */
#include "demo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A head of rank 16 in place of a vocabulary matrix of 200 MB: the frequency of a token, as 1 / rank, and how well it
   matches the features of the sequence. */
static void make_logits(const struct demo *demo, const float *tokens, const float *common, uint16_t *logits)
{
    for (int b = 0; b < DEMO_TOKENS; b++) {
        const float *const f = demo->features + (size_t)b * DEMO_FEATURES;
        for (int v = 0; v < DEMO_VOCAB; v++) {
            const float *const w = tokens + (size_t)v * DEMO_FEATURES;
            float x = common[v];
            for (int i = 0; i < DEMO_FEATURES; i++)
                x += f[i] * w[i];
            logits[(size_t)b * DEMO_VOCAB + (size_t)v] = bf16_from_float(x);
        }
    }
}

static uint16_t *head(struct demo *demo)
{
    float *const tokens = demo_take(demo, (size_t)DEMO_VOCAB * DEMO_FEATURES, sizeof *tokens);
    float *const common = demo_take(demo, DEMO_VOCAB, sizeof *common);
    uint16_t *const logits = demo_take(demo, (size_t)DEMO_TOKENS * DEMO_VOCAB, 2);
    if (demo->no_memory)
        return NULL;
    uint64_t seed = 11;
    for (int v = 0; v < DEMO_VOCAB; v++)
        common[v] = (float)(8 - log(1 + random_unit(&seed) * DEMO_VOCAB));
    demo_fill(tokens, (size_t)DEMO_VOCAB * DEMO_FEATURES, 0.6f, 12);
    make_logits(demo, tokens, common, logits);
    return logits;
}

/* ---- Expected results ---- */

/* The most likely tokens of a row, best first. */
static void most_likely(const uint16_t *logits, int64_t best[DEMO_SHOWN])
{
    static double value[DEMO_VOCAB]; /* too large for a stack */
    for (int i = 0; i < DEMO_VOCAB; i++)
        value[i] = (double)bf16_to_float(logits[i]);
    bench_best(value, DEMO_VOCAB, DEMO_SHOWN, best);
}

/* exp of a logit over the temperature, the best token's being 1. */
static double mass(const uint16_t *logits, int64_t token, int64_t best)
{
    const double x = (double)bf16_to_float(logits[token]) - (double)bf16_to_float(logits[best]);
    return exp(x / (double)DEMO_TEMPERATURE);
}

/* The picked token is a candidate, and the candidates are the shortest prefix of the best k that holds top-p of them. */
static bool sample_is_right(const uint16_t *logits, int64_t kept, int64_t token)
{
    int64_t best[DEMO_SHOWN];
    most_likely(logits, best);
    double weight[DEMO_TOP_K], total = 0, sum = 0;
    for (int i = 0; i < DEMO_TOP_K; i++) {
        weight[i] = mass(logits, best[i], best[0]);
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
    const double p = (double)DEMO_TOP_P;
    return found && sum >= (p - 1e-5) * total && sum - weight[kept - 1] < (p + 1e-5) * total;
}

/* The data of row 0 for the page. */
static void remember(struct demo *demo, const uint16_t *logits, int64_t kept, int64_t token)
{
    most_likely(logits, demo->likely_token);
    double total = 0;
    for (int i = 0; i < DEMO_VOCAB; i++)
        total += mass(logits, i, demo->likely_token[0]);
    for (int i = 0; i < DEMO_SHOWN; i++)
        demo->likely[i] = mass(logits, demo->likely_token[i], demo->likely_token[0]) / total;
    demo->kept = kept;
    demo->picked = token;
}

/* ---- sample ---- */

static void print_tokens(struct demo_step *step, const int64_t *token)
{
    int at = snprintf(step->detail, sizeof step->detail, "next tokens:");
    for (int b = 0; b < 10 && at > 0 && (size_t)at < sizeof step->detail; b++)
        at += snprintf(step->detail + at, sizeof step->detail - (size_t)at, " %d", (int)token[b]);
    if (at > 0 && (size_t)at < sizeof step->detail)
        snprintf(step->detail + at, sizeof step->detail - (size_t)at, " ...");
}

void demo_sample(struct demo *demo)
{
    uint16_t *const logits = head(demo);
    if (!logits)
        return;
    int64_t token[DEMO_TOKENS];
    int32_t kept[DEMO_TOKENS];
    const sy_sample_args args = {.logits = MAT(logits, SY_BF16, DEMO_TOKENS, DEMO_VOCAB),
                                 .top_k = sy_number_i64(&(sy_view){0}, DEMO_TOP_K),
                                 .top_p = sy_number_f32(&(sy_view){0}, DEMO_TOP_P),
                                 .temperature = sy_number_f32(&(sy_view){0}, DEMO_TEMPERATURE),
                                 .seed = sy_number_i64(&(sy_view){0}, 2024),
                                 .offset = VEC(demo->length, SY_I32, DEMO_TOKENS),
                                 .token = VEC(token, SY_I64, DEMO_TOKENS),
                                 .kept = VEC(kept, SY_I32, DEMO_TOKENS)};
    const size_t bytes = (size_t)DEMO_TOKENS * DEMO_VOCAB * 2;
    struct demo_step *const step =
        demo_measure(demo, "sample", &args, (double)bytes, &(struct bench_work){.read_bytes = bytes});
    snprintf(step->what, sizeof step->what,
             "draws one of %d tokens for each sequence: temperature %.1f, top-k %d, top-p %.1f", DEMO_VOCAB,
             (double)DEMO_TEMPERATURE, DEMO_TOP_K, (double)DEMO_TOP_P);
    bool good = step->good;
    for (int b = 0; b < DEMO_TOKENS && good; b++)
        good = sample_is_right(logits + (size_t)b * DEMO_VOCAB, kept[b], token[b]);
    if (good) {
        remember(demo, logits, kept[0], token[0]);
        print_tokens(step, token);
    }
    demo_print(demo, step,
               "the survivors are the shortest list that holds 0.9 of the best 50, each token is one", good);
}
