/*
 * An allocator that gives nothing at one call, and knows what is left. A comm that is broken leaves memory behind on
 * purpose: in an allocator that lives as long as the program it is no leak.
 */
#pragma once

#include <switchyard.h>

struct allocator {
    int calls, fail_at, live; /* the call with number fail_at gives NULL; 0: none */
    bool fail_all_after;      /* and all later ones */
    struct block *blocks;
};

void *limited_alloc(void *user, size_t bytes);
void limited_free(void *user, void *ptr);

sy_comm_options limited_options(struct allocator *a); /* of a comm, all others zero */

/* Where nothing can be written to it any more. */
void free_rest(struct allocator *a);
