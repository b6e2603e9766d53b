/*
 * Call: the base class of Operator. One function reads the values of a call, has its results made by the caller's array library,
 * and runs the operator.
 *
 * A call with a value that cannot be read as it is goes through the operator's method `normal` once, which converts it or raises
 * the error. Rejections are raised by its method `reject`.
 */
#include <string.h>

#include "call.h"

/* ---- Values ---- */

static bool read_tuple(struct syp_frame *frame, int first, PyObject *tuple, int n)
{
    for (int i = 0; i < n; i++)
        if (!syp_read(frame, first + i, PyTuple_GetItem(tuple, i)))
            return false;
    return true;
}

/* The values of these tuples; false with or without an exception: one is unusual. */
static bool read_values(struct call *c, PyObject *given, PyObject *out, PyObject *planes)
{
    const int n_given = c->of->op->n_given, n_results = c->of->n_results;
    const int n_planes = planes != NULL ? (int)PyTuple_Size(planes) : 0;
    if (PyTuple_Size(given) < n_given)
        return false;
    if (!read_tuple(&c->frame, 0, given, n_given))
        return false;
    if (out != Py_None && (!PyTuple_Check(out) || PyTuple_Size(out) != n_results ||
                           !read_tuple(&c->frame, n_given, out, n_results)))
        return false;
    if (n_planes > 0 && !read_tuple(&c->frame, n_given + n_results, planes, n_planes))
        return false;
    int at = 0; /* beside arrays of a device, those of NumPy may have to be copied there */
    return !c->frame.is_checked || c->frame.n_held == 0 ||
           syp_on_device(c->frame.values, out != Py_None ? c->frame.n : n_given, &at) == NULL;
}

/* Forgets an error, which is found again; false for an interrupt, which is not. */
static bool forget(void)
{
    if (PyErr_Occurred() == NULL)
        return true;
    if (!PyErr_ExceptionMatches(PyExc_Exception))
        return false;
    PyErr_Clear();
    return true;
}

static PyObject *or_none(PyObject *value)
{
    return value != NULL ? value : Py_None;
}

/* Reads the values again after `normal` has converted them; false after an exception. Converted values are held by *held. */
static bool read_normal(struct call *c, PyObject **held)
{
    PyObject *out = NULL, *given = NULL, *planes = NULL, *xp = NULL;
    if (!forget())
        return false;
    *held = PyObject_CallMethod(c->self, "normal", "OOOO", c->given, c->out, or_none(c->planes),
                                c->watched != 0 ? Py_True : Py_False);
    if (*held == NULL || !PyArg_ParseTuple(*held, "OOOO", &given, &out, &planes, &xp))
        return false;
    if (c->xp == NULL)
        c->xp = Py_NewRef(xp);
    c->frame.is_checked = false;
    while (c->frame.n_held > 0)
        Py_DECREF(c->frame.held[--c->frame.n_held]);
    c->frame.n_tensors = 0;
    if (!read_values(c, given, out, planes != Py_None ? planes : NULL) && !forget())
        return false;
    return true; /* what is still unusual is of no kind that a field takes */
}

static PyObject *reject(struct call *c, const char *method, int number)
{
    if (PyErr_Occurred() != NULL)
        return NULL;
    return PyObject_CallMethod(c->self, method, "iOOO", number, c->given, c->out, or_none(c->planes));
}

static PyObject *reject_status(struct call *c, int status)
{
    return reject(c, "reject", status > 0 ? status : (int)syp_last_failure()->fault.status);
}

/* The error of a result that could not be made, in the operator's words. */
static PyObject *reject_results(const struct call *c)
{
    PyObject *type = NULL, *value = NULL, *trace = NULL, *done = NULL;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value != NULL)
        done = PyObject_CallMethod(c->self, "reject_results", "OOO", value, c->given, or_none(c->xp));
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(trace);
    return done;
}

/* ---- Arrays that a call has written to ---- */

static bool add_written(PyObject **list, PyObject *array)
{
    if (array == Py_None || !PyObject_TypeCheck(array, syp_library.types[0]))
        return true;
    if (*list == NULL)
        *list = PyList_New(0);
    return *list != NULL && PyList_Append(*list, array) == 0;
}

static bool has_rows(const struct call *c, int at)
{
    return c->frame.values[at].tag == SYP_IS_TENSOR && c->frame.values[at].tensor->ndim > 1;
}

/* Tells the library of tensors which of them a call has written to. An error, which it has for none, is forgotten. */
static void tell_written(struct call *c)
{
    const int n_given = c->of->op->n_given, n = c->of->n_results;
    const int n_planes = c->planes != NULL ? (int)PyTuple_Size(c->planes) : 0;
    PyObject *list = NULL;
    bool fine = syp_library.written != NULL && PySequence_Check(c->out);
    for (int i = 0; fine && i < n; i++) {
        PyObject *array = PyTuple_Check(c->out) ? Py_NewRef(PyTuple_GetItem(c->out, i)) /* faster */
                                                : PySequence_GetItem(c->out, i);
        fine = array != NULL && add_written(&list, array);
        Py_XDECREF(array);
    }
    for (int i = 0; fine && c->of->changed >> i != 0; i++)
        if ((c->of->changed >> i & 1) != 0 && has_rows(c, i))
            fine = add_written(&list, PyTuple_GetItem(c->given, i));
    for (int i = 0; fine && i < n_planes; i += SYP_PLANE_VALUES) {
        PyObject *rows = PyTuple_GetItem(c->planes, i + SYP_PLANE_ROWS);
        const bool in_cache = c->of->changed != 0 || rows == Py_None;
        fine = add_written(&list, in_cache ? PyTuple_GetItem(c->planes, i + SYP_PLANE_CACHE) : rows);
        if (fine && c->of->changed != 0 && has_rows(c, n_given + n + i + SYP_PLANE_SCALE))
            fine = add_written(&list, PyTuple_GetItem(c->planes, i + SYP_PLANE_SCALE));
    }
    PyObject *done =
        fine && list != NULL ? PyObject_CallFunctionObjArgs(syp_library.written, list, NULL) : NULL;
    Py_XDECREF(done);
    Py_XDECREF(list);
    if (PyErr_Occurred() != NULL)
        PyErr_Clear();
}

/* ---- The call ---- */

/* The stream of a call on a device; NULL elsewhere. False after an exception. */
static bool find_stream(struct call *c, void **stream)
{
    int at = 0;
    *stream = NULL;
    if (syp_on_device(c->frame.values, c->frame.n, &at) == NULL)
        return true;
    if (c->only_makes)
        return true; /* sy_infer starts no work */
    if (c->xp == NULL && syp_library.api != NULL) {
        if (syp_stream_of(&c->frame, stream))
            return true;
        if (PyErr_Occurred() == NULL)
            PyErr_SetString(PyExc_RuntimeError, "there is no current stream");
        return false;
    }
    if (c->xp == NULL && !syp_find_framework(c))
        return false;
    PyObject *number = PyObject_CallMethod(c->xp, "stream", NULL);
    *stream = number != NULL ? PyLong_AsVoidPtr(number) : NULL;
    Py_XDECREF(number);
    return PyErr_Occurred() == NULL;
}

/* Runs the operator on the values; on a device of a library without streams it ends here. */
static int run(struct call *c, void *stream)
{
    const struct syp_operator *op = c->of->op;
    PyThreadState *state = PyEval_SaveThread();
    int status = syp_run(op, &c->args, c->frame.values, c->frame.n, stream, SYP_CALL, NULL);
    PyEval_RestoreThread(state);
    return status;
}

static int wait_for(struct call *c)
{
    int at = 0;
    const DLTensor *there = c->xp != NULL ? syp_on_device(c->frame.values, c->frame.n, &at) : NULL;
    PyObject *waits = there != NULL ? PyObject_GetAttrString(c->xp, "waits") : NULL;
    const bool must = waits == Py_True;
    Py_XDECREF(waits);
    return must ? (int)syp_sync(there->device) : SY_OK;
}

/* Sets the argument struct from the values; the results come later where they are made here. */
static PyObject *call_read(struct call *c)
{
    const struct syp_operator *op = c->of->op;
    const bool makes = c->out == Py_None;
    void *stream = NULL;
    memset(&c->args, 0, op->info->args_bytes);
    c->storage.n_numbers = 0;
    const int first = makes ? op->n_given : c->frame.n;
    int taken = syp_take_values(op, &c->args, c->frame.values, first, &c->storage, c->room);
    if (taken < first)
        return c->strict ? Py_NewRef(Py_None) : reject(c, "reject_kind", taken);
    if (!find_stream(c, &stream))
        return NULL;
    int status = makes ? syp_make_results(c, stream) : SY_OK;
    if (status != SY_OK)
        return status > 0 ? reject_status(c, status) : reject_results(c);
    if (c->only_makes)
        return syp_pack(c);
    for (int i = op->n_given; makes && i < op->n_fields; i++)
        syp_set_field(&c->args, &op->fields[i], &c->frame.values[i], &c->storage);
    status = run(c, stream);
    if (status == SY_OK)
        status = wait_for(c);
    if (status != SY_OK)
        return reject_status(c, status);
    if (makes)
        return syp_pack(c);
    if (syp_library.written != NULL)
        tell_written(c);
    return Py_NewRef(c->out);
}

/* Rejects what is no flag; false after an exception. NumPy's booleans become Python's. */
static bool check_asked(struct call *c)
{
    const Py_ssize_t n = c->asked != NULL ? PyTuple_Size(c->asked) - c->first_asked : 0;
    bool plain = n == c->of->n_asks || (n == 0 && c->out != Py_None);
    for (int i = 0; plain && i < n; i++) {
        PyObject *asked = syp_asked(c, i);
        plain = i == c->of->rows || (i == c->of->dtype ? asked == Py_None : PyBool_Check(asked));
    }
    if (plain) {
        Py_XINCREF(c->asked);
        return true;
    }
    PyObject *given =
        n > 0 ? PyTuple_GetSlice(c->asked, c->first_asked, c->first_asked + n) : Py_NewRef(Py_None);
    c->asked = given != NULL ? PyObject_CallMethod(c->self, "flags", "(O)", given) : NULL;
    c->first_asked = 0;
    Py_XDECREF(given);
    if (c->asked != NULL && (!PyTuple_Check(c->asked) || PyTuple_Size(c->asked) != c->of->n_asks))
        PyErr_SetString(PyExc_TypeError, "want a value for everything that is asked");
    return c->asked != NULL && PyErr_Occurred() == NULL;
}

static PyObject *call_checked(struct call *c)
{
    const int n_planes = c->planes != NULL ? (int)PyTuple_Size(c->planes) : 0;
    PyObject *held = NULL, *done = NULL;
    if (!syp_frame_open(&c->frame, c->of->op->n_fields + n_planes))
        return NULL;
    c->frame.watched = c->watched;
    c->frame.is_checked = true;
    for (int i = c->of->op->n_given; i < c->of->op->n_fields; i++)
        c->frame.values[i].tag = SYP_NONE;
    c->room = n_planes > 0 ? PyMem_Malloc(sizeof *c->room) : NULL;
    if (n_planes > 0 && c->room == NULL) {
        PyErr_NoMemory();
    } else if (read_values(c, c->given, c->out, c->planes) &&
               !(c->strict &&
                 (c->frame.n_held > 0 || !syp_is_tensor(PyTuple_GetItem(c->given, c->of->leader))))) {
        c->frame.is_checked = false; /* results are plain */
        done = call_read(c);
    } else if (c->strict) {
        done = forget() ? Py_NewRef(Py_None) : NULL;
    } else if (read_normal(c, &held)) {
        done = call_read(c);
    }
    for (int i = 0; i < c->of->n_results; i++)
        Py_XDECREF(c->made[i]);
    syp_frame_close(&c->frame);
    Py_XDECREF(held);
    Py_XDECREF(c->xp);
    Py_XDECREF(c->types);
    PyMem_Free(c->room);
    return done;
}

/* A call before its values. */
static void begin(struct call *c, PyObject *self, PyObject *maker, uint64_t watched, int first_asked)
{
    c->self = self;
    c->strict = c->only_makes = false;
    c->maker = maker != Py_None ? maker : NULL;
    c->watched = watched;
    c->first_asked = first_asked;
}

static PyObject *call(struct call *c, PyObject *given, PyObject *out, PyObject *asked, PyObject *planes)
{
    c->of = ((struct call_object *)(void *)c->self)->of;
    if (c->of == NULL || !PyTuple_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "want an operator that is prepared, and a tuple of values");
        return NULL;
    }
    c->given = given;
    c->out = out;
    c->asked = asked;
    c->planes = planes != NULL && planes != Py_None ? planes : NULL;
    c->xp = Py_XNewRef(c->maker);
    c->types = NULL;
    memset(c->made, 0, (size_t)c->of->n_results * sizeof *c->made);
    PyObject *done = check_asked(c) ? call_checked(c) : NULL;
    Py_XDECREF(c->asked);
    return done;
}

/* operator(given, out=None, *asked) -> the results */
static PyObject *call_operator(PyObject *self, PyObject *arguments, PyObject *keywords)
{
    const Py_ssize_t n = PyTuple_Size(arguments);
    struct callee *of = ((struct call_object *)(void *)self)->of;
    struct call c;
    if (n < 1 || keywords != NULL || of == NULL) {
        PyErr_SetString(PyExc_TypeError, "want the values of a call");
        return NULL;
    }
    begin(&c, self, Py_None, of->watched, 2);
    return call(&c, PyTuple_GetItem(arguments, 0), n > 1 ? PyTuple_GetItem(arguments, 1) : Py_None,
                n > 2 ? arguments : NULL, NULL);
}

/* run(given, out, planes=(), asked=(), framework=None) -> the results, made by a framework or by that of the arrays; without a
   look at gradients */
static PyObject *run_operator(PyObject *self, PyObject *arguments)
{
    PyObject *given = NULL, *out = NULL, *planes = NULL, *asked = NULL, *xp = Py_None;
    struct call c;
    if (!PyArg_ParseTuple(arguments, "OO|O!O!O", &given, &out, &PyTuple_Type, &planes, &PyTuple_Type, &asked,
                          &xp))
        return NULL;
    begin(&c, self, xp, 0, 0);
    return call(&c, given, out, asked, planes != NULL && PyTuple_Size(planes) > 0 ? planes : NULL);
}

/* make(given, asked=(), framework=None) -> new results, for a call that is made later */
static PyObject *make(PyObject *self, PyObject *arguments)
{
    PyObject *given = NULL, *asked = NULL, *xp = Py_None;
    struct call c;
    if (!PyArg_ParseTuple(arguments, "O|O!O", &given, &PyTuple_Type, &asked, &xp))
        return NULL;
    begin(&c, self, xp, 0, 0);
    c.only_makes = true;
    return call(&c, given, Py_None, asked, NULL);
}

/* direct(values, out, watched) -> the results; None: a value cannot be read as it is, or its gradient would be lost. What is asked
   stands after the values. */
static PyObject *call_direct(PyObject *self, PyObject *const *arguments, Py_ssize_t n)
{
    const struct callee *of = ((struct call_object *)(void *)self)->of;
    struct call c;
    if (of == NULL || n != 3 || !PyTuple_Check(arguments[0])) {
        PyErr_SetString(PyExc_TypeError, "want values, out and watched");
        return NULL;
    }
    begin(&c, self, Py_None, PyLong_AsUnsignedLongLong(arguments[2]), of->op->n_given);
    if (PyErr_Occurred() != NULL)
        return NULL;
    c.strict = true;
    return call(&c, arguments[0], arguments[1], of->n_asks > 0 ? arguments[0] : NULL, NULL);
}

/* ---- Without results ---- */

/* check(values) -> None; rejects inputs and scalars, and outputs where there are some, that the operator would reject */
static PyObject *check(PyObject *self, PyObject *values)
{
    const struct callee *of = ((struct call_object *)(void *)self)->of;
    struct call c = {.self = self, .of = of, .given = values, .out = Py_None};
    PyObject *held = NULL, *done = NULL;
    void *stream = NULL;
    const int n = PyTuple_Check(values) ? (int)PyTuple_Size(values) : -1;
    if (of == NULL || n < of->op->n_given || n > of->op->n_fields || !syp_frame_open(&c.frame, n)) {
        PyErr_SetString(PyExc_TypeError, "want the values of a call");
        return NULL;
    }
    const bool fine = read_tuple(&c.frame, 0, values, n) || read_normal(&c, &held);
    const int taken = fine ? syp_take_values(of->op, &c.args, c.frame.values, n, &c.storage, NULL) : -1;
    if (taken >= 0 && taken < n)
        reject(&c, "reject_kind", taken);
    else if (taken == n && find_stream(&c, &stream)) {
        const int status = syp_run(of->op, &c.args, c.frame.values, n, stream, SYP_QUERY, NULL);
        done = status != SY_OK ? reject_status(&c, status) : Py_NewRef(Py_None);
    }
    syp_frame_close(&c.frame);
    Py_XDECREF(held);
    Py_XDECREF(c.xp);
    return done;
}

/* ---- Preparation ---- */

/* (asked, like, zeros, ((value, what it is), ...)) */
static bool take_result(struct result *result, PyObject *from)
{
    PyObject *conditions = NULL;
    int zeros = 0;
    if (!PyArg_ParseTuple(from, "iipO!", &result->asked, &result->like, &zeros, &PyTuple_Type, &conditions))
        return false;
    result->zeros = zeros != 0;
    result->n_conditions = (int)PyTuple_Size(conditions);
    for (int i = 0; i < result->n_conditions && i < MOST_CONDITIONS; i++) {
        long long is = 0;
        if (!PyArg_ParseTuple(PyTuple_GetItem(conditions, i), "iL", &result->at[i], &is))
            return false;
        result->is[i] = is;
    }
    return result->n_conditions <= MOST_CONDITIONS;
}

/* prepare(name, leader, watched, changed, results, asks, dtype, rows, how each result is made) */
static PyObject *prepare(PyObject *self, PyObject *arguments)
{
    const char *name = NULL;
    Py_ssize_t bytes = 0;
    struct callee made = {.op = NULL};
    unsigned long long watched = 0, changed = 0;
    PyObject *results = NULL, *each = NULL;
    if (!PyArg_ParseTuple(arguments, "s#iKKO!iiiO!", &name, &bytes, &made.leader, &watched, &changed,
                          &PyType_Type, &results, &made.n_asks, &made.dtype, &made.rows, &PyTuple_Type,
                          &each))
        return NULL;
    made.op = syp_find_operator(name, (size_t)bytes);
    made.n_results = made.op != NULL ? made.op->n_fields - made.op->n_given : 0;
    if (made.op == NULL || made.leader < 0 || made.leader >= made.op->n_fields ||
        PyTuple_Size(each) != made.n_results ||
        !PyType_IsSubtype((PyTypeObject *)(void *)results, &PyTuple_Type)) {
        PyErr_SetString(PyExc_ValueError, "there is no such operator");
        return NULL;
    }
    for (int i = 0; i < made.n_results; i++)
        if (!take_result(&made.each[i], PyTuple_GetItem(each, i)))
            return NULL;
    made.watched = watched;
    made.changed = changed;
    made.results = (PyTypeObject *)(void *)Py_NewRef(results);
    struct callee *of = PyMem_Malloc(sizeof *of); /* operators stay as long as the process */
    made.plans = PyMem_Calloc(PLANS, sizeof *made.plans);
    if (of == NULL || made.plans == NULL)
        return PyErr_NoMemory();
    *of = made;
    ((struct call_object *)(void *)self)->of = of;
    return Py_NewRef(Py_None);
}

PyObject *syp_call_type(void)
{
    static PyMethodDef methods[] = {{"prepare", prepare, METH_VARARGS, NULL},
                                    {"run", run_operator, METH_VARARGS, NULL},
                                    {"make", make, METH_VARARGS, NULL},
                                    {"direct", (PyCFunction)(void (*)(void))call_direct, METH_FASTCALL, NULL},
                                    {"check", check, METH_O, NULL},
                                    {NULL, NULL, 0, NULL}};
    ternaryfunc function = call_operator;
    void *slot = NULL;
    memcpy(&slot, &function, sizeof slot);
    PyType_Slot slots[] = {{Py_tp_call, slot}, {Py_tp_methods, methods}, {0, NULL}};
    PyType_Spec spec = {"switchyard._core.Call", sizeof(struct call_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    return PyType_FromSpec(&spec);
}
