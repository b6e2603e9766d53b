/*
 * NCCL and the CUDA runtime, as far as transports/nccl uses them, between processes of one machine and without a GPU. A communicator is a
 * mapped file with a ring of bytes for each pair of processes. Operations advance when a stream or an event is queried, all of a process
 * one after the other, as on a GPU with one queue: NCCL promises no more. As with NCCL, a call on a communicator that does not block returns ncclInProgress first;
 * the next call before its launch ends the program, because NCCL's behaviour is then undefined. Messages carry their length: one
 * that its receiver expects otherwise is an error.
 *
 * SWITCHYARD_FAKE_NCCL=notices: the death of a process is an error of its communicators, as over sockets; without, it is not.
 */
#include <nccl.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_RANKS = 8, RING_BYTES = 1 << 14 };

struct ring {
    _Atomic uint64_t in, out; /* bytes so far */
    unsigned char data[RING_BYTES];
};

/* The file. */
struct shared {
    _Atomic int joined, finalised;
    _Atomic int pid[MOST_RANKS];
    struct ring ring[MOST_RANKS][MOST_RANKS]; /* from, to */
};

struct fake_comm {
    struct shared *shared;
    char path[128];
    int n_ranks, rank;
    bool blocking, ready, finalising;
    int polls; /* until the last call is launched */
    ncclResult_t error;
};

struct part {
    unsigned char *data;
    uint64_t bytes, moved; /* with the length before the bytes */
    int rank;
    bool send;
};

struct op {
    struct op *next;
    ncclComm_t comm;
    cudaStream_t stream;
    uint64_t number;
    bool ended;
    int n;
    struct part part[];
};

struct fake_stream {
    int unused;
};

struct fake_event {
    cudaStream_t stream;
    uint64_t number;
};

static struct op *ops;          /* in order; those that have ended are removed */
static uint64_t n_ops;          /* so far */
static struct op *group;        /* being collected */
static int depth, n_polls = 20; /* of groups; of the next call */

static struct {
    char what[16];
    int n;
} failing;
static int n_live;

void fake_nccl_fail(const char *what, int n)
{
    snprintf(failing.what, sizeof failing.what, "%s", what);
    failing.n = n;
}

int fake_nccl_live(void)
{
    return n_live;
}

static bool fails(const char *what)
{
    return failing.n > 0 && strcmp(failing.what, what) == 0 && --failing.n == 0;
}

/* Zeroed memory of something that is counted; NULL: it fails. */
static void *new_live(const char *what, size_t bytes)
{
    void *const made = fails(what) ? NULL : calloc(1, bytes);
    n_live += made != NULL;
    return made;
}

static void free_live(void *data)
{
    n_live -= data != NULL;
    free(data);
}

static void die(const char *why)
{
    fprintf(stderr, "fake nccl: %s\n", why);
    abort();
}

/* ---- Operations ---- */

enum { HEAD = 8 };

static unsigned char *byte_at(struct part *p, unsigned char head[HEAD], uint64_t i)
{
    return i < HEAD ? &head[i] : &p->data[i - HEAD];
}

static void move(struct op *op, struct part *p)
{
    struct shared *const s = op->comm->shared;
    struct ring *const r = p->send ? &s->ring[op->comm->rank][p->rank] : &s->ring[p->rank][op->comm->rank];
    unsigned char head[HEAD];
    memcpy(head, &p->bytes, HEAD);
    uint64_t in = atomic_load(&r->in), out = atomic_load(&r->out);
    if (p->send) {
        for (; p->moved < HEAD + p->bytes && in - out < RING_BYTES; p->moved++)
            r->data[in++ % RING_BYTES] = *byte_at(p, head, p->moved);
        atomic_store(&r->in, in);
        return;
    }
    for (; p->moved < HEAD + p->bytes && in - out > 0; p->moved++) {
        const unsigned char byte = r->data[out++ % RING_BYTES];
        if (p->moved < HEAD && byte != head[p->moved])
            op->comm->error = ncclInvalidUsage;
        *byte_at(p, head, p->moved) = byte;
    }
    atomic_store(&r->out, out);
}

/* Messages between two processes in one direction are in order. */
static bool follows(const struct op *op, int i)
{
    for (int k = 0; k < i; k++)
        if (op->part[k].rank == op->part[i].rank && op->part[k].send == op->part[i].send &&
            op->part[k].moved < HEAD + op->part[k].bytes)
            return true;
    return false;
}

static bool blocked(const struct op *op)
{
    for (const struct op *o = ops; o != op; o = o->next)
        if (!o->ended)
            return true;
    return op->comm->polls > 0 || op->comm->error != ncclSuccess;
}

static void progress(void)
{
    for (struct op *op = ops; op != NULL; op = op->next) {
        if (op->ended || blocked(op))
            continue;
        op->ended = true;
        for (int i = 0; i < op->n && op->comm->error == ncclSuccess; i++) {
            if (!follows(op, i))
                move(op, &op->part[i]);
            op->ended = op->ended && op->part[i].moved == HEAD + op->part[i].bytes;
        }
    }
    while (ops != NULL && ops->ended) {
        struct op *const op = ops;
        ops = op->next;
        free(op);
    }
}

/* Whether operations of the stream up to a number have ended. */
static cudaError_t query(cudaStream_t stream, uint64_t number)
{
    progress();
    for (const struct op *op = ops; op != NULL; op = op->next)
        if (!op->ended && op->stream == stream && op->number <= number)
            return cudaErrorNotReady;
    return cudaSuccess;
}

static ncclResult_t collect(ncclComm_t comm, cudaStream_t stream, struct part part)
{
    if (comm->polls > 0 || !comm->ready)
        die("a call while another one is in progress");
    if (depth == 0)
        die("a call outside of a group");
    if (group != NULL && (group->comm != comm || group->stream != stream))
        die("a group of several communicators");
    const int n = group != NULL ? group->n : 0;
    struct op *const op = realloc(group, sizeof *op + (size_t)(n + 1) * sizeof part);
    if (op == NULL)
        die("no memory");
    if (n == 0)
        *op = (struct op){.comm = comm, .stream = stream};
    op->part[n] = part;
    op->n = n + 1;
    group = op;
    return ncclSuccess;
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    struct op *const op = group;
    if (--depth > 0 || op == NULL)
        return ncclSuccess;
    group = NULL;
    op->number = ++n_ops;
    struct op **last = &ops;
    while (*last != NULL)
        last = &(*last)->next;
    *last = op;
    if (op->comm->blocking)
        return ncclSuccess;
    n_polls = n_polls * 7 % 31;
    op->comm->polls = n_polls;
    return op->comm->polls > 0 ? ncclInProgress : ncclSuccess;
}

ncclResult_t ncclSend(const void *data, size_t bytes, ncclDataType_t type, int rank, ncclComm_t comm,
                      cudaStream_t stream)
{
    (void)type;
    return collect(comm, stream, (struct part){(unsigned char *)(uintptr_t)data, bytes, 0, rank, true});
}

ncclResult_t ncclRecv(void *data, size_t bytes, ncclDataType_t type, int rank, ncclComm_t comm,
                      cudaStream_t stream)
{
    (void)type;
    return collect(comm, stream, (struct part){data, bytes, 0, rank, false});
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t bytes, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    for (int r = 0; r < comm->n_ranks; r++) { /* also to itself: a ring like the others */
        ncclSend(send, bytes, type, r, comm, stream);
        ncclRecv((unsigned char *)recv + (size_t)r * bytes, bytes, type, r, comm, stream);
    }
    return ncclSuccess;
}

/* ---- Communicators ---- */

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    const char *const folder = getenv("TMPDIR");
    if (fails("id"))
        return ncclSystemError;
    snprintf(id->internal, sizeof id->internal, "%.90s/fake-nccl-XXXXXX", folder != NULL ? folder : "/tmp");
    const int file = mkstemp(id->internal);
    if (file < 0 || ftruncate(file, sizeof(struct shared)) != 0)
        return ncclSystemError;
    close(file);
    return ncclSuccess;
}

static void poll_ready(ncclComm_t comm)
{
    if (comm->ready || atomic_load(&comm->shared->joined) < comm->n_ranks)
        return;
    comm->ready = true;
    if (comm->rank == 0)
        unlink(comm->path);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config)
{
    const int file = open(id.internal, O_RDWR);
    struct fake_comm *const made = new_live("init", sizeof *made);
    if (file < 0 || made == NULL || n_ranks > MOST_RANKS)
        return ncclSystemError;
    made->shared = mmap(NULL, sizeof *made->shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (made->shared == MAP_FAILED)
        return ncclSystemError;
    memcpy(made->path, id.internal, sizeof made->path);
    made->n_ranks = n_ranks;
    made->rank = rank;
    made->blocking = config->blocking != 0;
    made->error = fails("late") ? ncclInternalError : ncclSuccess;
    atomic_store(&made->shared->pid[rank], getpid());
    atomic_fetch_add(&made->shared->joined, 1);
    *comm = made;
    while (made->blocking && !made->ready) {
        poll_ready(made);
        usleep(100);
    }
    return made->blocking ? ncclSuccess : ncclInProgress;
}

static void notice(ncclComm_t comm)
{
    const char *const how = getenv("SWITCHYARD_FAKE_NCCL");
    for (int r = 0; how != NULL && strcmp(how, "notices") == 0 && r < comm->n_ranks; r++) {
        const int pid = atomic_load(&comm->shared->pid[r]);
        if (pid > 0 && kill(pid, 0) != 0 && errno == ESRCH)
            comm->error = ncclRemoteError;
    }
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state)
{
    poll_ready(comm);
    comm->polls -= comm->polls > 0;
    progress();
    notice(comm);
    *state = comm->error != ncclSuccess ? comm->error
             : !comm->ready || comm->polls > 0 ||
                     (comm->finalising && atomic_load(&comm->shared->finalised) < comm->n_ranks)
                 ? ncclInProgress
                 : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm)
{
    if (comm->polls > 0)
        die("ncclCommFinalize while a call is in progress");
    comm->finalising = true;
    atomic_fetch_add(&comm->shared->finalised, 1);
    return ncclInProgress;
}

static ncclResult_t forget(ncclComm_t comm)
{
    for (struct op *op = ops; op != NULL; op = op->next)
        op->ended = op->ended || op->comm == comm;
    progress();
    unlink(comm->path);
    munmap(comm->shared, sizeof *comm->shared);
    free_live(comm);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    for (const struct op *op = ops; op != NULL; op = op->next)
        if (!op->ended && op->comm == comm)
            die("ncclCommDestroy with operations under way");
    return forget(comm);
}

ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return forget(comm);
}

ncclResult_t ncclCommCount(ncclComm_t comm, int *n)
{
    *n = comm->n_ranks;
    return ncclSuccess;
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int *rank)
{
    *rank = comm->rank;
    return ncclSuccess;
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int *device)
{
    (void)comm;
    *device = 0;
    return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclRemoteError ? "remote process exited or there was a network error" : "an error";
}

const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "";
}

/* ---- The runtime ---- */

static int current;

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    current = device;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory" : "an error";
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *low, int *high)
{
    *low = *high = 0;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority)
{
    (void)flags;
    (void)priority;
    *stream = new_live("stream", sizeof **stream);
    return *stream != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free_live(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    return query(stream, UINT64_MAX);
}

/* The emulated device has ended what was queued before an event. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)stream;
    (void)flags;
    return query(event->stream, event->number);
}

cudaError_t cudaHostAlloc(void **data, size_t bytes, unsigned flags)
{
    (void)flags;
    *data = new_live("pinned", bytes);
    return *data != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *data)
{
    free_live(data);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    *event = new_live("event", sizeof **event);
    return *event != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    *event = (struct fake_event){stream, n_ops};
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return query(event->stream, event->number);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free_live(event);
    return cudaSuccess;
}
