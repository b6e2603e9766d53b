/* The commands that the programs add to those of cli/. */
#include "cli/cli.h"

#if SWITCHYARD_BENCH
#include "bench/bench.h"
#else
static int left_out(struct common *common, struct arg_list *list)
{
    (void)list;
    return plain_error("%s is not in this build (SWITCHYARD_BENCH is off)", common->help);
}
#define command_bench left_out
#define command_demo left_out
#endif

const struct command more_commands[] = {{"bench", command_bench}, {"demo", command_demo}, {NULL, NULL}};
