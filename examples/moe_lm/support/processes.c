/* The processes of moe_lm-mpi. Without MPI there is one. */
#include "../lm.h"

#ifdef WITH_MPI
#include <switchyard_mpi.h>
#define IF_MPI(call) call
#else
#define IF_MPI(call) (void)0
#endif

int process, processes = 1;

void processes_start(int *argc, char ***argv)
{
    (void)argc, (void)argv; /* used with MPI only */
    IF_MPI(MPI_Init(argc, argv));
    IF_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
    IF_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
}

void processes_end(int status)
{
    if (status != 0)
        IF_MPI(MPI_Abort(MPI_COMM_WORLD, status));
    IF_MPI(MPI_Finalize());
    exit(status);
}

bool any_process(bool here)
{
    int any = here;
    IF_MPI(MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
    return any != 0;
}

void share_result(int64_t request, void *data, int64_t n, size_t bytes)
{
    const int64_t most = 1 << 20; /* counts of MPI are of type int */
    const int from = (int)(request % processes);
    (void)from; /* used with MPI only */
    for (char *at = data; n > 0 && data != NULL; n -= most, at += (size_t)most * bytes)
        IF_MPI(MPI_Bcast(at, (int)smaller(n, most) * (int)bytes, MPI_BYTE, from, MPI_COMM_WORLD));
}
