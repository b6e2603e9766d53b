/*
 * local_reduce on the CPU: finds the rows of every token's live slots on the device, in the order of the input, and
 * adds them.
 */
#include "cpu/all_to_all.h"
#include "cpu/backend.h"

struct scratch {
    struct syi_a2a_hosts hosts;
    struct syi_a2a_replicas replicas; /* with a rule */
    int32_t *choice;                  /* [T,K] */
    struct syi_a2a_pick *pick;        /* [K,T] */
    int32_t *at;                      /* [T] row of the output; -1: none */
    int64_t *first;                   /* [G+1] */
    int64_t *counts, *next;           /* EXPERT: [E] tokens of an expert, [E+1] its next row */
    void *sums;
};

static struct scratch lay_out(const sy_ctx *ctx, const struct syi_local_reduce_plan *p,
                              struct syi_arena *arena)
{
    const size_t n = syi_size_mul((size_t)p->n_tokens, (size_t)p->n_slots), experts = (size_t)p->n_experts;
    struct scratch s;
    syi_a2a_hosts_take(arena, &s.hosts, p->n_experts, p->n_devices);
    s.choice = syi_take(arena, syi_size_mul(n, sizeof *s.choice));
    s.pick = syi_take(arena, syi_size_mul(n, sizeof *s.pick));
    s.at = syi_take(arena, syi_size_mul((size_t)p->n_tokens, sizeof *s.at));
    s.first = syi_take(arena, syi_size_mul((size_t)p->n_positions + 1, sizeof *s.first));
    s.counts = syi_take(arena, syi_size_mul(experts, sizeof *s.counts));
    s.next = syi_take(arena, syi_size_mul(experts + 1, sizeof *s.next));
    s.sums = syi_take(arena, syi_a2a_add_scratch(ctx, p->n_slots));
    s.replicas = (struct syi_a2a_replicas){.served = NULL};
    if (p->rule.replica != SY_A2A_REPLICA_ALL)
        syi_a2a_replicas_take(arena, &s.replicas, p->n_experts, p->n_devices,
                              p->n_devices / syi_group_size(p->mesh, p->axis));
    return s;
}

SYI_CPU_WORKSPACE(local_reduce)

/* Reads mapping and choices; the input must have a row for everything chosen. */
static sy_status read_contents(sy_ctx *ctx, const struct syi_local_reduce_plan *p, struct scratch *s)
{
    SYI_TRY(syi_a2a_read_hosts(ctx, &s->hosts, syi_tensor_rows(p->mapping), p->n_copies));
    const int64_t n_local = s->hosts.n_local[p->device];
    if (p->args.layout == SY_LAYOUT_PADDED && p->in_rows != n_local) {
        struct syi_found found = syi_bad_at(SYI_BAD_INPUT_EXPERTS, -1, -1, p->in_rows, n_local);
        found.extra = p->device;
        return syi_report(ctx, found);
    }
    return syi_a2a_read_choices(ctx, p->metadata_field, syi_tensor_rows(p->metadata), p->metadata.type,
                                p->n_tokens, p->n_slots, p->n_experts, false, s->choice);
}

/* Choices that other hosts of their experts serve are none here. */
static void keep_served(const struct syi_local_reduce_plan *p, struct scratch *s,
                        const struct syi_token_order *order)
{
    const struct syi_a2a_pairs *pairs = &s->replicas.pairs;
    const int group = syi_group_of(p->mesh, p->axis, p->device);
    syi_a2a_read_replicas(&s->replicas, &s->hosts, p->mesh, p->axis);
    memset(s->replicas.served, 0, (size_t)p->n_experts * sizeof *s->replicas.served);
    for (int q = 0; q < order->n_positions; q++)
        for (int64_t i = order->first[q]; i < order->first[q + 1]; i++) {
            int32_t *choice = s->choice + syi_tau(order, q, i - order->first[q]) * p->n_slots;
            for (int64_t k = 0; k < p->n_slots; k++) {
                if (choice[k] < 0)
                    continue;
                const int32_t pair =
                    syi_pair_of(p->rule, pairs, p->mesh, p->axis, choice[k], group,
                                (int)(i / p->per_position), (uint32_t)i, s->replicas.served[choice[k]]++);
                if (pair < 0 || pairs->device[pair] != p->device)
                    choice[k] = -1;
            }
        }
}

/* Rows of token t; the next of each expert where rows follow each other. Returns whether it has any. */
static bool pick_rows(const struct syi_local_reduce_plan *p, const struct scratch *s, int64_t t)
{
    const int32_t *local = s->hosts.local + p->device * p->n_experts;
    bool found = false;
    for (int64_t k = 0; k < p->n_slots; k++) {
        const int32_t e = s->choice[t * p->n_slots + k], l = e < 0 ? -1 : local[e];
        struct syi_a2a_pick *pick = &s->pick[k * p->n_tokens + t];
        pick->position = l < 0 ? -1 : 0;
        if (l < 0)
            continue;
        found = true;
        pick->row = (int32_t)(p->args.layout == SY_LAYOUT_PADDED ? l * p->n_tokens + t : s->next[l]++);
    }
    return found;
}

/* Returns the rows that the output needs. */
static int64_t pick_all(const struct syi_local_reduce_plan *p, const struct scratch *s,
                        const struct syi_token_order *order)
{
    const bool padded = p->args.layout == SY_LAYOUT_PADDED;
    int64_t n_rows = 0;
    for (int q = 0; q < order->n_positions; q++)
        for (int64_t n = 0; n < order->first[q + 1] - order->first[q]; n++) {
            const int64_t t = syi_tau(order, q, n);
            const bool written = pick_rows(p, s, t) || (padded && p->args.fill != SY_FILL_KEEP);
            s->at[t] = written ? (int32_t)(padded ? t : n_rows++) : -1;
        }
    return padded ? p->n_tokens : n_rows;
}

/* EXPERT: the first row of each expert. */
static sy_status find_blocks(sy_ctx *ctx, const struct syi_local_reduce_plan *p, const struct scratch *s,
                             const struct syi_token_order *order)
{
    const struct syi_a2a_group group = {.mesh = {1, p->n_devices},
                                        .axis = SY_AXIS_ALL,
                                        .order = *order,
                                        .n_slots = p->n_slots,
                                        .choice = s->choice,
                                        .layout = SY_LAYOUT_EXPERT,
                                        .align = p->align,
                                        .expert_rows = p->args.expert_rows};
    const int64_t place = syi_a2a_overfull(&s->hosts, &group, p->device, s->counts);
    for (int64_t e = 0; e < p->n_experts && place >= 0; e++)
        if (s->hosts.local[p->device * p->n_experts + e] == place)
            return syi_reject(ctx, SYI_BAD_EXPERT_ROWS, e, -1, p->args.expert_rows, s->counts[place]);
    const int64_t n_rows = syi_a2a_expert_rows(&s->hosts, &group, p->device, s->counts, s->next);
    return n_rows <= p->in_rows ? SY_OK : syi_reject(ctx, SYI_BAD_INPUT_ROWS, -1, -1, p->in_rows, n_rows);
}

sy_status syi_cpu_local_reduce(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_local_reduce_plan *p = &plan->local_reduce;
    struct syi_arena arena = {workspace, 0};
    struct scratch s = lay_out(ctx, p, &arena);
    const struct syi_token_order order = {(int)p->n_positions, s.first, p->interleave};
    SYI_TRY(read_contents(ctx, p, &s));
    for (int64_t q = 0; q <= p->n_positions; q++)
        s.first[q] = q * (p->n_tokens / p->n_positions);
    if (p->rule.replica != SY_A2A_REPLICA_ALL)
        keep_served(p, &s, &order);
    if (p->args.layout == SY_LAYOUT_EXPERT)
        SYI_TRY(find_blocks(ctx, p, &s, &order));
    const int64_t n_rows = pick_all(p, &s, &order);
    if (p->args.layout == SY_LAYOUT_EXPERT && n_rows > p->out_rows)
        return syi_reject(ctx, SYI_BAD_OUTPUT_ROWS, -1, -1, p->out_rows, n_rows);
    const struct syi_rows input = syi_tensor_rows(p->input);
    const struct syi_a2a_sum sum = {.n_home = p->n_tokens,
                                    .n_slots = p->n_slots,
                                    .hidden = p->hidden,
                                    .pick = s.pick,
                                    .type = p->type,
                                    .source = &input,
                                    .codes = p->codes,
                                    .scales = &p->codes.scales,
                                    .weights = syi_tensor_rows(p->weights),
                                    .weight_type = p->weights.type,
                                    .to = syi_tensor_rows(p->output),
                                    .at = s.at};
    syi_a2a_add(ctx, &sum, 1, s.sums);
    return SY_OK;
}
