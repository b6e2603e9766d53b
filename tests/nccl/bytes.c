/*
 * Bytes that leave each process: those of the rows that another process needs, each once, and no more.
 */
#include "comm/comm.h"
#include "mesh_cases.h"
#include "support.h"
#include "transports/nccl/transport.h"
#include "ranks_nccl.h"

static uint64_t sent_bytes(const sy_comm *comm)
{
    return ((const struct syi_nccl *)comm->transport.self)->sent_bytes;
}

static bool hosts(const struct mesh_case *m, int device, int64_t expert)
{
    return m->mapping[expert * m->a2a.mesh.rows * m->a2a.mesh.cols + device] != 0;
}

static bool same_group(const struct mesh_case *m, int a, int b)
{
    const int cols = m->a2a.mesh.cols;
    return m->a2a.axis == SY_AXIS_0   ? a % cols == b % cols
           : m->a2a.axis == SY_AXIS_1 ? a / cols == b / cols
                                      : true;
}

/* Choices of a token whose expert is on a device, each expert once. */
static int64_t choices_at(const struct mesh_case *m, int owner, int64_t token, int device)
{
    const int64_t *const chosen = m->chosen[owner] + token * m->a2a.slots;
    int64_t n = 0;
    for (int64_t k = 0; k < m->a2a.slots; k++) {
        bool again = false;
        for (int64_t j = 0; j < k; j++)
            again = again || chosen[j] == chosen[k];
        n += !again && chosen[k] >= 0 && chosen[k] < m->a2a.experts && hosts(m, device, chosen[k]);
    }
    return n;
}

/* Rows that this process must send: a token once to each device that has one of its experts; a result once to the token's. */
static int64_t rows_to_send(const struct mesh_case *m, bool combine)
{
    int64_t n = 0;
    for (int d = 0; d < n_ranks; d++) {
        const int owner = combine ? d : this_rank, device = combine ? this_rank : d;
        if (d == this_rank || !same_group(m, d, this_rank))
            continue;
        for (int64_t t = 0; t < m->a2a.tokens[owner]; t++) {
            const int64_t here = choices_at(m, owner, t, device);
            n += combine && !m->local_reduce ? here : here > 0;
        }
    }
    return n;
}

static bool single_hosts(const struct mesh_case *m)
{
    for (int64_t e = 0; e < m->a2a.experts; e++) {
        int n = 0;
        for (int d = 0; d < n_ranks; d++)
            n += hosts(m, d, e);
        if (n > 1)
            return false;
    }
    return true;
}

static void test_bytes(void **state)
{
    (void)state;
    sy_ctx *const ctx = test_ctx(1, NULL);
    uint64_t total = 0;
    int n_cases = 0;
    char first[600] = "";
    for (int i = 0; i < n_meshes(); i++) {
        const sy_mesh mesh = mesh_number(i);
        sy_comm *comm = NULL;
        assert_int_equal(ranks_comm(&comm, mesh, &(sy_comm_options){0}), SY_OK);
        for (int number = 0; number < 60; number++) {
            struct mesh_case m;
            mesh_case_random(&m, mesh, number);
            for (int way = 0; way < 2 && single_hosts(&m); way++) {
                struct mesh_call *const call =
                    way == 0 ? mesh_dispatch_new(comm, &m, NULL) : mesh_combine_new(comm, &m, NULL);
                const uint64_t row = (uint64_t)mesh_case_row_bytes(&m, way == 1);
                const uint64_t before = sent_bytes(comm), want = row * (uint64_t)rows_to_send(&m, way == 1);
                const sy_status st = mesh_call_run(ctx, comm, call);
                const uint64_t sent = sent_bytes(comm) - before;
                total += sent;
                n_cases++;
                if ((st != SY_OK || sent != want) && first[0] == '\0')
                    snprintf(first, sizeof first, "%dx%d, case %d, %s: %llu bytes, want %llu; %s %s",
                             mesh.rows, mesh.cols, number, way == 0 ? "dispatch" : "combine",
                             (unsigned long long)sent, (unsigned long long)want, sy_status_name(st),
                             sy_ctx_error(ctx));
                mesh_call_free(call);
            }
            mesh_case_free(&m);
        }
        sy_comm_destroy(comm);
    }
    sy_ctx_destroy(ctx);
    if (first[0] != '\0')
        fail_msg("%s", first);
    assert_true(n_cases > 50);
    assert_true(total > 0);
}

TEST_GROUP(bytes)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_bytes)};
    ranks_begin();
    return ranks_end(ranks_run(tests, COUNT_OF(tests)));
}
