/*
 * all_to_all_combine rejects, on a mesh of two devices inside this process: device 0 is valid, device 1 is spoiled in one
 * place. Nothing of either is written.
 */
#include "mesh_rejections.h"

static sy_comm *comm, *other_comm;

/* Arguments for both devices: those of `first`, then those of `second`. */
struct pair {
    sy_all_to_all_combine_args args;
    DLTensor tensors[SY_MAX_FIELDS][REJECTION_DEVICES];
};

static void pair_up(struct pair *pair, const struct test_call *first, const struct test_call *second)
{
    mesh_pair_up(&pair->args, pair->tensors, first, second);
}

/* Scalars are those of the whole call, so the tensors of device 0 follow the layout that device 1 asks for. */
static void follow(struct test_call *first, struct test_call *second)
{
    const sy_all_to_all_combine_args *a = &second->args.a2a_combine;
    struct tensor *input = test_call_tensor(first, "input");
    if (a->layout == SY_LAYOUT_PACKED || a->layout == SY_LAYOUT_EXPERT) {
        input->t.ndim = 2;
        input->shape[0] = 36;
        input->shape[1] = 5;
    } else if (a->local_reduce && a->input && a->input->shape[0] == 1) {
        input->shape[0] = 1;
    } else if (a->output_shard_dim == 0 && a->input && a->expert_metadata && a->expert_metadata->shape &&
               a->expert_metadata->shape[1] == 3) {
        input->shape[1] = 3;
        test_call_tensor(first, "expert_metadata")->shape[1] = 3;
    }
}

static sy_status run_after(sy_ctx *ctx, struct test_call *c, void (*make)(struct test_call *c))
{
    struct pair pair;
    struct test_call first;
    make(&first);
    follow(&first, c);
    pair_up(&pair, &first, c);
    const sy_status status = sy_all_to_all_combine(ctx, comm, &pair.args);
    if (status != SY_OK)
        test_call_expect_untouched(&first);
    test_call_free(&first);
    return status;
}

static sy_status run(sy_ctx *ctx, struct test_call *c)
{
    return run_after(ctx, c, mesh_make_combine);
}

static sy_status run_sum(sy_ctx *ctx, struct test_call *c)
{
    return run_after(ctx, c, mesh_make_sum);
}

static sy_status run_codes(sy_ctx *ctx, struct test_call *c)
{
    return run_after(ctx, c, mesh_make_codes);
}

static sy_status run_code_sum(sy_ctx *ctx, struct test_call *c)
{
    return run_after(ctx, c, mesh_make_code_sum);
}

/* The other way round: device 0 is spoiled, so that its tensors and what belongs to the whole call are validated as one. */
static sy_status run_first(sy_ctx *ctx, struct test_call *c)
{
    struct pair pair;
    struct test_call second;
    mesh_make_combine(&second);
    pair_up(&pair, c, &second);
    pair.args.num_links = c->args.a2a_combine.num_links;
    pair.args.expert_mapping = c->args.a2a_combine.expert_mapping;
    const sy_status status = sy_all_to_all_combine(ctx, comm, &pair.args);
    test_call_expect_untouched(&second);
    test_call_free(&second);
    return status;
}

static void make_first(struct test_call *c)
{
    mesh_make_combine(c);
    c->run = run_first;
}

static void make(struct test_call *c)
{
    mesh_make_combine(c);
    c->run = run;
}

static void make_sum(struct test_call *c)
{
    mesh_make_sum(c);
    c->run = run_sum;
}

static void make_codes(struct test_call *c)
{
    mesh_make_codes(c);
    c->run = run_codes;
}

static void make_code_sum(struct test_call *c)
{
    mesh_make_code_sum(c);
    c->run = run_code_sum;
}

/* ---- Faults of the call ------------------------------------------------------------------------------- */

/* Scales of an output that has none: of sums, and of rows as they are. */
static void scales_where_none_belong(void **state)
{
    (void)state;
    static const char *const sentences[] = {
        "output_scales of device 0 is given with sum, want none",
        "output_scales of device 0 is given, want none: there is no row_format"};
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int i = 0; i < 2; i++) {
        struct pair pair;
        struct test_call calls[2], codes;
        mesh_make_codes(&codes);
        for (int d = 0; d < 2; d++)
            i == 0 ? make_code_sum(&calls[d]) : make(&calls[d]);
        pair_up(&pair, &calls[0], &calls[1]);
        const DLTensor scales[2] = {*codes.args.a2a_combine.output_scales,
                                    *codes.args.a2a_combine.output_scales};
        pair.args.output_scales = scales;
        expect_status(ctx, sy_all_to_all_combine(ctx, comm, &pair.args), SY_ERR_VALUE);
        assert_non_null(strstr(sy_ctx_error(ctx), sentences[i]));
        test_call_expect_untouched(&calls[0]);
        test_call_expect_untouched(&calls[1]);
        test_call_free(&calls[0]);
        test_call_free(&calls[1]);
        test_call_free(&codes);
    }
    sy_ctx_destroy(ctx);
}

static void missing_context_comm_or_arguments(void **state)
{
    (void)state;
    struct pair pair;
    struct test_call calls[2];
    sy_query q;
    sy_request *request = NULL;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&calls[0]);
    make(&calls[1]);
    pair_up(&pair, &calls[0], &calls[1]);
    assert_int_equal(sy_all_to_all_combine(NULL, comm, &pair.args), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_combine(ctx, NULL, &pair.args), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_combine(ctx, comm, NULL), SY_ERR_NULL);
    assert_int_equal(sy_all_to_all_combine_start(NULL, comm, &pair.args, &request), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_combine_start(ctx, comm, &pair.args, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_combine_query(ctx, NULL, &pair.args, &q), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_combine_query(ctx, comm, NULL, &q), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_combine_query(ctx, comm, &pair.args, NULL), SY_ERR_NULL);
    assert_null(request);
    expect_status(ctx, sy_all_to_all_combine(ctx, comm, &pair.args), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    test_call_free(&calls[0]);
    test_call_free(&calls[1]);
    sy_ctx_destroy(ctx);
}

/* Tables that differ inside a group: nobody can say which is right. */
static void tables_that_differ(void **state)
{
    (void)state;
    struct pair pair;
    struct test_call calls[2];
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&calls[0]);
    make(&calls[1]);
    memcpy(test_call_tensor(&calls[1], "expert_metadata")->mem + 46, &(uint16_t){0}, 2);
    memcpy(test_call_tensor(&calls[0], "expert_metadata")->mem + 46, &(uint16_t){1}, 2);
    pair_up(&pair, &calls[0], &calls[1]);
    expect_status(ctx, sy_all_to_all_combine(ctx, comm, &pair.args), SY_ERR_MISMATCH);
    test_call_expect_untouched(&calls[0]);
    test_call_expect_untouched(&calls[1]);
    memcpy(test_call_tensor(&calls[0], "expert_metadata")->mem + 46, &(uint16_t){0}, 2);
    expect_status(ctx, sy_all_to_all_combine(ctx, comm, &pair.args), SY_OK);
    test_call_free(&calls[0]);
    test_call_free(&calls[1]);
    sy_ctx_destroy(ctx);
}

static void routings_that_do_not_fit(void **state)
{
    (void)state;
    struct pair pair;
    struct test_call calls[2];
    sy_routing *own = NULL, *foreign = NULL;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&calls[0]);
    make(&calls[1]);
    pair_up(&pair, &calls[0], &calls[1]);
    expect_status(ctx, sy_routing_create(ctx, comm, &own), SY_OK);
    expect_status(ctx, sy_routing_create(ctx, other_comm, &foreign), SY_OK);
    pair.args.routing = foreign;
    expect_status(ctx, sy_all_to_all_combine(ctx, comm, &pair.args), SY_ERR_STATE);
    pair.args.routing = own; /* of no dispatch */
    expect_status(ctx, sy_all_to_all_combine(ctx, comm, &pair.args), SY_ERR_STATE);
    test_call_expect_untouched(&calls[0]);
    test_call_expect_untouched(&calls[1]);
    sy_routing_destroy(own);
    sy_routing_destroy(foreign);
    test_call_free(&calls[0]);
    test_call_free(&calls[1]);
    sy_ctx_destroy(ctx);
}

/* Where token counts differ, tensors have the short shapes; the query says so, too. */
static void long_weights_where_counts_differ(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int rank;
        int64_t shape[3];
    } brief[] = {{"input", 3, {3, 12, 5}},
                 {"expert_metadata", 2, {12, 2}},
                 {"output", 2, {6, 5}},
                 {"weights", 2, {6, 2}}};
    sy_ctx *ctx = test_ctx(1, NULL);
    for (size_t n = 3; n <= 4; n++) {
        struct pair pair;
        struct test_call calls[2];
        sy_query q;
        for (int d = 0; d < 2; d++) {
            make_sum(&calls[d]);
            for (size_t i = 0; i < n; i++) {
                struct tensor *x = test_call_tensor(&calls[d], brief[i].name);
                x->t.ndim = brief[i].rank;
                memcpy(x->shape, brief[i].shape, sizeof brief[i].shape);
            }
        }
        pair_up(&pair, &calls[0], &calls[1]);
        pair.args.max_tokens = 9;
        const sy_status want = n == 3 ? SY_ERR_SHAPE : SY_OK;
        expect_status(ctx, sy_all_to_all_combine_query(ctx, comm, &pair.args, &q), want);
        expect_status(ctx, sy_all_to_all_combine(ctx, comm, &pair.args), want);
        for (int d = 0; d < 2; d++) {
            if (n == 3)
                test_call_expect_untouched(&calls[d]);
            test_call_free(&calls[d]);
        }
    }
    sy_ctx_destroy(ctx);
}

/* A rejected request: started, and told of by test, wait and free alike. */
static void requests_return_rejections(void **state)
{
    (void)state;
    struct pair pair;
    struct test_call calls[2];
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int way = 0; way < 3; way++) {
        sy_request *request = NULL;
        bool done = false;
        make(&calls[0]);
        make(&calls[1]);
        test_call_tensor(&calls[1], "input")->shape[0] = 2;
        pair_up(&pair, &calls[0], &calls[1]);
        expect_status(ctx, sy_all_to_all_combine_start(ctx, comm, &pair.args, &request), SY_OK);
        assert_non_null(request);
        if (way == 0)
            expect_status(ctx, sy_request_wait(request, SY_PHASE_ROUTED), SY_ERR_SHAPE);
        sy_status status = SY_OK;
        while (way == 1 && !done)
            status = sy_request_test(request, SY_PHASE_DONE, &done);
        if (way == 1)
            expect_status(ctx, status, SY_ERR_SHAPE);
        expect_status(ctx, sy_request_free(request), SY_ERR_SHAPE);
        assert_non_null(strstr(sy_ctx_error(ctx), "input"));
        for (int d = 0; d < 2; d++) {
            test_call_expect_untouched(&calls[d]);
            test_call_free(&calls[d]);
        }
    }
    sy_ctx_destroy(ctx);
}

/* ---- Calls that are fine ------------------------------------------------------------------------------ */

static void pinned_host_memory_is_host_memory(void **state)
{
    (void)state;
    test_accepts_pinned(make);
    test_accepts_pinned(make_sum);
}

static void adjacent_tensors_do_not_overlap(void **state)
{
    (void)state;
    test_accepts_adjacent(make);
    test_accepts_adjacent(make_sum);
}

int main(void)
{
    struct test_list list = {0};
    const sy_mesh mesh = {1, 2};
    if (sy_comm_create_local(&comm, mesh, NULL) != SY_OK ||
        sy_comm_create_local(&other_comm, mesh, NULL) != SY_OK)
        return 1;
    test_add_rejections(&list, make, mesh_combine_rejections.rows, mesh_combine_rejections.n);
    test_add_ladder(&list, make_first, mesh_combine_rejections.ladder, mesh_combine_rejections.n_ladder);
    test_add_rejections(&list, make_sum, mesh_sum_rejections.rows, mesh_sum_rejections.n);
    test_add_rejections(&list, make_codes, mesh_codes_rejections.rows, mesh_codes_rejections.n);
    test_add_rejections(&list, make_code_sum, mesh_code_sum_rejections.rows, mesh_code_sum_rejections.n);
    test_add(&list, "scales_where_none_belong", scales_where_none_belong, NULL);
    test_add(&list, "missing_context_comm_or_arguments", missing_context_comm_or_arguments, NULL);
    test_add(&list, "tables_that_differ", tables_that_differ, NULL);
    test_add(&list, "routings_that_do_not_fit", routings_that_do_not_fit, NULL);
    test_add(&list, "long_weights_where_counts_differ", long_weights_where_counts_differ, NULL);
    test_add(&list, "requests_return_rejections", requests_return_rejections, NULL);
    test_add(&list, "pinned_host_memory_is_host_memory", pinned_host_memory_is_host_memory, NULL);
    test_add(&list, "adjacent_tensors_do_not_overlap", adjacent_tensors_do_not_overlap, NULL);
    const int failed = test_run(&list, "bad_all_to_all_combine");
    sy_comm_destroy(comm);
    sy_comm_destroy(other_comm);
    return failed;
}
