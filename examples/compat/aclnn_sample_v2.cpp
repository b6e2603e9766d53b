// The candidates of one row after top-k, top-p and min-p, in order, with aclnnTopKTopPSampleV2; then a draw among
// them.
#include "aclnnop/aclnn_top_k_top_p_sample_v2.h"
#include "aclnn_device.hpp"

int main()
{
    Device device;
    Tensor<float> logits(ACL_FLOAT, {1, 5}, {0, 2, -1, 3, 2.5f}), topP(ACL_FLOAT, {1}, {.9f}),
        minP(ACL_FLOAT, {1}, {.5f});
    Tensor<int32_t> topK(ACL_INT32, {1}, {4});
    Tensor<float> q(ACL_FLOAT, {1, 5}, {2, .3f, 1, 1, 1});
    Tensor<int64_t> token(ACL_INT64, {1}, {-1}), index(ACL_INT64, {1, 5}, std::vector<int64_t>(5));
    Tensor<float> list(ACL_FLOAT, {1, 5}, std::vector<float>(5));

    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnTopKTopPSampleV2GetWorkspaceSize(logits.tensor, topK.tensor, topP.tensor, nullptr, minP.tensor,
                                                1e-8, false, 32, 1024, true, true, nullptr, nullptr,
                                                index.tensor, list.tensor, &workspaceSize, &executor));
    execute(aclnnTopKTopPSampleV2, workspaceSize, executor, device.stream);
    bool right = same("logitsIdx", index.values(), {3, 4, 0, 0, 0});
    std::printf("%-22s", "logitsSortMasked");
    for (float probability : list.values())
        std::printf(" %.7f", static_cast<double>(probability));
    std::printf("\n");

    CHECK(aclnnTopKTopPSampleV2GetWorkspaceSize(logits.tensor, topK.tensor, topP.tensor, q.tensor,
                                                minP.tensor, 1e-8, false, 32, 1024, true, false, token.tensor,
                                                nullptr, nullptr, nullptr, &workspaceSize, &executor));
    execute(aclnnTopKTopPSampleV2, workspaceSize, executor, device.stream);
    right &= same("logitsSelectIdx", token.values(), {4}); // .2996 / .3 is more than .4940 / 2
    return right ? 0 : 1;
}
