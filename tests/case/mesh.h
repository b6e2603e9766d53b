/*
 * What the cases of the operators between devices have in common: a problem of tests/mesh_cases.h, whose choices are those of
 * the reader, and the tensors and expected results of tests/mesh_calls.c.
 */
#ifndef SWITCHYARD_TESTS_CASE_MESH_H
#define SWITCHYARD_TESTS_CASE_MESH_H

#include "case.h"
#include "mesh_cases.h"

void mesh_make(struct call *c, bool combines);
void mesh_oracle(struct call *c);
void mesh_attach(struct call *c, sy_comm *comm);
void mesh_reroute(struct call *c, int64_t how);

/* What mesh_oracle notes of both. */
#define MESH_HARD \
    "groups of one", "device without experts", "no tokens", "device without tokens", \
        "expert on two devices", "expert nowhere", "interleaved", "in nodes", "one host of several", \
        "format of its own", "bad choice", "expert twice", "bad mapping", "with a routing"

/* Changes of a call that is laid out, on all devices, for the tables of rejections. */
void mesh_shape(struct call *c, const char *field, int rank, const int64_t *shape);
void mesh_type(struct call *c, const char *field, DLDataType type);
void mesh_give(struct call *c, const char *field, const char *like); /* a tensor that the call has not */
void mesh_foreign_routing(struct call *c);
void mesh_empty_routing(struct call *c);

/* A value that contradicts the routing. */
#define TOLD(x, n) \
    BAD_SCALAR(x, n, SY_ERR_VALUE, NULL, NULL, "as in the routing, or 0"), \
        .inputs = true, .line = "by_routing=1 routing=2 align=2 B=2 S=3 K=2 E=6 H=5 experts=1"

/* What both reject in calls of 2 devices with 6 experts. */
#define MESH_VALUES \
    {"cluster_axis 3", BAD_SCALAR("cluster_axis", 3, SY_ERR_VALUE, NULL, "axis 2", NULL), .inputs = true}, \
        {"cluster_axis -1", BAD_SCALAR("cluster_axis", -1, SY_ERR_VALUE, NULL, "axis -2", NULL)}, \
        {"align -1", BAD_SCALAR("align", -1, SY_ERR_VALUE, NULL, "-1", NULL), .inputs = true}, \
        {"max_tokens -1", BAD_SCALAR("max_tokens", -1, SY_ERR_VALUE, NULL, "-1", NULL), .inputs = true}, \
        {"node_size -1", BAD_SCALAR("node_size", -1, SY_ERR_VALUE, NULL, "-1", "0 or more")}, \
        {"node_size 3", \
         BAD_SCALAR("node_size", 3, SY_ERR_VALUE, NULL, "3", "a divisor of 2, the devices of a group")}, \
        {"num_links -1", BAD_SCALAR("num_links", -1, SY_ERR_VALUE, NULL, "-1", NULL), .inputs = true}, \
        {"memory 4", BAD_SCALAR("memory", 4, SY_ERR_VALUE, NULL, "4", NULL)}, \
        {"memory -1", BAD_SCALAR("memory", -1, SY_ERR_VALUE, NULL, "-1", NULL)}, \
        {"memory sharded", BAD_SCALAR("memory", 3, SY_ERR_UNSUPPORTED, NULL, "is sharded", "dram")}, \
        {"subdevice_id 1", BAD_SCALAR("subdevice_id", 1, SY_ERR_VALUE, NULL, "1", "0"), .inputs = true}, \
        {"subdevice_id -1", BAD_SCALAR("subdevice_id", -1, SY_ERR_VALUE, NULL, "-1", "0")}, \
        {"expert_rows -1", BAD_SCALAR("expert_rows", -1, SY_ERR_VALUE, NULL, "-1", NULL)}, \
        {"expert_rows of padded rows", \
         BAD_SCALAR("expert_rows", 3, SY_ERR_VALUE, NULL, "3", "0: the layout is not expert")}, \
        {"a routing of another comm", \
         BAD_CALL(mesh_foreign_routing, SY_ERR_STATE, "routing", NULL, "one of this comm"), .inputs = true}, \
        {"expert_mapping for three devices", BAD_EXTENT("expert_mapping", 1, 3, "3", "2")}, \
        {"no experts", BAD_EXTENT("expert_mapping", 0, 0, "0", NULL)}, \
        {"65536 experts", BAD_EXTENT("expert_mapping", 0, 65536, "65536", "65535")}, \
        {"no elements", BAD_EXTENT("input", 3, 0, "0", NULL)}, \
        {"a mapping of 2", BAD_NUMBER("expert_mapping", 7, 2, SY_ERR_ROUTING, "2", NULL)}, \
        {"told another cluster_axis", TOLD("cluster_axis", 1)}, {"told another order", TOLD("order", 1)}, \
        {"told another layout", TOLD("layout", 1)}, {"told another align", TOLD("align", 3)}, \
        {"told max_tokens", TOLD("max_tokens", 5)}, {"told another replica", TOLD("replica", 2)}, \
        {"told another node_size", TOLD("node_size", 2)}, {"told expert_rows", TOLD("expert_rows", 4)}, \
    { \
        "a mapping of 65535", BAD_NUMBER("expert_mapping", 0, 65535, SY_ERR_ROUTING, "65535", NULL) \
    }

#endif
