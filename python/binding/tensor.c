/*
 * Tensor: an array of the binding's own, for what array libraries cannot provide. It is a view of an array that NumPy does not
 * export through DLPack (read-only, or of a type of ml_dtypes), a tensor that another library exported, new memory for libraries
 * that can only import tensors, or a shape and a type without memory.
 */
#include <stdlib.h>
#include <string.h>

#include "binding.h"

enum { MAX_RANK = 32, ALIGNMENT = 64 };

struct tensor {
    PyObject_HEAD DLTensor dl;
    PyObject *owner;       /* the capsule of another library, or NULL */
    void *memory;          /* its own, or NULL */
    struct syp_device *of; /* whose memory that is; NULL: the CPU's */
    int64_t shape[MAX_RANK];
    int64_t strides[MAX_RANK];
};

static PyTypeObject *tensor_type;

/* DLManagedTensor, and the same with a version, as DLPack defines them. */
struct managed {
    DLTensor dl;
    void *context;
    void (*deleter)(struct managed *);
};

struct managed_versioned {
    uint32_t major, minor;
    void *context;
    void (*deleter)(struct managed_versioned *);
    uint64_t flags;
    DLTensor dl;
};

const DLTensor *syp_tensor_of(PyObject *value)
{
    return Py_TYPE(value) == tensor_type ? &((struct tensor *)(void *)value)->dl : NULL;
}

static void drop(PyObject *self)
{
    struct tensor *tensor = (struct tensor *)(void *)self;
    PyTypeObject *type = Py_TYPE(self);
    if (tensor->of != NULL)
        syp_device_free(tensor->of, tensor->memory);
    else
        free(tensor->memory);
    Py_XDECREF(tensor->owner);
    PyObject_Free(self);
    Py_DECREF(type);
}

static struct tensor *new_tensor(void)
{
    return (struct tensor *)(void *)PyType_GenericAlloc(tensor_type, 0);
}

/* ---- What other libraries import ---- */

static void release(void *context)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF((PyObject *)context);
    PyGILState_Release(state);
}

static void delete_managed(struct managed *managed)
{
    release(managed->context);
    free(managed);
}

static void delete_versioned(struct managed_versioned *managed)
{
    release(managed->context);
    free(managed);
}

/* A capsule that was not taken over has its first name. */
static void drop_capsule(PyObject *capsule)
{
    if (PyCapsule_IsValid(capsule, "dltensor"))
        delete_managed(PyCapsule_GetPointer(capsule, "dltensor"));
    else if (PyCapsule_IsValid(capsule, "dltensor_versioned"))
        delete_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
}

/* tensor.__dlpack__(max_version=None, ...): other arguments do not matter, the work on a tensor is done or in its stream */
static PyObject *export(PyObject *self, PyObject *arguments, PyObject *names)
{
    (void)arguments;
    const DLTensor *dl = &((struct tensor *)(void *)self)->dl;
    PyObject *version = names != NULL ? PyDict_GetItemString(names, "max_version") : NULL;
    PyObject *major = version != NULL && version != Py_None ? PySequence_GetItem(version, 0) : NULL;
    const bool versioned = major != NULL && PyLong_AsLong(major) >= 1;
    Py_XDECREF(major);
    if (PyErr_Occurred() != NULL)
        return NULL;
    void *made = malloc(versioned ? sizeof(struct managed_versioned) : sizeof(struct managed));
    if (made == NULL)
        return PyErr_NoMemory();
    if (versioned)
        *(struct managed_versioned *)made = (struct managed_versioned){1, 0, self, delete_versioned, 0, *dl};
    else
        *(struct managed *)made = (struct managed){*dl, self, delete_managed};
    PyObject *capsule = PyCapsule_New(made, versioned ? "dltensor_versioned" : "dltensor", drop_capsule);
    if (capsule == NULL)
        free(made);
    else
        Py_INCREF(self);
    return capsule;
}

static PyObject *export_device(PyObject *self, PyObject *unused)
{
    (void)unused;
    const DLDevice device = syp_tensor_of(self)->device;
    return Py_BuildValue("(ii)", (int)device.device_type, (int)device.device_id);
}

static PyObject *get_shape(PyObject *self, void *unused)
{
    (void)unused;
    const DLTensor *dl = syp_tensor_of(self);
    return syp_sizes(dl->shape, dl->ndim);
}

/* The names that NumPy and ml_dtypes have for types, by DLPack's code. */
static const char *const type_names[] = {"int",           "uint",
                                         "float",         "opaque",
                                         "bfloat",        "complex",
                                         "bool",          "float8_e3m4",
                                         "float8_e4m3",   "float8_e4m3b11fnuz",
                                         "float8_e4m3fn", "float8_e4m3fnuz",
                                         "float8_e5m2",   "float8_e5m2fnuz",
                                         "float8_e8m0fnu"};
enum {
    N_NAMES = sizeof type_names / sizeof *type_names,
    FIRST_WHOLE = 6
}; /* from there on without the bits */

static PyObject *get_dtype(PyObject *self, void *unused)
{
    (void)unused;
    const DLDataType type = syp_tensor_of(self)->dtype;
    if (type.code >= N_NAMES)
        return PyUnicode_FromFormat("type %d of %d bits", type.code, type.bits);
    return type.code >= FIRST_WHOLE ? PyUnicode_FromString(type_names[type.code])
                                    : PyUnicode_FromFormat("%s%d", type_names[type.code], type.bits);
}

static bool find_type(const char *name, DLDataType *type)
{
    for (int code = 0; code < N_NAMES; code++) {
        const size_t length = strlen(type_names[code]);
        const bool whole = code >= FIRST_WHOLE;
        if (strncmp(name, type_names[code], length) != 0 || (whole && name[length] != '\0'))
            continue;
        char *end = NULL;
        const long bits = whole ? 8 : strtol(name + length, &end, 10);
        *type = (DLDataType){(uint8_t)code, (uint8_t)bits, 1};
        if (whole || (*end == '\0' && bits >= 8 && bits <= 128 && bits % 8 == 0))
            return true;
    }
    PyErr_Format(PyExc_ValueError, "unknown dtype `%s`", name);
    return false;
}

/* ---- New ones ---- */

/* Extents or strides of a tuple; how many, -1 with an exception. */
static int take_sizes(PyObject *tuple, int64_t *sizes)
{
    const Py_ssize_t n = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : -1;
    if (n < 0 || n > MAX_RANK) {
        PyErr_SetString(PyExc_TypeError, "want a tuple of at most 32 extents");
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        sizes[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (sizes[i] == -1 && PyErr_Occurred() != NULL)
            return -1;
    }
    return (int)n;
}

/* A tensor of this type and shape, compact and without memory; *bytes of it, SIZE_MAX: too many. */
static struct tensor *describe(const char *name, PyObject *shape, size_t *bytes)
{
    struct tensor *tensor = new_tensor();
    if (tensor == NULL)
        return NULL;
    tensor->dl = (DLTensor){.device = {kDLCPU, 0}, .shape = tensor->shape, .strides = tensor->strides};
    tensor->dl.ndim = take_sizes(shape, tensor->shape);
    if (tensor->dl.ndim < 0 || !find_type(name, &tensor->dl.dtype)) {
        Py_DECREF((PyObject *)tensor);
        return NULL;
    }
    int64_t elements = 1;
    bool fits = true;
    for (int i = tensor->dl.ndim; i-- > 0;) {
        tensor->strides[i] = elements;
        fits =
            fits && tensor->shape[i] >= 0 && !__builtin_mul_overflow(elements, tensor->shape[i], &elements);
    }
    if (!fits || __builtin_mul_overflow((size_t)elements, (size_t)tensor->dl.dtype.bits / 8, bytes) ||
        *bytes > SIZE_MAX / 2)
        *bytes = SIZE_MAX;
    return tensor;
}

/* view(address, type, shape, strides or None) -> tensor over memory that the caller keeps alive; strides in elements. Address 0:
   without memory */
static PyObject *view(PyObject *self, PyObject *arguments)
{
    (void)self;
    unsigned long long address = 0;
    const char *name = NULL;
    PyObject *shape = NULL, *strides = NULL;
    size_t bytes = 0;
    if (!PyArg_ParseTuple(arguments, "KsOO", &address, &name, &shape, &strides))
        return NULL;
    struct tensor *tensor = describe(name, shape, &bytes);
    if (tensor != NULL && strides != Py_None && take_sizes(strides, tensor->strides) != tensor->dl.ndim) {
        if (PyErr_Occurred() == NULL)
            PyErr_SetString(PyExc_ValueError, "want as many strides as extents");
        Py_DECREF((PyObject *)tensor);
        return NULL;
    }
    if (tensor != NULL)
        tensor->dl.data = (void *)(uintptr_t)address; /* from NumPy */
    return (PyObject *)tensor;
}

/* tensor(capsule) -> the tensor that another library exported */
static PyObject *import(PyObject *self, PyObject *capsule)
{
    (void)self;
    const struct managed_versioned *versioned = PyCapsule_IsValid(capsule, "dltensor_versioned")
                                                    ? PyCapsule_GetPointer(capsule, "dltensor_versioned")
                                                    : NULL;
    const DLTensor *dl = versioned != NULL ? &versioned->dl : PyCapsule_GetPointer(capsule, "dltensor");
    struct tensor *tensor = dl != NULL ? new_tensor() : NULL;
    if (tensor != NULL) {
        tensor->dl = *dl;
        tensor->owner = Py_NewRef(capsule);
    }
    return (PyObject *)tensor;
}

static PyObject *without_memory(struct tensor *tensor)
{
    Py_DECREF((PyObject *)tensor);
    return PyErr_NoMemory();
}

static PyObject *allocate(PyObject *arguments, bool clear)
{
    const char *name = NULL;
    PyObject *shape = NULL;
    size_t bytes = 0;
    if (!PyArg_ParseTuple(arguments, "Os", &shape, &name))
        return NULL;
    struct tensor *tensor = describe(name, shape, &bytes);
    if (tensor == NULL)
        return NULL;
    const size_t rounded =
        bytes < SIZE_MAX ? (bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT : 0; /* at least one line */
    tensor->memory = rounded > 0 ? aligned_alloc(ALIGNMENT, rounded) : NULL;
    if (tensor->memory == NULL)
        return without_memory(tensor);
    if (clear)
        memset(tensor->memory, 0, rounded);
    tensor->dl.data = tensor->memory;
    return (PyObject *)tensor;
}

/* empty(shape, type) -> tensor with memory of its own, 64-byte aligned, contents unspecified */
static PyObject *empty(PyObject *self, PyObject *arguments)
{
    (void)self;
    return allocate(arguments, false);
}

/* zeros(shape, type) -> the same, all bytes zero */
static PyObject *zeros(PyObject *self, PyObject *arguments)
{
    (void)self;
    return allocate(arguments, true);
}

/* device_empty(device, shape, type) -> tensor with memory of a CUDA device */
static PyObject *device_empty(PyObject *self, PyObject *arguments)
{
    (void)self;
    int device = 0;
    const char *name = NULL;
    PyObject *shape = NULL;
    size_t bytes = 0;
    if (!PyArg_ParseTuple(arguments, "iOs", &device, &shape, &name))
        return NULL;
    struct tensor *tensor = describe(name, shape, &bytes);
    if (tensor == NULL)
        return NULL;
    tensor->dl.device = (DLDevice){kDLCUDA, device};
    if (bytes == SIZE_MAX)
        return without_memory(tensor);
    if (syp_device_alloc(tensor->dl.device, bytes, &tensor->of, &tensor->memory) != SY_OK) {
        tensor->of = NULL;
        Py_DECREF((PyObject *)tensor);
        PyErr_SetString(PyExc_MemoryError, syp_last_failure()->error); /* or the operator has a better one */
        return NULL;
    }
    tensor->dl.data = tensor->memory;
    return (PyObject *)tensor;
}

/* ---- Bytes ---- */

/* Bytes of a compact tensor; SIZE_MAX for others. */
static size_t compact_bytes(const DLTensor *tensor)
{
    size_t elements = 1;
    for (int32_t i = tensor->ndim; i-- > 0; elements *= (size_t)tensor->shape[i])
        if (tensor->strides != NULL && tensor->shape[i] > 1 && tensor->strides[i] != (int64_t)elements)
            return SIZE_MAX;
    return elements * ((tensor->dtype.bits * (size_t)tensor->dtype.lanes + 7) / 8);
}

/* copy(to, from, stream=0) -> status; the bytes of a compact tensor, of which one is on a CUDA device, after its stream's work */
static PyObject *copy(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *first = NULL, *second = NULL;
    unsigned long long stream = 0;
    struct syp_frame frame;
    int at = 0;
    if (!PyArg_ParseTuple(arguments, "OO|K", &first, &second, &stream) || !syp_frame_open(&frame, 2))
        return NULL;
    PyObject *result = NULL;
    const bool taken = syp_read(&frame, 0, first) && syp_read(&frame, 1, second);
    const DLTensor *there = taken ? syp_on_device(frame.values, 2, &at) : NULL;
    if (there == NULL || frame.values[1 - at].tag != SYP_IS_TENSOR) {
        if (PyErr_Occurred() == NULL)
            PyErr_SetString(PyExc_TypeError, "want two tensors, one of them on a CUDA device");
    } else {
        const DLTensor *to = frame.values[0].tensor, *from = frame.values[1].tensor;
        const size_t bytes = compact_bytes(to);
        if (bytes == SIZE_MAX || bytes != compact_bytes(from))
            PyErr_SetString(PyExc_ValueError, "want compact tensors of as many bytes");
        else
            result = PyLong_FromLong(syp_device_copy(there->device, (void *)(uintptr_t)stream,
                                                     (char *)to->data + to->byte_offset,
                                                     (const char *)from->data + from->byte_offset, bytes));
    }
    syp_frame_close(&frame);
    return result;
}

/* The last element of a list of integers; false: it is none. */
static bool read_last(const DLTensor *list, void *stream, int64_t *last)
{
    const bool there = list->device.device_type == kDLCUDA;
    if ((list->device.device_type != kDLCPU && !there) || list->ndim != 1 || list->shape[0] < 1 ||
        list->dtype.code != kDLInt || list->dtype.lanes != 1 ||
        (list->dtype.bits != 32 && list->dtype.bits != 64))
        return false;
    const size_t bytes = list->dtype.bits / 8;
    const int64_t at = (list->shape[0] - 1) * (list->strides != NULL ? list->strides[0] : 1);
    const char *data = (const char *)list->data + list->byte_offset + at * (int64_t)bytes;
    int32_t narrow = 0;
    void *to = bytes == sizeof narrow ? (void *)&narrow : (void *)last;
    if (!there)
        memcpy(to, data, bytes);
    else if (syp_device_copy(list->device, stream, to, data, bytes) != SY_OK)
        return false;
    *last = bytes == sizeof narrow ? narrow : *last;
    return true;
}

/* last_integer(tensor, stream=that of the library of tensors) -> the last element of a list of int32 or int64; None when the
   tensor is anything else */
static PyObject *last_integer(PyObject *self, PyObject *arguments)
{
    (void)self;
    struct syp_frame frame;
    PyObject *value = NULL, *number = Py_None;
    void *stream = NULL;
    int64_t last = 0;
    if (!PyArg_ParseTuple(arguments, "O|O", &value, &number) || !syp_frame_open(&frame, 1))
        return NULL;
    const bool found = syp_read(&frame, 0, value) && frame.values[0].tag == SYP_IS_TENSOR &&
                       (number != Py_None ? (stream = PyLong_AsVoidPtr(number), PyErr_Occurred() == NULL)
                                          : syp_stream_of(&frame, &stream)) &&
                       read_last(frame.values[0].tensor, stream, &last);
    syp_frame_close(&frame);
    if (!found && PyErr_Occurred() != NULL)
        PyErr_Clear(); /* what is wrong with it is found when the operator reads it */
    return found ? PyLong_FromLongLong(last) : Py_NewRef(Py_None);
}

/* address(array) -> where the binding sees its first element */
static PyObject *address(PyObject *self, PyObject *value)
{
    (void)self;
    struct syp_frame frame;
    PyObject *found = NULL;
    if (!syp_frame_open(&frame, 1))
        return NULL;
    if (syp_read(&frame, 0, value) && frame.values[0].tag == SYP_IS_TENSOR) {
        const DLTensor *tensor = frame.values[0].tensor;
        found = PyLong_FromVoidPtr((char *)tensor->data + tensor->byte_offset);
    } else if (PyErr_Occurred() == NULL) {
        PyErr_SetString(PyExc_TypeError, "want an array");
    }
    syp_frame_close(&frame);
    return found;
}

PyObject *syp_tensor_type(void)
{
    static PyMethodDef methods[] = {
        {"__dlpack__", (PyCFunction)(void (*)(void)) export, METH_VARARGS | METH_KEYWORDS, NULL},
        {"__dlpack_device__", export_device, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL}};
    static PyGetSetDef members[] = {{"shape", get_shape, NULL, NULL, NULL},
                                    {"dtype", get_dtype, NULL, NULL, NULL},
                                    {NULL, NULL, NULL, NULL, NULL}};
    destructor dealloc = drop;
    void *slot = NULL;
    memcpy(&slot, &dealloc, sizeof slot);
    PyType_Slot slots[] = {
        {Py_tp_dealloc, slot},
        {Py_tp_methods, methods},
        {Py_tp_getset, members},
        {Py_tp_doc,
         (void *)(uintptr_t) "An array that any library imports through DLPack; `dtype` is a name."},
        {0, NULL}};
    PyType_Spec spec = {"switchyard.Tensor", sizeof(struct tensor), 0, Py_TPFLAGS_DEFAULT, slots};
    if (tensor_type == NULL)
        tensor_type = (PyTypeObject *)(void *)PyType_FromSpec(&spec);
    return (PyObject *)(void *)tensor_type;
}

PyMethodDef syp_tensor_functions[] = {{"view", view, METH_VARARGS, NULL},
                                      {"tensor", import, METH_O, NULL},
                                      {"empty", empty, METH_VARARGS, NULL},
                                      {"zeros", zeros, METH_VARARGS, NULL},
                                      {"device_empty", device_empty, METH_VARARGS, NULL},
                                      {"copy", copy, METH_VARARGS, NULL},
                                      {"last_integer", last_integer, METH_VARARGS, NULL},
                                      {"address", address, METH_O, NULL},
                                      {NULL, NULL, 0, NULL}};
