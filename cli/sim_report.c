/*
 * What sim-a2a prints: the formula of uniform routing, the model of the network, tables and JSON.
 */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "cli.h"
#include "emit.h"
#include "sim.h"

enum { SMALL_MATRIX = 16, INDEX_BYTES = 2 };

/* ---- The network ---- */

/* Whether all devices are in one node. */
static bool one_node(const struct sim_wire *wire, int64_t n_devices)
{
    return wire->node > 1 && n_devices <= wire->node;
}

/*
 * Microseconds of one device: a round, its messages, and the bytes of its fuller direction. Of the links inside its node and of the
 * others, which work at the same time, the slower counts. uniform_us: all other devices get as many bytes.
 */
static double wire_us(const struct sim_wire *wire, int64_t n_devices, double rows_out, double inside,
                      double outside)
{
    if (n_devices == 1)
        return 0;
    return (one_node(wire, n_devices) ? wire->node_latency_us : wire->latency_us) +
           fmin((double)(n_devices - 1), rows_out) * wire->message_us +
           fmax(inside / wire->node_gb_per_s, outside / wire->gb_per_s) * 1e-3;
}

/* The part of the bytes for other devices that stays in the node when all of them get as many. */
static double part_inside(const struct sim_wire *wire, int64_t n_devices)
{
    const int64_t node = wire->node < n_devices ? wire->node : n_devices;
    return wire->node > 1 && n_devices > 1 ? (double)(node - 1) / (double)(n_devices - 1) : 0;
}

static double uniform_us(const struct sim_wire *wire, int64_t n_devices, double rows, double bytes)
{
    const double inside = part_inside(wire, n_devices);
    return wire_us(wire, n_devices, rows, inside * bytes, (1 - inside) * bytes);
}

/* Of a table with so many bytes of each device, which all of them get. */
static double table_us(const struct sim_wire *wire, int64_t n_devices, double bytes)
{
    const bool inside = one_node(wire, n_devices);
    return ceil(log2((double)n_devices)) * (inside ? wire->node_latency_us : wire->latency_us) +
           (double)(n_devices - 1) * bytes / (inside ? wire->node_gb_per_s : wire->gb_per_s) * 1e-3;
}

/* "in nodes of 8 devices 2 us, 450 GB/s; ", or nothing. */
static void print_node(const struct sim_wire *wire)
{
    if (wire->node > 1)
        printf("in nodes of %" PRId64 " devices %g us, %g GB/s; ", wire->node, wire->node_latency_us,
               wire->node_gb_per_s);
}

/* Assumptions of the model, not measurements. */
static const struct preset {
    const char *name;
    struct sim_wire wire;
} presets[] = {
    {"h100", {5, 0.3, 50, 8, 2, 450}},  /* NVLink 4 in a node of 8, one 400 Gb/s adapter for each GPU */
    {"b200", {5, 0.3, 50, 8, 2, 900}},  /* NVLink 5 */
    {"gb200", {5, 0.3, 50, 72, 2, 900}} /* a rack of 72 */
};

int sim_take_preset(struct sim_wire *wire, const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++)
        if (strcmp(name, presets[i].name) == 0) {
            *wire = presets[i].wire;
            return EXIT_DONE;
        }
    return usage_error("sim-a2a", "--preset is %s, want h100, b200 or gb200", name);
}

/* ---- The formula and the model ---- */

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
    return table_us(&sim->wire, n_devices, (double)(n_tokens * sim->n_slots * INDEX_BYTES));
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
        load.us = fmax(load.us, wire_us(&sim->wire, d, out, fmax(near_out, near_in) * bytes,
                                        fmax(out - near_out, in - near_in) * bytes));
    }
    return load;
}

static double imbalance(double mean, double most)
{
    return mean > 0 ? most / mean : 1;
}

/* ---- The table of the formula ---- */

/* A row of the table, in bytes and microseconds of one device. */
struct row {
    int64_t devices, tokens;
    struct expected expected;
    double dispatch, dispatch_fp8, combine, padded;
    double dispatch_us, dispatch_fp8_us, combine_us, metadata_us;
};

static struct row row_of(const struct sim *sim, int64_t d, int64_t n)
{
    const double plain = row_bytes(sim, false), fp8 = row_bytes(sim, true);
    const struct expected expected = expect_uniform(sim, d, NULL);
    const double rows = (double)n * expected.remote_devices, back = (double)n * expected.remote_slots;
    return (struct row){d,
                        n,
                        expected,
                        rows * plain,
                        rows * fp8,
                        back * plain,
                        (double)(d * n) * plain,
                        uniform_us(&sim->wire, d, rows, rows * plain),
                        uniform_us(&sim->wire, d, rows, rows * fp8),
                        uniform_us(&sim->wire, d, back, back * plain),
                        metadata_us(sim, d, n)};
}

static void print_row(const struct row *row)
{
    printf("| %" PRId64 " | %" PRId64
           " | %.3f | %.2f | %.2f | %.2f, %.2f | %.2f | %.1f | %.0f, %.0f | %.0f | %.0f |\n",
           row->devices, row->tokens, row->expected.hit_rate, row->expected.remote_devices,
           row->expected.remote_slots, row->dispatch / 1e6, row->dispatch_fp8 / 1e6, row->combine / 1e6,
           row->padded / 1e6, row->dispatch_us, row->dispatch_fp8_us, row->combine_us, row->metadata_us);
}

static void emit_row(struct emit *json, const struct row *row)
{
    emit_begin(json, NULL, '{');
    emit_integer(json, "devices", row->devices);
    emit_integer(json, "tokens", row->tokens);
    emit_number(json, "hit_rate", row->expected.hit_rate);
    emit_number(json, "remote_devices", row->expected.remote_devices);
    emit_number(json, "remote_slots", row->expected.remote_slots);
    emit_number(json, "dispatch_bytes", row->dispatch);
    emit_number(json, "dispatch_fp8_bytes", row->dispatch_fp8);
    emit_number(json, "combine_bytes", row->combine);
    emit_number(json, "padded_bytes", row->padded);
    emit_number(json, "dispatch_us", row->dispatch_us);
    emit_number(json, "dispatch_fp8_us", row->dispatch_fp8_us);
    emit_number(json, "combine_us", row->combine_us);
    emit_number(json, "metadata_us", row->metadata_us);
    emit_end(json, '}');
}

static void print_head(const struct sim *sim)
{
    printf("%" PRId64 " of %" PRId64 " experts per token, uniform; rows of %" PRId64
           " elements: %.0f bytes (bf16), "
           "%.0f bytes (fp8)\n%g us latency, %g us per message, %g GB/s; ",
           sim->n_slots, sim->n_experts, sim->hidden, row_bytes(sim, false), row_bytes(sim, true),
           sim->wire.latency_us, sim->wire.message_us, sim->wire.gb_per_s);
    print_node(&sim->wire);
    printf("MB and us per device\n\n");
    puts(
        "| D | tokens | hit rate | remote devices | remote slots | dispatch MB, fp8 | combine MB | padded MB "
        "| dispatch us, fp8 | combine us | metadata us |\n"
        "|---|---|---|---|---|---|---|---|---|---|---|");
}

void sim_report_table(const struct sim *sim)
{
    struct emit json = {.out = stdout};
    if (sim->as_json) {
        emit_begin(&json, NULL, '{');
        emit_begin(&json, "rows", '[');
    } else {
        print_head(sim);
    }
    for (int i = 0; i < sim->devices.n; i++)
        for (int j = 0; j < sim->tokens.n; j++) {
            const struct row row = row_of(sim, sim->devices.items[i], sim->tokens.items[j]);
            if (sim->as_json)
                emit_row(&json, &row);
            else
                print_row(&row);
        }
    if (sim->as_json) {
        emit_end(&json, ']');
        emit_end(&json, '}');
    }
}

/* ---- Counted results ---- */

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

/* Whether several devices get a token because of one expert; then partial sums are not possible. */
static bool many_serve(const struct sim_hosts *hosts)
{
    return hosts->replicated && hosts->replica == SY_A2A_REPLICA_ALL;
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
        if (i == PARTIAL && many_serve(&sim->hosts))
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
    print_node(&sim->wire);
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
    if (many_serve(&sim->hosts))
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
void sim_report(const struct sim *sim)
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
