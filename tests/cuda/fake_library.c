/*
 * Stands in for libswitchyard_cuda: FAKE_CUDA says what is wrong. Without it there is no device; with "no operators" there
 * is one that runs nothing.
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
    *n = fakes("no operators");
    if (!fakes("no driver"))
        return SY_OK;
    snprintf(sentence, bytes, "no CUDA device can be used: no driver");
    return SY_ERR_DEVICE;
}

static char only_device;

static sy_status open_device(struct syc_device **device, int ordinal, void *stream, char *sentence,
                             size_t bytes)
{
    int n;
    (void)stream;
    *device = fakes("no operators") ? (struct syc_device *)&only_device : NULL;
    if (*device != NULL)
        return SY_OK;
    const sy_status st = count(&n, sentence, bytes);
    if (st == SY_OK)
        snprintf(sentence, bytes,
                 "device is cuda:%d, want 0 or more and below 0, the CUDA devices of this machine", ordinal);
    return st == SY_OK ? SY_ERR_DEVICE : st;
}

static void close_device(struct syc_device *device)
{
    (void)device;
}

static void set_processors(struct syc_device *device, int n)
{
    (void)device;
    (void)n;
}

static bool take_report(struct syc_device *device, struct syc_report *report)
{
    (void)device;
    (void)report;
    return false;
}

static bool accepts(const sy_ctx *ctx, DLDevice device, DLDevice first)
{
    (void)ctx;
    return device.device_type == kDLCUDA && first.device_type == kDLCUDA;
}

const struct syc_library *syi_cuda_library(void)
{
    static const struct syi_backend backend = {.name = "cuda", .accepts = accepts};
    static const struct syc_library fine = {.build = SYC_BUILD,
                                            .backend = &backend,
                                            .count = count,
                                            .open = open_device,
                                            .close = close_device,
                                            .set_processors = set_processors,
                                            .take_report = take_report},
                                    old = {.build = SYC_BUILD - 1};
    return fakes("other version") ? &old : &fine;
}
