/*
 * sy_comm_create_mpi. All processes return the same status, so an error in one of them is agreed upon before anything
 * is kept.
 */
#include "transport.h"

#include "../common/common.h"

/* State of one creation. */
struct creation {
    sy_mpi_options options;
    bool initialised; /* by this call */
    struct syi_creation of;
};

/* Afterwards MPI is running, or this process has failed on its own. */
static bool start_mpi(struct creation *c)
{
    int running = 0;
    int gone = 0;
    MPI_Initialized(&running);
    MPI_Finalized(&gone);
    if (gone) {
        syi_creation_reject(&c->of, SY_ERR_COMM, "MPI is finalised, want it running");
        return false;
    }
    if (running)
        return true;
    if (!c->options.init) {
        syi_creation_reject(&c->of, SY_ERR_COMM,
                            "MPI is not initialised, want MPI_Init before, or options.init");
        return false;
    }
    /* One thread at a time uses a comm, but not always the same one. */
    int level;
    c->initialised = syi_mpi_worked(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level),
                                    "MPI_Init_thread", c->of.sentence);
    c->of.status = c->initialised ? c->of.status : SY_ERR_COMM;
    return c->initialised;
}

static bool check_comm(struct creation *c, MPI_Comm comm)
{
    int inter = 0;
    if (comm == MPI_COMM_NULL)
        syi_creation_reject(&c->of, SY_ERR_COMM, "mpi_comm is MPI_COMM_NULL, want a communicator");
    else if (!syi_mpi_worked(MPI_Comm_test_inter(comm, &inter), "MPI_Comm_test_inter", c->of.sentence))
        c->of.status = SY_ERR_COMM;
    else if (inter)
        syi_creation_reject(&c->of, SY_ERR_COMM, "mpi_comm joins two groups, want one");
    else
        return true;
    return false;
}

static void check_mesh(struct creation *c, MPI_Comm comm, sy_mesh mesh)
{
    char words[SYI_SENTENCE];
    int n = 0;
    if (!syi_creation_check_mesh(&c->of, mesh))
        return;
    if (!syi_mpi_worked(MPI_Comm_size(comm, &n), "MPI_Comm_size", c->of.sentence))
        c->of.status = SY_ERR_COMM;
    else if (!syi_check_processes("mpi_comm", n, mesh, words))
        syi_creation_reject(&c->of, SY_ERR_COMM, words);
}

static sy_status create(struct creation *c, sy_comm **comm, MPI_Comm mpi_comm, sy_mesh mesh)
{
    struct syi_mpi *mpi = NULL;
    sy_comm *made = NULL;
    if (comm == NULL)
        syi_creation_reject(&c->of, SY_ERR_NULL, "comm is NULL, want a place for the comm");
    if (check_comm(c, mpi_comm)) {
        check_mesh(c, mpi_comm, mesh);
        c->of.status = syi_mpi_open(&mpi, mpi_comm, mesh, &c->options.comm, c->of.status, c->of.sentence);
        if (c->of.status == SY_OK)
            syi_creation_make_comm(&c->of, &mpi->common, &c->options.comm, &made);
        if (made != NULL)
            mpi->finalise = c->initialised;
    }
    if (comm != NULL)
        *comm = made;
    if (c->of.status != SY_OK && c->initialised)
        MPI_Finalize();
    return c->of.status;
}

static struct creation begin(sy_comm **comm, const sy_mpi_options *options, size_t options_bytes)
{
    struct creation c = {.of = {.status = SY_OK}};
    if (comm != NULL)
        *comm = NULL;
    syi_creation_read(&c.of, &c.options, sizeof c.options, &c.options.comm, options, options_bytes);
    return c;
}

sy_status sy_comm_create_mpi_n(sy_comm **comm, MPI_Comm mpi_comm, sy_mesh mesh, const sy_mpi_options *options,
                               size_t options_bytes)
{
    struct creation c = begin(comm, options, options_bytes);
    if (start_mpi(&c))
        create(&c, comm, mpi_comm, mesh);
    return syi_creation_report(&c.of, "sy_comm_create_mpi");
}

sy_status sy_comm_create_mpi_f_n(sy_comm **comm, MPI_Fint mpi_comm, sy_mesh mesh,
                                 const sy_mpi_options *options, size_t options_bytes)
{
    struct creation c = begin(comm, options, options_bytes);
    if (start_mpi(&c)) /* handles are invalid before */
        create(&c, comm, MPI_Comm_f2c(mpi_comm), mesh);
    return syi_creation_report(&c.of, "sy_comm_create_mpi");
}
