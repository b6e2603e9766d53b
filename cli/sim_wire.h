/*
 * The model of sim-a2a: what links between devices take for rows.
 */
#ifndef SWITCHYARD_CLI_SIM_WIRE_H
#define SWITCHYARD_CLI_SIM_WIRE_H

#include <stdint.h>

/* Of each device and direction. */
struct sim_wire {
    double latency_us, message_us, gb_per_s;
    int64_t node; /* devices that follow each other and have links of their own; 1: none */
    double node_latency_us, node_gb_per_s;
};

/*
 * Microseconds of one device: a round, its messages, and the bytes of its fuller direction. Of the links inside its node and of the
 * others, which work at the same time, the slower counts. _uniform: all other devices get as many bytes.
 */
double sim_wire_us(const struct sim_wire *wire, int64_t n_devices, double rows_out, double inside,
                   double outside);
double sim_uniform_us(const struct sim_wire *wire, int64_t n_devices, double rows, double bytes);

/* Of a table with so many bytes of each device, which all of them get. */
double sim_table_us(const struct sim_wire *wire, int64_t n_devices, double bytes);

/* "in nodes of 8 devices 2 us, 450 GB/s; ", or nothing. */
void sim_print_node(const struct sim_wire *wire);

/* The parameters of a kind of GPUs; EXIT_DONE, or the error is printed. */
int sim_take_preset(struct sim_wire *wire, const char *name);

#endif
