/*
 * Cell by cell: nothing is remembered from one to the next.
 */
#include "oracle/moe_map_from_ids.h"

#include <string.h>

static bool is_live(const struct map_case *in, int64_t id)
{
    return !(in->allow_missing && (id == -1 || id == in->experts));
}

static sy_fault validate(const struct map_case *in)
{
    for (int64_t t = 0; t < in->tokens; t++)
        for (int64_t j = 0; j < in->slots; j++) {
            const int64_t *row = in->ids + t * in->slots, id = row[j];
            if (!is_live(in, id))
                continue;
            if (id < 0 || id >= in->experts)
                return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "ids", t, j, id, in->experts};
            for (int64_t i = 0; i < j; i++)
                if (row[i] == id)
                    return (sy_fault){SY_ERR_ROUTING, SY_FAULT_DUPLICATE, "ids", t, j, id, i};
        }
    return (sy_fault){.status = SY_OK, .argument = ""};
}

sy_fault oracle_moe_map_from_ids(const struct map_case *in, uint8_t *map, unsigned char *probs)
{
    const sy_fault fault = validate(in);
    const size_t bytes = in->weight_bytes;
    for (int64_t t = 0; fault.status == SY_OK && t < in->tokens; t++)
        for (int64_t e = 0; e < in->experts; e++) {
            const size_t cell = (size_t)(t * in->experts + e);
            map[cell] = 0;
            if (bytes > 0)
                memset(probs + cell * bytes, 0, bytes);
            for (int64_t j = 0; j < in->slots; j++) {
                const size_t slot = (size_t)(t * in->slots + j);
                if (in->ids[slot] != e)
                    continue;
                map[cell] = 1;
                if (bytes > 0)
                    memcpy(probs + cell * bytes, in->weights + slot * bytes, bytes);
            }
        }
    return fault;
}
