/*
 * The functions that Python calls. tvm-ffi finds a function by its symbol, __tvm_ffi_ and the name; `operator` and
 * `query` return the function of an operator.
 */
#include <stdio.h>
#include <string.h>

#include <tvm/ffi/extra/c_env_api.h>

#include "binding.h"

#define EXPORT __attribute__((visibility("default")))

/* ---- Operators ------------------------------------------------------------------------------------------------- */

static const struct syp_field plane_fields[SYP_PLANE_VALUES] = {
    {"cache", SYP_TENSOR, offsetof(sy_kv_plane, cache), NULL},
    {"rows", SYP_TENSOR, offsetof(sy_kv_plane, rows), NULL},
    {"format", SYP_FORMAT, offsetof(sy_kv_plane, format), NULL},
    {"scale", SYP_TENSOR, offsetof(sy_kv_plane, scale), NULL},
    {"global_scale", SYP_TENSOR, offsetof(sy_kv_plane, global_scale), NULL},
};

/* The values after the fields are planes, five values each. Returns how many values were read. */
static int32_t take_planes(const struct syp_operator *op, union syp_args *args, const TVMFFIAny *values,
                           int32_t n, struct syp_planes *room)
{
    const int32_t count = n / SYP_PLANE_VALUES;
    if (op->planes == 0 || n % SYP_PLANE_VALUES != 0 || count > SY_KV_MAX_PLANES)
        return 0;
    struct syp_storage storage = {0};
    memset(room->planes, 0, (size_t)count * sizeof *room->planes);
    for (int32_t i = 0; i < n; i++) {
        sy_kv_plane *plane = &room->planes[i / SYP_PLANE_VALUES];
        if (!syp_set_field(plane, &plane_fields[i % SYP_PLANE_VALUES], &values[i], &storage))
            return i;
        if (plane->format == &storage.format) {
            room->formats[i / SYP_PLANE_VALUES] = storage.format;
            plane->format = &room->formats[i / SYP_PLANE_VALUES];
        }
    }
    const sy_kv_plane *first = room->planes;
    memcpy((char *)args + op->planes, &first, sizeof first);
    memcpy((char *)args + op->num_planes, &(int64_t){count}, sizeof(int64_t));
    memcpy((char *)args + op->plane_bytes, &(size_t){sizeof *first}, sizeof(size_t));
    return n;
}

int32_t syp_take_values(const struct syp_operator *op, union syp_args *args, const TVMFFIAny *values,
                        int32_t n, struct syp_storage *storage, struct syp_planes *room)
{
    int32_t i = 0;
    for (; i < n && i < op->n_fields; i++)
        if (!syp_set_field(args, &op->fields[i], &values[i], storage))
            return i;
    return i < n ? i + take_planes(op, args, values + i, n - i, room) : n;
}

int syp_run(const struct syp_operator *op, const union syp_args *args, const TVMFFIAny *values, int32_t n,
            sy_query *query)
{
    int32_t at = 0;
    const DLTensor *there = syp_on_device(values, n, &at);
    if (there != NULL) {
        const char *argument = at < op->n_fields ? op->fields[at].name : plane_fields[0].name;
        return (int)syp_call_on_device(there->device, op->info, argument, args, query);
    }
    sy_ctx *ctx = syp_context();
    if (ctx == NULL)
        return -1;
    const size_t bytes = op->info->args_bytes;
    const sy_status status = query != NULL ? sy_call_query(ctx, op->info, args, bytes, query)
                                           : sy_call(ctx, op->info, args, bytes);
    if (status != SY_OK)
        syp_forget_failure();
    return (int)status;
}

/* Runs an operator, or only its query, for which outputs may be omitted. The result is 0, its status, or -1 - i when
   value i is absent or of a kind the operator does not take. */
static int run(const struct syp_operator *op, bool check_only, const TVMFFIAny *values, int32_t n,
               TVMFFIAny *result)
{
    union syp_args args;
    struct syp_storage storage = {0};
    struct syp_planes room;
    sy_query query;

    memset(&args, 0, op->info->args_bytes);
    const int32_t taken = syp_take_values(op, &args, values, n, &storage, &room);
    if (taken < n ||
        (!check_only && n < op->n_fields)) { /* an output that is not wanted is None, not absent */
        syp_return_int(result, -1 - taken);
        return 0;
    }
    const int status = syp_run(op, &args, values, n, check_only ? &query : NULL);
    if (status < 0)
        return -1;
    syp_return_int(result, status);
    return 0;
}

static int run_in_stream(const struct syp_operator *op, const TVMFFIAny *values, int32_t n,
                         const DLDevice *device, void *stream)
{
    TVMFFIAny result;
    void *before = NULL;
    if (device != NULL && TVMFFIEnvSetStream(device->device_type, device->device_id, stream, &before) != 0)
        return -1;
    const int raised = run(op, false, values, n, &result);
    if (device != NULL)
        (void)TVMFFIEnvSetStream(device->device_type, device->device_id, before, NULL);
    return raised != 0 ? -1 : (int)result.v_int64;
}

/* calls() -> address of a struct syp_calls */
EXPORT int __tvm_ffi_calls(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_calls(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    static const struct syp_calls calls = {sizeof calls, syp_find_operator, run_in_stream};
    (void)self, (void)values, (void)n;
    syp_return_int(result, (int64_t)(intptr_t)&calls);
    return 0;
}

static int run_operator(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    const bool was_over = syp_is_over();
    const int raised = run(self, false, values, n, result);
    syp_leave(was_over);
    return raised;
}

static int run_query(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    return run(self, true, values, n, result);
}

static int make_function(const TVMFFIAny *values, int32_t n, TVMFFISafeCallType call, TVMFFIAny *result)
{
    const struct syp_operator *op = n == 1 ? syp_find_operator(syp_text(values)) : NULL;
    if (op == NULL)
        return syp_raise("ValueError", "there is no such operator");
    return syp_return_function(result, op, call);
}

/* operator(name) -> function */
EXPORT int __tvm_ffi_operator(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_operator(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    return make_function(values, n, run_operator, result);
}

/* query(name) -> function */
EXPORT int __tvm_ffi_query(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_query(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    return make_function(values, n, run_query, result);
}

/* Adds a part of a row: a tab, then the text. */
static void add_text(char *row, size_t bytes, const char *text)
{
    const size_t used = strlen(row);
    snprintf(row + used, bytes - used, "\t%s", text != NULL ? text : "");
}

/* describe(name, i) -> the i-th value of an operator, parts separated by tabs: name, kind, flags, the input whose type it
   has, shape, words, preset, types. "" past the end */
EXPORT int __tvm_ffi_describe(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_describe(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    const struct syp_operator *op = n == 2 ? syp_find_operator(syp_text(values)) : NULL;
    const int64_t at = op != NULL && values[1].type_index == kTVMFFIInt ? values[1].v_int64 : -1;
    if (at < 0 || at >= op->n_fields)
        return syp_return_text(result, "");
    const sy_field_info *field = op->fields[at].info;
    char row[1024];
    snprintf(row, sizeof row, "%s\t%s\t%u", field->name, sy_kind_name(field->kind), (unsigned)field->flags);
    add_text(row, sizeof row, field->like > 0 ? sy_op_field(op->info, field->like - 1)->name : "");
    add_text(row, sizeof row, field->shape);
    add_text(row, sizeof row, field->words);
    add_text(row, sizeof row, field->preset);
    for (int type = SY_TYPE_OTHER + 1; type < SY_N_TYPES; type++)
        if (field->types & 1u << type)
            add_text(row, sizeof row, sy_type_name((sy_type)type));
    return syp_return_text(result, row);
}

/* last_integer(tensor) -> the last element of a list of int32 or int64; None when the tensor is anything else */
EXPORT int __tvm_ffi_last_integer(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_last_integer(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    const DLTensor *list = n == 1 ? syp_tensor(values) : NULL;
    const bool there = list != NULL && list->device.device_type == kDLCUDA;
    if (list == NULL || (list->device.device_type != kDLCPU && !there) || list->ndim != 1 ||
        list->shape[0] < 1 || list->dtype.code != kDLInt || list->dtype.lanes != 1 ||
        (list->dtype.bits != 32 && list->dtype.bits != 64))
        return 0;
    const size_t bytes = list->dtype.bits / 8;
    const int64_t at = (list->shape[0] - 1) * (list->strides != NULL ? list->strides[0] : 1);
    const char *data = (const char *)list->data + list->byte_offset + at * (int64_t)bytes;
    int32_t narrow = 0;
    int64_t wide = 0;
    void *to = bytes == sizeof narrow ? (void *)&narrow : (void *)&wide;
    if (!there)
        memcpy(to, data, bytes);
    else if (syp_device_copy(list->device, to, data, bytes) != SY_OK)
        return 0;
    syp_return_int(result, bytes == sizeof narrow ? narrow : wide);
    return 0;
}

/* ---- Context --------------------------------------------------------------------------------------------------- */

/* configure_devices(synchronous, file of libswitchyard_cuda or None) */
EXPORT int __tvm_ffi_configure_devices(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_configure_devices(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self, (void)result;
    if (n != 2 || (values[0].type_index != kTVMFFIInt && values[0].type_index != kTVMFFIBool))
        return syp_raise("TypeError", "want whether calls wait, and the file of a library");
    syp_configure_devices(values[0].v_int64 != 0, syp_text(&values[1]));
    return 0;
}

/* sync(device or -1 for all) -> status, of the first fault that calls on devices found */
EXPORT int __tvm_ffi_sync(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_sync(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    if (n != 1 || values[0].type_index != kTVMFFIInt)
        return syp_raise("TypeError", "want the number of a device");
    const DLDevice all = {0}, one = {kDLCUDA, (int32_t)values[0].v_int64};
    syp_return_int(result, syp_sync(one.device_id < 0 ? all : one));
    return 0;
}

/* configure(threads, isa or None) -> whether these are available */
EXPORT int __tvm_ffi_configure(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_configure(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    const TVMFFIByteArray isa = n == 2 ? syp_text(&values[1]) : (TVMFFIByteArray){NULL, 0};
    if (n != 2 || values[0].type_index != kTVMFFIInt ||
        (isa.data == NULL && values[1].type_index != kTVMFFINone))
        return syp_raise("TypeError", "want a number of threads and the name of a kernel table");
    syp_return_int(result, syp_configure(values[0].v_int64, isa));
    return 0;
}

int syp_last(const struct syp_failure *failure, TVMFFIByteArray what, TVMFFIAny *result)
{
    const char letter = what.size > 0 ? what.data[0] : '\0';
    const sy_fault fault = failure->fault;
    switch (letter) {
    case 'e':
        return syp_return_text(result, failure->error);
    case 'a':
        return syp_return_text(result, fault.argument);
    case 'c':
        return syp_return_text(result, sy_fault_name(fault.code));
    case 'b':
        syp_return_int(result, fault.batch);
        return 0;
    case 'p':
        syp_return_int(result, fault.position);
        return 0;
    case 'v':
        syp_return_int(result, fault.value);
        return 0;
    case 'l':
        syp_return_int(result, fault.limit);
        return 0;
    default:
        return syp_raise("ValueError", "no such thing is known of the last call");
    }
}

/* last(what) -> a property of the last failed call of this thread, see syp_last */
EXPORT int __tvm_ffi_last(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_last(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    const struct syp_failure *failure = syp_last_failure();
    return failure == NULL
               ? -1
               : syp_last(failure, n == 1 ? syp_text(values) : (TVMFFIByteArray){NULL, 0}, result);
}

/* own(what) -> "isa" or "threads" of this thread's context */
EXPORT int __tvm_ffi_own(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_own(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    const sy_ctx *ctx = syp_context();
    const TVMFFIByteArray what = n == 1 ? syp_text(values) : (TVMFFIByteArray){NULL, 0};
    if (ctx == NULL)
        return -1;
    if (what.size > 0 && what.data[0] == 'i')
        return syp_return_text(result, sy_ctx_isa(ctx));
    syp_return_int(result, sy_ctx_threads(ctx));
    return 0;
}

/* isa(i) -> name of the i-th kernel table this CPU can run, best first; "" past the end */
EXPORT int __tvm_ffi_isa(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_isa(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    const char *name =
        n == 1 && values[0].type_index == kTVMFFIInt ? sy_isa_name((int)values[0].v_int64) : NULL;
    return syp_return_text(result, name != NULL ? name : "");
}

/* mpi() -> the MPI this package was built with, "" without one; the build names it */
EXPORT int __tvm_ffi_mpi(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_mpi(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self, (void)values, (void)n;
    return syp_return_text(result, SWITCHYARD_MPI_NAME);
}

/* version() -> "0.1.0" */
EXPORT int __tvm_ffi_version(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_version(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self, (void)values, (void)n;
    return syp_return_text(result, sy_version());
}

/* results_version() -> 4 */
EXPORT int __tvm_ffi_results_version(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_results_version(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self, (void)values, (void)n;
    syp_return_int(result, sy_results_version());
    return 0;
}
