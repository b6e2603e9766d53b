/*
 * integrations/llama_cpp beside llama.cpp's own samplers, as a program of its users: `llama_cpp [model.gguf]`. Prints TAP.
 * Without a model the samplers are applied to arrays of candidates; with one, to its logits.
 */
#include <llama_switchyard.h>

#include <switchyard.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { V = 1000, STEPS = 200 };

#ifdef PENALTIES_TAKE_N_VOCAB /* newer versions of llama.h */
#define PENALTIES(...) llama_sampler_init_penalties(V, __VA_ARGS__)
#else
#define PENALTIES(...) llama_sampler_init_penalties(__VA_ARGS__)
#endif

static int tests, failures;

static void check(bool good, const char *name)
{
    tests++;
    failures += !good;
    printf("%sok %d - %s\n", good ? "" : "not ", tests, name);
}

static uint64_t state = 1;

/* Between -4 and 4, different from each other with near certainty. */
static float number(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) / (float)(1 << 21) - 4.0f;
}

static llama_token_data_array candidates(llama_token_data *data, const float *logits)
{
    for (int i = 0; i < V; i++)
        data[i] = (llama_token_data){i, logits[i], 0.0f};
    return (llama_token_data_array){data, V, -1, false};
}

static llama_token pick(struct llama_sampler *smpl, const float *logits)
{
    static llama_token_data data[V];
    llama_token_data_array all = candidates(data, logits);
    llama_sampler_apply(smpl, &all);
    return all.selected < 0 ? LLAMA_TOKEN_NULL : all.data[all.selected].id;
}

static struct llama_sampler *chain(void)
{
    return llama_sampler_chain_init(llama_sampler_chain_default_params());
}

/* Greedy, with penalties whose arithmetic is the same: equal tokens, over sequences that both extend. */
static void same_greedy_tokens(void)
{
    const float penalties[][3] = {{1, 0, 0}, {1.3f, 0, 0}, {1.3f, 0.7f, 0}, {1.3f, 0, 0.7f}, {1, 0.2f, 0}};
    for (size_t i = 0; i < sizeof penalties / sizeof *penalties; i++) {
        const float *p = penalties[i];
        struct llama_switchyard_params params = {.penalty_last_n = 17,
                                                 .penalty_repeat = p[0],
                                                 .penalty_freq = p[1],
                                                 .penalty_present = p[2],
                                                 .top_p = 1};
        struct llama_sampler *ours = llama_sampler_init_switchyard(V, params), *theirs = chain();
        llama_sampler_chain_add(theirs, PENALTIES(17, p[0], p[1], p[2]));
        llama_sampler_chain_add(theirs, llama_sampler_init_greedy());
        float logits[V];
        int equal = 0, changed = 0;
        for (int v = 0; v < V; v++)
            logits[v] = number();
        llama_token first = pick(ours, logits);
        for (int step = 0; step < STEPS; step++) {
            logits[step % V] += 0.01f;
            llama_token token = pick(theirs, logits);
            equal += pick(ours, logits) == token;
            changed += token != first;
            llama_sampler_accept(ours, token);
            llama_sampler_accept(theirs, token);
        }
        char name[96];
        snprintf(name, sizeof name, "greedy, penalties %g %g %g: the tokens of llama.cpp", p[0], p[1], p[2]);
        check(equal == STEPS && (i == 0 || changed > STEPS / 2), name);
        llama_sampler_free(ours);
        llama_sampler_free(theirs);
    }
}

/* The share of every candidate in many draws is its probability after llama.cpp's own stages; no other token is drawn. */
static void same_distribution(bool temperature_first, float temperature, const char *name)
{
    enum { DRAWS = 20000 };
    struct llama_switchyard_params params = llama_switchyard_default_params();
    params.top_p = 0.8f;
    params.temperature = temperature;
    params.temperature_first = temperature_first;
    params.seed = 5;
    float logits[V];
    for (int v = 0; v < V; v++)
        logits[v] = number();
    struct llama_sampler *theirs = chain();
    llama_sampler_chain_add(theirs, llama_sampler_init_top_k(temperature_first ? 0 : 40));
    if (temperature_first)
        llama_sampler_chain_add(theirs, llama_sampler_init_temp(temperature));
    llama_sampler_chain_add(theirs, llama_sampler_init_top_k(40));
    llama_sampler_chain_add(theirs, llama_sampler_init_top_p(0.8f, 1));
    llama_sampler_chain_add(theirs, llama_sampler_init_min_p(0.05f, 1));
    if (!temperature_first)
        llama_sampler_chain_add(theirs, llama_sampler_init_temp(temperature));
    llama_sampler_chain_add(theirs, llama_sampler_init_dist(1));
    static llama_token_data data[V];
    llama_token_data_array left = candidates(data, logits);
    llama_sampler_apply(theirs, &left);
    double share[V] = {0};
    for (size_t i = 0; i < left.size; i++)
        share[left.data[i].id] = (double)left.data[i].p;
    struct llama_sampler *ours = llama_sampler_init_switchyard(V, params);
    int count[V] = {0}, outside = 0;
    for (int i = 0; i < DRAWS; i++) {
        llama_token token = pick(ours, logits);
        llama_sampler_accept(ours, token);
        outside += token < 0 || share[token] == 0;
        count[token < 0 ? 0 : token]++;
    }
    double chi = 0;
    for (int v = 0; v < V; v++)
        chi += share[v] > 0 ? pow(count[v] - DRAWS * share[v], 2) / (DRAWS * share[v]) : 0;
    double freedom = (double)left.size - 1; /* the seed is fixed: the same number every time */
    check(outside == 0 && left.size > 5 && left.size < 40 && chi < freedom + 4 * sqrt(2 * freedom), name);
    llama_sampler_free(ours);
    llama_sampler_free(theirs);
}

static void state_of_a_sequence(void)
{
    struct llama_switchyard_params params = llama_switchyard_default_params();
    params.seed = 7;
    params.penalty_repeat = 1.2f;
    params.penalty_last_n = 5;
    float logits[V];
    for (int v = 0; v < V; v++)
        logits[v] = number();
    struct llama_sampler *smpl = chain(), *copy = NULL;
    llama_sampler_chain_add(smpl, llama_sampler_init_switchyard(V, params));
    llama_token first[STEPS], again[STEPS], copied[STEPS];
    bool repeated = true;
    for (int i = 0; i < STEPS; i++) {
        if (i == STEPS / 2)
            copy = llama_sampler_clone(smpl);
        first[i] = pick(smpl, logits);
        repeated = repeated && pick(smpl, logits) == first[i];
        llama_sampler_accept(smpl, first[i]);
    }
    llama_sampler_reset(smpl);
    for (int i = 0; i < STEPS; i++) {
        again[i] = pick(smpl, logits);
        llama_sampler_accept(smpl, again[i]);
        copied[i] = first[i];
        if (i >= STEPS / 2) {
            copied[i] = pick(copy, logits);
            llama_sampler_accept(copy, copied[i]);
        }
    }
    check(repeated, "applied twice it selects the same token");
    check(memcmp(first, again, sizeof first) == 0, "after a reset the sequence begins anew");
    check(memcmp(first, copied, sizeof first) == 0, "a clone continues with the same tokens");
    check(strcmp(llama_sampler_name(llama_sampler_chain_get(smpl, 0)), "switchyard") == 0, "its name");
    llama_sampler_free(smpl);
    llama_sampler_free(copy);
}

static void arrays_of_candidates(void)
{
    struct llama_switchyard_params params = llama_switchyard_default_params();
    struct llama_sampler *smpl = llama_sampler_init_switchyard(V, params);
    float logits[V];
    llama_token_data data[V];
    int equal = 0;
    for (int step = 0; step < STEPS;
         step++) { /* a third of the tokens, backwards, as a stage before it may leave them */
        llama_token_data_array some = {data, 0, -1, false};
        for (int v = V - 1; v >= 0; v--) {
            bool there = (v * 7 + step) % 3 == 0;
            logits[v] = there ? number() : -INFINITY;
            if (there)
                data[some.size++] = (llama_token_data){v, logits[v], 0.0f};
        }
        llama_sampler_apply(smpl, &some);
        llama_token token = pick(smpl, logits);
        equal +=
            some.selected >= 0 && data[some.selected].id == token && llama_switchyard_error(smpl)[0] == '\0';
        llama_sampler_accept(smpl, token);
    }
    check(equal == STEPS, "candidates in any order, and not all of them");
    for (int v = 0; v < V; v++)
        logits[v] = -INFINITY;
    check(pick(smpl, logits) == LLAMA_TOKEN_NULL &&
              strstr(llama_switchyard_error(smpl), "every logit is -inf or NaN"),
          "no token can be picked: none is selected, with a sentence");
    check(!llama_sampler_init_switchyard(0, params) && !llama_sampler_init_switchyard((1 << 23) + 1, params),
          "a vocabulary outside 1 to 2^23 is rejected");
    llama_sampler_free(smpl);
}

/* The token that sample picks, with the fields written out. */
static llama_token by_hand(sy_ctx *ctx, const float *logits, int32_t n_vocab, int64_t step)
{
    sy_view x, k, p, mp, t, seed, offset, out;
    int64_t token = -1;
    sy_status status = sy_sample(ctx, &(sy_sample_args){.logits = sy_mat(&x, logits, SY_F32, 1, n_vocab),
                                                        .top_k = sy_number_i64(&k, 40),
                                                        .top_p = sy_number_f32(&p, 0.95f),
                                                        .min_p = sy_number_f32(&mp, 0.05f),
                                                        .temperature = sy_number_f32(&t, 0.8f),
                                                        .seed = sy_number_i64(&seed, 9),
                                                        .offset = sy_number_i64(&offset, step),
                                                        .token = sy_vec(&out, &token, SY_I64, 1)});
    return status == SY_OK ? (llama_token)token : LLAMA_TOKEN_NULL;
}

static void tokens_of_a_model(const char *file)
{
    llama_backend_init();
    struct llama_model *model = llama_model_load_from_file(file, llama_model_default_params());
    check(model != NULL, "the model is loaded");
    if (!model)
        return;
    struct llama_context_params settings = llama_context_default_params();
    settings.n_ctx = 128;
    settings.n_threads = settings.n_threads_batch = 1;
    struct llama_context *run = llama_init_from_model(model, settings);
    int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    struct llama_switchyard_params params = llama_switchyard_default_params();
    params.seed = 9;
    params.temperature_first = true;
    struct llama_sampler *in_chain = chain(), *direct = llama_sampler_init_switchyard(n_vocab, params);
    llama_sampler_chain_add(in_chain, llama_sampler_init_switchyard(n_vocab, params));
    sy_ctx *ctx = NULL;
    sy_ctx_create(&ctx, NULL);
    llama_token token[3] = {1, 5, 3};
    struct llama_batch batch = llama_batch_get_one(token, 3);
    int equal = 0, different = 0, n = 40;
    for (int step = 0; step < n && llama_decode(run, batch) == 0; step++) {
        llama_token expected = by_hand(ctx, llama_get_logits_ith(run, -1), n_vocab, step);
        llama_token first = llama_sampler_sample(in_chain, run, -1);
        equal += first == expected && llama_switchyard_sample(direct, run, -1) == expected;
        different += first != token[0];
        token[0] = first;
        batch = llama_batch_get_one(token, 1);
    }
    check(equal == n && different > n / 2,
          "a model's tokens: in a chain, without its array, and by sy_sample");
    struct llama_sampler *small = llama_sampler_init_switchyard(n_vocab - 1, params);
    check(llama_switchyard_sample(small, run, -1) == LLAMA_TOKEN_NULL &&
              strstr(llama_switchyard_error(small), "another vocabulary"),
          "a model with another vocabulary is rejected");
    sy_ctx_destroy(ctx);
    llama_sampler_free(small);
    llama_sampler_free(direct);
    llama_sampler_free(in_chain);
    llama_free(run);
    llama_model_free(model);
}

static void quiet(enum ggml_log_level level, const char *text, void *user)
{
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR)
        fprintf(stderr, "%s", text);
}

int main(int argc, char **argv)
{
    llama_log_set(quiet, NULL);
    same_greedy_tokens();
    same_distribution(false, 2.0f, "temperature 2 after the filters: the distribution of llama.cpp's chain");
    same_distribution(true, 2.0f, "temperature 2 before the filters: the distribution of that chain");
    same_distribution(false, 0.5f,
                      "temperature 0.5 after the filters: the distribution of llama.cpp's chain");
    state_of_a_sequence();
    arrays_of_candidates();
    if (argc > 1)
        tokens_of_a_model(argv[1]);
    printf("1..%d\n", tests);
    return failures != 0;
}
