/*
 * The kernel of log-probabilities for logits of f16.
 */
#include "cuda/sample_logprob.cuh"

template void syc_sample_logprobs<SY_TYPE_F16>(struct syc_call *call, const struct syi_sample_plan *p, const struct logprob_scratch *scratch, int64_t blocks);
