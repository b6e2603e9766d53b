/*
 * The arithmetic between the operators; matrix products are in gemm.c. Every number has one definition, a fixed order of
 * IEEE operations, so it is the same on every machine, for any number of threads, and whatever other rows are in the batch.
 * Compile with -ffp-contract=off.
 *
 * A sum has 16 lanes: element i is added to lane i % 16, then lanes are added in pairs. Compilers make vectors of that.
 */
#include "../lm.h"

enum { LANES = 16 };

static float add_lanes(float lane[LANES])
{
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

FOR_EACH_CPU float dot(const float *a, const float *b, int64_t n)
{
    const int64_t whole = n / LANES * LANES;
    float lane[LANES] = {0};
    for (int64_t i = 0; i < whole; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += a[i + l] * b[i + l];
    for (int64_t i = whole; i < n; i++)
        lane[i - whole] += a[i] * b[i];
    return add_lanes(lane);
}

void rms_norm(float *y, const float *x, int64_t rows, int64_t width, const float *scale, float eps)
{
    for (; rows > 0; rows--, x += width, y += width) {
        const float by = 1.0f / sqrtf(dot(x, x, width) / (float)width + eps);
        for (int64_t i = 0; i < width; i++)
            y[i] = scale[i] * (x[i] * by);
    }
}

/* e^x: 2^n times a polynomial of the rest, in double, rounded once. The library's expf differs between machines. */
static float exponential(float x)
{
    static const double factor[] = {1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1.0, 1.0};
    if (!(x > -104.0f))
        return x != x ? x : 0.0f;
    if (x > 89.0f)
        return INFINITY;
    const double scaled = (double)x * 1.4426950408889634;
    const double n = (double)(int)(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    const double r = ((double)x - n * 0.69314718055994529) - n * 2.3190468138462996e-17;
    double p = 1.0 / 40320, power;
    for (int i = 0; i < 8; i++)
        p = p * r + factor[i];
    const uint64_t bits = (uint64_t)((int64_t)n + 1023) << 52;
    memcpy(&power, &bits, sizeof power);
    return (float)(p * power);
}

void silu_gate(float *gate, const float *up, int64_t n)
{
#pragma omp parallel for if (n > 1 << 12)
    for (int64_t i = 0; i < n; i++)
        gate[i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
}

void softmax(float *x, int64_t n)
{
    float most = x[0], lane[LANES] = {0};
    for (int64_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++)
        lane[i % LANES] += x[i] = exponential(x[i] - most);
    const float sum = add_lanes(lane);
    for (int64_t i = 0; i < n; i++)
        x[i] /= sum;
}
