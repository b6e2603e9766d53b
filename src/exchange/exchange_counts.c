/*
 * Why calls are rejected: numbers of tokens and rows that are known only when processes have exchanged headers or choices, and
 * what processes send each other to say so.
 */
#include "exchange/exchange.h"

#include <stdio.h>

int64_t syi_exchange_tokens_at(const sy_request *r, int device)
{
    if (r->comm->local)
        return r->shard[device].n_tokens;
    return r->x.ragged ? (int64_t)r->agreed.header[device].tokens : r->x.max_tokens;
}

int64_t syi_exchange_group_tokens(const sy_request *r, int device)
{
    const sy_mesh mesh = r->comm->mesh;
    const int group = syi_group_of(mesh, r->x.axis, device);
    int64_t tokens = 0;
    for (int p = 0; p < r->x.n_positions; p++)
        tokens += syi_exchange_tokens_at(r, syi_device_at(mesh, r->x.axis, group, p));
    return tokens;
}

struct syi_verdict syi_exchange_validate_counts(const sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const sy_comm *comm = r->comm;
    for (int d = 0; x->ragged && !x->reuses_routing && d < comm->n_devices; d++) {
        const int64_t tokens = syi_exchange_group_tokens(r, d);
        const struct syi_header *h = &r->agreed.header[d];
        const bool combine = syi_is_combine(x);
        if (combine && h->table != tokens)
            return (struct syi_verdict){SY_ERR_MISMATCH, d, -1, SYI_TOKENS};
        if (!combine && (h->table < tokens || (x->layout == SY_LAYOUT_PADDED && h->capacity < tokens)))
            return (struct syi_verdict){SY_ERR_CAPACITY, d, -1, SYI_SAME};
    }
    return (struct syi_verdict){SY_OK, 0, -1, SYI_SAME};
}

void syi_exchange_note_counts(sy_request *r, struct syi_notice *notice)
{
    const struct syi_exchange *x = &r->x;
    const int d = r->agreed.verdict.device;
    const struct syi_header *h = &r->agreed.header[d];
    const int64_t tokens = syi_exchange_group_tokens(r, d);
    const bool table = h->table < tokens || syi_is_combine(x);
    const int64_t found = table ? (int64_t)h->table : (int64_t)h->capacity;
    const char *what = syi_is_combine(x) ? "expert_metadata" : table ? "metadata or present" : "tokens";
    syi_clear_fault(r->ctx, syi_call_name(r->op));
    r->ctx->device = d + 1;
    syi_fail_with(r->ctx, r->agreed.verdict.status, SY_FAULT_NONE, what, found, tokens,
                  "has %lld rows, want %s%lld, the tokens of its group", (long long)found,
                  syi_is_combine(x) ? "" : "at least ", (long long)tokens);
    r->ctx->device = 0;
    syi_exchange_note_error(r->ctx, notice);
}

sy_status syi_exchange_fail_rows(sy_request *r, int device, const char *argument, int64_t found, int64_t want)
{
    r->ctx->device = device + 1;
    const sy_status st =
        syi_fail_with(r->ctx, SY_ERR_CAPACITY, SY_FAULT_NONE, argument, found, want,
                      "has %lld rows, want at least %lld", (long long)found, (long long)want);
    r->ctx->device = 0;
    return st;
}

sy_status syi_exchange_fail_experts(sy_request *r, int device, int64_t place, int64_t rows)
{
    const struct syi_a2a_hosts *named = &r->by->hosts; /* experts, also where choices are served by pairs */
    int64_t e = 0;
    while (named->local[device * named->n_experts + e] != place)
        e++;
    const sy_fault fault = {SY_ERR_CAPACITY, SY_FAULT_NONE, "expert_rows", e, -1, r->x.expert_rows, rows};
    r->ctx->device = device + 1;
    const sy_status st = syi_fail_at(r->ctx, &fault, "is %lld, want at least %lld, the rows of expert %lld",
                                     (long long)fault.value, (long long)rows, (long long)e);
    r->ctx->device = 0;
    return st;
}

static sy_status check_input_rows(sy_request *r, const struct syi_a2a_shard *shard, int64_t rows)
{
    return rows <= shard->input_rows
               ? SY_OK
               : syi_exchange_fail_rows(r, shard->device, "input", shard->input_rows, rows);
}

sy_status syi_exchange_check_experts(sy_request *r)
{
    const sy_comm *comm = r->comm;
    const struct syi_exchange *x = &r->x;
    const struct syi_a2a_hosts *hosts = syi_routing_hosts(r->by);
    sy_status st = SY_OK;
    for (int s = 0; x->expert_rows > 0 && s < comm->n_shards && st == SY_OK; s++) {
        const struct syi_a2a_shard *shard = &r->shard[s];
        const int group = comm->local ? syi_group_of(comm->mesh, x->axis, shard->device) : 0;
        const int64_t rows = x->expert_rows * hosts->n_local[shard->device];
        const int64_t place =
            syi_a2a_overfull(hosts, &r->by->group[group], syi_position_of(comm->mesh, x->axis, shard->device),
                             r->lists.expert_counts);
        if (place >= 0)
            st = syi_exchange_fail_experts(r, shard->device, place, r->lists.expert_counts[place]);
        else if (syi_is_combine(x))
            st = check_input_rows(r, shard, rows);
        else if (rows > shard->capacity)
            st = syi_exchange_fail_rows(r, shard->device, "tokens", shard->capacity, rows);
    }
    return st;
}

sy_status syi_exchange_check_capacity(sy_request *r)
{
    if (syi_is_combine(&r->x) || r->x.layout == SY_LAYOUT_PADDED)
        return SY_OK;
    for (int s = 0; s < r->comm->n_shards; s++) {
        const struct syi_a2a_shard *shard = &r->shard[s];
        if (shard->out.n_rows > shard->capacity)
            return syi_exchange_fail_rows(r, shard->device, "tokens", shard->capacity, shard->out.n_rows);
    }
    return SY_OK;
}

sy_status syi_exchange_check_input(sy_request *r)
{
    if (r->x.id != SYI_ALL_TO_ALL_COMBINE || r->x.layout == SY_LAYOUT_PADDED)
        return SY_OK;
    for (int s = 0; s < r->comm->n_shards; s++) {
        const struct syi_a2a_shard *shard = &r->shard[s];
        const int64_t rows = !r->now.listed ? r->by->need[shard->device]
                                            : syi_a2a_expert_rows(syi_routing_hosts(r->by), shard->out.group,
                                                                  shard->out.position, r->lists.expert_counts,
                                                                  r->lists.expert_offsets);
        const sy_status st = check_input_rows(r, shard, rows);
        if (st != SY_OK)
            return st;
    }
    return SY_OK;
}

bool syi_exchange_may_overflow(const sy_request *r)
{
    const struct syi_exchange *x = &r->x;
    const sy_comm *comm = r->comm;
    if (x->layout == SY_LAYOUT_EXPERT && !x->reuses_routing && x->expert_rows > 0 &&
        x->expert_rows < x->max_tokens * x->n_positions)
        return true; /* as many tokens can name an expert; also without checks, or processes would wait for rows */
    if (comm->options.check == SY_CHECK_NONE && !r->way.direct)
        return false;
    const bool combine = syi_is_combine(x);
    if (x->layout == SY_LAYOUT_PADDED || (combine && !x->ragged) || x->reuses_routing)
        return false; /* those were checked with the headers */
    for (int d = 0; !combine && d < comm->n_devices; d++) {
        int64_t max;
        if (!syi_exchange_max_rows(x, x->max_tokens * x->n_positions, r->by->hosts.n_local[d], &max) ||
            max > (int64_t)r->agreed.header[d].capacity)
            return true;
    }
    return combine;
}

static void describe(struct syi_notice *notice, int device, const char *op, int64_t tokens,
                     const struct syi_table_call *c, const char *memory)
{
    static const char *const axes[] = {"all", "0", "1"};
    *notice = (struct syi_notice){.batch = -1, .position = -1};
    snprintf(notice->text, sizeof notice->text,
             "device %d calls %s number %lld with %lld tokens, %lld slots, %d experts, rows of %lld bytes, "
             "axis %s, %s",
             device, op, (long long)c->number, (long long)tokens, (long long)c->slots, c->experts,
             (long long)c->row_bytes, axes[c->axis], memory);
}

sy_status syi_exchange_fail_tables(sy_ctx *ctx, const char *op, const struct syi_found *found)
{
    const struct syi_table_call c = syi_call_of_tables(found);
    const struct syi_verdict verdict = {SY_ERR_MISMATCH, (int)found->value, (int)found->limit, SYI_TABLE};
    struct syi_notice a, b;
    describe(&a, verdict.device, op, c.tokens, &c, "cuda");
    describe(&b, verdict.other, op, c.other_tokens, &c, "cuda");
    syi_fail_verdict(ctx, op, &verdict, &a, &b);
    return verdict.status;
}

void syi_exchange_describe(const sy_request *r, const struct syi_exchange *x,
                           const struct syi_a2a_shard *shard, struct syi_notice *notice)
{
    *notice = (struct syi_notice){.batch = -1, .position = -1};
    if (!syi_call_moves_rows(r)) {
        snprintf(notice->text, sizeof notice->text, "device %d calls %s number %llu", r->comm->device,
                 syi_call_name(r->op), (unsigned long long)r->sequence);
        return;
    }
    const struct syi_table_call c = {
        .number = (int64_t)r->sequence,
        .slots = shard->n_slots,
        .row_bytes = (int64_t)shard->row_bytes,
        .experts = (int)shard->n_experts,
        .axis = (int)x->axis,
    };
    describe(notice, shard->device, syi_call_name(r->op), shard->n_tokens, &c,
             r->memory->on_gpu ? r->memory->isa : "CPU memory");
}

void syi_exchange_note_error(const sy_ctx *ctx, struct syi_notice *notice)
{
    *notice = (struct syi_notice){.code = (int32_t)ctx->fault.code,
                                  .batch = ctx->fault.batch,
                                  .position = ctx->fault.position,
                                  .value = ctx->fault.value,
                                  .limit = ctx->fault.limit};
    snprintf(notice->text, sizeof notice->text, "%.*s", SYI_TEXT_BYTES - 1, ctx->error);
}
