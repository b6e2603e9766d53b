/*
 * The C part of calls.py: calls an operator repeatedly from C, with the arrays of the Python call. It is the binding
 * with one more function, and no part of the package.
 */
#include <string.h>
#include <time.h>

#include "../binding/binding.h"

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* repeat(operator, times, values) -> nanoseconds of all calls together */
static PyObject *repeat(PyObject *self, PyObject *arguments)
{
    (void)self;
    const char *name = NULL;
    int times = 0, status = 0;
    PyObject *values = NULL;
    if (!PyArg_ParseTuple(arguments, "siO!", &name, &times, &PyTuple_Type, &values))
        return NULL;
    const struct syp_operator *op = syp_find_operator(name, strlen(name));
    const int n = (int)PyTuple_Size(values);
    struct syp_frame frame;
    union syp_args args;
    struct syp_storage storage = {.n_numbers = 0};
    void *stream = NULL;
    memset(&args, 0, sizeof args);
    if (op == NULL || n > op->n_fields || !syp_frame_open(&frame, n))
        return PyErr_Format(PyExc_TypeError, "want an operator, a number and its values");
    bool fine = true;
    for (int i = 0; fine && i < n; i++)
        fine = syp_read(&frame, i, PyTuple_GetItem(values, i)) &&
               syp_set_field(&args, &op->fields[i], &frame.values[i], &storage);
    fine = fine && syp_stream_of(&frame, &stream);
    const int64_t start = now_ns();
    for (int i = 0; fine && i < times && status == 0; i++)
        status = syp_run(op, &args, frame.values, n, stream, SYP_CALL, NULL);
    const int64_t end = now_ns();
    syp_frame_close(&frame);
    if (!fine || status != 0)
        return PyErr_Format(PyExc_ValueError, "%s",
                            fine ? syp_last_failure()->error : "a value is not of its field's kind");
    return PyLong_FromLongLong(end - start);
}

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit_python_bench(void);
PyMODINIT_FUNC PyInit_python_bench(void)
{
    static PyMethodDef functions[] = {{"repeat", repeat, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
    PyObject *module = PyInit__core();
    if (module != NULL && PyModule_AddFunctions(module, functions) != 0)
        Py_CLEAR(module);
    return module;
}
