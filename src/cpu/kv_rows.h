/*
 * Rows of a paged cache by slot, and copies between them and dense rows: shared by the operators on KV caches once
 * the slots are known.
 */
#pragma once

#include "plan/kv_math.h"
#include "kernels/kernels.h"

enum { SYI_KV_CHUNK = 1024 }; /* slots of a batch; pieces collected before any are copied */

enum syi_kv_direction { SYI_KV_FROM_CACHE, SYI_KV_TO_CACHE };

/* Collects slots in the order of dense rows, and moves each full batch, plane after plane. The lists are too long for a
   small stack: movers are in scratch memory, one for each task. */
struct syi_kv_mover {
    const struct syi_kernels *kernels;
    const struct syi_kv_planes *planes;
    enum syi_kv_direction direction;
    bool clear;       /* from the cache: a dense row without a slot becomes zero; else it keeps its bytes */
    int64_t first, n; /* dense row of the batch's first slot, slots */
    int64_t slot[SYI_KV_CHUNK];
    void *row[SYI_KV_CHUNK]; /* of one plane: addresses of the slots in the cache, NULL for none */
    void *to[SYI_KV_CHUNK];  /* pieces to copy; or addresses of the scales of packed rows */
    const void *from[SYI_KV_CHUNK];
};

/* The first plane whose global scale is no positive number. */
struct syi_found syi_kv_bad_global(const struct syi_kv_planes *planes);

/* `first` is the dense row of the first slot. */
void syi_kv_move_begin(struct syi_kv_mover *m, const struct syi_kernels *kernels,
                       const struct syi_kv_planes *planes, enum syi_kv_direction direction, bool clear,
                       int64_t first);

/* A buffer for the slots of the next dense rows, -1 for none: space for *capacity of them. Then n were written to it. */
int64_t *syi_kv_move_capacity(struct syi_kv_mover *m, int64_t *capacity);
void syi_kv_move_slots(struct syi_kv_mover *m, int64_t n);

/* The next n dense rows have consecutive slots. */
void syi_kv_move_run(struct syi_kv_mover *m, int64_t slot, int64_t n);

/* Moves the last, partial batch. */
void syi_kv_move_end(struct syi_kv_mover *m);
