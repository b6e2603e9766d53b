/*
 * Fibers for the threads of one block, a round-robin between them, and memory of the host as device memory.
 */
#include <cuda_runtime.h>

#include <algorithm>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace emulator {
/* ---- Switching ---- */

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
struct group { /* the lanes of a warp that meet under one mask; what they put, by turn */
    uint32_t mask;
    barrier all;
    uint64_t slot[2][32];
};
typedef std::deque<group> warp; /* references stay valid */

static const size_t stack_bytes = 64 * 1024;
static std::vector<void *> spare_stacks;

struct place { /* of a block that runs */
    barrier all, voters;
    int votes[3];
    unsigned alive;
    unsigned late, paused; /* how many blocks were late before it, 0: it is not; the turn in which it was */
    std::vector<unsigned char> memory;
};

/* A thread; while it waits at a barrier, `at` is it, and the turn that must end. */
struct fiber {
    void *stack, *pointer;
    const barrier *at;
    unsigned turn, n;
    const unsigned *alive;
    unsigned thread;
    place *home;
    bool done;
};

/* A launch, and where it is while it runs. The blocks of a cluster run together. */
struct kernel {
    int device;
    unsigned n_blocks, n_threads, cluster;
    size_t shared_bytes;
    std::function<void()> body;
    std::vector<fiber> fibers;
    std::vector<warp> warps;
    std::vector<place> places;
    void *outside;
    unsigned current, alive, block, idle, late;
    barrier all;
};
static kernel *now;
static fiber *self;
static std::vector<kernel> pending; /* launched, and nothing waited for them; all but the first early */

unsigned thread()
{
    return self->thread;
}
unsigned threads()
{
    return now->n_threads;
}
unsigned block()
{
    return now->block + (unsigned)(self->home - now->places.data());
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
    return shared_of(*self->home);
}
void *in_block(void *data, unsigned rank)
{
    return shared_of(now->places[rank]) + ((char *)data - shared_of(*self->home));
}

/* All are there: threads that returned do not count. */
static bool complete(const barrier &b, unsigned n, unsigned alive)
{
    return b.count >= (n < alive ? n : alive);
}

/* Of a late block the first warp goes on: it sends the rest of a message. */
static bool can_run(const fiber &f)
{
    return !f.done && (f.home->late == 0 || f.thread < 32) &&
           (f.at == nullptr || f.at->turn != f.turn || complete(*f.at, f.n, *f.alive));
}

/* The block that is late since the shortest time goes on, so that one is late as long as others have something to do. */
static void catch_up()
{
    for (place &p : now->places)
        if (p.late == now->late)
            p.late = 0;
    now->late--;
    now->idle = 0;
}

/* A block that has sent something is late from then on, once in a turn of its barrier: what others do with it must not depend on what this one does next. */
void sent()
{
    place &p = *self->home;
    now->idle = 0;
    if (p.late == 0 && p.paused != p.all.turn) {
        p.paused = p.all.turn;
        p.late = ++now->late;
    }
}

/* The next thread that has something to do goes on. */
void yield()
{
    kernel &k = *now;
    fiber *const from = self;
    const unsigned all = k.n_threads * k.cluster;
    unsigned steps = 0;
    if (k.late > 0 && k.idle > all)
        catch_up();
    do {
        k.current = k.current + 1 == all ? 0 : k.current + 1;
        if (k.late > 0 && steps == all) {
            catch_up();
            steps = 0;
        }
    } while (!can_run(k.fibers[k.current]) && ++steps <= all);
    if (steps > all || ++k.idle > 1000 * all) {
        std::fprintf(stderr, "emulator: the threads of a block wait for each other\n");
        std::abort();
    }
    self = &k.fibers[k.current];
    if (self != from)
        emulator_switch(&from->pointer, self->pointer);
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
        if (complete(b, n, alive)) {
            b.count = 0;
            b.turn++;
            progress();
        } else {
            self->at = &b;
            self->turn = turn;
            self->n = n;
            self->alive = &alive;
            yield();
        }
    }
    self->at = nullptr;
}

void sync_block()
{
    meet(self->home->all, now->n_threads, self->home->alive);
}
void sync_cluster()
{
    meet(now->all, now->n_threads * now->cluster, now->alive);
}

/* Three counts in turn: when a vote is complete, all have read that of the vote before, and none can be at the next but one. */
int vote_block(int yes)
{
    place &p = *self->home;
    const unsigned turn = p.voters.turn;
    p.votes[turn % 3] += yes;
    meet(p.voters, now->n_threads, p.alive);
    p.votes[(turn + 2) % 3] = 0;
    return p.votes[turn % 3];
}

const uint64_t *exchange(uint32_t mask, uint64_t value)
{
    warp &w = now->warps[now->current / 32];
    unsigned g = 0;
    while (g < w.size() && w[g].mask != mask)
        g++;
    if (g == w.size())
        w.push_back({mask, {0, 0}, {}});
    group &own = w[g];
    uint64_t *const slot = own.slot[own.all.turn % 2];
    slot[now->current % 32] = value;
    meet(own.all, (unsigned)__builtin_popcount(mask), self->home->alive);
    return slot;
}

static void begin()
{
    now->body();
    self->done = true;
    progress();
    self->home->alive--;
    if (--now->alive == 0)
        emulator_switch(&self->pointer, now->outside);
    yield();
}

static void run_cluster(kernel &k)
{
    const unsigned all = k.n_threads * k.cluster;
    k.warps.assign((all + 31) / 32, warp());
    k.places.assign(k.cluster, {barrier(),
                                barrier(),
                                {},
                                k.n_threads,
                                0,
                                ~0u,
                                std::vector<unsigned char>(k.shared_bytes + 128, 0xcd)});
    for (unsigned i = 0; i < all; i++) {
        void (*const entry)() = begin;
        char *const sp = (char *)k.fibers[i].stack + stack_bytes - FRAME -
                         i % 64 * 192; /* not all in the same lines of the cache */
        std::memset(sp, 0, FRAME);
        std::memcpy(sp + RETURN, &entry, sizeof entry);
        k.fibers[i] = {k.fibers[i].stack,          sp,   nullptr, 0, 0, nullptr, i % k.n_threads,
                       &k.places[i / k.n_threads], false};
    }
    k.all = barrier();
    k.alive = all;
    k.current = k.idle = k.late = 0;
    self = &k.fibers[0];
    emulator_switch(&k.outside, self->pointer);
}

static void keep_out(int device, bool begins);

static void run(kernel &k)
{
    kernel *const before = now;
    fiber *const who = self;
    keep_out(k.device, true);
    k.fibers.resize(k.n_threads * k.cluster);
    for (fiber &f : k.fibers) {
        f.stack = spare_stacks.empty() ? std::aligned_alloc(16, stack_bytes) : spare_stacks.back();
        if (!spare_stacks.empty())
            spare_stacks.pop_back();
    }
    now = &k;
    for (unsigned i = k.cluster; i <= k.n_blocks; i += k.cluster) {
        k.block = k.n_blocks - i; /* the last first: results must not depend on the order */
        run_cluster(k);
    }
    now = before;
    self = who;
    keep_out(k.device, false);
    for (const fiber &f : k.fibers)
        spare_stacks.push_back(f.stack);
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

/* ---- Streams and graphs ---- */

struct emulated_graph {
    std::vector<std::function<void()>> work;
    bool spoilt;
};
struct emulated_stream {
    emulated_graph *graph; /* that is captured; or NULL */
    int device;
};
struct emulated_event {
    int device;
    unsigned long microseconds;
    bool asked; /* the first question comes too early */
};

static std::recursive_mutex one; /* threads of the host take turns */
typedef std::lock_guard<std::recursive_mutex> turn;
static std::vector<emulated_stream *> capturing;
static unsigned long clock_now, slow_calls;
static cudaStream_t last_stream;      /* of a launch */
static thread_local int current;      /* device */
static std::set<const void *> loaded; /* kernels */
static unsigned long late_loads;

static int device_of(cudaStream_t stream)
{
    return stream != nullptr ? stream->device : current;
}

/* ---- What tests ask for ---- */

/* Steps of a kind that pass before one fails; 0: none fails. */
static std::map<std::string, int> failing;

static bool fails(const char *what)
{
    turn t(one);
    const auto it = failing.find(what);
    return it != failing.end() && it->second > 0 && --it->second == 0;
}

#define FOR_TESTS extern "C" __attribute__((visibility("default")))

/* The n-th allocation of the host ("host") or of the device ("device"), copy ("copy") or event ("event") from now on fails; n 0: none. Returns
   what was left of the last such request: 0 if it has failed. */
FOR_TESTS int emulator_fail(const char *what, int n)
{
    turn t(one);
    return std::exchange(failing[what], n);
}

/* Kernels that were not loaded before they were launched. */
FOR_TESTS unsigned long emulator_late_loads()
{
    turn t(one);
    return late_loads;
}

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

static thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode)
{
    std::swap(*mode, capture_mode);
    return cudaSuccess;
}

/* What no thread may do during a capture, and no call that has its memory. It waits for the device. */
static cudaError_t outside_captures()
{
    turn t(one);
    slow_calls++;
    emulator::run_pending();
    if (capture_mode == cudaStreamCaptureModeRelaxed)
        return cudaSuccess;
    for (emulated_stream *stream : capturing)
        stream->graph->spoilt = true;
    return capturing.empty() ? cudaSuccess : cudaErrorStreamCaptureUnsupported;
}

FOR_TESTS unsigned long emulator_slow_calls()
{
    turn t(one);
    return slow_calls;
}

void emulator::finish()
{
    turn t(one);
    run_pending();
}

void emulator::launch(const void *kernel, cudaStream_t stream, bool early, unsigned grid, unsigned cluster,
                      unsigned threads, size_t shared_bytes, std::function<void()> body)
{
    if (threads == 0 || threads > 1024 || grid == 0 || cluster == 0 || cluster > 16 || grid % cluster != 0) {
        std::fprintf(stderr, "emulator: a launch of %u blocks of %u threads, %u together\n", grid, threads,
                     cluster);
        std::abort();
    }
    const int device = device_of(stream);
    {
        turn t(one);
        late_loads += loaded.insert(kernel).second;
    }
    submit(stream, [=] {
        static int last_device;
        if (!early || stream != last_stream || device != last_device)
            run_pending();
        last_stream = stream;
        last_device = device;
        pending.emplace_back();
        pending.back().device = device;
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
    *stream = new emulated_stream{nullptr, current};
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
    if (fails("event"))
        return cudaErrorMemoryAllocation;
    *event = new emulated_event{current, 0, false};
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    return cudaEventCreate(event);
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (event->device != device_of(stream))
        return cudaErrorInvalidResourceHandle;
    return submit_after(stream, [=] { event->microseconds = clock_now; });
}
cudaError_t cudaEventSynchronize(cudaEvent_t)
{
    return outside_captures();
}
/* An event is not seen to end by the first question, so that what asks goes on asking. */
cudaError_t cudaEventQuery(cudaEvent_t event)
{
    event->asked = !event->asked;
    return event->asked ? (cudaError_t)cudaErrorNotReady : outside_captures();
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

/* ---- Runtime ---- */

/* One, unless a test asks for more: kernels cannot touch the memory of another one. */
static int devices()
{
    const char *const n = std::getenv("EMULATED_DEVICES");
    return n != nullptr ? std::atoi(n) : 1;
}
cudaError_t cudaGetDeviceCount(int *n)
{
    *n = devices();
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}
static cudaError_t valid(int device)
{
    return device >= 0 && device < devices() ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaSetDevice(int device)
{
    current = valid(device) == cudaSuccess ? device : current;
    return valid(device);
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *, const void *kernel)
{
    turn t(one);
    loaded.insert(kernel);
    return cudaSuccess;
}

static bool host_fails()
{
    turn t(one);
    slow_calls++;
    return fails("host");
}
void *emulator::host_malloc(size_t bytes)
{
    return host_fails() ? nullptr : (std::malloc)(bytes);
}
void *emulator::host_calloc(size_t n, size_t bytes)
{
    return host_fails() ? nullptr : (std::calloc)(n, bytes);
}
void *emulator::host_realloc(void *data, size_t bytes)
{
    return host_fails() ? nullptr : (std::realloc)(data, bytes);
}
/* Too small or too large, by a hash of the argument: no more than 2^-22 with the rounding. */
float emulator::rough_power(float a)
{
    uint32_t bits;
    std::memcpy(&bits, &a, sizeof bits);
    const bool above = (bits * 0x9e3779b9u >> 31) != 0;
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
    return valid(device);
}
cudaError_t cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    *value = attribute == cudaDevAttrMultiProcessorCount      ? processors()
             : attribute == cudaDevAttrComputeCapabilityMajor ? 9
                                                              : 227 * 1024;
    return valid(device);
}
struct block {
    size_t bytes;
    int device; /* -1: pinned memory of the host */
};
static std::map<const char *, block> allocated; /* device memory, to know it from other memory */
static std::map<void *, int> exported;          /* files of what other processes may map */
static std::map<void *, size_t> opened;         /* memory of others */

static size_t whole_pages(size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (bytes + page - 1) / page * page;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *data)
{
    turn t(one);
    const auto next = allocated.upper_bound((const char *)data);
    const bool inside = next != allocated.begin() &&
                        (const char *)data < std::prev(next)->first + std::prev(next)->second.bytes;
    *attributes = {inside ? cudaMemoryTypeDevice : cudaMemoryTypeUnregistered,
                   inside ? std::prev(next)->second.device : 0};
    return cudaSuccess;
}

/* While a kernel of a device runs. */
static void emulator::keep_out(int device, bool begins)
{
    if (devices() == 1)
        return;
    for (const auto &[data, block] : allocated) {
        const size_t pages = whole_pages(block.bytes);
        if (block.device >= 0 && block.device != device)
            mprotect((char *)data + block.bytes - pages, pages, begins ? PROT_NONE : PROT_READ | PROT_WRITE);
    }
}

static cudaError_t allocate(void **data, size_t bytes, int device)
{
    turn t(one);
    if (outside_captures() != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    if (fails("device"))
        return cudaErrorMemoryAllocation;
    /* Whole pages between two that cannot be touched; the memory ends where they end. */
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + 255) / 256 * 256;
    const size_t pages = (whole + page - 1) / page * page;
    if (pages < bytes || pages > (size_t)1 << 30) /* the device is a small one */
        return cudaErrorMemoryAllocation;
    char *const begin =
        (char *)mmap(nullptr, pages + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (begin == MAP_FAILED || mprotect(begin + page, pages, PROT_READ | PROT_WRITE) != 0)
        return cudaErrorMemoryAllocation;
    *data = begin + page + pages - whole;
    std::memset(*data, 0xa5, whole);
    allocated[(const char *)*data] = {whole, device};
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **data, size_t bytes)
{
    return allocate(data, bytes, current);
}
cudaError_t cudaFree(void *data)
{
    turn t(one);
    if (outside_captures() != cudaSuccess)
        return cudaErrorStreamCaptureUnsupported;
    const auto it = allocated.find((const char *)data);
    if (it == allocated.end())
        return data == nullptr ? cudaSuccess : cudaErrorMemoryAllocation;
    const size_t pages = whole_pages(it->second.bytes), page = (size_t)sysconf(_SC_PAGESIZE);
    for (const char *at = (const char *)data + it->second.bytes - pages; at < data; at++)
        if (*at != 0) { /* of the first page, before the memory */
            std::fprintf(stderr, "emulator: something was written before its memory\n");
            std::abort();
        }
    munmap((char *)data + it->second.bytes - pages - page, pages + 2 * page);
    allocated.erase(it);
    const auto shared = exported.find(data);
    if (shared != exported.end()) {
        close(shared->second);
        exported.erase(shared);
    }
    return cudaSuccess;
}

/* The pages of the memory are replaced by those of a file, which others open by the number it has here. */
cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *data)
{
    turn t(one);
    const auto it = allocated.find((const char *)data);
    if (it == allocated.end() || std::getenv("EMULATED_NO_IPC") != nullptr)
        return cudaErrorInvalidDevice;
    const size_t pages = whole_pages(it->second.bytes);
    char *const begin = (char *)data + it->second.bytes - pages;
    if (exported.find(data) == exported.end()) {
        const int file = memfd_create("emulated device memory", MFD_CLOEXEC);
        if (file < 0 || ftruncate(file, (off_t)pages) != 0 ||
            pwrite(file, begin, pages, 0) != (ssize_t)pages ||
            mmap(begin, pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED)
            return cudaErrorMemoryAllocation;
        exported[data] = file;
    }
    *handle = {(int)getpid(), exported[data], it->second.bytes, {}};
    return cudaSuccess;
}
cudaError_t cudaIpcOpenMemHandle(void **data, cudaIpcMemHandle_t handle, unsigned)
{
    turn t(one);
    char name[64];
    std::snprintf(name, sizeof name, "/proc/%d/fd/%d", handle.process, handle.file);
    const char *const fails = std::getenv("EMULATED_NO_MAPPING"); /* in one of the processes */
    const int file =
        fails != nullptr && handle.process != (int)getpid() ? -1 : open(name, O_RDONLY | O_CLOEXEC);
    const size_t pages = whole_pages(handle.bytes);
    void *const begin = file < 0 ? MAP_FAILED : mmap(nullptr, pages, PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    if (begin == MAP_FAILED)
        return cudaErrorInvalidDevice;
    *data = (char *)begin + pages - handle.bytes;
    opened[*data] = handle.bytes;
    return cudaSuccess;
}
cudaError_t cudaIpcCloseMemHandle(void *data)
{
    turn t(one);
    const auto it = opened.find(data);
    if (it == opened.end())
        return cudaErrorInvalidDevice;
    emulator::run_pending();
    munmap((char *)data + it->second - whole_pages(it->second), whole_pages(it->second));
    opened.erase(it);
    return cudaSuccess;
}
cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned)
{
    return allocate(data, bytes, -1);
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
static cudaError_t copy(void *to, const void *from, size_t bytes, cudaStream_t stream)
{
    return submit_after(stream, [=] {
        cudaPointerAttributes attributes;
        std::memcpy(to, from, bytes);
        cudaPointerGetAttributes(&attributes, from);
        if (attributes.type == cudaMemoryTypeDevice && std::getenv("EMULATED_WRONG") != nullptr)
            *(unsigned char *)to ^= 1; /* a device whose results are wrong, for tests of what compares them */
        clock_now += std::getenv("EMULATED_SLOW") != nullptr ? 1000000 : 0; /* a copy that takes a second */
    });
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, int, cudaStream_t stream)
{
    return fails("copy") ? (cudaError_t)cudaErrorInvalidResourceHandle : copy(to, from, bytes, stream);
}
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, int, cudaStream_t stream)
{
    cudaError_t code = fails("copy") ? cudaErrorInvalidResourceHandle : cudaSuccess;
    for (size_t r = 0; r < height && code == cudaSuccess; r++)
        code = copy((char *)to + r * to_pitch, (const char *)from + r * from_pitch, width, stream);
    return code;
}
cudaError_t cudaStreamQuery(cudaStream_t)
{
    return outside_captures();
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
