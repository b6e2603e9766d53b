/*
 * Operations under way: launched one after the other, tested without waiting.
 */
#include "transport.h"

#include <stdio.h>
#include <string.h>

bool syi_nccl_ok(struct syi_nccl *self, ncclResult_t result, ncclComm_t comm, const char *what)
{
    if (result == ncclSuccess || result == ncclInProgress)
        return true;
    const char *more = comm != NULL ? ncclGetLastError(comm) : NULL;
    snprintf(self->common.error, sizeof self->common.error, "nccl: %s failed: %s%s%.200s", what,
             ncclGetErrorString(result), more != NULL && more[0] != '\0' ? ": " : "",
             more != NULL ? more : "");
    self->common.error[strcspn(self->common.error, "\n")] = '\0';
    return false;
}

bool syi_nccl_cuda_ok(struct syi_nccl *self, cudaError_t result, const char *what)
{
    if (result == cudaSuccess)
        return true;
    snprintf(self->common.error, sizeof self->common.error, "nccl: %s failed: %s", what,
             cudaGetErrorString(result));
    return false;
}

int syi_nccl_enter(const struct syi_nccl *self)
{
    int before = self->cuda_device;
    if (cudaGetDevice(&before) == cudaSuccess && before != self->cuda_device)
        cudaSetDevice(self->cuda_device);
    return before;
}

void syi_nccl_leave(int before)
{
    int now = before;
    if (cudaGetDevice(&now) == cudaSuccess && now != before)
        cudaSetDevice(before);
}

bool syi_nccl_line_open(struct syi_nccl *self, struct syi_nccl_line *line)
{
    int low = 0;
    int high = 0;
    return syi_nccl_cuda_ok(self, cudaDeviceGetStreamPriorityRange(&low, &high), "a stream") &&
           syi_nccl_cuda_ok(self, cudaStreamCreateWithPriority(&line->stream, cudaStreamNonBlocking, high),
                            "a stream");
}

/* ---- Tickets ---- */

enum { PINNED_HEAD = 64 }; /* of each block: the one before it in the list of old ones */

static bool make_pinned(struct syi_nccl *self, struct syi_nccl_ticket *t, size_t bytes)
{
    void *made = NULL;
    if (bytes <= t->pinned_bytes)
        return true;
    bytes = bytes > 2 * t->pinned_bytes ? bytes : 2 * t->pinned_bytes;
    if (!syi_nccl_cuda_ok(self, cudaHostAlloc(&made, PINNED_HEAD + bytes, cudaHostAllocMapped),
                          "cudaHostAlloc"))
        return false;
    if (t->pinned != NULL) {
        unsigned char *const old = t->pinned - PINNED_HEAD;
        memcpy(old, &self->old_pinned, sizeof self->old_pinned);
        self->old_pinned = old;
    }
    t->pinned = (unsigned char *)made + PINNED_HEAD;
    t->pinned_bytes = bytes;
    return true;
}

static bool make_messages(struct syi_nccl *self, struct syi_nccl_ticket *t, int64_t n)
{
    if (n <= t->room)
        return true;
    void *const made = self->common.alloc(self->common.alloc_user, (size_t)n * sizeof *t->message);
    if (made == NULL) {
        snprintf(self->common.error, sizeof self->common.error, "nccl: no memory for %lld messages",
                 (long long)n);
        return false;
    }
    if (t->message != NULL)
        self->common.dealloc(self->common.alloc_user, t->message);
    t->message = made;
    t->room = n;
    return true;
}

static void put_back(struct syi_nccl *self, struct syi_nccl_ticket *t)
{
    t->next = self->free_tickets;
    self->free_tickets = t;
}

void syi_nccl_ticket_drop(struct syi_nccl *self, struct syi_nccl_ticket *ticket)
{
    put_back(self, ticket);
}

static sy_status fail_stopped(struct syi_nccl *self)
{
    if (self->common.error[0] == '\0')
        snprintf(self->common.error, sizeof self->common.error, "nccl: the communicators were aborted");
    return SY_ERR_COMM;
}

/* An empty one, in the list of all. */
static bool open_ticket(struct syi_nccl *self, struct syi_nccl_ticket *t)
{
    *t = (struct syi_nccl_ticket){0};
    if (!syi_nccl_cuda_ok(self, cudaEventCreateWithFlags(&t->ready, cudaEventDisableTiming), "an event"))
        return false;
    if (!syi_nccl_cuda_ok(self, cudaEventCreateWithFlags(&t->end, cudaEventDisableTiming), "an event")) {
        cudaEventDestroy(t->ready);
        return false;
    }
    t->older = self->tickets;
    self->tickets = t;
    return true;
}

bool syi_nccl_meeting_open(struct syi_nccl *self, size_t pinned_bytes)
{
    if (!open_ticket(self, &self->meeting))
        return false;
    put_back(self, &self->meeting);
    return make_pinned(self, &self->meeting, pinned_bytes);
}

/* A free one, or a new one. */
static sy_status find_ticket(struct syi_nccl *self, struct syi_nccl_ticket **ticket)
{
    struct syi_nccl_ticket *t = self->free_tickets;
    *ticket = t;
    if (t != NULL) {
        self->free_tickets = t->next;
        return SY_OK;
    }
    t = self->common.alloc(self->common.alloc_user, sizeof *t);
    if (t == NULL) {
        snprintf(self->common.error, sizeof self->common.error, "nccl: no memory for a ticket");
        return SY_ERR_NOMEM;
    }
    if (!open_ticket(self, t)) {
        self->common.dealloc(self->common.alloc_user, t);
        return SY_ERR_COMM;
    }
    *ticket = t;
    return SY_OK;
}

sy_status syi_nccl_ticket_new(struct syi_nccl *self, struct syi_nccl_line *line, size_t pinned_bytes,
                              int64_t messages, struct syi_nccl_ticket **ticket)
{
    struct syi_nccl_ticket *t = NULL;
    const sy_status st = self->stopped ? fail_stopped(self) : find_ticket(self, &t);
    if (st != SY_OK)
        return st;
    if (!make_messages(self, t, messages) || !make_pinned(self, t, pinned_bytes)) {
        put_back(self, t);
        return SY_ERR_NOMEM;
    }
    t->next = NULL;
    t->line = line;
    t->waits = false;
    t->state = SYI_NCCL_QUEUED;
    t->all_bytes = t->to_bytes = 0;
    t->n = 0;
    t->to = NULL;
    t->recv = NULL;
    *ticket = t;
    return SY_OK;
}

void syi_nccl_tickets_free(struct syi_nccl *self)
{
    while (self->tickets != NULL) {
        struct syi_nccl_ticket *const t = self->tickets;
        self->tickets = t->older;
        if (t->pinned != NULL)
            cudaFreeHost(t->pinned - PINNED_HEAD);
        if (t->message != NULL)
            self->common.dealloc(self->common.alloc_user, t->message);
        cudaEventDestroy(t->ready);
        cudaEventDestroy(t->end);
        if (t != &self->meeting)
            self->common.dealloc(self->common.alloc_user, t);
    }
    self->free_tickets = NULL;
    while (self->old_pinned != NULL) {
        void *const old = self->old_pinned;
        memcpy(&self->old_pinned, old, sizeof self->old_pinned);
        cudaFreeHost(old);
    }
}

/* ---- Lines ---- */

static ncclResult_t worse(ncclResult_t a, ncclResult_t b)
{
    return a == ncclSuccess || (a == ncclInProgress && b != ncclSuccess) ? b : a;
}

/* All of one operation is one group of NCCL: one launch, in which no message waits for another. */
static ncclResult_t launch(const struct syi_nccl_ticket *t)
{
    ncclComm_t comm = t->line->comm;
    ncclResult_t result = ncclGroupStart();
    if (result != ncclSuccess)
        return result;
    if (t->all_bytes > 0)
        result = ncclAllGather(t->pinned, t->pinned + t->arrives_at, t->all_bytes, ncclChar, comm,
                               t->line->stream);
    for (int64_t i = 0; i < t->n && (result == ncclSuccess || result == ncclInProgress); i++) {
        const struct syi_nccl_message *const m = &t->message[i];
        result =
            worse(result, m->send ? ncclSend(m->data, m->bytes, ncclChar, m->rank, comm, t->line->stream)
                                  : ncclRecv(m->data, m->bytes, ncclChar, m->rank, comm, t->line->stream));
    }
    return worse(result, ncclGroupEnd());
}

/* Launches what the list holds, as far as communicators are ready. */
static sy_status progress(struct syi_nccl *self)
{
    while (self->first != NULL) {
        struct syi_nccl_ticket *const t = self->first;
        const struct syi_nccl_line *const line = t->line;
        if (t->state == SYI_NCCL_QUEUED) {
            if (t->waits && !syi_nccl_cuda_ok(self, cudaStreamWaitEvent(line->stream, t->ready, 0),
                                              "cudaStreamWaitEvent"))
                return SY_ERR_COMM;
            if (!syi_nccl_ok(self, launch(t), line->comm, "a launch"))
                return SY_ERR_COMM;
            t->state = SYI_NCCL_LAUNCHING;
        }
        ncclResult_t state = ncclSuccess;
        if (!syi_nccl_ok(self, ncclCommGetAsyncError(line->comm, &state), line->comm,
                         "ncclCommGetAsyncError") ||
            !syi_nccl_ok(self, state, line->comm, "a launch"))
            return SY_ERR_COMM;
        if (state == ncclInProgress)
            return SY_OK;
        if (!syi_nccl_cuda_ok(self, cudaEventRecord(t->end, line->stream), "cudaEventRecord"))
            return SY_ERR_COMM;
        t->state = SYI_NCCL_RUNNING;
        self->first = t->next;
        t->next = NULL;
    }
    self->last = NULL;
    return SY_OK;
}

sy_status syi_nccl_begin(struct syi_nccl *self, struct syi_nccl_ticket *t, sy_transport_ticket *ticket)
{
    if (self->first == NULL)
        self->first = t;
    else
        self->last->next = t;
    self->last = t;
    ticket->of_transport = t;
    return progress(self);
}

/* Whether the event of a launched operation has come, and no other process is known to be gone. */
static sy_status test_end(struct syi_nccl *self, const struct syi_nccl_ticket *t, bool *done)
{
    const cudaError_t result = cudaEventQuery(t->end);
    if (result != cudaSuccess && result != cudaErrorNotReady)
        return syi_nccl_cuda_ok(self, result, "a transfer") ? SY_OK : SY_ERR_COMM;
    *done = result == cudaSuccess;
    ncclResult_t state = ncclSuccess;
    if (!*done && (!syi_nccl_ok(self, ncclCommGetAsyncError(t->line->comm, &state), t->line->comm,
                                "ncclCommGetAsyncError") ||
                   !syi_nccl_ok(self, state, t->line->comm, "a transfer")))
        return SY_ERR_COMM;
    return SY_OK;
}

sy_status syi_nccl_test(void *self, sy_transport_ticket *ticket, bool *done)
{
    struct syi_nccl *const nccl = self;
    struct syi_nccl_ticket *const t = ticket->of_transport;
    *done = false;
    if (nccl->stopped)
        return fail_stopped(nccl);
    const int before = syi_nccl_enter(nccl);
    sy_status st = progress(nccl);
    if (st == SY_OK && t->state == SYI_NCCL_RUNNING)
        st = test_end(nccl, t, done);
    syi_nccl_leave(before);
    if (!*done)
        return st;
    syi_nccl_land(t);
    put_back(nccl, t);
    ticket->of_transport = NULL;
    return SY_OK;
}
