/*
 * Products of rows and matrices. A matrix is kept in panels of 16 outputs: for each input, the weights of 16 outputs are
 * neighbours. An output is one sum over all inputs, in order: the 16 outputs of a panel are vectors whose lanes never mix. Two
 * bfloat16 of one output are one word: the first of them is the word shifted left, the second the word with its lower half
 * cleared.
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

/* ---- Weights ---- */

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
    m.pairs = m.type == BF16 && m.cols % 2 == 0; /* all others become f32 */
    m.words = m.pairs ? m.cols / 2 : m.cols;
    m.panel = NEW(uint32_t, panels * m.words * PANEL);
#pragma omp parallel for if (m.rows * m.cols > ALONE)
    for (int64_t row = 0; row < panels * PANEL; row++)
        for (int64_t k = 0; k < m.words; k++)
            m.panel[(row / PANEL * m.words + k) * PANEL + row % PANEL] =
                m.pairs ? number_at(&m, row, 2 * k).bits >> 16 | number_at(&m, row, 2 * k + 1).bits
                        : number_at(&m, row, k).bits;
    return m;
}

/* ---- Products ---- */

/* One panel for `rows` rows of x. Both pairs and rows are constants where this is expanded: the sums stay in registers. */
static inline __attribute__((always_inline)) void multiply_tile(float *y, const float *x,
                                                                const uint32_t *panel, const struct matrix *m,
                                                                bool pairs, int rows, int64_t outputs)
{
    vec sum[TILE][VECTORS] = {{{0}}};
    for (int64_t k = 0; k < m->cols; k += pairs ? 2 : 1, panel += PANEL)
        for (int64_t v = 0; v < VECTORS; v++) {
            words w;
            memcpy(&w, panel + v * WORDS, sizeof w);
            for (int t = 0; t < rows; t++) {
                sum[t][v] += x[t * m->cols + k] * (vec)(pairs ? w << 16 : w);
                if (pairs)
                    sum[t][v] += x[t * m->cols + k + 1] * (vec)(w & 0xFFFF0000);
            }
        }
    for (int t = 0; t < rows; t++)
        memcpy(y + t * m->rows, sum[t], (size_t)outputs * sizeof(float));
}

FOR_EACH_CPU static void multiply_panel(float *y, const float *x, int64_t rows, const struct matrix *m,
                                        int64_t p)
{
    const int64_t outputs = smaller(m->rows - p * PANEL, PANEL);
    const uint32_t *const panel = m->panel + p * m->words * PANEL;
    for (int64_t t = 0; t < rows; t += TILE) {
        float *const to = y + t * m->rows + p * PANEL;
        const float *const from = x + t * m->cols;
        const int64_t left = smaller(rows - t, TILE);
#define CASE(n) \
    if (left == (n) && m->pairs) \
        multiply_tile(to, from, panel, m, true, n, outputs); \
    else if (left == (n)) \
    multiply_tile(to, from, panel, m, false, n, outputs)
        CASE(1);
        CASE(2);
        CASE(3);
        CASE(4);
    }
}

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
    /* Faster for many rows. The order of its sums is its own, so text may differ by machine and batch. */
    const int outputs = (int)m->rows, inputs = (int)m->cols;
    for (int64_t g = 0; g < groups; g++)
        if (first[g + 1] - first[g] >= least) {
            float *const all = widen(m[g]);
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)(first[g + 1] - first[g]), outputs,
                        inputs, 1, x + first[g] * inputs, inputs, all, inputs, 0, y + first[g] * outputs,
                        outputs);
            free(all);
        }
#endif
}

void multiply(float *y, const float *x, int64_t rows, const struct matrix *m)
{
    multiply_groups(y, x, (const int64_t[]){0, rows}, m, 1);
}
