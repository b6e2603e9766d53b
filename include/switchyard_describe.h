/*
 * Switchyard: the operators by number and name, for programs that are not compiled against each of them: command
 * lines, bindings, tests. One description per operator; the library validates calls with the same tables. `switchyard
 * ops --json` prints them.
 *
 *     const sy_op_info *op = sy_op_find("moe_permute");
 *     sy_moe_permute_args args = {.tokens = &x, .routing_map = &map, .num_out_tokens = 8};
 *     sy_shape shapes[SY_MAX_FIELDS];
 *     sy_infer(ctx, op, &args, sizeof args, shapes, SY_MAX_FIELDS);  // shape and type of every output
 *     ...                                                           // allocate them, set the pointers
 *     sy_call(ctx, op, &args, sizeof args);                         // the same as sy_moe_permute(ctx, &args)
 */
#ifndef SWITCHYARD_DESCRIBE_H
#define SWITCHYARD_DESCRIBE_H

#include <switchyard.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element types by number: for languages to which a number is simpler than DLPack's struct. */
typedef enum sy_type {
    SY_TYPE_OTHER = 0,
    SY_TYPE_I8 = 1,
    SY_TYPE_I16 = 2,
    SY_TYPE_I32 = 3,
    SY_TYPE_I64 = 4,
    SY_TYPE_U8 = 5,
    SY_TYPE_U16 = 6,
    SY_TYPE_U32 = 7,
    SY_TYPE_U64 = 8,
    SY_TYPE_F16 = 9,
    SY_TYPE_F32 = 10,
    SY_TYPE_F64 = 11,
    SY_TYPE_BF16 = 12,
    SY_TYPE_BOOL = 13,
    SY_TYPE_F8_E4M3 = 14,
    SY_TYPE_F8_E5M2 = 15,
    SY_TYPE_F8_E8M0 = 16,
    SY_N_TYPES /* how many there are: grows */
} sy_type;

/* "bf16" for SY_TYPE_BF16; "another type" for any other number. Never NULL. */
SY_API const char *sy_type_name(sy_type type);

/* DLPack's type of a number, SY_BF16 for SY_TYPE_BF16, and the number of a type. SY_TYPE_OTHER and numbers that are no
   type have one that no operator accepts; its number, and that of every type not listed, is SY_TYPE_OTHER. */
SY_API DLDataType sy_dtype(sy_type type);
SY_API sy_type sy_type_of(DLDataType type);

/* What a field of an argument struct is in C. */
typedef enum sy_kind {
    SY_KIND_TENSOR =
        0, /* const DLTensor *; of operators between devices sy_tensors, unless SY_FIELD_SHARED */
    SY_KIND_BOOL = 1,
    SY_KIND_INT = 2,
    SY_KIND_I64 = 3,
    SY_KIND_U32 = 4,
    SY_KIND_U64 = 5,
    SY_KIND_F32 = 6,
    SY_KIND_F64 = 7,
    SY_KIND_ENUM = 8,     /* an enum of the size of int */
    SY_KIND_FORMAT = 9,   /* const sy_kv_format *, by its name; NULL: none */
    SY_KIND_PLANES = 10,  /* const sy_kv_plane *; the next two fields are their number and the size of one */
    SY_KIND_ROUTING = 11, /* sy_routing * */
    SY_KIND_SIZE = 12,    /* size_t */
    SY_N_KINDS            /* how many there are: grows */
} sy_kind;

/* "tensor" for SY_KIND_TENSOR. Never NULL. */
SY_API const char *sy_kind_name(sy_kind kind);

typedef enum sy_field_flag {
    SY_FIELD_OUT = 1,        /* the call writes it */
    SY_FIELD_OPTIONAL = 2,   /* a tensor that may be NULL */
    SY_FIELD_REQUIRED = 4,   /* a scalar without a useful default */
    SY_FIELD_PER_ROW = 8,    /* a tensor of one number per row: [1], [B] or [B,1], any stride of 0 or more */
    SY_FIELD_ANY_WORD = 16,  /* any element of 1, 2, 4 or 8 bytes */
    SY_FIELD_ANY_BYTES = 32, /* any element of whole bytes */
    SY_FIELD_OWN_STRIDES = 64, /* more strides than evenly spaced rows; the operator documents them */
    SY_FIELD_INOUT = 128,      /* with OUT: read and changed */
    SY_FIELD_KEEPS = 256,      /* with OUT: elements may keep their value; an option decides */
    SY_FIELD_EXTRA = 512,   /* with OUT: large or rarely needed; `words` names the switch that selects it */
    SY_FIELD_AGAIN = 1024,  /* the field of an earlier entry, in its other role */
    SY_FIELD_SHARED = 2048, /* of operators between devices: one tensor, the same for all devices */
    SY_FIELD_ONE_ROW = 4096 /* a tensor whose first extent may be 1: a row for all */
} sy_field_flag;

typedef struct sy_field_info {
    const char *name;
    size_t offset; /* in the argument struct */
    sy_kind kind;
    uint32_t flags; /* sy_field_flag */
    uint32_t types; /* tensors: accepted types, bit 1 << sy_type; 0: those of `like`, or see flags */
    int like;       /* tensors: the type of field like-1 is accepted too; 0: of none */
    int min_rank;   /* tensors */
    int max_rank;
    const char *shape; /* tensors: named extents, "T H"; alternatives "k S | S" */
    const char *help;  /* one line */
    /* ENUM, FORMAT: values from 0 on, "softmax sigmoid none"; "-": a value without a word; "zero|0": a second spelling.
       PLANES: the tensors that each plane has. Outputs: see SY_FIELD_EXTRA. */
    const char *words;
    /* Scalars: the default of command line and Python where it is not 0. Outputs: their type. */
    const char *preset;
    /* Scalars: accepted values, "1..", "0..T*E", "finite"; "E: 0.." where the scalar is an extent; i32: at most 2^31-1. NULL: any,
       or the operator's page says which. */
    const char *range;
    int with;  /* tensors: comes with field with-1, both or none; 0: with none */
    int alias; /* outputs: may be exactly the rows of field alias-1; 0: of none */
} sy_field_info;

typedef struct sy_op_info {
    const char *name;    /* "moe_permute" */
    const char *summary; /* one line */
    int number;          /* sy_op_at(number) is this operator */
    int n_tensors;       /* they are the first fields */
    int n_fields;
    /* It runs between devices, by sy_<op>(ctx, comm, args) or sy_call_mesh; what takes no comm rejects it. */
    bool mesh;
    size_t args_bytes;  /* of its argument struct */
    size_t field_bytes; /* of sy_field_info in this library: the distance between fields; see sy_op_field */
    const sy_field_info *fields;
} sy_op_info;

#define SY_MAX_FIELDS 96
#define SY_MAX_RANK 32

/* Operators are numbered from 0. NULL: no such number or name. Descriptions are valid as long as the library. */
SY_API int sy_op_count(void);
SY_API const sy_op_info *sy_op_at(int number);
SY_API const sy_op_info *sy_op_find(const char *name);

static inline const sy_field_info *sy_op_field(const sy_op_info *op, int i)
{
    return (const sy_field_info *)(const void *)((const char *)op->fields + (size_t)i * op->field_bytes);
}

/* sy_<op>_n and sy_<op>_query_n of the operator described. Both also return NULL (op), and UNSUPPORTED (op->mesh). */
SY_API sy_status sy_call(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t args_bytes);
SY_API sy_status sy_call_query_n(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t args_bytes,
                                 sy_query *query, size_t query_bytes);
static inline sy_status sy_call_query(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t args_bytes,
                                      sy_query *query)
{
    return sy_call_query_n(ctx, op, args, args_bytes, query, sizeof *query);
}

/*
 * The same of any operator. One between devices (op->mesh) runs on the comm as by sy_<op>_n(ctx, comm, args, args_bytes):
 * sy_call_mesh is collective, and the query needs no other process. For all others comm is ignored and may be NULL.
 * Return the statuses of the call; NULL (op; comm, of one between devices). Other processes do not learn of a wrong op.
 */
SY_API sy_status sy_call_mesh(sy_ctx *ctx, sy_comm *comm, const sy_op_info *op, const void *args,
                              size_t args_bytes);
SY_API sy_status sy_call_mesh_query_n(sy_ctx *ctx, sy_comm *comm, const sy_op_info *op, const void *args,
                                      size_t args_bytes, sy_query *query, size_t query_bytes);
static inline sy_status sy_call_mesh_query(sy_ctx *ctx, sy_comm *comm, const sy_op_info *op, const void *args,
                                           size_t args_bytes, sy_query *query)
{
    return sy_call_mesh_query_n(ctx, comm, op, args, args_bytes, query, sizeof *query);
}

typedef struct sy_shape {
    int rank; /* -1: the call has no such output */
    DLDataType type;
    int64_t extent[SY_MAX_RANK];
} sy_shape;

/*
 * Type and shape of every output of a call with these inputs, as the call itself requires them. Validates inputs and
 * scalar fields like sy_<op>_query and reads no data, except cu_lens of kv_ragged where it has data (else extent 0 of
 * its out is -1; it is the last entry of cu_lens). Outputs already set in args are ignored. shapes[i] is that of field
 * i, with rank -1 where the field is not an output or not allowed in this call; where several types are accepted it has
 * the field's preset, else that of `like`. n is at least the operator's n_tensors. For the outputs of further planes
 * call it again with each plane as the call's own.
 * Returns the statuses of the call; NULL (op, shapes); VALUE (n too small); UNSUPPORTED (op->mesh).
 */
SY_API sy_status sy_infer(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t args_bytes,
                          sy_shape *shapes, int n);

/*
 * The same of any operator, like sy_call_mesh; it needs no other process. Of one between devices shapes[i] is of the
 * first device of this process, and shapes[s * op->n_tensors + i] of device s after it, for as many whole devices as n
 * has room for: devices differ in their experts, and with max_tokens in their tokens. expert_mapping is read where it
 * has data in CPU memory.
 * Where a call accepts any number of rows the extent is the most it can write; extents that nothing in args gives are -1. The
 * pages of these operators say which.
 * Returns the statuses of the call; NULL (op, shapes; comm, of an operator between devices); VALUE (n too small).
 */
SY_API sy_status sy_infer_mesh(sy_ctx *ctx, sy_comm *comm, const sy_op_info *op, const void *args,
                               size_t args_bytes, sy_shape *shapes, int n);

#ifdef __cplusplus
}
#endif

#endif
