/*
 * Meshes: the operators that exchange, their requests and routings. A mesh is a pointer that Python holds and passes to
 * mesh_free once. Python makes calls on one mesh one at a time.
 */
#include "mesh.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Values ---- */

PyObject *syp_wrap(void *pointer)
{
    return PyCapsule_New(pointer, "switchyard", NULL);
}

/* The mesh, the first value of a call; NULL after an exception. */
static struct syp_mesh *mesh_of(PyObject *const *values, Py_ssize_t n)
{
    if (n > 0 && PyCapsule_IsValid(values[0], "switchyard"))
        return PyCapsule_GetPointer(values[0], "switchyard");
    PyErr_SetString(PyExc_TypeError, "want a mesh");
    return NULL;
}

static PyObject *reject(const char *message)
{
    PyErr_SetString(PyExc_TypeError, message);
    return NULL;
}

static void *pointer_of(PyObject *value)
{
    return PyCapsule_IsValid(value, "switchyard") ? PyCapsule_GetPointer(value, "switchyard") : NULL;
}

/* One tensor for each device, or None for each of them; false and *at, the value that was neither. */
static bool take_tensors(void *args, const struct syp_field *field, const struct syp_value *values,
                         int shards, DLTensor *room, int *at)
{
    const bool none = values[0].tag == SYP_NONE;
    const DLTensor *first = none ? NULL : room;
    memcpy((char *)args + field->offset, &first, sizeof(const DLTensor *));
    for (int i = 0; i < shards; i++, ++*at) {
        if (values[i].tag != (none ? SYP_NONE : SYP_IS_TENSOR))
            return false;
        if (!none)
            room[i] = *values[i].tensor;
    }
    return true;
}

/* Fills the argument struct. Returns the number of values if all fit; else which of them did not. */
static int take_values(struct syp_mesh *mesh, const struct syp_operator *op, union syp_args *args,
                       const struct syp_value *values, int n)
{
    const int shards = mesh->shards;
    DLTensor *room = mesh->tensors;
    int at = 0;
    memset(args, 0, sizeof *args);
    mesh->storage = (struct syp_storage){.n_numbers = 0};
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

/* Calls with tensors on a CUDA device have a context there, in the stream that the caller's library uses now. It runs the
   calls on CPU memory too. When the stream changes, the work in the one before ends first: both use the memory of the context. */
static sy_status place(struct syp_mesh *mesh, const struct syp_frame *frame, void *stream)
{
    int at;
    const DLTensor *tensor = syp_on_device(frame->values, frame->n, &at);
    if (tensor == NULL || (mesh->first != NULL && tensor->device.device_id != mesh->device.device_id))
        return SY_OK; /* the operator rejects a second device */
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

/* ---- Operators ---- */

/* Begins an exchange, or writes the shapes of its results. */
static int run(struct syp_mesh *mesh, const struct syp_operator *op, const struct syp_frame *frame,
               void *stream, sy_shape *shapes)
{
    union syp_args args;
    const int taken = take_values(mesh, op, &args, frame->values, frame->n);
    if (taken < frame->n)
        return -1 - taken;
    const sy_status placed = place(mesh, frame, stream);
    if (placed != SY_OK) /* all processes reject the call */
        return shapes != NULL ? (int)placed
                              : (int)sy_comm_reject(mesh->ctx, mesh->comm, placed, mesh->sentence);
    if (shapes != NULL)
        return (int)sy_infer_mesh(mesh->ctx, mesh->comm, op->info, &args, op->info->args_bytes, shapes,
                                  mesh->shards * op->info->n_tensors);
    return strcmp(op->info->name, "all_to_all_combine") == 0
               ? (int)sy_all_to_all_combine_start(mesh->ctx, mesh->comm, &args.combine, &mesh->started)
               : (int)sy_all_to_all_dispatch_start(mesh->ctx, mesh->comm, &args.dispatch, &mesh->started);
}

/* The results of a call on one device: for each output (shape, number of the type), or None. */
static PyObject *describe(const struct syp_operator *op, const sy_shape *shapes)
{
    PyObject *each = PyTuple_New(op->n_fields - op->n_given);
    for (int i = op->n_given; each != NULL && i < op->n_fields; i++) {
        const sy_shape *shape = &shapes[op->at[i]];
        PyObject *one = shape->rank < 0 ? Py_NewRef(Py_None)
                                        : Py_BuildValue("(Ni)", syp_sizes(shape->extent, shape->rank),
                                                        (int)sy_type_of(shape->type));
        if (one == NULL || PyTuple_SetItem(each, i - op->n_given, one) != 0)
            Py_CLEAR(each);
    }
    return each;
}

static PyObject *describe_all(const struct syp_mesh *mesh, const struct syp_operator *op,
                              const sy_shape *shapes)
{
    PyObject *all = PyTuple_New(mesh->shards);
    for (int s = 0; all != NULL && s < mesh->shards; s++) {
        PyObject *each = describe(op, shapes + (size_t)s * (size_t)op->info->n_tensors);
        if (each == NULL || PyTuple_SetItem(all, s, each) != 0)
            Py_CLEAR(all);
    }
    return all;
}

/* mesh_run(mesh, "start" or "infer", operator, values, stream or None) -> 0, the status of a failure, or -1 - i when value i is of
   a kind the operator does not take. After a start mesh_tell(mesh, "request") is the request. "infer" returns, for each device of
   this process, what describe returns; outputs may be omitted. */
static PyObject *mesh_run(PyObject *self, PyObject *const *values, Py_ssize_t n)
{
    (void)self;
    struct syp_mesh *mesh = mesh_of(values, n);
    Py_ssize_t bytes = 0;
    const char *name = mesh != NULL && n == 5 ? PyUnicode_AsUTF8AndSize(values[2], &bytes) : NULL;
    const struct syp_operator *op = name != NULL ? syp_find_operator(name, (size_t)bytes) : NULL;
    struct syp_frame frame;
    if (mesh == NULL || op == NULL || !op->info->mesh || !PyList_Check(values[3]))
        return PyErr_Occurred() != NULL ? NULL
                                        : reject("want a mesh, what to do, an operator of a mesh and values");
    if (!syp_frame_open(&frame, (int)PyList_Size(values[3])))
        return NULL;
    const bool infers = PyUnicode_CompareWithASCIIString(values[1], "infer") == 0;
    const size_t n_shapes = (size_t)mesh->shards * (size_t)op->info->n_tensors;
    sy_shape *shapes = infers ? PyMem_Calloc(n_shapes, sizeof *shapes) : NULL;
    int status = 0;
    void *stream = NULL;
    if (infers && shapes == NULL) {
        syp_frame_close(&frame);
        return PyErr_NoMemory();
    }
    for (int i = 0; status == 0 && i < frame.n; i++)
        if (!syp_read(&frame, i, PyList_GetItem(values[3], i)))
            status = -1 - i;
    PyErr_Clear();
    if (values[4] != Py_None)
        stream = PyLong_AsVoidPtr(values[4]);
    if (status == 0 && PyErr_Occurred() == NULL) {
        PyThreadState *state = PyEval_SaveThread();
        status = run(mesh, op, &frame, stream, shapes);
        PyEval_RestoreThread(state);
    }
    syp_frame_close(&frame);
    PyObject *result = PyErr_Occurred() != NULL        ? NULL
                       : shapes != NULL && status == 0 ? describe_all(mesh, op, shapes)
                                                       : PyLong_FromLong(status);
    PyMem_Free(shapes);
    return result;
}

/* ---- Meshes ---- */

/* mesh_new(devices of this process) -> a mesh, to be opened next */
static PyObject *mesh_new(PyObject *self, PyObject *shards)
{
    (void)self;
    const long n = PyLong_AsLong(shards);
    if (n < 1)
        return PyErr_Occurred() != NULL ? NULL : reject("want a number of devices");
    struct syp_mesh *mesh = calloc(1, sizeof *mesh);
    DLTensor *tensors = calloc((size_t)n, SY_MAX_FIELDS * sizeof *tensors); /* of a call */
    unsigned generation;
    if (mesh != NULL && tensors != NULL)
        mesh->ctx = syp_new_context(&generation);
    if (mesh == NULL || mesh->ctx == NULL) {
        free(tensors);
        free(mesh);
        return PyErr_NoMemory();
    }
    mesh->tensors = tensors;
    mesh->shards = (int)n;
    return syp_wrap(mesh);
}

/* mesh_open(mesh, rows, cols, max_inflight) -> status; for a mesh with all devices in this process */
static PyObject *mesh_open(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *capsule = NULL;
    int rows = 0, cols = 0, max_inflight = 0;
    if (!PyArg_ParseTuple(arguments, "Oiii", &capsule, &rows, &cols, &max_inflight))
        return NULL;
    struct syp_mesh *mesh = mesh_of(&capsule, 1);
    if (mesh == NULL || mesh->comm != NULL)
        return mesh == NULL ? NULL : reject("want a new mesh");
    const sy_comm_options options = {
        .max_inflight = max_inflight, .error = mesh->sentence, .error_bytes = sizeof mesh->sentence};
    return PyLong_FromLong(
        sy_comm_create_local(&mesh->comm, (sy_mesh){.rows = rows, .cols = cols}, &options));
}

/* mesh_free(mesh): waits for open requests; frees the mesh, its requests and its routings */
static PyObject *mesh_free(PyObject *self, PyObject *capsule)
{
    (void)self;
    struct syp_mesh *mesh = mesh_of(&capsule, 1);
    if (mesh == NULL)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    for (size_t i = 0; i < mesh->n_routings; i++)
        sy_routing_destroy(mesh->routings[i]);
    sy_comm_destroy(mesh->comm);
    sy_ctx_destroy(mesh->ctx);
    sy_ctx_destroy(mesh->first);
    PyEval_RestoreThread(state);
    free(mesh->routings);
    free(mesh->tensors);
    free(mesh);
    return Py_NewRef(Py_None);
}

/* mesh_last(mesh) -> what last() is of its last failed call */
static PyObject *mesh_last(PyObject *self, PyObject *capsule)
{
    (void)self;
    const struct syp_mesh *mesh = mesh_of(&capsule, 1);
    if (mesh == NULL)
        return NULL;
    struct syp_failure failure = {.error = sy_ctx_error(mesh->ctx)};
    sy_ctx_fault(mesh->ctx, &failure.fault);
    return syp_fault(&failure);
}

/* mesh_tell(mesh, what) -> "opening": why it failed; "request": the one started last; "tokens": of the group of the first
   device, in the request waited for last; "device", "shares": of the comm */
static PyObject *mesh_tell(PyObject *self, PyObject *const *values, Py_ssize_t n)
{
    (void)self;
    const struct syp_mesh *mesh = mesh_of(values, n);
    PyObject *what = n == 2 ? values[1] : NULL;
    if (mesh == NULL || what == NULL || !PyUnicode_Check(what))
        return mesh == NULL ? NULL : reject("want a mesh and a word");
    if (PyUnicode_CompareWithASCIIString(what, "opening") == 0)
        return PyUnicode_FromString(mesh->sentence);
    if (PyUnicode_CompareWithASCIIString(what, "request") == 0)
        return mesh->started != NULL ? syp_wrap(mesh->started) : Py_NewRef(Py_None);
    if (PyUnicode_CompareWithASCIIString(what, "tokens") == 0)
        return PyLong_FromLongLong(mesh->tokens);
    if (PyUnicode_CompareWithASCIIString(what, "device") == 0)
        return PyLong_FromLong(sy_comm_first_device(mesh->comm));
    return PyLong_FromLong(sy_comm_shares_memory(mesh->comm));
}

/* mesh_sync(mesh) -> status: the work of calls on a device has ended */
static PyObject *mesh_sync(PyObject *self, PyObject *capsule)
{
    (void)self;
    const struct syp_mesh *mesh = mesh_of(&capsule, 1);
    if (mesh == NULL)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    const sy_status status = sy_ctx_sync(mesh->ctx);
    PyEval_RestoreThread(state);
    return PyLong_FromLong(status);
}

/* mesh_alloc(mesh, bytes) -> address of memory that the processes of this machine share, or -1 - status; collective */
static PyObject *mesh_alloc(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *capsule = NULL;
    long long bytes = 0;
    if (!PyArg_ParseTuple(arguments, "OL", &capsule, &bytes))
        return NULL;
    struct syp_mesh *mesh = mesh_of(&capsule, 1);
    if (mesh == NULL || bytes < 0)
        return mesh == NULL ? NULL : reject("want a mesh and a number of bytes");
    void *data = NULL;
    PyThreadState *state = PyEval_SaveThread();
    const sy_status status = sy_comm_alloc(mesh->ctx, mesh->comm, (size_t)bytes, &data);
    PyEval_RestoreThread(state);
    return PyLong_FromLongLong(status == SY_OK ? (long long)(uintptr_t)data : -1 - (long long)status);
}

/* mesh_reject(mesh, status, sentence) -> the status that all processes return for a call that this one cannot make;
   collective */
static PyObject *mesh_reject(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *capsule = NULL;
    int status = 0;
    const char *text = NULL;
    if (!PyArg_ParseTuple(arguments, "Ois", &capsule, &status, &text))
        return NULL;
    struct syp_mesh *mesh = mesh_of(&capsule, 1);
    if (mesh == NULL)
        return NULL;
    snprintf(mesh->sentence, sizeof mesh->sentence, "%s", text);
    PyThreadState *state = PyEval_SaveThread();
    status = (int)sy_comm_reject(mesh->ctx, mesh->comm, (sy_status)status, mesh->sentence);
    PyEval_RestoreThread(state);
    return PyLong_FromLong(status);
}

/* ---- Requests and routings ---- */

/* request_run(mesh, request, "test", "wait" or "free", phase: 0 routed, 1 done) -> its status; that of a test is -1 when the
   request has not reached the phase. To free it waits until it is done. */
static PyObject *request_run(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *first = NULL, *second = NULL;
    const char *what = NULL;
    int done = 0;
    if (!PyArg_ParseTuple(arguments, "OOsi", &first, &second, &what, &done))
        return NULL;
    struct syp_mesh *mesh = mesh_of(&first, 1);
    sy_request *request = pointer_of(second);
    if (mesh == NULL || request == NULL)
        return mesh == NULL ? NULL : reject("want a mesh, a request, what to do and a phase");
    const sy_phase phase = done != 0 ? SY_PHASE_DONE : SY_PHASE_ROUTED;
    const bool test = strcmp(what, "test") == 0;
    bool there = !test;
    PyThreadState *state = PyEval_SaveThread();
    sy_status status = test ? sy_request_test(request, phase, &there) : sy_request_wait(request, phase);
    if (!test)
        mesh->tokens = sy_request_tokens(request, sy_comm_first_device(mesh->comm));
    if (strcmp(what, "free") == 0)
        status = sy_request_free(request);
    PyEval_RestoreThread(state);
    return PyLong_FromLong(there || status != SY_OK ? (long)status : -1);
}

/* routing_new(mesh) -> routing, or the status of the failure */
static PyObject *routing_new(PyObject *self, PyObject *capsule)
{
    (void)self;
    struct syp_mesh *mesh = mesh_of(&capsule, 1);
    if (mesh == NULL)
        return NULL;
    sy_routing **more = realloc(mesh->routings, (mesh->n_routings + 1) * sizeof(sy_routing *));
    if (more == NULL)
        return PyErr_NoMemory();
    mesh->routings = more;
    const sy_status status = sy_routing_create(mesh->ctx, mesh->comm, &more[mesh->n_routings]);
    return status != SY_OK ? PyLong_FromLong(status) : syp_wrap(more[mesh->n_routings++]);
}

/* routing_free(mesh, routing) */
static PyObject *routing_free(PyObject *self, PyObject *const *values, Py_ssize_t n)
{
    (void)self;
    struct syp_mesh *mesh = mesh_of(values, n);
    if (mesh == NULL)
        return NULL;
    const void *routing = n == 2 ? pointer_of(values[1]) : NULL;
    for (size_t i = 0; i < mesh->n_routings; i++)
        if (mesh->routings[i] == routing) {
            sy_routing_destroy(mesh->routings[i]);
            mesh->routings[i] = mesh->routings[--mesh->n_routings];
        }
    return Py_NewRef(Py_None);
}

PyMethodDef syp_mesh_functions[] = {
    {"mesh_run", (PyCFunction)(void (*)(void))mesh_run, METH_FASTCALL, NULL},
    {"mesh_new", mesh_new, METH_O, NULL},
    {"mesh_open", mesh_open, METH_VARARGS, NULL},
    {"mesh_free", mesh_free, METH_O, NULL},
    {"mesh_last", mesh_last, METH_O, NULL},
    {"mesh_tell", (PyCFunction)(void (*)(void))mesh_tell, METH_FASTCALL, NULL},
    {"mesh_sync", mesh_sync, METH_O, NULL},
    {"mesh_alloc", mesh_alloc, METH_VARARGS, NULL},
    {"mesh_reject", mesh_reject, METH_VARARGS, NULL},
    {"request_run", request_run, METH_VARARGS, NULL},
    {"routing_new", routing_new, METH_O, NULL},
    {"routing_free", (PyCFunction)(void (*)(void))routing_free, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL}};
