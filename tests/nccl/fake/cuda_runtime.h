/* What transports/nccl uses of the CUDA runtime, for tests/nccl/fake/nccl.c: the memory of a device is that of the CPU. */
#pragma once

#include <stddef.h>

typedef enum { cudaSuccess = 0, cudaErrorMemoryAllocation = 2, cudaErrorNotReady = 600 } cudaError_t;
typedef struct fake_stream *cudaStream_t; /* also one of the emulated device: only its address is used */
typedef struct fake_event *cudaEvent_t;
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2, cudaHostAllocMapped = 2 };

cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *data);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
