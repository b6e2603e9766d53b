/*
 * all_to_all_dispatch and all_to_all_combine between processes: the cases that every kind of comm must solve, mistakes of
 * one process, and a process that never comes.
 */
#include "mesh_cases.h"
#include "support.h"
#include "ranks.h"

/* The ways rows can take. */
static const struct variant {
    const char *name;
    sy_comm_options options;
} variants[] = {
#ifndef SWITCHYARD_TEST_NCCL
    {"shared memory", {0}},
    {"unchecked", {.check = SY_CHECK_NONE}},
#endif
    {"messages", {.no_shared = true}},
    {"packed messages", {.no_shared = true, .pack = true}},
    {"short messages", {.no_shared = true, .chunk_bytes = 40}},
    {"unchecked messages", {.no_shared = true, .check = SY_CHECK_NONE}},
};

static sy_comm *comm_new(sy_mesh mesh, const sy_comm_options *options)
{
    char text[300] = "";
    sy_comm_options o = *options;
    o.error = text;
    o.error_bytes = sizeof text;
    sy_comm *comm = NULL;
    const sy_status status = ranks_comm(&comm, mesh, &o);
    if (status != SY_OK)
        fail_msg("%s: %s", sy_status_name(status), text);
    return comm;
}

/* ---- Cases -------------------------------------------------------------------------------------------- */

struct cases {
    sy_mesh mesh;
    const struct variant *variant;
};

/* No process leaves the loop early: the others would wait. */
static void test_cases(void **state)
{
    const struct cases *const c = *state;
    sy_ctx *const ctx = test_ctx(1, NULL);
    sy_comm *const comm = comm_new(c->mesh, &c->variant->options);
    char first[400] = "";
    int n_bad = 0;
    const int n = mesh_case_count(c->mesh);
    assert_true(n > 0);
    for (int i = 0; i < n; i++) {
        char why[400] = "";
        if (run_mesh_case(ctx, comm, i, why, sizeof why))
            continue;
        if (n_bad++ == 0)
            memcpy(first, why, sizeof first);
    }
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
    if (n_bad > 0)
        fail_msg("%d of %d: %s", n_bad, n, first);
}

/* ---- Mistakes of one process -------------------------------------------------------------------------- */

static struct mesh_case plain_case(sy_mesh mesh)
{
    struct mesh_case m;
    /* The first random one with tokens in all processes, all of which are one group. */
    for (int number = 0;; number++) {
        mesh_case_random(&m, mesh, number);
        if (m.max_tokens == 0 && m.a2a.tokens[0] > 0 && m.a2a.slots > 0 && m.hidden > 0 &&
            m.mapping_form < 2 && m.a2a.axis != SY_AXIS_0)
            return m;
        mesh_case_free(&m);
    }
}

static void no_input(struct mesh_call *c)
{
    c->dispatch.input = NULL;
}
static void bad_rank(struct mesh_call *c)
{
    c->fields[MESH_INPUT][0].ndim = 0;
}
static void float_indices(struct mesh_call *c)
{
    c->fields[MESH_INDICES][0].dtype = SY_F64;
}
static void no_such_dimension(struct mesh_call *c)
{
    c->dispatch.output_concat_dim = 3;
}
static void no_such_links(struct mesh_call *c)
{
    c->dispatch.num_links = -1;
}
static void no_such_expert(struct mesh_call *c)
{
    /* Any of the index types: all bits but the lowest. */
    memset(c->tensors[MESH_INDICES][0].mem, 0x7f, c->tensors[MESH_INDICES][0].row_bytes);
}
static void half_an_expert(struct mesh_call *c)
{
    memset(c->tensors[MESH_MAPPING][0].mem, 2, 2);
}
static void wrong_output(struct mesh_call *c)
{
    c->fields[MESH_TOKENS][0].dtype = SY_U8;
    c->fields[MESH_TOKENS][0].dtype.bits = 24;
}
static void other_axis(struct mesh_call *c) /* of one row: the group is the same, the call is not */
{
    c->dispatch.cluster_axis = c->dispatch.cluster_axis == SY_AXIS_1 ? SY_AXIS_ALL : SY_AXIS_1;
}
static void
other_mapping(struct mesh_call *c) /* expert 0 of another device, so that this one's count is the same */
{
    unsigned char *const entry = c->tensors[MESH_MAPPING][0].mem + (size_t)((this_rank + 1) % n_ranks) * 2;
    *entry = !*entry;
}

static const struct mistake {
    const char *name;
    void (*make)(struct mesh_call *c);
    sy_status want;
    bool two; /* takes two to differ */
} mistakes[] = {
    {"no input", no_input, SY_ERR_NULL, false},
    {"input without dimensions", bad_rank, SY_ERR_SHAPE, false},
    {"indices that are floats", float_indices, SY_ERR_DTYPE, false},
    {"dimension 3", no_such_dimension, SY_ERR_VALUE, false},
    {"negative links", no_such_links, SY_ERR_VALUE, false},
    {"an expert that is not there", no_such_expert, SY_ERR_INDEX, false},
    {"a mapping entry that is neither 0 nor 1", half_an_expert, SY_ERR_ROUTING, false},
    {"output of 24 bits", wrong_output, SY_ERR_DTYPE, false},
    {"another axis", other_axis, SY_ERR_MISMATCH, true},
    {"another mapping", other_mapping, SY_ERR_MISMATCH, true},
};

/* The culprit makes its mistake; all return the same, no output changes, and the next call works. */
static void test_mistakes(void **state)
{
    const struct mistake *const wrong = *state;
    const sy_mesh mesh = {1, n_ranks};
    sy_ctx *const ctx = test_ctx(1, NULL);
    for (int v = 0; v < 2; v++) {
        const sy_comm_options options = {.no_shared = v != 0};
        sy_comm *const comm = comm_new(mesh, &options);
        struct mesh_case m = plain_case(mesh);
        for (int culprit = 0; culprit<n_ranks; culprit += n_ranks> 1 ? n_ranks - 1 : 1) {
            struct mesh_call *const call = mesh_dispatch_new(comm, &m, NULL);
            if (this_rank == culprit)
                wrong->make(call);
            char why[300] = "";
            const sy_status status = mesh_call_run(ctx, comm, call);
            snprintf(why, sizeof why, "%s: %s", sy_status_name(status), sy_ctx_error(ctx));
            expect_same_everywhere(why, strlen(why) + 1);
            if (status != wrong->want)
                fail_msg("%s; want %s", why, sy_status_name(wrong->want));
            if (this_rank != culprit && !mesh_call_untouched(call, why, sizeof why))
                fail_msg("%s", why);
            mesh_call_free(call);
            if (!run_mesh_case(ctx, comm, 0, why, sizeof why))
                fail_msg("the next call: %s", why);
        }
        mesh_case_free(&m);
        sy_comm_destroy(comm);
    }
    sy_ctx_destroy(ctx);
}

/* Process 0 dispatches while the others combine. */
static void test_different_operators(void **state)
{
    (void)state;
    const sy_mesh mesh = {n_ranks, 1};
    sy_ctx *const ctx = test_ctx(1, NULL);
    sy_comm *const comm = comm_new(mesh, &variants[0].options);
    struct mesh_case m = plain_case(mesh);
    struct mesh_call *const call =
        this_rank == 0 ? mesh_dispatch_new(comm, &m, NULL) : mesh_combine_new(comm, &m, NULL);
    char why[300] = "";
    assert_int_equal(mesh_call_run(ctx, comm, call), SY_ERR_MISMATCH);
    assert_true(mesh_call_untouched(call, why, sizeof why));
    mesh_call_free(call);
    if (!run_mesh_case(ctx, comm, 0, why, sizeof why))
        fail_msg("the next call: %s", why);
    mesh_case_free(&m);
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

/* ---- A process that never comes ----------------------------------------------------------------------- */

/* The last process comes after the others have given up: they break the comm and say so, for good. */
static void test_absent_process(void **state)
{
    (void)state;
    const sy_mesh mesh = {1, n_ranks};
    sy_ctx *const ctx = test_ctx(1, NULL);
    const sy_comm_options options = {.timeout_ms = 300};
    sy_comm *const comm = comm_new(mesh, &options);
    struct mesh_case m = plain_case(mesh);
    struct mesh_call *const call = mesh_dispatch_new(comm, &m, NULL);
    const bool absent = this_rank == n_ranks - 1;
    const sy_status first = absent ? SY_ERR_TIMEOUT : mesh_call_run(ctx, comm, call);
    ranks_barrier();
    const sy_status second = mesh_call_run(ctx, comm, call);
    ranks_barrier();
    sy_comm_destroy(comm);
    assert_int_equal(first, SY_ERR_TIMEOUT);
    if (!absent)
        assert_int_equal(second, SY_ERR_COMM);
    else
        assert_int_not_equal(second, SY_OK);
    mesh_call_free(call);
    mesh_case_free(&m);
    sy_ctx_destroy(ctx);
}

TEST_GROUP(all_to_all)
{
    struct test_list list = {0};
    ranks_begin();
    struct cases *const all = calloc((size_t)n_meshes() * COUNT_OF(variants), sizeof *all);
    struct cases *next = all;
    for (int m = 0; m < n_meshes(); m++)
        for (size_t v = 0; v < COUNT_OF(variants); v++, next++) {
            *next = (struct cases){mesh_number(m), &variants[v]};
            test_add(&list, test_name("%dx%d, %s", next->mesh.rows, next->mesh.cols, variants[v].name),
                     test_cases, next);
        }
    for (size_t i = 0; i < COUNT_OF(mistakes); i++)
        if (!mistakes[i].two || n_ranks > 1)
            test_add(&list, test_name("one process: %s", mistakes[i].name), test_mistakes,
                     (void *)&mistakes[i]);
    if (n_ranks > 1) {
        test_add(&list, "different operators", test_different_operators, NULL);
        test_add(&list, "a process that never comes", test_absent_process, NULL);
    }
    const int failed = ranks_run(list.tests, list.count);
    free(list.tests);
    free(all);
    return ranks_end(failed);
}
