/*
 * What the tests of the aclnn door share: one call of an operator as a value that tables can spoil, lay out anew, and
 * run through both phases with a workspace of exactly the bytes that were asked for.
 */
#ifndef SWITCHYARD_TESTS_COMPAT_ACLNN_H
#define SWITCHYARD_TESTS_COMPAT_ACLNN_H

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "support.h"

/* One tensor of a call. Without strides it is compact. */
struct arg {
    aclDataType type; /* with rank 0: no tensor at all */
    int rank;
    int64_t dims[4], strides[4];
    bool strided;
    int64_t offset;   /* elements */
    size_t misalign;  /* bytes from a good address to the memory */
    const void *data; /* of an input, dense; NULL: bytes 0xA5 */
    aclFormat format; /* 0 stands for ND */
    bool no_data;     /* a descriptor without memory */
    /* Made of it: */
    aclTensor *tensor;
    unsigned char *mem; /* from buf_new */
    size_t bytes;
    unsigned char *before; /* a copy of mem */
    unsigned char *device; /* with SWITCHYARD_COMPAT_DEVICE: what the tensor points to */
};

#define ARG1(t, n, values) \
    { \
        .type = (t), .rank = 1, .dims = {(n)}, .data = (values) \
    }
#define ARG2(t, n, m, values) \
    { \
        .type = (t), .rank = 2, .dims = {(n), (m)}, .data = (values) \
    }
#define ARG3(t, a, b, c, values) \
    { \
        .type = (t), .rank = 3, .dims = {(a), (b), (c)}, .data = (values) \
    }
#define ARG4(t, a, b, c, d, values) \
    { \
        .type = (t), .rank = 4, .dims = {(a), (b), (c), (d)}, .data = (values) \
    }
#define NO_ARG \
    { \
        .rank = 0 \
    }

#define CALL_ARGS 9
struct call {
    const char *op;
    int count, first_output; /* args [first_output, count) are outputs */
    struct arg args[CALL_ARGS];
    /* permute: numOutTokens; permute-grad: numExperts, tokensNum; sample: topKGuess, ksMax */
    int64_t number[2];
    /* dropAndPad or paddedMode; sample: isNeedLogits, inputIsLogits, isNeedSampleResult */
    bool flag[3];
    double eps;
    const int64_t *restore; /* restoreShapeOptional */
    uint64_t restore_count;
    aclnnStatus (*ask)(struct call *c, uint64_t *workspace_size, aclOpExecutor **executor);
    aclnnStatus (*execute)(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
                           aclrtStream stream);
};

enum { PERMUTE_TOKENS, PERMUTE_MAP, PERMUTE_PROBS, PERMUTE_OUT, PERMUTE_PROBS_OUT, PERMUTE_INDICES };
enum {
    UNPERMUTE_ROWS,
    UNPERMUTE_INDICES,
    UNPERMUTE_MAP,
    UNPERMUTE_PROBS,
    UNPERMUTE_OUT,
    UNPERMUTE_OUT_INDEX,
    UNPERMUTE_TOKEN_ID,
    UNPERMUTE_KEPT_PROBS
};
enum { PGRAD_ROWS, PGRAD_PROBS, PGRAD_INDICES, PGRAD_MAP, PGRAD_OUT, PGRAD_PROBS_OUT };
enum {
    UGRAD_TOKENS,
    UGRAD_OUT_INDEX,
    UGRAD_TOKEN_ID,
    UGRAD_MAP,
    UGRAD_ROWS,
    UGRAD_PROBS,
    UGRAD_OUT,
    UGRAD_PROBS_OUT
};
enum {
    SAMPLE_LOGITS,
    SAMPLE_K,
    SAMPLE_P,
    SAMPLE_Q,
    SAMPLE_MINP,
    SAMPLE_TOKEN,
    SAMPLE_MASKED,
    SAMPLE_IDX,
    SAMPLE_LIST
};

/* A call of each operator without tensors or values. */
struct call call_permute(void);
struct call call_unpermute(void);
struct call call_permute_grad(void);
struct call call_unpermute_grad(void);
struct call call_sample(void);
struct call call_sample_v2(void);

/* Whether tensors are in device memory, as SWITCHYARD_COMPAT_DEVICE requires. */
bool on_device(void);

void call_make(struct call *c); /* memory and descriptors of its tensors */
void call_free(struct call *c); /* checks the guards */
/* Both phases; the second is left out where the first fails. The call must be made. */
aclnnStatus call_run(struct call *c);
/* Made, run with success, each output compared with its dense values (NULL: that output is not looked at), freed. */
#define call_expect(c, ...) call_expect_at((c), (const void *[]){__VA_ARGS__}, __FILE__, __LINE__)
void call_expect_at(struct call *c, const void *const *want, const char *file, int line);

/* Made, run with this status, every tensor as it was, freed. */
void call_rejected(struct call *c, aclnnStatus want, const char *what);

void arg_get(const struct arg *a, void *dense); /* its elements, in order */
int64_t arg_count(const struct arg *a);
size_t arg_elem_bytes(const struct arg *a);
/* Every byte but those of the elements is what it was; with `all` those too. */
void arg_expect_untouched(const struct arg *a, bool all, const char *what);

#define expect_aclnn(got, want) expect_aclnn_at((got), (want), __FILE__, __LINE__)
void expect_aclnn_at(aclnnStatus got, aclnnStatus want, const char *file, int line);

#endif /* SWITCHYARD_TESTS_COMPAT_ACLNN_H */
