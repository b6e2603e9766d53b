/*
 * all_to_all_dispatch and all_to_all_combine between processes, compared with MPI_Alltoallv of the same rows, which are
 * packed beforehand. All alternate in the same run, and a time is that of the slowest process. Results are compared with
 * a plain loop before anything is timed.
 */
#include "mpi_bench.h"

#include <stdlib.h>
#include <string.h>

#include <switchyard_mpi.h>

#include "bench/bench.h"
#include "bench/mesh_case.h"

enum { MOST_TURNS = 101, HIDDEN = 2048, EXPERTS = 64, SLOTS = 8 };

/* Comms that differ in how rows are sent and what is agreed on before. */
enum way { SHARED, MESSAGES, UNCHECKED, N_WAYS };

/* What is timed. */
enum call { RAW_DISPATCH, RAW_COMBINE, DISPATCH, COMBINE };
static const struct subject {
    const char *name;
    enum call call;
    enum way way;
    bool window;          /* the input is in memory of the comm */
    bool sum;             /* of combine */
    sy_a2a_layout layout; /* of dispatch; EXPERT of combine */
    int against;          /* the subject whose time is 1; itself: that is the limit */
} subjects[] = {
    {"MPI_Alltoallv of the tokens sent", RAW_DISPATCH, SHARED, false, false, 0, 0},
    {"dispatch", DISPATCH, SHARED, false, false, SY_LAYOUT_PACKED, 0},
    {"dispatch, input shared", DISPATCH, SHARED, true, false, SY_LAYOUT_PACKED, 0},
    {"dispatch, input shared, check NONE", DISPATCH, UNCHECKED, true, false, SY_LAYOUT_PACKED, 0},
    {"dispatch, in messages", DISPATCH, MESSAGES, false, false, SY_LAYOUT_PACKED, 0},
    {"dispatch to EXPERT, input shared", DISPATCH, SHARED, true, false, SY_LAYOUT_EXPERT, 0},
    {"MPI_Alltoallv of the rows of experts", RAW_COMBINE, SHARED, false, false, 0, 6},
    {"combine, sum", COMBINE, SHARED, false, true, SY_LAYOUT_EXPERT, 6},
    {"combine, sum, input shared", COMBINE, SHARED, true, true, SY_LAYOUT_EXPERT, 6},
    {"combine, sum, input shared, check NONE", COMBINE, UNCHECKED, true, true, SY_LAYOUT_EXPERT, 6},
    {"combine, sum, in messages", COMBINE, MESSAGES, false, true, SY_LAYOUT_EXPERT, 6},
    {"combine, slots", COMBINE, SHARED, false, false, SY_LAYOUT_EXPERT, 6},
    {"combine, slots, input shared", COMBINE, SHARED, true, false, SY_LAYOUT_EXPERT, 6},
    {"combine, slots, in messages", COMBINE, MESSAGES, false, false, SY_LAYOUT_EXPERT, 6},
};
enum { N_SUBJECTS = sizeof subjects / sizeof *subjects };

/* One size, on one process. */
struct state {
    int rank, ranks;
    int64_t tokens, n_packed, n_rows; /* of this process: tokens, rows PACKED and EXPERT */
    sy_ctx *ctx;
    struct mesh_case mesh;
    struct mesh_calls calls[N_WAYS];
    uint16_t *own[N_WAYS], *remote[N_WAYS]; /* inputs in memory of the comm */
    uint16_t *private_own, *private_remote; /* the same inputs elsewhere */
    uint16_t *out, *want_packed, *want_rows, *want_slots, *want_sum;
    float *weights;
    uint16_t *raw_from, *raw_to; /* packed for MPI */
    int counts[2][4][EXPERTS];   /* of RAW_DISPATCH and RAW_COMBINE: sent, where, received, where */
    MPI_Datatype row;
    double seconds[N_SUBJECTS][MOST_TURNS];
    int turns;
};

static size_t row_bytes(void)
{
    return (size_t)HIDDEN * sizeof(uint16_t);
}

/* ---- Calls ---- */

static bool call(struct state *s, const struct subject *subject)
{
    const int way = subject->way;
    const int64_t choices = s->rank * s->tokens * SLOTS; /* before those of this process */
    const struct mesh_calls *const calls = &s->calls[way];
    if (subject->call == DISPATCH)
        return mesh_dispatch(calls, subject->layout, subject->window ? s->own[way] : s->private_own,
                             s->mesh.indices + choices, s->out) == SY_OK;
    if (subject->call == COMBINE)
        return mesh_combine(calls, subject->window ? s->remote[way] : s->private_remote, s->weights + choices,
                            subject->sum, s->out) == SY_OK;
    int(*const c)[EXPERTS] = s->counts[subject->call];
    return MPI_Alltoallv(s->raw_from, c[0], c[1], s->row, s->raw_to, c[2], c[3], s->row, MPI_COMM_WORLD) ==
           MPI_SUCCESS;
}

/* ---- Data ---- */

/* Every process can make the inputs of all: nothing is exchanged for the check. */
static void make_own(uint16_t *to, int64_t tokens, int rank)
{
    bench_fill_bf16(to, (size_t)(tokens * HIDDEN), 1000 + (uint64_t)rank);
}

static void make_remote(uint16_t *to, int64_t rows, int rank)
{
    bench_fill_bf16(to, (size_t)(rows * HIDDEN), 2000 + (uint64_t)rank);
}

/* Rows from p to q and back: tokens once, choices one by one. */
static int64_t choices_between(const struct mesh_case *m, int p, int q)
{
    int64_t n = 0;
    for (int64_t at = p * m->tokens * m->k; at < (p + 1) * m->tokens * m->k; at++)
        n += mesh_case_device(m, m->indices[at]) == q;
    return n;
}

static void make_counts(struct state *s)
{
    const struct mesh_case *const m = &s->mesh;
    for (int raw = 0; raw < 2; raw++) {
        int(*const c)[EXPERTS] = s->counts[raw];
        for (int q = 0, from = 0, to = 0; q < s->ranks; from += c[0][q], to += c[2][q], q++) {
            c[0][q] =
                (int)(raw == RAW_DISPATCH ? m->sent[s->rank * s->ranks + q] : choices_between(m, q, s->rank));
            c[2][q] =
                (int)(raw == RAW_DISPATCH ? m->sent[q * s->ranks + s->rank] : choices_between(m, s->rank, q));
            c[1][q] = from;
            c[3][q] = to;
        }
    }
}

/* The expected result of dispatch on this process, from the tokens of all processes. */
static bool want_dispatch(struct state *s)
{
    uint16_t *const own = bench_alloc((size_t)(s->tokens * HIDDEN), sizeof *own);
    int64_t packed = 0;
    for (int p = 0; p < s->ranks && own; p++) {
        make_own(own, s->tokens, p);
        for (int64_t n = 0; n < s->tokens; n++) {
            const int64_t t = p * s->tokens + n;
            if (mesh_case_hits(&s->mesh, t, s->rank))
                memcpy(s->want_packed + packed++ * HIDDEN, own + n * HIDDEN, row_bytes());
            for (int64_t at = t * SLOTS; at < (t + 1) * SLOTS; at++)
                if (mesh_case_device(&s->mesh, s->mesh.indices[at]) == s->rank)
                    memcpy(s->want_rows + (int64_t)s->mesh.row[at] * HIDDEN, own + n * HIDDEN, row_bytes());
        }
    }
    free(own);
    return own != NULL;
}

static void add_up(struct state *s)
{
    for (int64_t n = 0; n < s->tokens; n++)
        for (int64_t h = 0; h < HIDDEN; h++) {
            float sum = 0;
            for (int64_t k = 0; k < SLOTS; k++)
                sum += s->weights[(s->rank * s->tokens + n) * SLOTS + k] *
                       bf16_to_float(s->want_slots[(k * s->tokens + n) * HIDDEN + h]);
            s->want_sum[n * HIDDEN + h] = bf16_from_float(sum);
        }
}

/* The expected result of combine on this process, from the rows of all processes. */
static bool want_combine(struct state *s)
{
    const struct mesh_case *const m = &s->mesh;
    for (int q = 0; q < s->ranks; q++) {
        uint16_t *const remote = bench_alloc((size_t)(m->rows[q] * HIDDEN), sizeof *remote);
        if (!remote)
            return false;
        make_remote(remote, m->rows[q], q);
        for (int64_t n = 0; n < s->tokens; n++)
            for (int64_t k = 0; k < SLOTS; k++) {
                const int64_t at = (s->rank * s->tokens + n) * SLOTS + k;
                if (mesh_case_device(m, m->indices[at]) == q)
                    memcpy(s->want_slots + (k * s->tokens + n) * HIDDEN,
                           remote + (int64_t)m->row[at] * HIDDEN, row_bytes());
            }
        free(remote);
    }
    add_up(s);
    return true;
}

static bool make_comm(struct state *s, enum way way)
{
    const sy_mpi_options options = {
        .comm = {.check = way == UNCHECKED ? SY_CHECK_NONE : SY_CHECK_FULL, .no_shared = way == MESSAGES}};
    struct mesh_calls *const c = &s->calls[way];
    void *own = NULL, *remote = NULL;
    *c = (struct mesh_calls){.mesh = &s->mesh, .ctx = s->ctx, .begin = s->rank, .n = 1, .hidden = HIDDEN};
    if (sy_comm_create_mpi(&c->comm, MPI_COMM_WORLD, (sy_mesh){1, s->ranks}, &options) != SY_OK ||
        sy_routing_create(s->ctx, c->comm, &c->routing) != SY_OK ||
        sy_comm_alloc(s->ctx, c->comm, (size_t)s->tokens * row_bytes(), &own) != SY_OK ||
        sy_comm_alloc(s->ctx, c->comm, (size_t)s->n_rows * row_bytes(), &remote) != SY_OK)
        return false;
    s->own[way] = own;
    s->remote[way] = remote;
    make_own(own, s->tokens, s->rank);
    make_remote(remote, s->n_rows, s->rank);
    return true;
}

static bool prepare(struct state *s)
{
    if (!mesh_case_make(&s->mesh, s->ranks, s->tokens, EXPERTS, SLOTS, 90))
        return false;
    const int64_t choices = s->tokens * SLOTS, most_rows = choices * s->ranks;
    s->n_rows = s->mesh.rows[s->rank];
    for (int p = 0; p < s->ranks; p++)
        s->n_packed += s->mesh.sent[p * s->ranks + s->rank];
    uint16_t **const rows[] = {&s->private_own, &s->want_sum,  &s->private_remote, &s->out,   &s->want_packed,
                               &s->want_slots,  &s->want_rows, &s->raw_from,       &s->raw_to};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        *rows[i] = bench_alloc((size_t)(i < 2 ? s->tokens : i < 3 ? s->n_rows : most_rows), row_bytes());
        if (!*rows[i])
            return false;
    }
    s->weights = bench_alloc((size_t)most_rows, sizeof *s->weights);
    if (!s->weights)
        return false;
    make_counts(s);
    bench_fill_unit(s->weights, (size_t)most_rows, 91);
    make_own(s->private_own, s->tokens, s->rank);
    make_remote(s->private_remote, s->n_rows, s->rank);
    MPI_Type_contiguous((int)row_bytes(), MPI_BYTE, &s->row);
    MPI_Type_commit(&s->row);
    return want_dispatch(s) && want_combine(s);
}

static void release(struct state *s)
{
    for (int way = 0; way < N_WAYS; way++)
        mesh_calls_free(&s->calls[way]);
    if (s->row != MPI_DATATYPE_NULL)
        MPI_Type_free(&s->row);
    mesh_case_free(&s->mesh);
    void *const rest[] = {s->private_own, s->private_remote, s->out,     s->want_packed, s->want_rows,
                          s->want_slots,  s->want_sum,       s->weights, s->raw_from,    s->raw_to};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        free(rest[i]);
}

/* ---- Checking and timing ---- */

static bool is_right(struct state *s, const struct subject *subject)
{
    const bool by_expert = subject->layout == SY_LAYOUT_EXPERT;
    const uint16_t *const want = subject->call == DISPATCH ? by_expert ? s->want_rows : s->want_packed
                                 : subject->sum            ? s->want_sum
                                                           : s->want_slots;
    const int64_t rows = subject->call == DISPATCH ? by_expert ? s->n_rows : s->n_packed
                         : subject->sum            ? s->tokens
                                                   : s->tokens * SLOTS;
    memset(s->out, 0xff, (size_t)rows * row_bytes());
    if (!call(s, subject)) {
        fprintf(stderr, "switchyard: bench: process %d: %s: %s\n", s->rank, subject->name,
                sy_ctx_error(s->ctx));
        return false;
    }
    const bool right = subject->call < DISPATCH || memcmp(s->out, want, (size_t)rows * row_bytes()) == 0;
    if (!right)
        fprintf(stderr, "switchyard: bench: process %d: %s: rows differ from the plain loop\n", s->rank,
                subject->name);
    return right;
}

/* Combines use the routing of a dispatch, so those of all comms come first. */
static bool all_right(struct state *s)
{
    bool right = true;
    for (int way = 0; way < N_WAYS; way++)
        right = is_right(s,
                         &(struct subject){
                             .name = "dispatch", .call = DISPATCH, .way = way, .layout = SY_LAYOUT_EXPERT}) &&
                right;
    for (int i = 0; i < N_SUBJECTS; i++)
        right = is_right(s, &subjects[i]) && right;
    return mpi_bench_in_all(right);
}

/* Seconds of one call on the slowest process; short calls are repeated within a sample. */
static double sample(struct state *s, const struct subject *subject, int inner)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = bench_now();
    for (int i = 0; i < inner; i++)
        call(s, subject);
    double seconds = (bench_now() - begin) / inner;
    MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return seconds;
}

static void time_all(struct state *s, bool quick)
{
    const int inner = s->tokens <= 64 && !quick ? 10 : 1;
    s->turns = quick ? 3 : s->tokens <= 64 ? MOST_TURNS : 41;
    for (int turn = 0; turn < s->turns; turn++)
        for (int i = 0; i < N_SUBJECTS; i++)
            s->seconds[i][turn] = sample(s, &subjects[i], inner);
}

static void print_size(struct state *s)
{
    int64_t in = 0, most = 0;
    for (int q = 0; q < s->ranks; q++) {
        in = 0;
        for (int p = 0; p < s->ranks; p++)
            in += p == q ? 0 : s->mesh.sent[p * s->ranks + q];
        most = in > most ? in : most;
    }
    printf("\n%d tokens per process, E=%d, K=%d, H=%d bf16: %.3g MB of tokens into the busiest process, %.3g "
           "MB of expert\n"
           "rows for one, its own included\n\n",
           (int)s->tokens, EXPERTS, SLOTS, HIDDEN, (double)most * (double)row_bytes() * 1e-6,
           (double)(s->tokens * SLOTS) * (double)row_bytes() * 1e-6);
    printf("%-40s %9s %5s %14s\n", "", "time", "+-", "x MPI_Alltoallv");
    for (int i = 0; i < N_SUBJECTS; i++) {
        double *const times = s->seconds[i];
        const double median = bench_median(times, s->turns);
        const double raw = bench_median(s->seconds[subjects[i].against], s->turns);
        printf("%-40s %9s %4.0f%% %10.2f\n", subjects[i].name, bench_time(median).text,
               100 * (times[s->turns * 3 / 4] - times[s->turns / 4]) / median, median / raw);
    }
    fflush(stdout);
}

/* One size. False: something is wrong; all processes agree. */
static bool measure(sy_ctx *ctx, int64_t tokens, bool quick)
{
    struct state s = {.ctx = ctx, .tokens = tokens, .row = MPI_DATATYPE_NULL};
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.ranks);
    bool ready = mpi_bench_in_all(prepare(&s));
    for (int way = 0; way < N_WAYS && ready; way++) /* collective: fails in all or in none */
        ready = make_comm(&s, way);
    const bool right = ready && all_right(&s);
    if (right) {
        time_all(&s, quick);
        print_size(&s);
    } else if (!ready) {
        plain_error("bench: not enough memory, or no comm: %s", sy_ctx_error(ctx));
    }
    release(&s);
    return right;
}

/* ---- Command ---- */

static int run(sy_ctx *ctx, bool quick)
{
    int ranks = 1, length = 0;
    char library[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Get_library_version(library, &length);
    library[strcspn(library, ",\n")] = '\0';
    if (EXPERTS % ranks != 0)
        return usage_error("bench", "%d processes do not divide %d experts", ranks, EXPERTS);
    printf("switchyard %s, kernels %s, %d process%s with %d thread%s each, %s\n", sy_version(),
           sy_ctx_isa(ctx), ranks, ranks == 1 ? "" : "es", sy_ctx_threads(ctx),
           sy_ctx_threads(ctx) == 1 ? "" : "s", library);
    const bool right = measure(ctx, quick ? 32 : 512, quick) && measure(ctx, quick ? 4 : 8, quick);
    printf("\n%s\n", right ? "All results were checked against a plain loop before they were timed."
                           : "A RESULT IS WRONG.");
    return right ? EXIT_DONE : EXIT_REJECTED;
}

int command_bench_mpi(struct common *common, struct arg_list *list)
{
    bool quick = false, named = false;
    for (struct arg arg = arg_next(list); arg.kind != ARG_END; arg = arg_next(list)) {
        int code = EXIT_DONE;
        if (arg.kind == ARG_WORD && strcmp(arg.text, "all_to_all") == 0)
            named = true;
        else if (arg.kind == ARG_WORD)
            return usage_error("bench", "between processes there is no benchmark of %s, only of all_to_all",
                               arg.text);
        else if (arg_is(&arg, "quick") && !arg.value)
            quick = true;
        else if (!common_option(common, list, &arg, &code))
            return usage_error("bench", "between processes bench has no option --%.*s", arg.length, arg.text);
        if (code != EXIT_DONE)
            return code;
    }
    if (!named)
        return usage_error("bench", "between processes there is a benchmark of all_to_all alone: name it");
    sy_ctx *const ctx = mpi_bench_context(common, true);
    int code = common->team->agree(ctx ? EXIT_DONE : EXIT_USAGE);
    if (code == EXIT_DONE)
        code = common->team->agree(common->device.device_type == kDLCUDA
                                       ? mpi_bench_device(ctx, common->device, quick)
                                       : run(ctx, quick));
    sy_ctx_destroy(ctx);
    return code;
}
