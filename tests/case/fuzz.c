/*
 * Random wrong calls. Two users:
 *
 *     cases --record FILE [--seed S] [--calls N] [--first I] [OP]...
 *
 * writes a line for each call: number, operator, what was changed; of the query status, sentence and fault; of sy_infer
 * status and shapes; of the call status, sentence and fault; a hash of all memory. cases_shared is linked with the shared
 * library, so LD_LIBRARY_PATH chooses the build, and cmp compares two: that the one rejects what the other rejects, in the
 * same words, and computes the same bytes.
 *
 *     fuzz_cases               libFuzzer: its bytes are the reader
 *
 * For both holds: a rejection writes nothing and has a sentence, the call rejects what the query rejects, sy_infer agrees
 * with the query, and a success writes only into outputs.
 */
#include "fuzz.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- Memory ---- */

/* Where the elements of a tensor lie, in bytes from its data; doubles, since nothing limits a wrong one. */
static bool range_of(const DLTensor *t, double *from, double *to)
{
    const size_t bytes = ((size_t)t->dtype.bits * t->dtype.lanes + 7) / 8;
    const double size = (double)bytes;
    double stride = 1, low = 0, high = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        const double step = t->strides != NULL ? (double)t->strides[d] : stride;
        if (t->shape[d] <= 0)
            return false;
        *(step < 0 ? &low : &high) += (double)(t->shape[d] - 1) * step;
        stride *= (double)t->shape[d];
    }
    *from = low * size + (double)t->byte_offset;
    *to = high * size + (double)t->byte_offset;
    return true;
}

static bool well_formed(const DLTensor *t)
{
    return t->data != NULL && t->shape != NULL && t->ndim >= 0 && t->ndim <= SY_MAX_RANK;
}

/* Whether an element lies outside the memory of the call. */
static bool reaches_out(const struct call *c, const DLTensor *t)
{
    double from, to;
    if (!well_formed(t) || !range_of(t, &from, &to))
        return false;
    for (int i = 0; i < c->n_operands; i++) {
        const struct operand *const x = &c->operand[i];
        if (!x->given || (uintptr_t)t->data < (uintptr_t)x->block ||
            (uintptr_t)t->data > (uintptr_t)x->block + x->block_bytes)
            continue;
        const double at = (double)((uintptr_t)t->data - (uintptr_t)x->block);
        return at + from < 0 || at + to > (double)x->block_bytes;
    }
    return true;
}

/* Rows without elements may be walked one by one, and more of them than a test has time for. */
static bool endless(const struct call *c)
{
    for (int i = 0; i < c->n_operands; i++) {
        const DLTensor *const t = &c->operand[i].t;
        bool many = false;
        for (int d = 0; c->operand[i].given && t->shape != NULL && d < t->ndim && d < SY_MAX_RANK; d++) {
            if (t->shape[d] == 0 && many)
                return true;
            many |= t->shape[d] > 1 << 20;
        }
    }
    return false;
}

static uint64_t hash_blocks(const struct call *c)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int i = 0; i < c->n_operands; i++)
        if (c->operand[i].given)
            hash = hash_bytes(hash, c->operand[i].block, c->operand[i].block_bytes);
    return hash;
}

static void remember(struct call *c)
{
    for (int i = 0; i < c->n_operands; i++)
        if (c->operand[i].given)
            memcpy(c->operand[i].before, c->operand[i].block, c->operand[i].block_bytes);
}

/* A byte that the call wrote; only_inputs: into an operand that is no output. */
static bool wrote(const struct call *c, bool only_inputs)
{
    bool any = false;
    for (int i = 0; i < c->n_operands; i++) {
        const struct operand *const x = &c->operand[i];
        if (x->given && !(only_inputs && x->out))
            any |= memcmp(x->before, x->block, x->block_bytes) != 0;
    }
    return any;
}

/* ---- A trial ---- */

struct answer {
    sy_status status;
    sy_fault fault;
    char sentence[600];
};

static struct answer answer(const sy_ctx *ctx, sy_status status)
{
    struct answer a = {.status = status};
    snprintf(a.sentence, sizeof a.sentence, "%s", sy_ctx_error(ctx));
    if (sy_ctx_fault(ctx, &a.fault) != SY_OK)
        abort();
    return a;
}

static FILE *record;

static void print_answer(const struct answer *a)
{
    const sy_fault *const f = &a->fault;
    if (record != NULL)
        fprintf(record, "\t%d %s\t%d %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64, (int)a->status,
                a->sentence, (int)f->code, f->argument, f->batch, f->position, f->value, f->limit);
}

static void must(bool condition, const struct trial *t, const char *what, const struct answer *a)
{
    if (!condition)
        case_fail(t->c, NULL, "(%s) %s: \"%s\"", t->what, what, a->sentence);
}

static void infer(sy_ctx *ctx, struct trial *t, const void *args, const struct answer *asked)
{
    static sy_shape shapes[CASE_OPERANDS];
    const sy_op_info *const info = t->c->info;
    const struct answer a = answer(ctx, op_infer(t->c, ctx, args, t->args_bytes, shapes));
    must(a.status == asked->status && strcmp(a.sentence, asked->sentence) == 0, t,
         "sy_infer and the query disagree", &a);
    for (int i = 0; a.status == SY_OK && i < t->c->n_described; i++) {
        const sy_field_info *const f = sy_op_field(info, i % info->n_tensors);
        const bool out = (f->flags & (SY_FIELD_OUT | SY_FIELD_INOUT)) == SY_FIELD_OUT;
        must(shapes[i].rank == -1 || (out && shapes[i].rank >= f->min_rank && shapes[i].rank <= f->max_rank),
             t, "sy_infer gives another rank than the field has", &a);
        must(!out || (f->flags & SY_FIELD_OPTIONAL) || shapes[i].rank >= 0, t,
             "sy_infer gives a required output no shape", &a);
        for (int d = 0; d < shapes[i].rank; d++) {
            must(shapes[i].extent[d] >= -1, t, "sy_infer gives a negative extent", &a);
            if (record != NULL)
                fprintf(record, "%s%" PRId64, d == 0 ? " " : ",", shapes[i].extent[d]);
        }
    }
}

/* A query takes tensors without data, and sy_infer reads some that have it. What the query rejects cannot be accepted:
   then tensors keep data that they reach beyond. Not those of a mesh: what of a device reaches where another's are would be
   found before the fault of the other. */
static void take_data(struct call *c, void **data)
{
    for (int i = 0; i < c->n_operands; i++) {
        data[i] = c->operand[i].t.data;
        if (c->operand[i].given && reaches_out(c, &c->operand[i].t))
            c->operand[i].t.data = NULL;
    }
}

static struct answer try_one(sy_ctx *ctx, struct trial *t)
{
    struct call *const c = t->c;
    union {
        unsigned char bytes[sizeof(union test_args) + 64];
        max_align_t align;
    } room = {{0}};
    void *data[CASE_OPERANDS];
    sy_query q;
    const void *const args = t->no_args ? NULL : room.bytes;
    take_data(c, data);
    memcpy(room.bytes, call_bind(c), c->info->args_bytes);
    if (t->newer > 0)
        room.bytes[t->newer] = 1;
    remember(c);
    if (t->workspace != NULL)
        sy_ctx_set_workspace(ctx, t->workspace, t->workspace_bytes);
    const struct answer asked = answer(ctx, op_query(c, ctx, args, t->args_bytes, &q));
    print_answer(&asked);
    infer(ctx, t, args, &asked);
    must(!wrote(c, false), t, "the query or sy_infer wrote", &asked);
    struct answer a = asked;
    if (asked.status != SY_OK && c->comm == NULL)
        for (int i = 0; i < c->n_operands; i++)
            c->operand[i].t.data = data[i];
    if (asked.status != SY_OK || !endless(c))
        a = answer(ctx, op_call(c, ctx, args, t->args_bytes));
    if (t->workspace != NULL)
        sy_ctx_set_workspace(ctx, NULL, 0);
    print_answer(&a);
    must(asked.status == SY_OK || a.status != SY_OK, t, "the call accepts what the query rejects", &asked);
    must((a.status == SY_OK) == (a.sentence[0] == '\0') && a.fault.status == a.status, t,
         "status, sentence and fault disagree", &a);
    const bool scratch = t->workspace != NULL && t->workspace != t->lent; /* may be anything */
    must(scratch || a.status == SY_OK || !wrote(c, false), t, "a rejected call wrote", &a);
    if (record != NULL)
        fprintf(record, "\t%016" PRIx64 "\n", scratch ? 0 : hash_blocks(c));
    return a;
}

static struct answer make_and_try(sy_ctx *ctx, struct trial *t, const struct op_case *op, struct reader *in)
{
    static const int places[] = {0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3};
    static struct call c;
    forget_comms(); /* sentences have the number of a call on its comm */
    call_make_only(&c, op, in);
    memset(t, 0, sizeof *t);
    t->c = &c;
    t->s = case_stream(&c, "change");
    t->args_bytes = c.info->args_bytes;
    const uint64_t layout = (uint64_t)stream_below(t->s, 3);
    call_lay_out(&c, layout, stream_chance(t->s, 4));
    corrupt_call(t, places[stream_below(t->s, 16)]);
    if (record != NULL)
        fprintf(record, "\t%s\t%s", op->name, t->what);
    const struct answer a = try_one(ctx, t);
    if (t->what[0] == '\0') {
        op->oracle(&c);
        call_check(&c, ctx, a.status);
    }
    call_free(&c);
    return a;
}

/* ---- The recorder ---- */

struct tally {
    int64_t calls, accepted, sentences;
};
static uint64_t known[1 << 16]; /* hashes of sentences without their numbers */

static void count(struct tally *seen, int op, const struct answer *a)
{
    char text[sizeof a->sentence];
    size_t n = 0;
    for (const char *from = a->sentence; *from != '\0'; from++)
        if (strchr("0123456789-,", *from) == NULL)
            text[n++] = *from;
    seen->calls++;
    seen->accepted += a->status == SY_OK;
    const uint64_t hash = hash_bytes((uint64_t)op + 2, text, n) | 1;
    size_t at = hash % (sizeof known / sizeof *known);
    while (known[at] != 0 && known[at] != hash)
        at = (at + 1) % (sizeof known / sizeof *known);
    seen->sentences += known[at] == 0 && n > 0;
    known[at] = hash;
}

void record_calls(const struct op_case *const *ops, int n, const char *path, uint64_t seed, int64_t first,
                  int64_t calls)
{
    static struct trial trial;
    struct tally *const seen = calloc((size_t)n, sizeof *seen);
    record = fopen(path, "w");
    if (record == NULL || seen == NULL)
        abort();
    for (int64_t i = first; i < first + calls; i++) {
        struct reader in = reader_seed(seed << 32 ^ (uint64_t)i);
        snprintf(case_where, sizeof case_where, "call %" PRId64, i);
        fprintf(record, "%" PRId64, i);
        const struct answer a = make_and_try(case_ctx[0], &trial, ops[i % n], &in);
        count(&seen[i % n], (int)(i % n), &a);
    }
    printf("%-24s %9s %9s %9s\n", "operator", "calls", "accepted", "sentences");
    for (int i = 0; i < n; i++)
        printf("%-24s %9" PRId64 " %9" PRId64 " %9" PRId64 "\n", ops[i]->name, seen[i].calls,
               seen[i].accepted, seen[i].sentences);
    free(seen);
    if (fclose(record) != 0)
        abort();
    record = NULL;
}

/* ---- The fuzzer ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct trial trial;
    if (size < 2)
        return 0;
    if (n_case_ctx == 0)
        case_open();
    const struct op_case *const op = all_cases[data[0] % n_all_cases];
    struct reader in = reader_bytes(data + 2, size - 2);
    snprintf(case_where, sizeof case_where, "bytes");
    if (op != NULL)
        make_and_try(case_ctx[data[1] % n_case_ctx], &trial, op, &in);
    return 0;
}
