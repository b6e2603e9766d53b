/*
 * The devices of sim-a2a that host each expert, and which of them serves a choice.
 */
#ifndef SWITCHYARD_CLI_SIM_HOSTS_H
#define SWITCHYARD_CLI_SIM_HOSTS_H

#include <stdbool.h>
#include <stdint.h>

#include <switchyard.h>

struct common;

/* Zeroed arrays; holder has room for the hosts of all experts. */
struct sim_hosts {
    int64_t n_experts, n_devices;
    int64_t *first;         /* [E+1] of each expert's devices in `holder` */
    int64_t *holder;        /* devices that host an expert, ascending */
    int64_t *n_local;       /* [D] experts of a device */
    int64_t *turn;          /* [E] choices of the expert that were served */
    bool replicated;        /* an expert has two holders */
    sy_a2a_replica replica; /* set before */
};

/* From the mapping [E,D] of a file; EXIT_DONE, or the error is printed. */
int sim_read_hosts(struct sim_hosts *hosts, const char *path, const uint16_t *mapping);

/* Blocks of neighbours: E/D experts each if that is whole. */
void sim_place_blocks(struct sim_hosts *hosts);

/* By sy_moe_place, on so many places; EXIT_DONE, or the error is printed. */
int sim_place_loads(struct sim_hosts *hosts, const struct common *common, const int64_t *loads,
                    int64_t n_places);

/* Whether several devices get a token because of one expert; then partial sums are not possible. */
bool sim_many_serve(const struct sim_hosts *hosts);

/* As all_to_all_dispatch: with LOCAL nodes are of equal size. EXIT_DONE, or the error is printed. */
int sim_check_nodes(const struct sim_hosts *hosts, int64_t node);

/* The word of --replica; EXIT_DONE, or the error is printed. */
int sim_take_replica(struct sim_hosts *hosts, const char *word);

/* The device that serves the next choice of e, by token i of device p; with ALL the one that combine reads. Some device hosts e. */
int64_t sim_serve(struct sim_hosts *hosts, int64_t e, int64_t p, int64_t i, int64_t node);

#endif
