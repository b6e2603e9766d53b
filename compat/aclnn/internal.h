/*
 * Shared declarations of this compatibility layer. A call has two phases: the first validates descriptors, gets the
 * size of the workspace from sy_<op>_query and returns an executor; the second takes the workspace, runs the operator
 * and frees the executor.
 *
 * The vendor allows strides between the elements of a row, our operators do not: such rows are packed into the
 * workspace before the operator runs, and unpacked after it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <switchyard_describe.h>

/* This library exports the vendor's names; everything else in it is hidden. */
#pragma GCC visibility push(default)
#include "acl/acl.h"
#include "aclnnop/operators.h"
#pragma GCC visibility pop

/* ---- Descriptors (meta.c) ---- */

struct aclTensor {
    aclDataType type;
    aclFormat format;
    void *data;
    int64_t offset; /* elements */
    uint64_t rank, storage_rank;
    int64_t *dims, *strides, *storage_dims; /* after the struct, in the same block */
};

struct aclIntArray {
    uint64_t size;
    int64_t value[];
};

/* ---- Errors (message.c) ---- */

/* Stores the sentence for aclGetRecentErrMsg and returns `status`. */
#if defined(__GNUC__)
#define SYI_ACLNN_PRINTF_AT(i) __attribute__((format(printf, i, (i) + 1)))
#else
#define SYI_ACLNN_PRINTF_AT(i)
#endif
aclnnStatus syi_aclnn_fail(aclnnStatus status, const char *format, ...) SYI_ACLNN_PRINTF_AT(2);

/* That of the last failure of this thread. */
aclnnStatus syi_aclnn_last_status(void);

/* The same for a runtime call, which has ACL_ERROR_ codes. */
aclError syi_aclnn_fail_rt(aclError error, const char *call, const char *what);

/* ---- Views (view.c) ---- */

#define SYI_ACLNN_MAX_RANK 4

/* One tensor of a call: the executor's copy of its descriptor. */
struct syi_aclnn_view {
    const char *name;
    bool taken; /* given, and read or written by this call */
    bool output;
    aclDataType type;
    aclFormat format;
    size_t elem_bytes;
    uint64_t
        rank; /* of the descriptor; the first two extents and strides are kept, as far as there are so many */
    int64_t shape[2], strides[2];
    int64_t dims[SYI_ACLNN_MAX_RANK], steps[SYI_ACLNN_MAX_RANK]; /* all of them */
    void *base;
    int64_t offset; /* elements from base to the first of the view */
    bool packed;    /* is copied through the workspace */
    size_t at;      /* offset in the workspace */
    DLTensor dl;    /* the operator's argument; without data before the second phase */
};

void syi_aclnn_view_set(struct syi_aclnn_view *view, const char *name, const aclTensor *tensor);

/* Bytes of the packed elements; no overflow, because extents have been checked. */
size_t syi_aclnn_view_bytes(const struct syi_aclnn_view *view);

/* Decides whether the view is copied through the workspace. `any_stride`: the operator accepts any stride here. */
void syi_aclnn_view_ready(struct syi_aclnn_view *view, bool any_stride);

void *syi_aclnn_view_data(const struct syi_aclnn_view *view); /* its first element */
void syi_aclnn_view_span(const struct syi_aclnn_view *view, char **begin,
                         char **end); /* and all of its bytes */
/* A row as the operator reads or writes it, in place or packed. */
char *syi_aclnn_row(const struct syi_aclnn_view *view, int64_t row);
void syi_aclnn_pack(const struct syi_aclnn_view *view, void *dst);
void syi_aclnn_unpack(const struct syi_aclnn_view *view, const void *src);

/* Whether two elements may share memory, which is an error for an output. */
bool syi_aclnn_overlaps_itself(const struct syi_aclnn_view *view);
/* Whether two views share a byte. Interleaved views whose rows have the same stride do not. */
bool syi_aclnn_overlap(const struct syi_aclnn_view *a, const struct syi_aclnn_view *b);
bool syi_aclnn_same(const struct syi_aclnn_view *a, const struct syi_aclnn_view *b);

/* ---- Executors (executor.c) ---- */

struct syi_aclnn_rule; /* see checks */

#define SYI_ACLNN_MAX_VIEWS 9
#define SYI_ACLNN_MAX_LISTS 5

/* One function: its first phase stores a pointer to this in the executor, its second checks it. `run` finds data in the
   views and in the lists. */
struct syi_aclnn_op {
    const char *name;
    const char *calls;                    /* the operator whose arguments are `args`; NULL: none */
    size_t args_bytes;                    /* of its struct */
    aclnnStatus (*run)(aclOpExecutor *e); /* NULL: that operator, and nothing else */
    bool on_device;  /* `run` only passes views to operators, so they may be in device memory */
    int in_place[2]; /* an output, and the input that it may be */
    void (*prepare)(aclOpExecutor *e); /* NULL, or lists and scratch of `run`, once all checks have passed */
};
#define SYI_ACLNN_CALLS(op) .calls = #op, .args_bytes = sizeof(sy_##op##_args)

/* Defines the second phase of the function that has its description in `op`, and begins the definition of the first, which
   stores its results in *workspaceSize and *executor. */
#define SYI_ACLNN_OPERATOR(function, op, ...) \
    aclnnStatus function(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, \
                         aclrtStream stream) \
    { \
        return syi_aclnn_execute(&(op), workspace, workspaceSize, executor, stream); \
    } \
    aclnnStatus function##GetWorkspaceSize(__VA_ARGS__, uint64_t *workspaceSize, aclOpExecutor **executor)

struct aclOpExecutor {
    const struct syi_aclnn_op *op;
    aclnnStatus
        status; /* of the first phase: that of the first check that failed, the later ones do nothing */
    uint64_t *size_result; /* of the first phase: where it stores its results */
    aclOpExecutor **executor_result;
    sy_ctx *ctx; /* one per executor: executors on two threads share nothing */
    bool repeatable;
    int n_views;
    struct syi_aclnn_view view[SYI_ACLNN_MAX_VIEWS]; /* in the order of the first phase */
    size_t lists_bytes, lists_at;                    /* memory of the lists */
    size_t scratch_bytes, scratch_at;                /* scratch of the operator */
    uint64_t workspace_bytes;                        /* the total */
    int64_t n_tokens, n_experts, n_rows;
    DLTensor rows;                      /* of finalize-routing, of all experts one after the other */
    DLTensor map;                       /* packed with probs: see slots.c */
    DLTensor list[SYI_ACLNN_MAX_LISTS]; /* further arguments, and memory, that `run` fills */
    int64_t list_shape[SYI_ACLNN_MAX_LISTS][2];
    size_t list_at[SYI_ACLNN_MAX_LISTS];
    sy_kv_plane plane; /* of values, beside keys */
    int64_t number[4]; /* scalar arguments that `run` needs */
    union {
        sy_moe_permute_args permute;
        sy_moe_unpermute_args unpermute;
        sy_moe_permute_grad_args permute_grad;
        sy_moe_unpermute_grad_args unpermute_grad;
        sy_sample_args sample;
        sy_kv_scatter_args kv_scatter;
        sy_kv_ragged_args kv_ragged;
        sy_moe_permute_ids_args permute_ids;
        sy_moe_unpermute_ids_args unpermute_ids;
        sy_moe_dispatch_grad_gate_args grad_gate;
        sy_moe_route_args route;
    } args;
};

/* A new executor with the tensors of the table, none of which is missing, or a `status`. NULL, which checks and the end
   accept, if one of the two result pointers is NULL or there is no memory. */
aclOpExecutor *syi_aclnn_begin(const struct syi_aclnn_op *op, const struct syi_aclnn_rule *rules, int n,
                               uint64_t *workspace_size, aclOpExecutor **executor);
/* Ends the first phase: the check of overlap, the workspace and the executor, which is freed where a check has failed. */
aclnnStatus syi_aclnn_end(aclOpExecutor *e);
/* The query of op->calls with `args`; records the scratch that it needs. */
sy_query syi_aclnn_query(aclOpExecutor *e);
/* The same of an operator that `run` calls besides. */
sy_query syi_aclnn_query_of(aclOpExecutor *e, const char *op, const void *args, size_t bytes);
/* Calls op->calls with `args`. */
aclnnStatus syi_aclnn_call(aclOpExecutor *e);
/* The second phase. */
aclnnStatus syi_aclnn_execute(const struct syi_aclnn_op *op, void *workspace, uint64_t workspace_size,
                              aclOpExecutor *e, aclrtStream stream);
/* The vendor's number for our status; the sentence is the context's. */
aclnnStatus syi_aclnn_status(const aclOpExecutor *e, sy_status status);
/* The view as an operator's argument: NULL if this call does not use it. */
const DLTensor *syi_aclnn_arg(const aclOpExecutor *e, int i);
/* The i-th list of n rows and, unless -1, of columns, in the workspace. */
DLTensor *syi_aclnn_list(aclOpExecutor *e, int i, DLDataType type, int64_t rows, int64_t columns);

/* The work of a call whose views have data. */
aclnnStatus syi_aclnn_run(aclOpExecutor *e);
/* The work of a call on host memory. `workspace` NULL: one of its own. */
aclnnStatus syi_aclnn_run_on_host(aclOpExecutor *e, char *workspace);

/* ---- Devices (device.c) ---- */

/* This thread's context for the device that the environment names; NULL without one. */
aclnnStatus syi_aclnn_device(const char *call, sy_ctx **ctx);
void syi_aclnn_device_close(void);
/* The work of a call, where its tensors are. */
aclnnStatus syi_aclnn_run_anywhere(aclOpExecutor *e, char *workspace);

/* ---- Numbers (numbers.c) ---- */

/* Element [row,column] of an INT32 or INT64 matrix, or [row,0] of a vector, which may be unaligned. */
int64_t syi_aclnn_integer(const aclOpExecutor *e, int i, int64_t row, int64_t column);
/* Writes element n of an INT32 or INT64 vector. */
void syi_aclnn_set_integer(const aclOpExecutor *e, int i, int64_t n, int64_t value);
/* Plus or minus zero, in any of the float types. */
bool syi_aclnn_is_zero(const char *value, size_t bytes);
/* A FLOAT, FLOAT16 or BF16, which may be unaligned; the second rounds to nearest even, and a NaN is the canonical one. */
float syi_aclnn_float(const char *value, aclDataType type);
void syi_aclnn_set_float(char *value, aclDataType type, float number);

/* ---- Pairs of weight 0 (slots.c) ---- */

/* Numbers of the views of a packed call with probs. */
struct syi_aclnn_slots {
    int map, probs, indices;
};

/* The map for the operator: that of the view, or one without pairs of weight 0 in `memory`, n_tokens * n_experts bytes. */
const DLTensor *syi_aclnn_live_map(aclOpExecutor *e, struct syi_aclnn_slots slots, char *memory);

/* ---- Checks (check.c) ---- */

#define SYI_ACLNN_BIT(type) (1u << (type)) /* for types below 32, the only ones these operators accept */
#define SYI_ACLNN_FLOATS (SYI_ACLNN_BIT(ACL_FLOAT) | SYI_ACLNN_BIT(ACL_FLOAT16) | SYI_ACLNN_BIT(ACL_BF16))
#define SYI_ACLNN_F32 SYI_ACLNN_BIT(ACL_FLOAT)
#define SYI_ACLNN_I32 SYI_ACLNN_BIT(ACL_INT32)
#define SYI_ACLNN_INTEGERS (SYI_ACLNN_I32 | SYI_ACLNN_BIT(ACL_INT64))
#define SYI_ACLNN_BYTES (SYI_ACLNN_BIT(ACL_INT8) | SYI_ACLNN_BIT(ACL_BOOL))

enum {
    SYI_ACLNN_OPTIONAL = 1, /* may be null */
    SYI_ACLNN_OUTPUT = 2,
    SYI_ACLNN_IGNORED = 4,     /* not used by this call, and not checked */
    SYI_ACLNN_VECTOR = 8,      /* may also have the shape [n,1] */
    SYI_ACLNN_ANY_STRIDE = 16, /* the operator accepts any stride of this vector */
    SYI_ACLNN_WIDENS = 32,     /* may also be FLOAT where the tensor it is `like` is BF16 */
    SYI_ACLNN_COLUMN = 64,     /* a matrix of one column may also have the shape [n] */
    SYI_ACLNN_DENSE = 128, /* of any rank up to the most, compact; its elements are bytes that are moved */
    SYI_ACLNN_BESIDE = 256 /* ignored if the tensor it is `like` is null */
};

/* One tensor of a call and the requirements on it. */
struct syi_aclnn_rule {
    const char *name;
    const aclTensor *tensor;
    unsigned flags;
    unsigned types; /* SYI_ACLNN_BIT of each; 0: only `like` applies */
    int like;       /* must have the type of that tensor of the table, counted from 1; 0: none */
    uint64_t rank;
    size_t field; /* SYI_ACLNN_FIELD: the argument of the operator that it becomes; 0: none */
};
#define SYI_NAMED(tensor) #tensor, tensor /* the first two fields: a parameter of the vendor's function */
#define SYI_ACLNN_FIELD(op, name) (offsetof(sy_##op##_args, name) + 1)

/* Stores the first failure of a call, with its sentence after the function's name. */
void syi_aclnn_reject(aclOpExecutor *e, aclnnStatus status, const char *format, ...) SYI_ACLNN_PRINTF_AT(3);
/* The same with the usual status. */
#define SYI_ACLNN_INVALID(e, ...) syi_aclnn_reject((e), ACLNN_ERR_PARAM_INVALID, __VA_ARGS__)
/* The same where a number is not `good`: "field is value, want ...". */
void syi_aclnn_want(aclOpExecutor *e, bool good, aclnnStatus status, const char *field, int64_t value,
                    const char *want);

/* The steps, in the vendor's order; each checks all tensors before the next begins. The second makes them views that a
   query accepts, and arguments of the operator. It returns whether no check has failed so far. */
void syi_aclnn_check_types(aclOpExecutor *e, const struct syi_aclnn_rule *rules);
bool syi_aclnn_check_ranks(aclOpExecutor *e, const struct syi_aclnn_rule *rules);
bool syi_aclnn_check_tensors(aclOpExecutor *e, const struct syi_aclnn_rule *rules); /* both */
/* Tokens, experts and, packed, slots within the vendor's limits. */
void syi_aclnn_check_limits(aclOpExecutor *e, bool drop_and_pad);
/* An output's shape; `columns` -1 for a vector. */
void syi_aclnn_check_shape(aclOpExecutor *e, int i, int64_t rows, int64_t columns);
/* No output overlaps another tensor. */
void syi_aclnn_check_alias(aclOpExecutor *e);
