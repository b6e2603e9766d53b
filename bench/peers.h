/*
 * The same work by PyTorch and NumPy, for comparison: bench/peers.py, run by the machine's Python.
 */
#ifndef SWITCHYARD_BENCH_PEERS_H
#define SWITCHYARD_BENCH_PEERS_H

#include "bench.h"

/* bench/peers.py, embedded by the build, so that it works from anywhere. */
extern const char bench_peers_py[];

/* One form of a peer at one shape. */
struct peer_result {
    const char *op, *shape;
    char peer[24], version[32], form[64];
    bool warm;
    double seconds, spread, times_slower; /* the last: than the operator */
    int turns;
};

/* The interpreter: SWITCHYARD_PYTHON, else PYTHON, else python3. */
const char *peers_interpreter(void);

/*
 * Runs the timed cases of an operator with the peers, and reports their times. An operator without peers is skipped; a
 * missing interpreter or library is a note in the report.
 */
void peers_run(struct bench *bench, const struct bench_op *op);

#endif
