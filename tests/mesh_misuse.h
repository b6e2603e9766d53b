/*
 * Calls that one process alone gets wrong, or that only one of them makes, on any comm of several processes: all
 * return the same status and sentence, and the comm can be used further.
 */
#ifndef SWITCHYARD_TESTS_MESH_MISUSE_H
#define SWITCHYARD_TESTS_MESH_MISUSE_H

#include "support.h"

int mesh_misuse_count(void);
const char *mesh_misuse_name(int number);

/* Collective. `guilty`: the device that makes the mistake. The outcome of this process is written into `story`, which
   must be the same everywhere; false, with `why`, where it is not the expected one, or where the next call fails. The
   comm has max_inflight 2. */
bool run_mesh_misuse(sy_ctx *ctx, sy_comm *comm, int number, int guilty, char *story, size_t story_bytes,
                     char *why, size_t why_bytes);

#endif
