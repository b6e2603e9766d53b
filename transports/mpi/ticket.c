/*
 * Tickets: the requests of one gather or exchange. A ticket keeps its arrays, so that a warm path allocates nothing
 * here.
 */
#include "transport.h"

#include <stdatomic.h>
#include <stdio.h>

static void drop(struct syi_mpi *self, void *memory)
{
    if (memory != NULL)
        self->common.dealloc(self->common.alloc_user, memory);
}

/* Memory for `count` items in place of `old`, which is freed. */
static void *renew(struct syi_mpi *self, void *old, int64_t count, size_t size)
{
    drop(self, old);
    return (uint64_t)count > SIZE_MAX / size
               ? NULL
               : self->common.alloc(self->common.alloc_user, (size_t)count * size);
}

static bool make_room(struct syi_mpi *self, struct syi_mpi_ticket *t, int64_t requests, int64_t counts)
{
    if (requests > INT_MAX || counts > INT_MAX)
        return false;
    if (requests > t->room) {
        t->requests = renew(self, t->requests, requests, sizeof *t->requests);
        t->room = t->requests != NULL ? (int)requests : 0;
    }
    if (counts > t->counts_room) {
        t->counts = renew(self, t->counts, counts, sizeof *t->counts);
        t->counts_room = t->counts != NULL ? (int)counts : 0;
    }
    return requests <= t->room && counts <= t->counts_room;
}

static void put_back(struct syi_mpi *self, struct syi_mpi_ticket *t)
{
    t->next = self->free_tickets;
    self->free_tickets = t;
    self->n_open--;
}

/* MPI aborts the process when it is called after MPI_Finalize. */
static bool is_running(struct syi_mpi *self)
{
    int gone = 0;
    MPI_Finalized(&gone);
    if (gone)
        snprintf(self->common.error, sizeof self->common.error, "mpi: MPI is finalised, want it running");
    return !gone;
}

sy_status syi_mpi_ticket_new(struct syi_mpi *self, int64_t requests, int64_t counts,
                             struct syi_mpi_ticket **ticket)
{
    if (!is_running(self))
        return SY_ERR_COMM;
    struct syi_mpi_ticket *t = self->free_tickets;
    if (t != NULL) {
        self->free_tickets = t->next;
    } else if ((t = self->common.alloc(self->common.alloc_user, sizeof *t)) != NULL) {
        *t = (struct syi_mpi_ticket){0};
    } else {
        snprintf(self->common.error, sizeof self->common.error, "mpi: no memory for a ticket");
        return SY_ERR_NOMEM;
    }
    t->n = t->n_ended = 0;
    t->fence = t->on_board = false;
    self->n_open++;
    *ticket = t;
    if (make_room(self, t, requests, counts))
        return SY_OK;
    put_back(self, t);
    snprintf(self->common.error, sizeof self->common.error, "mpi: no memory for %lld requests",
             (long long)requests);
    return SY_ERR_NOMEM;
}

sy_status syi_mpi_ticket_give(struct syi_mpi *self, struct syi_mpi_ticket *made, bool ok,
                              sy_transport_ticket *ticket)
{
    if (ok) {
        ticket->of_transport = made;
        return SY_OK;
    }
    /* The buffers return to the caller, so receives are cancelled. Sends complete by themselves. */
    for (int i = 0; i < made->n; i++) {
        MPI_Cancel(&made->requests[i]);
        MPI_Request_free(&made->requests[i]);
    }
    put_back(self, made);
    return SY_ERR_COMM;
}

/* Requests are tested in order: all must end, so only the first unfinished one needs a test. */
sy_status syi_mpi_test(void *self, sy_transport_ticket *ticket, bool *done)
{
    struct syi_mpi *const mpi = self;
    struct syi_mpi_ticket *const t = ticket->of_transport;
    *done = false;
    if (!is_running(mpi))
        return SY_ERR_COMM;
    if (t->on_board && !syi_mpi_board_test(mpi, t))
        return SY_OK;
    for (; t->n_ended < t->n; t->n_ended++) {
        int ended = 0;
        if (!syi_mpi_ok(mpi, MPI_Test(&t->requests[t->n_ended], &ended, MPI_STATUS_IGNORE), "a transfer"))
            return SY_ERR_COMM;
        if (!ended)
            return SY_OK;
    }
    if (t->fence)
        atomic_thread_fence(memory_order_seq_cst);
    put_back(mpi, t);
    ticket->of_transport = NULL;
    *done = true;
    return SY_OK;
}

void syi_mpi_tickets_free(struct syi_mpi *self)
{
    while (self->free_tickets != NULL) {
        struct syi_mpi_ticket *const t = self->free_tickets;
        self->free_tickets = t->next;
        drop(self, t->requests);
        drop(self, t->counts);
        drop(self, t);
    }
}
