/*
 * sample_noise: the noise of tokens 0 to n-1, each from its own word.
 */
#include "case.h"

#include "oracle/sample.h"

static void make(struct call *c)
{
    sy_sample_noise_args *const a = case_args(c);
    struct stream *const s = case_stream(c, "key");
    a->n = case_size(c, "n", 0, 130, 5000);
    a->seed = stream_bits(s);
    a->offset = stream_bits(s);
    a->offset >>= stream_below(s, 64);
    a->stream = (uint32_t)stream_bits(s);
    if (stream_chance(s, 8))
        a->seed = a->offset = a->stream = UINT32_MAX;
}

static void oracle(struct call *c)
{
    const sy_sample_noise_args *const a = case_args(c);
    float *const q = case_want(c, "q");
    c->query.rows = a->n;
    for (int64_t i = 0; i < a->n; i++) {
        const uint32_t word = oracle_sample_race_word(a->seed, a->offset, a->stream, i);
        q[i] = oracle_sample_race_noise(word);
        case_note(c, "first branch of the logarithm", word < 0x4afb16dau);
        case_note(c, "second branch", word >= 0x4afb16dau);
    }
    case_note(c, "part of a group of four", a->n % 4 != 0);
    case_note(c, "offset beyond 32 bits", a->offset > UINT32_MAX);
}

const struct op_case case_sample_noise = {
    .name = "sample_noise",
    .make = make,
    .oracle = oracle,
    .hard = {"first branch of the logarithm", "second branch", "part of a group of four",
             "offset beyond 32 bits"},
    .small = "n=9",
    .lines = {"n=70001"},
};
