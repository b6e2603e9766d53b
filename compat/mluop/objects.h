/*
 * The structs of the vendor's opaque types, and the checks that the operators share. This library is a thin
 * layer: descriptors become DLTensors, and the operators are those of switchyard.h.
 */
#pragma once

/* This library exports the vendor's names; everything else in it is hidden. */
#pragma GCC visibility push(default)
#include "mlu_op.h"
#pragma GCC visibility pop

#include <switchyard.h>

#define SYI_MLUOP_ARCH_370 372                      /* the oldest device these operators run on */
#define SYI_MLUOP_LARGE_TENSOR UINT64_C(2147483648) /* the first element count that is too large */

/* The first three fields have the offsets of the vendor's struct: its argument tests read queue and arch. */
struct mluOpContext {
    int64_t device;
    cnrtQueue_t queue;
    int32_t arch;
    sy_ctx *ctx;
    bool on_device; /* the context has a device */
};

struct mluOpTensorStruct {
    mluOpTensorLayout_t layout;
    mluOpDataType_t dtype;
    mluOpDataType_t onchip_dtype;
    mluOpPointerMode_t pointer_mode;
    int rank;
    uint64_t elements;
    int64_t *dims;    /* [rank], in the struct, or allocated for more than MLUOP_DIM_MAX */
    int64_t *strides; /* [rank], stored as dims */
    int64_t here[2 * MLUOP_DIM_MAX];
};

/* This thread's context for the device that the environment names (cnrt_memory.c). cnrtErrorNoDevice if it cannot be had;
   *ctx is NULL without a name. */
cnrtRet_t syi_mluop_device(sy_ctx **ctx);
void syi_mluop_device_close(void);

/* A tensor of a call, and its requirements. */
struct syi_mluop_operand {
    mluOpTensorDescriptor_t desc;
    const void *data;
    mluOpDataType_t dtype;
    int rank;
    int64_t shape[2];
};

/* The scalars of a call. */
struct syi_mluop_sizes {
    int samples, capacity, hidden, num_experts;
};

static inline int64_t syi_mluop_slots(const struct syi_mluop_sizes *sizes)
{
    return (int64_t)sizes->num_experts * sizes->capacity;
}

enum { SYI_MLUOP_OUTPUT = 4, SYI_MLUOP_OPERANDS }; /* the last one is the output */

/* BAD_PARAM: no handle, a descriptor that is missing or of another rank, type, layout or shape, a negative scalar; then
   NOT_SUPPORTED: a tensor with elements that are not dense; BAD_PARAM: not `fits`, what the operator finds in its scalars;
   NOT_SUPPORTED: a tensor of 2^31 elements or more. */
mluOpStatus_t syi_mluop_check(mluOpHandle_t handle, const struct syi_mluop_operand operands[],
                              const struct syi_mluop_sizes *sizes, bool fits);

/* Whether operands that have passed these checks leave something to compute; `tensors` of them point to the sizes of the
   descriptors. Else *status is the answer: without elements there is nothing to do, but a gradient becomes +0 where only
   other tensors are empty. BAD_PARAM: data that are missing, or `lacks_workspace`. */
bool syi_mluop_ready(mluOpHandle_t handle, const struct syi_mluop_operand operands[], bool is_gradient,
                     bool lacks_workspace, DLTensor tensors[], mluOpStatus_t *status);

/* The vendor's status for a status of the operator. */
mluOpStatus_t syi_mluop_status(sy_status status);
