/*
 * Collective calls of which one process does not do its part, between processes; and shared memory that runs out
 * in one of them. All processes return the same, and none of them hangs.
 *
 *     mpi_collective [N] [small]     small: the machine has little shared memory, and rows must travel in messages
 */
#include "mesh_misuse.h"
#include "ranks.h"

#include <sys/resource.h>

#ifdef SWITCHYARD_TEST_NCCL
static const bool can_share = false;
#else
static const bool can_share = true;
#endif

static sy_comm *comm_of(bool no_shared)
{
    const sy_comm_options options = {.no_shared = no_shared};
    sy_comm *comm = NULL;
    assert_int_equal(ranks_comm(&comm, (sy_mesh){1, n_ranks}, &options), SY_OK);
    return comm;
}

static void test_mistakes(void **state)
{
    sy_ctx *const ctx = test_ctx(1, NULL);
    sy_comm *const comm = comm_of(*state != NULL);
    for (int i = 0; i < mesh_misuse_count(); i++)
        for (int guilty = 0; guilty < n_ranks && mesh_misuse_applies(i, n_ranks, test_on_device());
             guilty++) {
            char story[600] = "", all[8][sizeof story];
            char why[1200] = "";
            const bool good = run_mesh_misuse(ctx, comm, i, guilty, story, sizeof story, why, sizeof why);
            assert_true(n_ranks <= 8);
            ranks_gather(story, sizeof story, all);
            const char *const first = all[guilty == 0 && n_ranks > 1 ? 1 : 0];
            if (!good)
                fail_msg("process %d at fault: %s", guilty, why);
            if (story[0] != '\0' && strcmp(story, first) != 0)
                fail_msg("%s: \"%s\", another process says \"%s\"", mesh_misuse_name(i), story, first);
        }
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

/* A dispatch and a combine of `tokens` rows of 4 KiB each, compared with the oracle. */
static bool run_large(sy_ctx *ctx, sy_comm *comm, int64_t tokens, char *why, size_t why_bytes)
{
    struct mesh_case m;
    char line[200];
    snprintf(line, sizeof line, "form=2 short=1 S=%lld K=2 E=%d experts=1 type=1 H=1024", (long long)tokens,
             n_ranks);
    mesh_case_line(&m, sy_comm_mesh(comm), line);
    bool good = mesh_call_right(ctx, comm, mesh_dispatch_new(comm, &m, NULL), why, why_bytes);
    good = mesh_call_right(ctx, comm, mesh_combine_new(comm, &m, NULL), why, why_bytes) && good;
    mesh_case_free(&m);
    return good;
}

/* The last process may not make large files: rows travel in messages, in all processes, and memory of the comm is
   memory of each. */
TEST(test_shared_memory_runs_out)
{
    sy_ctx *const ctx = test_ctx(1, NULL);
    char why[400] = "";
    for (int which = 0; which < 2; which++) {
        sy_comm *const comm = comm_of(false);
        if (!sy_comm_shares_memory(comm) || test_on_device())
            skip_because("of shared CPU memory, which this mesh does not use");
        const bool before = run_large(ctx, comm, 2, why, sizeof why) && sy_comm_shares_memory(comm);
        struct rlimit old, small;
        getrlimit(RLIMIT_FSIZE, &old);
        small = (struct rlimit){1 << 19, old.rlim_max};
        if (this_rank == n_ranks - 1)
            setrlimit(RLIMIT_FSIZE, &small);
        void *data = NULL;
        const bool alloc = which == 0 || sy_comm_alloc(ctx, comm, 1 << 20, &data) == SY_OK;
        if (data)
            memset(data, 1, 1 << 20);
        const bool after =
            which == 1 || (run_large(ctx, comm, 200, why, sizeof why) && !sy_comm_shares_memory(comm));
        const bool then = run_large(ctx, comm, 3, why, sizeof why);
        const bool freed = sy_comm_free(ctx, comm, data) == SY_OK;
        setrlimit(RLIMIT_FSIZE, &old);
        sy_comm_destroy(comm);
        if (!(before && alloc && after && then && freed))
            fail_msg("%d: %d%d%d%d%d %s", which, before, alloc, after, then, freed, why);
    }
    sy_ctx_destroy(ctx);
}

/* On a machine with little shared memory, as test_jobs.py makes it. */
TEST(test_little_shared_memory)
{
    sy_ctx *const ctx = test_ctx(1, NULL);
    char why[400] = "";
    sy_comm *const comm = comm_of(false);
    const bool shared = sy_comm_shares_memory(comm);
    const bool small = run_large(ctx, comm, 2, why, sizeof why),
               large = run_large(ctx, comm, 4096, why, sizeof why);
    const bool then = sy_comm_shares_memory(comm);
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
    if (!shared || !small || !large || then)
        fail_msg("shared %d, small %d, large %d, shared then %d: %s", shared, small, large, then, why);
}

TEST_GROUP(collective)
{
    struct test_list list = {0};
    ranks_begin();
    if (argc > 1 && strcmp(argv[argc - 1], "small") == 0) {
        test_add(&list, "little shared memory", test_little_shared_memory, NULL);
    } else {
        test_add(&list, "mistakes, shared memory", test_mistakes, NULL);
        test_add(&list, "mistakes, messages", test_mistakes, &list);
        if (can_share)
            test_add(&list, "shared_memory_runs_out", test_shared_memory_runs_out, NULL);
    }
    return ranks_run_list(&list);
}
