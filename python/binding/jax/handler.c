/*
 * All operators as one custom call of XLA, for switchyard.jax. Plain C over xla/ffi/api/c_api.h, which jaxlib ships.
 *
 * A call has these attributes:
 *   _operator   its name
 *   _positions  for each buffer, operands first, its place among the values of the operator: fields in the order of
 *               syp_operator, then four values for each further plane
 *   _batch      the number of leading dimensions that vmap added to every buffer: the operator runs once for each of
 *               their elements. An operand has the extent of the results there, or 1: then all runs read the same
 *   value_N     the scalar that is value N of the operator
 *
 * An operand at the place of an output is its initial contents: XLA gives both the same memory (input_output_aliases).
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <xla/ffi/api/c_api.h>

#include "../binding.h"

enum { MAX_VALUES = SY_MAX_FIELDS + SYP_PLANE_VALUES * SY_KV_MAX_PLANES, MAX_TEXT = 32 };

struct buffer {
    DLTensor tensor;
    unsigned char *data; /* of the whole batch */
    const int64_t *dims; /* with the batch */
    size_t bytes;        /* of one element of the batch */
};

struct job {
    XLA_FFI_CallFrame *frame;
    const struct syp_operator *op;
    const int64_t *positions;
    int64_t n_positions;
    int64_t batch;          /* dimensions that vmap added */
    const int64_t *extents; /* of these, in results */
    int64_t runs;           /* their product */
    DLDevice device;
    struct buffer *buffers;   /* n_positions */
    struct syp_value *values; /* n_values */
    int n_values;
    void *stream;
    char (*texts)[MAX_TEXT]; /* one for each value */
};

/* ---- Errors ---- */

static XLA_FFI_Error *fail(const XLA_FFI_CallFrame *frame, XLA_FFI_Error_Code code, const char *message)
{
    XLA_FFI_Error_Create_Args args = {
        .struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE, .message = message, .errc = code};
    return frame->api->XLA_FFI_Error_Create(&args);
}

/* The call is not one that switchyard.jax makes. */
static XLA_FFI_Error *fail_form(const XLA_FFI_CallFrame *frame, const char *message)
{
    return fail(frame, XLA_FFI_Error_Code_INTERNAL, message);
}

static XLA_FFI_Error *fail_status(const XLA_FFI_CallFrame *frame, sy_status status, const char *sentence)
{
    switch (status) {
    case SY_ERR_INDEX:
        return fail(frame, XLA_FFI_Error_Code_OUT_OF_RANGE, sentence);
    case SY_ERR_UNSUPPORTED:
        return fail(frame, XLA_FFI_Error_Code_UNIMPLEMENTED, sentence);
    case SY_ERR_NOMEM:
        return fail(frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, sentence);
    default:
        return fail(frame, XLA_FFI_Error_Code_INVALID_ARGUMENT, sentence);
    }
}

/* ---- Attributes ---- */

static bool is_named(const XLA_FFI_ByteSpan *name, const char *text)
{
    return name->len == strlen(text) && memcmp(name->ptr, text, name->len) == 0;
}

/* NULL: the call has no such attribute of this type. */
static const void *attribute(const XLA_FFI_Attrs *attrs, const char *name, XLA_FFI_AttrType type)
{
    for (int64_t i = 0; i < attrs->size; i++)
        if (is_named(attrs->names[i], name))
            return attrs->types[i] == type ? attrs->attrs[i] : NULL;
    return NULL;
}

/* The place of a scalar among the values; -1: the attribute is none. */
static int32_t position_of(const XLA_FFI_ByteSpan *name)
{
    static const char prefix[] = "value_";
    const size_t begin = strlen(prefix);
    if (name->len <= begin || name->len > begin + 4 || memcmp(name->ptr, prefix, begin) != 0)
        return -1;
    int32_t at = 0;
    for (size_t i = begin; i < name->len; i++)
        at = at * 10 + (name->ptr[i] - '0');
    return at;
}

static bool set_scalar(struct syp_value *value, const XLA_FFI_Scalar *scalar)
{
    switch (scalar->dtype) {
    case XLA_FFI_DataType_PRED:
        value->tag = SYP_IS_BOOL;
        value->number = *(const bool *)scalar->value;
        return true;
    case XLA_FFI_DataType_S64:
        value->tag = SYP_IS_INT;
        value->number = *(const int64_t *)scalar->value;
        return true;
    case XLA_FFI_DataType_F64:
        value->tag = SYP_IS_REAL;
        value->real = *(const double *)scalar->value;
        return true;
    default:
        return false;
    }
}

static bool set_text(struct syp_value *value, char *copy, const XLA_FFI_ByteSpan *text)
{
    if (text->len >= MAX_TEXT)
        return false;
    memcpy(copy, text->ptr, text->len);
    copy[text->len] = '\0';
    value->tag = SYP_IS_TEXT;
    value->text = copy;
    return true;
}

static bool take_scalars(struct job *job)
{
    const XLA_FFI_Attrs *attrs = &job->frame->attrs;
    for (int64_t i = 0; i < attrs->size; i++) {
        const int32_t at = position_of(attrs->names[i]);
        if (at < 0)
            continue;
        if (at >= job->n_values)
            return false;
        struct syp_value *value = &job->values[at];
        const bool taken = attrs->types[i] == XLA_FFI_AttrType_SCALAR ? set_scalar(value, attrs->attrs[i])
                           : attrs->types[i] == XLA_FFI_AttrType_STRING
                               ? set_text(value, job->texts[at], attrs->attrs[i])
                               : false;
        if (!taken)
            return false;
    }
    return true;
}

/* ---- Buffers ---- */

/* DLPack's codes from its version 1.1 on, which older headers do not have. */
enum { BOOL = 6, F8_E3M4, F8_E4M3, F8_E4M3B11FNUZ, F8_E4M3FN, F8_E4M3FNUZ, F8_E5M2, F8_E5M2FNUZ, F8_E8M0FNU };

static DLDataType type_of(XLA_FFI_DataType type)
{
    static const struct {
        uint8_t code, bits;
    } types[] = {
        [XLA_FFI_DataType_PRED] = {BOOL, 8},
        [XLA_FFI_DataType_S8] = {kDLInt, 8},
        [XLA_FFI_DataType_S16] = {kDLInt, 16},
        [XLA_FFI_DataType_S32] = {kDLInt, 32},
        [XLA_FFI_DataType_S64] = {kDLInt, 64},
        [XLA_FFI_DataType_U8] = {kDLUInt, 8},
        [XLA_FFI_DataType_U16] = {kDLUInt, 16},
        [XLA_FFI_DataType_U32] = {kDLUInt, 32},
        [XLA_FFI_DataType_U64] = {kDLUInt, 64},
        [XLA_FFI_DataType_F16] = {kDLFloat, 16},
        [XLA_FFI_DataType_F32] = {kDLFloat, 32},
        [XLA_FFI_DataType_F64] = {kDLFloat, 64},
        [XLA_FFI_DataType_BF16] = {kDLBfloat, 16},
        [XLA_FFI_DataType_C64] = {kDLComplex, 64},
        [XLA_FFI_DataType_C128] = {kDLComplex, 128},
        [XLA_FFI_DataType_F8E3M4] = {F8_E3M4, 8},
        [XLA_FFI_DataType_F8E4M3] = {F8_E4M3, 8},
        [XLA_FFI_DataType_F8E4M3B11FNUZ] = {F8_E4M3B11FNUZ, 8},
        [XLA_FFI_DataType_F8E4M3FN] = {F8_E4M3FN, 8},
        [XLA_FFI_DataType_F8E4M3FNUZ] = {F8_E4M3FNUZ, 8},
        [XLA_FFI_DataType_F8E5M2] = {F8_E5M2, 8},
        [XLA_FFI_DataType_F8E5M2FNUZ] = {F8_E5M2FNUZ, 8},
        [XLA_FFI_DataType_F8E8M0FNU] = {F8_E8M0FNU, 8},
    };
    const size_t at = (size_t)type;
    const bool known = at < sizeof types / sizeof *types && types[at].bits > 0;
    return known ? (DLDataType){types[at].code, types[at].bits, 1} : sy_dtype(SY_TYPE_OTHER);
}

static bool take_buffer(const struct job *job, struct buffer *buffer, const XLA_FFI_Buffer *from)
{
    if (from->rank < job->batch)
        return false;
    buffer->data = from->data;
    buffer->dims = from->dims;
    buffer->tensor = (DLTensor){.device = job->device,
                                .ndim = (int32_t)(from->rank - job->batch),
                                .dtype = type_of(from->dtype),
                                .shape = from->dims + job->batch};
    buffer->bytes = buffer->tensor.dtype.bits / 8;
    for (int64_t d = job->batch; d < from->rank; d++)
        buffer->bytes *= (size_t)from->dims[d]; /* XLA allocated it: it fits */
    return true;
}

static struct buffer *buffer_at(const struct job *job, int64_t first, int64_t end, int64_t position)
{
    for (int64_t i = first; i < end; i++)
        if (job->positions[i] == position)
            return &job->buffers[i];
    return NULL;
}

/* The tensors of the values. Results come last, so that they take the places of their initial contents. */
static bool take_buffers(struct job *job)
{
    const XLA_FFI_Args *args = &job->frame->args;
    const XLA_FFI_Rets *rets = &job->frame->rets;
    if (args->size + rets->size != job->n_positions)
        return false;
    struct buffer *const buffers = job->buffers;
    for (int64_t i = 0; i < job->n_positions; i++) {
        const bool is_result = i >= args->size;
        const int64_t at = job->positions[i];
        if (at < 0 || at >= job->n_values ||
            !take_buffer(job, &buffers[i], is_result ? rets->rets[i - args->size] : args->args[i]))
            return false;
        const struct buffer *start = is_result ? buffer_at(job, 0, args->size, at) : NULL;
        if (start != NULL && start->data != buffers[i].data && start->bytes > 0)
            return false; /* XLA did not give them the same memory */
        job->values[at].tag = SYP_IS_TENSOR;
        job->values[at].tensor = &buffers[i].tensor;
        if (is_result)
            job->extents = buffers[i].dims;
    }
    job->runs = 1;
    if (job->extents == NULL && job->batch > 0)
        return false;
    for (int64_t d = 0; d < job->batch; d++) {
        job->runs *= job->extents[d];
        for (int64_t i = 0; i < job->n_positions; i++)
            if (buffers[i].dims[d] != job->extents[d] && (buffers[i].dims[d] != 1 || i >= args->size))
                return false;
    }
    return true;
}

/* Points a tensor to an element of the batch. */
static void move_to(const struct job *job, struct buffer *buffer, int64_t run)
{
    size_t offset = 0, step = buffer->bytes;
    for (int64_t d = job->batch; d-- > 0;) {
        if (buffer->dims[d] != 1)
            offset += step * (size_t)(run % job->extents[d]);
        step *= (size_t)buffer->dims[d];
        run /= job->extents[d];
    }
    buffer->tensor.data = buffer->data == NULL ? NULL : buffer->data + offset;
}

/* ---- The call ---- */

static XLA_FFI_Error *run_all(struct job *job)
{
    union syp_args args;
    struct syp_storage storage = {.n_numbers = 0};
    struct syp_planes planes;
    const size_t bytes = job->op->info->args_bytes;
    memset(&args, 0, bytes);
    if (syp_take_values(job->op, &args, job->values, job->n_values, &storage, &planes) < job->n_values)
        return fail_form(job->frame, "switchyard: a value is of a kind the operator does not take");
    for (int64_t run = 0; run < job->runs; run++) {
        for (int64_t i = 0; i < job->n_positions; i++)
            move_to(job, &job->buffers[i], run);
        const int status = syp_run(job->op, &args, job->values, job->n_values, job->stream, SYP_CALL, NULL);
        const struct syp_failure *failure = status != 0 ? syp_last_failure() : NULL;
        if (failure != NULL && status > 0)
            return fail_status(job->frame, (sy_status)status, failure->error);
        if (status != 0)
            return fail(job->frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "switchyard: no context");
    }
    return NULL;
}

/* Reads what the call is; false: not one that switchyard.jax makes. */
static bool take_form(struct job *job)
{
    const XLA_FFI_Attrs *attrs = &job->frame->attrs;
    const XLA_FFI_ByteSpan *name = attribute(attrs, "_operator", XLA_FFI_AttrType_STRING);
    const XLA_FFI_Array *positions = attribute(attrs, "_positions", XLA_FFI_AttrType_ARRAY);
    const XLA_FFI_Scalar *batch = attribute(attrs, "_batch", XLA_FFI_AttrType_SCALAR);
    if (name == NULL || positions == NULL || positions->dtype != XLA_FFI_DataType_S64 ||
        positions->size == 0 || batch == NULL || batch->dtype != XLA_FFI_DataType_S64)
        return false;
    job->op = syp_find_operator(name->ptr, name->len);
    job->positions = positions->data;
    job->n_positions = (int64_t)positions->size;
    job->batch = *(const int64_t *)batch->value;
    if (job->op == NULL || job->op->info->mesh || job->batch < 0)
        return false;
    job->n_values = job->op->n_fields;
    for (int64_t i = 0; i < job->n_positions; i++) /* planes: whole ones */
        while (job->positions[i] >= job->n_values && job->n_values + SYP_PLANE_VALUES <= MAX_VALUES)
            job->n_values += SYP_PLANE_VALUES;
    return true;
}

static XLA_FFI_Error *read_and_run(struct job *job)
{
    if (!take_form(job))
        return fail_form(job->frame, "switchyard: the call has other attributes than switchyard.jax makes");
    XLA_FFI_Error *error = NULL;
    job->buffers = calloc((size_t)job->n_positions, sizeof *job->buffers);
    job->values = calloc((size_t)job->n_values, sizeof *job->values);
    job->texts = calloc((size_t)job->n_values, sizeof *job->texts);
    if (job->buffers == NULL || job->values == NULL || job->texts == NULL)
        error = fail(job->frame, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED, "switchyard: no memory for a call");
    else if (!take_scalars(job) || !take_buffers(job))
        error = fail_form(job->frame, "switchyard: the buffers and scalars are not those of the operator");
    else
        error = run_all(job);
    free(job->buffers);
    free(job->values);
    free(job->texts);
    return error;
}

/* The version of XLA's interface, of the jaxlib that is running. Some accept only their own; what is used here is the same
   in 0.1 to 0.3, but for the number of the device. */
static atomic_int minor_version = XLA_FFI_API_MINOR;

/* XLA asks for the version once, by a call with this extension. */
static bool is_question(XLA_FFI_CallFrame *frame)
{
    XLA_FFI_Extension_Base *extension = frame->extension_start;
    if (extension == NULL || extension->type != XLA_FFI_Extension_Metadata)
        return false;
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)(void *)extension)->metadata;
    metadata->api_version = (XLA_FFI_Api_Version){.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE,
                                                  .major_version = XLA_FFI_API_MAJOR,
                                                  .minor_version = atomic_load(&minor_version)};
    metadata->traits = 0;
    return true;
}

static XLA_FFI_Error *run_on_cpu(XLA_FFI_CallFrame *frame)
{
    struct job job = {.frame = frame, .device = {kDLCPU, 0}};
    return is_question(frame) ? NULL : read_and_run(&job);
}

#if XLA_FFI_API_MINOR >= 3
static XLA_FFI_Error *device_of(const XLA_FFI_CallFrame *frame, int32_t *device)
{
    XLA_FFI_DeviceOrdinal_Get_Args args = {.struct_size = XLA_FFI_DeviceOrdinal_Get_Args_STRUCT_SIZE,
                                           .ctx = frame->ctx};
    if (atomic_load(&minor_version) < 3)
        return fail(frame, XLA_FFI_Error_Code_UNIMPLEMENTED, "switchyard: on CUDA want a newer jaxlib");
    XLA_FFI_Error *error = frame->api->XLA_FFI_DeviceOrdinal_Get(&args);
    *device = args.device_ordinal;
    return error;
}
#else
static XLA_FFI_Error *device_of(const XLA_FFI_CallFrame *frame, int32_t *device)
{
    *device = 0;
    return fail(frame, XLA_FFI_Error_Code_UNIMPLEMENTED,
                "switchyard: on CUDA want a package that was built with a newer jaxlib");
}
#endif

/* In XLA's stream: a fault of the contents is returned by the next call there, or by switchyard.sync(). */
static XLA_FFI_Error *run_on_cuda(XLA_FFI_CallFrame *frame)
{
    if (is_question(frame))
        return NULL;
    XLA_FFI_Stream_Get_Args stream = {.struct_size = XLA_FFI_Stream_Get_Args_STRUCT_SIZE, .ctx = frame->ctx};
    XLA_FFI_Error *error = frame->api->XLA_FFI_Stream_Get(&stream);
    int32_t device = 0;
    if (error == NULL)
        error = device_of(frame, &device);
    if (error != NULL)
        return error;
    struct job job = {.frame = frame, .device = {kDLCUDA, device}, .stream = stream.stream};
    return read_and_run(&job);
}

/* jax_handler(platform, major, minor version of XLA's interface) -> the address of the handler, an XLA_FFI_Handler; 0: there
   is none */
static PyObject *jax_handler(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *platform = NULL;
    int major = 0, minor = 0;
    if (!PyArg_ParseTuple(arguments, "sii", &platform, &major, &minor))
        return NULL;
    XLA_FFI_Handler *handler = strcmp(platform, "cpu") == 0    ? run_on_cpu
                               : strcmp(platform, "CUDA") == 0 ? run_on_cuda
                                                               : NULL;
    if (major != XLA_FFI_API_MAJOR)
        handler = NULL;
    else
        atomic_store(&minor_version, minor);
    return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)handler);
}

PyMethodDef syp_jax_functions[] = {{"jax_handler", jax_handler, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
