/*
 * Stands in for libswitchyard_cuda: FAKE_CUDA says what is wrong. Without it there is no device.
 */
#include "cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>

static bool fakes(const char *what)
{
    const char *const fake = getenv("FAKE_CUDA");
    return fake != NULL && strcmp(fake, what) == 0;
}

static sy_status count(int *n, char *sentence, size_t bytes)
{
    *n = 0;
    if (!fakes("no driver"))
        return SY_OK;
    snprintf(sentence, bytes, "no CUDA device can be used: no driver");
    return SY_ERR_DEVICE;
}

static sy_status open_device(struct syc_device **device, int ordinal, void *stream, char *sentence,
                             size_t bytes)
{
    int n;
    (void)stream;
    *device = NULL;
    const sy_status st = count(&n, sentence, bytes);
    if (st == SY_OK)
        snprintf(sentence, bytes,
                 "device is cuda:%d, want 0 or more and below 0, the CUDA devices of this machine", ordinal);
    return st == SY_OK ? SY_ERR_DEVICE : st;
}

const struct syc_library *syi_cuda_library(void)
{
    static const struct syc_library fine = {.build = SYC_BUILD, .count = count, .open = open_device},
                                    old = {.build = SYC_BUILD - 1};
    return fakes("other version") ? &old : &fine;
}
