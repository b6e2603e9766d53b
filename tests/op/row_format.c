/*
 * row_format: moe_dispatch with a format does what quantize_rows and the operator on its codes
 * and scales do, bit for bit; local_reduce what it does with the f32 numbers of dequantize_rows, whose sums
 * are rounded once to the type of the output. Seeded cases on every kernel table and several thread counts, formats with names and others, rows
 * of any layout.
 */
#include "support_random.h"

static const char *const names[] = {"fp8_128", "fp8_128_deepep", "fp8_128_deepgemm", "fp8_128_ue8m0",
                                    "mxfp8",   "mxfp8_floor",    "int8_token"};
static const DLDataType float_types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};

static struct {
    int gates, kept, cleared, collisions, own_format, narrow_sums, by_expert, nan_sums;
} seen;

/* Rows, and the same as codes. */
struct fixture {
    sy_row_format format;
    int64_t rows, hidden, n_groups;
    DLDataType type, scale_type;
    struct tensor *dense;                 /* of the fused call */
    struct tensor *same, *codes, *scales; /* compact, of the separate ones */
};

static void take_format(struct fixture *f, uint64_t *rng)
{
    static const int32_t groups[] = {1, 8, 24, 40, 64, 256};
    const int64_t which = rng_below(rng, 9);
    if (which < (int64_t)COUNT_OF(names)) {
        assert_int_equal(sy_row_format_named(names[which], &f->format), SY_OK);
    } else {
        f->format = (sy_row_format){.bytes = sizeof f->format,
                                    .q_type = which == 7 ? SY_F8_E5M2 : SY_I8,
                                    .scale_type = SY_F32,
                                    .group = groups[rng_below(rng, COUNT_OF(groups))],
                                    .scale_math = SY_SCALE_MATH_DIV,
                                    .code_math = SY_CODE_MATH_RCP,
                                    .a_min = 1e-3};
        seen.own_format++;
    }
    f->n_groups = f->format.group > 0 ? rng_below(rng, 4) : 1;
    if (f->n_groups > 0 && f->format.group > 0 && f->format.group <= 128 && rng_below(rng, 8) == 0)
        f->n_groups = 140; /* kernels copy so many scales in vectors */
    f->hidden = f->format.group > 0 ? f->n_groups * f->format.group : rng_below(rng, 200);
    f->scale_type = f->format.scale_type.bits == 8 && rng_below(rng, 2) ? SY_U8 : f->format.scale_type;
    f->type = float_types[rng_below(rng, 3)];
}

static void make_rows(struct fixture *f, uint64_t *rng, int64_t rows)
{
    void *numbers = need(rows * f->hidden, 4);
    f->rows = rows;
    fill_floats(rng, f->type, numbers, rows * f->hidden, 12);
    f->dense = any_tensor(rng, f->type, 2, rows, f->hidden);
    f->same = any_tensor(NULL, f->type, 2, rows, f->hidden);
    f->codes = any_tensor(NULL, SY_U8, 2, rows, f->hidden);
    f->scales = any_tensor(NULL, f->scale_type, 2, rows, f->n_groups);
    tensor_put(f->dense, numbers);
    tensor_put(f->same, numbers);
}

static void quantize(const struct fixture *f, sy_ctx *ctx, const struct tensor *from,
                     const struct tensor *codes, const struct tensor *scales)
{
    const sy_quantize_rows_args args = {
        .input = &from->t, .format = &f->format, .codes = &codes->t, .scales = &scales->t};
    expect_status(ctx, sy_quantize_rows(ctx, &args), SY_OK);
}

static void *contents(const struct tensor *x)
{
    const size_t bytes = tensor_row_bytes(x);
    unsigned char *dense = need(tensor_rows(x) + 1, bytes);
    for (int64_t r = 0; r < tensor_rows(x) && bytes > 0; r++)
        memcpy(dense + (size_t)r * bytes, tensor_row(x, r), bytes);
    return dense;
}

/* ---- moe_dispatch ----------------------------------------------------------------------------------------- */

/* The separate way: products in rows of numbers, codes of all of them, and of those only the written ones. */
struct dispatch {
    struct fixture f;
    sy_moe_dispatch_args args;
    int64_t n_slots;
    bool *written;
    struct tensor *out, *scales, *product, *codes, *code_scales;
};

static void make_dispatch(struct dispatch *d, uint64_t *rng, int64_t samples)
{
    struct fixture *f = &d->f;
    const int64_t experts = 1 + rng_below(rng, 4), capacity = 1 + rng_below(rng, samples + 1);
    make_rows(f, rng, samples);
    d->n_slots = experts * capacity;
    d->written = need(d->n_slots, sizeof *d->written);
    struct tensor *indices = any_tensor(NULL, SY_I32, 1, samples, 0),
                  *locations = any_tensor(NULL, SY_I32, 1, samples, 0);
    int64_t *e = need(samples, sizeof *e), *place = need(samples, sizeof *place);
    for (int64_t s = 0; s < samples; s++) {
        e[s] = rng_below(rng, experts + 1) - (rng_below(rng, 9) == 0);
        place[s] = rng_below(rng, capacity + 1);
        if (e[s] < 0 || e[s] >= experts || place[s] >= capacity)
            continue;
        seen.collisions += d->written[e[s] * capacity + place[s]];
        d->written[e[s] * capacity + place[s]] = true;
    }
    put_numbers(indices, e);
    put_numbers(locations, place);
    if (rng_below(rng, 3) > 0) {
        struct tensor *gates = any_tensor(NULL, SY_F32, 1, samples, 0);
        float *numbers = need(samples, sizeof *numbers);
        fill_floats(rng, SY_F32, numbers, samples, 20);
        tensor_put(gates, numbers);
        d->args.gates = &gates->t;
        seen.gates++;
    }
    d->args.indices = &indices->t;
    d->args.locations = &locations->t;
    d->args.num_experts = experts;
    d->args.capacity = capacity;
    d->args.zero_unwritten = rng_below(rng, 2);
    d->out = any_tensor(rng, SY_U8, 2, d->n_slots, f->hidden);
    d->scales = any_tensor(rng, f->scale_type, 2, d->n_slots, f->n_groups);
    d->product = any_tensor(NULL, f->type, 2, d->n_slots, f->hidden);
    d->codes = any_tensor(NULL, SY_U8, 2, d->n_slots, f->hidden);
    d->code_scales = any_tensor(NULL, f->scale_type, 2, d->n_slots, f->n_groups);
}

/* Rows that are not written are zero, or as fill_outputs leaves them. Without numbers nothing is written at all. */
static void *expect_slots(const struct dispatch *d, const struct tensor *x)
{
    const size_t bytes = tensor_row_bytes(x);
    unsigned char *want = contents(x);
    for (int64_t slot = 0; slot < d->n_slots && bytes > 0; slot++) {
        const bool zero = d->args.zero_unwritten && d->f.hidden > 0;
        if (d->written[slot] && d->f.hidden > 0)
            continue;
        memset(want + (size_t)slot * bytes, zero ? 0 : 0xA5, bytes);
        seen.cleared += zero;
        seen.kept += !zero;
    }
    return want;
}

static void compare_dispatch(struct dispatch *d)
{
    const sy_fault none = {.status = SY_OK};
    for (int c = 0; c < n_contexts; c++) {
        sy_ctx *ctx = contexts[c];
        sy_moe_dispatch_args separate = d->args, fused = d->args;
        separate.input = &d->f.same->t;
        separate.dispatch = &d->product->t;
        separate.zero_unwritten = true;
        expect_status(ctx, sy_moe_dispatch(ctx, &separate), SY_OK);
        quantize(&d->f, ctx, d->product, d->codes, d->code_scales);
        const struct output out[] = {{"dispatch", d->out, expect_slots(d, d->codes), true},
                                     {"dispatch_scales", d->scales, expect_slots(d, d->code_scales), true}};
        fused.input = &d->f.dense->t;
        fused.dispatch = &d->out->t;
        fused.dispatch_scales = &d->scales->t;
        fused.row_format = &d->f.format;
        fill_outputs(out, COUNT_OF(out));
        snap_outputs(out, COUNT_OF(out));
        expect_outputs(ctx, sy_moe_dispatch(ctx, &fused), &none, out, COUNT_OF(out));
    }
}

static void dispatches(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 100; seed++) {
        uint64_t rng = seed + 5000;
        struct dispatch d = {.n_slots = 0};
        take_format(&d.f, &rng);
        make_dispatch(&d, &rng, rng_below(&rng, 12));
        compare_dispatch(&d);
        free_all();
    }
    uint64_t rng = 9000;
    struct dispatch d = {.f = {.hidden = 1024, .n_groups = 32, .type = SY_BF16, .scale_type = SY_U8}};
    assert_int_equal(sy_row_format_named("mxfp8", &d.f.format), SY_OK);
    make_dispatch(&d, &rng, 200);
    compare_dispatch(&d);
    free_all();
}

/* ---- local_reduce ------------------------------------------------------------------------------------------- */

/* Rows of codes in any layout, and their numbers, compact. Random bytes are codes of every kind. */
struct sums {
    struct fixture f;
    struct tensor *codes, *scales, *numbers; /* [rows,H], [rows,G], f32 [rows,H] */
    struct tensor *out, *exact;              /* the sums, and as f32 */
    int64_t written;                         /* rows of them; those after stay */
    bool compact;                            /* no strides, everything aligned */
};

static void make_coded(struct sums *s, uint64_t *rng, int64_t rows)
{
    struct fixture *f = &s->f;
    make_rows(f, rng, rows);
    for (int64_t r = 0; r < rows; r++)
        if (rng_below(rng, 4) == 0)
            rng_fill(rng, tensor_row(f->codes, r), tensor_row_bytes(f->codes));
    s->codes = any_tensor(s->compact ? NULL : rng, SY_U8, 2, rows, f->hidden);
    s->scales = any_tensor(s->compact ? NULL : rng, f->scale_type, 2, rows, f->n_groups);
    s->numbers = any_tensor(NULL, SY_F32, 2, rows, f->hidden);
}

/* After the codes of f->same have been made, once. */
static void take_numbers(struct sums *s, sy_ctx *ctx)
{
    const sy_dequantize_rows_args args = {
        .codes = &s->codes->t, .scales = &s->scales->t, .format = &s->f.format, .out = &s->numbers->t};
    quantize(&s->f, ctx, s->f.same, s->f.codes, s->f.scales);
    tensor_put(s->codes, contents(s->f.codes));
    tensor_put(s->scales, contents(s->f.scales));
    expect_status(ctx, sy_dequantize_rows(ctx, &args), SY_OK);
}

static void make_sums(struct sums *s, uint64_t *rng, int64_t rows)
{
    s->out = any_tensor(s->compact ? NULL : rng, s->f.type, 2, rows, s->f.hidden);
    s->exact = any_tensor(NULL, SY_F32, 2, rows, s->f.hidden);
    s->written = rows;
    seen.narrow_sums += s->f.type.bits == 16;
}

/* What the sums are in the type of the output. */
static void *rounded(const struct sums *s)
{
    const int64_t n = s->written * s->f.hidden;
    const float *x = contents(s->exact);
    unsigned char *want = need(tensor_rows(s->exact) * s->f.hidden + 1, 4);
    memset(want, 0xA5, (size_t)(tensor_rows(s->exact) * s->f.hidden) * 4);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        const bool nan = (bits & 0x7fffffff) > 0x7f800000;
        seen.nan_sums += nan;
        if (s->f.type.bits == 16)
            bits = s->f.type.code == kDLFloat ? (nan ? 0x7e00 : f16_round((double)x[i]))
                                              : (nan ? 0x7fc0 : bf16_round((double)x[i]));
        memcpy(want + (size_t)i * type_bytes(s->f.type), &bits, type_bytes(s->f.type)); /* little-endian */
    }
    return want;
}

static void expect_sums(const struct sums *s, sy_ctx *ctx, sy_status status)
{
    const sy_fault none = {.status = SY_OK};
    const struct output out[] = {{"sums", s->out, rounded(s), true}};
    expect_outputs(ctx, status, &none, out, COUNT_OF(out));
}

static void begin_sums(const struct sums *s)
{
    const struct output out[] = {{"sums", s->out, NULL, true}};
    fill_outputs(out, COUNT_OF(out));
    snap_outputs(out, COUNT_OF(out));
}

/* Device 0 of two hosts the even experts. */
static void reduce_case(struct sums *s, uint64_t *rng, int64_t tokens)
{
    const int64_t experts = 2 + rng_below(rng, 8), slots = 1 + rng_below(rng, 12), local = (experts + 1) / 2;
    const bool by_expert = rng_below(rng, 2);
    struct tensor *table = any_tensor(rng, SY_I32, 2, tokens, slots),
                  *mapping = any_tensor(NULL, SY_U16, 2, experts, 2),
                  *weights = any_tensor(rng, SY_F32, 2, tokens, slots);
    int64_t *chosen = need(tokens * slots, sizeof *chosen), *hosts = need(experts * 2, sizeof *hosts);
    float *w = need(tokens * slots, sizeof *w);
    for (int64_t i = 0; i < tokens * slots; i++)
        chosen[i] = rng_below(rng, experts + 1) - 1;
    for (int64_t e = 0; e < experts; e++)
        hosts[e * 2 + e % 2] = 1;
    fill_floats(rng, SY_F32, w, tokens * slots, 8);
    put_numbers(table, chosen);
    put_numbers(mapping, hosts);
    tensor_put(weights, w);
    const int64_t rows = by_expert ? tokens * local + 3 : tokens;
    make_coded(s, rng, by_expert ? rows : local * tokens);
    make_sums(s, rng, by_expert ? tokens : rows);
    for (int64_t t = 0; by_expert && t < tokens; t++) {
        bool here = false;
        for (int64_t k = 0; k < slots; k++)
            here |= chosen[t * slots + k] >= 0 && chosen[t * slots + k] % 2 == 0;
        s->written -= !here;
    }
    seen.by_expert += by_expert;
    sy_local_reduce_args args = {.expert_metadata = &table->t,
                                 .expert_mapping = &mapping->t,
                                 .weights = rng_below(rng, 2) ? &weights->t : NULL,
                                 .layout = by_expert ? SY_LAYOUT_EXPERT : SY_LAYOUT_PADDED};
    int64_t shape[2][3] = {{local, tokens, s->f.hidden}, {local, tokens, s->f.n_groups}};
    for (int c = 0; c < n_contexts; c++) {
        sy_ctx *ctx = contexts[c];
        sy_local_reduce_args fused;
        take_numbers(s, ctx);
        DLTensor numbers = s->numbers->t, codes = s->codes->t, scales = s->scales->t;
        int64_t strides[2][3];
        if (!by_expert) { /* as [L,T,H] and [L,T,G] */
            DLTensor *all[] = {&numbers, &codes, &scales};
            for (int i = 0; i < 3; i++)
                all[i]->ndim = 3;
            numbers.shape = codes.shape = shape[0];
            scales.shape = shape[1];
            numbers.strides = NULL;
            for (int i = 1; i < 3; i++)
                if (all[i]->strides != NULL) {
                    const int64_t step = all[i]->strides[0];
                    memcpy(strides[i - 1], (int64_t[]){tokens * step, step, 1}, sizeof strides[0]);
                    all[i]->strides = strides[i - 1];
                }
        }
        begin_sums(s);
        args.input = &numbers;
        args.output = &s->exact->t;
        fused = args;
        expect_status(ctx, sy_local_reduce(ctx, &args), SY_OK);
        fused.input = &codes;
        fused.input_scales = &scales;
        fused.row_format = &s->f.format;
        fused.output = &s->out->t;
        expect_sums(s, ctx, sy_local_reduce(ctx, &fused));
    }
}

static void reduces(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 80; seed++) {
        uint64_t rng = seed + 30000;
        struct sums s = {.out = NULL};
        do
            take_format(&s.f, &rng);
        while (s.f.hidden == 0); /* which it rejects */
        reduce_case(&s, &rng, 1 + rng_below(&rng, 12));
        free_all();
    }
    expect_hard(seen, 15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(dispatches), cmocka_unit_test(reduces)};
    return cmocka_run_group_tests_name("op_row_format", tests, open_contexts, close_contexts);
}
