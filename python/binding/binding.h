/*
 * The Python binding: operators as functions of tvm-ffi's C calling convention, over the public header alone.
 *
 * A call from Python is a list of values: tensors, numbers, None. A table says which field of the operator's argument
 * struct each of them is; the operator's own status comes back as a number, 0 for success. Nothing is judged here but
 * the kind of a value: everything else is the operator's to refuse, in its own words.
 */
#ifndef SWITCHYARD_BINDING_H
#define SWITCHYARD_BINDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tvm/ffi/c_api.h>

#include <switchyard_describe.h>

/* ---- Values (values.c) ----------------------------------------------------------------------------------------- */

enum syp_kind {
    SYP_TENSOR,   /* const DLTensor *; None: NULL */
    SYP_TENSORS,  /* the same of every device of this process: as many values */
    SYP_INTEGERS, /* SYP_TENSOR, or a number: a tensor of that one int64 */
    SYP_REALS,    /* the same with a float32 */
    SYP_BOOL,
    SYP_INT, /* int, and enums */
    SYP_I64,
    SYP_U32,
    SYP_U64,
    SYP_F32,
    SYP_F64,
    SYP_FORMAT, /* const sy_kv_format *; its name, or None */
    SYP_HANDLE  /* a pointer that this module gave away; None: NULL */
};

struct syp_field {
    const char *name;
    enum syp_kind kind;
    size_t offset;
    const sy_field_info *info; /* NULL: none */
};

/* A number in the place of a tensor. */
struct syp_number {
    DLTensor tensor;
    int64_t extent; /* 1: its shape and its stride */
    union {
        int64_t integer;
        float real;
    } value;
};

enum { SYP_MAX_NUMBERS = 8 }; /* fields of one operator that a number may be given for */

/* What the pointers of an argument struct point to, for as long as the call lasts. */
struct syp_storage {
    sy_kv_format format;
    struct syp_number numbers[SYP_MAX_NUMBERS];
    size_t n_numbers;
    DLTensor *tensors; /* of the fields that hold one per device */
    size_t n_tensors;
};

/* The tensor of a value; NULL for None and for what is no tensor. */
const DLTensor *syp_tensor(const TVMFFIAny *value);

/* The characters of a string; {NULL, 0} for other values, and for a string with a NUL inside, which the library would
   read as a shorter one. */
TVMFFIByteArray syp_text(const TVMFFIAny *value);

/* Writes a value into the field of an argument struct; false when it is not of the field's kind, or too large. */
bool syp_set_field(void *args, const struct syp_field *field, const TVMFFIAny *value,
                   struct syp_storage *storage);

void syp_return_int(TVMFFIAny *result, int64_t value);
int syp_return_text(TVMFFIAny *result, const char *text);
/* A function of a row of a table: `call` gets the row as its self. */
int syp_return_function(TVMFFIAny *result, const void *row, TVMFFISafeCallType call);

/* Fails a call with a Python exception of this kind. */
int syp_raise(const char *kind, const char *message);

/* ---- Operators (operators.c) ----------------------------------------------------------------------------------- */

enum { SYP_ARGS_BYTES = 1024 };

/* Room for the argument struct of any operator. */
union syp_args {
    max_align_t align;
    unsigned char bytes[SYP_ARGS_BYTES];
    sy_all_to_all_dispatch_args dispatch;
    sy_all_to_all_combine_args combine;
};

/* An operator by the library's description of it. */
struct syp_operator {
    const sy_op_info *info;
    struct syp_field fields[SY_MAX_FIELDS +
                            1]; /* in the order of a call: inputs, numbers, outputs; name NULL at the end */
    int n_fields;
    size_t planes;      /* offset of the field `planes`, ... */
    size_t num_planes;  /* ... of their number and ... */
    size_t plane_bytes; /* ... of the size of one; 0: the operator has none */
};

/* NULL when there is no such operator. */
const struct syp_operator *syp_find_operator(TVMFFIByteArray name);

/* ---- Contexts (context.c) -------------------------------------------------------------------------------------- */

/* The context of this thread, made when it is first asked for; NULL after syp_raise when that fails. */
sy_ctx *syp_context(void);

/* A context of its own, for the caller to destroy, and the generation of the settings it has; NULL after syp_raise. */
sy_ctx *syp_new_context(unsigned *generation);

/* What the last failed call of a context left there: "error", "argument", "code", "batch", "position", "value" or
   "limit"; and of the context itself "isa" and "threads". */
int syp_last(const sy_ctx *ctx, TVMFFIByteArray what, TVMFFIAny *result);

/* Threads (0: the default) and kernel table (no text: the best) of every context from now on; false: no such thing. */
bool syp_configure(int64_t threads, TVMFFIByteArray isa);

#endif
