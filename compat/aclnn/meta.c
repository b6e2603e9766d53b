/*
 * Descriptors: tensors, arrays, scalars, lists. Each is one block of memory that holds copies of its arguments, except
 * the data of tensors.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

struct aclScalar {
    aclDataType type;
    unsigned char value[16]; /* the largest is COMPLEX128 */
};

/* ---- Element types ---- */

size_t aclDataTypeSize(aclDataType dataType)
{
    static const unsigned char bytes[] = {
        [ACL_INT8] = 1,        [ACL_UINT8] = 1,         [ACL_BOOL] = 1,        [ACL_HIFLOAT8] = 1,
        [ACL_FLOAT8_E5M2] = 1, [ACL_FLOAT8_E4M3FN] = 1, [ACL_FLOAT8_E8M0] = 1, [ACL_FLOAT16] = 2,
        [ACL_BF16] = 2,        [ACL_INT16] = 2,         [ACL_UINT16] = 2,      [ACL_FLOAT] = 4,
        [ACL_INT32] = 4,       [ACL_UINT32] = 4,        [ACL_COMPLEX32] = 4,   [ACL_INT64] = 8,
        [ACL_UINT64] = 8,      [ACL_DOUBLE] = 8,        [ACL_COMPLEX64] = 8,   [ACL_COMPLEX128] = 16,
    };
    return dataType >= 0 && (size_t)dataType < sizeof bytes ? bytes[dataType] : 0;
}

float aclFloat16ToFloat(aclFloat16 value)
{
    const uint32_t sign = (uint32_t)(value & 0x8000) << 16;
    const uint32_t rest = value & 0x7fff;
    uint32_t bits;
    float result;
    if (rest >= 0x7c00) { /* infinity, NaN */
        bits = 0x7f800000 | (rest & 0x3ff) << 13;
    } else if (rest >= 0x0400) {
        bits = (rest << 13) + ((127 - 15) << 23);
    } else { /* zero, subnormal: the fraction times 2^-24, exactly */
        const float small = (float)rest * 0x1p-24f;
        memcpy(&bits, &small, sizeof bits);
    }
    bits |= sign;
    memcpy(&result, &bits, sizeof result);
    return result;
}

aclFloat16 aclFloatToFloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t sign = bits >> 16 & 0x8000;
    const uint32_t rest = bits & 0x7fffffff;
    if (rest > 0x7f800000)
        return (aclFloat16)(sign | 0x7e00); /* NaN */
    if (rest >= 0x477ff000)
        return (aclFloat16)(sign | 0x7c00); /* rounds to 65536 or is more */
    /* Drops `drop` bits, rounding to nearest even. */
    const uint32_t exponent = rest >> 23;
    if (exponent < 102)
        return (aclFloat16)sign; /* below 2^-25: less than half of the smallest */
    const uint32_t drop = exponent >= 113 ? 13 : 126 - exponent;
    const uint32_t kept = exponent >= 113 ? rest - ((127 - 15) << 23) : (rest & 0x7fffff) | 0x800000;
    const uint32_t half = (uint32_t)1 << (drop - 1);
    return (aclFloat16)(sign | (kept + half - 1 + (kept >> drop & 1)) >> drop);
}

/* ---- Tensors ---- */

aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType,
                           const int64_t *stride, int64_t offset, aclFormat format,
                           const int64_t *storageDims, uint64_t storageDimsNum, void *tensorData)
{
    const uint64_t most = 1024; /* dimensions; more than any tensor has, so that sizes cannot overflow */
    if ((viewDims == NULL && viewDimsNum > 0) || (storageDims == NULL && storageDimsNum > 0) ||
        viewDimsNum > most || storageDimsNum > most) {
        (void)syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                             "aclCreateTensor: has %llu view and %llu storage dimensions, want their extents",
                             (unsigned long long)viewDimsNum, (unsigned long long)storageDimsNum);
        return NULL;
    }
    aclTensor *t = malloc(sizeof *t + (2 * viewDimsNum + storageDimsNum) * sizeof *t->dims);
    if (t == NULL)
        return NULL;
    *t = (aclTensor){.type = dataType, .format = format, .data = tensorData, .offset = offset};
    t->rank = viewDimsNum;
    t->storage_rank = storageDimsNum;
    t->dims = (int64_t *)(t + 1);
    t->strides = t->dims + viewDimsNum;
    t->storage_dims = t->strides + viewDimsNum;
    for (uint64_t d = 0; d < storageDimsNum; d++)
        t->storage_dims[d] = storageDims[d];
    uint64_t compact = 1; /* unsigned: it wraps only for shapes that operators reject */
    for (uint64_t d = viewDimsNum; d-- > 0;) {
        t->dims[d] = viewDims[d];
        t->strides[d] = stride != NULL ? stride[d] : (int64_t)compact;
        compact *= (uint64_t)viewDims[d];
    }
    return t;
}

/* A copy of an array of a tensor, for the caller to free. */
static aclnnStatus copy_out(const char *call, const aclTensor *tensor, const int64_t *from, uint64_t n,
                            int64_t **to, uint64_t *to_n)
{
    if (tensor == NULL || to == NULL || to_n == NULL)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR, "%s: an argument is null, want none to be", call);
    *to = malloc(n > 0 ? n * sizeof **to : 1);
    if (*to == NULL)
        return syi_aclnn_fail(ACLNN_ERR_INNER_NULLPTR, "%s: no memory", call);
    for (uint64_t d = 0; d < n; d++)
        (*to)[d] = from[d];
    *to_n = n;
    return ACLNN_SUCCESS;
}

#define GET_NUMBERS(function, numbers, n, field, count) \
    aclnnStatus function(const aclTensor *tensor, int64_t **(numbers), uint64_t *(n)) \
    { \
        return copy_out(__func__, tensor, tensor != NULL ? tensor->field : NULL, \
                        tensor != NULL ? tensor->count : 0, numbers, n); \
    }
GET_NUMBERS(aclGetViewShape, viewDims, viewDimsNum, dims, rank)
GET_NUMBERS(aclGetStorageShape, storageDims, storageDimsNum, storage_dims, storage_rank)
GET_NUMBERS(aclGetViewStrides, stridesValue, stridesNum, strides, rank)

/* Copies a property of an object, or 161001 where one of them is missing. */
static aclnnStatus get(const char *call, const void *object, const void *property, void *place, size_t bytes)
{
    if (object == NULL || place == NULL)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR, "%s: an argument is null, want none to be", call);
    memcpy(place, property, bytes);
    return ACLNN_SUCCESS;
}
#define GET(function, pointer, place, field) \
    aclnnStatus function(const aclTensor *tensor, pointer place) \
    { \
        return get(__func__, tensor, tensor != NULL ? &tensor->field : NULL, place, sizeof *(place)); \
    }
GET(aclGetViewOffset, int64_t *, offset, offset)
GET(aclGetFormat, aclFormat *, format, format)
GET(aclGetDataType, aclDataType *, dataType, type)
GET(aclGetRawTensorAddr, void **, addr, data)

aclnnStatus aclSetRawTensorAddr(aclTensor *tensor, void *addr)
{
    return get(__func__, addr, &addr, tensor != NULL ? &tensor->data : NULL, sizeof addr);
}

/* ---- Arrays, scalars, lists ---- */

/* A block of a size and copies of the values. */
static void *new_array(const void *value, uint64_t size, size_t elem_bytes)
{
    if ((value == NULL && size > 0) || size > (SIZE_MAX - sizeof size) / elem_bytes)
        return NULL;
    unsigned char *block = malloc(sizeof size + (size_t)size * elem_bytes);
    if (block == NULL)
        return NULL;
    memcpy(block, &size, sizeof size);
    if (size > 0)
        memcpy(block + sizeof size, value, (size_t)size * elem_bytes);
    return block;
}

aclScalar *aclCreateScalar(void *value, aclDataType dataType)
{
    aclScalar *s = value != NULL && aclDataTypeSize(dataType) > 0 ? malloc(sizeof *s) : NULL;
    if (s == NULL)
        return NULL;
    s->type = dataType;
    memcpy(s->value, value, aclDataTypeSize(dataType));
    return s;
}

/* The vendor's signatures have const pointers to the objects that they destroy. */
static aclnnStatus destroy(const void *object)
{
    free((void *)(uintptr_t)object);
    return ACLNN_SUCCESS;
}

aclnnStatus aclDestroyTensor(const aclTensor *tensor)
{
    return destroy(tensor);
}

aclnnStatus aclDestroyScalar(const aclScalar *scalar)
{
    return destroy(scalar);
}

#define CREATE_AND_SIZE(name, values, array) \
    acl##name *aclCreate##name(values value, uint64_t size) \
    { \
        return new_array(value, size, sizeof *value); \
    } \
    aclnnStatus aclGet##name##Size(const acl##name *(array), uint64_t *size) \
    { \
        return get(__func__, array, array, size, sizeof *size); /* arrays and lists begin with it */ \
    }

#define ARRAY(name, values) \
    CREATE_AND_SIZE(name, values, array) \
    aclnnStatus aclDestroy##name(const acl##name *array) \
    { \
        return destroy(array); \
    }
ARRAY(IntArray, const int64_t *)
ARRAY(FloatArray, const float *)
ARRAY(BoolArray, const bool *)

#define LIST(name, list, member) \
    struct acl##name { \
        uint64_t size; \
        const acl##member *value[]; \
    }; \
    CREATE_AND_SIZE(name, const acl##member *const *, list) \
    aclnnStatus aclDestroy##name(const acl##name *array) \
    { \
        for (uint64_t i = 0; array != NULL && i < array->size; i++) \
            (void)aclDestroy##member(array->value[i]); \
        return destroy(array); \
    }
LIST(TensorList, tensorList, Tensor)
LIST(ScalarList, scalarList, Scalar)
