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

/* Arguments of both devices: those of `second`, where every tensor that both have is the first of two in `tensors`. */
void mesh_pair_up(void *args, DLTensor (*tensors)[REJECTION_DEVICES], const struct test_call *first,
                  const struct test_call *second);

/* Gives a tensor another shape. */
void mesh_set_shape(struct test_call *c, const char *name, int rank, const int64_t *shape);

/* Functions that give a field of the arguments a number which is rejected; those of fields that dispatch and combine have. */
#define FIELD_SPOILER(arguments, name, field, number) \
    SPOILER(name, const int value = number; memcpy(&c->args.arguments.field, &value, sizeof value))
#define FIELDS_OF_BOTH(arguments) \
    FIELD_SPOILER(arguments, axis_3, cluster_axis, 3) \
    FIELD_SPOILER(arguments, order_2, order, 2) \
    FIELD_SPOILER(arguments, layout_3, layout, 3) \
    FIELD_SPOILER(arguments, links_minus_1, num_links, -1) \
    FIELD_SPOILER(arguments, topology_5, topology, 5) \
    FIELD_SPOILER(arguments, memory_4, memory, 4) \
    FIELD_SPOILER(arguments, memory_sharded, memory, SY_MEMORY_SHARDED) \
    FIELD_SPOILER(arguments, subdevice_1, subdevice_id, 1) \
    FIELD_SPOILER(arguments, replica_6, replica, 6) \
    FIELD_SPOILER(arguments, replica_minus_1, replica, -1)

struct mesh_rejections {
    void (*make)(struct test_call *c);
    const struct rejection *rows;
    size_t n;
};
extern const struct mesh_rejections mesh_dispatch_rejections, mesh_expert_rejections;
extern const struct mesh_rejections mesh_combine_rejections, mesh_sum_rejections, mesh_codes_rejections,
    mesh_code_sum_rejections;

#endif
