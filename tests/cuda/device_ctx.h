/*
 * Contexts on CUDA devices, and what the emulated device counts.
 */
#pragma once

#include "support.h"

sy_ctx *device_ctx(int ordinal); /* or the test is skipped */

/* A function of the emulator; NULL: the device is a real one. */
void *emulated(const char *function);
unsigned long slow_calls(void); /* of the emulator: calls that allocate or wait */
