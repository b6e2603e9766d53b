/*
 * The processes of one run. Under mpirun each of them is one device of the mesh: all read the input file, only the first
 * prints and writes. The plain program has no team and is linked without MPI; see mpi.c for the other.
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
    /* Collective: the exit code of the lowest rank that has one other than EXIT_DONE. The first process prints
       that rank's message. After such a code there are no more agreements: further calls return it. A process that
       ends early takes part once more at its end, so that no other one waits for it. */
    int (*agree)(int code);
    /* Sends `bytes` from process `from` to the first; called by these two only, in the same order. */
    void (*collect)(void *data, size_t bytes, int from);
    /* These commands between processes. */
    int (*bench)(struct common *common, struct arg_list *list);
    int (*demo)(struct common *common, struct arg_list *list);
};

/* What a command line runs between processes: the name of an operator of a mesh, bench, demo; NULL for others. */
const char *team_task(int argc, char **argv);

/* Under an MPI launcher: executes the program that is linked with MPI, if the command line is an operator of a mesh, its
   benchmark or the demo. Returns EXIT_DONE for other command lines, and EXIT_USAGE when there is no such program. */
int team_join(int argc, char **argv);

#endif
