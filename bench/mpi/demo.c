/*
 * switchyard demo under mpirun: the exchange of one decode step between processes. Tokens are sent to their experts on
 * other processes and return as weighted sums; each process checks its own values, and the first writes a page.
 */
#include "mpi_bench.h"

#include <stdlib.h>
#include <string.h>

#include <switchyard_mpi.h>

#include "bench/demo.h"
#include "bench/mesh_case.h"

enum { TURNS = 25, HERE_TOKENS = 16, H = DEMO_HIDDEN, K = DEMO_K, E = DEMO_EXPERTS };

static const size_t row_bytes = (size_t)H * sizeof(uint16_t);

struct state {
    int rank, ranks;
    sy_ctx *ctx;
    struct mesh_calls calls;
    struct mesh_case mesh;
    int64_t n_rows;
    uint16_t *tokens, *sums; /* [N,H] */
    uint16_t *rows;          /* [n_rows,H] in memory of the comm: tokens, then results */
    float *weights;          /* [D*N,K] */
    struct demo_step there, back;
};

/* ---- The layer ---- */

/* The function of an expert: a factor of its own, rounded as bf16. */
static uint16_t expert(int64_t e, uint16_t x)
{
    return bf16_from_float(bf16_to_float(x) * (0.5f + (float)e / E));
}

static sy_status go_there(struct state *s)
{
    return mesh_dispatch(&s->calls, SY_LAYOUT_EXPERT, s->tokens,
                         s->mesh.indices + (int64_t)s->rank * HERE_TOKENS * K, s->rows);
}

static void work(struct state *s)
{
    for (int64_t l = 0; l < E / s->ranks; l++)
        for (int64_t i = s->calls.offsets[l] * H; i < (s->calls.offsets[l] + s->calls.counts[l]) * H; i++)
            s->rows[i] = expert((int64_t)s->rank * (E / s->ranks) + l, s->rows[i]);
}

static sy_status come_back(struct state *s)
{
    return mesh_combine(&s->calls, s->rows, s->weights + (int64_t)s->rank * HERE_TOKENS * K, true, s->sums);
}

/* ---- Checks ---- */

static void make_tokens(uint16_t *to, int rank)
{
    bench_fill_bf16(to, (size_t)HERE_TOKENS * H, 500 + (uint64_t)rank);
}

/* Every row that arrived is the token that was sent, which every process can compute. */
static bool arrived(const struct state *s)
{
    const struct mesh_case *const m = &s->mesh;
    uint16_t *const tokens = bench_alloc(HERE_TOKENS, row_bytes);
    bool same = tokens != NULL;
    for (int p = 0; p < s->ranks && same; p++) {
        make_tokens(tokens, p);
        for (int64_t at = (int64_t)p * HERE_TOKENS * K; at < (int64_t)(p + 1) * HERE_TOKENS * K && same; at++)
            same =
                mesh_case_device(m, m->indices[at]) != s->rank ||
                memcmp(s->rows + (int64_t)m->row[at] * H, tokens + at / K % HERE_TOKENS * H, row_bytes) == 0;
    }
    free(tokens);
    return same;
}

/* Every sum again without exchange, to the last bit. */
static bool returned(const struct state *s)
{
    for (int64_t n = 0; n < HERE_TOKENS; n++)
        for (int64_t h = 0; h < H; h++) {
            const int64_t first = ((int64_t)s->rank * HERE_TOKENS + n) * K;
            float sum = 0;
            for (int64_t at = first; at < first + K; at++)
                sum += s->weights[at] * bf16_to_float(expert(s->mesh.indices[at], s->tokens[n * H + h]));
            if (s->sums[n * H + h] != bf16_from_float(sum))
                return false;
        }
    return true;
}

/* ---- The walk ---- */

/* Median of the slowest process. */
static double time_of(struct state *s, sy_status (*call)(struct state *s))
{
    double seconds[TURNS];
    for (int i = 0; i < TURNS; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        const double begin = bench_now();
        call(s);
        seconds[i] = bench_now() - begin;
    }
    MPI_Allreduce(MPI_IN_PLACE, seconds, TURNS, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return bench_median(seconds, TURNS);
}

static void print_step(struct demo_step *step, const char *check, bool good)
{
    step->good = good;
    snprintf(step->check, sizeof step->check, "%s", check);
    printf("   %-19s %s\n%23s%s for %s between processes\n%23s%s %s\n\n", step->op, step->what, "",
           bench_time(step->seconds).text, demo_size(step->bytes).text, "",
           good ? "ok:" : "WRONG: it is not so that", check);
    fflush(stdout);
}

/* Rows that leave their process: tokens in the dispatch, results in the combine. */
static int64_t abroad(const struct mesh_case *m, bool answers)
{
    int64_t n = 0;
    for (int i = 0; i < m->devices * m->devices && !answers; i++)
        n += i % (m->devices + 1) != 0 ? m->sent[i] : 0;
    for (int64_t at = 0; at < m->devices * m->tokens * m->k && answers; at++)
        n += mesh_case_device(m, m->indices[at]) != at / (m->tokens * m->k);
    return n;
}

static bool walk(struct state *s)
{
    s->there = (struct demo_step){.op = "all_to_all_dispatch"};
    s->back = (struct demo_step){.op = "all_to_all_combine"};
    bool good = mpi_bench_in_all(go_there(s) == SY_OK);
    if (!good)
        fprintf(stderr, "switchyard: demo: %s\n", sy_ctx_error(s->ctx));
    if (good)
        s->there.seconds = time_of(s, go_there);
    s->there.bytes = (double)abroad(&s->mesh, false) * (double)row_bytes;
    snprintf(s->there.what, sizeof s->there.what,
             "%d tokens of each process go to the processes of their %d experts", HERE_TOKENS, K);
    print_step(&s->there, "every row that arrived is the token that was sent",
               mpi_bench_in_all(good && arrived(s)));
    if (!s->there.good)
        return false;
    work(s);
    good = mpi_bench_in_all(come_back(s) == SY_OK);
    if (good)
        s->back.seconds = time_of(s, come_back);
    s->back.bytes = (double)abroad(&s->mesh, true) * (double)row_bytes;
    snprintf(s->back.what, sizeof s->back.what, "the results return and are summed on the token's process");
    print_step(&s->back, "every sum is right to the last bit, on every process",
               mpi_bench_in_all(good && returned(s)));
    return s->back.good;
}

/* ---- The page ---- */

static void put_step(FILE *page, const struct demo_step *step)
{
    fprintf(page,
            "<li><div class=\"row\"><b>%s</b><span>%s</span></div>\n<p>%s</p>\n"
            "<p class=\"small\">%s between processes, %.3g GB/s</p>\n<p class=\"small\"><span class=\"%s "
            "%s</p></li>\n",
            step->op, bench_time(step->seconds).text, step->what, demo_size(step->bytes).text,
            step->seconds > 0 ? step->bytes / step->seconds * 1e-9 : 0,
            step->good ? "ok\">&#10003;</span>" : "no\">&#10007; it is not so that</span>", step->check);
}

static void write_page(const struct state *s, FILE *page, bool good)
{
    demo_put_head(page, "Switchyard: between processes", "One decode step between processes");
    fprintf(
        page,
        "<p class=\"lead\">%d processes hold %d tokens and %d of %d experts each. Tokens are sent to the %d "
        "experts they chose, and return as one weighted sum.</p>\n"
        "<p class=\"verdict%s</p>\n<p class=\"facts\">Switchyard %s &middot; %s &middot; kernels "
        "%s</p>\n</header>\n",
        s->ranks, HERE_TOKENS, E / s->ranks, E, K,
        good ? "\">&#10003; every value was checked on every process" : " bad\">&#10007; A RESULT IS WRONG",
        sy_version(),
        sy_comm_shares_memory(s->calls.comm) ? "rows pass through shared memory" : "rows pass in messages",
        sy_ctx_isa(s->ctx));
    fputs("<div class=\"cards\">\n<div class=\"column\">\n<section>\n<h2>Dispatch and combine</h2>\n<ol "
          "class=\"steps\">\n",
          page);
    put_step(page, &s->there);
    put_step(page, &s->back);
    fputs("</ol>\n</section>\n</div>\n<div class=\"column\">\n<section>\n<h2>Traffic</h2>\n"
          "<p>Tokens from each process to each. A token that has several experts in one process goes there "
          "once.</p>\n",
          page);
    demo_draw_traffic(s->mesh.sent, s->ranks, (double)row_bytes, page);
    fputs("</section>\n</div>\n</div>\n<footer>Made by <code>mpirun switchyard demo</code>. For times beside "
          "MPI_Alltoallv: <code>mpirun -n 2 switchyard bench "
          "all_to_all</code>.</footer>\n</main>\n</body>\n</html>\n",
          page);
}

/* ---- Command ---- */

static bool prepare(struct state *s)
{
    void *rows = NULL;
    s->calls = (struct mesh_calls){.mesh = &s->mesh, .ctx = s->ctx, .begin = s->rank, .n = 1, .hidden = H};
    bool made = mesh_case_make(&s->mesh, s->ranks, HERE_TOKENS, E, K, 80);
    s->n_rows = made ? s->mesh.rows[s->rank] : 0;
    s->tokens = bench_alloc(HERE_TOKENS, row_bytes);
    s->sums = bench_alloc(HERE_TOKENS, row_bytes);
    s->weights = bench_alloc((size_t)s->ranks * HERE_TOKENS * K, sizeof *s->weights);
    s->calls.counts = bench_alloc((size_t)E, sizeof *s->calls.counts);
    s->calls.offsets = bench_alloc((size_t)E + 1, sizeof *s->calls.offsets);
    made =
        mpi_bench_in_all(made && s->tokens && s->sums && s->weights && s->calls.counts && s->calls.offsets) &&
        sy_comm_create_mpi(&s->calls.comm, MPI_COMM_WORLD, (sy_mesh){1, s->ranks}, NULL) == SY_OK &&
        sy_routing_create(s->ctx, s->calls.comm, &s->calls.routing) == SY_OK &&
        sy_comm_alloc(s->ctx, s->calls.comm, (size_t)s->n_rows * row_bytes, &rows) == SY_OK;
    if (!made)
        return false;
    s->rows = rows;
    make_tokens(s->tokens, s->rank);
    bench_fill_unit(s->weights, (size_t)s->ranks * HERE_TOKENS * K, 81);
    return true;
}

static int show(struct state *s, const char *path)
{
    FILE *const page = s->rank == 0 ? fopen(path, "w") : NULL;
    if (!mpi_bench_in_all(s->rank != 0 || page))
        return plain_error("%s: cannot be written", path);
    printf("switchyard %s: the exchange of one decode step between %d processes\n\n", sy_version(), s->ranks);
    const bool good = prepare(s) && walk(s);
    if (page) {
        if (s->calls.comm)
            write_page(s, page, good);
        const bool bad = ferror(page) != 0;
        if (fclose(page) != 0 || bad)
            return plain_error("%s: cannot be written", path);
        printf("   %s Open ",
               good ? "Every value was checked on every process and is right." : "A RESULT IS WRONG.");
        text_print(stdout, path);
        printf(" to see it.\n");
    }
    return good ? EXIT_DONE : EXIT_REJECTED;
}

static int run(struct common *common, const char *path)
{
    struct state s = {.ctx = mpi_bench_context(common, false)};
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.ranks);
    int code = common->team->agree(s.ctx ? EXIT_DONE : EXIT_USAGE);
    if (code == EXIT_DONE && E % s.ranks != 0)
        code = usage_error("demo", "%d processes do not divide %d experts", s.ranks, E);
    if (code == EXIT_DONE)
        code = show(&s, path);
    mesh_calls_free(&s.calls);
    sy_ctx_destroy(s.ctx);
    mesh_case_free(&s.mesh);
    void *const rest[] = {s.tokens, s.sums, s.weights, s.calls.counts, s.calls.offsets};
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        free(rest[i]);
    return common->team->agree(code);
}

int command_demo_mpi(struct common *common, struct arg_list *list)
{
    const char *path = NULL;
    const int code = demo_options(common, list, &path);
    return code == EXIT_DONE ? run(common, path ? path : "demo-mpi.html") : code;
}
