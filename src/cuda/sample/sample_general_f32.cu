/*
 * The kernels of sample for top-k, for top-p and for any row, of logits of f32; in a file for each type,
 * since it takes long to compile.
 */
#include "cuda/sample/sample_rows.cuh"

template decltype(syc_sample_general<SY_TYPE_F32>) syc_sample_general<SY_TYPE_F32>;
template decltype(syc_sample_top_k<SY_TYPE_F32, true>) syc_sample_top_k<SY_TYPE_F32, true>;
template decltype(syc_sample_top_k<SY_TYPE_F32, false>) syc_sample_top_k<SY_TYPE_F32, false>;
template decltype(syc_sample_nucleus<SY_TYPE_F32>) syc_sample_nucleus<SY_TYPE_F32>;
