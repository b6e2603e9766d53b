/*
 * A program that ends MPI before its comm: calls fail, and the comm can be destroyed. MPI has but one life, so it is a
 * program of its own.
 */
#include "mesh_cases.h"
#include "support.h"
#include "ranks.h"
#include "support_memory.h"

static struct allocator left; /* a comm leaves its memory behind where it cannot ask the others */

TEST_GROUP(finalised)
{
    sy_ctx *ctx = NULL;
    sy_comm *comms[2] = {NULL, NULL};
    char why[300] = "";
    bool ok = true;
    int rank = 0, n = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &n);
    ok = sy_ctx_create(&ctx, NULL) == SY_OK;
    for (int i = 0; i < 2; i++) {
        const sy_mpi_options options = {
            .comm = {
                .no_shared = i == 1, .alloc = limited_alloc, .dealloc = limited_free, .alloc_user = &left}};
        ok = sy_comm_create_mpi(&comms[i], MPI_COMM_WORLD, (sy_mesh){1, n}, &options) == SY_OK && ok;
        ok = run_mesh_case(ctx, comms[i], 0, why, sizeof why) && ok;
    }
    MPI_Finalize();
    const bool worked = ok;
    for (int i = 0; i < 2; i++)
        ok = sy_comm_reserve(ctx, comms[i], 100) == SY_ERR_COMM &&
             strstr(sy_ctx_error(ctx), "MPI is finalised") != NULL && ok;
    for (int i = 0; i < 2; i++)
        sy_comm_destroy(comms[i]);
    sy_ctx_destroy(ctx);
    if (rank == 0)
        printf("1..2\n%s 1 - exchanges while MPI runs %s\n%s 2 - calls fail and comms go after its end\n",
               worked ? "ok" : "not ok", why, ok ? "ok" : "not ok");
    return !ok;
}
