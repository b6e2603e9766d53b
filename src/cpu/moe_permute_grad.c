/*
 * moe_permute_grad on the CPU. Copying a token to several rows and adding several rows up are adjoint, so the
 * gradient of the tokens is the plain inverse; that of the probs moves single values back.
 */
#include "cpu/moe_rows.h"
#include "cpu/backend.h"

size_t syi_cpu_moe_permute_grad_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    return syi_cpu_moe_unpermute_workspace(ctx, plan);
}

sy_status syi_cpu_moe_permute_grad(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_rows_plan *p = &plan->moe_rows;
    SYI_TRY(syi_cpu_moe_unpermute(ctx, plan, workspace));
    if (p->wants_grad_probs)
        syi_moe_grad_probs(ctx, p, p->grad_permuted_probs);
    return SY_OK;
}
