/*
 * A context with a device, on the emulated one: faults are kept until they are read, in order, and lent memory is used.
 */
#include "cuda/cuda.h"
#include "support.h"

static sy_ctx *make(bool synchronous)
{
    sy_ctx *ctx = NULL;
    const sy_ctx_options options = {
        .device = {kDLCUDA, 0}, .synchronous = synchronous, .device_library = SWITCHYARD_EMULATED_CUDA};
    assert_int_equal(sy_ctx_create(&ctx, &options), SY_OK);
    return ctx;
}

/* kv_slots of two tokens: the slots of positions 1 and `position` of a sequence of two blocks of two. */
struct call {
    int32_t position[2], table[2], slots[2];
    int64_t two[1], row[2];
    DLTensor positions, tables, out;
    sy_kv_slots_args args;
};

static void prepare(struct call *c, int32_t position)
{
    memcpy(c->position, (int32_t[]){1, position}, sizeof c->position);
    memcpy(c->table, (int32_t[]){1, 0}, sizeof c->table);
    memset(c->slots, 0x5a, sizeof c->slots);
    c->two[0] = 2;
    memcpy(c->row, (int64_t[]){1, 2}, sizeof c->row);
    c->positions = sy_tensor(c->position, SY_I32, 1, c->two);
    c->tables = sy_tensor(c->table, SY_I32, 2, c->row);
    c->out = sy_tensor(c->slots, SY_I32, 1, c->two);
    c->positions.device = c->tables.device = c->out.device = (DLDevice){kDLCUDA, 0};
    c->args = (sy_kv_slots_args){.position = &c->positions,
                                 .block_table = &c->tables,
                                 .block_size = 2,
                                 .slots = &c->out,
                                 .num_rows = 4};
}

static const char sentence[] = "kv_slots: position of token 1 is 9, want 0 or more and below 4 (INDEX_RANGE)";

TEST(a_fault_is_kept_until_it_is_read)
{
    sy_ctx *ctx = make(false);
    struct call good, bad;
    prepare(&good, 2);
    prepare(&bad, 9);
    assert_int_equal(sy_kv_slots(ctx, &bad.args), SY_OK); /* queued */
    assert_int_equal(bad.slots[0], 0x5a5a5a5a);
    assert_int_equal(sy_kv_slots(ctx, &good.args),
                     SY_ERR_INDEX); /* the call before, found now: this one is not made */
    assert_string_equal(sy_ctx_error(ctx), sentence);
    expect_fault(ctx, SY_FAULT_INDEX_RANGE, -1, 1, 9, 4);
    assert_int_equal(good.slots[0], 0x5a5a5a5a);
    assert_int_equal(sy_kv_slots(ctx, &good.args), SY_OK);
    assert_int_equal(sy_ctx_sync(ctx), SY_OK);
    assert_true(good.slots[0] == 3 && good.slots[1] == 0);
    assert_int_equal(sy_kv_slots(ctx, &bad.args), SY_OK);
    assert_int_equal(sy_ctx_sync(ctx), SY_ERR_INDEX);
    assert_string_equal(sy_ctx_error(ctx), sentence);
    assert_int_equal(sy_ctx_sync(ctx), SY_OK);
    sy_ctx_destroy(ctx);
}

TEST(devices)
{
    sy_ctx *ctx = make(true);
    struct call c;
    sy_device_info info;
    prepare(&c, 2);
    c.tables.device = (DLDevice){kDLCPU, 0};
    assert_int_equal(sy_kv_slots(ctx, &c.args), SY_ERR_DEVICE);
    prepare(&c, 2);
    c.positions.device = c.tables.device = c.out.device = (DLDevice){kDLCUDA, 1};
    assert_int_equal(sy_kv_slots(ctx, &c.args), SY_ERR_DEVICE);
    prepare(&c, 2);
    c.positions.device = c.tables.device = c.out.device = (DLDevice){kDLCPU, 0};
    assert_int_equal(sy_kv_slots(ctx, &c.args), SY_OK); /* on the CPU */
    assert_true(c.slots[0] == 3 && c.slots[1] == 0);
    assert_int_equal(sy_ctx_device_info(ctx, &info), SY_OK);
    assert_int_equal(info.count, 1);
    assert_string_equal(info.name, "emulated GPU");
    sy_ctx_destroy(ctx);
}

TEST(lent_memory_is_that_of_the_device)
{
    sy_ctx *ctx = make(true);
    static _Alignas(64) char host[64];
    void *lent = NULL;
    assert_int_equal(sy_ctx_set_workspace(ctx, host, sizeof host), SY_ERR_DEVICE);
    assert_int_equal(sy_device_alloc(ctx, 4096, &lent), SY_OK);
    assert_int_equal(sy_ctx_set_workspace(ctx, lent, 4096), SY_OK);
    struct call c;
    prepare(&c, 2);
    assert_int_equal(sy_kv_slots(ctx, &c.args), SY_OK);
    c.positions.device = c.tables.device = c.out.device = (DLDevice){kDLCPU, 0};
    assert_int_equal(sy_kv_slots(ctx, &c.args), SY_OK); /* with scratch memory of its own */
    assert_int_equal(sy_ctx_set_workspace(ctx, NULL, 0), SY_OK);
    sy_device_free(ctx, lent);
    sy_ctx_destroy(ctx);
}

/* Keys of this backend have 31 bits: the most experts are one too many, whatever memory there is. */
TEST(the_most_experts_are_too_many)
{
    sy_ctx *ctx = make(true);
    static char memory[1];
    const int64_t one[] = {1, 1}, all[] = {INT32_MAX, 1};
    DLTensor rows = sy_tensor(memory, SY_F16, 2, one), out = rows, ids = sy_tensor(memory, SY_I32, 2, one);
    DLTensor mapping = sy_tensor(memory, SY_U16, 2, all), table = sy_tensor(memory, SY_I32, 2, all);
    rows.device = out.device = ids.device = mapping.device = table.device = (DLDevice){kDLCUDA, 0};
    const sy_local_reduce_args reduce = {.input = &rows,
                                         .expert_metadata = &ids,
                                         .expert_mapping = &mapping,
                                         .layout = SY_LAYOUT_EXPERT,
                                         .output = &out};
    const sy_moe_map_physical_args map = {
        .ids = &ids, .logical_to_physical = &table, .num_physical = 1, .physical_ids = &out};
    sy_query query;
    assert_int_equal(sy_local_reduce_query(ctx, &reduce, &query), SY_OK);
    assert_true(query.workspace_bytes == SIZE_MAX);
    out = ids;
    assert_int_equal(sy_moe_map_physical_query(ctx, &map, &query), SY_OK);
    assert_true(query.workspace_bytes == SIZE_MAX);
    sy_ctx_destroy(ctx);
}

static void keep(void *user, const sy_trace *trace)
{
    *(sy_trace *)user = *trace;
}

/* The emulated clock counts launches: kv_slots has two. */
TEST(a_trace_has_the_time_of_the_device)
{
    sy_ctx *ctx = NULL;
    sy_trace heard = {0};
    struct call c;
    void *graph = NULL;
    const sy_ctx_options options = {.device = {kDLCUDA, 0},
                                    .threads = 3,
                                    .trace = keep,
                                    .trace_user = &heard,
                                    .device_library = SWITCHYARD_EMULATED_CUDA};
    assert_int_equal(sy_ctx_create(&ctx, &options), SY_OK);
    prepare(&c, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sy_kv_slots(ctx, &c.args), SY_OK);
        assert_int_equal(heard.device_nanoseconds, 2000);
        assert_int_equal(heard.threads, 3);
    }
    assert_int_equal(syi_capture_begin(ctx), SY_OK); /* nothing runs, so there is no time, and no wait */
    assert_int_equal(sy_kv_slots(ctx, &c.args), SY_OK);
    assert_int_equal(heard.device_nanoseconds, 0);
    assert_int_equal(syi_capture_end(ctx, &graph), SY_OK);
    syi_graph_free(ctx, graph);
    assert_int_equal(sy_ctx_set_threads(ctx, 0), SY_OK);
    prepare(&c, 9);
    assert_int_equal(sy_kv_slots(ctx, &c.args),
                     SY_OK); /* waited for, but its fault is still to be asked for */
    assert_true(heard.device_nanoseconds == 2000 && heard.threads == 4);
    assert_int_equal(sy_ctx_sync(ctx), SY_ERR_INDEX);
    prepare(&c, 2);
    c.positions.device = c.tables.device = c.out.device = (DLDevice){kDLCPU, 0};
    assert_int_equal(sy_kv_slots(ctx, &c.args), SY_OK);
    assert_int_equal(heard.device_nanoseconds, 0);
    sy_ctx_destroy(ctx);
}

/* The call reads single numbers of the host: what they are when its kernels run does not matter. */
TEST(numbers_of_the_host)
{
    sy_ctx *ctx = make(false);
    float logits[2][4] = {{0, 3, 2, 1}, {4, 0, 1, 2}};
    int64_t token[2] = {-7, -7}, cpu[2] = {0}, shape[2] = {2, 4};
    int32_t kept[2] = {0}, on_cpu[2] = {0};
    DLTensor x = sy_tensor(logits, SY_F32, 2, shape), t = sy_tensor(token, SY_I64, 1, shape);
    DLTensor k = sy_tensor(kept, SY_I32, 1, shape);
    sy_view top_k, heat, seed;
    void *graph = NULL;
    sy_sample_args args = {.logits = &x,
                           .top_k = sy_number_i64(&top_k, 2),
                           .temperature = sy_number_f32(&heat, 0.75f),
                           .seed = sy_number_i64(&seed, 1000003),
                           .token = &t,
                           .kept = &k};
    assert_int_equal(sy_sample(ctx, &args), SY_OK);
    memcpy(cpu, token, sizeof cpu);
    memcpy(on_cpu, kept, sizeof on_cpu);
    memset(token, 0, sizeof token);
    x.device = t.device = k.device = (DLDevice){kDLCUDA, 0};
    assert_int_equal(syi_capture_begin(ctx), SY_OK);
    assert_int_equal(sy_sample(ctx, &args), SY_OK);
    assert_int_equal(syi_capture_end(ctx, &graph), SY_OK);
    sy_number_i64(&top_k, 1);
    sy_number_f32(&heat, 100.0f);
    sy_number_i64(&seed, 5);
    assert_int_equal(syi_replay(ctx, graph, 1, NULL), SY_OK);
    assert_int_equal(sy_ctx_sync(ctx), SY_OK);
    assert_memory_equal(token, cpu, sizeof cpu);
    assert_memory_equal(kept, on_cpu, sizeof on_cpu);
    syi_graph_free(ctx, graph);
    int64_t two[2] = {2, 2}, n = 2; /* more than one number is a tensor like the others */
    const DLTensor both = sy_tensor(two, SY_I64, 1, &n);
    args.top_k = &both;
    assert_int_equal(sy_sample(ctx, &args), SY_ERR_DEVICE);
    assert_string_equal(sy_ctx_error(ctx),
                        "sample: top_k is on device 0 of type 1, want device 0 of type 2 like logits");
    sy_ctx_destroy(ctx);
}

TESTS(context, "cuda_context")
