/*
 * Calls captured into CUDA graphs, for the library's own tests and benchmarks; programs capture their streams
 * themselves.
 */
#include "cuda/runtime/context.cuh"

#include <cstdlib>

struct syc_graph {
    cudaGraphExec_t exec;
    cudaEvent_t begin, end;
};

sy_status syc_own_stream(syc_device *d, char *sentence, size_t bytes)
{
    syc_on_device on(d);
    const cudaError_t code =
        d->own == NULL ? cudaStreamCreateWithFlags(&d->own, cudaStreamNonBlocking) : cudaSuccess;
    if (code != cudaSuccess)
        return syc_fail(sentence, bytes, SY_ERR_DEVICE, "a stream cannot be made", code);
    d->stream = d->own;
    return SY_OK;
}

/* The default stream cannot be captured, so calls go to a stream of their own until the end. */
sy_status syc_capture_begin(syc_device *d, char *sentence, size_t bytes)
{
    syc_on_device on(d);
    cudaError_t code =
        d->capture == NULL ? cudaStreamCreateWithFlags(&d->capture, cudaStreamNonBlocking) : cudaSuccess;
    if (code == cudaSuccess)
        code = cudaStreamBeginCapture(d->capture, cudaStreamCaptureModeGlobal);
    if (code != cudaSuccess)
        return syc_fail(sentence, bytes, SY_ERR_DEVICE, "a capture cannot begin", code);
    d->kept = d->stream;
    d->stream = d->capture;
    return SY_OK;
}

static cudaError_t instantiate(syc_graph *made, cudaGraph_t graph)
{
    cudaError_t code = cudaGraphInstantiateWithFlags(&made->exec, graph, 0);
    if (code == cudaSuccess)
        code = cudaEventCreate(&made->begin);
    return code == cudaSuccess ? cudaEventCreate(&made->end) : code;
}

sy_status syc_capture_end(syc_device *d, syc_graph **graph, char *sentence, size_t bytes)
{
    syc_on_device on(d);
    cudaGraph_t captured = NULL;
    syc_graph *const made = (syc_graph *)calloc(1, sizeof *made);
    cudaError_t code = cudaStreamEndCapture(d->capture, &captured);
    d->stream = d->kept;
    if (code == cudaSuccess)
        code = made != NULL ? instantiate(made, captured) : cudaErrorMemoryAllocation;
    if (captured != NULL)
        cudaGraphDestroy(captured);
    *graph = made;
    if (code == cudaSuccess)
        return SY_OK;
    syc_graph_free(d, made);
    *graph = NULL;
    return syc_fail(sentence, bytes, SY_ERR_DEVICE, "the captured calls give no graph", code);
}

sy_status syc_replay(syc_device *d, syc_graph *graph, int times, float *milliseconds, char *sentence,
                     size_t bytes)
{
    syc_on_device on(d);
    cudaError_t code = milliseconds != NULL ? cudaEventRecord(graph->begin, d->stream) : cudaSuccess;
    for (int i = 0; i < times && code == cudaSuccess; i++)
        code = cudaGraphLaunch(graph->exec, d->stream);
    if (milliseconds != NULL && code == cudaSuccess)
        code = cudaEventRecord(graph->end, d->stream);
    if (milliseconds != NULL && code == cudaSuccess)
        code = cudaEventSynchronize(graph->end);
    if (milliseconds != NULL && code == cudaSuccess)
        code = cudaEventElapsedTime(milliseconds, graph->begin, graph->end);
    return code == cudaSuccess ? SY_OK
                               : syc_fail(sentence, bytes, SY_ERR_DEVICE, "a graph cannot be replayed", code);
}

void syc_graph_free(syc_device *d, syc_graph *graph)
{
    if (graph == NULL)
        return;
    syc_on_device on(d);
    if (graph->exec != NULL)
        cudaGraphExecDestroy(graph->exec);
    if (graph->begin != NULL)
        cudaEventDestroy(graph->begin);
    if (graph->end != NULL)
        cudaEventDestroy(graph->end);
    free(graph);
}
