/*
 * A program in the style of Cambricon MLU-OPS: the gradient of the gates, which is the dot product of each
 * token with the gradient in its slot. The size of the workspace is queried first; here it is 0.
 */
#include <stdio.h>

#include "mluop_check.h"

enum { SAMPLES = 4, CAPACITY = 2, HIDDEN = 2, EXPERTS = 1, SLOTS = EXPERTS * CAPACITY };
enum { INDICES, LOCATIONS, INPUT, DISPATCH, GRAD_GATES, TENSORS };

static mluOpTensorDescriptor_t describe(mluOpDataType_t dtype, int dim_nb, int rows, int columns)
{
    mluOpTensorDescriptor_t desc = NULL;
    MLUOP_CHECK(mluOpCreateTensorDescriptor(&desc));
    MLUOP_CHECK(mluOpSetTensorDescriptor(desc, MLUOP_LAYOUT_ARRAY, dtype, dim_nb, (int[]){rows, columns}));
    return desc;
}

int main(void)
{
    int32_t indices[SAMPLES] = {0, 0, 0, 0};
    int32_t locations[SAMPLES] = {1, 1, 0, -1};
    float input[SAMPLES][HIDDEN] = {{1, 2}, {3, 4}, {5, 6}, {7, 7}};
    float grad_dispatch[SLOTS][HIDDEN] = {{1, -1}, {2, 0.5F}};
    float grad_gates[SAMPLES] = {0};
    const float want[SAMPLES] = {3, 8, -1, 0};

    mluOpHandle_t handle = NULL;
    MLUOP_CHECK(mluOpCreate(&handle)); /* on the default queue */
    const mluOpTensorDescriptor_t desc[TENSORS] = {
        describe(MLUOP_DTYPE_INT32, 1, SAMPLES, 0), describe(MLUOP_DTYPE_INT32, 1, SAMPLES, 0),
        describe(MLUOP_DTYPE_FLOAT, 2, SAMPLES, HIDDEN), describe(MLUOP_DTYPE_FLOAT, 2, SLOTS, HIDDEN),
        describe(MLUOP_DTYPE_FLOAT, 1, SAMPLES, 0)};
    void *const host[TENSORS] = {indices, locations, input, grad_dispatch, grad_gates};
    void *device[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        const size_t bytes = mluOpGetTensorElementNum(desc[i]) * 4;
        CNRT_CHECK(cnrtMalloc(&device[i], bytes));
        CNRT_CHECK(cnrtMemcpy(device[i], host[i], bytes, cnrtMemcpyHostToDev));
    }

    size_t workspace_size = 0;
    void *workspace = NULL;
    MLUOP_CHECK(mluOpGetMoeDispatchBackwardGateWorkspaceSize(handle, desc[INPUT], &workspace_size));
    CNRT_CHECK(cnrtMalloc(&workspace, workspace_size));
    MLUOP_CHECK(mluOpMoeDispatchBackwardGate(handle, desc[INDICES], device[INDICES], desc[LOCATIONS],
                                             device[LOCATIONS], desc[INPUT], device[INPUT], desc[DISPATCH],
                                             device[DISPATCH], SAMPLES, CAPACITY, HIDDEN, EXPERTS, workspace,
                                             workspace_size, desc[GRAD_GATES], device[GRAD_GATES]));
    CNRT_CHECK(cnrtQueueSync(NULL));
    CNRT_CHECK(cnrtMemcpy(grad_gates, device[GRAD_GATES], sizeof grad_gates, cnrtMemcpyDevToHost));

    int wrong = 0;
    for (int sample = 0; sample < SAMPLES; sample++) {
        printf("token %d: %g\n", sample, grad_gates[sample]);
        wrong += grad_gates[sample] != want[sample];
    }

    CNRT_CHECK(cnrtFree(workspace));
    for (int i = 0; i < TENSORS; i++) {
        CNRT_CHECK(cnrtFree(device[i]));
        MLUOP_CHECK(mluOpDestroyTensorDescriptor(desc[i]));
    }
    MLUOP_CHECK(mluOpDestroy(handle));
    return wrong == 0 ? 0 : 1;
}
