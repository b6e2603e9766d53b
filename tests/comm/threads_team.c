#include "threads_team.h"

static void member(int device, void *user)
{
    struct team *team = user;
    sy_ctx *ctx = NULL;
    sy_comm *comm = NULL;
    const sy_ctx_options one_thread = {.threads = 1};
    const sy_transport transport = threads_transport(team->hub, device);
    char *why = team->why[device];
    team->good[device] = false;
    snprintf(why, sizeof team->why[0], "no context or comm");
    if (sy_ctx_create(&ctx, &one_thread) == SY_OK &&
        sy_comm_create(&comm, &transport, &team->way->comm) == SY_OK)
        team->good[device] = team->work(team, device, ctx, comm, why, sizeof team->why[0]);
    sy_comm_destroy(comm);
    sy_ctx_destroy(ctx);
}

void run_team(struct team *team)
{
    const int n = team->mesh.rows * team->mesh.cols;
    team->hub = threads_hub_new(team->mesh, &team->way->transport);
    threads_run(n, member, team);
    threads_hub_free(team->hub);
    for (int d = 0; d < n; d++)
        if (!team->good[d])
            fail_msg("%s, device %d: %s", team->way->name, d, team->why[d]);
}
