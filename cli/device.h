/*
 * Devices of a command: --device and --device-library, and the tools of libswitchyard_cuda that a context has loaded.
 */
#ifndef SWITCHYARD_CLI_DEVICE_H
#define SWITCHYARD_CLI_DEVICE_H

#include "cli.h"
#include "cuda/tools.h"

/* Of the library that a context of this command has loaded; prints the error and returns NULL where there are none. */
const struct syc_tools *device_tools(const struct common *common);

bool device_has(const struct syc_tools *tools, const char *operator_name);

#endif
