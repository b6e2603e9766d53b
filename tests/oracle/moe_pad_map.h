/*
 * Truth for moe_pad_map: expert by expert, one token added at a time, and every column counted anew after each.
 */
#ifndef SWITCHYARD_ORACLE_MOE_PAD_MAP_H
#define SWITCHYARD_ORACLE_MOE_PAD_MAP_H

#include <stdint.h>

#include <switchyard.h>

/* Pads a map [T,E] in place and counts its columns. Returns the first expert that cannot be padded, or -1. */
int64_t oracle_moe_pad_map(int64_t tokens, int64_t experts, int64_t alignment, uint8_t *map, int64_t *counts);

#endif
