/*
 * Runs of a call: layouts, guards, comparison with the oracle; and what random calls have covered.
 */
#include "case.h"

#include <stdio.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(at, n) ((void)(at), (void)(n))
#endif

sy_ctx *case_ctx[CASE_CONTEXTS];
int n_case_ctx;
bool case_split, case_recording;

bool case_on_device(void)
{
    return getenv("SWITCHYARD_TEST_DEVICE") != NULL;
}

bool tests_are(const char *length)
{
    const char *const tests = getenv("SWITCHYARD_TESTS");
    return tests != NULL && strcmp(tests, length) == 0;
}

/* Every kernel table of this CPU with 1, 2, 3 and 8 threads; a device as one of 4 multiprocessors, and as it is. */
void case_open(void)
{
    const int threads[] = {case_on_device() ? 4 : 1, case_on_device() ? 0 : 2, 3, 8};
    const int most = case_on_device() ? 2 : CASE_CONTEXTS;
    const char *isa;
    for (int i = 0; (isa = sy_isa_name(i)) != NULL; i++)
        for (int j = 0; j < 4 && n_case_ctx < most; j++) {
            char why[256] = "";
            const sy_ctx_options options = {
                .isa = isa, .threads = threads[j], .error = why, .error_bytes = sizeof why};
            if (sy_ctx_create(&case_ctx[n_case_ctx], &options) != SY_OK) {
                fprintf(stderr, "no context for %s: %s\n", isa, why);
                exit(2);
            }
            n_case_ctx++;
        }
}

static sy_comm *comms[CASE_DEVICES + 1][CASE_DEVICES + 1];

/* Sizes on paper may need any amount of memory: more than a test has is NOMEM. */
static void *some_memory(void *user, size_t bytes)
{
    (void)user;
    return bytes <= (size_t)64 << 20 ? malloc(bytes) : NULL;
}

static void free_memory(void *user, void *memory)
{
    (void)user;
    free(memory);
}

sy_comm *case_comm(sy_mesh mesh)
{
    sy_comm **const comm = &comms[mesh.rows][mesh.cols];
    const sy_comm_options options = {.alloc = some_memory, .dealloc = free_memory};
    if (*comm == NULL && sy_comm_create_local(comm, mesh, &options) != SY_OK)
        abort();
    return *comm;
}

void forget_comms(void)
{
    for (int i = 0; i < (CASE_DEVICES + 1) * (CASE_DEVICES + 1); i++) {
        sy_comm **const comm = &comms[i / (CASE_DEVICES + 1)][i % (CASE_DEVICES + 1)];
        sy_comm_destroy(*comm);
        *comm = NULL;
    }
}

void case_close(void)
{
    forget_comms();
    while (n_case_ctx > 0)
        sy_ctx_destroy(case_ctx[--n_case_ctx]);
}

/* ---- Layouts ---- */

static int64_t next(uint64_t *rng, int64_t n)
{
    *rng = *rng * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((*rng >> 33) % (uint64_t)n);
}

/* One number per row may have any distance; other tensors are rows of contiguous columns. */
static int upper_dimensions(const struct operand *x)
{
    return x->upper > 0                         ? x->upper
           : x->field->flags & SY_FIELD_PER_ROW ? x->rank
           : x->rank > 0                        ? x->rank - 1
                                                : 0;
}

static int64_t columns_of(const struct operand *x)
{
    int64_t n = 1;
    for (int d = upper_dimensions(x); d < x->rank; d++)
        n *= x->shape[d];
    return n;
}

static size_t row_at(const struct operand *x, int64_t row)
{
    int64_t at = 0;
    for (int d = upper_dimensions(x) - 1; d >= 0; row /= x->shape[d--])
        at += row % x->shape[d] * x->now_strides[d];
    return x->first + (size_t)at * x->element;
}

static int64_t any_gap(uint64_t *rng)
{
    return next(rng, 3) == 0 ? 16 * (1 + next(rng, 3)) : 1 + next(rng, 7);
}

/* Strides of a tensor's own: a gap in every dimension, and of the two between the first and the last either is the outer. */
static bool choose_strides(struct operand *x, uint64_t *rng, bool wild)
{
    const int upper = upper_dimensions(x);
    const bool own = wild && (x->field->flags & SY_FIELD_OWN_STRIDES);
    const bool swap = own && upper == 3 && next(rng, 3) == 0;
    int64_t step = 1, gap = wild && upper > 0 && next(rng, 3) == 0 ? any_gap(rng) : 0;
    bool strided = swap || gap > 0 || (wild && next(rng, 2) == 0);
    for (int d = x->rank - 1; d >= upper; step *= x->shape[d--])
        x->now_strides[d] = step;
    for (int i = upper - 1; i >= 0; i--) {
        const int d = swap && i > 0 ? 3 - i : i;
        x->now_strides[d] = step + gap;
        step = x->now_strides[d] * (x->shape[d] > 0 ? x->shape[d] : 1);
        gap = own && next(rng, 3) == 0 ? any_gap(rng) : 0;
        strided = strided || (gap > 0 && i > 0);
    }
    for (int d = 0; d < x->rank; d++) /* the stride of one means nothing */
        if (wild && x->shape[d] == 1 && next(rng, 3) == 0)
            x->now_strides[d] = own ? INT64_MIN : next(rng, 9) - 5;
    return strided;
}

static void place(struct operand *x, uint64_t *rng)
{
    const bool wild = *rng != 0 && !x->compact, moved = *rng != 0;
    const bool strided = choose_strides(x, rng, wild);
    const size_t misalign = moved && next(rng, 3) == 0 ? (size_t)next(rng, 64) : 0;
    const size_t offset = moved && next(rng, 3) == 0 ? x->element : 0;
    const int64_t n = case_count(x), columns = columns_of(x);
    for (int d = 0; d < SY_MAX_RANK + 2; d++)
        x->now_shape[d] = d < x->rank ? x->shape[d] : 1;
    x->first = CASE_GUARD + misalign + offset;
    x->block_bytes =
        CASE_GUARD + (n > 0 ? row_at(x, n / columns - 1) + (size_t)columns * x->element : x->first);
    free(x->block);
    x->block = aligned_alloc(64, (x->block_bytes + 63) / 64 * 64);
    if (x->block == NULL)
        abort();
    memset(x->block, CASE_POISON, x->block_bytes);
    x->t = sy_tensor(x->block + CASE_GUARD + misalign, x->type, x->rank, x->now_shape);
    x->t.byte_offset = offset;
    if (moved && n == 0 && next(rng, 2) == 0)
        x->t.data = NULL;
    if (moved && n == 0 && next(rng, 2) == 0 && !case_on_device())
        x->t.byte_offset = UINT64_MAX / 2 * (uint64_t)next(rng, 3); /* of nothing, it means nothing */
    if (moved && next(rng, 8) == 0 && !case_on_device())
        x->t.device.device_type = kDLCUDAHost;
    x->t.strides = strided ? x->now_strides : NULL;
}

/* Rows of dense contents to where they lie in `image`, a copy of the block of `in`. */
static void put_rows(const struct operand *x, const unsigned char *dense, const struct operand *in,
                     unsigned char *image)
{
    const size_t row = (size_t)columns_of(x) * x->element;
    for (size_t i = 0; row > 0 && i < x->bytes / row; i++)
        memcpy(image + row_at(in, (int64_t)i), dense + i * row, row);
}

static void copy_block(unsigned char **to, const unsigned char *from, size_t bytes)
{
    free(*to);
    *to = malloc(bytes);
    if (*to == NULL)
        abort();
    memcpy(*to, from, bytes);
}

/* The rows of the longer one, of which the other is the first. */
static void share_rows(struct operand *x, struct operand *y)
{
    struct operand *const longer = x->bytes > y->bytes ? x : y, *const other = longer == x ? y : x;
    other->over = longer;
    other->t = longer->t;
    other->t.shape = other->now_shape;
    put_rows(y, y->dense, longer, longer->block);
    copy_block(&longer->before, longer->block, longer->block_bytes);
}

/* An output that may be exactly the rows of an input is, where the two have one type and shape. */
static void lay_in_place(struct call *c, struct operand *x, bool in_place)
{
    struct operand *const y = x->field->alias > 0 ? &c->operand[x->field->alias - 1] : NULL;
    if (y == NULL || !x->given || !y->given)
        return;
    if (x->place == PLACE_SHARED)
        share_rows(x, y);
    if (x->place != PLACE_ANY || !in_place || memcmp(&x->type, &y->type, sizeof x->type) != 0 ||
        x->rank != y->rank || memcmp(x->shape, y->shape, (size_t)x->rank * sizeof *x->shape) != 0)
        return;
    x->over = y;
    *x->at = &y->t;
}

void call_lay_out(struct call *c, uint64_t layout, bool in_place)
{
    for (int i = 0; i < c->n_operands; i++) {
        struct operand *const x = &c->operand[i];
        x->over = NULL;
        if (!x->given) {
            if (!(x->field->flags & SY_FIELD_AGAIN) && !case_field(c, x->field->name)->given)
                *x->at = NULL;
            continue;
        }
        place(x, &layout);
        if (x->dense != NULL)
            put_rows(x, x->dense, x, x->block);
        copy_block(&x->before, x->block, x->block_bytes);
        *x->at = &x->t;
    }
    for (int i = 0; i < c->info->n_tensors; i++)
        lay_in_place(c, &c->operand[i], in_place);
}

/* ---- A run ---- */

static size_t end_of_rows(const struct operand *x)
{
    return x->block_bytes - CASE_GUARD;
}

sy_status op_call(const struct call *c, sy_ctx *ctx, const void *args, size_t bytes)
{
    return c->comm != NULL ? sy_call_mesh(ctx, c->comm, c->info, args, bytes)
                           : sy_call(ctx, c->info, args, bytes);
}

sy_status op_query(const struct call *c, sy_ctx *ctx, const void *args, size_t bytes, sy_query *query)
{
    return c->comm != NULL ? sy_call_mesh_query(ctx, c->comm, c->info, args, bytes, query)
                           : sy_call_query(ctx, c->info, args, bytes, query);
}

sy_status op_infer(const struct call *c, sy_ctx *ctx, const void *args, size_t bytes, sy_shape *shapes)
{
    return c->comm != NULL ? sy_infer_mesh(ctx, c->comm, c->info, args, bytes, shapes, c->n_described)
                           : sy_infer(ctx, c->info, args, bytes, shapes, c->n_described);
}

sy_status call_run(struct call *c, sy_ctx *ctx)
{
    const void *const args = call_bind(c);
    for (int i = 0; i < c->n_operands; i++)
        if (c->operand[i].given) {
            ASAN_POISON_MEMORY_REGION(c->operand[i].block, c->operand[i].first);
            ASAN_POISON_MEMORY_REGION(c->operand[i].block + end_of_rows(&c->operand[i]), CASE_GUARD);
        }
    const sy_status status = op_call(c, ctx, args, c->info->args_bytes);
    for (int i = 0; i < c->n_operands; i++)
        if (c->operand[i].given)
            ASAN_UNPOISON_MEMORY_REGION(c->operand[i].block, c->operand[i].block_bytes);
    return status;
}

static void compare(struct call *c, sy_ctx *ctx, bool after)
{
    for (int i = 0; i < c->n_operands; i++) {
        const struct operand *const x = &c->operand[i];
        const unsigned char *const want = after ? x->after : x->before;
        size_t at = 0;
        if (!x->given || memcmp(x->block, want, x->block_bytes) == 0)
            continue;
        while (x->block[at] == want[at])
            at++;
        case_fail(c, ctx, "byte %lld of %s, device %d, (%zu bytes) is %02x, want %02x",
                  (long long)at - (long long)x->first, x->field->name, x->device, end_of_rows(x) - x->first,
                  x->block[at], want[at]);
    }
}

void call_untouched(struct call *c, sy_ctx *ctx)
{
    compare(c, ctx, false);
}

static void check_fault(struct call *c, sy_ctx *ctx, sy_status status)
{
    const sy_fault *const w = &c->want;
    sy_fault f;
    if (status != w->status)
        case_fail(c, ctx, "%s, want %s of %s at %lld, %lld: %lld, limit %lld", sy_status_name(status),
                  sy_status_name(w->status), w->argument, (long long)w->batch, (long long)w->position,
                  (long long)w->value, (long long)w->limit);
    sy_ctx_fault(ctx, &f);
    if (f.code != w->code || f.batch != w->batch || f.position != w->position || f.value != w->value ||
        f.limit != w->limit || (w->argument != NULL && strcmp(w->argument, f.argument) != 0))
        case_fail(c, ctx, "fault %s %s %lld %lld %lld %lld, want %s %s %lld %lld %lld %lld",
                  sy_fault_name(f.code), f.argument, (long long)f.batch, (long long)f.position,
                  (long long)f.value, (long long)f.limit, sy_fault_name(w->code),
                  w->argument != NULL ? w->argument : "", (long long)w->batch, (long long)w->position,
                  (long long)w->value, (long long)w->limit);
    if ((status == SY_OK) != (sy_ctx_error(ctx)[0] == '\0'))
        case_fail(c, ctx, "status and sentence disagree");
}

static void check_query(struct call *c, sy_ctx *ctx)
{
    sy_query query;
    if (op_query(c, ctx, call_bind(c), c->info->args_bytes, &query) != SY_OK)
        case_fail(c, ctx, "the query rejects it");
    if ((c->query.rows >= 0 && query.rows != c->query.rows) ||
        (c->query.slots >= 0 && query.slots != c->query.slots))
        case_fail(c, ctx, "the query returns %lld rows and %lld slots, want %lld and %lld",
                  (long long)query.rows, (long long)query.slots, (long long)c->query.rows,
                  (long long)c->query.slots);
}

void call_check(struct call *c, sy_ctx *ctx, sy_status status)
{
    check_fault(c, ctx, status);
    check_query(c, ctx);
    if (status != SY_OK) {
        call_untouched(c, ctx);
        return;
    }
    for (int i = 0; i < c->n_operands; i++)
        if (c->operand[i].given)
            copy_block(&c->operand[i].after, c->operand[i].before, c->operand[i].block_bytes);
    for (int i = 0; i < c->n_operands; i++) {
        const struct operand *const x = &c->operand[i], *const in = x->over != NULL ? x->over : x;
        if (x->given && x->out)
            put_rows(x, x->want, in, in->after);
    }
    compare(c, ctx, true);
}

uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
    return hash;
}

uint64_t call_hash(struct call *c, sy_ctx *ctx, sy_status status)
{
    sy_fault f;
    sy_ctx_fault(ctx, &f);
    const int64_t numbers[] = {status, f.code, f.batch, f.position, f.value, f.limit};
    uint64_t hash = hash_bytes(0xcbf29ce484222325u, numbers, sizeof numbers);
    for (int i = 0; i < c->n_operands; i++) {
        const struct operand *const x = &c->operand[i], *const in = x->over != NULL ? x->over : x;
        const size_t row = (size_t)columns_of(x) * x->element;
        for (size_t k = 0; x->given && x->out && row > 0 && k < x->bytes / row; k++)
            hash = hash_bytes(hash, in->block + row_at(in, (int64_t)k), row);
    }
    return hash;
}

/* ---- Coverage ---- */

static struct {
    int calls, ok, empty, hard[CASE_HARD], given[SY_MAX_FIELDS];
    uint64_t types[SY_MAX_FIELDS], values[SY_MAX_FIELDS];
    uint64_t noted; /* of the present call, by bit */
} seen;

void case_note(struct call *c, const char *hard, bool happened)
{
    for (int i = 0; i < CASE_HARD && c->op->hard[i] != NULL; i++)
        if (strcmp(c->op->hard[i], hard) == 0) {
            seen.noted |= (uint64_t)happened << i;
            return;
        }
    case_fail(c, NULL, "the case does not list \"%s\"", hard);
}

void note_call(const struct call *c)
{
    seen.calls++;
    seen.ok += c->want.status == SY_OK;
    for (int i = 0; i < CASE_HARD; i++)
        seen.hard[i] += (int)(seen.noted >> i & 1u);
    seen.noted = 0;
    for (int i = 0; i < c->info->n_fields; i++) {
        const sy_field_info *const f = sy_op_field(c->info, i);
        const unsigned char *const at = (const unsigned char *)&c->args + f->offset;
        if (i < c->info->n_tensors && c->operand[i].given) {
            seen.given[i]++;
            seen.types[i] |= UINT64_C(1) << sy_type_of(c->operand[i].type);
            seen.empty += c->operand[i].bytes == 0;
        } else if (f->kind == SY_KIND_BOOL || f->kind == SY_KIND_ENUM)
            seen.values[i] |= UINT64_C(1) << *at;
        else if (f->kind == SY_KIND_FORMAT && c->format > 0)
            seen.values[i] |= UINT64_C(1) << c->format;
    }
}

static void cover_tensor(const struct call *c, int i)
{
    const sy_field_info *const f = sy_op_field(c->info, i);
    uint64_t missing = f->types & ~seen.types[i];
    for (int j = 0; j < c->info->n_tensors; j++) /* in its other role */
        if (strcmp(sy_op_field(c->info, j)->name, f->name) == 0)
            missing &= ~seen.types[j];
    if (seen.given[i] == 0 && !(f->flags & SY_FIELD_AGAIN))
        case_fail(c, NULL, "no call has %s", f->name);
    if ((f->flags & SY_FIELD_OPTIONAL) && seen.given[i] == seen.calls)
        case_fail(c, NULL, "every call has %s", f->name);
    for (int t = 0; t < SY_N_TYPES && seen.given[i] > 0; t++)
        if (missing >> t & 1u)
            case_fail(c, NULL, "no call has %s of %s", f->name, sy_type_name((sy_type)t));
}

static void cover_scalar(const struct call *c, int i)
{
    const sy_field_info *const f = sy_op_field(c->info, i);
    uint64_t want = f->kind == SY_KIND_BOOL ? 3 : 0;
    int n = 0;
    const bool words = f->kind == SY_KIND_ENUM || (f->kind == SY_KIND_FORMAT && seen.values[i] != 0);
    for (const char *word = f->words; words && word != NULL; n++) {
        const bool none = *word == '-' && (word[1] == ' ' || word[1] == '\0');
        const bool never = c->op->rejected != NULL && strcmp(word, c->op->rejected) == 0;
        want |= (uint64_t)(!none && !never) << n;
        word = strchr(word, ' ');
        if (word != NULL)
            word++;
    }
    if (want & ~seen.values[i])
        case_fail(c, NULL, "calls have only the values %llx of %s", (unsigned long long)seen.values[i],
                  f->name);
}

/* Random calls have given every tensor, and left out every optional one, in every accepted type; every flag and word; an
   empty tensor; and what the case lists. */
void check_coverage(const struct op_case *op)
{
    const struct call c = {.op = op, .info = sy_op_find(op->name)};
    snprintf(case_where, sizeof case_where, "coverage of %d calls", seen.calls);
    for (int i = 0; i < c.info->n_fields; i++)
        if (i < c.info->n_tensors)
            cover_tensor(&c, i);
        else
            cover_scalar(&c, i);
    for (int i = 0; i < CASE_HARD && op->hard[i] != NULL; i++)
        if (seen.hard[i] < 5)
            case_fail(&c, NULL, "\"%s\" only %d times", op->hard[i], seen.hard[i]);
    if (seen.ok < 10 || (seen.empty == 0 && !op->never_empty))
        case_fail(&c, NULL, "only %d successes, %d empty tensors", seen.ok, seen.empty);
    memset(&seen, 0, sizeof seen);
}
