/* Numbers of the float types, one at a time, for the few that this layer computes with. */
#include "internal.h"

#include <string.h>

float syi_aclnn_float(const char *value, aclDataType type)
{
    uint16_t half = 0;
    float wide = 0;
    if (type == ACL_FLOAT) {
        memcpy(&wide, value, sizeof wide);
        return wide;
    }
    memcpy(&half, value, sizeof half);
    if (type == ACL_FLOAT16)
        return aclFloat16ToFloat(half);
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(&wide, &bits, sizeof wide);
    return wide;
}

void syi_aclnn_set_float(char *value, aclDataType type, float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    const bool nan = (bits & 0x7fffffff) > 0x7f800000;
    uint16_t half = nan ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16); /* to nearest even */
    if (type == ACL_FLOAT16)
        half = nan ? 0x7e00 : aclFloatToFloat16(number);
    if (type == ACL_FLOAT)
        memcpy(value, &number, sizeof number);
    else
        memcpy(value, &half, sizeof half);
}
