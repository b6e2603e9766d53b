/*
 * moe_locations on the CPU: the number of each choice among those of its expert, in order of choice, then of sample.
 *
 *     choices [k*S]  |--- part 0 ---|--- part 1 ---|--- part 2 ---|      each numbers its own with counters of its own, used[part][E]
 *     add_up:  used[part][e] = choices of e in the parts before          the sum over all parts is the demand, `counts`
 *     shift:   locations of part p += used[p][e]                         nothing to do for one part
 *
 * - A choice of no expert (negative, or E and above) has location -1 and counts nowhere.
 * - Few choices of very many experts are sorted by expert instead, so that scratch depends on the choices and not on E.
 * - With importance there is one part, and samples are visited in an order made before: a stable radix sort of integer keys that carry
 *   their sample, least significant digit first.
 */
#include "cpu/backend.h"
#include "cpu/sort.h"

enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS, N_PASSES = 3, LEAST_PART = 16384, MANY_EXPERTS = 65536 };

struct job {
    const struct syi_moe_locations_plan *plan;
    int n_tasks;
    int32_t *used;         /* [n_tasks][E]: choices of a part by expert; then of all parts before it */
    const uint64_t *order; /* [S]: the samples to visit, in the lower half; NULL: as they are */
};

struct scratch {
    int32_t *used;
    uint64_t *pairs[2];                /* [S] each: key in the upper half, sample in the lower */
    uint32_t *digits;                  /* [N_PASSES][DIGITS] */
    struct syi_keyed *choices, *spare; /* [k*S] each */
};

static int64_t n_entries(const struct syi_moe_locations_plan *p)
{
    return p->n_choices * p->n_samples;
}

/* Whether the choices, twice, take less scratch than a counter for each expert. */
static bool sorts_choices(const struct syi_moe_locations_plan *p)
{
    const int64_t counters_per_choice = 2 * sizeof(struct syi_keyed) / sizeof(int32_t);
    return p->n_experts > MANY_EXPERTS && p->n_experts / counters_per_choice > n_entries(p);
}

/* A part has enough choices to be worth two parallel steps, and more of them than counters, which are cleared
   and added up as well. With importance there is one part: several would write to interleaved places. */
static int count_tasks(const sy_ctx *ctx, const struct syi_moe_locations_plan *p)
{
    const int64_t n_parts = n_entries(p) / (p->n_experts > LEAST_PART ? p->n_experts : LEAST_PART);
    return syi_tasks(ctx, p->importance.data != NULL ? 1 : n_parts, UINT64_MAX);
}

static struct scratch lay_out(const sy_ctx *ctx, const struct syi_moe_locations_plan *p,
                              struct syi_arena *arena)
{
    struct scratch s = {.digits = NULL};
    const size_t n_tasks = (size_t)count_tasks(ctx, p), n = (size_t)n_entries(p);
    if (sorts_choices(p)) {
        s.choices = syi_take(arena, syi_size_mul(n, sizeof *s.choices));
        s.spare = syi_take(arena, syi_size_mul(n, sizeof *s.spare));
    } else {
        /* One more than needed, so that the pointer is valid without experts. */
        const size_t counters = syi_size_add(syi_size_mul((size_t)p->n_experts, n_tasks), 1);
        s.used = syi_take(arena, syi_size_mul(counters, sizeof *s.used));
    }
    if (p->importance.data != NULL && n_entries(p) > 0) {
        for (int i = 0; i < 2; i++)
            s.pairs[i] = syi_take(arena, syi_size_mul((size_t)p->n_samples, sizeof *s.pairs[i]));
        s.digits = syi_take(arena, sizeof *s.digits * N_PASSES * DIGITS);
    }
    return s;
}

SYI_CPU_WORKSPACE(moe_locations)

/* ---- Order of importance ---- */

/* Pairs of key and sample, and how often each digit of the keys occurs. */
static void make_pairs(const struct syi_moe_locations_plan *p, const struct scratch *s)
{
    const uint32_t infinity = p->importance.type == SY_TYPE_F32   ? 0x7f800000
                              : p->importance.type == SY_TYPE_F16 ? 0x7c00
                                                                  : 0x7f80;
    memset(s->digits, 0, sizeof *s->digits * N_PASSES * DIGITS);
    for (int64_t i = 0; i < p->n_samples; i++) {
        uint32_t key;
        if (p->importance.type == SY_TYPE_F32) {
            key = syi_descending_key((uint32_t)syi_load_i32(p->importance.data, i), 0x80000000u, infinity);
        } else {
            uint16_t bits;
            memcpy(&bits, p->importance.data + 2 * i, sizeof bits);
            key = syi_descending_key(bits, 0x8000, infinity);
        }
        s->pairs[0][i] = (uint64_t)key << 32 | (uint64_t)i;
        for (int pass = 0; pass < N_PASSES; pass++)
            s->digits[pass * DIGITS + (int)(key >> pass * DIGIT_BITS & (DIGITS - 1))]++;
    }
}

/* The samples by descending importance, in the lower halves of the result. A pass in which all keys have one
   digit would change nothing. */
static const uint64_t *sort_samples(const struct syi_moe_locations_plan *p, const struct scratch *s)
{
    uint64_t *from = s->pairs[0], *to = s->pairs[1];
    make_pairs(p, s);
    for (int pass = 0; pass < N_PASSES; pass++) {
        uint32_t *place = s->digits + (size_t)pass * DIGITS;
        const int shift = 32 + pass * DIGIT_BITS;
        if ((int64_t)place[(from[0] >> shift) % DIGITS] == p->n_samples)
            continue;
        uint32_t sum = 0;
        for (int d = 0; d < DIGITS; d++) {
            const uint32_t n = place[d];
            place[d] = sum;
            sum += n;
        }
        for (int64_t i = 0; i < p->n_samples; i++)
            to[place[(from[i] >> shift) % DIGITS]++] = from[i];
        uint64_t *const sorted = to;
        to = from;
        from = sorted;
    }
    return from;
}

/* ---- Numbering ---- */

/* Choices at positions [from, to) of row `choice`. */
struct span {
    int64_t choice, from, to;
};

/* The entries [*at, end) of all choices that are in one row; moves *at after them. */
static struct span next_span(const struct syi_moe_locations_plan *p, int64_t *at, int64_t end)
{
    struct span span = {*at / p->n_samples, *at % p->n_samples, p->n_samples};
    if (span.to - span.from > end - *at)
        span.to = span.from + (end - *at);
    *at += span.to - span.from;
    return span;
}

/* Local copies, because a store to the caller's bytes may alias anything behind a pointer. */
static void number_span(const struct job *job, struct span span, int32_t *used)
{
    const unsigned char *indices = syi_at(job->plan->indices, span.choice);
    unsigned char *locations = syi_at(job->plan->locations, span.choice);
    const uint64_t n_experts = (uint64_t)job->plan->n_experts, *order = job->order;
    for (int64_t i = span.from; i < span.to; i++) {
        const int64_t sample = order != NULL ? (int64_t)(order[i] & UINT32_MAX) : i;
        const int64_t e = syi_load_i32(indices, sample); /* a negative one is a huge unsigned one */
        syi_store_i32(locations, sample, (uint64_t)e < n_experts ? used[e]++ : -1);
    }
}

static void number_part(void *data, int task)
{
    const struct job *job = data;
    const int64_t n = n_entries(job->plan), end = syi_part(n, job->n_tasks, task + 1);
    int32_t *used = job->used + task * job->plan->n_experts;
    memset(used, 0, (size_t)job->plan->n_experts * sizeof *used);
    for (int64_t at = syi_part(n, job->n_tasks, task); at < end;)
        number_span(job, next_span(job->plan, &at, end), used);
}

/* Counts of a part become counts of the parts before it; their sum is the demand for the expert. */
static void add_up(const struct job *job)
{
    const struct syi_moe_locations_plan *p = job->plan;
    for (int64_t e = 0; e < p->n_experts; e++) {
        int32_t sum = 0;
        for (int task = 0; task < job->n_tasks; task++) {
            int32_t *used = &job->used[task * p->n_experts + e];
            const int32_t n = *used;
            *used = sum;
            sum += n;
        }
        if (p->counts.data != NULL)
            syi_store_i64(p->counts.data, e, sum);
    }
}

/* Several parts are never in order of importance. */
static void shift_span(const struct job *job, struct span span, const int32_t *before)
{
    const unsigned char *indices = syi_at(job->plan->indices, span.choice);
    unsigned char *locations = syi_at(job->plan->locations, span.choice);
    const uint64_t n_experts = (uint64_t)job->plan->n_experts;
    for (int64_t i = span.from; i < span.to; i++) {
        const int64_t e = syi_load_i32(indices, i);
        if ((uint64_t)e < n_experts)
            syi_store_i32(locations, i, syi_load_i32(locations, i) + before[e]);
    }
}

/* All parts but the first, split again so that no task is idle. */
static void shift_part(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_locations_plan *p = job->plan;
    const int64_t n = n_entries(p), first = syi_part(n, job->n_tasks, 1);
    const int64_t end = first + syi_part(n - first, job->n_tasks, task + 1);
    int64_t at = first + syi_part(n - first, job->n_tasks, task);
    for (int part = 1; part < job->n_tasks && at < end; part++) {
        const int64_t part_end = syi_part(n, job->n_tasks, part + 1), stop = part_end < end ? part_end : end;
        while (at < stop)
            shift_span(job, next_span(p, &at, stop), job->used + part * p->n_experts);
    }
}

/* The choices of an expert follow each other once they are sorted, in the order they were visited. */
static void number_sorted(const struct syi_moe_locations_plan *p, const struct scratch *s,
                          const uint64_t *order)
{
    size_t n = 0;
    for (int64_t i = 0; i < n_entries(p); i++) {
        const int64_t choice = i / p->n_samples, at = i % p->n_samples;
        const int64_t sample = order != NULL ? (int64_t)(order[at] & UINT32_MAX) : at;
        const int64_t e = syi_load_i32(syi_at(p->indices, choice), sample);
        if (e >= 0 && e < p->n_experts)
            s->choices[n++] = (struct syi_keyed){(uint64_t)e, choice * p->n_samples + sample};
        else
            syi_store_i32(syi_at(p->locations, choice), sample, -1);
    }
    if (p->counts.data != NULL)
        memset(p->counts.data, 0, (size_t)p->n_experts * sizeof(int64_t));
    const struct syi_keyed *sorted = syi_sort_keyed(s->choices, s->spare, n, INT32_MAX);
    int32_t used = 0;
    for (size_t i = 0; i < n; i++) {
        used = i > 0 && sorted[i].key == sorted[i - 1].key ? used + 1 : 0;
        syi_store_i32(syi_at(p->locations, sorted[i].value / p->n_samples), sorted[i].value % p->n_samples,
                      used);
        if (p->counts.data != NULL)
            syi_store_i64(p->counts.data, (int64_t)sorted[i].key, used + 1);
    }
}

sy_status syi_cpu_moe_locations(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_locations_plan *p = &plan->moe_locations;
    struct syi_arena arena = {workspace, 0};
    const struct scratch s = lay_out(ctx, p, &arena);
    struct job job = {.plan = p, .n_tasks = count_tasks(ctx, p), .used = s.used};
    if (s.digits != NULL)
        job.order = sort_samples(p, &s);
    if (sorts_choices(p)) {
        number_sorted(p, &s, job.order);
        return SY_OK;
    }
    syi_parallel(ctx, job.n_tasks, number_part, &job);
    add_up(&job);
    if (job.n_tasks > 1)
        syi_parallel(ctx, job.n_tasks, shift_part, &job);
    return SY_OK;
}
