/*
 * The kernels of sample for top-k, for top-p and for any row, of logits of bf16; in a file for each type,
 * since it takes long to compile.
 */
#include "cuda/sample/sample_rows.cuh"

template decltype(syc_sample_general<SY_TYPE_BF16>) syc_sample_general<SY_TYPE_BF16>;
template decltype(syc_sample_top_k<SY_TYPE_BF16, true>) syc_sample_top_k<SY_TYPE_BF16, true>;
template decltype(syc_sample_top_k<SY_TYPE_BF16, false>) syc_sample_top_k<SY_TYPE_BF16, false>;
template decltype(syc_sample_nucleus<SY_TYPE_BF16>) syc_sample_nucleus<SY_TYPE_BF16>;
