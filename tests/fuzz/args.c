/*
 * Fuzzes the argument structs of all operators. The bytes choose an operator and the sizes of a valid call over a real
 * arena, fill the arena, and then spoil the call in up to eight places: missing tensors, data or shapes, any type, rank,
 * extent, stride, device, overlap, scalar. A tensor that would reach outside the arena loses its data pointer, because
 * no library can know how large a buffer is; everything else is the library's to validate.
 *
 * Whatever comes, the call must return and read nothing outside its tensors; a rejection leaves every byte alone and has
 * a sentence; a success writes only inside its outputs; what the query rejects, the call rejects.
 */
#include "args.h"

#include <sanitizer/asan_interface.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ARENA_BYTES = 1 << 14 };

static uint8_t arena[ARENA_BYTES], before[ARENA_BYTES];

/* ---- The bytes ---------------------------------------------------------------------------------------------- */

int pick(struct reader *r, int n)
{
    return r->at < r->size ? r->data[r->at++] % n : 0;
}

int64_t extent(struct reader *r, int n)
{
    return pick(r, n);
}

/* ---- A call ------------------------------------------------------------------------------------------------- */

/* A compact tensor in the next free bytes of the arena. The sizes below never fill it. */
void add(struct call *c, const char *name, const DLTensor **field, DLDataType type, int rank, int64_t d0,
         int64_t d1, int64_t d2)
{
    struct item *x = &c->items[c->count++];
    const int64_t shape[] = {d0, d1, d2};
    size_t bytes = element_bytes(type);
    memset(x, 0, sizeof *x);
    for (int d = 0; d < MOST_RANK; d++)
        x->shape[d] = x->strides[d] = 1;
    for (int d = rank - 1; d >= 0; d--) {
        x->shape[d] = shape[d];
        x->strides[d] = (int64_t)(bytes / element_bytes(type));
        bytes *= (size_t)shape[d];
    }
    if (c->used + bytes > ARENA_BYTES)
        abort();
    x->name = name;
    x->field = field;
    x->t = sy_tensor(arena + c->used, type, rank, x->shape);
    c->used += (bytes + 7) / 8 * 8;
    *field = &x->t;
}

void output(struct call *c)
{
    c->items[c->count - 1].output = true;
}

void *elsewhere(struct call *c, struct reader *r)
{
    (void)c;
    return arena + pick(r, 256) * 5;
}

static bool in_arena(const DLTensor *t, int64_t *from, int64_t *to, bool *empty)
{
    return range_of(t, arena, sizeof arena, from, to, empty);
}

/* Takes the data away from every tensor that could be read or written outside the arena. */
static void confine(struct call *c)
{
    for (int i = 0; i < c->count; i++) {
        DLTensor *t = &c->items[i].t;
        int64_t from, to;
        bool empty;
        if (t->data == NULL || t->shape == NULL || t->ndim < 0)
            continue;
        if (!in_arena(t, &from, &to, &empty) && !empty)
            t->data = NULL;
    }
}

/* During a call no byte of the arena may be read that belongs to no tensor of the call. */
static void fence(const struct call *c)
{
    ASAN_POISON_MEMORY_REGION(arena, sizeof arena);
    for (int i = 0; i < c->count; i++) {
        const DLTensor *t = &c->items[i].t;
        int64_t from, to;
        bool empty;
        if (t->data != NULL && t->shape != NULL && t->ndim >= 0 && in_arena(t, &from, &to, &empty) && !empty)
            ASAN_UNPOISON_MEMORY_REGION(arena + (size_t)from, (size_t)(to - from));
    }
}

static void unfence(void)
{
    ASAN_UNPOISON_MEMORY_REGION(arena, sizeof arena);
}

/* ---- Running ------------------------------------------------------------------------------------------------ */

static void must(bool condition, const char *what, const struct call *c, const sy_ctx *ctx)
{
    if (condition)
        return;
    fprintf(stderr, "%s: %s (\"%s\")\n", fuzz_ops[c->op].name, what, sy_ctx_error(ctx));
    for (int i = 0; i < c->count; i++) {
        const DLTensor *t = &c->items[i].t;
        fprintf(stderr, "  %s%s type %d/%d/%d rank %d%s\n", c->items[i].name,
                *c->items[i].field ? "" : " (absent)", t->dtype.code, t->dtype.bits, t->dtype.lanes, t->ndim,
                t->data ? "" : " no data");
    }
    abort();
}

/* After a success every byte outside the outputs is as before. */
static void check_written(const struct call *c, const sy_ctx *ctx)
{
    for (int i = 0; i < c->count; i++) {
        const DLTensor *t = *c->items[i].field;
        int64_t from, to;
        bool empty;
        if (c->items[i].output && t != NULL && t->data != NULL && in_arena(t, &from, &to, &empty) && !empty)
            memcpy(before + (size_t)from, arena + (size_t)from, (size_t)(to - from));
    }
    must(memcmp(arena, before, sizeof arena) == 0, "a byte outside the outputs changed", c, ctx);
}

/* sy_infer_mesh accepts what the query accepts, and gives outputs a rank that they may have. */
static void check_inferred(const struct call *c, const sy_op_info *info, sy_comm *comm, const void *args,
                           sy_status asked, sy_ctx *ctx)
{
    sy_shape shapes[SY_MAX_FIELDS];
    fence(c);
    const sy_status status = sy_infer_mesh(ctx, comm, info, args, info->args_bytes, shapes, SY_MAX_FIELDS);
    unfence();
    must(status == asked, "sy_infer and the query disagree", c, ctx);
    for (int i = 0; status == SY_OK && i < info->n_tensors; i++) {
        const sy_field_info *field = sy_op_field(info, i);
        const bool output = (field->flags & (SY_FIELD_OUT | SY_FIELD_INOUT)) == SY_FIELD_OUT;
        must(shapes[i].rank == -1 ||
                 (output && shapes[i].rank >= field->min_rank && shapes[i].rank <= field->max_rank),
             "sy_infer gives another rank than the field has", c, ctx);
        must(!output || (field->flags & SY_FIELD_OPTIONAL) || shapes[i].rank >= 0,
             "sy_infer gives a required output no shape", c, ctx);
    }
}

/* The rest of the bytes, again and again. */
static void fill_arena(const struct reader *r)
{
    const size_t rest = r->size - r->at;
    memset(arena, 0, sizeof arena);
    for (size_t i = 0; rest > 0 && i < sizeof arena; i += rest)
        memcpy(arena + i, r->data + r->at, rest < sizeof arena - i ? rest : sizeof arena - i);
    memcpy(before, arena, sizeof arena);
}

static sy_ctx *context(int threads)
{
    sy_ctx *ctx = NULL;
    const sy_ctx_options options = {.threads = threads, .alloc = small_alloc, .dealloc = small_free};
    if (sy_ctx_create(&ctx, &options) != SY_OK)
        abort();
    return ctx;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static sy_ctx *contexts[2];
    static struct call c;
    struct reader r = {data, size, 0};
    for (int i = 0; i < 2 && contexts[i] == NULL; i++)
        contexts[i] = context(1 + 2 * i);
    memset(&c, 0, sizeof c);
    c.op = pick(&r, n_fuzz_ops);
    sy_ctx *ctx = contexts[pick(&r, 8) == 7];
    fuzz_ops[c.op].make(&c, &r);
    for (int n = pick(&r, 9); n > 0; n--)
        spoil(&c, &r);
    confine(&c);
    fill_arena(&r);
    sy_query q;
    sy_fault fault;
    const sy_op_info *info = sy_op_find(fuzz_ops[c.op].name);
    DLTensor both[SY_MAX_FIELDS][2];
    union test_args args;
    sy_comm *comm = bind_args(&c, info, both, &args);
    fence(&c);
    const sy_status asked = sy_call_mesh_query(ctx, comm, info, &args, info->args_bytes, &q);
    unfence();
    must(memcmp(arena, before, sizeof arena) == 0, "the query wrote", &c, ctx);
    must((asked == SY_OK) == (sy_ctx_error(ctx)[0] == '\0'), "query and sentence disagree", &c, ctx);
    fence(&c);
    const sy_status status = sy_call_mesh(ctx, comm, info, &args, info->args_bytes);
    unfence();
    must((status == SY_OK) == (sy_ctx_error(ctx)[0] == '\0'), "status and sentence disagree", &c, ctx);
    must(sy_ctx_fault(ctx, &fault) == SY_OK && fault.status == status, "status and fault disagree", &c, ctx);
    must(asked == SY_OK || status != SY_OK, "the query rejected what the call accepts", &c, ctx);
    if (status != SY_OK)
        must(memcmp(arena, before, sizeof arena) == 0, "a rejected call wrote", &c, ctx);
    else
        check_written(&c, ctx);
    check_inferred(&c, info, comm, &args, asked, ctx);
    return 0;
}
