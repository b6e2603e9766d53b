/*
 * Processes of MPI.
 */
#include "transport_support.h"

/* In place of MPI's: an emulated device is CPU memory, which every MPI accepts. */
int MPIX_Query_cuda_support(void);
int MPIX_Query_cuda_support(void)
{
    return getenv("SWITCHYARD_TEST_DEVICE_ROWS") != NULL;
}

static MPI_Comm ours; /* nothing a test does can be taken for our messages */

void ranks_open(void)
{
    int done = 0;
    int level;
    MPI_Initialized(&done);
    if (!done)
        MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_dup(MPI_COMM_WORLD, &ours);
    MPI_Comm_rank(ours, &this_rank);
    MPI_Comm_size(ours, &n_ranks);
}

void ranks_close(void)
{
    MPI_Comm_free(&ours);
    MPI_Finalize();
}

void ranks_gather(const void *mine, size_t bytes, void *all)
{
    MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, ours);
}

sy_status ranks_comm(sy_comm **comm, sy_mesh mesh, const sy_comm_options *options)
{
    const sy_mpi_options o = {.comm = *options};
    return sy_comm_create_mpi(comm, MPI_COMM_WORLD, mesh, &o);
}

sy_transport ranks_transport(sy_mesh mesh)
{
    return open_transport(mesh, NULL)->common.transport;
}
