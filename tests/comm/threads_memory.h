/*
 * An allocator that gives nothing at one call, and knows what is left.
 */
#ifndef SWITCHYARD_TESTS_THREADS_MEMORY_H
#define SWITCHYARD_TESTS_THREADS_MEMORY_H

#include "../support.h"

struct allocator {
    int calls, fail_at, live;
    struct block *blocks;
};

void *limited_alloc(void *user, size_t bytes);
void limited_free(void *user, void *ptr);

/* A broken comm leaves memory behind that its transport might still write to. */
void free_rest(struct allocator *a);

#endif
