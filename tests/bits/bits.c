/*
 * Prints one 64-bit hash per operator and scenario over every output byte, status and fault. Two builds of
 * the library that print the same lines give the same results: compilers, optimisation levels and
 * architectures are compared this way, and tests/bits/expected.txt holds what every build must print for the
 * current sy_results_version().
 *
 * C leaves the order of arguments and of initialisers open, so no expression here draws two random numbers.
 *
 * Needs nothing but libc and the public header, so that it runs on an emulated processor. Inputs come from
 * integer arithmetic alone, so that no float operation of this program can differ between two builds. Each
 * scene runs on every kernel table of this processor and on one and three threads; a difference among those
 * ends the program at once.
 */
#include "bits.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Random numbers and hashing ------------------------------------------------------------------------ */

static uint64_t rng_state;

uint64_t rng(void)
{
    uint64_t z = rng_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t below(int64_t n)
{
    return (int64_t)(rng() % (uint64_t)n);
}

bool one_in(int64_t n)
{
    return below(n) == 0;
}

static uint64_t fnv1a(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *p = data;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ p[i]) * 0x100000001b3u;
    return hash;
}

/* ---- Tensors of one scene ------------------------------------------------------------------------------ */

enum { MAX_BOXES = 32 };

static struct box boxes[MAX_BOXES];
static int n_boxes;

static void *need(void *ptr)
{
    if (!ptr) {
        fprintf(stderr, "bits: out of memory\n");
        exit(2);
    }
    return ptr;
}

static void forget_boxes(void)
{
    for (int i = 0; i < n_boxes; i++) {
        free(boxes[i].data);
        free(boxes[i].initial);
    }
    n_boxes = 0;
}

struct box *box_strided(DLDataType type, int rank, const int64_t *shape, int64_t gap)
{
    if (n_boxes == MAX_BOXES) {
        fprintf(stderr, "bits: too many tensors in one scene\n");
        exit(2);
    }
    struct box *b = &boxes[n_boxes++];
    memset(b, 0, sizeof *b);
    int64_t elems = 1;
    for (int i = rank - 1; i >= 0; i--) {
        b->shape[i] = shape[i];
        b->strides[i] = elems;
        elems *= shape[i] + (i == rank - 1 && rank > 1 ? gap : 0);
    }
    b->bytes = (size_t)elems * (type.bits / 8);
    b->data = need(malloc(b->bytes + 64));
    b->initial = need(malloc(b->bytes + 64));
    memset(b->data, 0xA5, b->bytes + 64);
    b->t = sy_tensor(b->data, type, rank, b->shape);
    if (gap && rank > 1)
        b->t.strides = b->strides;
    return b;
}

struct box *box_new(DLDataType type, int rank, const int64_t *shape)
{
    return box_strided(type, rank, shape, 0);
}

struct box *output(struct box *b)
{
    b->is_output = true;
    return b;
}

struct box *fill_random(struct box *b)
{
    for (size_t i = 0; i < b->bytes; i++)
        b->data[i] = (unsigned char)rng();
    return b;
}

int64_t box_elems(const struct box *b)
{
    return (int64_t)(b->bytes / (b->t.dtype.bits / 8));
}

void put(struct box *b, int64_t i, uint64_t bits)
{
    size_t size = b->t.dtype.bits / 8;
    memcpy(b->data + (size_t)i * size, &bits, size); /* little-endian, as the library is */
}

DLDataType index_type(void)
{
    return one_in(2) ? SY_I32 : SY_I64;
}

/* ---- Floats made of integers --------------------------------------------------------------------------- */

bool same_type(DLDataType a, DLDataType b)
{
    return a.code == b.code && a.bits == b.bits;
}

static int mantissa_bits(DLDataType type)
{
    return same_type(type, SY_F32) ? 23 : same_type(type, SY_F16) ? 10 : 7;
}

uint64_t float_bits(DLDataType type, bool negative, int exponent, uint32_t fraction)
{
    int mant = mantissa_bits(type), width = type.bits;
    int bias = (1 << (width - mant - 2)) - 1;
    return (uint64_t)negative << (width - 1) | (uint64_t)(bias + exponent) << mant |
           (uint64_t)fraction << (mant - 7);
}

uint64_t infinity_bits(DLDataType type, bool negative)
{
    int mant = mantissa_bits(type), width = type.bits;
    return (uint64_t)negative << (width - 1) | (((uint64_t)1 << (width - mant - 1)) - 1) << mant;
}

uint64_t random_float(DLDataType type, int64_t negative_odds, int low, int n, uint32_t step)
{
    bool negative = one_in(negative_odds);
    int exponent = low + (int)below(n);
    uint32_t fraction = (uint32_t)below(128 / step) * step;
    return float_bits(type, negative, exponent, fraction);
}

uint64_t flavoured(DLDataType type, enum flavour flavour)
{
    uint64_t low = rng() & (((uint64_t)1 << mantissa_bits(type)) - 1);
    switch (flavour) {
    case TIES: /* a handful of values, both zeros among them */
        if (one_in(12))
            return (uint64_t)one_in(2) << (type.bits - 1);
        return random_float(type, 2, -1, 3, 32);
    case FINE: /* every mantissa bit, magnitudes from 2^-8 to 2^3 */
        return random_float(type, 2, -8, 12, 128) | low;
    case SPECIAL: /* NaN of any payload, infinities, subnormals among ties */
        switch (below(8)) {
        case 0:
            return infinity_bits(type, one_in(2)) | low | 1;
        case 1:
            return infinity_bits(type, !one_in(6));
        case 2:
            return (uint64_t)one_in(2) << (type.bits - 1) | low;
        default:
            return flavoured(type, TIES);
        }
    case WILD:
        return rng();
    case FLAT:
        return float_bits(type, false, 1, 64);
    case EMPTY:
        return one_in(2) ? infinity_bits(type, true) : infinity_bits(type, one_in(2)) | 1;
    case FAR: /* far from zero, close together */
        return float_bits(type, true, 8, 100 + (uint32_t)below(4));
    default: /* PROBS: 0 .. 1, seldom more or negative */
        return one_in(10) ? 0 : random_float(type, 40, -8, 9, 1);
    }
}

struct box *fill_flavour(struct box *b, enum flavour flavour)
{
    for (int64_t i = 0; i < box_elems(b); i++)
        put(b, i, flavoured(b->t.dtype, flavour));
    return b;
}

/* ---- Running a scene on every table and thread count --------------------------------------------------- */

sy_ctx *contexts[MAX_CTX];
static int n_contexts;

static void make_contexts(void)
{
    static const int threads[] = {1, 3};
    const int most =
        getenv("SWITCHYARD_TEST_DEVICE") ? 1 : MAX_CTX; /* a device has neither (tests/device.c) */
    const char *isa;
    for (int i = 0; (isa = sy_isa_name(i)) != NULL; i++)
        for (int j = 0; j < COUNT(threads) && n_contexts < most; j++) {
            char why[256] = "";
            sy_ctx_options options = {
                .isa = isa, .threads = threads[j], .error = why, .error_bytes = sizeof why};
            if (sy_ctx_create(&contexts[n_contexts], &options) != SY_OK) {
                fprintf(stderr, "bits: no context for %s: %s\n", isa, why);
                exit(2);
            }
            n_contexts++;
        }
}

static uint64_t hash_outcome(const sy_ctx *ctx, sy_status status)
{
    sy_fault fault;
    sy_ctx_fault(ctx, &fault);
    int64_t numbers[] = {status, fault.code, fault.batch, fault.position, fault.value, fault.limit};
    uint64_t hash = fnv1a(0xcbf29ce484222325u, numbers, sizeof numbers);
    for (int i = 0; i < n_boxes; i++)
        if (boxes[i].is_output)
            hash = fnv1a(hash, boxes[i].data, boxes[i].bytes);
    return hash;
}

/* Of the current line: its hash, and how many scenes were done and refused. */
static struct {
    char name[128];
    uint64_t hash;
    int done, refused;
} line;

void run_scene(sy_status (*call)(sy_ctx *ctx, const void *args), const void *args)
{
    uint64_t first = 0;
    for (int i = 0; i < n_boxes; i++)
        memcpy(boxes[i].initial, boxes[i].data, boxes[i].bytes);
    for (int c = 0; c < n_contexts; c++) {
        for (int i = 0; i < n_boxes; i++)
            memcpy(boxes[i].data, boxes[i].initial, boxes[i].bytes);
        sy_status status = call(contexts[c], args);
        uint64_t hash = hash_outcome(contexts[c], status);
        if (c == 0) {
            first = hash;
            *(status == SY_OK ? &line.done : &line.refused) += 1;
        } else if (hash != first) {
            fprintf(stderr, "bits: %s: table %s with %d threads differs from %s with %d threads\n", line.name,
                    sy_ctx_isa(contexts[c]), sy_ctx_threads(contexts[c]), sy_ctx_isa(contexts[0]),
                    sy_ctx_threads(contexts[0]));
            exit(1);
        }
    }
    line.hash = fnv1a(line.hash, &first, sizeof first);
    forget_boxes();
}

const struct named_type floats[N_FLOATS] = {{"f32", {2, 32, 1}}, {"f16", {2, 16, 1}}, {"bf16", {4, 16, 1}}};

void begin_line(const char *name)
{
    memset(&line, 0, sizeof line);
    snprintf(line.name, sizeof line.name, "%s", name);
    line.hash = 0xcbf29ce484222325u;
    rng_state = fnv1a(0xcbf29ce484222325u, name, strlen(name));
}

void end_line(void)
{
    printf("%-44s %016" PRIx64 " %d done %d refused\n", line.name, line.hash, line.done, line.refused);
}

int main(void)
{
    printf("results_version %d\n", sy_results_version());
    make_contexts();
#define BITS_RUN(file) file##_lines();
    BITS_FILES(BITS_RUN)
    for (int i = 0; i < n_contexts; i++)
        sy_ctx_destroy(contexts[i]);
    return 0;
}
