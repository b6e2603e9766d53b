/*
 * Operators between the devices of a mesh, as the command line sees them. A file holds the tensors of all devices,
 * stacked on a leading dimension (`input` [D,...]) or one by one (`input.0`, `input.1`, ...); the operator takes an
 * array of tensors. Without a team all devices are in this process; with one each process is the device of its rank,
 * and the outputs of the others are sent to the first.
 */
#ifndef SWITCHYARD_CLI_MESH_H
#define SWITCHYARD_CLI_MESH_H

#include "ops.h"
#include "team.h"

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

/* The call itself; afterwards the first process has the outputs of all. */
sy_status mesh_run(sy_ctx *ctx, const struct op *op, struct op_call *call);
void mesh_collect(const struct team *team, const struct op *op, struct op_call *call);

/* ---- For the operators' files --------------------------------------------------------------------------- */

int mesh_devices(const struct op_call *call);

/* Zeroed memory that mesh_close frees; NULL when there is none. */
void *mesh_array(struct op_call *call, size_t n, size_t bytes);

/* Experts of a device; 0 for a mapping that the operator will reject. */
int64_t mesh_local_experts(const struct op_call *call, const DLTensor *mapping, int device);

/* Cuts the slab of every device in a stacked tensor to as many rows as the device has experts. */
void mesh_shorten(struct op_call *call, const DLTensor *const *input, const DLTensor *mapping);

/* Errors of the file or the command line that the operator cannot detect, in the form of its sentences. They are reported
   after its errors about missing tensors and types. */
sy_status mesh_check(const struct op_call *call, sy_status status_of_query);
sy_status mesh_fault(struct op_call *call, sy_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/*
 * Makes an output for every device, of the shape that every step-th of `shapes` has, and returns the array. Stacked
 * outputs whose first extents differ have the largest in the file, and zero bytes after shorter ones. NULL when there is
 * no memory.
 */
const DLTensor *mesh_output(struct op_call *call, struct op_outputs *outputs, const char *name,
                            sy_shape *shapes, size_t step);

#endif
