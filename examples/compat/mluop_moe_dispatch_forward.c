/*
 * A program in the style of Cambricon MLU-OPS: four tokens are scaled by their gates and written to the slots
 * of two experts. It uses only the vendor's API and is linked with Switchyard's library.
 */
#include <stdio.h>

#include "mluop_check.h"

enum { SAMPLES = 4, CAPACITY = 3, HIDDEN = 2, EXPERTS = 2, SLOTS = EXPERTS * CAPACITY };

/* A tensor on the device: its descriptor, and a copy of its values. */
static void *to_device(mluOpTensorDescriptor_t *desc, mluOpDataType_t dtype, int dim_nb, const int dims[],
                       void *values)
{
    void *device = NULL;
    size_t element_bytes;
    MLUOP_CHECK(mluOpCreateTensorDescriptor(desc));
    MLUOP_CHECK(mluOpSetTensorDescriptor(*desc, MLUOP_LAYOUT_ARRAY, dtype, dim_nb, dims));
    MLUOP_CHECK(mluOpGetSizeOfDataType(dtype, &element_bytes));
    const size_t bytes = mluOpGetTensorElementNum(*desc) * element_bytes;
    CNRT_CHECK(cnrtMalloc(&device, bytes));
    CNRT_CHECK(cnrtMemcpy(device, values, bytes, cnrtMemcpyHostToDev));
    return device;
}

int main(void)
{
    float gates[SAMPLES] = {0.5F, 2, 1, -1};
    int32_t indices[SAMPLES] = {1, 0, 1, 0};   /* the expert of each token */
    int32_t locations[SAMPLES] = {0, 0, 1, 2}; /* its slot there           */
    float input[SAMPLES][HIDDEN] = {{1, 2}, {3, 4}, {5, 6}, {7, 8}};
    float dispatch[SLOTS][HIDDEN] = {{0}};
    const float want[SLOTS][HIDDEN] = {{6, 8}, {0, 0}, {-7, -8}, {0.5F, 1}, {5, 6}, {0, 0}};

    int device = 0;
    cnrtQueue_t queue = NULL;
    mluOpHandle_t handle = NULL;
    CNRT_CHECK(cnrtGetDevice(&device));
    CNRT_CHECK(cnrtSetDevice(device));
    CNRT_CHECK(cnrtQueueCreate(&queue));
    MLUOP_CHECK(mluOpCreate(&handle));
    MLUOP_CHECK(mluOpSetQueue(handle, queue));

    mluOpTensorDescriptor_t gates_desc, indices_desc, locations_desc, input_desc, dispatch_desc;
    void *gates_dev = to_device(&gates_desc, MLUOP_DTYPE_FLOAT, 1, (int[]){SAMPLES}, gates);
    void *indices_dev = to_device(&indices_desc, MLUOP_DTYPE_INT32, 1, (int[]){SAMPLES}, indices);
    void *locations_dev = to_device(&locations_desc, MLUOP_DTYPE_INT32, 1, (int[]){SAMPLES}, locations);
    void *input_dev = to_device(&input_desc, MLUOP_DTYPE_FLOAT, 2, (int[]){SAMPLES, HIDDEN}, input);
    void *dispatch_dev = to_device(&dispatch_desc, MLUOP_DTYPE_FLOAT, 2, (int[]){SLOTS, HIDDEN}, dispatch);

    float us = 0;
    cnrtNotifier_t start = NULL, end = NULL;
    CNRT_CHECK(cnrtNotifierCreate(&start));
    CNRT_CHECK(cnrtNotifierCreate(&end));
    CNRT_CHECK(cnrtPlaceNotifier(start, queue));
    MLUOP_CHECK(mluOpMoeDispatchForward(handle, gates_desc, gates_dev, indices_desc, indices_dev,
                                        locations_desc, locations_dev, input_desc, input_dev, SAMPLES,
                                        CAPACITY, HIDDEN, EXPERTS, dispatch_desc, dispatch_dev));
    CNRT_CHECK(cnrtPlaceNotifier(end, queue));
    CNRT_CHECK(cnrtQueueSync(queue));
    CNRT_CHECK(cnrtNotifierDuration(start, end, &us));
    CNRT_CHECK(cnrtMemcpy(dispatch, dispatch_dev, sizeof dispatch, cnrtMemcpyDevToHost));

    int wrong = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        printf("expert %d slot %d: %4g %4g\n", slot / CAPACITY, slot % CAPACITY, dispatch[slot][0],
               dispatch[slot][1]);
        wrong += dispatch[slot][0] != want[slot][0] || dispatch[slot][1] != want[slot][1];
    }
    printf("%.1f us\n", us);

    CNRT_CHECK(cnrtNotifierDestroy(start));
    CNRT_CHECK(cnrtNotifierDestroy(end));
    CNRT_CHECK(cnrtFree(gates_dev));
    CNRT_CHECK(cnrtFree(indices_dev));
    CNRT_CHECK(cnrtFree(locations_dev));
    CNRT_CHECK(cnrtFree(input_dev));
    CNRT_CHECK(cnrtFree(dispatch_dev));
    MLUOP_CHECK(mluOpDestroyTensorDescriptor(gates_desc));
    MLUOP_CHECK(mluOpDestroyTensorDescriptor(indices_desc));
    MLUOP_CHECK(mluOpDestroyTensorDescriptor(locations_desc));
    MLUOP_CHECK(mluOpDestroyTensorDescriptor(input_desc));
    MLUOP_CHECK(mluOpDestroyTensorDescriptor(dispatch_desc));
    MLUOP_CHECK(mluOpDestroy(handle));
    CNRT_CHECK(cnrtQueueDestroy(queue));
    return wrong == 0 ? 0 : 1;
}
