/*
 * Tokens of several devices and the experts they chose: the input of an exchange between devices, and the expected
 * result, from plain loops.
 */
#ifndef SWITCHYARD_BENCH_MESH_CASE_H
#define SWITCHYARD_BENCH_MESH_CASE_H

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

/* Fills mapping, row, rows and sent from the indices. */
void mesh_case_count(struct mesh_case *m);

/* Gives every expert so many rows, of which the first are its tokens. */
void mesh_case_space(struct mesh_case *m, int64_t expert_rows);

/* Gives experts replicas, and counts again. */
void mesh_case_replicate(struct mesh_case *m);

int mesh_case_device(const struct mesh_case *m, int64_t expert);
bool mesh_case_hits(const struct mesh_case *m, int64_t t, int device); /* whether token t goes there */
int64_t mesh_case_sent(const struct mesh_case *m);                     /* all of `sent` */

#endif
