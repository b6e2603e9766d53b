/*
 * What the cases of the operators between devices have in common: a problem of tests/mesh_cases.h, whose choices are those of
 * the reader, and the tensors and expected results of tests/mesh_calls.c.
 */
#pragma once

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

void mesh_foreign_routing(struct call *c);
void mesh_empty_routing(struct call *c);

/* A value that contradicts the routing. */
#define TOLD \
    SY_ERR_VALUE, .wanted = "as in the routing, or 0", \
                  .line = "by_routing=1 routing=2 align=2 B=2 S=3 K=2 E=6 H=5 experts=1"

/* What both reject in calls of 2 devices with 6 experts. */
#define MESH_VALUES \
    {"cluster_axis=3", SY_ERR_VALUE, "axis 2"}, {"cluster_axis=-1", SY_ERR_VALUE, "axis -2"}, \
        {"align=-1", SY_ERR_VALUE, "-1"}, {"max_tokens=-1", SY_ERR_VALUE, "-1"}, \
        {"node_size=-1", SY_ERR_VALUE, "-1", "0 or more"}, \
        {"node_size=3", SY_ERR_VALUE, "3", "a divisor of 2, the devices of a group"}, \
        {"num_links=-1", SY_ERR_VALUE, "-1"}, {"memory=4", SY_ERR_VALUE, "4"}, \
        {"memory=-1", SY_ERR_VALUE, "-1"}, {"memory=3", SY_ERR_UNSUPPORTED, "is sharded", "dram"}, \
        {"subdevice_id=1", SY_ERR_VALUE, "1", "0"}, {"subdevice_id=-1", SY_ERR_VALUE, "-1", "0"}, \
        {"expert_rows=-1", SY_ERR_VALUE, "-1"}, \
        {"expert_rows=3", SY_ERR_VALUE, "3", "0: the layout is not expert"}, \
        {"", SY_ERR_STATE, NULL, "one of this comm", .blame = "routing", .with = mesh_foreign_routing}, \
        {"expert_mapping.shape[1]=3", SY_ERR_SHAPE, "3", "2"}, \
        {"expert_mapping.shape[0]=0", SY_ERR_SHAPE, "0"}, \
        {"expert_mapping.shape[0]=65536", SY_ERR_SHAPE, "65536", "65535"}, \
        {"input.shape[3]=0", SY_ERR_SHAPE, "0"}, {"expert_mapping.data[7]=2", SY_ERR_ROUTING, "2"}, \
        {"cluster_axis=1", TOLD}, {"order=1", TOLD}, {"layout=1", TOLD}, {"align=3", TOLD}, \
        {"max_tokens=5", TOLD}, {"replica=2", TOLD}, {"node_size=2", TOLD}, {"expert_rows=4", TOLD}, \
    { \
        "expert_mapping.data[0]=65535", SY_ERR_ROUTING, "65535" \
    }
