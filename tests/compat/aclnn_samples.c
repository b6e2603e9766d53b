/* Whole batches of aclnnTopKTopPSampleV2 beside sy_sample. */
#include "aclnn.h"

enum { B = 37, V = 300 };

struct batch {
    uint16_t logits[B * V];
    float q[B * V];
    int32_t k[B];
    uint16_t p[B], min_p[B];
};

static void batch_fill(struct batch *b, uint64_t seed)
{
    int kinds[3] = {0};
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < B * V; i++) {
        b->logits[i] = bf16_round((double)rng_below(&seed, 64) / 8 - 4); /* many ties */
        b->q[i] = (float)(rng_unit(&seed) + 1e-3);
    }
    for (int i = 0; i < B; i++) {
        b->k[i] = rng_below(&seed, 3) == 0 ? 0 : (int32_t)rng_below(&seed, 2 * V);
        b->p[i] = bf16_round(rng_below(&seed, 3) == 0 ? 1 : rng_unit(&seed));
        b->min_p[i] = bf16_round(rng_below(&seed, 2) == 0 ? 0 : rng_unit(&seed) / 4);
        kinds[b->k[i] == 0 ? 0 : b->k[i] <= V ? 1 : 2]++;
    }
    assert_true(kinds[0] > 0 && kinds[1] > 0 && kinds[2] > 0);
}

/* The library's results, with the limit of k that ksMax means. */
static void native(struct batch *b, int64_t k_limit, int64_t *token, float *masked)
{
    int64_t matrix[2] = {B, V}, row[1] = {B};
    const DLTensor logits = sy_tensor(b->logits, SY_BF16, 2, matrix), q = sy_tensor(b->q, SY_F32, 2, matrix);
    const DLTensor k = sy_tensor(b->k, SY_I32, 1, row), p = sy_tensor(b->p, SY_BF16, 1, row);
    const DLTensor min_p = sy_tensor(b->min_p, SY_BF16, 1, row), t = sy_tensor(token, SY_I64, 1, row);
    const DLTensor m = sy_tensor(masked, SY_F32, 2, matrix);
    const sy_sample_args args = {.logits = &logits,
                                 .top_k = &k,
                                 .top_p = &p,
                                 .min_p = &min_p,
                                 .q = &q,
                                 .eps = 1e-8f,
                                 .k_limit = k_limit,
                                 .empty_token = SY_EMPTY_ZERO,
                                 .token = &t,
                                 .masked_logits = &m};
    sy_ctx *ctx = test_ctx(1, NULL);
    expect_status(ctx, sy_sample(ctx, &args), SY_OK);
    sy_ctx_destroy(ctx);
}

/* Runs the case "min-p alone" with the tensors of the batch in the place of its own. */
static void expect_native(struct batch *b, const char *changes, int64_t k_limit)
{
    static int64_t token[B];
    static float masked[B * V];
    const struct {
        const char *name, *shape;
        void *data;
        size_t bytes;
        bool out;
    } tensors[] = {{"logits", "bf16 37,300", b->logits, sizeof b->logits, false},
                   {"k", "37", b->k, sizeof b->k, false},
                   {"p", "bf16 37", b->p, sizeof b->p, false},
                   {"q", "37,300", b->q, sizeof b->q, false},
                   {"min_p", "bf16 37", b->min_p, sizeof b->min_p, false},
                   {"token", "37", token, sizeof token, true},
                   {"masked", "37,300", masked, sizeof masked, true}};
    struct call c;
    native(b, k_limit, token, masked);
    acl_call_named(&c, "min-p alone");
    acl_call_change(&c, changes);
    for (size_t i = 0; i < COUNT_OF(tensors); i++) {
        acl_call_change(&c, test_name("%s %s", tensors[i].name, tensors[i].shape));
        struct arg *const a = acl_call_arg(&c, tensors[i].name);
        unsigned char **const to = tensors[i].out ? &a->want : &a->data;
        *to = malloc(tensors[i].bytes);
        assert_non_null(*to);
        memcpy(*to, tensors[i].data, tensors[i].bytes);
    }
    acl_call_make(&c);
    expect_aclnn(acl_call_run(&c), ACLNN_SUCCESS);
    acl_call_expect_outputs(&c);
    acl_call_free(&c);
}

/* ksMax counts up to a multiple of 8, and at most 1024. topKGuess changes nothing. */
static const struct batch_row {
    const char *changes;
    int64_t k_limit;
} rows[] = {{"ks_max = 1024", 1024},
            {"ks_max = 13", 16},
            {"ks_max = 16", 16},
            {"ks_max = 1", 8},
            {"ks_max = 5000", 1024},
            {"ks_max = 9223372036854775807", 1024},
            {"guess = -9223372036854775808", 1024},
            {"guess = -76", 1024},
            {"guess = 0", 1024},
            {"guess = 1", 1024},
            {"guess = 1024", 1024},
            {"guess = 9223372036854775807", 1024}};

static void equals_the_library(void **state)
{
    static struct batch b;
    const struct batch_row *const row = *state;
    batch_fill(&b, 7 + (uint64_t)(row - rows));
    expect_native(&b, row->changes, row->k_limit);
}

void add_samples(struct test_list *list)
{
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        test_add(list, test_name("sample_v2: equals the library, %s", rows[i].changes), equals_the_library,
                 (void *)(uintptr_t)&rows[i]);
}
