/*
 * What the C tests share: a context that fails the test when it cannot be made, seeded random numbers, guarded output
 * buffers, exact 16-bit conversions. Nothing here includes or repeats library code.
 */
#ifndef SWITCHYARD_TESTS_SUPPORT_H
#define SWITCHYARD_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <switchyard.h>

/* A context with `threads` threads (0: default) and the named kernel table (NULL: best). */
sy_ctx *test_ctx(int threads, const char *isa);

/* Fails the test with the context's sentence when `status` is not `want`. */
#define expect_status(ctx, status, want) test_expect_status((ctx), (status), (want), __FILE__, __LINE__)
void test_expect_status(sy_ctx *ctx, sy_status status, sy_status want, const char *file, int line);

/* splitmix64: the next 64 random bits; a number in [0, n); a number in [0, 1). */
uint64_t rng_u64(uint64_t *state);
int64_t rng_below(uint64_t *state, int64_t n);
double rng_unit(uint64_t *state);
void rng_fill(uint64_t *state, void *data, size_t bytes);

/*
 * `bytes` of memory filled with 0xA5 between two guard zones; buf_check fails the test when a guard byte changed,
 * buf_free checks and frees. The pointer is aligned to 64 bytes plus `misalign`.
 */
void *buf_new(size_t bytes, size_t misalign);
void buf_check(const void *data);
void buf_free(void *data);

/* Fails with the first differing byte. */
#define expect_bytes(got, want, n) test_expect_bytes((got), (want), (n), __FILE__, __LINE__)
void test_expect_bytes(const void *got, const void *want, size_t n, const char *file, int line);

/* Conversions by exact arithmetic on doubles, not by bit tricks. */
double f16_value(uint16_t bits);
double bf16_value(uint16_t bits);
uint16_t f16_round(double value);  /* nearest even; NaN gives 7e00 */
uint16_t bf16_round(double value); /* nearest even; NaN gives 7fc0 */
uint32_t f32_bits(float value);
float f32_from_bits(uint32_t bits);

#endif
