/*
 * Pairs of weight 0. A routing map may name an expert whose slot holds no row, if its weight is 0: in the vendor's
 * packed unpermute a token has one slot per expert of the map, and such a pair adds nothing. Our operators require as
 * many experts as slots with a row. So they get a map without these pairs.
 */
#include "internal.h"

#include <string.h>

/* Removes from `row`, the experts of token t, those of weight 0 whose slot is empty, if it has more experts than slots
   with a row. Returns whether any was removed. */
static bool thin(const aclOpExecutor *e, struct syi_aclnn_slots slots, int64_t t, uint8_t *row)
{
    const int64_t k = e->n_rows / e->n_tokens;
    const struct syi_aclnn_view *probs = &e->view[slots.probs];
    int64_t live = 0, routed = 0, n = 0;
    bool thinned = false;
    for (int64_t j = 0; j < k; j++)
        live += syi_aclnn_integer(e, slots.indices, t * k + j, 0) >= 0;
    for (int64_t expert = 0; live < k && expert < e->n_experts; expert++)
        routed += row[expert] != 0;
    for (int64_t expert = 0; routed > live && expert < e->n_experts; expert++) {
        if (row[expert] == 0)
            continue;
        const bool empty = n < k && syi_aclnn_integer(e, slots.indices, t * k + n, 0) < 0;
        n++;
        if (empty && syi_aclnn_is_zero(syi_aclnn_row(probs, t) + (size_t)expert * probs->elem_bytes,
                                       probs->elem_bytes)) {
            row[expert] = 0;
            thinned = true;
        }
    }
    return thinned;
}

const DLTensor *syi_aclnn_live_map(aclOpExecutor *e, struct syi_aclnn_slots slots, char *memory)
{
    const struct syi_aclnn_view *map = &e->view[slots.map];
    const size_t row_bytes = (size_t)e->n_experts;
    bool thinned = false;
    for (int64_t t = 0; e->n_rows > 0 && t < e->n_tokens; t++) {
        uint8_t *row = (uint8_t *)memory + (size_t)t * row_bytes;
        memcpy(row, syi_aclnn_row(map, t), row_bytes);
        thinned |= thin(e, slots, t, row);
    }
    if (!thinned)
        return &map->dl;
    e->map = map->dl;
    e->map.data = memory;
    e->map.strides = NULL;
    return &e->map;
}
