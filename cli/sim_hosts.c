/*
 * See sim.h.
 */
#include <stdlib.h>
#include <string.h>

#include <switchyard_describe.h>

#include "cli.h"
#include "ops.h"
#include "sim.h"

/* Experts ascending, and the devices of each; then `done`. */
static void add_host(struct sim_hosts *hosts, int64_t e, int64_t q)
{
    hosts->holder[hosts->first[hosts->n_experts]++] = q; /* how many there are so far */
    hosts->first[e]++;
    hosts->n_local[q]++;
    hosts->replicated = hosts->replicated || hosts->first[e] > 1;
}

static void done(struct sim_hosts *hosts)
{
    int64_t n = hosts->first[hosts->n_experts];
    for (int64_t e = hosts->n_experts - 1; e >= 0; e--)
        hosts->first[e] = n -= hosts->first[e];
}

int sim_read_hosts(struct sim_hosts *hosts, const char *path, const uint16_t *mapping)
{
    for (int64_t e = 0; e < hosts->n_experts; e++)
        for (int64_t q = 0; q < hosts->n_devices; q++) {
            const int value = mapping[e * hosts->n_devices + q];
            if (value > 1)
                return plain_error("%s: expert_mapping of expert %lld, device %lld is %d, want 0 or 1", path,
                                   (long long)e, (long long)q, value);
            if (value == 1)
                add_host(hosts, e, q);
        }
    done(hosts);
    return EXIT_DONE;
}

void sim_place_blocks(struct sim_hosts *hosts)
{
    for (int64_t e = 0; e < hosts->n_experts; e++)
        add_host(hosts, e, e * hosts->n_devices / hosts->n_experts);
    done(hosts);
}

static int by_number(const void *a, const void *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

/* place[i] is an expert on entry, then the expert and its device in one number. */
static void add_places(struct sim_hosts *hosts, int64_t *place, int64_t n_places)
{
    const int64_t d = hosts->n_devices;
    for (int64_t i = 0; i < n_places; i++)
        place[i] = place[i] * d + i / (n_places / d);
    qsort(place, (size_t)n_places, sizeof *place, by_number);
    for (int64_t i = 0; i < n_places; i++)
        if (i == 0 || place[i] != place[i - 1]) /* replicas on one device are one host */
            add_host(hosts, place[i] / d, place[i] % d);
    done(hosts);
}

int sim_place_loads(struct sim_hosts *hosts, const struct common *common, const int64_t *loads,
                    int64_t n_places)
{
    int64_t by_expert[] = {1, hosts->n_experts}, by_place[] = {1, n_places};
    int64_t *const place = calloc((size_t)n_places, sizeof *place);
    sy_ctx *const ctx = place ? common_context(common) : NULL;
    if (!place)
        return plain_error("out of memory");
    if (!ctx) {
        free(place);
        return EXIT_USAGE;
    }
    const DLTensor in = sy_tensor((void *)(uintptr_t)loads, SY_I64, 2, by_expert),
                   out = sy_tensor(place, SY_I64, 2, by_place);
    const sy_moe_place_args args = {.loads = &in,
                                    .num_physical = n_places,
                                    .devices = hosts->n_devices,
                                    .distinct = true,
                                    .physical_to_logical = &out};
    int code = EXIT_DONE;
    if (sy_moe_place(ctx, &args) == SY_OK)
        add_places(hosts, place, n_places);
    else
        code = usage_error("sim-a2a", "--places is %lld: %s", (long long)n_places, sy_ctx_error(ctx));
    free(place);
    sy_ctx_destroy(ctx);
    return code;
}

bool sim_many_serve(const struct sim_hosts *hosts)
{
    return hosts->replicated && hosts->replica == SY_A2A_REPLICA_ALL;
}

int sim_check_nodes(const struct sim_hosts *hosts, int64_t node)
{
    if (hosts->replica != SY_A2A_REPLICA_LOCAL || hosts->n_devices % node == 0)
        return EXIT_DONE;
    return usage_error("sim-a2a", "--node is %lld with --replica local, want a divisor of %lld devices",
                       (long long)node, (long long)hosts->n_devices);
}

int sim_take_replica(struct sim_hosts *hosts, const char *word)
{
    const sy_op_info *const op = sy_op_find("all_to_all_dispatch");
    const sy_field_info *field = sy_op_field(op, 0);
    char words[128];
    int value;
    for (int i = 0; strcmp(field->name, "replica") != 0; i++)
        field = sy_op_field(op, i);
    if (op_word_value(field->words, word, &value)) {
        hosts->replica = (sy_a2a_replica)value;
        return EXIT_DONE;
    }
    op_words_text(field->words, ", ", words, sizeof words);
    return usage_error("sim-a2a", "--replica is %s, want one of %s", word, words);
}

/* p itself; else of those in its node number p mod how many; else of all. */
static int64_t nearest(const int64_t *holder, int64_t n, int64_t p, int64_t node)
{
    int64_t in_node = 0;
    for (int64_t i = 0; i < n; i++) {
        if (holder[i] == p)
            return p;
        in_node += node > 1 && holder[i] / node == p / node;
    }
    for (int64_t i = 0, seen = 0; i < n && in_node > 0; i++)
        if (holder[i] / node == p / node && seen++ == p % in_node)
            return holder[i];
    return holder[p % n];
}

int64_t sim_serve(struct sim_hosts *hosts, int64_t e, int64_t p, int64_t i, int64_t node)
{
    const int64_t *const holder = hosts->holder + hosts->first[e];
    const int64_t n = hosts->first[e + 1] - hosts->first[e], turn = hosts->turn[e]++;
    switch (hosts->replica) {
    case SY_A2A_REPLICA_ROUND_ROBIN:
        return holder[i % n];
    case SY_A2A_REPLICA_HASH:
        return holder[(int64_t)((uint64_t)i * 2654435769u % ((uint64_t)1 << 32)) % n];
    case SY_A2A_REPLICA_BALANCED:
        return holder[turn % n];
    case SY_A2A_REPLICA_LOCAL:
        return nearest(holder, n, p, node);
    default:
        return holder[0];
    }
}
