/*
 * The kernel of log-probabilities for logits of bf16.
 */
#include "cuda/sample_logprob.cuh"

template void syc_sample_logprobs<SY_TYPE_BF16>(struct syc_call *call, const struct syi_sample_plan *p, const struct logprob_scratch *scratch, int64_t blocks);
