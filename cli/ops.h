/*
 * The operators as the command line sees them. An operator is one row: which tensors it takes by name, which
 * scalar fields, how its outputs are sized, and the call itself. `run`, the help pages and `example` are
 * loops over these rows and know no operator, so a new operator is one file op_<name>.c, a member of `union
 * op_args` and a line in ops.c.
 */
#ifndef SWITCHYARD_CLI_OPS_H
#define SWITCHYARD_CLI_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <switchyard.h>

#include "safetensors.h"

enum { OP_MAX_FIELDS = 24, OP_MAX_WORDS = 8, MESH_MAX_ARRAYS = 64 };

union op_args {
    sy_moe_route_args moe_route;
    sy_moe_map_from_ids_args moe_map_from_ids;
    sy_moe_ids_from_map_args moe_ids_from_map;
    sy_moe_permute_args moe_permute;
    sy_moe_permute_ids_args moe_permute_ids;
    sy_moe_unpermute_ids_args moe_unpermute_ids;
    sy_moe_align_block_args moe_align_block;
    sy_moe_pad_map_args moe_pad_map;
    sy_moe_reorder_chunks_args moe_reorder_chunks;
    sy_moe_convert_indices_args moe_convert_indices;
    sy_moe_unpermute_args moe_unpermute;
    sy_moe_permute_grad_args moe_permute_grad;
    sy_moe_unpermute_grad_args moe_unpermute_grad;
    sy_moe_dispatch_args moe_dispatch;
    sy_moe_combine_args moe_combine;
    sy_moe_dispatch_grad_gate_args moe_dispatch_grad_gate;
    sy_moe_locations_args moe_locations;
    sy_moe_capacity_args moe_capacity;
    sy_sample_args sample;
    sy_sample_overrides_args sample_overrides;
    sy_sample_noise_args sample_noise;
    sy_kv_gather_args kv_gather;
    sy_kv_translate_args kv_translate;
    sy_kv_slots_args kv_slots;
    sy_kv_scatter_args kv_scatter;
    sy_kv_ragged_args kv_ragged;
    sy_kv_blocks_args kv_blocks;
    sy_all_to_all_dispatch_args all_to_all_dispatch;
    sy_all_to_all_combine_args all_to_all_combine;
    sy_local_reduce_args local_reduce;
};

#define MESH_AXIS_NONE INT64_MIN

/* What a call between the devices of a mesh has besides its arguments; see mesh.h. */
struct op_mesh {
    sy_mesh extent;
    int64_t axis, dim, links; /* as they were given */
    bool masks, counts;
    sy_comm *comm;  /* of the exchange */
    sy_comm *local; /* all devices in this process, to judge and size the call; comm itself without a team */
    int first;      /* the first device of this process */
    bool all;       /* this process has the outputs of all of them */
    void *arrays[MESH_MAX_ARRAYS];
    int n_arrays;
    sy_status fault;
    char sentence[256];
};

/*
 * The arguments of one call, and what the command line asks for beyond them. Offsets below are into this
 * struct.
 */
struct op_call {
    union op_args args;
    sy_kv_plane planes[SY_KV_MAX_PLANES]; /* for operators with planes: those after the first */
    bool numbered;                        /* tensors came as cache.0, cache.1, ... or by device */
    sy_kv_format kv_format;               /* of packed rows, where there is one */
    int format, out_type;    /* its number and the type of unpacked rows, as op_kv.h numbers them */
    bool want_masked_logits; /* sample */
    bool want_list;          /* sample */
    bool f32_gates;          /* moe_dispatch_grad_gate */
    struct op_mesh mesh;
};

enum op_role {
    OP_INPUT,    /* missing: passed as NULL, so that the operator refuses it                         */
    OP_OPTIONAL, /* missing: NULL                                                                    */
    OP_INOUT,    /* an output whose old contents may stand in the input file                          */
    OP_UPDATED,  /* an input that the call changes, and so an output too                               */
    OP_SHARED,   /* of a mesh: an input that is one for all devices                                    */
    OP_OUTPUT,   /* listed for the help page; the sizing function makes it                            */
};

struct op_tensor {
    const char *name;
    size_t offset; /* of the DLTensor pointer */
    enum op_role role;
    const char *shape, *types, *text; /* for the help page; an empty text: the row before speaks for it */
};

enum op_kind {
    OP_INT64,
    OP_UINT64,
    OP_UINT32,
    OP_FLOAT,
    OP_DOUBLE,
    OP_BOOL,
    OP_WORD,    /* an enum: words[i] stands for values[i]                                            */
    OP_ROW_I64, /* a per-row tensor given as one value for all rows: becomes a tensor of shape [1]     */
    OP_ROW_F32,
    OP_ROW_U64,
    OP_ROW_U32,
    OP_MESH, /* rows x columns */
    OP_AXIS, /* none, or an integer */
};

struct op_field {
    const char *name;  /* with underscores; the option has dashes, the metadata key is switchyard.<name> */
    const char *alias; /* a second name, or NULL */
    enum op_kind kind;
    size_t offset;
    bool required;
    const char *needs;  /* the field without which this one means nothing, or NULL */
    const char *preset; /* used when the field is not given; NULL: the zeroed field */
    const char *words[OP_MAX_WORDS];
    int values[OP_MAX_WORDS];
    const char *text; /* for the help page */
};

/* Outputs made for one call. */
struct op_outputs {
    struct op_made {
        char name[32];
        int64_t shape[2 * ST_MAX_RANK]; /* kv_gather joins two shapes */
        DLTensor view;
    } * *made;
    int n;
    bool out_of_memory;
    char failed[32]; /* the output that did not fit into memory, and its size */
    size_t failed_bytes;
};

/* NAME, or NAME.i where planes or devices are numbered. */
struct op_name {
    char text[32];
};
struct op_name op_plane_name(const struct op_call *call, const char *name, int64_t i);

/* Dimensions of a row of a KV cache: their number, and the extents. */
int op_cache_row(const DLTensor *cache, sy_kv_layout layout, int64_t *shape);

/* Makes an output of zero bytes and returns it; NULL (and out_of_memory) when there is no room. */
const DLTensor *op_output(struct op_outputs *outputs, const char *name, DLDataType type, int rank,
                          const int64_t *shape);
void op_outputs_free(struct op_outputs *outputs);

/* A tensor of the operator's small worked example. */
struct op_example {
    const char *name, *type;
    int rank;
    int64_t shape[5];
    const void *data;
};

struct op {
    const char *name, *summary;
    const char *alias;                /* a second name, or NULL */
    const struct op_tensor *tensors;  /* ends with a NULL name */
    const struct op_field *fields;    /* ends with a NULL name */
    const struct op_example *example; /* ends with a NULL name */
    const char *example_options, *example_text;
    /* Operators with planes: tensors each of them has (NAME, or NAME.0, NAME.1, ...) and offsets of the fields. */
    const char *plane_caches[2], *plane_rows, *plane_scale;
    size_t planes, num_planes;
    const char
        *mesh_dim; /* operators between the devices of a mesh: the field of their dimension; else NULL */
    /*
     * Asks the query and makes every output that does not exist yet. SY_OK when memory ran out: see
     * out_of_memory.
     */
    sy_status (*size)(sy_ctx *ctx, struct op_call *call, struct op_outputs *outputs);
    sy_status (*call)(sy_ctx *ctx, const struct op_call *call);
};

extern const struct op op_moe_route, op_moe_map_from_ids, op_moe_ids_from_map, op_moe_permute,
    op_moe_permute_ids, op_moe_unpermute_ids, op_moe_align_block, op_moe_pad_map, op_moe_reorder_chunks,
    op_moe_convert_indices, op_moe_unpermute, op_moe_permute_grad, op_moe_unpermute_grad, op_moe_dispatch,
    op_moe_combine, op_moe_dispatch_grad_gate, op_moe_locations, op_moe_capacity, op_sample,
    op_sample_overrides, op_sample_noise, op_kv_gather, op_kv_translate, op_kv_slots, op_kv_scatter,
    op_kv_ragged, op_kv_blocks, op_all_to_all_dispatch, op_all_to_all_combine, op_local_reduce;

/* All of them, ending with NULL. */
extern const struct op *const all_ops[];

const struct op *find_op(const char *name);

/* Whether an operator reads any tensor; if not, `run` needs no input file. */
bool op_has_inputs(const struct op *op);

/* Says that there is no such operator, and which exist. Returns EXIT_USAGE. */
int unknown_op(const char *help, const char *name);

#endif
