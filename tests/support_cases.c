/*
 * Valid calls of every operator: those of tests/case.
 */
#include "support.h"

#include "case/made.h"

void test_call_make(struct test_call *call, int number, bool large)
{
    struct made_call *const made = made_new(number, large);
    const sy_op_info *const info = made_op(made);
    memset(call, 0, sizeof *call);
    call->op = info->name;
    call->made = made;
    memcpy(&call->args, made_args(made), info->args_bytes);
    for (int outputs = 0; outputs < 2; outputs++) {
        call->first_output = call->count;
        for (int i = 0; i < info->n_tensors; i++) {
            struct made_tensor x;
            if (!made_tensor(made, i, &x) || x.output != (outputs == 1))
                continue;
            struct tensor *const t = &call->tensors[call->count];
            tensor_make(t, x.type, x.rank, x.shape, false);
            memset(t->mem, 0, t->bytes);
            call->names[call->count++] = x.name;
            *(const DLTensor **)(void *)((char *)&call->args + x.offset) = &t->t;
            if (x.contents != NULL && t->bytes > 0)
                memcpy(t->mem, x.contents, t->bytes);
        }
    }
    for (int i = 0; i < call->count; i++)
        call->before[i] = tensor_snapshot(&call->tensors[i]);
}

const char *test_call_name(int number)
{
    return sy_op_at(number)->name;
}

bool test_call_on_devices(int number)
{
    return strcmp(test_call_name(number), "moe_place") != 0;
}
