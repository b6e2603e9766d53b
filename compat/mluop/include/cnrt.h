/*
 * The part of Cambricon's runtime API that programs around the MLU dispatch operators use, with the
 * vendor's names and values, over libswitchyard_mluop. There is one device, number 0, and it is this
 * process: device memory is host memory, and every call has ended when it returns. docs/compat/mluop.md
 * lists the differences.
 */
#ifndef SWITCHYARD_MLUOP_CNRT_H
#define SWITCHYARD_MLUOP_CNRT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CNRT_MAJOR_VERSION 6
#define CNRT_MINOR_VERSION 14
#define CNRT_PATCH_VERSION 1
#ifndef CNRT_VERSION
#define CNRT_VERSION (CNRT_MAJOR_VERSION * 10000 + CNRT_MINOR_VERSION * 100 + CNRT_PATCH_VERSION)
#endif

/* The values that this library returns, and that programs test for. */
typedef enum {
    cnrtSuccess = 0,
    cnrtErrorNotReady = 1,
    cnrtErrorInit = 100002,
    cnrtErrorNoDevice = 100004,
    cnrtErrorDeviceInvalid = 100005, /* not device 0 */
    cnrtErrorArgsInvalid = 100006,   /* a null pointer */
    cnrtErrorSys = 100007,
    cnrtErrorSysNoMem = 100010, /* of the host */
    cnrtErrorInvalidResourceHandle = 100014,
    cnrtErrorIllegalState = 100015, /* a notifier that was never placed */
    cnrtErrorNotSupport = 100050,
    cnrtErrorQueue = 100060,
    cnrtErrorNoMem = 100100, /* of the device */
    cnrtErrorMemcpyDirectionInvalid = 632013,
    cnrtErrorUnknown = 999991
} cnrtRet_t;
#define CNRT_RET_SUCCESS cnrtSuccess

typedef enum {
    cnrtMemcpyHostToDev = 0,
    cnrtMemcpyDevToDev = 1,
    cnrtMemcpyDevToHost = 2,
    cnrtMemcpyHostToHost = 3,
    cnrtMemcpyPeerToPeer = 4,
    cnrtMemcpyNoDirection = 5
} cnrtMemTransDir_t;
#define CNRT_MEM_TRANS_DIR_HOST2DEV cnrtMemcpyHostToDev
#define CNRT_MEM_TRANS_DIR_DEV2DEV cnrtMemcpyDevToDev
#define CNRT_MEM_TRANS_DIR_DEV2HOST cnrtMemcpyDevToHost
#define CNRT_MEM_TRANS_DIR_HOST2HOST cnrtMemcpyHostToHost
#define CNRT_MEM_TRANS_DIR_PEER2PEER cnrtMemcpyPeerToPeer
#define CNRT_MEM_TRANS_DIR_NODIR cnrtMemcpyNoDirection

/* The size and kind of a kernel launch, for programs that compute them. There are no kernels here. */
typedef struct {
    unsigned int x, y, z;
} cnrtDim3_t;
typedef enum {
    cnrtFuncTypeBlock = 1,
    cnrtFuncTypeBlock0 = cnrtFuncTypeBlock,
    cnrtFuncTypeBlock1 = cnrtFuncTypeBlock0 + 1,
    cnrtFuncTypeUnion1 = 4,
    cnrtFuncTypeUnion2 = 8,
    cnrtFuncTypeUnion4 = 16,
    cnrtFuncTypeUnion8 = 32,
    cnrtFuncTypeUnion16 = 64,
    cnrtFuncTypeMutable = -1
} cnrtFunctionType_t;
#define CNRT_FUNC_TYPE_BLOCK cnrtFuncTypeBlock
#define CNRT_FUNC_TYPE_UNION1 cnrtFuncTypeUnion1
#define CNRT_FUNC_TYPE_UNION2 cnrtFuncTypeUnion2
#define CNRT_FUNC_TYPE_UNION4 cnrtFuncTypeUnion4
#define CNRT_FUNC_TYPE_UNION8 cnrtFuncTypeUnion8
#define CNRT_FUNC_TYPE_MUTABLE cnrtFuncTypeMutable

typedef struct CNqueue_st *cnrtQueue_t; /* NULL is the default queue, always there */
typedef struct CNnotifier_st *cnrtNotifier_t;

/* The version whose names and values these are: CNRT_MAJOR_VERSION and so on. */
cnrtRet_t cnrtGetLibVersion(int *major, int *minor, int *patch);

/* Devices: there is one. A reset has no effect: memory stays until it is freed. */
cnrtRet_t cnrtGetDevice(int *ordinal);
cnrtRet_t cnrtSetDevice(int ordinal);
cnrtRet_t cnrtGetDeviceCount(unsigned int *count);
cnrtRet_t cnrtSyncDevice(void);
cnrtRet_t cnrtDeviceReset(void);

/* Memory. It is not cleared, and untouched pages use no memory. 0 bytes succeed and give NULL, which may be
   freed. */
cnrtRet_t cnrtMalloc(void **ptr, size_t bytes);
cnrtRet_t cnrtFree(void *ptr);
cnrtRet_t cnrtHostMalloc(void **ptr, size_t bytes);
cnrtRet_t cnrtFreeHost(void *ptr);
cnrtRet_t cnrtMemcpy(void *dst, void *src, size_t bytes, cnrtMemTransDir_t dir);
cnrtRet_t cnrtMemcpyAsync_V3(void *dst, void *src, size_t bytes, cnrtQueue_t queue, cnrtMemTransDir_t dir);
cnrtRet_t cnrtMemGetInfo(size_t *available, size_t *total); /* bytes of the machine */
cnrtRet_t cnrtMemset(void *ptr, int value, size_t bytes);
cnrtRet_t cnrtMemsetAsync(void *ptr, int value, size_t bytes, cnrtQueue_t queue);

/* Queues, and notifiers to take the time between two places in one. */
cnrtRet_t cnrtQueueCreate(cnrtQueue_t *queue);
cnrtRet_t cnrtQueueDestroy(cnrtQueue_t queue);
cnrtRet_t cnrtQueueSync(cnrtQueue_t queue);
cnrtRet_t cnrtQueueWaitNotifier(cnrtNotifier_t notifier, cnrtQueue_t queue, unsigned int flags); /* flags 0 */
cnrtRet_t cnrtNotifierCreate(cnrtNotifier_t *notifier);
cnrtRet_t cnrtNotifierDestroy(cnrtNotifier_t notifier);
cnrtRet_t cnrtPlaceNotifier(cnrtNotifier_t notifier, cnrtQueue_t queue);
cnrtRet_t cnrtNotifierDuration(cnrtNotifier_t start, cnrtNotifier_t end, float *us);
cnrtRet_t cnrtNotifierElapsedTime(cnrtNotifier_t start, cnrtNotifier_t end, float *ms);

/* Errors. Each call returns its own and nothing is remembered between calls, so the last one is
   cnrtSuccess. */
const char *cnrtGetErrorStr(cnrtRet_t err_code);
cnrtRet_t cnrtGetLastError(void);
cnrtRet_t cnrtPeekAtLastError(void);

/* In the calling program: prints what failed, and exits. */
#define CNRT_CHECK(expression) \
    do { \
        const cnrtRet_t cnrt_check_ret = (expression); \
        if (cnrt_check_ret != cnrtSuccess) { \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #expression, \
                    cnrtGetErrorStr(cnrt_check_ret)); \
            exit(1); \
        } \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
