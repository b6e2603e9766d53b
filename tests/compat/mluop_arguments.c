/*
 * Single wrong arguments, by name, at the sizes a vendor's test suite would use: each tensor with another
 * type, rank or size, each argument NULL, sizes at and past the limits. The descriptors are set with the
 * vendor's int sizes.
 */
#include "mluop.h"

#define HALF MLUOP_DTYPE_HALF
#define FLOAT MLUOP_DTYPE_FLOAT
#define INT16 MLUOP_DTYPE_INT16
#define INT32 MLUOP_DTYPE_INT32
#define INT64 MLUOP_DTYPE_INT64

/* One tensor that is not what the sizes ask for. */
struct wrong {
    enum mlu_op op;
    struct mlu_sizes sizes;
    const char *tensor;
    mluOpDataType_t dtype;
    int rank;
    int dims[3];
};

static const struct wrong wrongs[] = {
    {MLU_FORWARD, {12, 8, 4, 2}, "gates", HALF, 1, {12}},
    {MLU_FORWARD, {12, 8, 4, 2}, "gates", INT32, 1, {12}},
    {MLU_FORWARD, {12, 8, 4, 2}, "gates", FLOAT, 1, {11}},
    {MLU_FORWARD, {12, 8, 4, 2}, "gates", FLOAT, 2, {12, 1}},
    {MLU_FORWARD, {12, 8, 4, 2}, "indices", FLOAT, 1, {12}},
    {MLU_FORWARD, {12, 8, 4, 2}, "indices", INT16, 1, {12}},
    {MLU_FORWARD, {12, 8, 4, 2}, "indices", INT32, 1, {11}},
    {MLU_FORWARD, {12, 8, 4, 2}, "indices", INT32, 2, {12, 1}},
    {MLU_FORWARD, {12, 8, 4, 2}, "locations", FLOAT, 1, {12}},
    {MLU_FORWARD, {12, 8, 4, 2}, "locations", INT16, 1, {12}},
    {MLU_FORWARD, {12, 8, 4, 2}, "locations", INT32, 1, {11}},
    {MLU_FORWARD, {12, 8, 4, 2}, "locations", INT32, 2, {12, 1}},
    {MLU_FORWARD, {12, 8, 4, 2}, "input", HALF, 2, {12, 4}},
    {MLU_FORWARD, {12, 8, 4, 2}, "input", INT32, 2, {12, 4}},
    {MLU_FORWARD, {12, 8, 4, 2}, "input", FLOAT, 2, {11, 4}},
    {MLU_FORWARD, {12, 8, 4, 2}, "input", FLOAT, 2, {12, 3}},
    {MLU_FORWARD, {12, 8, 4, 2}, "input", FLOAT, 1, {12}},
    {MLU_FORWARD, {12, 8, 4, 2}, "input", FLOAT, 3, {12, 4, 1}},
    {MLU_FORWARD, {12, 8, 4, 2}, "dispatch", HALF, 2, {16, 4}},
    {MLU_FORWARD, {12, 8, 4, 2}, "dispatch", INT32, 2, {16, 4}},
    {MLU_FORWARD, {12, 8, 4, 2}, "dispatch", FLOAT, 2, {15, 4}},
    {MLU_FORWARD, {12, 8, 4, 2}, "dispatch", FLOAT, 2, {16, 3}},
    {MLU_FORWARD, {12, 8, 4, 2}, "dispatch", FLOAT, 3, {16, 4, 1}},
    {MLU_FORWARD, {12, 8, 4, 2}, "dispatch", FLOAT, 1, {16}},
    {MLU_DATA, {1, 1, 1, 1}, "gates", FLOAT, 2, {1, 1}},
    {MLU_DATA, {1, 1, 1, 1}, "gates", HALF, 1, {1}},
    {MLU_DATA, {1, 1, 1, 1}, "gates", FLOAT, 1, {2}},
    {MLU_DATA, {1, 1, 1, 1}, "indices", INT64, 1, {1}},
    {MLU_DATA, {1, 1, 1, 1}, "indices", INT32, 2, {1, 1}},
    {MLU_DATA, {1, 1, 1, 1}, "indices", INT32, 1, {2}},
    {MLU_DATA, {1, 1, 1, 1}, "locations", INT64, 1, {1}},
    {MLU_DATA, {1, 1, 1, 1}, "locations", INT32, 2, {1, 1}},
    {MLU_DATA, {1, 1, 1, 1}, "locations", INT32, 1, {2}},
    {MLU_DATA, {1, 1, 1, 1}, "dispatch", INT64, 2, {1, 1}},
    {MLU_DATA, {1, 1, 1, 1}, "dispatch", INT32, 2, {1, 1}},
    {MLU_DATA, {1, 1, 1, 1}, "dispatch", FLOAT, 1, {1}},
    {MLU_DATA, {1, 1, 1, 1}, "dispatch", FLOAT, 2, {2, 1}},
    {MLU_DATA, {1, 1, 1, 1}, "dispatch", FLOAT, 2, {1, 2}},
    {MLU_DATA, {1, 1, 1, 1}, "grad_input", HALF, 2, {1, 1}},
    {MLU_DATA, {1, 1, 1, 1}, "grad_input", FLOAT, 1, {1}},
    {MLU_DATA, {1, 1, 1, 1}, "grad_input", FLOAT, 2, {2, 1}},
    {MLU_DATA, {1, 1, 1, 1}, "grad_input", FLOAT, 2, {1, 2}},
    {MLU_GATE, {1, 1, 1, 1}, "indices", INT64, 1, {1}},
    {MLU_GATE, {1, 1, 1, 1}, "indices", INT32, 2, {1, 1}},
    {MLU_GATE, {1, 1, 1, 1}, "indices", INT32, 1, {2}},
    {MLU_GATE, {1, 1, 1, 1}, "locations", INT64, 1, {1}},
    {MLU_GATE, {1, 1, 1, 1}, "locations", INT32, 2, {1, 1}},
    {MLU_GATE, {1, 1, 1, 1}, "locations", INT32, 1, {2}},
    {MLU_GATE, {1, 1, 1, 1}, "input", HALF, 2, {1, 1}},
    {MLU_GATE, {1, 1, 1, 1}, "input", FLOAT, 1, {1}},
    {MLU_GATE, {1, 1, 1, 1}, "input", FLOAT, 2, {2, 1}},
    {MLU_GATE, {1, 1, 1, 1}, "input", FLOAT, 2, {1, 2}},
    {MLU_GATE, {1, 1, 1, 1}, "dispatch", HALF, 2, {1, 1}},
    {MLU_GATE, {1, 1, 1, 1}, "dispatch", FLOAT, 1, {1}},
    {MLU_GATE, {1, 1, 1, 1}, "dispatch", FLOAT, 2, {2, 1}},
    {MLU_GATE, {1, 1, 1, 1}, "dispatch", FLOAT, 2, {1, 2}},
    {MLU_GATE, {1, 1, 1, 1}, "grad_gates", FLOAT, 2, {1, 1}},
    {MLU_GATE, {1, 1, 1, 1}, "grad_gates", FLOAT, 1, {2}},
    {MLU_GATE, {1, 1, 1, 1}, "grad_gates", HALF, 1, {1}},
};

/* Tensors of the sizes, whatever they are: negative, empty, too large. */
struct sized {
    enum mlu_op op;
    struct mlu_sizes sizes;
    mluOpStatus_t want;
};

static const struct sized sized[] = {
    {MLU_FORWARD, {0, 8, 4, 2}, MLUOP_STATUS_SUCCESS},
    {MLU_FORWARD, {12, 8, 0, 2}, MLUOP_STATUS_SUCCESS},
    {MLU_FORWARD, {0, 8, 4, 0}, MLUOP_STATUS_SUCCESS},
    {MLU_FORWARD, {0, 0, 4, 2}, MLUOP_STATUS_SUCCESS},
    {MLU_FORWARD, {16, 8, 4, 2}, MLUOP_STATUS_SUCCESS},
    {MLU_FORWARD, {17, 8, 4, 2}, MLUOP_STATUS_BAD_PARAM},
    {MLU_FORWARD, {18, 8, 4, 2}, MLUOP_STATUS_BAD_PARAM},
    {MLU_FORWARD, {18, 8, 0, 2}, MLUOP_STATUS_BAD_PARAM},
    {MLU_FORWARD, {18, 0, 4, 2}, MLUOP_STATUS_SUCCESS},
    {MLU_FORWARD, {-1, 8, 4, 2}, MLUOP_STATUS_BAD_PARAM},
    {MLU_FORWARD, {12, -1, 4, 2}, MLUOP_STATUS_BAD_PARAM},
    {MLU_FORWARD, {12, 8, -1, 2}, MLUOP_STATUS_BAD_PARAM},
    {MLU_FORWARD, {12, 8, 4, -1}, MLUOP_STATUS_BAD_PARAM},
    {MLU_FORWARD, {12, -8, 4, -2}, MLUOP_STATUS_BAD_PARAM},
    {MLU_FORWARD, {1073741825, 536870913, 4, 2}, MLUOP_STATUS_NOT_SUPPORTED},
    {MLU_FORWARD, {2147483647, 1073741824, 1, 2}, MLUOP_STATUS_BAD_PARAM}, /* slots do not fit an int size */
    {MLU_DATA, {0, 1, 1, 1}, MLUOP_STATUS_SUCCESS},
    {MLU_DATA, {1, 0, 1, 1}, MLUOP_STATUS_SUCCESS},
    {MLU_DATA, {1, 1, 1, 0}, MLUOP_STATUS_SUCCESS},
    {MLU_DATA, {1, 1, 0, 1}, MLUOP_STATUS_SUCCESS},
    {MLU_DATA, {-1, 1, 1, 1}, MLUOP_STATUS_BAD_PARAM},
    {MLU_DATA, {1, -1, 1, 1}, MLUOP_STATUS_BAD_PARAM},
    {MLU_DATA, {1, 1, -1, 1}, MLUOP_STATUS_BAD_PARAM},
    {MLU_DATA, {1, 1, 1, -1}, MLUOP_STATUS_BAD_PARAM},
    {MLU_DATA, {1, 1024, 1025, 2048}, MLUOP_STATUS_NOT_SUPPORTED},
    {MLU_DATA, {1, 25, 2097152, 41}, MLUOP_STATUS_NOT_SUPPORTED},
    {MLU_DATA, {5, 1, 1, 1}, MLUOP_STATUS_SUCCESS}, /* more samples than slots */
    {MLU_GATE, {0, 1, 1, 1}, MLUOP_STATUS_SUCCESS},
    {MLU_GATE, {1, 0, 1, 1}, MLUOP_STATUS_SUCCESS},
    {MLU_GATE, {1, 1, 1, 0}, MLUOP_STATUS_SUCCESS},
    {MLU_GATE, {1, 1, 0, 1}, MLUOP_STATUS_SUCCESS},
    {MLU_GATE, {-1, 1, 1, 1}, MLUOP_STATUS_BAD_PARAM},
    {MLU_GATE, {1, -1, 1, 1}, MLUOP_STATUS_BAD_PARAM},
    {MLU_GATE, {1, 1, -1, 1}, MLUOP_STATUS_BAD_PARAM},
    {MLU_GATE, {1, 1, 1, -1}, MLUOP_STATUS_BAD_PARAM},
    {MLU_GATE, {1, 1024, 1025, 2048}, MLUOP_STATUS_NOT_SUPPORTED},
    {MLU_GATE, {1, 25, 2097152, 41}, MLUOP_STATUS_NOT_SUPPORTED},
    {MLU_GATE, {5, 1, 1, 1}, MLUOP_STATUS_SUCCESS},
};

/* Memory as a program of the vendor's would get it. Of huge sizes, which are rejected, there is only a
   little. */
static void open_call(struct mlu_call *call, enum mlu_op op, struct mlu_sizes sizes,
                      const struct wrong *wrong)
{
    *call = (struct mlu_call){.op = op, .sizes = sizes};
    expect_mlu(mluOpCreate(&call->handle), MLUOP_STATUS_SUCCESS);
    for (int i = 0; i < MLU_TENSORS; i++) {
        int64_t shape[2];
        mlu_shape(op, i, &sizes, shape);
        int dims[3] = {(int)shape[0], (int)shape[1]};
        const bool spoil = wrong != NULL && strcmp(wrong->tensor, mlu_tensor_names[op][i]) == 0;
        expect_mlu(mluOpCreateTensorDescriptor(&call->desc[i]), MLUOP_STATUS_SUCCESS);
        expect_mlu(mluOpSetTensorDescriptor(
                       call->desc[i], MLUOP_LAYOUT_ARRAY, spoil ? wrong->dtype : mlu_dtype(op, i),
                       spoil ? wrong->rank : mlu_rank(op, i), spoil ? wrong->dims : dims),
                   MLUOP_STATUS_SUCCESS);
        size_t bytes = mluOpGetTensorElementNum(call->desc[i]);
        bytes = bytes > 1000000 ? 40 : bytes * 8;
        assert_int_equal(cnrtMalloc(&call->data[i], bytes), cnrtSuccess);
        assert_int_equal(cnrtMemset(call->data[i], 0, bytes), cnrtSuccess);
    }
}

static void close_call(struct mlu_call *call)
{
    expect_mlu(mluOpDestroy(call->handle), MLUOP_STATUS_SUCCESS);
    for (int i = 0; i < MLU_TENSORS; i++) {
        expect_mlu(mluOpDestroyTensorDescriptor(call->desc[i]), MLUOP_STATUS_SUCCESS);
        assert_int_equal(cnrtFree(call->data[i]), cnrtSuccess);
    }
}

static void run_wrong(void **state)
{
    const struct wrong *const row = *state;
    struct mlu_call call;
    assert_true(mlu_find(row->op, row->tensor) >= 0);
    open_call(&call, row->op, row->sizes, row);
    expect_mlu(mlu_run(&call), MLUOP_STATUS_BAD_PARAM);
    close_call(&call);
}

static void run_sized(void **state)
{
    const struct sized *const row = *state;
    struct mlu_call call;
    open_call(&call, row->op, row->sizes, NULL);
    expect_mlu(mlu_run(&call), row->want);
    close_call(&call);
}

/* One argument NULL: the handle, a descriptor or a pointer. */
struct missing {
    enum mlu_op op;
    int argument; /* 0: handle; then descriptors; then data */
};

static void run_missing(void **state)
{
    const struct missing *const row = *state;
    struct mlu_call whole, call;
    open_call(&whole, row->op, (struct mlu_sizes){2, 2, 2, 2}, NULL);
    expect_mlu(mlu_run(&whole), MLUOP_STATUS_SUCCESS);
    call = whole;
    if (row->argument == 0)
        call.handle = NULL;
    else if (row->argument <= MLU_TENSORS)
        call.desc[row->argument - 1] = NULL;
    else
        call.data[row->argument - 1 - MLU_TENSORS] = NULL;
    expect_mlu(mlu_run(&call), MLUOP_STATUS_BAD_PARAM);
    close_call(&whole);
}

/* The last count that is taken is validated on, here to the missing data. */
static void the_limit_itself(void **state)
{
    (void)state;
    static const struct sized rows[] = {{MLU_FORWARD, {1, 1, 2147483647, 1}, MLUOP_STATUS_BAD_PARAM},
                                        {MLU_FORWARD, {1, 65536, 32768, 1}, MLUOP_STATUS_NOT_SUPPORTED},
                                        {MLU_DATA, {1, 1, 2147483647, 1}, MLUOP_STATUS_BAD_PARAM},
                                        {MLU_DATA, {65536, 1, 32768, 1}, MLUOP_STATUS_NOT_SUPPORTED},
                                        {MLU_GATE, {1, 1, 2147483647, 1}, MLUOP_STATUS_BAD_PARAM},
                                        {MLU_GATE, {1, 32768, 65536, 1}, MLUOP_STATUS_NOT_SUPPORTED}};
    for (size_t k = 0; k < COUNT_OF(rows); k++) {
        struct mlu_call whole, call;
        open_call(&whole, rows[k].op, rows[k].sizes, NULL);
        call = whole;
        memset(call.data, 0, sizeof call.data);
        expect_mlu(mlu_run(&call), rows[k].want);
        close_call(&whole);
    }
}

int main(void)
{
    static struct missing missing[MLU_OPS * (1 + 2 * MLU_TENSORS)];
    struct test_list list = {0};
    for (size_t k = 0; k < COUNT_OF(wrongs); k++) {
        const struct wrong *const w = &wrongs[k];
        test_add(&list,
                 test_name("%s: %s of type %d, %d dimensions, %d %d", mlu_op_names[w->op], w->tensor,
                           (int)w->dtype, w->rank, w->dims[0], w->dims[1]),
                 run_wrong, (void *)(uintptr_t)w);
    }
    for (size_t k = 0; k < COUNT_OF(sized); k++) {
        const struct mlu_sizes *const s = &sized[k].sizes;
        test_add(&list,
                 test_name("%s: %d %d %d %d", mlu_op_names[sized[k].op], s->samples, s->capacity, s->hidden,
                           s->num_experts),
                 run_sized, (void *)(uintptr_t)&sized[k]);
    }
    for (int k = 0; k < (int)COUNT_OF(missing); k++) {
        struct missing *const m = &missing[k];
        *m = (struct missing){(enum mlu_op)(k / (1 + 2 * MLU_TENSORS)), k % (1 + 2 * MLU_TENSORS)};
        const int tensor = (m->argument - 1) % MLU_TENSORS;
        test_add(&list,
                 test_name("%s: no %s%s", mlu_op_names[m->op],
                           m->argument == 0 ? "handle" : mlu_tensor_names[m->op][tensor],
                           m->argument > 0 && m->argument <= MLU_TENSORS ? " descriptor" : ""),
                 run_missing, m);
    }
    test_add(&list, "the limit itself", the_limit_itself, NULL);
    return test_run(&list, "compat mluop arguments");
}
