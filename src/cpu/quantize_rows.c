/*
 * quantize_rows on the CPU: row by row.
 */
#include "cpu/backend.h"
#include "cpu/kv_codec.h"
#include "cpu/row_codes.h"

SYI_CPU_NO_WORKSPACE(quantize_rows)

sy_status syi_cpu_quantize_rows(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    (void)workspace;
    return plan->quantize_rows.plane.packed ? syi_code_packed_rows(ctx, &plan->quantize_rows, SYI_KV_TO_CACHE)
                                            : syi_encode_rows(ctx, &plan->quantize_rows.codes);
}
