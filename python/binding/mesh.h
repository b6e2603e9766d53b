/*
 * What a mesh of Python owns: a context, a comm, its routings. Three modules use it: _core, which runs it, and _mpi and
 * _nccl, which are loaded on demand and open the comm. A mesh is passed between them, and through Python, as a capsule.
 */
#pragma once

#include <limits.h>

#include "binding.h"

enum { SYP_SENTENCE = 512 };

struct syp_mesh {
    sy_ctx *ctx;
    sy_ctx *first;   /* the context of before calls on a CUDA device; NULL: there were none */
    DLDevice device; /* of ctx; {0}: none */
    void *stream;    /* of ctx there */
    sy_comm *comm;   /* NULL until it is opened */
    sy_routing **routings;
    size_t n_routings;
    int shards;                 /* devices in this process */
    DLTensor *tensors;          /* those of a call, in one array as the library expects them */
    struct syp_storage storage; /* what the arguments of a call point to */
    sy_request *started;        /* by the last start */
    int64_t tokens; /* of the first device's group, in the request waited for last; -1: it failed */
    char sentence[SYP_SENTENCE]; /* of an opening that failed, or of a call that Python rejects */
};

/* Options beyond an int become values that the library rejects: every process must make the collective call. */
static inline int syp_as_int(long long number)
{
    return number >= INT_MIN && number <= INT_MAX ? (int)number : -1;
}

/* The arguments of an opening, a mesh and n numbers; NULL after an exception. */
static inline struct syp_mesh *syp_take_opening(PyObject *const *values, Py_ssize_t n_values,
                                                long long *numbers, int n)
{
    if (n_values != 1 + n) {
        PyErr_SetString(PyExc_TypeError, "want a mesh and its options");
        return NULL;
    }
    for (int i = 0; i < n; i++)
        numbers[i] = PyLong_AsLongLong(values[1 + i]);
    return PyErr_Occurred() == NULL ? PyCapsule_GetPointer(values[0], "switchyard") : NULL;
}

/* The options of every comm between processes, of four neighbouring numbers. */
static inline sy_comm_options syp_comm_options(struct syp_mesh *mesh, const long long *numbers)
{
    return (sy_comm_options){.max_inflight = syp_as_int(numbers[0]),
                             .timeout_ms = numbers[1],
                             .check = (sy_check)syp_as_int(numbers[2]),
                             .chunk_bytes = (size_t)numbers[3],
                             .error = mesh->sentence,
                             .error_bytes = sizeof mesh->sentence};
}
