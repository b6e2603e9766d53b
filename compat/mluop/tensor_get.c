/*
 * Tensor descriptors: getters.
 */
#include "objects.h"

/* Space for numbers of either width; none where both are NULL. */
struct places {
    int *narrow;
    int64_t *wide;
};

static void put(const struct places *places, int i, int64_t number)
{
    if (places->narrow != NULL)
        places->narrow[i] = (int)number;
    if (places->wide != NULL)
        places->wide[i] = number;
}

/* What has a place. */
static mluOpStatus_t get(const struct mluOpTensorStruct *desc, mluOpTensorLayout_t *layout,
                         mluOpDataType_t *dtype, int *rank, struct places sizes, struct places strides)
{
    if (desc == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    if (layout != NULL)
        *layout = desc->layout;
    if (dtype != NULL)
        *dtype = desc->dtype;
    if (rank != NULL)
        *rank = desc->rank;
    for (int i = 0; i < desc->rank; i++) {
        put(&sizes, i, desc->dims[i]);
        put(&strides, i, desc->strides[i]);
    }
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptor(mluOpTensorDescriptor_t desc,
                                                     mluOpTensorLayout_t *layout, mluOpDataType_t *dtype,
                                                     int *dimNb, int dimSize[])
{
    return get(desc, layout, dtype, dimNb, (struct places){.narrow = dimSize}, (struct places){NULL, NULL});
}

mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptor_v2(mluOpTensorDescriptor_t desc,
                                                        mluOpTensorLayout_t *layout, mluOpDataType_t *dtype,
                                                        int *dimNb, int64_t dimSize[])
{
    return get(desc, layout, dtype, dimNb, (struct places){.wide = dimSize}, (struct places){NULL, NULL});
}

mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptorEx(mluOpTensorDescriptor_t desc,
                                                       mluOpTensorLayout_t *layout, mluOpDataType_t *dtype,
                                                       int *dimNb, int dimSize[], int dimStride[])
{
    if (layout == NULL || dtype == NULL || dimNb == NULL || dimSize == NULL || dimStride == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    return get(desc, layout, dtype, dimNb, (struct places){.narrow = dimSize},
               (struct places){.narrow = dimStride});
}

mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptorEx_v2(mluOpTensorDescriptor_t desc,
                                                          mluOpTensorLayout_t *layout, mluOpDataType_t *dtype,
                                                          int *dimNb, int64_t dimSize[], int64_t dimStride[])
{
    if (layout == NULL || dtype == NULL || dimNb == NULL || dimSize == NULL || dimStride == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    return get(desc, layout, dtype, dimNb, (struct places){.wide = dimSize},
               (struct places){.wide = dimStride});
}

mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptorOnchipDataType(mluOpTensorDescriptor_t desc,
                                                                   mluOpDataType_t *onchip_dtype)
{
    if (desc == NULL || onchip_dtype == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    *onchip_dtype = desc->onchip_dtype;
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptorPointerMode(mluOpTensorDescriptor_t desc,
                                                                mluOpPointerMode_t *pointer_mode)
{
    if (desc == NULL || pointer_mode == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    *pointer_mode = desc->pointer_mode;
    return MLUOP_STATUS_SUCCESS;
}

size_t MLUOP_WIN_API mluOpGetTensorElementNum(mluOpTensorDescriptor_t desc)
{
    return desc == NULL ? 0 : (size_t)desc->elements;
}

/* 0 for INVALID, and for numbers that name no type. */
static size_t bytes_of(mluOpDataType_t type)
{
    static const unsigned char bytes[] = {
        [MLUOP_DTYPE_INT8] = 1,         [MLUOP_DTYPE_UINT8] = 1,    [MLUOP_DTYPE_BOOL] = 1,
        [MLUOP_DTYPE_HALF] = 2,         [MLUOP_DTYPE_BFLOAT16] = 2, [MLUOP_DTYPE_INT16] = 2,
        [MLUOP_DTYPE_UINT16] = 2,       [MLUOP_DTYPE_FLOAT] = 4,    [MLUOP_DTYPE_INT31] = 4,
        [MLUOP_DTYPE_INT32] = 4,        [MLUOP_DTYPE_UINT32] = 4,   [MLUOP_DTYPE_COMPLEX_HALF] = 4,
        [MLUOP_DTYPE_DOUBLE] = 8,       [MLUOP_DTYPE_INT64] = 8,    [MLUOP_DTYPE_UINT64] = 8,
        [MLUOP_DTYPE_COMPLEX_FLOAT] = 8};
    return (int)type >= 0 && (size_t)type < sizeof bytes ? bytes[type] : 0;
}

mluOpStatus_t MLUOP_WIN_API mluOpGetSizeOfDataType(mluOpDataType_t data_type, size_t *size)
{
    if (size == NULL || bytes_of(data_type) == 0)
        return MLUOP_STATUS_BAD_PARAM;
    *size = bytes_of(data_type);
    return MLUOP_STATUS_SUCCESS;
}
