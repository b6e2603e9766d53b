/* llama_switchyard.h over sy_sample_overrides and sy_sample. */
#include "llama_switchyard.h"

#include <switchyard.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One sequence. The window is a ring of the accepted tokens that penalties concern. */
struct state {
    struct llama_switchyard_params params;
    int32_t n_vocab;
    sy_ctx *ctx;
    float *row;           /* logits by token, where the caller's are an array of candidates */
    int64_t accepted;     /* tokens, since creation or reset */
    int32_t *window;      /* [penalty_last_n] */
    int32_t *penalised;   /* [penalty_last_n] the window's tokens that are in the vocabulary */
    int32_t *changed;     /* [penalty_last_n] tokens whose logit changes, and their new logits */
    float *changed_logit; /* [penalty_last_n] */
    char error[256];
};

static struct llama_sampler_i sampler_interface;

static struct state *state_of(const struct llama_sampler *smpl)
{
    return smpl->ctx;
}

static bool has_penalties(const struct llama_switchyard_params *params)
{
    return params->penalty_last_n > 0 && (params->penalty_repeat != 1.0f || params->penalty_freq != 0.0f ||
                                          params->penalty_present != 0.0f);
}

static void destroy(struct state *state)
{
    if (!state)
        return;
    sy_ctx_destroy(state->ctx);
    free(state->row);
    free(state->window);
    free(state->penalised);
    free(state->changed);
    free(state->changed_logit);
    free(state);
}

static struct state *create(int32_t n_vocab, const struct llama_switchyard_params *params)
{
    struct state *state = calloc(1, sizeof *state);
    if (!state)
        return NULL;
    state->params = *params;
    state->n_vocab = n_vocab;
    state->row = malloc((size_t)n_vocab * sizeof *state->row);
    bool complete = state->row && sy_ctx_create(&state->ctx, &(sy_ctx_options){.threads = 1}) == SY_OK;
    if (has_penalties(params)) {
        size_t n = (size_t)params->penalty_last_n;
        state->window = malloc(n * sizeof *state->window);
        state->penalised = malloc(n * sizeof *state->penalised);
        state->changed = malloc(n * sizeof *state->changed);
        state->changed_logit = malloc(n * sizeof *state->changed_logit);
        complete = complete && state->window && state->penalised && state->changed && state->changed_logit;
    }
    if (complete)
        return state;
    destroy(state);
    return NULL;
}

/* ---- One draw ---- */

/* Tensors of a call, which must outlive it. */
struct views {
    sy_view logits, number[6], indptr, token, logit, out;
    int64_t begins[2]; /* of the one row's overrides */
};

static bool fails(struct state *state, sy_status status)
{
    if (status != SY_OK)
        snprintf(state->error, sizeof state->error, "%s", sy_ctx_error(state->ctx));
    return status != SY_OK;
}

/* The new logits of tokens in the window, as overrides of `args`. */
static bool penalise(struct state *state, struct views *views, sy_sample_args *args)
{
    const struct llama_switchyard_params *params = &state->params;
    int64_t in_window = state->accepted < params->penalty_last_n ? state->accepted : params->penalty_last_n;
    int64_t n = 0;
    for (int64_t i = 0; i < in_window; i++)
        if (state->window[i] >= 0 && state->window[i] < state->n_vocab)
            state->penalised[n++] = state->window[i];
    if (n == 0)
        return true;
    int64_t all[2] = {0, n};
    sy_view listed, tokens;
    args->override_indptr = sy_vec(&views->indptr, views->begins, SY_I64, 2);
    args->override_token = sy_vec(&views->token, state->changed, SY_I32, n);
    args->override_logit = sy_vec(&views->logit, state->changed_logit, SY_F32, n);
    return !fails(
        state,
        sy_sample_overrides(
            state->ctx, &(sy_sample_overrides_args){
                            .logits = args->logits,
                            .output_indptr = sy_vec(&listed, all, SY_I64, 2),
                            .output_token = sy_vec(&tokens, state->penalised, SY_I32, n),
                            .repetition_penalty = sy_number_f32(&views->number[0], params->penalty_repeat),
                            .frequency_penalty = sy_number_f32(&views->number[1], params->penalty_freq),
                            .presence_penalty = sy_number_f32(&views->number[2], params->penalty_present),
                            .override_indptr = args->override_indptr,
                            .override_token = args->override_token,
                            .override_logit = args->override_logit}));
}

/* The token for a row of logits; -1 with an error where there is none. */
static int64_t draw(struct state *state, const float *logits)
{
    const struct llama_switchyard_params *params = &state->params;
    struct views views;
    sy_sample_args args = {.logits = sy_mat(&views.logits, logits, SY_F32, 1, state->n_vocab)};
    state->error[0] = '\0';
    if (has_penalties(params) && !penalise(state, &views, &args))
        return -1;
    int64_t top_k = params->top_k;
    bool by_mass = params->top_p < 1.0f || params->min_p > 0.0f;
    if (by_mass) {
        args.top_p = sy_number_f32(&views.number[0], params->top_p);
        args.min_p = sy_number_f32(&views.number[1], params->min_p);
    }
    args.top_k = sy_number_i64(&views.number[2], top_k);
    if (by_mass && !params->temperature_first && params->temperature != 1.0f &&
        !(params->temperature < 1e-5f)) {
        /* Cuts are prefixes of one order: how many tokens they keep at temperature 1 is all that the draw needs. */
        int32_t kept = 0;
        args.kept = sy_vec(&views.out, &kept, SY_I32, 1);
        if (fails(state, sy_sample(state->ctx, &args)))
            return -1;
        args.kept = args.top_p = args.min_p = NULL;
        args.top_k = sy_number_i64(&views.number[2], kept);
    }
    int64_t token = -1;
    args.temperature = sy_number_f32(&views.number[3], params->temperature);
    args.seed = sy_number_i64(&views.number[4], (int64_t)params->seed);
    args.offset = sy_number_i64(&views.number[5], state->accepted);
    args.token = sy_vec(&views.out, &token, SY_I64, 1);
    if (fails(state, sy_sample(state->ctx, &args)))
        return -1;
    if (token < 0)
        snprintf(state->error, sizeof state->error,
                 "sample: every logit is -inf or NaN, want a token above -inf");
    return token;
}

/* ---- llama.cpp's interface ---- */

static const char *sampler_name(const struct llama_sampler *smpl)
{
    (void)smpl;
    return "switchyard";
}

static void sampler_accept(struct llama_sampler *smpl, llama_token token)
{
    struct state *state = state_of(smpl);
    if (state->window)
        state->window[state->accepted % state->params.penalty_last_n] = token;
    state->accepted++;
}

/* Copies the logits of n candidates. True if candidate i is token i for all of them, as a chain begins. */
static bool copy_in_order(float *restrict row, const llama_token_data *restrict data, uint32_t n)
{
    uint32_t moved = 0;
    for (uint32_t i = 0; i < n; i++) {
        row[i] = data[i].logit;
        moved |= (uint32_t)data[i].id ^ i;
    }
    return moved == 0;
}

/* The candidates' logits by token. */
static bool read_candidates(struct state *state, const llama_token_data *data, size_t size)
{
    if (size == (size_t)state->n_vocab && copy_in_order(state->row, data, (uint32_t)size))
        return true;
    for (int32_t i = 0; i < state->n_vocab; i++)
        state->row[i] = -INFINITY;
    for (size_t i = 0; i < size; i++)
        if (data[i].id >= 0 && data[i].id < state->n_vocab)
            state->row[data[i].id] = data[i].logit;
    return false;
}

static void sampler_apply(struct llama_sampler *smpl, llama_token_data_array *cur_p)
{
    struct state *state = state_of(smpl);
    bool in_order = read_candidates(state, cur_p->data, cur_p->size);
    int64_t token = draw(state, state->row);
    cur_p->selected = in_order ? token : -1;
    for (size_t i = 0; !in_order && token >= 0 && cur_p->selected < 0 && i < cur_p->size; i++)
        if (cur_p->data[i].id == token)
            cur_p->selected = (int64_t)i;
}

static void sampler_reset(struct llama_sampler *smpl)
{
    state_of(smpl)->accepted = 0;
}

static struct llama_sampler *sampler_clone(const struct llama_sampler *smpl)
{
    const struct state *state = state_of(smpl);
    struct llama_sampler *made = llama_sampler_init_switchyard(state->n_vocab, state->params);
    if (!made)
        return NULL;
    state_of(made)->accepted = state->accepted;
    if (state->window) {
        int64_t most = state->params.penalty_last_n, n = state->accepted < most ? state->accepted : most;
        memcpy(state_of(made)->window, state->window, (size_t)n * sizeof *state->window);
    }
    return made;
}

static void sampler_free(struct llama_sampler *smpl)
{
    destroy(state_of(smpl));
}

/* Later members of llama_sampler_i, for sampling on a backend, are NULL: llama.cpp applies the sampler on the CPU. */
static struct llama_sampler_i sampler_interface = {
    .name = sampler_name,
    .accept = sampler_accept,
    .apply = sampler_apply,
    .reset = sampler_reset,
    .clone = sampler_clone,
    .free = sampler_free,
};

struct llama_switchyard_params llama_switchyard_default_params(void)
{
    return (struct llama_switchyard_params){.top_k = 40,
                                            .top_p = 0.95f,
                                            .min_p = 0.05f,
                                            .temperature = 0.8f,
                                            .penalty_last_n = 64,
                                            .penalty_repeat = 1.0f};
}

struct llama_sampler *llama_sampler_init_switchyard(int32_t n_vocab, struct llama_switchyard_params params)
{
    if (n_vocab < 1 || n_vocab > 1 << 23)
        return NULL;
    struct state *state = create(n_vocab, &params);
    return state ? llama_sampler_init(&sampler_interface, state) : NULL;
}

llama_token llama_switchyard_sample(struct llama_sampler *smpl, struct llama_context *ctx, int32_t idx)
{
    if (smpl->iface != &sampler_interface)
        return llama_sampler_sample(smpl, ctx, idx);
    struct state *state = state_of(smpl);
    int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(ctx)));
    const float *logits = llama_get_logits_ith(ctx, idx);
    if (n_vocab != state->n_vocab || !logits) {
        snprintf(state->error, sizeof state->error, "llama_switchyard_sample: %s",
                 logits ? "the model has another vocabulary than the sampler"
                        : "there are no logits at this index");
        return LLAMA_TOKEN_NULL;
    }
    int64_t token = draw(state, logits);
    if (token < 0)
        return LLAMA_TOKEN_NULL;
    llama_sampler_accept(smpl, (llama_token)token);
    return (llama_token)token;
}

const char *llama_switchyard_error(const struct llama_sampler *smpl)
{
    return smpl->iface == &sampler_interface ? state_of(smpl)->error : "";
}
