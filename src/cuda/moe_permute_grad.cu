/*
 * moe_permute_grad on a device. Copying a token to several rows and adding several rows up are adjoint, so the gradient of
 * the tokens is the plain inverse; that of the probs moves single values back, beside it.
 */
#include "cuda/backend.cuh"
#include "cuda/moe_grads.cuh"

static struct syc_moe_sums lay_out(const struct syc_device *device, const struct syi_moe_rows_plan *p, struct syc_scratch *scratch)
{
    struct syc_moe_sums s = {syc_moe_lists_of(p), p->hidden, p->type, p->permuted, p->tokens};
    if (p->wants_grad_probs && p->hidden > 0) { /* else there are no sums */
        s.grad_rows = p->grad_permuted_probs;
        s.grad_probs = p->grad_probs;
        s.prob_bytes = p->prob_type == SY_TYPE_F32 ? 4 : 2;
    }
    syc_moe_take_lists(&s.lists, p->wants_grad_probs, scratch);
    syc_moe_take_sums(device, &s, scratch);
    return s;
}

size_t syc_moe_permute_grad_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    struct syc_scratch scratch = {NULL, 0};
    lay_out(device, &plan->moe_rows, &scratch);
    return scratch.used;
}

void syc_moe_permute_grad(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_moe_rows_plan *const p = &plan->moe_rows;
    struct syc_scratch scratch = {call->scratch, 0};
    const struct syc_moe_sums s = lay_out(call->device, p, &scratch);
    syc_moe_validate(call, &s.lists);
    if (p->wants_grad_probs && p->hidden == 0)
        syc_moe_grad_probs(call, p, &s.lists, syc_copied_probs{p->grad_permuted_probs});
    else
        syc_moe_sum(call, &s);
}
