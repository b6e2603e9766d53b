// Eight rows back to their four tokens, weighted, with aclnnMoeTokenUnpermuteWithRoutingMap; and its outputs for the
// backward pass.
#include "aclnnop/aclnn_moe_token_unpermute_with_routing_map.h"
#include "aclnn_device.hpp"

int main()
{
    Device device;
    Tensor<float> rows(ACL_FLOAT, {8, 2}, {1, 1, 2, -1, 3, -3, 4, -5, 5, -7, 6, -9, 7, -11, 8, -13});
    Tensor<int32_t> slots(ACL_INT32, {8}, {0, 5, 3, 6, 1, 4, 2, 7});
    Tensor<uint8_t> map(ACL_BOOL, {4, 3}, {1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1});
    Tensor<float> probs(ACL_FLOAT, {4, 3}, {.5f, 0, .5f, 0, .25f, .75f, .125f, .875f, 0, .625f, 0, .375f});
    Tensor<float> tokens(ACL_FLOAT, {4, 2}, std::vector<float>(8));
    Tensor<int32_t> outIndex(ACL_INT32, {8}, std::vector<int32_t>(8));
    Tensor<int32_t> tokenId(ACL_INT32, {8}, std::vector<int32_t>(8));
    Tensor<float> kept(ACL_FLOAT, {8}, std::vector<float>(8));
    const std::vector<int64_t> shape = {4, 2};
    aclIntArray *restoreShape = aclCreateIntArray(shape.data(), shape.size());

    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnMoeTokenUnpermuteWithRoutingMapGetWorkspaceSize(
        rows.tensor, slots.tensor, map.tensor, probs.tensor, false, restoreShape, tokens.tensor,
        outIndex.tensor, tokenId.tensor, kept.tensor, &workspaceSize, &executor));
    execute(aclnnMoeTokenUnpermuteWithRoutingMap, workspaceSize, executor, device.stream);
    CHECK(aclDestroyIntArray(restoreShape));

    bool right =
        same("unpermutedTokens", tokens.values(), {3.5f, -4, 6.25f, -9.5f, 4.625f, -6.25f, 4.875f, -6.75f});
    right &= same("outIndex", outIndex.values(), {0, 5, 3, 6, 1, 4, 2, 7});
    right &= same("permuteTokenId", tokenId.values(), {0, 0, 1, 1, 2, 2, 3, 3});
    right &= same("permuteProbs", kept.values(), {.5f, .5f, .25f, .75f, .125f, .875f, .625f, .375f});
    return right ? 0 : 1;
}
