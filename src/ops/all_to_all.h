/*
 * What the checks of all_to_all_dispatch and all_to_all_combine have in common.
 */
#pragma once

#include "exchange/exchange.h"
#include "ops/call.h"

/* Tokens of a tensor: [B,1,S,X], [B,S,1,X], or [N,X] with B = N and S = 1. */
struct syi_a2a_tokens {
    int64_t batch, run; /* B, S */
    bool short_form;
};

/* The fields both operators have. */
struct syi_a2a_options {
    sy_axis axis;
    const char *dim_name;
    int dim;
    sy_a2a_order order;
    sy_fill fill;
    sy_a2a_layout layout;
    int64_t align, max_tokens;
    int num_links;
    sy_topology topology;
    sy_memory memory;
    int subdevice_id;
    sy_a2a_replica replica;
    int64_t node_size, expert_rows;
};

/* The `validate` of both operators. */
sy_status syi_a2a_validate(sy_ctx *ctx, const struct syi_exchange_op *op, const void *args, size_t args_bytes,
                           sy_request *r);

/* What a query answers: the checks of every device, without contents; check has set call->rows and call->slots. */
sy_status syi_a2a_query(sy_ctx *ctx, sy_comm *comm, const struct syi_exchange_op *op, const void *args,
                        size_t args_bytes, sy_query *query, size_t query_bytes);

/* The same answers, and the shapes of outputs, of as many devices as the n of `shapes` have room for; it may be NULL. */
sy_status syi_a2a_infer(sy_ctx *ctx, sy_comm *comm, const struct syi_exchange_op *op, const void *args,
                        size_t args_bytes, sy_query *query, sy_shape *shapes, int n);

#define SYI_DECLARE(ID, op) extern const struct syi_exchange_op syi_exchange_##op;
SYI_MESH_OPERATORS(SYI_DECLARE)
#undef SYI_DECLARE

/* The entry points of an operator between devices. */
#define SYI_DEFINE_EXCHANGE(op) \
    sy_status sy_##op##_start_n(sy_ctx *ctx, sy_comm *comm, const sy_##op##_args *args, size_t args_bytes, \
                                sy_request **r) \
    { \
        return syi_exchange_start(ctx, comm, &syi_exchange_##op, args, args_bytes, r); \
    } \
    sy_status sy_##op##_n(sy_ctx *ctx, sy_comm *comm, const sy_##op##_args *args, size_t args_bytes) \
    { \
        return syi_exchange_run(ctx, comm, &syi_exchange_##op, args, args_bytes); \
    } \
    sy_status sy_##op##_query_n(sy_ctx *ctx, sy_comm *comm, const sy_##op##_args *args, size_t args_bytes, \
                                sy_query *query, size_t query_bytes) \
    { \
        return syi_a2a_query(ctx, comm, &syi_exchange_##op, args, args_bytes, query, query_bytes); \
    }

/* Options that both have, as rows of their descriptions. */
#define SYI_A2A_LAYOUT_FIELDS \
    SYI_SCALAR(layout, ENUM, .words = "padded packed expert", .help = "layout of the rows of experts"), \
        SYI_SCALAR(align, I64, .help = "layout expert: rows of an expert are padded to a multiple"), \
        SYI_SCALAR(max_tokens, I64, .help = "devices may have different numbers of tokens, none above N"), \
        SYI_SCALAR(strict_unique, BOOL, \
                   .help = "reject a token that names an expert twice; else it counts once")

#define SYI_A2A_HINT_FIELDS \
    SYI_SCALAR(num_links, INT, .preset = "1", .help = "messages per pair of devices, a hint"), \
        SYI_SCALAR(topology, ENUM, .words = "auto linear ring mesh torus", \
                   .help = "a hint; no result depends on it"), \
        SYI_SCALAR(memory, ENUM, .words = "auto dram l1 sharded", \
                   .help = "a hint; sharded is not supported"), \
        SYI_SCALAR(subdevice_id, INT, .help = "a hint; must be 0")

#define SYI_A2A_REPLICA_FIELDS \
    SYI_SCALAR(replica, ENUM, .words = "all first round_robin hash balanced local", \
               .help = "which hosts of an expert serve a choice: all, or one"), \
        SYI_SCALAR(node_size, I64, .help = "replica local: positions of a node; 0: nodes do not matter")

/* ---- Steps of a check ---- */

/* The rank of tensor i is one of two. */
sy_status syi_a2a_check_rank(struct syi_call *call, int i, int full, int shorter);

/* Tokens of tensor i. SHAPE when both middle dimensions are above 1. */
sy_status syi_a2a_check_tokens(struct syi_call *call, int i, struct syi_a2a_tokens *tokens);

/* Tensor i is like tensor j but for its last extent, which is not 0. */
sy_status syi_a2a_check_like(struct syi_call *call, int i, int j);

/* Tensor i, when present, has n tokens between `lead` extents and rows of `elems`: as batch times run where they are
   known (a tensor of four dimensions may have a 1 between them), in any way where they are 0, or in one dimension.
   Where it is absent the shape is recorded with as many dimensions as are known. */
sy_status syi_a2a_check_spread(struct syi_call *call, int i, int lead, int64_t first, int64_t batch,
                               int64_t run, int64_t n_tokens, int64_t elems);

/* Rows of tensor i have n elements. */
sy_status syi_a2a_check_row_elems(struct syi_call *call, int i, int64_t n);

sy_status syi_a2a_check_mapping(struct syi_call *call, int i, const sy_comm *comm, sy_type index_type,
                                struct syi_exchange *x);
sy_status syi_a2a_check_options(struct syi_call *call, const sy_comm *comm, const struct syi_a2a_options *o,
                                struct syi_exchange *x);

/* A routing belongs to this comm; one that is used must have been filled, and the call must not contradict the dispatch that filled it. */
sy_status syi_a2a_check_routing_comm(struct syi_call *call, const sy_comm *comm, const sy_routing *routing);
sy_status syi_a2a_check_routing(struct syi_call *call, const sy_comm *comm, const sy_routing *routing,
                                const struct syi_a2a_options *o);
void syi_a2a_take_routing(struct syi_exchange *x, const sy_routing *routing);

/* Rows are numbered with 31 bits. */
sy_status syi_a2a_check_rows(struct syi_call *call, const char *argument, int64_t a, int64_t b,
                             int64_t *rows);

/* OVERFLOW where the layout could need more than 2^31-1 rows on one device; *rows: the most it could need. */
sy_status syi_a2a_check_layout_rows(struct syi_call *call, const struct syi_exchange *x, int64_t group_tokens,
                                    int64_t *rows);
