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
#include "cli/team.h"

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
    sy_comm *comm[2]; /* in this process, between processes */
    sy_routing *routing[2];
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

/* ---- Calls --------------------------------------------------------------------------------------------- */

struct tensors {
    DLTensor of[MOST_DEVICES];
    int64_t shape[MOST_DEVICES][2];
};

/* One of every device of the comm: n elements from `data` on each, or those between two numbers of rows. */
static const DLTensor *tensors(struct tensors *t, const struct state *s, enum way way, void *data,
                               DLDataType type, int64_t n, const int64_t *first, int64_t width)
{
    const int begin = way == LOCAL ? 0 : s->rank, count = way == LOCAL ? s->ranks : 1;
    for (int i = 0; i < count; i++) {
        const int64_t before = first ? first[begin + i] : n * (begin + i);
        t->shape[i][0] = first ? first[begin + i + 1] - first[begin + i] : n;
        t->shape[i][1] = width;
        t->of[i] = sy_tensor((char *)data + (size_t)(before * width) * (type.bits / 8), type, 2, t->shape[i]);
        t->of[i].device = s->device;
    }
    return t->of;
}

/* The same, of this process alone, elsewhere. */
static const DLTensor *moved(struct tensors *t, void *data)
{
    t->of[0].data = data;
    return t->of;
}

/* The rows of `out` that each device writes: from first[device] on. */
static void output_rows(const struct state *s, const struct subject *subject, int64_t first[MOST_DEVICES + 1])
{
    first[0] = 0;
    for (int q = 0; q < s->ranks; q++) {
        int64_t n = subject->combine ? s->tokens : s->first[q + 1] - s->first[q];
        if (subject->layout == SY_LAYOUT_PACKED)
            n = 0;
        for (int p = 0; p < s->ranks && subject->layout == SY_LAYOUT_PACKED; p++)
            n += s->mesh.sent[p * s->ranks + q];
        first[q + 1] = first[q] + n;
    }
}

static sy_status call(const struct state *s, const struct subject *subject, enum way way)
{
    const int between = way != LOCAL;
    struct tensors own, indices, rows, out, weights;
    int64_t first[MOST_DEVICES + 1];
    output_rows(s, subject, first);
    if (subject->combine) {
        const DLTensor *in = tensors(&rows, s, way, s->rows, SY_BF16, 0, s->first, HIDDEN);
        return sy_all_to_all_combine(
            s->ctx, s->comm[between],
            &(sy_all_to_all_combine_args){
                .input = way == MAPPED ? moved(&rows, s->shared_rows) : in,
                .weights = tensors(&weights, s, way, s->weights, SY_F32, s->tokens, NULL, SLOTS),
                .sum = true,
                .routing = s->routing[between],
                .output = tensors(&out, s, way, s->out, SY_BF16, 0, first, HIDDEN)});
    }
    const DLTensor mapping = sy_tensor(s->mesh.mapping, SY_U16, 2, (int64_t[]){EXPERTS, s->ranks});
    const DLTensor *in = tensors(&own, s, way, s->own, SY_BF16, s->tokens, NULL, HIDDEN);
    const DLTensor *chosen = tensors(&indices, s, way, s->indices, SY_U16, s->tokens, NULL, SLOTS);
    return sy_all_to_all_dispatch(
        s->ctx, s->comm[between],
        &(sy_all_to_all_dispatch_args){
            .input = way == MAPPED ? moved(&own, s->shared_own) : in,
            .expert_indices = way == MAPPED ? moved(&indices, s->shared_indices) : chosen,
            .expert_mapping = &mapping,
            .layout = subject->layout,
            .routing = subject->layout == SY_LAYOUT_PACKED ? NULL : s->routing[between],
            .tokens = tensors(&out, s, way, s->out, SY_BF16, 0, first, HIDDEN)});
}

static bool call_and_wait(const struct state *s, const struct subject *subject, enum way way)
{
    return call(s, subject, way) == SY_OK && sy_ctx_sync(s->ctx) == SY_OK;
}

/* ---- Data ---------------------------------------------------------------------------------------------- */

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
    uint64_t seed = 91;
    for (int64_t i = 0; weights && i < all * SLOTS; i++)
        weights[i] = (float)bench_unit(&seed);
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
    for (int d = 0; d < s->ranks; d++)
        s->first[d + 1] = s->first[d] + s->mesh.rows[d];
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
    return s->got && s->want && sy_comm_create_local(&s->comm[0], (sy_mesh){1, s->ranks}, NULL) == SY_OK &&
           sy_routing_create(s->ctx, s->comm[0], &s->routing[0]) == SY_OK;
}

/* Collective: fails in all or in none. */
static bool connect(struct state *s)
{
    return sy_comm_create_mpi(&s->comm[1], MPI_COMM_WORLD, (sy_mesh){1, s->ranks}, NULL) == SY_OK &&
           sy_routing_create(s->ctx, s->comm[1], &s->routing[1]) == SY_OK &&
           sy_comm_alloc_device(s->ctx, s->comm[1], row_bytes(s->tokens), (void **)&s->shared_own) == SY_OK &&
           sy_comm_alloc_device(s->ctx, s->comm[1], (size_t)(s->tokens * SLOTS) * sizeof *s->indices,
                                (void **)&s->shared_indices) == SY_OK &&
           sy_comm_alloc_device(s->ctx, s->comm[1], row_bytes(s->first[s->rank + 1] - s->first[s->rank]),
                                (void **)&s->shared_rows) == SY_OK;
}

static void release(struct state *s)
{
    for (int i = 1; i >= 0; i--) {
        sy_routing_destroy(s->routing[i]);
        sy_comm_destroy(s->comm[i]);
    }
    void *const there[] = {s->own, s->rows, s->out, s->weights, s->indices};
    for (size_t i = 0; i < sizeof there / sizeof *there; i++)
        sy_device_free(s->ctx, there[i]);
    mesh_case_free(&s->mesh);
    free(s->got);
    free(s->want);
}

/* ---- Checking and timing ------------------------------------------------------------------------------- */

/* Whether it is so in all processes. */
static bool in_all(bool here)
{
    int all = here;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all != 0;
}

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
    return in_all(right);
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
           sy_comm_shares_device_memory(s->comm[1]) ? "rows are read in memory of other processes"
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

static bool measure_state(struct state *s, int turns)
{
    MPI_Comm_rank(MPI_COMM_WORLD, &s->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s->ranks);
    const bool ready = in_all(prepare(s)) && connect(s) && in_all(fill(s)), right = ready && all_right(s);
    if (right)
        time_and_print(s, turns);
    else
        plain_error("bench: %s", ready ? "results differ" : sy_ctx_error(s->ctx));
    release(s);
    return right;
}

static bool measure(sy_ctx *ctx, DLDevice device, int64_t tokens, int turns)
{
    struct state *const s = calloc(1, sizeof *s);
    if (!in_all(s != NULL) || s == NULL) {
        plain_error("bench: no memory");
        free(s);
        return false;
    }
    s->ctx = ctx;
    s->device = device;
    s->tokens = tokens;
    const bool right = measure_state(s, turns);
    free(s);
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
