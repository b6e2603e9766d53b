/*
 * Gathers and exchanges as operations of NCCL.
 */
#include "transport.h"

#include <stdio.h>
#include <string.h>

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static void add_message(struct syi_nccl_ticket *t, void *data, size_t bytes, int rank, bool send)
{
    if (bytes > 0)
        t->message[t->n++] = (struct syi_nccl_message){data, bytes, rank, send};
}

/* ---- Gathers ---- */

sy_status syi_nccl_gather_all(struct syi_nccl *self, struct syi_nccl_line *line, const void *send,
                              size_t bytes, void *recv, sy_transport_ticket *ticket)
{
    struct syi_nccl_ticket *t;
    const size_t each = bytes > 0 ? bytes : 1; /* without bytes it ends when all have begun, all the same */
    const size_t total = (size_t)self->n_ranks * each;
    const sy_status st = syi_nccl_ticket_new(self, line, aligned(each) + total, 0, &t);
    if (st != SY_OK)
        return st;
    if (bytes > 0)
        memcpy(t->pinned, send, bytes);
    t->all_bytes = each;
    t->arrives_at = aligned(each);
    t->to = recv;
    t->to_bytes = bytes > 0 && recv != NULL ? total : 0;
    return syi_nccl_begin(self, t, ticket);
}

/* In a part of the mesh, or of different lengths: messages from each to each. */
static sy_status gather_messages(struct syi_nccl *self, struct syi_nccl_line *line, sy_axis axis,
                                 const void *send, size_t bytes, void *recv, const size_t *counts,
                                 sy_transport_ticket *ticket)
{
    const int n = syi_common_group_size(&self->common, axis);
    const size_t each = counts == NULL && bytes == 0; /* as above */
    struct syi_nccl_ticket *t;
    size_t total = 0;
    for (int p = 0; p < n; p++)
        total += counts != NULL ? counts[p] : bytes + each;
    const sy_status st = syi_nccl_ticket_new(self, line, aligned(bytes + each) + total, 2 * (int64_t)n, &t);
    if (st != SY_OK)
        return st;
    if (bytes > 0)
        memcpy(t->pinned, send, bytes);
    t->arrives_at = aligned(bytes + each);
    t->to = recv;
    t->to_bytes = recv != NULL && each == 0 ? total : 0;
    unsigned char *at = t->pinned + t->arrives_at;
    for (int p = 0; p < n; p++) {
        const int rank = syi_common_rank_at(&self->common, axis, p);
        const size_t theirs = counts != NULL ? counts[p] : bytes + each;
        if (rank == self->rank) {
            memcpy(at, t->pinned, theirs);
        } else {
            add_message(t, at, theirs, rank, false);
            add_message(t, t->pinned, bytes + each, rank, true);
        }
        at += theirs;
    }
    return syi_nccl_begin(self, t, ticket);
}

sy_status syi_nccl_gather(void *self, int channel, sy_axis axis, const void *send, size_t bytes, void *recv,
                          const size_t *counts, sy_transport_ticket *ticket)
{
    struct syi_nccl *const nccl = self;
    struct syi_nccl_line *const line = &nccl->line[channel];
    if (channel == SYI_NCCL_ROWS) {
        snprintf(nccl->common.error, sizeof nccl->common.error,
                 "nccl: no memory is shared, so there is no fence");
        return SY_ERR_COMM;
    }
    const int before = syi_nccl_enter(nccl);
    const sy_status st = counts == NULL && syi_common_group_size(&nccl->common, axis) == nccl->n_ranks
                             ? syi_nccl_gather_all(nccl, line, send, bytes, recv, ticket)
                             : gather_messages(nccl, line, axis, send, bytes, recv, counts, ticket);
    syi_nccl_leave(before);
    return st;
}

/* ---- Exchanges ---- */

static int64_t messages_of(const sy_transport_exchange *x, const sy_transport_rows *r)
{
    const int64_t rows = syi_rows_per_message(x, r);
    return r->row_bytes > 0 ? (r->n + rows - 1) / rows : 0;
}

static size_t bytes_of(const sy_transport_rows *r)
{
    return (size_t)r->n * r->row_bytes;
}

/* Bytes next to each other, in messages that both sides split alike. */
static void add_rows(struct syi_nccl_ticket *t, const sy_transport_exchange *x, const sy_transport_rows *r,
                     unsigned char *at, int rank, bool send)
{
    const int64_t most = syi_rows_per_message(x, r);
    for (int64_t i = 0; i < r->n; i += most) {
        const int64_t n = r->n - i < most ? r->n - i : most;
        add_message(t, at + (size_t)i * r->row_bytes, (size_t)n * r->row_bytes, rank, send);
    }
}

static unsigned char *row_at(const sy_transport_rows *r, int64_t i)
{
    return (unsigned char *)r->base + (size_t)(r->rows != NULL ? r->rows[i] : i) * r->stride;
}

static void pack(unsigned char *to, const sy_transport_rows *r)
{
    for (int64_t i = 0; i < r->n; i++)
        memcpy(to + (size_t)i * r->row_bytes, row_at(r, i), r->row_bytes);
}

void syi_nccl_land(const struct syi_nccl_ticket *t)
{
    const unsigned char *from = t->pinned;
    if (t->to == NULL && t->recv == NULL)
        return; /* nothing, or rows on the GPU */
    from += t->arrives_at;
    if (t->to != NULL && t->to_bytes > 0)
        memcpy(t->to, from, t->to_bytes);
    for (int p = 0; t->recv != NULL && p < t->n_positions; p++) {
        const sy_transport_rows *const r = &t->recv[p];
        if (p == t->position || r->n == 0)
            continue;
        for (int64_t i = 0; i < r->n; i++)
            memcpy(row_at(r, i), from + (size_t)i * r->row_bytes, r->row_bytes);
        from += bytes_of(r);
    }
}

/* Rows on the GPU are packed already; those in CPU memory travel through pinned memory. */
static void add_all(struct syi_nccl *self, struct syi_nccl_ticket *t, const sy_transport_exchange *x,
                    bool send)
{
    const sy_transport_rows *const all = send ? x->send : x->recv;
    size_t at = send ? 0 : t->arrives_at;
    for (int p = 0; p < x->n_positions; p++) {
        const sy_transport_rows *const r = &all[p];
        if (p == x->position || r->n == 0)
            continue;
        unsigned char *const rows = x->on_device ? r->base : t->pinned + at;
        if (send && !x->on_device)
            pack(rows, r);
        add_rows(t, x, r, rows, syi_common_rank_at(&self->common, x->axis, p), send);
        at += bytes_of(r);
    }
}

static sy_status exchange(struct syi_nccl *self, const sy_transport_exchange *x, sy_transport_ticket *ticket)
{
    struct syi_nccl_ticket *t;
    size_t sent = 0;
    size_t received = 0;
    int64_t n = 0;
    for (int p = 0; p < x->n_positions; p++) {
        if (p == x->position)
            continue;
        sent += bytes_of(&x->send[p]);
        received += bytes_of(&x->recv[p]);
        n += messages_of(x, &x->send[p]) + messages_of(x, &x->recv[p]);
    }
    const size_t pinned = x->on_device ? 0 : aligned(sent) + received;
    const sy_status st = syi_nccl_ticket_new(self, &self->line[SYI_NCCL_ROWS], pinned, n, &t);
    if (st != SY_OK)
        return st;
    t->arrives_at = aligned(sent);
    t->recv = x->on_device ? NULL : x->recv;
    t->n_positions = x->n_positions;
    t->position = x->position;
    t->waits = x->on_device;
    if (t->waits &&
        !syi_nccl_cuda_ok(self, cudaEventRecord(t->ready, (cudaStream_t)x->stream), "cudaEventRecord")) {
        syi_nccl_ticket_drop(self, t);
        return SY_ERR_COMM;
    }
    add_all(self, t, x, true);
    add_all(self, t, x, false);
    self->sent_bytes += sent;
    return syi_nccl_begin(self, t, ticket);
}

sy_status syi_nccl_exchange(void *self, const sy_transport_exchange *x, sy_transport_ticket *ticket)
{
    struct syi_nccl *const nccl = self;
    const int before = syi_nccl_enter(nccl);
    const sy_status st = exchange(nccl, x, ticket);
    syi_nccl_leave(before);
    return st;
}
