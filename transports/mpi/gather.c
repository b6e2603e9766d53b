/*
 * Gathers: one collective each, on the communicator of its channel and axis; short ones of one machine are on the board.
 */
#include "transport.h"

#include <stdatomic.h>

bool syi_mpi_bytes(struct syi_mpi *self, size_t bytes, MPI_Datatype *type, int *count)
{
    *type = MPI_BYTE;
    *count = (int)bytes;
    if (bytes <= self->longest)
        return true;
    /* Whole blocks, then the rest. */
    const size_t blocks = bytes / self->longest;
    MPI_Datatype block = MPI_DATATYPE_NULL;
    MPI_Datatype many = MPI_DATATYPE_NULL;
    bool ok = blocks <= INT_MAX &&
              syi_mpi_ok(self, MPI_Type_contiguous((int)self->longest, MPI_BYTE, &block), "a type") &&
              syi_mpi_ok(self, MPI_Type_contiguous((int)blocks, block, &many), "a type");
    if (ok) {
        const int lengths[2] = {1, (int)(bytes % self->longest)};
        const MPI_Aint places[2] = {0, (MPI_Aint)(blocks * self->longest)};
        const MPI_Datatype types[2] = {many, MPI_BYTE};
        *count = 1;
        ok = syi_mpi_ok(self, MPI_Type_create_struct(2, lengths, places, types, type), "a type") &&
             syi_mpi_ok(self, MPI_Type_commit(type), "a type");
    }
    syi_mpi_bytes_free(&many);
    syi_mpi_bytes_free(&block);
    return ok;
}

void syi_mpi_bytes_free(MPI_Datatype *type)
{
    if (*type != MPI_BYTE && *type != MPI_DATATYPE_NULL)
        MPI_Type_free(type);
}

/* All processes send equally many bytes. */
static bool gather_equal(struct syi_mpi *self, MPI_Comm comm, const void *send, size_t bytes, void *recv,
                         struct syi_mpi_ticket *t)
{
    MPI_Datatype type;
    int count;
    const bool ok =
        syi_mpi_bytes(self, bytes, &type, &count) &&
        syi_mpi_ok(self, MPI_Iallgather(send, count, type, recv, count, type, comm, &t->requests[t->n]),
                   "MPI_Iallgather");
    t->n += ok;
    syi_mpi_bytes_free(&type);
    return ok;
}

static bool gather_ragged(struct syi_mpi *self, MPI_Comm comm, const void *send, size_t bytes, void *recv,
                          const size_t *counts, int n_positions, struct syi_mpi_ticket *t)
{
    int *const lengths = t->counts;
    int *const places = t->counts + n_positions;
    for (int p = 0, used = 0; p < n_positions; p++) {
        lengths[p] = (int)counts[p];
        places[p] = used;
        used += lengths[p];
    }
    const bool ok = syi_mpi_ok(self,
                               MPI_Iallgatherv(send, (int)bytes, MPI_BYTE, recv, lengths, places, MPI_BYTE,
                                               comm, &t->requests[t->n]),
                               "MPI_Iallgatherv");
    t->n += ok;
    return ok;
}

/* For counts and displacements beyond an int: messages, which need neither. */
static bool gather_long(struct syi_mpi *self, MPI_Comm comm, const void *send, size_t bytes, void *recv,
                        const size_t *counts, int n_positions, struct syi_mpi_ticket *t)
{
    unsigned char *to = recv;
    MPI_Datatype type;
    int count;
    bool ok = true;
    for (int p = 0; ok && p < n_positions; to += counts[p], p++)
        if (counts[p] > 0) {
            ok = syi_mpi_bytes(self, counts[p], &type, &count) &&
                 syi_mpi_ok(self, MPI_Irecv(to, count, type, p, 0, comm, &t->requests[t->n]), "MPI_Irecv");
            t->n += ok;
            syi_mpi_bytes_free(&type);
        }
    if (!ok || bytes == 0)
        return ok;
    ok = syi_mpi_bytes(self, bytes, &type, &count);
    for (int p = 0; ok && p < n_positions; p++) {
        ok = syi_mpi_ok(self, MPI_Isend(send, count, type, p, 0, comm, &t->requests[t->n]), "MPI_Isend");
        t->n += ok;
    }
    syi_mpi_bytes_free(&type);
    return ok;
}

sy_status syi_mpi_gather(void *self, int channel, sy_axis axis, const void *send, size_t bytes, void *recv,
                         const size_t *counts, sy_transport_ticket *ticket)
{
    struct syi_mpi *const mpi = self;
    MPI_Comm comm = mpi->gather[channel][axis];
    const int n_positions = syi_common_group_size(&mpi->common, axis);
    size_t total = counts == NULL ? bytes : 0;
    for (int p = 0; counts != NULL && p < n_positions; p++)
        total += counts[p];
    const bool is_long = counts != NULL && total > mpi->longest;
    struct syi_mpi_ticket *t;
    const sy_status status = syi_mpi_ticket_new(mpi, is_long ? 2 * (int64_t)n_positions : 1,
                                                counts != NULL ? 2 * (int64_t)n_positions : 0, &t);
    if (status != SY_OK)
        return status;
    t->fence = true;
    atomic_thread_fence(memory_order_seq_cst); /* writes to shared memory become visible before this */
    bool ok = true;
    if (mpi->board != NULL && counts == NULL && bytes <= SYI_MPI_SHORT &&
        n_positions == syi_common_group_size(&mpi->common, SY_AXIS_ALL)) {
        syi_mpi_board_begin(mpi, channel, send, bytes, recv, t);
    } else if (total == 0) {
        ok = syi_mpi_ok(mpi, MPI_Ibarrier(comm, &t->requests[t->n]), "MPI_Ibarrier");
        t->n += ok;
    } else {
        ok = counts == NULL ? gather_equal(mpi, comm, send, bytes, recv, t)
             : is_long      ? gather_long(mpi, comm, send, bytes, recv, counts, n_positions, t)
                            : gather_ragged(mpi, comm, send, bytes, recv, counts, n_positions, t);
    }
    return syi_mpi_ticket_give(mpi, t, ok, ticket);
}
