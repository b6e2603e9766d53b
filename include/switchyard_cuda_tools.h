/*
 * For benchmarks: the operators that libswitchyard_cuda has, and times measured on the device. `switchyard bench` uses it. Nothing here is
 * needed to call an operator. It is no part of libswitchyard: a program that does not link CUDA looks up sy_cuda_tools_entry in the
 * library that a context has loaded. The two must be of one build (`size`); no later release promises the same struct.
 */
#ifndef SWITCHYARD_CUDA_TOOLS_H
#define SWITCHYARD_CUDA_TOOLS_H

#include <switchyard.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sy_cuda_timer;

/* Whose bytes per second are the limits of a device. */
enum sy_cuda_limit { SY_CUDA_COPY, SY_CUDA_FILL, SY_CUDA_READ };

/* Functions that can fail write a sentence of at most `bytes` bytes. */
struct sy_cuda_tools {
    size_t size;                  /* of this struct, as the library was built */
    const char *const *operators; /* names, then NULL */
    sy_status (*open)(struct sy_cuda_timer **timer, int device, char *sentence, size_t bytes);
    void (*close)(struct sy_cuda_timer *timer);
    /* Until `finish`, calls of contexts whose stream is *stream are recorded, not run. */
    sy_status (*record)(struct sy_cuda_timer *timer, void **stream, char *sentence, size_t bytes);
    sy_status (*finish)(struct sy_cuda_timer *timer, char *sentence, size_t bytes);
    /* Runs the recorded calls on the default stream. */
    sy_status (*replay)(struct sy_cuda_timer *timer, double *seconds, char *sentence, size_t bytes);
    /* n bytes of device memory, a multiple of 16: copied, set, or read. */
    sy_status (*limit)(struct sy_cuda_timer *timer, enum sy_cuda_limit limit, void *to, const void *from,
                       size_t n, double *seconds, char *sentence, size_t bytes);
};

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct sy_cuda_tools *
sy_cuda_tools_entry(void);

#ifdef __cplusplus
}
#endif

#endif
