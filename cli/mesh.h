/*
 * Operators between the devices of a mesh, as the command line sees them. A file holds the tensors of all devices,
 * stacked on a leading dimension (`input` [D,...]) or one by one (`input.0`, `input.1`, ...); the operator takes an
 * array of tensors. Without a team all devices are in this process; with one each process is the device of its rank,
 * and the outputs of the others are sent to the first.
 */
#pragma once

#include "cli.h"
#include "ops.h"

/* "2x4" */
bool mesh_parse(const char *text, sy_mesh *mesh);

/*
 * Makes the comm of this process, which reports errors that do not depend on the others. mesh_bind makes the comm of the
 * team, with all its processes, and the arrays of tensors. The sentence of a failure is in call->mesh.sentence.
 */
sy_status mesh_open(struct op_call *call);
sy_status mesh_bind(const struct team *team, const struct op *op, struct op_call *call,
                    const struct st_file *file);
void mesh_close(struct op_call *call);

/* The call itself is with the tensors from those of the first device of this process on; afterwards the first process has the
   outputs of all. */
void mesh_step(const struct op *op, struct op_call *call, int step);
void mesh_collect(const struct team *team, const struct op *op, struct op_call *call);

int mesh_devices(const struct op_call *call);
