#include "sum.h"

float oracle_plus_product(float sum, double a, double b)
{
    return (float)((double)sum + (double)(float)(a * b));
}

float oracle_dot(enum number_type type, const void *a, int64_t first_a, const void *b, int64_t first_b,
                 int64_t n)
{
    float sum = 0.0f;
    for (int64_t start = 0; start < n; start += 8192) {
        float lane[16] = {0};
        for (int64_t i = start; i < n && i < start + 8192; i++)
            lane[i % 16] = oracle_plus_product(lane[i % 16], number_get(type, a, first_a + i),
                                               number_get(type, b, first_b + i));
        for (int half = 8; half > 0; half /= 2)
            for (int i = 0; i < half; i++)
                lane[i] = oracle_plus_product(lane[i], 1, (double)lane[i + half]);
        sum = oracle_plus_product(sum, 1, (double)lane[0]);
    }
    return sum;
}
