/*
 * Sums of two f32 values without an f32 addition.
 */
#ifndef SWITCHYARD_ORACLE_SUM_H
#define SWITCHYARD_ORACLE_SUM_H

/* a + b, rounded to f32. */
float oracle_sum(float a, float b);

#endif
