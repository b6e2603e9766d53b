/*
 * One operator call on its way from the API to the backend. An operator is described by a table of its
 * tensors and one check function; everything operators have in common, the order of checks above all, is
 * written once here.
 */
#pragma once

#include "plan/plan.h"

enum { SYI_MAX_RANK = 16, SYI_FEW_PLANES = 4 };

#define SYI_BIT(type) (1u << (type))
#define SYI_BOOL SYI_BIT(SY_TYPE_BOOL)
#define SYI_U8 SYI_BIT(SY_TYPE_U8)
#define SYI_U16 SYI_BIT(SY_TYPE_U16)
#define SYI_U32 SYI_BIT(SY_TYPE_U32)
#define SYI_I32 SYI_BIT(SY_TYPE_I32)
#define SYI_I64 SYI_BIT(SY_TYPE_I64)
#define SYI_F32 SYI_BIT(SY_TYPE_F32)
#define SYI_INDEX_TYPES (SYI_I32 | SYI_I64)
#define SYI_FLOAT_TYPES (SYI_F32 | SYI_BIT(SY_TYPE_F16) | SYI_BIT(SY_TYPE_BF16))
#define SYI_CODE_TYPES (SYI_U8 | SYI_BIT(SY_TYPE_I8) | SYI_BIT(SY_TYPE_F8_E4M3) | SYI_BIT(SY_TYPE_F8_E5M2))
#define SYI_BYTE_TYPES (SYI_BOOL | SYI_BIT(SY_TYPE_I8) | SYI_U8)

#define SYI_ARGS(ID, op) sy_##op##_args op;
union syi_args {
    SYI_OPERATORS(SYI_ARGS)
};
#undef SYI_ARGS

struct syi_call;

/* What an operator adds to its description. Every step may be NULL but the last; they follow each other in this order. */
struct syi_steps {
    sy_status (*together)(
        struct syi_call *call); /* what must be given together, and the description does not say */
    bool (*untouched)(const struct syi_call *call); /* the call will look at no data */
    sy_status (*bind)(struct syi_call *call);       /* extents, ahead of the shapes of inputs */
    sy_status (*values)(struct syi_call *call);     /* in place of all scalars in their order */
    sy_status (*sizes)(struct syi_call *call);      /* binds extents of outputs, and they can be counted */
    sy_status (*outputs)(struct syi_call *call);    /* in place of the shapes of all outputs */
    void (*plan)(struct syi_call *call);
    uint64_t late; /* inputs, by bit, whose shapes are validated in a later step */
    struct {       /* an operator with a row_format; 0: it has none */
        size_t format;
        int dense, codes, scales;
    } rows;
};

struct syi_op {
    sy_op_info info;
    sy_status (*check)(struct syi_call *call); /* NULL: an operator between devices */
    const struct syi_steps *own;               /* of syi_check_described */
    size_t plan_bytes;                         /* of an operator that a backend runs */
    int n_columns;                             /* parameters per row, of syi_bind_plan */
};

#define SYI_DECLARE(ID, op) extern const struct syi_op syi_op_##op;
SYI_OPERATORS(SYI_DECLARE)
#undef SYI_DECLARE

/*
 * Rows of the description of OPERATOR, which the file of an operator defines: its fields, by kind. What follows their names is types,
 * the tensor whose type they may have, ranks, shape and help, then what is set by name; of SYI_TENSOR flags come first.
 */
#define SYI_ARGS_OF_NAME(op) sy_##op##_args
#define SYI_ARGS_OF(op) SYI_ARGS_OF_NAME(op)
#define SYI_SCALAR(field, KIND, ...) \
    { \
        .name = #field, .offset = offsetof(SYI_ARGS_OF(OPERATOR), field), .kind = SY_KIND_##KIND, \
        __VA_ARGS__ \
    }
#define SYI_TENSOR(field, ...) SYI_SCALAR(field, TENSOR, __VA_ARGS__)
#define SYI_INPUT(field, ...) SYI_TENSOR(field, 0, __VA_ARGS__)
#define SYI_OPTIONAL(field, ...) SYI_TENSOR(field, SY_FIELD_OPTIONAL, __VA_ARGS__)
#define SYI_OUTPUT(field, ...) SYI_TENSOR(field, SY_FIELD_OUT, __VA_ARGS__)
#define SYI_OPTIONAL_OUTPUT(field, ...) SYI_TENSOR(field, SY_FIELD_OUT | SY_FIELD_OPTIONAL, __VA_ARGS__)
/* One that is written on request: `.words` is the option that names it. */
#define SYI_EXTRA_OUTPUT(field, ...) \
    SYI_TENSOR(field, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_EXTRA, __VA_ARGS__)
/* A number for each row of the batch, or one for all. */
#define SYI_PER_ROW(field, types, like, help) \
    SYI_TENSOR(field, SY_FIELD_OPTIONAL | SY_FIELD_PER_ROW, types, like, 1, 2, "1 | B | B 1", help)

/* An operator's description out of its `fields`, of which the first N_TENSORS are tensors. */
#define SYI_OP_INFO(op, ID, text, is_mesh) \
    { \
        .name = #op, .summary = (text), .number = SYI_##ID, .n_tensors = N_TENSORS, \
        .n_fields = (int)(sizeof fields / sizeof *fields), .mesh = (is_mesh), \
        .args_bytes = sizeof(sy_##op##_args), .field_bytes = sizeof(sy_field_info), .fields = fields \
    }

#define SYI_DEFINE(op, ID, text, check, own, columns) \
    const struct syi_op syi_op_##op = {SYI_OP_INFO(op, ID, text, false), check, own, \
                                       sizeof(((union syi_plan *)NULL)->op), columns}; \
    SYI_DEFINE_ENTRIES(op)

/* An operator that a backend runs, out of its `fields` and `check`, and its two entry points. */
#define SYI_DEFINE_OP(op, ID, text) SYI_DEFINE(op, ID, text, check, NULL, 0)

/* One whose description is executed, out of its `fields` and `own` steps. */
#define SYI_DEFINE_DESCRIBED(op, ID, text) SYI_DEFINE(op, ID, text, syi_check_described, &own, 0)

/* One whose plan is bound by syi_bind_plan; `last` is the last tensor of the plan, which has `columns`. */
#define SYI_DEFINE_PLANNED(op, ID, text, last, columns) \
    SYI_ASSERT_PLANNED(op, last, columns); \
    SYI_DEFINE(op, ID, text, syi_check_described, &own, columns)

/* The tensors of a plan follow its args, one for each of the description; `columns` of them are per row. */
#define SYI_ASSERT_PLANNED(op, last, columns) \
    _Static_assert(sizeof(sy_##op##_args) + (N_TENSORS - 1) * sizeof(struct syi_tensor) + \
                           (columns) * (sizeof(struct syi_column) - sizeof(struct syi_tensor)) == \
                       offsetof(struct syi_##op##_plan, last), \
                   "tensors of the plan are not those of the description")

#define SYI_DEFINE_ENTRIES(op) \
    sy_status sy_##op##_n(sy_ctx *ctx, const sy_##op##_args *args, size_t args_bytes) \
    { \
        return syi_run(ctx, &syi_op_##op, args, args_bytes); \
    } \
    sy_status sy_##op##_query_n(sy_ctx *ctx, const sy_##op##_args *args, size_t args_bytes, sy_query *query, \
                                size_t query_bytes) \
    { \
        return syi_query(ctx, &syi_op_##op, args, args_bytes, query, query_bytes); \
    }

/*
 * An operator on planes has some of its tensors several times, 1 + n sets. For each the tensors are put into `tensor` and the step
 * runs; set 0 are those of the caller's own fields, and a sentence about another names its plane. Other operators have set 0 alone.
 */
struct syi_plane_sets {
    int64_t n;   /* further ones */
    int64_t now; /* 0 to n */
    int rules
        [5]; /* the fields that differ: cache, rows, scale read, scale written, global scale; 0 (but for the first): none */
    size_t own_format;          /* field of the arguments; 0: none */
    const sy_kv_format *given;  /* by the caller for plane `now`, of the size it states; or NULL */
    const sy_kv_format *format; /* what this library knows of it, or NULL */
    sy_kv_format known;         /* ... is here */
    const sy_kv_plane *more;    /* [n], more_bytes each */
    size_t more_bytes;
    void (*take)(struct syi_call *call); /* puts those of plane `now` in place */
};

/* Rows of tensor `dense` and the same as codes, with scales: codes are made of rows, or, where they are inputs, sums of rows. */
struct syi_coded {
    const char *name;           /* of the field with the format */
    const sy_row_format *given; /* NULL: rows move as they are */
    int dense, codes, scales;   /* tensors */
    sy_row_format format;       /* what this library knows of it */
    int64_t hidden, n_groups;   /* numbers and groups of a row */
    bool packs;                 /* formats of caches are accepted: of quantize_rows and dequantize_rows */
    int64_t width;              /* elements of a row of codes, of these operators */
    int global;                 /* their tensor of global scales; 0: none */
    sy_scale_layout layout;     /* other than ROW: of quantize_rows and dequantize_rows */
    int64_t scale_rows, scale_columns;
};

struct syi_call {
    sy_ctx *ctx;
    const struct syi_op *op;
    bool query;       /* validate inputs only, touch no data */
    bool compact;     /* all tensors are compact, in ordinary memory, and of a size that can be counted */
    sy_shape *shapes; /* by tensor: where a query records the required shapes of outputs; or NULL */
    const DLTensor *tensor[SYI_MAX_TENSORS]; /* by field; NULL: absent, or an output in a query */
    struct syi_plane_sets sets;
    bool chosen; /* an enum has another value than its first: of an operator whose description is executed */
    uint64_t spared;  /* required tensors that this call does without, by bit */
    uint64_t without; /* tensors whose shapes the description does not decide in this call, by bit */
    uint32_t bound;   /* which of `extent` are known, by bit */
    int n_inputs;     /* of an operator whose description is executed: its first tensors */
    int form;         /* of the shapes that have several, from 1 on; 0: not known yet */
    int floats; /* tensor that must be of a float type in this call, though others are accepted, + 1; 0: none */
    int coded;                         /* tensor of codes, whatever its description says, + 1; 0: none */
    int may_alias[2];                  /* a pair that may be exactly the same rows; equal: none */
    const struct syi_backend *backend; /* by the devices of the tensors; before they are checked the CPU's */
    struct syi_kv_plane *planes;       /* room for SYI_FEW_PLANES of the plan; for more in scratch memory */
    void *scratch;                     /* the backend's */
    bool placed;                       /* planes and scratch are final */
    int64_t rows, slots;               /* answers of the query */
    uint64_t bytes;                    /* that must move, for the trace */
    uint64_t device_nanoseconds;       /* on a device, when traced */
    union syi_plan plan;
    /* The fields below are not cleared: that would take as long as the checks of a small call. Nor is the part of the plan that is
       of other operators. */
    union syi_args args;
    uint8_t tail[SYI_MAX_TENSORS]; /* trailing dimensions that form one contiguous row */
    int64_t span[SYI_MAX_TENSORS]; /* bytes of each tensor of a compact call */
    int64_t extent[32];            /* by letter & 31 */
    struct syi_coded coded_rows;   /* of an operator with a row_format, whose description is executed */
};

/* A query looks at no output, except one that is input too. */
static inline bool syi_looked_at(const struct syi_call *call, int i)
{
    return !call->query || (call->op->info.fields[i].flags & (SY_FIELD_OUT | SY_FIELD_INOUT)) != SY_FIELD_OUT;
}

/* Bytes of an element of tensor i; 0 when absent. */
static inline size_t syi_bytes_at(const struct syi_call *call, int i)
{
    return call->tensor[i] != NULL ? syi_elem_bytes(call->tensor[i]->dtype) : 0;
}

/* The argument struct as this library knows it, and its tensors; every field may be an array. */
sy_status syi_copy_args(struct syi_call *call, const void *args, size_t args_bytes);

/* A struct of a caller whose header is newer sets no field that this library does not know. */
sy_status syi_check_tail(struct syi_call *call, const char *name, const void *data, size_t bytes,
                         size_t known);

/*
 * Scratch memory for the backend, and for planes where they are more than SYI_FEW_PLANES, apart from all tensors. Called
 * once the plan is complete but for the planes; an operator without planes leaves it to syi_run. A query takes none.
 */
sy_status syi_take_scratch(struct syi_call *call);

/* Makes the sentence and the fault of contents that a backend rejected (faults.c); returns the status. */
sy_status syi_describe_found(sy_ctx *ctx, const sy_op_info *op, sy_status status);

/* ---- Backends (backends.c) ---- */

/* The one for tensors in ordinary memory, and for calls without tensors. */
extern const struct syi_backend *const syi_host_backend;

/* ---- A context's CUDA device (device.c) ---- */

sy_status syi_device_open(sy_ctx *ctx, const sy_ctx_options *o, char *sentence, size_t bytes);
void syi_device_close(sy_ctx *ctx);
void syi_device_processors(sy_ctx *ctx, int n); /* 0: all */
sy_status syi_device_lend(sy_ctx *ctx, void *data, size_t bytes);
const struct syi_backend *syi_device_backend(const sy_ctx *ctx); /* NULL: the context has none */

/* The first fault of earlier calls that the host can see, as the context's error. */
sy_status syi_device_poll(sy_ctx *ctx);

/* What the device takes for the launches between both, for a trace; the second waits. */
void syi_device_time_begin(sy_ctx *ctx);
uint64_t syi_device_time_end(sy_ctx *ctx);

/* Waits for the stream, then the same. */
sy_status syi_device_wait(sy_ctx *ctx);

/* Chooses the first of n backends that accepts the call's first tensor; it must accept all the others beside it. */
sy_status syi_choose_backend(struct syi_call *call, const struct syi_backend *const *backends, int n);

/* ---- Sentences of checks (check.c) ---- */

static inline const char *syi_name(const struct syi_call *call, int i)
{
    return call->op->info.fields[i].name;
}

/* An argument of a value that breaks a limit. `text` is a format of none of them, of the value, or of both, as %lld. The second:
   with another fault than that of the status. */
sy_status syi_fail_value(struct syi_call *call, sy_status status, const char *argument, int64_t value,
                         int64_t limit, const char *text);
sy_status syi_fail_code(struct syi_call *call, sy_status status, sy_fault_code code, const char *argument,
                        int64_t value, int64_t limit, const char *text);
sy_status syi_fail_rank(struct syi_call *call, int i, int want);

/* ---- Entry points ---- */

/* The entry points every operator has. */
sy_status syi_run(sy_ctx *ctx, const struct syi_op *op, const void *args, size_t args_bytes);
sy_status syi_query(sy_ctx *ctx, const struct syi_op *op, const void *args, size_t args_bytes,
                    sy_query *query, size_t query_bytes);

/* Its answer, in the struct that the caller's header knows. */
sy_status syi_answer(sy_ctx *ctx, const sy_query *answer, sy_query *query, size_t query_bytes);

/* The same answers, and the shapes of outputs; `shapes` may be NULL. */
sy_status syi_infer(sy_ctx *ctx, const struct syi_op *op, const void *args, size_t args_bytes,
                    sy_query *query, sy_shape *shapes);

/* ---- Steps of a check, in the order an operator calls them (check.c) ---- */

/* A step for every plane; afterwards the call has its own tensors again. */
sy_status syi_for_every_plane(struct syi_call *call, sy_status (*step)(struct syi_call *call, void *data),
                              void *data);

/* Puts the tensors of a plane in place, for a call that has several. */
void syi_take_plane(struct syi_call *call, int64_t plane);

/* Tensor i; NULL if it is absent, or not of this plane, and so was seen with plane 0. */
const DLTensor *syi_tensor_of_plane(const struct syi_call *call, int i);

/* Bytes from the first to behind the last element, 0 when empty; false when they cannot be counted. An
   extent of 0 does not excuse the others: a row must be countable even if there is none. Negative strides
   are left for later. */
bool syi_span_bytes(const DLTensor *t, int64_t *span);

bool syi_same_type(DLDataType a, DLDataType b);

/* An optional input and the output made of it come together; a query sees no outputs and lets it pass. */
sy_status syi_check_both(struct syi_call *call, const char *in_name, const DLTensor *in, const char *out_name,
                         const DLTensor *out);

/* Null, dtype, rank of all tensors. `untouched`: the call will look at no data, so data pointers may be
   NULL. */
sy_status syi_check_tensors(struct syi_call *call, bool untouched);

/* Tensor i, when present, has exactly this shape. */
sy_status syi_check_shape(struct syi_call *call, int i, int rank, const int64_t *shape);
sy_status syi_check_vector(struct syi_call *call, int i, int64_t n);
sy_status syi_check_matrix(struct syi_call *call, int i, int64_t rows, int64_t cols);
sy_status syi_check_per_row(struct syi_call *call, int i, int64_t batch);

/* A scalar field is in [low, high]. */
sy_status syi_check_value(struct syi_call *call, const char *field, int64_t value, int64_t low, int64_t high);

/* An enum field has one of its values, by the words of its description. */
sy_status syi_check_word(struct syi_call *call, int i, int value);
sy_status syi_check_enum(struct syi_call *call, const char *field, int value);

/* Overflow: every tensor's bytes can be counted in 63 bits and end inside the address space. */
sy_status syi_check_sizes(struct syi_call *call);

/* E*C rows like those of tensor i can be counted, whether the slots are there yet or not. */
sy_status syi_check_slots(struct syi_call *call, int i);

/* The last `tail` dimensions of tensor i lie as one contiguous row of *row_elems elements. */
sy_status syi_check_row(struct syi_call *call, int i, int tail, int64_t *row_elems);

/* Steps of `stride` elements do not make rows or blocks of `least` elements overlap. */
sy_status syi_check_step(struct syi_call *call, const char *name, const char *what, int64_t stride,
                         int64_t least);

/* Stride, device (which chooses the backend), alias of all tensors (call.c): */
sy_status syi_check_layout(struct syi_call *call);
sy_status syi_check_strides(struct syi_call *call);
sy_status syi_check_devices(struct syi_call *call); /* backends.c */
sy_status syi_check_alias(struct syi_call *call);   /* alias.c */

/* Compact tensors in ordinary memory, as in most calls: strides and devices need no closer look. */
bool syi_layout_as_usual(const struct syi_call *call);

/* Alias of all tensors with a workspace that was lent: scratch would destroy even an input. */
sy_status syi_check_workspace(struct syi_call *call);

/* No byte of one tensor is a byte of the other. Never true of tensors that share one. */
bool syi_tensors_apart(const DLTensor *a, const DLTensor *b);

/* ---- The description, executed (rules.c) ---- */

/* All checks of an operator, in the documented order, and its plan. */
sy_status syi_check_described(struct syi_call *call);

/* Steps of it, for fields `first` to `end` - 1: shapes of tensors, ranges and words of scalars. */
sy_status syi_check_shapes(struct syi_call *call, int first, int end);
sy_status syi_check_scalars(struct syi_call *call, int first, int end);
sy_status syi_check_words(struct syi_call *call); /* of all enums */

sy_status syi_check_some_output(struct syi_call *call); /* for a `given` step */

/* An extent by its letter; 0 where nothing has bound it. */
void syi_bind(struct syi_call *call, char letter, int64_t n);
int64_t syi_bound(const struct syi_call *call, char letter);

/* ---- The permute family (moe_rows.c) ---- */

/* Row, token and expert numbers are int32: `argument` means `value` many of `what`. */
sy_status syi_check_count(struct syi_call *call, const char *argument, const char *what, int64_t value);

/* expert_rows: of layout EXPERT, in whole blocks; 0: as many as there are. */
sy_status syi_check_expert_rows(struct syi_call *call, int64_t rows, sy_a2a_layout layout, int64_t align);

#define SYI_EXPERT_ROWS_FIELD \
    SYI_SCALAR(expert_rows, I64, .help = "layout expert: rows of every expert; 0: as many as it has tokens")

/* Rows are dealt out evenly: over the tokens (packed), or over the experts where they count (capacity). Sets the mode and n_slots
   of the plan. */
sy_status syi_check_share(struct syi_call *call, bool capacity, bool zero_pad, bool by_expert);

/* `rows` of `row_bytes` can be counted, even when the output itself is not there yet. */
sy_status syi_check_output(struct syi_call *call, const char *argument, int64_t rows, int64_t row_bytes);

/* Bytes such an operator moves: both sides of the rows, indices, map and weights. */
uint64_t syi_moe_rows_bytes(const struct syi_moe_rows_plan *plan);

/* ---- Views for the plan, after the checks ---- */

/* Fills the args of a plan, its columns (parameters per row), its other tensors, and the facts that follow these, which are the
   extents of so many letters; returns it. */
void *syi_bind_plan(struct syi_call *call, const char *extents);

int64_t syi_extent(const struct syi_call *call, int i, int dim); /* 0 when absent, of lower or a wrong rank */
bool syi_no_extent(const struct syi_call *call, int i, int dim); /* it is there, and 0 */
unsigned char *syi_data(const struct syi_call *call, int i);     /* NULL only when absent */
struct syi_rows syi_rows_of(const struct syi_call *call, int i);
struct syi_tensor syi_tensor_of(const struct syi_call *call, int i);
struct syi_column syi_column_of(const struct syi_call *call, int i);
/* Tensor i of a call on a device is one number in the memory of the host, which the call reads itself. */
bool syi_is_held(const struct syi_call *call, int i);

/* Tensor i is there and in CPU memory. */
bool syi_in_cpu_memory(const struct syi_call *call, int i);

/* The lists of three tensors; value -1: no tensor. */
struct syi_token_lists syi_token_lists_of(const struct syi_call *call, int indptr, int token, int value);

uint64_t syi_tensor_bytes(const struct syi_call *call); /* elements of all tensors given, for the trace */
sy_type syi_type_at(const struct syi_call *call, int i);
int64_t syi_stride(const DLTensor *t,
                   int dim); /* in elements; that of a compact tensor when strides is NULL */
