/*
 * The same work by PyTorch and NumPy, beside the operators: bench/peers.py, run by the Python of the machine.
 */
#ifndef SWITCHYARD_BENCH_PEERS_H
#define SWITCHYARD_BENCH_PEERS_H

#include "bench.h"

/* bench/peers.py, put into the program by the build, so that it works from anywhere. */
extern const char bench_peers_py[];

/* One form of a peer at one shape. */
struct peer_result {
    const char *op, *shape;
    char peer[24], version[32], form[64];
    bool warm;
    double seconds, spread, times_slower; /* the last: than the operator */
    int turns;
};

/* The interpreter that is asked: SWITCHYARD_PYTHON, else PYTHON, else python3. */
const char *peers_interpreter(void);

/*
 * Lets the peers do the cases of an operator that were timed, and reports what they say. An operator that has no
 * peers is no trouble; an interpreter or library that is missing is one note of the report.
 */
void peers_run(struct bench *bench, const struct bench_op *op);

#endif
