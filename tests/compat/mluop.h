/*
 * What the tests of the MLU-OPS layer share: the three operators as one kind of call with five tensors, so that loops
 * and tables can handle them.
 */
#pragma once

#include "support.h"

#include "mlu_op.h"

enum mlu_op { MLU_FORWARD, MLU_DATA, MLU_GATE, MLU_OPS };
enum { MLU_TENSORS = 5, MLU_OUTPUT = 4 }; /* the last tensor is the output, of forward also an input */

extern const char *const mlu_op_names[MLU_OPS];
extern const char *const mlu_tensor_names[MLU_OPS][MLU_TENSORS];

struct mlu_sizes {
    int samples, capacity, hidden, num_experts;
};
struct mlu_sizes mlu_read_sizes(const char *text); /* of four numbers, in this order */

/* What tensor i of an operator must be. */
int mlu_rank(enum mlu_op op, int i);
mluOpDataType_t mlu_dtype(enum mlu_op op, int i);
void mlu_shape(enum mlu_op op, int i, const struct mlu_sizes *sizes, int64_t shape[2]);

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

/* A call whose descriptors fit, set with the vendor's int sizes, and guarded memory of zeros for every tensor; of huge
   sizes, which are rejected, there is only a little. */
void mlu_make(struct mlu_call *call, enum mlu_op op, struct mlu_sizes sizes);
void mlu_free(struct mlu_call *call);
size_t mlu_bytes(const struct mlu_call *call, int i);

/* Fails unless the status is this one, and prints the names of both. */
#define expect_mlu(status, want) mlu_expect((status), MLUOP_STATUS_##want, __FILE__, __LINE__)
#define ok(status) expect_mlu(status, SUCCESS)
#define bad(status) expect_mlu(status, BAD_PARAM)
void mlu_expect(mluOpStatus_t status, mluOpStatus_t want, const char *file, int line);

/* The same of the runtime. */
#define expect_cnrt(call, want) assert_string_equal(cnrtGetErrorStr(call), cnrtGetErrorStr(want))
#define cnrt_ok(call) expect_cnrt(call, cnrtSuccess)

/* Further tests, of memory of the host. */
void add_checks(struct test_list *list);
void add_descriptors(struct test_list *list);
void add_runtime(struct test_list *list);
