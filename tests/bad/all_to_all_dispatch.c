/*
 * all_to_all_dispatch rejects, on a mesh of two devices inside this process: device 0 is valid, device 1 is spoiled in one
 * place. Nothing of either is written. Then faults of both devices, faults of the call itself, and calls that are fine.
 */
#include "mesh_rejections.h"

static sy_comm *comm, *other_comm;

/* Arguments for both devices: those of `first`, then those of `second`. */
struct pair {
    sy_all_to_all_dispatch_args args;
    DLTensor tensors[SY_MAX_FIELDS][REJECTION_DEVICES];
};

static void pair_up(struct pair *pair, const struct test_call *first, const struct test_call *second)
{
    mesh_pair_up(&pair->args, pair->tensors, first, second);
}

static sy_status run_after(sy_ctx *ctx, struct test_call *c, void (*make)(struct test_call *c))
{
    struct pair pair;
    struct test_call first;
    make(&first);
    pair_up(&pair, &first, c);
    const sy_status status = sy_all_to_all_dispatch(ctx, comm, &pair.args);
    if (status != SY_OK)
        test_call_expect_untouched(&first);
    test_call_free(&first);
    return status;
}

static sy_status run(sy_ctx *ctx, struct test_call *c)
{
    return run_after(ctx, c, mesh_make_dispatch);
}

static sy_status run_expert(sy_ctx *ctx, struct test_call *c)
{
    return run_after(ctx, c, mesh_make_expert);
}

/* The other way round: device 0 is spoiled, so that its tensors and what belongs to the whole call are validated as one. */
static sy_status run_first(sy_ctx *ctx, struct test_call *c)
{
    struct pair pair;
    struct test_call second;
    mesh_make_dispatch(&second);
    pair_up(&pair, c, &second);
    pair.args.num_links = c->args.a2a_dispatch.num_links;
    pair.args.expert_mapping = c->args.a2a_dispatch.expert_mapping;
    const sy_status status = sy_all_to_all_dispatch(ctx, comm, &pair.args);
    test_call_expect_untouched(&second);
    test_call_free(&second);
    return status;
}

static void make_first(struct test_call *c)
{
    mesh_make_dispatch(c);
    c->run = run_first;
}

static void make(struct test_call *c)
{
    mesh_make_dispatch(c);
    c->run = run;
}

static void make_expert(struct test_call *c)
{
    mesh_make_expert(c);
    c->run = run_expert;
}

/* ---- Codes -------------------------------------------------------------------------------------------- */

/* A valid call with int8_token and what makes it wrong. */
static void a_row_format_is_rejected(void **state)
{
    (void)state;
    static const struct {
        const char *name, *sentence; /* of the format */
        bool scales, planes, plain;
        sy_status want;
        bool wide; /* device 0 has numbers of twice the size: the rows of device 1 are not read as such */
    } cases[] = {
        {"int8_token", "scale_tokens of device 0 is missing while row_format is given, want a tensor", false,
         false, false, SY_ERR_NULL, false},
        {"int8_token", "num_planes of device 0 is 3, want 0 to 2", true, true, false, SY_ERR_VALUE, false},
        {"int8_token", "scale_tokens of device 0 is given, want none: there is no row_format", true, false,
         true, SY_ERR_VALUE, false},
        {"mxfp8", "input of device 0 has rows of 5, want a multiple of 32 as row_format says", true, false,
         false, SY_ERR_SHAPE, false},
        {"int8_token", "device 1", true, false, false, SY_ERR_MISMATCH, true},
        {"int8_token", NULL, true, false, false, SY_OK, false},
    };
    sy_ctx *ctx = test_ctx(2, NULL);
    for (size_t i = 0; i < COUNT_OF(cases); i++) {
        struct pair pair;
        struct test_call calls[2];
        float numbers[2][32] = {{0}}, wide[30] = {0};
        int64_t shape[4] = {1, 4, 3, 1};
        DLTensor scales[2];
        sy_row_format format;
        make(&calls[0]);
        make(&calls[1]);
        pair_up(&pair, &calls[0], &calls[1]);
        DLTensor tokens[2] = {pair.args.tokens[0], pair.args.tokens[1]};
        assert_int_equal(sy_row_format_named(cases[i].name, &format), SY_OK);
        for (int d = 0; d < 2; d++) {
            if (!cases[i].plain)
                tokens[d].dtype = strcmp(cases[i].name, "mxfp8") == 0 ? SY_U8 : SY_I8;
            scales[d] = sy_tensor(numbers[d], strcmp(cases[i].name, "mxfp8") == 0 ? SY_U8 : SY_F32, 4, shape);
        }
        const DLTensor inputs[2] = {sy_tensor(wide, SY_F32, 4, pair.args.input->shape), pair.args.input[1]};
        pair.args.input = cases[i].wide ? inputs : pair.args.input;
        pair.args.tokens = tokens;
        pair.args.row_format = cases[i].plain ? NULL : &format;
        pair.args.scale_tokens = cases[i].scales ? scales : NULL;
        for (int p = 1; p < SY_A2A_MAX_PLANES - 1 && cases[i].planes; p++) {
            pair.args.num_planes = p + 1;
            pair.args.planes[p] = pair.args.planes[0];
            pair.args.plane_tokens[p] = pair.args.plane_tokens[0];
        }
        expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &pair.args), cases[i].want);
        if (cases[i].sentence != NULL) {
            assert_non_null(strstr(sy_ctx_error(ctx), cases[i].sentence));
            test_call_expect_untouched(&calls[0]);
            test_call_expect_untouched(&calls[1]);
        }
        test_call_free(&calls[0]);
        test_call_free(&calls[1]);
    }
    sy_ctx_destroy(ctx);
}

/* ---- Faults of both devices --------------------------------------------------------------------------- */

/* Whatever is wrong with device 1, an index out of range in device 0 is told, and the other way round. */
static void the_lowest_device_is_reported(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(2, NULL);
    struct pair pair;
    struct test_call calls[2];
    for (int spoiled = 0; spoiled < 2; spoiled++) {
        make(&calls[0]);
        make(&calls[1]);
        memcpy(test_call_tensor(&calls[spoiled], "expert_indices")->mem, &(uint16_t){7}, 2);
        test_call_tensor(&calls[1 - spoiled], "tokens")->shape[3] = 4;
        pair_up(&pair, &calls[0], &calls[1]);
        expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &pair.args),
                      spoiled == 0 ? SY_ERR_INDEX : SY_ERR_SHAPE);
        test_call_expect_untouched(&calls[0]);
        test_call_expect_untouched(&calls[1]);
        test_call_free(&calls[0]);
        test_call_free(&calls[1]);
    }
    sy_ctx_destroy(ctx);
}

/* An output of one device over a tensor of the other. */
static void tensors_of_two_devices_overlap(void **state)
{
    (void)state;
    static const char *const outputs[] = {"tokens", "metadata", "plane_tokens[0]", "present",
                                          "expert_counts"};
    static const char *const others[] = {"input", "expert_indices", "tokens", "rows_from"};
    sy_ctx *ctx = test_ctx(2, NULL);
    for (size_t i = 0; i < COUNT_OF(outputs); i++)
        for (size_t j = 0; j < COUNT_OF(others); j++) {
            struct pair pair;
            struct test_call calls[2];
            make(&calls[0]);
            make(&calls[1]);
            test_call_tensor(&calls[1], outputs[i])->t.data = test_call_tensor(&calls[0], others[j])->mem;
            pair_up(&pair, &calls[0], &calls[1]);
            expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &pair.args), SY_ERR_ALIAS);
            test_call_expect_untouched(&calls[0]);
            test_call_expect_untouched(&calls[1]);
            test_call_free(&calls[0]);
            test_call_free(&calls[1]);
        }
    sy_ctx_destroy(ctx);
}

/* Other shapes on other devices, without leave. */
static void devices_that_differ(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int dim;
        int64_t extent;
    } differ[] = {{"input", 3, 4}, {"expert_indices", 3, 1}, {"input", 0, 1}};
    sy_ctx *ctx = test_ctx(2, NULL);
    for (size_t i = 0; i < COUNT_OF(differ); i++) {
        struct pair pair;
        struct test_call calls[2];
        make(&calls[0]);
        make(&calls[1]);
        test_call_tensor(&calls[1], differ[i].name)->shape[differ[i].dim] = differ[i].extent;
        pair_up(&pair, &calls[0], &calls[1]);
        const sy_status status = sy_all_to_all_dispatch(ctx, comm, &pair.args);
        assert_true(status == SY_ERR_SHAPE || status == SY_ERR_MISMATCH);
        test_call_expect_untouched(&calls[0]);
        test_call_expect_untouched(&calls[1]);
        test_call_free(&calls[0]);
        test_call_free(&calls[1]);
    }
    sy_ctx_destroy(ctx);
}

/* ---- Faults of the call ------------------------------------------------------------------------------- */

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
    assert_int_equal(sy_all_to_all_dispatch(NULL, comm, &pair.args), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_dispatch(ctx, NULL, &pair.args), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, NULL), SY_ERR_NULL);
    assert_int_equal(sy_all_to_all_dispatch_start(NULL, comm, &pair.args, &request), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_dispatch_start(ctx, NULL, &pair.args, &request), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_dispatch_start(ctx, comm, &pair.args, NULL), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_dispatch_query(ctx, NULL, &pair.args, &q), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_dispatch_query(ctx, comm, NULL, &q), SY_ERR_NULL);
    expect_status(ctx, sy_all_to_all_dispatch_query(ctx, comm, &pair.args, NULL), SY_ERR_NULL);
    assert_null(request);
    bool done;
    assert_int_equal(sy_request_wait(NULL, SY_PHASE_DONE), SY_ERR_NULL);
    assert_int_equal(sy_request_test(NULL, SY_PHASE_DONE, &done), SY_ERR_NULL);
    assert_int_equal(sy_request_tokens(NULL, 0), -1);
    expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &pair.args), SY_OK);
    assert_string_equal(sy_ctx_error(ctx), "");
    test_call_free(&calls[0]);
    test_call_free(&calls[1]);
    sy_ctx_destroy(ctx);
}

/* A field that this library does not know. */
static void longer_arguments(void **state)
{
    (void)state;
    struct pair pair;
    struct {
        sy_all_to_all_dispatch_args args;
        int64_t more;
    } sent;
    struct test_call calls[2];
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&calls[0]);
    make(&calls[1]);
    pair_up(&pair, &calls[0], &calls[1]);
    memset(&sent, 0, sizeof sent);
    sent.args = pair.args;
    expect_status(ctx, sy_all_to_all_dispatch_n(ctx, comm, &sent.args, sizeof sent), SY_OK);
    test_call_reset(&calls[0]);
    test_call_reset(&calls[1]);
    sent.more = 1;
    expect_status(ctx, sy_all_to_all_dispatch_n(ctx, comm, &sent.args, sizeof sent), SY_ERR_UNSUPPORTED);
    test_call_expect_untouched(&calls[0]);
    test_call_expect_untouched(&calls[1]);
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
    expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &pair.args), SY_ERR_STATE);
    pair.args.routing = own;
    pair.args.reuse_routing = true; /* of no dispatch yet */
    expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &pair.args), SY_ERR_STATE);
    test_call_expect_untouched(&calls[0]);
    test_call_expect_untouched(&calls[1]);
    pair.args.reuse_routing = false;
    expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &pair.args), SY_OK);
    pair.args.reuse_routing = true;
    expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &pair.args), SY_OK);
    sy_routing_destroy(own);
    sy_routing_destroy(foreign);
    test_call_free(&calls[0]);
    test_call_free(&calls[1]);
    sy_ctx_destroy(ctx);
}

/* More tokens than max_tokens; copies of the mapping that differ; indices that wrap. */
static void too_many_tokens(struct test_call *c)
{
    static const char *const flat[] = {"input", "expert_indices", "planes[0]"};
    for (size_t i = 0; i < COUNT_OF(flat); i++) {
        struct tensor *x = test_call_tensor(c, flat[i]);
        x->shape[1] = x->shape[3];
        x->shape[0] = 6;
        x->t.ndim = 2;
    }
    static const char *const flat_out[] = {"tokens", "metadata", "plane_tokens[0]"};
    for (size_t i = 0; i < COUNT_OF(flat_out); i++) {
        struct tensor *x = test_call_tensor(c, flat_out[i]);
        x->shape[1] = x->shape[3];
        x->shape[0] = 12;
        x->t.ndim = 2;
    }
}

static void more_tokens_than_allowed(void **state)
{
    (void)state;
    sy_ctx *ctx = test_ctx(1, NULL);
    for (int64_t most = 5; most <= 6; most++) {
        struct pair pair;
        struct test_call calls[2];
        for (int i = 0; i < 2; i++) {
            make(&calls[i]);
            too_many_tokens(&calls[i]);
        }
        pair_up(&pair, &calls[0], &calls[1]);
        pair.args.max_tokens = most;
        expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &pair.args),
                      most == 5 ? SY_ERR_CAPACITY : SY_OK);
        for (int i = 0; i < 2; i++) {
            if (most == 5)
                test_call_expect_untouched(&calls[i]);
            test_call_free(&calls[i]);
        }
    }
    sy_ctx_destroy(ctx);
}

static void copies_of_the_mapping_differ(void **state)
{
    (void)state;
    struct pair pair;
    struct test_call calls[2];
    struct tensor copies;
    sy_ctx *ctx = test_ctx(1, NULL);
    make(&calls[0]);
    make(&calls[1]);
    pair_up(&pair, &calls[0], &calls[1]);
    tensor_make(&copies, SY_U16, 4, (int64_t[]){2, 1, 6, 2}, NULL);
    for (int i = 0; i < 2; i++)
        memcpy(copies.mem + 24 * i, test_call_tensor(&calls[1], "expert_mapping")->mem, 24);
    pair.args.expert_mapping = &copies.t;
    expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &pair.args), SY_OK);
    test_call_reset(&calls[0]);
    test_call_reset(&calls[1]);
    copies.mem[24 + 22] ^= 1;
    expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &pair.args), SY_ERR_MISMATCH);
    test_call_expect_untouched(&calls[0]);
    test_call_expect_untouched(&calls[1]);
    tensor_free(&copies);
    test_call_free(&calls[0]);
    test_call_free(&calls[1]);
    sy_ctx_destroy(ctx);
}

/* Numbers that are experts only in their low bits. */
static void wide_indices_are_not_cut(void **state)
{
    (void)state;
    static const struct {
        int bytes;
        int64_t value;
    } wide[] = {{4, 65535},     {4, 65536}, {4, -2}, {4, INT32_MIN}, {8, INT64_C(1) << 32},
                {8, INT64_MIN}, {8, -65536}};
    sy_ctx *ctx = test_ctx(1, NULL);
    for (size_t i = 0; i < COUNT_OF(wide); i++) {
        struct pair pair;
        struct test_call calls[2];
        struct tensor indices[2], metadata[2];
        const DLDataType type = wide[i].bytes == 4 ? SY_I32 : SY_I64;
        for (int d = 0; d < 2; d++) {
            make(&calls[d]);
            tensor_make(&indices[d], type, 4, (int64_t[]){2, 1, 3, 2}, NULL);
            tensor_make(&metadata[d], type, 4, (int64_t[]){1, 4, 3, 2}, NULL);
            memset(indices[d].mem, 0, indices[d].bytes);
            calls[d].args.a2a_dispatch.expert_indices = &indices[d].t;
            calls[d].args.a2a_dispatch.metadata = &metadata[d].t;
        }
        memset(indices[0].mem, 0xFF, indices[0].bytes); /* no experts at all are fine */
        memcpy(indices[1].mem + 7 * wide[i].bytes, &wide[i].value, (size_t)wide[i].bytes);
        pair_up(&pair, &calls[0], &calls[1]);
        expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &pair.args), SY_ERR_INDEX);
        expect_fault(ctx, SY_FAULT_INDEX_RANGE, 3, 1, wide[i].value, 6);
        for (int d = 0; d < 2; d++) {
            test_call_expect_untouched(&calls[d]);
            tensor_free(&indices[d]);
            tensor_free(&metadata[d]);
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
    test_accepts_pinned(make_expert);
}

static void adjacent_tensors_do_not_overlap(void **state)
{
    (void)state;
    test_accepts_adjacent(make);
    test_accepts_adjacent(make_expert);
}

static void one_array_for_all(struct test_call *c)
{
    test_call_tensor(c, "input")->t.data = test_call_tensor(c, "planes[0]")->mem;
}

static void inputs_may_overlap(void **state)
{
    (void)state;
    test_accepts(make, one_array_for_all);
}

int main(void)
{
    struct test_list list = {0};
    const sy_mesh mesh = {1, 2};
    if (sy_comm_create_local(&comm, mesh, NULL) != SY_OK ||
        sy_comm_create_local(&other_comm, mesh, NULL) != SY_OK)
        return 1;
    test_add_rejections(&list, make, mesh_dispatch_rejections.rows, mesh_dispatch_rejections.n);
    test_add_ladder(&list, make_first, mesh_dispatch_rejections.ladder, mesh_dispatch_rejections.n_ladder);
    test_add(&list, "a_row_format_is_rejected", a_row_format_is_rejected, NULL);
    test_add_rejections(&list, make_expert, mesh_expert_rejections.rows, mesh_expert_rejections.n);
    test_add(&list, "the_lowest_device_is_reported", the_lowest_device_is_reported, NULL);
    test_add(&list, "tensors_of_two_devices_overlap", tensors_of_two_devices_overlap, NULL);
    test_add(&list, "devices_that_differ", devices_that_differ, NULL);
    test_add(&list, "missing_context_comm_or_arguments", missing_context_comm_or_arguments, NULL);
    test_add(&list, "longer_arguments", longer_arguments, NULL);
    test_add(&list, "routings_that_do_not_fit", routings_that_do_not_fit, NULL);
    test_add(&list, "more_tokens_than_allowed", more_tokens_than_allowed, NULL);
    test_add(&list, "copies_of_the_mapping_differ", copies_of_the_mapping_differ, NULL);
    test_add(&list, "wide_indices_are_not_cut", wide_indices_are_not_cut, NULL);
    test_add(&list, "pinned_host_memory_is_host_memory", pinned_host_memory_is_host_memory, NULL);
    test_add(&list, "adjacent_tensors_do_not_overlap", adjacent_tensors_do_not_overlap, NULL);
    test_add(&list, "inputs_may_overlap", inputs_may_overlap, NULL);
    const int failed = test_run(&list, "bad_all_to_all_dispatch");
    sy_comm_destroy(comm);
    sy_comm_destroy(other_comm);
    return failed;
}
