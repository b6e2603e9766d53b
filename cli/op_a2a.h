/*
 * What all_to_all_dispatch and all_to_all_combine have in common on the command line: their options.
 */
#ifndef SWITCHYARD_CLI_OP_A2A_H
#define SWITCHYARD_CLI_OP_A2A_H

#include "mesh.h"

#define A2A_MAPPING_SHAPES "[E,D], [1,1,E,D], [D,1,E,D]"

/* FIELD(name) is the offset of a field of the operator. */
#define A2A_WHERE_FIELDS(dim_name, dim_text) \
    {.name = "mesh", \
     .kind = OP_MESH, \
     .offset = offsetof(struct op_call, mesh.extent), \
     .required = true, \
     .text = "devices: rows x columns"}, \
        {.name = "cluster_axis", \
         .kind = OP_AXIS, \
         .offset = offsetof(struct op_call, mesh.axis), \
         .preset = "none", \
         .text = "who exchanges: all devices, those of a column (0), of a row (1)"}, \
    { \
        .name = (dim_name), .kind = OP_INT64, .offset = offsetof(struct op_call, mesh.dim), .preset = "1", \
        .text = (dim_text) \
    }

#define A2A_HOW_FIELDS \
    {.name = "order", \
     .kind = OP_WORD, \
     .offset = FIELD(order), \
     .preset = "concat", \
     .words = {"concat", "flat"}, \
     .values = {SY_ORDER_CONCAT, SY_ORDER_FLAT}, \
     .text = "of a group's tokens along dimension 2"}, \
        {.name = "fill", \
         .kind = OP_WORD, \
         .offset = FIELD(fill), \
         .preset = "zero", \
         .words = {"zero", "keep"}, \
         .values = {SY_FILL_ZERO, SY_FILL_KEEP}, \
         .text = "rows nobody sends"}, \
        {.name = "layout", \
         .kind = OP_WORD, \
         .offset = FIELD(layout), \
         .preset = "padded", \
         .words = {"padded", "packed", "expert"}, \
         .values = {SY_LAYOUT_PADDED, SY_LAYOUT_PACKED, SY_LAYOUT_EXPERT}, \
         .text = "of rows on the experts' side"}, \
        {.name = "align", \
         .kind = OP_INT64, \
         .offset = FIELD(align), \
         .text = "layout expert: rows of an expert are padded to a multiple"}, \
        {.name = "max_tokens", \
         .kind = OP_INT64, \
         .offset = FIELD(max_tokens), \
         .text = "devices may have different numbers of tokens, none above N"}, \
        {.name = "strict_unique", \
         .kind = OP_BOOL, \
         .offset = FIELD(strict_unique), \
         .text = "an expert twice in a token is refused, not counted once"}, \
        {.name = "num_links", \
         .kind = OP_INT64, \
         .offset = offsetof(struct op_call, mesh.links), \
         .preset = "1", \
         .text = "messages a pair's rows are cut into, a hint"}, \
    { \
        .name = "topology", .kind = OP_WORD, .offset = FIELD(topology), \
        .words = {"linear", "ring", "mesh", "torus"}, \
        .values = {SY_TOPOLOGY_LINEAR, SY_TOPOLOGY_RING, SY_TOPOLOGY_MESH, SY_TOPOLOGY_TORUS}, \
        .text = "a hint" \
    }

#endif
