/*
 * kv_select in rows that are longer than those of its cases: where a cut is guessed from a sample of the row, where the guess is
 * wrong, and where the selected scores are next to each other.
 */
#include "support.h"

#include <math.h>

enum { N = 24000, K = 700, MANY = 9000 };
enum kind { NORMAL, PLATEAU, EQUAL, ASCENDING, DESCENDING, TOGETHER, DEAD, KINDS };

struct score {
    float value;
    int32_t at;
};

static float score_of(enum kind kind, int32_t i)
{
    const uint32_t bits = ((uint32_t)i + 1) * 0x9e3779b1u, noise = bits ^ bits >> 15;
    const float x = (float)(noise * 0x85ebca6bu >> 8) / (1 << 22) - 2;
    const float of[KINDS] = {[NORMAL] = x,
                             [PLATEAU] = x > 1.97f ? x
                                         : x > 0   ? .5f
                                                   : x,
                             [EQUAL] = 1.25f,
                             [ASCENDING] = (float)i,
                             [DESCENDING] = (float)-i,
                             [TOGETHER] = i > N / 2 && i < N / 2 + 3 * K ? x + 5 : x,
                             [DEAD] = i % 50 == 7  ? x
                                      : i % 3 == 0 ? NAN
                                                   : -INFINITY};
    return of[kind];
}

static int by_score(const void *a, const void *b)
{
    const struct score *x = a, *y = b;
    const float u = x->value > -INFINITY ? x->value : -INFINITY,
                v = y->value > -INFINITY ? y->value : -INFINITY;
    return u != v ? (u > v ? -1 : 1) : x->at < y->at ? -1 : 1;
}

static void check(sy_ctx *ctx, enum kind kind, int64_t k, sy_kv_dead dead)
{
    static float scores[N];
    static struct score sorted[N];
    static int32_t indices[MANY];
    sy_view view[3];
    int32_t count = -7;
    int64_t n = 0;
    for (int32_t i = 0; i < N; i++) {
        scores[i] = score_of(kind, i);
        sorted[i] = (struct score){scores[i], i};
    }
    qsort(sorted, N, sizeof *sorted, by_score);
    while (n < k && (dead == SY_KV_DEAD_KEEP || sorted[n].value > -INFINITY))
        n++;
    static bool chosen[N];
    for (int64_t i = 0; i < N; i++)
        chosen[sorted[i].at] = i < n;
    const sy_kv_select_args args = {.scores = sy_mat(&view[0], scores, SY_F32, 1, N),
                                    .k = k,
                                    .dead = dead,
                                    .indices = sy_mat(&view[1], indices, SY_I32, 1, k),
                                    .count = sy_vec(&view[2], &count, SY_I32, 1)};
    expect_status(ctx, sy_kv_select(ctx, &args), SY_OK);
    assert_int_equal(count, n);
    for (int32_t i = 0, at = 0; at < k; i++)
        if (i >= N || chosen[i])
            assert_int_equal(indices[at++], i < N ? i : -1);
}

TEST(long_rows)
{
    sy_ctx *const ctx = test_ctx(0, NULL);
    for (int kind = 0; kind < KINDS; kind++)
        for (int i = 0; i < 3; i++)
            check(ctx, (enum kind)kind, i == 2 ? MANY : K, i == 0 ? SY_KV_DEAD_SKIP : SY_KV_DEAD_KEEP);
    sy_ctx_destroy(ctx);
}

TESTS(kv_select_long, "op_kv_select_long")
