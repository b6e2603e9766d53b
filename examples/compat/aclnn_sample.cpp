// Three rows of logits, each with a different combination of top-k, top-p and noise, with aclnnTopKTopPSample. Then the
// candidates of one row after top-k, top-p and min-p, in order, and a draw among them, with aclnnTopKTopPSampleV2.
#include "aclnnop/aclnn_top_k_top_p_sample.h"
#include "aclnnop/aclnn_top_k_top_p_sample_v2.h"
#include "aclnn_device.hpp"

#include <cmath>

static bool three_rows(aclrtStream stream)
{
    std::vector<aclFloat16> logits, topP;
    for (float value :
         {0.f, 1.f, 2.f, 3.f, 2.5f, -1.f, 4.f, 4.f, 4.f, 4.f, 1.f, 1.f, .5f, .25f, .125f, 0.f, -.125f, -.25f})
        logits.push_back(aclFloatToFloat16(value));
    for (float value : {.75f, .5f, 1.f})
        topP.push_back(aclFloatToFloat16(value));
    std::vector<float> noise;
    for (int row = 0; row < 3; row++)
        noise.insert(noise.end(), {.7f, .2f, .9f, .1f, .5f, .3f});

    Call call;
    Tensor<aclFloat16> x(ACL_FLOAT16, {3, 6}, logits), p(ACL_FLOAT16, {3}, topP);
    Tensor<int32_t> k(ACL_INT32, {3}, {4, 3, 0});
    Tensor<float> q(ACL_FLOAT, {3, 6}, noise), select(ACL_FLOAT, {3, 6});
    Tensor<int64_t> token(ACL_INT64, {3});
    CHECK(aclnnTopKTopPSampleGetWorkspaceSize(x.tensor, k.tensor, p.tensor, q.tensor, 1e-8, true, 32,
                                              token.tensor, select.tensor, &call.workspaceSize,
                                              &call.executor));
    call.execute(aclnnTopKTopPSample, stream);
    const float cut = -INFINITY;
    const bool right = same("logitsSelectIdx", token.values(), {4, 1, 3});
    return right &&
           same("logitsTopKPSelect", select.values(),
                {cut, cut, cut, 3, 2.5f, cut, 4, 4, cut, cut, cut, cut, .5f, .25f, .125f, 0, -.125f, -.25f});
}

static bool candidates(aclrtStream stream)
{
    Call call;
    Tensor<float> logits(ACL_FLOAT, {1, 5}, {0, 2, -1, 3, 2.5f}), topP(ACL_FLOAT, {1}, {.9f}),
        minP(ACL_FLOAT, {1}, {.5f});
    Tensor<int32_t> topK(ACL_INT32, {1}, {4});
    Tensor<float> q(ACL_FLOAT, {1, 5}, {2, .3f, 1, 1, 1}), list(ACL_FLOAT, {1, 5});
    Tensor<int64_t> token(ACL_INT64, {1}, {-1}), index(ACL_INT64, {1, 5});
    CHECK(aclnnTopKTopPSampleV2GetWorkspaceSize(
        logits.tensor, topK.tensor, topP.tensor, nullptr, minP.tensor, 1e-8, false, 32, 1024, true, true,
        nullptr, nullptr, index.tensor, list.tensor, &call.workspaceSize, &call.executor));
    call.execute(aclnnTopKTopPSampleV2, stream);
    const bool right = same("logitsIdx", index.values(), {3, 4, 0, 0, 0});
    std::printf("%-22s", "logitsSortMasked");
    for (float probability : list.values())
        std::printf(" %.7f", static_cast<double>(probability));
    std::printf("\n");

    CHECK(aclnnTopKTopPSampleV2GetWorkspaceSize(
        logits.tensor, topK.tensor, topP.tensor, q.tensor, minP.tensor, 1e-8, false, 32, 1024, true, false,
        token.tensor, nullptr, nullptr, nullptr, &call.workspaceSize, &call.executor));
    call.execute(aclnnTopKTopPSampleV2, stream);
    return right && same("logitsSelectIdx", token.values(), {4}); // .2996 / .3 is more than .4940 / 2
}

int main()
{
    Device device;
    const bool right = three_rows(device.stream);
    return candidates(device.stream) && right ? 0 : 1;
}
