/*
 * The order of additions is the contract, so it is followed here too, but one lane after the other instead of sixteen
 * side by side, and with arithmetic that rounds where the definition says and nowhere else.
 */
#include "moe_dispatch_grad_gate.h"

#include <math.h>
#include <string.h>

#include "../support.h"
#include "moe_combine.h"

enum { LANES = 16, BLOCK = 8192 };

static double value_at(enum dispatch_type type, const void *array, int64_t at)
{
    uint32_t wide = 0;
    uint16_t narrow = 0;
    if (type == DISPATCH_F32)
        memcpy(&wide, (const unsigned char *)array + at * 4, 4);
    else
        memcpy(&narrow, (const unsigned char *)array + at * 2, 2);
    return oracle_dispatch_value(type, type == DISPATCH_F32 ? wide : narrow);
}

/* First elements of the two rows, or false when the choice is not valid. */
static bool rows_of(const struct grad_gate_case *in, int64_t choice, int64_t sample, int64_t *x, int64_t *z)
{
    const int64_t at = choice * in->samples + sample, e = in->indices[at], c = in->locations[at];
    *x = sample * in->hidden;
    *z = (e * in->capacity + c) * in->hidden;
    return e >= 0 && e < in->experts && c >= 0 && c < in->capacity;
}

static float block_sum(const struct grad_gate_case *in, int64_t x, int64_t z, int64_t n)
{
    float lane[LANES];
    for (int64_t l = 0; l < LANES; l++) {
        lane[l] = 0;
        for (int64_t j = l; j < n; j += LANES) {
            const double exact = value_at(in->type, in->input, x + j) * value_at(in->type, in->slots, z + j);
            lane[l] = oracle_sum(lane[l], f32_from_bits(f32_round(exact)));
        }
    }
    for (int64_t width = LANES / 2; width > 0; width /= 2)
        for (int64_t l = 0; l < width; l++)
            lane[l] = oracle_sum(lane[l], lane[l + width]);
    return lane[0];
}

void oracle_moe_dispatch_grad_gate(const struct grad_gate_case *in, void *grad_gates)
{
    for (int64_t t = 0; t < in->choices; t++)
        for (int64_t i = 0; i < in->samples; i++) {
            int64_t x, z;
            float sum = 0;
            const bool valid = rows_of(in, t, i, &x, &z);
            for (int64_t first = 0; valid && first < in->hidden; first += BLOCK)
                sum = oracle_sum(sum, block_sum(in, x + first, z + first,
                                                in->hidden - first < BLOCK ? in->hidden - first : BLOCK));
            const uint32_t wide = f32_round(sum);
            const uint16_t narrow = in->gate_type == DISPATCH_F16 ? f16_round(sum) : bf16_round(sum);
            const size_t at = (size_t)(t * in->samples + i);
            if (in->gate_type == DISPATCH_F32)
                memcpy((unsigned char *)grad_gates + at * 4, &wide, 4);
            else
                memcpy((unsigned char *)grad_gates + at * 2, &narrow, 2);
        }
}

double oracle_gate_f64(const struct grad_gate_case *in, int64_t choice, int64_t sample, double *size)
{
    int64_t x, z;
    double sum = 0;
    *size = 0;
    if (!rows_of(in, choice, sample, &x, &z))
        return 0;
    for (int64_t j = 0; j < in->hidden; j++) {
        const double p = value_at(in->type, in->input, x + j) * value_at(in->type, in->slots, z + j);
        sum += p;
        *size += fabs(p);
    }
    return sum;
}
