/*
 * See sim_wire.h.
 */
#include "sim_wire.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"

/* Whether all devices are in one node. */
static bool one_node(const struct sim_wire *wire, int64_t n_devices)
{
    return wire->node > 1 && n_devices <= wire->node;
}

double sim_wire_us(const struct sim_wire *wire, int64_t n_devices, double rows_out, double inside,
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

double sim_uniform_us(const struct sim_wire *wire, int64_t n_devices, double rows, double bytes)
{
    const double inside = part_inside(wire, n_devices);
    return sim_wire_us(wire, n_devices, rows, inside * bytes, (1 - inside) * bytes);
}

double sim_table_us(const struct sim_wire *wire, int64_t n_devices, double bytes)
{
    const bool inside = one_node(wire, n_devices);
    return ceil(log2((double)n_devices)) * (inside ? wire->node_latency_us : wire->latency_us) +
           (double)(n_devices - 1) * bytes / (inside ? wire->node_gb_per_s : wire->gb_per_s) * 1e-3;
}

void sim_print_node(const struct sim_wire *wire)
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
