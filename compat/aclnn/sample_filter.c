/* aclnnApplyTopKTopP: the masked logits of sy_sample, which are FLOAT; 16-bit ones are converted back, exactly. */
#include "internal.h"

enum { LOGITS, TOP_P, TOP_K, OUT, N_TENSORS };

#define TO(field) SYI_ACLNN_FIELD(sample, field)

static bool is_narrow(const aclOpExecutor *e)
{
    return e->view[LOGITS].type != ACL_FLOAT;
}

enum { TOKENS, KEPT }; /* of `list`; the tokens are not needed, but the operator makes them */

static aclnnStatus run(aclOpExecutor *e)
{
    const int64_t vocab = e->view[LOGITS].shape[1];
    const float *kept = e->list[KEPT].data;
    const aclnnStatus st = syi_aclnn_call(e);
    struct syi_aclnn_view *out = &e->view[OUT];
    for (int64_t b = 0; st == ACLNN_SUCCESS && is_narrow(e) && b < out->shape[0]; b++) {
        char *row = syi_aclnn_row(out, b);
        for (int64_t i = 0; i < vocab; i++)
            syi_aclnn_set_float(row + (size_t)i * out->elem_bytes, out->type, kept[b * vocab + i]);
    }
    return st;
}

static const struct syi_aclnn_op op = {"aclnnApplyTopKTopP", SYI_ACLNN_CALLS(sample), run,
                                       .in_place = {OUT, LOGITS}};

static void plan(aclOpExecutor *e)
{
    const int64_t batch = e->view[LOGITS].shape[0], vocab = e->view[LOGITS].shape[1];
    e->args.sample.noise = SY_NOISE_NONE;
    e->args.sample.ties = SY_TIES_ALL;
    e->args.sample.token = syi_aclnn_list(e, TOKENS, SY_I64, batch, -1);
    e->args.sample.masked_logits =
        is_narrow(e) ? syi_aclnn_list(e, KEPT, SY_F32, batch, vocab) : syi_aclnn_arg(e, OUT);
    syi_aclnn_check_shape(e, TOP_P, batch, -1);
    syi_aclnn_check_shape(e, TOP_K, batch, -1);
    (void)syi_aclnn_query(e);
    syi_aclnn_check_shape(e, OUT, batch, vocab);
}

SYI_ACLNN_OPERATOR(aclnnApplyTopKTopP, op, const aclTensor *logits, const aclTensor *p, const aclTensor *k,
                   aclTensor *out)
{
    const unsigned optional = SYI_ACLNN_OPTIONAL | SYI_ACLNN_ANY_STRIDE;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [LOGITS] = {SYI_NAMED(logits), 0, SYI_ACLNN_FLOATS, 0, 2, TO(logits)},
        [TOP_P] = {SYI_NAMED(p), optional, 0, LOGITS + 1, 1, TO(top_p)},
        [TOP_K] = {SYI_NAMED(k), optional, SYI_ACLNN_I32, 0, 1, TO(top_k)},
        [OUT] = {SYI_NAMED(out), SYI_ACLNN_OUTPUT, 0, LOGITS + 1, 2, 0},
    };
    aclOpExecutor *e = syi_aclnn_begin(&op, rules, N_TENSORS, workspaceSize, executor);
    if (p == NULL && k == NULL)
        syi_aclnn_reject(e, ACLNN_ERR_PARAM_NULLPTR, "p and k are null, want one of them");
    if (syi_aclnn_check_tensors(e, rules))
        plan(e);
    return syi_aclnn_end(e);
}
