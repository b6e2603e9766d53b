/*
 * One process ends or stops in the middle of an exchange: the calls of the others fail in bounded time, the comm stays broken, and
 * neither the context nor the end of the comm waits for it.
 *
 *     nccl_killed header|rows kill|stop     before the others have its rows; while rows are on their way
 */
#include "mesh_cases.h"
#include "support.h"
#include "ranks_nccl.h"

#include <signal.h>
#include <unistd.h>

static void expect(bool good, const char *what, sy_status status, const sy_ctx *ctx)
{
    if (good)
        return;
    printf("not ok 1 - process %d: %s: %s: %s\n", this_rank, what, sy_status_name(status), sy_ctx_error(ctx));
    fflush(stdout);
    _exit(3);
}

TEST_GROUP(killed)
{
    const bool rows = argc > 1 && strcmp(argv[1], "rows") == 0;
    const bool stops = argc > 2 && strcmp(argv[2], "stop") == 0;
    ranks_begin();
    const sy_comm_options options = {.timeout_ms = 2000};
    sy_comm *comm = NULL;
    sy_ctx *const ctx = test_ctx(1, NULL);
    sy_status st = ranks_comm(&comm, (sy_mesh){1, n_ranks}, &options);
    expect(st == SY_OK, "a comm", st, ctx);
    char why[300] = "";
    for (int round = 0; round < 3; round++)
        expect(run_mesh_case(ctx, comm, round, why, sizeof why), why, SY_OK, ctx);
    ranks_barrier();

    struct mesh_case m;
    mesh_case_random(&m, sy_comm_mesh(comm), 1);
    struct mesh_call *const call = mesh_dispatch_new(comm, &m, NULL);
    if (this_rank == n_ranks - 1) { /* the others know that it comes */
        sy_request *request = NULL;
        mesh_call_start(ctx, comm, call, &request);
        if (rows)
            sy_request_wait(request, SY_PHASE_ROUTED);
        raise(stops ? SIGSTOP : SIGKILL);
    }
    for (int i = 0; st == SY_OK && i < 3; i++) /* its rows may all have been on their way */
        st = mesh_call_run(ctx, comm, call);
    expect(st == SY_ERR_TIMEOUT || st == SY_ERR_COMM, "the call", st, ctx);
    printf("# process %d: %s: %s\n", this_rank, sy_status_name(st), sy_ctx_error(ctx));
    st = mesh_call_run(ctx, comm, call);
    expect(st == SY_ERR_COMM && strstr(sy_ctx_error(ctx), "comm is broken") != NULL, "the next call", st,
           ctx);
    st = sy_ctx_sync(ctx);
    expect(st == SY_OK, "sy_ctx_sync", st, ctx);
    sy_comm_destroy(comm);
    if (this_rank == 0)
        printf("1..1\nok 1 - a process that %s in %s\n", stops ? "stops" : "ends", rows ? "rows" : "headers");
    fflush(stdout);
    ncclCommAbort(ranks_nccl);
    _exit(0);
}
