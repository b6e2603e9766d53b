/*
 * Exchanges: rows are sent as messages from tensor to tensor. A list of rows is an indexed type of MPI, so nothing is
 * packed here. Both sides of a pair split its rows at the same places; the messages of a pair have the same tag and are
 * matched by their order.
 */
#include "transport.h"

/* How the rows of one pair are split: into runs, and these into messages. */
struct cut {
    int64_t runs;
    int64_t rows_per_message;
};

static struct cut cut_of(const sy_transport_exchange *x, const sy_transport_rows *r)
{
    const int64_t runs = r->row_bytes == 0 ? 0 : x->num_links < r->n ? x->num_links : r->n;
    return (struct cut){runs, syi_rows_per_message(x, r)};
}

/* The first row of a run; for run `runs` the end. */
static int64_t run_begin(int64_t n, int64_t runs, int64_t run)
{
    const int64_t rest = n % runs;
    return n / runs * run + (run < rest ? run : rest);
}

static int64_t messages_of(const sy_transport_exchange *x, const sy_transport_rows *r)
{
    const struct cut cut = cut_of(x, r);
    int64_t n = 0;
    for (int64_t run = 0; run < cut.runs; run++) {
        const int64_t rows = run_begin(r->n, cut.runs, run + 1) - run_begin(r->n, cut.runs, run);
        n += rows / cut.rows_per_message + (rows % cut.rows_per_message > 0);
    }
    return n;
}

/* The i-th peer, 1 <= i < n: each process begins with a different one. On a ring the nearest ones on both sides come
   first. `direction` is 1 for the peers we send to and -1 for those we receive from, which send to us in that step. */
static int peer_at(const sy_transport_exchange *x, int i, int direction)
{
    const bool ring = x->topology == SY_TOPOLOGY_RING || x->topology == SY_TOPOLOGY_TORUS;
    const int step = !ring ? i : i % 2 != 0 ? (i + 1) / 2 : -(i / 2);
    return (x->position + direction * step + x->n_positions) % x->n_positions;
}

/* The type of one row, with the stride of rows in memory as its extent. */
static bool row_type(struct syi_mpi *self, const sy_transport_rows *r, MPI_Datatype *row)
{
    MPI_Datatype bytes;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    int count;
    *row = MPI_DATATYPE_NULL;
    const bool ok = syi_mpi_bytes(self, r->row_bytes, &bytes, &count) &&
                    syi_mpi_ok(self, MPI_Type_contiguous(count, bytes, &type), "a type") &&
                    syi_mpi_ok(self, MPI_Type_create_resized(type, 0, (MPI_Aint)r->stride, row), "a type") &&
                    syi_mpi_ok(self, MPI_Type_commit(row), "a type");
    syi_mpi_bytes_free(&type);
    syi_mpi_bytes_free(&bytes);
    return ok;
}

/* One message: `n` rows from the `begin`-th on. */
static bool post(struct syi_mpi *self, const sy_transport_rows *r, MPI_Datatype row, int64_t begin, int n,
                 bool send, int rank, int tag, MPI_Request *request)
{
    unsigned char *base = r->base;
    MPI_Datatype type = row;
    if (r->rows == NULL) {
        base += (size_t)begin * r->stride;
    } else {
        if (!syi_mpi_ok(self, MPI_Type_create_indexed_block(n, 1, r->rows + begin, row, &type), "a type"))
            return false;
        if (!syi_mpi_ok(self, MPI_Type_commit(&type), "a type"))
            n = -1;
    }
    const int count = r->rows == NULL ? n : 1;
    const bool ok =
        n >= 0 &&
        (send ? syi_mpi_ok(self, MPI_Isend(base, count, type, rank, tag, self->mesh, request), "MPI_Isend")
              : syi_mpi_ok(self, MPI_Irecv(base, count, type, rank, tag, self->mesh, request), "MPI_Irecv"));
    if (r->rows != NULL)
        MPI_Type_free(&type);
    return ok;
}

/* All messages of one pair in one direction. */
static bool post_pair(struct syi_mpi *self, const sy_transport_exchange *x, int peer, bool send,
                      struct syi_mpi_ticket *t)
{
    const sy_transport_rows *const r = send ? &x->send[peer] : &x->recv[peer];
    const struct cut cut = cut_of(x, r);
    const int rank = syi_common_rank_at(&self->common, x->axis, peer);
    const int tag = (int)(x->number % self->n_tags);
    MPI_Datatype row = MPI_DATATYPE_NULL;
    bool ok = cut.runs == 0 || row_type(self, r, &row);
    for (int64_t run = 0; ok && run < cut.runs; run++) {
        const int64_t end = run_begin(r->n, cut.runs, run + 1);
        for (int64_t i = run_begin(r->n, cut.runs, run); ok && i < end; i += cut.rows_per_message) {
            const int64_t n = end - i < cut.rows_per_message ? end - i : cut.rows_per_message;
            ok = post(self, r, row, i, (int)n, send, rank, tag, &t->requests[t->n]);
            t->n += ok;
        }
    }
    syi_mpi_bytes_free(&row);
    return ok;
}

sy_status syi_mpi_exchange(void *self, const sy_transport_exchange *exchange, sy_transport_ticket *ticket)
{
    struct syi_mpi *const mpi = self;
    int64_t n = 0;
    for (int p = 0; p < exchange->n_positions; p++)
        if (p != exchange->position)
            n += messages_of(exchange, &exchange->send[p]) + messages_of(exchange, &exchange->recv[p]);
    struct syi_mpi_ticket *t;
    const sy_status status = syi_mpi_ticket_new(mpi, n, 0, &t);
    if (status != SY_OK)
        return status;
    bool ok = true;
    for (int i = 1; ok && i < exchange->n_positions; i++)
        ok = post_pair(mpi, exchange, peer_at(exchange, i, -1), false, t);
    for (int i = 1; ok && i < exchange->n_positions; i++)
        ok = post_pair(mpi, exchange, peer_at(exchange, i, 1), true, t);
    return syi_mpi_ticket_give(mpi, t, ok, ticket);
}
