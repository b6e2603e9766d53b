/* Results: shapes and types by sy_infer, once for calls that are alike, and arrays by the caller's library. */
#include <string.h>

#include "call.h"

/* What makes arrays of NumPy, and tensors in CPU memory: frameworks of _arrays.py. */
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

/* The function of the framework that makes arrays: strided(shape, strides, type) is faster than empty(shape, type), where it has it.
   A new reference. */
static PyObject *find_maker(struct call *c)
{
    PyObject *make = PyObject_GetAttr(c->xp, names.strided);
    c->is_strided = make != Py_None;
    if (make != Py_None)
        return make;
    Py_DECREF(make);
    return PyObject_GetAttr(c->xp, names.empty);
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

/* Makes result i as infer_results describes it, and reads it as a value of the call. */
static bool make_result(struct call *c, int i, PyObject *results)
{
    const int at = c->of->op->n_given + i;
    PyObject *how = PyTuple_GetItem(results, i);
    if (how == Py_None) {
        c->made[i] = Py_NewRef(Py_None);
        return syp_read(&c->frame, at, Py_None);
    }
    const long begin = PyLong_AsLong(PyTuple_GetItem(how, 1));
    PyObject *zeros = begin == ZEROS ? PyObject_GetAttr(c->xp, names.zeros) : NULL;
    PyObject *make = begin == ZEROS ? zeros : PyTuple_GetItem(results, c->of->n_results);
    c->made[i] = make != NULL ? PyObject_Call(make, PyTuple_GetItem(how, 0), NULL) : NULL;
    Py_XDECREF(zeros);
    if (c->made[i] == NULL || c->only_makes)
        return c->made[i] != NULL;
    if (!syp_read(&c->frame, at, c->made[i]) && !read_made(c, at))
        return false;
    if (begin == CLEARED)
        clear(c->frame.values[at].tensor);
    return true;
}

/* ---- Calls that are alike ---- */

static void add_word(struct key *key, int64_t word)
{
    if (key->n < MOST_WORDS)
        key->words[key->n] = word;
    key->n++;
}

/* Four sums side by side, since each step of one waits for the last. */
static uint64_t hash_words(const int64_t *words, int n)
{
    uint64_t sums[4] = {1, 2, 3, 4};
    for (int i = 0; i < n; i++)
        sums[i % 4] = (sums[i % 4] ^ (uint64_t)words[i]) * 0x9E3779B97F4A7C15u;
    const uint64_t all = sums[0] ^ sums[1] >> 7 ^ sums[2] >> 14 ^ sums[3] >> 21;
    return all ^ all >> 32;
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
    add_word(key, (int64_t)(intptr_t)c->xp); /* frameworks stay as long as the process */
    for (int i = 0; i < op->n_given; i++) {
        const struct syp_value *value = &c->frame.values[i];
        const struct syp_field *field = &op->fields[i];
        int narrow = 0;
        if (value->tag == SYP_IS_TENSOR) {
            const DLTensor *t = value->tensor;
            add_word(key, SYP_IS_TENSOR | (int64_t)t->dtype.code << 8 | (int64_t)t->dtype.bits << 16 |
                              (int64_t)t->dtype.lanes << 24 | (int64_t)t->ndim << 40 |
                              (int64_t)t->device.device_type << 48);
            for (int d = 0; d < t->ndim; d++)
                add_word(key, t->shape[d]);
        } else if (field->kind <= SYP_REALS) {
            add_word(key, value->tag);
        } else if (field->kind == SYP_FORMAT) {
            add_text(key, value->tag == SYP_IS_TEXT ? value->text : "");
        } else if (field->kind == SYP_BOOL || field->kind == SYP_I64) {
            add_word(key, value->number);
        } else if (field->kind == SYP_INT || field->kind == SYP_ENUM || field->kind == SYP_U32) {
            memcpy(&narrow, c->args.bytes + field->offset, sizeof narrow);
            add_word(key, narrow);
        }
    }
    for (int i = 0; i < c->of->n_asks; i++) {
        PyObject *asked = syp_asked(c, i);
        if (i == c->of->dtype && asked != Py_None)
            key->n = MOST_WORDS + 1; /* any object */
        add_word(key, i == c->of->rows ? (int64_t)PyLong_AsLongLong(asked) : asked == Py_True);
    }
    key->hash = key->n <= MOST_WORDS ? hash_words(key->words, key->n) : 0;
}

/* What infer_results returned for calls like this one; a borrowed reference, NULL: not known yet. */
static PyObject *find_plan(const struct plan *plan, const struct key *key)
{
    const bool same = plan->results != NULL && key->n <= MOST_WORDS && plan->key.hash == key->hash &&
                      plan->key.n == key->n &&
                      memcmp(plan->key.words, key->words, (size_t)key->n * sizeof *key->words) == 0;
    return same ? plan->results : NULL;
}

static void keep_plan(struct plan *plan, const struct key *key, PyObject *results)
{
    PyObject *before = plan->results;
    if (key->n > MOST_WORDS)
        return;
    plan->key.hash = key->hash;
    plan->key.n = key->n;
    memcpy(plan->key.words, key->words, (size_t)key->n * sizeof *key->words);
    plan->results = Py_NewRef(results);
    Py_XDECREF(before);
}

/* How each result is made, by sy_infer; then the function that makes them, and whether their library takes them over. A new
   reference; NULL with the status of sy_infer, or after an exception with SY_OK. */
static PyObject *infer_results(struct call *c, void *stream, int *status)
{
    sy_shape shapes[MOST];
    const struct syp_operator *op = c->of->op;
    const int n = c->of->n_results;
    *status = syp_run(op, &c->args, c->frame.values, op->n_given, stream, SYP_INFER, shapes);
    if (*status != SY_OK) {
        *status = *status > 0 ? *status : (int)syp_last_failure()->fault.status;
        return NULL;
    }
    PyObject *results = PyTuple_New(n + 2), *make = find_maker(c);
    c->types = make != NULL ? PyObject_GetAttr(c->xp, names.types) : NULL;
    PyObject *takes_over = c->types != NULL ? PyObject_GetAttr(c->xp, names.takes_over) : NULL;
    bool fine = results != NULL && takes_over != NULL;
    for (int i = 0; fine && i < n + 2; i++) {
        PyObject *how = i < n    ? describe_result(c, i, &shapes[op->at[op->n_given + i]])
                        : i == n ? Py_NewRef(make)
                                 : Py_NewRef(takes_over);
        fine = how != NULL && PyTuple_SetItem(results, i, how) == 0;
    }
    if (!fine)
        Py_CLEAR(results);
    Py_XDECREF(make);
    Py_XDECREF(takes_over);
    return results;
}

/* Calls that only make results are always validated: keys have no reals, and no operator runs. */
int syp_make_results(struct call *c, void *stream)
{
    struct key key;
    int status = SY_OK;
    if (!syp_find_framework(c))
        return -1;
    if (!c->only_makes)
        write_key(c, &key);
    if (PyErr_Occurred() != NULL)
        return -1;
    struct plan *plan = c->only_makes ? NULL : &c->of->plans[key.hash % PLANS];
    PyObject *results = Py_XNewRef(plan != NULL ? find_plan(plan, &key) : NULL);
    if (results == NULL) {
        results = infer_results(c, stream, &status);
        if (results == NULL)
            return status != SY_OK ? status : -1;
        if (plan != NULL)
            keep_plan(plan, &key, results);
    }
    bool fine = true;
    for (int i = 0; fine && i < c->of->n_results; i++)
        fine = make_result(c, i, results);
    c->takes_over = !c->only_makes && PyTuple_GetItem(results, c->of->n_results + 1) == Py_True;
    Py_DECREF(results);
    return fine ? SY_OK : -1;
}

PyObject *syp_pack(struct call *c)
{
    const int n = c->of->n_results;
    PyTypeObject *const kind = c->of->results;
    for (int i = 0; i < n && c->takes_over; i++) {
        PyObject *taken = PyObject_CallMethod(c->xp, "finish", "(O)", c->made[i]);
        if (taken == NULL)
            return NULL;
        Py_DECREF(c->made[i]);
        c->made[i] = taken;
    }
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
