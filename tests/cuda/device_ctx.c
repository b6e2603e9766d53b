#include "device_ctx.h"

#include <dlfcn.h>

sy_ctx *device_ctx(int ordinal)
{
    sy_ctx *ctx = NULL;
    const sy_ctx_options options = {.device = {kDLCUDA, ordinal},
                                    .device_library = getenv("SWITCHYARD_TEST_CUDA_LIBRARY")};
    if (sy_ctx_create(&ctx, &options) != SY_OK)
        skip_because("there is no CUDA device of this number here");
    return ctx;
}

void *emulated(const char *function)
{
    const char *const name = getenv("SWITCHYARD_TEST_CUDA_LIBRARY");
    void *const library = name != NULL ? dlopen(name, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *const found = library != NULL ? dlsym(library, function) : NULL;
    if (library != NULL)
        dlclose(library);
    return found;
}

unsigned long slow_calls(void)
{
    unsigned long (*count)(void) = NULL;
    *(void **)&count = emulated("emulator_slow_calls");
    return count != NULL ? count() : 0;
}
