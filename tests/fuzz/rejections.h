/*
 * What the recorder of rejections and its spoiler share: a call, how it is passed, and what was made wrong in it.
 */
#ifndef SWITCHYARD_FUZZ_REJECTIONS_H
#define SWITCHYARD_FUZZ_REJECTIONS_H

#include "../cuda/random.h"

/* Tensors lie at the same places of the arena in every run, so that nothing depends on addresses. */
enum { ARENA_BYTES = 1 << 17, LENT_BYTES = 1 << 20 };
extern unsigned char arena[ARENA_BYTES], lent[LENT_BYTES];

struct trial {
    struct call c;
    const sy_op_info *info;
    bool no_args, no_query;
    size_t args_bytes;
    unsigned char args[2 * sizeof(union test_args)]; /* what is passed; bytes behind the struct are kept */
    void *workspace;                                 /* NULL: the context allocates */
    size_t workspace_bytes;
    struct {
        sy_kv_format is;
        unsigned char more[64];
    } format;            /* of the call or a plane, where it was changed */
    sy_routing *routing; /* of a mesh operator, filled by a dispatch before; or NULL */
    char what[200];
};

/* Makes the call wrong, or another, in so many places and writes their names to `what`. */
void spoil_call(struct trial *t, int places);

/* Of mesh operators: tensors with all their dimensions; a routing, and options as those of the dispatch that filled it. */
void lengthen(struct call *c);
void give_routing(struct trial *t, const struct call *filled_by);

bool in_arena(const DLTensor *tensor, bool *empty);

#endif
