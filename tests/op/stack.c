/*
 * Caches of many planes and exchanges on a small stack (tests/case has other calls), as a program with fibers or many threads calls it. Calls run on a stack of 32 KB with
 * a page below it that cannot be touched, on a context of one thread, with every kernel table. The stack is painted, so
 * that the deepest byte is known afterwards: at most 16 KB, counted from the first frame of the fiber, so what the C
 * library needs for a sentence is part of it. Sanitizers make frames larger; there the test is skipped.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS; NOLINT(bugprone-reserved-identifier) */
#include "mesh_cases.h"
#include "support.h"

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

/* ---- A mesh ------------------------------------------------------------------------------------------ */

struct mesh_step {
    sy_ctx *ctx;
    sy_comm *comm;
    sy_mesh mesh;
    struct mesh_call *call;
    sy_status status, asked;
    sy_query query;
};

static void mesh_create(void *data)
{
    struct mesh_step *s = data;
    s->status = sy_comm_create_local(&s->comm, s->mesh, NULL);
}

static void mesh_run(void *data)
{
    struct mesh_step *s = data;
    s->status = mesh_call_run(s->ctx, s->comm, s->call);
}

static void mesh_query(void *data)
{
    struct mesh_step *s = data;
    s->asked = s->call->combines
                   ? sy_all_to_all_combine_query(s->ctx, s->comm, &s->call->combine, &s->query)
                   : sy_all_to_all_dispatch_query(s->ctx, s->comm, &s->call->dispatch, &s->query);
}

/* One tensor of the last device is wrong. */
static void mesh_reject(struct mesh_step *s, int field, struct deepest *most)
{
    const char *name = s->call->combines ? "all_to_all_combine" : "all_to_all_dispatch";
    DLTensor *t = &s->call->fields[field][s->call->shards - 1];
    const DLTensor before = *t;
    t->device.device_type = kDLCUDA;
    note(most, depth_of(mesh_run, s), name, "device");
    t->device = before.device;
    t->dtype = (DLDataType){255, 255, 65535};
    note(most, depth_of(mesh_run, s), name, "type");
    t->dtype = before.dtype;
    t->ndim = 7;
    note(most, depth_of(mesh_run, s), name, "rank");
    *t = before;
}

static void mesh_measure(struct mesh_step *s, struct deepest *most)
{
    const char *name = s->call->combines ? "all_to_all_combine" : "all_to_all_dispatch";
    note(most, depth_of(mesh_query, s), name, "query");
    expect_status(s->ctx, s->asked, SY_OK);
    note(most, depth_of(mesh_run, s), name, "valid");
    expect_status(s->ctx, s->status, SY_OK);
    int rejected = 0;
    for (int field = MESH_INPUT; field < MESH_FIELDS; field++)
        if (s->call->fields[field][s->call->shards - 1].shape != NULL) {
            mesh_reject(s, field, most);
            rejected += s->status != SY_OK;
        }
    assert_true(rejected >= 2); /* a call does not use all of them */
}

static void on_a_mesh(void **state)
{
    struct deepest most = {0};
    (void)state;
    for (int number = 0; number < 60; number++) {
        struct mesh_case m;
        struct mesh_step s = {.ctx = test_ctx(1, NULL)};
        sy_routing *routing = NULL;
        mesh_case_random(&m, (sy_mesh){2, 2}, number);
        s.mesh = m.a2a.mesh;
        note(&most, depth_of(mesh_create, &s), "sy_comm_create_local", "valid");
        assert_int_equal(s.status, SY_OK);
        expect_status(s.ctx, sy_routing_create(s.ctx, s.comm, &routing), SY_OK);
        for (int combines = 0; combines < 2; combines++) {
            s.call = combines ? mesh_combine_new(s.comm, &m, m.by_routing ? routing : NULL)
                              : mesh_dispatch_new(s.comm, &m, routing);
            mesh_measure(&s, &most);
            mesh_call_free(s.call);
        }
        sy_routing_destroy(routing);
        sy_comm_destroy(s.comm);
        sy_ctx_destroy(s.ctx);
        mesh_case_free(&m);
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
        test_add(&list, "many planes on a small stack", many_planes, NULL);
        test_add(&list, "exchanges on a small stack", on_a_mesh, NULL);
    }
    const int failed = test_run(&list, "op_stack");
    return close_stack() != 0 ? 1 : failed;
}
