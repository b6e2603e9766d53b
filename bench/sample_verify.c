/*
 * sample_verify: must read the logits of the rows on accepted paths. The limit is a read of the same bytes. The plain loop is
 * sample on all rows, and a walk: what a caller does without this operator.
 */
#include "described.h"

#include <math.h>
#include <string.h>

static const char *const shapes[] = {
    "bf16 [16,4,131072] greedy all accepted",
    "bf16 [16,4,131072] p=0.9 all accepted",
    "bf16 [16,4,131072] p=0.9 one accepted",
    "bf16 [64,8,32000] p=0.9 all accepted",
    "f32 [4,4,131072] p=0.9 all accepted",
    /* Quick. */
    "bf16 [4,3,32000] p=0.9 one accepted",
};

enum { SEED = 42 };

/* As sample's: a few tokens of each row stand out. */
static BENCH_FILLER(fill_peaks)
{
    enum { PEAKS = 200 };
    const int64_t vocab = x->shape[2];
    fill_normal(c, x, n, seed);
    for (int64_t i = 0; i < x->shape[0] * x->shape[1] * PEAKS; i++)
        bench_store(x, i / PEAKS * vocab + (int64_t)(random_unit(&seed) * (double)vocab),
                    (float)(20 - 1.5 * log(1 + (double)(i % PEAKS))));
}

/* The rows of a call as one of sample. */
static void sample_rows(const struct bench_call *c, int64_t *token)
{
    const sy_sample_verify_args *const a = c->args;
    int64_t *const offset = c->scratch;
    int64_t shape[] = {a->logits->shape[0] * a->logits->shape[1], a->logits->shape[2]};
    const DLTensor logits = sy_tensor(a->logits->data, a->logits->dtype, 2, shape),
                   step = sy_tensor(offset, SY_I64, 1, shape), out = sy_tensor(token, SY_I64, 1, shape);
    sy_view seed, stream;
    for (int64_t i = 0; i < shape[0]; i++)
        offset[i] = i % a->logits->shape[1];
    const sy_sample_args args = {.logits = &logits,
                                 .top_p = a->top_p,
                                 .seed = a->seed ? sy_number_i64(&seed, SEED) : NULL,
                                 .offset = &step,
                                 .stream = sy_number_i64(&stream, 0),
                                 .token = &out};
    sy_sample(c->ctx, &args);
}

/* What sample picks from the row before, of the first n of a request; else another token. */
static BENCH_FILLER(fill_drafts)
{
    const sy_sample_verify_args *const a = c->args;
    const int64_t each = a->logits->shape[1], rows = a->logits->shape[0] * each;
    int64_t *const token = (int64_t *)c->scratch + rows, *const to = x->data;
    sample_rows(c, token);
    for (int64_t i = 0; i < rows; i++)
        to[i] = i % each == 0 ? 0 : i % each <= n ? token[i - 1] : token[i - 1] ^ 1;
}

static void make(struct bench_call *c)
{
    sy_sample_verify_args *const a = c->args;
    const int64_t batch = bench_size(c, "["), each = bench_size(c, ","),
                  vocab = (int64_t)bench_number(strchr(c->shape, ',') + 1, ",");
    const int64_t accepted = bench_says(c->shape, "one accepted") ? 1 : each - 1;
    bench_scratch(c, 2 * (size_t)(batch * each) * sizeof(int64_t));
    bench_in(c, &a->logits, bench_type(c), DIMS(batch, each, vocab), BENCH_TURNS, fill_peaks, 25);
    if (!bench_says(c->shape, "greedy")) {
        bench_in(c, &a->seed, SY_I64, DIMS(1), BENCH_ONCE, fill_integer, SEED);
        bench_in(c, &a->stream, SY_I64, DIMS(1), BENCH_ONCE, fill_integer, 0);
        bench_in(c, &a->top_p, SY_F32, DIMS(1), BENCH_ONCE, fill_hundredths, 90);
    }
    bench_in(c, &a->draft_token, SY_I64, DIMS(batch, each), BENCH_TURNS, fill_drafts, accepted);
    bench_out(c, &a->token, BENCH_ONCE);
    bench_out(c, &a->count, BENCH_ONCE);
    c->limit.read_bytes = bench_bytes(a->logits) / (size_t)each * (size_t)(accepted + 1);
}

static void plain(const struct bench_call *c)
{
    const sy_sample_verify_args *const a = c->args;
    const int64_t each = a->logits->shape[1];
    int64_t *const picked = (int64_t *)c->scratch + a->logits->shape[0] * each;
    sample_rows(c, picked);
    for (int64_t b = 0; b < a->logits->shape[0]; b++) {
        const int64_t *const draft = (const int64_t *)a->draft_token->data + b * each, *const row =
                                                                                           picked + b * each;
        int64_t *const token = (int64_t *)a->token->data + b * each, n = 1;
        while (n < each && draft[n] == row[n - 1])
            n++;
        for (int64_t i = 0; i < each; i++)
            token[i] = i < n ? row[i] : -1;
        ((int32_t *)a->count->data)[b] = (int32_t)n;
    }
}

BENCH_OP(sample_verify, shapes, 1, make, .plain = plain);
