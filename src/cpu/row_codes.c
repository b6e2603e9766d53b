/*
 * A row of numbers to codes: for some groups at a time their largest magnitudes, the scales, then the codes by the loops of
 * the kernel table. Groups with a NaN or an infinity, and scales that are not normal numbers, are rare; their codes are
 * made once more, one by one. Sums of rows that are codes. And where the rows of an operator go, as they are or as codes.
 */
#include "plan/row_math.h"
#include "cpu/load.h"
#include "cpu/pool.h"
#include "cpu/row_codes.h"

enum { GROUPS = 64 }; /* at a time; numbers of the usual formats stay in the first cache */

static const sy_type types[SYI_N_FLOATS] = {SY_TYPE_F32, SY_TYPE_F16, SY_TYPE_BF16};

static struct syi_row_encoder encoder_of(const sy_ctx *ctx, const struct syi_row_codes_plan *p)
{
    const struct syi_encoders *encoders = ctx->kernels->encoders;
    return (struct syi_row_encoder){
        .plan = p,
        .amax = encoders->amax[p->type],
        .encode = (syi_row_divides(p) ? encoders->over : encoders->times)[p->code][p->type],
        .elem_bytes = syi_float_bytes(types[p->type])};
}

/* The largest magnitude of a group with NaNs, which count as none. */
static uint32_t largest(const struct syi_row_encoder *e, const unsigned char *x)
{
    const struct syi_row_codes_plan *p = e->plan;
    uint32_t most = 0;
    for (size_t i = 0; i < p->group; i++) {
        const uint32_t size =
            syi_f32_bits(syi_load_float(x + i * e->elem_bytes, types[p->type])) & 0x7fffffffu;
        most = size > most && size <= 0x7f800000u ? size : most;
    }
    return most;
}

static void encode_one_by_one(const struct syi_row_encoder *e, unsigned char *codes, const unsigned char *x,
                              float by)
{
    const struct syi_row_codes_plan *p = e->plan;
    for (size_t i = 0; i < p->group; i++)
        codes[i] = syi_row_code(p, syi_load_float(x + i * e->elem_bytes, types[p->type]), by);
}

/* What the kernels demand; a scale that is subnormal can be so far off that numbers are beyond the largest code. */
static bool is_usual(const struct syi_row_codes_plan *p, uint32_t most, struct syi_row_scale scale)
{
    const uint32_t by = syi_f32_bits(scale.by);
    const bool normal = p->e8m0 | (scale.bits == 0) | (scale.bits >= 0x00800000u); /* 2^-126 */
    return (most < 0x7f800000u) & (syi_row_divides(p) ? syi_is_divisor(by) : normal & (by < 0x7f800000u));
}

/* As syi_row_scale_of, for groups that all have a usual scale, in a loop that becomes vector code; otherwise false, and what
   was stored is to be replaced. */
static bool scale_bytes(const struct syi_row_codes_plan *p, unsigned char *scales, float *by,
                        const uint32_t *most, size_t n)
{
    const uint32_t limit = syi_f32_bits(syi_code_most(p->code)), largest = (limit >> 23) - 127u,
                   above = p->scale_math == SY_SCALE_MATH_UP ? limit & 0x7fffffu : 0x7fffffu;
    const uint32_t a_min = syi_f32_bits(p->a_min), exponents = (largest + 2) << 23,
                   least = a_min > exponents ? a_min : exponents;
    uint32_t unusual = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = most[i], byte = (bits >> 23) - largest + ((bits & 0x7fffffu) > above);
        unusual |= (bits < least) | (bits >= 0x7f800000u);
        scales[i] = (unsigned char)byte;
        by[i] = syi_f32_from_bits((254u - byte) << 23);
    }
    return unusual == 0;
}

/* The same. */
static bool scale_floats(const struct syi_row_codes_plan *p, unsigned char *scales, float *by,
                         const uint32_t *most, size_t n)
{
    const float limit = syi_code_most(p->code), inverse = 1.0f / limit, a_min = p->a_min;
    const bool over = p->scale_math == SY_SCALE_MATH_DIV, divides = syi_row_divides(p),
               amax = p->code_math == SY_CODE_MATH_AMAX;
    uint32_t unusual = 0;
    for (size_t i = 0; i < n; i++) {
        const float own = syi_f32_from_bits(most[i]), a = own > a_min ? own : a_min;
        const float s = over ? a / limit : a * inverse;
        by[i] = divides ? s : amax ? limit / a : 1.0f / s;
        syi_store_u32(scales + 4 * i, syi_f32_bits(s));
        unusual |= !is_usual(p, most[i], (struct syi_row_scale){syi_f32_bits(s), by[i]});
    }
    return unusual == 0;
}

/* n <= GROUPS groups of a row, from group g on. */
static void encode_groups(const struct syi_row_encoder *e, unsigned char *codes, unsigned char *scales,
                          const unsigned char *x, int64_t g, size_t n)
{
    const struct syi_row_codes_plan own = *e->plan, *p = &own; /* which no store of a scale can change */
    const size_t first = (size_t)g * p->group, group_bytes = p->group * e->elem_bytes;
    x += first * e->elem_bytes;
    codes += first;
    uint32_t most[GROUPS];
    float by[GROUPS];
    uint64_t unusual = 0;
    e->amax(most, x, p->group, n);
    const bool done =
        p->e8m0 ? scale_bytes(p, scales + g, by, most, n) : scale_floats(p, scales + 4 * g, by, most, n);
    for (size_t i = 0; i < n && !done; i++) {
        const bool nan = most[i] > 0x7f800000u;
        const struct syi_row_scale scale =
            syi_row_scale_of(p, nan ? largest(e, x + i * group_bytes) : most[i]);
        by[i] = scale.by;
        unusual |= (uint64_t)!is_usual(p, most[i], scale) << i;
        syi_row_store_scale(p, scales, g + (int64_t)i, scale.bits);
    }
    e->encode(codes, x, by, p->group, n);
    for (; unusual != 0; unusual &= unusual - 1) {
        const size_t i = (size_t)__builtin_ctzll(unusual);
        encode_one_by_one(e, codes + i * p->group, x + i * group_bytes, by[i]);
    }
}

static void encode_row(const struct syi_row_encoder *e, unsigned char *codes, unsigned char *scales,
                       const unsigned char *x)
{
    const int64_t n = e->plan->n_groups;
    for (int64_t g = 0; g < n; g += GROUPS)
        encode_groups(e, codes, scales, x, g, (size_t)(n - g < GROUPS ? n - g : GROUPS));
}

/* Scales that are not beside each other: some groups at a time, then the zeros after the last one. */
static void encode_placed(const struct syi_row_encoder *e, int64_t row)
{
    const struct syi_row_codes_plan *p = e->plan;
    const size_t size = p->e8m0 ? 1 : 4;
    unsigned char *const codes = syi_row_at(p->codes, row), *const x = syi_row_at(p->dense, row);
    unsigned char scales[GROUPS * 4];
    for (int64_t g = 0; g < p->n_groups; g += GROUPS) {
        const size_t first = (size_t)g * p->group,
                     n = (size_t)(p->n_groups - g < GROUPS ? p->n_groups - g : GROUPS);
        encode_groups(e, codes + first, scales, x + first * e->elem_bytes, 0, n);
        for (size_t i = 0; i < n; i++)
            memcpy(p->scales.data + syi_scale_offset(p, row, g + (int64_t)i), scales + i * size, size);
    }
    for (int64_t g = p->n_groups; g < p->scale_columns; g++)
        memset(p->scales.data + syi_scale_offset(p, row, g), 0, size);
}

/* Of rows after the last one. */
static void clear_placed(const struct syi_row_codes_plan *p)
{
    for (int64_t row = p->n_rows; row < p->scale_rows; row++)
        for (int64_t g = 0; g < p->scale_columns; g++)
            memset(p->scales.data + syi_scale_offset(p, row, g), 0, p->e8m0 ? 1 : 4);
}

struct job {
    struct syi_row_encoder encoder;
    int n_tasks;
};

static void encode_part(void *data, int task)
{
    const struct job *job = data;
    const struct syi_row_codes_plan *p = job->encoder.plan;
    const int64_t end = syi_part(p->n_rows, job->n_tasks, task + 1);
    for (int64_t row = syi_part(p->n_rows, job->n_tasks, task); row < end; row++)
        if (p->layout == SY_SCALE_ROW)
            encode_row(&job->encoder, syi_row_at(p->codes, row), syi_row_at(p->scales, row),
                       syi_row_at(p->dense, row));
        else
            encode_placed(&job->encoder, row);
}

sy_status syi_encode_rows(sy_ctx *ctx, const struct syi_row_codes_plan *p)
{
    struct job job = {encoder_of(ctx, p), 1};
    const uint64_t numbers = (uint64_t)p->n_rows * (uint64_t)p->n_groups * p->group;
    job.n_tasks = syi_tasks(ctx, p->n_rows, numbers * (job.encoder.elem_bytes + 1));
    syi_parallel(ctx, job.n_tasks, encode_part, &job);
    clear_placed(p);
    return SY_OK;
}

/* ---- Sums of rows that are codes ---- */

enum { SPAN = 256, ABREAST = 7 }; /* numbers of a row, and rows, that are decoded at a time */

struct syi_row_adder syi_row_adder_of(const sy_ctx *ctx, const struct syi_row_codes_plan *codes, sy_type type)
{
    if (!codes->given)
        return (struct syi_row_adder){.sum = ctx->kernels->sum_rows[syi_float_of(type)]};
    return (struct syi_row_adder){.codes = codes,
                                  .sum = ctx->kernels->sum_rows[SYI_FLOAT_F32],
                                  .decode = ctx->kernels->decode[codes->code][SYI_FLOAT_F32],
                                  .type = type};
}

/* Numbers [begin, begin + n) of a row, as f32. */
static void decode_span(const struct syi_row_adder *a, float *to, const unsigned char *codes,
                        const unsigned char *scales, size_t begin, size_t n)
{
    const size_t group = a->codes->group;
    for (size_t i = begin, end; i < begin + n; i = end) {
        const size_t g = i / group;
        end = (g + 1) * group < begin + n ? (g + 1) * group : begin + n;
        const float scale = syi_row_load_scale(a->codes, scales, (int64_t)g);
        a->decode(to + (i - begin), codes + i, &scale, end - i, 1);
    }
}

/* As syi_f32_to_bf16, for sums, whose NaNs are canonical and need no look: the loop becomes vector code. */
static void store_bf16(unsigned char *restrict dst, const float *restrict x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = syi_f32_bits(x[i]);
        syi_store_u16(dst + i * 2, (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16));
    }
}

static void store_span(const struct syi_row_adder *a, unsigned char *dst, size_t begin, const float *x,
                       size_t n)
{
    if (a->type == SY_TYPE_F32) {
        memcpy(dst + begin * 4, x, n * 4);
        return;
    }
    if (a->type == SY_TYPE_BF16)
        store_bf16(dst + begin * 2, x, n);
    for (size_t i = 0; i < n && a->type == SY_TYPE_F16; i++)
        syi_store_u16(dst + (begin + i) * 2, syi_f32_to_f16(x[i]));
}

/* Rows past the first ABREAST are added to the sum so far, which is the first row of the next: a sum is never -0, so that 1 times it,
   added to +0, is the same. */
void syi_add_rows(const struct syi_row_adder *a, void *dst, const void *const *rows,
                  const void *const *scales, const float *w, size_t n_rows, size_t n)
{
    if (a->codes == NULL) {
        a->sum(dst, rows, w, n_rows, n);
        return;
    }
    float part[ABREAST][SPAN], sum[2][SPAN];
    for (size_t begin = 0; begin < n; begin += SPAN) {
        const size_t span = n - begin < SPAN ? n - begin : SPAN;
        int now = 0;
        a->sum(sum[now], NULL, NULL, 0, span);
        for (size_t first = 0; first < n_rows; first += ABREAST) {
            const size_t m = n_rows - first < ABREAST ? n_rows - first : ABREAST;
            const void *from[ABREAST + 1] = {sum[now]};
            float by[ABREAST + 1] = {1.0f};
            for (size_t j = 0; j < m; j++) {
                decode_span(a, part[j], rows[first + j], scales[first + j], begin, span);
                from[j + 1] = part[j];
                by[j + 1] = w != NULL ? w[first + j] : 1.0f;
            }
            a->sum(sum[1 - now], from, by, m + 1, span);
            now = 1 - now;
        }
        store_span(a, dst, begin, sum[now], span);
    }
}

/* ---- Rows of an operator ---- */

struct syi_row_writer syi_row_writer_of(const sy_ctx *ctx, const struct syi_row_codes_plan *codes,
                                        struct syi_tensor to, size_t row_bytes)
{
    struct syi_row_writer w = {.kernels = ctx->kernels, .to = to, .row_bytes = row_bytes};
    if (codes->given) {
        w.coded = true;
        w.encoder = encoder_of(ctx, codes);
        w.scales = codes->scales;
        w.scale_bytes = codes->scale_bytes;
    }
    return w;
}

void syi_write_row(const struct syi_row_writer *w, int64_t row, const unsigned char *from)
{
    if (w->coded)
        encode_row(&w->encoder, syi_at(w->to, row), syi_row_at(w->scales, row), from);
    else if (w->row_bytes > 0)
        memcpy(syi_at(w->to, row), from, w->row_bytes);
}

void syi_clear_row(const struct syi_row_writer *w, int64_t row)
{
    if (w->row_bytes > 0)
        memset(syi_at(w->to, row), 0, w->row_bytes);
    if (w->scale_bytes > 0)
        memset(syi_row_at(w->scales, row), 0, w->scale_bytes);
}

/* Codes are made at the first place, and copied from there to the others. */
void syi_fan_write(struct syi_fan *fan)
{
    const struct syi_row_writer *w = fan->writer;
    size_t done = 0;
    if (fan->n == 0)
        return;
    if (w->coded && fan->scales == NULL) {
        encode_row(&w->encoder, fan->to[0], fan->scales_to[0], fan->from);
        fan->from = fan->to[0];
        fan->scales = fan->scales_to[0];
        done = 1;
    }
    w->kernels->copy_fan(fan->to + done, fan->n - done, fan->from, w->row_bytes);
    if (w->coded)
        w->kernels->copy_fan(fan->scales_to + done, fan->n - done, fan->scales, w->scale_bytes);
    fan->n = 0;
}
