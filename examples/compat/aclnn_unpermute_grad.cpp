// The gradients of permuted rows and probs from that of the tokens, with aclnnMoeTokenUnpermuteWithRoutingMapGrad.
#include "aclnnop/aclnn_moe_token_unpermute_with_routing_map_grad.h"
#include "aclnn_device.hpp"

int main()
{
    Device device;
    Tensor<float> gradTokens(ACL_FLOAT, {4, 2}, {1, 0, 0, 1, 1, 1, 2, -1});
    Tensor<int32_t> outIndex(ACL_INT32, {8}, {0, 5, 3, 6, 1, 4, 2, 7}); // as the forward call returned them
    Tensor<int32_t> tokenId(ACL_INT32, {8}, {0, 0, 1, 1, 2, 2, 3, 3});
    Tensor<uint8_t> map(ACL_BOOL, {4, 3}, {1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1});
    Tensor<float> rows(ACL_FLOAT, {8, 2}, {1, 1, 2, -1, 3, -3, 4, -5, 5, -7, 6, -9, 7, -11, 8, -13});
    Tensor<float> probs(ACL_FLOAT, {4, 3}, {.5f, 0, .5f, 0, .25f, .75f, .125f, .875f, 0, .625f, 0, .375f});
    Tensor<float> gradRows(ACL_FLOAT, {8, 2}, std::vector<float>(16));
    Tensor<float> gradProbs(ACL_FLOAT, {4, 3}, std::vector<float>(12));

    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnMoeTokenUnpermuteWithRoutingMapGradGetWorkspaceSize(
        gradTokens.tensor, outIndex.tensor, tokenId.tensor, map.tensor, rows.tensor, probs.tensor, false,
        nullptr, gradRows.tensor, gradProbs.tensor, &workspaceSize, &executor));
    execute(aclnnMoeTokenUnpermuteWithRoutingMapGrad, workspaceSize, executor, device.stream);

    bool right =
        same("permutedTokensGradOut", gradRows.values(),
             {.5f, 0, .125f, .125f, 1.25f, -.625f, 0, .25f, .875f, .875f, .5f, 0, 0, .75f, .75f, -.375f});
    right &= same("probsGradOut", gradProbs.values(), {1, 0, 6, 0, -5, -11, 1, -2, 0, 9, 0, 29});
    return right ? 0 : 1;
}
