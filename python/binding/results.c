/* Results: shapes and types by sy_infer, once for calls that are alike, and arrays by the caller's library. */
#include <string.h>

#include "call.h"

/* What makes arrays of NumPy, and of the library of tensors in CPU memory: frameworks of _arrays.py. */
static PyObject *of_arrays, *of_tensors;

/* Attributes of frameworks. */
static struct {
    PyObject *types, *strided, *empty, *zeros, *takes_over;
} names;

bool syp_find_framework(struct call *c)
{
    PyObject *leader = PyTuple_GetItem(c->given, c->of->leader);
    const struct syp_value *value = &c->frame.values[c->of->leader];
    if (c->xp != NULL)
        return true;
    if (value->tag == SYP_IS_TENSOR && syp_is_tensor(leader) && value->tensor->device.device_type == kDLCPU &&
        of_tensors != NULL)
        c->xp = Py_NewRef(of_tensors);
    else if (value->tag == SYP_IS_TENSOR && !syp_is_tensor(leader) && syp_tensor_of(leader) == NULL)
        c->xp = Py_NewRef(of_arrays);
    else
        c->xp = PyObject_CallMethod(c->self, "place", "OO", c->given, c->out);
    return c->xp != NULL;
}

PyObject *syp_sizes(const int64_t *sizes, int n)
{
    PyObject *tuple = PyTuple_New(n);
    for (int i = 0; tuple != NULL && i < n; i++)
        if (PyTuple_SetItem(tuple, i, PyLong_FromLongLong(sizes[i])) != 0)
            Py_CLEAR(tuple);
    return tuple;
}

/* The element type of a result, as its library has it. A new reference. */
static PyObject *type_of(struct call *c, int i, const sy_shape *shape)
{
    const struct result *result = &c->of->each[i];
    PyObject *asked = c->of->dtype >= 0 ? syp_asked(c, c->of->dtype) : Py_None;
    DLDataType type = shape->type;
    if (result->like >= 0 && c->frame.values[result->like].tag == SYP_IS_TENSOR)
        type = c->frame.values[result->like].tensor->dtype;
    PyObject *found = asked == Py_None ? PyTuple_GetItem(c->types, (Py_ssize_t)sy_type_of(type)) : Py_None;
    if (found != Py_None)
        return found != NULL ? Py_NewRef(found) : NULL;
    return PyObject_CallMethod(c->self, "type_of", "OiiOO", c->xp, i, (int)sy_type_of(type), c->given, asked);
}

static bool begins_as_zeros(const struct call *c, const struct result *result)
{
    bool zeros = result->zeros;
    for (int i = 0; i < result->n_conditions; i++) {
        const struct syp_value *value = &c->frame.values[result->at[i]];
        const struct syp_field *field = &c->of->op->fields[result->at[i]];
        if (value->tag == SYP_IS_TENSOR)
            zeros = zeros || (value->tensor->ndim > 0 && value->tensor->shape[0] == result->is[i]);
        else if (field->kind == SYP_ENUM)
            zeros = zeros || syp_word(field->info->words, value) == result->is[i];
    }
    return zeros;
}

/* Looks up how the framework makes arrays: strided(shape, strides, type) is faster than empty(shape, type), where it has it. */
static bool find_maker(struct call *c)
{
    c->types = PyObject_GetAttr(c->xp, names.types);
    c->make = c->types != NULL ? PyObject_GetAttr(c->xp, names.strided) : NULL;
    c->is_strided = c->make != Py_None;
    if (c->make == Py_None) {
        Py_DECREF(c->make);
        c->make = PyObject_GetAttr(c->xp, names.empty);
    }
    return c->make != NULL;
}

/* Reads a result that is unusual. */
static bool read_made(struct call *c, int at)
{
    PyObject *made = c->made[at - c->of->op->n_given];
    PyErr_Clear();
    PyObject *read = PyObject_CallMethod(c->self, "read_made", "OO", c->xp, made);
    if (read == NULL || !syp_read(&c->frame, at, read)) {
        Py_XDECREF(read);
        return false;
    }
    c->frame.held[c->frame.n_held++] = read;
    return true;
}

/* How a result begins. */
enum { UNSET, CLEARED, ZEROS }; /* the last: made by the library's zeros, which is better for large ones */

/* The arguments of the function that makes result i, and how it begins; None: the call has none. A new reference. */
static PyObject *describe_result(struct call *c, int i, sy_shape *shape)
{
    const struct result *result = &c->of->each[i];
    const bool there = shape->rank >= 0 &&
                       !(c->of->op->fields[c->of->op->n_given + i].info->flags & SY_FIELD_INOUT) &&
                       (result->asked < 0 || syp_asked(c, result->asked) == Py_True);
    if (!there)
        return Py_NewRef(Py_None);
    if (c->of->rows >= 0 && shape->rank > 0)
        shape->extent[0] = PyLong_AsLongLong(syp_asked(c, c->of->rows));
    PyObject *type = PyErr_Occurred() == NULL ? type_of(c, i, shape) : NULL;
    if (type == NULL)
        return NULL;
    int64_t strides[SY_MAX_RANK], step = 1, elements = 1;
    int at = 0;
    for (int d = shape->rank; d-- > 0; step *= shape->extent[d] > 0 ? shape->extent[d] : 1) {
        strides[d] = step;
        elements = elements <= FEW_ELEMENTS && shape->extent[d] <= FEW_ELEMENTS ? elements * shape->extent[d]
                                                                                : FEW_ELEMENTS + 1;
    }
    const bool few = !c->only_makes && elements <= FEW_ELEMENTS &&
                     syp_on_device(c->frame.values, c->of->op->n_given, &at) == NULL;
    const int begin = !begins_as_zeros(c, result) ? UNSET : few ? CLEARED : ZEROS;
    PyObject *extents = syp_sizes(shape->extent, shape->rank);
    return c->is_strided && begin != ZEROS
               ? Py_BuildValue("((NNN)i)", extents, syp_sizes(strides, shape->rank), type, begin)
               : Py_BuildValue("((NN)i)", extents, type, begin);
}

static void clear(const DLTensor *tensor)
{
    size_t bytes = tensor->dtype.bits / 8;
    for (int i = 0; i < tensor->ndim; i++)
        bytes *= (size_t)tensor->shape[i];
    if (bytes > 0)
        memset((char *)tensor->data + tensor->byte_offset, 0, bytes);
}

/* Makes result i as described, and reads it as a value of the call. */
static bool make_result(struct call *c, int i, PyObject *how)
{
    const int at = c->of->op->n_given + i;
    if (how == Py_None) {
        c->made[i] = Py_NewRef(Py_None);
        return syp_read(&c->frame, at, Py_None);
    }
    const long begin = PyLong_AsLong(PyTuple_GetItem(how, 1));
    PyObject *make = begin == ZEROS ? PyObject_GetAttr(c->xp, names.zeros) : Py_NewRef(c->make);
    c->made[i] = make != NULL ? PyObject_Call(make, PyTuple_GetItem(how, 0), NULL) : NULL;
    Py_XDECREF(make);
    if (c->made[i] == NULL || c->only_makes)
        return c->made[i] != NULL;
    if (!syp_read(&c->frame, at, c->made[i]) && !read_made(c, at))
        return false;
    if (begin == CLEARED)
        clear(c->frame.values[at].tensor);
    return true;
}

/* ---- Calls that are alike ----------------------------------------------------------------------------------------- */

static void add_word(struct key *key, int64_t word)
{
    if (key->n < MOST_WORDS)
        key->words[key->n] = word;
    key->n++;
    key->hash = (key->hash ^ (uint64_t)word) * 0x9E3779B97F4A7C15u;
    key->hash ^= key->hash >> 29;
}

static void add_text(struct key *key, const char *text)
{
    const size_t bytes = strlen(text);
    for (size_t i = 0; i <= bytes; i += sizeof(int64_t)) { /* with its end */
        int64_t word = 0;
        memcpy(&word, text + i, bytes - i < sizeof word ? bytes - i : sizeof word);
        add_word(key, word);
    }
}

/* What the results of a call depend on: shapes, types, words and integers. The key has a word too many when it does not fit. */
static void write_key(const struct call *c, struct key *key)
{
    const struct syp_operator *op = c->of->op;
    key->n = 0;
    key->hash = 0;
    add_word(key, (int64_t)c->only_makes << 1 | (int64_t)c->is_strided);
    add_word(key, (int64_t)(intptr_t)c->xp); /* frameworks stay as long as the process */
    for (int i = 0; i < op->n_given; i++) {
        const struct syp_value *value = &c->frame.values[i];
        const enum syp_kind kind = op->fields[i].kind;
        if (value->tag == SYP_IS_TENSOR) {
            const DLTensor *t = value->tensor;
            add_word(key, SYP_IS_TENSOR | (int64_t)t->dtype.code << 8 | (int64_t)t->dtype.bits << 16 |
                              (int64_t)t->dtype.lanes << 24 | (int64_t)t->ndim << 40 |
                              (int64_t)t->device.device_type << 48);
            for (int d = 0; d < t->ndim; d++)
                add_word(key, t->shape[d]);
            continue;
        }
        add_word(key, value->tag);
        if (value->tag == SYP_IS_TEXT)
            add_text(key, value->text);
        else if (kind == SYP_BOOL || kind == SYP_INT || kind == SYP_ENUM || kind == SYP_I64 ||
                 kind == SYP_U32)
            add_word(key, value->number);
    }
    for (int i = 0; i < c->of->n_asks; i++) {
        PyObject *asked = syp_asked(c, i);
        if (i == c->of->dtype && asked != Py_None)
            key->n = MOST_WORDS + 1; /* any object */
        add_word(key, i == c->of->rows ? (int64_t)PyLong_AsLongLong(asked) : asked == Py_True);
    }
}

static struct plan *plan_of(const struct call *c, const struct key *key)
{
    return &c->of->plans[key->hash % PLANS];
}

/* What describe_result returns for each result of calls like this one; a borrowed reference, NULL: not known yet. */
static PyObject *find_plan(const struct call *c, const struct key *key)
{
    const struct plan *plan = plan_of(c, key);
    const bool same = plan->results != NULL && key->n <= MOST_WORDS && plan->types == c->types &&
                      plan->key.hash == key->hash && plan->key.n == key->n &&
                      memcmp(plan->key.words, key->words, (size_t)key->n * sizeof *key->words) == 0;
    return same ? plan->results : NULL;
}

static void keep_plan(const struct call *c, const struct key *key, PyObject *results)
{
    struct plan *plan = plan_of(c, key);
    PyObject *before = plan->results, *types = plan->types;
    if (key->n > MOST_WORDS)
        return;
    plan->key = *key;
    plan->types = Py_NewRef(c->types);
    plan->results = Py_NewRef(results);
    Py_XDECREF(before);
    Py_XDECREF(types);
}

/* The same by sy_infer; a new reference. NULL with its status, or after an exception with SY_OK. */
static PyObject *infer_results(struct call *c, void *stream, int *status)
{
    sy_shape shapes[MOST];
    const struct syp_operator *op = c->of->op;
    *status = syp_run(op, &c->args, c->frame.values, op->n_given, stream, SYP_INFER, shapes);
    if (*status != SY_OK) {
        *status = *status > 0 ? *status : (int)syp_last_failure()->fault.status;
        return NULL;
    }
    PyObject *results = PyTuple_New(c->of->n_results);
    for (int i = 0; results != NULL && i < c->of->n_results; i++) {
        PyObject *how = describe_result(c, i, &shapes[op->at[op->n_given + i]]);
        if (how == NULL || PyTuple_SetItem(results, i, how) != 0)
            Py_CLEAR(results);
    }
    return results;
}

int syp_make_results(struct call *c, void *stream)
{
    struct key key;
    int status = SY_OK;
    if (!syp_find_framework(c) || !find_maker(c))
        return -1;
    write_key(c, &key);
    if (PyErr_Occurred() != NULL)
        return -1;
    PyObject *results = Py_XNewRef(find_plan(c, &key));
    if (results == NULL) {
        results = infer_results(c, stream, &status);
        if (results == NULL)
            return status != SY_OK ? status : -1;
        keep_plan(c, &key, results);
    }
    bool fine = true;
    for (int i = 0; fine && i < c->of->n_results; i++)
        fine = make_result(c, i, PyTuple_GetItem(results, i));
    Py_DECREF(results);
    return fine ? SY_OK : -1;
}

PyObject *syp_pack(struct call *c)
{
    const int n = c->of->n_results;
    PyTypeObject *const kind = c->of->results;
    PyObject *takes_over = c->only_makes ? Py_NewRef(Py_False) : PyObject_GetAttr(c->xp, names.takes_over);
    for (int i = 0; i < n && takes_over == Py_True; i++) {
        PyObject *taken = PyObject_CallMethod(c->xp, "finish", "(O)", c->made[i]);
        if (taken == NULL)
            Py_CLEAR(takes_over);
        else {
            Py_DECREF(c->made[i]);
            c->made[i] = taken;
        }
    }
    Py_XDECREF(takes_over);
    if (takes_over == NULL)
        return NULL;
    PyObject *results = kind == &PyTuple_Type ? PyTuple_New(n) : PyType_GenericAlloc(kind, n);
    for (int i = 0; results != NULL && i < n; i++)
        if (PyTuple_SetItem(results, i, Py_NewRef(c->made[i])) != 0)
            Py_CLEAR(results); /* not for a new tuple */
    return results;
}

/* makers(framework of NumPy or None, of tensors or None) */
static PyObject *makers(PyObject *self, PyObject *arguments)
{
    (void)self;
    PyObject *arrays = NULL, *tensors = NULL;
    if (!PyArg_ParseTuple(arguments, "OO", &arrays, &tensors))
        return NULL;
    names.types = PyUnicode_InternFromString("types");
    names.strided = PyUnicode_InternFromString("strided");
    names.empty = PyUnicode_InternFromString("empty");
    names.zeros = PyUnicode_InternFromString("zeros");
    names.takes_over = PyUnicode_InternFromString("takes_over");
    if (PyErr_Occurred() != NULL)
        return NULL;
    if (arrays != Py_None)
        of_arrays = Py_NewRef(arrays); /* kept as long as the process */
    if (tensors != Py_None)
        of_tensors = Py_NewRef(tensors);
    return Py_NewRef(Py_None);
}

PyMethodDef syp_call_functions[] = {{"makers", makers, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};
