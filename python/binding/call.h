/* One call of an operator, which call.c reads and runs, and whose results results.c makes. */
#pragma once

#include "binding.h"

enum {
    MOST = SY_MAX_FIELDS,
    MOST_CONDITIONS = 2,
    FEW_ELEMENTS = 1 << 15,
    MOST_WORDS = 128, /* of a key */
    PLANS = 64        /* of an operator */
};

/* How a result is made. */
struct result {
    int asked; /* which of the flags that are no fields requests it; -1: none */
    int like;  /* which input's type it has in place of the described one; -1: none */
    bool zeros;
    /* It begins as zeros where one of these values is a certain word, or an array of a certain length. */
    int at[MOST_CONDITIONS];
    int64_t is[MOST_CONDITIONS];
    int n_conditions;
};

struct key {
    uint64_t hash;
    int n;
    int64_t words[MOST_WORDS];
};

/* How the results of calls that are alike are made. */
struct plan {
    struct key key;
    PyObject *results; /* NULL: none yet */
};

struct callee {
    const struct syp_operator *op;
    int n_results, leader; /* the input whose library makes results */
    int n_asks, dtype,
        rows; /* flags that are no fields; which of them are no flags, but a type and a number of rows; -1: none */
    uint64_t watched;      /* inputs whose gradient would be lost: bits by value */
    uint64_t changed;      /* inputs that are written where they have a value for each row */
    PyTypeObject *results; /* tuple, or a named tuple */
    struct result each[MOST];
    struct plan *plans;
};

struct call_object {
    PyObject_HEAD struct callee *of; /* NULL: not set yet */
};

/* One call. */
struct call {
    PyObject *self;
    const struct callee *of;
    PyObject *given, *out, *asked, *planes; /* tuples as the caller gave them; out may be None */
    Py_ssize_t first_asked;                 /* what is asked stands there in `asked` */
    PyObject *xp;                           /* what makes results; an owned reference, or NULL */
    PyObject *maker;                        /* the same where the caller names it, or NULL */
    uint64_t watched;                       /* tensors that must have no gradient: bits by value */
    bool strict;                            /* what cannot be read as it is ends the call with None */
    bool only_makes;                        /* results for a call that is made later */
    struct syp_frame frame;
    union syp_args args;
    struct syp_storage storage;
    struct syp_planes *room;
    PyObject *types; /* the framework's element types */
    bool is_strided; /* whether its function that makes arrays takes strides */
    bool takes_over; /* whether it imports results */
    PyObject *made[MOST];
};

/* What is asked beside the values; a borrowed reference. */
static inline PyObject *syp_asked(const struct call *c, int i)
{
    return PyTuple_GetItem(c->asked, c->first_asked + i);
}

/* Sets what makes results: the library of the leader, where that is. False after an exception. */
bool syp_find_framework(struct call *c);

/* Makes the results of a call; the status of sy_infer, or -1 after an exception. */
int syp_make_results(struct call *c, void *stream);

/* The results as a new tuple of the operator's class, handed over to their library where it imports them. */
PyObject *syp_pack(struct call *c);
