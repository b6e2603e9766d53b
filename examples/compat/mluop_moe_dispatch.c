/*
 * A program in the style of Cambricon MLU-OPS: tokens are scaled by their gates and written to the slots of two experts; then
 * the gradients of the slots return to the tokens and to the gates. The last token was dropped: it has no slot, and gradients
 * of 0. The program uses only the vendor's API and is linked with Switchyard's library.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cnrt.h"
#include "mlu_op.h"

#define MLUOP_CHECK(expression) \
    do { \
        const mluOpStatus_t status = (expression); \
        if (status != MLUOP_STATUS_SUCCESS) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #expression, \
                    mluOpGetErrorString(status)); \
            exit(1); \
        } \
    } while (0)

enum { SAMPLES = 5, CAPACITY = 3, HIDDEN = 2, EXPERTS = 2, SLOTS = EXPERTS * CAPACITY };

/* A tensor on the device, with the values of one on the host. */
struct tensor {
    mluOpTensorDescriptor_t desc;
    void *device;
    size_t bytes;
};

static struct tensor to_device(mluOpDataType_t dtype, int dim_nb, int rows, void *values)
{
    struct tensor t;
    size_t element_bytes;
    MLUOP_CHECK(mluOpCreateTensorDescriptor(&t.desc));
    MLUOP_CHECK(mluOpSetTensorDescriptor(t.desc, MLUOP_LAYOUT_ARRAY, dtype, dim_nb, (int[]){rows, HIDDEN}));
    MLUOP_CHECK(mluOpGetSizeOfDataType(dtype, &element_bytes));
    t.bytes = mluOpGetTensorElementNum(t.desc) * element_bytes;
    CNRT_CHECK(cnrtMalloc(&t.device, t.bytes));
    CNRT_CHECK(cnrtMemcpy(t.device, values, t.bytes, cnrtMemcpyHostToDev));
    return t;
}

/* Prints the values that the device has now, and returns how many are not those that are expected. */
static int compare(const char *name, struct tensor t, int columns, float *values, const float *want)
{
    int wrong = 0;
    CNRT_CHECK(cnrtMemcpy(values, t.device, t.bytes, cnrtMemcpyDevToHost));
    printf("%s\n", name);
    for (int i = 0; i < (int)(t.bytes / sizeof *values); i++) {
        printf("%6g%s", values[i], i % columns == columns - 1 ? "\n" : "");
        wrong += values[i] != want[i];
    }
    return wrong;
}

int main(void)
{
    float gates[SAMPLES] = {0.5F, 2, 1, -1, 1};
    int32_t indices[SAMPLES] = {1, 0, 1, 0, 0};    /* the expert of each token */
    int32_t locations[SAMPLES] = {0, 0, 1, 2, -1}; /* its slot there           */
    float input[SAMPLES * HIDDEN] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 9};
    float dispatch[SLOTS * HIDDEN] = {0};
    float grad_dispatch[SLOTS * HIDDEN] = {1, -1, 9, 9, 2, 0.5F, 3, 1, -1, 2, 9, 9};
    float grad_input[SAMPLES * HIDDEN], grad_gates[SAMPLES];

    cnrtQueue_t queue = NULL;
    mluOpHandle_t handle = NULL;
    CNRT_CHECK(cnrtSetDevice(0));
    CNRT_CHECK(cnrtQueueCreate(&queue));
    MLUOP_CHECK(mluOpCreate(&handle));
    MLUOP_CHECK(mluOpSetQueue(handle, queue));
    const struct tensor g = to_device(MLUOP_DTYPE_FLOAT, 1, SAMPLES, gates);
    const struct tensor i = to_device(MLUOP_DTYPE_INT32, 1, SAMPLES, indices);
    const struct tensor l = to_device(MLUOP_DTYPE_INT32, 1, SAMPLES, locations);
    const struct tensor x = to_device(MLUOP_DTYPE_FLOAT, 2, SAMPLES, input);
    const struct tensor d = to_device(MLUOP_DTYPE_FLOAT, 2, SLOTS, dispatch);

    float us = 0;
    cnrtNotifier_t start = NULL, end = NULL;
    CNRT_CHECK(cnrtNotifierCreate(&start));
    CNRT_CHECK(cnrtNotifierCreate(&end));
    CNRT_CHECK(cnrtPlaceNotifier(start, queue));
    MLUOP_CHECK(mluOpMoeDispatchForward(handle, g.desc, g.device, i.desc, i.device, l.desc, l.device, x.desc,
                                        x.device, SAMPLES, CAPACITY, HIDDEN, EXPERTS, d.desc, d.device));
    CNRT_CHECK(cnrtPlaceNotifier(end, queue));
    CNRT_CHECK(cnrtQueueSync(queue));
    CNRT_CHECK(cnrtNotifierDuration(start, end, &us));
    int wrong =
        compare("slots", d, HIDDEN, dispatch, (const float[]){6, 8, 0, 0, -7, -8, 0.5F, 1, 5, 6, 0, 0});
    printf("%.1f us\n", us);

    const struct tensor gd = to_device(MLUOP_DTYPE_FLOAT, 2, SLOTS, grad_dispatch);
    const struct tensor gx = to_device(MLUOP_DTYPE_FLOAT, 2, SAMPLES, input);
    const struct tensor gg = to_device(MLUOP_DTYPE_FLOAT, 1, SAMPLES, gates);
    MLUOP_CHECK(mluOpMoeDispatchBackwardData(handle, g.desc, g.device, i.desc, i.device, l.desc, l.device,
                                             gd.desc, gd.device, SAMPLES, CAPACITY, HIDDEN, EXPERTS, gx.desc,
                                             gx.device));
    size_t workspace_size = 0;
    void *workspace = NULL;
    MLUOP_CHECK(mluOpGetMoeDispatchBackwardGateWorkspaceSize(handle, x.desc, &workspace_size));
    CNRT_CHECK(cnrtMalloc(&workspace, workspace_size));
    MLUOP_CHECK(mluOpMoeDispatchBackwardGate(handle, i.desc, i.device, l.desc, l.device, x.desc, x.device,
                                             gd.desc, gd.device, SAMPLES, CAPACITY, HIDDEN, EXPERTS,
                                             workspace, workspace_size, gg.desc, gg.device));
    CNRT_CHECK(cnrtQueueSync(queue));
    wrong += compare("gradients of tokens", gx, HIDDEN, grad_input,
                     (const float[]){1.5F, 0.5F, 2, -2, -1, 2, -2, -0.5F, 0, 0});
    wrong += compare("gradients of gates", gg, 1, grad_gates, (const float[]){5, -1, 7, 18, 0});

    const struct tensor all[] = {g, i, l, x, d, gd, gx, gg};
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        CNRT_CHECK(cnrtFree(all[n].device));
        MLUOP_CHECK(mluOpDestroyTensorDescriptor(all[n].desc));
    }
    CNRT_CHECK(cnrtFree(workspace));
    CNRT_CHECK(cnrtNotifierDestroy(start));
    CNRT_CHECK(cnrtNotifierDestroy(end));
    MLUOP_CHECK(mluOpDestroy(handle));
    CNRT_CHECK(cnrtQueueDestroy(queue));
    return wrong == 0 ? 0 : 1;
}
