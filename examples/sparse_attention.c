/*
 * Sparse attention of one decode step: an indexer scores every cached token, kv_select takes the best of them, and attention
 * reads only their rows. With k = all tokens the result is that of dense attention, bit for bit.
 *
 *     cc -std=c11 examples/sparse_attention.c -o sparse_attention $(pkg-config --cflags --libs switchyard) -lm
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <switchyard.h>

enum { REQUESTS = 2, TOKENS = 40, DIM = 8, BLOCK = 4, BLOCKS = TOKENS / BLOCK };
enum { ROWS = REQUESTS * TOKENS, ROW = 2 * DIM }; /* of the cache: keys, then values */

static const int64_t lengths[REQUESTS] = {40, 23};

/* The paged cache: a row of each token is its key and its value. Blocks of both requests lie mixed. */
static float cache[ROWS][ROW];
static int32_t block_table[REQUESTS][BLOCKS];
static float query[REQUESTS][DIM];

static void check(sy_ctx *ctx, sy_status status)
{
    if (status == SY_OK)
        return;
    fprintf(stderr, "%s\n", sy_ctx_error(ctx));
    exit(1);
}

static float number(int i)
{
    return sinf((float)i * 12.9898f) * 0.9f;
}

static float dot(const float *a, const float *b)
{
    float sum = 0;
    for (int d = 0; d < DIM; d++)
        sum += a[d] * b[d];
    return sum;
}

static float *row_of(int b, int64_t t)
{
    return cache[(int64_t)block_table[b][t / BLOCK] * BLOCK + t % BLOCK];
}

static void fill(void)
{
    for (int b = 0; b < REQUESTS; b++) {
        for (int p = 0; p < BLOCKS; p++)
            block_table[b][p] = (p * REQUESTS + b) * 7 % (REQUESTS * BLOCKS);
        for (int d = 0; d < DIM; d++)
            query[b][d] = number(1000 + b * DIM + d);
        for (int64_t t = 0; t < TOKENS; t++)
            for (int d = 0; d < ROW; d++)
                row_of(b, t)[d] = number((b * TOKENS + (int)t) * ROW + d);
    }
}

/* Softmax over n rows, in their order. */
static void attend(const float *q, const float *const *rows, int64_t n, float *out)
{
    float most = -INFINITY, sum = 0, weight[TOKENS];
    for (int64_t i = 0; i < n; i++) {
        weight[i] = dot(q, rows[i]);
        most = fmaxf(most, weight[i]);
    }
    for (int64_t i = 0; i < n; i++)
        sum += weight[i] = expf(weight[i] - most);
    for (int d = 0; d < DIM; d++) {
        out[d] = 0;
        for (int64_t i = 0; i < n; i++)
            out[d] += weight[i] / sum * rows[i][DIM + d];
    }
}

static void dense(float out[REQUESTS][DIM])
{
    const float *rows[TOKENS];
    for (int b = 0; b < REQUESTS; b++) {
        for (int64_t t = 0; t < lengths[b]; t++)
            rows[t] = row_of(b, t);
        attend(query[b], rows, lengths[b], out[b]);
    }
}

static void sparse(sy_ctx *ctx, int64_t k, float out[REQUESTS][DIM])
{
    static float scores[REQUESTS][TOKENS], gathered[ROWS * ROW];
    static int32_t ids[ROWS];
    int64_t count[REQUESTS];
    const float *rows[TOKENS];
    sy_view s, l, n, i, c, t;

    /* The indexer. A real one is cheaper than attention: fewer numbers of a row, in fp8. Columns past a length are not read. */
    for (int b = 0; b < REQUESTS; b++)
        for (int64_t j = 0; j < lengths[b]; j++)
            scores[b][j] = dot(query[b], row_of(b, j));

    /* The best k of each row in ascending order, always with the first token and the last two. */
    check(ctx, sy_kv_select(ctx, &(sy_kv_select_args){.scores = sy_mat(&s, scores, SY_F32, REQUESTS, TOKENS),
                                                      .lengths = sy_vec(&l, lengths, SY_I64, REQUESTS),
                                                      .k = k,
                                                      .sink = 1,
                                                      .window = 2,
                                                      .indices = sy_mat(&i, ids, SY_I32, REQUESTS, k),
                                                      .count = sy_vec(&n, count, SY_I64, REQUESTS)}));

    /* Their rows. */
    const int64_t shape[3] = {REQUESTS, k, ROW};
    const DLTensor to = sy_tensor(gathered, SY_F32, 3, shape);
    check(ctx, sy_kv_gather(
                   ctx, &(sy_kv_gather_args){.cache = sy_mat(&c, cache, SY_F32, ROWS, ROW),
                                             .indices = sy_mat(&i, ids, SY_I32, REQUESTS, k),
                                             .block_table = sy_mat(&t, block_table, SY_I32, REQUESTS, BLOCKS),
                                             .counts = sy_vec(&n, count, SY_I64, REQUESTS),
                                             .seq_lens = sy_vec(&l, lengths, SY_I64, REQUESTS),
                                             .block_size = BLOCK,
                                             .out = &to}));
    for (int b = 0; b < REQUESTS; b++) {
        for (int64_t j = 0; j < count[b]; j++)
            rows[j] = gathered + (b * k + j) * ROW;
        attend(query[b], rows, count[b], out[b]);
    }
}

int main(void)
{
    static const int64_t ks[] = {4, 10, 20, TOKENS};
    float want[REQUESTS][DIM], got[REQUESTS][DIM];
    float error = 0;
    sy_ctx *ctx = NULL;
    check(ctx, sy_ctx_create(&ctx, NULL));
    fill();
    dense(want);
    for (int i = 0; i < 4; i++) {
        error = 0;
        sparse(ctx, ks[i], got);
        for (int b = 0; b < REQUESTS; b++)
            for (int d = 0; d < DIM; d++)
                error = fmaxf(error, fabsf(got[b][d] - want[b][d]));
        printf("k = %2lld: largest difference from dense attention %.3g\n", (long long)ks[i], (double)error);
    }
    sy_ctx_destroy(ctx);
    if (error != 0) {
        fprintf(stderr, "with all tokens the result is not that of dense attention\n");
        return 1;
    }
    return 0;
}
