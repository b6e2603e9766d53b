/*
 * One device of a schedule.
 */
#include "schedule.h"

#include <sched.h>

/* A request, from its start to its free. */
struct item {
    int number; /* of its step */
    struct mesh_call *call;
    sy_request *request;
    sy_ctx *ctx;
    int window; /* the input is in this one; -1: in memory of its own */
    bool routed, done;
};

struct player {
    const struct schedule *s;
    struct schedule_result *result;
    int device;
    uint64_t rng; /* of this device alone */
    int eager;    /* things it does between two starts, at most */
    sy_comm_options options;
    sy_ctx *ctx[2];
    sy_comm *comm;
    sy_routing *routings[SCHEDULE_ROUTINGS];
    void *windows[SCHEDULE_WINDOWS];
    bool taken[SCHEDULE_WINDOWS];
    struct item items[SCHEDULE_INFLIGHT]; /* in order of their starts */
    int n_items, now;
};

static void blame(struct player *p, int number, const char *what, const char *text)
{
    struct schedule_result *r = p->result;
    if (r->good)
        snprintf(r->why, sizeof r->why, "step %d: %s: %s", number, what, text);
    r->good = false;
}

static uint32_t hash_text(sy_status status, const char *text)
{
    uint32_t hash = 2166136261u ^ (uint32_t)status;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    return hash | 1;
}

/* What a device passes to sy_comm_reject. */
static const char cannot[] = "a binding: input is a list, want an array", no_room[] = "a binding: no room";

/* ---- What must come out ---- */

static sy_status status_of(enum schedule_fault fault)
{
    static const sy_status statuses[] = {[FAULT_NONE] = SY_OK,
                                         [FAULT_NO_INPUT] = SY_ERR_NULL,
                                         [FAULT_LINKS] = SY_ERR_VALUE,
                                         [FAULT_INDEX] = SY_ERR_INDEX,
                                         [FAULT_ROOM] = SY_ERR_CAPACITY,
                                         [FAULT_OTHER] = SY_ERR_MISMATCH,
                                         [FAULT_OPERATOR] = SY_ERR_MISMATCH,
                                         [FAULT_NO_CTX] = SY_ERR_NULL,
                                         [FAULT_NO_PLACE] = SY_ERR_NULL,
                                         [FAULT_FULL] = SY_ERR_STATE,
                                         [FAULT_REJECT] = SY_ERR_VALUE,
                                         [FAULT_OPEN] = SY_ERR_STATE};
    return statuses[fault];
}

/* At phase ROUTED the table and the counts of a dispatch are valid. */
static void see_routed(struct player *p, struct item *it, sy_status status)
{
    const sy_all_to_all_dispatch_args *a = &it->call->dispatch;
    const struct {
        int field;
        const DLTensor *asked;
    } tables[] = {{MESH_METADATA, a->metadata},
                  {MESH_COUNTS, a->expert_counts},
                  {MESH_OFFSETS, a->expert_offsets},
                  {MESH_FROM, a->rows_from},
                  {MESH_TO, a->rows_to}};
    if (it->routed)
        return;
    it->routed = true;
    for (size_t i = 0; status == SY_OK && !it->call->combines && i < COUNT_OF(tables); i++) {
        const struct mesh_tensor *x = &it->call->tensors[tables[i].field][0];
        if (tables[i].asked && memcmp(x->mem, x->want, x->bytes) != 0)
            blame(p, it->number, "wrong at phase ROUTED", x->name);
    }
}

static void check_outputs(struct player *p, const struct item *it)
{
    const struct schedule_step *step = &p->s->steps[it->number];
    char why[256] = "";
    if (step->fault == FAULT_NONE) {
        if (!mesh_call_check(it->call, why, sizeof why))
            blame(p, it->number, "wrong bytes", why);
    } else if ((step->fault != FAULT_INDEX || p->device != step->culprit) &&
               !mesh_call_untouched(it->call, why, sizeof why)) {
        blame(p, it->number, "rejected, and written", why);
    }
}

/* None after a success; after a rejection the operator that the culprit called comes first. */
static bool right_sentence(const struct schedule_step *step, const char *sentence)
{
    const char *name = step->combines ? "all_to_all_combine:" : "all_to_all_dispatch:";
    if (step->fault == FAULT_NONE)
        return sentence[0] == '\0';
    if (step->fault == FAULT_OPERATOR)
        return strncmp(sentence, "all_to_all_", strlen("all_to_all_")) == 0;
    if (step->fault == FAULT_FULL && strcmp(sentence, no_room) == 0)
        return true;
    return step->fault == FAULT_REJECT ? strcmp(sentence, cannot) == 0
                                       : strncmp(sentence, name, strlen(name)) == 0;
}

/* The outputs are compared, and the input is written over as a caller may do now. */
static void see_done(struct player *p, struct item *it, sy_status status)
{
    const sy_status want = status_of(p->s->steps[it->number].fault);
    const char *sentence = sy_ctx_error(it->ctx);
    if (it->done)
        return;
    it->done = true;
    p->result->outcome[it->number] = hash_text(status, sentence);
    p->result->exchanges += want == SY_OK && status == SY_OK;
    p->result->rejected += want != SY_OK && status == want;
    if (status != want)
        blame(p, it->number, sy_status_name(status), sentence);
    else if (!right_sentence(&p->s->steps[it->number], sentence))
        blame(p, it->number, "a sentence that belongs to another call", sentence);
    else
        check_outputs(p, it);
    const struct mesh_tensor *x = &it->call->tensors[MESH_INPUT][0];
    memset(it->window < 0 ? x->mem : p->windows[it->window], 0xEE, x->bytes);
    for (int f = MESH_PLANE; f < MESH_TOKENS; f++)
        if (it->call->tensors[f][0].mem)
            memset(it->call->tensors[f][0].mem, 0xEE, it->call->tensors[f][0].bytes);
    if (it->window >= 0)
        p->taken[it->window] = false;
}

static void see(struct player *p, struct item *it, sy_phase phase, sy_status status)
{
    see_routed(p, it, status);
    if (phase == SY_PHASE_DONE || status != SY_OK)
        see_done(p, it, status);
}

/* ---- What a device does by itself ---- */

static void wait_for(struct player *p, struct item *it, sy_phase phase)
{
    see(p, it, phase, sy_request_wait(it->request, phase));
}

static void test(struct player *p, struct item *it, sy_phase phase)
{
    bool done = false;
    const sy_status status = sy_request_test(it->request, phase, &done);
    if (done)
        see(p, it, phase, status);
    else if (status != SY_OK)
        blame(p, it->number, "a test that is not done", sy_status_name(status));
}

static void release(struct player *p, int i)
{
    struct item *it = &p->items[i];
    see(p, it, SY_PHASE_DONE, sy_request_free(it->request));
    p->result->out_of_order += i > 0;
    p->result->order = p->result->order * 1099511628211u + (uint64_t)it->number + 1;
    mesh_call_free(it->call);
    p->n_items--;
    memmove(it, it + 1, (size_t)(p->n_items - i) * sizeof *it);
}

static void spin(struct player *p)
{
    volatile int64_t left = rng_below(&p->rng, 3000);
    while (left > 0)
        left--;
}

static void do_something(struct player *p)
{
    const int64_t what = rng_below(&p->rng, 12);
    const int i = p->n_items > 0 ? (int)rng_below(&p->rng, p->n_items) : -1;
    if (what < 2 || i < 0)
        sched_yield();
    else if (what < 3)
        spin(p);
    else if (what < 8)
        test(p, &p->items[i], what % 2 ? SY_PHASE_DONE : SY_PHASE_ROUTED);
    else if (what < 10)
        wait_for(p, &p->items[i], what % 2 ? SY_PHASE_DONE : SY_PHASE_ROUTED);
    else
        release(p, i);
}

/* ---- What all devices do in the same order ---- */

/* A combine in place of a dispatch, and the reverse. */
static struct mesh_call *make_call(struct player *p, const struct schedule_step *step)
{
    const bool wrong = step->fault == FAULT_OPERATOR && p->device == step->culprit;
    sy_routing *routing = step->routing < 0 || wrong ? NULL : p->routings[step->routing];
    if (step->combines != wrong)
        return mesh_combine_new(p->comm, &step->m, routing);
    struct mesh_call *call = mesh_dispatch_new(p->comm, &step->m, routing);
    if (step->uses && !wrong) {
        call->dispatch.reuse_routing = true;
        call->dispatch.expert_indices = call->dispatch.expert_mapping = call->dispatch.metadata = NULL;
    }
    return call;
}

static void shorten(struct mesh_call *call, int field)
{
    if (call->tensors[field][0].mem)
        call->tensors[field][0].shape[0] -= call->of->spare + 1;
}

static void corrupt(struct mesh_call *call, enum schedule_fault fault)
{
    const bool combines = call->combines;
    int *links = combines ? &call->combine.num_links : &call->dispatch.num_links;
    const DLTensor **input = combines ? &call->combine.input : &call->dispatch.input;
    switch (fault) {
    case FAULT_NO_INPUT:
        *input = NULL;
        break;
    case FAULT_LINKS:
        *links = -1;
        break;
    case FAULT_OTHER:
        *links = 7;
        break;
    case FAULT_INDEX: /* in any of the index types */
        memset(call->tensors[MESH_INDICES][0].mem, 0x7f, call->tensors[MESH_INDICES][0].row_bytes);
        break;
    case FAULT_ROOM:
        if (combines) {
            shorten(call, MESH_INPUT);
            shorten(call, MESH_PLANE);
        } else
            for (int f = MESH_TOKENS; f <= MESH_SRC; f++)
                if (f != MESH_METADATA && f != MESH_MASK)
                    shorten(call, f);
        break;
    default:
        break;
    }
}

/* Into memory of the comm, if this device likes. */
static int place_input(struct player *p, struct mesh_call *call)
{
    const struct mesh_tensor *x = &call->tensors[MESH_INPUT][0];
    const int w = (int)rng_below(&p->rng, SCHEDULE_WINDOWS);
    if (p->windows[w] == NULL || p->taken[w] || x->bytes == 0 || x->bytes > SCHEDULE_WINDOW_BYTES)
        return -1;
    memcpy(p->windows[w], x->mem, x->bytes);
    call->fields[MESH_INPUT][0].data = p->windows[w];
    p->taken[w] = true;
    return w;
}

/* A routing that is an input is filled; one that is to be filled again has no reader. */
static void await_routing(struct player *p, const struct schedule_step *step)
{
    for (int i = 0; i < p->n_items && step->routing >= 0; i++) {
        const struct schedule_step *other = &p->s->steps[p->items[i].number];
        if (other->routing != step->routing)
            continue;
        if (!other->uses)
            wait_for(p, &p->items[i], SY_PHASE_ROUTED);
        else if (!step->uses)
            wait_for(p, &p->items[i], SY_PHASE_DONE);
    }
}

/* Mistakes that leave no request on the device that makes them. It returns when all devices have come. */
static bool start_nothing(struct player *p, const struct schedule_step *step, struct mesh_call *call)
{
    sy_request *none = NULL;
    sy_ctx *ctx = p->ctx[rng_below(&p->rng, 2)];
    const bool full = p->n_items == p->options.max_inflight;
    char why[256];
    sy_status status;
    if (p->device != step->culprit || step->fault < FAULT_NO_CTX)
        return false;
    if (step->fault == FAULT_REJECT)
        status = sy_comm_reject(ctx, p->comm, SY_ERR_VALUE, cannot);
    else if (step->fault == FAULT_FULL && !full)
        status = sy_comm_reject(ctx, p->comm, SY_ERR_STATE, no_room);
    else if (step->fault == FAULT_NO_PLACE)
        status = mesh_call_start(ctx, p->comm, call, NULL);
    else
        status = mesh_call_start(step->fault == FAULT_NO_CTX ? NULL : ctx, p->comm, call, &none);
    p->result->beyond += step->fault == FAULT_FULL && full;
    p->result->rejected++;
    if (step->fault != FAULT_NO_CTX)
        p->result->outcome[p->now] = hash_text(status, sy_ctx_error(ctx));
    if (status != status_of(step->fault) || none != NULL)
        blame(p, p->now, "a start that must fail", sy_status_name(status));
    else if (step->fault != FAULT_NO_CTX && !right_sentence(step, sy_ctx_error(ctx)))
        blame(p, p->now, "a sentence that belongs to another call", sy_ctx_error(ctx));
    else if (!mesh_call_untouched(call, why, sizeof why))
        blame(p, p->now, "rejected, and written", why);
    mesh_call_free(call);
    return true;
}

static void start(struct player *p)
{
    const struct schedule_step *step = &p->s->steps[p->now];
    await_routing(p, step);
    struct mesh_call *call = make_call(p, step);
    if (step->fault != FAULT_NONE && p->device == step->culprit)
        corrupt(call, step->fault);
    if (start_nothing(p, step, call))
        return;
    if (p->n_items == p->options.max_inflight)
        release(p, (int)rng_below(&p->rng, p->n_items));
    struct item *it = &p->items[p->n_items];
    *it = (struct item){.number = p->now, .call = call, .ctx = p->ctx[rng_below(&p->rng, 2)]};
    it->window = place_input(p, call);
    const sy_status status = mesh_call_start(it->ctx, p->comm, call, &it->request);
    if (status != SY_OK)
        blame(p, p->now, "start", sy_ctx_error(it->ctx));
    if (it->request == NULL) {
        mesh_call_free(call);
        return;
    }
    p->n_items++;
    p->result->most_open = p->n_items > p->result->most_open ? p->n_items : p->result->most_open;
}

/* Frees some memory of the comm and takes other. */
static sy_status renew_window(struct player *p, int w)
{
    sy_status status = sy_comm_free(p->ctx[0], p->comm, p->windows[w]);
    if (status != SY_OK || !p->s->windows)
        return status;
    return sy_comm_alloc(p->ctx[0], p->comm, SCHEDULE_WINDOW_BYTES, &p->windows[w]);
}

/* Collective calls that need all requests freed. */
static void between(struct player *p)
{
    const struct schedule_step *step = &p->s->steps[p->now];
    const bool leaves_one = step->fault == FAULT_OPEN && p->device == step->culprit && p->n_items > 0;
    const bool none_to_leave = step->fault == FAULT_OPEN && p->device == step->culprit && p->n_items == 0;
    sy_status status;
    while (p->n_items > leaves_one)
        release(p, (int)rng_below(&p->rng, p->n_items));
    if (none_to_leave)
        status = sy_comm_reject(p->ctx[0], p->comm, SY_ERR_STATE, no_room);
    else if (step->kind == STEP_RESERVE)
        status = sy_comm_reserve(p->ctx[0], p->comm, (size_t)rng_below(&p->rng, 20000));
    else
        status = renew_window(p, p->now % SCHEDULE_WINDOWS);
    /* The sentence of NOMEM has the bytes that this device asked for. */
    p->result->outcome[p->now] = hash_text(status, status == SY_ERR_NOMEM ? "" : sy_ctx_error(p->ctx[0]));
    if (status == SY_ERR_NOMEM && step->kind == STEP_RESERVE && p->s->fail_share_from > 0)
        status = status_of(step->fault);
    if (status != status_of(step->fault))
        blame(p, p->now, "between requests", sy_ctx_error(p->ctx[0]));
}

/* ---- From beginning to end ---- */

static bool begin(struct player *p, const sy_transport *transport)
{
    const sy_ctx_options one_thread = {.threads = 1};
    sy_status status = sy_ctx_create(&p->ctx[0], &one_thread);
    if (status == SY_OK)
        status = sy_ctx_create(&p->ctx[1], &one_thread);
    if (status == SY_OK)
        status = sy_comm_create(&p->comm, transport, &p->options);
    for (int i = 0; status == SY_OK && i < SCHEDULE_ROUTINGS; i++)
        status = sy_routing_create(p->ctx[0], p->comm, &p->routings[i]);
    p->result->could_share = status == SY_OK && sy_comm_shares_memory(p->comm);
    for (int i = 0; status == SY_OK && p->s->windows && i < SCHEDULE_WINDOWS; i++)
        status = sy_comm_alloc(p->ctx[0], p->comm, SCHEDULE_WINDOW_BYTES, &p->windows[i]);
    if (status != SY_OK)
        blame(p, 0, "no contexts, comm, routings or memory", sy_status_name(status));
    return status == SY_OK;
}

/* Requests that use no routing are left to sy_comm_destroy now and then; their outputs are valid after it. */
static void end(struct player *p)
{
    const bool leave = rng_below(&p->rng, 2) == 0;
    for (int i = p->n_items - 1; i >= 0; i--)
        if (!leave || p->s->steps[p->items[i].number].routing >= 0)
            release(p, i);
    p->result->shares = p->comm != NULL && sy_comm_shares_memory(p->comm);
    for (int i = 0; i < SCHEDULE_ROUTINGS; i++)
        sy_routing_destroy(p->routings[i]);
    sy_comm_destroy(p->comm);
    for (int i = 0; i < p->n_items; i++) {
        struct item *it = &p->items[i];
        const bool good = p->s->steps[it->number].fault == FAULT_NONE;
        p->result->left_open++;
        if (!it->done) {
            check_outputs(p, it);
            p->result->exchanges += good;
            p->result->rejected += !good;
        }
        mesh_call_free(it->call);
    }
    sy_ctx_destroy(p->ctx[0]);
    sy_ctx_destroy(p->ctx[1]);
}

void schedule_play(const struct schedule *s, const sy_transport *transport, struct schedule_result *result)
{
    const uint64_t own = s->seed * 8 + (uint64_t)transport->device + 1;
    struct schedule_probe probe = {.real = *transport,
                                   .fail_share_from = s->fail_share_from,
                                   .loss = s->loss,
                                   .doubt = s->doubt,
                                   .rng = own};
    const sy_transport t = schedule_probe_transport(&probe);
    struct player p = {.s = s, .result = result, .device = transport->device, .rng = ~own};
    *result = (struct schedule_result){.good = true};
    p.eager = (int)rng_below(&p.rng, 4);
    p.options = s->options;
    if (rng_below(&p.rng, 3) == 0)
        p.options.pack = !p.options.pack; /* may differ between devices */
    if (begin(&p, &t))
        for (p.now = 0; p.now < SCHEDULE_STEPS; p.now++) {
            for (int64_t n = rng_below(&p.rng, 2 + p.eager); n > 0; n--)
                do_something(&p);
            if (s->steps[p.now].kind == STEP_EXCHANGE)
                start(&p);
            else
                between(&p);
        }
    end(&p);
    result->direct = probe.fences;
    result->posted = probe.exchanges;
    result->segments = probe.shares;
}
