/*
 * What the files of this door share. A call is two phases: the first judges descriptors, asks sy_<op>_query how much
 * memory the call needs, and leaves an executor; the second lends it that memory, runs the operator and frees it.
 *
 * Rows whose elements lie apart, which the vendor allows and our operators do not, are packed into the workspace before
 * the operator runs, and unpacked behind it.
 */
#ifndef SYI_ACLNN_DOOR_H
#define SYI_ACLNN_DOOR_H

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
    int64_t *dims, *strides, *storage_dims; /* behind the struct, in the same block */
};

struct aclIntArray {
    uint64_t size;
    int64_t value[];
};

/* ---- Failing (message.c) ----------------------------------------------------------------------------- */

/* Keeps the sentence for aclGetRecentErrMsg and returns `status`. */
#if defined(__GNUC__)
#define SYI_ACLNN_PRINTF __attribute__((format(printf, 2, 3)))
#else
#define SYI_ACLNN_PRINTF
#endif
aclnnStatus syi_aclnn_fail(aclnnStatus status, const char *format, ...) SYI_ACLNN_PRINTF;

/* The same for a runtime call, which has ACL_ERROR_ codes. */
aclError syi_aclnn_fail_rt(aclError error, const char *call, const char *what);

/* ---- Views (view.c) ---------------------------------------------------------------------------------- */

/* One tensor of a call, as the executor keeps it: all that is left of its descriptor. */
struct syi_aclnn_view {
    const char *name;
    bool taken; /* given, and read or written by this call */
    bool output;
    aclDataType type;
    aclFormat format;
    size_t elem_bytes;
    uint64_t rank; /* as described; the first two extents and strides are kept */
    int64_t shape[2], strides[2];
    void *base;
    int64_t offset; /* elements from base to the first of the view */
    bool packed;    /* goes through the workspace */
    size_t at;      /* where in the workspace */
    DLTensor dl;    /* what the operator gets; without data before the second phase */
};

void syi_aclnn_view_set(struct syi_aclnn_view *view, const char *name, const aclTensor *tensor);

/* Bytes of the elements laid side by side. Extents are judged: it fits. */
size_t syi_aclnn_view_bytes(const struct syi_aclnn_view *view);

/* Decides whether the view goes through the workspace. `any_stride`: the operator takes a vector of any stride here. */
void syi_aclnn_view_ready(struct syi_aclnn_view *view, bool any_stride);

void *syi_aclnn_view_data(const struct syi_aclnn_view *view); /* its first element */
/* A row as the operator finds it, in place or packed. */
const char *syi_aclnn_row(const struct syi_aclnn_view *view, int64_t row);
void syi_aclnn_pack(const struct syi_aclnn_view *view, void *dst);
void syi_aclnn_unpack(const struct syi_aclnn_view *view, const void *src);

/* Whether two elements may be one; an output must not be so. */
bool syi_aclnn_meets_itself(const struct syi_aclnn_view *view);
/* Whether two views share a byte. Views that interleave are told apart if their rows have one stride. */
bool syi_aclnn_meet(const struct syi_aclnn_view *a, const struct syi_aclnn_view *b);
bool syi_aclnn_same(const struct syi_aclnn_view *a, const struct syi_aclnn_view *b);

/* ---- Executors (executor.c) -------------------------------------------------------------------------- */

#define SYI_ACLNN_MAX_VIEWS 9

/* One operator: its first phase leaves a pointer to this in the executor, its second insists on it. `run` finds data in
   the views and extra_bytes of memory at `extra`. */
struct syi_aclnn_op {
    const char *name;
    aclnnStatus (*run)(aclOpExecutor *e, char *extra);
};

struct aclOpExecutor {
    const struct syi_aclnn_op *op;
    sy_ctx *ctx; /* its own: executors of two threads never meet */
    bool repeatable;
    int n_views;
    struct syi_aclnn_view view[SYI_ACLNN_MAX_VIEWS]; /* in the order of the first phase */
    size_t extra_bytes, extra_at;                    /* memory the door needs besides packed views */
    size_t scratch_bytes, scratch_at;                /* what the operator needs */
    uint64_t workspace_bytes;                        /* all of it */
    int64_t n_tokens, n_experts, n_rows;
    DLTensor indices; /* unpermute-grad, padded: what outIndex and permuteTokenId make together */
    DLTensor map;     /* packed with probs: see slots.c */
    union {
        sy_moe_permute_args permute;
        sy_moe_unpermute_args unpermute;
        sy_moe_permute_grad_args permute_grad;
        sy_moe_unpermute_grad_args unpermute_grad;
        sy_sample_args sample;
    } args;
};

/* A new executor without views. 161001 if one of the two places for the answer is missing. */
aclnnStatus syi_aclnn_begin(const struct syi_aclnn_op *op, uint64_t *workspace_size, aclOpExecutor **executor,
                            aclOpExecutor **e);
/* Adds what the operator itself needs; may be called for several that run one after the other. */
void syi_aclnn_need(aclOpExecutor *e, size_t scratch_bytes);
/* Ends the first phase: lays out the workspace and hands the executor over, or frees it if `status` is no success. */
aclnnStatus syi_aclnn_end(aclOpExecutor *e, aclnnStatus status, uint64_t *workspace_size,
                          aclOpExecutor **executor);
/* The second phase. */
aclnnStatus syi_aclnn_execute(const struct syi_aclnn_op *op, void *workspace, uint64_t workspace_size,
                              aclOpExecutor *e, aclrtStream stream);
/* The vendor's number for a status of ours; the sentence is the context's. */
aclnnStatus syi_aclnn_status(const aclOpExecutor *e, sy_status status);
/* The view as an operator's argument: NULL if it takes no part. */
const DLTensor *syi_aclnn_arg(const aclOpExecutor *e, int i);
/* Element n of an INT32 vector, whose memory nobody has to align. */
int32_t syi_aclnn_number(const aclOpExecutor *e, int i, int64_t n);
void syi_aclnn_set_number(const aclOpExecutor *e, int i, int64_t n, int64_t value);

/* ---- Pairs of weight 0 (slots.c) --------------------------------------------------------------------- */

/* Which views of a packed call with probs hold them. */
struct syi_aclnn_slots {
    int map, probs, indices;
};

/* The map an operator gets: that of the view, or a thinner one in `memory`, of n_tokens * n_experts bytes. */
const DLTensor *syi_aclnn_live_map(aclOpExecutor *e, struct syi_aclnn_slots slots, char *memory);

/* ---- Judging (judge.c) ------------------------------------------------------------------------------- */

#define SYI_ACLNN_BIT(type) (1u << (type)) /* of the types below 32, which are all that operators here take */
#define SYI_ACLNN_FLOATS (SYI_ACLNN_BIT(ACL_FLOAT) | SYI_ACLNN_BIT(ACL_FLOAT16) | SYI_ACLNN_BIT(ACL_BF16))
#define SYI_ACLNN_BYTES (SYI_ACLNN_BIT(ACL_INT8) | SYI_ACLNN_BIT(ACL_BOOL))

enum {
    SYI_ACLNN_OPTIONAL = 1, /* may be null */
    SYI_ACLNN_OUTPUT = 2,
    SYI_ACLNN_IGNORED = 4,     /* not asked for in this call: whatever is given, it is not looked at */
    SYI_ACLNN_VECTOR = 8,      /* may also be written [n,1] */
    SYI_ACLNN_ANY_STRIDE = 16, /* the operator takes this vector with any stride */
    SYI_ACLNN_WIDENS = 32      /* may also be FLOAT where the tensor it is `like` is BF16 */
};

/* What the first phase says about one tensor. */
struct syi_aclnn_rule {
    const char *name;
    const aclTensor *tensor;
    unsigned flags;
    unsigned types; /* SYI_ACLNN_BIT of each; 0 where the next says it all */
    int like;       /* has the type of that tensor of the table, counted from 1; 0: of none */
    uint64_t rank;
};

/* The steps, in the vendor's order; each looks at all tensors before the next begins. The first takes the tensors over,
   the third makes views of them that a query can be asked about. */
aclnnStatus syi_aclnn_judge_null(aclOpExecutor *e, const struct syi_aclnn_rule *rules, int n);
aclnnStatus syi_aclnn_judge_types(const aclOpExecutor *e, const struct syi_aclnn_rule *rules);
aclnnStatus syi_aclnn_judge_ranks(aclOpExecutor *e, const struct syi_aclnn_rule *rules);
/* Tokens, experts and, packed, slots within the vendor's limits. */
aclnnStatus syi_aclnn_judge_limits(const aclOpExecutor *e, bool drop_and_pad);
/* An output's shape; `columns` -1 for a vector. */
aclnnStatus syi_aclnn_judge_shape(const aclOpExecutor *e, int i, int64_t rows, int64_t columns);
/* No output meets another tensor, but `output` may be `input` itself; -1 for neither. */
aclnnStatus syi_aclnn_judge_alias(const aclOpExecutor *e, int output, int input);

#endif /* SYI_ACLNN_DOOR_H */
