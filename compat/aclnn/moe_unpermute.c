/*
 * aclnnMoeTokenUnpermuteWithRoutingMap: sy_moe_unpermute, and three outputs for the vendor's backward pass: indices in
 * another order, and the weights that were used.
 */
#include "internal.h"

#include <string.h>

enum { PERMUTED, INDICES, MAP, PROBS, TOKENS, OUT_INDEX, TOKEN_ID, PERMUTED_PROBS, N_TENSORS };

#define TO(field) SYI_ACLNN_FIELD(moe_unpermute, field)

/* ---- Outputs for the backward pass ---- */

enum { NUMBERS, PLACES, ORDER, LIVE_MAP }; /* of `list`: three of n_rows numbers */

/* permuteProbs, packed: the weights of a token's experts, at its slots that hold a row. */
static sy_status keep_packed_probs(const aclOpExecutor *e)
{
    const int64_t k = e->n_rows / e->n_tokens;
    int64_t shape[2] = {e->n_tokens, k};
    char *probs = e->view[PERMUTED_PROBS].dl.data;
    const DLTensor ids = sy_tensor(e->list[NUMBERS].data, SY_I32, 2, shape);
    const DLTensor weights = sy_tensor(probs, e->view[PERMUTED_PROBS].dl.dtype, 2, shape);
    const sy_moe_ids_from_map_args args = {.routing_map = e->args.unpermute.routing_map,
                                           .probs = syi_aclnn_arg(e, PROBS),
                                           .k = k,
                                           .ids = &ids,
                                           .weights = &weights};
    const sy_status status = sy_moe_ids_from_map(e->ctx, &args);
    const size_t bytes = e->view[PERMUTED_PROBS].elem_bytes;
    for (int64_t t = 0; status == SY_OK && t < e->n_tokens; t++) {
        char *row = probs + (size_t)(t * k) * bytes;
        int64_t n = 0;
        for (int64_t j = 0; j < k; j++)
            n += syi_aclnn_integer(e, INDICES, t * k + j, 0) >= 0;
        for (int64_t j = k; j-- > 0;) /* from the end, in place: n is never beyond j */
            if (syi_aclnn_integer(e, INDICES, t * k + j, 0) >= 0)
                memmove(row + (size_t)j * bytes, row + (size_t)--n * bytes, bytes);
            else
                memset(row + (size_t)j * bytes, 0, bytes);
    }
    return status;
}

/* permuteProbs, padded: the weight of each row. */
static void keep_padded_probs(const aclOpExecutor *e)
{
    const struct syi_aclnn_view *probs = &e->view[PROBS], *out = &e->view[PERMUTED_PROBS];
    const int64_t per_expert = e->n_rows / e->n_experts;
    for (int64_t i = 0; i < e->n_rows; i++) {
        const char *row = syi_aclnn_row(probs, syi_aclnn_integer(e, INDICES, i, 0));
        memcpy((char *)out->dl.data + (size_t)i * out->elem_bytes,
               row + (size_t)(i / per_expert) * out->elem_bytes, out->elem_bytes);
    }
}

/* outIndex and permuteTokenId, padded: sorted_indices in stable ascending order. sy_moe_permute_ids sorts
   them; the rows it moves are the row numbers. */
static sy_status keep_padded_order(const aclOpExecutor *e)
{
    int64_t shape[2] = {e->n_rows, 1};
    int32_t *numbers = e->list[NUMBERS].data, *order = e->list[ORDER].data;
    for (int64_t i = 0; i < e->n_rows; i++)
        numbers[i] = (int32_t)i;
    const DLTensor rows = sy_tensor(numbers, SY_I32, 2, shape), sorted = sy_tensor(order, SY_I32, 2, shape);
    const DLTensor ids = sy_tensor(e->view[INDICES].dl.data, SY_I32, 2, shape);
    const sy_moe_permute_ids_args args = {
        .tokens = &rows, .ids = &ids, .permuted_tokens = &sorted, .sorted_indices = &e->list[PLACES]};
    const sy_status status = sy_moe_permute_ids(e->ctx, &args);
    for (int64_t i = 0; status == SY_OK && i < e->n_rows; i++) {
        if (e->view[OUT_INDEX].taken)
            syi_aclnn_set_integer(e, OUT_INDEX, i, order[i]);
        if (e->view[TOKEN_ID].taken)
            syi_aclnn_set_integer(e, TOKEN_ID, i, syi_aclnn_integer(e, INDICES, order[i], 0));
    }
    return status;
}

static void keep_packed_order(const aclOpExecutor *e)
{
    if (e->view[OUT_INDEX].taken)
        memcpy(e->view[OUT_INDEX].dl.data, e->view[INDICES].dl.data, (size_t)e->n_rows * sizeof(int32_t));
    for (int64_t i = 0; e->view[TOKEN_ID].taken && i < e->n_rows; i++)
        syi_aclnn_set_integer(e, TOKEN_ID, i, i / (e->n_rows / e->n_tokens));
}

static aclnnStatus run(aclOpExecutor *e)
{
    const bool padded = e->args.unpermute.drop_and_pad;
    const struct syi_aclnn_slots slots = {MAP, PROBS, INDICES};
    if (!padded && e->view[PROBS].taken)
        e->args.unpermute.routing_map = syi_aclnn_live_map(e, slots, e->list[LIVE_MAP].data);
    const aclnnStatus st = syi_aclnn_call(e);
    if (st != ACLNN_SUCCESS || e->n_rows == 0 || e->n_tokens == 0)
        return st;
    sy_status status = SY_OK;
    if (padded && (e->view[OUT_INDEX].taken || e->view[TOKEN_ID].taken))
        status = keep_padded_order(e);
    else if (!padded)
        keep_packed_order(e);
    if (status == SY_OK && e->view[PERMUTED_PROBS].taken && padded)
        keep_padded_probs(e);
    else if (status == SY_OK && e->view[PERMUTED_PROBS].taken)
        status = keep_packed_probs(e);
    return syi_aclnn_status(e, status);
}

/* ---- The first phase ---- */

/* T, from probs or else the restore shape, which must then be {T, H}. */
static void find_tokens(aclOpExecutor *e, const aclIntArray *restore_shape)
{
    const int64_t hidden = e->view[PERMUTED].shape[1];
    const struct syi_aclnn_view *probs = &e->view[PROBS], *map = &e->view[MAP];
    e->n_rows = e->view[INDICES].shape[0];
    e->n_experts = probs->taken ? probs->shape[1] : map->taken ? map->shape[1] : 0;
    if (probs->taken || restore_shape == NULL) /* one of them is there */
        e->n_tokens = probs->shape[0];
    else if (restore_shape->size == 2 && restore_shape->value[0] >= 0 && restore_shape->value[1] == hidden)
        e->n_tokens = restore_shape->value[0];
    else
        SYI_ACLNN_INVALID(
            e, "restoreShapeOptional has %llu numbers and ends in %lld, want the number of tokens and %lld",
            (unsigned long long)restore_shape->size,
            restore_shape->size > 0 ? (long long)restore_shape->value[restore_shape->size - 1] : 0,
            (long long)hidden);
}

/* Memory for the outputs of the backward pass, and scratch of the operators that compute them. */
static void need_kept(aclOpExecutor *e)
{
    int64_t shape[2] = {e->n_rows, 1};
    const DLTensor rows = sy_tensor(NULL, SY_I32, 2, shape);
    const sy_moe_permute_ids_args order = {.tokens = &rows, .ids = &rows};
    (void)syi_aclnn_query_of(e, "moe_permute_ids", &order, sizeof order);
    if (e->view[PERMUTED_PROBS].taken && e->view[MAP].taken && e->n_tokens > 0) {
        const sy_moe_ids_from_map_args ids = {.routing_map = syi_aclnn_arg(e, MAP),
                                              .probs = syi_aclnn_arg(e, PROBS),
                                              .k = e->n_rows / e->n_tokens};
        (void)syi_aclnn_query_of(e, "moe_ids_from_map", &ids, sizeof ids);
    }
    const bool weighs = e->view[PROBS].taken && !e->args.unpermute.drop_and_pad;
    for (int i = NUMBERS; (weighs || e->view[OUT_INDEX].taken || e->view[TOKEN_ID].taken) && i <= ORDER; i++)
        (void)syi_aclnn_list(e, i, SY_I32, e->n_rows, -1);
    if (weighs)
        (void)syi_aclnn_list(e, LIVE_MAP, SY_U8, e->n_tokens, e->n_experts);
}

static const struct syi_aclnn_op op = {"aclnnMoeTokenUnpermuteWithRoutingMap", SYI_ACLNN_CALLS(moe_unpermute),
                                       run, .prepare = need_kept};

SYI_ACLNN_OPERATOR(aclnnMoeTokenUnpermuteWithRoutingMap, op, const aclTensor *permutedTokens,
                   const aclTensor *sortedIndices, const aclTensor *routingMapOptional,
                   const aclTensor *probsOptional, bool paddedMode, const aclIntArray *restoreShapeOptional,
                   aclTensor *unpermutedTokens, aclTensor *outIndex, aclTensor *permuteTokenId,
                   aclTensor *permuteProbs)
{
    const unsigned optional = SYI_ACLNN_OPTIONAL, kept = SYI_ACLNN_OUTPUT | optional;
    const unsigned i32 = SYI_ACLNN_I32, wide = optional | SYI_ACLNN_WIDENS;
    const struct syi_aclnn_rule rules[N_TENSORS] = {
        [PERMUTED] = {SYI_NAMED(permutedTokens), 0, SYI_ACLNN_FLOATS, 0, 2, TO(permuted_tokens)},
        [INDICES] = {SYI_NAMED(sortedIndices), 0, i32, 0, 1, TO(sorted_indices)},
        [MAP] = {SYI_NAMED(routingMapOptional), optional, SYI_ACLNN_BYTES, 0, 2, TO(routing_map)},
        [PROBS] = {SYI_NAMED(probsOptional), wide, 0, PERMUTED + 1, 2, TO(probs)},
        [TOKENS] = {SYI_NAMED(unpermutedTokens), SYI_ACLNN_OUTPUT, 0, PERMUTED + 1, 2, TO(tokens)},
        [OUT_INDEX] = {SYI_NAMED(outIndex), kept, i32, 0, 1, 0},
        [TOKEN_ID] = {SYI_NAMED(permuteTokenId), kept, i32, 0, 1, 0},
        [PERMUTED_PROBS] = {SYI_NAMED(permuteProbs), kept | SYI_ACLNN_BESIDE, 0, PROBS + 1, 1, 0},
    };
    aclOpExecutor *e = syi_aclnn_begin(&op, rules, N_TENSORS, workspaceSize, executor);
    if (probsOptional == NULL && restoreShapeOptional == NULL)
        syi_aclnn_reject(e, ACLNN_ERR_PARAM_NULLPTR,
                         "probsOptional and restoreShapeOptional are null, want one of them, for the "
                         "number of tokens");
    if (probsOptional != NULL && !paddedMode && routingMapOptional == NULL)
        syi_aclnn_reject(e, ACLNN_ERR_PARAM_NULLPTR,
                         "routingMapOptional is null beside packed probsOptional, want the experts "
                         "of each token");
    if (!syi_aclnn_check_tensors(e, rules))
        return syi_aclnn_end(e);
    find_tokens(e, restoreShapeOptional);
    e->args.unpermute.num_tokens = e->n_tokens;
    e->args.unpermute.drop_and_pad = paddedMode;
    (void)syi_aclnn_query(e);
    syi_aclnn_check_limits(e, paddedMode);
    syi_aclnn_check_shape(e, TOKENS, e->n_tokens, e->view[PERMUTED].shape[1]);
    for (int i = OUT_INDEX; i <= PERMUTED_PROBS; i++)
        syi_aclnn_check_shape(e, i, e->n_rows, -1);
    return syi_aclnn_end(e);
}
