/*
 * Tokens of several devices and the experts they chose: the input of an exchange between devices, and the expected
 * result, from plain loops.
 */
#pragma once

#include "bench.h"

/* One group of all devices; device d hosts experts d*E/D and the next E/D - 1. Token t = d*N + n. */
struct mesh_case {
    int devices;
    int64_t tokens, experts, k;
    uint16_t *indices; /* [D*N,K] ascending in each token, or in the order of the caller */
    uint16_t *mapping; /* [E,D] */
    int32_t *row;      /* [D*N,K] the row of this choice in EXPERT layout, on the expert's device */
    int64_t *rows;     /* [D] such rows of each device */
    int64_t *sent;     /* [D,D] tokens of p that go to q, at p*D + q */
    bool
        replicated; /* every fourth expert is also D/2 devices on, and serves by ROUND_ROBIN; `row` and `rows` are not set */
};

/* Chooses as bench_route does. False: no memory. Call mesh_case_free in either case. */
bool mesh_case_make(struct mesh_case *m, int devices, int64_t tokens, int64_t experts, int64_t k,
                    uint64_t seed);
void mesh_case_free(struct mesh_case *m);

/* Gives every expert so many rows, of which the first are its tokens. */
void mesh_case_space(struct mesh_case *m, int64_t expert_rows);

/* Gives experts replicas, and counts again. */
void mesh_case_replicate(struct mesh_case *m);

int mesh_case_device(const struct mesh_case *m, int64_t expert);
bool mesh_case_hits(const struct mesh_case *m, int64_t t, int device); /* whether token t goes there */
int64_t mesh_case_sent(const struct mesh_case *m);                     /* all of `sent` */

/* first[D+1]: rows that a dispatch of this layout writes on the devices before each. */
void mesh_case_first(const struct mesh_case *m, sy_a2a_layout layout, int64_t *first);

/* ---- Calls ---- */

/* The parts of a tensor on n devices, which follow each other at x->data: of this shape each; with `first` of as many rows as
   lie between two of its n + 1 numbers. x or its data NULL: there are none. */
enum { MESH_PARTS = 16, MESH_DEVICES = 64 /* of the whole mesh */ };
struct mesh_parts {
    DLTensor of[MESH_PARTS];
    int64_t shape[MESH_PARTS][3];
};
const DLTensor *mesh_parts(struct mesh_parts *p, const DLTensor *x, int n, const int64_t *first, int rank,
                           const int64_t *shape);

/* Calls of bf16 rows by a process that has `n` devices from `begin` on. Pointers are to the parts of the first. */
struct mesh_calls {
    const struct mesh_case *mesh;
    sy_ctx *ctx;
    sy_comm *comm;
    sy_routing *routing; /* of EXPERT rows */
    DLDevice device;     /* {0}: the CPU */
    int begin, n;
    int64_t hidden;
    int64_t *counts, *offsets; /* of a dispatch, in CPU memory; may be NULL */
};
sy_status mesh_dispatch(const struct mesh_calls *c, sy_a2a_layout layout, void *tokens, uint16_t *indices,
                        void *rows);
sy_status mesh_combine(const struct mesh_calls *c, void *rows, float *weights, bool sum, void *out);
void mesh_calls_free(struct mesh_calls *c); /* comm and routing */
