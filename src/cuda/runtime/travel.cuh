/*
 * The functions of struct syi_memory for exchanges between processes (travel.cu, share.cu); plan/memory.h
 * says what they do.
 */
#pragma once

#include "cuda/runtime/context.cuh"

#include "plan/memory.h"

sy_status syc_travel(sy_ctx *ctx, syi_travel *travel, size_t bytes, bool copied);
void syc_travel_free(syi_travel *travel);
sy_status syc_travel_copy(sy_ctx *ctx, const syi_travel *travel, size_t offset, size_t bytes, bool back);
sy_status syc_mark(sy_ctx *ctx, syi_travel *travel);
sy_status syc_reached(sy_ctx *ctx, syi_travel *travel, bool *done);
void syc_place(const sy_ctx *ctx, int *ordinal, void **stream);
sy_status syc_share(sy_ctx *ctx, size_t bytes, unsigned char *token, void **handle, void **base);
sy_status syc_attach(sy_ctx *ctx, void *handle, const unsigned char *tokens, int n, int own, void **base);
void syc_detach(void *handle);
void syc_unshare(void *handle);
