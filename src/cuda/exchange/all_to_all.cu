/*
 * all_to_all_dispatch and all_to_all_combine of a mesh inside one process, on tensors of one device, or the
 * part of one process, which reads what others have in mapped memory. The choices of all tokens are validated
 * and ranked (rank.cuh), one block turns the counts into rows and validates that they fit, then one kernel
 * moves rows or adds them. The host reads no contents but those of the mapping.
 */
#include "cuda/exchange/all_to_all_launch.cuh"

#include <cstdio>
#include <cstdlib>

static sy_status no_memory(sy_ctx *ctx, size_t bytes)
{
    snprintf(ctx->backend_error, sizeof ctx->backend_error, "has no memory for an exchange: %zu bytes",
             bytes);
    cudaGetLastError();
    return SY_ERR_NOMEM;
}

/* Memory that grows is empty. */
static bool grow(syc_device *d, syi_device_routing *routing, size_t bytes)
{
    void *made = NULL;
    syc_beside_captures beside;
    syi_kept *const kept = (syi_kept *)malloc(sizeof *kept);
    if (kept == NULL || cudaMalloc(&made, bytes) != cudaSuccess ||
        cudaMemsetAsync(made, 0, sizeof(u64), d->stream) != cudaSuccess) {
        cudaFree(made);
        free(kept);
        return false;
    }
    *kept = {routing->data, routing->kept};
    routing->kept = kept;
    routing->data = made;
    routing->bytes = bytes;
    routing->ordinal = d->ordinal;
    routing->by = &syc_mesh_device;
    return true;
}

static size_t row_count_bytes(int n)
{
    return sizeof(syi_row_counts) + (size_t)n * sizeof(syi_row_count);
}

/*
 * A dispatch of one process is launched again and again with the same arguments: the number of the call is in
 * memory. A graph of its kernels takes one launch. It is made when a call is seen for the second time; of
 * calls whose tensors are elsewhere each time there is none.
 */
enum { GRAPHS = 4 };

/* What launches depend on. */
struct graph_key {
    exchange x;
    size_t row_bytes[SY_A2A_MAX_PLANES];
    int64_t n_named;
    int n_planes, processors, ordinal;
    bool strict;
};

struct graphs {
    graph_key now; /* of the call */
    struct {
        graph_key key;
        cudaGraphExec_t exec; /* NULL: it was seen once, or cannot be made */
        int seen;
    } of[GRAPHS];
    int next; /* is replaced */
};

static void free_graphs(struct graphs *g)
{
    for (int i = 0; g != NULL && i < GRAPHS; i++)
        if (g->of[i].exec != NULL)
            cudaGraphExecDestroy(g->of[i].exec);
    free(g);
}

/* All calls that write to the smaller one have ended. */
static bool make_row_counts(syi_device_routing *routing, int n)
{
    syc_beside_captures beside;
    cudaFreeHost(routing->row_counts);
    routing->row_counts = NULL;
    routing->n_row_counts = 0;
    if (cudaHostAlloc((void **)&routing->row_counts, row_count_bytes(n),
                      cudaHostAllocMapped | cudaHostAllocPortable) != cudaSuccess)
        return false;
    routing->n_row_counts = n;
    return true;
}

static void forget(syi_device_routing *routing)
{
    free_graphs((struct graphs *)routing->graphs);
    cudaFree(routing->data);
    cudaFreeHost(routing->row_counts);
    while (routing->kept != NULL) {
        syi_kept *const next = routing->kept->next;
        cudaFree(routing->kept->data);
        free(routing->kept);
        routing->kept = next;
    }
    cudaGetLastError();
    *routing = {};
}

static sy_status take_memory(sy_ctx *ctx, exchange *x, syi_device_routing *routing)
{
    syc_device *const d = ctx->cuda_device;
    syc_scratch measured = {NULL, 0}, leads = {NULL, 0};
    take_scratch(&measured, x, routing == NULL, d->processors);
    take_leads(&leads, x->plan, &x->team.leads);
    if (routing != NULL && (leads.used > routing->bytes || routing->ordinal != d->ordinal) &&
        !grow(d, routing, leads.used))
        return no_memory(ctx, leads.used);
    if (x->plan->own >= 0 && routing->n_row_counts < x->plan->n_devices &&
        !make_row_counts(routing, x->plan->n_devices))
        return no_memory(ctx, row_count_bytes(x->plan->n_devices));
    void *data = NULL;
    if (!syc_own_scratch(d, measured.used, &data))
        return no_memory(ctx, measured.used);
#ifdef SWITCHYARD_CUDA_EMULATED
    cudaMemsetAsync(data, 0xa5, measured.used, d->stream); /* what other calls left is of no use */
#endif
    syc_scratch taken = {(u8 *)data, 0}, kept = {routing != NULL ? (u8 *)routing->data : NULL, 0};
    take_scratch(&taken, x, routing == NULL, d->processors);
    if (routing != NULL)
        take_leads(&kept, x->plan, &x->team.leads);
    return SY_OK;
}

/* Captures the launches of a call. NULL: it cannot. */
static cudaGraphExec_t make_graph(const syc_call *call, const exchange *x)
{
    syc_call kept = *call;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    syc_beside_captures beside;
    if (cudaStreamCreateWithFlags(&kept.queue.stream, cudaStreamNonBlocking) != cudaSuccess)
        return NULL;
    if (cudaStreamBeginCapture(kept.queue.stream, cudaStreamCaptureModeRelaxed) == cudaSuccess) {
        launch_leads(&kept, x);
        launch_rows(&kept, x);
        if (cudaStreamEndCapture(kept.queue.stream, &graph) == cudaSuccess &&
            kept.queue.error == cudaSuccess && cudaGraphInstantiateWithFlags(&exec, graph, 0) != cudaSuccess)
            exec = NULL;
    }
    if (graph != NULL)
        cudaGraphDestroy(graph);
    cudaStreamDestroy(kept.queue.stream);
    cudaGetLastError();
    return exec;
}

/* Whether a graph has launched the call. */
static bool launched_graph(syc_call *call, const exchange *x, syi_device_routing *routing)
{
    const syi_a2a_plan *const p = x->plan;
    if (p->own < 0 || p->routed || paired(p) || p->codes.given || p->id != SYI_ALL_TO_ALL_DISPATCH ||
        x->team.more != NULL || x->hosted.more != NULL)
        return false;
    if (routing->graphs == NULL)
        routing->graphs = calloc(1, sizeof(struct graphs));
    struct graphs *const g = (struct graphs *)routing->graphs;
    if (g == NULL)
        return false;
    memcpy(&g->now.x, x, sizeof *x);
    g->now.x.plan = NULL;
    memcpy(g->now.row_bytes, p->row_bytes, sizeof g->now.row_bytes);
    g->now.n_named = p->n_named;
    g->now.n_planes = p->n_planes;
    g->now.processors = call->device->processors;
    g->now.ordinal = call->device->ordinal;
    g->now.strict = p->strict;
    int i = 0;
    while (i < GRAPHS && memcmp(&g->now, &g->of[i].key, sizeof g->now) != 0)
        i++;
    if (i == GRAPHS) {
        i = g->next++ % GRAPHS;
        if (g->of[i].exec != NULL)
            cudaGraphExecDestroy(g->of[i].exec);
        memcpy(&g->of[i].key, &g->now, sizeof g->now);
        g->of[i].exec = NULL;
        g->of[i].seen = 0;
    }
    if (++g->of[i].seen == 2)
        g->of[i].exec = make_graph(call, x);
    if (g->of[i].exec == NULL)
        return false;
    call->queue.error = cudaGraphLaunch(g->of[i].exec, call->queue.stream);
    return true;
}

static sy_status run(sy_ctx *ctx, const syi_a2a_plan *plan, syi_device_routing *routing)
{
    syc_device *const d = ctx->cuda_device;
    exchange x;
    memset(&x, 0, sizeof x); /* its bytes are compared */
    syc_on_device on(d);
    x.plan = plan;
    const sy_status st = take_memory(ctx, &x, routing);
    if (st != SY_OK)
        return st;
    syc_call call = syc_begin(d, plan->id, NULL);
    /* other processes wait for it: faults of other calls do not skip it, and it reports none */
    if (plan->own >= 0) {
        call.gate.closed += 1; /* never set */
        call.gate.report = NULL;
        x.team.row_counts = routing->row_counts;
        routing->row_counts->number = plan->number;
    }
    if (encodes(plan) && !encodes_later(plan))
        encode(&call, &x);
    fill_team(&x);
    fill_hosted(&x);
    if (x.team.more != NULL)
        send_bytes(&call, x.devices, plan->device, (size_t)plan->n_devices * sizeof *plan->device);
    if (x.hosted.more != NULL)
        send(&call, x.words, word_bytes(plan),
             [&](u8 *to, size_t first, size_t n) { fill_words(plan, to, first, n); });
    if (begins_of(plan) > 0) {
        send_bytes(&call, x.begins, plan->pairs.begin, (size_t)begins_of(plan) * sizeof *x.begins);
        send_bytes(&call, x.owners, plan->pairs.device, (size_t)plan->n_experts * sizeof *x.owners);
    }
    if (!launched_graph(&call, &x, routing)) {
        launch_leads(&call, &x);
        launch_rows(&call, &x);
    }
    if (plan->need != NULL && call.queue.error == cudaSuccess)
        call.queue.error =
            cudaMemcpyAsync(plan->need, x.team.leads.need, (size_t)plan->n_devices * sizeof *plan->need,
                            cudaMemcpyDefault, d->stream);
    return syc_queued(ctx, &call, "could not run the exchange");
}

static bool captures(const sy_ctx *ctx)
{
    syc_on_device on(ctx->cuda_device);
    return syc_captures(ctx->cuda_device);
}

/* ---- Between processes ---- */

static sy_status fetch(sy_ctx *ctx, const syi_device_routing *routing, const syi_a2a_plan *plan,
                       int64_t first, int64_t run, int64_t runs, int32_t *to, int64_t stride)
{
    syc_device on_it = {};
    on_it.ordinal = routing->ordinal;
    syc_on_device on(&on_it);
    syc_scratch from = {(u8 *)routing->data, 0};
    syc_leads leads;
    take_leads(&from, plan, &leads);
    const size_t bytes = (size_t)(run * plan->n_slots) * sizeof *to;
    const cudaStream_t stream = ctx->cuda_device != NULL && ctx->cuda_device->ordinal == routing->ordinal
                                    ? ctx->cuda_device->stream
                                    : NULL;
    cudaError_t code = cudaMemcpy2DAsync(to, (size_t)(stride * plan->n_slots) * sizeof *to,
                                         leads.choice + first * plan->n_slots, bytes, bytes, (size_t)runs,
                                         cudaMemcpyDefault, stream);
    code = code == cudaSuccess ? cudaStreamSynchronize(stream) : code;
    return code == cudaSuccess ? SY_OK : syc_failed(ctx, "could not be read", code);
}

/* Loads the kernels of calls with rows of so many bytes, for few choices and for many. */
static void load_rows(syc_call *call, syi_a2a_plan *p)
{
    for (const int64_t tokens : {(int64_t)1, (int64_t)1 << 20})
        for (const sy_a2a_layout layout : {SY_LAYOUT_PACKED, SY_LAYOUT_EXPERT})
            for (const sy_a2a_replica replica :
                 {SY_A2A_REPLICA_ALL, SY_A2A_REPLICA_HASH, SY_A2A_REPLICA_BALANCED}) {
                exchange x = {};
                p->n_tokens = p->device->n_tokens = tokens;
                p->layout = layout;
                p->rule.replica = replica;
                x.plan = p;
                fill_team(&x);
                launch_leads(call, &x);
                launch_rows(call, &x);
            }
}

/* The driver loads a kernel when it is first launched, and may wait for the device then, which may wait for
   another process. */
cudaError_t syc_mesh_load(syc_device *d)
{
    syc_call call = syc_begin(d, SYI_ALL_TO_ALL_DISPATCH, NULL);
    static const int32_t local = 0;
    syi_a2a_device device = {};
    device.rows_to = (unsigned char *)&device; /* any */
    syi_a2a_plan p = {};
    p.mesh = {1, 1};
    p.n_devices = p.n_positions = p.n_groups = p.n_planes = 1;
    p.n_slots = p.n_experts = p.n_named = p.align = 1;
    p.hidden = 16; /* a vector of any type */
    p.device = &device;
    p.local = &local;
    call.queue.only_load = true;
    p.codes.n_groups = 1;
    p.codes.group = 16;
    const syc_team team = {};
    for (const syi_float type : {SYI_FLOAT_F32, SYI_FLOAT_F16, SYI_FLOAT_BF16})
        for (const bool wide : {false, true})
            syc_by_sum(type, wide, launch_coded_sums{&call, team, 1, &p.codes});
    syc_launch(&call.queue, store, SYC_AFTER, 1, THREADS, 0, piece{}, (u8 *)NULL, 0);
    syc_only_report(&call);
    for (const size_t bytes : {16, 4, 1}) {
        p.row_bytes[0] = bytes;
        p.id = SYI_ALL_TO_ALL_DISPATCH;
        load_rows(&call, &p);
        p.id = SYI_ALL_TO_ALL_COMBINE;
        p.routed = true;
        load_rows(&call, &p);
        p.sum = true;
        for (const sy_type type : {SY_TYPE_F32, SY_TYPE_F16, SY_TYPE_BF16}) {
            p.type = type;
            load_rows(&call, &p);
        }
        p.routed = p.sum = false;
    }
    return call.queue.error;
}

/* ---- Marks ---- */

static sy_status failed(sy_ctx *ctx, cudaError_t code)
{
    return syc_failed(ctx, "could not be waited for", code);
}

static sy_status mark(sy_ctx *ctx, syi_mark *m)
{
    syc_device *const d = ctx->cuda_device;
    const syc_call call = syc_begin(d, 0, NULL);
    syc_on_device on(d);
    cudaError_t code = cudaSuccess;
    m->by = &syc_mesh_device;
    if (m->event != NULL && m->ordinal != d->ordinal) { /* an event is for streams of its device */
        cudaEventDestroy((cudaEvent_t)m->event);
        m->event = NULL;
    }
    if (m->skipped == NULL)
        code = cudaHostAlloc((void **)&m->skipped, sizeof *m->skipped,
                             cudaHostAllocMapped | cudaHostAllocPortable);
    if (code == cudaSuccess && m->event == NULL)
        code = cudaEventCreateWithFlags((cudaEvent_t *)&m->event, cudaEventDisableTiming);
    m->ordinal = d->ordinal;
    if (code == cudaSuccess)
        code =
            cudaMemcpyAsync(m->skipped, call.gate.closed, sizeof *m->skipped, cudaMemcpyDefault, d->stream);
    if (code == cudaSuccess)
        code = cudaEventRecord((cudaEvent_t)m->event, d->stream);
    return code == cudaSuccess ? SY_OK : failed(ctx, code);
}

static sy_status reached(sy_ctx *ctx, syi_mark *m, bool wait, bool *done, bool *skipped)
{
    syc_on_device on(ctx->cuda_device);
    const cudaError_t code =
        wait ? cudaEventSynchronize((cudaEvent_t)m->event) : cudaEventQuery((cudaEvent_t)m->event);
    *done = code == cudaSuccess;
    if (code != cudaSuccess && code != cudaErrorNotReady)
        return failed(ctx, code);
    cudaGetLastError();
    *skipped = *done && *(volatile uint32_t *)m->skipped != 0;
    return SY_OK;
}

static void unmark(syi_mark *m)
{
    if (m->event != NULL)
        cudaEventDestroy((cudaEvent_t)m->event);
    if (m->skipped != NULL)
        cudaFreeHost(m->skipped);
    cudaGetLastError();
    *m = {};
}

const syi_mesh_device syc_mesh_device = {can, run, forget, fetch, captures, mark, reached, unmark};
