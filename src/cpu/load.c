/*
 * Floats of any type, widened and rounded.
 */
#include "cpu/load.h"

float syi_load_float(const unsigned char *p, sy_type type)
{
    if (type == SY_TYPE_F32) {
        float value;
        memcpy(&value, p, sizeof value);
        return value;
    }
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    return type == SY_TYPE_F16 ? syi_f16_to_f32(bits) : syi_bf16_to_f32(bits);
}

void syi_store_float(unsigned char *p, sy_type type, float value)
{
    if (type == SY_TYPE_F32) {
        memcpy(p, &value, sizeof value);
        return;
    }
    const uint16_t bits = type == SY_TYPE_F16 ? syi_f32_to_f16(value) : syi_f32_to_bf16(value);
    memcpy(p, &bits, sizeof bits);
}

float syi_column_float(const struct syi_column *column, int64_t row)
{
    return syi_load_float(syi_row_at(column->rows, row), column->type);
}
