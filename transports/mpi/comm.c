/*
 * Communicators: those of a mesh are made together with the comm, the one moment when all processes are present.
 */
#include "transport.h"

#include <stdio.h>
#include <string.h>

bool syi_mpi_worked(int code, const char *what, char sentence[SYI_SENTENCE])
{
    if (code == MPI_SUCCESS)
        return true;
    char words[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, words, &length);
    snprintf(sentence, SYI_SENTENCE, "mpi: %s failed: %s", what, words);
    return false;
}

bool syi_mpi_ok(struct syi_mpi *self, int code, const char *what)
{
    if (syi_mpi_worked(code, what, self->common.error))
        return true;
    self->failed = true;
    return false;
}

sy_status syi_mpi_wait(const struct syi_mpi *self, int code, MPI_Request *request, const char *what,
                       char sentence[SYI_SENTENCE])
{
    const int64_t begin = syi_now_ms();
    int done = 0;
    for (int tries = 0; code == MPI_SUCCESS && !done; tries++) {
        code = MPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (tries >= 64 && !done && syi_is_late(&self->common, begin, sentence))
            return SY_ERR_TIMEOUT;
    }
    return syi_mpi_worked(code, what, sentence) ? SY_OK : SY_ERR_COMM;
}

/* The least of the first n numbers of all processes. */
static sy_status least_of(struct syi_mpi *self, int n, char sentence[SYI_SENTENCE])
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int code =
        MPI_Iallreduce(MPI_IN_PLACE, self->buffers.numbers, n, MPI_INT64_T, MPI_MIN, self->base, &request);
    /* syi_mpi_wait waits for it. NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker) */
    return syi_mpi_wait(self, code, &request, "MPI_Iallreduce", sentence);
}

sy_status syi_mpi_agree(void *self, sy_status status, char sentence[SYI_SENTENCE])
{
    struct syi_mpi *const mpi = self;
    struct syi_mpi_buffers *const buffers = &mpi->buffers;
    buffers->record.status = (int)status;
    memcpy(buffers->record.sentence, sentence, SYI_SENTENCE);
    buffers->numbers[0] = status == SY_OK ? INT_MAX : mpi->common.transport.device;
    sy_status st = least_of(mpi, 1, sentence);
    const int64_t first = buffers->numbers[0];
    if (st != SY_OK || first == INT_MAX)
        return st;
    MPI_Request request = MPI_REQUEST_NULL;
    const int code =
        MPI_Ibcast(&buffers->record, (int)sizeof buffers->record, MPI_BYTE, (int)first, mpi->base, &request);
    /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker) */
    st = syi_mpi_wait(mpi, code, &request, "MPI_Ibcast", sentence);
    if (st != SY_OK)
        return st;
    memcpy(sentence, buffers->record.sentence, SYI_SENTENCE);
    return (sy_status)buffers->record.status;
}

/* Collective: whether all processes request the same mesh and the same options that affect the next steps. */
static sy_status same_request(struct syi_mpi *self, const sy_comm_options *o, char sentence[SYI_SENTENCE])
{
    enum { ROWS, COLS, NO_SHARED, CHECK, N };
    _Static_assert((size_t)2 * N <= sizeof self->buffers.numbers / sizeof *self->buffers.numbers, "they fit");
    int64_t *const least = self->buffers.numbers;
    least[ROWS] = self->common.transport.mesh.rows;
    least[COLS] = self->common.transport.mesh.cols;
    least[NO_SHARED] = o->no_shared;
    least[CHECK] = (int64_t)o->check;
    for (int i = 0; i < N; i++)
        least[N + i] = -least[i];
    const sy_status st = least_of(self, 2 * N, sentence);
    if (st != SY_OK)
        return st;
    const int64_t *const most = least + N; /* negated */
    if (least[ROWS] != -most[ROWS] || least[COLS] != -most[COLS])
        snprintf(sentence, SYI_SENTENCE,
                 "mesh differs: from %d to %d rows, from %d to %d columns, want the same in all processes",
                 (int)least[ROWS], (int)-most[ROWS], (int)least[COLS], (int)-most[COLS]);
    else if (least[NO_SHARED] != -most[NO_SHARED])
        snprintf(sentence, SYI_SENTENCE,
                 "no_shared differs: true in some processes and false in others, want the same in all");
    else if (least[CHECK] != -most[CHECK])
        snprintf(sentence, SYI_SENTENCE, "check differs: from %d to %d, want the same in all processes",
                 (int)least[CHECK], (int)-most[CHECK]);
    else
        return SY_OK;
    return SY_ERR_MISMATCH;
}

static void free_comm(MPI_Comm *comm)
{
    if (*comm != MPI_COMM_NULL)
        MPI_Comm_free(comm);
}

/* Whether all processes close it. If one does not, communicators are kept: it may still send to them, and MPI may reuse
   their numbers. */
static bool all_close(struct syi_mpi *self)
{
    MPI_Request request = MPI_REQUEST_NULL;
    if (self->base == MPI_COMM_NULL)
        return true;
    const int code = MPI_Ibarrier(self->base, &request);
    return syi_mpi_wait(self, code, &request, "MPI_Ibarrier", self->common.error) == SY_OK;
}

static bool duplicate(struct syi_mpi *self, MPI_Comm from, MPI_Comm *to)
{
    return syi_mpi_ok(self, MPI_Comm_dup(from, to), "MPI_Comm_dup") &&
           syi_mpi_ok(self, MPI_Comm_set_errhandler(*to, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

/* The grid, its lines, and a copy of each for every channel. */
static bool make_grid(struct syi_mpi *self)
{
    const int dims[2] = {self->common.transport.mesh.rows, self->common.transport.mesh.cols};
    const int periods[2] = {0, 0};
    if (!syi_mpi_ok(self, MPI_Cart_create(self->base, 2, dims, periods, 0, &self->mesh), "MPI_Cart_create") ||
        !syi_mpi_ok(self, MPI_Comm_set_errhandler(self->mesh, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"))
        return false;
    for (int axis = 0; axis < SYI_MPI_AXES; axis++) {
        /* Along axis 0 the row changes, along axis 1 the column. */
        const int remain[2] = {axis != SY_AXIS_1, axis != SY_AXIS_0};
        MPI_Comm *const first = &self->gather[0][axis];
        if (!syi_mpi_ok(self, MPI_Cart_sub(self->mesh, remain, first), "MPI_Cart_sub") ||
            !syi_mpi_ok(self, MPI_Comm_set_errhandler(*first, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler"))
            return false;
        for (int channel = 1; channel < SY_N_CHANNELS; channel++)
            if (!duplicate(self, *first, &self->gather[channel][axis]))
                return false;
    }
    return true;
}

static bool count_tags(struct syi_mpi *self)
{
    int *most = NULL;
    int known = 0;
    if (!syi_mpi_ok(self, MPI_Comm_get_attr(self->mesh, MPI_TAG_UB, &most, &known), "MPI_Comm_get_attr"))
        return false;
    self->n_tags = known && *most > 0 ? (uint64_t)*most + 1 : 1;
    return true;
}

static void fill_in(struct syi_mpi *self, sy_mesh mesh, const sy_comm_options *o)
{
    *self = (struct syi_mpi){.common = syi_common("mpi", self, mesh, o),
                             .longest = INT_MAX,
                             .base = MPI_COMM_NULL,
                             .mesh = MPI_COMM_NULL};
    sy_transport *const t = &self->common.transport;
    t->gather = syi_mpi_gather;
    t->exchange = syi_mpi_exchange;
    t->test = syi_mpi_test;
    self->common.agree = syi_mpi_agree;
    self->common.close = syi_mpi_close;
    for (int channel = 0; channel < SY_N_CHANNELS; channel++)
        for (int axis = 0; axis < SYI_MPI_AXES; axis++)
            self->gather[channel][axis] = MPI_COMM_NULL;
}

/* Collective: whether all processes are present and request the same. */
static sy_status come_together(struct syi_mpi *self, MPI_Comm comm, const sy_comm_options *options,
                               sy_status status, char sentence[SYI_SENTENCE])
{
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Comm_idup(comm, &self->base, &request);
    const sy_status came = syi_mpi_wait(self, code, &request, "MPI_Comm_idup", sentence);
    if (came == SY_ERR_COMM)
        self->base = MPI_COMM_NULL; /* nothing to free */
    if (came != SY_OK)
        return came;
    MPI_Comm_set_errhandler(self->base, MPI_ERRORS_RETURN);
    if (!syi_mpi_worked(MPI_Comm_rank(self->base, &self->common.transport.device), "MPI_Comm_rank", sentence))
        return SY_ERR_COMM;
    status = syi_mpi_agree(self, status, sentence);
    return status == SY_OK ? same_request(self, options, sentence) : status;
}

sy_status syi_mpi_open(struct syi_mpi **self, MPI_Comm comm, sy_mesh mesh, const sy_comm_options *options,
                       sy_status status, char sentence[SYI_SENTENCE])
{
    struct syi_mpi spare; /* used when allocation fails, to answer the other processes */
    struct syi_mpi *const made = syi_transport_new(options, sizeof *made, &status, sentence);
    *self = NULL;
    fill_in(made != NULL ? made : &spare, mesh, options);
    status = come_together(made != NULL ? made : &spare, comm, options, status, sentence);
    if (made == NULL && status != SY_ERR_TIMEOUT && all_close(&spare))
        free_comm(&spare.base);
    if (made == NULL)
        return status;
    if (status == SY_OK) {
        if (!make_grid(made) || !count_tags(made))
            status = SY_ERR_COMM;
        memcpy(sentence, made->common.error, SYI_SENTENCE);
        status = syi_mpi_agree(made, status, sentence);
    }
    bool can_share = false;
    if (status == SY_OK && !options->no_shared) {
        status = syi_mpi_can_share(made, &can_share);
        memcpy(sentence, made->common.error, SYI_SENTENCE);
    }
    if (status != SY_OK) {
        syi_mpi_close(made, status == SY_ERR_TIMEOUT);
        return status;
    }
    if (can_share) {
        sy_transport *const t = &made->common.transport;
        t->share = syi_mpi_share;
        t->attach = syi_mpi_attach;
        t->settle = syi_mpi_settle;
        t->unshare = syi_mpi_unshare;
    }
    made->common.transport.device_rows = syi_mpi_device_rows();
    made->common.error[0] = '\0';
    made->common.creating = false;
    *self = made;
    return SY_OK;
}

void syi_mpi_close(void *self, bool broken)
{
    struct syi_mpi *const mpi = self;
    int gone = 0;
    MPI_Finalized(&gone);
    /* If the other processes do not close, MPI objects are kept until the process ends. So are open tickets: MPI may
       still read their counts. */
    mpi->failed = mpi->failed || broken || gone || mpi->n_open > 0;
    mpi->failed = mpi->failed || !all_close(mpi);
    for (struct syi_mpi_segment *s = mpi->segments; s != NULL; s = s->next)
        syi_mpi_settle(mpi, s);
    if (!mpi->failed) { /* else late messages may still arrive in them */
        while (mpi->segments != NULL)
            syi_mpi_unshare(mpi, mpi->segments);
        for (int channel = 0; channel < SY_N_CHANNELS; channel++)
            for (int axis = 0; axis < SYI_MPI_AXES; axis++)
                free_comm(&mpi->gather[channel][axis]);
        free_comm(&mpi->mesh);
        free_comm(&mpi->base);
        if (mpi->finalise)
            MPI_Finalize();
    }
    syi_mpi_tickets_free(mpi);
    if (!broken || !mpi->common.creating) /* else late messages may still be written to it */
        mpi->common.dealloc(mpi->common.alloc_user, self);
}
