/*
 * Slot by slot: nothing is remembered from one to the next.
 */
#include "oracle/moe_ids_from_map.h"

#include <string.h>

/* Experts of a token below e. */
static int64_t experts_below(const struct ids_case *in, int64_t t, int64_t e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < e; i++)
        n += in->map[t * in->experts + i] != 0;
    return n;
}

sy_fault oracle_moe_ids_from_map(const struct ids_case *in, int64_t *ids, unsigned char *weights)
{
    const size_t bytes = in->weight_bytes;
    for (int64_t t = 0; t < in->tokens; t++) {
        const int64_t n = experts_below(in, t, in->experts);
        if (n > in->slots)
            return (sy_fault){SY_ERR_ROUTING, SY_FAULT_ROW_OVERFULL, "routing_map", -1, t, n, in->slots};
    }
    for (int64_t t = 0; t < in->tokens; t++)
        for (int64_t j = 0; j < in->slots; j++) {
            const size_t slot = (size_t)(t * in->slots + j);
            ids[slot] = -1;
            if (bytes > 0)
                memset(weights + slot * bytes, 0, bytes);
            for (int64_t e = 0; e < in->experts; e++) {
                const size_t cell = (size_t)(t * in->experts + e);
                if (in->map[cell] == 0 || experts_below(in, t, e) != j)
                    continue;
                ids[slot] = e;
                if (bytes > 0)
                    memcpy(weights + slot * bytes, in->probs + cell * bytes, bytes);
            }
        }
    return (sy_fault){.status = SY_OK, .argument = ""};
}
