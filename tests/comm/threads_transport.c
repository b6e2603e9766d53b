#include "threads_transport.h"

#include <pthread.h>
#include <sched.h>

/* A gather: what each position gave, until all have fetched it. */
struct gathering {
    struct gathering *next;
    int channel, group, given, fetched;
    sy_axis axis;
    int64_t number; /* of its channel, axis and group */
    unsigned char *data[THREADS_MOST];
    size_t bytes[THREADS_MOST];
};

/* Rows on their way from one device to another. They stay where they are until the receiver has them. */
struct parcel {
    struct parcel *next;
    int from, to;
    uint64_t number;
    sy_axis axis;
    sy_transport_rows rows;
    bool claimed, done;
};

/* Rows that a device waits for. */
struct arrival {
    struct parcel *parcel; /* NULL: not there yet */
    int from;
    sy_transport_rows rows;
    int64_t n_pieces, n_left;
    bool *moved; /* [n_pieces] */
};

struct ticket {
    struct ticket *next;
    struct gathering *gathering;
    unsigned char *recv;
    size_t counts[THREADS_MOST];
    uint64_t number;
    int n_positions, delay;
    sy_axis axis;
    size_t chunk_bytes;
    int num_links;
    struct parcel *parcels[THREADS_MOST]; /* that this device sends */
    struct arrival arrivals[THREADS_MOST];
};

/* Memory of one device, as long as any of them has it attached. */
struct memory {
    int users;
    void *raw;
};

struct segment {
    struct segment *next; /* of its device */
    struct memory *of[THREADS_MOST];
};

struct endpoint {
    struct threads_hub *hub;
    int device, fail_at, damaged_byte, damage;
    void (*seal)(void *header);
    int64_t begun[SY_N_CHANNELS][3];
    uint64_t last[3]; /* number of the last exchange along each axis */
    uint64_t rng;
    const char *error;
    struct ticket *tickets;
    struct segment *segments;
    struct threads_counters count;
};

struct threads_hub {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    sy_mesh mesh;
    struct threads_options options;
    bool broken, fail_share;
    struct gathering *gatherings;
    struct parcel *parcels;
    struct endpoint endpoints[THREADS_MOST];
};

static void *need(size_t bytes)
{
    void *memory = calloc(1, bytes + 1);
    if (memory == NULL)
        abort();
    return memory;
}

/* ---- Who is who ---- */

static int devices_of(const struct threads_hub *hub)
{
    return hub->mesh.rows * hub->mesh.cols;
}

static int group_of(const struct threads_hub *hub, sy_axis axis, int device)
{
    return axis == SY_AXIS_0 ? device % hub->mesh.cols : axis == SY_AXIS_1 ? device / hub->mesh.cols : 0;
}

/* Devices of a group in ascending order; returns how many. */
static int members(const struct threads_hub *hub, sy_axis axis, int device, int *list)
{
    int n = 0;
    for (int d = 0; d < devices_of(hub); d++)
        if (group_of(hub, axis, d) == group_of(hub, axis, device))
            list[n++] = d;
    return n;
}

static int place_of(const int *list, int device)
{
    int place = 0;
    while (list[place] != device)
        place++;
    return place;
}

/* ---- Failures ---- */

static sy_status failed(struct endpoint *e, const char *sentence)
{
    e->error = sentence;
    if (e->hub->options.contagious) {
        e->hub->broken = true;
        pthread_cond_broadcast(&e->hub->changed);
    }
    return SY_ERR_COMM;
}

/* Called with the lock held at the beginning of every call. */
static sy_status count_call(struct endpoint *e)
{
    if (e->fail_at > 0 && --e->fail_at == 0)
        return failed(e, "the thread was told to fail");
    if (e->hub->broken)
        return failed(e, e->error[0] ? e->error : "another thread has failed");
    return SY_OK;
}

static struct ticket *ticket_new(struct endpoint *e, sy_transport_ticket *out)
{
    struct ticket *t = need(sizeof *t);
    if (e->hub->options.delay > 0)
        t->delay = (int)rng_below(&e->rng, e->hub->options.delay + 1);
    t->next = e->tickets;
    e->tickets = t;
    out->of_transport = t;
    return t;
}

static void ticket_free(struct endpoint *e, struct ticket *t)
{
    struct ticket **at = &e->tickets;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    for (int q = 0; q < THREADS_MOST; q++)
        free(t->arrivals[q].moved);
    free(t);
}

/* ---- Gather ---- */

static struct gathering *gathering_of(struct endpoint *e, int channel, sy_axis axis)
{
    struct threads_hub *hub = e->hub;
    const int group = group_of(hub, axis, e->device);
    const int64_t number = e->begun[channel][axis]++;
    for (struct gathering *g = hub->gatherings; g; g = g->next)
        if (g->channel == channel && g->axis == axis && g->group == group && g->number == number)
            return g;
    struct gathering *g = need(sizeof *g);
    *g = (struct gathering){
        .next = hub->gatherings, .channel = channel, .axis = axis, .group = group, .number = number};
    return hub->gatherings = g;
}

static void damage(struct endpoint *e, unsigned char *header)
{
    if (e->seal)
        e->seal(header);
    header[e->damaged_byte] ^= (unsigned char)e->damage;
    if (e->seal)
        e->seal(header);
    e->damage = 0;
}

static sy_status begin_gather(void *self, int channel, sy_axis axis, const void *send, size_t bytes,
                              void *recv, const size_t *counts, sy_transport_ticket *ticket)
{
    struct endpoint *e = self;
    int list[THREADS_MOST];
    pthread_mutex_lock(&e->hub->lock);
    const sy_status status = count_call(e);
    if (status == SY_OK) {
        struct gathering *g = gathering_of(e, channel, axis);
        struct ticket *t = ticket_new(e, ticket);
        const int n = members(e->hub, axis, e->device, list), at = place_of(list, e->device);
        g->data[at] = need(bytes);
        g->bytes[at] = bytes;
        if (bytes > 0)
            memcpy(g->data[at], send, bytes);
        if (channel == SY_CHANNEL_HEADER && e->damage != 0)
            damage(e, g->data[at]);
        g->given++;
        t->gathering = g;
        t->recv = recv;
        t->n_positions = n;
        for (int q = 0; q < n; q++)
            t->counts[q] = counts ? counts[q] : bytes;
    }
    pthread_mutex_unlock(&e->hub->lock);
    return status;
}

static void forget_gathering(struct threads_hub *hub, struct gathering *g)
{
    struct gathering **at = &hub->gatherings;
    while (*at != g)
        at = &(*at)->next;
    *at = g->next;
    for (int q = 0; q < THREADS_MOST; q++)
        free(g->data[q]);
    free(g);
}

/* With the lock held: fetches what all gave, once they have. */
static sy_status end_gather(struct endpoint *e, struct ticket *t, bool *done)
{
    struct gathering *g = t->gathering;
    size_t at = 0;
    *done = g->given == t->n_positions;
    if (!*done)
        return SY_OK;
    for (int q = 0; q < t->n_positions; q++) {
        if (g->bytes[q] != t->counts[q])
            return failed(e, "a thread gave another number of bytes than was expected of it");
        if (t->counts[q] > 0 && t->recv)
            memcpy(t->recv + at, g->data[q], t->counts[q]);
        at += t->counts[q];
    }
    int list[THREADS_MOST];
    members(e->hub, g->axis, e->device, list);
    e->count.gathered[g->channel] += (int64_t)(at - t->counts[place_of(list, e->device)]);
    if (++g->fetched == t->n_positions)
        forget_gathering(e->hub, g);
    ticket_free(e, t);
    return SY_OK;
}

/* ---- Exchange ---- */

/* Messages of n rows: first into num_links runs, then none longer than chunk_bytes. */
static int64_t rows_of_run(const struct ticket *t, int64_t n)
{
    return (n + t->num_links - 1) / t->num_links;
}

static int64_t rows_of_piece(const struct ticket *t, const sy_transport_rows *rows)
{
    const int64_t fit = (int64_t)(t->chunk_bytes / rows->row_bytes), run = rows_of_run(t, rows->n);
    return fit < 1 ? 1 : fit < run ? fit : run;
}

/* Rows [*first, *last) of piece i; returns how many pieces there are. */
static int64_t piece(const struct ticket *t, const sy_transport_rows *rows, int64_t i, int64_t *first,
                     int64_t *last)
{
    const int64_t run = rows_of_run(t, rows->n), step = rows_of_piece(t, rows);
    int64_t count = 0;
    for (int64_t start = 0; start < rows->n; start += run)
        for (int64_t at = start; at < rows->n && at < start + run; at += step, count++) {
            const int64_t end_of_run = start + run < rows->n ? start + run : rows->n;
            if (count == i) {
                *first = at;
                *last = at + step < end_of_run ? at + step : end_of_run;
            }
        }
    return count;
}

static void send_parcel(struct endpoint *e, struct ticket *t, int q, int to, const sy_transport_rows *rows)
{
    int64_t first = 0, last = 0;
    struct parcel *p = need(sizeof *p), **end = &e->hub->parcels;
    *p = (struct parcel){.from = e->device, .to = to, .number = t->number, .axis = t->axis, .rows = *rows};
    while (*end)
        end = &(*end)->next;
    *end = p;
    t->parcels[q] = p;
    e->count.sent += rows->n * (int64_t)rows->row_bytes;
    const int64_t n = piece(t, rows, -1, &first, &last);
    e->count.messages += n;
    for (int64_t i = 0; i < n; i++) {
        piece(t, rows, i, &first, &last);
        if ((last - first) * (int64_t)rows->row_bytes > e->count.longest)
            e->count.longest = (last - first) * (int64_t)rows->row_bytes;
    }
}

static sy_status begin_exchange(void *self, const sy_transport_exchange *x, sy_transport_ticket *ticket)
{
    struct endpoint *e = self;
    int list[THREADS_MOST];
    pthread_mutex_lock(&e->hub->lock);
    sy_status status = count_call(e);
    const int n = members(e->hub, x->axis, e->device, list);
    if (status == SY_OK && (n != x->n_positions || place_of(list, e->device) != x->position ||
                            x->num_links < 1 || x->number <= e->last[x->axis] || x->chunk_bytes == 0))
        status = failed(e, "an exchange that the contract does not allow");
    if (status == SY_OK) {
        struct ticket *t = ticket_new(e, ticket);
        t->n_positions = n;
        t->number = e->last[x->axis] = x->number;
        t->axis = x->axis;
        t->chunk_bytes = x->chunk_bytes;
        t->num_links = x->num_links;
        for (int q = 0; q < n; q++) {
            int64_t first, last;
            if (q == x->position)
                continue;
            if (x->send[q].n > 0)
                send_parcel(e, t, q, list[q], &x->send[q]);
            struct arrival *a = &t->arrivals[q];
            *a = (struct arrival){.from = list[q], .rows = x->recv[q]};
            if (x->recv[q].n > 0)
                a->n_pieces = a->n_left = piece(t, &a->rows, -1, &first, &last);
            a->moved = need((size_t)a->n_pieces);
        }
    }
    pthread_mutex_unlock(&e->hub->lock);
    return status;
}

static const unsigned char *row_at(const sy_transport_rows *rows, int64_t i)
{
    return (const unsigned char *)rows->base + (size_t)(rows->rows ? rows->rows[i] : i) * rows->stride;
}

static void copy_piece(const struct ticket *t, const struct arrival *a, int64_t i)
{
    int64_t first = 0, last = 0;
    piece(t, &a->rows, i, &first, &last);
    for (int64_t r = first; r < last; r++)
        memcpy((unsigned char *)row_at(&a->rows, r), row_at(&a->parcel->rows, r), a->rows.row_bytes);
}

/* The sender's rows, when they are there. */
static sy_status claim(struct endpoint *e, const struct ticket *t, struct arrival *a)
{
    for (struct parcel *p = e->hub->parcels; p && !a->parcel; p = p->next)
        if (p->from == a->from && p->to == e->device && p->number == t->number && p->axis == t->axis &&
            !p->claimed) {
            if (p->rows.n != a->rows.n || p->rows.row_bytes != a->rows.row_bytes)
                return failed(e, "a thread sent other rows than were expected of it");
            p->claimed = true;
            a->parcel = p;
        }
    return SY_OK;
}

/* Moves one message of one sender; the lock is not held while rows are copied. */
static sy_status move_one(struct endpoint *e, struct ticket *t, struct arrival *a)
{
    if (a->n_left > 0 && a->parcel == NULL) {
        const sy_status status = claim(e, t, a);
        if (status != SY_OK)
            return status;
    }
    if (a->n_left == 0 || a->parcel == NULL)
        return SY_OK;
    int64_t i = e->hub->options.shuffled ? rng_below(&e->rng, a->n_pieces) : 0;
    while (a->moved[i])
        i = (i + 1) % a->n_pieces;
    pthread_mutex_unlock(&e->hub->lock);
    copy_piece(t, a, i);
    pthread_mutex_lock(&e->hub->lock);
    a->moved[i] = true;
    if (--a->n_left == 0) {
        e->count.received += a->rows.n * (int64_t)a->rows.row_bytes;
        a->parcel->done = true;
    }
    return SY_OK;
}

static void forget_parcel(struct threads_hub *hub, struct parcel *p)
{
    struct parcel **at = &hub->parcels;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    free(p);
}

static sy_status end_exchange(struct endpoint *e, struct ticket *t, bool *done)
{
    bool all = true;
    for (int q = 0; q < t->n_positions; q++) {
        const sy_status status = move_one(e, t, &t->arrivals[q]);
        if (status != SY_OK)
            return status;
        all = all && t->arrivals[q].n_left == 0 && (t->parcels[q] == NULL || t->parcels[q]->done);
    }
    *done = all;
    if (!all)
        return SY_OK;
    for (int q = 0; q < t->n_positions; q++)
        if (t->parcels[q])
            forget_parcel(e->hub, t->parcels[q]);
    ticket_free(e, t);
    return SY_OK;
}

static sy_status test_ticket(void *self, sy_transport_ticket *ticket, bool *done)
{
    struct endpoint *e = self;
    struct ticket *t = ticket->of_transport;
    *done = false;
    pthread_mutex_lock(&e->hub->lock);
    sy_status status = count_call(e);
    if (status == SY_OK && t->delay > 0)
        t->delay--;
    else if (status == SY_OK)
        status = t->gathering ? end_gather(e, t, done) : end_exchange(e, t, done);
    pthread_mutex_unlock(&e->hub->lock);
    if (!*done)
        sched_yield();
    return status;
}

/* ---- Shared memory ---- */

static sy_status share(void *self, size_t bytes, unsigned char token[SY_SHARE_TOKEN_BYTES], void **segment)
{
    struct endpoint *e = self;
    pthread_mutex_lock(&e->hub->lock);
    sy_status status = count_call(e);
    const bool room = !e->hub->fail_share && bytes < (size_t)1 << 30;
    void *raw = room && status == SY_OK ? aligned_alloc(64, (bytes + 127) / 64 * 64) : NULL;
    e->hub->fail_share = e->hub->fail_share && status != SY_OK;
    status = status == SY_OK && raw == NULL ? SY_ERR_NOMEM : status;
    if (status == SY_OK) {
        struct segment *s = need(sizeof *s);
        struct memory *m = need(sizeof *m);
        *m = (struct memory){.users = 1, .raw = raw};
        s->of[e->device] = m;
        s->next = e->segments;
        e->segments = s;
        memcpy(token, &m, sizeof m);
        *segment = s;
    }
    pthread_mutex_unlock(&e->hub->lock);
    return status;
}

static sy_status attach(void *self, void *segment, const unsigned char *tokens, void **base)
{
    struct endpoint *e = self;
    struct segment *s = segment;
    pthread_mutex_lock(&e->hub->lock);
    const sy_status status = count_call(e);
    for (int d = 0; status == SY_OK && d < devices_of(e->hub); d++) {
        memcpy(&s->of[d], tokens + (size_t)d * SY_SHARE_TOKEN_BYTES, sizeof s->of[d]);
        s->of[d]->users += d != e->device;
        base[d] = s->of[d]->raw;
    }
    pthread_mutex_unlock(&e->hub->lock);
    return status;
}

static void settle(void *self, void *segment)
{
    (void)self;
    (void)segment;
}

static void unshare(void *self, void *segment)
{
    struct endpoint *e = self;
    struct segment *s = segment, **at = &e->segments;
    pthread_mutex_lock(&e->hub->lock);
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    for (int d = 0; d < THREADS_MOST; d++)
        if (s->of[d] && --s->of[d]->users == 0) {
            free(s->of[d]->raw);
            free(s->of[d]);
        }
    pthread_mutex_unlock(&e->hub->lock);
    free(s);
}

/* ---- Hubs ---- */

static void destroy(void *self, bool broken)
{
    (void)self;
    (void)broken;
}

static const char *error_of(void *self)
{
    return ((struct endpoint *)self)->error;
}

struct threads_hub *threads_hub_new(sy_mesh mesh, const struct threads_options *options)
{
    struct threads_hub *hub = need(sizeof *hub);
    pthread_mutex_init(&hub->lock, NULL);
    pthread_cond_init(&hub->changed, NULL);
    hub->mesh = mesh;
    hub->options = *options;
    for (int d = 0; d < THREADS_MOST; d++)
        hub->endpoints[d] = (struct endpoint){.hub = hub, .device = d, .rng = (uint64_t)d + 1, .error = ""};
    return hub;
}

void threads_hub_free(struct threads_hub *hub)
{
    for (int d = 0; d < THREADS_MOST; d++) {
        struct endpoint *e = &hub->endpoints[d];
        while (e->tickets)
            ticket_free(e, e->tickets);
        while (e->segments)
            unshare(e, e->segments); /* of a comm that is broken */
    }
    while (hub->gatherings)
        forget_gathering(hub, hub->gatherings);
    while (hub->parcels)
        forget_parcel(hub, hub->parcels);
    pthread_cond_destroy(&hub->changed);
    pthread_mutex_destroy(&hub->lock);
    free(hub);
}

sy_transport threads_transport(struct threads_hub *hub, int device)
{
    const bool shared = hub->options.shared;
    return (sy_transport){.name = "threads",
                          .self = &hub->endpoints[device],
                          .mesh = hub->mesh,
                          .device = device,
                          .gather = begin_gather,
                          .exchange = begin_exchange,
                          .test = test_ticket,
                          .share = shared ? share : NULL,
                          .attach = shared ? attach : NULL,
                          .settle = shared ? settle : NULL,
                          .unshare = shared ? unshare : NULL,
                          .destroy = destroy,
                          .error = error_of};
}

struct threads_counters threads_count(const struct threads_hub *hub, int device)
{
    return hub->endpoints[device].count;
}

void threads_fail_at(struct threads_hub *hub, int device, int n)
{
    hub->endpoints[device].fail_at = n;
}

void threads_fail_share(struct threads_hub *hub)
{
    hub->fail_share = true;
}

void threads_damage(struct threads_hub *hub, int device, int byte, int mask, void (*seal)(void *header))
{
    hub->endpoints[device].damaged_byte = byte;
    hub->endpoints[device].damage = mask;
    hub->endpoints[device].seal = seal;
}

struct job {
    void (*one)(int device, void *user);
    void *user;
    int device;
};

static void *run_job(void *job)
{
    const struct job *j = job;
    j->one(j->device, j->user);
    return NULL;
}

void threads_run(int n, void (*one)(int device, void *user), void *user)
{
    pthread_t threads[THREADS_MOST];
    struct job jobs[THREADS_MOST];
    for (int d = 0; d < n; d++) {
        jobs[d] = (struct job){one, user, d};
        if (pthread_create(&threads[d], NULL, run_job, &jobs[d]) != 0)
            abort();
    }
    for (int d = 0; d < n; d++)
        pthread_join(threads[d], NULL);
}
