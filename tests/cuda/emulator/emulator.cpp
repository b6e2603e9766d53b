/*
 * Fibers for the threads of one block, a round-robin between them, and memory of the host as device memory.
 */
#include <cuda_runtime.h>

#include <algorithm>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace emulator {
/* ---- Switching -------------------------------------------------------------------------------------------------- */

/* Saves what a call must preserve on the stack, stores the stack pointer, and continues on another stack. */
extern "C" void emulator_switch(void **from, void *to);
#if defined(__aarch64__)
asm(R"(
.text
.global emulator_switch
emulator_switch:
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
)");
enum { FRAME = 160, RETURN = 88 };
#elif defined(__x86_64__)
asm(R"(
.text
.global emulator_switch
emulator_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");
enum { FRAME = 64, RETURN = 48 }; /* with a word of padding, so that the stack is aligned as after a call */
#else
#error "the emulator knows AArch64 and x86-64"
#endif

struct barrier {
    unsigned count, turn;
};
struct group { /* the lanes of a warp that meet under one mask */
    uint32_t mask;
    barrier all;
};
struct warp {
    uint64_t slot[32];
    std::deque<group> groups; /* references stay valid */
};

static const size_t stack_bytes = 64 * 1024;
static std::vector<void *> spare_stacks;

struct place { /* of a block that runs */
    barrier all;
    int votes;
    unsigned alive;
    std::vector<unsigned char> memory;
};

/* A launch, and where it is while it runs. The blocks of a cluster run together. */
struct kernel {
    unsigned n_blocks, n_threads, cluster;
    size_t shared_bytes;
    std::function<void()> body;
    std::vector<void *> stacks, pointers;
    std::vector<bool> done;
    std::vector<warp> warps;
    std::vector<place> places;
    void *outside;
    unsigned current, alive, block, idle;
    barrier all;
};
static kernel *now;
static std::vector<kernel> pending; /* launched, and nothing waited for them; all but the first early */

static place &own_place()
{
    return now->places[now->current / now->n_threads];
}

unsigned thread()
{
    return now->current % now->n_threads;
}
unsigned threads()
{
    return now->n_threads;
}
unsigned block()
{
    return now->block + now->current / now->n_threads;
}
unsigned blocks()
{
    return now->n_blocks;
}
static char *shared_of(place &p)
{
    return (char *)(((uintptr_t)p.memory.data() + 127) & ~(uintptr_t)127);
}
void *dynamic_shared()
{
    return shared_of(own_place());
}
void *in_block(void *data, unsigned rank)
{
    return shared_of(now->places[rank]) + ((char *)data - shared_of(own_place()));
}

void yield()
{
    kernel &k = *now;
    const unsigned from = k.current;
    const unsigned all = k.n_threads * k.cluster;
    if (++k.idle > 1000 * all) {
        std::fprintf(stderr, "emulator: the threads of a block wait for each other\n");
        std::abort();
    }
    do
        k.current = k.current + 1 == all ? 0 : k.current + 1;
    while (k.done[k.current]);
    if (k.current != from)
        emulator_switch(&k.pointers[from], k.pointers[k.current]);
}

void progress()
{
    now->idle = 0;
}

static void meet(barrier &b, unsigned n, const unsigned &alive)
{
    const unsigned turn = b.turn;
    b.count++;
    while (b.turn == turn) {
        if (b.count >= (n < alive ? n : alive)) { /* threads that returned do not count */
            b.count = 0;
            b.turn++;
            progress();
        } else
            yield();
    }
}

void sync_block()
{
    meet(own_place().all, now->n_threads, own_place().alive);
}
void sync_cluster()
{
    meet(now->all, now->n_threads * now->cluster, now->alive);
}

int vote_block(int yes)
{
    int &votes = own_place().votes;
    votes += yes;
    sync_block();
    const int n = votes;
    sync_block();
    votes = 0;
    sync_block();
    return n;
}

void exchange(uint32_t mask, uint64_t value, uint64_t all[32])
{
    const unsigned lane = now->current % 32;
    warp &w = now->warps[now->current / 32];
    unsigned g = 0;
    while (g < w.groups.size() && w.groups[g].mask != mask)
        g++;
    if (g == w.groups.size())
        w.groups.push_back({mask, {0, 0}});
    const unsigned n = (unsigned)__builtin_popcount(mask);
    w.slot[lane] = value;
    meet(w.groups[g].all, n, own_place().alive);
    std::memcpy(all, w.slot, sizeof w.slot);
    meet(w.groups[g].all, n, own_place().alive);
}

static void fiber()
{
    now->body();
    now->done[now->current] = true;
    progress();
    own_place().alive--;
    if (--now->alive == 0)
        emulator_switch(&now->pointers[now->current], now->outside);
    yield();
}

static void run_cluster(kernel &k)
{
    const unsigned all = k.n_threads * k.cluster;
    for (unsigned i = 0; i < all; i++) {
        void (*const entry)() = fiber;
        char *const sp = (char *)k.stacks[i] + stack_bytes - FRAME;
        std::memset(sp, 0, FRAME);
        std::memcpy(sp + RETURN, &entry, sizeof entry);
        k.pointers[i] = sp;
    }
    k.done.assign(all, false);
    k.warps.assign((all + 31) / 32, warp());
    k.places.assign(k.cluster, {barrier(), 0, k.n_threads, std::vector<unsigned char>(k.shared_bytes + 128, 0xcd)});
    k.all = barrier();
    k.alive = all;
    k.current = k.idle = 0;
    emulator_switch(&k.outside, k.pointers[0]);
}

static void run(kernel &k)
{
    kernel *const before = now;
    for (unsigned i = 0; i < k.n_threads * k.cluster; i++) {
        k.stacks.push_back(spare_stacks.empty() ? std::aligned_alloc(16, stack_bytes) : spare_stacks.back());
        if (!spare_stacks.empty())
            spare_stacks.pop_back();
    }
    k.pointers.resize(k.n_threads * k.cluster);
    now = &k;
    for (unsigned i = k.cluster; i <= k.n_blocks; i += k.cluster) {
        k.block = k.n_blocks - i; /* the last first: results must not depend on the order */
        run_cluster(k);
    }
    now = before;
    spare_stacks.insert(spare_stacks.end(), k.stacks.begin(), k.stacks.end());
}

/* Runs what is pending: the last kernel first, which runs those before it when it waits for them. */
static void run_pending()
{
    while (!pending.empty()) {
        kernel last = std::move(pending.back());
        pending.pop_back();
        run(last);
    }
}

/* The other threads of the block go as far as they can before; then the kernels run in a thread that has shared memory of
   its own. */
void wait_for_previous()
{
    while (!pending.empty() && now->idle <= 2 * now->n_threads * now->cluster)
        yield();
    if (!pending.empty())
        std::thread(run_pending).join();
    progress();
}
} // namespace emulator

/* ---- Streams and graphs ------------------------------------------------------------------------------------------ */

struct emulated_graph {
    std::vector<std::function<void()>> work;
    bool spoilt;
};
struct emulated_stream {
    emulated_graph *graph; /* that is captured; or NULL */
};
struct emulated_event {
    unsigned long microseconds;
};

static std::recursive_mutex one; /* threads of the host take turns */
typedef std::lock_guard<std::recursive_mutex> turn;
static std::vector<emulated_stream *> capturing;
static unsigned long clock_now, slow_calls;
static cudaStream_t last_stream; /* of a launch */

/* Runs work of a stream, or keeps it for the graph. */
static cudaError_t submit(cudaStream_t stream, std::function<void()> work)
{
    turn t(one);
    if (stream != nullptr && stream->graph != nullptr)
        stream->graph->work.push_back(std::move(work));
    else
        work();
    return cudaSuccess;
}

/* The same for what begins after all launches before it have ended. */
static cudaError_t submit_after(cudaStream_t stream, std::function<void()> work)
{
    return submit(stream, [=] {
        emulator::run_pending();
        work();
    });
}

/* What no thread may do during a capture, and no call that has its memory. It waits for the device. */
static cudaError_t outside_captures()
{
    turn t(one);
    slow_calls++;
    emulator::run_pending();
    for (emulated_stream *stream : capturing)
        stream->graph->spoilt = true;
    return capturing.empty() ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

extern "C" __attribute__((visibility("default"))) unsigned long emulator_slow_calls()
{
    turn t(one);
    return slow_calls;
}

void emulator::finish()
{
    turn t(one);
    run_pending();
}

void emulator::launch(cudaStream_t stream, bool early, unsigned grid, unsigned cluster, unsigned threads,
                      size_t shared_bytes, std::function<void()> body)
{
    if (threads == 0 || threads > 1024 || grid == 0 || cluster == 0 || cluster > 8 || grid % cluster != 0) {
        std::fprintf(stderr, "emulator: a launch of %u blocks of %u threads, %u together\n", grid, threads, cluster);
        std::abort();
    }
    submit(stream, [=] {
        if (!early || stream != last_stream)
            run_pending();
        last_stream = stream;
        pending.emplace_back();
        pending.back().n_blocks = grid;
        pending.back().n_threads = threads;
        pending.back().cluster = cluster;
        pending.back().shared_bytes = shared_bytes;
        pending.back().body = body;
        clock_now++;
    });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned)
{
    slow_calls++;
    *stream = new emulated_stream{nullptr};
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    turn t(one);
    emulator::run_pending();
    delete stream;
    return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int)
{
    turn t(one);
    if (stream == nullptr || stream->graph != nullptr)
        return cudaErrorStreamCaptureUnsupported;
    stream->graph = new emulated_graph{{}, false};
    capturing.push_back(stream);
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    turn t(one);
    *graph = stream->graph;
    stream->graph = nullptr;
    capturing.erase(std::remove(capturing.begin(), capturing.end(), stream), capturing.end());
    if (!(*graph)->spoilt)
        return cudaSuccess;
    delete *graph;
    *graph = nullptr;
    return cudaErrorStreamCaptureInvalidated;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    *status = stream != nullptr && stream->graph != nullptr ? cudaStreamCaptureStatusActive
                                                            : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    *exec = new emulated_graph(*graph);
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    return submit_after(stream, [=] {
        for (const std::function<void()> &work : exec->work)
            work();
        emulator::run_pending();
    });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    delete graph;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    delete exec;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    slow_calls++;
    *event = new emulated_event{0};
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return submit_after(stream, [=] { event->microseconds = clock_now; });
}
cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return outside_captures();
}
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    *milliseconds = (float)(end->microseconds - begin->microseconds) / 1000;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

/* ---- Runtime ------------------------------------------------------------------------------------------------------ */

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}
/* Too small or too large, by a hash of the argument, or always as EMULATED_POWER says, low or high: no more than 2^-22 with the
   rounding. */
float emulator::rough_power(float a)
{
    static const char *const side = std::getenv("EMULATED_POWER");
    uint32_t bits;
    std::memcpy(&bits, &a, sizeof bits);
    const bool above = side != nullptr ? side[0] == 'h' : (bits * 0x9e3779b9u >> 31) != 0;
    const float y = (float)(std::exp2((double)a) * (1 + (above ? 0.75 : -0.75) * 0x1p-22));
    return y < 0x1p-126f ? 0.0f : y;
}

/* Few, so that launches are short, unless a test asks for more. */
static int processors()
{
    const char *const n = std::getenv("EMULATED_PROCESSORS");
    return n != nullptr ? std::atoi(n) : 4;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *p, int device)
{
    std::memset(p, 0, sizeof *p);
    std::snprintf(p->name, sizeof p->name, "emulated GPU");
    p->totalGlobalMem = (size_t)1 << 30;
    p->major = 9;
    p->multiProcessorCount = processors();
    return cudaSetDevice(device);
}
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == cudaDevAttrMultiProcessorCount      ? processors()
             : attribute == cudaDevAttrComputeCapabilityMajor ? 9
                                                              : 227 * 1024;
    return cudaSetDevice(device);
}
static std::map<const char *, size_t> allocated; /* device memory, to know it from other memory */

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *data)
{
    turn t(one);
    const auto next = allocated.upper_bound((const char *)data);
    const bool inside =
        next != allocated.begin() && (const char *)data < std::prev(next)->first + std::prev(next)->second;
    *attributes = {inside ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered, 0};
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **data, size_t bytes)
{
    turn t(one);
    if (outside_captures() != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    /* Whole pages between two that cannot be touched; the memory ends where they end. */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + 255) / 256 * 256;
    const size_t pages = (whole + page - 1) / page * page;
    if (pages < bytes)
        return cudaErrorMemoryAllocation;
    char *const begin =
        (char *)mmap(nullptr, pages + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED || mprotect(begin + page, pages, PROT_READ | PROT_WRITE) != 0)
        return cudaErrorMemoryAllocation;
    *data = begin + page + pages - whole;
    std::memset(*data, 0xa5, whole);
    allocated[(const char *)*data] = whole;
    return cudaSuccess;
}
cudaError_t cudaFree(void *data)
{
    turn t(one);
    if (outside_captures() != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    const auto it = allocated.find((const char *)data);
    if (it == allocated.end())
        return data == nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), pages = (it->second + page - 1) / page * page;
    munmap((char *)data + it->second - pages - page, pages + 2 * page);
    allocated.erase(it);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned)
{
    return cudaMalloc(data, bytes);
}
cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned)
{
    *device = host;
    return cudaSuccess;
}
cudaError_t cudaFreeHost(void *data)
{
    return cudaFree(data);
}
cudaError_t cudaMemsetAsync(void *data, int byte, size_t bytes, cudaStream_t stream)
{
    return submit_after(stream, [=] { std::memset(data, byte, bytes); });
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int, cudaStream_t stream)
{
    return submit_after(stream, [=] {
        cudaPointerAttributes attributes;
        std::memcpy(to, from, bytes);
        cudaPointerGetAttributes(&attributes, from);
        if (attributes.type == cudaMemoryTypeDevice && std::getenv("EMULATED_WRONG") != nullptr)
            *(unsigned char *)to ^= 1; /* a device whose results are wrong, for tests of what compares them */
    });
}
cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return outside_captures();
}
cudaError_t cudaGetLastError()
{
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation           ? "out of memory"
           : error == cudaErrorStreamCaptureUnsupported ? "operation not permitted when stream is capturing"
           : error == cudaErrorStreamCaptureInvalidated
               ? "operation failed due to a previous error during capture"
               : "emulated error";
}
