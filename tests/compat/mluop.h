/*
 * What the tests of the MLU-OPS door share: the three operators as one kind of call with five tensors, so
 * that loops and tables can handle them.
 */
#ifndef SWITCHYARD_TESTS_COMPAT_MLUOP_H
#define SWITCHYARD_TESTS_COMPAT_MLUOP_H

#include "support.h"

#include "mlu_op.h"

enum mlu_op { MLU_FORWARD, MLU_DATA, MLU_GATE, MLU_OPS };
enum { MLU_TENSORS = 5, MLU_OUTPUT = 4 }; /* the last tensor is the output, of forward also an input */

extern const char *const mlu_op_names[MLU_OPS];
extern const char *const mlu_tensor_names[MLU_OPS][MLU_TENSORS];

struct mlu_sizes {
    int samples, capacity, hidden, num_experts;
};

/* What an operator wants its tensor i to be. */
int mlu_rank(enum mlu_op op, int i);
mluOpDataType_t mlu_dtype(enum mlu_op op, int i);
void mlu_shape(enum mlu_op op, int i, const struct mlu_sizes *sizes, int64_t shape[2]);

/* Which tensor of an operator has this name, or -1. */
int mlu_find(enum mlu_op op, const char *name);

struct mlu_call {
    enum mlu_op op;
    mluOpHandle_t handle;
    mluOpTensorDescriptor_t desc[MLU_TENSORS];
    void *data[MLU_TENSORS];
    struct mlu_sizes sizes;
    void *workspace;
    size_t workspace_size;
};

mluOpStatus_t mlu_run(const struct mlu_call *call);

/* A call whose descriptors fit, with guarded memory for every tensor, to be filled by the caller. */
void mlu_make(struct mlu_call *call, enum mlu_op op, struct mlu_sizes sizes);
void mlu_free(struct mlu_call *call);
size_t mlu_bytes(const struct mlu_call *call, int i);

/* Fails unless both are equal, and says their names. */
#define expect_mlu(status, want) mlu_expect((status), (want), __FILE__, __LINE__)
void mlu_expect(mluOpStatus_t status, mluOpStatus_t want, const char *file, int line);

#endif
