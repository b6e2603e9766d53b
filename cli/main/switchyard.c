/*
 * The program `switchyard`. Under mpirun it executes `switchyard-mpi` for commands that exchange between processes.
 */
#include "cli/cli.h"

int main(int argc, char **argv)
{
    struct common common = {0};
    const int code = team_join(argc, argv);
    return code == EXIT_DONE ? command_line(&common, more_commands, argc, argv) : code;
}
