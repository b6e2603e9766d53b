/*
 * Replicas: one host for every choice. Choices of experts become choices of pairs of an expert and a host.
 */
#include "cpu/all_to_all.h"

void syi_a2a_replicas_take(struct syi_arena *arena, struct syi_a2a_replicas *replicas, int64_t n_experts,
                           int n_devices, int n_groups)
{
    const size_t experts = (size_t)n_experts, most = syi_size_mul(experts, (size_t)n_devices),
                 begins = syi_size_add(syi_size_mul(experts, (size_t)n_groups), 1);
    struct syi_a2a_hosts *hosts = &replicas->hosts;
    replicas->pairs.n_groups = n_groups;
    replicas->pairs.begin = syi_take(arena, syi_size_mul(begins, sizeof *replicas->pairs.begin));
    replicas->pairs.device = syi_take(arena, syi_size_mul(most, sizeof *replicas->pairs.device));
    replicas->served = syi_take(arena, syi_size_mul(experts, sizeof *replicas->served));
    hosts->local = syi_take(arena, syi_size_mul(most, sizeof *hosts->local));
    hosts->first = syi_take(arena, syi_size_mul(syi_size_add(most, 1), sizeof *hosts->first));
    hosts->n_devices = n_devices;
    hosts->owner = hosts->holder = replicas->pairs.device;
}

void syi_a2a_read_replicas(struct syi_a2a_replicas *replicas, const struct syi_a2a_hosts *hosts, sy_mesh mesh,
                           sy_axis axis)
{
    const int64_t n_groups = replicas->pairs.n_groups, n_begins = hosts->n_experts * n_groups;
    int32_t *const begin = replicas->pairs.begin;
    struct syi_a2a_hosts *pairs = &replicas->hosts;
    for (int64_t i = 0; i <= n_begins; i++)
        begin[i] = 0;
    for (int64_t e = 0; e < hosts->n_experts; e++)
        for (int64_t i = hosts->first[e]; i < hosts->first[e + 1]; i++)
            begin[e * n_groups + syi_group_of(mesh, axis, hosts->holder[i]) + 1]++;
    for (int64_t i = 0; i < n_begins; i++)
        begin[i + 1] += begin[i];
    for (int64_t e = 0; e < hosts->n_experts; e++)
        for (int64_t i = hosts->first[e]; i < hosts->first[e + 1]; i++) {
            const int device = hosts->holder[i];
            const int32_t v = begin[e * n_groups + syi_group_of(mesh, axis, device)]++;
            replicas->pairs.device[v] = device;
            pairs->local[v] = hosts->local[device * hosts->n_experts + e];
        }
    for (int64_t i = n_begins; i > 0; i--) /* filling has moved each beginning to the next */
        begin[i] = begin[i - 1];
    begin[0] = 0;
    pairs->n_experts = begin[n_begins];
    pairs->n_local = hosts->n_local;
    for (int64_t v = 0; v <= pairs->n_experts; v++)
        pairs->first[v] = v;
}

void syi_a2a_serve(const struct syi_a2a_replicas *replicas, int64_t n_experts, struct syi_a2a_rule rule,
                   const struct syi_a2a_group *group, int32_t *choice)
{
    const struct syi_token_order *order = &group->order;
    memset(replicas->served, 0, (size_t)n_experts * sizeof *replicas->served);
    for (int p = 0; p < order->n_positions; p++)
        for (int64_t i = order->first[p]; i < order->first[p + 1]; i++) {
            int32_t *row = choice + syi_tau(order, p, i - order->first[p]) * group->n_slots;
            for (int64_t k = 0; k < group->n_slots; k++)
                if (row[k] >= 0)
                    row[k] = syi_pair_of(rule, &replicas->pairs, group->mesh, group->axis, row[k],
                                         group->index, p, (uint32_t)i, replicas->served[row[k]]++);
        }
}
