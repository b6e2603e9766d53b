/*
 * Permuted bf16 rows, f32 probs and the routing they belong to, for the inverse of moe_permute and the gradients.
 */
#include "described.h"

#include <string.h>

void rows_make(struct bench_call *c, const DLTensor **map, const DLTensor **index, const DLTensor **permuted)
{
    const int64_t tokens = bench_size(c, "T="), k = bench_size(c, "K="), hidden = bench_size(c, "H=");
    bench_in(c, map, SY_BOOL, DIMS(tokens, bench_size(c, "E=")), BENCH_ONCE, fill_route, k);
    bench_in(c, index, SY_I32, DIMS(tokens * k), BENCH_ONCE, fill_slot_rows, 0);
    if (permuted)
        bench_in(c, permuted, SY_BF16, DIMS(tokens * k, hidden), BENCH_COPIES, fill_numbers, 0);
    bench_scratch(c, (size_t)hidden * sizeof(float));
}

size_t rows_bytes(const struct bench_call *c)
{
    const int64_t rows = bench_size(c, "T=") * (bench_size(c, "K=") + 1);
    return (size_t)(rows * bench_size(c, "H=")) * sizeof(uint16_t);
}

void rows_plain_sum(const struct bench_call *c, const DLTensor *permuted, const DLTensor *scales,
                    const DLTensor *probs, const DLTensor *tokens)
{
    const DLTensor *const map = bench_named(c, "routing_map");
    const int64_t experts = map->shape[1], hidden = permuted->shape[1];
    const int32_t *slot = bench_named(c, "sorted_indices")->data;
    const uint8_t *const routed = map->data;
    const float *const weights = probs ? probs->data : NULL;
    float *const sum = c->scratch;
    for (int64_t t = 0; t < map->shape[0]; t++) {
        memset(sum, 0, (size_t)hidden * sizeof *sum);
        for (int64_t e = 0; e < experts; e++) {
            if (routed[t * experts + e] == 0)
                continue;
            const float weight = weights ? weights[t * experts + e] : 1.0f;
            const int64_t first = *slot++ * hidden;
            for (int64_t h = 0; h < hidden; h++)
                sum[h] +=
                    weight * (scales != NULL ? bench_decoded(c->format, permuted, scales, first + h)
                                             : bf16_to_float(((const uint16_t *)permuted->data)[first + h]));
        }
        for (int64_t h = 0; h < hidden; h++)
            ((uint16_t *)tokens->data)[t * hidden + h] = bf16_from_float(sum[h]);
    }
}
