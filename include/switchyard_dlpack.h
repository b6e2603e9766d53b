/*
 * The tensor type of switchyard.h: DLTensor, as DLPack defines it (https://github.com/dmlc/dlpack).
 *
 * A DLPack header that was included before, or that the compiler finds as <dlpack/dlpack.h>, is used. Where there
 * is none, the part that Switchyard needs is declared here, with the same names, numbers and layout: programs and
 * libraries built with either fit together. With SY_NO_DLPACK_HEADER defined, no header is looked for.
 *
 * A DLPack header that is included after these declarations is an error of the compiler, not a silent mix: its
 * guard is left undefined on purpose, since a program that includes it needs more of it than is here. Include it
 * before switchyard.h.
 */
#ifndef SWITCHYARD_DLPACK_H
#define SWITCHYARD_DLPACK_H

#if !defined(SY_NO_DLPACK_HEADER) && defined(__has_include)
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif
#endif

#ifndef DLPACK_DLPACK_H_

#include <stdint.h>

#ifdef __cplusplus
typedef enum : int32_t {
#else
typedef enum {
#endif
    kDLCPU = 1, /* declared twice? Include the DLPack header before switchyard.h */
    kDLCUDA = 2,
    kDLCUDAHost = 3,
    kDLVulkan = 7,
    kDLROCM = 10,
    kDLROCMHost = 11,
    kDLCUDAManaged = 13
} DLDeviceType;

typedef struct {
    DLDeviceType device_type;
    int32_t device_id;
} DLDevice;

typedef enum { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4, kDLComplex = 5 } DLDataTypeCode;

typedef struct {
    uint8_t code; /* a DLDataTypeCode, or a newer number: see SY_BOOL */
    uint8_t bits; /* of one element */
    uint16_t lanes;
} DLDataType;

typedef struct {
    void *data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t *shape;
    int64_t *strides;     /* in elements; NULL: compact and row-major */
    uint64_t byte_offset; /* from data to the first element */
} DLTensor;

#endif /* DLPACK_DLPACK_H_ */
#endif /* SWITCHYARD_DLPACK_H */
