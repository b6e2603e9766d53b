/*
 * Which implementation of sample each line of `switchyard bench --device cuda sample` takes, on a device of 132 processors, and why not
 * those before it. Nothing runs: calls are validated and planned. On the device of SWITCHYARD_TEST_CUDA_LIBRARY.
 */
#include "support.h"

#include "cuda/cuda.h"

extern const struct syi_op syi_op_sample;

/* Kinds of logits, which no choice depends on, are left out of the lines. */
static const struct {
    const char *line, *takes;
} lines[] = {
    {"bf16 [1,131072] greedy", "greedy"},
    {"bf16 [256,131072] greedy flags kept", "greedy"},
    {"f32 [512,1000] greedy", "greedy"},
    {"bf16 [256,131072] greedy final", "whole"},
    {"bf16 [16,131072] greedy final", "whole"},
    {"bf16 [256,131072] greedy raw", "whole"},
    {"bf16 [256,131072] greedy raw top=20", "whole"},
    {"bf16 [256,131072] greedy final top=20", "whole"},
    {"bf16 [1,131072] draw", "whole_wide"},
    {"f32 [1,256000] draw", "whole_wide"},
    {"bf16 [8,32000] draw", "whole"},
    {"f32 [33,50257] draw", "whole"},
    {"bf16 [48,131072] draw", "whole"},
    {"bf16 [64,32000] draw", "whole"},
    {"f32 [256,32000] draw", "whole"},
    {"bf16 [256,131072] draw", "whole"},
    {"f32 [256,131072] draw", "whole_held"},
    {"bf16 [1024,131072] draw", "whole"},
    {"bf16 [1,131072] p=0.9", "nucleus"},
    {"f32 [4,32000] p=0.9", "nucleus"},
    {"bf16 [1024,131072] p=0.9", "nucleus"},
    {"bf16 [1,131072] k=50", "top_k_few"},
    {"bf16 [48,131072] k=50 p=0.9", "top_k_few"},
    {"bf16 [48,131072] k=1024", "top_k_few"},
    {"bf16 [64,32000] k=1024", "top_k_few"},
    {"bf16 [48,131072] k=50 p=0.9 half allowed", "top_k_few"},
    {"bf16 [48,131072] k=50 p=0.9 q", "top_k_few"},
    {"f32 [4,1000] k=50", "top_k_few"},
    {"f32 [16,131072] k=50 p=0.9 final", "top_k_few"},
    {"f32 [16,131072] k=50 p=0.9 raw", "top_k_few"},
    {"f32 [16,131072] k=50 p=0.9 final top=20", "top_k"},
    {"f32 [512,1000] k=50", "top_k"},
    {"bf16 [256,131072] k=50", "top_k"},
    {"bf16 [1024,131072] k=1024", "top_k"},
    {"bf16 [256,131072] k=50 flags kept", "top_k"},
    {"bf16 [256,131072] k=50 final top=20", "top_k"},
    {"bf16 [4,32000] min_p=0.05", "top_k_few"},
    {"f32 [33,50257] min_p=0.05", "top_k_few"},
    {"f32 [256,32000] min_p=0.05", "top_k"},
    {"bf16 [48,131072] k=50 p=0.9 16 overridden", "top_k_few"},
    {"bf16 [256,131072] greedy 1 overridden", "greedy"},
    {"bf16 [48,131072] p=0.9 512 overridden", "nucleus"},
    {"bf16 [48,131072] draw 512 overridden", "any"},
};

static bool says(const char *line, const char *word)
{
    return strstr(line, word) != NULL;
}

static double number_after(const char *line, const char *word)
{
    const char *const at = strstr(line, word);
    return at != NULL ? strtod(at + strlen(word), NULL) : 0;
}

/* A tensor at an address of no device: nothing is read. */
static const DLTensor *tensor(DLTensor *t, int i, DLDataType type, int n_dims, int64_t *shape)
{
    *t = (DLTensor){(void *)((uintptr_t)(i + 1) << 36), {kDLCUDA, 0}, n_dims, type, shape, NULL, 0};
    return t;
}

static void choose(sy_ctx *ctx, const char *line, struct syc_chosen *chosen)
{
    enum {
        LOGITS,
        TOKEN,
        KEPT,
        FLAGS,
        LOGPROB,
        RANK,
        TOP,
        TOP_LOGPROB,
        Q,
        ALLOWED,
        INDPTR,
        TOKENS,
        VALUES,
        N
    };
    const bool final = says(line, "final"), overrides = says(line, "overridden"),
               flags = says(line, "flags kept"), top = says(line, "top="), allowed = says(line, "allowed"),
               q = says(line, " q");
    const int64_t k = (int64_t)number_after(line, "k=");
    const float p = (float)number_after(line, " p="), min_p = (float)number_after(line, "min_p=");
    int64_t rows[] = {(int64_t)number_after(line, "[")},
            shape[] = {rows[0], (int64_t)number_after(line, ",")}, words[] = {rows[0], (shape[1] + 31) / 32},
            ends[] = {rows[0] + 1}, some[] = {16 * rows[0]},
            tops[] = {rows[0], (int64_t)number_after(line, "top=")};
    DLTensor t[N];
    sy_view view[4];
    const sy_sample_args args = {
        .logits = tensor(&t[LOGITS], LOGITS, says(line, "f32") ? SY_F32 : SY_BF16, 2, shape),
        .token = tensor(&t[TOKEN], TOKEN, SY_I64, 1, rows),
        .top_k = k > 0 ? sy_number_i64(&view[0], k) : NULL,
        .top_p = p > 0 ? sy_number_f32(&view[1], p) : NULL,
        .min_p = min_p > 0 ? sy_number_f32(&view[2], min_p) : NULL,
        .q = q ? tensor(&t[Q], Q, SY_F32, 2, shape) : NULL,
        .q_order = SY_Q_VOCAB,
        .seed = q || says(line, "greedy") ? NULL : sy_number_i64(&view[3], 7),
        .allow_bits = allowed ? tensor(&t[ALLOWED], ALLOWED, SY_U32, 2, words) : NULL,
        .override_indptr = overrides ? tensor(&t[INDPTR], INDPTR, SY_I64, 1, ends) : NULL,
        .override_token = overrides ? tensor(&t[TOKENS], TOKENS, SY_I32, 1, some) : NULL,
        .override_logit = overrides ? tensor(&t[VALUES], VALUES, SY_F32, 1, some) : NULL,
        .logprob_mode = final               ? SY_LOGPROB_FINAL
                        : says(line, "raw") ? SY_LOGPROB_RAW
                                            : SY_LOGPROB_NONE,
        .logprob = final || says(line, "raw") ? tensor(&t[LOGPROB], LOGPROB, SY_F32, 1, rows) : NULL,
        .rank = top ? tensor(&t[RANK], RANK, SY_I32, 1, rows) : NULL,
        .top_token = top ? tensor(&t[TOP], TOP, SY_I64, 2, tops) : NULL,
        .top_logprob = top ? tensor(&t[TOP_LOGPROB], TOP_LOGPROB, SY_F32, 2, tops) : NULL,
        .kept = flags ? tensor(&t[KEPT], KEPT, SY_I32, 1, rows) : NULL,
        .row_flags = flags ? tensor(&t[FLAGS], FLAGS, SY_U32, 1, rows) : NULL};
    expect_status(ctx, syi_why(ctx, &syi_op_sample, &args, sizeof args, chosen), SY_OK);
}

TEST(lines_of_the_benchmark)
{
    sy_ctx *const ctx = device_ctx(0);
    for (size_t i = 0; i < COUNT_OF(lines); i++) {
        struct syc_chosen chosen;
        choose(ctx, lines[i].line, &chosen);
        assert_in_range(chosen.n, 1, SYC_MOST_IMPLEMENTATIONS);
        if (strcmp(chosen.of[chosen.n - 1].name, lines[i].takes) != 0)
            fail_msg("%s takes %s, want %s", lines[i].line, chosen.of[chosen.n - 1].name, lines[i].takes);
        assert_null(chosen.of[chosen.n - 1].why_not);
        for (int j = 0; j + 1 < chosen.n; j++)
            assert_true(strlen(chosen.of[j].why_not) > 10);
    }
    sy_ctx_destroy(ctx);
}

TESTS(choice, "cuda_choice")
