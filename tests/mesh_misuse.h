/*
 * Calls that one process alone gets wrong, or makes otherwise than the others, on any comm of several processes: all
 * return the same status and sentence, nothing is written, and the comm can be used further.
 */
#pragma once

#include "mesh_cases.h"
#include "support.h"

/* Lines of calls in which every tensor has another size. */
#define MESH_SIZES "B=2 S=3 K=2 E=8 H=5 experts=1"
#define MESH_DISPATCH "planes=1 X=4 plane_type=1 " MESH_SIZES
#define MESH_EXPERT "layout=2 align=4 " MESH_DISPATCH
#define MESH_COMBINE "combine=1 " MESH_SIZES
#define MESH_SUM "sum=1 " MESH_COMBINE

int mesh_misuse_count(void);
const char *mesh_misuse_name(int number);
bool mesh_misuse_applies(int number, int n_devices, bool on_device); /* some take two to differ */

/* Collective. `guilty`: the device that makes the mistake. The outcome of this process is written into `story`, which
   must be the same everywhere; false, with `why`, where it is not the expected one, or where the next call fails. The
   comm has max_inflight 2. */
bool run_mesh_misuse(sy_ctx *ctx, sy_comm *comm, int number, int guilty, char *story, size_t story_bytes,
                     char *why, size_t why_bytes);
