/* Values of Python as values of a call. Arrays are read through DLPack, without copies. */
#include <string.h>

#include "binding.h"

struct syp_library syp_library;

static PyTypeObject *array_type; /* numpy.ndarray, and its __dlpack__ */
static PyObject *array_export;
static PyObject *requires_grad; /* the name of an attribute */

bool syp_frame_open(struct syp_frame *frame, int n)
{
    frame->values = frame->few_values;
    frame->tensors = frame->few_tensors;
    frame->held = frame->few_held;
    frame->n = n;
    frame->n_tensors = frame->n_held = 0;
    frame->watched = 0;
    frame->is_checked = false;
    if (n <= SYP_FEW)
        return true;
    const size_t count = (size_t)n,
                 each = sizeof *frame->values + sizeof *frame->tensors + sizeof *frame->held;
    char *room = PyMem_Calloc(count, each);
    if (room == NULL) {
        PyErr_NoMemory();
        return false;
    }
    frame->values = (struct syp_value *)(void *)room;
    frame->tensors = (DLTensor *)(void *)(room + count * sizeof *frame->values);
    frame->held = (PyObject **)(void *)(frame->tensors + count);
    return true;
}

void syp_frame_close(struct syp_frame *frame)
{
    while (frame->n_held > 0)
        Py_DECREF(frame->held[--frame->n_held]);
    if (frame->values != frame->few_values)
        PyMem_Free(frame->values);
}

bool syp_is_tensor(const PyObject *value)
{
    return syp_library.api != NULL &&
           (Py_TYPE(value) == syp_library.types[0] || Py_TYPE(value) == syp_library.types[1]);
}

/* Whether a tensor has no lazy sign and, where `gradients` matter, none to record. An exception is set where the library
   raised one. */
static bool is_plain(PyObject *tensor, bool gradients)
{
    if (syp_library.is_negated == NULL)
        return true;
    if (gradients) {
        PyObject *gradient = PyObject_GetAttr(tensor, requires_grad);
        PyObject *tracks =
            gradient == Py_True ? PyObject_CallNoArgs(syp_library.tracks) : Py_NewRef(Py_False);
        const bool none = gradient != NULL && tracks == Py_False;
        Py_XDECREF(gradient);
        Py_XDECREF(tracks);
        if (!none)
            return false;
    }
    PyObject *negated = PyObject_CallFunctionObjArgs(syp_library.is_negated, tensor, NULL);
    Py_XDECREF(negated);
    return negated == Py_False;
}

/* Which properties a type can have: bool neither sign nor gradient, integers no gradient. Complex numbers may be lazy
   conjugates too. */
static bool is_type_plain(PyObject *value, DLDataType type, bool watched)
{
    const bool integer = type.code == kDLInt || type.code == kDLUInt;
    return type.code == SY_BOOL.code || (type.code != kDLComplex && is_plain(value, !integer && watched));
}

static bool read_tensor(struct syp_frame *frame, int at, PyObject *value)
{
    DLTensor *tensor = &frame->tensors[frame->n_tensors];
    const bool watched = at < 64 && (frame->watched >> at & 1) != 0;
    if (syp_library.api->read(value, tensor) != 0 ||
        (frame->is_checked && !is_type_plain(value, tensor->dtype, watched)))
        return false;
    frame->n_tensors++;
    frame->values[at] = (struct syp_value){.tag = SYP_IS_TENSOR, .tensor = tensor};
    return true;
}

static bool read_array(struct syp_frame *frame, int at, PyObject *value)
{
    PyObject *capsule = PyObject_CallFunctionObjArgs(array_export, value, NULL);
    const DLTensor *tensor = capsule != NULL ? PyCapsule_GetPointer(capsule, "dltensor") : NULL;
    if (tensor == NULL) { /* a managed tensor begins with its tensor */
        Py_XDECREF(capsule);
        return false;
    }
    frame->held[frame->n_held++] = capsule;
    frame->values[at] = (struct syp_value){.tag = SYP_IS_TENSOR, .tensor = tensor};
    return true;
}

/* A value that is no array; false also for integers of more than 64 bits and for text that no name can be. */
static bool read_plain(struct syp_value *to, PyObject *value)
{
    Py_ssize_t bytes = 0;
    if (PyFloat_CheckExact(value)) { /* exact types are found faster */
        *to = (struct syp_value){.tag = SYP_IS_REAL, .real = PyFloat_AsDouble(value)};
        return true;
    }
    if (PyLong_CheckExact(value) || (!PyUnicode_CheckExact(value) && PyLong_Check(value))) {
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        *to = (struct syp_value){.tag = SYP_IS_INT, .number = number};
        return overflow == 0;
    }
    if (!PyUnicode_CheckExact(value) && PyFloat_Check(value)) {
        *to = (struct syp_value){.tag = SYP_IS_REAL, .real = PyFloat_AsDouble(value)};
        return true;
    }
    if (PyUnicode_Check(value)) {
        *to = (struct syp_value){.tag = SYP_IS_TEXT, .text = PyUnicode_AsUTF8AndSize(value, &bytes)};
        return to->text != NULL && strlen(to->text) == (size_t)bytes;
    }
    *to = (struct syp_value){.tag = SYP_IS_TENSOR, .tensor = syp_tensor_of(value)};
    if (to->tensor != NULL)
        return true;
    if (!PyCapsule_IsValid(value, "switchyard"))
        return false;
    *to = (struct syp_value){.tag = SYP_IS_POINTER, .pointer = PyCapsule_GetPointer(value, "switchyard")};
    return true;
}

bool syp_read(struct syp_frame *frame, int at, PyObject *value)
{
    struct syp_value *to = &frame->values[at];
    if (value == Py_None)
        *to = (struct syp_value){.tag = SYP_NONE};
    else if (value == Py_True || value == Py_False)
        *to = (struct syp_value){.tag = SYP_IS_BOOL, .number = value == Py_True};
    else if (syp_is_tensor(value)           ? !read_tensor(frame, at, value)
             : Py_TYPE(value) == array_type ? !read_array(frame, at, value)
                                            : !read_plain(to, value)) {
        *to = (struct syp_value){.tag = SYP_OTHER};
        return false;
    }
    return true;
}

bool syp_stream_of(const struct syp_frame *frame, void **stream)
{
    int at = 0;
    const DLTensor *there = syp_on_device(frame->values, frame->n, &at);
    *stream = NULL;
    return there == NULL || syp_library.api == NULL ||
           syp_library.api->stream(kDLCUDA, there->device.device_id, stream) == 0;
}

/* ---- Functions of Python ---- */

/* meet_arrays(numpy.ndarray) */
static PyObject *meet_arrays(PyObject *self, PyObject *type)
{
    (void)self;
    array_export = PyObject_GetAttrString(type, "__dlpack__");
    if (array_export == NULL) /* a NumPy before it had DLPack */
        return NULL;
    array_type = (PyTypeObject *)Py_NewRef(type);
    return Py_NewRef(Py_None);
}

/* meet(type, another type, capsule of the table of C functions or None, is_negated or None, tracks, written or None) ->
   whether the table can be used */
static PyObject *meet(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *first = NULL, *second = NULL, *capsule = NULL, *is_negated = NULL, *tracks = NULL,
             *written = NULL;
    if (!PyArg_ParseTuple(arguments, "O!O!OOOO", &PyType_Type, &first, &PyType_Type, &second, &capsule,
                          &is_negated, &tracks, &written))
        return NULL;
    const struct syp_exchange *api = NULL;
    if (capsule != Py_None && (api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api")) == NULL)
        return NULL;
    while (api != NULL && api->version.major != 1)
        api = api->older;
    if (api != NULL && (api->read == NULL || api->stream == NULL))
        api = NULL;
    if (requires_grad == NULL && (requires_grad = PyUnicode_InternFromString("requires_grad")) == NULL)
        return NULL;
    syp_meet_openmp();
    Py_INCREF(capsule); /* references are kept as long as the process */
    syp_library = (struct syp_library){{(PyTypeObject *)Py_NewRef(first), (PyTypeObject *)Py_NewRef(second)},
                                       api,
                                       is_negated != Py_None ? Py_NewRef(is_negated) : NULL,
                                       Py_NewRef(tracks),
                                       written != Py_None ? Py_NewRef(written) : NULL};
    return PyBool_FromLong(api != NULL);
}

PyMethodDef syp_frame_functions[] = {
    {"meet", meet, METH_VARARGS, NULL}, {"meet_arrays", meet_arrays, METH_O, NULL}, {NULL, NULL, 0, NULL}};
