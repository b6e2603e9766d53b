/*
 * Random calls of every operator on the CPU and on a device: status, sentence, fault and every byte of memory must be the
 * same. The calls are those of tests/fuzz, in larger sizes and with contents that are valid, nearly valid, or any bytes.
 *
 *     cuda_random [calls per operator [seed [operator]]]
 *
 * A difference is printed with its operator and the seed that makes the call again as the first one. The device is that of
 * SWITCHYARD_TEST_CUDA_LIBRARY, or the one of this machine; without one everything is skipped.
 */
#include "random.h"

#include "support.h"

/* ---- Choices ------------------------------------------------------------------------------------------------ */

static int large_extent; /* the one of this call that is large, counted down */
static int64_t most_extent;

int64_t extent(struct reader *r, int n)
{
    if (large_extent-- == 0)
        return below(most_extent);
    return chance(6) ? below(70) : pick(r, n);
}

/* ---- Memory ------------------------------------------------------------------------------------------------- */

/* What the tensors of a call lie in; several may share one. */
struct block {
    unsigned char *memory, *before, *want;
    size_t bytes;
};
static struct block blocks[MOST_ITEMS];

/* Gaps between rows, a stride of any element, backwards: most tensors have none of it. */
static void choose_strides(struct item *x, int rank)
{
    int64_t stride = 1;
    const int64_t kind = chance(30) ? 9 : below(9), odd = below(rank > 0 ? rank : 1);
    for (int d = rank - 1; d >= 0; d--) {
        if (kind == 9 && d == odd)
            stride *= 1 + below(3);
        else if ((kind == 7 || kind == 8) && d == rank - 2)
            stride += below(9);
        x->strides[d] = stride;
        stride *= x->shape[d] > 0 ? x->shape[d] : 1;
    }
    if (kind == 9 && rank > 0 && chance(4))
        x->strides[odd] = chance(2) ? -x->strides[odd] : 0;
    if (kind >= 6)
        x->t.strides = x->strides;
}

void add(struct call *c, const char *name, const DLTensor **field, DLDataType type, int rank, int64_t d0,
         int64_t d1, int64_t d2)
{
    struct item *const x = &c->items[c->count++];
    const int64_t shape[] = {d0, d1, d2};
    memset(x, 0, sizeof *x);
    for (int d = 0; d < MOST_RANK; d++)
        x->shape[d] = d < rank ? shape[d] : 1;
    for (int d = 0; d < MOST_RANK; d++)
        x->strides[d] = 1;
    x->name = name;
    x->field = field;
    x->t = sy_tensor(NULL, type, rank, x->shape);
    *field = &x->t;
}

void output(struct call *c)
{
    c->items[c->count - 1].output = true;
}

void *elsewhere(struct call *c, struct reader *r)
{
    const int i = pick(r, c->count);
    return blocks[i].memory + below((int64_t)blocks[i].bytes / 2 + 1);
}

/* Memory of its own for each tensor, at any alignment that its elements may have, now and then at any at all. */
static void place(struct call *c)
{
    for (int i = 0; i < c->count; i++) {
        struct item *const x = &c->items[i];
        const int64_t size = (int64_t)element_bytes(x->t.dtype);
        int64_t from = 0, to = 0;
        bool empty;
        x->t.data = blocks; /* any address: the range is relative to it */
        choose_strides(x, x->t.ndim);
        range_of(&x->t, blocks, SIZE_MAX / 4, &from, &to, &empty);
        const int64_t offset = chance(4) ? below(5) * size : 0;
        blocks[i].bytes = (size_t)(empty ? 0 : to - from + offset);
        blocks[i].memory = buf_new(blocks[i].bytes, (size_t)(chance(3)    ? below(16) * size
                                                             : chance(60) ? below(16)
                                                                          : 0));
        x->t.byte_offset = (uint64_t)offset;
        x->t.data = blocks[i].memory + (empty ? 0 : -from);
    }
}

static bool inside(const struct call *c, const DLTensor *t)
{
    for (int i = 0; i < c->count; i++) {
        int64_t from, to;
        bool empty;
        if (range_of(t, blocks[i].memory, blocks[i].bytes, &from, &to, &empty) || empty)
            return true;
    }
    return false;
}

/* A tensor that spoiling made larger than its memory loses its data. */
static void confine(struct call *c)
{
    for (int i = 0; i < c->count; i++) {
        DLTensor *const t = &c->items[i].t;
        if (t->data != NULL && t->shape != NULL && t->ndim >= 0 && !inside(c, t))
            t->data = NULL;
    }
}

/* ---- One call ----------------------------------------------------------------------------------------------- */

struct outcome {
    sy_status status;
    char sentence[512];
    sy_fault fault;
};

static void go_to(bool device)
{
    device ? setenv("SWITCHYARD_TEST_DEVICE", "cuda", 1) : unsetenv("SWITCHYARD_TEST_DEVICE");
}

static struct outcome run(sy_ctx *ctx, struct call *c, bool device)
{
    const sy_op_info *const info = sy_op_find(fuzz_ops[c->op].name);
    struct outcome out = {.status = SY_OK};
    go_to(device);
    out.status = sy_call(ctx, info, &c->args, info->args_bytes);
    go_to(false);
    snprintf(out.sentence, sizeof out.sentence, "%s", sy_ctx_error(ctx));
    assert_int_equal(sy_ctx_fault(ctx, &out.fault), SY_OK);
    return out;
}

static bool same_fault(const sy_fault *a, const sy_fault *b)
{
    return a->status == b->status && a->code == b->code && a->batch == b->batch &&
           a->position == b->position && a->value == b->value && a->limit == b->limit &&
           (a->argument == b->argument ||
            (a->argument != NULL && b->argument != NULL && strcmp(a->argument, b->argument) == 0));
}

static void make(struct call *c, int op, uint64_t seed)
{
    static struct reader nothing;
    rng = seed;
    large_extent = (int)below(12);
    most_extent = chance(3) ? 6000 : 600;
    memset(c, 0, sizeof *c);
    forget();
    c->op = op;
    fuzz_ops[op].make(c, &nothing);
    place(c);
    const bool disturbed = chance(3);
    for (int i = 0; i < c->count; i++)
        if (!c->items[i].output)
            fill(c, &c->items[i], disturbed);
    if (c->count > 1 && chance(25)) { /* one tensor over another of its size: some operators work in place */
        const struct item *const from = &c->items[below(c->count)];
        struct item *const to = &c->items[below(c->count)];
        if (memcmp(from->shape, to->shape, sizeof to->shape) == 0 &&
            element_bytes(from->t.dtype) == element_bytes(to->t.dtype)) {
            to->t.data = from->t.data;
            to->t.byte_offset = from->t.byte_offset;
            to->t.strides = from->t.strides;
        }
    }
    for (int64_t n = chance(8) ? 1 + below(2) : 0; n > 0; n--)
        spoil(c, &nothing);
    confine(c);
    settle(c);
}

static void keep(struct call *c, size_t which)
{
    for (int i = 0; i < c->count; i++) {
        unsigned char **const copy = which == 0 ? &blocks[i].before : &blocks[i].want;
        *copy = malloc(blocks[i].bytes + 1);
        memcpy(*copy, blocks[i].memory, blocks[i].bytes);
        buf_check(blocks[i].memory);
    }
}

static void put_back(struct call *c)
{
    for (int i = 0; i < c->count; i++)
        memcpy(blocks[i].memory, blocks[i].before, blocks[i].bytes);
}

/* The first difference in words; NULL: there is none. */
static const char *difference(struct call *c, const struct outcome *want, const struct outcome *got)
{
    static char text[1200];
    if (want->status == SY_ERR_NOMEM || got->status == SY_ERR_NOMEM)
        return NULL; /* they need different amounts */
    if (want->status != got->status || strcmp(want->sentence, got->sentence) != 0) {
        snprintf(text, sizeof text, "\"%s\" (%d) on the CPU, \"%s\" (%d) on the device", want->sentence,
                 (int)want->status, got->sentence, (int)got->status);
        return text;
    }
    if (!same_fault(&want->fault, &got->fault))
        return "the faults differ";
    for (int i = 0; i < c->count; i++) {
        buf_check(blocks[i].memory);
        for (size_t k = 0; k < blocks[i].bytes; k++)
            if (blocks[i].memory[k] != blocks[i].want[k]) {
                snprintf(text, sizeof text, "byte %zu of %zu of %s is %02x on the CPU, %02x on the device", k,
                         blocks[i].bytes, c->items[i].name, blocks[i].want[k], blocks[i].memory[k]);
                return text;
            }
    }
    return NULL;
}

static void describe(struct call *c)
{
    const sy_op_info *const info = sy_op_find(fuzz_ops[c->op].name);
    for (int i = 0; i < c->count; i++) {
        const struct item *const x = &c->items[i];
        print_error("    %s %s:", *x->field == &x->t ? "" : "not", x->name);
        for (int d = 0; d < x->t.ndim && d < 8; d++)
            print_error(" %lld", (long long)x->shape[d]);
        print_error(", type %d/%d, address %% 64 = %d%s\n", x->t.dtype.code, x->t.dtype.bits,
                    (int)(((uintptr_t)x->t.data + x->t.byte_offset) % 64),
                    x->t.strides != NULL ? ", strides" : "");
    }
    for (int i = info->n_tensors; i < info->n_fields; i++)
        if (sy_op_field(info, i)->kind != SY_KIND_F32 && sy_op_field(info, i)->kind != SY_KIND_F64)
            print_error("    %s %lld\n", sy_op_field(info, i)->name,
                        (long long)scalar_of(c, sy_op_field(info, i)->name));
}

/* ---- Tests -------------------------------------------------------------------------------------------------- */

static const int processors[] = {0, 1, 3}; /* that launches are sized for; 0: all */
static sy_ctx *on_cpu, *on_device[COUNT_OF(processors)];
static int64_t n_calls;
static uint64_t first_seed = 1;

static void calls_of(void **state)
{
    const int op = (int)(*(const struct fuzz_op **)state - fuzz_ops);
    struct call *const c = malloc(sizeof *c);
    int64_t accepted = 0, refused = 0, late = 0, differences = 0, by_noise[SY_NOISE_CDF + 1] = {0};
    sy_query query;
    const sy_op_info *const info = sy_op_find(fuzz_ops[op].name);
    for (int64_t i = 0; i < n_calls; i++) {
        const uint64_t seed = first_seed + (uint64_t)i;
        make(c, op, seed);
        keep(c, 0);
        const bool asked = sy_call_query(on_cpu, info, &c->args, info->args_bytes, &query) == SY_OK;
        const struct outcome want = run(on_cpu, c, false);
        keep(c, 1);
        put_back(c);
        if (getenv("SWITCHYARD_TEST_TALK") != NULL)
            print_message("%s %llu: %s\n", info->name, (unsigned long long)seed, want.sentence);
        const struct outcome got = run(on_device[seed % COUNT_OF(processors)], c, true);
        const char *const why = difference(c, &want, &got);
        if (why != NULL && differences++ < 4) {
            print_error("%s, seed %llu, %d processors: %s\n", info->name, (unsigned long long)seed,
                        processors[seed % COUNT_OF(processors)], why);
            describe(c);
        }
        accepted += want.status == SY_OK;
        if (want.status == SY_OK && strcmp(info->name, "sample") == 0)
            by_noise[c->args.sample.noise]++;
        refused += want.status != SY_OK;
        late += want.status != SY_OK && asked;
        for (int k = 0; k < c->count; k++) {
            free(blocks[k].before);
            free(blocks[k].want);
            buf_free(blocks[k].memory);
        }
    }
    print_message("%s: %lld accepted, %lld rejected, %lld after the query\n", info->name, (long long)accepted,
                  (long long)refused, (long long)late);
    if (strcmp(info->name, "sample") == 0)
        print_message("accepted by noise: auto %lld, none %lld, q %lld, race %lld, cdf %lld\n",
                      (long long)by_noise[SY_NOISE_AUTO], (long long)by_noise[SY_NOISE_NONE],
                      (long long)by_noise[SY_NOISE_Q], (long long)by_noise[SY_NOISE_RACE],
                      (long long)by_noise[SY_NOISE_CDF]);
    free(c);
    assert_int_equal(differences, 0);
    if (n_calls >= 40) /* both must have occurred, else the contents above are no test of this operator */
        assert_true(accepted >= n_calls / 10 && refused > 0);
}

static int open_them(void **state)
{
    (void)state;
    go_to(false);
    if (sy_ctx_create(&on_cpu,
                      &(sy_ctx_options){.threads = 2, .alloc = small_alloc, .dealloc = small_free}) != SY_OK)
        return -1;
    go_to(true);
    for (size_t i = 0; i < COUNT_OF(processors); i++)
        if (sy_ctx_create(&on_device[i], &(sy_ctx_options){.threads = processors[i]}) != SY_OK)
            return -1;
    go_to(false);
    return 0;
}

static int close_them(void **state)
{
    (void)state;
    sy_ctx_destroy(on_cpu);
    for (size_t i = 0; i < COUNT_OF(processors); i++)
        sy_ctx_destroy(on_device[i]);
    return 0;
}

/* Without a device there is one test, which is skipped. */
static void no_device(void **state)
{
    (void)state;
    skip_because("there is no CUDA device here");
}

int main(int argc, char **argv)
{
    struct test_list list = {0};
    n_calls = argc > 1 ? strtoll(argv[1], NULL, 10) : test_full() ? 80 : 12;
    first_seed = argc > 2 ? strtoull(argv[2], NULL, 10) : first_seed;
    test_lend_what_is_asked();
    if (open_them(NULL) != 0)
        test_add(&list, "no device", no_device, NULL);
    for (int i = 0; on_device[0] != NULL && i < n_fuzz_ops; i++)
        if (!sy_op_find(fuzz_ops[i].name)->mesh && strcmp(fuzz_ops[i].name, "moe_place") != 0 &&
            (argc <= 3 || strcmp(argv[3], fuzz_ops[i].name) == 0))
            test_add(&list, fuzz_ops[i].name, calls_of, (void *)&fuzz_ops[i]);
    const int failed = test_run(&list, "cuda_random");
    if (on_device[0] != NULL)
        close_them(NULL);
    forget();
    return failed;
}
