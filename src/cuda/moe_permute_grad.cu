/*
 * moe_permute_grad on a device. Copying a token to several rows and adding several rows up are adjoint, so the gradient of
 * the tokens is the plain inverse; that of the probs moves single values back.
 */
#include "cuda/backend.cuh"
#include "cuda/moe_grads.cuh"

static struct syc_moe_sums lay_out(const struct syc_device *device, const struct syi_moe_rows_plan *p, struct syc_scratch *scratch)
{
    struct syc_moe_sums s = {syc_moe_lists_of(p), p->hidden, p->type, p->permuted, p->tokens};
    syc_moe_take_lists(&s.lists, p->wants_grad_probs, scratch);
    syc_moe_take_sums(device, &s, scratch);
    return s;
}

/* The gradient of a permuted prob, bit for bit. */
struct copied {
    const u8 *values; /* [M] */

    __device__ __forceinline__ void put(const struct syc_grad_probs &out, int64_t t, int, int32_t row, int64_t expert) const
    {
        u8 *const to = syc_out_row(out.grad_probs, t) + expert * out.bytes;
        if (expert < 0)
            return;
        if (out.bytes == 4)
            syc_store<u32>(to, syc_load<u32>(values + (int64_t)row * 4));
        else
            syc_store<u16>(to, syc_load<u16>(values + (int64_t)row * 2));
    }
};

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
    if (p->wants_grad_probs) /* first, so that the sums load rows beside it */
        syc_moe_grad_probs(call, p, &s.lists, copied{p->grad_permuted_probs});
    syc_moe_sum(call, &s);
}
