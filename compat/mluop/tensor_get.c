/*
 * Tensor descriptors: getters.
 */
#include "objects.h"

static void get_common(const struct mluOpTensorStruct *desc, mluOpTensorLayout_t *layout,
                       mluOpDataType_t *dtype, int *rank)
{
    if (layout != NULL)
        *layout = desc->layout;
    if (dtype != NULL)
        *dtype = desc->dtype;
    if (rank != NULL)
        *rank = desc->rank;
}

mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptor(mluOpTensorDescriptor_t desc,
                                                     mluOpTensorLayout_t *layout, mluOpDataType_t *dtype,
                                                     int *dimNb, int dimSize[])
{
    if (desc == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    get_common(desc, layout, dtype, dimNb);
    for (int i = 0; dimSize != NULL && i < desc->rank; i++)
        dimSize[i] = (int)desc->dims[i];
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptor_v2(mluOpTensorDescriptor_t desc,
                                                        mluOpTensorLayout_t *layout, mluOpDataType_t *dtype,
                                                        int *dimNb, int64_t dimSize[])
{
    if (desc == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    get_common(desc, layout, dtype, dimNb);
    for (int i = 0; dimSize != NULL && i < desc->rank; i++)
        dimSize[i] = desc->dims[i];
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptorEx(mluOpTensorDescriptor_t desc,
                                                       mluOpTensorLayout_t *layout, mluOpDataType_t *dtype,
                                                       int *dimNb, int dimSize[], int dimStride[])
{
    if (desc == NULL || layout == NULL || dtype == NULL || dimNb == NULL || dimSize == NULL ||
        dimStride == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    get_common(desc, layout, dtype, dimNb);
    for (int i = 0; i < desc->rank; i++) {
        dimSize[i] = (int)desc->dims[i];
        dimStride[i] = (int)desc->strides[i];
    }
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t MLUOP_WIN_API mluOpGetTensorDescriptorEx_v2(mluOpTensorDescriptor_t desc,
                                                          mluOpTensorLayout_t *layout, mluOpDataType_t *dtype,
                                                          int *dimNb, int64_t dimSize[], int64_t dimStride[])
{
    if (desc == NULL || layout == NULL || dtype == NULL || dimNb == NULL || dimSize == NULL ||
        dimStride == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    get_common(desc, layout, dtype, dimNb);
    for (int i = 0; i < desc->rank; i++) {
        dimSize[i] = desc->dims[i];
        dimStride[i] = desc->strides[i];
    }
    return MLUOP_STATUS_SUCCESS;
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

static size_t bytes_of(mluOpDataType_t type)
{
    switch (type) {
    case MLUOP_DTYPE_INT8:
    case MLUOP_DTYPE_UINT8:
    case MLUOP_DTYPE_BOOL:
        return 1;
    case MLUOP_DTYPE_HALF:
    case MLUOP_DTYPE_BFLOAT16:
    case MLUOP_DTYPE_INT16:
    case MLUOP_DTYPE_UINT16:
        return 2;
    case MLUOP_DTYPE_FLOAT:
    case MLUOP_DTYPE_INT31:
    case MLUOP_DTYPE_INT32:
    case MLUOP_DTYPE_UINT32:
    case MLUOP_DTYPE_COMPLEX_HALF:
        return 4;
    case MLUOP_DTYPE_DOUBLE:
    case MLUOP_DTYPE_INT64:
    case MLUOP_DTYPE_UINT64:
    case MLUOP_DTYPE_COMPLEX_FLOAT:
        return 8;
    default: /* INVALID, and numbers that name no type */
        return 0;
    }
}

mluOpStatus_t MLUOP_WIN_API mluOpGetSizeOfDataType(mluOpDataType_t data_type, size_t *size)
{
    if (size == NULL || bytes_of(data_type) == 0)
        return MLUOP_STATUS_BAD_PARAM;
    *size = bytes_of(data_type);
    return MLUOP_STATUS_SUCCESS;
}
