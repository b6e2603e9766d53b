/*
 * Test programs that run as several processes, of MPI (ranks_mpi.c) or connected by NCCL (tests/nccl/ranks_nccl.c). Every process runs every test; process 0 alone reports, in TAP, and a
 * test has failed when it failed in any of them. A test that hangs ends the program, with the stack of every process.
 */
#pragma once

#include "support.h"

#include <switchyard_transport.h>
#ifndef SWITCHYARD_TEST_NCCL
#include <switchyard_mpi.h>
#endif

/* From ranks_begin on. */
extern int this_rank, n_ranks;

/* Starts the processes or finds them; sets the traps for hanging tests. */
void ranks_begin(void);
/* Runs a list of tests; 0 when all passed in all processes. */
int ranks_run(const struct CMUnitTest *tests, size_t n);
/* Ends what began, and returns what main should. */
int ranks_end(int failed);

/* Both, of a list that has been made for it. */
int ranks_run_list(struct test_list *list);

/* Fails unless all processes hold the same bytes. Collective. */
void expect_same_everywhere(const void *data, size_t bytes);

/* Collective: `bytes` of every process, in order of their ranks; not by what is tested. */
void ranks_gather(const void *mine, size_t bytes, void *all);
void ranks_barrier(void);

/* Collective: what is tested, between all processes. A transport that cannot be made fails the test. */
sy_status ranks_comm(sy_comm **comm, sy_mesh mesh, const sy_comm_options *options);
sy_transport ranks_transport(sy_mesh mesh);

/* The meshes that all processes can form: the number of them, and each one. */
int n_meshes(void);
sy_mesh mesh_number(int i);

/* For ranks.c: of each kind of processes. */
void ranks_open(void); /* sets this_rank and n_ranks */
void ranks_close(void);
