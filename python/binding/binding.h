/*
 * The Python binding: operators as functions of tvm-ffi's C calling convention, over the public header alone.
 *
 * A call from Python is a list of values: tensors, numbers, None. A table maps each to a field of the operator's
 * argument struct; the operator's status is returned as a number, 0 for success. Only the kind of a value is checked
 * here; the operator validates everything else.
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
    SYP_HANDLE  /* a pointer that this module returned before; None: NULL */
};

struct syp_field {
    const char *name;
    enum syp_kind kind;
    size_t offset;
    const sy_field_info *info; /* NULL: none */
};

enum { SYP_MAX_NUMBERS = 8 }; /* fields of one operator that accept a number */

/* What the pointers of an argument struct point to, for as long as the call lasts. */
struct syp_storage {
    sy_kv_format format;
    sy_view numbers[SYP_MAX_NUMBERS]; /* in the place of tensors */
    size_t n_numbers;
    DLTensor *tensors; /* of the fields that hold one per device */
    size_t n_tensors;
};

/* The tensor of a value; NULL for None and for values of other kinds. */
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

/* Space for the argument struct of any operator. */
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

/* The values of a further plane. */
enum {
    SYP_PLANE_CACHE,
    SYP_PLANE_ROWS,
    SYP_PLANE_FORMAT,
    SYP_PLANE_SCALE,
    SYP_PLANE_GLOBAL,
    SYP_PLANE_VALUES
};

struct syp_planes {
    sy_kv_plane planes[SY_KV_MAX_PLANES];
    sy_kv_format formats[SY_KV_MAX_PLANES];
};

/* Fills an argument struct, which is all zero: fields, then planes. Returns the number of values if all fit; else which
   of them did not. */
int32_t syp_take_values(const struct syp_operator *op, union syp_args *args, const TVMFFIAny *values,
                        int32_t n, struct syp_storage *storage, struct syp_planes *room);

/* Runs an operator, or its query, where the tensors of these values are. Returns its status, with syp_last_failure; -1 after
   syp_raise. */
int syp_run(const struct syp_operator *op, const union syp_args *args, const TVMFFIAny *values, int32_t n,
            sy_query *query);

/* What calls/calls.c, a module of Python's own ABI, uses of this one. */
struct syp_calls {
    size_t bytes; /* of this struct */
    const struct syp_operator *(*find)(TVMFFIByteArray name);
    /* Runs an operator; on a device in this stream. Returns its status; negative: a value is not of its kind, or no context
       can be made. */
    int (*run)(const struct syp_operator *op, const TVMFFIAny *values, int32_t n, const DLDevice *device,
               void *stream);
};

/* ---- Contexts (context.c) -------------------------------------------------------------------------------------- */

/* The context of this thread, created at the first call; NULL after syp_raise when that fails. */
sy_ctx *syp_context(void);

/* A new context, which the caller destroys, and the generation of its settings; NULL after syp_raise. */
sy_ctx *syp_new_context(unsigned *generation);

/* What is known of a failed call. */
struct syp_failure {
    sy_fault fault;
    const char *error;
};

/* A property of a failed call: "error", "argument", "code", "batch", "position", "value" or "limit". */
int syp_last(const struct syp_failure *failure, TVMFFIByteArray what, TVMFFIAny *result);

/* Whether the interpreter is ending, at the begin of a call; and the end of that call. Python ends a thread that returns from a
   call meanwhile, and inside of tvm-ffi that aborts the process: the thread waits here for the end of the process instead. */
bool syp_is_over(void);
void syp_leave(bool was_over);

/* The last failed call of this thread; NULL after syp_raise. */
const struct syp_failure *syp_last_failure(void);

/* The failure of this thread is that of a context which other threads use too, or, without one, a sentence about an
   argument. */
void syp_keep_failure(const sy_ctx *ctx, sy_status status, const char *argument, const char *sentence);
/* ... or that of the thread's own context. */
void syp_forget_failure(void);

/* Threads (0: the default) and kernel table (no text: the best) of every context from now on; false: not available. */
bool syp_configure(int64_t threads, TVMFFIByteArray isa);

/* ---- CUDA devices (device.c) ----------------------------------------------------------------------------------- */

struct syp_device_settings {
    bool synchronous; /* calls wait, and return their own status */
    const char *
        library; /* file of libswitchyard_cuda; NULL: where libswitchyard looks; equal texts are one pointer */
};

void syp_configure_devices(bool synchronous, TVMFFIByteArray library);
struct syp_device_settings syp_settings_of_devices(void);

/* The first tensor on a CUDA device and which value it is; NULL: none. */
const DLTensor *syp_on_device(const TVMFFIAny *values, int32_t n, int32_t *at);

/* Runs an operator, or its query, in the stream that is current there; `argument` is a tensor of the call that is there. */
sy_status syp_call_on_device(DLDevice device, const sy_op_info *op, const char *argument, const void *args,
                             sy_query *query);

/* Waits for the streams that were used on a device, or, with {0}, on all; the first fault that was found. */
sy_status syp_sync(DLDevice device);

struct syp_device; /* a context of a device */
sy_status syp_device_alloc(DLDevice device, size_t bytes, struct syp_device **of, void **data);
void syp_device_free(struct syp_device *of, void *data);
/* In either direction, after the work of the current stream; returns when it has ended. */
sy_status syp_device_copy(DLDevice device, void *to, const void *from, size_t bytes);

#endif
