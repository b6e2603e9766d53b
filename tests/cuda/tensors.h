/*
 * Tensors behind each other, in memory of a CUDA device or of the CPU, at the same places in both; what the emulated device counts.
 */
#pragma once

#include "support.h"

enum { MOST_TENSORS = 128 };

struct described {
    sy_type type;
    int64_t shape[3]; /* up to the first 0 */
};

struct tensors {
    int ordinal; /* of the device; -1: CPU memory */
    unsigned char *memory;
    size_t bytes;
    int64_t shape[MOST_TENSORS][3];
    DLTensor tensor[MOST_TENSORS];
};

void tensors_open(struct tensors *s, sy_ctx *ctx, int ordinal, const struct described *of, int n);
void tensors_close(struct tensors *s, sy_ctx *ctx);
size_t tensors_difference(const struct tensors *a,
                          const struct tensors *b); /* the first byte, in CPU memory */

sy_ctx *device_ctx(int ordinal); /* or the test is skipped */

/* A function of the emulator; NULL: the device is a real one. */
void *emulated(const char *function);
unsigned long slow_calls(void); /* of the emulator: calls that allocate or wait */
