// Shared by the programs of this folder: a device and a stream, tensors that own their device memory, and the two
// phases of a call. Written as programs for Ascend are, in C++11 and with acl only.
#ifndef EXAMPLES_COMPAT_ACLNN_DEVICE_HPP
#define EXAMPLES_COMPAT_ACLNN_DEVICE_HPP

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

#define CHECK(call) \
    do { \
        const int status = (call); \
        if (status != ACL_SUCCESS) { \
            std::fprintf(stderr, "%s: %d: %s\n", #call, status, aclGetRecentErrMsg()); \
            std::exit(1); \
        } \
    } while (0)

class Device {
  public:
    Device()
    {
        CHECK(aclInit(nullptr));
        CHECK(aclrtSetDevice(0));
        CHECK(aclrtCreateStream(&stream));
    }
    ~Device()
    {
        aclrtDestroyStream(stream);
        aclrtResetDevice(0);
        aclFinalize();
    }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    aclrtStream stream = nullptr;
};

// A compact tensor on the device, of zeros if there are no values. T is the type on the host: uint16_t for FLOAT16 and BF16.
template <typename T> class Tensor {
  public:
    Tensor(aclDataType type, const std::vector<int64_t> &shape, std::vector<T> values = {})
    {
        std::vector<int64_t> strides(shape.size(), 1);
        for (size_t d = shape.size() - 1; d > 0; d--)
            strides[d - 1] = strides[d] * shape[d];
        values.resize(static_cast<size_t>(strides[0] * shape[0]));
        count = values.size();
        CHECK(aclrtMalloc(&memory, count * sizeof(T), ACL_MEM_MALLOC_HUGE_FIRST));
        CHECK(aclrtMemcpy(memory, count * sizeof(T), values.data(), count * sizeof(T),
                          ACL_MEMCPY_HOST_TO_DEVICE));
        tensor = aclCreateTensor(shape.data(), shape.size(), type, strides.data(), 0,
                                 aclFormat::ACL_FORMAT_ND, shape.data(), shape.size(), memory);
    }
    ~Tensor()
    {
        aclDestroyTensor(tensor);
        aclrtFree(memory);
    }
    Tensor(const Tensor &) = delete;
    Tensor &operator=(const Tensor &) = delete;

    std::vector<T> values() const
    {
        std::vector<T> host(count);
        CHECK(aclrtMemcpy(host.data(), count * sizeof(T), memory, count * sizeof(T),
                          ACL_MEMCPY_DEVICE_TO_HOST));
        return host;
    }

    aclTensor *tensor = nullptr;

  private:
    void *memory = nullptr;
    size_t count = 0;
};

// What the first phase of a call returns, and its second: the workspace, the call, the wait.
struct Call {
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;

    void execute(aclnnStatus (*secondPhase)(void *, uint64_t, aclOpExecutor *, aclrtStream),
                 aclrtStream stream) const
    {
        void *workspace = nullptr;
        if (workspaceSize > 0)
            CHECK(aclrtMalloc(&workspace, workspaceSize, ACL_MEM_MALLOC_HUGE_FIRST));
        CHECK(secondPhase(workspace, workspaceSize, executor, stream));
        CHECK(aclrtSynchronizeStream(stream));
        if (workspace != nullptr)
            CHECK(aclrtFree(workspace));
    }
};

template <typename T> bool same(const char *name, const std::vector<T> &got, const std::vector<T> &want)
{
    std::printf("%-22s", name);
    for (const T &value : got)
        std::printf(" %g", static_cast<double>(value));
    std::printf("%s\n", got == want ? "" : "  WRONG");
    return got == want;
}

#endif // EXAMPLES_COMPAT_ACLNN_DEVICE_HPP
