/*
 * Checks of the tensors of a call, in the vendor's order. The vendor's three operators order the checks that
 * end in BAD_PARAM differently; the caller cannot observe which of them failed first, so they share one order
 * here. Tensor data is never read.
 */
#include "objects.h"

#include "../device.h"

static bool has_form(const struct syi_mluop_operand *o)
{
    const struct mluOpTensorStruct *const d = o->desc;
    if (d->rank != o->rank || d->dtype != o->dtype || d->layout != MLUOP_LAYOUT_ARRAY)
        return false;
    for (int i = 0; i < o->rank; i++)
        if (d->dims[i] != o->shape[i])
            return false;
    return true;
}

static mluOpStatus_t check_described(mluOpHandle_t handle, const struct syi_mluop_operand operands[],
                                     const struct syi_mluop_sizes *sizes)
{
    if (handle == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    for (int i = 0; i < SYI_MLUOP_OPERANDS; i++)
        if (operands[i].desc == NULL)
            return MLUOP_STATUS_BAD_PARAM;
    if (sizes->samples < 0 || sizes->capacity < 0 || sizes->hidden < 0 || sizes->num_experts < 0)
        return MLUOP_STATUS_BAD_PARAM;
    for (int i = 0; i < SYI_MLUOP_OPERANDS; i++)
        if (!has_form(&operands[i]))
            return MLUOP_STATUS_BAD_PARAM;
    return MLUOP_STATUS_SUCCESS;
}

/* A dimension of size 1 may have any stride. */
static bool strided(const struct mluOpTensorStruct *d)
{
    uint64_t dense = 1;
    for (int i = d->rank - 1; i >= 0; i--) {
        if (d->dims[i] != 1 && (uint64_t)d->strides[i] != dense)
            return true;
        dense *= (uint64_t)d->dims[i];
    }
    return false;
}

mluOpStatus_t syi_mluop_check(mluOpHandle_t handle, const struct syi_mluop_operand operands[],
                              const struct syi_mluop_sizes *sizes, bool fits)
{
    const mluOpStatus_t st = check_described(handle, operands, sizes);
    if (st != MLUOP_STATUS_SUCCESS)
        return st;
    for (int i = 0; i < SYI_MLUOP_OPERANDS; i++)
        if (operands[i].desc->elements != 0 && strided(operands[i].desc))
            return MLUOP_STATUS_NOT_SUPPORTED;
    if (!fits)
        return MLUOP_STATUS_BAD_PARAM;
    for (int i = 0; i < SYI_MLUOP_OPERANDS; i++)
        if (operands[i].desc->elements >= SYI_MLUOP_LARGE_TENSOR)
            return MLUOP_STATUS_NOT_SUPPORTED;
    return MLUOP_STATUS_SUCCESS;
}

bool syi_mluop_ready(mluOpHandle_t handle, const struct syi_mluop_operand operands[], bool is_gradient,
                     bool lacks_workspace, DLTensor tensors[], mluOpStatus_t *status)
{
    const struct syi_mluop_operand *const output = &operands[SYI_MLUOP_OUTPUT];
    bool empty = false, missing = lacks_workspace;
    for (int i = 0; i < SYI_MLUOP_OPERANDS; i++) {
        const struct syi_mluop_operand *const o = &operands[i];
        void *const data = (void *)(uintptr_t)o->data; /* DLPack has no const; inputs are only read */
        empty = empty || o->desc->elements == 0;
        missing = missing || data == NULL;
        tensors[i] = sy_tensor(data, o->dtype == MLUOP_DTYPE_INT32 ? SY_I32 : SY_F32, o->rank, o->desc->dims);
        if (handle->on_device && syi_device_has(handle->ctx, data))
            tensors[i].device = syi_device_wanted();
    }
    *status = MLUOP_STATUS_SUCCESS;
    if (output->desc->elements == 0 || (empty && !is_gradient))
        return false;
    if (empty && output->data != NULL) /* the other pointers are not checked */
        *status = syi_mluop_status(syi_device_fill(handle->on_device ? handle->ctx : NULL,
                                                   tensors[SYI_MLUOP_OUTPUT].data, 0,
                                                   (size_t)output->desc->elements * sizeof(float)));
    else if (empty || missing)
        *status = MLUOP_STATUS_BAD_PARAM;
    return !empty && !missing;
}

mluOpStatus_t syi_mluop_status(sy_status status)
{
    switch (status) {
    case SY_OK:
        return MLUOP_STATUS_SUCCESS;
    case SY_ERR_NULL:
    case SY_ERR_DTYPE:
    case SY_ERR_SHAPE:
    case SY_ERR_STRIDE:
    case SY_ERR_VALUE:
    case SY_ERR_OVERFLOW:
    case SY_ERR_ALIAS:
        return MLUOP_STATUS_BAD_PARAM;
    case SY_ERR_NOMEM:
        return MLUOP_STATUS_ALLOC_FAILED;
    default:
        return MLUOP_STATUS_EXECUTION_FAILED;
    }
}
