/*
 * aclnnMoeInitRoutingV3 without quantisation: sy_moe_permute_ids of the experts in a range, numbered from its first. Other
 * experts are missing there.
 */
#include "internal.h"

#include <string.h>

enum { X, IDS, SCALE, EXPANDED, ROWS, COUNTS, SCALES_OUT, N_TENSORS };
enum { FIRST, EXPERTS, PAIRS, BY_ROW };        /* of `number`; n_experts are those of the range */
enum { OWN_IDS, OWN_SCALES, COUNTED, PLACES }; /* of `list` */

static int64_t counted(const aclOpExecutor *e)
{
    return e->n_experts > 0 ? e->n_experts : 1; /* the operator has at least one */
}

/* Ids of the range, -1 for others; and the scale of each choice. */
static aclnnStatus read_choices(const aclOpExecutor *e)
{
    int32_t *ids = e->list[OWN_IDS].data;
    float *scales = e->list[OWN_SCALES].data;
    const int64_t choices = e->view[IDS].shape[1];
    for (int64_t i = 0; i < e->n_rows; i++) {
        const int64_t id = syi_aclnn_integer(e, IDS, i / choices, i % choices);
        if (id < 0 || id >= e->number[EXPERTS])
            return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                                  "%s: expertIdx has %lld for choice %lld of token %lld, want 0 to %lld",
                                  e->op->name, (long long)id, (long long)(i % choices),
                                  (long long)(i / choices), (long long)e->number[EXPERTS] - 1);
        const int64_t own = id - e->number[FIRST];
        ids[i] = own >= 0 && own < e->n_experts ? (int32_t)own : -1;
        if (e->view[SCALE].taken)
            memcpy(&scales[i], syi_aclnn_row(&e->view[SCALE], i / choices), sizeof(float));
    }
    return ACLNN_SUCCESS;
}

/* Counts, or pairs of expert and count of those that have any, then zeros. */
static void write_counts(const aclOpExecutor *e, const int64_t *counts)
{
    int64_t n = 0;
    for (int64_t i = 0; e->number[PAIRS] == 0 && i < e->n_experts; i++)
        syi_aclnn_set_integer(e, COUNTS, i, counts[i]);
    for (int64_t i = 0; e->number[PAIRS] != 0 && i < e->number[EXPERTS]; i++) {
        while (n < e->n_experts && counts[n] == 0)
            n++;
        const int64_t pair[2] = {n < e->n_experts ? n + e->number[FIRST] : 0,
                                 n < e->n_experts ? counts[n] : 0};
        memcpy(syi_aclnn_row(&e->view[COUNTS], i), pair, sizeof pair);
        n++;
    }
}

static aclnnStatus run(aclOpExecutor *e)
{
    const int32_t *places = e->list[PLACES].data;
    aclnnStatus st = read_choices(e);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_call(e);
    if (st != ACLNN_SUCCESS)
        return st;
    for (int64_t i = 0; i < e->n_rows; i++) /* the row of each choice, or the choice of each row */
        syi_aclnn_set_integer(e, ROWS, i, e->number[BY_ROW] != 0 ? -1 : places[i]);
    for (int64_t i = 0; e->number[BY_ROW] != 0 && i < e->n_rows; i++)
        if (places[i] >= 0)
            syi_aclnn_set_integer(e, ROWS, places[i], i);
    write_counts(e, e->list[COUNTED].data);
    return ACLNN_SUCCESS;
}

static const struct syi_aclnn_op op = {"aclnnMoeInitRoutingV3", SYI_ACLNN_CALLS(moe_permute_ids), run, false};

/* As the vendor, before the numbers. */
static void check_shapes(aclOpExecutor *e)
{
    syi_aclnn_check_shape(e, IDS, e->n_tokens, e->view[IDS].shape[1]);
    syi_aclnn_check_shape(e, SCALE, e->n_tokens, -1);
    syi_aclnn_check_shape(e, EXPANDED, e->n_rows, e->view[X].shape[1]);
    syi_aclnn_check_shape(e, ROWS, e->n_rows, -1);
    syi_aclnn_check_shape(e, SCALES_OUT, e->n_rows, -1);
}

static void want(aclOpExecutor *e, bool good, const char *field, int64_t value, const char *values)
{
    syi_aclnn_want(e, good, ACLNN_ERR_INNER_TILING_ERROR, field, value, values);
}

static void plan(aclOpExecutor *e)
{
    if (e->status != ACLNN_SUCCESS)
        return;
    const int64_t choices = e->view[IDS].shape[1];
    const bool scaled = e->view[SCALE].taken, pairs = e->number[PAIRS] != 0;
    const DLTensor *ids = syi_aclnn_list(e, OWN_IDS, SY_I32, e->n_tokens, choices);
    syi_aclnn_check_shape(e, COUNTS, pairs ? e->number[EXPERTS] : e->n_experts, pairs ? 2 : -1);
    e->args.permute_ids = (sy_moe_permute_ids_args){
        .tokens = syi_aclnn_arg(e, X),
        .ids = ids,
        .probs = scaled ? syi_aclnn_list(e, OWN_SCALES, SY_F32, e->n_tokens, choices) : NULL,
        .num_experts = counted(e),
        .allow_missing = true,
        .permuted_tokens = syi_aclnn_arg(e, EXPANDED),
        .sorted_indices = syi_aclnn_list(e, PLACES, SY_I32, e->n_rows, -1),
        .permuted_probs = syi_aclnn_arg(e, SCALES_OUT),
        .expert_counts = syi_aclnn_list(e, COUNTED, SY_I64, counted(e), -1)};
    (void)syi_aclnn_query(e);
}

SYI_ACLNN_OPERATOR(aclnnMoeInitRoutingV3, op, const aclTensor *x, const aclTensor *expertIdx,
                   const aclTensor *scaleOptional, const aclTensor *offsetOptional, int64_t activeNum,
                   int64_t expertCapacity, int64_t expertNum, int64_t dropPadMode,
                   int64_t expertTokensNumType, bool expertTokensNumFlag, int64_t quantMode,
                   const aclIntArray *activeExpertRangeOptional, int64_t rowIdxType,
                   const aclTensor *expandedXOut, const aclTensor *expandedRowIdxOut,
                   const aclTensor *expertTokensCountOrCumsumOut, const aclTensor *expandedScaleOut)
{
    const unsigned out = SYI_ACLNN_OUTPUT, i32 = SYI_ACLNN_I32, f32 = SYI_ACLNN_F32;
    const bool pairs = expertTokensNumType == 2;
    const bool scales = scaleOptional != NULL || expandedScaleOut == NULL;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [X] = {SYI_NAMED(x), 0, SYI_ACLNN_FLOATS | SYI_ACLNN_BIT(ACL_INT8), 0, 2, 0},
        [IDS] = {SYI_NAMED(expertIdx), 0, i32, 0, 2, 0},
        [SCALE] = {SYI_NAMED(scaleOptional), SYI_ACLNN_OPTIONAL, f32, 0, 1, 0},
        [EXPANDED] = {SYI_NAMED(expandedXOut), out, 0, X + 1, 2, 0},
        [ROWS] = {SYI_NAMED(expandedRowIdxOut), out, i32, 0, 1, 0},
        [COUNTS] = {SYI_NAMED(expertTokensCountOrCumsumOut), out, SYI_ACLNN_BIT(ACL_INT64), 0, pairs ? 2 : 1,
                    0},
        [SCALES_OUT] = {SYI_NAMED(expandedScaleOut), out | (scales ? 0u : (unsigned)SYI_ACLNN_IGNORED), f32,
                        0, 1, 0},
    };
    (void)offsetOptional; /* of quantisation */
    (void)expertCapacity; /* of dropPadMode 1 */
    const aclIntArray *range = activeExpertRangeOptional;
    const bool ranged = range != NULL && range->size == 2;
    const int64_t first = ranged ? range->value[0] : 0, end = ranged ? range->value[1] : expertNum;
    aclOpExecutor *e = syi_aclnn_begin(&op, rules, N_TENSORS, workspaceSize, executor);
    if (!syi_aclnn_check_tensors(e, rules))
        return syi_aclnn_end(e);
    e->n_tokens = e->view[X].shape[0];
    e->n_rows = e->view[IDS].shape[0] * e->view[IDS].shape[1];
    e->n_experts = first >= 0 && end >= first ? end - first : -1;
    e->number[EXPERTS] = expertNum;
    e->number[PAIRS] = pairs;
    e->number[BY_ROW] = rowIdxType;
    e->number[FIRST] = first;
    check_shapes(e);
    want(e, quantMode == -1, "quantMode", quantMode, "-1: quantisation is not supported");
    want(e, dropPadMode == 0, "dropPadMode", dropPadMode, "0");
    want(e, expertTokensNumType == 1 || pairs, "expertTokensNumType", expertTokensNumType, "1 or 2");
    want(e, expertTokensNumFlag, "expertTokensNumFlag", 0, "true");
    want(e, rowIdxType == 0 || rowIdxType == 1, "rowIdxType", rowIdxType, "0 or 1");
    want(e, expertNum >= 1 && expertNum <= (pairs ? 5120 : 10240), "expertNum", expertNum,
         pairs ? "1 to 5120" : "1 to 10240");
    want(e, activeNum == e->n_rows, "activeNum", activeNum,
         "the number of choices, rows of expertIdx times columns");
    want(e, e->n_experts >= 0 && end <= expertNum && (range == NULL || ranged || range->size == 0),
         "activeExpertRangeOptional", first, "a first and an end from 0 to expertNum");
    plan(e);
    return syi_aclnn_end(e);
}
