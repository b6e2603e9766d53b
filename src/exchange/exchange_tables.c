/*
 * Outputs of an exchange besides the rows: metadata, counts, sources, masks.
 */
#include "exchange/exchange.h"

static void write_metadata(const sy_request *r, const struct syi_a2a_shard *shard)
{
    const struct syi_token_order *order = &shard->out.group->order;
    const size_t row_bytes = syi_exchange_choice_bytes(&r->x);
    for (int p = 0; p < order->n_positions; p++) {
        const struct syi_rows table = syi_routing_table(r, shard->out.group, p);
        const int64_t n_tokens = order->first[p + 1] - order->first[p], run = syi_run_of(order, n_tokens);
        for (int64_t n = 0; n < n_tokens; n += run) {
            const struct syi_rows to = {syi_row_at(shard->extras.metadata, syi_tau(order, p, n)),
                                        shard->extras.metadata.stride};
            r->memory->write(r->ctx, to, (struct syi_rows){syi_row_at(table, n), table.stride},
                             r->comm->local, run, row_bytes);
        }
    }
}

/* Bytes of CPU memory, made here, to a place in a tensor. */
static void write_bytes(const sy_request *r, unsigned char *to, void *from, size_t bytes)
{
    r->memory->write(r->ctx, (struct syi_rows){to, 0}, (struct syi_rows){from, 0}, false, 1, bytes);
}

/* What is computed for a tensor goes there in pieces of so many elements. */
enum { PIECE = 256 };

/* Marks existing rows: `present` of dispatch, `written` of combine. */
static void write_mask(const sy_request *r, const struct syi_a2a_shard *shard)
{
    const int64_t slots = syi_is_combine(&r->x) ? r->x.n_slots : 1;
    const int64_t n = slots > 0 ? shard->out.n_rows / slots : 0;
    unsigned char piece[PIECE];
    for (int64_t k = 0; k < slots; k++)
        for (int64_t first = 0; first < n; first += PIECE) {
            const int64_t m = n - first < PIECE ? n - first : PIECE;
            for (int64_t i = 0; i < m; i++)
                piece[i] = shard->out.pick[k * n + first + i].position >= 0;
            write_bytes(r, syi_row_at(shard->mask, k) + first, piece, (size_t)m);
        }
}

static void write_src(const sy_request *r, const struct syi_a2a_shard *shard, bool with_slot)
{
    int32_t piece[PIECE][3];
    for (int64_t first = 0; first < shard->out.n_rows; first += PIECE) {
        const int64_t m = shard->out.n_rows - first < PIECE ? shard->out.n_rows - first : PIECE;
        for (int64_t i = 0; i < m; i++) {
            const struct syi_a2a_pick pick = shard->out.pick[first + i];
            piece[i][0] = pick.position;
            piece[i][1] = pick.position < 0 ? -1 : pick.row;
            piece[i][2] = with_slot ? shard->out.slot[first + i] : 0;
        }
        const struct syi_rows to = {syi_row_at(shard->extras.src, first), shard->extras.src.stride};
        r->memory->write(r->ctx, to, (struct syi_rows){(unsigned char *)piece, sizeof *piece}, false, m,
                         (with_slot ? 3 : 2) * sizeof(int32_t));
    }
}

static void write_ints(const sy_request *r, unsigned char *to, int64_t *values, int64_t n)
{
    if (to != NULL && n > 0)
        write_bytes(r, to, values, (size_t)n * sizeof *values);
}

/* Differences of n + 1 ascending numbers. */
static void write_lengths(const sy_request *r, unsigned char *to, const int64_t *first, int64_t n)
{
    int64_t piece[PIECE];
    for (int64_t begin = 0; to != NULL && begin < n; begin += PIECE) {
        const int64_t m = n - begin < PIECE ? n - begin : PIECE;
        for (int64_t i = 0; i < m; i++)
            piece[i] = first[begin + i + 1] - first[begin + i];
        write_ints(r, to + 8 * begin, piece, m);
    }
}

static void write_counts(sy_request *r, const struct syi_a2a_shard *shard)
{
    const struct syi_a2a_hosts *hosts = syi_routing_hosts(r->by);
    if (shard->extras.expert_counts != NULL || shard->extras.expert_offsets != NULL) {
        const int64_t n_local = hosts->n_local[shard->device];
        syi_a2a_expert_rows(hosts, shard->out.group, shard->out.position, r->lists.expert_counts,
                            r->lists.expert_offsets);
        write_ints(r, shard->extras.expert_counts, r->lists.expert_counts, n_local);
        write_ints(r, shard->extras.expert_offsets, r->lists.expert_offsets, n_local + 1);
    }
    if (shard->extras.rows_from == NULL && shard->extras.rows_to == NULL)
        return;
    if (r->comm->local) {
        syi_a2a_dispatch_sends(hosts, shard->out.group, shard->out.position, &r->lists.sends,
                               r->lists.counters);
        syi_a2a_dispatch_receives(shard->out.group, shard->out.pick, shard->out.n_rows, &r->lists.receives,
                                  r->lists.seen);
    } else {
        syi_exchange_list_sends(r);
        syi_exchange_list_receives(r);
    }
    write_lengths(r, shard->extras.rows_to, r->lists.sends.first, r->x.n_positions);
    write_lengths(r, shard->extras.rows_from, r->lists.receives.first, r->x.n_positions);
}

void syi_exchange_write_extras(sy_request *r)
{
    for (int s = 0; s < r->comm->n_shards; s++) {
        const struct syi_a2a_shard *shard = &r->shard[s];
        if (shard->mask.data != NULL)
            write_mask(r, shard);
        if (syi_is_combine(&r->x))
            continue;
        if (shard->extras.metadata.data != NULL)
            write_metadata(r, shard);
        if (shard->extras.src.data != NULL)
            write_src(r, shard, r->x.layout == SY_LAYOUT_EXPERT);
        write_counts(r, shard);
    }
}
