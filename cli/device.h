/*
 * Devices of a command: --device and --device-library, and the tools of libswitchyard_cuda that a context has loaded.
 */
#pragma once

#include <switchyard_cuda_tools.h>

#include "cli.h"
#include "emit.h"
#include "ops.h"

/* Of the library that a context of this command has loaded; prints the error and returns NULL where there are none. */
const struct sy_cuda_tools *device_tools(const struct common *common);

/* Of the library that a context would load, whether there is a device or not; NULL: there is no such library. */
const struct sy_cuda_tools *device_library(const struct common *common);

/*
 * Copies all tensors of a call, those of further planes too, to the device and puts them into its arguments; and puts the
 * old ones back, after a success with what the call has changed. `status` is that of the call, or of sending. Fields are
 * arrays of one tensor, or of as many as the mesh of the call has devices; what these share stays in CPU memory.
 */
struct device_tensors {
    struct device_twin *twins;
    int n;
};
sy_status device_send(sy_ctx *ctx, DLDevice device, const sy_op_info *op, void *args, int devices,
                      struct device_tensors *tensors);
sy_status device_return(sy_ctx *ctx, struct device_tensors *tensors, sy_status status);

bool device_has(const struct sy_cuda_tools *tools, const char *operator_name);

/* The CUDA device of this number, or false and a sentence. */
bool device_describe(const struct common *common, int number, sy_device_info *info, char *sentence,
                     size_t bytes);

/* "NVIDIA H200, compute capability 9.0, 132 multiprocessors, 139.8 GiB", and the same as an object. */
void device_print(const sy_device_info *info);
void device_emit(struct emit *json, const char *key, int number, const sy_device_info *info);
