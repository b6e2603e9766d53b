/*
 * Every rejection of the pair, in one of two processes: both return the same status in the same words, nothing is written,
 * and the comm goes on.
 */
#include "mesh_cases.h"
#include "mesh_rejections.h"
#include "ranks.h"

struct spoiled {
    const struct mesh_rejections *of;
    int device;
    bool no_shared;
};

static sy_status run_call(sy_ctx *ctx, sy_comm *comm, struct test_call *c)
{
    const sy_op_info *op = sy_op_find(c->op);
    return sy_call_mesh(ctx, comm, op, &c->args, op->args_bytes);
}

/* True when this process found nothing wrong; else the first fault is in `why`. It never leaves early. */
static bool one_row(sy_ctx *ctx, sy_comm *comm, const struct spoiled *s, const struct rejection *row,
                    char *why, size_t why_bytes)
{
    struct test_call call;
    char story[600] = "";
    char both[REJECTION_DEVICES][sizeof story];
    const char *const theirs = both[1 - this_rank];
    s->of->make(&call);
    if (this_rank == s->device)
        test_call_spoil(&call, &row->spoil);
    const sy_status status = run_call(ctx, comm, &call);
    snprintf(story, sizeof story, "%s: %s", sy_status_name(status), sy_ctx_error(ctx));
    ranks_gather(story, sizeof story, both);
    /* One more expert leaves those of device 0 alone: it is the mapping that differs. */
    const bool differs = s->device == 0 && strstr(row->name, "three of four experts") != NULL;
    const bool good = status == (differs ? SY_ERR_MISMATCH : row->want) && strcmp(story, theirs) == 0;
    char after[300] = "";
    const bool goes_on = run_mesh_case(ctx, comm, 0, after, sizeof after);
    if (why[0] == '\0' && !(good && goes_on))
        snprintf(why, why_bytes, "%s: here \"%s\", there \"%s\", want %s; %s", row->name, story, theirs,
                 sy_status_name(row->want), after);
    if (why[0] == '\0')
        test_call_expect_untouched(&call);
    test_call_free(&call);
    return good && goes_on;
}

static void test_spoiled(void **state)
{
    const struct spoiled *const s = *state;
    const sy_comm_options options = {.no_shared = s->no_shared};
    sy_ctx *const ctx = test_ctx(1, NULL);
    sy_comm *comm = NULL;
    assert_int_equal(ranks_comm(&comm, (sy_mesh){1, REJECTION_DEVICES}, &options), SY_OK);
    char why[2000] = "";
    bool good = true;
    for (size_t i = 0; i < s->of->n; i++)
        if (!test_on_device() ||
            s->of->rows[i].spoil.kind != SPOIL_DEVICE) /* there all of them are on CUDA */
            good &= one_row(ctx, comm, s, &s->of->rows[i], why, sizeof why);
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
    if (!good)
        fail_msg("%s", why);
}

TEST_GROUP(rejections)
{
    static struct spoiled spoiled[MESH_REJECTIONS * REJECTION_DEVICES * 2];
    struct test_list list = {0};
    ranks_begin();
    for (size_t i = 0; i < COUNT_OF(spoiled); i++) {
        spoiled[i] = (struct spoiled){&mesh_rejections[i / 4], i / 2 % 2 != 0, i % 2 != 0};
        test_add(&list,
                 test_name("%s, process %d spoiled, %s", mesh_rejections[i / 4].name, spoiled[i].device,
                           spoiled[i].no_shared ? "messages" : "shared memory"),
                 test_spoiled, &spoiled[i]);
    }
    const int failed = ranks_run(list.tests, list.count);
    free(list.tests);
    return ranks_end(failed);
}
