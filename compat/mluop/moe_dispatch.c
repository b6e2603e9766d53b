/*
 * The dispatch family. Each operator lists its tensors with their requirements, has them checked, and calls
 * ours.
 */
#include "objects.h"

mluOpStatus_t mluOpMoeDispatchForward(mluOpHandle_t handle, mluOpTensorDescriptor_t gates_desc,
                                      const void *gates, mluOpTensorDescriptor_t indices_desc,
                                      const void *indices, mluOpTensorDescriptor_t locations_desc,
                                      const void *locations, mluOpTensorDescriptor_t input_desc,
                                      const void *input, int samples, int capacity, int hidden,
                                      int num_experts, mluOpTensorDescriptor_t dispatch_desc, void *dispatch)
{
    enum { GATES, INDICES, LOCATIONS, INPUT, DISPATCH };
    const struct syi_mluop_sizes sizes = {samples, capacity, hidden, num_experts};
    const int64_t slots = syi_mluop_slots(&sizes);
    const struct syi_mluop_operand o[SYI_MLUOP_OPERANDS] = {
        [GATES] = {gates_desc, gates, MLUOP_DTYPE_FLOAT, 1, {samples}},
        [INDICES] = {indices_desc, indices, MLUOP_DTYPE_INT32, 1, {samples}},
        [LOCATIONS] = {locations_desc, locations, MLUOP_DTYPE_INT32, 1, {samples}},
        [INPUT] = {input_desc, input, MLUOP_DTYPE_FLOAT, 2, {samples, hidden}},
        [DISPATCH] = {dispatch_desc, dispatch, MLUOP_DTYPE_FLOAT, 2, {slots, hidden}},
    };
    /* The vendor requires a slot for every sample, but documents that a call without any slot succeeds. */
    DLTensor t[SYI_MLUOP_OPERANDS];
    mluOpStatus_t st = syi_mluop_check(handle, o, &sizes, slots == 0 || samples <= slots);
    if (st != MLUOP_STATUS_SUCCESS || !syi_mluop_ready(handle, o, false, false, t, &st))
        return st;
    return syi_mluop_status(sy_moe_dispatch(handle->ctx, &(sy_moe_dispatch_args){.gates = &t[GATES],
                                                                                 .indices = &t[INDICES],
                                                                                 .locations = &t[LOCATIONS],
                                                                                 .input = &t[INPUT],
                                                                                 .num_experts = num_experts,
                                                                                 .capacity = capacity,
                                                                                 .dispatch = &t[DISPATCH]}));
}

mluOpStatus_t mluOpMoeDispatchBackwardData(mluOpHandle_t handle, mluOpTensorDescriptor_t gates_desc,
                                           const void *gates, mluOpTensorDescriptor_t indices_desc,
                                           const void *indices, mluOpTensorDescriptor_t locations_desc,
                                           const void *locations, mluOpTensorDescriptor_t dispatch_desc,
                                           const void *dispatch, int samples, int capacity, int hidden,
                                           int num_experts, mluOpTensorDescriptor_t grad_input_desc,
                                           void *grad_input)
{
    enum { GATES, INDICES, LOCATIONS, DISPATCH, GRAD_INPUT };
    const struct syi_mluop_sizes sizes = {samples, capacity, hidden, num_experts};
    const struct syi_mluop_operand o[SYI_MLUOP_OPERANDS] = {
        [GATES] = {gates_desc, gates, MLUOP_DTYPE_FLOAT, 1, {samples}},
        [INDICES] = {indices_desc, indices, MLUOP_DTYPE_INT32, 1, {samples}},
        [LOCATIONS] = {locations_desc, locations, MLUOP_DTYPE_INT32, 1, {samples}},
        [DISPATCH] = {dispatch_desc, dispatch, MLUOP_DTYPE_FLOAT, 2, {syi_mluop_slots(&sizes), hidden}},
        [GRAD_INPUT] = {grad_input_desc, grad_input, MLUOP_DTYPE_FLOAT, 2, {samples, hidden}},
    };
    DLTensor t[SYI_MLUOP_OPERANDS];
    mluOpStatus_t st = syi_mluop_check(handle, o, &sizes, true);
    if (st != MLUOP_STATUS_SUCCESS || !syi_mluop_ready(handle, o, true, false, t, &st))
        return st;
    return syi_mluop_status(
        sy_moe_dispatch_grad_data(handle->ctx, &(sy_moe_combine_args){.gates = &t[GATES],
                                                                      .indices = &t[INDICES],
                                                                      .locations = &t[LOCATIONS],
                                                                      .expert_out = &t[DISPATCH],
                                                                      .num_experts = num_experts,
                                                                      .capacity = capacity,
                                                                      .output = &t[GRAD_INPUT]}));
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
    enum { INDICES, LOCATIONS, INPUT, DISPATCH, GRAD_GATES };
    const struct syi_mluop_sizes sizes = {samples, capacity, hidden, num_experts};
    const struct syi_mluop_operand o[SYI_MLUOP_OPERANDS] = {
        [INDICES] = {indices_desc, indices, MLUOP_DTYPE_INT32, 1, {samples}},
        [LOCATIONS] = {locations_desc, locations, MLUOP_DTYPE_INT32, 1, {samples}},
        [INPUT] = {input_desc, input, MLUOP_DTYPE_FLOAT, 2, {samples, hidden}},
        [DISPATCH] = {dispatch_desc, dispatch, MLUOP_DTYPE_FLOAT, 2, {syi_mluop_slots(&sizes), hidden}},
        [GRAD_GATES] = {grad_gates_desc, grad_gates, MLUOP_DTYPE_FLOAT, 1, {samples}},
    };
    DLTensor t[SYI_MLUOP_OPERANDS];
    mluOpStatus_t st = syi_mluop_check(handle, o, &sizes, true);
    if (st != MLUOP_STATUS_SUCCESS ||
        !syi_mluop_ready(handle, o, true, workspace_size > 0 && workspace == NULL, t, &st))
        return st;
    return syi_mluop_status(sy_moe_dispatch_grad_gate(
        handle->ctx, &(sy_moe_dispatch_grad_gate_args){.indices = &t[INDICES],
                                                       .locations = &t[LOCATIONS],
                                                       .input = &t[INPUT],
                                                       .dispatch = &t[DISPATCH],
                                                       .num_experts = num_experts,
                                                       .capacity = capacity,
                                                       .grad_gates = &t[GRAD_GATES]}));
}
