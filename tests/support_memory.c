#include "support_memory.h"

#include <stdlib.h>

struct block {
    struct block *next, **link;
};
enum { BLOCK_BYTES = 64 }; /* keeps the alignment of malloc */

void *limited_alloc(void *user, size_t bytes)
{
    struct allocator *a = user;
    a->calls++;
    if (a->fail_at > 0 && (a->calls == a->fail_at || (a->calls > a->fail_at && a->fail_all_after)))
        return NULL;
    struct block *b = malloc(BLOCK_BYTES + bytes);
    if (b == NULL)
        return NULL;
    *b = (struct block){a->blocks, &a->blocks};
    if (b->next)
        b->next->link = &b->next;
    a->blocks = b;
    a->live++;
    return (unsigned char *)b + BLOCK_BYTES;
}

void limited_free(void *user, void *ptr)
{
    struct allocator *a = user;
    if (ptr == NULL)
        return;
    struct block *b = (struct block *)(void *)((unsigned char *)ptr - BLOCK_BYTES);
    *b->link = b->next;
    if (b->next)
        b->next->link = b->link;
    a->live--;
    free(b);
}

sy_comm_options limited_options(struct allocator *a)
{
    return (sy_comm_options){.alloc = limited_alloc, .dealloc = limited_free, .alloc_user = a};
}

void free_rest(struct allocator *a)
{
    while (a->blocks)
        limited_free(a, (unsigned char *)a->blocks + BLOCK_BYTES);
}
