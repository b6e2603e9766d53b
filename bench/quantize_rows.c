/*
 * quantize_rows: must read the numbers and write codes and scales. The limit is a copy that moves as much.
 */
#include "described.h"

#include <math.h>
#include <string.h>

static const char *const shapes[] = {
    "fp8_128 T=4096 H=7168 bf16",
    "fp8_128_deepep T=4096 H=7168 bf16",
    "fp8_128_deepgemm T=128 H=7168 bf16",
    "fp8_128_ue8m0 T=4096 H=7168 bf16",
    "mxfp8 T=4096 H=7168 bf16",
    "int8_token T=4096 H=7168 bf16",
    "fp8_128 T=4096 H=7168 f32",
    "fp8_128 T=4096 H=7168 bf16 col",
    "mxfp8 T=4096 H=7168 bf16 swizzle",
    /* Quick. */
    "fp8_128 T=16 H=1024 bf16",
    "mxfp8 T=16 H=1024 f32",
    "int8_token T=16 H=1024 f16",
    "fp8_128 T=16 H=1024 bf16 col",
    "mxfp8 T=128 H=512 bf16 swizzle",
};

static const char *const there[] = {
    "fp8_128 T=16384 H=7168 bf16",     "mxfp8 T=16384 H=7168 bf16",         "int8_token T=16384 H=7168 bf16",
    "fp8_128 T=16384 H=7168 bf16 col", "mxfp8 T=16384 H=7168 bf16 swizzle", "int8_token T=16384 H=2880 bf16",
};

/* Normal numbers, and both zeros, which are rare among them. */
static BENCH_FILLER(fill_rows)
{
    fill_normal(c, x, n, seed);
    bench_store(x, 0, 0.0f);
    bench_store(x, 1, -0.0f);
}

static void make(struct bench_call *c)
{
    sy_quantize_rows_args *const a = c->args;
    a->format = c->format;
    a->scale_layout = bench_says(c->shape, "col")       ? SY_SCALE_COL
                      : bench_says(c->shape, "swizzle") ? SY_SCALE_SWIZZLE
                                                        : SY_SCALE_ROW;
    bench_in(c, &a->input, bench_type(c), DIMS(bench_size(c, "T="), bench_size(c, "H=")), BENCH_COPIES,
             fill_rows, 10);
    bench_out(c, &a->codes, BENCH_COPIES);
    bench_out(c, &a->scales, BENCH_COPIES);
    c->limit.copy_bytes = (bench_bytes(a->input) + bench_bytes(a->codes) + bench_bytes(a->scales)) / 2;
}

unsigned char bench_e4m3(float y)
{
    int exponent; /* of 0 it is 0, although 0 has the smallest one */
    (void)frexpf(y, &exponent);
    const int place = (y == 0 || exponent < -5 ? -5 : exponent) - 4; /* of the last bit */
    const int steps = (int)rintf(ldexpf(fabsf(y), -place)), first = (place + 9) * 8;
    return (unsigned char)((signbit(y) ? 128 : 0) | (first + steps));
}

void bench_quantize(const DLTensor *input, const sy_row_format *f, unsigned char *codes, void *scales,
                    int64_t n_groups)
{
    const int64_t group = bench_count(input) / (n_groups > 0 ? n_groups : 1);
    const bool i8 = f->q_type.code == 0, e8m0 = f->scale_math == SY_SCALE_MATH_UP;
    const float most = i8 ? 127 : 448;
    for (int64_t g = 0; g < n_groups; g++) {
        float amax = (float)f->a_min;
        for (int64_t i = g * group; i < (g + 1) * group; i++)
            amax = fmaxf(amax, fabsf(bench_load(input, i)));
        float scale = f->scale_math == SY_SCALE_MATH_MUL ? amax * (1 / most) : amax / most;
        if (e8m0) {
            int exponent;
            const bool power = frexpf(scale, &exponent) == 0.5f;
            ((uint8_t *)scales)[g] = (uint8_t)(127 + exponent - power);
            scale = ldexpf(1, exponent - power);
        } else {
            ((float *)scales)[g] = scale;
        }
        for (int64_t i = g * group; i < (g + 1) * group; i++) {
            const float x = bench_load(input, i);
            const float y = f->code_math == SY_CODE_MATH_RCP    ? x * (1 / scale)
                            : f->code_math == SY_CODE_MATH_AMAX ? x * (most / amax)
                                                                : x / scale;
            codes[i] = i8 ? (unsigned char)(int)rintf(y) : bench_e4m3(y);
        }
    }
}

/* Where the scale of a row and group is; shapes have no padding. */
static int64_t place_of(const sy_quantize_rows_args *a, int64_t t, int64_t g)
{
    const int64_t *const shape = a->scales->shape;
    if (a->scale_layout == SY_SCALE_COL)
        return (g / shape[2] * shape[1] + t) * shape[2] + g % shape[2];
    return (t / 128 * shape[1] + g / 4) * 512 + t % 32 * 16 + t / 32 % 4 * 4 + g % 4;
}

static void plain(const struct bench_call *c)
{
    const sy_quantize_rows_args *const a = c->args;
    const int64_t n = bench_count(a->scales), rows = a->input->shape[0], hidden = a->input->shape[1];
    const size_t size = a->scales->dtype.bits / 8;
    unsigned char scales[1024];
    if (a->scale_layout == SY_SCALE_ROW) {
        bench_quantize(a->input, a->format, a->codes->data, a->scales->data, n);
        return;
    }
    for (int64_t t = 0; t < rows; t++) {
        DLTensor row = *a->input;
        row.shape = (int64_t[]){1, hidden};
        row.data = (char *)row.data + t * hidden * (row.dtype.bits / 8);
        bench_quantize(&row, a->format, (unsigned char *)a->codes->data + t * hidden, scales, n / rows);
        for (int64_t g = 0; g < n / rows; g++)
            memcpy((char *)a->scales->data + (size_t)place_of(a, t, g) * size, scales + (size_t)g * size,
                   size);
    }
}

BENCH_OP(quantize_rows, shapes, 5, make, .plain = plain, BENCH_THERE);
