/*
 * What the command line uses of libswitchyard_cuda beside the public API: the names of its operators, and times measured on
 * the device. The library exports syi_cuda_tools for it. Nothing here is needed to call an operator, so it is no part of
 * libswitchyard, and the command line does not link CUDA: it finds the library that a context has loaded.
 */
#ifndef SYC_TOOLS_H
#define SYC_TOOLS_H

#include <switchyard.h>

#ifdef __cplusplus
extern "C" {
#endif

struct syc_timer;

/* Whose bytes per second are the limits of a device. */
enum syc_limit { SYC_COPY, SYC_FILL, SYC_READ };

/* Functions that can fail write a sentence of at most `bytes` bytes. */
struct syc_tools {
    size_t size;                  /* of this struct: the command line and the library are of one build */
    const char *const *operators; /* names, then NULL */
    sy_status (*open)(struct syc_timer **timer, int device, char *sentence, size_t bytes);
    void (*close)(struct syc_timer *timer);
    /* Until `finish`, calls of contexts whose stream is *stream are recorded, not run. */
    sy_status (*record)(struct syc_timer *timer, void **stream, char *sentence, size_t bytes);
    sy_status (*finish)(struct syc_timer *timer, char *sentence, size_t bytes);
    /* Runs the recorded calls on the default stream. */
    sy_status (*replay)(struct syc_timer *timer, double *seconds, char *sentence, size_t bytes);
    /* n bytes of device memory, a multiple of 16: copied, set, or read. */
    sy_status (*limit)(struct syc_timer *timer, enum syc_limit limit, void *to, const void *from, size_t n,
                       double *seconds, char *sentence, size_t bytes);
};

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct syc_tools *
syi_cuda_tools(void);

#ifdef __cplusplus
}
#endif

#endif
