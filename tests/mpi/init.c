/*
 * A program that leaves MPI to the library: rejected without being asked, begun and ended by the comm when asked. Its
 * three tests are steps of one life, so they have no harness around them.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <switchyard_mpi.h>

#include "groups.h"

static int n_failed;

/* `number` counts the tests; process 0 reports. Later failures of other processes show in the exit status. */
static void report(int number, int rank, const char *name, bool ok)
{
    n_failed += !ok;
    if (rank == 0)
        printf("%s %d - %s\n", ok ? "ok" : "not ok", number, name);
    fflush(stdout);
}

static bool running(void)
{
    int begun = 0;
    int ended = 0;
    MPI_Initialized(&begun);
    MPI_Finalized(&ended);
    return begun && !ended;
}

TEST_GROUP(init)
{
    char text[200] = "";
    sy_comm *comm = NULL;
    sy_mpi_options options = {.comm = {.error = text, .error_bytes = sizeof text}};
    const bool rejected =
        sy_comm_create_mpi(&comm, MPI_COMM_WORLD, (sy_mesh){1, 1}, &options) == SY_ERR_COMM && comm == NULL &&
        strstr(text, "MPI is not initialised") != NULL && !running();
    options.init = true;
    const int n = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 1;
    const sy_status status = sy_comm_create_mpi(&comm, MPI_COMM_WORLD, (sy_mesh){1, n}, &options);
    if (!running()) {
        printf("1..1\nnot ok 1 - %s: %s\n", sy_status_name(status), text);
        return 1;
    }
    int rank = 0;
    int all_rejected = rejected;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Allreduce(MPI_IN_PLACE, &all_rejected, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    if (rank == 0)
        printf("1..4\n");
    report(1, rank, "rejected before MPI is initialised", all_rejected);
    report(2, rank, "initialised on request", status == SY_OK && sy_comm_first_device(comm) == rank);
    sy_comm_destroy(comm);
    report(3, rank, "finalised with the comm", !running());
    const sy_status late = sy_comm_create_mpi(&comm, MPI_COMM_WORLD, (sy_mesh){1, n}, &options);
    report(4, rank, "rejected after MPI is finalised",
           late == SY_ERR_COMM && comm == NULL && strstr(text, "MPI is finalised") != NULL);
    return n_failed > 0;
}
