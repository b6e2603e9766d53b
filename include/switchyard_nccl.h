/*
 * Meshes over NCCL: libswitchyard_nccl, for tensors on CUDA devices, one process per GPU.
 *
 *     ncclCommInitRank(&nccl, n_ranks, id, rank);
 *     sy_comm *comm = NULL;
 *     sy_comm_create_nccl(&comm, nccl, (sy_mesh){1, n_ranks}, NULL);       rank = device of the mesh
 *     sy_all_to_all_dispatch(ctx, comm, &args);                            ctx and tensors: on the GPU of nccl
 *     sy_comm_destroy(comm);
 */
#ifndef SWITCHYARD_NCCL_H
#define SWITCHYARD_NCCL_H

#include <nccl.h>

#include <switchyard.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sy_nccl_options {
    int max_blocks; /* thread blocks of the kernels that send rows, so that multiprocessors stay free for work beside
                       them; 0: NCCL chooses */
    sy_comm_options comm;
} sy_nccl_options;

/*
 * Collective over `nccl`; `options` may be NULL. `nccl` is used for some small ncclAllGather, in a stream of their own, and not
 * afterwards: the mesh has communicators of its own, whose calls do not block, so that every wait is bounded by
 * options.comm.timeout_ms. The first collective of a communicator that blocks (config.blocking, NCCL's default) waits for all
 * processes inside NCCL; pass one that was used before, or that does not block, to bound that too. A wait that runs out, and an error of NCCL, aborts them (ncclCommAbort): no kernel is left
 * waiting on the GPU. `nccl` itself is never aborted; after TIMEOUT of this function the caller should.
 * Rows on the GPU of `nccl` are packed and unpacked in the stream of the context and sent between in a stream of the comm, so that
 * nothing in the context's stream waits for another process. Rows in CPU memory go through pinned memory.
 * Rows are always sent in messages: options.comm.no_shared has no effect. NCCL splits messages over its channels:
 * num_links and topology of a call have none either.
 * Returns as sy_comm_create_local, the same in all processes; COMM also where `nccl` is NULL, has failed, or has not rows*cols
 * processes, and for errors of CUDA and NCCL; MISMATCH where processes ask for different meshes; TIMEOUT.
 */
SY_API sy_status sy_comm_create_nccl_n(sy_comm **comm, ncclComm_t nccl, sy_mesh mesh,
                                       const sy_nccl_options *options, size_t options_bytes);
static inline sy_status sy_comm_create_nccl(sy_comm **comm, ncclComm_t nccl, sy_mesh mesh,
                                            const sy_nccl_options *options)
{
    return sy_comm_create_nccl_n(comm, nccl, mesh, options, sizeof *options);
}

#ifdef __cplusplus
}
#endif

#endif /* SWITCHYARD_NCCL_H */
