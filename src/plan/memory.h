/*
 * How the exchange between devices reaches the memory of tensors: a table of functions, one for each kind of memory.
 * Everything else of an exchange (headers, routings, lists of rows) is in CPU memory.
 */
#pragma once

#include "plan/mesh.h"
#include "plan/plan.h"

/* All tokens of one group. */
struct syi_a2a_group {
    sy_mesh mesh;
    sy_axis axis;
    int index; /* which group of the axis */
    struct syi_token_order order;
    int64_t n_slots;       /* K */
    const int32_t *choice; /* [T,K] in order of tau, -1 for none */
    sy_a2a_layout layout;  /* of rows on the experts' side */
    int64_t align;         /* of EXPERT, >= 1 */
    int64_t expert_rows;   /* of EXPERT: of each expert; 0: as many as it has, a multiple of align */
};

/* The source of a row. */
struct syi_a2a_pick {
    int32_t position; /* -1: no source */
    int32_t row;      /* there */
};

/* One tensor of an exchange: rows of row_bytes from source[p].. of each position to `to`. */
struct syi_a2a_plane {
    const struct syi_rows *source; /* [G (+1)] of each position; data NULL: not accessible here, left out */
    struct syi_rows to;
    size_t row_bytes;
};

/* Rows of one device. */
struct syi_a2a_job {
    int64_t n_rows;
    const struct syi_a2a_pick *pick; /* [n_rows] */
    bool zero;                       /* rows without a source become zero bytes */
    int n_planes;
    struct syi_a2a_plane plane[SY_A2A_MAX_PLANES];
};

/* A destination of a token: a row of one of the jobs. */
struct syi_a2a_place {
    int32_t job, row;
};

/* All jobs of one group of a dispatch whose sources are all accessible; planes of equal number have equal sources. */
struct syi_a2a_fan {
    const struct syi_a2a_group *group;
    const struct syi_a2a_job *job;
    int n_jobs;
    int64_t *first;              /* scratch [T+2] */
    struct syi_a2a_place *place; /* scratch [rows of all jobs] */
};

/* Sums of a device's own tokens: row n of `to` = sum over j < n_slots of weight[n,j] * row of pick[j*N + n], as the header defines it. */
struct syi_a2a_sum {
    int64_t n_home, n_slots, hidden;
    const struct syi_a2a_pick *pick; /* [n_slots*N] */
    sy_type type;
    const struct syi_rows *source;   /* [G (+1)] */
    struct syi_row_codes_plan codes; /* of the rows; given: type is that of the sum */
    const struct syi_rows *scales;   /* [G (+1)], with codes */
    struct syi_rows weights;         /* [N,K]; data NULL: ones */
    sy_type weight_type;
    struct syi_rows to;
    const int32_t *at; /* [N] row of `to` in place of n, -1: none is written; NULL: n */
};

struct syi_memory;
struct syi_mesh_device; /* plan/mesh_device.h */

/* Memory of a request through which rows on a GPU travel in messages: packed ones, and those that arrive. It is kept from
   call to call, and holds no context. */
struct syi_travel {
    unsigned char *rows; /* on the device */
    unsigned char
        *wire; /* where the transport reads and writes them: `rows`, or pinned memory of the same layout */
    size_t bytes;
    const struct syi_memory *memory; /* that made it; NULL: there is none */
    void *of_memory;
};

struct syi_memory {
    const struct syi_mesh_device
        *mesh;       /* whole exchanges of a mesh inside one process; NULL: by the functions below */
    const char *isa; /* of a trace; NULL: that of the context's kernels */
    bool
        on_gpu; /* the functions below begin and end queue work; between processes rows are packed, see `travel` */

    /* Before the first of an exchange. ahead: n rows that will be read, NULL: none; their copy is queued. Failures of this and the
       other functions leave their sentence in ctx->backend_error. */
    sy_status (*begin)(sy_ctx *ctx, const struct syi_rows *ahead, int64_t n, size_t row_bytes);

    /* Those rows will not be read: a device validates and lists them. */
    void (*skip)(sy_ctx *ctx);

    /* What earlier calls and this one queued is written. */
    sy_status (*wait)(sy_ctx *ctx);

    /* Makes n rows of a tensor readable by the CPU: leaves *rows as it is, or sets it to a copy that holds until the
       next read. */
    sy_status (*read)(sy_ctx *ctx, struct syi_rows *rows, int64_t n, size_t row_bytes);

    /* Copies n rows to a tensor: of another one, or of CPU memory. */
    void (*write)(sy_ctx *ctx, struct syi_rows to, struct syi_rows from, bool of_tensor, int64_t n,
                  size_t row_bytes);

    /* Rows to codes and scales in memory of the request; on a GPU queued at once. */
    sy_status (*encode)(sy_ctx *ctx, const struct syi_row_codes_plan *plan);

    /* Copies n rows of a tensor, one after the other. rows NULL: 0, 1, 2, ... On a GPU they are NULL, and the copy is queued: the
       next `wait` returns its failure. */
    void (*pack)(sy_ctx *ctx, struct syi_rows to, struct syi_rows from, const int32_t *rows, int64_t n,
                 size_t row_bytes);

    /* Copies the rows of all jobs; the CPU splits them over threads. */
    void (*copy)(sy_ctx *ctx, const struct syi_a2a_job *job, int n_jobs);

    /* Does what copy does, by token. */
    void (*fan_out)(sy_ctx *ctx, const struct syi_a2a_fan *fan);

    /* Copies rows inside an output: every row with a pick that is not the one its token arrived at (EXPERT after
       syi_a2a_dispatch_receives) from there. `seen` is that of the function. */
    void (*spread)(sy_ctx *ctx, const struct syi_a2a_group *group, const struct syi_a2a_job *job,
                   const int32_t *seen);

    /* Adds, with scratch of so many bytes. */
    size_t (*add_scratch)(const sy_ctx *ctx, int64_t n_slots);
    void (*add)(sy_ctx *ctx, const struct syi_a2a_sum *sum, int n_sums, void *scratch);

    /* After the last of an exchange: what the functions before were asked to write is written, or queued. */
    sy_status (*end)(sy_ctx *ctx);

    /*
     * On a GPU, between processes; NULL for CPU memory. Several requests of a context may be open, so every step of one
     * ends with `flush`: end, but faults of other calls of the context do not skip its work, which other processes wait for.
     */
    sy_status (*flush)(sy_ctx *ctx);

    /* Makes or grows a travel; waits until earlier work no longer uses it. copied: the transport accepts CPU memory only. */
    sy_status (*travel)(sy_ctx *ctx, struct syi_travel *travel, size_t bytes, bool copied);
    void (*travel_free)(struct syi_travel *travel);

    /* Queues the copy of a part from `rows` to `wire`, or back. */
    sy_status (*travel_copy)(sy_ctx *ctx, const struct syi_travel *travel, size_t offset, size_t bytes,
                             bool back);

    /* Queues a mark; whether the work before it has ended. */
    sy_status (*mark)(sy_ctx *ctx, struct syi_travel *travel);
    sy_status (*reached)(sy_ctx *ctx, struct syi_travel *travel, bool *done);

    void (*place)(const sy_ctx *ctx, int *ordinal, void **stream);

    /*
     * Memory of this device that processes of the same machine read in place. share: makes it, and the token by which others
     * find it; NULL: no other process will. attach: base[d] of the n - 1 others; fails where one cannot be mapped. detach: ends
     * that. unshare: frees it, after all have detached. The last two need no context.
     */
    sy_status (*share)(sy_ctx *ctx, size_t bytes, unsigned char *token, void **handle, void **base);
    sy_status (*attach)(sy_ctx *ctx, void *handle, const unsigned char *tokens, int n, int own, void **base);
    void (*detach)(void *handle);
    void (*unshare)(void *handle);
};
