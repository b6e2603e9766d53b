/*
 * Schedules: random sequences of exchanges with many of them open at a time. All devices start the same exchanges in the
 * same order, which a common seed gives. Between the starts each device tests, waits, frees and delays by a seed of its
 * own. Every output of every exchange is compared with the oracle, and no two exchanges have the same contents.
 *
 * One code for threads and for processes: a device plays a schedule over the transport it is given. Nothing here fails a
 * test before all devices have ended; schedule_add does, with the seed and the step.
 */
#pragma once

#include "mesh_cases.h"
#include "support.h"

#include <switchyard_transport.h>

enum {
    SCHEDULE_STEPS = 100,
    SCHEDULE_INFLIGHT = 8,
    SCHEDULE_ROUTINGS = 3,
    SCHEDULE_WINDOWS = 3,
    SCHEDULE_WINDOW_BYTES = 8192,
    SCHEDULE_TIMEOUT_MS = 40000 /* a wait that lasts so long is a hang */
};

/* ---- A transport between the comm and the real one ---- */

/* Which devices fail to make or to reach shared memory: it ends in all of them. */
enum schedule_loss { LOSS_EVERYWHERE, LOSS_ON_LAST, LOSS_AT_ATTACH };

/* Counts what the comm asks for, delays what ends, and has no shared memory left after some segments. */
struct schedule_probe {
    sy_transport real;
    int fail_share_from; /* this share and all later ones fail with NOMEM; 0: none */
    enum schedule_loss loss;
    int doubt; /* one of so many tests finds nothing ended; 0: none */
    uint64_t rng;
    int64_t exchanges, fences, shares;
};

/* The probe belongs to the caller and must outlive the comm. */
sy_transport schedule_probe_transport(struct schedule_probe *probe);

/* ---- Schedules ---- */

/* What one device does wrong on purpose; all of them must get the same status. */
enum schedule_fault {
    FAULT_NONE,
    FAULT_NO_INPUT, /* NULL */
    FAULT_LINKS,    /* VALUE */
    FAULT_INDEX,    /* INDEX: an expert that does not exist */
    FAULT_ROOM,     /* CAPACITY: one row too few */
    FAULT_OTHER,    /* MISMATCH: another number of links */
    FAULT_OPERATOR, /* MISMATCH: combine in place of dispatch, or the reverse */
    FAULT_NO_CTX,   /* NULL */
    FAULT_NO_PLACE, /* NULL: for the request */
    FAULT_FULL,     /* STATE: max_inflight requests are open */
    FAULT_REJECT,   /* VALUE: sy_comm_reject in place of the call */
    FAULT_LAST = FAULT_REJECT,
    FAULT_OPEN /* STATE: a request is open in a call that needs all freed */
};

struct schedule_step {
    enum { STEP_EXCHANGE, STEP_RENEW, STEP_RESERVE } kind; /* the last two need all requests freed */
    bool combines;
    int base; /* number of the random case; an exchange along a routing has that of the routing's dispatch */
    int routing; /* -1: none */
    bool uses;   /* the routing is an input; else it is filled */
    enum schedule_fault fault;
    int culprit;
    struct mesh_case m;
};

struct schedule {
    uint64_t seed;
    sy_mesh mesh;
    sy_comm_options options;
    bool shared;         /* the transport shall have shared memory */
    bool windows;        /* some inputs are in memory of the comm */
    int fail_share_from; /* as in the probe */
    enum schedule_loss loss;
    int doubt;
    struct schedule_step steps[SCHEDULE_STEPS];
};

struct schedule *schedule_new(uint64_t seed, sy_mesh mesh);
void schedule_free(struct schedule *s);

/* ---- Devices ---- */

/* What one device found. Plain memory: processes send it to each other. */
struct schedule_result {
    bool good;
    bool could_share, shares; /* at the beginning, at the end */
    char why[600];
    int64_t exchanges;                /* that succeeded */
    int64_t rejected;                 /* that all devices rejected */
    int64_t direct;                   /* exchanges whose rows were read in shared memory */
    int64_t posted;                   /* exchanges of the transport */
    int64_t segments;                 /* of shared memory asked for */
    int64_t most_open;                /* requests at a time */
    int64_t out_of_order;             /* frees of a request that was not the oldest */
    int64_t beyond;                   /* starts with max_inflight requests open */
    int64_t left_open;                /* requests that sy_comm_destroy ended */
    uint64_t order;                   /* hash of the order of the frees */
    uint32_t outcome[SCHEDULE_STEPS]; /* hash of status and sentence; 0: not known here */
};

/* One device plays a schedule. All devices call it, each with its own transport, which the call takes over. */
void schedule_play(const struct schedule *s, const sy_transport *transport, struct schedule_result *result);

struct schedule_totals {
    int64_t schedules, exchanges, rejected, direct, messages;
    int64_t grown, ended, apart, left_open, beyond, most_open, out_of_order;
};

/* Adds what the devices of a mesh found; fails the test when one of them found a fault, or when they disagree. */
void schedule_add(struct schedule_totals *totals, const struct schedule *s,
                  const struct schedule_result *results, int n_devices);

void schedule_merge(struct schedule_totals *totals, const struct schedule_totals *more);

/* Fails unless both ways of rows and everything that makes a schedule hard has happened. */
void schedule_expect_variety(const struct schedule_totals *totals);

/* "12000 exchanges (7000 by messages, 5000 in shared memory), ..." */
void schedule_print(const struct schedule_totals *totals, char *text, size_t bytes);

/* Exchanges a program shall do: SWITCHYARD_EXCHANGES, else `usual`. A single seed to play: SWITCHYARD_SCHEDULE. */
int64_t schedule_exchanges(int64_t usual);
bool schedule_single_seed(uint64_t *seed);

/* ---- Single situations (schedule_cases.c) ---- */

struct schedule_case {
    const char *name;
    int devices; /* at least */
    sy_comm_options options;
    bool shared;
    int fail_share_from;
    enum schedule_loss loss;
    int doubt;
    bool (*work)(int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes);
};

extern const struct schedule_case schedule_cases[];
extern const int n_schedule_cases;

/* One device plays a situation; `result` has good and why. */
void schedule_play_case(const struct schedule_case *c, const sy_transport *transport,
                        struct schedule_result *result);
