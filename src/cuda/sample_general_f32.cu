/*
 * The kernels of sample for top-k, for top-p and for any row, of logits of f32; in a file for each type, since it takes long to compile.
 */
#include "cuda/sample_rows.cuh"

template void syc_sample_general<SY_TYPE_F32>(struct syc_call *call, const struct syi_sample_plan *p, const struct sample_scratch *scratch, enum syc_start start, int64_t blocks);
template void syc_sample_top_k<SY_TYPE_F32>(struct syc_call *call, const struct syi_sample_plan *p, const struct sample_scratch *scratch);
template void syc_sample_nucleus<SY_TYPE_F32>(struct syc_call *call, const struct syi_sample_plan *p, const struct sample_scratch *scratch);
