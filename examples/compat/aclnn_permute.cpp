// Four tokens to two experts each and back, with weights, and the gradients of both: the four operators of a routing map.
// The first call of our own API is examples/permute.c; the bytes are the same.
#include "aclnnop/aclnn_moe_token_permute_with_routing_map.h"
#include "aclnnop/aclnn_moe_token_permute_with_routing_map_grad.h"
#include "aclnnop/aclnn_moe_token_unpermute_with_routing_map.h"
#include "aclnnop/aclnn_moe_token_unpermute_with_routing_map_grad.h"
#include "aclnn_device.hpp"

int main()
{
    Device device;
    Call call;
    Tensor<float> tokens(ACL_FLOAT, {4, 2}, {10, 11, 20, 21, 30, 31, 40, 41});
    Tensor<uint8_t> map(ACL_BOOL, {4, 3}, {1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1});
    Tensor<float> probs(ACL_FLOAT, {4, 3}, {.5f, 0, .5f, 0, .25f, .75f, .125f, .875f, 0, .625f, 0, .375f});
    Tensor<float> rows(ACL_FLOAT, {8, 2});
    Tensor<int32_t> slots(ACL_INT32, {8});
    CHECK(aclnnMoeTokenPermuteWithRoutingMapGetWorkspaceSize(tokens.tensor, map.tensor, nullptr, 8, false,
                                                             rows.tensor, nullptr, slots.tensor,
                                                             &call.workspaceSize, &call.executor));
    call.execute(aclnnMoeTokenPermuteWithRoutingMap, device.stream);
    bool right = same("permuteTokensOut", rows.values(),
                      {10, 11, 30, 31, 40, 41, 20, 21, 30, 31, 10, 11, 20, 21, 40, 41});
    right &= same("sortedIndicesOut", slots.values(), {0, 5, 3, 6, 1, 4, 2, 7});

    // What the experts make of the rows returns to the tokens; the last three outputs are for the backward pass.
    Tensor<float> results(ACL_FLOAT, {8, 2}, {1, 1, 2, -1, 3, -3, 4, -5, 5, -7, 6, -9, 7, -11, 8, -13});
    Tensor<float> sums(ACL_FLOAT, {4, 2}), kept(ACL_FLOAT, {8});
    Tensor<int32_t> outIndex(ACL_INT32, {8}), tokenId(ACL_INT32, {8});
    const std::vector<int64_t> shape = {4, 2};
    aclIntArray *restoreShape = aclCreateIntArray(shape.data(), shape.size());
    CHECK(aclnnMoeTokenUnpermuteWithRoutingMapGetWorkspaceSize(
        results.tensor, slots.tensor, map.tensor, probs.tensor, false, restoreShape, sums.tensor,
        outIndex.tensor, tokenId.tensor, kept.tensor, &call.workspaceSize, &call.executor));
    call.execute(aclnnMoeTokenUnpermuteWithRoutingMap, device.stream);
    CHECK(aclDestroyIntArray(restoreShape));
    right &=
        same("unpermutedTokens", sums.values(), {3.5f, -4, 6.25f, -9.5f, 4.625f, -6.25f, 4.875f, -6.75f});
    right &= same("outIndex", outIndex.values(), {0, 5, 3, 6, 1, 4, 2, 7});
    right &= same("permuteTokenId", tokenId.values(), {0, 0, 1, 1, 2, 2, 3, 3});
    right &= same("permuteProbs", kept.values(), {.5f, .5f, .25f, .75f, .125f, .875f, .625f, .375f});

    // The gradients of the results and of probs, from that of the sums.
    Tensor<float> gradSums(ACL_FLOAT, {4, 2}, {1, 0, 0, 1, 1, 1, 2, -1});
    Tensor<float> gradResults(ACL_FLOAT, {8, 2}), gradProbs(ACL_FLOAT, {4, 3});
    CHECK(aclnnMoeTokenUnpermuteWithRoutingMapGradGetWorkspaceSize(
        gradSums.tensor, outIndex.tensor, tokenId.tensor, map.tensor, results.tensor, probs.tensor, false,
        nullptr, gradResults.tensor, gradProbs.tensor, &call.workspaceSize, &call.executor));
    call.execute(aclnnMoeTokenUnpermuteWithRoutingMapGrad, device.stream);
    right &=
        same("permutedTokensGradOut", gradResults.values(),
             {.5f, 0, .125f, .125f, 1.25f, -.625f, 0, .25f, .875f, .875f, .5f, 0, 0, .75f, .75f, -.375f});
    right &= same("probsGradOut", gradProbs.values(), {1, 0, 6, 0, -5, -11, 1, -2, 0, 9, 0, 29});

    // The gradients of the tokens and of probs, from those of the permuted rows and weights.
    Tensor<float> gradRows(ACL_FLOAT, {8, 2}, {1, 1, 2, -1, 3, -3, 4, -5, 5, -7, 6, -9, 7, -11, 8, -13});
    Tensor<float> gradKept(ACL_FLOAT, {8}, {1, 2, 3, 4, 5, 6, 7, 8}), gradTokens(ACL_FLOAT, {4, 2});
    CHECK(aclnnMoeTokenPermuteWithRoutingMapGradGetWorkspaceSize(
        gradRows.tensor, gradKept.tensor, slots.tensor, map.tensor, 3, 4, false, gradTokens.tensor,
        gradProbs.tensor, &call.workspaceSize, &call.executor));
    call.execute(aclnnMoeTokenPermuteWithRoutingMapGrad, device.stream);
    right &= same("tokensGradOut", gradTokens.values(), {7, -8, 11, -16, 7, -8, 11, -16});
    right &= same("probsGradOut", gradProbs.values(), {1, 0, 6, 0, 4, 7, 2, 5, 0, 3, 0, 8});
    return right ? 0 : 1;
}
