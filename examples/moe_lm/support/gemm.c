/*
 * Products of rows and matrices. A matrix is kept in panels of 16 outputs: for each input the weights of 16 outputs are neighbours, and an output is one sum
 * over all inputs, in order. So the 16 outputs of a panel are vectors whose lanes never mix. Two bfloat16 of one output are
 * one word: the first of them is the word shifted left, the second the word with its lower half cleared.
 */
#include "../lm.h"

#ifdef WITH_CBLAS
#include <cblas.h>
const bool have_blas = true;
#else
const bool have_blas = false;
#endif
bool use_blas;

/* Outputs of a panel; rows that are multiplied with it at once; products that are too few for threads. */
enum { PANEL = 16, TILE = 4, ALONE = 1 << 18 };

#ifdef __x86_64__
enum { WORDS = 8 }; /* of a vector */
#else
enum { WORDS = 4 };
#endif
typedef float vec __attribute__((vector_size(4 * WORDS)));
typedef uint32_t words __attribute__((vector_size(4 * WORDS)));

/* ---- Weights --------------------------------------------------------------------------------------------- */

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A number of a tensor, as the bits of a f32; rows beyond the last are 0. */
static uint32_t bits_at(const struct weight *w, int64_t row, int64_t col)
{
    const int64_t i = row * w->cols + col;
    uint32_t bits = 0;
    uint16_t half = 0;
    if (row >= w->rows)
        return 0;
    if (w->type == F32) {
        memcpy(&bits, w->data + 4 * i, sizeof bits);
        return bits;
    }
    memcpy(&half, w->data + 2 * i, sizeof half);
    if (w->type == BF16)
        return (uint32_t)half << 16;
    const uint32_t rest = half & 0x7FFF;                  /* of a f16: all but the sign */
    const float finite = float_of(rest << 13) * 0x1p112f; /* subnormals too: the product is exact */
    memcpy(&bits, &finite, sizeof bits);
    return (rest >= 0x7C00 ? 0x7F800000 | (rest & 0x3FF) << 13 : bits) | (half & 0x8000u) << 16;
}

void read_row(float *to, const struct weight *w, int64_t row)
{
    for (int64_t k = 0; k < w->cols; k++)
        to[k] = float_of(bits_at(w, row, k));
}

float *widen(struct weight w)
{
    float *const all = NEW(float, w.rows *w.cols);
#pragma omp parallel for if (w.rows * w.cols > ALONE)
    for (int64_t row = 0; row < w.rows; row++)
        read_row(all + row * w.cols, &w, row);
    return all;
}

struct matrix pack(struct weight w)
{
    const bool pairs = w.type == BF16 && w.cols % 2 == 0; /* all others become f32 */
    const int64_t panels = (w.rows + PANEL - 1) / PANEL, steps = pairs ? w.cols / 2 : w.cols;
    const struct matrix m = {NEW(uint32_t, panels * steps * PANEL), pairs, w.rows, w.cols, w};
#pragma omp parallel for if (w.rows * w.cols > ALONE)
    for (int64_t row = 0; row < panels * PANEL; row++)
        for (int64_t k = 0; k < steps; k++)
            m.panel[(row / PANEL * steps + k) * PANEL + row % PANEL] =
                pairs ? bits_at(&w, row, 2 * k) >> 16 | bits_at(&w, row, 2 * k + 1) : bits_at(&w, row, k);
    return m;
}

/* ---- Products -------------------------------------------------------------------------------------------- */

/* One panel for `rows` rows of x, which is a constant where this is expanded: the sums stay in registers. */
static inline __attribute__((always_inline)) void multiply_tile(float *y, const float *x,
                                                                const uint32_t *panel, const struct matrix *m,
                                                                bool bf16, int rows, int64_t outputs)
{
    vec sum[TILE][PANEL / WORDS] = {{{0}}};
    for (int64_t k = 0; k < m->cols; k += bf16 ? 2 : 1, panel += PANEL)
        for (int64_t p = 0; p < PANEL / WORDS; p++) {
            words w;
            memcpy(&w, panel + p * WORDS, sizeof w);
            for (int t = 0; t < rows; t++) {
                sum[t][p] += x[t * m->cols + k] * (vec)(bf16 ? w << 16 : w);
                if (bf16)
                    sum[t][p] += x[t * m->cols + k + 1] * (vec)(w & 0xFFFF0000);
            }
        }
    for (int t = 0; t < rows; t++)
        memcpy(y + t * m->rows, sum[t], (size_t)outputs * sizeof(float));
}

VECTORS static void multiply_panel(float *y, const float *x, int64_t rows, const struct matrix *m, int64_t p)
{
    const int64_t outputs = smaller(m->rows - p * PANEL, PANEL);
    const uint32_t *const panel = m->panel + p * PANEL * (m->bf16 ? m->cols / 2 : m->cols);
    for (int64_t t = 0; t < rows; t += TILE) {
        float *const to = y + t * m->rows + p * PANEL;
        const float *const from = x + t * m->cols;
        const int64_t left = smaller(rows - t, TILE);
#define CASE(n) \
    if (left == (n) && m->bf16) \
        multiply_tile(to, from, panel, m, true, n, outputs); \
    else if (left == (n)) \
    multiply_tile(to, from, panel, m, false, n, outputs)
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
#undef CASE
    }
}

#ifdef WITH_CBLAS
/* Faster for many rows. The order of its sums is its own, so text may differ by machine and batch. */
static void multiply_by_blas(float *y, const float *x, int64_t rows, const struct matrix *m)
{
    const int n = (int)rows, outputs = (int)m->rows, inputs = (int)m->cols;
    float *const all = widen(m->from);
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, outputs, inputs, 1, x, inputs, all, inputs, 0, y,
                outputs);
    free(all);
}
#endif

void multiply_groups(float *y, const float *x, const int64_t *first, const struct matrix *m, int64_t groups)
{
    const int64_t panels = (m->rows + PANEL - 1) / PANEL;
    const int64_t least = use_blas ? 32 : INT64_MAX; /* rows of a group for the BLAS */
#pragma omp parallel for schedule(dynamic, 4) if (first[groups] * m->rows * m->cols > ALONE)
    for (int64_t i = 0; i < groups * panels; i++) {
        const int64_t g = i / panels, rows = first[g + 1] - first[g];
        if (rows < least)
            multiply_panel(y + first[g] * m->rows, x + first[g] * m->cols, rows, &m[g], i % panels);
    }
#ifdef WITH_CBLAS
    for (int64_t g = 0; g < groups; g++)
        if (first[g + 1] - first[g] >= least)
            multiply_by_blas(y + first[g] * m->rows, x + first[g] * m->cols, first[g + 1] - first[g], &m[g]);
#endif
}

void multiply(float *y, const float *x, int64_t rows, const struct matrix *m)
{
    multiply_groups(y, x, (const int64_t[]){0, rows}, m, 1);
}
