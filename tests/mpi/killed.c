/*
 * For test_jobs.py: processes in the middle of exchanges, one of which dies without a word, or stops. The others must end: MPI's
 * launcher ends them, or their calls fail.
 *
 *     mpi_killed shared|messages [kill|stop]
 */
#include "mesh_cases.h"
#include "support.h"
#include "ranks.h"

#include <signal.h>

TEST_GROUP(killed)
{
    ranks_begin();
    const bool stops = argc > 2 && strcmp(argv[2], "stop") == 0;
    const sy_mpi_options options = {
        .comm = {.no_shared = argc > 1 && strcmp(argv[1], "messages") == 0, .timeout_ms = stops ? 2000 : 0}};
    sy_comm *comm = NULL;
    sy_ctx *ctx = NULL;
    if (sy_comm_create_mpi(&comm, MPI_COMM_WORLD, (sy_mesh){1, n_ranks}, &options) != SY_OK ||
        sy_ctx_create(&ctx, NULL) != SY_OK)
        return 2;
    char why[300];
    for (int round = 0; round < 3; round++)
        if (!run_mesh_case(ctx, comm, round, why, sizeof why))
            return 2;
    if (this_rank == 0)
        printf("all processes exchange\n");
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);

    struct mesh_case m;
    mesh_case_random(&m, sy_comm_mesh(comm), 1);
    struct mesh_call *const call = mesh_dispatch_new(comm, &m, NULL);
    sy_request *request = NULL;
    if (mesh_call_start(ctx, comm, call, &request) != SY_OK)
        return 2;
    if (this_rank == n_ranks - 1) /* it has sent the others its header */
        raise(stops ? SIGSTOP : SIGKILL);
    const sy_status status = sy_request_wait(request, SY_PHASE_DONE);
    /* Its rows may all have been on their way. The next call needs it again. */
    return status == SY_OK && run_mesh_case(ctx, comm, 0, why, sizeof why) ? 0 : 3;
}
