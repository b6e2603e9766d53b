/*
 * Scratch memory of a context: grow-only and its own, or lent by the caller and then never replaced.
 */
#include "base/base.h"

#include <stdlib.h>

size_t syi_unknown_field(const void *data, size_t bytes, size_t known)
{
    size_t i = known;
    while (i < bytes && ((const unsigned char *)data)[i] == 0)
        i++;
    return i < bytes ? i : bytes;
}

size_t syi_size_add(size_t a, size_t b)
{
    return a > SIZE_MAX - b ? SIZE_MAX : a + b;
}

size_t syi_size_mul(size_t a, size_t b)
{
    size_t product;
    return __builtin_mul_overflow(a, b, &product) ? SIZE_MAX : product;
}

void *syi_default_alloc(void *user, size_t bytes)
{
    (void)user;
    return malloc(bytes);
}

void syi_default_dealloc(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

void syi_workspace_free(sy_ctx *ctx)
{
    if (ctx->block != NULL)
        ctx->dealloc(ctx->alloc_user, ctx->block);
    ctx->block = NULL;
    ctx->workspace = NULL;
    ctx->workspace_bytes = 0;
}

sy_status syi_workspace_grow(sy_ctx *ctx, size_t bytes)
{
    const int64_t found = (int64_t)ctx->workspace_bytes,
                  want = bytes > INT64_MAX ? INT64_MAX : (int64_t)bytes;
    if (ctx->workspace_lent)
        return syi_fail_with(ctx, SY_ERR_NOMEM, SY_FAULT_NONE, "workspace", found, want,
                             "lent by the caller has %zu bytes, want %zu", ctx->workspace_bytes, bytes);
    /* The old block goes only when the new one is there: a call that fails leaves the context as it was. */
    unsigned char *block = NULL;
    if (bytes <= SIZE_MAX - SYI_ALIGN)
        block = ctx->alloc(ctx->alloc_user, bytes + SYI_ALIGN);
    if (block == NULL)
        return syi_fail_with(ctx, SY_ERR_NOMEM, SY_FAULT_NONE, "workspace", found, want,
                             "of %zu bytes could not be allocated", bytes);
    syi_workspace_free(ctx);
    ctx->block = block;
    ctx->workspace = block + (SYI_ALIGN - (uintptr_t)block % SYI_ALIGN) % SYI_ALIGN;
    ctx->workspace_bytes = bytes;
    return SY_OK;
}

void *syi_take(struct syi_arena *arena, size_t bytes)
{
    void *piece = arena->base != NULL ? arena->base + arena->used : NULL;
    arena->used = syi_size_add(arena->used, syi_align(bytes));
    return piece;
}
