#include "tensors.h"

#include <dlfcn.h>

static void lay_out(struct tensors *s, const struct described *of, int n)
{
    s->bytes = 0;
    for (int i = 0; i < n; i++) {
        const DLDataType type = sy_dtype(of[i].type);
        size_t bytes = type_bytes(type);
        int rank = 0;
        memcpy(s->shape[i], of[i].shape, sizeof s->shape[i]);
        for (; rank < 3 && of[i].shape[rank] != 0; rank++)
            bytes *= (size_t)of[i].shape[rank];
        s->tensor[i] = sy_tensor(s->memory + s->bytes, type, rank, s->shape[i]);
        if (s->ordinal >= 0)
            s->tensor[i].device = (DLDevice){kDLCUDA, s->ordinal};
        s->bytes += (bytes + 63) / 64 * 64;
    }
}

void tensors_open(struct tensors *s, sy_ctx *ctx, int ordinal, const struct described *of, int n)
{
    void *memory = NULL;
    assert_in_range(n, 1, MOST_TENSORS);
    s->memory = NULL;
    s->ordinal = ordinal;
    lay_out(s, of, n);
    if (ordinal >= 0)
        expect_status(ctx, sy_device_alloc(ctx, s->bytes, &memory), SY_OK);
    else
        memory = malloc(s->bytes);
    s->memory = memory;
    lay_out(s, of, n);
}

void tensors_close(struct tensors *s, sy_ctx *ctx)
{
    if (s->ordinal >= 0)
        sy_device_free(ctx, s->memory);
    else
        free(s->memory);
}

size_t tensors_difference(const struct tensors *a, const struct tensors *b)
{
    size_t at = 0;
    while (at < a->bytes && a->memory[at] == b->memory[at])
        at++;
    return at;
}

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
