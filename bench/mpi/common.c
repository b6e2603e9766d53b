/*
 * Shared by the benchmark and the demo of several processes.
 */
#include "mpi_bench.h"

#include <switchyard_mpi.h>

#include "bench/bench.h"

/* Processes that wait for each other should not share a processor: each gets its share of them. */
sy_ctx *mpi_bench_context(const struct common *common, bool on_device)
{
    struct common mine = *common;
    MPI_Comm node = MPI_COMM_NULL;
    int neighbours = 1;
    if (common->team->agree(EXIT_DONE) !=
        EXIT_DONE) /* not reached by a process with an invalid command line */
        return NULL;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &neighbours);
    MPI_Comm_free(&node);
    if (!mine.has_threads) {
        const int part = bench_machine().cpus / neighbours;
        mine.threads = part > 1 ? part : 1;
        mine.has_threads = true;
    }
    if (!on_device && mine.device.device_type == kDLCUDA) {
        plain_error("demo: between processes there is none with --device cuda");
        return NULL;
    }
    return common_context(&mine);
}

bool mpi_bench_in_all(bool here)
{
    int all = here;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all != 0;
}
