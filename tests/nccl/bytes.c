/*
 * Bytes that leave each process: those of the rows that another process needs, each once, and no more.
 */
#include "comm/comm.h"
#include "mesh_cases.h"
#include "support.h"
#include "transports/nccl/transport.h"
#include "ranks_nccl.h"

static int64_t sent_bytes(const sy_comm *comm)
{
    return (int64_t)((const struct syi_nccl *)comm->transport.self)->sent_bytes;
}

TEST(test_bytes)
{
    sy_ctx *const ctx = test_ctx(1, NULL);
    int64_t total = 0, sent, received;
    char first[600] = "";
    for (int i = 0; i < n_meshes(); i++) {
        const sy_mesh mesh = mesh_number(i);
        sy_comm *comm = NULL;
        assert_int_equal(ranks_comm(&comm, mesh, &(sy_comm_options){0}), SY_OK);
        for (int number = 0; number < 60; number++) {
            struct mesh_case m;
            mesh_case_random(&m, mesh, number);
            for (int way = 0; way < 2; way++) {
                struct mesh_call *const call =
                    way == 0 ? mesh_dispatch_new(comm, &m, NULL) : mesh_combine_new(comm, &m, NULL);
                const int64_t before = sent_bytes(comm);
                const sy_status st = mesh_call_run(ctx, comm, call);
                const int64_t found = sent_bytes(comm) - before;
                mesh_call_bytes(call, &sent, &received);
                total += sent;
                if ((st != SY_OK || found != sent) && first[0] == '\0')
                    snprintf(first, sizeof first, "%dx%d, case %d, %s: %lld bytes, want %lld; %s %s",
                             mesh.rows, mesh.cols, number, way == 0 ? "dispatch" : "combine",
                             (long long)found, (long long)sent, sy_status_name(st), sy_ctx_error(ctx));
                mesh_call_free(call);
            }
            mesh_case_free(&m);
        }
        sy_comm_destroy(comm);
    }
    sy_ctx_destroy(ctx);
    if (first[0] != '\0')
        fail_msg("%s", first);
    assert_true(total > 0);
}

TEST_GROUP(bytes)
{
    ranks_begin();
    return ranks_run_list(&own_tests);
}
