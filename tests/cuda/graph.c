/*
 * Calls captured into a CUDA graph: nothing runs at the capture, every replay reads the contents of its time. On the
 * emulated device, or with SWITCHYARD_TEST_CUDA_LIBRARY unset on that of this machine.
 */
#include "cuda/cuda.h"
#include "support.h"

static sy_ctx *make(void)
{
    sy_ctx *ctx = NULL;
    const sy_ctx_options options = {.device = {kDLCUDA, 0},
                                    .device_library = getenv("SWITCHYARD_TEST_CUDA_LIBRARY")};
    if (sy_ctx_create(&ctx, &options) != SY_OK)
        skip();
    return ctx;
}

/* kv_slots of two tokens of a sequence of two blocks of two. */
struct memory {
    int32_t position[2], table[2], slots[2];
};
struct call {
    struct memory *device;
    DLTensor positions, tables, out;
    sy_kv_slots_args args;
};

static void prepare(sy_ctx *ctx, struct call *c)
{
    static int64_t two[] = {2}, row[] = {1, 2};
    void *memory;
    expect_status(ctx, sy_device_alloc(ctx, sizeof *c->device, &memory), SY_OK);
    c->device = memory;
    c->positions = sy_tensor(c->device->position, SY_I32, 1, two);
    c->tables = sy_tensor(c->device->table, SY_I32, 2, row);
    c->out = sy_tensor(c->device->slots, SY_I32, 1, two);
    c->positions.device = c->tables.device = c->out.device = (DLDevice){kDLCUDA, 0};
    c->args = (sy_kv_slots_args){.position = &c->positions,
                                 .block_table = &c->tables,
                                 .block_size = 2,
                                 .slots = &c->out,
                                 .num_rows = 4};
}

/* The slots after a replay with these positions; 0x5a5a5a5a: not written. */
static sy_status replay(sy_ctx *ctx, struct call *c, void *graph, int32_t first, int32_t second,
                        int32_t slots[2])
{
    struct memory host = {{first, second}, {1, 0}, {0x5a5a5a5a, 0x5a5a5a5a}};
    expect_status(ctx, sy_device_copy(ctx, c->device, &host, sizeof host), SY_OK);
    expect_status(ctx, syi_replay(ctx, graph, 1, NULL), SY_OK);
    const sy_status st = sy_ctx_sync(ctx);
    char sentence[256];
    snprintf(sentence, sizeof sentence, "%s", sy_ctx_error(ctx));
    expect_status(ctx, sy_device_copy(ctx, &host, c->device, sizeof host), SY_OK);
    memcpy(slots, host.slots, sizeof host.slots);
    if (st != SY_OK)
        assert_string_equal(sentence,
                            "kv_slots: position of token 1 is 9, want 0 or more and below 4 (INDEX_RANGE)");
    return st;
}

static void replays_read_new_contents(void **state)
{
    (void)state;
    sy_ctx *ctx = make();
    struct call c;
    void *graph = NULL;
    int32_t slots[2];
    float milliseconds = -1;
    prepare(ctx, &c);
    expect_status(ctx, syi_capture_begin(ctx), SY_OK);
    expect_status(ctx, sy_kv_slots(ctx, &c.args), SY_OK);
    expect_status(ctx, syi_capture_end(ctx, &graph), SY_OK);
    assert_int_equal(replay(ctx, &c, graph, 1, 2, slots), SY_OK);
    assert_true(slots[0] == 3 && slots[1] == 0);
    assert_int_equal(replay(ctx, &c, graph, 1, 9, slots), SY_ERR_INDEX);
    assert_true(slots[0] == 0x5a5a5a5a && slots[1] == 0x5a5a5a5a);
    assert_int_equal(replay(ctx, &c, graph, 3, 0, slots), SY_OK);
    assert_true(slots[0] == 1 && slots[1] == 2);
    expect_status(ctx, syi_replay(ctx, graph, 3, &milliseconds), SY_OK);
    assert_true(milliseconds > 0);
    syi_graph_free(ctx, graph);
    sy_device_free(ctx, c.device);
    sy_ctx_destroy(ctx);
}

/* Waiting or allocating fails, and the context works afterwards. */
static void a_capture_does_not_wait(void **state)
{
    (void)state;
    sy_ctx *ctx = make();
    struct call c;
    void *graph = &c;
    prepare(ctx, &c);
    expect_status(ctx, syi_capture_begin(ctx), SY_OK);
    expect_status(ctx, sy_kv_slots(ctx, &c.args), SY_OK);
    assert_int_equal(sy_ctx_sync(ctx), SY_ERR_DEVICE);
    assert_int_equal(syi_capture_end(ctx, &graph), SY_ERR_DEVICE);
    assert_null(graph);
    assert_int_equal(strncmp(sy_ctx_error(ctx), "capture: stream was not captured: ", 34), 0);
    expect_status(ctx, syi_capture_begin(ctx), SY_OK);
    expect_status(ctx, sy_kv_slots(ctx, &c.args), SY_OK);
    expect_status(ctx, syi_capture_end(ctx, &graph), SY_OK);
    syi_graph_free(ctx, graph);
    sy_device_free(ctx, c.device);
    sy_ctx_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replays_read_new_contents),
        cmocka_unit_test(a_capture_does_not_wait),
    };
    return cmocka_run_group_tests_name("cuda_graph", tests, NULL, NULL);
}
