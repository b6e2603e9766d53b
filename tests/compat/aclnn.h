/*
 * Calls of the aclnn layer as values: made of the cases of aclnn.txt, changed by words, laid out anew, and run through
 * both phases with a workspace of exactly the size of the first.
 *
 * aclnn.txt has the format of tests/examples, with ranges of integers `3..8` among values. `op` is an operator of
 * aclnn_ops.c, or one for each type of the other fields, and its numbers. Rows change the case they are part of; each
 * part between " | " is a test, and one that changes several things has " & " between them; both may begin a next line.
 *
 *     with CHANGES          the call succeeds with the outputs of the case
 *     try STATUS CHANGES    the call has this status, and where that is no success every byte is as before
 *     ask STATUS CHANGES    the status of the first phase, with tensors that have no memory and may have any size
 *
 *     no NAME                            no tensor, or no array of numbers, or no word
 *     NUMBER = 5                         another value
 *     TENSOR TYPE SHAPE = VALUES         some of them: `tokens f64`, `tokens 4,3`, `k = 1 2 3`; `#33` is a type
 *     -> TENSOR TYPE SHAPE = VALUES      the same for the expected values of an output
 *     TENSOR bare                        without data
 *     TENSOR strides 5,1                 and offset 2, format 29
 *     TENSOR over OTHER                  the same tensor as the other
 */
#pragma once

#include "acl/acl.h"
#include "aclnn/acl_meta.h"
#include "examples/read.h"

enum { CALL_ARGS = 9, CALL_NUMBERS = 9 };

/* One tensor of a call. Without strides it is compact. */
struct arg {
    char name[16];
    bool optional; /* may be missing in some calls */
    aclDataType type;
    sy_type element; /* the same, for values */
    int rank;        /* 0: no tensor */
    int64_t dims[4], strides[4];
    bool strided;
    int64_t offset;      /* elements */
    size_t misalign;     /* bytes from an aligned address to the memory */
    unsigned char *data; /* dense; NULL: bytes 0xA5 */
    unsigned char *want; /* of an output, dense; NULL: not compared */
    aclFormat format;
    bool bare;        /* a descriptor without memory */
    struct arg *over; /* NULL, or the tensor that takes its place */
    /* Made of it: */
    aclTensor *tensor;
    unsigned char *mem; /* from buf_new */
    size_t bytes;
    unsigned char *before; /* a copy of mem */
    unsigned char *device; /* with SWITCHYARD_COMPAT_DEVICE: what the tensor points to */
};

struct number {
    char *text; /* NULL: none */
    int64_t i;
    double d;
};

struct call {
    const struct op *op;
    int count, first_output; /* args [first_output, count) are outputs */
    struct arg args[CALL_ARGS];
    struct number number[CALL_NUMBERS];
    aclIntArray *array; /* of the first phase, destroyed after it */
};

struct op {
    const char *name;
    const char *tensors; /* "inputs > outputs", "name?" if it is optional */
    const char *numbers; /* "name=default ..." */
    aclnnStatus (*ask)(struct call *c, uint64_t *workspace_size, aclOpExecutor **executor);
    aclnnStatus (*execute)(void *workspace, uint64_t workspace_size, aclOpExecutor *executor,
                           aclrtStream stream);
};
extern const struct op *const aclnn_ops[];
extern const int n_aclnn_ops;

extern struct examples aclnn_table;

/* Whether tensors are in device memory, as SWITCHYARD_COMPAT_DEVICE requires. */
bool on_device(void);

/* The call of a case, in one of its types; the second finds it by its name. */
void acl_call_load(struct call *c, const struct example *ex, int alt);
void acl_call_named(struct call *c, const char *name);
void acl_call_change(struct call *c, const char *changes);
struct arg *acl_call_arg(struct call *c, const char *name);
const aclIntArray *acl_call_array(struct call *c, int number); /* for the first phase */

void acl_call_make(struct call *c); /* memory and descriptors of its tensors */
void acl_call_free(struct call *c); /* checks the guards */
/* The first phase; both phases, the second is left out where the first fails. The call must be made. */
aclnnStatus acl_call_ask(struct call *c, uint64_t *size, aclOpExecutor **executor);
aclnnStatus acl_call_run(struct call *c);
void acl_call_expect_outputs(struct call *c); /* outputs as in the case, inputs as they were */
void call_expect_untouched(struct call *c, const char *what); /* every tensor is as it was */

void arg_get(const struct arg *a, void *dense); /* its elements, in order */

#define ok(call) assert_int_equal((call), 0)
#define expect_aclnn(got, want) expect_aclnn_at((got), (want), __FILE__, __LINE__)
void expect_aclnn_at(aclnnStatus got, aclnnStatus want, const char *file, int line);

/* Further tests. */
void add_lifetimes(struct test_list *list);
void add_runtime(struct test_list *list);
