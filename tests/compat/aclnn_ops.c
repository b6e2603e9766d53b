/* The operators of the aclnn layer as one kind of call: the order of the vendor's arguments. */
#include "aclnn.h"

#include "aclnnop/operators.h"

#define T(n) (c->args[n].tensor)
#define N(n) (c->number[n].i)
#define B(n) (c->number[n].i != 0)
#define D(n) (c->number[n].d)
#define S(n) (c->number[n].text)

/* An operator: its name and the vendor's, tensors, numbers; the arguments of the first phase. */
#define OP(name, vendor, tensors, numbers, ...) \
    static aclnnStatus ask_##name(struct call *c, uint64_t *size, aclOpExecutor **e) \
    { \
        return vendor##GetWorkspaceSize(__VA_ARGS__, size, e); \
    } \
    static const struct op name = {#name, tensors, numbers, ask_##name, vendor};

OP(permute, aclnnMoeTokenPermuteWithRoutingMap, "tokens map probs? > out probs_out? index", "n=0 pad=0", T(0),
   T(1), T(2), N(0), B(1), T(3), T(4), T(5))
OP(unpermute, aclnnMoeTokenUnpermuteWithRoutingMap, "rows index map? probs? > out out_index? token_id? kept?",
   "pad=0 restore", T(0), T(1), T(2), T(3), B(0), acl_call_array(c, 1), T(4), T(5), T(6), T(7))
OP(permute_grad, aclnnMoeTokenPermuteWithRoutingMapGrad, "rows probs? index map? > out probs_out?",
   "experts=0 tokens=0 pad=0", T(0), T(1), T(2), T(3), N(0), N(1), B(2), T(4), T(5))
OP(unpermute_grad, aclnnMoeTokenUnpermuteWithRoutingMapGrad,
   "tokens out_index token_id map? rows? probs? > out probs_out?", "pad=0", T(0), T(1), T(2), T(3), T(4),
   T(5), B(0), NULL, T(6), T(7))
OP(sample, aclnnTopKTopPSample, "logits k p q? > token masked", "eps=1e-8 need=0 guess=32", T(0), T(1), T(2),
   T(3), D(0), B(1), N(2), T(4), T(5))
OP(sample_v2, aclnnTopKTopPSampleV2, "logits k p q? min_p? > token masked idx list",
   "eps=1e-8 need=0 guess=32 ks_max=1024 logits_in=1 lists=0", T(0), T(1), T(2), T(3), T(4), D(0), B(1), N(2),
   N(3), B(4), B(5), T(5), T(6), T(7), T(8))
OP(permute_ids, aclnnMoeTokenPermute, "tokens ids > out index", "n=0 pad=0", T(0), T(1), N(0), B(1), T(2),
   T(3))
OP(unpermute_ids, aclnnMoeTokenUnpermute, "rows index probs? > out", "pad=0", T(0), T(1), T(2), B(0), NULL,
   T(3))
OP(permute_ids_grad, aclnnMoeTokenPermuteGrad, "rows index > out", "k=2 pad=0", T(0), T(1), N(0), B(1), T(2))
OP(unpermute_ids_grad, aclnnMoeTokenUnpermuteGrad, "rows grad index probs? > out probs_out", "pad=0", T(0),
   T(1), T(2), T(3), B(0), NULL, T(4), T(5))
/* The optional tensors of scatter are the slots where their flag is set. */
OP(scatter, aclnnScatterPaKvCache, "key slots value > key_cache value_cache",
   "mode compress=0 offsets=0 lengths=0 kind array=0 numbers", T(0), T(3), T(1), T(2), T(4),
   B(1) ? T(1) : NULL, B(2) ? T(1) : NULL, B(3) ? T(1) : NULL, S(0), S(4),
   N(5) == 1 ? acl_call_array(c, 6) : NULL, N(5) == 2 ? acl_call_array(c, 6) : NULL)
OP(gather, aclnnGatherPaKvCache, "key_cache value_cache table lengths offsets? > key value", "mode summed=0",
   T(0), T(1), T(2), T(3), T(5), T(6), T(4), S(0), B(1))
OP(filter, aclnnApplyTopKTopP, "logits p? k? > out", "", T(0), T(1), T(2), T(3))
OP(re_routing, aclnnMoeReRouting, "tokens counts scales? > out out_scales source totals", "type=1 idx=0",
   T(0), T(1), T(2), N(0), N(1), T(3), T(4), T(5), T(6))
OP(init_v2, aclnnMoeInitRoutingV2, "x ids > rows at counts before",
   "active=0 capacity=0 experts=4 drop_pad=0 flag=2 before_flag=1", T(0), T(1), N(0), N(1), N(2), N(3), N(4),
   B(5), T(2), T(3), T(4), T(5))
OP(init_v3, aclnnMoeInitRoutingV3, "x ids scale? > rows at counts scales",
   "active=6 experts=6 drop_pad=0 kind=1 flag=1 quant=-1 range row_type=0", T(0), T(1), T(2), NULL, N(0), 0,
   N(1), N(2), N(3), B(4), N(5), acl_call_array(c, 6), N(7), T(3), T(4), T(5), T(6))
OP(gating, aclnnMoeGatingTopK, "logits bias? > weights ids scores",
   "k=2 k_group=1 groups=1 select=0 renorm=0 norm=0 all=1 scale=2 eps=0", T(0), T(1), N(0), N(1), N(2), N(3),
   N(4), N(5), B(6), D(7), D(8), T(2), T(3), T(4))
OP(softmax, aclnnMoeGatingTopKSoftmaxV2, "logits finished? > weights ids scores", "k=2 renorm=0 all=1", T(0),
   T(1), N(0), N(1), B(2), T(2), T(3), T(4))
OP(finalize, aclnnMoeFinalizeRoutingV2, "rows index x1? x2? bias? scales? experts > out", "mode=0", T(0),
   T(1), T(2), T(3), T(4), T(5), T(6), N(0), T(7))
OP(expert_tokens, aclnnMoeComputeExpertTokens, "sorted > out", "experts=5", T(0), N(0), T(1))

const struct op *const aclnn_ops[] = {
    &permute,   &unpermute,   &permute_grad,  &unpermute_grad,   &sample,
    &sample_v2, &permute_ids, &unpermute_ids, &permute_ids_grad, &unpermute_ids_grad,
    &scatter,   &gather,      &filter,        &re_routing,       &init_v2,
    &init_v3,   &gating,      &softmax,       &finalize,         &expert_tokens};
const int n_aclnn_ops = (int)COUNT_OF(aclnn_ops);
