/*
 * Sums of products, each step rounded to f32. Steps are taken in double: a product of two f32 is exact there, and a sum of two is
 * so close that the second rounding changes nothing.
 */
#pragma once

#include "oracle/numbers.h"

/* sum + a * b, of f32 values. */
float oracle_plus_product(float sum, double a, double b);

/* The dot product of n elements: sixteen lanes by position, folded by halves; every 8192 elements by themselves. */
float oracle_dot(enum number_type type, const void *a, int64_t first_a, const void *b, int64_t first_b,
                 int64_t n);
