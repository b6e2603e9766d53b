/*
 * moe_permute_grad on a device. Copying a token to several rows and adding several rows up are adjoint, so
 * the gradient of the tokens is the plain inverse; that of the probs moves single values back, beside it.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/moe/moe_grads.cuh"

/* Whether the gradients of probs are moved by blocks of the kernel that adds up, and not ahead of it. */
static bool moves_beside(const syc_device *device, const syi_moe_rows_plan *p, const syc_moe_sums *s)
{
    return p->wants_grad_probs && p->hidden > 0 && !syc_moe_ring_pays(device, s);
}

static syc_moe_sums lay_out(const syc_device *device, const syi_moe_rows_plan *p, syc_scratch *scratch)
{
    syc_moe_sums s = {syc_moe_lists_of(p), p->hidden, p->type, p->permuted, p->tokens};
    if (moves_beside(device, p, &s)) {
        s.grad_rows = p->grad_permuted_probs;
        s.grad_probs = p->grad_probs;
        s.prob_bytes = p->prob_type == SY_TYPE_F32 ? 4 : 2;
    }
    syc_moe_take_lists(&s.lists, p->wants_grad_probs, scratch);
    syc_moe_take_sums(device, &s, scratch);
    return s;
}

SYC_WORKSPACE(moe_permute_grad, moe_rows)

void syc_moe_permute_grad(syc_call *call, const syi_plan *plan)
{
    const syi_moe_rows_plan *const p = &plan->moe_rows;
    syc_scratch scratch = {call->scratch, 0};
    const syc_moe_sums s = lay_out(call->device, p, &scratch);
    syc_moe_validate(call, &s.lists);
    if (p->wants_grad_probs && s.prob_bytes == 0)
        syc_moe_grad_probs(call, p, &s.lists, syc_copied_probs{p->grad_permuted_probs});
    syc_moe_sum(call, &s);
}
