/*
 * What all_to_all_dispatch and all_to_all_combine reject: a valid call of one device of a mesh of two, and one spoiler per
 * row. On a local comm the call of the other device stays valid; over a transport any device can be the spoiled one.
 */
#ifndef SWITCHYARD_TESTS_MESH_REJECTIONS_H
#define SWITCHYARD_TESTS_MESH_REJECTIONS_H

#include "support.h"

enum { REJECTION_DEVICES = 2 };

/* Calls of one device. They have no run of their own. */
void mesh_make_dispatch(struct test_call *c);
void mesh_make_expert(struct test_call *c);  /* dispatch with layout EXPERT, src, counts and offsets */
void mesh_make_combine(struct test_call *c); /* slots */
void mesh_make_sum(struct test_call *c);     /* slots, weighted and added */
void mesh_make_codes(struct test_call *c);   /* slots that are codes */
void mesh_make_code_sum(struct test_call *c);

struct rejection {
    const char *name;
    struct spoil spoil;
    sy_status want;
};

enum { MESH_REJECTIONS = 6 };
struct mesh_rejections {
    const char *name;
    void (*make)(struct test_call *c);
    const struct rejection *rows;
    size_t n;
};
extern const struct mesh_rejections mesh_rejections[MESH_REJECTIONS];

#endif
