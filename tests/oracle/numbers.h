/*
 * Numbers of 16 and 32 bits for oracles and tests.
 */
#ifndef SWITCHYARD_ORACLE_NUMBERS_H
#define SWITCHYARD_ORACLE_NUMBERS_H

#include <stdint.h>

/* Conversions by exact arithmetic on doubles, not by bit tricks. */
double f16_value(uint16_t bits);
double bf16_value(uint16_t bits);
uint16_t f16_round(double value);  /* nearest even; NaN gives 7e00 */
uint16_t bf16_round(double value); /* nearest even; NaN gives 7fc0 */
uint32_t f32_round(double value);  /* nearest even whatever the rounding mode; NaN gives 7fc00000 */
uint32_t f32_bits(float value);
float f32_from_bits(uint32_t bits);

#endif
