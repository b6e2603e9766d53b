/*
 * A program in the style of Cambricon MLU-OPS: the gradients of the slots return to their tokens, each times
 * its gate. Two of the tokens share a slot and both get its gradient; the last one was dropped, and gets
 * zeros.
 */
#include <stdio.h>

#include "mluop_check.h"

enum { SAMPLES = 4, CAPACITY = 2, HIDDEN = 2, EXPERTS = 1, SLOTS = EXPERTS * CAPACITY };
enum { GATES, INDICES, LOCATIONS, DISPATCH, GRAD_INPUT, TENSORS };

int main(void)
{
    float gates[SAMPLES] = {1, 2, 4, 1};
    int32_t indices[SAMPLES] = {0, 0, 0, 0};
    int32_t locations[SAMPLES] = {1, 1, 0, -1};
    float grad_dispatch[SLOTS][HIDDEN] = {{1, -1}, {2, 0.5F}};
    float grad_input[SAMPLES][HIDDEN] = {{0}};
    const float want[SAMPLES][HIDDEN] = {{2, 0.5F}, {4, 1}, {4, -4}, {0, 0}};

    cnrtQueue_t queue = NULL;
    mluOpHandle_t handle = NULL;
    CNRT_CHECK(cnrtQueueCreate(&queue));
    MLUOP_CHECK(mluOpCreate(&handle));
    MLUOP_CHECK(mluOpSetQueue(handle, queue));

    /* All descriptors at once; the sizes follow each other. */
    mluOpTensorDescriptor_t desc[TENSORS];
    mluOpTensorDescriptor_t *group[TENSORS] = {&desc[GATES], &desc[INDICES], &desc[LOCATIONS],
                                               &desc[DISPATCH], &desc[GRAD_INPUT]};
    const mluOpTensorLayout_t layouts[TENSORS] = {MLUOP_LAYOUT_ARRAY, MLUOP_LAYOUT_ARRAY, MLUOP_LAYOUT_ARRAY,
                                                  MLUOP_LAYOUT_ARRAY, MLUOP_LAYOUT_ARRAY};
    const mluOpDataType_t types[TENSORS] = {MLUOP_DTYPE_FLOAT, MLUOP_DTYPE_INT32, MLUOP_DTYPE_INT32,
                                            MLUOP_DTYPE_FLOAT, MLUOP_DTYPE_FLOAT};
    const int ranks[TENSORS] = {1, 1, 1, 2, 2};
    const int64_t sizes[] = {SAMPLES, SAMPLES, SAMPLES, SLOTS, HIDDEN, SAMPLES, HIDDEN};
    MLUOP_CHECK(mluOpCreateGroupTensorDescriptors(group, TENSORS));
    MLUOP_CHECK(mluOpSetGroupTensorDescriptors_v2(group, layouts, types, ranks, sizes, TENSORS));

    void *const host[TENSORS] = {gates, indices, locations, grad_dispatch, grad_input};
    void *device[TENSORS];
    for (int i = 0; i < TENSORS; i++) {
        const size_t bytes = mluOpGetTensorElementNum(desc[i]) * 4;
        CNRT_CHECK(cnrtMalloc(&device[i], bytes));
        CNRT_CHECK(cnrtMemcpyAsync_V3(device[i], host[i], bytes, queue, cnrtMemcpyHostToDev));
    }
    MLUOP_CHECK(mluOpMoeDispatchBackwardData(handle, desc[GATES], device[GATES], desc[INDICES],
                                             device[INDICES], desc[LOCATIONS], device[LOCATIONS],
                                             desc[DISPATCH], device[DISPATCH], SAMPLES, CAPACITY, HIDDEN,
                                             EXPERTS, desc[GRAD_INPUT], device[GRAD_INPUT]));
    CNRT_CHECK(
        cnrtMemcpyAsync_V3(grad_input, device[GRAD_INPUT], sizeof grad_input, queue, cnrtMemcpyDevToHost));
    CNRT_CHECK(cnrtQueueSync(queue));

    int wrong = 0;
    for (int sample = 0; sample < SAMPLES; sample++) {
        printf("token %d: %4g %4g\n", sample, grad_input[sample][0], grad_input[sample][1]);
        wrong += grad_input[sample][0] != want[sample][0] || grad_input[sample][1] != want[sample][1];
    }

    for (int i = 0; i < TENSORS; i++)
        CNRT_CHECK(cnrtFree(device[i]));
    MLUOP_CHECK(mluOpDestroyGroupTensorDescriptors(group, TENSORS));
    MLUOP_CHECK(mluOpDestroy(handle));
    CNRT_CHECK(cnrtQueueDestroy(queue));
    return wrong == 0 ? 0 : 1;
}
