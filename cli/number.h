/*
 * Strict numbers from text, and the value of one tensor element.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <switchyard.h>

/* The whole text must be one number in range: no spaces, no rest. */
bool parse_int64(const char *text, int64_t *value);
bool parse_uint64(const char *text, uint64_t *value); /* negative values wrap, as int64 bits do */
bool parse_double(const char *text, double *value);   /* also nan, inf, 1e-3, 0x1p-3           */
bool parse_bool(const char *text, bool *value);       /* true or false                          */

/* True for the types whose elements may be NaN or infinite. */
bool type_is_float(DLDataType type);

/* The element as a double: exact for all types but 64-bit integers beyond 2^53. */
double element_value(DLDataType type, const void *element);

/* splitmix64, and a number in [0,1). */
uint64_t random_bits(uint64_t *state);
double random_unit(uint64_t *state);

/* Exact 16-bit formats for generated data: round to nearest even. */
uint16_t bf16_from_float(float value);
float bf16_to_float(uint16_t bits);
