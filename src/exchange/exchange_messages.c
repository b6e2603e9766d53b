/*
 * Rows in messages: from tensor to tensor, or packed. Those on a GPU are packed there, and travel through memory of their own.
 */
#include "exchange/exchange.h"

void syi_exchange_pack_choices(sy_request *r)
{
    const struct syi_a2a_shard *shard = &r->shard[0];
    const size_t row_bytes = syi_exchange_choice_bytes(&r->x);
    const struct syi_rows to = {r->lists.mine_raw, (int64_t)row_bytes};
    syi_a2a_pack(r->ctx, to, shard->read, NULL, shard->n_tokens, row_bytes);
    r->now.choices_packed = true;
}

sy_status syi_exchange_load_choices(sy_request *r)
{
    struct syi_a2a_shard *shard = &r->shard[0];
    shard->read = shard->indices;
    const sy_status st =
        r->memory->read(r->ctx, &shard->read, shard->n_tokens, syi_exchange_choice_bytes(&r->x));
    if (st != SY_OK)
        return syi_fail_backend(r->ctx, st, "expert_indices");
    syi_exchange_pack_choices(r);
    return SY_OK;
}

/* Where the transport reads or writes packed rows. */
static unsigned char *wire_of(const sy_request *r, unsigned char *rows)
{
    return r->memory->on_gpu ? r->travel.wire + (rows - r->travel.rows) : rows;
}

/* The same rows of every plane, for all peers. */
sy_status syi_exchange_pack(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_a2a_shard *shard = &r->shard[0];
    struct syi_a2a_job job = {
        .n_rows = syi_exchange_pick_sends(r, NULL), .pick = r->lists.send_pick, .n_planes = x->n_planes};
    for (int p = 0; p < x->n_planes; p++)
        job.plane[p] = (struct syi_a2a_plane){
            &shard->from[p], {r->lists.packed[p], (int64_t)x->row_bytes[p]}, x->row_bytes[p]};
    if (job.n_rows > 0)
        r->memory->copy(r->ctx, &job, 1);
    sy_status st = r->memory->flush(r->ctx);
    for (int p = 0; st == SY_OK && p < x->n_planes; p++)
        st = r->memory->travel_copy(r->ctx, &r->travel, (size_t)(r->lists.packed[p] - r->travel.rows),
                                    (size_t)job.n_rows * x->row_bytes[p], false);
    return st == SY_OK ? r->memory->mark(r->ctx, &r->travel) : st;
}

sy_status syi_exchange_reading(sy_request *r)
{
    const sy_status st = r->memory->flush(r->ctx);
    return st == SY_OK ? r->memory->mark(r->ctx, &r->travel) : st;
}

/* Others write over the rows when they are known to be read: the mark is waited for, whatever the transport. */
sy_status syi_exchange_packed(sy_request *r, bool *done)
{
    *done = !r->way.direct && r->comm->transport.device_rows == SY_TRANSPORT_STREAM;
    return *done ? SY_OK : r->memory->reached(r->ctx, &r->travel, done);
}

/* Rows for one peer: in place, or packed. */
static void fill_messages(sy_request *r, int plane)
{
    const struct syi_exchange *x = &r->x;
    const struct syi_a2a_shard *shard = &r->shard[0];
    const size_t bytes = x->row_bytes[plane];
    for (int p = 0; p < x->n_positions; p++) {
        const int64_t out = r->lists.sends.first[p], in = r->lists.receives.first[p];
        const int64_t n_out = p == shard->out.position ? 0 : r->lists.sends.first[p + 1] - out;
        const int64_t n_in = p == shard->out.position ? 0 : r->lists.receives.first[p + 1] - in;
        const struct syi_rows from = shard->from[plane], to = shard->to[plane];
        sy_transport_rows send = {from.data, bytes, (size_t)from.stride, r->lists.sends.rows + out, n_out};
        sy_transport_rows recv = {to.data, bytes, (size_t)to.stride, r->lists.receives.rows + in, n_in};
        if (r->lists.packed[plane] != NULL) {
            unsigned char *at =
                r->lists.packed[plane] + (size_t)syi_exchange_rows_before(r, &r->lists.sends, p) * bytes;
            if (!r->memory->on_gpu) /* else they are */
                r->memory->pack(r->ctx, (struct syi_rows){at, (int64_t)bytes}, from,
                                r->lists.sends.rows + out, n_out, bytes);
            send = (sy_transport_rows){wire_of(r, at), bytes, bytes, NULL, n_out};
        }
        if (r->lists.landed[plane] != NULL) {
            unsigned char *at =
                r->lists.landed[plane] + (size_t)syi_exchange_rows_before(r, &r->lists.receives, p) * bytes;
            recv = (sy_transport_rows){wire_of(r, at), bytes, bytes, NULL, n_in};
        }
        r->lists.send[plane][p] = send;
        r->lists.recv[plane][p] = recv;
    }
}

/* Rows received into scratch: picks name them by their place. `seen` becomes the place of each token of a dispatch. */
static void pick_landed(sy_request *r, struct syi_a2a_shard *shard)
{
    const struct syi_exchange *x = &r->x;
    const int32_t landed = x->n_positions;
    for (int p = 0; p < x->n_positions; p++) {
        int64_t at = syi_exchange_rows_before(r, &r->lists.receives, p);
        for (int64_t i = r->lists.receives.first[p];
             p != shard->out.position && i < r->lists.receives.first[p + 1]; i++) {
            struct syi_a2a_pick *pick = &shard->out.pick[r->lists.receives.rows[i]];
            if (!syi_is_combine(x))
                r->lists.seen[shard->out.group->order.first[p] + pick->row] = (int32_t)at++;
            else
                *pick = (struct syi_a2a_pick){landed, (int32_t)at++};
        }
    }
    for (int64_t i = 0; !syi_is_combine(x) && i < shard->out.n_rows; i++) {
        struct syi_a2a_pick *pick = &shard->out.pick[i];
        if (pick->position >= 0 && pick->position != shard->out.position)
            *pick = (struct syi_a2a_pick){
                landed, r->lists.seen[shard->out.group->order.first[pick->position] + pick->row]};
    }
}

/* Only our own rows are present; received ones follow later. */
static void set_sources(sy_request *r, struct syi_a2a_shard *shard)
{
    const struct syi_exchange *x = &r->x;
    for (int p = 0; p < x->n_planes; p++) {
        struct syi_rows *source = syi_exchange_sources_of(r, shard, p);
        for (int q = 0; q <= x->n_positions; q++)
            source[q] = (struct syi_rows){NULL, 0};
        source[shard->out.position] = shard->from[p];
        if (r->lists.landed[p] != NULL)
            source[x->n_positions] = (struct syi_rows){r->lists.landed[p], (int64_t)x->row_bytes[p]};
    }
}

sy_status syi_exchange_post(sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const sy_comm *comm = r->comm;
    struct syi_a2a_shard *shard = &r->shard[0];
    const bool on_gpu = r->memory->on_gpu && comm->transport.device_rows != SY_TRANSPORT_CPU;
    set_sources(r, shard);
    syi_exchange_list_sends(r);
    syi_exchange_list_receives(r);
    for (int p = 0; p < x->n_planes; p++) {
        fill_messages(r, p);
        sy_transport_exchange exchange = {
            .axis = x->axis,
            .number = r->sequence * SY_A2A_MAX_PLANES + (uint64_t)p,
            .n_positions = x->n_positions,
            .position = shard->out.position,
            .send = r->lists.send[p],
            .recv = r->lists.recv[p],
            .chunk_bytes = comm->options.chunk_bytes,
            .num_links = x->num_links,
            .topology = x->topology,
            .on_device = on_gpu,
        };
        if (on_gpu)
            r->memory->place(r->ctx, &exchange.cuda_device, &exchange.stream);
        const sy_status st = comm->transport.exchange(comm->transport.self, &exchange, &r->now.ticket[p]);
        if (st != SY_OK)
            return st;
        r->now.waiting[p] = true;
    }
    if (r->lists.landed[0] == NULL)
        syi_exchange_move_all(r); /* our own rows and the fill, while the others are sent */
    else
        pick_landed(r, shard);
    return SY_OK;
}

/* To the device; all planes have as many rows. */
static sy_status copy_landed(sy_request *r)
{
    const size_t rows = (size_t)syi_exchange_rows_before(r, &r->lists.receives, r->x.n_positions);
    sy_status st = SY_OK;
    for (int p = 0; st == SY_OK && p < r->x.n_planes; p++)
        st = r->memory->travel_copy(r->ctx, &r->travel, (size_t)(r->lists.landed[p] - r->travel.rows),
                                    rows * r->x.row_bytes[p], true);
    return st;
}

sy_status syi_exchange_unpack(sy_request *r)
{
    const struct syi_a2a_shard *shard = &r->shard[0];
    const bool on_gpu = r->memory->on_gpu;
    sy_status st = on_gpu ? copy_landed(r) : SY_OK;
    if (st != SY_OK)
        return st;
    if (r->lists.landed[0] != NULL)
        syi_exchange_move_all(r);
    else if (!syi_is_combine(&r->x) && r->x.layout == SY_LAYOUT_EXPERT) /* by the jobs that _post left */
        r->memory->spread(r->ctx, shard->out.group, &r->lists.jobs[0], r->lists.seen);
    if (on_gpu)
        st = r->memory->flush(r->ctx);
    return st == SY_OK && on_gpu ? r->memory->mark(r->ctx, &r->travel) : st;
}
