/*
 * Tensors that the array libraries cannot provide: a view of an array that NumPy does not export through DLPack
 * (read-only, or of a type of ml_dtypes), and new memory for libraries that can only import tensors.
 */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

#define EXPORT __attribute__((visibility("default")))

enum { MAX_RANK = 32, ALIGNMENT = 64 };

struct holder {
    DLManagedTensor managed; /* first, so that the deleter finds the holder */
    struct syp_device *of;   /* whose memory it is; NULL: the CPU's */
    int64_t shape[MAX_RANK];
    int64_t strides[MAX_RANK];
};

static void drop_view(DLManagedTensor *managed)
{
    free(managed);
}

static void drop_memory(DLManagedTensor *managed)
{
    free(managed->dl_tensor.data);
    free(managed);
}

static void drop_device_memory(DLManagedTensor *managed)
{
    syp_device_free(((struct holder *)managed)->of, managed->dl_tensor.data);
    free(managed);
}

/* A tensor of this type and shape without data and strides; NULL after syp_raise. */
static struct holder *make_holder(const TVMFFIAny *type, const TVMFFIAny *shape, int32_t rank)
{
    if (type->type_index != kTVMFFIDataType || rank < 0 || rank > MAX_RANK) {
        syp_raise("TypeError", "want an element type and at most 32 dimensions");
        return NULL;
    }
    struct holder *holder = calloc(1, sizeof *holder);
    if (holder == NULL) {
        syp_raise("MemoryError", "no memory for a tensor");
        return NULL;
    }
    for (int32_t i = 0; i < rank; i++)
        holder->shape[i] = shape[i].v_int64;
    holder->managed.dl_tensor = (DLTensor){.device = {kDLCPU, 0},
                                           .ndim = rank,
                                           .dtype = type->v_dtype,
                                           .shape = holder->shape,
                                           .strides = holder->strides};
    return holder;
}

static int give_away(struct holder *holder, TVMFFIAny *result)
{
    TVMFFIObjectHandle tensor = NULL;
    if (TVMFFITensorFromDLPack(&holder->managed, 0, 0, &tensor) != 0) {
        holder->managed.deleter(&holder->managed);
        return -1;
    }
    result->type_index = kTVMFFITensor;
    result->zero_padding = 0;
    result->v_obj = tensor;
    return 0;
}

static bool all_integers(const TVMFFIAny *values, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (values[i].type_index != kTVMFFIInt)
            return false;
    return true;
}

/* view(address, type, shape..., strides...) -> tensor over memory that the caller keeps alive; strides in elements */
EXPORT int __tvm_ffi_view(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_view(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    if (n < 2 || n % 2 != 0 || values[0].type_index != kTVMFFIInt || !all_integers(values + 2, n - 2))
        return syp_raise("TypeError", "want an address, an element type, a shape and strides");
    const int32_t rank = (n - 2) / 2;
    struct holder *holder = make_holder(&values[1], values + 2, rank);
    if (holder == NULL)
        return -1;
    for (int32_t i = 0; i < rank; i++)
        holder->strides[i] = values[2 + rank + i].v_int64;
    holder->managed.dl_tensor.data = (void *)(uintptr_t)values[0].v_int64; /* an address, from NumPy */
    holder->managed.deleter = drop_view;
    return give_away(holder, result);
}

/* Fills compact strides; bytes of the tensor, or SIZE_MAX when it has too many or an extent is negative. */
static size_t lay_out(struct holder *holder)
{
    const DLTensor *tensor = &holder->managed.dl_tensor;
    int64_t elements = 1;
    for (int32_t i = tensor->ndim; i-- > 0;) {
        holder->strides[i] = elements;
        if (holder->shape[i] < 0 || __builtin_mul_overflow(elements, holder->shape[i], &elements))
            return SIZE_MAX;
    }
    const size_t element_bytes = ((size_t)tensor->dtype.bits * tensor->dtype.lanes + 7) / 8;
    size_t bytes = 0;
    if (__builtin_mul_overflow((size_t)elements, element_bytes, &bytes) || bytes > SIZE_MAX / 2)
        return SIZE_MAX;
    return bytes;
}

static int allocate(const TVMFFIAny *values, int32_t n, bool clear, TVMFFIAny *result)
{
    if (n < 1 || !all_integers(values + 1, n - 1))
        return syp_raise("TypeError", "want an element type and a shape");
    struct holder *holder = make_holder(&values[0], values + 1, n - 1);
    if (holder == NULL)
        return -1;
    const size_t bytes = lay_out(holder);
    const size_t rounded =
        bytes < SIZE_MAX ? (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT : 0; /* at least one line */
    void *memory = rounded > 0 ? aligned_alloc(ALIGNMENT, rounded) : NULL;
    if (memory == NULL) {
        free(holder);
        return syp_raise("MemoryError", "no memory for a tensor");
    }
    if (clear)
        memset(memory, 0, rounded);
    holder->managed.dl_tensor.data = memory;
    holder->managed.deleter = drop_memory;
    return give_away(holder, result);
}

/* empty(type, shape...) -> tensor with memory of its own, 64-byte aligned, contents unspecified */
EXPORT int __tvm_ffi_empty(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_empty(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    return allocate(values, n, false, result);
}

/* zeros(type, shape...) -> the same, all bytes zero */
EXPORT int __tvm_ffi_zeros(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_zeros(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    return allocate(values, n, true, result);
}

/* device_empty(device, type, shape...) -> tensor with memory of a CUDA device, or the status of a failure */
EXPORT int __tvm_ffi_device_empty(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_device_empty(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    if (n < 2 || values[0].type_index != kTVMFFIInt || !all_integers(values + 2, n - 2))
        return syp_raise("TypeError", "want a device, an element type and a shape");
    struct holder *holder = make_holder(&values[1], values + 2, n - 2);
    if (holder == NULL)
        return -1;
    DLTensor *tensor = &holder->managed.dl_tensor;
    tensor->device = (DLDevice){kDLCUDA, (int32_t)values[0].v_int64};
    const size_t bytes = lay_out(holder);
    const sy_status status =
        bytes < SIZE_MAX ? syp_device_alloc(tensor->device, bytes, &holder->of, &tensor->data) : SY_ERR_NOMEM;
    if (status != SY_OK) {
        free(holder);
        syp_return_int(result, status);
        return 0;
    }
    holder->managed.deleter = drop_device_memory;
    return give_away(holder, result);
}

/* Bytes of a compact tensor; SIZE_MAX for others. */
static size_t compact_bytes(const DLTensor *tensor)
{
    size_t elements = 1;
    for (int32_t i = tensor->ndim; i-- > 0; elements *= (size_t)tensor->shape[i])
        if (tensor->strides != NULL && tensor->shape[i] > 1 && tensor->strides[i] != (int64_t)elements)
            return SIZE_MAX;
    return elements * ((tensor->dtype.bits * (size_t)tensor->dtype.lanes + 7) / 8);
}

/* copy(to, from) -> status; the bytes of a compact tensor, of which one is on a CUDA device */
EXPORT int __tvm_ffi_copy(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_copy(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    int32_t at = 0;
    const DLTensor *to = n == 2 ? syp_tensor(&values[0]) : NULL;
    const DLTensor *from = n == 2 ? syp_tensor(&values[1]) : NULL;
    const DLTensor *there = syp_on_device(values, n, &at);
    if (to == NULL || from == NULL || there == NULL)
        return syp_raise("TypeError", "want two tensors, one of them on a CUDA device");
    const size_t bytes = compact_bytes(to);
    if (bytes == SIZE_MAX || bytes != compact_bytes(from))
        return syp_raise("ValueError", "want compact tensors of as many bytes");
    syp_return_int(result, syp_device_copy(there->device, (char *)to->data + to->byte_offset,
                                           (const char *)from->data + from->byte_offset, bytes));
    return 0;
}

/* clear(tensor) -> None; sets the bytes of a compact tensor in CPU memory to zero */
EXPORT int __tvm_ffi_clear(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_clear(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self, (void)result;
    const DLTensor *tensor = n == 1 ? syp_tensor(values) : NULL;
    if (tensor == NULL || tensor->device.device_type != kDLCPU)
        return syp_raise("TypeError", "want a tensor in the memory of the CPU");
    const size_t bytes = compact_bytes(tensor);
    if (bytes == SIZE_MAX)
        return syp_raise("ValueError", "want a compact tensor");
    if (bytes > 0)
        memset((char *)tensor->data + tensor->byte_offset, 0, bytes);
    return 0;
}
