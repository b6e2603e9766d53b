/*
 * switchyard sim-a2a: estimates the cost of an exchange between D devices. Counts the rows of every pair from a
 * routing, read from a file or drawn, and applies a model of the network with three parameters: latency, time per
 * message, bandwidth. Devices of a node may have links of their own, at the same time. With --table the same from the
 * formula of uniform routing, for several D.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <switchyard_describe.h>

#include "cli.h"
#include "number.h"
#include "ops.h"
#include "sim.h"

/* ---- Memory ---- */

static void *alloc_array(struct sim *sim, size_t n, size_t bytes)
{
    return sim->arrays[sim->n_arrays++] = calloc(n, bytes);
}

static bool alloc_arrays(struct sim *sim, int64_t n_hosted)
{
    const size_t d = (size_t)sim->n_devices + 1, e = (size_t)sim->n_experts + 1, k = (size_t)sim->n_slots + 1;
    bool good = true;
    sim->hosts.n_experts = sim->n_experts;
    sim->hosts.n_devices = sim->n_devices;
    sim->hosts.first = alloc_array(sim, e, sizeof *sim->hosts.first);
    sim->hosts.holder = alloc_array(sim, (size_t)n_hosted + 1, sizeof *sim->hosts.holder);
    sim->hosts.n_local = alloc_array(sim, d, sizeof *sim->hosts.n_local);
    sim->hosts.turn = alloc_array(sim, e, sizeof *sim->hosts.turn);
    sim->stamp = alloc_array(sim, d, sizeof *sim->stamp);
    sim->dispatch = alloc_array(sim, d * d, sizeof *sim->dispatch);
    sim->slots = alloc_array(sim, d * d, sizeof *sim->slots);
    sim->deck = alloc_array(sim, e, sizeof *sim->deck);
    sim->loads = alloc_array(sim, e, sizeof *sim->loads);
    sim->weight = alloc_array(sim, e, sizeof *sim->weight);
    sim->taken = alloc_array(sim, e, sizeof *sim->taken);
    sim->choice = alloc_array(sim, k, sizeof *sim->choice);
    for (int i = 0; i < sim->n_arrays; i++)
        good = good && sim->arrays[i];
    return good;
}

static void free_arrays(struct sim *sim)
{
    for (int i = 0; i < sim->n_arrays; i++)
        free(sim->arrays[i]);
}

/* ---- The devices of each expert ---- */

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

/* From the mapping [E,D] of a file; EXIT_DONE, or the error is printed. */
static int read_hosts(struct sim_hosts *hosts, const char *path, const uint16_t *mapping)
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

/* Blocks of neighbours: E/D experts each if that is whole. */
static void place_blocks(struct sim_hosts *hosts)
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

/* By sy_moe_place, on so many places; EXIT_DONE, or the error is printed. */
static int place_loads(struct sim_hosts *hosts, const struct common *common, const int64_t *loads,
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

/* As all_to_all_dispatch: with LOCAL nodes are of equal size. EXIT_DONE, or the error is printed. */
static int check_nodes(const struct sim_hosts *hosts, int64_t node)
{
    if (hosts->replica != SY_A2A_REPLICA_LOCAL || hosts->n_devices % node == 0)
        return EXIT_DONE;
    return usage_error("sim-a2a", "--node is %lld with --replica local, want a divisor of %lld devices",
                       (long long)node, (long long)hosts->n_devices);
}

/* The word of --replica; EXIT_DONE, or the error is printed. */
static int take_replica(struct sim_hosts *hosts, const char *word)
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

/* The device that serves the next choice of e, by token i of device p; with ALL the one that combine reads. Some device hosts e. */
static int64_t serve(struct sim_hosts *hosts, int64_t e, int64_t p, int64_t i, int64_t node)
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

/* ---- Drawing tokens ---- */

/* An expert by weight, of those not taken; `left` is the sum of their weights. */
static int64_t draw_weighted(struct sim *sim, double left)
{
    double point = random_unit(&sim->random) * left;
    int64_t last = 0;
    for (int64_t e = 0; e < sim->n_experts; e++)
        if (!sim->taken[e]) {
            last = e;
            point -= sim->weight[e];
            if (point < 0)
                break;
        }
    return last; /* the last one also when rounding left a remainder */
}

static void draw_token(struct sim *sim)
{
    if (sim->skew == 0) {
        for (int64_t k = 0; k < sim->n_slots; k++) {
            const int64_t other =
                k + (int64_t)((random_bits(&sim->random) >> 32) * (uint64_t)(sim->n_experts - k) >> 32);
            const int64_t e = sim->deck[other];
            sim->deck[other] = sim->deck[k];
            sim->deck[k] = sim->choice[k] = e;
        }
        return;
    }
    double left = 0;
    for (int64_t e = 0; e < sim->n_experts; e++)
        left += sim->weight[e];
    for (int64_t k = 0; k < sim->n_slots; k++) {
        const int64_t e = draw_weighted(sim, left);
        sim->choice[k] = e;
        sim->taken[e] = true;
        left -= sim->weight[e];
    }
    for (int64_t k = 0; k < sim->n_slots; k++)
        sim->taken[sim->choice[k]] = false;
}

/* ---- Counting ---- */

/* A token of device p goes to device q, unless it is there. */
static void count_row(struct sim *sim, int64_t p, int64_t q, int64_t token)
{
    if (sim->stamp[q] == token + 1)
        return;
    sim->stamp[q] = token + 1;
    sim->dispatch[p * sim->n_devices + q]++;
    sim->remote_devices += q != p;
}

/* A token of device p, number `token` of all. Slots of no expert, or of one named before, are not counted. */
static void count_token(struct sim *sim, int64_t p, int64_t token)
{
    struct sim_hosts *const hosts = &sim->hosts;
    for (int64_t k = 0; k < sim->n_slots; k++) {
        const int64_t e = sim->choice[k];
        bool live = e >= 0;
        for (int64_t j = 0; j < k && live; j++)
            live = sim->choice[j] != e;
        if (!live || hosts->first[e] == hosts->first[e + 1])
            continue;
        const int64_t home = serve(hosts, e, p, token, sim->wire.node);
        sim->slots[home * sim->n_devices + p]++;
        sim->remote_slots += home != p;
        count_row(sim, p, home, token);
        for (int64_t i = hosts->first[e]; hosts->replica == SY_A2A_REPLICA_ALL && i < hosts->first[e + 1];
             i++)
            count_row(sim, p, hosts->holder[i], token);
    }
}

/* The index with all bits set is no expert: -1. */
static int64_t index_at(const struct st_tensor *indices, int64_t i)
{
    const size_t bytes = st_type_bytes(indices->view.dtype);
    uint64_t index = 0;
    memcpy(&index, (const char *)indices->view.data + (size_t)i * bytes,
           bytes); /* little-endian, as the file is */
    if (bytes == sizeof(uint16_t))
        return index == UINT16_MAX ? -1 : (int64_t)index;
    return bytes == sizeof(int32_t) ? (int32_t)index : (int64_t)index;
}

/* Where token n of device p is in the file. */
static int64_t place_in_file(const struct sim *sim, int64_t p, int64_t n)
{
    const int rank = sim->indices->view.ndim;
    if (sim->by_position || sim->concat_dim == 1 || rank < 3)
        return p * sim->n_tokens + n;
    const int64_t s = sim->indices->shape[rank - 2] / sim->n_devices;
    return (n / s * sim->n_devices + p) * s + n % s;
}

static int count_file(struct sim *sim)
{
    for (int64_t i = 0; i < sim->n_devices * sim->n_tokens; i++) {
        const int64_t p = i / sim->n_tokens, t = place_in_file(sim, p, i % sim->n_tokens);
        for (int64_t k = 0; k < sim->n_slots; k++) {
            const int64_t e = index_at(sim->indices, t * sim->n_slots + k);
            if (e < -1 || e >= sim->n_experts)
                return plain_error("%s: %s of token %" PRId64 ", slot %" PRId64 " is %" PRId64
                                   ", want an expert below %" PRId64 " or none",
                                   sim->path, sim->indices->name, t, k, e, sim->n_experts);
            sim->choice[k] = e;
        }
        count_token(sim, p, i);
    }
    return EXIT_DONE;
}

/* Every token in turn, the same in every pass; only its experts are counted, or its rows. */
static void count_drawn(struct sim *sim, bool loads)
{
    sim->random = (uint64_t)sim->seed;
    for (int64_t e = 0; e < sim->n_experts; e++) {
        sim->deck[e] = e;
        sim->weight[e] = pow((double)(e + 1), -sim->skew);
    }
    for (int64_t t = 0; t < sim->n_devices * sim->n_tokens; t++) {
        draw_token(sim);
        if (!loads)
            count_token(sim, t / sim->n_tokens, t);
        for (int64_t k = 0; k < sim->n_slots && loads; k++)
            sim->loads[sim->choice[k]]++;
    }
}

/* ---- The file ---- */

static int64_t product(const struct st_tensor *tensor, int from, int to)
{
    int64_t n = 1;
    for (int i = from; i < to; i++)
        n *= tensor->shape[i]; /* of a tensor that is in memory */
    return n;
}

static bool is_type(const struct st_tensor *tensor, DLDataType type)
{
    return tensor->view.dtype.code == type.code && tensor->view.dtype.bits == type.bits;
}

/* Mapping [E,D], [1,1,E,D] or [D,1,E,D]: copies after the first are ignored. */
static int read_mapping(struct sim *sim, const struct st_tensor *mapping)
{
    const int rank = mapping ? mapping->view.ndim : 0;
    if (!mapping || !is_type(mapping, SY_U16) || (rank != 2 && rank != 4))
        return plain_error("%s: want expert_mapping [E,D] of U16", sim->path);
    sim->n_experts = mapping->shape[rank - 2];
    sim->n_devices = mapping->shape[rank - 1];
    if (sim->n_experts < 1 || sim->n_experts > MAX_EXPERTS || sim->n_devices < 1 ||
        sim->n_devices > MAX_DEVICES || mapping->bytes == 0)
        return plain_error("%s: expert_mapping has %" PRId64 " experts and %" PRId64
                           " devices, want 1 to %d and 1 to %d",
                           sim->path, sim->n_experts, sim->n_devices, MAX_EXPERTS, MAX_DEVICES);
    return EXIT_DONE;
}

/* expert_indices [D,...,K], or expert_metadata: [T,K] or [1,Bt,St,K], or D copies of either. */
static int read_indices(struct sim *sim, const struct st_file *file)
{
    const struct st_tensor *const indices = st_find(file, "expert_indices");
    const struct st_tensor *const metadata = st_find(file, "expert_metadata");
    if (!indices == !metadata)
        return plain_error("%s: want one of expert_indices and expert_metadata", sim->path);
    sim->indices = indices ? indices : metadata;
    sim->by_position = indices != NULL;
    const int rank = sim->indices->view.ndim;
    if (!is_type(sim->indices, SY_U16) && !is_type(sim->indices, SY_I32) && !is_type(sim->indices, SY_I64))
        return plain_error("%s: %s is %s, want U16, I32 or I64", sim->path, sim->indices->name,
                           st_type_name(sim->indices->view.dtype));
    /* [D,T,K], [D,1,Bt,St,K], [D,Bt,St,K] */
    const bool copies = !indices && (rank % 2 == 1 || (rank == 4 && sim->indices->shape[0] != 1));
    if (rank < 2 || sim->n_devices < 1 || ((indices || copies) && sim->indices->shape[0] != sim->n_devices) ||
        sim->indices->shape[rank - 1] < 1)
        return plain_error("%s: %s has not the shape of %" PRId64 " devices", sim->path, sim->indices->name,
                           sim->n_devices);
    const int64_t tokens = product(sim->indices, copies ? 1 : 0, rank - 1);
    sim->n_slots = sim->indices->shape[rank - 1];
    sim->n_tokens = tokens / sim->n_devices;
    const bool by_sequence = !indices && sim->concat_dim == 2 && rank > 3;
    if (tokens % sim->n_devices != 0 || (by_sequence && sim->indices->shape[rank - 2] % sim->n_devices != 0))
        return plain_error("%s: %s has %" PRId64 " tokens, which %" PRId64 " devices cannot share", sim->path,
                           sim->indices->name, tokens, sim->n_devices);
    return EXIT_DONE;
}

static int run_file(struct sim *sim)
{
    struct st_file file;
    struct st_message message;
    if (!st_load(sim->path, &file, &message))
        return plain_error("%s: %s", sim->path, message.text);
    const struct st_tensor *const mapping = st_find(&file, "expert_mapping");
    int code = read_mapping(sim, mapping);
    if (code == EXIT_DONE)
        code = read_indices(sim, &file);
    if (code == EXIT_DONE && !alloc_arrays(sim, sim->n_experts * sim->n_devices))
        code = plain_error("out of memory");
    if (code == EXIT_DONE)
        code = read_hosts(&sim->hosts, sim->path, mapping->view.data);
    if (code == EXIT_DONE)
        code = check_nodes(&sim->hosts, sim->wire.node);
    if (code == EXIT_DONE)
        code = count_file(sim);
    if (code == EXIT_DONE)
        sim_report(sim);
    st_free(&file);
    return code;
}

static int run_drawn(struct sim *sim, const struct common *common)
{
    sim->n_devices = sim->devices.items[0];
    sim->n_tokens = sim->tokens.items[0];
    if (!alloc_arrays(sim, sim->n_places > 0 ? sim->n_places : sim->n_experts))
        return plain_error("out of memory");
    int code = check_nodes(&sim->hosts, sim->wire.node);
    if (sim->n_places == 0)
        place_blocks(&sim->hosts);
    else if (code == EXIT_DONE) {
        count_drawn(sim, true);
        code = place_loads(&sim->hosts, common, sim->loads, sim->n_places);
    }
    if (code != EXIT_DONE)
        return code;
    count_drawn(sim, false);
    sim_report(sim);
    return EXIT_DONE;
}

/* ---- Command line ---- */

static bool parse_list(const char *text, int64_t low, int64_t high, struct list *list)
{
    list->n = 0;
    for (const char *rest = text; list->n < MAX_LIST;) {
        char item[24];
        const size_t length = strcspn(rest, ",");
        int64_t value = 0;
        snprintf(item, sizeof item, "%.*s", length < sizeof item ? (int)length : (int)sizeof item - 1, rest);
        if (length >= sizeof item || !parse_int64(item, &value) || value < low || value > high)
            return false;
        list->items[list->n++] = value;
        if (rest[length] == '\0')
            return true;
        rest += length + 1;
    }
    return false;
}

/* Options with a number: range and destination. */
struct number_option {
    const char *name;
    double low, high;
    int64_t *integer; /* or */
    double *real;
    bool drawn;
};

static int take_number(struct sim *sim, const struct number_option *option, const char *text)
{
    double value = 0;
    int64_t integer = 0;
    const bool good = option->integer ? parse_int64(text, &integer) : parse_double(text, &value);
    if (option->integer)
        value = (double)integer;
    if (!good || !(value >= option->low && value <= option->high))
        return usage_error("sim-a2a", "--%s is %s, want %s from %g to %g", option->name, text,
                           option->integer ? "an integer" : "a number", option->low, option->high);
    if (option->integer)
        *option->integer = integer;
    else
        *option->real = value;
    sim->drawn = sim->drawn || option->drawn;
    return EXIT_DONE;
}

static int take_value(struct sim *sim, const struct arg *arg, const char *value)
{
    if (arg_is(arg, "preset"))
        return sim_take_preset(&sim->wire, value);
    if (arg_is(arg, "replica"))
        return take_replica(&sim->hosts, value);
    const struct number_option options[] = {
        {"experts", 1, MAX_EXPERTS, &sim->n_experts, NULL, true},
        {"k", 1, MAX_EXPERTS, &sim->n_slots, NULL, true},
        {"seed", -0x1p62, 0x1p62, &sim->seed, NULL, true},
        {"skew", 0, 100, NULL, &sim->skew, true},
        {"places", 1, 1 << 16, &sim->n_places, NULL, true},
        {"hidden", 1, 1 << 24, &sim->hidden, NULL, false},
        {"latency", 0, 1e9, NULL, &sim->wire.latency_us, false},
        {"message", 0, 1e9, NULL, &sim->wire.message_us, false},
        {"bandwidth", 1e-6, 1e9, NULL, &sim->wire.gb_per_s, false},
        {"node", 1, MAX_DEVICES, &sim->wire.node, NULL, false},
        {"node-latency", 0, 1e9, NULL, &sim->wire.node_latency_us, false},
        {"node-bandwidth", 1e-6, 1e9, NULL, &sim->wire.node_gb_per_s, false},
        {"output-concat-dim", 1, 2, &sim->concat_dim, NULL, false},
    };
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (arg_is(arg, options[i].name))
            return take_number(sim, &options[i], value);
    const bool devices = arg_is(arg, "devices");
    if (devices || arg_is(arg, "tokens")) {
        sim->drawn = true;
        if (parse_list(value, devices, devices ? MAX_DEVICES : 1 << 20,
                       devices ? &sim->devices : &sim->tokens))
            return EXIT_DONE;
        return usage_error("sim-a2a", "--%.*s is %s, want integers from %d to %d with commas between",
                           arg->length, arg->text, value, devices, devices ? MAX_DEVICES : 1 << 20);
    }
    if (!arg_is(arg, "type"))
        return usage_error("sim-a2a", "sim-a2a has no option --%.*s", arg->length, arg->text);
    sim->fp8 = strcmp(value, "fp8") == 0;
    if (!sim->fp8 && strcmp(value, "bf16") != 0)
        return usage_error("sim-a2a", "--type is %s, want bf16 or fp8", value);
    return EXIT_DONE;
}

static int take_option(struct sim *sim, struct arg_list *list, const struct arg *arg)
{
    bool *const flag = arg_is(arg, "json")     ? &sim->as_json
                       : arg_is(arg, "table")  ? &sim->table
                       : arg_is(arg, "matrix") ? &sim->matrix
                                               : NULL;
    if (flag && !arg->value) {
        *flag = true;
        return EXIT_DONE;
    }
    const char *const value = arg_value(list, arg);
    if (!value)
        return usage_error("sim-a2a", "--%.*s needs a value", arg->length, arg->text);
    return take_value(sim, arg, value);
}

static int parse_line(struct sim *sim, struct arg_list *list)
{
    for (struct arg arg = arg_next(list); arg.kind != ARG_END; arg = arg_next(list)) {
        int code = EXIT_DONE;
        if (arg.kind == ARG_OPTION)
            code = take_option(sim, list, &arg);
        else if (sim->path)
            code = usage_error("sim-a2a", "one word too many: %s", arg.text);
        else
            sim->path = arg.text;
        if (code != EXIT_DONE)
            return code;
    }
    if (sim->path && (sim->table || sim->drawn))
        return usage_error("sim-a2a",
                           "%s contains a routing; remove --table, --devices, --experts, --k, --tokens, "
                           "--places, --skew and "
                           "--seed",
                           sim->path);
    if (sim->table && (sim->skew > 0 || sim->matrix || sim->n_places > 0 || sim->hosts.replica))
        return usage_error("sim-a2a",
                           "--table is of uniform routing: no --skew, --matrix, --places and --replica");
    if (sim->hosts.replica && !sim->path && sim->n_places == 0)
        return usage_error("sim-a2a", "--replica needs a file or --places: experts are on one device each");
    if (!sim->table && (sim->devices.n > 1 || sim->tokens.n > 1))
        return usage_error("sim-a2a", "several numbers of devices or tokens need --table");
    if (sim->n_slots > sim->n_experts)
        return usage_error("sim-a2a", "--k is %" PRId64 ", want at most the %" PRId64 " experts",
                           sim->n_slots, sim->n_experts);
    return EXIT_DONE;
}

int command_sim_a2a(struct common *common, struct arg_list *list)
{
    struct sim sim = {
        .n_experts = 256,
        .n_slots = 8,
        .hidden = 7168,
        .seed = 1,
        .wire = {2, 0.3, 50, 1, 2, 450},
        .concat_dim = 1,
    };
    int code = parse_line(&sim, list);
    if (code != EXIT_DONE)
        return code;
    if (sim.devices.n == 0)
        sim.devices =
            sim.table ? (struct list){{8, 16, 32, 64, 128, 256}, 6} : (struct list){.items = {64}, .n = 1};
    if (sim.tokens.n == 0)
        sim.tokens = (struct list){.items = {128}, .n = 1};
    if (sim.table)
        sim_report_table(&sim);
    else
        code = sim.path ? run_file(&sim) : run_drawn(&sim, common);
    free_arrays(&sim);
    return code;
}
