/*
 * For tests/cuda/mesh.c: the tensors of a mesh of four devices inside one process, in memory of a CUDA device and of the CPU, and calls
 * of every layout with them.
 */
#pragma once

#include "tensors.h"

enum { D = 4, G = 2, N = 5, T = G * N, K = 3, E = 12, H = 24, X = 3, ROOM = 16, ALIGN = 4, MOST_LOCAL = 5 };

/* Fields of all calls, D tensors each; inputs first. */
enum field {
    INPUT,
    PLANE,
    CHOSEN, /* by the layout: EXPERT, PACKED, PADDED */
    CHOSEN1,
    CHOSEN2,
    TABLE,   /* of the last combine, the group's */
    RESULTS, /* of experts */
    RESULTS1,
    RESULTS2,
    WEIGHTS,
    N_INPUTS,
    ROWS = N_INPUTS,
    PLANE_ROWS,
    METADATA,
    SRC,
    COUNTS,
    OFFSETS,
    SUMS,
    ROWS1,
    PLANE_ROWS1,
    SRC1,
    FROM,
    TO,
    REDUCED,
    ROWS2,
    PRESENT,
    SLOTS,
    WRITTEN,
    N_FIELDS
};

struct side {
    sy_ctx *ctx;
    sy_comm *comm;
    sy_routing *routing[2];
    struct tensors of;
    DLTensor (*tensor)[D]; /* [N_FIELDS], in `of`; the inputs have the first bytes */
    int64_t (*shape)[D][3];
    size_t inputs;
    int64_t mapping_shape[2];
    uint16_t mapping[2][E][D]; /* always in CPU memory; the second has one holder for each expert */
    void *mapping_there;       /* the first on the device, for one of the tests */
};

void side_open(struct side *s, sy_ctx *ctx, int ordinal);
void side_close_comm(struct side *s);
void side_close(struct side *s);

/* EXPERT, and sums along a routing. */
sy_status side_dispatch(struct side *s, sy_routing *routing);
sy_status side_combine(struct side *s, const sy_routing *routing);

/* PADDED, and slots by a table of their own. */
sy_all_to_all_dispatch_args side_padded(const struct side *s, const DLTensor *mapping);
sy_all_to_all_combine_args side_slots(const struct side *s, const DLTensor *mapping);
DLTensor side_mapping(struct side *s, int i); /* its memory and shape are those of the side */

/* Three round trips: EXPERT and sums along its routing; PACKED with too few rows for all choices, and rows of local_reduce; PADDED, and
   slots by a table of their own. */
sy_status side_run(struct side *s);

/* Captures calls, which return this status and a sentence with these words. */
void *side_capture(struct side *s, sy_status (*calls)(struct side *s), sy_status want, const char *sentence);

/* Contents, in CPU memory. */
void side_fill(const struct side *s, uint64_t *rng);
void side_choose(const struct side *s, enum field f, int d, int64_t i, int64_t value);
void side_choose_one(const struct side *s,
                     int64_t expert); /* for all tokens, so that their rows fit; negative: a fault, or none */

struct mirror {
    struct side there, here;
    struct tensors back;
    void *graph;
    uint64_t rng;
    int faults, full, differ, good; /* replays of each kind */
};

void mirror_open(struct mirror *w, uint64_t seed);
void mirror_close(struct mirror *w);
void mirror_send(const struct mirror *w); /* contents of the CPU's side to the device */
void mirror_fill(struct mirror *w);       /* new ones, sent */
void mirror_fetch(const struct mirror *w, const struct side *there); /* all bytes there into `back` */

/* Of the emulator: makes the n-th step of a kind fail (0: none), and returns how far the last such request was from that. */
int mirror_fail_at(const char *what, int n);
