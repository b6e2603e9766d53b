/*
 * Every operator on a small stack, as a program with fibers or many threads calls it. Calls run on a stack of 32 KB with
 * a page below it that cannot be touched, on a context of one thread, with every kernel table. The stack is painted, so
 * that the deepest byte is known afterwards: at most 16 KB, counted from the first frame of the fiber, so what the C
 * library needs for a sentence is part of it. Sanitizers make frames larger; there the test is skipped.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS; NOLINT(bugprone-reserved-identifier) */
#include "support.h"
#include "oracle/sample_case.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif
#else
enum { SANITIZED = 0 };
#endif

enum { STACK_BYTES = 32 * 1024, MOST_BYTES = 16 * 1024, PAINT = 0xC3 };

/* ---- The small stack --------------------------------------------------------------------------------- */

static struct {
    unsigned char *stack;
    ucontext_t caller, fiber;
    void (*run)(void *data);
    void *data;
} small;

static void enter(void)
{
    small.run(small.data);
}

/* Bytes of stack that `run` needed. */
static size_t depth_of(void (*run)(void *data), void *data)
{
    memset(small.stack, PAINT, STACK_BYTES);
    small.run = run;
    small.data = data;
    assert_int_equal(getcontext(&small.fiber), 0);
    small.fiber.uc_stack.ss_sp = small.stack;
    small.fiber.uc_stack.ss_size = STACK_BYTES;
    small.fiber.uc_link = &small.caller;
    makecontext(&small.fiber, enter, 0);
    assert_int_equal(swapcontext(&small.caller, &small.fiber), 0);
    size_t untouched = 0;
    while (untouched < STACK_BYTES && small.stack[untouched] == PAINT)
        untouched++;
    return STACK_BYTES - untouched;
}

static int open_stack(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char *memory =
        mmap(NULL, page + STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, page, PROT_NONE) != 0)
        return -1;
    small.stack = memory + page;
    return 0;
}

static int close_stack(void)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return munmap(small.stack - page, page + STACK_BYTES);
}

/* One context of one thread after another, with every kernel table; NULL past the last. */
static sy_ctx *next_ctx(int *number)
{
    const char *isa = sy_isa_name((*number)++);
    return isa != NULL ? test_ctx(1, isa) : NULL;
}

/* The deepest of several calls, and what they were. */
struct deepest {
    size_t bytes;
    char what[96];
};

static void note(struct deepest *most, size_t bytes, const char *op, const char *what)
{
    if (bytes <= most->bytes)
        return;
    most->bytes = bytes;
    snprintf(most->what, sizeof most->what, "%s, %s", op, what);
}

static void expect_shallow(const struct deepest *most)
{
    print_message("%zu bytes of stack: %s\n", most->bytes, most->what);
    if (most->bytes > MOST_BYTES)
        fail_msg("%s needs %zu bytes of stack, want at most %d", most->what, most->bytes, MOST_BYTES);
}

/* ---- Operators on one device ------------------------------------------------------------------------- */

struct step {
    sy_ctx *ctx;
    struct test_call *call;
    sy_status status, asked;
    sy_query query;
};

static void run_call(void *data)
{
    struct step *step = data;
    step->status = test_call_run(step->ctx, step->call);
}

static void run_query(void *data)
{
    struct step *step = data;
    step->asked = test_call_query(step->ctx, step->call, &step->query);
}

static void measure(struct step *step, const char *what, struct deepest *most)
{
    note(most, depth_of(run_query, step), step->call->op, "query");
    note(most, depth_of(run_call, step), step->call->op, what);
}

/* Rejected for every reason there is: one tensor at a time, then numbers that point nowhere. */
static void measure_rejections(sy_ctx *ctx, int index, struct deepest *most)
{
    static const struct spoil spoils[] = {
        {.kind = SPOIL_TENSOR},
        {.kind = SPOIL_DATA},
        {.kind = SPOIL_SHAPE},
        {.kind = SPOIL_TYPE, .type = {255, 255, 65535}},
        {.kind = SPOIL_RANK, .value = 6},
        {.kind = SPOIL_EXTENT, .value = -1},
        {.kind = SPOIL_DEVICE, .value = kDLCUDA},
    };
    int rejected = 0;
    struct test_call call;
    struct step step = {.ctx = ctx, .call = &call};
    test_call_make(&call, index, false);
    const int count = call.count;
    test_call_free(&call);
    for (int i = 0; i < count; i++)
        for (size_t s = 0; s < COUNT_OF(spoils); s++) {
            test_call_make(&call, index, false);
            struct spoil spoil = spoils[s];
            spoil.argument = call.names[i];
            test_call_spoil(&call, &spoil);
            measure(&step, call.names[i], most);
            rejected += step.status != SY_OK;
            test_call_free(&call);
        }
    assert_true(rejected >= 4 * count);
    test_call_make(&call, index, false);
    for (int i = 0; i < call.first_output; i++)
        memset(call.tensors[i].mem, 0x7f, call.tensors[i].bytes);
    measure(&step, "contents", most);
    test_call_free(&call);
}

static void operator_call(void **state)
{
    const int index = (int)(uintptr_t)*state;
    struct deepest most = {0};
    int number = 0;
    for (sy_ctx *ctx; (ctx = next_ctx(&number)) != NULL; sy_ctx_destroy(ctx)) {
        for (int large = 0; large < 2; large++) {
            struct test_call call;
            struct step step = {.ctx = ctx, .call = &call};
            test_call_make(&call, index, large);
            measure(&step, large ? "large" : "small", &most);
            expect_status(ctx, step.asked, SY_OK);
            expect_status(ctx, step.status, SY_OK);
            test_call_free(&call);
        }
        measure_rejections(ctx, index, &most);
    }
    expect_shallow(&most);
}

/* ---- Caches of many planes --------------------------------------------------------------------------- */

enum { BLOCKS = 60, BLOCK_SIZE = 5, ROWS = BLOCKS * BLOCK_SIZE, WIDTH = 8, PLANES = SY_KV_MAX_PLANES + 1 };

enum rows_kind { PLAIN, HEADS, PACKED, ROWS_KINDS_OF_CACHE };

struct planes {
    DLTensor cache[PLANES], rows[PLANES], scale[PLANES], indices, table, pairs, cu_lens;
    sy_kv_plane more[PLANES - 1], caches[PLANES - 1]; /* rows too; for kv_blocks */
    sy_kv_format format;
    sy_kv_layout layout;
    bool packed;
    unsigned char *memory;
    int32_t index[ROWS], page[BLOCKS], pair[2 * BLOCKS], ends[2];
    sy_ctx *ctx;
    sy_status status;
    sy_query query;
};

/* Every row of every cache; as many dense rows; in HND heads lie apart. */
static void planes_make(struct planes *p, enum rows_kind kind)
{
    static int64_t flat[] = {ROWS, WIDTH}, heads[] = {BLOCKS, 2, BLOCK_SIZE, WIDTH / 2};
    static int64_t by_head[] = {ROWS, 2, WIDTH / 2}, parts[] = {ROWS, 2};
    static int64_t many[] = {ROWS}, one_table[] = {1, BLOCKS}, two[] = {BLOCKS / 2, 2}, ends[] = {2};
    const size_t bytes = (size_t)ROWS * WIDTH * 4;
    memset(p, 0, sizeof *p);
    p->layout = kind == HEADS ? SY_KV_HND : SY_KV_NHD;
    p->packed = kind == PACKED;
    p->memory = calloc(3 * PLANES, bytes);
    assert_non_null(p->memory);
    assert_int_equal(sy_kv_format_named("int8", &p->format), SY_OK);
    for (int i = 0; i < PLANES; i++) {
        unsigned char *at = p->memory + 3 * (size_t)i * bytes;
        p->cache[i] =
            sy_tensor(at, p->packed ? SY_I8 : SY_F32, kind == HEADS ? 4 : 2, kind == HEADS ? heads : flat);
        p->rows[i] = sy_tensor(at + bytes, SY_F32, kind == HEADS ? 3 : 2, kind == HEADS ? by_head : flat);
        p->scale[i] = sy_tensor(at + 2 * bytes, SY_F32, 2, parts);
        if (i > 0)
            p->caches[i - 1] = (sy_kv_plane){.cache = &p->cache[i]};
        if (i > 0)
            p->more[i - 1] = (sy_kv_plane){.cache = &p->cache[i],
                                           .rows = &p->rows[i],
                                           .format = p->packed ? &p->format : NULL,
                                           .scale = p->packed ? &p->scale[i] : NULL};
    }
    for (int i = 0; i < ROWS; i++) /* neighbours, and rows that are none */
        p->index[i] = i < ROWS / 2 ? i : ROWS - 1 - (i - ROWS / 2);
    for (int i = 0; i < BLOCKS; i++)
        p->page[i] = i < BLOCKS / 2 ? i : BLOCKS - 1 - (i - BLOCKS / 2);
    for (int i = 0; i < BLOCKS; i++)
        p->pair[i] = i;
    p->ends[1] = ROWS;
    p->indices = sy_tensor(p->index, SY_I32, 1, many);
    p->table = sy_tensor(p->page, SY_I32, 2, one_table);
    p->pairs = sy_tensor(p->pair, SY_I32, 2, two);
    p->cu_lens = sy_tensor(p->ends, SY_I32, 1, ends);
}

static void gather(void *data)
{
    struct planes *p = data;
    const sy_kv_gather_args args = {.cache = &p->cache[0],
                                    .indices = &p->indices,
                                    .block_table = &p->table,
                                    .block_size = BLOCK_SIZE,
                                    .layout = p->layout,
                                    .planes = p->more,
                                    .plane_bytes = sizeof(sy_kv_plane),
                                    .num_planes = SY_KV_MAX_PLANES,
                                    .format = p->packed ? &p->format : NULL,
                                    .scale = p->packed ? &p->scale[0] : NULL,
                                    .out = &p->rows[0]};
    p->status = sy_kv_gather_query(p->ctx, &args, &p->query);
    if (p->status == SY_OK)
        p->status = sy_kv_gather(p->ctx, &args);
}

static void scatter(void *data)
{
    struct planes *p = data;
    const sy_kv_scatter_args args = {.src = &p->rows[0],
                                     .slots = &p->indices,
                                     .cache = &p->cache[0],
                                     .layout = p->layout,
                                     .planes = p->more,
                                     .plane_bytes = sizeof(sy_kv_plane),
                                     .num_planes = SY_KV_MAX_PLANES,
                                     .format = p->packed ? &p->format : NULL,
                                     .scale = p->packed ? &p->scale[0] : NULL,
                                     .check_unique = true};
    p->status = sy_kv_scatter_query(p->ctx, &args, &p->query);
    if (p->status == SY_OK)
        p->status = sy_kv_scatter(p->ctx, &args);
}

static void ragged(void *data)
{
    struct planes *p = data;
    const sy_kv_ragged_args args = {.cache = &p->cache[0],
                                    .block_table = &p->table,
                                    .cu_lens = &p->cu_lens,
                                    .block_size = BLOCK_SIZE,
                                    .layout = p->layout,
                                    .planes = p->more,
                                    .plane_bytes = sizeof(sy_kv_plane),
                                    .num_planes = SY_KV_MAX_PLANES,
                                    .format = p->packed ? &p->format : NULL,
                                    .scale = p->packed ? &p->scale[0] : NULL,
                                    .out = &p->rows[0]};
    p->status = sy_kv_ragged_query(p->ctx, &args, &p->query);
    if (p->status == SY_OK)
        p->status = sy_kv_ragged(p->ctx, &args);
}

static void blocks(void *data)
{
    struct planes *p = data;
    const sy_kv_blocks_args args = {.cache = &p->cache[0],
                                    .pairs = &p->pairs,
                                    .block_size = BLOCK_SIZE,
                                    .planes = p->caches,
                                    .plane_bytes = sizeof(sy_kv_plane),
                                    .num_planes = SY_KV_MAX_PLANES};
    p->status = sy_kv_blocks_query(p->ctx, &args, &p->query);
    if (p->status == SY_OK)
        p->status = sy_kv_blocks(p->ctx, &args);
}

static void many_planes(void **state)
{
    static const struct {
        const char *name;
        void (*run)(void *data);
    } ops[] = {{"kv_gather", gather}, {"kv_scatter", scatter}, {"kv_ragged", ragged}, {"kv_blocks", blocks}};
    static const char *const kinds[] = {"of plain rows", "of heads", "of packed rows"};
    struct planes *p = malloc(sizeof *p);
    struct deepest most = {0};
    int number = 0;
    (void)state;
    assert_non_null(p);
    for (sy_ctx *ctx; (ctx = next_ctx(&number)) != NULL; sy_ctx_destroy(ctx))
        for (int kind = 0; kind < ROWS_KINDS_OF_CACHE; kind++)
            for (size_t op = 0; op < COUNT_OF(ops); op++) {
                planes_make(p, (enum rows_kind)kind);
                p->ctx = ctx;
                note(&most, depth_of(ops[op].run, p), ops[op].name, kinds[kind]);
                expect_status(ctx, p->status, SY_OK);
                p->rows[PLANES - 1].data = p->cache[3].data; /* the last one is compared, too */
                p->cache[PLANES - 1].data = p->cache[3].data;
                note(&most, depth_of(ops[op].run, p), ops[op].name, "overlap");
                expect_status(ctx, p->status, SY_ERR_ALIAS);
                free(p->memory);
            }
    free(p);
    expect_shallow(&most);
}

/* ---- Rows of sample ---------------------------------------------------------------------------------- */

struct sampling {
    sy_ctx *ctx;
    const sy_sample_args *args;
    sy_status status;
};

static void sample_once(void *data)
{
    struct sampling *s = data;
    s->status = sy_sample(s->ctx, s->args);
}

/* Rows short and long, of every kind, cut in every way: an option for each bit of a number. */
static void sample_make(struct sample_case *c, unsigned bits, uint64_t *rng)
{
    static const int64_t vocabularies[] = {60, 3000, 40000};
    const DLDataType types[] = {SY_F32, SY_F16, SY_BF16};
    sample_open(c, types[bits % 3], 2, vocabularies[bits / 3 % 3], &(struct layout){0});
    for (int64_t b = 0; b < 2; b++)
        sample_fill_row(c, b, (enum sample_kind)rng_below(rng, KIND_COUNT), rng);
    for (int s = SLOT_TOP_K; s <= SLOT_TEMPERATURE; s++)
        if (rng_below(rng, 2))
            sample_add_rows(c, (enum sample_slot)s, s == SLOT_TOP_K ? SY_I32 : SY_F32, ROWS_B);
    for (int64_t b = 0; b < 2; b++) {
        if (c->args.top_k != NULL)
            sample_put_int(c, SLOT_TOP_K, b, 1 + rng_below(rng, rng_below(rng, 2) ? 60 : c->vocab));
        for (int s = SLOT_TOP_P; s <= SLOT_TEMPERATURE; s++)
            if (*sample_slot_field(&c->args, (enum sample_slot)s) != NULL)
                sample_put(c, (enum sample_slot)s, b, 0, s == SLOT_MIN_P ? 0.05 : 0.9 * rng_unit(rng) + 0.05);
    }
    if (rng_below(rng, 2)) {
        sample_add_rows(c, SLOT_SEED, SY_I64, ROWS_ONE);
        sample_put_int(c, SLOT_SEED, 0, 7);
        c->args.noise = rng_below(rng, 2) ? SY_NOISE_RACE : SY_NOISE_CDF;
    }
    if (rng_below(rng, 3) == 0) {
        sample_add_allow(c, SY_I32, false, &(struct layout){0});
        sample_fill_allow(c, rng);
    }
    if (rng_below(rng, 3) == 0)
        sample_fill_overrides(c, rng);
    const unsigned some = (unsigned)rng_u64(rng) | SLOT_BIT(SLOT_TOKEN);
    sample_add_outputs(c, SLOTS_ALL_OUTPUTS & (rng_below(rng, 2) ? some : SLOT_BIT(SLOT_TOKEN)),
                       &(struct layout){0});
    if (c->args.logprob != NULL)
        c->args.logprob_mode = rng_below(rng, 2) ? SY_LOGPROB_RAW : SY_LOGPROB_FINAL;
    c->args.ties = rng_below(rng, 2) ? SY_TIES_ALL : SY_TIES_EXACT;
}

static void sample_rows(void **state)
{
    struct deepest most = {0};
    int number = 0;
    (void)state;
    for (sy_ctx *ctx; (ctx = next_ctx(&number)) != NULL; sy_ctx_destroy(ctx)) {
        uint64_t rng = 1;
        for (unsigned i = 0; i < 450; i++) {
            struct sample_case c;
            sample_make(&c, i, &rng);
            struct sampling s = {.ctx = ctx, .args = &c.args};
            char name[32];
            snprintf(name, sizeof name, "number %u", i);
            note(&most, depth_of(sample_once, &s), "sample", name);
            expect_status(ctx, s.status, SY_OK);
            sample_close(&c);
        }
    }
    expect_shallow(&most);
}

static void skipped(void **state)
{
    (void)state;
    skip_because("sanitizers make frames larger");
}

int main(void)
{
    struct test_list list = {0};
    if (open_stack() != 0)
        return 1;
    if (SANITIZED) {
        test_add(&list, "calls on a small stack", skipped, NULL);
    } else {
        for (uintptr_t i = 0; i < TEST_CPU_CALLS; i++)
            test_add(&list, test_name("%s on a small stack", test_call_name((int)i)), operator_call,
                     (void *)i);
        test_add(&list, "many planes on a small stack", many_planes, NULL);
        test_add(&list, "rows of sample on a small stack", sample_rows, NULL);
    }
    const int failed = test_run(&list, "op_stack");
    return close_stack() != 0 ? 1 : failed;
}
