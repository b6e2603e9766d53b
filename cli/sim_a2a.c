/*
 * switchyard sim-a2a: estimates the cost of an exchange between D devices. Counts the rows of every pair from a
 * routing, read from a file or drawn, and applies a model of the network with three parameters: latency, time per
 * message, bandwidth. Devices of a node may have links of their own, at the same time. With --table the same from the
 * formula of uniform routing, for several D.
 *
 * Letters: p q device, e expert, k slot of a token.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "emit.h"
#include "number.h"
#include "safetensors.h"
#include "sim_hosts.h"
#include "sim_wire.h"

enum { MAX_DEVICES = 1024, MAX_EXPERTS = 65535, MAX_LIST = 16, SMALL_MATRIX = 16, INDEX_BYTES = 2 };

struct list {
    int64_t items[MAX_LIST];
    int n;
};

struct sim {
    const char *path; /* NULL: the routing is drawn */
    struct list devices, tokens;
    int64_t n_experts, n_slots, hidden, seed;
    int64_t n_places; /* of experts and their replicas; 0: each expert is on one device */
    double skew;
    struct sim_wire wire;
    bool fp8, as_json, table, matrix;
    bool drawn; /* an option that only a drawn routing has was given */
    int64_t concat_dim;

    int64_t n_devices, n_tokens; /* of one device */
    struct sim_hosts hosts;

    int64_t *dispatch, *slots;            /* [D,D] rows from p to q; of the combine without local_reduce */
    int64_t remote_devices, remote_slots; /* sums over all tokens */
    int64_t *stamp;                       /* [D] the last token that was sent there */

    const struct st_tensor *indices; /* of the file */
    bool by_position;                /* ordered by position: [D,N,K]; else one table of all tokens */
    uint64_t random;
    int64_t *deck;   /* [E] for drawing without weights */
    int64_t *loads;  /* [E] choices of an expert */
    double *weight;  /* [E] */
    bool *taken;     /* [E] */
    int64_t *choice; /* [K] of one token */
};

/* ---- Memory -------------------------------------------------------------------------------------------- */

static bool alloc_arrays(struct sim *sim, int64_t n_hosted)
{
    const size_t d = (size_t)sim->n_devices + 1, e = (size_t)sim->n_experts + 1, k = (size_t)sim->n_slots + 1;
    sim->stamp = calloc(d, sizeof *sim->stamp);
    sim->dispatch = calloc(d * d, sizeof *sim->dispatch);
    sim->slots = calloc(d * d, sizeof *sim->slots);
    sim->deck = calloc(e, sizeof *sim->deck);
    sim->loads = calloc(e, sizeof *sim->loads);
    sim->weight = calloc(e, sizeof *sim->weight);
    sim->taken = calloc(e, sizeof *sim->taken);
    sim->choice = calloc(k, sizeof *sim->choice);
    return sim_hosts_alloc(&sim->hosts, sim->n_experts, sim->n_devices, n_hosted) && sim->stamp &&
           sim->dispatch && sim->slots && sim->deck && sim->loads && sim->weight && sim->taken && sim->choice;
}

static void free_arrays(struct sim *sim)
{
    sim_hosts_free(&sim->hosts);
    free(sim->stamp);
    free(sim->dispatch);
    free(sim->slots);
    free(sim->deck);
    free(sim->loads);
    free(sim->weight);
    free(sim->taken);
    free(sim->choice);
}

/* ---- Drawing tokens ------------------------------------------------------------------------------------ */

/* splitmix64 */
static uint64_t random_bits(struct sim *sim)
{
    uint64_t z = sim->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static double random_unit(struct sim *sim)
{
    return (double)(random_bits(sim) >> 11) * 0x1p-53;
}

/* An expert by weight, of those not taken; `left` is the sum of their weights. */
static int64_t draw_weighted(struct sim *sim, double left)
{
    double point = random_unit(sim) * left;
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
                k + (int64_t)((random_bits(sim) >> 32) * (uint64_t)(sim->n_experts - k) >> 32);
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

/* ---- Counting ------------------------------------------------------------------------------------------ */

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
        const int64_t home = sim_serve(hosts, e, p, token, sim->wire.node);
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
    const char *const at = (const char *)indices->view.data + (size_t)i * st_type_bytes(indices->view.dtype);
    uint16_t u16;
    int32_t i32;
    int64_t i64;
    if (indices->view.dtype.bits == 16) {
        memcpy(&u16, at, sizeof u16);
        return u16 == UINT16_MAX ? -1 : u16;
    }
    if (indices->view.dtype.bits == 32) {
        memcpy(&i32, at, sizeof i32);
        return i32;
    }
    memcpy(&i64, at, sizeof i64);
    return i64;
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

/* ---- The formula and the model ------------------------------------------------------------------------- */

static double row_bytes(const struct sim *sim, bool fp8)
{
    const int64_t scales = (sim->hidden + 127) / 128;
    return (double)(fp8 ? sim->hidden + 4 * scales : 2 * sim->hidden);
}

/* The probability that K different ones of E experts include none of `n_local`. */
static double miss_rate(double n_experts, double n_local, int64_t n_slots)
{
    double miss = 1;
    for (int64_t k = 0; k < n_slots; k++)
        miss *= fmax(0, n_experts - n_local - (double)k) / (n_experts - (double)k);
    return miss;
}

/* The rows that a token sends to other devices when all choices of experts are equally probable. */
struct expected {
    double hit_rate, remote_devices, remote_slots;
};

/* n_local NULL: experts are placed in blocks. */
static struct expected expect_uniform(const struct sim *sim, int64_t n_devices, const int64_t *n_local)
{
    struct expected expected = {0};
    const double d = (double)n_devices, n_experts = (double)sim->n_experts;
    for (int64_t q = 0; q < n_devices; q++) {
        const double here = n_local ? (double)n_local[q]
                                    : ceil((double)(q + 1) * n_experts / d) - ceil((double)q * n_experts / d);
        expected.hit_rate += (1 - miss_rate(n_experts, here, sim->n_slots)) / d;
    }
    expected.remote_devices = (d - 1) * expected.hit_rate;
    expected.remote_slots = (double)sim->n_slots * (1 - 1 / d);
    return expected;
}

static double metadata_us(const struct sim *sim, int64_t n_devices, int64_t n_tokens)
{
    return sim_table_us(&sim->wire, n_devices, (double)(n_tokens * sim->n_slots * INDEX_BYTES));
}

/* The load of one exchange on the devices. */
struct load {
    double out_mean, out_max, in_mean, in_max; /* rows */
    double row_bytes, us;                      /* of the slowest device */
};

static struct load load_of(const struct sim *sim, const int64_t *rows, bool transposed, double bytes)
{
    const int64_t d = sim->n_devices;
    struct load load = {.row_bytes = bytes};
    for (int64_t p = 0; p < d; p++) {
        double out = 0, in = 0, near_out = 0, near_in = 0;
        for (int64_t q = 0; q < d; q++) {
            const double there = p == q ? 0 : (double)rows[transposed ? q * d + p : p * d + q];
            const double here = p == q ? 0 : (double)rows[transposed ? p * d + q : q * d + p];
            const bool near = sim->wire.node > 1 && p / sim->wire.node == q / sim->wire.node;
            out += there;
            in += here;
            near_out += near ? there : 0;
            near_in += near ? here : 0;
        }
        load.out_mean += out / (double)d;
        load.in_mean += in / (double)d;
        load.out_max = fmax(load.out_max, out);
        load.in_max = fmax(load.in_max, in);
        load.us = fmax(load.us, sim_wire_us(&sim->wire, d, out, fmax(near_out, near_in) * bytes,
                                            fmax(out - near_out, in - near_in) * bytes));
    }
    return load;
}

static double imbalance(double mean, double most)
{
    return mean > 0 ? most / mean : 1;
}

/* ---- The table of the formula -------------------------------------------------------------------------- */

static void print_table(const struct sim *sim)
{
    const double plain = row_bytes(sim, false), fp8 = row_bytes(sim, true);
    printf("%" PRId64 " of %" PRId64 " experts per token, uniform; rows of %" PRId64
           " elements: %.0f bytes (bf16), "
           "%.0f bytes (fp8)\n%g us latency, %g us per message, %g GB/s; ",
           sim->n_slots, sim->n_experts, sim->hidden, plain, fp8, sim->wire.latency_us, sim->wire.message_us,
           sim->wire.gb_per_s);
    sim_print_node(&sim->wire);
    printf("MB and us per device\n\n");
    puts(
        "| D | tokens | hit rate | remote devices | remote slots | dispatch MB, fp8 | combine MB | padded MB "
        "| dispatch us, fp8 | combine us | metadata us |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|");
    for (int i = 0; i < sim->devices.n; i++)
        for (int j = 0; j < sim->tokens.n; j++) {
            const int64_t d = sim->devices.items[i], n = sim->tokens.items[j];
            const struct expected expected = expect_uniform(sim, d, NULL);
            const double rows = (double)n * expected.remote_devices, back = (double)n * expected.remote_slots;
            printf("| %" PRId64 " | %" PRId64
                   " | %.3f | %.2f | %.2f | %.2f, %.2f | %.2f | %.1f | %.0f, %.0f | "
                   "%.0f | %.0f |\n",
                   d, n, expected.hit_rate, expected.remote_devices, expected.remote_slots,
                   rows * plain / 1e6, rows * fp8 / 1e6, back * plain / 1e6, (double)(d * n) * plain / 1e6,
                   sim_uniform_us(&sim->wire, d, rows, rows * plain),
                   sim_uniform_us(&sim->wire, d, rows, rows * fp8),
                   sim_uniform_us(&sim->wire, d, back, back * plain), metadata_us(sim, d, n));
        }
}

static void emit_table(const struct sim *sim)
{
    struct emit json = {.out = stdout};
    const double plain = row_bytes(sim, false), fp8 = row_bytes(sim, true);
    emit_begin(&json, NULL, '{');
    emit_begin(&json, "rows", '[');
    for (int i = 0; i < sim->devices.n; i++)
        for (int j = 0; j < sim->tokens.n; j++) {
            const int64_t d = sim->devices.items[i], n = sim->tokens.items[j];
            const struct expected expected = expect_uniform(sim, d, NULL);
            const double rows = (double)n * expected.remote_devices, back = (double)n * expected.remote_slots;
            emit_begin(&json, NULL, '{');
            emit_integer(&json, "devices", d);
            emit_integer(&json, "tokens", n);
            emit_number(&json, "hit_rate", expected.hit_rate);
            emit_number(&json, "remote_devices", expected.remote_devices);
            emit_number(&json, "remote_slots", expected.remote_slots);
            emit_number(&json, "dispatch_bytes", rows * plain);
            emit_number(&json, "dispatch_fp8_bytes", rows * fp8);
            emit_number(&json, "combine_bytes", back * plain);
            emit_number(&json, "padded_bytes", (double)(d * n) * plain);
            emit_number(&json, "dispatch_us", sim_uniform_us(&sim->wire, d, rows, rows * plain));
            emit_number(&json, "dispatch_fp8_us", sim_uniform_us(&sim->wire, d, rows, rows * fp8));
            emit_number(&json, "combine_us", sim_uniform_us(&sim->wire, d, back, back * plain));
            emit_number(&json, "metadata_us", metadata_us(sim, d, n));
            emit_end(&json, '}');
        }
    emit_end(&json, ']');
    emit_end(&json, '}');
}

/* ---- Counted results ----------------------------------------------------------------------------------- */

enum { DISPATCH, SLOTS, PARTIAL, N_LOADS };

static void print_matrix(const struct sim *sim, const char *title, const int64_t *rows)
{
    printf("\n%s, rows from device (down) to device (across)\n", title);
    for (int64_t p = 0; p < sim->n_devices; p++) {
        for (int64_t q = 0; q < sim->n_devices; q++)
            printf(" %6" PRId64, rows[p * sim->n_devices + q]);
        putchar('\n');
    }
}

/* expected is NaN where there is no formula. */
static void print_per_token(const char *name, double counted, double expected)
{
    printf("  %-14s  %7.2f", name, counted);
    if (isnan(expected))
        printf("        -\n");
    else
        printf("  %7.2f\n", expected);
}

static void print_counted(const struct sim *sim, const struct expected *expected, const struct load *loads)
{
    static const char *const names[N_LOADS] = {"dispatch", "combine, slots", "combine, local_reduce"};
    const double tokens = fmax(1, (double)(sim->n_devices * sim->n_tokens));
    printf("%" PRId64 " devices, %" PRId64 " experts, %" PRId64 " slots per token, %" PRId64
           " tokens per device, ",
           sim->n_devices, sim->n_experts, sim->n_slots, sim->n_tokens);
    if (sim->path) {
        printf("routed as in ");
        text_print(stdout, sim->path);
        printf("\n\n");
    } else if (sim->skew > 0)
        printf("drawn with skew %g, seed %" PRId64 "\n\n", sim->skew, sim->seed);
    else
        printf("drawn uniformly, seed %" PRId64 "\n\n", sim->seed);
    printf("per token         counted  uniform\n");
    print_per_token("remote devices", (double)sim->remote_devices / tokens, expected->remote_devices);
    print_per_token("remote slots", (double)sim->remote_slots / tokens, expected->remote_slots);
    putchar('\n');
    printf(
        "per device             rows out: mean    max  imb.   rows in: mean    max  imb.    MB out, in (max)"
        "        us\n");
    for (int i = 0; i < N_LOADS; i++) {
        const struct load *const l = &loads[i];
        if (i == PARTIAL && sim_many_serve(&sim->hosts))
            printf("  %-21s none: an expert has two holders\n", names[i]);
        else
            printf("  %-21s %14.1f %6.0f %5.2f %15.1f %6.0f %5.2f %9.2f %9.2f %9.1f\n", names[i], l->out_mean,
                   l->out_max, imbalance(l->out_mean, l->out_max), l->in_mean, l->in_max,
                   imbalance(l->in_mean, l->in_max), l->out_max * l->row_bytes / 1e6,
                   l->in_max * l->row_bytes / 1e6, l->us);
    }
    printf("  %-21s %84.1f\n", "metadata", metadata_us(sim, sim->n_devices, sim->n_tokens));
    printf("\nModel: %g us latency, %g us per message, %g GB/s; ", sim->wire.latency_us, sim->wire.message_us,
           sim->wire.gb_per_s);
    sim_print_node(&sim->wire);
    printf("the slowest device counts.\n");
    if (sim->matrix || sim->n_devices <= SMALL_MATRIX) {
        print_matrix(sim, "dispatch", sim->dispatch);
        print_matrix(sim, "combine, slots", sim->slots);
    }
}

static void emit_load(struct emit *json, const char *key, const struct load *load)
{
    emit_begin(json, key, '{');
    emit_number(json, "rows_out_mean", load->out_mean);
    emit_number(json, "rows_out_max", load->out_max);
    emit_number(json, "rows_in_mean", load->in_mean);
    emit_number(json, "rows_in_max", load->in_max);
    emit_number(json, "bytes_out_mean", load->out_mean * load->row_bytes);
    emit_number(json, "bytes_out_max", load->out_max * load->row_bytes);
    emit_number(json, "bytes_in_mean", load->in_mean * load->row_bytes);
    emit_number(json, "bytes_in_max", load->in_max * load->row_bytes);
    emit_number(json, "imbalance_out", imbalance(load->out_mean, load->out_max));
    emit_number(json, "imbalance_in", imbalance(load->in_mean, load->in_max));
    emit_number(json, "us", load->us);
    emit_end(json, '}');
}

static void emit_matrix(struct emit *json, const char *key, const struct sim *sim, const int64_t *rows)
{
    emit_begin(json, key, '[');
    for (int64_t p = 0; p < sim->n_devices; p++) {
        emit_begin(json, NULL, '[');
        for (int64_t q = 0; q < sim->n_devices; q++)
            emit_integer(json, NULL, rows[p * sim->n_devices + q]);
        emit_end(json, ']');
    }
    emit_end(json, ']');
}

static void emit_counted(const struct sim *sim, const struct expected *expected, const struct load *loads)
{
    struct emit json = {.out = stdout};
    const double tokens = fmax(1, (double)(sim->n_devices * sim->n_tokens));
    emit_begin(&json, NULL, '{');
    emit_integer(&json, "devices", sim->n_devices);
    emit_integer(&json, "experts", sim->n_experts);
    emit_integer(&json, "k", sim->n_slots);
    emit_integer(&json, "tokens", sim->n_tokens);
    emit_number(&json, "remote_devices", (double)sim->remote_devices / tokens);
    emit_number(&json, "remote_devices_uniform", expected->remote_devices);
    emit_number(&json, "remote_slots", (double)sim->remote_slots / tokens);
    emit_number(&json, "remote_slots_uniform", expected->remote_slots);
    emit_load(&json, "dispatch", &loads[DISPATCH]);
    emit_load(&json, "combine_slots", &loads[SLOTS]);
    if (sim_many_serve(&sim->hosts))
        emit_string(&json, "combine_local_reduce", NULL);
    else
        emit_load(&json, "combine_local_reduce", &loads[PARTIAL]);
    emit_number(&json, "metadata_us", metadata_us(sim, sim->n_devices, sim->n_tokens));
    if (sim->matrix || sim->n_devices <= SMALL_MATRIX) {
        emit_matrix(&json, "dispatch_rows", sim, sim->dispatch);
        emit_matrix(&json, "combine_slots_rows", sim, sim->slots);
    }
    emit_end(&json, '}');
}

/* Dispatch in the requested type; combine returns rows in bf16. */
static void report(const struct sim *sim)
{
    struct expected expected = expect_uniform(sim, sim->n_devices, sim->hosts.n_local);
    if (sim->hosts.replicated && sim->hosts.replica != SY_A2A_REPLICA_ALL)
        expected.remote_devices = expected.remote_slots = NAN;
    const double back = row_bytes(sim, false);
    const struct load loads[N_LOADS] = {
        [DISPATCH] = load_of(sim, sim->dispatch, false, row_bytes(sim, sim->fp8)),
        [SLOTS] = load_of(sim, sim->slots, false, back),
        [PARTIAL] = load_of(sim, sim->dispatch, true, back),
    };
    if (sim->as_json)
        emit_counted(sim, &expected, loads);
    else
        print_counted(sim, &expected, loads);
}

/* ---- The file ------------------------------------------------------------------------------------------ */

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
    if (!mapping || !is_type(mapping, SY_U16) || (rank != 2 && rank != 4)) {
        plain_error("%s: want expert_mapping [E,D] of U16", sim->path);
        return EXIT_USAGE;
    }
    sim->n_experts = mapping->shape[rank - 2];
    sim->n_devices = mapping->shape[rank - 1];
    if (sim->n_experts < 1 || sim->n_experts > MAX_EXPERTS || sim->n_devices < 1 ||
        sim->n_devices > MAX_DEVICES || mapping->bytes == 0) {
        plain_error("%s: expert_mapping has %" PRId64 " experts and %" PRId64
                    " devices, want 1 to %d and 1 to %d",
                    sim->path, sim->n_experts, sim->n_devices, MAX_EXPERTS, MAX_DEVICES);
        return EXIT_USAGE;
    }
    return EXIT_DONE;
}

/* expert_indices [D,...,K], or expert_metadata: [T,K] or [1,Bt,St,K], or D copies of either. */
static int read_indices(struct sim *sim, const struct st_file *file)
{
    const struct st_tensor *const indices = st_find(file, "expert_indices");
    const struct st_tensor *const metadata = st_find(file, "expert_metadata");
    if (!indices == !metadata) {
        plain_error("%s: want one of expert_indices and expert_metadata", sim->path);
        return EXIT_USAGE;
    }
    sim->indices = indices ? indices : metadata;
    sim->by_position = indices != NULL;
    const int rank = sim->indices->view.ndim;
    if (!is_type(sim->indices, SY_U16) && !is_type(sim->indices, SY_I32) && !is_type(sim->indices, SY_I64))
        return plain_error("%s: %s is %s, want U16, I32 or I64", sim->path, sim->indices->name,
                           st_type_name(sim->indices->view.dtype));
    /* [D,T,K], [D,1,Bt,St,K], [D,Bt,St,K] */
    const bool copies = !indices && (rank % 2 == 1 || (rank == 4 && sim->indices->shape[0] != 1));
    if (rank < 2 || ((indices || copies) && sim->indices->shape[0] != sim->n_devices) ||
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
        code = sim_read_hosts(&sim->hosts, sim->path, mapping->view.data);
    if (code == EXIT_DONE)
        code = sim_check_nodes(&sim->hosts, sim->wire.node);
    if (code == EXIT_DONE)
        code = count_file(sim);
    if (code == EXIT_DONE)
        report(sim);
    st_free(&file);
    return code;
}

static int run_drawn(struct sim *sim, const struct common *common)
{
    sim->n_devices = sim->devices.items[0];
    sim->n_tokens = sim->tokens.items[0];
    if (!alloc_arrays(sim, sim->n_places > 0 ? sim->n_places : sim->n_experts))
        return plain_error("out of memory");
    int code = sim_check_nodes(&sim->hosts, sim->wire.node);
    if (sim->n_places == 0)
        sim_place_blocks(&sim->hosts);
    else if (code == EXIT_DONE) {
        count_drawn(sim, true);
        code = sim_place_loads(&sim->hosts, common, sim->loads, sim->n_places);
    }
    if (code != EXIT_DONE)
        return code;
    count_drawn(sim, false);
    report(sim);
    return EXIT_DONE;
}

/* ---- Command line -------------------------------------------------------------------------------------- */

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
        return sim_take_replica(&sim->hosts, value);
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
    if (sim.table && sim.as_json)
        emit_table(&sim);
    else if (sim.table)
        print_table(&sim);
    else
        code = sim.path ? run_file(&sim) : run_drawn(&sim, common);
    free_arrays(&sim);
    return code;
}
