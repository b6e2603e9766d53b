/*
 * Numbers of eight bits by their definitions: sign, exponent and mantissa as powers of two in double; the nearest code
 * by looking at all of them.
 */
#pragma once

#include <stdint.h>

enum oracle_code { ORACLE_E4M3, ORACLE_E5M2, ORACLE_I8, ORACLE_E8M0 };

double oracle_code_value(enum oracle_code type, unsigned code); /* NaN for NaN */
double oracle_code_largest(enum oracle_code type);              /* 448, 57344, 127 */

/* The finite code nearest to a value, of two as near the even one. NaN: 7f, 7e, 0. A zero keeps its sign. */
unsigned oracle_code_nearest(enum oracle_code type, double value);
