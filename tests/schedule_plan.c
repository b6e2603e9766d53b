/*
 * Schedules as a seed gives them, and the probe.
 */
#include "schedule.h"

static bool one_in(uint64_t *rng, int64_t n)
{
    return rng_below(rng, n) == 0;
}

/* ---- The probe ---- */

static sy_status probe_gather(void *self, int channel, sy_axis axis, const void *send, size_t bytes,
                              void *recv, const size_t *counts, sy_transport_ticket *ticket)
{
    struct schedule_probe *p = self;
    p->fences += channel == SY_CHANNEL_FENCE;
    return p->real.gather(p->real.self, channel, axis, send, bytes, recv, counts, ticket);
}

static sy_status probe_exchange(void *self, const sy_transport_exchange *exchange,
                                sy_transport_ticket *ticket)
{
    struct schedule_probe *p = self;
    p->exchanges++;
    return p->real.exchange(p->real.self, exchange, ticket);
}

static sy_status probe_test(void *self, sy_transport_ticket *ticket, bool *done)
{
    struct schedule_probe *p = self;
    *done = false;
    if (p->doubt > 0 && one_in(&p->rng, p->doubt))
        return SY_OK;
    return p->real.test(p->real.self, ticket, done);
}

/* All devices count alike. */
static bool lost(const struct schedule_probe *p)
{
    const bool last = p->real.device == p->real.mesh.rows * p->real.mesh.cols - 1;
    return p->fail_share_from > 0 && p->shares >= p->fail_share_from && (last || p->loss == LOSS_EVERYWHERE);
}

static sy_status probe_share(void *self, size_t bytes, unsigned char token[SY_SHARE_TOKEN_BYTES],
                             void **segment)
{
    struct schedule_probe *p = self;
    p->shares++;
    return lost(p) && p->loss != LOSS_AT_ATTACH ? SY_ERR_NOMEM
                                                : p->real.share(p->real.self, bytes, token, segment);
}

static sy_status probe_attach(void *self, void *segment, const unsigned char *tokens, void **base)
{
    const struct schedule_probe *p = self;
    return lost(p) ? SY_ERR_NOMEM : p->real.attach(p->real.self, segment, tokens, base);
}

static void probe_settle(void *self, void *segment)
{
    const struct schedule_probe *p = self;
    p->real.settle(p->real.self, segment);
}

static void probe_unshare(void *self, void *segment)
{
    const struct schedule_probe *p = self;
    p->real.unshare(p->real.self, segment);
}

static void probe_destroy(void *self, bool broken)
{
    const struct schedule_probe *p = self;
    p->real.destroy(p->real.self, broken);
}

static void probe_stop(void *self)
{
    const struct schedule_probe *p = self;
    p->real.stop(p->real.self);
}

static const char *probe_error(void *self)
{
    const struct schedule_probe *p = self;
    return p->real.error(p->real.self);
}

sy_transport schedule_probe_transport(struct schedule_probe *probe)
{
    sy_transport t = probe->real;
    t.self = probe;
    t.gather = probe_gather;
    t.exchange = probe_exchange;
    t.test = probe_test;
    if (t.share != NULL) {
        t.share = probe_share;
        t.attach = probe_attach;
        t.settle = probe_settle;
        t.unshare = probe_unshare;
    }
    t.destroy = probe_destroy;
    if (t.stop != NULL)
        t.stop = probe_stop;
    t.error = probe_error;
    return t;
}

/* ---- Schedules ---- */

/* A mistake that is one in this call. */
static enum schedule_fault pick_fault(const struct schedule_step *step, uint64_t *rng)
{
    const struct a2a_case *c = &step->m.a2a;
    const enum schedule_fault fault = (enum schedule_fault)(1 + rng_below(rng, FAULT_LAST));
    const int d = step->culprit;
    if (fault == FAULT_INDEX && (step->combines || step->uses || c->tokens[d] == 0))
        return FAULT_LINKS;
    if (fault == FAULT_ROOM) {
        const int64_t rows =
            step->combines ? oracle_a2a_inputs(c, d, step->m.local_reduce) : oracle_a2a_dispatch(c, d, NULL);
        return c->layout == SY_LAYOUT_PADDED || rows == 0 ? FAULT_NO_INPUT : fault;
    }
    return fault;
}

static void pick_exchange(struct schedule *s, int number, int *filled, uint64_t *rng)
{
    struct schedule_step *step = &s->steps[number];
    const int n_devices = s->mesh.rows * s->mesh.cols;
    step->combines = rng_below(rng, 5) < 2;
    step->routing = one_in(rng, 2) ? (int)rng_below(rng, SCHEDULE_ROUTINGS) : -1;
    if (step->routing >= 0 && filled[step->routing] < 0 && step->combines)
        step->routing = -1;
    step->uses = step->routing >= 0 && filled[step->routing] >= 0 && (step->combines || one_in(rng, 3));
    step->base = step->uses ? s->steps[filled[step->routing]].base : 2 + (int)rng_below(rng, 1 << 24);
    mesh_case_random(&step->m, s->mesh, step->base);
    /* Rows grow with time, so that the room for them in shared memory must grow again and again. */
    const bool large = one_in(rng, 12);
    if (large || step->uses)
        mesh_case_renew(&step->m, large ? 64 + rng_below(rng, 8 * (number + 1)) : 1 + rng_below(rng, 9),
                        rng_u64(rng));
    step->culprit = (int)rng_below(rng, n_devices);
    if (s->options.check == SY_CHECK_FULL && one_in(rng, 10))
        step->fault = pick_fault(step, rng);
    if (step->routing >= 0 && !step->uses && step->fault == FAULT_NONE)
        filled[step->routing] = number;
}

static void pick_options(struct schedule *s, uint64_t *rng)
{
    const int way = (int)(s->seed % 3); /* messages, shared memory, shared memory that ends */
    s->shared = way > 0;
    s->windows = rng_below(rng, 3) < (s->shared ? 2 : 1);
    if (way == 2)
        s->loss = (enum schedule_loss)rng_below(rng, 3);
    if (way == 2)
        s->fail_share_from = 1 + (int)rng_below(rng, s->windows ? SCHEDULE_WINDOWS + 4 : 4);
    s->doubt = one_in(rng, 3) ? 0 : 2 + (int)rng_below(rng, 3);
    s->options = (sy_comm_options){.max_inflight = 2 + (int)(s->seed / 3 * 3 % (SCHEDULE_INFLIGHT - 1)),
                                   .timeout_ms = SCHEDULE_TIMEOUT_MS,
                                   .check = one_in(rng, 4) ? SY_CHECK_NONE : SY_CHECK_FULL,
                                   .chunk_bytes = one_in(rng, 4) ? (size_t)(1 + rng_below(rng, 64)) : 0,
                                   .pack = one_in(rng, 4),
                                   .no_shared = !s->shared};
}

struct schedule *schedule_new(uint64_t seed, sy_mesh mesh)
{
    struct schedule *s = calloc(1, sizeof *s);
    int filled[SCHEDULE_ROUTINGS];
    uint64_t rng = seed;
    if (s == NULL)
        abort();
    for (int i = 0; i < SCHEDULE_ROUTINGS; i++)
        filled[i] = -1;
    s->seed = seed;
    s->mesh = mesh;
    pick_options(s, &rng);
    for (int i = 0; i < SCHEDULE_STEPS; i++) {
        const int64_t pause = rng_below(&rng, 40);
        s->steps[i].routing = -1;
        if (pause >= 2) {
            pick_exchange(s, i, filled, &rng);
            continue;
        }
        s->steps[i].kind = pause == 0 ? STEP_RENEW : STEP_RESERVE;
        s->steps[i].culprit = (int)rng_below(&rng, mesh.rows * mesh.cols);
        if (s->options.check == SY_CHECK_FULL && one_in(&rng, 3))
            s->steps[i].fault = FAULT_OPEN;
    }
    return s;
}

void schedule_free(struct schedule *s)
{
    for (int i = 0; i < SCHEDULE_STEPS; i++)
        mesh_case_free(&s->steps[i].m);
    free(s);
}
