/*
 * Communicators: those of a mesh are made together with the comm, the one moment when all processes are present.
 */
#include "transport.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* What every process sends to all others over the caller's communicator. */
struct greeting {
    int32_t status;
    int32_t rows, cols, check, max_blocks;
    char sentence[SYI_NCCL_SENTENCE];
};

/* What follows when all agree: process 0 gives the ids of the lines. */
struct names {
    int32_t status;
    ncclUniqueId id[SYI_NCCL_LINES];
};

struct record {
    int32_t status;
    char sentence[SYI_NCCL_SENTENCE];
};

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Whether a wait that began then is over. */
static bool is_late(const struct syi_nccl *self, int64_t begin)
{
    sched_yield();
    return self->timeout_ms >= 0 && now_ms() - begin > self->timeout_ms;
}

static sy_status fail_late(struct syi_nccl *self)
{
    snprintf(self->error, sizeof self->error,
             "waited %lld ms for another process, which did not arrive in time", (long long)self->timeout_ms);
    return SY_ERR_TIMEOUT;
}

/* Gathers `bytes` of every process and waits for them, for so much longer than usual. *all: theirs, until the next gather. */
static sy_status gather_now(struct syi_nccl *self, struct syi_nccl_line *line, const void *mine, size_t bytes,
                            int64_t longer_ms, const void **all)
{
    sy_transport_ticket ticket = {0};
    const int64_t begin = now_ms() + longer_ms;
    bool done = false;
    sy_status st = syi_nccl_gather_all(self, line, mine, bytes, NULL, &ticket);
    const struct syi_nccl_ticket *const t = ticket.of_transport;
    while (st == SY_OK && !done) {
        st = syi_nccl_test(self, &ticket, &done);
        if (st == SY_OK && !done && is_late(self, begin))
            st = fail_late(self);
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
                          int64_t longer_ms, char sentence[SYI_NCCL_SENTENCE])
{
    struct record mine = {.status = (int32_t)status};
    const void *all;
    memcpy(mine.sentence, sentence, SYI_NCCL_SENTENCE);
    const sy_status st = gather_now(self, line, &mine, sizeof mine, longer_ms, &all);
    if (st != SY_OK) {
        if (status == SY_OK) /* else it has a reason of its own */
            memcpy(sentence, self->error, SYI_NCCL_SENTENCE);
        return status == SY_OK ? st : status;
    }
    const struct record *const bad = worst(all, self->n_ranks);
    if (bad != NULL)
        memcpy(sentence, bad->sentence, SYI_NCCL_SENTENCE);
    return bad != NULL ? (sy_status)bad->status : SY_OK;
}

sy_status syi_nccl_agree(struct syi_nccl *self, sy_status status, char sentence[SYI_NCCL_SENTENCE])
{
    return agree_on(self, &self->line[SY_CHANNEL_CONTROL], status, 0, sentence);
}

/* ---- All processes meet ------------------------------------------------------------------------------- */

/* The first difference between the greetings, the same in all processes. */
static sy_status compare(const struct greeting *all, int n, char sentence[SYI_NCCL_SENTENCE])
{
    for (int r = 0; r < n; r++)
        if (all[r].status != SY_OK) {
            memcpy(sentence, all[r].sentence, SYI_NCCL_SENTENCE);
            return (sy_status)all[r].status;
        }
    for (int r = 1; r < n; r++) {
        if (all[r].rows != all[0].rows || all[r].cols != all[0].cols)
            snprintf(sentence, SYI_NCCL_SENTENCE,
                     "mesh differs: %dx%d in process 0, %dx%d in process %d, want the same in all processes",
                     all[0].rows, all[0].cols, all[r].rows, all[r].cols, r);
        else if (all[r].check != all[0].check)
            snprintf(sentence, SYI_NCCL_SENTENCE,
                     "check differs: %d in process 0, %d in process %d, want the same in all processes",
                     all[0].check, all[r].check, r);
        else if (all[r].max_blocks != all[0].max_blocks)
            snprintf(sentence, SYI_NCCL_SENTENCE,
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
                      char sentence[SYI_NCCL_SENTENCE])
{
    struct greeting mine = {.status = (int32_t)status,
                            .rows = self->transport.mesh.rows,
                            .cols = self->transport.mesh.cols,
                            .check = (int32_t)o->comm.check,
                            .max_blocks = o->max_blocks};
    const void *all;
    memcpy(mine.sentence, sentence, SYI_NCCL_SENTENCE);
    status = gather_now(self, &self->base, &mine, sizeof mine, 0, &all);
    if (status == SY_OK)
        return compare(all, self->n_ranks, sentence);
    memcpy(sentence, self->error, SYI_NCCL_SENTENCE);
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
        snprintf(self->error, sizeof self->error, "nccl: ncclGetUniqueId failed in process 0");
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
    const int64_t begin = now_ms();
    for (;;) {
        ncclResult_t state = ncclSuccess;
        if (!syi_nccl_ok(self, ncclCommGetAsyncError(line->comm, &state), line->comm,
                         "ncclCommGetAsyncError") ||
            !syi_nccl_ok(self, state, line->comm, "ncclCommInitRankConfig"))
            return SY_ERR_COMM;
        if (state == ncclSuccess)
            return SY_OK;
        if (is_late(self, begin))
            return fail_late(self);
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
                            char sentence[SYI_NCCL_SENTENCE])
{
    sy_status st = SY_OK;
    for (int i = 0; i < SYI_NCCL_LINES; i++) {
        sy_status begun = st;
        if (st == SY_OK) {
            begun = begin_line(self, &self->line[i], &id[i], i == SYI_NCCL_ROWS ? max_blocks : 1);
            memcpy(sentence, self->error, SYI_NCCL_SENTENCE);
        }
        const int64_t longer_ms = i > 0 && self->timeout_ms > 0 ? self->timeout_ms : 0;
        begun = agree_on(self, &self->base, begun, longer_ms, sentence);
        if (begun != SY_OK)
            return begun;
        st = finish_line(self, &self->line[i]);
        memcpy(sentence, self->error, SYI_NCCL_SENTENCE);
        if (st != SY_OK)
            abort_lines(self);
    }
    return agree_on(self, &self->base, st, self->timeout_ms > 0 ? self->timeout_ms : 0, sentence);
}

/* ---- The transport ------------------------------------------------------------------------------------ */

static void stop(void *self)
{
    struct syi_nccl *const nccl = self;
    const int before = syi_nccl_enter(nccl);
    nccl->stopped = true;
    abort_lines(nccl);
    syi_nccl_leave(before);
}

static void destroy(void *self, bool broken)
{
    struct syi_nccl *const nccl = self;
    if (!nccl->creating)
        syi_nccl_close(nccl, broken);
}

static const char *error_of(void *self)
{
    return ((struct syi_nccl *)self)->error;
}

static void fill_in(struct syi_nccl *self, ncclComm_t nccl, sy_mesh mesh, const sy_comm_options *o)
{
    *self = (struct syi_nccl){.transport = {.name = "nccl",
                                            .self = self,
                                            .mesh = mesh,
                                            .gather = syi_nccl_gather,
                                            .exchange = syi_nccl_exchange,
                                            .test = syi_nccl_test,
                                            .destroy = destroy,
                                            .error = error_of,
                                            .device_rows = SY_TRANSPORT_STREAM,
                                            .stop = stop,
                                            .one_order = true},
                              .creating = true,
                              .timeout_ms = o->timeout_ms == 0 ? SY_DEFAULT_TIMEOUT_MS : o->timeout_ms,
                              .base = {.comm = nccl},
                              .alloc = o->alloc,
                              .dealloc = o->dealloc,
                              .alloc_user = o->alloc_user};
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
    self->transport.device = self->rank;
    self->transport.one_device = self->cuda_device + 1;
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
static sy_status prepare(struct syi_nccl *self, char sentence[SYI_NCCL_SENTENCE])
{
    const sy_mesh mesh = self->transport.mesh;
    if (self->n_ranks != mesh.rows * mesh.cols) {
        snprintf(sentence, SYI_NCCL_SENTENCE, "nccl has %d %s, want %d, one for each device of a %dx%d mesh",
                 self->n_ranks, self->n_ranks == 1 ? "process" : "processes", mesh.rows * mesh.cols,
                 mesh.rows, mesh.cols);
        return SY_ERR_COMM;
    }
    for (int i = 0; i < SYI_NCCL_LINES; i++)
        if (!syi_nccl_line_open(self, &self->line[i])) {
            memcpy(sentence, self->error, SYI_NCCL_SENTENCE);
            return SY_ERR_COMM;
        }
    return SY_OK;
}

static sy_status open_all(struct syi_nccl *self, const sy_nccl_options *options, sy_status status,
                          char sentence[SYI_NCCL_SENTENCE])
{
    struct names names;
    if (!can_answer(self)) {
        memcpy(sentence, self->error, SYI_NCCL_SENTENCE);
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
    memcpy(sentence, self->error, SYI_NCCL_SENTENCE);
    return status;
}

sy_status syi_nccl_open(struct syi_nccl **self, ncclComm_t nccl, sy_mesh mesh, const sy_nccl_options *options,
                        sy_status status, char sentence[SYI_NCCL_SENTENCE])
{
    const sy_comm_options *const o = &options->comm;
    struct syi_nccl spare = {.creating =
                                 true}; /* used when allocation fails, to answer the other processes */
    struct syi_nccl *const made = o->alloc(o->alloc_user, sizeof *made);
    struct syi_nccl *const used = made != NULL ? made : &spare;
    *self = NULL;
    if (status == SY_OK && made == NULL) {
        snprintf(sentence, SYI_NCCL_SENTENCE, "a transport could not be allocated");
        status = SY_ERR_NOMEM;
    }
    fill_in(used, nccl, mesh, o);
    const sy_status read = read_comm(used);
    if (read != SY_OK) {
        memcpy(sentence, used->error, SYI_NCCL_SENTENCE);
        status = read;
    } else {
        const int before = syi_nccl_enter(used);
        status = open_all(used, options, status, sentence);
        syi_nccl_leave(before);
    }
    used->error[0] = '\0';
    if (status == SY_OK) {
        used->creating = false;
        *self = used;
        return SY_OK;
    }
    used->transport.self = made; /* NULL: nothing to free */
    syi_nccl_close(used, true);
    return status;
}

/* ---- The end ------------------------------------------------------------------------------------------ */

/* Waits until all that was sent has left; NCCL does so together in all processes. False: aborted. */
static bool finalise(struct syi_nccl *self)
{
    const int64_t begin = now_ms();
    ncclResult_t state[SYI_NCCL_LINES];
    bool late = false;
    for (int i = 0; i < SYI_NCCL_LINES; i++)
        state[i] = self->line[i].comm != NULL ? ncclCommFinalize(self->line[i].comm) : ncclSuccess;
    for (int i = 0; i < SYI_NCCL_LINES; i++) {
        while (state[i] == ncclInProgress && !late) {
            if (ncclCommGetAsyncError(self->line[i].comm, &state[i]) != ncclSuccess)
                state[i] = ncclInternalError;
            late = state[i] == ncclInProgress && is_late(self, begin);
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
    const int64_t begin = now_ms();
    while (stream != NULL && cudaStreamQuery(stream) == cudaErrorNotReady) {
        sched_yield();
        if (now_ms() - begin > MOST_MS)
            return false;
    }
    return true;
}

void syi_nccl_close(struct syi_nccl *self, bool broken)
{
    const int before = syi_nccl_enter(self);
    if (broken || self->stopped || !finalise(self))
        stop(self);
    /* A gather of the caller's communicator that no other process answers ends only with that. Its memory is kept. */
    bool quiet = is_quiet(self->base.stream);
    for (int i = 0; i < SYI_NCCL_LINES; i++)
        quiet = is_quiet(self->line[i].stream) && quiet;
    if (quiet) {
        for (int i = 0; i <= SYI_NCCL_LINES; i++) {
            cudaStream_t stream = i < SYI_NCCL_LINES ? self->line[i].stream : self->base.stream;
            if (stream != NULL)
                cudaStreamDestroy(stream);
        }
        syi_nccl_tickets_free(self);
    }
    syi_nccl_leave(before);
    if (self->transport.self != NULL && (quiet || !broken))
        self->dealloc(self->alloc_user, self);
}
