/* Numbers of tensors, one at a time, for the few that this layer computes with. */
#include "internal.h"

#include <string.h>

int64_t syi_aclnn_integer(const aclOpExecutor *e, int i, int64_t row, int64_t column)
{
    const struct syi_aclnn_view *view = &e->view[i];
    const char *at = syi_aclnn_row(view, row) + (size_t)column * view->elem_bytes;
    int64_t wide = 0;
    int32_t narrow = 0;
    if (view->elem_bytes == sizeof wide)
        memcpy(&wide, at, sizeof wide);
    else
        memcpy(&narrow, at, sizeof narrow);
    return view->elem_bytes == sizeof wide ? wide : narrow;
}

void syi_aclnn_set_integer(const aclOpExecutor *e, int i, int64_t n, int64_t value)
{
    const struct syi_aclnn_view *view = &e->view[i];
    const int32_t narrow = (int32_t)value;
    char *at = (char *)view->dl.data + (size_t)n * view->elem_bytes;
    if (view->elem_bytes == sizeof value)
        memcpy(at, &value, sizeof value);
    else
        memcpy(at, &narrow, sizeof narrow);
}

bool syi_aclnn_is_zero(const char *value, size_t bytes)
{
    uint32_t wide = 0;
    uint16_t narrow = 0;
    if (bytes == sizeof narrow)
        memcpy(&narrow, value, sizeof narrow);
    else
        memcpy(&wide, value, sizeof wide);
    return (narrow & 0x7fff) == 0 && (wide & 0x7fffffff) == 0;
}

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
