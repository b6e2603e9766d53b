/*
 * Products of rows and matrices. A matrix is kept in panels of 16 outputs: for each input, the weights of 16 outputs are
 * neighbours. An output is one sum over all inputs, in order: the 16 outputs of a panel are vectors whose lanes never mix. Two
 * bfloat16 of a panel share a word: output j is the word shifted left, output j + 8 the word with its lower half cleared.
 */
#include "../lm.h"

#ifdef WITH_CBLAS
#include <cblas.h>
const bool have_blas = true;
#else
const bool have_blas = false;
#endif
bool use_blas;

#ifdef __x86_64__
enum { WORDS = 8 }; /* of a vector */
#else
enum { WORDS = 4 };
#endif
/* Outputs and vectors of a panel; rows that are multiplied with it at once; products that are too few for threads. */
enum { PANEL = 16, VECTORS = PANEL / WORDS, TILE = 4, ALONE = 1 << 18 };
typedef float vec __attribute__((vector_size(4 * WORDS)));
typedef uint32_t words __attribute__((vector_size(4 * WORDS)));

/* ---- Weights --------------------------------------------------------------------------------------------- */

union number {
    uint32_t bits;
    float value;
};

/* A number of a matrix as f32; rows beyond the last are 0. */
static union number number_at(const struct matrix *m, int64_t row, int64_t col)
{
    const int64_t i = row * m->cols + col;
    union number x = {0};
    uint16_t half;
    if (row >= m->rows)
        return x;
    if (m->type == F32) {
        memcpy(&x, m->data + 4 * i, sizeof x);
        return x;
    }
    memcpy(&half, m->data + 2 * i, sizeof half);
    if (m->type == BF16)
        return (union number){(uint32_t)half << 16};
    x.bits = (half & 0x7FFFu) << 13; /* of a f16: all but the sign */
    x.value *= 0x1p112f;             /* subnormals too: the product is exact */
    if ((half & 0x7C00) == 0x7C00)
        x.bits |= 0x7F800000; /* infinity, or not a number */
    x.bits |= (half & 0x8000u) << 16;
    return x;
}

void read_row(float *to, const struct matrix *m, int64_t row)
{
    for (int64_t k = 0; k < m->cols; k++)
        to[k] = number_at(m, row, k).value;
}

float *widen(struct matrix m)
{
    float *const all = NEW(float, m.rows *m.cols);
#pragma omp parallel for if (m.rows * m.cols > ALONE)
    for (int64_t row = 0; row < m.rows; row++)
        read_row(all + row * m.cols, &m, row);
    return all;
}

struct matrix pack(struct matrix m)
{
    const int64_t panels = (m.rows + PANEL - 1) / PANEL;
    m.step = m.type == BF16 ? PANEL / 2 : PANEL;
    m.panel = NEW(uint32_t, panels * m.cols * m.step);
#pragma omp parallel for if (m.rows * m.cols > ALONE)
    for (int64_t i = 0; i < panels * m.step; i++) {
        const int64_t row = i / m.step * PANEL + i % m.step;
        uint32_t *const to = m.panel + i / m.step * m.step * m.cols + i % m.step;
        for (int64_t k = 0; k < m.cols; k++)
            to[k * m.step] = m.type == BF16
                                 ? number_at(&m, row, k).bits >> 16 | number_at(&m, row + m.step, k).bits
                                 : number_at(&m, row, k).bits;
    }
    return m;
}

/* ---- Products -------------------------------------------------------------------------------------------- */

/* One panel for `rows` rows of x. Both bf16 and rows are constants where this is expanded: the sums stay in registers. */
static inline __attribute__((always_inline)) void multiply_tile(float *y, const float *x,
                                                                const uint32_t *panel, const struct matrix *m,
                                                                bool bf16, int rows, int64_t outputs)
{
    vec sum[TILE][VECTORS] = {{{0}}};
    const int loads = bf16 ? VECTORS / 2 : VECTORS;
    for (int64_t k = 0; k < m->cols; k++)
        for (int v = 0; v < loads; v++, panel += WORDS) {
            words w;
            memcpy(&w, panel, sizeof w);
            for (int t = 0; t < rows; t++) {
                sum[t][v] += x[t * m->cols + k] * (vec)(bf16 ? w << 16 : w);
                if (bf16)
                    sum[t][v + loads] += x[t * m->cols + k] * (vec)(w & 0xFFFF0000);
            }
        }
    for (int t = 0; t < rows; t++)
        memcpy(y + t * m->rows, sum[t], (size_t)outputs * sizeof(float));
}

FOR_EACH_CPU static void multiply_panel(float *y, const float *x, int64_t rows, const struct matrix *m,
                                        int64_t p)
{
    const int64_t outputs = smaller(m->rows - p * PANEL, PANEL);
    const uint32_t *const panel = m->panel + p * m->cols * m->step;
    y += p * PANEL;
    for (; rows > 0; rows -= TILE, y += TILE * m->rows, x += TILE * m->cols) {
        const int64_t left = smaller(rows, TILE);
#define CASE(n) \
    if (left == (n) && m->type == BF16) \
        multiply_tile(y, x, panel, m, true, n, outputs); \
    else if (left == (n)) \
    multiply_tile(y, x, panel, m, false, n, outputs)
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
    }
}

#ifdef WITH_CBLAS
/* Faster for many rows. The order of its sums is its own, so text may differ by machine and batch. */
static void multiply_by_blas(float *y, const float *x, int64_t rows, const struct matrix *m)
{
    const int n = (int)rows, outputs = (int)m->rows, inputs = (int)m->cols;
    float *const all = widen(*m);
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
