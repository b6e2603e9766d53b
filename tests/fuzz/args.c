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

#include <math.h>
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

int64_t hostile(struct reader *r)
{
    static const int64_t values[] = {0,
                                     1,
                                     2,
                                     3,
                                     -1,
                                     -2,
                                     7,
                                     64,
                                     255,
                                     65535,
                                     INT32_MAX,
                                     INT64_C(1) << 31,
                                     INT32_MIN,
                                     INT64_C(1) << 32,
                                     INT64_C(1) << 40,
                                     INT64_C(1) << 61,
                                     INT64_C(1) << 62,
                                     INT64_MAX,
                                     INT64_MIN,
                                     INT64_MAX / 2 + 1};
    return values[pick(r, (int)(sizeof values / sizeof values[0]))];
}

static DLDataType any_type(struct reader *r)
{
    static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1},  {4, 16, 1}, {2, 64, 1}, {0, 32, 1},
                                       {0, 64, 1}, {0, 8, 1},   {1, 8, 1},  {6, 8, 1},  {1, 32, 1},
                                       {1, 64, 1}, {0, 16, 1},  {10, 8, 1}, {2, 32, 2}, {2, 32, 0},
                                       {0, 4, 1},  {5, 128, 1}, {0, 24, 1}, {0, 0, 1},  {255, 255, 65535}};
    return types[pick(r, (int)(sizeof types / sizeof types[0]))];
}

/* ---- A call ------------------------------------------------------------------------------------------------- */

static size_t element_bytes(DLDataType type)
{
    return ((size_t)type.bits * type.lanes + 7) / 8;
}

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

/* ---- Spoiling ----------------------------------------------------------------------------------------------- */

static void spoil_tensor(struct call *c, struct reader *r)
{
    if (c->count == 0)
        return;
    struct item *x = &c->items[pick(r, c->count)];
    static const int ranks[] = {0, 1, 2, 3, 4, 5, 33, -1, -2147483647 - 1};
    static const int devices[] = {kDLCPU, kDLCUDAHost, kDLCUDA, 0, -1, 77};
    const int d = pick(r, 3);
    switch (pick(r, 10)) {
    case 0:
        *x->field = NULL;
        break;
    case 1:
        x->t.data = NULL;
        break;
    case 2:
        x->t.shape = NULL;
        break;
    case 3:
        x->t.dtype = any_type(r);
        break;
    case 4:
        x->t.ndim = ranks[pick(r, 9)];
        break;
    case 5:
        x->shape[d] = hostile(r);
        break;
    case 6:
        x->t.strides = x->strides;
        x->strides[d] = pick(r, 2) ? hostile(r) : pick(r, 64);
        break;
    case 7:
        memcpy(&x->t.device.device_type, &devices[pick(r, 6)], sizeof devices[0]);
        break;
    case 8: /* anywhere, over anything, at any alignment */
        x->t.data = arena + pick(r, 256) * 5;
        break;
    default:
        x->t.byte_offset = pick(r, 2) ? (uint64_t)hostile(r) : (uint64_t)pick(r, 64);
        break;
    }
}

/* Any value that the C type of the field has. */
static void spoil_scalar(struct call *c, const sy_field_info *field, struct reader *r)
{
    static const double reals[] = {0, 1, -1, 0.5, 1e-45, 3e38, 1e300, INFINITY, -INFINITY, NAN};
    const int64_t number = hostile(r);
    const double real = reals[pick(r, (int)(sizeof reals / sizeof reals[0]))];
    void *const at = (char *)&c->args + field->offset;
    switch (field->kind) {
    case SY_KIND_BOOL:
        memcpy(at, &(bool){number & 1}, sizeof(bool));
        break;
    case SY_KIND_INT:
    case SY_KIND_ENUM:
    case SY_KIND_U32:
        memcpy(at, &number, 4); /* little-endian: its lower half */
        break;
    case SY_KIND_I64:
    case SY_KIND_U64:
        memcpy(at, &number, sizeof number);
        break;
    case SY_KIND_SIZE: /* of planes: one that could be right would make pointers of other bytes */
        if (number <= 0 || number > 4096)
            memcpy(at, &number, sizeof number);
        break;
    case SY_KIND_F32:
        memcpy(at, &(float){real > 3.4e38 ? INFINITY : (float)real}, sizeof(float));
        break;
    case SY_KIND_F64:
        memcpy(at, &real, sizeof real);
        break;
    default: /* pointers: what they point to is spoiled as a tensor */
        break;
    }
}

static void spoil(struct call *c, struct reader *r)
{
    const int kind = pick(r, 6);
    const sy_op_info *info = sy_op_find(fuzz_ops[c->op].name);
    const int n_scalars = info->n_fields - info->n_tensors;
    if (kind < 2 && n_scalars > 0) {
        spoil_scalar(c, sy_op_field(info, info->n_tensors + pick(r, n_scalars)), r);
    } else if (kind == 2 && c->count > 0) { /* one tensor in place of another */
        struct item *x = &c->items[pick(r, c->count)], *y = &c->items[pick(r, c->count)];
        *x->field = &y->t;
    } else {
        spoil_tensor(c, r);
    }
}

/* clang's overflow check of 128-bit products needs a function that libgcc lacks; none of them can overflow here. */
#define WIDE_ARITHMETIC __attribute__((no_sanitize("signed-integer-overflow")))
__extension__ typedef __int128 wide;

/* Far outside the arena is far enough: sums of products of such numbers fit. */
static wide tame(wide x)
{
    const wide most = (wide)1 << 40;
    return x > most ? most : x < -most ? -most : x;
}

/* Byte range of a tensor inside the arena; false when it is empty or reaches outside. */
WIDE_ARITHMETIC static bool range_of(const DLTensor *t, wide *from, wide *to, bool *empty)
{
    const wide element = (wide)element_bytes(t->dtype);
    wide low = 0, high = 0, compact = 1;
    *empty = false;
    if (t->shape == NULL && t->ndim > 0)
        return false; /* of a tensor that the call did not look at */
    for (int d = t->ndim - 1; d >= 0; d--) {
        const wide stride = t->strides ? tame(t->strides[d]) : compact, last = tame(t->shape[d]) - 1;
        if (t->shape[d] <= 0)
            *empty = true;
        else if (stride < 0)
            low += last * stride;
        else
            high += last * stride;
        if (t->strides == NULL)
            compact = tame(compact * (t->shape[d] > 0 ? t->shape[d] : 0));
    }
    const wide base = (wide)(intptr_t)((const uint8_t *)t->data - arena) + (wide)t->byte_offset;
    *from = base + low * element;
    *to = base + (high + 1) * element;
    return *from >= 0 && *to <= ARENA_BYTES;
}

/* Takes the data away from every tensor that could be read or written outside the arena. */
static void confine(struct call *c)
{
    for (int i = 0; i < c->count; i++) {
        DLTensor *t = &c->items[i].t;
        wide from, to;
        bool empty;
        if (t->data == NULL || t->shape == NULL || t->ndim < 0)
            continue;
        if (!range_of(t, &from, &to, &empty) && !empty)
            t->data = NULL;
    }
}

/* During a call no byte of the arena may be read that belongs to no tensor of the call. */
static void fence(const struct call *c)
{
    ASAN_POISON_MEMORY_REGION(arena, sizeof arena);
    for (int i = 0; i < c->count; i++) {
        const DLTensor *t = &c->items[i].t;
        wide from, to;
        bool empty;
        if (t->data != NULL && t->shape != NULL && t->ndim >= 0 && range_of(t, &from, &to, &empty) && !empty)
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
        wide from, to;
        bool empty;
        if (c->items[i].output && t != NULL && t->data != NULL && range_of(t, &from, &to, &empty) && !empty)
            memcpy(before + (size_t)from, arena + (size_t)from, (size_t)(to - from));
    }
    must(memcmp(arena, before, sizeof arena) == 0, "a byte outside the outputs changed", c, ctx);
}

/* sy_infer accepts what the query accepts, and gives outputs a rank that they may have. */
static void check_inferred(const struct call *c, const sy_op_info *info, sy_status asked, sy_ctx *ctx)
{
    sy_shape shapes[SY_MAX_FIELDS];
    fence(c);
    const sy_status status = sy_infer(ctx, info, &c->args, info->args_bytes, shapes, SY_MAX_FIELDS);
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

/* Sizes on paper may ask for any amount of scratch; a small machine answers NOMEM. */
void *small_alloc(void *user, size_t bytes)
{
    (void)user;
    return bytes <= (size_t)16 << 20 ? malloc(bytes) : NULL;
}

void small_free(void *user, void *ptr)
{
    (void)user;
    free(ptr);
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
    fence(&c);
    const struct fuzz_op *op = &fuzz_ops[c.op];
    const sy_op_info *info = sy_op_find(op->name);
    const sy_status asked =
        op->query ? op->query(ctx, &c, &q) : sy_call_query(ctx, info, &c.args, info->args_bytes, &q);
    unfence();
    must(memcmp(arena, before, sizeof arena) == 0, "the query wrote", &c, ctx);
    must((asked == SY_OK) == (sy_ctx_error(ctx)[0] == '\0'), "query and sentence disagree", &c, ctx);
    fence(&c);
    const sy_status status = op->run ? op->run(ctx, &c) : sy_call(ctx, info, &c.args, info->args_bytes);
    unfence();
    must((status == SY_OK) == (sy_ctx_error(ctx)[0] == '\0'), "status and sentence disagree", &c, ctx);
    must(sy_ctx_fault(ctx, &fault) == SY_OK && fault.status == status, "status and fault disagree", &c, ctx);
    must(asked == SY_OK || status != SY_OK, "the query rejected what the call accepts", &c, ctx);
    if (status != SY_OK)
        must(memcmp(arena, before, sizeof arena) == 0, "a rejected call wrote", &c, ctx);
    else
        check_written(&c, ctx);
    if (!info->mesh)
        check_inferred(&c, info, asked, ctx);
    return 0;
}
