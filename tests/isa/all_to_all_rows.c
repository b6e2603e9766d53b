/*
 * Rows that are copied, spread, packed and added for all_to_all: on every kernel table and with several threads, the
 * same bytes as plain loops give, and nothing outside the rows.
 */
#include "cpu/all_to_all.h"
#include "kernels/kernels.h"
#include "support.h"

enum { POSITIONS = 4, SOURCE_ROWS = 40, MOST_JOBS = 5, GAP = 3 };

static sy_ctx *ctx_of(void **state)
{
    const int variant = *(int *)*state;
    return test_ctx(variant % 2 ? 3 : 1, syi_kernels_at(variant / 2)->name);
}

static struct syi_rows new_rows(uint64_t *rng, int64_t n, size_t row_bytes)
{
    struct syi_rows rows = {NULL, (int64_t)row_bytes + GAP};
    rows.data = buf_new((size_t)n * (row_bytes + GAP), 1);
    if (rng != NULL)
        rng_fill(rng, rows.data, (size_t)n * (row_bytes + GAP));
    return rows;
}

/* ---- Copies -------------------------------------------------------------------------------------------- */

struct plane {
    struct syi_rows source[POSITIONS];
    unsigned char *want; /* like the bytes of `to` */
};

struct copies {
    struct syi_a2a_job job[MOST_JOBS];
    struct plane plane[MOST_JOBS][SY_A2A_MAX_PLANES];
    struct syi_a2a_pick *pick[MOST_JOBS];
    int n_jobs;
};

static void make_plane(struct copies *c, int j, int i, uint64_t *rng)
{
    static const size_t bytes[] = {1, 7, 64, 300, 4096, 0};
    struct syi_a2a_job *job = &c->job[j];
    struct plane *plane = &c->plane[j][i];
    struct syi_a2a_plane *to = &job->plane[i];
    to->row_bytes = bytes[rng_below(rng, COUNT_OF(bytes))];
    to->source = plane->source;
    to->to = new_rows(NULL, job->n_rows, to->row_bytes);
    for (int p = 0; p < POSITIONS; p++)
        plane->source[p] = new_rows(rng, SOURCE_ROWS, to->row_bytes);
    const size_t n = (size_t)(job->n_rows * to->to.stride);
    plane->want = malloc(n + 1);
    memset(plane->want, 0xA5, n + 1);
}

static void make_copies(struct copies *c, uint64_t *rng)
{
    memset(c, 0, sizeof *c);
    c->n_jobs = (int)rng_below(rng, MOST_JOBS + 1);
    for (int j = 0; j < c->n_jobs; j++) {
        struct syi_a2a_job *job = &c->job[j];
        job->n_rows = rng_below(rng, 4) == 0 ? 0 : rng_below(rng, 300);
        job->zero = rng_below(rng, 2) == 0;
        job->n_planes = (int)(1 + rng_below(rng, SY_A2A_MAX_PLANES));
        c->pick[j] = buf_new((size_t)job->n_rows * sizeof **c->pick, 0);
        job->pick = c->pick[j];
        for (int64_t r = 0; r < job->n_rows; r++) {
            c->pick[j][r].position = (int32_t)rng_below(rng, POSITIONS + 1) - 1;
            c->pick[j][r].row = (int32_t)rng_below(rng, SOURCE_ROWS);
        }
        for (int i = 0; i < job->n_planes; i++)
            make_plane(c, j, i, rng);
    }
}

static void free_copies(struct copies *c)
{
    for (int j = 0; j < c->n_jobs; j++) {
        for (int i = 0; i < c->job[j].n_planes; i++) {
            for (int p = 0; p < POSITIONS; p++)
                if (c->plane[j][i].source[p].data != NULL)
                    buf_free(c->plane[j][i].source[p].data);
            buf_free(c->job[j].plane[i].to.data);
            free(c->plane[j][i].want);
        }
        buf_free(c->pick[j]);
    }
}

/* The plain loop. */
static void want_copies(struct copies *c)
{
    for (int j = 0; j < c->n_jobs; j++)
        for (int i = 0; i < c->job[j].n_planes; i++)
            for (int64_t r = 0; r < c->job[j].n_rows; r++) {
                const struct syi_a2a_plane *plane = &c->job[j].plane[i];
                const struct syi_a2a_pick pick = c->pick[j][r];
                unsigned char *to = c->plane[j][i].want + r * plane->to.stride;
                if (pick.position < 0 && c->job[j].zero)
                    memset(to, 0, plane->row_bytes);
                else if (pick.position >= 0 && plane->source[pick.position].data != NULL)
                    memcpy(to, syi_row(plane->source[pick.position], pick.row), plane->row_bytes);
            }
}

static void expect_copies(struct copies *c)
{
    for (int j = 0; j < c->n_jobs; j++) {
        const struct syi_a2a_job *job = &c->job[j];
        for (int i = 0; i < job->n_planes; i++)
            expect_bytes(job->plane[i].to.data, c->plane[j][i].want,
                         (size_t)(job->n_rows * job->plane[i].to.stride));
    }
}

static void rows_are_copied(void **state)
{
    sy_ctx *ctx = ctx_of(state);
    uint64_t rng = 21;
    for (int round = 0; round < 60; round++) {
        static struct copies c;
        make_copies(&c, &rng);
        for (int j = 0; j < c.n_jobs; j++)
            for (int i = 0; i < c.job[j].n_planes && round % 3 == 0; i++) { /* not reached from here */
                struct syi_rows *source = &c.plane[j][i].source[round % POSITIONS];
                buf_free(source->data);
                source->data = NULL;
            }
        want_copies(&c);
        syi_a2a_copy(ctx, c.job, c.n_jobs);
        expect_copies(&c);
        free_copies(&c);
    }
    sy_ctx_destroy(ctx);
}

/* Rows of which only the first of each token has arrived. */
static void rows_are_spread(void **state)
{
    sy_ctx *ctx = ctx_of(state);
    static const int64_t first[] = {0, SOURCE_ROWS, 2 * SOURCE_ROWS, 3 * SOURCE_ROWS, 4 * SOURCE_ROWS};
    const struct syi_a2a_group group = {.order = {POSITIONS, first, 0}};
    uint64_t rng = 22;
    for (int round = 0; round < 60; round++) {
        static struct copies c;
        int32_t seen[POSITIONS * SOURCE_ROWS];
        make_copies(&c, &rng);
        want_copies(&c);
        for (int j = 0; j < c.n_jobs; j++) {
            struct syi_a2a_job *job = &c.job[j];
            memset(seen, 0xff, sizeof seen);
            for (int64_t r = 0; r < job->n_rows; r++) {
                const struct syi_a2a_pick pick = c.pick[j][r];
                int32_t *at = pick.position < 0 ? NULL : &seen[first[pick.position] + pick.row];
                for (int i = 0; i < job->n_planes; i++)
                    if (at == NULL || *at < 0)
                        memcpy(syi_row(job->plane[i].to, r), c.plane[j][i].want + r * job->plane[i].to.stride,
                               job->plane[i].row_bytes);
                if (at != NULL && *at < 0)
                    *at = (int32_t)r;
            }
            syi_a2a_spread(ctx, &group, job, seen);
        }
        expect_copies(&c);
        free_copies(&c);
    }
    sy_ctx_destroy(ctx);
}

static void rows_are_packed(void **state)
{
    sy_ctx *ctx = ctx_of(state);
    uint64_t rng = 23;
    for (int round = 0; round < 60; round++) {
        const size_t row_bytes = (size_t)rng_below(&rng, 3000);
        const int64_t n = rng_below(&rng, 300);
        const bool all = round % 2 == 0;
        struct syi_rows from = new_rows(&rng, n + 1, row_bytes);
        int32_t *rows = buf_new((size_t)n * sizeof *rows, 0);
        const struct syi_rows to = new_rows(&rng, n, row_bytes);
        for (int64_t i = 0; i < n; i++)
            rows[i] = (int32_t)rng_below(&rng, n + 1);
        syi_a2a_pack(ctx, to, from, all ? NULL : rows, n, row_bytes);
        for (int64_t i = 0; i < n; i++)
            expect_bytes(syi_row(to, i), syi_row(from, all ? i : rows[i]), row_bytes);
        buf_free(from.data);
        buf_free(rows);
        buf_free(to.data);
    }
    sy_ctx_destroy(ctx);
}

/* ---- Sums ---------------------------------------------------------------------------------------------- */

struct sums {
    struct syi_a2a_sum sum[MOST_JOBS];
    struct syi_rows source[MOST_JOBS][POSITIONS];
    struct syi_a2a_pick *pick[MOST_JOBS];
    int n_sums;
    int64_t most_slots;
};

static double value_of(const unsigned char *at, sy_type type)
{
    uint32_t wide;
    uint16_t narrow;
    memcpy(&wide, at, type == SY_TYPE_F32 ? 4 : 0);
    memcpy(&narrow, at, type == SY_TYPE_F32 ? 0 : 2);
    return type == SY_TYPE_F32   ? (double)f32_from_bits(wide)
           : type == SY_TYPE_F16 ? f16_value(narrow)
                                 : bf16_value(narrow);
}

static void expect_number(const unsigned char *at, sy_type type, double value)
{
    const uint32_t wide = f32_round(value);
    const uint16_t narrow = type == SY_TYPE_F16 ? f16_round(value) : bf16_round(value);
    expect_bytes(at, type == SY_TYPE_F32 ? (const void *)&wide : (const void *)&narrow,
                 type == SY_TYPE_F32 ? 4 : 2);
}

static size_t bytes_of(sy_type type)
{
    return type == SY_TYPE_F32 ? 4 : 2;
}

static void make_sums(struct sums *c, uint64_t *rng)
{
    static const sy_type types[] = {SY_TYPE_F32, SY_TYPE_F16, SY_TYPE_BF16};
    memset(c, 0, sizeof *c);
    c->n_sums = (int)rng_below(rng, MOST_JOBS + 1);
    for (int j = 0; j < c->n_sums; j++) {
        struct syi_a2a_sum *sum = &c->sum[j];
        sum->n_home = rng_below(rng, 100);
        sum->n_slots = rng_below(rng, 7);
        sum->hidden = rng_below(rng, 200);
        sum->type = types[rng_below(rng, 3)];
        sum->weight_type = types[rng_below(rng, 3)];
        c->most_slots = sum->n_slots > c->most_slots ? sum->n_slots : c->most_slots;
        const int64_t n = sum->n_home * sum->n_slots;
        c->pick[j] = buf_new((size_t)n * sizeof **c->pick, 0);
        for (int64_t i = 0; i < n; i++) {
            c->pick[j][i].position = (int32_t)rng_below(rng, POSITIONS + 1) - 1;
            c->pick[j][i].row = (int32_t)rng_below(rng, SOURCE_ROWS);
        }
        for (int p = 0; p < POSITIONS; p++)
            c->source[j][p] = new_rows(rng, SOURCE_ROWS, (size_t)sum->hidden * bytes_of(sum->type));
        sum->pick = c->pick[j];
        sum->source = c->source[j];
        if (rng_below(rng, 3) > 0)
            sum->weights = new_rows(rng, sum->n_home, (size_t)sum->n_slots * bytes_of(sum->weight_type));
        sum->to = new_rows(NULL, sum->n_home, (size_t)sum->hidden * bytes_of(sum->type));
    }
}

/* Products and sums of two f32 in a double, rounded once: exactly what f32 gives. */
static void expect_sum(const struct syi_a2a_sum *sum, int64_t n)
{
    const size_t bytes = bytes_of(sum->type);
    const unsigned char *to = syi_row(sum->to, n);
    for (int64_t i = 0; i < sum->hidden; i++) {
        float acc = 0.0f;
        for (int64_t k = 0; k < sum->n_slots; k++) {
            const struct syi_a2a_pick pick = sum->pick[k * sum->n_home + n];
            if (pick.position < 0)
                continue;
            const unsigned char *row = syi_row(sum->source[pick.position], pick.row);
            const double x = value_of(row + (size_t)i * bytes, sum->type);
            const double w = sum->weights.data == NULL
                                 ? 1.0
                                 : value_of(syi_row(sum->weights, n) + (size_t)k * bytes_of(sum->weight_type),
                                            sum->weight_type);
            acc = f32_from_bits(f32_round((double)acc + (double)f32_from_bits(f32_round(w * x))));
        }
        expect_number(to + (size_t)i * bytes, sum->type, (double)acc);
    }
    for (size_t i = 0; i < GAP; i++)
        assert_int_equal(to[(size_t)sum->hidden * bytes + i], 0xA5);
}

static void rows_are_added(void **state)
{
    sy_ctx *ctx = ctx_of(state);
    uint64_t rng = 24;
    for (int round = 0; round < 40; round++) {
        static struct sums c;
        make_sums(&c, &rng);
        void *scratch = buf_new(syi_a2a_add_scratch(ctx, c.most_slots), 0);
        syi_a2a_add(ctx, c.sum, c.n_sums, scratch);
        for (int j = 0; j < c.n_sums; j++) {
            for (int64_t n = 0; n < c.sum[j].n_home; n++)
                expect_sum(&c.sum[j], n);
            for (int p = 0; p < POSITIONS; p++)
                buf_free(c.source[j][p].data);
            if (c.sum[j].weights.data != NULL)
                buf_free(c.sum[j].weights.data);
            buf_free(c.sum[j].to.data);
            buf_free(c.pick[j]);
        }
        buf_free(scratch);
    }
    sy_ctx_destroy(ctx);
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } tests[] = {{"copied", rows_are_copied},
                 {"spread", rows_are_spread},
                 {"packed", rows_are_packed},
                 {"added", rows_are_added}};
    static int variant[32];
    struct test_list list = {NULL, 0, 0};
    for (int v = 0; v < 32 && syi_kernels_at(v / 2) != NULL; v++) {
        variant[v] = v;
        for (size_t i = 0; i < COUNT_OF(tests); i++)
            test_add(&list,
                     test_name("rows are %s, %s, %d threads", tests[i].name, syi_kernels_at(v / 2)->name,
                               v % 2 ? 3 : 1),
                     tests[i].run, &variant[v]);
    }
    return test_run(&list, "all_to_all_rows");
}
