/* What transports/nccl uses of NCCL, implemented by nccl.c between processes of one machine. */
#pragma once

#include <cuda_runtime.h>

typedef struct fake_comm *ncclComm_t;
typedef struct {
    char internal[128];
} ncclUniqueId;
typedef enum {
    ncclSuccess,
    ncclUnhandledCudaError,
    ncclSystemError,
    ncclInternalError,
    ncclInvalidArgument,
    ncclInvalidUsage,
    ncclRemoteError,
    ncclInProgress
} ncclResult_t;
typedef enum { ncclChar } ncclDataType_t;
typedef struct {
    int blocking, minCTAs, maxCTAs;
} ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER \
    { \
        1, 0, 0 \
    }

/* For tests: the n-th "stream", "event", "pinned" memory, "id", "init" of a communicator, or connection of one ("late") from now on fails;
   0: none. Then how many streams, events, pieces of pinned memory and communicators there are. */
void fake_nccl_fail(const char *what, int n);
int fake_nccl_live(void);

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state);
ncclResult_t ncclCommCount(ncclComm_t comm, int *n);
ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank);
ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclAllGather(const void *send, void *recv, size_t bytes, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream);
ncclResult_t ncclSend(const void *data, size_t bytes, ncclDataType_t type, int rank, ncclComm_t comm,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void *data, size_t bytes, ncclDataType_t type, int rank, ncclComm_t comm,
                      cudaStream_t stream);
