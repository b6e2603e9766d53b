/*
 * Checks that the operators of sampling share, in the order an operator calls them.
 */
#pragma once

#include "ops/call.h"

#define SYI_COUNTER_TYPES (SYI_I64 | SYI_BIT(SY_TYPE_U64) | SYI_I32)

/* Rows of a description: parameters of sample and sample_verify. */
#define SYI_SAMPLE_PARAMETERS \
    [TOP_K] = SYI_PER_ROW(top_k, SYI_INDEX_TYPES, 0, "keep the k largest; disabled unless 1 <= k < V"), \
    [TOP_P] = SYI_PER_ROW(top_p, SYI_F32, LOGITS + 1, "keep the nucleus of mass p; disabled when >= 1"), \
    [MIN_P] = SYI_PER_ROW(min_p, SYI_F32, LOGITS + 1, "keep prob >= min_p * largest; disabled when <= 0"), \
    [TEMPERATURE] = SYI_PER_ROW(temperature, SYI_F32, LOGITS + 1, "missing: 1; below 1e-5: greedy"), \
    [SEED] = SYI_PER_ROW(seed, SYI_COUNTER_TYPES, 0, "seed of noise made by the operator")

#define SYI_SAMPLE_STAGES \
    [TOP_N_SIGMA] = \
        SYI_PER_ROW(top_n_sigma, SYI_F32, LOGITS + 1, "keep logits n deviations from the top; off: <= 0"), \
    [TYPICAL_P] = \
        SYI_PER_ROW(typical_p, SYI_F32, LOGITS + 1, "keep mass p nearest to the entropy; off: >= 1"), \
    [XTC_PROBABILITY] = SYI_PER_ROW(xtc_probability, SYI_F32, LOGITS + 1, \
                                    "how often likely tokens but the last are removed"), \
    [XTC_THRESHOLD] = SYI_PER_ROW(xtc_threshold, SYI_F32, LOGITS + 1, "what is likely; missing: .1"), \
    [DYNATEMP_RANGE] = \
        SYI_PER_ROW(dynatemp_range, SYI_F32, LOGITS + 1, "spread of the temperature by entropy; off: <= 0"), \
    [DYNATEMP_EXPONENT] = \
        SYI_PER_ROW(dynatemp_exponent, SYI_F32, LOGITS + 1, "of the share of the entropy; missing: 1")

/* Overrides: n of them, of rows that have so many ends. */
#define SYI_SAMPLE_OVERRIDES(ends, n) \
    [OVERRIDE_INDPTR] = SYI_OPTIONAL(override_indptr, SYI_INDEX_TYPES, 0, 1, 1, ends, \
                                     "where the overrides of each row begin, and the end"), \
    [OVERRIDE_TOKEN] = SYI_OPTIONAL(override_token, SYI_INDEX_TYPES, 0, 1, 1, n, \
                                    "tokens whose logit is replaced, ascending in a row"), \
    [OVERRIDE_LOGIT] = \
        SYI_OPTIONAL(override_logit, SYI_F32, 0, 1, 1, n, "their new logits; sample_overrides makes them")

/* Scalars that both have, in this order. */
#define SYI_SAMPLE_OPTIONS \
    SYI_SCALAR(ties, ENUM, .words = "exact all", .help = "of tokens equal to the cut: the lowest, or all"), \
        SYI_SCALAR(logprob_mode, ENUM, .words = "none raw final", \
                   .help = "write logprob of the input logits, or of the final distribution"), \
        SYI_SCALAR(empty_token, ENUM, .words = "minus_one|-1 zero|0", \
                   .help = "token of a row without any candidate"), \
        SYI_SCALAR(k_limit, I64, .range = "0..", .help = "top-k is disabled above this; 0: no limit")
#define SYI_SAMPLE_ORDER \
    SYI_SCALAR(stages, ENUM, .words = "default llama vllm hf", .help = "the order of the stages of a row")

/* The three tensors of the overrides, of which `first` is the first, come together. */
sy_status syi_sample_overrides_given(struct syi_call *call, int first);

sy_status syi_sample_check_vocab(struct syi_call *call, int64_t vocab);
sy_status syi_sample_check_seed(struct syi_call *call, sy_noise noise, const DLTensor *seed);

/* Outputs of log-probabilities, or what asks for them, and logprob_mode come together. */
sy_status syi_sample_check_logprobs(struct syi_call *call, sy_logprob mode, const char *asks,
                                    const int *outputs, size_t n);

/* Tensors of stages that come with others; which stages an order has, and what they need. `first` is TOP_N_SIGMA. */
sy_status syi_sample_stages_given(struct syi_call *call, int first);
sy_status syi_sample_check_stages(struct syi_call *call, int first, sy_stages stages, bool seeded);
bool syi_sample_has_stages(const struct syi_call *call, int first, sy_stages stages);

sy_status syi_sample_check_vocab_limit(struct syi_call *call, int64_t vocab);

/* top_token, if there is one, has a number of columns that a row can fill. */
sy_status syi_sample_check_top_columns(struct syi_call *call, int top_token, int64_t n, int64_t vocab);

/* RAW becomes FINAL where nothing changes or filters the logits, which makes them equal, and one sum of weights serves the draw, too. */
void syi_sample_choose_distribution(struct syi_sample_plan *p);

/* ---- Rows of drafts (sample_verify.c) ---- */

/* The tensors of a call with draft tokens. */
struct syi_draft_fields {
    int logits, cu_lens, token, parent;
};

/* Rows of logits, saturating. */
int64_t syi_drafts_rows(const struct syi_call *call, int logits);

/* Requests of a call whose tensors have passed syi_drafts_fit. */
int64_t syi_drafts_requests(const struct syi_call *call, const struct syi_draft_fields *f);

/* Rank 2 needs cu_lens; the shapes of the tensors; N below 2^31. */
sy_status syi_drafts_given(struct syi_call *call, const struct syi_draft_fields *f);
sy_status syi_drafts_fit(struct syi_call *call, const struct syi_draft_fields *f);
sy_status syi_drafts_countable(struct syi_call *call, const struct syi_draft_fields *f);
struct syi_draft_rows syi_drafts_of(const struct syi_call *call, const struct syi_draft_fields *f);
