// Four tokens to two experts each, with aclnnMoeTokenPermuteWithRoutingMap. The same call of our own API is
// examples/permute.c; the bytes are the same.
#include "aclnnop/aclnn_moe_token_permute_with_routing_map.h"
#include "aclnn_device.hpp"

int main()
{
    Device device;
    Tensor<float> tokens(ACL_FLOAT, {4, 2}, {10, 11, 20, 21, 30, 31, 40, 41});
    Tensor<uint8_t> map(ACL_BOOL, {4, 3}, {1, 0, 1, 0, 1, 1, 1, 1, 0, 1, 0, 1});
    Tensor<float> rows(ACL_FLOAT, {8, 2}, std::vector<float>(16));
    Tensor<int32_t> slots(ACL_INT32, {8}, std::vector<int32_t>(8));

    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnMoeTokenPermuteWithRoutingMapGetWorkspaceSize(tokens.tensor, map.tensor, nullptr, 8, false,
                                                             rows.tensor, nullptr, slots.tensor,
                                                             &workspaceSize, &executor));
    execute(aclnnMoeTokenPermuteWithRoutingMap, workspaceSize, executor, device.stream);

    bool right = same("permuteTokensOut", rows.values(),
                      {10, 11, 30, 31, 40, 41, 20, 21, 30, 31, 10, 11, 20, 21, 40, 41});
    right &= same("sortedIndicesOut", slots.values(), {0, 5, 3, 6, 1, 4, 2, 7});
    return right ? 0 : 1;
}
