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
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <switchyard.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* ---- Random numbers and hashing ------------------------------------------------------------------------ */

static uint64_t rng_state;

static uint64_t rng(void)
{
    uint64_t z = rng_state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int64_t below(int64_t n)
{
    return (int64_t)(rng() % (uint64_t)n);
}

static bool one_in(int64_t n)
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

enum { MAX_BOXES = 32, MAX_RANK = 4 };

/* A tensor, its memory, and the bytes it starts with, so that a scene can run again. */
static struct box {
    DLTensor t;
    int64_t shape[MAX_RANK], strides[MAX_RANK];
    unsigned char *data, *initial;
    size_t bytes;
    bool is_output;
} boxes[MAX_BOXES];
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

/* A tensor whose rows are `gap` elements longer than its last dimension. Memory starts as 0xA5. */
static struct box *box_strided(DLDataType type, int rank, const int64_t *shape, int64_t gap)
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

static struct box *box_new(DLDataType type, int rank, const int64_t *shape)
{
    return box_strided(type, rank, shape, 0);
}

static struct box *output(struct box *b)
{
    b->is_output = true;
    return b;
}

static struct box *fill_random(struct box *b)
{
    for (size_t i = 0; i < b->bytes; i++)
        b->data[i] = (unsigned char)rng();
    return b;
}

static int64_t box_elems(const struct box *b)
{
    return (int64_t)(b->bytes / (b->t.dtype.bits / 8));
}

static void put(struct box *b, int64_t i, uint64_t bits)
{
    size_t size = b->t.dtype.bits / 8;
    memcpy(b->data + (size_t)i * size, &bits, size); /* little-endian, as the library is */
}

/* ---- Floats made of integers --------------------------------------------------------------------------- */

static bool same_type(DLDataType a, DLDataType b)
{
    return a.code == b.code && a.bits == b.bits;
}

static int mantissa_bits(DLDataType type)
{
    return same_type(type, SY_F32) ? 23 : same_type(type, SY_F16) ? 10 : 7;
}

/* +-2^exponent * (1 + fraction / 128): exact in f32, f16 and bf16 for exponents in -14..15. */
static uint64_t float_bits(DLDataType type, bool negative, int exponent, uint32_t fraction)
{
    int mant = mantissa_bits(type), width = type.bits;
    int bias = (1 << (width - mant - 2)) - 1;
    return (uint64_t)negative << (width - 1) | (uint64_t)(bias + exponent) << mant |
           (uint64_t)fraction << (mant - 7);
}

static uint64_t infinity_bits(DLDataType type, bool negative)
{
    int mant = mantissa_bits(type), width = type.bits;
    return (uint64_t)negative << (width - 1) | (((uint64_t)1 << (width - mant - 1)) - 1) << mant;
}

/* 2^low .. 2^(low+n-1), negative one time in `negative_odds`, the fraction a multiple of `step` 128ths. */
static uint64_t random_float(DLDataType type, int64_t negative_odds, int low, int n, uint32_t step)
{
    bool negative = one_in(negative_odds);
    int exponent = low + (int)below(n);
    uint32_t fraction = (uint32_t)below(128 / step) * step;
    return float_bits(type, negative, exponent, fraction);
}

enum flavour { TIES, FINE, SPECIAL, WILD, FLAT, EMPTY, FAR, PROBS, N_FLAVOURS };

static uint64_t flavoured(DLDataType type, enum flavour flavour)
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

static struct box *fill_flavour(struct box *b, enum flavour flavour)
{
    for (int64_t i = 0; i < box_elems(b); i++)
        put(b, i, flavoured(b->t.dtype, flavour));
    return b;
}

/* ---- Running a scene on every table and thread count --------------------------------------------------- */

enum { MAX_CTX = 16 };
static sy_ctx *contexts[MAX_CTX];
static int n_contexts;

static void make_contexts(void)
{
    static const int threads[] = {1, 3};
    const char *isa;
    for (int i = 0; (isa = sy_isa_name(i)) != NULL; i++)
        for (int j = 0; j < COUNT(threads) && n_contexts < MAX_CTX; j++) {
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

static void run_scene(sy_status (*call)(sy_ctx *ctx, const void *args), const void *args)
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

/* A line's inputs depend on its name alone, so a new line changes no other. */
static void begin_line(const char *name)
{
    memset(&line, 0, sizeof line);
    snprintf(line.name, sizeof line.name, "%s", name);
    line.hash = 0xcbf29ce484222325u;
    rng_state = fnv1a(0xcbf29ce484222325u, name, strlen(name));
}

static void end_line(void)
{
    printf("%-44s %016" PRIx64 " %d done %d refused\n", line.name, line.hash, line.done, line.refused);
}

/* ---- moe_permute --------------------------------------------------------------------------------------- */

static sy_status call_permute(sy_ctx *ctx, const void *args)
{
    return sy_moe_permute(ctx, args);
}

static void permute_scene(DLDataType type, const DLDataType *probs_type, bool capacity, bool zero_pad,
                          bool overfull)
{
    static const DLDataType map_types[] = {{6, 8, 1}, {0, 8, 1}, {1, 8, 1}};
    static const int64_t widths[] = {1, 3, 16, 37};
    int64_t n_tokens = 1 + below(24), n_experts = 1 + below(9), width = widths[below(COUNT(widths))];
    struct box *tokens = fill_random(box_strided(type, 2, (int64_t[]){n_tokens, width}, one_in(3) ? 5 : 0));
    struct box *map = box_new(map_types[below(3)], 2, (int64_t[]){n_tokens, n_experts});
    int64_t odds = 1 + below(4), most = 0;
    for (int64_t t = 0; t < n_tokens; t++) {
        int64_t routed = 0;
        for (int64_t e = 0; e < n_experts; e++) {
            bool on = one_in(e == 0 ? 1 + odds / 2 : odds + e); /* skewed: low experts get more */
            bool boolean = map->t.dtype.code == 6;
            put(map, t * n_experts + e, on ? (boolean ? 1 : 1 + (uint64_t)below(255)) : 0);
            routed += on;
        }
        most = routed > most ? routed : most;
    }
    sy_moe_permute_args args = {
        .tokens = &tokens->t, .routing_map = &map->t, .drop_and_pad = capacity, .zero_pad = zero_pad};
    int64_t slots = overfull ? most - 1 : most;
    args.num_out_tokens = capacity ? below(n_tokens * n_experts + 1) : slots > 0 ? slots * n_tokens : 0;
    if (!capacity && one_in(2) && args.num_out_tokens + n_tokens - 1 <= n_tokens * n_experts)
        args.num_out_tokens += below(n_tokens);
    if (probs_type) {
        args.probs = &fill_random(box_new(*probs_type, 2, (int64_t[]){n_tokens, n_experts}))->t;
        args.permuted_probs = args.probs; /* the query wants to know that it will be there */
    }
    sy_query query;
    if (sy_moe_permute_query(contexts[0], &args, &query) != SY_OK)
        query.rows = 0;
    args.permuted_tokens =
        &output(box_strided(type, 2, (int64_t[]){query.rows, width}, one_in(3) ? 2 : 0))->t;
    args.sorted_indices = &output(box_new(SY_I32, 1, &query.rows))->t;
    if (probs_type)
        args.permuted_probs = &output(box_new(*probs_type, 1, &query.rows))->t;
    if (one_in(2)) {
        args.expert_counts = &output(box_new(SY_I64, 1, &n_experts))->t;
        args.expert_offsets = &output(box_new(SY_I64, 1, &(int64_t){n_experts + 1}))->t;
    }
    run_scene(call_permute, &args);
}

static void permute_lines(void)
{
    static const struct {
        const char *name;
        DLDataType type;
    } types[] = {{"u8", {1, 8, 1}}, {"f16", {2, 16, 1}}, {"f32", {2, 32, 1}}, {"i64", {0, 64, 1}}},
      probs[] = {{"none", {0, 0, 0}}, {"f32", {2, 32, 1}}, {"f16", {2, 16, 1}}, {"bf16", {4, 16, 1}}};
    static const char *const modes[] = {"packed", "capacity", "zero_pad", "overfull"};
    char name[128];
    for (int t = 0; t < COUNT(types); t++)
        for (int p = 0; p < COUNT(probs); p++)
            for (int m = 0; m < COUNT(modes); m++) {
                if (m == 3 && p != t) /* refusals: once per token type */
                    continue;
                snprintf(name, sizeof name, "moe_permute %s probs=%s %s", types[t].name, probs[p].name,
                         modes[m]);
                begin_line(name);
                for (int i = 0; i < 30; i++)
                    permute_scene(types[t].type, p ? &probs[p].type : NULL, m == 1 || m == 2, m == 2, m == 3);
                end_line();
            }
}

/* ---- moe_dispatch -------------------------------------------------------------------------------------- */

static sy_status call_dispatch(sy_ctx *ctx, const void *args)
{
    return sy_moe_dispatch(ctx, args);
}

enum dispatch_mode { KEEP, ZERO, UNIQUE, IN_PLACE };

static void dispatch_scene(DLDataType type, const DLDataType *gates_type, enum dispatch_mode mode)
{
    static const int64_t widths[] = {0, 1, 3, 16, 33, 65};
    int64_t experts = 1 + below(6), capacity = below(7), rows = experts * capacity;
    int64_t samples = mode == IN_PLACE ? rows : below(40), width = widths[below(COUNT(widths))];
    int64_t gap = one_in(3) ? 3 : 0;
    enum flavour flavour = (enum flavour)(mode == IN_PLACE ? FINE : below(4));
    struct box *input = fill_flavour(box_strided(type, 2, (int64_t[]){samples, width}, gap), flavour);
    struct box *indices = box_new(SY_I32, 1, &samples), *locations = box_new(SY_I32, 1, &samples);
    for (int64_t i = 0; i < samples; i++) {
        int64_t expert = below(experts + 2) - 1, slot = below(capacity + 2) - 1;
        if (mode == UNIQUE) { /* each sample its own slot, from the last down; none for the rest */
            int64_t own = rows - 1 - i;
            expert = i < rows ? own / capacity : -1;
            slot = i < rows ? own % capacity : 0;
        }
        put(indices, i, (uint64_t)expert);
        put(locations, i, (uint64_t)slot);
    }
    sy_moe_dispatch_args args = {.indices = &indices->t, .locations = &locations->t, .input = &input->t};
    args.num_experts = experts;
    args.capacity = capacity;
    args.zero_unwritten = mode == ZERO;
    args.unique_slots = mode == UNIQUE;
    if (gates_type)
        args.gates = &fill_flavour(box_new(*gates_type, 1, &samples), one_in(2) ? FINE : SPECIAL)->t;
    struct box *dispatch = input;
    if (mode != IN_PLACE)
        dispatch = fill_random(box_strided(type, 2, (int64_t[]){rows, width}, one_in(3) ? 2 : 0));
    args.dispatch = &output(dispatch)->t;
    run_scene(call_dispatch, &args);
}

static void dispatch_lines(void)
{
    static const struct {
        const char *name;
        DLDataType type;
    } types[] = {{"f32", {2, 32, 1}}, {"f16", {2, 16, 1}}, {"bf16", {4, 16, 1}}};
    static const char *const modes[] = {"keep", "zero_unwritten", "unique_slots", "in_place"};
    static const char *const gates[] = {"none", "f32", "same"};
    char name[128];
    for (int t = 0; t < COUNT(types); t++)
        for (int g = 0; g < COUNT(gates); g++)
            for (int m = 0; m < COUNT(modes); m++) {
                const DLDataType *own_or_f32 = g == 1 ? &types[0].type : &types[t].type;
                snprintf(name, sizeof name, "moe_dispatch %s gates=%s %s", types[t].name, gates[g], modes[m]);
                begin_line(name);
                for (int i = 0; i < 40; i++)
                    dispatch_scene(types[t].type, g == 0 ? NULL : own_or_f32, (enum dispatch_mode)m);
                end_line();
            }
}

/* ---- kv_gather ----------------------------------------------------------------------------------------- */

static sy_status call_gather(sy_ctx *ctx, const void *args)
{
    return sy_kv_gather(ctx, args);
}

static DLDataType index_type(void)
{
    return one_in(2) ? SY_I32 : SY_I64;
}

/* A cache of whole blocks, or flat with a partial last block; *rows are the rows it holds. */
static struct box *make_cache(DLDataType type, int64_t block_size, int64_t blocks, int64_t width, bool flat,
                              int64_t *rows)
{
    *rows = blocks * block_size;
    if (!flat)
        return fill_random(box_new(type, 3, (int64_t[]){blocks, block_size, width}));
    *rows -= below(block_size);
    return fill_random(box_strided(type, 2, (int64_t[]){*rows, width}, one_in(3) ? 3 : 0));
}

/* A block table and, for each batch row, indices, req_id, counts and seq_lens that fit it; with faults, not. */
struct gather {
    struct box *table, *indices, *req, *counts, *lens;
    int64_t block_size, blocks, rows, batch, count, columns, table_rows;
    bool with_req, padded, faults;
};

static void fill_gather(struct gather *g)
{
    int64_t entry[64];
    for (int64_t i = 0; i < g->table_rows * g->columns; i++) {
        entry[i] = below(g->blocks);
        if (g->faults && one_in(12))
            entry[i] += g->blocks;
        put(g->table, i, (uint64_t)entry[i]);
    }
    for (int64_t b = 0; b < g->batch; b++) {
        int64_t row = g->with_req ? below(g->table_rows) : b, len = 1 + below(g->block_size * g->columns);
        put(g->req, b, (uint64_t)(g->faults && one_in(9) ? g->table_rows : row));
        put(g->counts, b, (uint64_t)below(g->count + 1));
        put(g->lens, b, (uint64_t)len);
        for (int64_t j = 0; j < g->count; j++) {
            int64_t t = below(len);
            int64_t at = entry[row * g->columns + t / g->block_size] * g->block_size + t % g->block_size;
            if (g->faults && one_in(20))
                t = len;
            else if (at >= g->rows) /* the missing end of the partial block; its first row always exists */
                t -= t % g->block_size;
            if (g->padded && one_in(5))
                t = -1;
            put(g->indices, b * g->count + j, (uint64_t)t);
        }
    }
}

static void gather_scene(DLDataType type, sy_kv_pad pad, bool faults)
{
    static const int64_t widths[] = {1, 3, 16, 37};
    struct gather g = {.padded = pad != SY_PAD_ERROR, .faults = faults};
    int64_t width = widths[below(COUNT(widths))];
    g.block_size = 1 + below(5);
    g.blocks = 1 + below(9);
    g.batch = 1 + below(5);
    g.count = 1 + below(12);
    g.columns = 1 + below(4);
    g.with_req = one_in(2);
    g.table_rows = g.with_req ? 1 + below(4) : g.batch;
    struct box *cache = make_cache(type, g.block_size, g.blocks, width, one_in(2), &g.rows);
    g.table = box_new(index_type(), 2, (int64_t[]){g.table_rows, g.columns});
    g.indices = box_new(index_type(), 2, (int64_t[]){g.batch, g.count});
    g.req = box_new(index_type(), 1, &g.batch);
    g.counts = box_new(index_type(), 1, &g.batch);
    g.lens = box_new(index_type(), 1, &g.batch);
    fill_gather(&g);

    sy_kv_gather_args args = {.cache = &cache->t, .indices = &g.indices->t, .block_table = &g.table->t};
    args.req_id = g.with_req ? &g.req->t : NULL;
    args.counts = one_in(2) ? &g.counts->t : NULL;
    args.seq_lens = one_in(2) ? &g.lens->t : NULL;
    args.block_size = g.block_size;
    args.pad = pad;
    args.out = &output(fill_random(box_new(type, 3, (int64_t[]){g.batch, g.count, width})))->t;
    run_scene(call_gather, &args);
}

static void gather_lines(void)
{
    static const struct {
        const char *name;
        DLDataType type;
    } types[] = {{"u8", {1, 8, 1}}, {"bf16", {4, 16, 1}}, {"f32", {2, 32, 1}}, {"f64", {2, 64, 1}}};
    static const char *const pads[] = {"error", "zero", "skip"};
    char name[128];
    for (int t = 0; t < COUNT(types); t++)
        for (int p = 0; p < COUNT(pads); p++)
            for (int f = 0; f < 2; f++) {
                snprintf(name, sizeof name, "kv_gather %s pad=%s %s", types[t].name, pads[p],
                         f ? "faulty" : "valid");
                begin_line(name);
                for (int i = 0; i < 40; i++)
                    gather_scene(types[t].type, (sy_kv_pad)p, f);
                end_line();
            }
}

/* ---- sample -------------------------------------------------------------------------------------------- */

static sy_status call_sample(sy_ctx *ctx, const void *args)
{
    return sy_sample(ctx, args);
}

/* Parameter values as f32 bits: ordinary ones, both ends of every rule, NaN and infinity. */
static const uint32_t top_p_values[] = {0x3f666666, 0x3f000000, 0x3f7fffff, 0x3dcccccd, 0x00000001,
                                        0,          0xbf800000, 0x3f800000, 0x40000000, 0x7fc00000};
static const uint32_t min_p_values[] = {0x3dcccccd, 0x3e99999a, 0x3f7fff58, 0x358637bd,
                                        0,          0xbf800000, 0x3f800000, 0x7fc00000};
static const uint32_t temperature_values[] = {0x3f800000, 0x3f000000, 0x40000000, 0x3fb33333,
                                              0x358637bd, 0x3727c5ac, 0,          0xbf800000,
                                              0x7fc00000, 0x7f800000, 0x42c80000, 0x7149f2ca};

/* A per-row tensor of shape [B], [B,1] or [1]. */
static struct box *per_row(DLDataType type, int64_t batch)
{
    if (one_in(3))
        return box_new(type, 2, (int64_t[]){batch, 1});
    return box_new(type, 1, &(int64_t){one_in(3) ? 1 : batch});
}

/* f32 values, or their upper halves where the logits are bf16; f16 gets values of its own. */
static const DLTensor *row_floats(DLDataType type, int64_t batch, const uint32_t *values, int n)
{
    bool own_type = !same_type(type, SY_F32) && one_in(2);
    struct box *b = per_row(own_type ? type : SY_F32, batch);
    for (int64_t i = 0; i < box_elems(b); i++) {
        if (!own_type)
            put(b, i, values[below(n)]);
        else if (same_type(type, SY_BF16))
            put(b, i, values[below(n)] >> 16);
        else
            put(b, i, one_in(8) ? 0x7e00 : random_float(type, 8, -3, 4, 1));
    }
    return &b->t;
}

static const DLTensor *row_top_k(int64_t batch, int64_t vocab)
{
    struct box *b = per_row(index_type(), batch);
    for (int64_t i = 0; i < box_elems(b); i++) {
        int64_t any = 1 + below(vocab);
        int64_t choices[] = {1, 2, any, any, any, vocab - 1, vocab, vocab + 5, 0, -1};
        put(b, i, (uint64_t)choices[below(COUNT(choices))]);
    }
    return &b->t;
}

static const DLTensor *row_integers(int64_t batch, bool any_width)
{
    static const DLDataType types[] = {{0, 64, 1}, {1, 64, 1}, {0, 32, 1}, {1, 32, 1}};
    return &fill_random(per_row(types[below(any_width ? 4 : 3)], batch))->t;
}

enum want { WANT_ALL, WANT_TOKEN, WANT_MASKED, WANT_LIST, WANT_IN_PLACE };

static void want_outputs(sy_sample_args *args, enum want want, struct box *logits)
{
    int64_t batch = logits->shape[0];
    const int64_t *shape = logits->shape;
    if (want != WANT_MASKED)
        args->token = &output(box_new(SY_I64, 1, &batch))->t;
    if (want == WANT_ALL) {
        args->kept = &output(box_new(SY_I32, 1, &batch))->t;
        args->row_flags = &output(box_new(SY_U32, 1, &batch))->t;
    }
    if (want == WANT_ALL || want == WANT_MASKED)
        args->masked_logits = &output(box_strided(SY_F32, 2, shape, one_in(3) ? 2 : 0))->t;
    if (want == WANT_IN_PLACE)
        args->masked_logits = &output(logits)->t;
    if (want == WANT_ALL || want == WANT_LIST) {
        args->list_token = &output(box_new(SY_I64, 2, shape))->t;
        args->list_prob = &output(box_new(SY_F32, 2, shape))->t;
    }
    if (want == WANT_ALL || (want == WANT_TOKEN && one_in(2))) {
        args->logprob_mode = one_in(2) ? SY_LOGPROB_RAW : SY_LOGPROB_FINAL;
        args->logprob = &output(box_new(SY_F32, 1, &batch))->t;
    }
}

static struct box *make_logits(DLDataType type, int64_t batch, int64_t vocab, bool probs_in)
{
    struct box *logits = box_strided(type, 2, (int64_t[]){batch, vocab}, one_in(3) ? 5 : 0);
    int64_t pitch = box_elems(logits) / batch;
    for (int64_t b = 0; b < batch; b++) {
        enum flavour flavour = (enum flavour)below(N_FLAVOURS);
        if (probs_in && flavour != SPECIAL && flavour != WILD)
            flavour = PROBS;
        for (int64_t i = 0; i < pitch; i++)
            put(logits, b * pitch + i, flavoured(type, flavour));
    }
    return logits;
}

/* Noise that decides: exponential-looking magnitudes of both signs, zeros, NaN and infinity. */
static const DLTensor *make_q(int64_t batch, int64_t vocab)
{
    struct box *q = box_new(SY_F32, 2, (int64_t[]){batch, vocab});
    for (int64_t i = 0; i < box_elems(q); i++)
        put(q, i, flavoured(SY_F32, one_in(30) ? SPECIAL : FINE));
    return &q->t;
}

static void sample_scene(DLDataType type, sy_noise noise, sy_q_order q_order, enum want want)
{
    static const int64_t vocabs[] = {1, 2, 7, 33, 33, 64, 64, 257, 1031, 4099};
    static const int64_t k_limits[] = {0, 0, 3, 1024};
    int64_t vocab = vocabs[below(COUNT(vocabs))], batch = vocab > 300 ? 3 : 1 + below(9);
    bool probs_in = one_in(5);
    struct box *logits = make_logits(type, batch, vocab, probs_in);
    sy_sample_args args = {.logits = &logits->t, .noise = noise, .q_order = q_order, .probs_in = probs_in};
    args.ties = one_in(3) ? SY_TIES_ALL : SY_TIES_EXACT;
    args.empty_token = one_in(2) ? SY_EMPTY_ZERO : SY_EMPTY_MINUS_ONE;
    args.k_limit = k_limits[below(COUNT(k_limits))];
    args.top_k_guess = below(100) - 20;
    if (one_in(2))
        args.top_k = row_top_k(batch, vocab);
    if (one_in(2))
        args.top_p = row_floats(type, batch, top_p_values, COUNT(top_p_values));
    if (one_in(3))
        args.min_p = row_floats(type, batch, min_p_values, COUNT(min_p_values));
    if (one_in(2))
        args.temperature = row_floats(type, batch, temperature_values, COUNT(temperature_values));
    if (noise == SY_NOISE_Q) {
        uint32_t eps = one_in(2) ? 0x322bcc77 : 0; /* 1e-8 */
        memcpy(&args.eps, &eps, sizeof eps);
        args.q = make_q(batch, vocab);
    }
    if (noise == SY_NOISE_RACE || noise == SY_NOISE_CDF) {
        args.seed = row_integers(batch, false);
        if (one_in(2))
            args.offset = row_integers(batch, false);
        if (one_in(2))
            args.stream = row_integers(batch, true);
    }
    want_outputs(&args, want, logits);
    run_scene(call_sample, &args);
}

static void sample_lines(void)
{
    static const struct {
        const char *name;
        DLDataType type;
    } types[] = {{"f32", {2, 32, 1}}, {"f16", {2, 16, 1}}, {"bf16", {4, 16, 1}}};
    static const struct {
        const char *name;
        sy_noise noise;
        sy_q_order order;
    } noises[] = {{"none", SY_NOISE_NONE, SY_Q_LIST},
                  {"q-list", SY_NOISE_Q, SY_Q_LIST},
                  {"q-vocab", SY_NOISE_Q, SY_Q_VOCAB},
                  {"race", SY_NOISE_RACE, SY_Q_LIST},
                  {"cdf", SY_NOISE_CDF, SY_Q_LIST}};
    static const char *const wants[] = {"all", "token", "masked", "list", "in-place"};
    char name[128];
    for (int t = 0; t < COUNT(types); t++)
        for (int n = 0; n < COUNT(noises); n++)
            for (int w = 0; w < COUNT(wants); w++) {
                if (w == WANT_IN_PLACE && t != 0) /* only f32 logits can become masked logits */
                    continue;
                snprintf(name, sizeof name, "sample %s noise=%s out=%s", types[t].name, noises[n].name,
                         wants[w]);
                begin_line(name);
                for (int i = 0; i < 60; i++)
                    sample_scene(types[t].type, noises[n].noise, noises[n].order, (enum want)w);
                end_line();
            }
}

int main(void)
{
    printf("results_version %d\n", sy_results_version());
    make_contexts();
    permute_lines();
    dispatch_lines();
    gather_lines();
    sample_lines();
    for (int i = 0; i < n_contexts; i++)
        sy_ctx_destroy(contexts[i]);
    return 0;
}
