/*
 * A mesh of threads, each with a context and a comm of its own, and what each of them does.
 */
#pragma once

#include "threads_transport.h"

/* One way rows can take. */
struct way {
    const char *name;
    struct threads_options transport;
    sy_comm_options comm;
};

struct team {
    const struct way *way;
    sy_mesh mesh;
    int kind; /* of work that has several */
    struct threads_hub *hub;
    /* True when all is well; else `why` says what is not. It fails no test by itself, and goes on as the others do. */
    bool (*work)(struct team *team, int device, sy_ctx *ctx, sy_comm *comm, char *why, size_t why_bytes);
    void *user;
    bool good[THREADS_MOST];
    char why[THREADS_MOST][400];
};

/* Runs team->work on all devices; fails the test unless all of them return true. */
void run_team(struct team *team);
