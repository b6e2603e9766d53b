/*
 * What a mesh of Python owns: a context, a comm, its routings. Three modules use it: _core, which runs it, and _mpi and
 * _nccl, which are loaded on demand and open the comm. A mesh is passed between them, and through Python, as a capsule.
 */
#ifndef SWITCHYARD_BINDING_MESH_H
#define SWITCHYARD_BINDING_MESH_H

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

#endif
