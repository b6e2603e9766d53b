/* Values of a call, as fields of an argument struct. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "binding.h"

/* Whether a word of a description is what Python passes for it: a number where it is one, else text. */
static bool is_word(const char *word, size_t bytes, const struct syp_value *value)
{
    char *end = NULL;
    const bool ends_in_digit = word[bytes - 1] >= '0' && word[bytes - 1] <= '9';
    const long long number = ends_in_digit ? strtoll(word, &end, 10) : 0;
    const bool is_number = end == word + bytes;
    if (value->tag == SYP_IS_INT)
        return is_number && number == value->number;
    return !is_number && strncmp(value->text, word, bytes) == 0 && value->text[bytes] == '\0';
}

int syp_word(const char *words, const struct syp_value *value)
{
    const char *word = words;
    int number = 0;
    if (value->tag != SYP_IS_INT && value->tag != SYP_IS_TEXT)
        return -1;
    for (const char *c = words; c != NULL; c = *c != '\0' ? c + 1 : NULL) {
        if (*c == '|') { /* the last spelling is Python's */
            word = c + 1;
        } else if (*c == ' ' || *c == '\0') {
            const bool is_name =
                c > word && !(c == word + 1 && *word == '-'); /* "-": a number without a word */
            if (is_name && is_word(word, (size_t)(c - word), value))
                return number;
            word = c + 1;
            number++;
        }
    }
    return -1;
}

static bool set_integer(void *to, const struct syp_field *field, const struct syp_value *value)
{
    const int64_t v = field->kind == SYP_ENUM ? syp_word(field->info->words, value) : value->number;
    if (field->kind == SYP_ENUM ? v < 0 : value->tag != SYP_IS_INT) /* a boolean is no number */
        return false;
    if (field->kind == SYP_I64 || field->kind == SYP_U64) { /* of U64 negative values are the upper half */
        memcpy(to, &v, sizeof v);
    } else if (field->kind == SYP_U32) {
        const uint32_t narrow = (uint32_t)v;
        memcpy(to, &narrow, sizeof narrow);
        return v >= 0 && v <= UINT32_MAX;
    } else {
        const int narrow = (int)v;
        memcpy(to, &narrow, sizeof narrow);
        return v >= INT_MIN && v <= INT_MAX;
    }
    return true;
}

static bool set_real(void *to, enum syp_kind kind, const struct syp_value *value)
{
    if (value->tag != SYP_IS_REAL && value->tag != SYP_IS_INT)
        return false;
    const double real = value->tag == SYP_IS_REAL ? value->real : (double)value->number;
    const float narrow = (float)real;
    if (kind == SYP_F64)
        memcpy(to, &real, sizeof real);
    else
        memcpy(to, &narrow, sizeof narrow);
    return true;
}

static bool set_format(void *to, const struct syp_value *value, sy_kv_format *format)
{
    const void *found = format;
    memcpy(to, &found, sizeof found);
    return value->tag == SYP_IS_TEXT && sy_kv_format_named(value->text, format) == SY_OK;
}

/* A number becomes a tensor of one element; NULL when the value is no number of this kind. */
static const DLTensor *number_tensor(enum syp_kind kind, const struct syp_value *value,
                                     struct syp_storage *storage)
{
    const bool real = kind == SYP_REALS;
    if (value->tag != (real ? SYP_IS_REAL : SYP_IS_INT) || storage->n_numbers == SYP_MAX_NUMBERS)
        return NULL;
    sy_view *number = &storage->numbers[storage->n_numbers++];
    return real ? sy_number_f32(number, (float)value->real) : sy_number_i64(number, value->number);
}

static bool set_tensor(void *to, enum syp_kind kind, const struct syp_value *value,
                       struct syp_storage *storage)
{
    const DLTensor *tensor = value->tag == SYP_IS_TENSOR ? value->tensor : NULL;
    if (tensor == NULL && kind != SYP_TENSOR)
        tensor = number_tensor(kind, value, storage);
    memcpy(to, &tensor, sizeof tensor);
    return tensor != NULL || value->tag == SYP_NONE;
}

bool syp_set_field(void *args, const struct syp_field *field, const struct syp_value *value,
                   struct syp_storage *storage)
{
    char *to = (char *)args + field->offset;
    switch (field->kind) {
    case SYP_TENSOR:
    case SYP_INTEGERS:
    case SYP_REALS:
        return set_tensor(to, field->kind, value, storage);
    case SYP_BOOL:
        *(bool *)to = value->tag == SYP_IS_BOOL && value->number != 0;
        return value->tag == SYP_IS_BOOL;
    case SYP_INT:
    case SYP_ENUM:
    case SYP_I64:
    case SYP_U32:
    case SYP_U64:
        return set_integer(to, field, value);
    case SYP_F32:
    case SYP_F64:
        return set_real(to, field->kind, value);
    case SYP_FORMAT:
        return value->tag == SYP_NONE || set_format(to, value, &storage->format);
    case SYP_POINTER:
        if (value->tag == SYP_IS_POINTER)
            memcpy(to, &value->pointer, sizeof value->pointer);
        return value->tag == SYP_NONE || value->tag == SYP_IS_POINTER;
    case SYP_TENSORS:
        break; /* many values: mesh.c takes them */
    }
    return false;
}

const DLTensor *syp_on_device(const struct syp_value *values, int n, int *at)
{
    for (int i = 0; i < n; i++)
        if (values[i].tag == SYP_IS_TENSOR && values[i].tensor->device.device_type == kDLCUDA) {
            *at = i;
            return values[i].tensor;
        }
    return NULL;
}
