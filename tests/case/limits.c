/*
 * Calls under limits: every allocation fails once; a tensor shares a byte with the lent workspace; descriptors that describe
 * no tensor; a stack of 32 KB, as a program with fibers or many threads has it.
 */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS; NOLINT(bugprone-reserved-identifier) */
#include "case.h"
#include "stack.h"
#include "support_memory.h"

#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SOME_CALLS = 20 };

/* Calls of seeds from 1 on that succeed. The next one; false after the last. */
static bool next_call(struct call *c, const struct op_case *op, struct reader *in, uint64_t *seed,
                      const char *what)
{
    while (*seed < SOME_CALLS) {
        *in = reader_seed(++*seed);
        snprintf(case_where, sizeof case_where, "seed %llu, %s", (unsigned long long)*seed, what);
        call_make(c, op, in);
        call_lay_out(c, 0, false);
        if (c->want.status == SY_OK)
            return true;
        call_free(c);
    }
    return false;
}

/* ---- Allocations ---- */

/* What a call without memory says; it has written nothing. */
static void check_no_memory(struct call *c, sy_ctx *ctx)
{
    sy_fault f;
    sy_ctx_fault(ctx, &f);
    if (f.code != SY_FAULT_NO_MEMORY || strncmp(sy_ctx_error(ctx), c->op->name, strlen(c->op->name)) != 0)
        case_fail(c, ctx, "fault %s", sy_fault_name(f.code));
    call_untouched(c, ctx);
}

/* Allocation n of the call fails: NOMEM and nothing written; then the same context makes the call. True: there is none. */
static bool fail_one(struct call *c, int n, bool all_after)
{
    struct allocator a = {0};
    const sy_ctx_options options = {
        .threads = 3, .alloc = limited_alloc, .dealloc = limited_free, .alloc_user = &a};
    const sy_comm_options mesh = {.alloc = limited_alloc, .dealloc = limited_free, .alloc_user = &a};
    sy_ctx *ctx;
    sy_comm *const usual = c->comm, *own = NULL;
    if (sy_ctx_create(&ctx, &options) != SY_OK ||
        (usual != NULL && sy_comm_create_local(&own, sy_comm_mesh(usual), &mesh) != SY_OK))
        abort();
    if (usual != NULL)
        c->op->attach(c, own);
    call_lay_out(c, 0, false);
    a = (struct allocator){.fail_at = n, .live = a.live, .fail_all_after = all_after, .blocks = a.blocks};
    const sy_status status = call_run(c, ctx);
    const bool passed = status != SY_ERR_NOMEM;
    if (passed && a.calls >= n)
        case_fail(c, ctx, "succeeds although an allocation failed");
    if (!passed)
        check_no_memory(c, ctx);
    a.fail_at = 0;
    call_check(c, ctx, passed ? status : call_run(c, ctx));
    if (usual != NULL)
        c->op->attach(c, usual);
    sy_comm_destroy(own);
    sy_ctx_destroy(ctx);
    if (a.live != 0)
        case_fail(c, NULL, "%d blocks are not given back", a.live);
    return passed;
}

int test_allocations(const struct op_case *op)
{
    static struct call c;
    struct reader in;
    int n = 0;
    for (uint64_t seed = 0; next_call(&c, op, &in, &seed, "a failing allocation");) {
        case_split = seed % 2;
        int failures = 0;
        while (!fail_one(&c, failures + 1, seed / 2 % 2))
            failures++;
        case_split = false;
        n += failures;
        call_free(&c);
    }
    return n;
}

/* ---- The workspace ---- */

/* Operand x a byte into lent memory, then directly behind it. A call that takes no scratch accepts both. */
static void lend(struct call *c, sy_ctx *ctx, struct operand *x, unsigned char *arena, size_t scratch)
{
    char want[200], plane[32];
    for (size_t inside = 1; inside <= 1; inside--) {
        call_lay_out(c, 0, false);
        unsigned char *const own = x->t.data, *const there = arena + scratch - inside;
        memcpy(there, own, x->bytes);
        x->t.data = there;
        const sy_status status = op_call(c, ctx, call_bind(c), c->info->args_bytes);
        snprintf(plane, sizeof plane, " of plane %d", x->plane);
        snprintf(want, sizeof want, "%s: %s%s overlaps the workspace in memory, want separate memory",
                 c->op->name, x->field->name, x->plane > 0 ? plane : "");
        if (inside && (status != SY_ERR_ALIAS || strcmp(sy_ctx_error(ctx), want) != 0 ||
                       memcmp(there, own, x->bytes) != 0))
            case_fail(c, ctx, "%s over the workspace: %s", x->field->name, sy_status_name(status));
        memcpy(own, there, x->bytes);
        if (inside)
            call_untouched(c, ctx);
        else
            call_check(c, ctx, status);
    }
}

/* Whether another tensor of the layout lies in the same memory. */
static bool shares_memory(const struct call *c, const struct operand *x)
{
    bool shares = x->over != NULL;
    for (int i = 0; i < c->n_operands; i++)
        shares |= c->operand[i].over == x;
    return shares;
}

/* A call that takes no scratch writes nothing there, so its first tensor may be. */
static int lie_in_unused(struct call *c, sy_ctx *ctx, unsigned char *arena)
{
    struct operand *x = c->operand;
    while (x < c->operand + c->info->n_tensors && (!x->given || x->bytes == 0 || shares_memory(c, x)))
        x++;
    if (x == c->operand + c->info->n_tensors || c->comm != NULL)
        return 0;
    call_lay_out(c, 0, false);
    unsigned char *const own = x->t.data;
    sy_ctx_set_workspace(ctx, arena, 64);
    memcpy(arena, own, x->bytes);
    x->t.data = arena;
    const sy_status status = op_call(c, ctx, call_bind(c), c->info->args_bytes);
    memcpy(own, arena, x->bytes);
    call_check(c, ctx, status);
    return 1;
}

/* A byte less than the query says: NOMEM, or enough, since a query sees no outputs. */
static bool starve(struct call *c, sy_ctx *ctx, unsigned char *arena, size_t scratch)
{
    sy_ctx_set_workspace(ctx, arena, scratch - 1);
    call_lay_out(c, 0, false);
    const sy_status status = call_run(c, ctx);
    if (status == SY_ERR_NOMEM)
        check_no_memory(c, ctx);
    else
        call_check(c, ctx, status);
    return status == SY_ERR_NOMEM;
}

int test_workspace(const struct op_case *op)
{
    static struct call c;
    struct reader in;
    int n = 0, asked = 0, starved = 0;
    for (uint64_t seed = 0; next_call(&c, op, &in, &seed, "lent memory");) {
        sy_ctx *const ctx = case_ctx[seed % 4]; /* 1, 2, 3 and 8 threads */
        sy_query query;
        case_split = seed / 4 % 2;
        size_t most = 0;
        if (op_query(&c, ctx, call_bind(&c), c.info->args_bytes, &query) != SY_OK)
            case_fail(&c, ctx, "the query rejects it");
        const int n_operands = c.comm == NULL ? c.n_operands : c.info->n_tensors;
        for (int i = 0; i < n_operands; i++)
            most = c.operand[i].given && c.operand[i].bytes > most ? c.operand[i].bytes : most;
        const size_t scratch = query.workspace_bytes;
        unsigned char *const arena = aligned_alloc(64, (scratch + most) / 64 * 64 + 64);
        if (arena == NULL)
            abort();
        asked += scratch > 0;
        if (scratch > 0) {
            starved += starve(&c, ctx, arena, scratch);
            sy_ctx_set_workspace(ctx, arena, scratch);
        } else
            n += lie_in_unused(&c, ctx, arena);
        for (int i = 0; scratch > 0 && i < n_operands; i++)
            if (c.operand[i].given && c.operand[i].bytes > 0 && !shares_memory(&c, &c.operand[i])) {
                lend(&c, ctx, &c.operand[i], arena, scratch);
                n++;
            }
        sy_ctx_set_workspace(ctx, NULL, 0); /* taken back: the context uses its own again */
        free(arena);
        call_lay_out(&c, 0, false);
        call_check(&c, ctx, call_run(&c, ctx));
        case_split = false;
        call_free(&c);
    }
    if (asked > 0 && starved == 0)
        case_fail(&c, NULL, "no call needs all that its query says");
    return n;
}

/* ---- Descriptors ---- */

static int64_t *forbidden; /* a page that cannot be read */

static void hide(struct call *c, struct operand *x, int rank, bool data, bool strides)
{
    sy_ctx *const ctx = case_ctx[0];
    char found[64];
    sy_fault f;
    call_lay_out(c, 0, false);
    x->t.ndim = rank;
    x->t.shape = forbidden;
    x->t.strides = strides ? forbidden : NULL;
    x->t.data = data ? x->t.data : NULL;
    const sy_status status = call_run(c, ctx);
    snprintf(found, sizeof found, "has rank %d", rank);
    sy_ctx_fault(ctx, &f);
    if ((status != SY_ERR_SHAPE && (data || status != SY_ERR_NULL)) ||
        strcmp(f.argument, x->field->name) != 0 || strstr(sy_ctx_error(ctx), found) == NULL)
        case_fail(c, ctx, "%s of rank %d: %s", x->field->name, rank, sy_status_name(status));
    call_untouched(c, ctx);
}

/* An offset that wraps: the first byte, or only the last one, is past the end of the address space. */
static void offset(struct call *c, struct operand *x, bool first)
{
    sy_ctx *const ctx = case_ctx[0];
    call_lay_out(c, 0, false);
    const uint64_t end = UINT64_MAX - (uint64_t)(uintptr_t)x->t.data;
    x->t.byte_offset = first ? end + 5 : end - x->bytes + 2;
    const sy_status status = call_run(c, ctx);
    if (status != SY_ERR_OVERFLOW || strstr(sy_ctx_error(ctx), "has byte_offset ") == NULL)
        case_fail(c, ctx, "byte_offset %llu of %s: %s", (unsigned long long)x->t.byte_offset, x->field->name,
                  sy_status_name(status));
    call_untouched(c, ctx);
}

/* Calls and queries without a context, arguments or room for the answer. */
static void leave_out(struct call *c)
{
    sy_ctx *const ctx = case_ctx[0];
    const sy_op_info *const info = c->info;
    sy_query query;
    const void *const args = call_bind(c);
    if (sy_call_mesh(NULL, c->comm, info, args, info->args_bytes) != SY_ERR_NULL ||
        sy_call_mesh_query(NULL, c->comm, info, args, info->args_bytes, &query) != SY_ERR_NULL)
        case_fail(c, NULL, "a call without a context is not rejected");
    if (sy_call_mesh(ctx, c->comm, info, NULL, info->args_bytes) != SY_ERR_NULL ||
        strstr(sy_ctx_error(ctx), "args is NULL") == NULL ||
        sy_call_mesh_query(ctx, c->comm, info, NULL, info->args_bytes, &query) != SY_ERR_NULL)
        case_fail(c, ctx, "a call without arguments");
    if (sy_call_mesh_query(ctx, c->comm, info, args, info->args_bytes, NULL) != SY_ERR_NULL ||
        strstr(sy_ctx_error(ctx), "query is NULL") == NULL)
        case_fail(c, ctx, "a query without room for its answer");
}

/* All tensors directly behind each other: no two share a byte. */
static void lay_side_by_side(struct call *c)
{
    size_t bytes = 64, at = 0;
    call_lay_out(c, 0, false);
    for (int i = 0; i < c->n_operands; i++)
        if (c->operand[i].over != NULL)
            return; /* two of them are one */
    for (int i = 0; i < c->n_operands; i++)
        bytes += c->operand[i].given ? c->operand[i].bytes : 0;
    unsigned char *const block = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (block == NULL)
        abort();
    for (int i = 0; i < c->n_operands; i++) {
        struct operand *const x = &c->operand[i];
        if (!x->given)
            continue;
        memcpy(block + at, x->block + x->first, x->bytes);
        x->t.data = block + at;
        at += x->bytes;
    }
    const sy_status status = call_run(c, case_ctx[0]);
    for (int i = 0; i < c->n_operands; i++)
        if (c->operand[i].given)
            memcpy(c->operand[i].block + c->operand[i].first, c->operand[i].t.data, c->operand[i].bytes);
    free(block);
    call_check(c, case_ctx[0], status);
}

/* A rank that is none is rejected before an extent or a stride is read. */
int test_descriptors(const struct op_case *op)
{
    static const int ranks[] = {1000, INT_MAX, -1, INT_MIN};
    static struct call c;
    struct reader in;
    int n = 0;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    forbidden = mmap(NULL, page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (uint64_t seed = 0; next_call(&c, op, &in, &seed, "a descriptor");) {
        leave_out(&c);
        lay_side_by_side(&c);
        for (int i = 0; i < c.n_operands; i++) {
            struct operand *const x = &c.operand[i];
            if (!x->given)
                continue;
            for (int k = 0; k < 16; k++, n++)
                hide(&c, x, ranks[k / 4], k & 1, k & 2);
            for (int first = 0; x->bytes > 2 && first < 2; first++, n++)
                offset(&c, x, first);
        }
        call_free(&c);
    }
    munmap(forbidden, page);
    return n;
}

/* ---- The stack ---- */

struct step {
    struct call *c;
    sy_ctx *ctx;
    const void *args;
    sy_status status;
};

static void ask_and_call(void *data)
{
    struct step *const s = data;
    sy_query query;
    (void)op_query(s->c, s->ctx, s->args, s->c->info->args_bytes, &query);
    s->status = op_call(s->c, s->ctx, s->args, s->c->info->args_bytes);
}

static sy_status run_small(struct call *c, sy_ctx *ctx)
{
    struct step s = {c, ctx, call_bind(c), SY_OK};
    const size_t used = stack_of(ask_and_call, &s);
    if (used > STACK_MOST)
        case_fail(c, ctx, "needs %zu bytes of stack, want at most %d", used, STACK_MOST);
    return s.status;
}

/* Rejected in as many ways as sentences are composed. */
static int reject_small(struct call *c, sy_ctx *ctx)
{
    static const struct change changes[] = {{.kind = CHANGE_MISSING},
                                            {.kind = CHANGE_NO_DATA},
                                            {.kind = CHANGE_TYPE, .type = {255, 255, 65535}},
                                            {.kind = CHANGE_RANK, .value = 6},
                                            {.kind = CHANGE_DEVICE, .value = 8}};
    int n = 0;
    for (int i = 0; i < c->n_described; i++)
        for (size_t k = 0; c->operand[i].given && k < sizeof changes / sizeof *changes; k++, n++) {
            struct change s = changes[k];
            s.field = c->operand[i].field->name;
            s.device = c->operand[i].device;
            call_lay_out(c, 0, false);
            call_apply(c, &s);
            if (run_small(c, ctx) != SY_OK)
                call_untouched(c, ctx);
        }
    return n;
}

/* One thread, every kernel table. */
static int on_every_table(struct call *c)
{
    int n = 0;
    for (int k = 0; k < n_case_ctx; k += 4, n++) {
        call_lay_out(c, 0, false);
        call_check(c, case_ctx[k], run_small(c, case_ctx[k]));
    }
    return n;
}

/* Calls with as much as there may be of some kind; and the last tensor over the first, which is compared with all between. */
static int shape_on_small(struct call *c, const struct op_case *op, const char *line)
{
    struct reader in = reader_text(line);
    snprintf(case_where, sizeof case_where, "\"%s\" on a small stack", line);
    call_make(c, op, &in);
    int n = on_every_table(c);
    struct operand *const last = &c->operand[c->n_operands - 1], *x = c->operand;
    while (!x->given)
        x++;
    for (int k = 0; last->given && last->bytes <= x->bytes && k < n_case_ctx; k += 4, n++) {
        call_lay_out(c, 0, false);
        operand_over(last, x, 0);
        if (run_small(c, case_ctx[k]) != SY_OK)
            call_untouched(c, case_ctx[k]);
    }
    call_free(c);
    return n;
}

int test_stack(const struct op_case *op)
{
    static struct call c;
    struct reader in;
    int n = 0;
    for (int i = 0; !STACK_UNKNOWN && i < CASE_LINES && op->shapes[i] != NULL; i++)
        n += shape_on_small(&c, op, op->shapes[i]);
    for (uint64_t seed = 0; !STACK_UNKNOWN && next_call(&c, op, &in, &seed, "a small stack");) {
        n += on_every_table(&c);
        if (seed <= 4)
            n += reject_small(&c, case_ctx[0]);
        call_free(&c);
    }
    return n;
}
