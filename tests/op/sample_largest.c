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
    static uint16_t logits[VOCAB]; /* 0 */
    uint32_t words[4];
    int64_t token = 0;
    int32_t kept = 0;
    float logprob = 0;
    sy_view view[6];
    sy_ctx *const ctx = test_ctx(0, NULL);
    oracle_sample_philox(6, (uint32_t[]){0xffffffffu, 0, 0, 0}, words);
    for (size_t i = 0; i < COUNT_OF(top_p); i++) {
        const int32_t n = i == 0 ? VOCAB / 2 : VOCAB;
        const int64_t drawn = words[1] >> (n == VOCAB ? 9 : 10);
        const float log = (float)-oracle_sample_ln((uint64_t)1 << 63);
        const sy_sample_args args = {.logits = sy_mat(&view[0], logits, SY_F16, 1, VOCAB),
                                     .top_p = sy_number_f32(&view[1], top_p[i]),
                                     .seed = sy_number_i64(&view[2], 6),
                                     .logprob_mode = SY_LOGPROB_RAW,
                                     .token = sy_vec(&view[3], &token, SY_I64, 1),
                                     .kept = sy_vec(&view[4], &kept, SY_I32, 1),
                                     .logprob = sy_vec(&view[5], &logprob, SY_F32, 1)};
        expect_status(ctx, sy_sample(ctx, &args), SY_OK);
        assert_int_equal(kept, n);
        assert_int_equal(token, drawn);
        assert_int_equal(f32_bits(logprob), f32_bits(log));
    }
    sy_ctx_destroy(ctx);
}

TESTS(sample_largest, "op_sample_largest")
