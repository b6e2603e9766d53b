/*
 * The dispatch family. The tensors of the vendor's operators are, in this order, the first ones of ours, whose descriptions say
 * what each must be.
 */
#include "objects.h"

#include <string.h>

#include <switchyard_describe.h>

#define GIVEN(tensor) \
    { \
        .desc = tensor##_desc, .data = (tensor) \
    }

/* The operator `name` with `o`, of which callers set what they were given. */
static mluOpStatus_t call(const char *name, size_t args_bytes, mluOpHandle_t handle,
                          struct syi_mluop_sizes sizes, struct syi_mluop_operand o[], bool lacks_workspace)
{
    const sy_op_info *const op = sy_op_find(name);
    const int64_t slots = syi_mluop_slots(&sizes), num_experts = sizes.num_experts, capacity = sizes.capacity;
    const bool is_gradient = strcmp(name, "moe_dispatch") != 0;
    DLTensor t[SYI_MLUOP_OPERANDS];
    union {
        sy_moe_dispatch_args dispatch;
        sy_moe_combine_args combine;
        sy_moe_dispatch_grad_gate_args grad_gate;
        char bytes[1];
    } args;
    memset(&args, 0, sizeof args);
    for (int i = 0; i < op->n_fields; i++) {
        const sy_field_info *const field = sy_op_field(op, i);
        char *const to = args.bytes + field->offset;
        if (strcmp(field->name, "num_experts") == 0)
            memcpy(to, &num_experts, sizeof num_experts);
        else if (strcmp(field->name, "capacity") == 0)
            memcpy(to, &capacity, sizeof capacity);
        if (i >= SYI_MLUOP_OPERANDS)
            continue;
        const DLTensor *const tensor = &t[i];
        o[i].dtype = field->types == UINT32_C(1) << SY_TYPE_I32 ? MLUOP_DTYPE_INT32 : MLUOP_DTYPE_FLOAT;
        o[i].rank = strchr(field->shape, 'H') != NULL ? 2 : 1; /* "S" or "k S | S"; "S H", "E*C H" */
        o[i].shape[0] = field->shape[0] == 'E' ? slots : sizes.samples;
        o[i].shape[1] = sizes.hidden;
        memcpy(to, &tensor, sizeof tensor);
    }
    /* The vendor requires a slot for every sample, but documents that a call without any slot succeeds. */
    mluOpStatus_t st =
        syi_mluop_check(handle, o, &sizes, is_gradient || slots == 0 || sizes.samples <= slots);
    if (st != MLUOP_STATUS_SUCCESS || !syi_mluop_ready(handle, o, is_gradient, lacks_workspace, t, &st))
        return st;
    return syi_mluop_status(sy_call(handle->ctx, op, &args, args_bytes));
}

mluOpStatus_t mluOpMoeDispatchForward(mluOpHandle_t handle, mluOpTensorDescriptor_t gates_desc,
                                      const void *gates, mluOpTensorDescriptor_t indices_desc,
                                      const void *indices, mluOpTensorDescriptor_t locations_desc,
                                      const void *locations, mluOpTensorDescriptor_t input_desc,
                                      const void *input, int samples, int capacity, int hidden,
                                      int num_experts, mluOpTensorDescriptor_t dispatch_desc, void *dispatch)
{
    struct syi_mluop_operand o[] = {GIVEN(gates), GIVEN(indices), GIVEN(locations), GIVEN(input),
                                    GIVEN(dispatch)};
    const struct syi_mluop_sizes sizes = {samples, capacity, hidden, num_experts};
    return call("moe_dispatch", sizeof(sy_moe_dispatch_args), handle, sizes, o, false);
}

mluOpStatus_t mluOpMoeDispatchBackwardData(mluOpHandle_t handle, mluOpTensorDescriptor_t gates_desc,
                                           const void *gates, mluOpTensorDescriptor_t indices_desc,
                                           const void *indices, mluOpTensorDescriptor_t locations_desc,
                                           const void *locations, mluOpTensorDescriptor_t dispatch_desc,
                                           const void *dispatch, int samples, int capacity, int hidden,
                                           int num_experts, mluOpTensorDescriptor_t grad_input_desc,
                                           void *grad_input)
{
    struct syi_mluop_operand o[] = {GIVEN(gates), GIVEN(indices), GIVEN(locations), GIVEN(dispatch),
                                    GIVEN(grad_input)};
    const struct syi_mluop_sizes sizes = {samples, capacity, hidden, num_experts};
    return call("moe_combine", sizeof(sy_moe_combine_args), handle, sizes, o, false);
}

mluOpStatus_t mluOpGetMoeDispatchBackwardGateWorkspaceSize(mluOpHandle_t handle,
                                                           mluOpTensorDescriptor_t input_desc,
                                                           size_t *workspace_size)
{
    if (handle == NULL || input_desc == NULL || workspace_size == NULL)
        return MLUOP_STATUS_BAD_PARAM;
    *workspace_size = 0;
    return MLUOP_STATUS_SUCCESS;
}

mluOpStatus_t mluOpMoeDispatchBackwardGate(mluOpHandle_t handle, mluOpTensorDescriptor_t indices_desc,
                                           const void *indices, mluOpTensorDescriptor_t locations_desc,
                                           const void *locations, mluOpTensorDescriptor_t input_desc,
                                           const void *input, mluOpTensorDescriptor_t dispatch_desc,
                                           const void *dispatch, int samples, int capacity, int hidden,
                                           int num_experts, void *workspace, size_t workspace_size,
                                           mluOpTensorDescriptor_t grad_gates_desc, void *grad_gates)
{
    struct syi_mluop_operand o[] = {GIVEN(indices), GIVEN(locations), GIVEN(input), GIVEN(dispatch),
                                    GIVEN(grad_gates)};
    const struct syi_mluop_sizes sizes = {samples, capacity, hidden, num_experts};
    return call("moe_dispatch_grad_gate", sizeof(sy_moe_dispatch_grad_gate_args), handle, sizes, o,
                workspace_size > 0 && workspace == NULL);
}
