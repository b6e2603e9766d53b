/*
 * Communicators: those of a mesh are made when the comm is, since only then all processes come together.
 */
#include "transport.h"

#include <stdio.h>
#include <string.h>

bool syi_mpi_worked(int code, const char *what, char sentence[SYI_MPI_SENTENCE])
{
    if (code == MPI_SUCCESS)
        return true;
    char words[MPI_MAX_ERROR_STRING] = "unknown error";
    int length = 0;
    MPI_Error_string(code, words, &length);
    snprintf(sentence, SYI_MPI_SENTENCE, "mpi: %s failed: %s", what, words);
    return false;
}

bool syi_mpi_ok(struct syi_mpi *self, int code, const char *what)
{
    if (syi_mpi_worked(code, what, self->error))
        return true;
    self->failed = true;
    return false;
}

sy_status syi_mpi_agree(MPI_Comm comm, sy_status status, char sentence[SYI_MPI_SENTENCE])
{
    struct {
        int status;
        char sentence[SYI_MPI_SENTENCE];
    } story = {(int)status, ""};
    int rank = 0;
    int first;
    memcpy(story.sentence, sentence, SYI_MPI_SENTENCE);
    if (!syi_mpi_worked(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank", sentence))
        return SY_ERR_COMM;
    first = status == SY_OK ? INT_MAX : rank;
    if (!syi_mpi_worked(MPI_Allreduce(MPI_IN_PLACE, &first, 1, MPI_INT, MPI_MIN, comm), "MPI_Allreduce",
                        sentence))
        return SY_ERR_COMM;
    if (first == INT_MAX)
        return SY_OK;
    if (!syi_mpi_worked(MPI_Bcast(&story, (int)sizeof story, MPI_BYTE, first, comm), "MPI_Bcast", sentence))
        return SY_ERR_COMM;
    memcpy(sentence, story.sentence, SYI_MPI_SENTENCE);
    return (sy_status)story.status;
}

/* Collective: whether all processes ask for the same mesh. */
static sy_status same_mesh(MPI_Comm comm, sy_mesh mesh, char sentence[SYI_MPI_SENTENCE])
{
    int least[4] = {mesh.rows, mesh.cols, -mesh.rows, -mesh.cols};
    if (!syi_mpi_worked(MPI_Allreduce(MPI_IN_PLACE, least, 4, MPI_INT, MPI_MIN, comm), "MPI_Allreduce",
                        sentence))
        return SY_ERR_COMM;
    if (least[0] == -least[2] && least[1] == -least[3])
        return SY_OK;
    snprintf(sentence, SYI_MPI_SENTENCE,
             "mesh differs: from %d to %d rows, from %d to %d columns, want the same in all processes",
             least[0], -least[2], least[1], -least[3]);
    return SY_ERR_MISMATCH;
}

static bool duplicate(struct syi_mpi *self, MPI_Comm from, MPI_Comm *to)
{
    return syi_mpi_ok(self, MPI_Comm_dup(from, to), "MPI_Comm_dup") &&
           syi_mpi_ok(self, MPI_Comm_set_errhandler(*to, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

/* The grid, its lines, and a copy of each for every channel. */
static bool make_grid(struct syi_mpi *self)
{
    const int dims[2] = {self->door.mesh.rows, self->door.mesh.cols};
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
    self->n_tags = known ? ((int64_t)*most + 1) / SYI_MPI_TAGS : 1;
    self->n_tags = self->n_tags < 1 ? 1 : self->n_tags;
    return true;
}

static void destroy(void *self, bool broken)
{
    struct syi_mpi *const mpi = self;
    if (!mpi->creating)
        syi_mpi_close(mpi, broken);
}

static const char *error_of(void *self)
{
    return ((struct syi_mpi *)self)->error;
}

static void fill_in(struct syi_mpi *self, MPI_Comm base, sy_mesh mesh, const sy_comm_options *o)
{
    *self = (struct syi_mpi){.door = {.name = "mpi",
                                      .self = self,
                                      .mesh = mesh,
                                      .gather = syi_mpi_gather,
                                      .exchange = syi_mpi_exchange,
                                      .test = syi_mpi_test,
                                      .destroy = destroy,
                                      .error = error_of},
                             .longest = INT_MAX,
                             .base = base,
                             .mesh = MPI_COMM_NULL,
                             .node = MPI_COMM_NULL,
                             .alloc = o->alloc,
                             .dealloc = o->dealloc,
                             .alloc_user = o->alloc_user};
    for (int channel = 0; channel < SY_N_CHANNELS; channel++)
        for (int axis = 0; axis < SYI_MPI_AXES; axis++)
            self->gather[channel][axis] = MPI_COMM_NULL;
}

sy_status syi_mpi_open(struct syi_mpi **self, MPI_Comm comm, sy_mesh mesh, const sy_comm_options *options,
                       sy_status status, char sentence[SYI_MPI_SENTENCE])
{
    MPI_Comm base = MPI_COMM_NULL;
    *self = NULL;
    if (!syi_mpi_worked(MPI_Comm_dup(comm, &base), "MPI_Comm_dup", sentence))
        return SY_ERR_COMM;
    MPI_Comm_set_errhandler(base, MPI_ERRORS_RETURN);
    struct syi_mpi *const made = status == SY_OK ? options->alloc(options->alloc_user, sizeof *made) : NULL;
    if (status == SY_OK && made == NULL) {
        snprintf(sentence, SYI_MPI_SENTENCE, "a transport could not be allocated");
        status = SY_ERR_NOMEM;
    }
    status = syi_mpi_agree(base, status, sentence);
    if (status == SY_OK)
        status = same_mesh(base, mesh, sentence);
    if (status != SY_OK || made == NULL) {
        if (made != NULL)
            options->dealloc(options->alloc_user, made);
        MPI_Comm_free(&base);
        return status;
    }
    fill_in(made, base, mesh, options);
    if (!syi_mpi_ok(made, MPI_Comm_rank(base, &made->door.device), "MPI_Comm_rank") || !make_grid(made) ||
        !count_tags(made))
        status = SY_ERR_COMM;
    memcpy(sentence, made->error, SYI_MPI_SENTENCE);
    status = syi_mpi_agree(base, status, sentence);
    if (status != SY_OK) {
        syi_mpi_close(made, false);
        return status;
    }
    if (!options->no_shared && syi_mpi_can_share(made)) {
        made->door.share = syi_mpi_share;
        made->door.unshare = syi_mpi_unshare;
    }
    made->error[0] = '\0';
    *self = made;
    return SY_OK;
}

static void free_comm(MPI_Comm *comm)
{
    if (*comm != MPI_COMM_NULL)
        MPI_Comm_free(comm);
}

void syi_mpi_close(struct syi_mpi *self, bool broken)
{
    int gone = 0;
    MPI_Finalized(&gone);
    /* Without the others MPI keeps what it holds until the process ends, and so do tickets that are open: it may
       still look at their counts. */
    self->failed = self->failed || broken || gone || self->n_open > 0;
    while (self->segments != NULL)
        syi_mpi_unshare(self, self->segments);
    if (!self->failed) {
        for (int channel = 0; channel < SY_N_CHANNELS; channel++)
            for (int axis = 0; axis < SYI_MPI_AXES; axis++)
                free_comm(&self->gather[channel][axis]);
        free_comm(&self->node);
        free_comm(&self->mesh);
        free_comm(&self->base);
        if (self->finalise)
            MPI_Finalize();
    }
    syi_mpi_tickets_free(self);
    self->dealloc(self->alloc_user, self);
}
