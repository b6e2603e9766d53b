// Three rows of logits, each with a different combination of top-k, top-p and noise, with aclnnTopKTopPSample.
#include "aclnnop/aclnn_top_k_top_p_sample.h"
#include "aclnn_device.hpp"

#include <cmath>

int main()
{
    Device device;
    std::vector<aclFloat16> logits, topP;
    for (float value :
         {0.f, 1.f, 2.f, 3.f, 2.5f, -1.f, 4.f, 4.f, 4.f, 4.f, 1.f, 1.f, .5f, .25f, .125f, 0.f, -.125f, -.25f})
        logits.push_back(aclFloatToFloat16(value));
    for (float value : {.75f, .5f, 1.f})
        topP.push_back(aclFloatToFloat16(value));
    std::vector<float> noise;
    for (int row = 0; row < 3; row++)
        noise.insert(noise.end(), {.7f, .2f, .9f, .1f, .5f, .3f});

    Tensor<aclFloat16> x(ACL_FLOAT16, {3, 6}, logits), p(ACL_FLOAT16, {3}, topP);
    Tensor<int32_t> k(ACL_INT32, {3}, {4, 3, 0});
    Tensor<float> q(ACL_FLOAT, {3, 6}, noise), select(ACL_FLOAT, {3, 6}, std::vector<float>(18));
    Tensor<int64_t> token(ACL_INT64, {3}, std::vector<int64_t>(3));

    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnTopKTopPSampleGetWorkspaceSize(x.tensor, k.tensor, p.tensor, q.tensor, 1e-8, true, 32,
                                              token.tensor, select.tensor, &workspaceSize, &executor));
    execute(aclnnTopKTopPSample, workspaceSize, executor, device.stream);

    const float cut = -INFINITY;
    bool right = same("logitsSelectIdx", token.values(), {4, 1, 3});
    right &=
        same("logitsTopKPSelect", select.values(),
             {cut, cut, cut, 3, 2.5f, cut, 4, 4, cut, cut, cut, cut, .5f, .25f, .125f, 0, -.125f, -.25f});
    return right ? 0 : 1;
}
