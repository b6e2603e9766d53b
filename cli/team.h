/*
 * The processes of one run. Under mpirun each of them is one device of the mesh: all read the input file, the first
 * alone prints and writes. The plain program has no team and is linked without MPI; see mpi.c for the other.
 */
#ifndef SWITCHYARD_CLI_TEAM_H
#define SWITCHYARD_CLI_TEAM_H

#include <switchyard.h>

struct common;
struct arg_list;

struct team {
    int rank;
    /* Collective: a comm of the mesh, one process per device. */
    sy_status (*connect)(sy_comm **comm, sy_mesh mesh, const sy_comm_options *options);
    /* Collective: the exit code of the lowest rank that has one other than EXIT_DONE. What that rank has said about it
       is printed by the first. After such a code the processes agree on nothing more: further calls return it. A
       process that ends early takes part once more at its end, so that no other one waits for it. */
    int (*agree)(int code);
    /* Brings `bytes` of `from` to the first; called by these two only, in the same order. */
    void (*bring)(void *data, size_t bytes, int from);
    /* What these commands are between processes. */
    int (*bench)(struct common *common, struct arg_list *list);
    int (*demo)(struct common *common, struct arg_list *list);
};

/* What a line runs between processes: the name of an operator of a mesh, bench, demo; NULL for all others. */
const char *team_task(int argc, char **argv);

/* Under an MPI launcher: leaves this program for the one that is linked with MPI, when the line asks for an operator
   of a mesh, its benchmark or the demo. Returns EXIT_DONE when there is nothing to leave for, and EXIT_USAGE when there is no such program. */
int team_join(int argc, char **argv);

#endif
