/*
 * Shared declarations of this compatibility layer. A call has two phases: the first validates descriptors, gets the
 * size of the workspace from sy_<op>_query and returns an executor; the second takes the workspace, runs the operator
 * and frees the executor.
 *
 * The vendor allows strides between the elements of a row, our operators do not: such rows are packed into the
 * workspace before the operator runs, and unpacked after it.
 */
#ifndef SYI_ACLNN_INTERNAL_H
#define SYI_ACLNN_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <switchyard.h>

#include "aclnn/acl_meta.h"

/* ---- Descriptors (meta.c) ---------------------------------------------------------------------------- */

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

/* ---- Errors (message.c) ------------------------------------------------------------------------------ */

/* Stores the sentence for aclGetRecentErrMsg and returns `status`. */
#if defined(__GNUC__)
#define SYI_ACLNN_PRINTF __attribute__((format(printf, 2, 3)))
#else
#define SYI_ACLNN_PRINTF
#endif
aclnnStatus syi_aclnn_fail(aclnnStatus status, const char *format, ...) SYI_ACLNN_PRINTF;

/* The same for a runtime call, which has ACL_ERROR_ codes. */
aclError syi_aclnn_fail_rt(aclError error, const char *call, const char *what);

/* ---- Views (view.c) ---------------------------------------------------------------------------------- */

/* One tensor of a call: the executor's copy of its descriptor. */
struct syi_aclnn_view {
    const char *name;
    bool taken; /* given, and read or written by this call */
    bool output;
    aclDataType type;
    aclFormat format;
    size_t elem_bytes;
    uint64_t rank; /* of the descriptor; the first two extents and strides are kept */
    int64_t shape[2], strides[2];
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
/* A row as the operator reads it, in place or packed. */
const char *syi_aclnn_row(const struct syi_aclnn_view *view, int64_t row);
void syi_aclnn_pack(const struct syi_aclnn_view *view, void *dst);
void syi_aclnn_unpack(const struct syi_aclnn_view *view, const void *src);

/* Whether two elements may share memory, which is an error for an output. */
bool syi_aclnn_overlaps_itself(const struct syi_aclnn_view *view);
/* Whether two views share a byte. Interleaved views whose rows have the same stride do not. */
bool syi_aclnn_overlap(const struct syi_aclnn_view *a, const struct syi_aclnn_view *b);
bool syi_aclnn_same(const struct syi_aclnn_view *a, const struct syi_aclnn_view *b);

/* ---- Executors (executor.c) -------------------------------------------------------------------------- */

#define SYI_ACLNN_MAX_VIEWS 9

/* One operator: its first phase stores a pointer to this in the executor, its second checks it. `run` finds data in the
   views and extra_bytes of memory at `extra`. */
struct syi_aclnn_op {
    const char *name;
    aclnnStatus (*run)(aclOpExecutor *e, char *extra);
};

struct aclOpExecutor {
    const struct syi_aclnn_op *op;
    sy_ctx *ctx; /* one per executor: executors on two threads share nothing */
    bool repeatable;
    int n_views;
    struct syi_aclnn_view view[SYI_ACLNN_MAX_VIEWS]; /* in the order of the first phase */
    size_t extra_bytes, extra_at;                    /* memory this layer needs besides packed views */
    size_t scratch_bytes, scratch_at;                /* scratch of the operator */
    uint64_t workspace_bytes;                        /* the total */
    int64_t n_tokens, n_experts, n_rows;
    DLTensor indices; /* unpermute-grad, padded: computed from outIndex and permuteTokenId */
    DLTensor map;     /* packed with probs: see slots.c */
    union {
        sy_moe_permute_args permute;
        sy_moe_unpermute_args unpermute;
        sy_moe_permute_grad_args permute_grad;
        sy_moe_unpermute_grad_args unpermute_grad;
        sy_sample_args sample;
    } args;
};

/* A new executor without views. 161001 if one of the two result pointers is NULL. */
aclnnStatus syi_aclnn_begin(const struct syi_aclnn_op *op, uint64_t *workspace_size, aclOpExecutor **executor,
                            aclOpExecutor **e);
/* Records the scratch an operator needs; call it for each of several that run one after the other. */
void syi_aclnn_need(aclOpExecutor *e, size_t scratch_bytes);
/* Ends the first phase: lays out the workspace and returns the executor, or frees it if `status` is no success. */
aclnnStatus syi_aclnn_end(aclOpExecutor *e, aclnnStatus status, uint64_t *workspace_size,
                          aclOpExecutor **executor);
/* The second phase. */
aclnnStatus syi_aclnn_execute(const struct syi_aclnn_op *op, void *workspace, uint64_t workspace_size,
                              aclOpExecutor *e, aclrtStream stream);
/* The vendor's number for our status; the sentence is the context's. */
aclnnStatus syi_aclnn_status(const aclOpExecutor *e, sy_status status);
/* The view as an operator's argument: NULL if this call does not use it. */
const DLTensor *syi_aclnn_arg(const aclOpExecutor *e, int i);
/* Element n of an INT32 vector, which may be unaligned. */
int32_t syi_aclnn_number(const aclOpExecutor *e, int i, int64_t n);
void syi_aclnn_set_number(const aclOpExecutor *e, int i, int64_t n, int64_t value);

/* ---- Pairs of weight 0 (slots.c) --------------------------------------------------------------------- */

/* Numbers of the views of a packed call with probs. */
struct syi_aclnn_slots {
    int map, probs, indices;
};

/* The map for the operator: that of the view, or one without pairs of weight 0 in `memory`, n_tokens * n_experts bytes. */
const DLTensor *syi_aclnn_live_map(aclOpExecutor *e, struct syi_aclnn_slots slots, char *memory);

/* ---- Checks (check.c) -------------------------------------------------------------------------------- */

#define SYI_ACLNN_BIT(type) (1u << (type)) /* for types below 32, the only ones these operators accept */
#define SYI_ACLNN_FLOATS (SYI_ACLNN_BIT(ACL_FLOAT) | SYI_ACLNN_BIT(ACL_FLOAT16) | SYI_ACLNN_BIT(ACL_BF16))
#define SYI_ACLNN_BYTES (SYI_ACLNN_BIT(ACL_INT8) | SYI_ACLNN_BIT(ACL_BOOL))

enum {
    SYI_ACLNN_OPTIONAL = 1, /* may be null */
    SYI_ACLNN_OUTPUT = 2,
    SYI_ACLNN_IGNORED = 4,     /* not used by this call, and not checked */
    SYI_ACLNN_VECTOR = 8,      /* may also have the shape [n,1] */
    SYI_ACLNN_ANY_STRIDE = 16, /* the operator accepts any stride of this vector */
    SYI_ACLNN_WIDENS = 32      /* may also be FLOAT where the tensor it is `like` is BF16 */
};

/* The requirements on one tensor. */
struct syi_aclnn_rule {
    const char *name;
    const aclTensor *tensor;
    unsigned flags;
    unsigned types; /* SYI_ACLNN_BIT of each; 0: only `like` applies */
    int like;       /* must have the type of that tensor of the table, counted from 1; 0: none */
    uint64_t rank;
};

/* The steps, in the vendor's order; each checks all tensors before the next begins. The first copies the descriptors,
   the third makes them views that a query accepts. */
aclnnStatus syi_aclnn_check_null(aclOpExecutor *e, const struct syi_aclnn_rule *rules, int n);
aclnnStatus syi_aclnn_check_types(const aclOpExecutor *e, const struct syi_aclnn_rule *rules);
aclnnStatus syi_aclnn_check_ranks(aclOpExecutor *e, const struct syi_aclnn_rule *rules);
/* Tokens, experts and, packed, slots within the vendor's limits. */
aclnnStatus syi_aclnn_check_limits(const aclOpExecutor *e, bool drop_and_pad);
/* An output's shape; `columns` -1 for a vector. */
aclnnStatus syi_aclnn_check_shape(const aclOpExecutor *e, int i, int64_t rows, int64_t columns);
/* No output overlaps another tensor, but `output` may be `input` itself; -1 for neither. */
aclnnStatus syi_aclnn_check_alias(const aclOpExecutor *e, int output, int input);

#endif /* SYI_ACLNN_INTERNAL_H */
