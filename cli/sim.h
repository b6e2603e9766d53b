/*
 * The state of sim-a2a, which sim_a2a.c fills and sim_report.c prints. Letters: p q device, e expert, k slot of a token.
 */
#pragma once

#include <switchyard.h>

#include "safetensors.h"

enum { MAX_DEVICES = 1024, MAX_EXPERTS = 65535, MAX_LIST = 16 };

struct list {
    int64_t items[MAX_LIST];
    int n;
};

/* The devices that host each expert, and which of them serves a choice. */
struct sim_hosts {
    int64_t n_experts, n_devices;
    int64_t *first;         /* [E+1] of each expert's devices in `holder` */
    int64_t *holder;        /* devices that host an expert, ascending */
    int64_t *n_local;       /* [D] experts of a device */
    int64_t *turn;          /* [E] choices of the expert that were served */
    bool replicated;        /* an expert has two holders */
    sy_a2a_replica replica; /* set before */
};

/* What links between devices take for rows: of each device and direction. */
struct sim_wire {
    double latency_us, message_us, gb_per_s;
    int64_t node; /* devices that follow each other and have links of their own; 1: none */
    double node_latency_us, node_gb_per_s;
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

    void *arrays[12]; /* the memory of those below, and of hosts */
    int n_arrays;
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

/* The counted rows and their cost, as text or JSON. */
void sim_report(const struct sim *sim);

/* The table of the formula of uniform routing, for several numbers of devices and tokens. */
void sim_report_table(const struct sim *sim);

/* The parameters of a kind of GPUs; EXIT_DONE, or the error is printed. */
int sim_take_preset(struct sim_wire *wire, const char *name);
