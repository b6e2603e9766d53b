/*
 * Floats in the caller's memory, beside integers (load.c).
 */
#pragma once

#include "plan/load.h"

/* f32, f16 or bf16, widened. */
float syi_load_float(const unsigned char *p, sy_type type);
void syi_store_float(unsigned char *p, sy_type type, float value); /* rounded to the type */
float syi_column_float(const struct syi_column *column, int64_t row);
