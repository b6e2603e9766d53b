/*
 * Communicators: those of a mesh are made together with the comm, the one moment when all processes are present.
 */
#include "transport.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>

/* What every process sends to all others over the caller's communicator. */
struct greeting {
    int32_t status;
    int32_t rows, cols, check, max_blocks;
    char sentence[SYI_SENTENCE];
};

/* What follows when all agree: process 0 gives the ids of the lines. */
struct names {
    int32_t status;
    ncclUniqueId id[SYI_NCCL_LINES];
};

struct record {
    int32_t status;
    char sentence[SYI_SENTENCE];
};

/* Gathers `bytes` of every process and waits for them, for so much longer than usual. *all: theirs, until the next gather. */
static sy_status gather_now(struct syi_nccl *self, struct syi_nccl_line *line, const void *mine, size_t bytes,
                            int64_t longer_ms, const void **all)
{
    sy_transport_ticket ticket = {0};
    const int64_t begin = syi_now_ms() + longer_ms;
    bool done = false;
    sy_status st = syi_nccl_gather_all(self, line, mine, bytes, NULL, &ticket);
    const struct syi_nccl_ticket *const t = ticket.of_transport;
    while (st == SY_OK && !done) {
        st = syi_nccl_test(self, &ticket, &done);
        if (st == SY_OK && !done && syi_is_late(&self->common, begin, self->common.error))
            st = SY_ERR_TIMEOUT;
    }
    *all = st == SY_OK ? t->pinned + t->arrives_at : NULL;
    return st;
}

/* The lowest process that failed; one that waited in vain comes after others, which may be the reason. NULL: none. */
static const struct record *worst(const struct record *all, int n)
{
    const struct record *late = NULL;
    for (int r = 0; r < n; r++) {
        if (all[r].status != SY_OK && all[r].status != SY_ERR_TIMEOUT)
            return &all[r];
        if (all[r].status != SY_OK && late == NULL)
            late = &all[r];
    }
    return late;
}

static sy_status agree_on(struct syi_nccl *self, struct syi_nccl_line *line, sy_status status,
                          int64_t longer_ms, char sentence[SYI_SENTENCE])
{
    struct record mine = {.status = (int32_t)status};
    const void *all;
    memcpy(mine.sentence, sentence, SYI_SENTENCE);
    const sy_status st = gather_now(self, line, &mine, sizeof mine, longer_ms, &all);
    if (st != SY_OK) {
        if (status == SY_OK) /* else it has a reason of its own */
            memcpy(sentence, self->common.error, SYI_SENTENCE);
        return status == SY_OK ? st : status;
    }
    const struct record *const bad = worst(all, self->n_ranks);
    if (bad != NULL)
        memcpy(sentence, bad->sentence, SYI_SENTENCE);
    return bad != NULL ? (sy_status)bad->status : SY_OK;
}

sy_status syi_nccl_agree(void *self, sy_status status, char sentence[SYI_SENTENCE])
{
    struct syi_nccl *const nccl = self;
    return agree_on(nccl, &nccl->line[SY_CHANNEL_CONTROL], status, 0, sentence);
}

/* ---- All processes meet ---- */

/* The first difference between the greetings, the same in all processes. */
static sy_status compare(const struct greeting *all, int n, char sentence[SYI_SENTENCE])
{
    for (int r = 0; r < n; r++)
        if (all[r].status != SY_OK) {
            memcpy(sentence, all[r].sentence, SYI_SENTENCE);
            return (sy_status)all[r].status;
        }
    for (int r = 1; r < n; r++) {
        if (all[r].rows != all[0].rows || all[r].cols != all[0].cols)
            snprintf(sentence, SYI_SENTENCE,
                     "mesh differs: %dx%d in process 0, %dx%d in process %d, want the same in all processes",
                     all[0].rows, all[0].cols, all[r].rows, all[r].cols, r);
        else if (all[r].check != all[0].check)
            snprintf(sentence, SYI_SENTENCE,
                     "check differs: %d in process 0, %d in process %d, want the same in all processes",
                     all[0].check, all[r].check, r);
        else if (all[r].max_blocks != all[0].max_blocks)
            snprintf(sentence, SYI_SENTENCE,
                     "max_blocks differs: %d in process 0, %d in process %d, want the same in all processes",
                     all[0].max_blocks, all[r].max_blocks, r);
        else
            continue;
        return SY_ERR_MISMATCH;
    }
    return SY_OK;
}

/* Collective over the caller's communicator: whether all processes are present and request the same. */
static sy_status meet(struct syi_nccl *self, const sy_nccl_options *o, sy_status status,
                      char sentence[SYI_SENTENCE])
{
    struct greeting mine = {.status = (int32_t)status,
                            .rows = self->common.transport.mesh.rows,
                            .cols = self->common.transport.mesh.cols,
                            .check = (int32_t)o->comm.check,
                            .max_blocks = o->max_blocks};
    const void *all;
    memcpy(mine.sentence, sentence, SYI_SENTENCE);
    status = gather_now(self, &self->base, &mine, sizeof mine, 0, &all);
    if (status == SY_OK)
        return compare(all, self->n_ranks, sentence);
    memcpy(sentence, self->common.error, SYI_SENTENCE);
    return status;
}

/* Collective over the caller's communicator: the ids of the lines. NCCL waits for all processes of an id that was made, so
   this comes after they have agreed. */
static sy_status name_lines(struct syi_nccl *self, struct names *names)
{
    const void *all;
    *names = (struct names){.status = SY_OK};
    for (int i = 0; self->rank == 0 && i < SYI_NCCL_LINES && names->status == SY_OK; i++)
        if (!syi_nccl_ok(self, ncclGetUniqueId(&names->id[i]), NULL, "ncclGetUniqueId"))
            names->status = SY_ERR_COMM;
    const sy_status st = gather_now(self, &self->base, names, sizeof *names, 0, &all);
    if (st != SY_OK)
        return st;
    memcpy(names, all, sizeof *names);
    if (names->status != SY_OK)
        snprintf(self->common.error, sizeof self->common.error, "nccl: ncclGetUniqueId failed in process 0");
    return (sy_status)names->status;
}

/* A communicator whose calls return at once. Those of the agreement need one block of threads. */
static sy_status begin_line(struct syi_nccl *self, struct syi_nccl_line *line, const ncclUniqueId *id,
                            int max_blocks)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    if (max_blocks > 0) {
        config.minCTAs = 1;
        config.maxCTAs = max_blocks;
    }
    const ncclResult_t state = ncclCommInitRankConfig(&line->comm, self->n_ranks, *id, self->rank, &config);
    return syi_nccl_ok(self, state, line->comm, "ncclCommInitRankConfig") ? SY_OK : SY_ERR_COMM;
}

/* Waits until NCCL has connected it. */
static sy_status finish_line(struct syi_nccl *self, const struct syi_nccl_line *line)
{
    const int64_t begin = syi_now_ms();
    for (;;) {
        ncclResult_t state = ncclSuccess;
        if (!syi_nccl_ok(self, ncclCommGetAsyncError(line->comm, &state), line->comm,
                         "ncclCommGetAsyncError") ||
            !syi_nccl_ok(self, state, line->comm, "ncclCommInitRankConfig"))
            return SY_ERR_COMM;
        if (state == ncclSuccess)
            return SY_OK;
        if (syi_is_late(&self->common, begin, self->common.error))
            return SY_ERR_TIMEOUT;
    }
}

static void abort_lines(struct syi_nccl *self)
{
    for (int i = 0; i < SYI_NCCL_LINES; i++) {
        if (self->line[i].comm != NULL)
            ncclCommAbort(self->line[i].comm);
        self->line[i].comm = NULL;
    }
}

/*
 * Collective. A process that cannot begin a line would leave the others waiting for it inside NCCL: so they agree after each began, over the
 * caller's communicator. One that fails later aborts its part, which the others notice, or else wait for no longer than their limit.
 */
static sy_status open_lines(struct syi_nccl *self, const ncclUniqueId *id, int max_blocks,
                            char sentence[SYI_SENTENCE])
{
    sy_status st = SY_OK;
    for (int i = 0; i < SYI_NCCL_LINES; i++) {
        sy_status begun = st;
        if (st == SY_OK) {
            begun = begin_line(self, &self->line[i], &id[i], i == SYI_NCCL_ROWS ? max_blocks : 1);
            memcpy(sentence, self->common.error, SYI_SENTENCE);
        }
        const int64_t longer_ms = i > 0 && self->common.timeout_ms > 0 ? self->common.timeout_ms : 0;
        begun = agree_on(self, &self->base, begun, longer_ms, sentence);
        if (begun != SY_OK)
            return begun;
        st = finish_line(self, &self->line[i]);
        memcpy(sentence, self->common.error, SYI_SENTENCE);
        if (st != SY_OK)
            abort_lines(self);
    }
    return agree_on(self, &self->base, st, self->common.timeout_ms > 0 ? self->common.timeout_ms : 0,
                    sentence);
}

/* ---- The transport ---- */

static void stop(void *self)
{
    struct syi_nccl *const nccl = self;
    const int before = syi_nccl_enter(nccl);
    nccl->stopped = true;
    abort_lines(nccl);
    syi_nccl_leave(before);
}

static void fill_in(struct syi_nccl *self, ncclComm_t nccl, sy_mesh mesh, const sy_comm_options *o)
{
    *self = (struct syi_nccl){.common = syi_common("nccl", self, mesh, o), .base = {.comm = nccl}};
    sy_transport *const t = &self->common.transport;
    t->gather = syi_nccl_gather;
    t->exchange = syi_nccl_exchange;
    t->test = syi_nccl_test;
    t->device_rows = SY_TRANSPORT_STREAM;
    t->stop = stop;
    t->one_order = true;
    self->common.agree = syi_nccl_agree;
    self->common.close = syi_nccl_close;
}

static sy_status read_comm(struct syi_nccl *self)
{
    ncclResult_t state = ncclSuccess;
    ncclComm_t comm = self->base.comm;
    if (!syi_nccl_ok(self, ncclCommGetAsyncError(comm, &state), comm, "ncclCommGetAsyncError") ||
        !syi_nccl_ok(self, state, comm, "nccl") ||
        !syi_nccl_ok(self, ncclCommCount(comm, &self->n_ranks), comm, "ncclCommCount") ||
        !syi_nccl_ok(self, ncclCommUserRank(comm, &self->rank), comm, "ncclCommUserRank") ||
        !syi_nccl_ok(self, ncclCommCuDevice(comm, &self->cuda_device), comm, "ncclCommCuDevice"))
        return SY_ERR_COMM;
    self->common.transport.device = self->rank;
    self->common.transport.one_device = self->cuda_device + 1;
    return SY_OK;
}

/* What this process needs to answer the others. */
static bool can_answer(struct syi_nccl *self)
{
    const size_t each =
        sizeof(struct greeting) > sizeof(struct names) ? sizeof(struct greeting) : sizeof(struct names);
    return syi_nccl_line_open(self, &self->base) &&
           syi_nccl_meeting_open(self, ((size_t)self->n_ranks + 2) * each);
}

/* Everything that can fail in one process alone and needs no other. */
static sy_status prepare(struct syi_nccl *self, char sentence[SYI_SENTENCE])
{
    if (!syi_check_processes("nccl", self->n_ranks, self->common.transport.mesh, sentence))
        return SY_ERR_COMM;
    for (int i = 0; i < SYI_NCCL_LINES; i++)
        if (!syi_nccl_line_open(self, &self->line[i])) {
            memcpy(sentence, self->common.error, SYI_SENTENCE);
            return SY_ERR_COMM;
        }
    return SY_OK;
}

static sy_status open_all(struct syi_nccl *self, const sy_nccl_options *options, sy_status status,
                          char sentence[SYI_SENTENCE])
{
    struct names names;
    if (!can_answer(self)) {
        memcpy(sentence, self->common.error, SYI_SENTENCE);
        return SY_ERR_COMM;
    }
    if (status == SY_OK)
        status = prepare(self, sentence);
    status = meet(self, options, status, sentence);
    if (status != SY_OK)
        return status;
    status = name_lines(self, &names);
    if (status == SY_OK)
        return open_lines(self, names.id, options->max_blocks, sentence);
    memcpy(sentence, self->common.error, SYI_SENTENCE);
    return status;
}

sy_status syi_nccl_open(struct syi_nccl **self, ncclComm_t nccl, sy_mesh mesh, const sy_nccl_options *options,
                        sy_status status, char sentence[SYI_SENTENCE])
{
    const sy_comm_options *const o = &options->comm;
    struct syi_nccl spare = {0}; /* used when allocation fails, to answer the other processes */
    struct syi_nccl *const made = syi_transport_new(o, sizeof *made, &status, sentence);
    struct syi_nccl *const used = made != NULL ? made : &spare;
    *self = NULL;
    fill_in(used, nccl, mesh, o);
    const sy_status read = read_comm(used);
    if (read != SY_OK) {
        memcpy(sentence, used->common.error, SYI_SENTENCE);
        status = read;
    } else {
        const int before = syi_nccl_enter(used);
        status = open_all(used, options, status, sentence);
        syi_nccl_leave(before);
    }
    used->common.error[0] = '\0';
    if (status == SY_OK) {
        used->common.creating = false;
        *self = used;
        return SY_OK;
    }
    used->common.transport.self = made; /* NULL: nothing to free */
    syi_nccl_close(used, true);
    return status;
}

/* ---- The end ---- */

/* Waits until all that was sent has left; NCCL does so together in all processes. False: aborted. */
static bool finalise(struct syi_nccl *self)
{
    const int64_t begin = syi_now_ms();
    ncclResult_t state[SYI_NCCL_LINES];
    bool late = false;
    for (int i = 0; i < SYI_NCCL_LINES; i++)
        state[i] = self->line[i].comm != NULL ? ncclCommFinalize(self->line[i].comm) : ncclSuccess;
    for (int i = 0; i < SYI_NCCL_LINES; i++) {
        while (state[i] == ncclInProgress && !late) {
            if (ncclCommGetAsyncError(self->line[i].comm, &state[i]) != ncclSuccess)
                state[i] = ncclInternalError;
            late = state[i] == ncclInProgress && syi_is_late(&self->common, begin, self->common.error);
        }
        if (self->line[i].comm != NULL && state[i] == ncclSuccess) {
            ncclCommDestroy(self->line[i].comm);
            self->line[i].comm = NULL;
        }
        late = late || state[i] != ncclSuccess;
    }
    return !late;
}

/* Whether the GPU has ended what it had to do in a stream; kernels of an aborted communicator do, soon. */
static bool is_quiet(cudaStream_t stream)
{
    enum { MOST_MS = 2000 };
    const int64_t begin = syi_now_ms();
    while (stream != NULL && cudaStreamQuery(stream) == cudaErrorNotReady) {
        sched_yield();
        if (syi_now_ms() - begin > MOST_MS)
            return false;
    }
    return true;
}

void syi_nccl_close(void *self, bool broken)
{
    struct syi_nccl *const nccl = self;
    const int before = syi_nccl_enter(nccl);
    if (broken || nccl->stopped || !finalise(nccl))
        stop(nccl);
    /* A gather of the caller's communicator that no other process answers ends only with that. Its memory is kept. */
    bool quiet = is_quiet(nccl->base.stream);
    for (int i = 0; i < SYI_NCCL_LINES; i++)
        quiet = is_quiet(nccl->line[i].stream) && quiet;
    if (quiet) {
        for (int i = 0; i <= SYI_NCCL_LINES; i++) {
            cudaStream_t stream = i < SYI_NCCL_LINES ? nccl->line[i].stream : nccl->base.stream;
            if (stream != NULL)
                cudaStreamDestroy(stream);
        }
        syi_nccl_tickets_free(nccl);
    }
    syi_nccl_leave(before);
    if (nccl->common.transport.self != NULL && (quiet || !broken))
        nccl->common.dealloc(nccl->common.alloc_user, self);
}
