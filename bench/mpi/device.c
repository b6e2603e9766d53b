/*
 * all_to_all_dispatch and all_to_all_combine of device tensors between processes, compared with a mesh of as many devices inside one
 * process on the same GPU. A time is from the call until the results are written, on the slowest process. Results of all are compared
 * before anything is timed.
 */
#include "mpi_bench.h"

#include <stdlib.h>
#include <string.h>

#include <switchyard_mpi.h>

#include "bench/bench.h"
#include "bench/mesh_case.h"

enum { MOST_TURNS = 101, MOST_DEVICES = 16, HIDDEN = 7168, EXPERTS = 256, SLOTS = 8 };

/* Where a call runs: in this process alone; between processes, which read the input in place, or a copy of it. */
enum way { LOCAL, MAPPED, COPIED, N_WAYS };
static const char *const ways[] = {"one process", "inputs of sy_comm_alloc_device", "any input"};

static const struct subject {
    const char *name;
    bool combine;
    sy_a2a_layout layout; /* of dispatch */
} subjects[] = {{"dispatch EXPERT", false, SY_LAYOUT_EXPERT},
                {"dispatch PACKED", false, SY_LAYOUT_PACKED},
                {"combine SUM", true, SY_LAYOUT_EXPERT}};
enum { N_SUBJECTS = sizeof subjects / sizeof *subjects };

struct state {
    int rank, ranks;
    int64_t tokens; /* of a process */
    sy_ctx *ctx;
    DLDevice device;
    struct mesh_case mesh;
    struct mesh_calls calls[2];      /* in this process, between processes */
    int64_t first[MOST_DEVICES + 1]; /* rows of experts before each device */
    uint16_t *own, *rows, *out; /* on the device, of all devices: tokens, rows of experts, room for results */
    uint16_t *indices;
    float *weights;
    uint16_t *shared_own, *shared_rows, *shared_indices; /* of this process, in memory of the comm */
    uint16_t *got, *want;                                /* in CPU memory */
    double seconds[N_SUBJECTS][N_WAYS][MOST_TURNS];
};

static size_t row_bytes(int64_t n)
{
    return (size_t)n * HIDDEN * sizeof(uint16_t);
}

/* ---- Calls ---- */

/* The rows of `out` that each device writes: from first[device] on. */
static void output_rows(const struct state *s, const struct subject *subject, int64_t first[MOST_DEVICES + 1])
{
    mesh_case_first(&s->mesh, subject->layout, first);
    for (int d = 0; d <= s->ranks && subject->combine; d++)
        first[d] = d * s->tokens;
}

static sy_status call(const struct state *s, const struct subject *subject, enum way way)
{
    const int between = way != LOCAL, begin = between ? s->rank : 0;
    const int64_t token = begin * s->tokens;
    const bool mapped = way == MAPPED;
    int64_t first[MOST_DEVICES + 1];
    const struct mesh_calls *const calls = &s->calls[between];
    output_rows(s, subject, first);
    uint16_t *const out = s->out + first[begin] * HIDDEN;
    if (subject->combine)
        return mesh_combine(calls, mapped ? s->shared_rows : s->rows + s->first[begin] * HIDDEN,
                            s->weights + token * SLOTS, true, out);
    return mesh_dispatch(calls, subject->layout, mapped ? s->shared_own : s->own + token * HIDDEN,
                         mapped ? s->shared_indices : s->indices + token * SLOTS, out);
}

static bool call_and_wait(const struct state *s, const struct subject *subject, enum way way)
{
    return call(s, subject, way) == SY_OK && sy_ctx_sync(s->ctx) == SY_OK;
}

/* ---- Data ---- */

static bool put(struct state *s, void *to, const void *from, size_t bytes)
{
    return sy_device_copy(s->ctx, to, from, bytes) == SY_OK;
}

/* Every process has the data of all. */
static bool fill(struct state *s)
{
    const int64_t all = s->ranks * s->tokens, n_rows = s->first[s->ranks];
    bench_fill_bf16(s->got, (size_t)(n_rows * HIDDEN), 1000);
    bool good = put(s, s->rows, s->got, row_bytes(n_rows)) && put(s, s->own, s->got, row_bytes(all)) &&
                put(s, s->shared_own, s->got + s->rank * s->tokens * HIDDEN, row_bytes(s->tokens)) &&
                put(s, s->shared_rows, s->got + s->first[s->rank] * HIDDEN,
                    row_bytes(s->first[s->rank + 1] - s->first[s->rank]));
    float *const weights = bench_alloc((size_t)(all * SLOTS), sizeof *weights);
    if (weights)
        bench_fill_unit(weights, (size_t)(all * SLOTS), 91);
    good = good && weights && put(s, s->weights, weights, (size_t)(all * SLOTS) * sizeof *weights);
    free(weights);
    const size_t chosen = (size_t)(s->tokens * SLOTS);
    return good && put(s, s->indices, s->mesh.indices, (size_t)s->ranks * chosen * sizeof *s->indices) &&
           put(s, s->shared_indices, s->mesh.indices + (size_t)s->rank * chosen, chosen * sizeof *s->indices);
}

static bool prepare(struct state *s)
{
    if (!mesh_case_make(&s->mesh, s->ranks, s->tokens, EXPERTS, SLOTS, 90))
        return false;
    const int64_t all = s->ranks * s->tokens;
    for (int i = 0; i < 2; i++)
        s->calls[i] = (struct mesh_calls){.mesh = &s->mesh,
                                          .ctx = s->ctx,
                                          .device = s->device,
                                          .begin = i > 0 ? s->rank : 0,
                                          .n = i > 0 ? 1 : s->ranks,
                                          .hidden = HIDDEN};
    mesh_case_first(&s->mesh, SY_LAYOUT_EXPERT, s->first);
    const struct {
        void **data;
        size_t bytes;
    } there[] = {{(void **)&s->own, row_bytes(all)},
                 {(void **)&s->rows, row_bytes(s->first[s->ranks])},
                 {(void **)&s->out, row_bytes(s->first[s->ranks])},
                 {(void **)&s->weights, (size_t)(all * SLOTS) * sizeof *s->weights},
                 {(void **)&s->indices, (size_t)(all * SLOTS) * sizeof *s->indices}};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        if (sy_device_alloc(s->ctx, there[i].bytes, there[i].data) != SY_OK)
            return false;
    s->got = bench_alloc((size_t)s->first[s->ranks], row_bytes(1));
    s->want = bench_alloc((size_t)s->first[s->ranks], row_bytes(1));
    return s->got && s->want &&
           sy_comm_create_local(&s->calls[0].comm, (sy_mesh){1, s->ranks}, NULL) == SY_OK &&
           sy_routing_create(s->ctx, s->calls[0].comm, &s->calls[0].routing) == SY_OK;
}

/* Collective: fails in all or in none. */
static bool connect(struct state *s)
{
    return sy_comm_create_mpi(&s->calls[1].comm, MPI_COMM_WORLD, (sy_mesh){1, s->ranks}, NULL) == SY_OK &&
           sy_routing_create(s->ctx, s->calls[1].comm, &s->calls[1].routing) == SY_OK &&
           sy_comm_alloc_device(s->ctx, s->calls[1].comm, row_bytes(s->tokens), (void **)&s->shared_own) ==
               SY_OK &&
           sy_comm_alloc_device(s->ctx, s->calls[1].comm, (size_t)(s->tokens * SLOTS) * sizeof *s->indices,
                                (void **)&s->shared_indices) == SY_OK &&
           sy_comm_alloc_device(s->ctx, s->calls[1].comm,
                                row_bytes(s->first[s->rank + 1] - s->first[s->rank]),
                                (void **)&s->shared_rows) == SY_OK;
}

static void release(struct state *s)
{
    for (int i = 1; i >= 0; i--)
        mesh_calls_free(&s->calls[i]);
    void *const there[] = {s->own, s->rows, s->out, s->weights, s->indices};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        sy_device_free(s->ctx, there[i]);
    mesh_case_free(&s->mesh);
    free(s->got);
    free(s->want);
}

/* ---- Checking and timing ---- */

/* What this process gets is what its device gets on the mesh inside one process. */
static bool all_right(struct state *s)
{
    bool right = true;
    for (int i = 0; i < N_SUBJECTS; i++)
        for (int way = 0; way < N_WAYS; way++) {
            uint16_t *const to = way == LOCAL ? s->want : s->got;
            int64_t first[MOST_DEVICES + 1];
            output_rows(s, &subjects[i], first);
            memset(to, 0xff, row_bytes(s->first[s->ranks]));
            const bool done =
                put(s, s->out, to, row_bytes(s->first[s->ranks])) && call_and_wait(s, &subjects[i], way);
            if (!done)
                fprintf(stderr, "switchyard: bench: process %d: %s: %s\n", s->rank, subjects[i].name,
                        sy_ctx_error(s->ctx));
            right =
                right && done && sy_device_copy(s->ctx, to, s->out, row_bytes(s->first[s->ranks])) == SY_OK;
            right = right && (way == LOCAL ||
                              memcmp(s->got + first[s->rank] * HIDDEN, s->want + first[s->rank] * HIDDEN,
                                     row_bytes(first[s->rank + 1] - first[s->rank])) == 0);
        }
    return mpi_bench_in_all(right);
}

/* The mesh inside one process is timed in the first while the others wait. */
static double sample(struct state *s, const struct subject *subject, enum way way)
{
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = bench_now();
    if (way != LOCAL || s->rank == 0)
        call_and_wait(s, subject, way);
    double seconds = way != LOCAL || s->rank == 0 ? bench_now() - begin : 0;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

static void time_and_print(struct state *s, int turns)
{
    for (int turn = 0; turn < turns; turn++)
        for (int i = 0; i < N_SUBJECTS; i++)
            for (int way = 0; way < N_WAYS; way++)
                s->seconds[i][way][turn] = sample(s, &subjects[i], way);
    printf("\n%d tokens per process, E=%d, K=%d, H=%d bf16, %s\n\n", (int)s->tokens, EXPERTS, SLOTS, HIDDEN,
           sy_comm_shares_device_memory(s->calls[1].comm) ? "rows are read in memory of other processes"
                                                          : "rows are sent in messages");
    printf("%-18s %-32s %9s %5s %14s\n", "", "", "time", "+-", "x one process");
    for (int i = 0; i < N_SUBJECTS; i++)
        for (int way = 0; way < N_WAYS; way++) {
            double *const times = s->seconds[i][way];
            const double median = bench_median(times, turns);
            printf("%-18s %-32s %9s %4.0f%% %10.2f\n", subjects[i].name, ways[way], bench_time(median).text,
                   100 * (times[turns * 3 / 4] - times[turns / 4]) / median,
                   median / bench_median(s->seconds[i][LOCAL], turns));
        }
    fflush(stdout);
}

static bool measure(sy_ctx *ctx, DLDevice device, int64_t tokens, int turns)
{
    struct state s = {.ctx = ctx, .device = device, .tokens = tokens};
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.ranks);
    const bool ready = mpi_bench_in_all(prepare(&s)) && connect(&s) && mpi_bench_in_all(fill(&s));
    const bool right = ready && all_right(&s);
    if (right)
        time_and_print(&s, turns);
    else
        plain_error("bench: %s", ready ? "results differ" : sy_ctx_error(ctx));
    release(&s);
    return right;
}

int mpi_bench_device(sy_ctx *ctx, DLDevice device, bool quick)
{
    int ranks = 1;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (EXPERTS % ranks != 0 || ranks > MOST_DEVICES)
        return usage_error("bench", "%d processes do not divide %d experts, or are more than %d", ranks,
                           EXPERTS, MOST_DEVICES);
    printf("switchyard %s, %d process%s; without NVIDIA's MPS those on one GPU take turns of milliseconds\n",
           sy_version(), ranks, ranks == 1 ? "" : "es");
    const int64_t all = quick ? 8 : 1024; /* tokens of all processes */
    const bool right = measure(ctx, device, all / ranks, quick ? 3 : MOST_TURNS) &&
                       (quick || measure(ctx, device, 64 / ranks, MOST_TURNS));
    printf("\n%s\n", right ? "All results were compared before they were timed." : "A RESULT IS WRONG.");
    return right ? EXIT_DONE : EXIT_REJECTED;
}
