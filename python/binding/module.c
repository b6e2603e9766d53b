/* The module switchyard._core: descriptions, failures and settings; the rest is in tensor.c, frame.c, call.c and mesh.c. */
#include <string.h>

#include "binding.h"

extern PyMethodDef syp_frame_functions[], syp_call_functions[];

/* ---- Operators ---- */

static PyObject *types_of(const sy_field_info *field)
{
    PyObject *types = PyTuple_New(__builtin_popcount(field->types));
    int n = 0;
    for (int type = SY_TYPE_OTHER + 1; types != NULL && type < SY_N_TYPES; type++)
        if (field->types & 1u << type)
            PyTuple_SetItem(types, n++, PyUnicode_FromString(sy_type_name((sy_type)type)));
    return types;
}

static const char *text_of(const char *text)
{
    return text != NULL ? text : "";
}

/* describe(name) -> for each value of an operator in the order of a call: name, kind, flags, the input whose type it has, shape,
   words, preset, types, range, help; () for what is no operator */
static PyObject *describe(PyObject *self, PyObject *name)
{
    (void)self;
    Py_ssize_t bytes = 0;
    const char *text = PyUnicode_AsUTF8AndSize(name, &bytes);
    if (text == NULL)
        return NULL;
    const struct syp_operator *op = syp_find_operator(text, (size_t)bytes);
    PyObject *rows = PyTuple_New(op != NULL ? op->n_fields : 0);
    for (int i = 0; op != NULL && rows != NULL && i < op->n_fields; i++) {
        const sy_field_info *field = op->fields[i].info;
        const char *like = field->like > 0 ? sy_op_field(op->info, field->like - 1)->name : "";
        PyObject *row =
            Py_BuildValue("(ssIssssNss)", field->name, sy_kind_name(field->kind), (unsigned)field->flags,
                          like, text_of(field->shape), text_of(field->words), text_of(field->preset),
                          types_of(field), text_of(field->range), field->help);
        if (row == NULL || PyTuple_SetItem(rows, i, row) != 0)
            Py_CLEAR(rows);
    }
    return rows;
}

/* ---- Failures and settings ---- */

PyObject *syp_fault(const struct syp_failure *failure)
{
    const sy_fault *fault = &failure->fault;
    return Py_BuildValue("(sssLLLL)", text_of(failure->error), sy_fault_name(fault->code),
                         text_of(fault->argument), (long long)fault->batch, (long long)fault->position,
                         (long long)fault->value, (long long)fault->limit);
}

/* last() -> of the last failed call of this thread: sentence, code, argument, batch, position, value, limit */
static PyObject *last(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    return syp_fault(syp_last_failure());
}

/* configure_devices(synchronous, file of libswitchyard_cuda or None) */
static PyObject *configure_devices(PyObject *self, PyObject *arguments)
{
    (void)self;
    int synchronous = 0;
    const char *library = NULL;
    if (!PyArg_ParseTuple(arguments, "pz", &synchronous, &library))
        return NULL;
    syp_configure_devices(synchronous != 0, library);
    return Py_NewRef(Py_None);
}

/* sync(device or -1 for all) -> status, of the first fault that calls on devices found */
static PyObject *sync_devices(PyObject *self, PyObject *device)
{
    (void)self;
    const long number = PyLong_AsLong(device);
    if (number == -1 && PyErr_Occurred() != NULL)
        return NULL;
    const DLDevice all = {0}, one = {kDLCUDA, (int32_t)number};
    PyThreadState *state = PyEval_SaveThread();
    const sy_status status = syp_sync(number < 0 ? all : one);
    PyEval_RestoreThread(state);
    return PyLong_FromLong(status);
}

/* configure(threads, isa or None) -> whether these are available */
static PyObject *configure(PyObject *self, PyObject *arguments)
{
    (void)self;
    long long threads = 0;
    const char *isa = NULL;
    if (!PyArg_ParseTuple(arguments, "Lz", &threads, &isa))
        return NULL;
    return PyBool_FromLong(syp_configure(threads, isa));
}

/* own() -> kernel table and number of threads of this thread's context */
static PyObject *own(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    const sy_ctx *ctx = syp_context();
    if (ctx != NULL)
        return Py_BuildValue("(si)", sy_ctx_isa(ctx), sy_ctx_threads(ctx));
    PyErr_SetString(PyExc_ValueError, syp_last_failure()->error);
    return NULL;
}

/* isa_names() -> the kernel tables this CPU can run, best first */
static PyObject *isa_names(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    int n = 0;
    while (sy_isa_name(n) != NULL)
        n++;
    PyObject *names = PyTuple_New(n);
    for (int i = 0; names != NULL && i < n; i++)
        PyTuple_SetItem(names, i, PyUnicode_FromString(sy_isa_name(i)));
    return names;
}

static PyMethodDef functions[] = {{"describe", describe, METH_O, NULL},
                                  {"last", last, METH_NOARGS, NULL},
                                  {"configure", configure, METH_VARARGS, NULL},
                                  {"configure_devices", configure_devices, METH_VARARGS, NULL},
                                  {"sync", sync_devices, METH_O, NULL},
                                  {"own", own, METH_NOARGS, NULL},
                                  {"isa_names", isa_names, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

static bool add_all(PyObject *module)
{
    PyMethodDef *const lists[] = {syp_tensor_functions, syp_frame_functions, syp_call_functions,
                                  syp_mesh_functions,
#ifdef SWITCHYARD_HAS_JAX
                                  syp_jax_functions
#endif
    };
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        if (PyModule_AddFunctions(module, lists[i]) != 0)
            return false;
    PyObject *call = syp_call_type(), *tensor = syp_tensor_type();
    return call != NULL && tensor != NULL && PyModule_AddObject(module, "Call", call) == 0 &&
           PyModule_AddObject(module, "Tensor", Py_NewRef(tensor)) == 0 &&
           PyModule_AddStringConstant(module, "version", sy_version()) == 0 &&
           PyModule_AddStringConstant(module, "mpi", SWITCHYARD_MPI_NAME) == 0 && /* "" without MPI */
           PyModule_AddIntConstant(module, "results_version", sy_results_version()) == 0;
}

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void)
{
    static struct PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, "switchyard._core", NULL, -1, functions, NULL, NULL, NULL, NULL};
    PyObject *module = PyModule_Create(&definition);
    if (module != NULL && !add_all(module))
        Py_CLEAR(module);
    return module;
}
