/*
 * Random numbers of the builders and oracles, the same on every machine; sizes of elements.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <switchyard.h>

/* splitmix64: the next 64 random bits; a number in [0, n); a number in [0, 1). */
uint64_t rng_u64(uint64_t *state);
int64_t rng_below(uint64_t *state, int64_t n);
double rng_unit(uint64_t *state);
void rng_fill(uint64_t *state, void *data, size_t bytes);

/* Bytes of one element. */
size_t type_bytes(DLDataType type);
