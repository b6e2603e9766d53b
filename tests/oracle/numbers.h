/*
 * Numbers of 16 and 32 bits for oracles and tests.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Conversions by exact arithmetic on doubles, not by bit tricks. */
double f16_value(uint16_t bits);
double bf16_value(uint16_t bits);
uint16_t f16_round(double value);  /* nearest even; NaN gives 7e00 */
uint16_t bf16_round(double value); /* nearest even; NaN gives 7fc0 */
uint32_t f32_round(double value);  /* nearest even whatever the rounding mode; NaN gives 7fc00000 */
uint32_t f32_bits(float value);
float f32_from_bits(uint32_t bits);

/* The same of each type, in the order of the kernel tables; and element i of an array of them. */
enum number_type { NUMBER_F32, NUMBER_F16, NUMBER_BF16, NUMBER_TYPES };
static inline size_t number_bytes(enum number_type type)
{
    return type == NUMBER_F32 ? 4 : 2;
}
double number_value(enum number_type type, uint32_t bits);
uint32_t number_round(enum number_type type, double value);
uint32_t number_bits(enum number_type type, const void *array, int64_t i);
double number_get(enum number_type type, const void *array, int64_t i);
void number_put(enum number_type type, void *array, int64_t i, double value);
