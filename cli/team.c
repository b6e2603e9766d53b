/*
 * Starts the program that is linked with MPI from the plain one. A program linked with MPI cannot start without its
 * libraries, and the plain one must run without them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "ops.h"

static const char program[] = "switchyard-mpi";

/* Open MPI, MPICH and its relatives, PMIx by itself (Slurm). NULL: not launched as one of several processes. */
static const char *launched_as(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    const char *rank = NULL;
    for (int i = 0; i < 3 && !rank; i++)
        rank = getenv(names[i]);
    return rank;
}

const char *team_task(int argc, char **argv)
{
    const char *command = "";
    for (int i = 1; i < argc && strcmp(command, "demo") != 0; i++) {
        const struct op *const op = strcmp(command, "run") == 0 ? find_op(argv[i]) : NULL;
        if (op)
            return op->info->mesh ? op->name : NULL;
        if (strcmp(command, "bench") == 0 && strcmp(argv[i], "all_to_all") == 0)
            return command;
        if (strcmp(argv[i], "run") == 0 || strcmp(argv[i], "bench") == 0 || strcmp(argv[i], "demo") == 0)
            command = argv[i];
    }
    return strcmp(command, "demo") == 0 ? command : NULL;
}

/* The program is in the folder of this one. */
static bool find_program(char *path, size_t bytes)
{
    const ssize_t length = readlink("/proc/self/exe", path, bytes - 1);
    if (length <= 0)
        return false;
    path[length] = '\0';
    char *const slash = strrchr(path, '/');
    if (!slash || (size_t)(slash + 1 - path) + sizeof program > bytes)
        return false;
    memcpy(slash + 1, program, sizeof program);
    return true;
}

int team_join(int argc, char **argv)
{
    const char *const rank = launched_as();
    char path[4096];
    if (!rank || !team_task(argc, argv))
        return EXIT_DONE;
    errno = ENOENT;
    if (find_program(path, sizeof path))
        execv(path, argv);
    if (strcmp(rank, "0") != 0)
        return EXIT_USAGE; /* only the first process prints it */
    if (errno == ENOENT)
        return plain_error("this build has no MPI: there is no %s beside this program", program);
    return plain_error("%s: %s", path, strerror(errno));
}
