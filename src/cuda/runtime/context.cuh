/*
 * The state of a context's device, as operators of this backend see it.
 */
#pragma once

#include "cuda/runtime/device.cuh"
#include "cuda/runtime/policy.cuh"

#define SYC_MOST_CHOICES 32
enum { SYC_GATE_WORDS = 257 };   /* one more than blocks of a validating kernel */
#define SYC_MAX_CHECK_BLOCKS 256 /* of a validating kernel: their words are one load of a block that writes */

struct syc_device {
    int ordinal;
    cudaStream_t stream;
    /* graph.cu: streams of its own, and what `stream` was before a capture */
    cudaStream_t own, capture, kept;
    int all, processors; /* multiprocessors of the device; those that launches are sized for */
    bool dependent;      /* launches */
    int shared_bytes;    /* most dynamic shared memory of a block */
    mutable int
        wide_clusters; /* that run at once, of the blocks of sample_whole.cu; -1: none, 0: not asked yet */
    void *scratch;     /* grows, never shrinks */
    size_t scratch_bytes;
    /* scratch memory before it grew: graphs may use it as long as the context lives */
    struct syc_kept *smaller;
    void *host_scratch; /* the same in memory of the host */
    size_t host_bytes;
    void *words;            /* device memory of the gate */
    cudaEvent_t begin, end; /* of a traced call; made by the first */
    syc_report *report, *report_on_device;
    struct syc_exchange *exchange;       /* memory.cu; made by the first */
    sy_choice choices[SYC_MOST_CHOICES]; /* of the last call, for its trace */
    int n_choices;
};

struct syc_kept {
    void *data;
    struct syc_kept *next;
};

/* What a call launches into, and what its writing kernels look at. */
struct syc_call {
    syc_device *device;
    syc_queue queue;
    syc_gate gate;
    unsigned char *scratch;
};

/* What a backend could not do, and why: SY_ERR_DEVICE. The error of CUDA is reported here, not by the
   caller's next CUDA call. */
sy_status syc_failed(sy_ctx *ctx, const char *what, cudaError_t code);

/* The end of a call that only queues. */
sy_status syc_queued(sy_ctx *ctx, const syc_call *call, const char *what);

/* Makes the device the current one of this thread for as long as the object lives. */
struct syc_on_device {
    int before;
    explicit syc_on_device(const syc_device *device) : before(-1)
    {
        if (cudaGetDevice(&before) != cudaSuccess || before == device->ordinal ||
            cudaSetDevice(device->ordinal) != cudaSuccess)
            before = -1;
    }
    ~syc_on_device()
    {
        if (before >= 0)
            cudaSetDevice(before);
    }
};

/* For as long as the object lives, this thread may take memory although some stream is captured. */
struct syc_beside_captures {
    cudaStreamCaptureMode before;
    syc_beside_captures() : before(cudaStreamCaptureModeRelaxed)
    {
        cudaThreadExchangeStreamCaptureMode(&before);
    }
    ~syc_beside_captures() { cudaThreadExchangeStreamCaptureMode(&before); }
};

/* Something captures the stream, so that work queued now does not run. */
static inline bool syc_captures(const syc_device *device)
{
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(device->stream, &status) == cudaSuccess)
        return status != cudaStreamCaptureStatusNone;
    cudaGetLastError();
    return true;
}

extern const syi_backend syc_backend;                /* backend.cu */
extern const syi_memory syc_memory;                  /* memory.cu */
extern const struct syi_mesh_device syc_mesh_device; /* all_to_all.cu */
/* scratch memory, also where other memory is lent */
bool syc_own_scratch(syc_device *device, size_t bytes, void **data);
void syc_exchange_free(struct syc_exchange *exchange);
/* the kernels of syc_mesh_device that exchanges between processes use */
cudaError_t syc_mesh_load(syc_device *device);

/* Writes a sentence and returns `status`. */
sy_status syc_fail(char *sentence, size_t bytes, sy_status status, const char *what, cudaError_t code);

/* graph.cu; cuda.h says what they do. */
sy_status syc_own_stream(syc_device *device, char *sentence, size_t bytes);
sy_status syc_capture_begin(syc_device *device, char *sentence, size_t bytes);
sy_status syc_capture_end(syc_device *device, syc_graph **graph, char *sentence, size_t bytes);
sy_status syc_replay(syc_device *device, syc_graph *graph, int times, float *milliseconds, char *sentence,
                     size_t bytes);
void syc_graph_free(syc_device *device, syc_graph *graph);

syc_call syc_begin(syc_device *device, int op, void *scratch);

/* Offers the call an implementation of a step, which takes it unless something is against it, a sentence. */
static inline bool syc_takes(syc_call *call, const char *name, const char *why_not = NULL)
{
    syc_device *const d = call->device;
    for (int i = 0; i < d->n_choices; i++) /* of another plane */
        if (d->choices[i].name == name && d->choices[i].why_not == why_not)
            return why_not == NULL;
    if (d->n_choices < SYC_MOST_CHOICES)
        d->choices[d->n_choices++] = {name, why_not};
    return why_not == NULL;
}

/* Blocks of a kernel whose grid goes over its items, where `wanted` have one round: at most `each` for each
   processor. */
static inline int64_t syc_grid(const syc_call *call, int64_t wanted, int each)
{
    const int64_t most = each * (int64_t)call->device->processors;
    return wanted < most ? wanted : most;
}

/* Launches the validation of `check` and closes the gate behind its faults. SYC_EARLY: the check waits for
   the kernel before, for every item. */
template <class Check> static void syc_check(syc_call *call, const Check &check, syc_start start = SYC_AFTER)
{
    const int64_t blocks = syc_grid(call, (check.n + 255) / 256, grid_policy::CHECK);
    call->gate.n = (int)(blocks < SYC_MAX_CHECK_BLOCKS ? blocks : SYC_MAX_CHECK_BLOCKS);
    syc_launch(&call->queue, syc_validate<Check>, start, call->gate.n, 256, 0, call->gate, check);
}

/* For a call that validates and then writes nothing: reports the fault. */
static __global__ void syc_report_kernel(const syc_gate gate)
{
    syc_may_write(gate);
}

static inline void syc_only_report(syc_call *call)
{
    syc_launch(&call->queue, syc_report_kernel, SYC_EARLY, 1, 256, 0, call->gate);
}
