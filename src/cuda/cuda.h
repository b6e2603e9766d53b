/*
 * What libswitchyard and libswitchyard_cuda know of each other. The second is loaded when a context is created for a
 * CUDA device; it exports one function, syi_cuda_library. Both come from one build: `build` must be equal.
 */
#pragma once

#include "plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SYC_BUILD \
    (((SY_VERSION_MAJOR * 100 + SY_VERSION_MINOR) * 100 + SY_VERSION_PATCH) * 1000 + \
     (int)((sizeof(union syi_plan) + 31 * sizeof(struct syc_library)) % 1000))

/* The first fault since the host read one; the device writes it into memory of the host. */
struct syc_report {
    uint32_t set;
    int32_t op; /* enum syi_op_id */
    struct syi_found found;
};

struct syc_device; /* a device, a stream, scratch memory and the report of one context */
struct syc_graph;  /* captured calls */

struct syc_device_info {
    char name[128];
    int major, minor, processors;
    uint64_t memory_bytes;
};

/* Functions that can fail write a sentence of at most `bytes` bytes. */
struct syc_library {
    int build;
    const struct syi_backend *backend;
    sy_status (*count)(int *n, char *sentence, size_t bytes);
    sy_status (*describe)(const struct syc_device *device, struct syc_device_info *info, char *sentence,
                          size_t bytes);
    sy_status (*open)(struct syc_device **device, int ordinal, void *stream, char *sentence, size_t bytes);
    void (*close)(struct syc_device *device);
    void (*set_stream)(struct syc_device *device, void *stream);
    void (*set_processors)(struct syc_device *device, int n); /* that launches are sized for; 0: all */
    sy_status (*wait)(struct syc_device *device, char *sentence, size_t bytes);
    sy_status (*alloc)(struct syc_device *device, size_t n, void **data, char *sentence, size_t bytes);
    void (*free)(struct syc_device *device, void *data);
    /* Between memory of the host and of the device, in either direction; returns when it has ended. */
    sy_status (*copy)(struct syc_device *device, void *to, const void *from, size_t n, char *sentence,
                      size_t bytes);
    /* Before and after the launches of a call: what the device took for them, 0 where it is not known; waits. */
    void (*time_begin)(struct syc_device *device);
    uint64_t (*time_end)(struct syc_device *device);
    bool (*owns)(const struct syc_device *device, const void *data); /* it is memory of the device */
    /* The report, if one is visible to the host. Taking it lets later calls run again. */
    bool (*take_report)(struct syc_device *device, struct syc_report *report);
    /* A stream that waits for no other becomes the context's. */
    sy_status (*own_stream)(struct syc_device *device, char *sentence, size_t bytes);
    /*
     * From begin to end, calls of the context are not run but captured into a graph; everything that allocates or waits
     * fails. A replay queues the graph `times` times into the context's stream; with `milliseconds` it waits for the
     * end and measures on the device.
     */
    sy_status (*capture_begin)(struct syc_device *device, char *sentence, size_t bytes);
    sy_status (*capture_end)(struct syc_device *device, struct syc_graph **graph, char *sentence,
                             size_t bytes);
    sy_status (*replay)(struct syc_device *device, struct syc_graph *graph, int times, float *milliseconds,
                        char *sentence, size_t bytes);
    void (*graph_free)(struct syc_device *device, struct syc_graph *graph);
};

#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct syc_library *
syi_cuda_library(void);

/*
 * The same five for tests and benchmarks, in libswitchyard (src/ops/device.c). The status is the context's: its error
 * has a sentence. What a replay finds in contents is returned by sy_ctx_sync.
 */
sy_status syi_own_stream(sy_ctx *ctx);
sy_status syi_capture_begin(sy_ctx *ctx);
sy_status syi_capture_end(sy_ctx *ctx, void **graph);
sy_status syi_replay(sy_ctx *ctx, void *graph, int times, float *milliseconds);
void syi_graph_free(sy_ctx *ctx, void *graph);

#ifdef __cplusplus
}
#endif
