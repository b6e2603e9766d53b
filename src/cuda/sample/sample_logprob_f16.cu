/*
 * The kernel of log-probabilities for logits of f16.
 */
#include "cuda/sample/sample_logprob.cuh"

template void syc_sample_logprobs<SY_TYPE_F16>(syc_call *call, const syi_sample_plan *p,
                                               const logprob_scratch *scratch, int64_t blocks);
