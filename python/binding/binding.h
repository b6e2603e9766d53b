/*
 * The Python binding: one module, switchyard._core, on Python's stable ABI and over the public headers alone.
 *
 * An operator is called with a tuple of values (inputs, then scalars, each in the order of the library's description) and with its
 * outputs, or without: then sy_infer gives their shapes and types, and the caller's array library makes them. Arrays are read
 * through DLPack. Only the kind of a value is checked here; the operator validates everything else.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <switchyard_describe.h>

/* ---- Values (values.c) ---- */

enum syp_tag {
    SYP_NONE,
    SYP_IS_BOOL,
    SYP_IS_INT,
    SYP_IS_REAL,
    SYP_IS_TEXT,
    SYP_IS_TENSOR,
    SYP_IS_POINTER,
    SYP_OTHER /* nothing that a field is */
};

/* A value of a call. */
struct syp_value {
    enum syp_tag tag;
    union {
        int64_t number; /* of a boolean 0 or 1 */
        double real;
        const char *text;
        const DLTensor *tensor;
        void *pointer;
    };
};

enum syp_kind {
    SYP_TENSOR,   /* const DLTensor *; None: NULL */
    SYP_TENSORS,  /* the same of every device of this process: as many values */
    SYP_INTEGERS, /* SYP_TENSOR, or a number: a tensor of that one int64 */
    SYP_REALS,    /* the same with a float32 */
    SYP_BOOL,
    SYP_INT,
    SYP_ENUM, /* one of its words */
    SYP_I64,
    SYP_U32,
    SYP_U64,
    SYP_F32,
    SYP_F64,
    SYP_FORMAT, /* const sy_kv_format *; its name, or None */
    SYP_POINTER /* of a routing; None: NULL */
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
};

/* The number of a word of an enum; -1: it is none. */
int syp_word(const char *words, const struct syp_value *value);

/* Writes a value into the field of an argument struct; false when it is not of the field's kind, or too large. */
bool syp_set_field(void *args, const struct syp_field *field, const struct syp_value *value,
                   struct syp_storage *storage);

/* The first tensor on a CUDA device and which value it is; NULL: none. */
const DLTensor *syp_on_device(const struct syp_value *values, int n, int *at);

/* ---- Operators (operators.c) ---- */

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
                            1]; /* in the order of a call: inputs, scalars, outputs; name NULL at the end */
    int at[SY_MAX_FIELDS];      /* of each, its number in the description */
    int n_fields;
    int n_given;        /* of these, inputs and scalars */
    size_t planes;      /* offset of the field `planes`, ... */
    size_t num_planes;  /* ... of their number and ... */
    size_t plane_bytes; /* ... of the size of one; 0: the operator has none */
};

/* NULL when there is no such operator. */
const struct syp_operator *syp_find_operator(const char *name, size_t length);

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
int syp_take_values(const struct syp_operator *op, union syp_args *args, const struct syp_value *values,
                    int n, struct syp_storage *storage, struct syp_planes *room);

/* What is done with a call. */
enum syp_what { SYP_CALL, SYP_QUERY, SYP_INFER };

/* Runs an operator, its query, or sy_infer, in a context. */
sy_status syp_run_in(sy_ctx *ctx, const sy_op_info *op, const void *args, enum syp_what what,
                     sy_shape *shapes);

/* The same where the tensors of these values are, on a device in this stream. Returns its status,
   with syp_last_failure; -1 with syp_last_failure: no context can be made. `shapes`: of SYP_INFER, n_tensors of them. */
int syp_run(const struct syp_operator *op, const union syp_args *args, const struct syp_value *values, int n,
            void *stream, enum syp_what what, sy_shape *shapes);

/* ---- Contexts (context.c) ---- */

/* The context of this thread, created at the first call; NULL with syp_last_failure when that fails. */
sy_ctx *syp_context(void);

/* A new context, which the caller destroys, and the generation of its settings; NULL with syp_last_failure. */
sy_ctx *syp_new_context(unsigned *generation);

/* What is known of a failed call. */
struct syp_failure {
    sy_fault fault;
    const char *error;
};

/* The last failed call of this thread. */
const struct syp_failure *syp_last_failure(void);

/* The failure of this thread is that of a context which other threads use too, or, without one, a sentence about an
   argument. */
void syp_keep_failure(const sy_ctx *ctx, sy_status status, const char *argument, const char *sentence);
/* ... or that of the thread's own context. */
void syp_forget_failure(void);

/* Threads (0: the default) and kernel table (NULL: the best) of every context from now on; false: not available. */
bool syp_configure(int64_t threads, const char *isa);

/* Contexts use the threads of OpenMP from now on, if the process has loaded it. */
void syp_meet_openmp(void);

/* ---- OpenMP (openmp.c) ---- */

/* Looks for a runtime that the process has loaded, under the lock of the settings; true when one is found for the first time. */
bool syp_find_openmp(void);
/* Sets the pool of a new context. */
void syp_use_openmp(sy_ctx_options *options);

/* ---- CUDA devices (device.c) ---- */

struct syp_device_settings {
    bool synchronous; /* calls wait, and return their own status */
    const char *
        library; /* file of libswitchyard_cuda; NULL: where libswitchyard looks; equal texts are one pointer */
};

void syp_configure_devices(bool synchronous, const char *library);
struct syp_device_settings syp_settings_of_devices(void);

/* Runs an operator as syp_run; `argument` is a tensor of the call that is there. */
sy_status syp_call_on_device(DLDevice device, void *stream, const sy_op_info *op, const char *argument,
                             const void *args, enum syp_what what, sy_shape *shapes);

/* Waits for the streams that were used on a device, or, with {0}, on all; the first fault that was found. */
sy_status syp_sync(DLDevice device);

struct syp_device; /* a context of a device */
sy_status syp_device_alloc(DLDevice device, size_t bytes, struct syp_device **of, void **data);
void syp_device_free(struct syp_device *of, void *data);
/* In either direction, after the work of a stream; returns when it has ended. */
sy_status syp_device_copy(DLDevice device, void *stream, void *to, const void *from, size_t bytes);

/* ---- Python (frame.c, tensor.c, call.c, mesh.c, module.c) ---- */

/* The table of C functions that tensors publish as __dlpack_c_exchange_api__, as DLPack 1.3 defines it. */
struct syp_exchange {
    struct {
        uint32_t major, minor;
    } version;
    const struct syp_exchange *older;
    int (*allocate)(void);
    int (*from_object)(void);
    int (*to_object)(void);
    int (*read)(void *object, DLTensor *tensor); /* valid as long as the object; waits for nothing */
    int (*stream)(DLDeviceType kind, int32_t device, void **stream);
};

/* A library of tensors with such a table, whose exact types Python has announced by meet(). */
struct syp_library {
    PyTypeObject *types[2];
    const struct syp_exchange *api;
    PyObject *is_negated; /* function of a tensor; NULL: there are no lazy signs and no gradients */
    PyObject *tracks;     /* function: whether gradients are recorded now */
    PyObject *written;    /* function of tensors that were written to; NULL: none */
};
extern struct syp_library syp_library;

enum { SYP_FEW = 64 };

/* The values of one call, and what must live as long as it. */
struct syp_frame {
    struct syp_value *values; /* room for n of them */
    DLTensor *tensors;
    PyObject **held; /* capsules */
    int n, n_tensors, n_held;
    uint64_t watched; /* tensors that must have no gradient: bits by value */
    bool is_checked;  /* whether gradients and signs matter */
    struct syp_value few_values[SYP_FEW];
    DLTensor few_tensors[SYP_FEW];
    PyObject *few_held[SYP_FEW];
};

/* Room for n values; false after an exception. */
bool syp_frame_open(struct syp_frame *frame, int n);
void syp_frame_close(struct syp_frame *frame);

/* Reads a value, the next or one at a place. Returns false where its kind is unusual, with or without an exception. */
bool syp_read(struct syp_frame *frame, int at, PyObject *value);
bool syp_is_tensor(const PyObject *value); /* of the library */

/* The stream of the first tensor on a CUDA device that the library of tensors uses now; NULL elsewhere. */
bool syp_stream_of(const struct syp_frame *frame, void **stream);

/* Tensor: an array of the binding's own. */
PyObject *syp_tensor_type(void);                /* made once; a borrowed reference */
const DLTensor *syp_tensor_of(PyObject *value); /* NULL: of another type */

/* A tuple of numbers. */
PyObject *syp_sizes(const int64_t *sizes, int n);

/* Pointers that Python holds. */
PyObject *syp_wrap(void *pointer);
PyObject *syp_call_type(void);

extern PyMethodDef syp_tensor_functions[], syp_mesh_functions[], syp_jax_functions[];

PyObject *syp_fault(const struct syp_failure *failure); /* what last() returns */
