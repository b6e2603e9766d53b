/*
 * sample with the largest vocabulary, for which an oracle that sorts is too slow: equal logits weigh 2^63 in all, exactly, and
 * half of them reach p = .5. What is drawn, kept and logged follows from the numbers of the draw alone.
 */
#include "support.h"

#include "oracle/sample.h"

TEST(weights_add_up_to_2_63)
{
    enum { VOCAB = 1 << 23 };
    static const float top_p[] = {.5f, 0.99999994f, 1};
    uint32_t words[4];
    sy_view p, seed;
    sy_ctx *const ctx = test_ctx(0, NULL);
    struct tensor logits, token, kept, logprob;
    tensor_make(&logits, SY_F16, 2, (int64_t[]){1, VOCAB}, false);
    tensor_make(&token, SY_I64, 1, (int64_t[]){1}, false);
    tensor_make(&kept, SY_I32, 1, (int64_t[]){1}, false);
    tensor_make(&logprob, SY_F32, 1, (int64_t[]){1}, false);
    memset(logits.mem, 0, logits.bytes);
    oracle_sample_philox(6, (uint32_t[]){0xffffffffu, 0, 0, 0}, words);
    for (size_t i = 0; i < COUNT_OF(top_p); i++) {
        const int32_t n = i == 0 ? VOCAB / 2 : VOCAB;
        const int64_t drawn = words[1] >> (n == VOCAB ? 9 : 10);
        const float log = (float)-oracle_sample_ln((uint64_t)1 << 63);
        const sy_sample_args args = {.logits = &logits.t,
                                     .top_p = sy_number_f32(&p, top_p[i]),
                                     .seed = sy_number_i64(&seed, 6),
                                     .logprob_mode = SY_LOGPROB_RAW,
                                     .token = &token.t,
                                     .kept = &kept.t,
                                     .logprob = &logprob.t};
        expect_status(ctx, sy_sample(ctx, &args), SY_OK);
        expect_bytes(kept.mem, &n, sizeof n);
        expect_bytes(token.mem, &drawn, sizeof drawn);
        expect_bytes(logprob.mem, &log, sizeof log);
    }
    tensor_free(&logits);
    tensor_free(&token);
    tensor_free(&kept);
    tensor_free(&logprob);
    sy_ctx_destroy(ctx);
}

TEST_GROUP(sample_largest)
{
    struct test_list list = {0};
    test_add(&list, "weights add up to 2^63", weights_add_up_to_2_63, NULL);
    return test_run(&list, "op_sample_largest");
}
