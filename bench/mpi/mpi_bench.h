/*
 * Benchmark and demo of several processes. All of them call these; only the first prints.
 */
#pragma once

#include "cli/cli.h"

/* `switchyard bench all_to_all` and `switchyard demo` of a team. */
int command_bench_mpi(struct common *common, struct arg_list *list);
int command_demo_mpi(struct common *common, struct arg_list *list);

/* The benchmark of tensors on this device, of the context. */
int mpi_bench_device(sy_ctx *ctx, DLDevice device, bool quick);

/* The context of one process, with a device if it may have one: by default it has its share of the processors of its machine. */
sy_ctx *mpi_bench_context(const struct common *common, bool on_device);

/* Whether it is so in all processes. */
bool mpi_bench_in_all(bool here);
