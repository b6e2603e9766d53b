/*
 * A transport whose processes are threads of this one: rows are copied from the sender's memory by the receiver, and
 * everything can be counted, delayed, put out of order or made to fail.
 */
#pragma once

#include "../support.h"

#include <switchyard_transport.h>

enum { THREADS_MOST = 8 };

struct threads_options {
    bool shared;     /* memory that all threads read */
    int delay;       /* a ticket has not ended the first so many times it is tested, at most */
    bool shuffled;   /* messages of an exchange arrive in any order */
    bool contagious; /* after a failure in one thread nothing works in any */
};

/* What one device did. */
struct threads_counters {
    int64_t gathered[SY_N_CHANNELS]; /* bytes that came from others */
    int64_t sent, received;          /* bytes of rows */
    int64_t messages, longest;       /* sent; bytes of the longest */
};

struct threads_hub;
struct threads_hub *threads_hub_new(sy_mesh mesh, const struct threads_options *options);
void threads_hub_free(struct threads_hub *hub); /* when all its comms are gone */
sy_transport threads_transport(struct threads_hub *hub, int device);
struct threads_counters threads_count(const struct threads_hub *hub, int device);

/* The n-th call of a device from now fails with SY_ERR_COMM; 0: none. The next share of any device fails with NOMEM. */
void threads_fail_at(struct threads_hub *hub, int device, int n);
void threads_fail_share(struct threads_hub *hub);

/* One byte of what a device gives to its next gather of headers is changed on its way, for all of them. `seal`, where
   given, is called before and after. */
void threads_damage(struct threads_hub *hub, int device, int byte, int mask, void (*seal)(void *header));

/* one(device, user) on n threads at a time. */
void threads_run(int n, void (*one)(int device, void *user), void *user);
