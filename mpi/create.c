/*
 * sy_comm_create_mpi. All processes return the same status, so an error in one of them is agreed upon before anything
 * is kept.
 */
#include "transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *alloc_default(void *user, size_t bytes)
{
    (void)user;
    return malloc(bytes);
}

static void free_default(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

/* State of one creation. */
struct creation {
    sy_mpi_options options;
    char *error; /* the caller's */
    size_t error_bytes;
    bool initialised; /* by this call */
    sy_status status; /* of this process so far */
    char sentence[SYI_MPI_SENTENCE];
};

static sy_status reject(struct creation *c, sy_status status, const char *sentence)
{
    if (c->status == SY_OK) {
        c->status = status;
        snprintf(c->sentence, sizeof c->sentence, "%s", sentence);
    }
    return c->status;
}

static void read_options(struct creation *c, const sy_mpi_options *options, size_t options_bytes)
{
    sy_mpi_options *const o = &c->options;
    if (options != NULL) {
        memcpy(o, options, options_bytes < sizeof *o ? options_bytes : sizeof *o);
        for (size_t i = sizeof *o; i < options_bytes; i++)
            if (((const unsigned char *)options)[i] != 0)
                reject(c, SY_ERR_UNSUPPORTED, "options set a field this library does not know");
    }
    c->error = o->comm.error;
    c->error_bytes = o->comm.error_bytes;
    if ((o->comm.alloc == NULL) != (o->comm.dealloc == NULL))
        reject(c, SY_ERR_NULL,
               o->comm.alloc == NULL ? "alloc is NULL, want alloc and dealloc"
                                     : "dealloc is NULL, want alloc and dealloc");
    if (o->comm.alloc == NULL || o->comm.dealloc == NULL) {
        o->comm.alloc = alloc_default;
        o->comm.dealloc = free_default;
    }
}

/* Afterwards MPI is running, or this process has failed on its own. */
static bool start_mpi(struct creation *c)
{
    int running = 0;
    int gone = 0;
    MPI_Initialized(&running);
    MPI_Finalized(&gone);
    if (gone) {
        reject(c, SY_ERR_COMM, "MPI is finalised, want it running");
        return false;
    }
    if (running)
        return true;
    if (!c->options.init) {
        reject(c, SY_ERR_COMM, "MPI is not initialised, want MPI_Init before, or options.init");
        return false;
    }
    /* One thread at a time uses a comm, but not always the same one. */
    int level;
    c->initialised = syi_mpi_worked(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level),
                                    "MPI_Init_thread", c->sentence);
    c->status = c->initialised ? c->status : SY_ERR_COMM;
    return c->initialised;
}

static bool check_comm(struct creation *c, MPI_Comm comm)
{
    int inter = 0;
    if (comm == MPI_COMM_NULL)
        reject(c, SY_ERR_COMM, "mpi_comm is MPI_COMM_NULL, want a communicator");
    else if (!syi_mpi_worked(MPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter", c->sentence))
        c->status = SY_ERR_COMM;
    else if (inter)
        reject(c, SY_ERR_COMM, "mpi_comm joins two groups, want one");
    else
        return true;
    return false;
}

static void check_mesh(struct creation *c, MPI_Comm comm, sy_mesh mesh)
{
    char words[160];
    int n = 0;
    if (mesh.rows < 1 || mesh.cols < 1 || mesh.rows > SYI_MPI_DEVICES / mesh.cols) {
        snprintf(words, sizeof words, "mesh is %d x %d, want at least 1 x 1 and at most %d devices",
                 mesh.rows, mesh.cols, SYI_MPI_DEVICES);
        reject(c, SY_ERR_VALUE, words);
    } else if (!syi_mpi_worked(MPI_Comm_size(comm, &n), "MPI_Comm_size", c->sentence)) {
        c->status = SY_ERR_COMM;
    } else if (n != mesh.rows * mesh.cols) {
        snprintf(words, sizeof words, "mpi_comm has %d %s, want %d, one for each device of a %dx%d mesh", n,
                 n == 1 ? "process" : "processes", mesh.rows * mesh.cols, mesh.rows, mesh.cols);
        reject(c, SY_ERR_COMM, words);
    }
}

/* Collective. The core owns the transport from here on, but a process whose core rejected it must not free it before
   the others know: until all agree, destroy does nothing. */
static void make_comm(struct creation *c, struct syi_mpi *mpi, sy_comm **comm)
{
    c->options.comm.error = c->sentence;
    c->options.comm.error_bytes = sizeof c->sentence;
    mpi->creating = true;
    c->status = sy_comm_create(comm, &mpi->transport, &c->options.comm);
    c->status = syi_mpi_agree(mpi, c->status, c->sentence);
    if (c->status != SY_OK) {
        sy_comm_destroy(*comm);
        *comm = NULL;
        syi_mpi_close(mpi, c->status == SY_ERR_TIMEOUT);
    } else {
        mpi->creating = false;
        mpi->finalise = c->initialised;
    }
}

static sy_status create(struct creation *c, sy_comm **comm, MPI_Comm mpi_comm, sy_mesh mesh)
{
    struct syi_mpi *mpi = NULL;
    sy_comm *made = NULL;
    if (comm == NULL)
        reject(c, SY_ERR_NULL, "comm is NULL, want a place for the comm");
    if (check_comm(c, mpi_comm)) {
        check_mesh(c, mpi_comm, mesh);
        c->status = syi_mpi_open(&mpi, mpi_comm, mesh, &c->options.comm, c->status, c->sentence);
        if (c->status == SY_OK)
            make_comm(c, mpi, &made);
    }
    if (comm != NULL)
        *comm = made;
    if (c->status != SY_OK && c->initialised)
        MPI_Finalize();
    return c->status;
}

/* The common result of all processes. A sentence of the core already begins with its own name. */
static sy_status report(const struct creation *c)
{
    const bool named = strncmp(c->sentence, "sy_comm_create", strlen("sy_comm_create")) == 0;
    if (c->error != NULL && c->error_bytes > 0)
        snprintf(c->error, c->error_bytes, "%s%s", c->status == SY_OK || named ? "" : "sy_comm_create_mpi: ",
                 c->status == SY_OK ? "" : c->sentence);
    return c->status;
}

sy_status sy_comm_create_mpi_n(sy_comm **comm, MPI_Comm mpi_comm, sy_mesh mesh, const sy_mpi_options *options,
                               size_t options_bytes)
{
    struct creation c = {.status = SY_OK};
    if (comm != NULL)
        *comm = NULL;
    read_options(&c, options, options_bytes);
    if (start_mpi(&c))
        create(&c, comm, mpi_comm, mesh);
    return report(&c);
}

sy_status sy_comm_create_mpi_f_n(sy_comm **comm, MPI_Fint mpi_comm, sy_mesh mesh,
                                 const sy_mpi_options *options, size_t options_bytes)
{
    struct creation c = {.status = SY_OK};
    if (comm != NULL)
        *comm = NULL;
    read_options(&c, options, options_bytes);
    if (start_mpi(&c)) /* handles are invalid before */
        create(&c, comm, MPI_Comm_f2c(mpi_comm), mesh);
    return report(&c);
}
