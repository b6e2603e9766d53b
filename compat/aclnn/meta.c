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

/* All arrays and lists begin with their size; the values of the others are never read here. */
struct aclTensorList {
    uint64_t size;
    const aclTensor *value[];
};

struct aclScalarList {
    uint64_t size;
    const aclScalar *value[];
};

/* ---- Element types ----------------------------------------------------------------------------------- */

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

/* ---- Tensors ----------------------------------------------------------------------------------------- */

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

aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **viewDims, uint64_t *viewDimsNum)
{
    return copy_out("aclGetViewShape", tensor, tensor != NULL ? tensor->dims : NULL,
                    tensor != NULL ? tensor->rank : 0, viewDims, viewDimsNum);
}

aclnnStatus aclGetStorageShape(const aclTensor *tensor, int64_t **storageDims, uint64_t *storageDimsNum)
{
    return copy_out("aclGetStorageShape", tensor, tensor != NULL ? tensor->storage_dims : NULL,
                    tensor != NULL ? tensor->storage_rank : 0, storageDims, storageDimsNum);
}

aclnnStatus aclGetViewStrides(const aclTensor *tensor, int64_t **stridesValue, uint64_t *stridesNum)
{
    return copy_out("aclGetViewStrides", tensor, tensor != NULL ? tensor->strides : NULL,
                    tensor != NULL ? tensor->rank : 0, stridesValue, stridesNum);
}

/* Copies a property of an object, or 161001 where one of them is missing. */
static aclnnStatus get(const char *call, const void *object, const void *property, void *place, size_t bytes)
{
    if (object == NULL || place == NULL)
        return syi_aclnn_fail(ACLNN_ERR_PARAM_NULLPTR, "%s: an argument is null, want none to be", call);
    memcpy(place, property, bytes);
    return ACLNN_SUCCESS;
}
#define PROPERTY(tensor, field) tensor, (tensor) != NULL ? &(tensor)->field : NULL

aclnnStatus aclGetViewOffset(const aclTensor *tensor, int64_t *offset)
{
    return get("aclGetViewOffset", PROPERTY(tensor, offset), offset, sizeof *offset);
}

aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format)
{
    return get("aclGetFormat", PROPERTY(tensor, format), format, sizeof *format);
}

aclnnStatus aclGetDataType(const aclTensor *tensor, aclDataType *dataType)
{
    return get("aclGetDataType", PROPERTY(tensor, type), dataType, sizeof *dataType);
}

aclnnStatus aclGetRawTensorAddr(const aclTensor *tensor, void **addr)
{
    return get("aclGetRawTensorAddr", PROPERTY(tensor, data), addr, sizeof *addr);
}

aclnnStatus aclSetRawTensorAddr(aclTensor *tensor, void *addr)
{
    return get("aclSetRawTensorAddr", addr, &addr, tensor != NULL ? &tensor->data : NULL, sizeof addr);
}

/* ---- Arrays, scalars, lists -------------------------------------------------------------------------- */

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

aclIntArray *aclCreateIntArray(const int64_t *value, uint64_t size)
{
    return new_array(value, size, sizeof *value);
}

aclFloatArray *aclCreateFloatArray(const float *value, uint64_t size)
{
    return new_array(value, size, sizeof *value);
}

aclBoolArray *aclCreateBoolArray(const bool *value, uint64_t size)
{
    return new_array(value, size, sizeof *value);
}

aclTensorList *aclCreateTensorList(const aclTensor *const *value, uint64_t size)
{
    return new_array(value, size, sizeof *value);
}

aclScalarList *aclCreateScalarList(const aclScalar *const *value, uint64_t size)
{
    return new_array(value, size, sizeof *value);
}

static aclnnStatus size_of(const char *call, const void *array, uint64_t *size)
{
    return get(call, array, array, size, sizeof *size);
}

aclnnStatus aclGetIntArraySize(const aclIntArray *array, uint64_t *size)
{
    return size_of("aclGetIntArraySize", array, size);
}

aclnnStatus aclGetFloatArraySize(const aclFloatArray *array, uint64_t *size)
{
    return size_of("aclGetFloatArraySize", array, size);
}

aclnnStatus aclGetBoolArraySize(const aclBoolArray *array, uint64_t *size)
{
    return size_of("aclGetBoolArraySize", array, size);
}

aclnnStatus aclGetTensorListSize(const aclTensorList *tensorList, uint64_t *size)
{
    return size_of("aclGetTensorListSize", tensorList, size);
}

aclnnStatus aclGetScalarListSize(const aclScalarList *scalarList, uint64_t *size)
{
    return size_of("aclGetScalarListSize", scalarList, size);
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

aclnnStatus aclDestroyIntArray(const aclIntArray *array)
{
    return destroy(array);
}

aclnnStatus aclDestroyFloatArray(const aclFloatArray *array)
{
    return destroy(array);
}

aclnnStatus aclDestroyBoolArray(const aclBoolArray *array)
{
    return destroy(array);
}

aclnnStatus aclDestroyTensorList(const aclTensorList *array)
{
    for (uint64_t i = 0; array != NULL && i < array->size; i++)
        (void)aclDestroyTensor(array->value[i]);
    return destroy(array);
}

aclnnStatus aclDestroyScalarList(const aclScalarList *array)
{
    for (uint64_t i = 0; array != NULL && i < array->size; i++)
        (void)aclDestroyScalar(array->value[i]);
    return destroy(array);
}
