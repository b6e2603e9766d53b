/*
 * Records what the library answers to random calls of every operator, most of them wrong in one to three places: for two
 * builds of libswitchyard, that the one rejects what the other rejects, in the same words, and computes the same bytes.
 *
 *     rejections [--seed S] [--calls N] [--first I] [--ops REGEX] [--out FILE]
 *
 * Call I of a seed is the same in every run of a program, and so is its line: I, operator, what was changed; of the query
 * status, sentence, fault and answer; of sy_infer status, sentence ("=": as the query's) and shapes; of the call status,
 * sentence and fault; a hash of all memory.
 * The program is linked with the shared library, so LD_LIBRARY_PATH chooses the build; cmp compares two files. It fails where
 * a call breaks what holds for all: a rejection writes nothing, and the call rejects what the query rejects.
 */
#include "rejections.h"

#include "../support.h"

#include <regex.h>
#include <signal.h>
#include <unistd.h>

_Alignas(4096) unsigned char arena[ARENA_BYTES], lent[LENT_BYTES];
static _Alignas(4096) unsigned char before[ARENA_BYTES];

/* Fewer empty tensors than pick makes: they end most calls early. */
int64_t extent(struct reader *r, int n)
{
    const int64_t size = pick(r, n);
    return size > 0 || chance(3) ? size : pick(r, n);
}

/* What support.c asks for; there is no device here. */
bool test_on_device(void)
{
    return false;
}

void *elsewhere(struct call *c, struct reader *r)
{
    (void)c;
    return arena + pick(r, ARENA_BYTES);
}

/* ---- A call -------------------------------------------------------------------------------------------------- */

/* A tensor in the next free bytes, with as much room behind it; one that does not fit has no data. */
void add(struct call *c, const char *name, const DLTensor **field, DLDataType type, int rank, int64_t d0,
         int64_t d1, int64_t d2)
{
    struct item *const x = &c->items[c->count++];
    const int64_t shape[] = {d0, d1, d2};
    int64_t n = 1;
    memset(x, 0, sizeof *x);
    for (int d = 0; d < MOST_RANK; d++)
        x->shape[d] = x->strides[d] = 1;
    for (int d = rank - 1; d >= 0; d--) {
        x->shape[d] = shape[d];
        x->strides[d] = n;
        n = shape[d] >= 0 && shape[d] < ARENA_BYTES && n < ARENA_BYTES ? n * shape[d] : ARENA_BYTES;
    }
    const size_t bytes = (size_t)n * element_bytes(type);
    const bool fits = bytes < ARENA_BYTES / 2 && c->used + 2 * bytes + 128 < ARENA_BYTES;
    x->name = name;
    x->field = field;
    x->t = sy_tensor(fits ? arena + c->used : NULL, type, rank, x->shape);
    c->used += fits ? (2 * bytes + 128) / 64 * 64 : 0;
    *field = &x->t;
}

void output(struct call *c)
{
    c->items[c->count - 1].output = true;
}

bool in_arena(const DLTensor *tensor, bool *empty)
{
    int64_t from, to;
    *empty = false;
    return tensor->data != NULL && tensor->shape != NULL && tensor->ndim >= 0 &&
           range_of(tensor, arena, sizeof arena, &from, &to, empty);
}

/* Tables of the makers become tensors like any other, which can be spoiled. */
static void adopt(struct call *c, const DLTensor **field, const char *name)
{
    const DLTensor *const own = *field;
    if (own < c->mesh_own || own >= c->mesh_own + 3)
        return;
    add(c, name, field, own->dtype, 2, own->shape[0], own->shape[1], 0);
    memcpy((*field)->data, own->data, (size_t)(own->shape[0] * own->shape[1]) * element_bytes(own->dtype));
}

/* A valid call with contents. */
static void make_call(struct call *c, int op)
{
    memset(c, 0, sizeof *c);
    memset(arena, 0xA5, sizeof arena);
    forget();
    c->op = op;
    fuzz_ops[op].make(c, NULL);
    for (int i = 0; i < c->count; i++)
        if (!c->items[i].output)
            fill(c, &c->items[i], chance(24));
    if (!sy_op_find(fuzz_ops[op].name)->mesh)
        return;
    const bool dispatch = fuzz_ops[op].make == make_a2a_dispatch;
    const int indices = field_number(c, dispatch ? "expert_indices" : "expert_metadata");
    adopt(c, &c->mesh[indices][0], "indices");
    adopt(c, &c->mesh[indices][1], "indices");
    adopt(c, dispatch ? &c->args.a2a_dispatch.expert_mapping : &c->args.a2a_combine.expert_mapping,
          "expert_mapping");
    if (chance(4))
        lengthen(c);
}

static void make(sy_ctx *ctx, struct trial *t, int op, uint64_t seed)
{
    static const int places[] = {0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 3, 3};
    static struct call before_it;
    rng = seed;
    memset(t, 0, sizeof *t);
    t->info = sy_op_find(fuzz_ops[op].name);
    t->args_bytes = t->info->args_bytes;
    if (t->info->mesh)
        forget_comms();
    if (t->info->mesh && chance(3)) { /* a routing of a dispatch, which may have failed */
        int dispatch = 0;
        while (fuzz_ops[dispatch].make != make_a2a_dispatch)
            dispatch++;
        make_call(&before_it, dispatch);
        if (sy_routing_create(ctx, mesh_comm(before_it.mesh_column), &t->routing) != SY_OK)
            abort();
        before_it.args.a2a_dispatch.routing = t->routing;
        const sy_op_info *const info = sy_op_find(fuzz_ops[dispatch].name);
        DLTensor both[SY_MAX_FIELDS][2];
        union test_args args;
        sy_comm *const comm = bind_args(&before_it, info, both, &args);
        (void)sy_call_mesh(ctx, comm, info, &args, info->args_bytes);
    }
    make_call(&t->c, op);
    for (int i = 0; i < t->c.count; i++)
        if (chance(6))
            t->c.items[i].t.strides = t->c.items[i].strides;
    if (t->routing != NULL)
        give_routing(t, &before_it);
    spoil_call(t, places[below(16)]);
}

static bool reaches_out(const DLTensor *t)
{
    bool empty;
    return t->data != NULL && t->shape != NULL && t->ndim >= 0 && !in_arena(t, &empty) && !empty;
}

/* Its end is no address, however it is counted: no call can accept it. */
static bool uncountable(const DLTensor *t)
{
    double n = 1, reach = 0;
    for (int d = 0; d < t->ndim; d++) {
        n *= (double)t->shape[d];
        reach +=
            t->strides != NULL && t->strides[d] > 0 ? (double)(t->shape[d] - 1) * (double)t->strides[d] : 0;
    }
    return (n > reach ? n : reach) * (double)element_bytes(t->dtype) > 0x1.01p63 ||
           t->byte_offset > UINT64_MAX - 4096;
}

/* Takes the data of tensors that reach outside the arena, unless the call cannot be accepted: what the query rejects is
   rejected, but contents of another device may be read before. */
static void confine(struct call *c, bool rejected)
{
    for (int i = 0; i < c->count && !rejected; i++)
        if (reaches_out(&c->items[i].t) && !uncountable(&c->items[i].t))
            c->items[i].t.data = NULL;
}

/* Operators may walk rows without elements one by one, and more of them than a test has time for. */
static bool endless(const struct call *c)
{
    for (int i = 0; i < c->count; i++) {
        const DLTensor *const t = &c->items[i].t;
        bool many = false;
        for (int d = 0; t->shape != NULL && d < t->ndim && (t->shape[d] != 0 || many); d++) {
            if (t->shape[d] == 0)
                return true;
            many |= t->shape[d] > 1 << 20;
        }
    }
    return false;
}

/* ---- Running ------------------------------------------------------------------------------------------------- */

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

static uint64_t hash_of(const void *data, size_t bytes, uint64_t hash)
{
    const unsigned char *const at = data;
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        memcpy(&word, at + i, bytes - i < 8 ? bytes - i : 8);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
    }
    return hash;
}

static struct {
    struct trial trial;
    int64_t index, broken;
    FILE *out;
} run;

static void must(bool condition, const char *what, const struct trial *t, const char *sentence)
{
    if (condition)
        return;
    run.broken++;
    fprintf(stderr, "call %lld, %s (%s): %s: \"%s\"\n", (long long)run.index, t->info->name, t->what, what,
            sentence);
}

static void stopped(int signal)
{
    char text[300];
    /* NOLINTNEXTLINE(bugprone-signal-handler): the process is lost anyway */
    const int n = snprintf(text, sizeof text, "signal %d in call %lld (%s)\n", signal, (long long)run.index,
                           run.trial.what);
    (void)!write(STDERR_FILENO, text, (size_t)n);
    _exit(3);
}

static struct answer ask(sy_ctx *ctx, sy_comm *comm, struct trial *t, const void *args, sy_query *q)
{
    memset(q, 0, sizeof *q);
    return answer(ctx, sy_call_mesh_query(ctx, comm, t->info, args, t->args_bytes, t->no_query ? NULL : q));
}

static void infer(sy_ctx *ctx, sy_comm *comm, struct trial *t, const void *args, const struct answer *asked)
{
    sy_shape shapes[SY_MAX_FIELDS];
    const struct answer a =
        answer(ctx, sy_infer_mesh(ctx, comm, t->info, args, t->args_bytes, shapes, SY_MAX_FIELDS));
    if (!t->info->mesh && !t->no_query)
        must(a.status == asked->status && strcmp(a.sentence, asked->sentence) == 0,
             "sy_infer and the query disagree", t, a.sentence);
    fprintf(run.out, "\t%d %s", (int)a.status, strcmp(a.sentence, asked->sentence) == 0 ? "=" : a.sentence);
    for (int i = 0; a.status == SY_OK && i < t->info->n_tensors; i++) {
        if (shapes[i].rank < 0)
            continue;
        fprintf(run.out, " %s %d/%d/%d", sy_op_field(t->info, i)->name, shapes[i].type.code,
                shapes[i].type.bits, shapes[i].type.lanes);
        for (int d = 0; d < shapes[i].rank; d++) {
            must(shapes[i].extent[d] >= -1, "sy_infer gives a negative extent", t, t->info->fields[i].name);
            fprintf(run.out, "%c%lld", d == 0 ? '[' : ',', (long long)shapes[i].extent[d]);
        }
        fprintf(run.out, "]");
    }
}

/* Status, sentence and numbers agree with each other. */
static void print_answer(const struct trial *t, const struct answer *a)
{
    const sy_fault *const f = &a->fault;
    must((a->status == SY_OK) == (a->sentence[0] == '\0'), "status and sentence disagree", t, a->sentence);
    must(f->status == a->status, "status and fault disagree", t, a->sentence);
    fprintf(run.out, "\t%d %s\t%d %s %lld %lld %lld %lld", (int)a->status, a->sentence, (int)f->code,
            f->argument, (long long)f->batch, (long long)f->position, (long long)f->value,
            (long long)f->limit);
}

/* The arguments as they are passed now, and the comm they are passed with. */
static sy_comm *pass_args(struct trial *t, DLTensor (*both)[2])
{
    union test_args args;
    sy_comm *const comm = bind_args(&t->c, t->info, both, &args);
    memcpy(t->args, &args, t->info->args_bytes);
    return comm;
}

/* Makes the three calls and writes their line; returns the answer of the call. */
static struct answer try_one(sy_ctx *ctx, struct trial *t)
{
    const void *const args = t->no_args ? NULL : t->args;
    DLTensor both[SY_MAX_FIELDS][2];
    void *data[MOST_ITEMS];
    sy_query q;
    if (sy_ctx_set_workspace(ctx, t->workspace, t->workspace_bytes) != SY_OK)
        abort();
    memcpy(before, arena, sizeof arena);
    for (int i = 0; i < t->c.count;
         i++) { /* a query takes tensors without data, sy_infer reads one that has some */
        data[i] = t->c.items[i].t.data;
        if (reaches_out(&t->c.items[i].t))
            t->c.items[i].t.data = NULL;
    }
    sy_comm *const comm = pass_args(t, both);
    const struct answer asked = ask(ctx, comm, t, args, &q);
    const bool accepted = asked.status == SY_OK || t->no_query;
    fprintf(run.out, "%lld\t%s\t%s", (long long)run.index, t->info->name, t->what);
    print_answer(t, &asked);
    fprintf(run.out, " %lld %lld %llu", (long long)q.rows, (long long)q.slots,
            (unsigned long long)q.workspace_bytes);
    infer(ctx, comm, t, args, &asked);
    must(memcmp(arena, before, sizeof arena) == 0, "the query or sy_infer wrote", t, asked.sentence);
    if (accepted && endless(&t->c)) {
        fprintf(run.out, "\tnot called\n");
        return asked;
    }
    for (int i = 0; i < t->c.count; i++)
        t->c.items[i].t.data = data[i];
    confine(&t->c, !accepted && !t->info->mesh);
    pass_args(t, both);
    const struct answer a = answer(ctx, sy_call_mesh(ctx, comm, t->info, args, t->args_bytes));
    must(accepted || a.status != SY_OK, "the call accepts what the query rejects", t, asked.sentence);
    if (t->workspace != NULL && t->workspace != lent) /* scratch may be anything */
        memcpy(t->workspace, before + ((unsigned char *)t->workspace - arena), t->workspace_bytes);
    const bool changed = memcmp(arena, before, sizeof arena) != 0;
    must(a.status == SY_OK || !changed, "a rejected call wrote", t, a.sentence);
    print_answer(t, &a);
    fprintf(run.out, changed ? "\t%016llx\n" : "\tunchanged\n",
            (unsigned long long)hash_of(arena, sizeof arena, 1));
    return a;
}

/* ---- Summary ------------------------------------------------------------------------------------------------- */

struct seen {
    int64_t calls, accepted, sentences;
};
static struct seen seen[64];
static uint64_t known[1 << 16]; /* hashes of sentences without their numbers */

static void count(int op, const struct answer *a)
{
    char text[sizeof a->sentence];
    size_t n = 0;
    for (const char *from = a->sentence; *from != '\0'; from++)
        if (strchr("0123456789-,", *from) == NULL)
            text[n++] = *from;
    seen[op].calls++;
    seen[op].accepted += a->status == SY_OK;
    const uint64_t hash = hash_of(text, n, (uint64_t)op + 2) | 1;
    size_t at = hash % (sizeof known / sizeof *known);
    while (known[at] != 0 && known[at] != hash)
        at = (at + 1) % (sizeof known / sizeof *known);
    seen[op].sentences += known[at] == 0 && n > 0;
    known[at] = hash;
}

static void print_summary(void)
{
    struct seen all = {0};
    printf("%-24s %9s %9s %9s %9s\n", "operator", "calls", "accepted", "rejected", "sentences");
    for (int op = 0; op <= n_fuzz_ops; op++) {
        const struct seen *const s = op < n_fuzz_ops ? &seen[op] : &all;
        if (s->calls > 0)
            printf("%-24s %9lld %9lld %9lld %9lld\n", op < n_fuzz_ops ? fuzz_ops[op].name : "all",
                   (long long)s->calls, (long long)s->accepted, (long long)(s->calls - s->accepted),
                   (long long)s->sentences);
        all.calls += s->calls;
        all.accepted += s->accepted;
        all.sentences += s->sentences;
    }
}

/* ---- The program ---------------------------------------------------------------------------------------------- */

struct options {
    uint64_t seed;
    int64_t calls, first;
    const char *ops, *out;
};

static bool read_options(struct options *o, int argc, char **argv)
{
    for (int i = 1; i < argc; i += 2) {
        const char *const value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--seed") == 0)
            o->seed = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--calls") == 0)
            o->calls = strtoll(value, NULL, 10);
        else if (strcmp(argv[i], "--first") == 0)
            o->first = strtoll(value, NULL, 10);
        else if (strcmp(argv[i], "--ops") == 0)
            o->ops = value;
        else if (strcmp(argv[i], "--out") == 0)
            o->out = value;
        else
            return false;
    }
    return true;
}

int main(int argc, char **argv)
{
    struct trial *const t = &run.trial;
    struct options o = {.seed = 1, .calls = 2000, .ops = ".", .out = "/dev/null"};
    regex_t chosen;
    sy_ctx *ctx = NULL;
    if (!read_options(&o, argc, argv) || regcomp(&chosen, o.ops, REG_EXTENDED | REG_NOSUB) != 0 ||
        (run.out = fopen(o.out, "w")) == NULL) {
        fprintf(stderr, "rejections [--seed S] [--calls N] [--first I] [--ops REGEX] [--out FILE]\n");
        return 2;
    }
    signal(SIGSEGV, stopped);
    signal(SIGABRT, stopped);
    signal(SIGFPE, stopped);
    if (sy_ctx_create(&ctx, &(sy_ctx_options){.threads = 1, .alloc = small_alloc, .dealloc = small_free}) !=
        SY_OK)
        return 2;
    for (int64_t i = o.first; i < o.first + o.calls; i++) {
        const int op = (int)(i % n_fuzz_ops);
        if (regexec(&chosen, fuzz_ops[op].name, 0, NULL, 0) != 0)
            continue;
        run.index = i;
        make(ctx, t, op, o.seed << 32 ^ (uint64_t)i);
        const struct answer a = try_one(ctx, t);
        sy_routing_destroy(t->routing);
        count(op, &a);
    }
    forget_comms();
    sy_ctx_destroy(ctx);
    regfree(&chosen);
    forget();
    print_summary();
    return fclose(run.out) != 0 || run.broken > 0;
}
