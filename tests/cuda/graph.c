/*
 * Calls captured into CUDA graphs: nothing runs at the capture, every replay reads the contents of its time, and both results
 * and faults are those of the CPU. On the device of SWITCHYARD_TEST_CUDA_LIBRARY, or of the library that is found: a capture
 * itself rejects what allocates or waits, and the emulator counts it in other calls, too.
 */
#include "tensors.h"

#include "cuda/cuda.h"

#include <pthread.h>

static bool is_emulated(void)
{
    return emulated("emulator_slow_calls") != NULL;
}

/* ---- A decode step ---- */

enum {
    T = 8,
    E = 16,
    K = 2,
    H = 40,
    BLOCKS = 12,
    S = 4,
    D = 24,
    COLUMNS = 6,
    B = 2,
    PICKS = 5,
    V = 200,
    N = 7,
    DRAFTS = 6, /* rows of requests with drafts */
    W = 8
};
enum tensor_number {
    LOGITS,
    BIAS,
    TOKENS,
    CACHE,
    ROWS,
    SLOTS,
    TABLE,
    INDICES,
    WORDS,
    TOP_K,
    TOP_P,
    SEED,
    INDPTR,
    OVERRIDDEN,
    OVERRIDE,
    AFTER,
    CU_LENS,
    DRAFT,
    PARENT,
    N_INPUTS,
    IDS = N_INPUTS,
    WEIGHTS,
    MAP,
    PROBS,
    PERMUTED,
    SORTED,
    PERMUTED_PROBS,
    BACK,
    DENSE,
    CHOSEN,
    KEPT,
    LOGPROB,
    VERIFIED,
    PATH,
    COUNT,
    RANK,
    N_TENSORS
};
static const struct described described[N_TENSORS] = {
    [LOGITS] = {SY_TYPE_F32, {T, E}},      [BIAS] = {SY_TYPE_F32, {E}},
    [TOKENS] = {SY_TYPE_BF16, {T, H}},     [CACHE] = {SY_TYPE_F16, {BLOCKS * S, D}},
    [ROWS] = {SY_TYPE_F16, {T, D}},        [SLOTS] = {SY_TYPE_I32, {T}},
    [TABLE] = {SY_TYPE_I32, {B, COLUMNS}}, [INDICES] = {SY_TYPE_I32, {B, PICKS}},
    [WORDS] = {SY_TYPE_F32, {B, V}},       [TOP_K] = {SY_TYPE_I32, {B}},
    [TOP_P] = {SY_TYPE_F32, {B}},          [SEED] = {SY_TYPE_I64, {B}},
    [INDPTR] = {SY_TYPE_I32, {B + 1}},     [OVERRIDDEN] = {SY_TYPE_I32, {N}},
    [OVERRIDE] = {SY_TYPE_F32, {N}},       [IDS] = {SY_TYPE_I32, {T, K}},
    [WEIGHTS] = {SY_TYPE_F32, {T, K}},     [MAP] = {SY_TYPE_BOOL, {T, E}},
    [PROBS] = {SY_TYPE_BF16, {T, E}},      [PERMUTED] = {SY_TYPE_BF16, {T * K, H}},
    [SORTED] = {SY_TYPE_I32, {T * K}},     [PERMUTED_PROBS] = {SY_TYPE_BF16, {T * K}},
    [BACK] = {SY_TYPE_BF16, {T, H}},       [DENSE] = {SY_TYPE_F16, {B, PICKS, D}},
    [CHOSEN] = {SY_TYPE_I64, {B}},         [KEPT] = {SY_TYPE_I32, {B}},
    [LOGPROB] = {SY_TYPE_F32, {B}},        [AFTER] = {SY_TYPE_BF16, {DRAFTS, W}},
    [CU_LENS] = {SY_TYPE_I32, {B + 1}},    [DRAFT] = {SY_TYPE_I32, {DRAFTS}},
    [PARENT] = {SY_TYPE_I32, {DRAFTS}},    [VERIFIED] = {SY_TYPE_I64, {DRAFTS}},
    [PATH] = {SY_TYPE_I32, {DRAFTS}},      [COUNT] = {SY_TYPE_I32, {B}},
    [RANK] = {SY_TYPE_I32, {DRAFTS}},
};

/* Route, permute and back, store rows in a cache, gather from it, sample, verify drafts: until one is rejected. */
static sy_status run(sy_ctx *ctx, struct tensors *s)
{
    const DLTensor *const t = s->tensor;
    sy_status st = sy_moe_route(ctx, &(sy_moe_route_args){.logits = &t[LOGITS],
                                                          .bias = &t[BIAS],
                                                          .k = K,
                                                          .renormalize = true,
                                                          .ids = &t[IDS],
                                                          .weights = &t[WEIGHTS],
                                                          .routing_map = &t[MAP],
                                                          .probs = &t[PROBS]});
    if (st == SY_OK)
        st = sy_moe_permute(ctx, &(sy_moe_permute_args){.tokens = &t[TOKENS],
                                                        .routing_map = &t[MAP],
                                                        .probs = &t[PROBS],
                                                        .num_out_tokens = T * K,
                                                        .permuted_tokens = &t[PERMUTED],
                                                        .sorted_indices = &t[SORTED],
                                                        .permuted_probs = &t[PERMUTED_PROBS]});
    if (st == SY_OK)
        st = sy_moe_unpermute(ctx, &(sy_moe_unpermute_args){.permuted_tokens = &t[PERMUTED],
                                                            .sorted_indices = &t[SORTED],
                                                            .routing_map = &t[MAP],
                                                            .probs = &t[PROBS],
                                                            .tokens = &t[BACK]});
    if (st == SY_OK)
        st = sy_kv_scatter(ctx, &(sy_kv_scatter_args){.cache = &t[CACHE],
                                                      .src = &t[ROWS],
                                                      .slots = &t[SLOTS],
                                                      .pad = SY_PAD_SKIP,
                                                      .check_unique = true});
    if (st == SY_OK)
        st = sy_kv_gather(ctx, &(sy_kv_gather_args){.cache = &t[CACHE],
                                                    .indices = &t[INDICES],
                                                    .block_table = &t[TABLE],
                                                    .block_size = S,
                                                    .pad = SY_PAD_ZERO,
                                                    .out = &t[DENSE]});
    if (st == SY_OK)
        st = sy_sample(ctx, &(sy_sample_args){.logits = &t[WORDS],
                                              .top_k = &t[TOP_K],
                                              .top_p = &t[TOP_P],
                                              .seed = &t[SEED],
                                              .logprob_mode = SY_LOGPROB_FINAL,
                                              .override_indptr = &t[INDPTR],
                                              .override_token = &t[OVERRIDDEN],
                                              .override_logit = &t[OVERRIDE],
                                              .token = &t[CHOSEN],
                                              .kept = &t[KEPT],
                                              .logprob = &t[LOGPROB]});
    if (st == SY_OK)
        st = sy_sample_verify(ctx, &(sy_sample_verify_args){.logits = &t[AFTER],
                                                            .cu_lens = &t[CU_LENS],
                                                            .draft_token = &t[DRAFT],
                                                            .parent = &t[PARENT],
                                                            .seed = &t[SEED],
                                                            .logprob_mode = SY_LOGPROB_RAW,
                                                            .token = &t[VERIFIED],
                                                            .path = &t[PATH],
                                                            .count = &t[COUNT],
                                                            .rank = &t[RANK]});
    return st;
}

static void put_i32(struct tensors *s, int tensor, int64_t i, int64_t value)
{
    memcpy((int32_t *)s->tensor[tensor].data + i, &(int32_t){(int32_t)value}, 4);
}

static void put_f32(struct tensors *s, int tensor, int64_t n, uint64_t *rng, int64_t steps)
{
    const int64_t half = steps / 2;
    for (int64_t i = 0; i < n; i++) /* with ties */
        memcpy((float *)s->tensor[tensor].data + i, &(float){(float)(rng_below(rng, steps) - half) / 8}, 4);
}

/* Rows of no request and the roots of the others keep any numbers; few tokens are likely, so that drafts are accepted. */
static void fill_drafts(struct tensors *s, uint64_t *rng)
{
    const int64_t end = rng_below(rng, DRAFTS + 1), second = rng_below(rng, end + 1);
    put_i32(s, CU_LENS, 0, 0);
    put_i32(s, CU_LENS, 1, second);
    put_i32(s, CU_LENS, 2, end);
    for (int64_t i = 0; i < end; i++) {
        const int64_t row = i < second ? i : i - second;
        if (row > 0) {
            put_i32(s, DRAFT, i, rng_below(rng, W / 4));
            put_i32(s, PARENT, i, rng_below(rng, row));
        }
    }
    for (int64_t i = 0; i < DRAFTS * W; i++)
        memcpy((uint16_t *)s->tensor[AFTER].data + i, &(uint16_t){i % W < W / 4 ? 0x3f80 : 0xc020}, 2);
}

/* New valid contents; outputs are filled with a pattern. */
static void fill(struct tensors *s, uint64_t *rng)
{
    rng_fill(rng, s->memory, s->bytes);
    unsigned char *const outputs = s->tensor[N_INPUTS].data;
    memset(outputs, 0x5a, s->bytes - (size_t)(outputs - s->memory));
    put_f32(s, LOGITS, T * E, rng, 60);
    put_f32(s, BIAS, E, rng, 20);
    put_f32(s, WORDS, B * V, rng, 300);
    put_f32(s, OVERRIDE, N, rng, 100);
    const int64_t first = rng_below(rng, BLOCKS * S);
    for (int64_t i = 0; i < T; i++) /* distinct, or none */
        put_i32(s, SLOTS, i, rng_below(rng, 8) == 0 ? -1 : (first + i * 5) % (BLOCKS * S));
    for (int64_t i = 0; i < B * COLUMNS; i++)
        put_i32(s, TABLE, i, rng_below(rng, BLOCKS));
    for (int64_t i = 0; i < B * PICKS; i++)
        put_i32(s, INDICES, i, rng_below(rng, COLUMNS * S + 1) - 1);
    for (int64_t i = 0; i < B; i++) {
        put_i32(s, TOP_K, i, rng_below(rng, 20));
        memcpy((float *)s->tensor[TOP_P].data + i, &(float){(float)(1 + rng_below(rng, 16)) / 16}, 4);
    }
    const int64_t split = rng_below(rng, N + 1);
    for (int64_t i = 0; i < N; i++) /* ascending in each row */
        put_i32(s, OVERRIDDEN, i, (i < split ? i : i - split) * (V / N) + rng_below(rng, V / N));
    put_i32(s, INDPTR, 0, 0);
    put_i32(s, INDPTR, 1, split);
    put_i32(s, INDPTR, 2, N);
    fill_drafts(s, rng);
}

/* One bad number, for one of the four operators whose contents are not made by the step itself. */
static void corrupt(struct tensors *s, uint64_t *rng)
{
    const int64_t value = rng_below(rng, 2) ? INT32_MAX : -2;
    switch (rng_below(rng, 5)) {
    case 0:
        put_i32(s, SLOTS, rng_below(rng, T), value);
        break;
    case 1:
        put_i32(s, INDICES, rng_below(rng, B * PICKS), value);
        break;
    case 2:
        for (int64_t i = 0; i < B * COLUMNS; i++)
            put_i32(s, TABLE, i, value);
        break;
    case 3:
        put_i32(s, CU_LENS, rng_below(rng, B + 1), value);
        break;
    default:
        put_i32(s, OVERRIDDEN, rng_below(rng, N), value);
    }
}

/* A step on the device that is launched by `launch`, and the same on the CPU: bytes, status and sentence. */
struct mirror {
    sy_ctx *ctx, *cpu;
    struct tensors device, host, back;
    void *graph;
    int accepted;       /* requests with a draft that was */
    char problem[1200]; /* "": none; threads cannot fail a test */
};

static void mirror_open(struct mirror *w)
{
    *w = (struct mirror){.ctx = device_ctx(0), .cpu = test_ctx(1, NULL)};
    tensors_open(&w->device, w->ctx, 0, described, N_TENSORS);
    tensors_open(&w->host, w->cpu, -1, described, N_TENSORS);
    tensors_open(&w->back, w->cpu, -1, described, N_TENSORS);
}

static void mirror_capture(struct mirror *w)
{
    expect_status(w->ctx, syi_capture_begin(w->ctx), SY_OK);
    const sy_status st = run(w->ctx, &w->device);
    char sentence[300];
    snprintf(sentence, sizeof sentence, "%s", sy_ctx_error(w->ctx));
    expect_status(w->ctx, syi_capture_end(w->ctx, &w->graph), SY_OK);
    if (st != SY_OK)
        fail_msg("%s", sentence);
}

static void mirror_close(struct mirror *w)
{
    if (w->graph != NULL)
        syi_graph_free(w->ctx, w->graph);
    tensors_close(&w->device, w->ctx);
    tensors_close(&w->host, w->cpu);
    tensors_close(&w->back, w->cpu);
    sy_ctx_destroy(w->cpu);
    sy_ctx_destroy(w->ctx);
}

/* With new contents; true when the device did what the CPU does. */
static bool agree(struct mirror *w, uint64_t *rng, bool bad)
{
    char sentence[512];
    const uint64_t seed = *rng;
    fill(&w->host, rng);
    if (bad)
        corrupt(&w->host, rng);
    sy_status st = sy_device_copy(w->ctx, w->device.memory, w->host.memory, w->host.bytes);
    if (st == SY_OK)
        st = w->graph != NULL ? syi_replay(w->ctx, w->graph, 1, NULL) : run(w->ctx, &w->device);
    if (st == SY_OK)
        st = sy_ctx_sync(w->ctx);
    snprintf(sentence, sizeof sentence, "%s", sy_ctx_error(w->ctx));
    const sy_status want = run(w->cpu, &w->host),
                    copied = sy_device_copy(w->ctx, w->back.memory, w->device.memory, w->back.bytes);
    for (int64_t b = 0; b < B && want == SY_OK; b++) {
        int32_t count;
        memcpy(&count, (const int32_t *)w->host.tensor[COUNT].data + b, 4);
        w->accepted += count > 1;
    }
    const size_t at = tensors_difference(&w->back, &w->host);
    if (copied == SY_OK && st == want && strcmp(sentence, sy_ctx_error(w->cpu)) == 0 && at == w->back.bytes &&
        (want != SY_OK) == bad)
        return true;
    snprintf(w->problem, sizeof w->problem,
             "seed %llu: device %s '%s', CPU %s '%s', first different byte %zu of %zu",
             (unsigned long long)seed, sy_status_name(st), sentence, sy_status_name(want),
             sy_ctx_error(w->cpu), at, w->back.bytes);
    return false;
}

/* A fifth of them with bad contents, so that most faults are between good replays. */
static void many(struct mirror *w, uint64_t seed, int n)
{
    uint64_t rng = seed;
    for (int i = 0; i < n && w->problem[0] == '\0'; i++)
        agree(w, &rng, i % 5 == 3);
}

static int replays(void)
{
    return is_emulated() ? 40 : 1000;
}

TEST(replays_have_the_results_of_the_cpu)
{
    struct mirror w;
    uint64_t rng = 1;
    float milliseconds = -1;
    mirror_open(&w);
    for (int i = 0; i < 3; i++) /* not captured; scratch memory grows here */
        if (!agree(&w, &rng, i == 1))
            fail_msg("%s", w.problem);
    mirror_capture(&w);
    many(&w, 2, replays());
    if (w.problem[0] != '\0')
        fail_msg("%s", w.problem);
    assert_true(w.accepted > replays() / 8);
    expect_status(w.ctx, syi_replay(w.ctx, w.graph, 3, &milliseconds), SY_OK);
    assert_true(milliseconds > 0);
    expect_status(w.ctx, sy_ctx_sync(w.ctx), SY_OK);
    mirror_close(&w);
}

static void *work(void *data)
{
    struct mirror *const w = data;
    many(w, (uint64_t)(uintptr_t)w->graph, replays() / 2);
    return NULL;
}

/* Every thread has a context, a stream and a graph, and contents of its own. */
TEST(contexts_work_at_the_same_time)
{
    struct mirror w[2];
    pthread_t thread[2];
    uint64_t rng = 3;
    for (int i = 0; i < 2; i++) {
        mirror_open(&w[i]);
        expect_status(w[i].ctx, syi_own_stream(w[i].ctx), SY_OK);
        if (!agree(&w[i], &rng, false))
            fail_msg("%s", w[i].problem);
        mirror_capture(&w[i]);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, work, &w[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_join(thread[i], NULL), 0);
    for (int i = 0; i < 2; i++) {
        if (w[i].problem[0] != '\0')
            fail_msg("context %d: %s", i, w[i].problem);
        mirror_close(&w[i]);
    }
}

/* ---- Every operator ---- */

static void move(sy_ctx *ctx, struct test_call *c, void *there[TEST_CALL_TENSORS])
{
    for (int i = 0; i < c->count; i++) {
        struct tensor *const x = &c->tensors[i];
        expect_status(ctx, sy_device_alloc(ctx, x->bytes, &there[i]), SY_OK);
        x->t.data = there[i];
        x->t.device = (DLDevice){kDLCUDA, 0};
    }
}

static void give_back(sy_ctx *ctx, struct test_call *c, void *there[TEST_CALL_TENSORS])
{
    for (int i = 0; i < c->count; i++)
        sy_device_free(ctx, there[i]);
    test_call_free(c);
}

static void copy(sy_ctx *ctx, struct test_call *c, void *there[TEST_CALL_TENSORS], bool back)
{
    for (int i = 0; i < c->count; i++) {
        void *const here = c->tensors[i].mem;
        expect_status(
            ctx, sy_device_copy(ctx, back ? here : there[i], back ? there[i] : here, c->tensors[i].bytes),
            SY_OK);
    }
}

/* state: the index of a call. It runs once; later ones take no memory and wait for nothing, so they can be captured. */
static void an_operator_can_be_captured(void **state)
{
    sy_ctx *ctx = device_ctx(0), *cpu = test_ctx(1, NULL);
    struct test_call call, want;
    void *there[TEST_CALL_TENSORS], *graph = NULL;
    test_call_make(&call, (int)(uintptr_t)*state, false);
    test_call_make(&want, (int)(uintptr_t)*state, false);
    expect_status(cpu, test_call_run(cpu, &want), SY_OK);
    move(ctx, &call, there);
    copy(ctx, &call, there, false);
    expect_status(ctx, test_call_run(ctx, &call), SY_OK);
    copy(ctx, &call, there, false);
    const unsigned long before = slow_calls();
    assert_true(before > 0 || !is_emulated());
    expect_status(ctx, test_call_run(ctx, &call), SY_OK);
    assert_int_equal(slow_calls(), before);
    expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
    copy(ctx, &call, there, false);
    expect_status(ctx, syi_capture_begin(ctx), SY_OK);
    const sy_status st = test_call_run(ctx, &call);
    expect_status(ctx, syi_capture_end(ctx, &graph), SY_OK);
    assert_int_equal(st, SY_OK);
    expect_status(ctx, syi_replay(ctx, graph, 1, NULL), SY_OK);
    expect_status(ctx, sy_ctx_sync(ctx), SY_OK);
    copy(ctx, &call, there, true);
    test_call_expect_equal(&call, &want);
    syi_graph_free(ctx, graph);
    give_back(ctx, &call, there);
    test_call_free(&want);
    sy_ctx_destroy(cpu);
    sy_ctx_destroy(ctx);
}

/* kv_scatter of n rows of one byte; in the memory behind them, and so in slots, all bits are set. */
static sy_status scatter_many(sy_ctx *ctx, void *memory, int64_t n, sy_kv_pad pad)
{
    const int64_t rows[] = {n, 1};
    DLTensor cache = sy_tensor(memory, SY_U8, 2, rows), src = sy_tensor((char *)memory + n, SY_U8, 2, rows);
    DLTensor slots = sy_tensor((char *)memory + 2 * n, SY_I32, 1, rows);
    cache.device = src.device = slots.device = (DLDevice){kDLCUDA, 0};
    return sy_kv_scatter(
        ctx, &(sy_kv_scatter_args){
                 .cache = &cache, .src = &src, .slots = &slots, .pad = pad, .check_unique = true});
}

/* After a fault in the same graph an operator writes nothing, whatever its scratch memory holds: its first kernels may have
   left it as it was. */
static void an_operator_is_skipped_after_a_fault(void **state)
{
    sy_ctx *ctx = device_ctx(0);
    struct test_call call;
    sy_query query;
    void *there[TEST_CALL_TENSORS], *graph = NULL, *slots, *scratch;
    unsigned char ones[24];
    test_call_make(&call, (int)(uintptr_t)*state, false);
    test_call_reset(&call);
    move(ctx, &call, there);
    copy(ctx, &call, there, false);
    expect_status(ctx, test_call_query(ctx, &call, &query), SY_OK);
    const size_t bytes = query.workspace_bytes > 4096 ? query.workspace_bytes : 4096;
    unsigned char *const garbage = malloc(bytes);
    uint64_t rng = (uint64_t)(uintptr_t)*state;
    rng_fill(&rng, garbage, bytes);
    memset(ones, 0xff, sizeof ones);
    expect_status(ctx, sy_device_alloc(ctx, sizeof ones, &slots), SY_OK);
    expect_status(ctx, sy_device_copy(ctx, slots, ones, sizeof ones), SY_OK);
    expect_status(ctx, sy_device_alloc(ctx, bytes, &scratch), SY_OK);
    expect_status(ctx, sy_device_copy(ctx, scratch, garbage, bytes), SY_OK);
    expect_status(ctx, sy_ctx_set_workspace(ctx, scratch, bytes), SY_OK);
    expect_status(ctx, syi_capture_begin(ctx), SY_OK);
    const sy_status bad = scatter_many(ctx, slots, 4, SY_PAD_ERROR), st = test_call_run(ctx, &call);
    expect_status(ctx, syi_capture_end(ctx, &graph), SY_OK);
    assert_true(bad == SY_OK && st == SY_OK);
    for (int i = 0; i < 2; i++) {
        expect_status(ctx, syi_replay(ctx, graph, 1, NULL), SY_OK);
        expect_status(ctx, sy_ctx_sync(ctx), SY_ERR_INDEX);
        assert_int_equal(strncmp(sy_ctx_error(ctx), "kv_scatter: slots at position 0 is -1", 37), 0);
    }
    copy(ctx, &call, there, true);
    test_call_expect_untouched(&call);
    syi_graph_free(ctx, graph);
    give_back(ctx, &call, there);
    sy_device_free(ctx, slots);
    sy_device_free(ctx, scratch);
    free(garbage);
    sy_ctx_destroy(ctx);
}

/* A call that needs more scratch memory than a decode step. */
static void make_large(sy_ctx *ctx, struct test_call *large, void *there[TEST_CALL_TENSORS])
{
    int index = 0;
    while (strcmp(test_call_name(index), "kv_scatter") != 0)
        index++;
    test_call_make(large, index, true);
    move(ctx, large, there);
    copy(ctx, large, there, false);
}

/* A larger call after a capture takes other memory than the graph uses, which stays. */
TEST(a_graph_keeps_its_scratch_memory)
{
    struct mirror w;
    uint64_t rng = 6;
    struct test_call large;
    void *there[TEST_CALL_TENSORS];
    mirror_open(&w);
    if (!agree(&w, &rng, false))
        fail_msg("%s", w.problem);
    mirror_capture(&w);
    make_large(w.ctx, &large, there);
    const unsigned long before = slow_calls();
    expect_status(w.ctx, test_call_run(w.ctx, &large), SY_OK);
    assert_int_equal(
        slow_calls(),
        before + (is_emulated() ? 2 : 0)); /* memory is taken, with a note of the old, and none given back */
    many(&w, 7, 3);
    assert_string_equal(w.problem, "");
    give_back(w.ctx, &large, there);
    mirror_close(&w);
}

/* The first call of a shape may be captured, and a context may be made during a capture. */
TEST(a_capture_may_take_memory)
{
    struct mirror w;
    uint64_t rng = 8;
    struct test_call large;
    void *there[TEST_CALL_TENSORS];
    mirror_open(&w);
    if (!agree(&w, &rng, false))
        fail_msg("%s", w.problem);
    make_large(w.ctx, &large, there);
    expect_status(w.ctx, syi_capture_begin(w.ctx), SY_OK);
    const sy_status first = test_call_run(w.ctx, &large), st = run(w.ctx, &w.device);
    sy_ctx *const made = device_ctx(0);
    expect_status(w.ctx, syi_capture_end(w.ctx, &w.graph), SY_OK);
    assert_int_equal(first, SY_OK);
    assert_int_equal(st, SY_OK);
    sy_ctx_destroy(made);
    many(&w, 9, 3);
    assert_string_equal(w.problem, "");
    expect_status(w.ctx, sy_ctx_sync(w.ctx), SY_OK);
    give_back(w.ctx, &large, there);
    mirror_close(&w);
}

/* Waiting or allocating fails, and the context works afterwards. */
TEST(a_capture_does_not_wait)
{
    struct mirror w;
    uint64_t rng = 4;
    void *memory = &w;
    mirror_open(&w);
    if (!agree(&w, &rng, false))
        fail_msg("%s", w.problem);
    for (int i = 0; i < 2; i++) {
        expect_status(w.ctx, syi_capture_begin(w.ctx), SY_OK);
        expect_status(w.ctx, run(w.ctx, &w.device), SY_OK);
        assert_int_equal(i == 0 ? sy_ctx_sync(w.ctx) : sy_device_alloc(w.ctx, 64, &memory),
                         i == 0 ? SY_ERR_DEVICE : SY_ERR_NOMEM);
        assert_int_equal(syi_capture_end(w.ctx, &w.graph), SY_ERR_DEVICE);
        assert_null(w.graph);
        assert_int_equal(strncmp(sy_ctx_error(w.ctx), "capture: stream was not captured: ", 34), 0);
        if (!agree(&w, &rng, i == 0))
            fail_msg("%s", w.problem);
    }
    mirror_capture(&w);
    many(&w, 5, 3);
    assert_string_equal(w.problem, "");
    mirror_close(&w);
}

TEST_GROUP(graph)
{
    struct test_list list = {0};
    unsetenv("SWITCHYARD_TEST_DEVICE"); /* contexts and tensors are made for the device here */
    test_add(&list, "replays_have_the_results_of_the_cpu", replays_have_the_results_of_the_cpu, NULL);
    test_add(&list, "contexts_work_at_the_same_time", contexts_work_at_the_same_time, NULL);
    test_add(&list, "a_capture_does_not_wait", a_capture_does_not_wait, NULL);
    test_add(&list, "a_graph_keeps_its_scratch_memory", a_graph_keeps_its_scratch_memory, NULL);
    test_add(&list, "a_capture_may_take_memory", a_capture_may_take_memory, NULL);
    for (uintptr_t i = 0; i < TEST_CALLS; i++) {
        if (!test_call_on_devices((int)i))
            continue;
        test_add(&list, test_name("%s can be captured", test_call_name((int)i)), an_operator_can_be_captured,
                 (void *)i);
        test_add(&list, test_name("%s is skipped after a fault", test_call_name((int)i)),
                 an_operator_is_skipped_after_a_fault, (void *)i);
    }
    return test_run(&list, "cuda_graph");
}
