/*
 * Test programs that run as several processes. Every process runs every test; process 0 alone reports, in TAP, and a
 * test has failed when it failed in any of them. A test that hangs ends the program, with the stack of every process.
 */
#ifndef SWITCHYARD_TESTS_RANKS_H
#define SWITCHYARD_TESTS_RANKS_H

#include "support.h"

#include <switchyard_mpi.h>

/* Of MPI_COMM_WORLD, from ranks_begin on. */
extern int this_rank, n_ranks;

/* Initialises MPI unless it is; sets the traps for hanging tests. */
void ranks_begin(void);
/* Runs a list of tests; 0 when all passed in all processes. */
int ranks_run(const struct CMUnitTest *tests, size_t n);
/* Finalises MPI and returns what main should. */
int ranks_end(int failed);

/* Fails unless all processes hold the same bytes. Collective. */
void expect_same_everywhere(const void *data, size_t bytes);

#endif
