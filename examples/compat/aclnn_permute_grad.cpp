// The gradients of tokens and probs from those of the permuted rows, with aclnnMoeTokenPermuteWithRoutingMapGrad.
#include "aclnnop/aclnn_moe_token_permute_with_routing_map_grad.h"
#include "aclnn_device.hpp"

int main()
{
    Device device;
    Tensor<float> gradRows(ACL_FLOAT, {8, 2}, {1, 1, 2, -1, 3, -3, 4, -5, 5, -7, 6, -9, 7, -11, 8, -13});
    Tensor<float> gradKept(ACL_FLOAT, {8}, {1, 2, 3, 4, 5, 6, 7, 8});
    Tensor<int32_t> slots(ACL_INT32, {8}, {0, 5, 3, 6, 1, 4, 2, 7});
    Tensor<uint8_t> map(ACL_INT8, {4, 3}, {1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1});
    Tensor<float> gradTokens(ACL_FLOAT, {4, 2}, std::vector<float>(8));
    Tensor<float> gradProbs(ACL_FLOAT, {4, 3}, std::vector<float>(12));

    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnMoeTokenPermuteWithRoutingMapGradGetWorkspaceSize(
        gradRows.tensor, gradKept.tensor, slots.tensor, map.tensor, 3, 4, false, gradTokens.tensor,
        gradProbs.tensor, &workspaceSize, &executor));
    execute(aclnnMoeTokenPermuteWithRoutingMapGrad, workspaceSize, executor, device.stream);

    bool right = same("tokensGradOut", gradTokens.values(), {7, -8, 11, -16, 7, -8, 11, -16});
    right &= same("probsGradOut", gradProbs.values(), {1, 0, 6, 0, 4, 7, 2, 5, 0, 3, 0, 8});
    return right ? 0 : 1;
}
