/*
 * A product of two f32 values has at most 48 significant bits and an exponent far inside double's range, so it is exact
 * in double; rounding it once to f32 and once more to the row type is then the definition itself. A result that is NaN
 * is the canonical quiet NaN of its type, which the rounding functions of support.c return.
 */
#include "moe_dispatch.h"

#include <string.h>

#include "../support.h"

static size_t type_size(enum dispatch_type type)
{
    return type == DISPATCH_F32 ? 4 : 2;
}

static uint32_t load(enum dispatch_type type, const void *array, int64_t at)
{
    uint32_t wide = 0;
    uint16_t narrow = 0;
    if (type == DISPATCH_F32)
        memcpy(&wide, (const unsigned char *)array + at * 4, 4);
    else
        memcpy(&narrow, (const unsigned char *)array + at * 2, 2);
    return type == DISPATCH_F32 ? wide : narrow;
}

static void store(enum dispatch_type type, void *array, int64_t at, uint32_t bits)
{
    const uint16_t narrow = (uint16_t)bits;
    if (type == DISPATCH_F32)
        memcpy((unsigned char *)array + at * 4, &bits, 4);
    else
        memcpy((unsigned char *)array + at * 2, &narrow, 2);
}

double oracle_dispatch_value(enum dispatch_type type, uint32_t bits)
{
    if (type == DISPATCH_F16)
        return f16_value((uint16_t)bits);
    if (type == DISPATCH_BF16)
        return bf16_value((uint16_t)bits);
    return f32_from_bits(bits);
}

uint32_t oracle_dispatch_product(enum dispatch_type type, double gate, uint32_t x)
{
    const double exact = gate * oracle_dispatch_value(type, x);
    const uint32_t once = f32_round(exact);
    if (type == DISPATCH_F16)
        return f16_round(f32_from_bits(once));
    if (type == DISPATCH_BF16)
        return bf16_round(f32_from_bits(once));
    return once;
}

/* Nobody writes row `row` when no sample is valid for it: asked sample by sample, without a table. */
static bool written(const struct dispatch_case *in, int64_t row)
{
    for (int64_t i = 0; i < in->samples; i++) {
        const int64_t e = in->indices[i], c = in->locations[i];
        if (e >= 0 && e < in->experts && c >= 0 && c < in->capacity && e * in->capacity + c == row)
            return true;
    }
    return false;
}

void oracle_moe_dispatch(const struct dispatch_case *in, void *dispatch)
{
    const void *input = in->input ? in->input : dispatch;
    for (int64_t i = 0; i < in->samples; i++) {
        const int64_t e = in->indices[i], c = in->locations[i];
        if (e < 0 || e >= in->experts || c < 0 || c >= in->capacity)
            continue;
        const double gate =
            in->gates ? oracle_dispatch_value(in->gate_type, load(in->gate_type, in->gates, i)) : 1.0;
        const int64_t row = e * in->capacity + c;
        for (int64_t h = 0; h < in->hidden; h++) {
            const uint32_t x = load(in->type, input, i * in->hidden + h);
            store(in->type, dispatch, row * in->hidden + h, oracle_dispatch_product(in->type, gate, x));
        }
    }
    const size_t row_bytes = (size_t)in->hidden * type_size(in->type);
    for (int64_t row = 0; in->zero_unwritten && row < in->experts * in->capacity; row++)
        if (!written(in, row))
            memset((unsigned char *)dispatch + (size_t)row * row_bytes, 0, row_bytes);
}
