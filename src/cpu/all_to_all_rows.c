/*
 * Copies rows from their sources to their destinations. The rows of all devices form one sequence that is split into
 * even parts, so that every row is written once, by one task. Rows are collected before they are copied, so that the
 * misses of several overlap in the kernel.
 */
#include "cpu/all_to_all.h"
#include "cpu/moe.h"
#include "cpu/load.h"
#include "cpu/pool.h"
#include "cpu/row_codes.h"

enum { BATCH = 64 }; /* rows collected at a time */

struct batch {
    const struct syi_kernels *kernels;
    size_t n, bytes; /* rows, bytes of each */
    void *to[BATCH];
    const void *from[BATCH];
};

static void copy_batch(struct batch *b)
{
    b->kernels->copy_rows(b->to, b->from, b->n, b->bytes);
    b->n = 0;
}

static void begin_batch(struct batch *b, const struct syi_kernels *kernels, size_t bytes)
{
    b->kernels = kernels;
    b->n = 0;
    b->bytes = bytes;
}

static void add_row(struct batch *b, void *to, const void *from)
{
    if (b->n == BATCH)
        copy_batch(b);
    b->to[b->n] = to;
    b->from[b->n++] = from;
}

/* ---- Copying ---- */

struct copying {
    const struct syi_kernels *kernels;
    const struct syi_a2a_job *job;
    int n_jobs, n_tasks;
    int64_t n_rows; /* of all jobs */
};

/* Rows [r, end) of one job, plane after plane. */
static void copy_part(const struct copying *c, const struct syi_a2a_job *job, int64_t first, int64_t end)
{
    struct batch batch;
    for (int i = 0; i < job->n_planes; i++) {
        const struct syi_a2a_plane *plane = &job->plane[i];
        if (plane->row_bytes == 0)
            continue;
        begin_batch(&batch, c->kernels, plane->row_bytes);
        for (int64_t r = first; r < end; r++) {
            const struct syi_a2a_pick pick = job->pick[r];
            if (pick.position < 0) {
                if (job->zero)
                    memset(syi_row_at(plane->to, r), 0, plane->row_bytes);
            } else if (plane->source[pick.position].data != NULL) {
                add_row(&batch, syi_row_at(plane->to, r), syi_row_at(plane->source[pick.position], pick.row));
            }
        }
        copy_batch(&batch);
    }
}

static void copy_task(void *data, int task)
{
    const struct copying *c = data;
    const int64_t first = syi_part(c->n_rows, c->n_tasks, task);
    const int64_t end = syi_part(c->n_rows, c->n_tasks, task + 1);
    int64_t before = 0; /* rows of the jobs before */
    for (int j = 0; j < c->n_jobs && before < end; j++) {
        const int64_t n = c->job[j].n_rows;
        if (first < before + n)
            copy_part(c, &c->job[j], first > before ? first - before : 0,
                      end - before < n ? end - before : n);
        before += n;
    }
}

static void copy(sy_ctx *ctx, const struct syi_a2a_job *job, int n_jobs)
{
    struct copying c = {.kernels = ctx->kernels, .job = job, .n_jobs = n_jobs};
    uint64_t bytes = 0;
    for (int j = 0; j < n_jobs; j++) {
        c.n_rows += job[j].n_rows;
        for (int i = 0; i < job[j].n_planes; i++)
            bytes += 2 * (uint64_t)job[j].n_rows * job[j].plane[i].row_bytes;
    }
    c.n_tasks = syi_tasks(ctx, c.n_rows, bytes);
    syi_parallel(ctx, c.n_tasks, copy_task, &c);
}

struct spreading {
    const struct syi_kernels *kernels;
    const struct syi_a2a_job *job;
    const int64_t *first; /* [G+1] tokens of the positions before */
    const int32_t *seen;
    int n_tasks;
};

static void spread_task(void *data, int task)
{
    const struct spreading *s = data;
    const int64_t end = syi_part(s->job->n_rows, s->n_tasks, task + 1);
    struct batch batch;
    for (int i = 0; i < s->job->n_planes; i++) {
        const struct syi_a2a_plane *plane = &s->job->plane[i];
        if (plane->row_bytes == 0)
            continue;
        begin_batch(&batch, s->kernels, plane->row_bytes);
        for (int64_t r = syi_part(s->job->n_rows, s->n_tasks, task); r < end; r++) {
            const struct syi_a2a_pick pick = s->job->pick[r];
            const int64_t from = pick.position < 0 ? r : s->seen[s->first[pick.position] + pick.row];
            if (from != r)
                add_row(&batch, syi_row_at(plane->to, r), syi_row_at(plane->to, from));
        }
        copy_batch(&batch);
    }
}

static void spread(sy_ctx *ctx, const struct syi_a2a_group *group, const struct syi_a2a_job *job,
                   const int32_t *seen)
{
    struct spreading s = {.kernels = ctx->kernels, .job = job, .first = group->order.first, .seen = seen};
    uint64_t bytes = 0;
    for (int i = 0; i < job->n_planes; i++)
        bytes += 2 * (uint64_t)job->n_rows * job->plane[i].row_bytes;
    s.n_tasks = syi_tasks(ctx, job->n_rows, bytes);
    syi_parallel(ctx, s.n_tasks, spread_task, &s);
}

struct packing {
    const struct syi_kernels *kernels;
    struct syi_rows to, from;
    const int32_t *rows;
    int64_t n;
    size_t row_bytes;
    int n_tasks;
};

static void pack_task(void *data, int task)
{
    const struct packing *p = data;
    const int64_t end = syi_part(p->n, p->n_tasks, task + 1);
    struct batch batch;
    begin_batch(&batch, p->kernels, p->row_bytes);
    for (int64_t i = syi_part(p->n, p->n_tasks, task); i < end; i++)
        add_row(&batch, syi_row_at(p->to, i), syi_row_at(p->from, p->rows != NULL ? p->rows[i] : i));
    copy_batch(&batch);
}

void syi_a2a_pack(sy_ctx *ctx, struct syi_rows to, struct syi_rows from, const int32_t *rows, int64_t n,
                  size_t row_bytes)
{
    struct packing p = {ctx->kernels, to, from, rows, n, row_bytes, 1};
    if (n == 0 || row_bytes == 0)
        return;
    p.n_tasks = syi_tasks(ctx, n, 2 * (uint64_t)n * row_bytes);
    syi_parallel(ctx, p.n_tasks, pack_task, &p);
}

/* ---- Adding ---- */

enum { TOKENS = 32 }; /* tokens looked up at a time */

struct adding {
    const sy_ctx *ctx;
    const struct syi_a2a_sum *sum;
    int n_sums, n_tasks;
    int64_t n_tokens;            /* of all sums */
    size_t most_slots;           /* of any sum */
    const void **rows, **scales; /* [n_tasks][TOKENS][most_slots] */
    float *weights;              /* with `rows` */
};

static size_t lay_out(const sy_ctx *ctx, int64_t most_slots, void *base, struct adding *a)
{
    struct syi_arena arena = {.base = base};
    /* One more than needed, so that the pointer is valid without slots. */
    const size_t n =
        syi_size_add(syi_size_mul((size_t)most_slots, syi_size_mul((size_t)ctx->threads, TOKENS)), 1);
    a->most_slots = (size_t)most_slots;
    a->rows = syi_take(&arena, syi_size_mul(n, sizeof *a->rows));
    a->scales = syi_take(&arena, syi_size_mul(n, sizeof *a->scales));
    a->weights = syi_take(&arena, syi_size_mul(n, sizeof *a->weights));
    return arena.used;
}

size_t syi_a2a_add_scratch(const sy_ctx *ctx, int64_t n_slots)
{
    struct adding a = {.n_tasks = 0};
    return lay_out(ctx, n_slots, NULL, &a);
}

/* Rows and weights of a token; returns how many. */
static size_t look_up(const struct syi_a2a_sum *sum, int64_t n, const void **rows, const void **scales,
                      float *weights)
{
    size_t n_rows = 0;
    for (int64_t j = 0; j < sum->n_slots; j++) {
        const struct syi_a2a_pick pick = sum->pick[j * sum->n_home + n];
        if (pick.position < 0)
            continue;
        rows[n_rows] = syi_row_at(sum->source[pick.position], pick.row);
        if (sum->codes.given)
            scales[n_rows] = syi_row_at(sum->scales[pick.position], pick.row);
        if (sum->weights.data != NULL)
            weights[n_rows] =
                syi_load_float(syi_row_at(sum->weights, n) + (size_t)j * syi_float_bytes(sum->weight_type),
                               sum->weight_type);
        n_rows++;
    }
    return n_rows;
}

/* Tokens [first, end) of one sum. */
static void add_part(const struct adding *a, int task, const struct syi_a2a_sum *sum, int64_t first,
                     int64_t end)
{
    const struct syi_row_adder adder = syi_row_adder_of(a->ctx, &sum->codes, sum->type);
    const size_t row_bytes = (size_t)sum->hidden * (sum->codes.given ? 1 : syi_float_bytes(sum->type));
    const size_t slots = a->most_slots;
    const void **rows = a->rows + (size_t)task * TOKENS * slots;
    const void **scales = a->scales + (size_t)task * TOKENS * slots;
    float *weights = a->weights + (size_t)task * TOKENS * slots;
    for (int64_t n = first; n < end; n += TOKENS) {
        const size_t m = end - n < TOKENS ? (size_t)(end - n) : TOKENS;
        size_t n_rows[TOKENS];
        for (size_t i = 0; i < m; i++)
            n_rows[i] =
                look_up(sum, n + (int64_t)i, rows + i * slots, scales + i * slots, weights + i * slots);
        for (size_t i = 0; i < m; i++) {
            for (size_t j = 0; i + 1 < m && j < n_rows[i + 1]; j++)
                syi_fetch_head(rows[(i + 1) * slots + j], row_bytes, (int64_t)n_rows[i + 1]);
            const int64_t at = sum->at != NULL ? sum->at[n + (int64_t)i] : n + (int64_t)i;
            if (at < 0)
                continue;
            syi_add_rows(&adder, syi_row_at(sum->to, at), rows + i * slots, scales + i * slots,
                         sum->weights.data != NULL ? weights + i * slots : NULL, n_rows[i],
                         (size_t)sum->hidden);
        }
    }
}

static void add_task(void *data, int task)
{
    const struct adding *a = data;
    const int64_t first = syi_part(a->n_tokens, a->n_tasks, task);
    const int64_t end = syi_part(a->n_tokens, a->n_tasks, task + 1);
    int64_t before = 0; /* tokens of the sums before */
    for (int s = 0; s < a->n_sums && before < end; s++) {
        const int64_t n = a->sum[s].n_home;
        if (first < before + n && a->sum[s].hidden > 0)
            add_part(a, task, &a->sum[s], first > before ? first - before : 0,
                     end - before < n ? end - before : n);
        before += n;
    }
}

void syi_a2a_add(sy_ctx *ctx, const struct syi_a2a_sum *sum, int n_sums, void *scratch)
{
    struct adding a = {.ctx = ctx, .sum = sum, .n_sums = n_sums};
    int64_t most_slots = 0;
    uint64_t bytes = 0;
    for (int s = 0; s < n_sums; s++) {
        const uint64_t row_bytes = (uint64_t)sum[s].hidden * syi_float_bytes(sum[s].type);
        bytes += (uint64_t)sum[s].n_home * row_bytes * ((uint64_t)sum[s].n_slots + 1);
        a.n_tokens += sum[s].n_home;
        most_slots = sum[s].n_slots > most_slots ? sum[s].n_slots : most_slots;
    }
    lay_out(ctx, most_slots, scratch, &a);
    a.n_tasks = syi_tasks(ctx, a.n_tokens, bytes);
    syi_parallel(ctx, a.n_tasks, add_task, &a);
}

/* ---- The table ---- */

static sy_status read_rows(sy_ctx *ctx, struct syi_rows *rows, int64_t n, size_t row_bytes)
{
    (void)ctx;
    (void)rows;
    (void)n;
    (void)row_bytes;
    return SY_OK;
}

static void write_rows(sy_ctx *ctx, struct syi_rows to, struct syi_rows from, bool of_tensor, int64_t n,
                       size_t row_bytes)
{
    (void)ctx;
    (void)of_tensor;
    for (int64_t r = 0; r < n && row_bytes > 0; r++)
        memcpy(syi_row_at(to, r), syi_row_at(from, r), row_bytes);
}

static sy_status begin(sy_ctx *ctx, const struct syi_rows *ahead, int64_t n, size_t row_bytes)
{
    (void)ctx;
    (void)ahead;
    (void)n;
    (void)row_bytes;
    return SY_OK;
}

static sy_status nothing(sy_ctx *ctx)
{
    (void)ctx;
    return SY_OK;
}

const struct syi_memory syi_cpu_memory = {.begin = begin,
                                          .wait = nothing,
                                          .read = read_rows,
                                          .write = write_rows,
                                          .encode = syi_encode_rows,
                                          .pack = syi_a2a_pack,
                                          .copy = copy,
                                          .fan_out = syi_a2a_fan_out,
                                          .spread = spread,
                                          .add_scratch = syi_a2a_add_scratch,
                                          .add = syi_a2a_add,
                                          .end = nothing};
