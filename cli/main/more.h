/*
 * The commands that the programs add to those of cli/.
 */
#ifndef SWITCHYARD_CLI_MAIN_MORE_H
#define SWITCHYARD_CLI_MAIN_MORE_H

#include "cli/cli.h"

extern const struct command more_commands[]; /* the last has no name */

#endif
