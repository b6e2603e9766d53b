/*
 * Exchanges that run on a device, without the choices in CPU memory: of a mesh inside one process, whose tensors are all there, or
 * the part of one process, which reads the tokens and choices of the others in mapped memory.
 */
#pragma once

#include "plan/memory.h"
#include "plan/replica.h"

/* One device of the mesh. */
struct syi_a2a_device {
    struct syi_rows from[SY_A2A_MAX_PLANES], to[SY_A2A_MAX_PLANES];
    struct syi_rows indices; /* dispatch: of its own tokens; combine: of the group's */
    struct syi_rows metadata, mask, src, weights;
    unsigned char *expert_counts, *expert_offsets, *rows_from, *rows_to;
    int64_t first, n_tokens;      /* its tokens among those of all devices */
    int64_t before, group_tokens; /* tokens of the positions before it, of its group */
    int64_t table_first;          /* combine: rows of the tables of choices of the devices before */
    int64_t capacity;             /* rows of `to` of a dispatch, of `from` of a combine */
    sy_type weight_type;
    int group, position;
};

/* Rows of a device in the layout of a call, where they depend on choices. With expert_rows an expert, or a pair, may have more than
   these: then its number, and `rows` are its own. */
struct syi_row_count {
    int64_t rows;
    int64_t overfull; /* -1: none */
};

struct syi_a2a_plan {
    enum syi_op_id id;
    sy_mesh mesh;
    sy_axis axis;
    int n_devices, n_positions, n_groups;
    int own; /* -1: all devices are here; else the one whose outputs are written. Its faults are not reported: its
                row counts have what they follow from */
    int64_t n_tokens;   /* of all devices */
    int64_t interleave; /* as in struct syi_token_order */
    int64_t n_slots, n_experts, align, expert_rows, hidden;
    int64_t n_named;            /* experts of the mapping; with a rule n_experts counts pairs */
    struct syi_a2a_rule rule;   /* of replicas */
    struct syi_a2a_pairs pairs; /* with a rule */
    sy_type index_type, type;
    sy_a2a_layout layout;
    bool strict, zero, local_reduce, sum;
    bool routed; /* the choices are those of the routing */
    int n_planes;
    size_t row_bytes[SY_A2A_MAX_PLANES];
    /* `given`: from[0] of a dispatch has rows of numbers, and the run sets it and the last to codes and scales; a combine has those */
    struct syi_row_codes_plan codes;
    struct syi_a2a_device *device; /* [D] */
    const int32_t *local;          /* [D*E] place of an expert on a device, -1: not there; not with a rule */
    uint64_t number;               /* of the dispatch that fills, or filled, the routing */
    struct syi_row_count *need;    /* NULL, or [D]: of every device, for the host once the work has ended */
};

/* What a routing keeps for the host, in its memory: [D] row counts follow, not of PADDED. */
struct syi_row_counts {
    uint64_t number;        /* of the dispatch, which the host writes before it is queued */
    struct syi_found found; /* what is wrong with the choices of all processes */
};

SYI_BOTH static inline struct syi_row_count *syi_row_counts_of(struct syi_row_counts *counts)
{
    return (struct syi_row_count *)(counts + 1);
}

/* What a device keeps of a routing, in its memory. It outlives the context that made it, and grows. */
struct syi_device_routing {
    void *data;
    size_t bytes;
    int ordinal;           /* of the device of `data` */
    struct syi_kept *kept; /* memory before it grew, or was made on another device: graphs may use it */
    struct syi_row_counts *row_counts; /* NULL, or written when a dispatch of one process has ended */
    int n_row_counts;                  /* devices it has capacity for */
    void *graphs;                      /* of calls of one process that filled it; NULL: none yet */
    const struct syi_mesh_device *by;
};

struct syi_kept {
    void *data;
    struct syi_kept *next;
};

/* The end of the work of a request. */
struct syi_mark {
    void *event;
    int ordinal;       /* of its device */
    uint32_t *skipped; /* whether a fault was reported before, in memory of the host */
    const struct syi_mesh_device *by;
};

struct syi_mesh_device {
    /* Whether it can run calls of this size. */
    bool (*can)(const struct syi_a2a_plan *plan);

    /* Queues the exchange. Contents are validated there, and faults reported as for all operators of a device. routing NULL: it
       is not kept. A failure leaves its sentence in ctx->backend_error. */
    sy_status (*run)(sy_ctx *ctx, const struct syi_a2a_plan *plan, struct syi_device_routing *routing);
    void (*forget)(struct syi_device_routing *routing);

    /* Choices of a routing, to CPU memory: `runs` times `run` tokens from `first` on, `stride` tokens apart at `to`. */
    sy_status (*fetch)(sy_ctx *ctx, const struct syi_device_routing *routing, const struct syi_a2a_plan *plan,
                       int64_t first, int64_t run, int64_t runs, int32_t *to, int64_t stride);

    /* Something captures the stream of the context. */
    bool (*captures)(const sy_ctx *ctx);

    /* Queues a mark; whether the work before it has ended, and whether a fault had skipped it. */
    sy_status (*mark)(sy_ctx *ctx, struct syi_mark *mark);
    sy_status (*reached)(sy_ctx *ctx, struct syi_mark *mark, bool wait, bool *done, bool *skipped);
    void (*unmark)(struct syi_mark *mark);
};
