/*
 * The operators in the command line: the library's own descriptions (switchyard_describe.h), and what only a command
 * line has: a second name, an example, a few options. `run`, the help pages and `example` are loops over these without
 * code for single operators.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <switchyard_describe.h>

#include "safetensors.h"

enum { OP_MAX_OPTIONS = 40, OP_ARGS_BYTES = 1024, MESH_MAX_ARRAYS = 64 };

/* State of a call between the devices of a mesh besides its arguments; see mesh.h. */
struct op_mesh {
    sy_mesh extent;
    sy_comm *comm;  /* of the exchange */
    sy_comm *local; /* all devices in this process, to check and size the call; comm itself without a team */
    int first;      /* the first device of this process */
    bool all;       /* this process has the outputs of all of them */
    void *arrays[MESH_MAX_ARRAYS];
    int n_arrays;
    sy_status fault;
    char sentence[256];
};

/* The arguments of one call, and further options of the command line. Options are written into this struct. */
struct op_call {
    union {
        max_align_t align;
        unsigned char bytes[OP_ARGS_BYTES]; /* the argument struct of the operator */
        sy_all_to_all_dispatch_args all_to_all_dispatch;
        sy_all_to_all_combine_args all_to_all_combine;
    } args;
    sy_kv_plane planes[SY_KV_MAX_PLANES]; /* for operators with planes: those after the first */
    int64_t n_planes;                     /* of them */
    bool numbered;                        /* tensors came as cache.0, cache.1, ... or by device */
    sy_kv_format kv_format;               /* of packed rows, where there is one */
    int format;                           /* its number in the words of the field */
    int out_type;                         /* of unpacked rows: bf16, f16, f32 */
    bool f32_gates;                       /* moe_dispatch_grad_gate */
    bool asked[SY_MAX_FIELDS];            /* requested outputs of SY_FIELD_EXTRA, by number */
    struct op_mesh mesh;
};

/* How the text of an option is read. */
enum op_kind {
    OP_NUMBER,
    OP_ROW, /* the number of all rows of a per-row tensor, which becomes one of shape [1] */
    OP_BOOL,
    OP_WORD, /* one of `words`, numbered from 0 */
    OP_MESH, /* rows x columns */
};

struct op_option {
    const char *name;  /* with underscores; the option has dashes, the metadata key is switchyard.<name> */
    const char *alias; /* a second name, or NULL */
    enum op_kind kind;
    DLDataType type; /* of a number */
    size_t offset;   /* in struct op_call */
    bool required;
    const char *needs;  /* the option that this one requires, or NULL */
    const char *preset; /* used when the option is not given; NULL: the zeroed field */
    const char *words;  /* as in sy_field_info */
    const char *text;   /* for the help page */
};

/* Outputs made for one call. */
struct op_outputs {
    struct op_made {
        char name[32];
        int64_t shape[SY_MAX_RANK];
        DLTensor view;
    } * *made;
    int n;
    bool out_of_memory;
    char failed[32]; /* the output that did not fit into memory, and its size */
    size_t failed_bytes;
};

/* The operator's small worked example (examples.c). */
struct op_example {
    const char *op, *text;
    const char *fields; /* lines "NAME TYPE EXTENTS: VALUES" and "NAME: VALUE" */
};

/* Made by the build; the last has a NULL name. */
extern const struct op_example op_examples[];

struct op {
    const sy_op_info *info;
    const char *name, *alias; /* a second name, or NULL */
    const struct op_example *example;
    struct op_option options[OP_MAX_OPTIONS]; /* ends with a NULL name */
    const sy_field_info *planes;              /* the field, or NULL */
    /*
     * Makes every output that does not exist yet, after the inputs have been checked. SY_OK when memory ran out: see
     * out_of_memory.
     */
    sy_status (*size)(sy_ctx *ctx, const struct op *op, struct op_call *call, struct op_outputs *outputs);
};

/* By name or second name. */
const struct op *find_op(const char *name);

/* Prints that there is no such operator, and which exist. Returns EXIT_USAGE. */
int unknown_op(const char *help, const char *name);

/* ---- Tensors ---- */

struct op_name {
    char text[32];
};

/* The i-th tensor, NULL past the end; and its name in files: planes[0] is plane.0. */
const sy_field_info *op_tensor(const struct op *op, int i);
struct op_name op_file_name(const sy_field_info *tensor);

/* Whether an input file may have it; and whether the call changes the tensor at this offset, which may be there twice, as input and
   as output. */
bool op_reads(const sy_field_info *tensor);
bool op_changes(const sy_op_info *op, size_t offset);

/* Whether there is one for each plane, or for each device of a mesh. */
bool op_is_numbered(const struct op *op, const sy_field_info *tensor);

/* Whether an operator reads any tensor; if not, `run` needs no input file. */
bool op_has_inputs(const struct op *op);

/* The place of a tensor's pointer in the call: that of plane `plane` for operators with planes. */
const DLTensor **op_pointer(const struct op *op, struct op_call *call, const sy_field_info *tensor,
                            int plane);

/* NAME, or NAME.i where planes or devices are numbered. */
struct op_name op_plane_name(const struct op_call *call, const char *name, int64_t i);

/* ---- Words: "softmax sigmoid none"; "-" has no word, "zero|0" two spellings ---- */

/* The next word of a list, in its second spelling if it has one; "" at the end. */
const char *op_next_word(const char **words, int *length);
bool op_word_value(const char *words, const char *text, int *value);
void op_words_text(const char *words, const char *join, char *text, size_t bytes);

/* "--top-k" of "top_k". */
void op_option_name(const char *name, char *text, size_t bytes);

/* ---- Outputs (outputs.c) ---- */

/* Sets the fields of formats from the option. */
void op_set_formats(const struct op *op, struct op_call *call);

/* Of rows of numbers that are made of codes. */
DLDataType op_out_type(const struct op_call *call);

/* Whether a switch that requests one or several outputs was given. */
bool op_requested(const struct op *op, const struct op_call *call, const char *name);

/* For every operator without a mesh, by sy_infer. */
sy_status op_size_outputs(sy_ctx *ctx, const struct op *op, struct op_call *call, struct op_outputs *outputs);

/* For the two with a mesh (mesh.c), by sy_infer_mesh. */
sy_status op_size_mesh(sy_ctx *ctx, const struct op *op, struct op_call *call, struct op_outputs *outputs);

/* Of an output that the options exclude: the call rejects it and names the option. */
sy_shape op_empty_shape(const sy_field_info *tensor);

/* Makes an output, cleared, and returns it; NULL (and out_of_memory) when there is no memory. */
const DLTensor *op_output(struct op_outputs *outputs, const char *name, DLDataType type, int rank,
                          const int64_t *shape);
void op_outputs_free(struct op_outputs *outputs);

/* ---- Examples (examples.c) ---- */

const struct op_example *op_example_of(const char *name);

/* " --NAME VALUE" of every option of an example. */
void op_example_print_options(FILE *out, const struct op_example *example);
