/*
 * Meshes: the operators that exchange, their requests and routings. A mesh is a pointer that Python holds and passes to
 * mesh_free once. Python makes calls on one mesh one at a time.
 */
#include "mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <tvm/ffi/extra/c_env_api.h>

#define EXPORT __attribute__((visibility("default")))

/* ---- The two operators ------------------------------------------------------------------------------------------ */

static bool is(TVMFFIByteArray text, const char *word)
{
    return strlen(word) == text.size && memcmp(word, text.data, text.size) == 0;
}

/* The two operators that exchange. */
static const struct syp_operator *find_operator(TVMFFIByteArray name)
{
    const struct syp_operator *op = syp_find_operator(name);
    return op != NULL && op->info->mesh ? op : NULL;
}

static bool combines(const struct syp_operator *op)
{
    return strcmp(op->info->name, "all_to_all_combine") == 0;
}

/* ---- Values ----------------------------------------------------------------------------------------------------- */

/* The mesh, the first value of a call; NULL after syp_raise. */
static struct syp_mesh *mesh_of(const TVMFFIAny *values, int32_t n)
{
    if (n > 0 && values[0].type_index == kTVMFFIOpaquePtr && values[0].v_ptr != NULL)
        return values[0].v_ptr;
    syp_raise("TypeError", "want a mesh");
    return NULL;
}

/* One tensor for each device, or None for each of them; false and *at, the value that was neither. */
static bool take_tensors(void *args, const struct syp_field *field, const TVMFFIAny *values, int32_t shards,
                         DLTensor *room, int32_t *at)
{
    const bool none = values[0].type_index == kTVMFFINone;
    const DLTensor *first = none ? NULL : room;
    memcpy((char *)args + field->offset, &first, sizeof(const DLTensor *));
    for (int32_t i = 0; i < shards; i++, ++*at) {
        const DLTensor *tensor = syp_tensor(&values[i]);
        if (none ? values[i].type_index != kTVMFFINone : tensor == NULL)
            return false;
        if (!none)
            room[i] = *tensor;
    }
    return true;
}

/* Fills the argument struct. Returns the number of values if all fit; else which of them did not. */
static int32_t take_values(struct syp_mesh *mesh, const struct syp_operator *op, union syp_args *args,
                           const TVMFFIAny *values, int32_t n)
{
    const int32_t shards = mesh->shards;
    DLTensor *room = mesh->tensors;
    int32_t at = 0;
    memset(args, 0, sizeof *args);
    mesh->storage = (struct syp_storage){0};
    for (const struct syp_field *field = op->fields; at < n && field->name != NULL; field++) {
        if (field->kind == SYP_TENSORS) {
            if (n - at < shards || !take_tensors(args, field, values + at, shards, room, &at))
                return at;
            room += shards;
        } else if (!syp_set_field(args, field, &values[at++], &mesh->storage)) {
            return at - 1;
        }
    }
    return at;
}

/* The values after the mesh as arguments; false when one, named by *result, is of a kind the operator does not take. */
static bool prepare(struct syp_mesh *mesh, const struct syp_operator *op, union syp_args *args,
                    const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    const int32_t taken = take_values(mesh, op, args, values + 1, n - 1);
    if (taken < n - 1)
        syp_return_int(result, -1 - taken);
    return taken == n - 1;
}

/* Calls with tensors on a CUDA device have a context there, in the stream that the caller's library uses now. It runs the
   calls on CPU memory too. When the stream changes, the work in the one before ends first: both use the memory of the context. */
static sy_status place(struct syp_mesh *mesh, const TVMFFIAny *values, int32_t n)
{
    int32_t at;
    const DLTensor *tensor = syp_on_device(values, n, &at);
    if (tensor == NULL || (mesh->first != NULL && tensor->device.device_id != mesh->device.device_id))
        return SY_OK; /* the operator rejects a second device */
    void *const stream = TVMFFIEnvGetStream(kDLCUDA, tensor->device.device_id);
    sy_status status = SY_OK;
    if (mesh->first != NULL) {
        if (stream != mesh->stream)
            status = sy_ctx_sync(mesh->ctx);
        if (stream != mesh->stream && status == SY_OK)
            status = sy_ctx_set_stream(mesh->ctx, stream);
        if (status != SY_OK)
            snprintf(mesh->sentence, sizeof mesh->sentence, "%s", sy_ctx_error(mesh->ctx));
    } else {
        const struct syp_device_settings settings = syp_settings_of_devices();
        const sy_ctx_options options = {.device = tensor->device,
                                        .stream = stream,
                                        .synchronous = settings.synchronous,
                                        .device_library = settings.library,
                                        .error = mesh->sentence,
                                        .error_bytes = sizeof mesh->sentence};
        sy_ctx *made = NULL;
        status = sy_ctx_create(&made, &options);
        if (status == SY_OK) {
            mesh->first = mesh->ctx;
            mesh->ctx = made;
            mesh->device = tensor->device;
        }
    }
    mesh->stream = status == SY_OK ? stream : mesh->stream;
    return status;
}

/* The same; where that fails, all processes reject the call. */
static bool is_placed(struct syp_mesh *mesh, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    const sy_status status = place(mesh, values, n);
    if (status != SY_OK)
        syp_return_int(result, sy_comm_reject(mesh->ctx, mesh->comm, status, mesh->sentence));
    return status == SY_OK;
}

/* ---- Operators -------------------------------------------------------------------------------------------------- */

/* start(mesh, values...) -> 0, the status of a failure, or -1 - i when value i is of a kind the operator does not take;
   mesh_tell(mesh, "request") then returns the request */
static int start(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    const struct syp_operator *op = self;
    struct syp_mesh *mesh = mesh_of(values, n);
    union syp_args args;
    if (mesh == NULL)
        return -1;
    if (prepare(mesh, op, &args, values, n, result) && is_placed(mesh, values, n, result))
        syp_return_int(result, combines(op) ? sy_all_to_all_combine_start(mesh->ctx, mesh->comm,
                                                                          &args.combine, &mesh->started)
                                            : sy_all_to_all_dispatch_start(mesh->ctx, mesh->comm,
                                                                           &args.dispatch, &mesh->started));
    return 0;
}

/* query(mesh, values...) -> the same for a query, for which outputs may be omitted; mesh_tell(mesh, "rows") and
   mesh_tell(mesh, "slots") then return its results */
static int query(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    const struct syp_operator *op = self;
    struct syp_mesh *mesh = mesh_of(values, n);
    union syp_args args;
    if (mesh == NULL)
        return -1;
    if (!prepare(mesh, op, &args, values, n, result))
        return 0;
    const sy_status placed = place(mesh, values, n);
    if (placed != SY_OK)
        syp_return_int(result, placed);
    else
        syp_return_int(result, sy_call_mesh_query(mesh->ctx, mesh->comm, op->info, &args,
                                                  op->info->args_bytes, &mesh->query));
    return 0;
}

/* mesh_function("start" or "query", name) -> function */
EXPORT int __tvm_ffi_mesh_function(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_mesh_function(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    const struct syp_operator *op = n == 2 ? find_operator(syp_text(&values[1])) : NULL;
    const TVMFFISafeCallType call = n == 2 && is(syp_text(values), "start") ? start : query;
    if (op == NULL)
        return syp_raise("ValueError", "there is no such operator of a mesh");
    return syp_return_function(result, op, call);
}

/* ---- Meshes ----------------------------------------------------------------------------------------------------- */

static void return_pointer(TVMFFIAny *result, void *pointer)
{
    result->type_index = pointer != NULL ? kTVMFFIOpaquePtr : kTVMFFINone;
    result->zero_padding = 0;
    result->v_int64 = 0;
    result->v_ptr = pointer;
}

/* mesh_new(devices of this process) -> a mesh, to be opened next */
EXPORT int __tvm_ffi_mesh_new(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_mesh_new(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    const size_t most = SY_MAX_FIELDS; /* tensors of a call */
    if (n != 1 || values[0].type_index != kTVMFFIInt || values[0].v_int64 < 1)
        return syp_raise("TypeError", "want a number of devices");
    struct syp_mesh *mesh = calloc(1, sizeof *mesh);
    DLTensor *tensors = calloc((size_t)values[0].v_int64, most * sizeof *tensors);
    unsigned generation;
    if (mesh != NULL && tensors != NULL)
        mesh->ctx = syp_new_context(&generation);
    else
        syp_raise("MemoryError", "no memory for a mesh");
    if (mesh == NULL || mesh->ctx == NULL) {
        free(tensors);
        free(mesh);
        return -1;
    }
    mesh->tensors = tensors;
    mesh->shards = (int)values[0].v_int64;
    return_pointer(result, mesh);
    return 0;
}

/* mesh_open(mesh, rows, cols, max_inflight) -> status; for a mesh with all devices in this process */
EXPORT int __tvm_ffi_mesh_open(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_mesh_open(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    struct syp_mesh *mesh = mesh_of(values, n);
    struct syp_storage storage = {0};
    int given[3];
    if (mesh == NULL)
        return -1;
    for (int i = 0; i < 3; i++) {
        const struct syp_field field = {"", SYP_INT, sizeof *given * (size_t)i, NULL};
        if (n != 4 || mesh->comm != NULL || !syp_set_field(given, &field, &values[1 + i], &storage))
            return syp_raise("TypeError", "want a new mesh, rows, columns and a number of requests");
    }
    const sy_comm_options options = {
        .max_inflight = given[2], .error = mesh->sentence, .error_bytes = sizeof mesh->sentence};
    syp_return_int(
        result, sy_comm_create_local(&mesh->comm, (sy_mesh){.rows = given[0], .cols = given[1]}, &options));
    return 0;
}

/* mesh_free(mesh): waits for open requests; frees the mesh, its requests and its routings */
EXPORT int __tvm_ffi_mesh_free(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_mesh_free(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    struct syp_mesh *mesh = mesh_of(values, n);
    if (mesh == NULL)
        return -1;
    for (size_t i = 0; i < mesh->n_routings; i++)
        sy_routing_destroy(mesh->routings[i]);
    sy_comm_destroy(mesh->comm);
    sy_ctx_destroy(mesh->ctx);
    sy_ctx_destroy(mesh->first);
    free(mesh->routings);
    free(mesh->tensors);
    free(mesh);
    result->type_index = kTVMFFINone;
    return 0;
}

/* mesh_tell(mesh, what) -> "opening": why it failed; "request": the one started last; "tokens": of the group of the first
   device, in the request waited for last; "rows" and "slots": of the last query; "transport", "device", "shares": of the comm; and "last.error" and so on, see syp_last */
EXPORT int __tvm_ffi_mesh_tell(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_mesh_tell(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    const struct syp_mesh *mesh = mesh_of(values, n);
    const TVMFFIByteArray what = n == 2 ? syp_text(&values[1]) : (TVMFFIByteArray){NULL, 0};
    enum { PREFIX = 5 };
    if (mesh == NULL)
        return -1;
    if (what.size > PREFIX && memcmp(what.data, "last.", PREFIX) == 0) {
        struct syp_failure failure = {.error = sy_ctx_error(mesh->ctx)};
        sy_ctx_fault(mesh->ctx, &failure.fault);
        return syp_last(&failure, (TVMFFIByteArray){what.data + PREFIX, what.size - PREFIX}, result);
    }
    if (is(what, "opening"))
        return syp_return_text(result, mesh->sentence);
    if (is(what, "transport"))
        return syp_return_text(result, sy_comm_transport_name(mesh->comm));
    if (is(what, "request"))
        return_pointer(result, mesh->started);
    else if (is(what, "tokens"))
        syp_return_int(result, mesh->tokens);
    else if (is(what, "device"))
        syp_return_int(result, sy_comm_first_device(mesh->comm));
    else if (is(what, "shares"))
        syp_return_int(result, sy_comm_shares_memory(mesh->comm));
    else
        syp_return_int(result, is(what, "rows") ? mesh->query.rows : mesh->query.slots);
    return 0;
}

/* mesh_sync(mesh) -> status: the work of calls on a device has ended */
EXPORT int __tvm_ffi_mesh_sync(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_mesh_sync(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    const struct syp_mesh *mesh = mesh_of(values, n);
    if (mesh == NULL)
        return -1;
    syp_return_int(result, sy_ctx_sync(mesh->ctx));
    return 0;
}

/* mesh_alloc(mesh, bytes) -> address of memory that the processes of this machine share, or -1 - status; collective */
EXPORT int __tvm_ffi_mesh_alloc(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_mesh_alloc(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    struct syp_mesh *mesh = mesh_of(values, n);
    void *data = NULL;
    if (mesh == NULL)
        return -1;
    if (n != 2 || values[1].type_index != kTVMFFIInt || values[1].v_int64 < 0)
        return syp_raise("TypeError", "want a mesh and a number of bytes");
    const sy_status status = sy_comm_alloc(mesh->ctx, mesh->comm, (size_t)values[1].v_int64, &data);
    syp_return_int(result, status == SY_OK ? (int64_t)(uintptr_t)data : -1 - (int64_t)status);
    return 0;
}

/* mesh_reject(mesh, status, sentence) -> the status that all processes return for a call that this one cannot make;
   collective */
EXPORT int __tvm_ffi_mesh_reject(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_mesh_reject(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    struct syp_mesh *mesh = mesh_of(values, n);
    const TVMFFIByteArray text = n == 3 ? syp_text(&values[2]) : (TVMFFIByteArray){NULL, 0};
    if (mesh == NULL)
        return -1;
    if (text.data == NULL || values[1].type_index != kTVMFFIInt)
        return syp_raise("TypeError", "want a mesh, a status and a sentence");
    const size_t most = sizeof mesh->sentence - 1;
    const size_t length = text.size < most ? text.size : most;
    memcpy(mesh->sentence, text.data, length);
    mesh->sentence[length] = '\0';
    syp_return_int(result,
                   sy_comm_reject(mesh->ctx, mesh->comm, (sy_status)values[1].v_int64, mesh->sentence));
    return 0;
}

/* ---- Requests and routings -------------------------------------------------------------------------------------- */

static bool take_request(const TVMFFIAny *values, int32_t n, sy_request **request, sy_phase *phase)
{
    if (n != 3 || values[1].type_index != kTVMFFIOpaquePtr || values[2].type_index != kTVMFFIInt)
        return false;
    *request = values[1].v_ptr;
    *phase = values[2].v_int64 != 0 ? SY_PHASE_DONE : SY_PHASE_ROUTED;
    return true;
}

/* request_test(mesh, request, phase) -> its status, or -1 when it has not reached the phase */
EXPORT int __tvm_ffi_request_test(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_request_test(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    sy_request *request;
    sy_phase phase;
    bool done = false;
    if (!take_request(values, n, &request, &phase))
        return syp_raise("TypeError", "want a mesh, a request and a phase");
    const sy_status status = sy_request_test(request, phase, &done);
    syp_return_int(result, done || status != SY_OK ? (int64_t)status : -1);
    return 0;
}

static sy_status wait_for(struct syp_mesh *mesh, sy_request *request, sy_phase phase)
{
    const bool was_over = syp_is_over();
    const sy_status status = sy_request_wait(request, phase);
    syp_leave(was_over);
    mesh->tokens = sy_request_tokens(request, sy_comm_first_device(mesh->comm));
    return status;
}

/* request_wait(mesh, request, phase) -> its status */
EXPORT int __tvm_ffi_request_wait(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_request_wait(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    struct syp_mesh *mesh = mesh_of(values, n);
    sy_request *request;
    sy_phase phase;
    if (mesh == NULL || !take_request(values, n, &request, &phase))
        return mesh == NULL ? -1 : syp_raise("TypeError", "want a mesh, a request and a phase");
    syp_return_int(result, wait_for(mesh, request, phase));
    return 0;
}

/* request_free(mesh, request, 1) -> its status, when it is done */
EXPORT int __tvm_ffi_request_free(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_request_free(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    struct syp_mesh *mesh = mesh_of(values, n);
    sy_request *request;
    sy_phase phase;
    if (mesh == NULL || !take_request(values, n, &request, &phase))
        return mesh == NULL ? -1 : syp_raise("TypeError", "want a mesh, a request and a phase");
    (void)wait_for(mesh, request, SY_PHASE_DONE);
    syp_return_int(result, sy_request_free(request));
    return 0;
}

/* routing_new(mesh) -> routing, or the status of the failure */
EXPORT int __tvm_ffi_routing_new(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_routing_new(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    struct syp_mesh *mesh = mesh_of(values, n);
    if (mesh == NULL)
        return -1;
    sy_routing **more = realloc(mesh->routings, (mesh->n_routings + 1) * sizeof(sy_routing *));
    if (more == NULL)
        return syp_raise("MemoryError", "no memory for a routing");
    mesh->routings = more;
    const sy_status status = sy_routing_create(mesh->ctx, mesh->comm, &more[mesh->n_routings]);
    if (status != SY_OK)
        syp_return_int(result, status);
    else
        return_pointer(result, more[mesh->n_routings++]);
    return 0;
}

/* routing_free(mesh, routing) */
EXPORT int __tvm_ffi_routing_free(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_routing_free(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    struct syp_mesh *mesh = mesh_of(values, n);
    if (mesh == NULL)
        return -1;
    for (size_t i = 0; n == 2 && i < mesh->n_routings; i++)
        if (mesh->routings[i] == values[1].v_ptr) {
            sy_routing_destroy(mesh->routings[i]);
            mesh->routings[i] = mesh->routings[--mesh->n_routings];
        }
    result->type_index = kTVMFFINone;
    return 0;
}
