/*
 * The lowest free token is looked for from the start every time.
 */
#include "oracle/moe_pad_map.h"

static int64_t tokens_of(int64_t tokens, int64_t experts, const uint8_t *map, int64_t e)
{
    int64_t n = 0;
    for (int64_t t = 0; t < tokens; t++)
        n += map[t * experts + e] != 0;
    return n;
}

int64_t oracle_moe_pad_map(int64_t tokens, int64_t experts, int64_t alignment, uint8_t *map, int64_t *counts)
{
    for (int64_t e = 0; e < experts; e++) {
        while (tokens_of(tokens, experts, map, e) % alignment) {
            int64_t t = 0;
            while (t < tokens && map[t * experts + e])
                t++;
            if (t == tokens)
                return e;
            map[t * experts + e] = 1;
        }
        counts[e] = tokens_of(tokens, experts, map, e);
    }
    return -1;
}
