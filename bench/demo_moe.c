/*
 * The demo's MoE layer: router, permutation, experts, and back. Each check shares nothing with the library.
 */
#include "demo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Products ---- */

typedef float lane __attribute__((vector_size(16)));
enum { LANES = DEMO_TILE / 4, GROUP = 4 };

/* 16 columns of 4 rows: as many sums as registers hold, each in its own order, so nothing is reassociated. */
static void tile(const float *const x[GROUP], int inner, const float *w, lane sum[GROUP][LANES])
{
    lane s[GROUP][LANES] = {{{0}}};
    for (int k = 0; k < inner; k++) {
        lane v[LANES];
        memcpy(v, w + (size_t)k * DEMO_TILE, sizeof v);
        for (int r = 0; r < GROUP; r++)
            for (int i = 0; i < LANES; i++)
                s[r][i] += v[i] * x[r][k];
    }
    memcpy(sum, s, sizeof s);
}

void demo_matmul(const float *x, int n, int inner, const float *w, int tiles, float *out)
{
    for (int t = 0; t < tiles; t++)
        for (int i = 0; i < n; i += GROUP) {
            const float *row[GROUP];
            lane sum[GROUP][LANES];
            for (int r = 0; r < GROUP; r++) /* a short group repeats its last row */
                row[r] = x + (size_t)(i + r < n ? i + r : n - 1) * (size_t)inner;
            tile(row, inner, w + (size_t)t * (size_t)inner * DEMO_TILE, sum);
            for (int r = 0; r < GROUP && i + r < n; r++)
                memcpy(out + ((size_t)(i + r) * (size_t)tiles + (size_t)t) * DEMO_TILE, sum[r],
                       sizeof sum[r]);
        }
}

static double weight(const float *w, int inner, int k, int c)
{
    return (
        double)w[((size_t)(c / DEMO_TILE) * (size_t)inner + (size_t)k) * DEMO_TILE + (size_t)(c % DEMO_TILE)];
}

static void widen(const uint16_t *from, size_t n, float *to)
{
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_to_float(from[i]);
}

/* ---- moe_route ---- */

/* Tokens have a common component, which makes some experts popular, as in real models. */
static void make_hidden(uint16_t *hidden)
{
    uint64_t seed = 1;
    float common[DEMO_HIDDEN];
    for (int h = 0; h < DEMO_HIDDEN; h++)
        common[h] = (float)(0.5 * bench_normal(&seed));
    for (size_t i = 0; i < (size_t)DEMO_TOKENS * DEMO_HIDDEN; i++)
        hidden[i] = bf16_from_float(common[i % DEMO_HIDDEN] + (float)bench_normal(&seed));
}

static bool make_logits(struct demo *demo)
{
    float *const x = demo_take(demo, (size_t)DEMO_TOKENS * DEMO_HIDDEN, sizeof *x);
    float *const router = demo_take(demo, (size_t)DEMO_HIDDEN * DEMO_EXPERTS, sizeof *router);
    demo->hidden = demo_take(demo, (size_t)DEMO_TOKENS * DEMO_HIDDEN, 2);
    demo->logits = demo_take(demo, (size_t)DEMO_TOKENS * DEMO_EXPERTS, sizeof *demo->logits);
    demo->probs = demo_take(demo, (size_t)DEMO_TOKENS * DEMO_EXPERTS, sizeof *demo->probs);
    demo->map = demo_take(demo, (size_t)DEMO_TOKENS * DEMO_EXPERTS, 1);
    if (demo->no_memory)
        return false;
    make_hidden(demo->hidden);
    demo_fill(router, (size_t)DEMO_HIDDEN * DEMO_EXPERTS, 0.05f, 2);
    widen(demo->hidden, (size_t)DEMO_TOKENS * DEMO_HIDDEN, x);
    demo_matmul(x, DEMO_TOKENS, DEMO_HIDDEN, router, DEMO_EXPERTS / DEMO_TILE, demo->logits);
    return true;
}

/* Eight experts, none left out with a larger logit, and the weights are the softmax over all 64. */
static bool route_is_right(const struct demo *demo)
{
    int64_t visits[DEMO_EXPERTS] = {0};
    for (int64_t t = 0; t < DEMO_TOKENS; t++) {
        const float *const x = demo->logits + t * DEMO_EXPERTS, *const p = demo->probs + t * DEMO_EXPERTS;
        const uint8_t *const map = demo->map + t * DEMO_EXPERTS;
        double sum = 0, least = HUGE_VAL, most = -HUGE_VAL;
        int chosen = 0;
        for (int e = 0; e < DEMO_EXPERTS; e++) {
            sum += exp((double)x[e]);
            chosen += map[e];
            visits[e] += map[e];
            least = map[e] != 0 ? fmin(least, (double)x[e]) : least;
            most = map[e] == 0 ? fmax(most, (double)x[e]) : most;
        }
        if (chosen != DEMO_K || most > least)
            return false;
        for (int e = 0; e < DEMO_EXPERTS; e++) { /* 1e-6: the operator rounds its weights to f32 */
            const double want = map[e] != 0 ? exp((double)x[e]) / sum : 0;
            if (!(fabs((double)p[e] - want) <= 1e-6 * want))
                return false;
        }
    }
    return memcmp(visits, demo->load, sizeof visits) == 0;
}

/* One character per expert; fuller means busier. */
static void print_load(struct demo *demo, struct demo_step *step)
{
    static const char ink[] = " .:-=+*#%@";
    char line[DEMO_EXPERTS + 1] = "";
    int64_t most = 1, least = DEMO_TOKENS;
    for (int e = 0; e < DEMO_EXPERTS; e++) {
        most = demo->load[e] > most ? demo->load[e] : most;
        least = demo->load[e] < least ? demo->load[e] : least;
    }
    for (int e = 0; e < DEMO_EXPERTS; e++)
        line[e] = ink[demo->load[e] * (int64_t)(sizeof ink - 2) / most];
    snprintf(step->sketch, sizeof step->sketch, "load |%s|", line);
    snprintf(step->detail, sizeof step->detail,
             "the busiest expert gets %d tokens, the idlest %d, %d would be fair", (int)most, (int)least,
             DEMO_ROWS / DEMO_EXPERTS);
}

void demo_route(struct demo *demo)
{
    if (!make_logits(demo))
        return;
    const sy_moe_route_args args = {.logits = MAT(demo->logits, SY_F32, DEMO_TOKENS, DEMO_EXPERTS),
                                    .k = DEMO_K,
                                    .routing_map = MAT(demo->map, SY_BOOL, DEMO_TOKENS, DEMO_EXPERTS),
                                    .probs = MAT(demo->probs, SY_F32, DEMO_TOKENS, DEMO_EXPERTS),
                                    .counts = VEC(demo->load, SY_I64, DEMO_EXPERTS)};
    const size_t cells = (size_t)DEMO_TOKENS * DEMO_EXPERTS, in = cells * 4,
                 out = cells * 5 + sizeof demo->load;
    struct demo_step *const step =
        demo_measure(demo, "moe_route", &args, (double)(in + out),
                     &(struct bench_work){.copy_bytes = in, .fill_bytes = out - in});
    snprintf(step->what, sizeof step->what, "picks %d of %d experts for each of %d tokens, and weighs them",
             DEMO_K, DEMO_EXPERTS, DEMO_TOKENS);
    print_load(demo, step);
    for (int e = 1; e < DEMO_EXPERTS; e++)
        demo->first[e] = demo->first[e - 1] + demo->load[e - 1];
    demo_print(demo, step, "every token has its 8 largest logits, weighed by a softmax over all 64",
               route_is_right(demo));
}

/* ---- moe_permute ---- */

/* Every row must equal the token given by sorted_indices, and no row may be missing or duplicated. */
static bool permute_is_right(const struct demo *demo)
{
    uint8_t seen[DEMO_ROWS] = {0};
    for (int64_t t = 0; t < DEMO_TOKENS; t++) {
        const int32_t *at = demo->index + t * DEMO_K;
        for (int e = 0; e < DEMO_EXPERTS; e++) {
            if (demo->map[t * DEMO_EXPERTS + e] == 0)
                continue;
            const int64_t row = *at++;
            if (row < demo->first[e] || row >= demo->first[e] + demo->load[e] || seen[row]++ != 0 ||
                memcmp(demo->rows + row * DEMO_HIDDEN, demo->hidden + t * DEMO_HIDDEN,
                       (size_t)2 * DEMO_HIDDEN) != 0)
                return false;
        }
    }
    return true;
}

void demo_permute(struct demo *demo)
{
    demo->rows = demo_take(demo, (size_t)DEMO_ROWS * DEMO_HIDDEN, 2);
    demo->index = demo_take(demo, DEMO_ROWS, sizeof *demo->index);
    if (demo->no_memory)
        return;
    const sy_moe_permute_args args = {.tokens = MAT(demo->hidden, SY_BF16, DEMO_TOKENS, DEMO_HIDDEN),
                                      .routing_map = MAT(demo->map, SY_BOOL, DEMO_TOKENS, DEMO_EXPERTS),
                                      .num_out_tokens = DEMO_ROWS,
                                      .permuted_tokens = MAT(demo->rows, SY_BF16, DEMO_ROWS, DEMO_HIDDEN),
                                      .sorted_indices = VEC(demo->index, SY_I32, DEMO_ROWS)};
    const size_t out = (size_t)DEMO_ROWS * DEMO_HIDDEN * 2;
    const double small = 2.0 * DEMO_TOKENS * DEMO_EXPERTS + 4.0 * DEMO_ROWS;
    struct demo_step *const step =
        demo_measure(demo, "moe_permute", &args, (double)out * (DEMO_K + 1) / DEMO_K + small,
                     &(struct bench_work){.copy_bytes = out});
    snprintf(step->what, sizeof step->what,
             "copies each token to its %d experts: %d rows of 4 KiB, grouped by expert", DEMO_K, DEMO_ROWS);
    demo_print(demo, step,
               "every row equals the token given by sorted_indices; no row is missing or duplicated",
               step->good && permute_is_right(demo));
}

/* ---- The experts ---- */

/* SwiGLU of expert e on its rows: a and b have space for their inner values. */
static void expert(const struct demo *demo, int e, const float *x, float *a, float *b, float *out)
{
    const float *const scale = demo->inner_scale + (size_t)e * DEMO_WIDTH;
    const int n = (int)demo->load[e];
    demo_matmul(x, n, DEMO_HIDDEN, demo->gate, DEMO_WIDTH / DEMO_TILE, a);
    demo_matmul(x, n, DEMO_HIDDEN, demo->up, DEMO_WIDTH / DEMO_TILE, b);
    for (size_t i = 0; i < (size_t)n * DEMO_WIDTH; i++)
        a[i] = a[i] / (1 + expf(-a[i])) * b[i] * scale[i % DEMO_WIDTH];
    demo_matmul(a, n, DEMO_WIDTH, demo->down, DEMO_HIDDEN / DEMO_TILE, out);
}

struct experts {
    const struct demo *demo;
    const float *x;
    float *a, *b, *out;
};

static void some_experts(void *data, int task)
{
    const struct experts *of = data;
    const struct demo *demo = of->demo;
    for (int e = task; e < DEMO_EXPERTS; e += demo->threads) {
        const size_t at = (size_t)demo->first[e];
        if (demo->load[e] > 0)
            expert(demo, e, of->x + at * DEMO_HIDDEN, of->a + at * DEMO_WIDTH, of->b + at * DEMO_WIDTH,
                   of->out + at * DEMO_HIDDEN);
    }
}

static void all_experts(const struct demo *demo, const float *x, float *a, float *b, float *out)
{
    struct experts of = {demo, x, a, b, out};
    sy_ctx_parallel(demo->ctx, demo->threads, some_experts, &of);
}

/* Some results again, in double precision by the definition. */
static bool experts_are_right(const struct demo *demo)
{
    for (int row = 0, e = 0; row < DEMO_ROWS; row += DEMO_ROWS / 3) {
        while (row >= demo->first[e] + demo->load[e])
            e++;
        double inner[DEMO_WIDTH];
        for (int f = 0; f < DEMO_WIDTH; f++) {
            double a = 0, b = 0;
            for (int k = 0; k < DEMO_HIDDEN; k++) {
                const double x = (double)bf16_to_float(demo->rows[(size_t)row * DEMO_HIDDEN + (size_t)k]);
                a += x * weight(demo->gate, DEMO_HIDDEN, k, f);
                b += x * weight(demo->up, DEMO_HIDDEN, k, f);
            }
            inner[f] = a / (1 + exp(-a)) * b * (double)demo->inner_scale[(size_t)e * DEMO_WIDTH + (size_t)f];
        }
        for (int h = 0; h < DEMO_HIDDEN; h += 100) {
            double want = 0;
            for (int f = 0; f < DEMO_WIDTH; f++)
                want += inner[f] * weight(demo->down, DEMO_WIDTH, f, h);
            const double got = (double)bf16_to_float(demo->answers[(size_t)row * DEMO_HIDDEN + (size_t)h]);
            if (!(fabs(got - want) <= fabs(want) / 256 + 1e-5)) /* half a step of bf16, and f32 sums */
                return false;
        }
    }
    return true;
}

static bool make_experts(struct demo *demo)
{
    const size_t n = (size_t)DEMO_HIDDEN * DEMO_WIDTH, scales = (size_t)DEMO_EXPERTS * DEMO_WIDTH;
    demo->gate = demo_take(demo, n, sizeof(float));
    demo->up = demo_take(demo, n, sizeof(float));
    demo->down = demo_take(demo, n, sizeof(float));
    demo->inner_scale = demo_take(demo, scales, sizeof(float));
    demo->answers = demo_take(demo, (size_t)DEMO_ROWS * DEMO_HIDDEN, 2);
    if (demo->no_memory)
        return false;
    demo_fill(demo->gate, n, 0.04f, 3);
    demo_fill(demo->up, n, 0.04f, 4);
    demo_fill(demo->down, n, 0.05f, 5);
    demo_fill(demo->inner_scale, scales, 2, 6);
    return true;
}

void demo_experts(struct demo *demo)
{
    float *const x = demo_take(demo, (size_t)DEMO_ROWS * DEMO_HIDDEN, sizeof *x);
    float *const a = demo_take(demo, (size_t)DEMO_ROWS * DEMO_WIDTH, sizeof *a);
    float *const b = demo_take(demo, (size_t)DEMO_ROWS * DEMO_WIDTH, sizeof *b);
    float *const out = demo_take(demo, (size_t)DEMO_ROWS * DEMO_HIDDEN, sizeof *out);
    if (!make_experts(demo))
        return;
    struct demo_step *const step = demo_begin(demo, "(experts)");
    const double begin = bench_now();
    widen(demo->rows, (size_t)DEMO_ROWS * DEMO_HIDDEN, x);
    all_experts(demo, x, a, b, out);
    for (size_t i = 0; i < (size_t)DEMO_ROWS * DEMO_HIDDEN; i++)
        demo->answers[i] = bf16_from_float(out[i]);
    step->seconds = bench_now() - begin;
    step->bytes = 6.0 * DEMO_ROWS * DEMO_HIDDEN * DEMO_WIDTH;
    snprintf(step->what, sizeof step->what,
             "%d SwiGLU networks, %d wide, each work on the rows they were given", DEMO_EXPERTS, DEMO_WIDTH);
    demo_print(demo, step, "a sample of the answers is what double precision gives", experts_are_right(demo));
}

/* ---- moe_unpermute ---- */

/* Every sum again, to the last bit: f32, experts ascending, one rounding at the end. */
static bool unpermute_is_right(const struct demo *demo)
{
    for (int64_t t = 0; t < DEMO_TOKENS; t++)
        for (int h = 0; h < DEMO_HIDDEN; h++) {
            const int32_t *at = demo->index + t * DEMO_K;
            float sum = 0;
            for (int e = 0; e < DEMO_EXPERTS; e++)
                if (demo->map[t * DEMO_EXPERTS + e] != 0)
                    sum += demo->probs[t * DEMO_EXPERTS + e] *
                           bf16_to_float(demo->answers[(size_t)*at++ * DEMO_HIDDEN + (size_t)h]);
            if (demo->mixed[t * DEMO_HIDDEN + h] != bf16_from_float(sum))
                return false;
        }
    return true;
}

/* The rows as moe_permute made them, without weights: eight times each token, which bf16 can hold exactly. */
static bool round_trip(struct demo *demo, uint16_t *back)
{
    const sy_moe_unpermute_args args = {.permuted_tokens = MAT(demo->rows, SY_BF16, DEMO_ROWS, DEMO_HIDDEN),
                                        .sorted_indices = VEC(demo->index, SY_I32, DEMO_ROWS),
                                        .num_tokens = DEMO_TOKENS,
                                        .tokens = MAT(back, SY_BF16, DEMO_TOKENS, DEMO_HIDDEN)};
    bool same = sy_moe_unpermute(demo->ctx, &args) == SY_OK;
    for (size_t i = 0; i < (size_t)DEMO_TOKENS * DEMO_HIDDEN && same; i++)
        same = back[i] == bf16_from_float(DEMO_K * bf16_to_float(demo->hidden[i]));
    return same;
}

void demo_unpermute(struct demo *demo)
{
    demo->mixed = demo_take(demo, (size_t)DEMO_TOKENS * DEMO_HIDDEN, 2);
    uint16_t *const back = demo_take(demo, (size_t)DEMO_TOKENS * DEMO_HIDDEN, 2);
    if (demo->no_memory)
        return;
    const sy_moe_unpermute_args args = {.permuted_tokens =
                                            MAT(demo->answers, SY_BF16, DEMO_ROWS, DEMO_HIDDEN),
                                        .sorted_indices = VEC(demo->index, SY_I32, DEMO_ROWS),
                                        .routing_map = MAT(demo->map, SY_BOOL, DEMO_TOKENS, DEMO_EXPERTS),
                                        .probs = MAT(demo->probs, SY_F32, DEMO_TOKENS, DEMO_EXPERTS),
                                        .tokens = MAT(demo->mixed, SY_BF16, DEMO_TOKENS, DEMO_HIDDEN)};
    const size_t moved = (size_t)(DEMO_ROWS + DEMO_TOKENS) * DEMO_HIDDEN * 2;
    const double small = 6.0 * DEMO_TOKENS * DEMO_EXPERTS + 4.0 * DEMO_ROWS;
    struct demo_step *const step = demo_measure(demo, "moe_unpermute", &args, (double)moved + small,
                                                &(struct bench_work){.copy_bytes = moved / 2});
    snprintf(step->what, sizeof step->what,
             "brings the answers back: each token gets the weighted sum of its %d", DEMO_K);
    demo_print(demo, step, "every sum is right to the last bit, and permuted rows come back unchanged",
               step->good && unpermute_is_right(demo) && round_trip(demo, back));
}
