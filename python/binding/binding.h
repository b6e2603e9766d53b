/*
 * The Python binding: operators as functions of tvm-ffi's C calling convention, over the public header alone.
 *
 * A call from Python is a list of values: tensors, numbers, None. A table says which field of the operator's argument
 * struct each of them is; the operator's own status comes back as a number, 0 for success. Nothing is judged here but
 * the kind of a value: everything else is the operator's to refuse, in its own words.
 */
#ifndef SWITCHYARD_BINDING_H
#define SWITCHYARD_BINDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tvm/ffi/c_api.h>

#include <switchyard.h>

/* ---- Values (values.c) ----------------------------------------------------------------------------------------- */

enum syp_kind {
    SYP_TENSOR,   /* const DLTensor *; None: NULL */
    SYP_TENSORS,  /* the same of every device of this process: as many values */
    SYP_INTEGERS, /* SYP_TENSOR, or a number: a tensor of that one int64 */
    SYP_REALS,    /* the same with a float32 */
    SYP_BOOL,
    SYP_INT, /* int, and enums */
    SYP_I64,
    SYP_U32,
    SYP_U64,
    SYP_F32,
    SYP_F64,
    SYP_FORMAT, /* const sy_kv_format *; its name, or None */
    SYP_HANDLE  /* a pointer that this module gave away; None: NULL */
};

struct syp_field {
    const char *name;
    enum syp_kind kind;
    size_t offset;
};

/* A number in the place of a tensor. */
struct syp_number {
    DLTensor tensor;
    int64_t extent; /* 1: its shape and its stride */
    union {
        int64_t integer;
        float real;
    } value;
};

enum { SYP_MAX_NUMBERS = 8 }; /* fields of one operator that a number may be given for */

/* What the pointers of an argument struct point to, for as long as the call lasts. */
struct syp_storage {
    sy_kv_format format;
    struct syp_number numbers[SYP_MAX_NUMBERS];
    size_t n_numbers;
    DLTensor *tensors; /* of the fields that hold one per device */
    size_t n_tensors;
};

/* The tensor of a value; NULL for None and for what is no tensor. */
const DLTensor *syp_tensor(const TVMFFIAny *value);

/* The characters of a string; {NULL, 0} for other values, and for a string with a NUL inside, which the library would
   read as a shorter one. */
TVMFFIByteArray syp_text(const TVMFFIAny *value);

/* Writes a value into the field of an argument struct; false when it is not of the field's kind, or too large. */
bool syp_set_field(void *args, const struct syp_field *field, const TVMFFIAny *value,
                   struct syp_storage *storage);

void syp_return_int(TVMFFIAny *result, int64_t value);
int syp_return_text(TVMFFIAny *result, const char *text);
/* A function of a row of a table: `call` gets the row as its self. */
int syp_return_function(TVMFFIAny *result, const void *row, TVMFFISafeCallType call);

/* Fails a call with a Python exception of this kind. */
int syp_raise(const char *kind, const char *message);

/* ---- Operators (operators.c) ----------------------------------------------------------------------------------- */

enum syp_op {
    SYP_MOE_ROUTE,
    SYP_MOE_MAP_FROM_IDS,
    SYP_MOE_IDS_FROM_MAP,
    SYP_MOE_PERMUTE,
    SYP_MOE_UNPERMUTE,
    SYP_MOE_PERMUTE_IDS,
    SYP_MOE_UNPERMUTE_IDS,
    SYP_MOE_ALIGN_BLOCK,
    SYP_MOE_PAD_MAP,
    SYP_MOE_REORDER_CHUNKS,
    SYP_MOE_CONVERT_INDICES,
    SYP_MOE_PERMUTE_GRAD,
    SYP_MOE_UNPERMUTE_GRAD,
    SYP_MOE_DISPATCH,
    SYP_MOE_COMBINE,
    SYP_MOE_DISPATCH_GRAD_GATE,
    SYP_MOE_LOCATIONS,
    SYP_MOE_CAPACITY,
    SYP_KV_GATHER,
    SYP_KV_TRANSLATE,
    SYP_KV_SLOTS,
    SYP_KV_SCATTER,
    SYP_KV_RAGGED,
    SYP_KV_BLOCKS,
    SYP_SAMPLE,
    SYP_SAMPLE_OVERRIDES,
    SYP_SAMPLE_NOISE,
    SYP_LOCAL_REDUCE
};

/* The argument struct of every operator that needs no mesh, largest of all for storage. */
union syp_args {
    sy_moe_route_args moe_route;
    sy_moe_map_from_ids_args moe_map_from_ids;
    sy_moe_ids_from_map_args moe_ids_from_map;
    sy_moe_permute_args moe_permute;
    sy_moe_unpermute_args moe_unpermute;
    sy_moe_permute_ids_args moe_permute_ids;
    sy_moe_unpermute_ids_args moe_unpermute_ids;
    sy_moe_align_block_args moe_align_block;
    sy_moe_pad_map_args moe_pad_map;
    sy_moe_reorder_chunks_args moe_reorder_chunks;
    sy_moe_convert_indices_args moe_convert_indices;
    sy_moe_permute_grad_args moe_permute_grad;
    sy_moe_unpermute_grad_args moe_unpermute_grad;
    sy_moe_dispatch_args moe_dispatch;
    sy_moe_combine_args moe_combine;
    sy_moe_dispatch_grad_gate_args moe_dispatch_grad_gate;
    sy_moe_locations_args moe_locations;
    sy_moe_capacity_args moe_capacity;
    sy_kv_gather_args kv_gather;
    sy_kv_translate_args kv_translate;
    sy_kv_slots_args kv_slots;
    sy_kv_scatter_args kv_scatter;
    sy_kv_ragged_args kv_ragged;
    sy_kv_blocks_args kv_blocks;
    sy_sample_args sample;
    sy_sample_overrides_args sample_overrides;
    sy_sample_noise_args sample_noise;
    sy_local_reduce_args local_reduce;
};

struct syp_operator {
    const char *name;
    enum syp_op op;
    size_t args_bytes;
    const struct syp_field
        *fields;       /* in the order of the call: inputs, numbers, outputs; name NULL at the end */
    size_t planes;     /* offset of the field `planes` and ... */
    size_t num_planes; /* ... of their number; 0: the operator has none */
};

/* NULL when there is no such operator. */
const struct syp_operator *syp_find_operator(TVMFFIByteArray name);

sy_status syp_call(const struct syp_operator *op, sy_ctx *ctx, const union syp_args *args);
sy_status syp_query(const struct syp_operator *op, sy_ctx *ctx, const union syp_args *args, sy_query *query);

/* ---- Contexts (context.c) -------------------------------------------------------------------------------------- */

/* The context of this thread, made when it is first asked for; NULL after syp_raise when that fails. */
sy_ctx *syp_context(void);

/* A context of its own, for the caller to destroy, and the generation of the settings it has; NULL after syp_raise. */
sy_ctx *syp_new_context(unsigned *generation);

/* What the last failed call of a context left there: "error", "argument", "code", "batch", "position", "value" or
   "limit"; and of the context itself "isa" and "threads". */
int syp_last(const sy_ctx *ctx, TVMFFIByteArray what, TVMFFIAny *result);

/* Threads (0: the default) and kernel table (no text: the best) of every context from now on; false: no such thing. */
bool syp_configure(int64_t threads, TVMFFIByteArray isa);

#endif
