/* Values of a call, as fields of an argument struct. */
#include <limits.h>
#include <string.h>

#include "binding.h"

const DLTensor *syp_tensor(const TVMFFIAny *value)
{
    if (value->type_index == kTVMFFIDLTensorPtr)
        return value->v_ptr;
    if (value->type_index == kTVMFFITensor) /* an object's header, then the tensor */
        return (const DLTensor *)(const void *)((const char *)value->v_obj + sizeof(TVMFFIObject));
    return NULL;
}

TVMFFIByteArray syp_text(const TVMFFIAny *value)
{
    TVMFFIByteArray text = {NULL, 0};
    if (value->type_index == kTVMFFISmallStr)
        text = (TVMFFIByteArray){value->v_bytes, value->small_str_len};
    else if (value->type_index == kTVMFFIStr)
        text = *(const TVMFFIByteArray *)(const void *)((const char *)value->v_obj + sizeof(TVMFFIObject));
    else if (value->type_index == kTVMFFIRawStr)
        text = (TVMFFIByteArray){value->v_c_str, strlen(value->v_c_str)};
    const bool whole = text.size == 0 || memchr(text.data, '\0', text.size) == NULL;
    return whole ? text : (TVMFFIByteArray){NULL, 0};
}

static bool set_integer(void *to, enum syp_kind kind, const TVMFFIAny *value)
{
    const int64_t v = value->v_int64;
    if (value->type_index != kTVMFFIInt) /* a boolean is no number */
        return false;
    if (kind == SYP_I64 || kind == SYP_U64) { /* of U64 negative values are the upper half */
        memcpy(to, &v, sizeof v);
    } else if (kind == SYP_INT) {
        const int narrow = (int)v;
        memcpy(to, &narrow, sizeof narrow);
        return v >= INT_MIN && v <= INT_MAX;
    } else {
        const uint32_t narrow = (uint32_t)v;
        memcpy(to, &narrow, sizeof narrow);
        return v >= 0 && v <= UINT32_MAX;
    }
    return true;
}

static bool set_real(void *to, enum syp_kind kind, const TVMFFIAny *value)
{
    if (value->type_index != kTVMFFIFloat && value->type_index != kTVMFFIInt)
        return false;
    const double real = value->type_index == kTVMFFIFloat ? value->v_float64 : (double)value->v_int64;
    const float narrow = (float)real;
    memcpy(to, kind == SYP_F64 ? (const void *)&real : (const void *)&narrow,
           kind == SYP_F64 ? sizeof real : sizeof narrow);
    return true;
}

static bool set_format(void *to, const TVMFFIAny *value, sy_kv_format *format)
{
    const TVMFFIByteArray text = syp_text(value);
    char name[32] = "";
    if (text.data == NULL || text.size >= sizeof name)
        return false;
    memcpy(name, text.data, text.size);
    const void *found = format;
    memcpy(to, &found, sizeof found);
    return sy_kv_format_named(name, format) == SY_OK;
}

/* A number becomes a tensor of one element; NULL when the value is no number of this kind. */
static const DLTensor *number_tensor(enum syp_kind kind, const TVMFFIAny *value, struct syp_storage *storage)
{
    const bool real = kind == SYP_REALS;
    if (value->type_index != (real ? kTVMFFIFloat : kTVMFFIInt) || storage->n_numbers == SYP_MAX_NUMBERS)
        return NULL;
    sy_view *number = &storage->numbers[storage->n_numbers++];
    return real ? sy_number_f32(number, (float)value->v_float64) : sy_number_i64(number, value->v_int64);
}

bool syp_set_field(void *args, const struct syp_field *field, const TVMFFIAny *value,
                   struct syp_storage *storage)
{
    char *to = (char *)args + field->offset;
    const DLTensor *tensor = NULL;

    switch (field->kind) {
    case SYP_TENSOR:
    case SYP_INTEGERS:
    case SYP_REALS:
        tensor = syp_tensor(value);
        if (tensor == NULL && field->kind != SYP_TENSOR)
            tensor = number_tensor(field->kind, value, storage);
        memcpy(to, &tensor, sizeof tensor);
        return tensor != NULL || value->type_index == kTVMFFINone;
    case SYP_BOOL:
        *(bool *)to = value->v_int64 != 0;
        return value->type_index == kTVMFFIBool;
    case SYP_INT:
    case SYP_I64:
    case SYP_U32:
    case SYP_U64:
        return set_integer(to, field->kind, value);
    case SYP_F32:
    case SYP_F64:
        return set_real(to, field->kind, value);
    case SYP_FORMAT:
        return value->type_index == kTVMFFINone || set_format(to, value, &storage->format);
    case SYP_HANDLE:
        memcpy(to, &value->v_ptr, sizeof value->v_ptr);
        return value->type_index == kTVMFFINone || value->type_index == kTVMFFIOpaquePtr;
    case SYP_TENSORS:
        break; /* many values: mesh.c takes them */
    }
    return false;
}

void syp_return_int(TVMFFIAny *result, int64_t value)
{
    result->type_index = kTVMFFIInt;
    result->zero_padding = 0;
    result->v_int64 = value;
}

int syp_return_text(TVMFFIAny *result, const char *text)
{
    return TVMFFIStringFromByteArray(&(TVMFFIByteArray){text, strlen(text)}, result);
}

int syp_return_function(TVMFFIAny *result, const void *row, TVMFFISafeCallType call)
{
    TVMFFIObjectHandle function = NULL;
    /* Tables are constant, but this interface takes a function's self without const. */
    if (TVMFFIFunctionCreate((void *)(uintptr_t)row, call, NULL, &function) != 0)
        return -1;
    result->type_index = kTVMFFIFunction;
    result->zero_padding = 0;
    result->v_obj = function;
    return 0;
}

int syp_raise(const char *kind, const char *message)
{
    TVMFFIErrorSetRaisedFromCStr(kind, message);
    return -1;
}
