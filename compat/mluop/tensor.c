/*
 * Tensor descriptors: creation, setters, groups, getters. All arguments are checked before a field changes.
 */
#include "objects.h"

#include <stdlib.h>

/* Numbers of either width; none at all where both are NULL. */
struct numbers {
    const int *narrow;
    const int64_t *wide;
};

static bool missing(const struct numbers *numbers)
{
    return numbers->narrow == NULL && numbers->wide == NULL;
}

static int64_t number(const struct numbers *numbers, int i)
{
    return numbers->wide != NULL ? numbers->wide[i] : numbers->narrow[i];
}

static void make_fresh(struct mluOpTensorStruct *desc)
{
    *desc = (struct mluOpTensorStruct){.layout = MLUOP_LAYOUT_ARRAY,
                                       .dtype = MLUOP_DTYPE_FLOAT,
                                       .onchip_dtype = MLUOP_DTYPE_INVALID,
                                       .pointer_mode = MLUOP_POINTER_MODE_DEVICE};
    desc->dims = desc->here;
    desc->strides = desc->here + MLUOP_DIM_MAX;
}

static void free_dims(struct mluOpTensorStruct *desc)
{
    if (desc->dims != desc->here)
        free(desc->dims);
}

/* Space for the sizes and strides of so many dimensions; previous contents are lost. */
static bool make_room(struct mluOpTensorStruct *desc, int rank)
{
    int64_t *dims = desc->here;
    int64_t *strides = desc->here + MLUOP_DIM_MAX;
    if (rank > MLUOP_DIM_MAX) {
        dims = calloc((size_t)rank, 2 * sizeof *dims);
        if (dims == NULL)
            return false;
        strides = dims + rank;
    }
    free_dims(desc);
    desc->dims = dims;
    desc->strides = strides;
    desc->rank = rank;
    return true;
}

static bool may_set(const struct mluOpTensorStruct *desc, mluOpTensorLayout_t layout, mluOpDataType_t dtype,
                    int rank)
{
    return desc != NULL && (int)layout >= 0 && (int)dtype >= 0 && rank >= 0 &&
           (rank > 0 || desc->pointer_mode == MLUOP_POINTER_MODE_HOST);
}

/* Without strides the tensor is dense. The element count wraps, as the vendor's does: the operators reject
   negative sizes. */
static mluOpStatus_t set(struct mluOpTensorStruct *desc, mluOpTensorLayout_t layout, mluOpDataType_t dtype,
                         int rank, struct numbers sizes, const struct numbers *strides)
{
    if (!may_set(desc, layout, dtype, rank) ||
        (rank > 0 && (missing(&sizes) || (strides != NULL && missing(strides)))))
        return MLUOP_STATUS_BAD_PARAM;
    if (!make_room(desc, rank))
        return MLUOP_STATUS_ALLOC_FAILED;
    desc->layout = layout;
    desc->dtype = dtype;
    desc->elements = 1;
    for (int i = rank - 1; i >= 0; i--) {
        desc->dims[i] = number(&sizes, i);
        desc->strides[i] = strides != NULL ? number(strides, i) : (int64_t)desc->elements;
        desc->elements *= (uint64_t)desc->dims[i];
    }
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpCreateTensorDescriptor(mluOpTensorDescriptor_t *desc)
{
    if (desc == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    *desc = malloc(sizeof **desc);
    if (*desc == NULL)
        return MLUOP_STATUS_ALLOC_FAILED;
    make_fresh(*desc);
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpResetTensorDescriptor(mluOpTensorDescriptor_t desc)
{
    if (desc == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    free_dims(desc);
    make_fresh(desc);
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpDestroyTensorDescriptor(mluOpTensorDescriptor_t desc)
{
    if (desc == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    free_dims(desc);
    free(desc);
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpSetTensorDescriptorOnchipDataType(mluOpTensorDescriptor_t desc,
                                                     mluOpDataType_t onchip_dtype)
{
    if (desc == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    desc->onchip_dtype = onchip_dtype;
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpSetTensorDescriptorPointerMode(mluOpTensorDescriptor_t desc,
                                                  mluOpPointerMode_t pointer_mode)
{
    if (desc == NULL || (int)pointer_mode < 0)
        return MLUOP_STATUS_BAD_PARAM;
    desc->pointer_mode = pointer_mode;
    return MLUOP_STATUS_SUCCESS;
}

/* Whether the array exists and, for existing descriptors, whether none of them is NULL. */
static bool is_group(mluOpTensorDescriptor_t *const group_desc[], int desc_num, bool filled)
{
    if (group_desc == NULL || desc_num <= 0)
        return false;
    for (int i = 0; i < desc_num; i++)
        if (group_desc[i] == NULL || (filled && *group_desc[i] == NULL))
            return false;
    return true;
}

mluOpStatus_t mluOpCreateGroupTensorDescriptors(mluOpTensorDescriptor_t *group_desc[], int desc_num)
{
    if (!is_group(group_desc, desc_num, false))
        return MLUOP_STATUS_BAD_PARAM;
    for (int i = 0; i < desc_num; i++) {
        const mluOpStatus_t st = mluOpCreateTensorDescriptor(group_desc[i]);
        if (st != MLUOP_STATUS_SUCCESS) {
            while (i-- > 0)
                mluOpDestroyTensorDescriptor(*group_desc[i]);
            return st;
        }
    }
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpDestroyGroupTensorDescriptors(mluOpTensorDescriptor_t *group_desc[], int desc_num)
{
    if (!is_group(group_desc, desc_num, true))
        return MLUOP_STATUS_BAD_PARAM;
    for (int i = 0; i < desc_num; i++)
        mluOpDestroyTensorDescriptor(*group_desc[i]);
    return MLUOP_STATUS_SUCCESS;
}

static mluOpStatus_t set_group(mluOpTensorDescriptor_t *const group_desc[], const mluOpTensorLayout_t *layout,
                               const mluOpDataType_t *dtype, const int *rank, struct numbers sizes,
                               int desc_num)
{
    if (!is_group(group_desc, desc_num, true) || layout == NULL || dtype == NULL || rank == NULL ||
        missing(&sizes))
        return MLUOP_STATUS_BAD_PARAM;
    for (int i = 0; i < desc_num; i++)
        if (!may_set(*group_desc[i], layout[i], dtype[i], rank[i]))
            return MLUOP_STATUS_BAD_PARAM;
    mluOpStatus_t st = MLUOP_STATUS_SUCCESS;
    for (int i = 0; i < desc_num && st == MLUOP_STATUS_SUCCESS; i++) {
        st = set(*group_desc[i], layout[i], dtype[i], rank[i], sizes, NULL);
        if (sizes.wide != NULL)
            sizes.wide += rank[i];
        else
            sizes.narrow += rank[i];
    }
    return st;
}

/* ---- Getters ---- */

/* Space for numbers of either width; none where both are NULL. */
struct places {
    int *narrow;
    int64_t *wide;
};

static bool is_place(const struct places *places)
{
    return places->narrow != NULL || places->wide != NULL;
}

static void put(const struct places *places, int i, int64_t number)
{
    if (places->narrow != NULL)
        places->narrow[i] = (int)number;
    if (places->wide != NULL)
        places->wide[i] = number;
}

/* What has a place; of the functions with strides, everything must. */
static mluOpStatus_t get(const struct mluOpTensorStruct *desc, mluOpTensorLayout_t *layout,
                         mluOpDataType_t *dtype, int *rank, struct places sizes, const struct places *strides)
{
    if (desc == NULL || (strides != NULL && (layout == NULL || dtype == NULL || rank == NULL ||
                                             !is_place(&sizes) || !is_place(strides))))
        return MLUOP_STATUS_BAD_PARAM;
    if (layout != NULL)
        *layout = desc->layout;
    if (dtype != NULL)
        *dtype = desc->dtype;
    if (rank != NULL)
        *rank = desc->rank;
    for (int i = 0; i < desc->rank; i++) {
        put(&sizes, i, desc->dims[i]);
        if (strides != NULL)
            put(strides, i, desc->strides[i]);
    }
    return MLUOP_STATUS_SUCCESS;
}

/* ---- Functions of both widths ---- */

/* Without a suffix they have int sizes, with _v2 int64_t. */
#define OF_WIDTH(suffix, int_type, field) \
    mluOpStatus_t mluOpSetTensorDescriptor##suffix(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t layout, \
                                                   mluOpDataType_t dtype, int dimNb, \
                                                   const int_type dimSize[]) \
    { \
        return set(desc, layout, dtype, dimNb, (struct numbers){.field = dimSize}, NULL); \
    } \
    mluOpStatus_t mluOpSetTensorDescriptorEx##suffix( \
        mluOpTensorDescriptor_t desc, mluOpTensorLayout_t layout, mluOpDataType_t dtype, int dimNb, \
        const int_type dimSize[], const int_type dimStride[]) \
    { \
        const struct numbers strides = {.field = dimStride}; \
        return set(desc, layout, dtype, dimNb, (struct numbers){.field = dimSize}, &strides); \
    } \
    mluOpStatus_t mluOpSetTensorDescriptorDim##suffix(mluOpTensorDescriptor_t desc, int dimNb, \
                                                      const int_type *dimSize) \
    { \
        return desc == NULL \
                   ? MLUOP_STATUS_BAD_PARAM \
                   : mluOpSetTensorDescriptor##suffix(desc, desc->layout, desc->dtype, dimNb, dimSize); \
    } \
    mluOpStatus_t mluOpSetGroupTensorDescriptors##suffix( \
        mluOpTensorDescriptor_t *group_desc[], const mluOpTensorLayout_t group_layout[], \
        const mluOpDataType_t group_dtype[], const int group_dimNb[], const int_type group_dimSize[], \
        int desc_num) \
    { \
        return set_group(group_desc, group_layout, group_dtype, group_dimNb, \
                         (struct numbers){.field = group_dimSize}, desc_num); \
    } \
    mluOpStatus_t mluOpGetTensorDescriptor##suffix(mluOpTensorDescriptor_t desc, \
                                                   mluOpTensorLayout_t *layout, mluOpDataType_t *dtype, \
                                                   int *dimNb, int_type dimSize[]) \
    { \
        return get(desc, layout, dtype, dimNb, (struct places){.field = dimSize}, NULL); \
    } \
    mluOpStatus_t mluOpGetTensorDescriptorEx##suffix(mluOpTensorDescriptor_t desc, \
                                                     mluOpTensorLayout_t *layout, mluOpDataType_t *dtype, \
                                                     int *dimNb, int_type dimSize[], int_type dimStride[]) \
    { \
        const struct places strides = {.field = dimStride}; \
        return get(desc, layout, dtype, dimNb, (struct places){.field = dimSize}, &strides); \
    }
OF_WIDTH(, int, narrow)
OF_WIDTH(_v2, int64_t, wide)

/* ---- Other properties ---- */

mluOpStatus_t mluOpGetTensorDescriptorOnchipDataType(mluOpTensorDescriptor_t desc,
                                                     mluOpDataType_t *onchip_dtype)
{
    if (desc == NULL || onchip_dtype == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    *onchip_dtype = desc->onchip_dtype;
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpGetTensorDescriptorPointerMode(mluOpTensorDescriptor_t desc,
                                                  mluOpPointerMode_t *pointer_mode)
{
    if (desc == NULL || pointer_mode == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    *pointer_mode = desc->pointer_mode;
    return MLUOP_STATUS_SUCCESS;
}

size_t mluOpGetTensorElementNum(mluOpTensorDescriptor_t desc)
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

mluOpStatus_t mluOpGetSizeOfDataType(mluOpDataType_t data_type, size_t *size)
{
    if (size == NULL || bytes_of(data_type) == 0)
        return MLUOP_STATUS_BAD_PARAM;
    *size = bytes_of(data_type);
    return MLUOP_STATUS_SUCCESS;
}
