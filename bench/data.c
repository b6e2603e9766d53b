/*
 * The small parts every benchmark needs: a clock, medians, seeded data.
 */
#define _XOPEN_SOURCE 700 /* clock_gettime, posix_memalign */

#include "bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return a < b ? -1 : a > b;
}

double bench_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof *values, by_value);
    return n % 2 == 1 ? values[n / 2] : 0.5 * (values[n / 2 - 1] + values[n / 2]);
}

struct bench_text bench_time(double seconds)
{
    static const char *const units[] = {"us", "ms", "s"};
    struct bench_text text;
    double value = seconds * 1e6;
    int unit = 0;
    for (; value >= 999.5 && unit < 2; unit++) /* three digits would round to the next unit */
        value *= 1e-3;
    snprintf(text.text, sizeof text.text, "%.3g %s", value, units[unit]);
    return text;
}

/* ---- Data ---- */

double bench_normal(uint64_t *state)
{
    const double radius = sqrt(-2 * log(1 - random_unit(state)));
    return radius * cos(6.283185307179586 * random_unit(state));
}

void *bench_alloc(size_t count, size_t bytes)
{
    void *data = NULL;
    if (bytes > 0 && count > (SIZE_MAX - 4096) / bytes)
        return NULL;
    if (posix_memalign(&data, 4096, count * bytes + 1) != 0)
        return NULL;
    memset(data, 0, count * bytes + 1);
    return data;
}

void bench_fill_random(void *data, size_t bytes, uint64_t seed)
{
    unsigned char *const at = data;
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = random_bits(&seed);
        memcpy(at + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

void bench_route(uint8_t *map, int64_t tokens, int64_t experts, int64_t k, uint64_t seed)
{
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t chosen = 0; chosen < k;) {
            /* The square favours low numbers, so experts differ in load as they do in real models. */
            const double u = random_unit(&seed);
            const int64_t e = (int64_t)((0.5 * u + 0.5 * u * u) * (double)experts);
            chosen += map[t * experts + e] == 0;
            map[t * experts + e] = 1;
        }
}

/* ---- Half precision ---- */

/* The bits of a half, read as a float, are too small by 2^112; the product is exact. */
float bench_f16_to_float(uint16_t bits)
{
    const uint32_t wide = (uint32_t)(bits & 0x7fffu) << 13;
    float size;
    memcpy(&size, &wide, sizeof size);
    size *= 0x1p112f;
    return bits & 0x8000u ? -size : size;
}

uint16_t bench_f16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    bits &= 0x7fffffffu;
    if (bits < 0x38800000u) /* below 2^-14 a half has steps of 2^-24 */
        return (uint16_t)(sign | (uint16_t)nearbyint(fabs((double)value) * 0x1p24));
    return (uint16_t)(sign | (uint16_t)((bits + 0xfffu + (bits >> 13 & 1u) - 0x38000000u) >> 13));
}

void bench_fill_bf16(uint16_t *data, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        data[i] = (uint16_t)((random_bits(&seed) & 0x80ffu) | 0x3f00u);
}

void bench_fill_unit(float *data, size_t n, uint64_t seed)
{
    for (size_t i = 0; i < n; i++)
        data[i] = (float)random_unit(&seed);
}

void bench_best(const double *value, int64_t count, int64_t n, int64_t *best)
{
    int64_t found = 0;
    memset(best, 0, (size_t)n * sizeof *best);
    for (int64_t i = 0; i < count; i++) {
        if (found == n && value[i] <= value[best[n - 1]])
            continue;
        int64_t at = found < n ? found++ : n - 1;
        for (; at > 0 && value[best[at - 1]] < value[i]; at--)
            best[at] = best[at - 1];
        best[at] = i;
    }
}

void bench_philox(uint64_t seed, uint64_t offset, uint32_t stream, uint32_t group, uint32_t x[4])
{
    uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    x[0] = group;
    x[1] = (uint32_t)offset;
    x[2] = (uint32_t)(offset >> 32);
    x[3] = stream;
    for (int round = 0; round < 10; round++) {
        const uint64_t low = (uint64_t)0xd2511f53u * x[0], high = (uint64_t)0xcd9e8d57u * x[2];
        x[0] = (uint32_t)(high >> 32) ^ x[1] ^ key[0];
        x[1] = (uint32_t)high;
        x[2] = (uint32_t)(low >> 32) ^ x[3] ^ key[1];
        x[3] = (uint32_t)low;
        key[0] += 0x9e3779b9u;
        key[1] += 0xbb67ae85u;
    }
}

void bench_shuffle(int32_t *order, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        order[i] = (int32_t)i;
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = (int64_t)(random_bits(&seed) % (uint64_t)(i + 1));
        const int32_t swap = order[i];
        order[i] = order[j];
        order[j] = swap;
    }
}
