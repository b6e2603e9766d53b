/*
 * aclnnMoeInitRoutingV3 without quantisation: sy_moe_permute_ids of the experts in a range, numbered from its first. Other
 * experts are missing there.
 */
#include "internal.h"

#include <string.h>

#include "aclnnop/aclnn_moe_init_routing_v3.h"

enum { X, IDS, SCALE, EXPANDED, ROWS, COUNTS, SCALES_OUT, N_TENSORS };
enum { FIRST, EXPERTS, PAIRS, BY_ROW };        /* of `number`; n_experts are those of the range */
enum { OWN_IDS, OWN_SCALES, COUNTED, PLACES }; /* of `list` */

/* The extra memory: counts, ids, places, and with a scale that of each choice. */
struct parts {
    int64_t *counts;
    int32_t *ids, *places;
    float *scales;
};

static int64_t counted(const aclOpExecutor *e)
{
    return e->n_experts > 0 ? e->n_experts : 1; /* the operator has at least one */
}

static struct parts parts_of(const aclOpExecutor *e, char *extra)
{
    int64_t *counts = (int64_t *)(void *)extra;
    int32_t *ids = (int32_t *)(void *)(counts + counted(e));
    return (struct parts){counts, ids, ids + e->n_rows, (float *)(void *)(ids + 2 * e->n_rows)};
}

/* Ids of the range, -1 for others; and the scale of each choice. */
static aclnnStatus read_choices(const aclOpExecutor *e, const struct parts *p)
{
    const int64_t choices = e->view[IDS].shape[1];
    for (int64_t i = 0; i < e->n_rows; i++) {
        int32_t id;
        memcpy(&id, syi_aclnn_row(&e->view[IDS], i / choices) + (size_t)(i % choices) * sizeof id, sizeof id);
        if (id < 0 || id >= e->number[EXPERTS])
            return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                                  "%s: expertIdx has %d for choice %lld of token %lld, want 0 to %lld",
                                  e->op->name, (int)id, (long long)(i % choices), (long long)(i / choices),
                                  (long long)e->number[EXPERTS] - 1);
        const int64_t own = id - e->number[FIRST];
        p->ids[i] = own >= 0 && own < e->n_experts ? (int32_t)own : -1;
        if (e->view[SCALE].taken)
            memcpy(&p->scales[i],
                   (const char *)e->view[SCALE].dl.data + (size_t)(i / choices) * sizeof(float),
                   sizeof(float));
    }
    return ACLNN_SUCCESS;
}

/* Counts, or pairs of expert and count of those that have any, then zeros. */
static void write_counts(const aclOpExecutor *e, const int64_t *counts)
{
    const struct syi_aclnn_view *out = &e->view[COUNTS];
    int64_t n = 0;
    for (int64_t i = 0; e->number[PAIRS] == 0 && i < e->n_experts; i++)
        memcpy((char *)out->dl.data + (size_t)i * sizeof *counts, &counts[i], sizeof *counts);
    for (int64_t i = 0; e->number[PAIRS] != 0 && i < e->number[EXPERTS]; i++) {
        while (n < e->n_experts && counts[n] == 0)
            n++;
        const int64_t pair[2] = {n < e->n_experts ? n + e->number[FIRST] : 0,
                                 n < e->n_experts ? counts[n] : 0};
        char *row = (char *)out->dl.data + (syi_aclnn_row(out, i) - (const char *)out->dl.data);
        memcpy(row, pair, sizeof pair);
        n++;
    }
}

static aclnnStatus run(aclOpExecutor *e, char *extra)
{
    const struct parts p = parts_of(e, extra);
    aclnnStatus st = read_choices(e, &p);
    if (st != ACLNN_SUCCESS)
        return st;
    e->list[OWN_IDS].data = p.ids;
    e->list[OWN_SCALES].data = p.scales;
    e->list[COUNTED].data = p.counts;
    e->list[PLACES].data = p.places;
    st = syi_aclnn_status(e, sy_moe_permute_ids(e->ctx, &e->args.permute_ids));
    if (st != ACLNN_SUCCESS)
        return st;
    for (int64_t i = 0; i < e->n_rows; i++) /* the row of each choice, or the choice of each row */
        syi_aclnn_set_number(e, ROWS, i, e->number[BY_ROW] != 0 ? -1 : p.places[i]);
    for (int64_t i = 0; e->number[BY_ROW] != 0 && i < e->n_rows; i++)
        if (p.places[i] >= 0)
            syi_aclnn_set_number(e, ROWS, p.places[i], i);
    write_counts(e, p.counts);
    return ACLNN_SUCCESS;
}

static const struct syi_aclnn_op op = {"aclnnMoeInitRoutingV3", run, false};

static aclnnStatus reject(const char *field, int64_t value, const char *want)
{
    return syi_aclnn_fail(ACLNN_ERR_INNER_TILING_ERROR, "%s: %s is %lld, want %s", op.name, field,
                          (long long)value, want);
}

/* As the vendor, before the numbers. */
static aclnnStatus check_shapes(const aclOpExecutor *e)
{
    aclnnStatus st = syi_aclnn_check_shape(e, IDS, e->n_tokens, e->view[IDS].shape[1]);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, SCALE, e->n_tokens, -1);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, EXPANDED, e->n_rows, e->view[X].shape[1]);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, ROWS, e->n_rows, -1);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_shape(e, SCALES_OUT, e->n_rows, -1) : st;
}

static aclnnStatus plan(aclOpExecutor *e)
{
    const int64_t tokens = e->n_tokens, choices = e->view[IDS].shape[1];
    const bool scaled = e->view[SCALE].taken;
    sy_query query = {0};
    aclnnStatus st = syi_aclnn_check_shape(
        e, COUNTS, e->number[PAIRS] != 0 ? e->number[EXPERTS] : e->n_experts, e->number[PAIRS] != 0 ? 2 : -1);
    if (st != ACLNN_SUCCESS)
        return st;
    e->list_shape[OWN_IDS][0] = e->list_shape[OWN_SCALES][0] = tokens;
    e->list_shape[OWN_IDS][1] = e->list_shape[OWN_SCALES][1] = choices;
    e->list[OWN_IDS] = sy_tensor(NULL, SY_I32, 2, e->list_shape[OWN_IDS]);
    e->list[OWN_SCALES] = sy_tensor(NULL, SY_F32, 2, e->list_shape[OWN_SCALES]);
    e->args.permute_ids =
        (sy_moe_permute_ids_args){.tokens = syi_aclnn_arg(e, X),
                                  .ids = &e->list[OWN_IDS],
                                  .probs = scaled ? &e->list[OWN_SCALES] : NULL,
                                  .num_experts = counted(e),
                                  .allow_missing = true,
                                  .permuted_tokens = syi_aclnn_arg(e, EXPANDED),
                                  .sorted_indices = syi_aclnn_list(e, PLACES, SY_I32, e->n_rows, 0),
                                  .permuted_probs = syi_aclnn_arg(e, SCALES_OUT),
                                  .expert_counts = syi_aclnn_list(e, COUNTED, SY_I64, counted(e), 0)};
    e->extra_bytes = (size_t)counted(e) * sizeof(int64_t) + (size_t)e->n_rows * (scaled ? 12 : 8);
    st = syi_aclnn_status(e, sy_moe_permute_ids_query(e->ctx, &e->args.permute_ids, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_alias(e, -1, -1) : st;
}

aclnnStatus aclnnMoeInitRoutingV3GetWorkspaceSize(
    const aclTensor *x, const aclTensor *expertIdx, const aclTensor *scaleOptional,
    const aclTensor *offsetOptional, int64_t activeNum, int64_t expertCapacity, int64_t expertNum,
    int64_t dropPadMode, int64_t expertTokensNumType, bool expertTokensNumFlag, int64_t quantMode,
    const aclIntArray *activeExpertRangeOptional, int64_t rowIdxType, const aclTensor *expandedXOut,
    const aclTensor *expandedRowIdxOut, const aclTensor *expertTokensCountOrCumsumOut,
    const aclTensor *expandedScaleOut, uint64_t *workspaceSize, aclOpExecutor **executor)
{
    const unsigned out = SYI_ACLNN_OUTPUT, i32 = SYI_ACLNN_BIT(ACL_INT32), f32 = SYI_ACLNN_BIT(ACL_FLOAT);
    const bool pairs = expertTokensNumType == 2;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [X] = {"x", x, 0, SYI_ACLNN_FLOATS | SYI_ACLNN_BIT(ACL_INT8), 0, 2},
        [IDS] = {"expertIdx", expertIdx, 0, i32, 0, 2},
        [SCALE] = {"scaleOptional", scaleOptional, SYI_ACLNN_OPTIONAL, f32, 0, 1},
        [EXPANDED] = {"expandedXOut", expandedXOut, out, 0, X + 1, 2},
        [ROWS] = {"expandedRowIdxOut", expandedRowIdxOut, out, i32, 0, 1},
        [COUNTS] = {"expertTokensCountOrCumsumOut", expertTokensCountOrCumsumOut, out,
                    SYI_ACLNN_BIT(ACL_INT64), 0, pairs ? 2 : 1},
        [SCALES_OUT] = {"expandedScaleOut", expandedScaleOut,
                        out |
                            (scaleOptional != NULL || expandedScaleOut == NULL ? 0u
                                                                               : (unsigned)SYI_ACLNN_IGNORED),
                        f32, 0, 1},
    };
    (void)offsetOptional; /* of quantisation */
    (void)expertCapacity; /* of dropPadMode 1 */
    const aclIntArray *range = activeExpertRangeOptional;
    aclOpExecutor *e;
    aclnnStatus st = syi_aclnn_begin_checked(&op, workspaceSize, executor, rules, N_TENSORS, &e);
    if (st != ACLNN_SUCCESS)
        return syi_aclnn_end(e, st, workspaceSize, executor);
    e->n_tokens = e->view[X].shape[0];
    e->n_rows = e->view[IDS].shape[0] * e->view[IDS].shape[1];
    e->number[EXPERTS] = expertNum;
    e->number[PAIRS] = pairs;
    e->number[BY_ROW] = rowIdxType;
    e->number[FIRST] = range != NULL && range->size == 2 ? range->value[0] : 0;
    const int64_t end = range != NULL && range->size == 2 ? range->value[1] : expertNum;
    e->n_experts = e->number[FIRST] >= 0 && end >= e->number[FIRST] ? end - e->number[FIRST] : -1;
    st = check_shapes(e);
    if (st != ACLNN_SUCCESS)
        return syi_aclnn_end(e, st, workspaceSize, executor);
    if (quantMode != -1)
        st = reject("quantMode", quantMode, "-1: quantisation is not supported");
    else if (dropPadMode != 0)
        st = reject("dropPadMode", dropPadMode, "0");
    else if (expertTokensNumType != 1 && !pairs)
        st = reject("expertTokensNumType", expertTokensNumType, "1 or 2");
    else if (!expertTokensNumFlag)
        st = reject("expertTokensNumFlag", 0, "true");
    else if (rowIdxType != 0 && rowIdxType != 1)
        st = reject("rowIdxType", rowIdxType, "0 or 1");
    else if (expertNum < 1 || expertNum > (pairs ? 5120 : 10240))
        st = reject("expertNum", expertNum, pairs ? "1 to 5120" : "1 to 10240");
    else if (activeNum != e->n_rows)
        st = reject("activeNum", activeNum, "the number of choices, rows of expertIdx times columns");
    else if (e->n_experts < 0 || end > expertNum || (range != NULL && range->size != 2 && range->size != 0))
        st = reject("activeExpertRangeOptional", e->number[FIRST], "a first and an end from 0 to expertNum");
    if (st == ACLNN_SUCCESS)
        st = plan(e);
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnMoeInitRoutingV3(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                  aclrtStream stream)
{
    return syi_aclnn_execute(&op, workspace, workspaceSize, executor, stream);
}
