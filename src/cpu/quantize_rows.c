/*
 * quantize_rows on the CPU: row by row.
 */
#include "cpu/backend.h"
#include "cpu/row_codes.h"

size_t syi_cpu_quantize_rows_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    (void)ctx;
    (void)plan;
    return 0;
}

sy_status syi_cpu_quantize_rows(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    (void)workspace;
    return syi_encode_rows(ctx, &plan->row_codes);
}
