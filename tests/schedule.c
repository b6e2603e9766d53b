/*
 * What devices found, added up.
 */
#include "schedule.h"

/* ---- Sizes ---- */

int64_t schedule_exchanges(int64_t usual)
{
    const char *text = getenv("SWITCHYARD_EXCHANGES");
    return text != NULL ? strtoll(text, NULL, 10) : test_full() ? usual : usual / 4;
}

bool schedule_single_seed(uint64_t *seed)
{
    const char *text = getenv("SWITCHYARD_SCHEDULE");
    if (text != NULL)
        *seed = strtoull(text, NULL, 10);
    return text != NULL;
}

/* ---- Results ---- */

static void expect_good(const struct schedule *s, const struct schedule_result *results, int n_devices)
{
    for (int d = 0; d < n_devices; d++)
        if (!results[d].good)
            fail_msg("seed %llu, mesh %dx%d, device %d, %s", (unsigned long long)s->seed, s->mesh.rows,
                     s->mesh.cols, d, results[d].why);
    for (int i = 0; i < SCHEDULE_STEPS; i++)
        for (int d = 1; d < n_devices; d++)
            for (int e = 0; e < d; e++)
                if (results[d].outcome[i] != results[e].outcome[i] && results[d].outcome[i] != 0 &&
                    results[e].outcome[i] != 0)
                    fail_msg(
                        "seed %llu, mesh %dx%d, step %d: devices %d and %d have another status or sentence",
                        (unsigned long long)s->seed, s->mesh.rows, s->mesh.cols, i, e, d);
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

void schedule_add(struct schedule_totals *t, const struct schedule *s, const struct schedule_result *results,
                  int n_devices)
{
    const struct schedule_result *first = &results[0];
    bool apart = false;
    expect_good(s, results, n_devices);
    for (int d = 0; d < n_devices; d++) {
        const struct schedule_result *r = &results[d];
        apart = apart || r->order != first->order;
        t->left_open += r->left_open;
        t->beyond += r->beyond;
        t->out_of_order += r->out_of_order;
        t->most_open = larger(t->most_open, r->most_open);
        if (r->exchanges != first->exchanges || r->rejected != first->rejected ||
            r->direct != first->direct || r->posted != first->posted)
            fail_msg("seed %llu: device %d did %lld exchanges, %lld of them in shared memory; device 0 %lld, "
                     "%lld",
                     (unsigned long long)s->seed, d, (long long)r->exchanges, (long long)r->direct,
                     (long long)first->exchanges, (long long)first->direct);
        if (r->posted < r->exchanges - r->direct)
            fail_msg("seed %llu: rows of %lld exchanges went neither way", (unsigned long long)s->seed,
                     (long long)(r->exchanges - r->direct - r->posted));
    }
    t->schedules++;
    t->exchanges += first->exchanges;
    t->rejected += first->rejected;
    t->direct += first->direct;
    t->messages += first->exchanges - first->direct;
    t->grown += first->segments;
    t->ended += first->could_share && !first->shares;
    t->apart += apart;
}

void schedule_merge(struct schedule_totals *t, const struct schedule_totals *more)
{
    t->schedules += more->schedules;
    t->exchanges += more->exchanges;
    t->rejected += more->rejected;
    t->direct += more->direct;
    t->messages += more->messages;
    t->grown += more->grown;
    t->ended += more->ended;
    t->apart += more->apart;
    t->left_open += more->left_open;
    t->beyond += more->beyond;
    t->out_of_order += more->out_of_order;
    t->most_open = larger(t->most_open, more->most_open);
}

void schedule_expect_variety(const struct schedule_totals *t)
{
    const struct {
        const char *what;
        int64_t count, least;
    } counts[] = {
        {"exchanges in shared memory", t->direct, t->exchanges / 8},
        {"exchanges by messages", t->messages, t->exchanges / 8},
        {"rejected exchanges", t->rejected, t->exchanges / 50},
        {"segments of shared memory", t->grown, t->schedules},
        {"meshes whose shared memory ended", t->ended, 1},
        {"meshes whose devices freed in different orders", t->apart, t->schedules / 2},
        {"frees out of order", t->out_of_order, t->exchanges / 4},
        {"requests left to sy_comm_destroy", t->left_open, 1},
        {"starts beyond max_inflight", t->beyond, 1},
        {"requests open at a time", t->most_open, SCHEDULE_INFLIGHT - 2},
    };
    for (size_t i = 0; i < COUNT_OF(counts); i++)
        if (counts[i].count < counts[i].least)
            fail_msg("%s: %lld, want at least %lld", counts[i].what, (long long)counts[i].count,
                     (long long)counts[i].least);
}

void schedule_print(const struct schedule_totals *t, char *text, size_t bytes)
{
    snprintf(
        text, bytes,
        "%lld exchanges (%lld by messages, %lld in shared memory) and %lld rejected, %lld schedules: %lld "
        "with frees in different orders, %lld that lost shared memory, up to %lld requests open",
        (long long)t->exchanges, (long long)t->messages, (long long)t->direct, (long long)t->rejected,
        (long long)t->schedules, (long long)t->apart, (long long)t->ended, (long long)t->most_open);
}
