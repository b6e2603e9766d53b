/*
 * A sampler for llama.cpp that picks tokens with Switchyard's sample: penalties, top-k, top-p, min-p, temperature and the
 * draw in one stage. README.md shows how to add it to a program, and when its tokens are those of llama.cpp's own stages.
 */
#pragma once

#include <llama.h>

#ifdef __cplusplus
extern "C" {
#endif

struct llama_switchyard_params {
    int32_t top_k;     /* 0 or less: disabled */
    float top_p;       /* 1 or more: disabled; 0 or less: one token */
    float min_p;       /* 0 or less: disabled */
    float temperature; /* 0 or less, below 1e-5: the largest logit */
    bool
        temperature_first; /* before top-p and min-p, as in vLLM and transformers; false: after them, as in llama.cpp */
    uint64_t seed;          /* of this sequence; every number is a seed, LLAMA_DEFAULT_SEED too */
    int32_t penalty_last_n; /* accepted tokens that are penalised; 0 or less: none */
    float penalty_repeat;   /* 1: none */
    float penalty_freq;     /* 0: none */
    float penalty_present;  /* 0: none */
};

/* What llama.cpp's programs use: top-k 40, top-p 0.95, min-p 0.05, temperature 0.8 after them, no penalties; seed 0. */
struct llama_switchyard_params llama_switchyard_default_params(void);

/*
 * The sampler of one sequence, the last stage of its chain. NULL where memory is short, and for n_vocab outside 1 to 2^23.
 * The draw of a step depends on the logits, the seed and the number of tokens accepted since creation or reset, on nothing
 * else: applied again to the same logits it selects the same token.
 */
struct llama_sampler *llama_sampler_init_switchyard(int32_t n_vocab, struct llama_switchyard_params params);

/*
 * llama_sampler_sample without its array of candidates: reads the logits where the model wrote them. `smpl` is the
 * sampler itself, not a chain; any other one goes to llama_sampler_sample. LLAMA_TOKEN_NULL: no token, see the error.
 */
llama_token llama_switchyard_sample(struct llama_sampler *smpl, struct llama_context *ctx, int32_t idx);

/* Why the last application selected no token; "" when it did, and for another kind of sampler. */
const char *llama_switchyard_error(const struct llama_sampler *smpl);

#ifdef __cplusplus
}
#endif
