/*
 * Memory that the processes of one machine share: windows of MPI, open to everybody for as long as they live.
 */
#include "transport.h"

#include <stdio.h>

/* Collective: whether it is true in all processes. */
static bool all_true(struct syi_mpi *self, bool mine)
{
    int ours = mine;
    return syi_mpi_ok(self, MPI_Allreduce(MPI_IN_PLACE, &ours, 1, MPI_INT, MPI_LAND, self->base),
                      "MPI_Allreduce") &&
           ours != 0;
}

/* Collective over the node: a window of `bytes` here, or none in any process. */
static bool open_window(struct syi_mpi *self, size_t bytes, MPI_Win *window, void **own)
{
    *window = MPI_WIN_NULL;
    char *words = self->error; /* a refusal is no failure: messages remain */
    bool ok =
        syi_mpi_worked(MPI_Win_allocate_shared((MPI_Aint)bytes, 1, MPI_INFO_NULL, self->node, own, window),
                       "MPI_Win_allocate_shared", words);
    if (ok) {
        MPI_Win_set_errhandler(*window, MPI_ERRORS_RETURN);
        ok = syi_mpi_worked(MPI_Win_lock_all(MPI_MODE_NOCHECK, *window), "MPI_Win_lock_all", words);
    }
    return all_true(self, ok); /* a window that only some have cannot be freed; it ends with the process */
}

static bool close_window(struct syi_mpi *self, MPI_Win *window)
{
    return syi_mpi_ok(self, MPI_Win_unlock_all(*window), "MPI_Win_unlock_all") &&
           syi_mpi_ok(self, MPI_Win_free(window), "MPI_Win_free");
}

bool syi_mpi_can_share(struct syi_mpi *self)
{
    int n = 0;
    bool ok = syi_mpi_ok(self,
                         MPI_Comm_split_type(self->base, MPI_COMM_TYPE_SHARED, self->door.device,
                                             MPI_INFO_NULL, &self->node),
                         "MPI_Comm_split_type") &&
              syi_mpi_ok(self, MPI_Comm_size(self->node, &n), "MPI_Comm_size");
    ok = all_true(self, ok && n == syi_mpi_group_size(self, SY_AXIS_ALL));
    /* Machines where the memory cannot be had, containers without /dev/shm among them, are found out now. */
    MPI_Win window;
    void *own;
    if (ok && MPI_Comm_set_errhandler(self->node, MPI_ERRORS_RETURN) == MPI_SUCCESS &&
        open_window(self, SYI_MPI_ALIGN, &window, &own) && close_window(self, &window))
        return true;
    if (self->node != MPI_COMM_NULL)
        MPI_Comm_free(&self->node);
    return false;
}

/* Where each device's memory begins here. Its owner aligns it and tells the others by how much. */
static bool find_bases(struct syi_mpi *self, MPI_Win window, const void *own, void **base)
{
    const uintptr_t skip = (SYI_MPI_ALIGN - (uintptr_t)own % SYI_MPI_ALIGN) % SYI_MPI_ALIGN;
    const int bytes = (int)sizeof skip;
    bool ok = syi_mpi_ok(self, MPI_Allgather(&skip, bytes, MPI_BYTE, base, bytes, MPI_BYTE, self->base),
                         "MPI_Allgather");
    const int n = syi_mpi_group_size(self, SY_AXIS_ALL);
    for (int d = 0; ok && d < n; d++) {
        const uintptr_t skip_of_d = (uintptr_t)base[d];
        MPI_Aint segment_bytes;
        int unit;
        void *begin = NULL;
        ok = syi_mpi_ok(self, MPI_Win_shared_query(window, d, &segment_bytes, &unit, &begin),
                        "MPI_Win_shared_query");
        base[d] = (unsigned char *)begin + skip_of_d;
    }
    return ok;
}

sy_status syi_mpi_share(void *self, size_t bytes, void **base, void **segment)
{
    struct syi_mpi *const mpi = self;
    *segment = NULL;
    struct syi_mpi_segment *const made = mpi->alloc(mpi->alloc_user, sizeof *made);
    const size_t most = (size_t)PTRDIFF_MAX / (size_t)syi_mpi_group_size(mpi, SY_AXIS_ALL) - SYI_MPI_ALIGN;
    snprintf(mpi->error, sizeof mpi->error, "mpi: no shared memory, %zu bytes asked for in this process",
             bytes);
    void *own = NULL;
    bool ok = all_true(mpi, made != NULL && bytes <= most) && made != NULL &&
              open_window(mpi, bytes + SYI_MPI_ALIGN, &made->window, &own);
    ok = ok && find_bases(mpi, made->window, own, base);
    if (!ok) {
        if (made != NULL)
            mpi->dealloc(mpi->alloc_user, made);
        return mpi->failed ? SY_ERR_COMM : SY_ERR_NOMEM;
    }
    made->next = mpi->segments;
    mpi->segments = made;
    *segment = made;
    return SY_OK;
}

sy_status syi_mpi_unshare(void *self, void *segment)
{
    struct syi_mpi *const mpi = self;
    struct syi_mpi_segment *const gone = segment;
    struct syi_mpi_segment **link = &mpi->segments;
    while (*link != gone)
        link = &(*link)->next;
    *link = gone->next;
    const bool ok = !mpi->failed && close_window(mpi, &gone->window);
    mpi->dealloc(mpi->alloc_user, gone);
    return ok ? SY_OK : SY_ERR_COMM;
}

bool syi_mpi_synchronise(struct syi_mpi *self)
{
    bool ok = true;
    for (const struct syi_mpi_segment *s = self->segments; ok && s != NULL; s = s->next)
        ok = syi_mpi_ok(self, MPI_Win_sync(s->window), "MPI_Win_sync");
    return ok;
}
