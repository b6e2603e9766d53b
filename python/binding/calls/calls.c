/*
 * Calls on tensors of PyTorch with as little Python as possible: one function reads the values of a call, makes the results
 * and runs the operator. It uses Python's stable ABI, and the table of C functions that tensors publish
 * (__dlpack_c_exchange_api__). Without this module, or without that table, calls take the general way (_operator.py).
 *
 * A call with anything unusual returns None and has had no effect: the general way then runs it, or raises the error.
 * Shapes and element types of results come from the rules of _operator.py. They depend on shapes, element types and
 * integers of the call alone, so each operator keeps them for calls that are alike.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>

#include <string.h>

#include "../binding.h"

#define CAPSULE "switchyard._calls"

enum {
    MOST_VALUES = SY_MAX_FIELDS,
    MOST_WORDS = 256, /* of a key */
    PLANS = 128       /* of an operator; a power of two */
};

/* A library of tensors; there is one, PyTorch. References are kept as long as the process. */
struct library {
    PyTypeObject *types[2]; /* exact types of its tensors */
    const DLPackExchangeAPI *api;
    PyObject *is_negated;   /* function of a tensor; NULL: there are no lazy signs and no gradients */
    PyObject *has_gradient; /* name of an attribute */
    PyObject *tracks;       /* function: whether gradients are recorded now */
    PyObject *written;      /* function of tensors that were written to; NULL: none */
};

static struct library library;
static const struct syp_calls *binding;

/* How results of calls that are alike are made. */
struct plan {
    uint64_t hash;
    size_t n_words;
    int64_t *words;
    /* Two functions, which make an array and one of zeros; then for each result their arguments: shape, strides and type,
       or shape and type; or None. None in its place: the general way. */
    PyObject *made;
};

struct callee {
    const struct syp_operator *op;
    int n_given, n_results, leader; /* values that are not results; the input whose library makes results */
    uint64_t watched;               /* see struct frame; of calls by the plain functions */
    uint64_t changed;      /* inputs that are written where they have a value for each row: bits by value */
    PyObject *words;       /* for each value that is given the numbers of its words, or None */
    PyTypeObject *results; /* tuple, or a named tuple */
    PyObject *rule;        /* function of all values: a plan's `made` */
    PyObject *general;     /* function with the arguments of a call: the general way */
    PyObject *last_word[MOST_VALUES];   /* most calls have the same: these objects ... */
    PyObject *last_number[MOST_VALUES]; /* ... are the words of these numbers */
    struct plan plans[PLANS];
};

/* One call. */
struct frame {
    struct callee *of;
    uint64_t watched; /* tensors that must have no gradient: bits by value */
    TVMFFIAny values[MOST_VALUES];
    DLTensor tensors[MOST_VALUES];
    int n_tensors;
    int64_t key[MOST_WORDS];
    size_t n_words;
    DLDevice device; /* of the first tensor on a CUDA device; else CPU */
};

enum tag { TAG_NONE, TAG_TENSOR, TAG_NUMBER, TAG_TEXT };

/* The key has one word too many when it does not fit. */
static void add_word(struct frame *frame, int64_t word)
{
    if (frame->n_words < MOST_WORDS)
        frame->key[frame->n_words] = word;
    frame->n_words++;
}

static bool is_tensor(const PyObject *value)
{
    return Py_TYPE(value) == library.types[0] || Py_TYPE(value) == library.types[1];
}

/* Whether a tensor has no lazy sign and, where `gradients` matter, none to record. An exception is set where torch raised
   one. */
static bool is_plain(PyObject *tensor, bool gradients)
{
    if (library.is_negated == NULL)
        return true;
    if (gradients) {
        PyObject *gradient = PyObject_GetAttr(tensor, library.has_gradient);
        PyObject *tracks = gradient == Py_True ? PyObject_CallNoArgs(library.tracks) : Py_NewRef(Py_False);
        const bool none = gradient != NULL && tracks == Py_False;
        Py_XDECREF(gradient);
        Py_XDECREF(tracks);
        if (!none)
            return false;
    }
    PyObject *negated = PyObject_CallFunctionObjArgs(library.is_negated, tensor, NULL);
    Py_XDECREF(negated);
    return negated == Py_False;
}

/* Which properties a type can have: bool neither sign nor gradient, integers no gradient. Complex numbers may be lazy
   conjugates too, which the general way finds. */
static bool is_type_plain(const struct frame *frame, int at, PyObject *value, DLDataType type)
{
    const bool integer = type.code == kDLInt || type.code == kDLUInt;
    return type.code == kDLBool ||
           (type.code != kDLComplex && is_plain(value, !integer && frame->watched >> at & 1));
}

/* A new tensor, a result, is plain. */
static bool take_tensor(struct frame *frame, int at, PyObject *value, bool is_new)
{
    DLTensor *tensor = &frame->tensors[frame->n_tensors];
    if (library.api->dltensor_from_py_object_no_sync(value, tensor) != 0 ||
        (!is_new && !is_type_plain(frame, at, value, tensor->dtype)))
        return false;
    frame->n_tensors++;
    frame->values[at] = (TVMFFIAny){.type_index = kTVMFFIDLTensorPtr, .v_ptr = tensor};
    if (tensor->device.device_type == kDLCUDA && frame->device.device_type != kDLCUDA)
        frame->device = tensor->device;
    return true;
}

static bool take_input(struct frame *frame, int at, PyObject *value)
{
    if (!take_tensor(frame, at, value, false))
        return false;
    const DLTensor *tensor = &frame->tensors[frame->n_tensors - 1];
    add_word(frame, TAG_TENSOR | (int64_t)tensor->dtype.code << 8 | (int64_t)tensor->dtype.bits << 16 |
                        (int64_t)tensor->dtype.lanes << 24 | (int64_t)tensor->ndim << 40);
    for (int32_t i = 0; i < tensor->ndim; i++)
        add_word(frame, tensor->shape[i]);
    return true;
}

static bool take_text(struct frame *frame, TVMFFIAny *to, PyObject *value)
{
    Py_ssize_t bytes = 0;
    const char *text = PyUnicode_AsUTF8AndSize(value, &bytes);
    if (text == NULL || memchr(text, '\0', (size_t)bytes) != NULL)
        return false;
    *to = (TVMFFIAny){.type_index = kTVMFFIRawStr, .v_c_str = text};
    add_word(frame, TAG_TEXT | (int64_t)bytes << 8);
    for (Py_ssize_t i = 0; i < bytes; i += (Py_ssize_t)sizeof(int64_t)) {
        int64_t word = 0;
        const size_t left = (size_t)(bytes - i);
        memcpy(&word, text + i, left < sizeof word ? left : sizeof word);
        add_word(frame, word);
    }
    return true;
}

/* A value that is no tensor; of numbers that no shape depends on only the kind is part of the key. */
static bool take_plain(struct frame *frame, TVMFFIAny *to, PyObject *value, bool shapes)
{
    if (PyUnicode_CheckExact(value))
        return take_text(frame, to, value);
    if (value == Py_None) {
        *to = (TVMFFIAny){.type_index = kTVMFFINone};
        add_word(frame, TAG_NONE);
        return true;
    }
    if (value == Py_True || value == Py_False)
        *to = (TVMFFIAny){.type_index = kTVMFFIBool, .v_int64 = value == Py_True};
    else if (PyLong_CheckExact(value))
        *to = (TVMFFIAny){.type_index = kTVMFFIInt, .v_int64 = PyLong_AsLongLong(value)};
    else if (PyFloat_CheckExact(value))
        *to = (TVMFFIAny){.type_index = kTVMFFIFloat, .v_float64 = PyFloat_AsDouble(value)};
    else
        return false;
    if (to->type_index == kTVMFFIInt && to->v_int64 == -1 && PyErr_Occurred())
        return false; /* larger than 64 bits */
    add_word(frame, TAG_NUMBER | (int64_t)to->type_index << 8);
    if (shapes)
        add_word(frame, to->v_int64); /* of a float its bits: a rule may ask whether it is zero */
    return true;
}

/* The number of a word; NULL, with or without an exception: it is none. Words of other classes than Python's own take the
   general way: their __hash__ and __eq__ are any code, which must not run once tensors have been read. */
static PyObject *number_of(struct callee *of, int at, PyObject *words, PyObject *word)
{
    if (word == of->last_word[at])
        return of->last_number[at];
    if (!PyUnicode_CheckExact(word) && !PyLong_CheckExact(word) && word != Py_None)
        return NULL;
    PyObject *number = PyDict_GetItemWithError(words, word);
    if (number != NULL && PyUnicode_CheckExact(word)) {
        PyObject *before = of->last_word[at];
        of->last_word[at] = Py_NewRef(word);
        of->last_number[at] = number; /* the dictionary keeps it */
        Py_XDECREF(before);
    }
    return number;
}

static bool take_value(struct frame *frame, int at, PyObject *value)
{
    if (is_tensor(value))
        return take_input(frame, at, value);
    PyObject *words = PyTuple_GetItem(frame->of->words, at);
    if (words != Py_None) {
        value = number_of(frame->of, at, words, value);
        return value != NULL && take_plain(frame, &frame->values[at], value, true);
    }
    const enum syp_kind kind = frame->of->op->fields[at].kind;
    const bool shapes = kind == SYP_BOOL || kind == SYP_INT || kind == SYP_I64 || kind == SYP_U32;
    return take_plain(frame, &frame->values[at], value, shapes);
}

/* Values that are not the operator's, but that results depend on: those of a tuple from an index on, or none. The rule of
   the results rejects what is no flag; where results are given, the general way does. */
static bool take_others(struct frame *frame, PyObject *tuple, Py_ssize_t from, bool new_results)
{
    TVMFFIAny other;
    const Py_ssize_t n = tuple != NULL ? PyTuple_Size(tuple) : 0;
    for (Py_ssize_t i = from; i < n; i++) {
        PyObject *value = PyTuple_GetItem(tuple, i);
        if (!take_plain(frame, &other, value, true) || (!new_results && !PyBool_Check(value)))
            return false;
    }
    return true;
}

/* The values of a call. `arguments` are those of call_operator, or NULL; from the third on they are values too. */
static bool take_values(struct frame *frame, PyObject *given, PyObject *arguments, bool new_results)
{
    const struct callee *of = frame->of;
    for (int i = 0; i < of->n_given; i++)
        if (!take_value(frame, i, PyTuple_GetItem(given, i)))
            return false;
    if (!take_others(frame, given, of->n_given, new_results) ||
        !take_others(frame, arguments, 2, new_results))
        return false;
    const DLTensor *leader = frame->values[of->leader].v_ptr;
    add_word(frame, (int64_t)leader->device.device_type << 32 | leader->device.device_id);
    return frame->n_words <= MOST_WORDS;
}

/* ---- Results --------------------------------------------------------------------------------------------------- */

/* A new reference: `made` of the plan for calls like this one; NULL with or without an exception: there is none. */
static PyObject *find_plan(const struct frame *frame, PyObject *given, PyObject *arguments)
{
    struct callee *const of = frame->of;
    uint64_t hash = frame->n_words;
    for (size_t i = 0; i < frame->n_words; i++) {
        hash = (hash ^ (uint64_t)frame->key[i]) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    struct plan *plan = &of->plans[hash % PLANS];
    const size_t bytes = frame->n_words * sizeof *plan->words;
    if (plan->made != NULL && plan->hash == hash && plan->n_words == frame->n_words &&
        memcmp(plan->words, frame->key, bytes) == 0)
        return Py_NewRef(plan->made);

    PyObject *others =
        arguments != NULL ? PyTuple_GetSlice(arguments, 2, PyTuple_Size(arguments)) : PyTuple_New(0);
    PyObject *values = others != NULL ? PySequence_Concat(given, others) : NULL;
    PyObject *made = values != NULL ? PyObject_CallFunctionObjArgs(of->rule, values, NULL) : NULL;
    Py_XDECREF(others);
    Py_XDECREF(values);
    if (made == NULL)
        return NULL;
    if (made != Py_None && (!PyTuple_CheckExact(made) || PyTuple_Size(made) != of->n_results + 2)) {
        Py_DECREF(made);
        return NULL;
    }
    int64_t *words = PyMem_Realloc(plan->words, bytes > 0 ? bytes : 1);
    if (words == NULL)
        return made;
    PyObject *before = plan->made;
    memcpy(words, frame->key, bytes);
    *plan = (struct plan){hash, frame->n_words, words, Py_NewRef(made)};
    Py_XDECREF(before);
    return made;
}

/* The results of a plan, and as values of the call. What has been made is in `results`, also where one could not be. */
static bool make_each(struct frame *frame, PyObject *made, PyObject **results)
{
    PyObject *make = PyTuple_GetItem(made, 0), *clear = PyTuple_GetItem(made, 1);
    for (int i = 0; i < frame->of->n_results; i++) {
        PyObject *how = PyTuple_GetItem(made, i + 2);
        if (how == Py_None) {
            results[i] = Py_NewRef(how);
            frame->values[frame->of->n_given + i] = (TVMFFIAny){.type_index = kTVMFFINone};
            continue;
        }
        results[i] = PyObject_Call(PyTuple_Size(how) == 2 ? clear : make, how, NULL);
        if (results[i] == NULL || !is_tensor(results[i]) ||
            !take_tensor(frame, frame->of->n_given + i, results[i], true))
            return false;
    }
    return true;
}

/* The same as a new tuple of the operator's class. It is made last: collectors of garbage see it from then on. */
static PyObject *make_results(struct frame *frame, PyObject *made)
{
    PyTypeObject *const kind = frame->of->results;
    PyObject *each[MOST_VALUES] = {NULL}, *results = NULL;
    if (make_each(frame, made, each)) /* as tuple.__new__ does */
        results = kind == &PyTuple_Type ? PyTuple_New(frame->of->n_results)
                                        : PyType_GenericAlloc(kind, frame->of->n_results);
    for (int i = 0; i < frame->of->n_results; i++)
        if (results == NULL)
            Py_XDECREF(each[i]);
        else if (PyTuple_SetItem(results, i, each[i]) != 0)
            Py_CLEAR(results); /* not for a new tuple */
    return results;
}

static bool take_out(struct frame *frame, PyObject *out)
{
    const int n = frame->of->n_results;
    if (!PyTuple_Check(out) || PyTuple_Size(out) != n)
        return false;
    for (int i = 0; i < n; i++) {
        PyObject *array = PyTuple_GetItem(out, i);
        if (array == Py_None)
            frame->values[frame->of->n_given + i] = (TVMFFIAny){.type_index = kTVMFFINone};
        else if (!is_tensor(array) || !take_tensor(frame, frame->of->n_given + i, array, false))
            return false;
    }
    return true;
}

/* Tells the library of tensors which of them a call has written to. An error, which it has for none, is forgotten. */
static void tell_written(const struct frame *frame, PyObject *given, PyObject *out)
{
    PyObject *written = PyList_New(0);
    for (Py_ssize_t i = 0; written != NULL && i < PyTuple_Size(out); i++)
        if (PyTuple_GetItem(out, i) != Py_None && PyList_Append(written, PyTuple_GetItem(out, i)) != 0)
            Py_CLEAR(written);
    for (int i = 0; written != NULL && frame->of->changed >> i != 0; i++) {
        const DLTensor *tensor = frame->of->changed >> i & 1 && is_tensor(PyTuple_GetItem(given, i))
                                     ? frame->values[i].v_ptr
                                     : NULL;
        if (tensor != NULL && tensor->ndim > 1 && PyList_Append(written, PyTuple_GetItem(given, i)) != 0)
            Py_CLEAR(written);
    }
    PyObject *done = written != NULL ? PyObject_CallFunctionObjArgs(library.written, written, NULL) : NULL;
    Py_XDECREF(done);
    Py_XDECREF(written);
    if (done == NULL)
        PyErr_Clear();
}

/* ---- Functions of Python --------------------------------------------------------------------------------------- */

static PyObject *run(struct frame *frame, PyObject *results)
{
    const struct callee *of = frame->of;
    const bool there = frame->device.device_type == kDLCUDA;
    void *stream = NULL;
    if (there && library.api->current_work_stream(kDLCUDA, frame->device.device_id, &stream) != 0)
        return NULL;
    PyThreadState *state = PyEval_SaveThread();
    const int status = binding->run(of->op, frame->values, of->n_given + of->n_results,
                                    there ? &frame->device : NULL, stream);
    PyEval_RestoreThread(state);
    if (status == 0)
        return Py_NewRef(results);
    return status > 0 && there ? PyLong_FromLong(status) : NULL;
}

/* The results of a call; on a device also a status, which is final. NULL with or without an exception: not here. */
static PyObject *attempt(struct callee *of, uint64_t watched, PyObject *given, PyObject *out,
                         PyObject *arguments)
{
    if (library.api == NULL || !PyTuple_CheckExact(given) || PyTuple_Size(given) < of->n_given ||
        !is_tensor(PyTuple_GetItem(given, of->leader)))
        return NULL;
    struct frame frame;
    frame.of = of;
    frame.watched = watched;
    frame.n_tensors = 0;
    frame.n_words = 0;
    frame.device = (DLDevice){kDLCPU, 0};
    if (!take_values(&frame, given, arguments, out == Py_None))
        return NULL;
    if (out != Py_None) {
        PyObject *written = take_out(&frame, out) ? run(&frame, out) : NULL;
        if (written == out && library.written != NULL)
            tell_written(&frame, given, out);
        return written;
    }
    PyObject *made = find_plan(&frame, given, arguments);
    PyObject *results = made != NULL && made != Py_None ? make_results(&frame, made) : NULL;
    Py_XDECREF(made);
    PyObject *done = results != NULL ? run(&frame, results) : NULL;
    Py_XDECREF(results);
    return done;
}

/* Call: the base class of Operator. */
struct call_object {
    PyObject_HEAD struct callee *of; /* NULL: not set yet */
};

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

static struct callee *operator_of(PyObject *self)
{
    struct callee *of = ((struct call_object *)(void *)self)->of;
    if (of == NULL)
        PyErr_SetString(PyExc_RuntimeError, "prepare has not been called");
    return of;
}

/* operator(given, out=None, *others) -> the results */
static PyObject *call_operator(PyObject *self, PyObject *arguments, PyObject *names)
{
    struct callee *of = operator_of(self);
    const Py_ssize_t n = PyTuple_Size(arguments);
    if (of == NULL)
        return NULL;
    if (n < 1 || names != NULL)
        return PyObject_Call(of->general, arguments, names);
    PyObject *given = PyTuple_GetItem(arguments, 0), *out = n > 1 ? PyTuple_GetItem(arguments, 1) : Py_None;
    PyObject *done = attempt(of, of->watched, given, out, arguments);
    if (done != NULL && PyLong_CheckExact(done)) { /* a status: raises */
        PyObject *failed = PyObject_CallMethod(self, "_reject", "OO", done, given);
        Py_DECREF(done);
        return failed;
    }
    return done != NULL || !forget() ? done : PyObject_Call(of->general, arguments, NULL);
}

/* direct(values, out, watched) -> the results; on a device also a status, which is final; None: take the general way */
static PyObject *call_direct(PyObject *self, PyObject *const *arguments, Py_ssize_t n)
{
    struct callee *of = operator_of(self);
    if (of == NULL || n != 3) {
        if (of != NULL)
            PyErr_SetString(PyExc_TypeError, "want values, out and watched");
        return NULL;
    }
    const uint64_t watched = PyLong_AsUnsignedLongLong(arguments[2]);
    if (PyErr_Occurred() != NULL)
        return NULL;
    PyObject *done = attempt(of, watched, arguments[0], arguments[1], NULL);
    return done != NULL || !forget() ? done : Py_NewRef(Py_None);
}

/* prepare(name, leader, watched, changed, words, results, rule, general) */
static PyObject *prepare(PyObject *self, PyObject *arguments)
{
    const char *name = NULL;
    Py_ssize_t bytes = 0;
    int leader = 0;
    unsigned long long watched = 0, changed = 0;
    PyObject *words = NULL, *results = NULL, *rule = NULL, *general = NULL;
    if (!PyArg_ParseTuple(arguments, "s#iKKO!O!OO", &name, &bytes, &leader, &watched, &changed, &PyTuple_Type,
                          &words, &PyType_Type, &results, &rule, &general))
        return NULL;
    const struct syp_operator *op =
        binding != NULL ? binding->find((TVMFFIByteArray){name, (size_t)bytes}) : NULL;
    const int n_given = (int)PyTuple_Size(words);
    if (op == NULL || leader < 0 || leader >= n_given || n_given > op->n_fields ||
        op->n_fields > MOST_VALUES || !PyType_IsSubtype((PyTypeObject *)results, &PyTuple_Type)) {
        PyErr_SetString(PyExc_ValueError, "there is no such operator");
        return NULL;
    }
    struct callee *of = PyMem_Calloc(1, sizeof *of); /* operators stay as long as the process */
    if (of == NULL)
        return PyErr_NoMemory();
    of->op = op;
    of->n_given = n_given;
    of->n_results = op->n_fields - n_given;
    of->leader = leader;
    of->watched = watched;
    of->changed = changed;
    of->words = Py_NewRef(words);
    of->results = (PyTypeObject *)Py_NewRef(results);
    of->rule = Py_NewRef(rule);
    of->general = Py_NewRef(general);
    ((struct call_object *)(void *)self)->of = of;
    return Py_NewRef(Py_None);
}

static PyMethodDef methods[] = {{"prepare", prepare, METH_VARARGS, NULL},
                                {"direct", (PyCFunction)(void (*)(void))call_direct, METH_FASTCALL, NULL},
                                {NULL, NULL, 0, NULL}};

/* bind(address of the binding's struct syp_calls) */
static PyObject *bind(PyObject *self, PyObject *address)
{
    (void)self;
    const struct syp_calls *table = PyLong_AsVoidPtr(address);
    if (table == NULL || table->bytes < sizeof *table) {
        if (PyErr_Occurred() == NULL)
            PyErr_SetString(PyExc_ValueError, "the binding is of another version");
        return NULL;
    }
    binding = table;
    return Py_NewRef(Py_None);
}

/* meet(type, another type, capsule of the table of C functions, is_negated or None, tracks, written or None) -> whether
   the table can be used */
static PyObject *meet(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *first = NULL, *second = NULL, *capsule = NULL, *is_negated = NULL, *tracks = NULL,
             *written = NULL;
    if (!PyArg_ParseTuple(arguments, "O!O!OOOO", &PyType_Type, &first, &PyType_Type, &second, &capsule,
                          &is_negated, &tracks, &written))
        return NULL;
    const DLPackExchangeAPI *api = PyCapsule_GetPointer(capsule, "dlpack_exchange_api");
    if (api == NULL)
        return NULL;
    while (api != NULL && api->header.version.major != DLPACK_MAJOR_VERSION)
        api = (const DLPackExchangeAPI *)(const void *)api->header.prev_api;
    if (api == NULL || api->dltensor_from_py_object_no_sync == NULL || api->current_work_stream == NULL)
        return Py_NewRef(Py_False);
    PyObject *name = PyUnicode_InternFromString("requires_grad");
    if (name == NULL)
        return NULL;
    Py_INCREF(capsule); /* the table is its, and stays */
    library = (struct library){{(PyTypeObject *)Py_NewRef(first), (PyTypeObject *)Py_NewRef(second)},
                               api,
                               is_negated != Py_None ? Py_NewRef(is_negated) : NULL,
                               name,
                               Py_NewRef(tracks),
                               written != Py_None ? Py_NewRef(written) : NULL};
    return Py_NewRef(Py_True);
}

static bool are_simple(PyObject *values, const PyObject *array)
{
    const Py_ssize_t n = PyTuple_Size(values);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *value = PyTuple_GetItem(values, i);
        if (value != Py_None && (const PyObject *)Py_TYPE(value) != array && !PyLong_CheckExact(value) &&
            !PyFloat_CheckExact(value) && !PyBool_Check(value) && !PyUnicode_CheckExact(value))
            return false;
    }
    return true;
}

/* simple(values, out, type of an array) -> whether the tuple `values`, and `out` if it is one, hold nothing but such arrays,
   None, numbers and text */
static PyObject *simple(PyObject *self, PyObject *const *arguments, Py_ssize_t n)
{
    (void)self;
    const bool known = n == 3 && PyTuple_Check(arguments[0]) &&
                       (arguments[1] == Py_None || PyTuple_Check(arguments[1])) &&
                       are_simple(arguments[0], arguments[2]) &&
                       (arguments[1] == Py_None || are_simple(arguments[1], arguments[2]));
    return PyBool_FromLong(known);
}

static PyMethodDef functions[] = {{"bind", bind, METH_O, NULL},
                                  {"meet", meet, METH_VARARGS, NULL},
                                  {"simple", (PyCFunction)(void (*)(void))simple, METH_FASTCALL, NULL},
                                  {NULL, NULL, 0, NULL}};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "switchyard._calls", NULL, -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__calls(void);
PyMODINIT_FUNC PyInit__calls(void)
{
    ternaryfunc call = call_operator;
    void *slot = NULL;
    memcpy(&slot, &call, sizeof slot);
    PyType_Slot slots[] = {{Py_tp_call, slot}, {Py_tp_methods, methods}, {0, NULL}};
    PyType_Spec spec = {"switchyard._calls.Call", sizeof(struct call_object), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
    PyObject *made = PyModule_Create(&module), *type = PyType_FromSpec(&spec);
    if (made == NULL || type == NULL || PyModule_AddObject(made, "Call", type) != 0) {
        Py_XDECREF(made);
        Py_XDECREF(type);
        return NULL;
    }
    return made;
}
