/*
 * Types of Cambricon's driver API, for programs that include its header beside cnrt.h. There is no driver: its functions
 * are not part of this library.
 */
#ifndef SWITCHYARD_MLUOP_CN_API_H
#define SWITCHYARD_MLUOP_CN_API_H

#include <stdint.h>

#include "cnrt.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { CN_SUCCESS = 0, CN_ERROR_UNKNOWN = 200000 } CNresult;

typedef int CNdev;
typedef uint64_t CNaddr;
typedef struct CNcontext_st *CNcontext;
typedef struct CNqueue_st *CNqueue; /* a cnrtQueue_t */
typedef struct CNnotifier_st *CNnotifier;

#ifdef __cplusplus
}
#endif

#endif
