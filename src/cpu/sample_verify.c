/*
 * sample_verify on the CPU: requests split over threads. A request's rows are sampled one after the other along the accepted
 * path, by the stages of sample, each as a call of one row; the rows beside the path are not read.
 */
#include "plan/drafts.h"
#include "cpu/backend.h"
#include "cpu/sample.h"

struct job {
    const struct syi_sample_verify_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
    struct syi_sample_scratch *scratch; /* [task] */
    struct syi_found *found;            /* [task] */
};

static int count_tasks(const sy_ctx *ctx, const struct syi_sample_verify_plan *p)
{
    const int64_t n = p->drafts.n_requests > 0 ? p->drafts.n_requests : 1;
    return syi_tasks(ctx, n, (uint64_t)p->rows.batch * (uint64_t)p->rows.vocab * sizeof(uint32_t));
}

static void take_job(struct syi_arena *arena, struct job *job)
{
    const size_t n_tasks = (size_t)job->n_tasks;
    job->scratch = syi_take(arena, n_tasks * sizeof *job->scratch);
    job->found = syi_take(arena, n_tasks * sizeof *job->found);
}

size_t syi_cpu_sample_verify_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    struct job job = {.plan = &plan->sample_verify, .n_tasks = count_tasks(ctx, &plan->sample_verify)};
    struct syi_arena all = {NULL, 0}, one = {NULL, 0};
    take_job(&all, &job);
    syi_sample_scratch_of(&one, &job.plan->rows);
    return syi_size_add(all.used, syi_size_mul((size_t)job.n_tasks, one.used));
}

/* ---- One row ---- */

static struct syi_column column_at(struct syi_column column, int64_t b)
{
    if (column.rows.data != NULL)
        column.rows.data = syi_row_at(column.rows, b);
    return column;
}

/* The address of a number that the column holds only says that there is one. */
static struct syi_column number(uint64_t value)
{
    return (struct syi_column){
        .rows = {(unsigned char *)(uintptr_t)1, 0}, .type = SY_TYPE_I64, .held = true, .number = value};
}

static unsigned char *slot_of(const struct syi_sample_verify_plan *p, struct syi_rows rows,
                              const struct syi_draft *of, int64_t i, int64_t bytes)
{
    return rows.data != NULL ? syi_draft_slot(&p->drafts, rows, of, i, bytes) : NULL;
}

/* A call of sample with row `cur` of a request, whose outputs are those of slot i; its token is the caller's. */
static void one_row(const struct syi_sample_verify_plan *p, const struct syi_draft *of, int64_t cur,
                    int64_t i, unsigned char *token, struct syi_sample_plan *one)
{
    const struct syi_sample_plan *rows = &p->rows;
    const int64_t b = of->b, row = of->first + cur;
    const uint64_t offset = syi_present(&rows->offset) ? (uint64_t)syi_column_int(&rows->offset, b) : 0;
    const int64_t stream = syi_present(&rows->stream) ? syi_column_int(&rows->stream, b)
                           : rows->seed_per_row       ? 0
                                                      : b;
    *one = *rows;
    one->batch = 1;
    one->logits.data = syi_at(rows->logits, row);
    if (rows->allow_bits.data != NULL)
        one->allow_bits.data = syi_at(rows->allow_bits, row);
    if (rows->overrides.indptr != NULL)
        one->overrides.indptr += row * (rows->overrides.indptr_type == SY_TYPE_I64 ? 8 : 4);
    one->top_k = column_at(rows->top_k, b);
    one->top_p = column_at(rows->top_p, b);
    one->min_p = column_at(rows->min_p, b);
    one->temperature = column_at(rows->temperature, b);
    one->top_n_sigma = column_at(rows->top_n_sigma, b);
    one->typical_p = column_at(rows->typical_p, b);
    one->xtc_probability = column_at(rows->xtc_probability, b);
    one->xtc_threshold = column_at(rows->xtc_threshold, b);
    one->dynatemp_range = column_at(rows->dynatemp_range, b);
    one->dynatemp_exponent = column_at(rows->dynatemp_exponent, b);
    one->seed = column_at(rows->seed, b);
    one->offset = number(offset + (uint64_t)i);
    one->stream = number((uint64_t)stream);
    one->token.data = token;
    one->row_flags.data = slot_of(p, p->row_flags, of, i, 4);
    one->logprob.data = slot_of(p, p->logprob, of, i, 4);
    one->rank.data = slot_of(p, p->rank, of, i, 4);
    if (rows->n_top > 0) {
        one->top_token.data = syi_at(rows->top_token, of->first + i);
        one->top_logprob.data = syi_at(rows->top_logprob, of->first + i);
    }
}

static int64_t pick(const struct job *job, const struct syi_sample_scratch *scratch,
                    struct syi_exp_table *exp_table, const struct syi_draft *of, int64_t cur, int64_t i)
{
    unsigned char token[8];
    struct syi_sample_plan plan;
    one_row(job->plan, of, cur, i, token, &plan);
    struct syi_row_state r = {.plan = &plan,
                              .kernels = job->kernels,
                              .scratch = scratch,
                              .exp_table = exp_table,
                              .end = 1,
                              .logits = syi_row_logits(&plan, 0)};
    syi_sample_row(&r);
    return r.token; /* -1: the row is empty */
}

/* ---- One request ---- */

/* Of several equal drafts the lowest; 0: none. */
static int64_t child_of(const struct syi_draft_rows *d, const struct syi_draft *of, int64_t cur,
                        int64_t token)
{
    for (int64_t r = cur + 1; r < of->n; r++)
        if (syi_draft_parent(d, of, r) == cur && syi_draft_token(d, of, r) == token)
            return r;
    return 0;
}

static bool stops(const struct syi_token_lists *stop, int64_t b, int64_t token)
{
    const int64_t end = syi_shared_end(stop, b);
    for (int64_t j = syi_shared_first(stop, b); j < end; j++)
        if (syi_list_token(stop, j) == token)
            return true;
    return false;
}

static void put_slot(const struct syi_sample_verify_plan *p, const struct syi_draft *of, int64_t i,
                     int64_t token, int64_t path)
{
    if (p->token.data != NULL)
        syi_store_i64(slot_of(p, p->token, of, i, 8), 0, token);
    if (p->path.data != NULL)
        syi_store_i32(slot_of(p, p->path, of, i, 4), 0, (int32_t)path);
}

static void accept(const struct syi_sample_verify_plan *p, const struct syi_draft *of, int64_t r,
                   bool accepted)
{
    if (p->accept_mask.data != NULL)
        *slot_of(p, p->accept_mask, of, r, 1) = accepted;
}

/* A slot that holds no token. */
static void put_nothing(const struct syi_sample_verify_plan *p, const struct syi_draft *of, int64_t i)
{
    const struct syi_rows zeros[] = {p->row_flags, p->logprob, p->rank};
    const float minus_inf = syi_f32_from_bits(0xff800000u);
    put_slot(p, of, i, -1, -1);
    for (int k = 0; k < 3; k++)
        if (zeros[k].data != NULL)
            syi_store_i32(slot_of(p, zeros[k], of, i, 4), 0, 0);
    for (int64_t j = 0; j < p->rows.n_top; j++) {
        syi_store_index(syi_at(p->rows.top_token, of->first + i), j, -1, p->rows.top_token.type);
        memcpy(syi_at(p->rows.top_logprob, of->first + i) + j * 4, &minus_inf, sizeof minus_inf);
    }
}

static void put_request(const struct syi_sample_verify_plan *p, int64_t b, int64_t accepted, int64_t count,
                        int64_t next)
{
    if (p->accepted != NULL)
        syi_store_i32(p->accepted, b, (int32_t)accepted);
    if (p->count != NULL)
        syi_store_i32(p->count, b, (int32_t)count);
    if (p->next_token != NULL)
        syi_store_i64(p->next_token, b, next);
}

static void walk(const struct job *job, int task, struct syi_exp_table *exp_table, int64_t b)
{
    const struct syi_sample_verify_plan *p = job->plan;
    const struct syi_draft of = syi_draft_of(&p->drafts, b);
    int64_t cur = 0, count = 0, accepted = 0, next = -1;
    for (int64_t r = 0; r < of.n; r++)
        accept(p, &of, r, r == 0);
    for (bool ends = of.n == 0; !ends; count++) {
        const int64_t x = pick(job, &job->scratch[task], exp_table, &of, cur, count);
        const int64_t child = x >= 0 ? child_of(&p->drafts, &of, cur, x) : 0;
        next = x >= 0 ? x : p->empty_token;
        put_slot(p, &of, count, next, cur);
        if (child > 0) {
            accepted = count + 1;
            accept(p, &of, child, true);
        }
        ends = child == 0 || stops(&p->stop, b, x);
        cur = child;
    }
    for (int64_t i = count; i < of.n; i++)
        put_nothing(p, &of, i);
    put_request(p, b, accepted, count, next);
}

static void walk_requests(void *data, int task)
{
    const struct job *job = data;
    const int64_t n = job->plan->drafts.n_requests, end = syi_part(n, job->n_tasks, task + 1);
    struct syi_exp_table exp_table = {.e = job->scratch[task].exp};
    for (int64_t b = syi_part(n, job->n_tasks, task); b < end; b++)
        walk(job, task, &exp_table, b);
}

/* ---- The call ---- */

static sy_status check_contents(sy_ctx *ctx, const struct job *job)
{
    const struct syi_sample_verify_plan *p = job->plan;
    const struct syi_list_limits stop = {p->drafts.n_requests, p->rows.vocab, .ascending = false},
                                 rows = {p->rows.batch, p->rows.vocab, .ascending = true};
    const int64_t n = syi_drafts_items(&p->drafts);
    for (int64_t i = 0; i < n; i++) {
        SYI_TRY(syi_report(ctx, syi_drafts_bad(&p->drafts, i, p->rows.vocab)));
    }
    SYI_TRY(syi_check_lists(ctx, &p->stop, &stop, job->n_tasks, job->found));
    if (p->rows.overrides.indptr != NULL && p->rows.batch > 0)
        SYI_TRY(syi_check_lists(ctx, &p->rows.overrides, &rows, job->n_tasks, job->found));
    return SY_OK;
}

sy_status syi_cpu_sample_verify(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_sample_verify_plan *p = &plan->sample_verify;
    struct job job = {.plan = p, .kernels = ctx->kernels, .n_tasks = count_tasks(ctx, p)};
    struct syi_arena arena = {workspace, 0};
    if (p->drafts.n_requests == 0)
        return SY_OK;
    take_job(&arena, &job);
    for (int i = 0; i < job.n_tasks; i++)
        job.scratch[i] = syi_sample_scratch_of(&arena, &p->rows);
    SYI_TRY(check_contents(ctx, &job));
    syi_parallel(ctx, job.n_tasks, walk_requests, &job);
    const int64_t used = syi_drafts_first(&p->drafts, p->drafts.n_requests);
    const struct syi_draft others = {p->drafts.n_requests, used, p->rows.batch - used};
    for (int64_t i = 0; i < others.n; i++) { /* rows that no request has */
        put_nothing(p, &others, i);
        accept(p, &others, i, false);
    }
    return SY_OK;
}
