/*
 * The MLU dispatch operators of Cambricon MLU-OPS 1.11.1, and what a program needs to call them: handles,
 * tensor descriptors, statuses. Names, signatures and values are the vendor's; only top-level const of
 * parameters, which does not affect callers, is left out. The results are those of sy_moe_dispatch,
 * sy_moe_dispatch_grad_data and sy_moe_dispatch_grad_gate, bit for bit. docs/compat/mluop.md has the order
 * of the checks and what differs.
 */
#ifndef SWITCHYARD_MLUOP_MLU_OP_H
#define SWITCHYARD_MLUOP_MLU_OP_H

#include <stddef.h>
#include <stdint.h>

#include "cnrt.h"

#define MLUOP_MAJOR 1
#define MLUOP_MINOR 11
#define MLUOP_PATCHLEVEL 1
#define MLUOP_VERSION (MLUOP_MAJOR * 1000 + MLUOP_MINOR * 100 + MLUOP_PATCHLEVEL)

#define MLUOP_DIM_MAX 8

#ifndef MLUOP_WIN_API
#define MLUOP_WIN_API /* the vendor's calling convention, of Windows only */
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    MLUOP_STATUS_SUCCESS = 0,
    MLUOP_STATUS_NOT_INITIALIZED = 1,
    MLUOP_STATUS_ALLOC_FAILED = 2,
    MLUOP_STATUS_BAD_PARAM = 3,
    MLUOP_STATUS_INTERNAL_ERROR = 4,
    MLUOP_STATUS_ARCH_MISMATCH = 5, /* cannot happen here */
    MLUOP_STATUS_EXECUTION_FAILED = 6,
    MLUOP_STATUS_NOT_SUPPORTED = 7, /* strided, or 2^31 elements and more */
    MLUOP_STATUS_NUMERICAL_OVERFLOW = 8
} mluOpStatus_t;

typedef enum {
    MLUOP_LAYOUT_NCHW = 0,
    MLUOP_LAYOUT_NHWC = 1,
    MLUOP_LAYOUT_HWCN = 2,
    MLUOP_LAYOUT_NDHWC = 3,
    MLUOP_LAYOUT_ARRAY = 4, /* the only one these operators accept */
    MLUOP_LAYOUT_NCDHW = 5,
    MLUOP_LAYOUT_TNC = 6,
    MLUOP_LAYOUT_NTC = 7,
    MLUOP_LAYOUT_NC = 8,
    MLUOP_LAYOUT_NLC = 9,
    MLUOP_LAYOUT_NCL = 10
} mluOpTensorLayout_t;

typedef enum {
    MLUOP_DTYPE_INVALID = 0,
    MLUOP_DTYPE_HALF = 1,
    MLUOP_DTYPE_FLOAT = 2,
    MLUOP_DTYPE_INT8 = 3,
    MLUOP_DTYPE_INT16 = 4,
    MLUOP_DTYPE_INT31 = 5,
    MLUOP_DTYPE_INT32 = 6,
    MLUOP_DTYPE_UINT8 = 7,
    MLUOP_DTYPE_BOOL = 8,
    MLUOP_DTYPE_INT64 = 9,
    MLUOP_DTYPE_UINT32 = 11,
    MLUOP_DTYPE_UINT64 = 12,
    MLUOP_DTYPE_UINT16 = 13,
    MLUOP_DTYPE_DOUBLE = 14,
    MLUOP_DTYPE_COMPLEX_HALF = 15,
    MLUOP_DTYPE_COMPLEX_FLOAT = 16,
    MLUOP_DTYPE_BFLOAT16 = 17
} mluOpDataType_t;

typedef enum { MLUOP_POINTER_MODE_HOST = 0, MLUOP_POINTER_MODE_DEVICE = 1 } mluOpPointerMode_t;

typedef struct mluOpContext *mluOpHandle_t;
typedef struct mluOpTensorStruct *mluOpTensorDescriptor_t;

/* ---- Handle ---- */

/* A handle serves one thread at a time. Its queue is the default one until another is set, and is not owned
   by it. */
mluOpStatus_t mluOpCreate(mluOpHandle_t *handle);
mluOpStatus_t mluOpDestroy(mluOpHandle_t handle);
mluOpStatus_t mluOpSetQueue(mluOpHandle_t handle, cnrtQueue_t queue);
mluOpStatus_t mluOpGetQueue(mluOpHandle_t handle, cnrtQueue_t *queue);

/* The name of the enumerator, or MLUOP_STATUS_UNKNOWN. */
const char *mluOpGetErrorString(mluOpStatus_t status);
void mluOpGetLibVersion(int *major, int *minor, int *patch);

/* ---- Tensor descriptors ---- */

/* Type, layout, sizes and strides (in elements) of a tensor; its address is an argument of the call. A new
   one has no dimension, no element, type FLOAT, layout ARRAY and pointer mode DEVICE. It may be set any number
   of times; after a failure it is unchanged. Sizes may be negative: the operators validate them. */
mluOpStatus_t mluOpCreateTensorDescriptor(mluOpTensorDescriptor_t *desc);
mluOpStatus_t mluOpResetTensorDescriptor(mluOpTensorDescriptor_t desc);
mluOpStatus_t mluOpDestroyTensorDescriptor(mluOpTensorDescriptor_t desc);

/* Dense. Zero dimensions are legal only in pointer mode HOST, and mean one element. */
mluOpStatus_t mluOpSetTensorDescriptor(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t layout,
                                       mluOpDataType_t dtype, int dimNb, const int dimSize[]);
mluOpStatus_t mluOpSetTensorDescriptor_v2(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t layout,
                                          mluOpDataType_t dtype, int dimNb, const int64_t dimSize[]);
/* With strides. */
mluOpStatus_t mluOpSetTensorDescriptorEx(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t layout,
                                         mluOpDataType_t dtype, int dimNb, const int dimSize[],
                                         const int dimStride[]);
mluOpStatus_t mluOpSetTensorDescriptorEx_v2(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t layout,
                                            mluOpDataType_t dtype, int dimNb, const int64_t dimSize[],
                                            const int64_t dimStride[]);
/* Sets the sizes only, dense; type and layout are unchanged. */
mluOpStatus_t mluOpSetTensorDescriptorDim(mluOpTensorDescriptor_t desc, int dimNb, const int *dimSize);
mluOpStatus_t mluOpSetTensorDescriptorDim_v2(mluOpTensorDescriptor_t desc, int dimNb, const int64_t *dimSize);
/* Both are stored and have no effect on these operators. */
mluOpStatus_t mluOpSetTensorDescriptorOnchipDataType(mluOpTensorDescriptor_t desc,
                                                     mluOpDataType_t onchip_dtype);
mluOpStatus_t mluOpSetTensorDescriptorPointerMode(mluOpTensorDescriptor_t desc,
                                                  mluOpPointerMode_t pointer_mode);

/* Any result pointer may be NULL; dimSize needs space for every dimension. */
mluOpStatus_t mluOpGetTensorDescriptor(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t *layout,
                                       mluOpDataType_t *dtype, int *dimNb, int dimSize[]);
mluOpStatus_t mluOpGetTensorDescriptor_v2(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t *layout,
                                          mluOpDataType_t *dtype, int *dimNb, int64_t dimSize[]);
/* Nothing may be NULL. */
mluOpStatus_t mluOpGetTensorDescriptorEx(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t *layout,
                                         mluOpDataType_t *dtype, int *dimNb, int dimSize[], int dimStride[]);
mluOpStatus_t mluOpGetTensorDescriptorEx_v2(mluOpTensorDescriptor_t desc, mluOpTensorLayout_t *layout,
                                            mluOpDataType_t *dtype, int *dimNb, int64_t dimSize[],
                                            int64_t dimStride[]);
mluOpStatus_t mluOpGetTensorDescriptorOnchipDataType(mluOpTensorDescriptor_t desc,
                                                     mluOpDataType_t *onchip_dtype);
mluOpStatus_t mluOpGetTensorDescriptorPointerMode(mluOpTensorDescriptor_t desc,
                                                  mluOpPointerMode_t *pointer_mode);

/* The product of the sizes modulo 2^64; 0 for NULL. */
size_t mluOpGetTensorElementNum(mluOpTensorDescriptor_t desc);
mluOpStatus_t mluOpGetSizeOfDataType(mluOpDataType_t data_type, size_t *size);

/* Several at once: group_desc[i] points to the i-th descriptor, and the sizes of all are stored one
   after the other. */
mluOpStatus_t mluOpCreateGroupTensorDescriptors(mluOpTensorDescriptor_t *group_desc[], int desc_num);
mluOpStatus_t mluOpSetGroupTensorDescriptors(mluOpTensorDescriptor_t *group_desc[],
                                             const mluOpTensorLayout_t group_layout[],
                                             const mluOpDataType_t group_dtype[], const int group_dimNb[],
                                             const int group_dimSize[], int desc_num);
mluOpStatus_t mluOpSetGroupTensorDescriptors_v2(mluOpTensorDescriptor_t *group_desc[],
                                                const mluOpTensorLayout_t group_layout[],
                                                const mluOpDataType_t group_dtype[], const int group_dimNb[],
                                                const int64_t group_dimSize[], int desc_num);
mluOpStatus_t mluOpDestroyGroupTensorDescriptors(mluOpTensorDescriptor_t *group_desc[], int desc_num);

/* ---- MoE dispatch ---- */

/*
 * A sample i is valid when 0 <= indices[i] < num_experts and 0 <= locations[i] < capacity, and its slot is
 * then s = indices[i] * capacity + locations[i]. Sizes: gates, indices, locations, grad_gates [samples];
 * input, grad_input [samples, hidden]; dispatch [num_experts * capacity, hidden]. Types: FLOAT, of indices
 * and locations INT32. Tensors are dense. After any status but SUCCESS the outputs are unchanged.
 *
 * Forward: dispatch[s] = gates[i] * input[i] for valid samples in order, the last one of a slot wins, other
 * rows keep their bytes. dispatch may be input itself.
 */
mluOpStatus_t mluOpMoeDispatchForward(mluOpHandle_t handle, mluOpTensorDescriptor_t gates_desc,
                                      const void *gates, mluOpTensorDescriptor_t indices_desc,
                                      const void *indices, mluOpTensorDescriptor_t locations_desc,
                                      const void *locations, mluOpTensorDescriptor_t input_desc,
                                      const void *input, int samples, int capacity, int hidden,
                                      int num_experts, mluOpTensorDescriptor_t dispatch_desc, void *dispatch);

/* grad_input[i] = gates[i] * dispatch[s], or +0 for a sample that is not valid. */
mluOpStatus_t mluOpMoeDispatchBackwardData(mluOpHandle_t handle, mluOpTensorDescriptor_t gates_desc,
                                           const void *gates, mluOpTensorDescriptor_t indices_desc,
                                           const void *indices, mluOpTensorDescriptor_t locations_desc,
                                           const void *locations, mluOpTensorDescriptor_t dispatch_desc,
                                           const void *dispatch, int samples, int capacity, int hidden,
                                           int num_experts, mluOpTensorDescriptor_t grad_input_desc,
                                           void *grad_input);

/* grad_gates[i] = the dot product of dispatch[s] and input[i], or +0 for a sample that is not valid. It
   needs no workspace, and accepts one of any size. */
mluOpStatus_t mluOpGetMoeDispatchBackwardGateWorkspaceSize(mluOpHandle_t handle,
                                                           mluOpTensorDescriptor_t input_desc,
                                                           size_t *workspace_size);
mluOpStatus_t mluOpMoeDispatchBackwardGate(mluOpHandle_t handle, mluOpTensorDescriptor_t indices_desc,
                                           const void *indices, mluOpTensorDescriptor_t locations_desc,
                                           const void *locations, mluOpTensorDescriptor_t input_desc,
                                           const void *input, mluOpTensorDescriptor_t dispatch_desc,
                                           const void *dispatch, int samples, int capacity, int hidden,
                                           int num_experts, void *workspace, size_t workspace_size,
                                           mluOpTensorDescriptor_t grad_gates_desc, void *grad_gates);

#ifdef __cplusplus
}
#endif

#endif
