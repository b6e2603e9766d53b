/*
 * sample on the CPU: rows split over threads, each row through the same stages. All filters are prefixes of
 * one total order (larger logit first, then lower index), so the state of a row is just its remaining
 * candidates.
 */
#include "cpu/sample.h"
#include "cpu/backend.h"

struct job {
    const struct syi_sample_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
    int n_slices; /* more than 1: that many threads per row compute the block maxima first */
    struct syi_sample_scratch *scratch; /* [task] */
    struct syi_found *found;            /* [task], only with overrides */
};

static int count_tasks(const sy_ctx *ctx, const struct syi_sample_plan *p)
{
    return syi_tasks(ctx, p->batch, (uint64_t)p->batch * (uint64_t)p->vocab * sizeof(uint32_t));
}

struct syi_sample_scratch syi_sample_scratch_of(struct syi_arena *arena, const struct syi_sample_plan *p)
{
    const size_t column = syi_size_mul((size_t)p->vocab, sizeof(uint32_t));
    struct syi_sample_scratch s = {.key = syi_take(arena, column)};
    s.cand_key = syi_take(arena, column);
    s.cand_idx = syi_take(arena, syi_size_add(column, SYI_PUSHED * sizeof *s.cand_idx));
    s.e = syi_take(arena, column);
    for (int i = 0; (syi_sample_sorts(p) || p->n_top > SYI_FEW) && i < 2; i++) {
        s.sort_key[i] = syi_take(arena, column);
        s.sort_idx[i] = syi_take(arena, column);
    }
    if (p->n_top > 0) {
        s.top_key = syi_take(arena, syi_size_add(column, SYI_PUSHED * sizeof *s.top_key));
        s.top_idx = syi_take(arena, syi_size_add(column, SYI_PUSHED * sizeof *s.top_idx));
    }
    s.hist = syi_take(arena, SYI_SELECT_BINS * sizeof *s.hist);
    s.block_max = syi_take(arena, syi_scan_blocks(p->vocab) * sizeof *s.block_max);
    s.group_max = syi_take(arena, syi_scan_groups(p->vocab) * sizeof *s.group_max);
    s.low = syi_take(arena, syi_weigh_strips(p->vocab) * sizeof *s.low);
    if (syi_sample_weighs(p))
        s.table.strip = syi_take(arena, syi_weigh_strips(p->vocab) * sizeof *s.table.strip);
    if (syi_sample_weighs(p) && p->logits.type != SY_TYPE_F32) {
        s.table.weight = syi_take(arena, SYI_PATTERNS * sizeof *s.table.weight);
        s.table.count = syi_take(arena, sizeof *s.table.count * 2 * SYI_PATTERNS);
        s.table.pattern = syi_take(arena, SYI_PATTERNS * sizeof *s.table.pattern);
        s.table.e = syi_take(arena, SYI_PATTERNS * sizeof *s.table.e);
        s.exp = syi_take(arena, SYI_PATTERNS * sizeof *s.exp);
    }
    if (syi_present(&p->typical_p))
        s.code = syi_take(arena, syi_size_mul(column, 2));
    if (p->overrides.indptr != NULL) {
        const size_t most = (size_t)(p->overrides.n < p->vocab ? p->overrides.n : p->vocab);
        s.out = syi_take(arena, most * sizeof *s.out);
        s.extra_key = syi_take(arena, most * sizeof *s.extra_key);
        s.extra_idx = syi_take(arena, most * sizeof *s.extra_idx);
    }
    return s;
}

/* Data shared by all tasks, and the array of their own. */
static void take_job(struct syi_arena *arena, struct job *job)
{
    const size_t n_tasks = (size_t)job->n_tasks;
    job->scratch = syi_take(arena, n_tasks * sizeof *job->scratch);
    if (job->plan->overrides.indptr != NULL)
        job->found = syi_take(arena, n_tasks * sizeof *job->found);
}

size_t syi_cpu_sample_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    struct job job = {.plan = &plan->sample, .n_tasks = count_tasks(ctx, &plan->sample)};
    struct syi_arena all = {NULL, 0}, one = {NULL, 0};
    take_job(&all, &job);
    syi_sample_scratch_of(&one, &plan->sample);
    return syi_size_add(all.used, syi_size_mul((size_t)job.n_tasks, one.used));
}

/* ---- One row ---- */

void syi_row_read(struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    r->stats = r->extra_stats;
    syi_row_keys(r, &r->logits, &r->stats);
    for (int64_t i = 0; i < r->extra.n; i++)
        r->scratch->key[r->extra.idx[i]] = r->extra.key[i];
    r->empty = r->stats.max == SYI_KEY_MINUS_INF;
    if (r->empty)
        r->stats.flags |= SY_ROW_EMPTY;
    r->max = syi_key_value(r->stats.max);
    r->c = (struct syi_candidates){r->scratch->key, NULL, p->vocab};
    r->mass = (struct syi_mass){0, 0};
}

void syi_sample_row(struct syi_row_state *r)
{
    const struct syi_sample_plan *p = r->plan;
    if (p->overrides.indptr != NULL)
        syi_row_overrides(r);
    syi_row_read_temperature(r);
    syi_row_read_filters(r);
    const enum syi_head head = p->staged && syi_row_stages(r) ? SYI_HEAD_STAGED : syi_row_head(r);
    if (head == SYI_HEAD_FULL_ROW)
        syi_row_read(r);
    if (head != SYI_HEAD_TOKEN) {
        if (head != SYI_HEAD_STAGED && syi_row_wants_candidates(r))
            syi_row_cut(r);
        if (syi_sample_sorts(p))
            syi_row_list(r);
        r->token = syi_row_choose(r);
    }
    r->first = r->token;
    if (r->given >= 0)
        r->token = r->given;
    if (p->token.data != NULL)
        syi_store_i64(p->token.data, r->b, r->token);
    if (p->row_flags.data != NULL)
        syi_store_i32(p->row_flags.data, r->b, (int32_t)r->stats.flags);
    if (p->kept.data != NULL)
        syi_store_i32(p->kept.data, r->b, syi_row_count(r));
    if (p->list_token.data != NULL || p->list_prob.data != NULL)
        syi_row_write_list(r);
    if (p->logprob_mode != SY_LOGPROB_NONE)
        syi_row_write_logprobs(r);
    if (p->masked.data != NULL)
        syi_row_write_masked(r);
}

static void sample_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_sample_plan *p = job->plan;
    const int64_t end = syi_part(p->batch, job->n_tasks, task + 1);
    struct syi_exp_table exp_table = {.e = job->scratch[task].exp};
    for (int64_t b = syi_part(p->batch, job->n_tasks, task); b < end; b++) {
        struct syi_row_state r = {.plan = p,
                                  .kernels = job->kernels,
                                  .scratch = &job->scratch[task],
                                  .exp_table = &exp_table,
                                  .b = b,
                                  .end = end,
                                  .logits = syi_row_logits(p, b),
                                  .scanned = job->n_slices > 1};
        syi_sample_row(&r);
    }
}

/* ---- Fewer rows than threads: several threads read a row, then one finishes it ---- */

static void scan_slice(void *data, int task)
{
    const struct job *job = data;
    const struct syi_sample_plan *p = job->plan;
    const int row = task / job->n_slices, slice = task % job->n_slices;
    const struct syi_scan scan = {
        .row = syi_row_logits(p, row),
        .max = job->scratch[row].block_max,
        .low = p->row_flags.data != NULL || p->kept.data != NULL ? job->scratch[row].low : NULL};
    const int64_t n_pieces = (p->vocab + SYI_PIECE - 1) / SYI_PIECE, n_blocks = SYI_PIECE / SYI_BLOCK;
    syi_scan_part(job->kernels, &scan, (size_t)(syi_part(n_pieces, job->n_slices, slice) * n_blocks),
                  (size_t)(syi_part(n_pieces, job->n_slices, slice + 1) * n_blocks));
}

/* Slices per row when there are fewer rows than threads; else 1. */
static int count_slices(const sy_ctx *ctx, const struct job *job)
{
    const struct syi_sample_plan *p = job->plan;
    if (!syi_may_scan(p) || job->n_tasks != p->batch)
        return 1;
    const int spare = ctx->threads / job->n_tasks;
    const int worth = syi_tasks(ctx, (int64_t)syi_scan_blocks(p->vocab),
                                (uint64_t)p->vocab * syi_float_bytes(p->logits.type));
    return spare < worth ? spare : worth;
}

/* Tokens that the caller names: -1 or in the vocabulary. */
static struct syi_found check_tokens(const struct syi_sample_plan *p)
{
    for (int64_t b = 0; syi_present(&p->given_token) && b < p->batch; b++) {
        const int64_t token = syi_column_int(&p->given_token, b);
        if (token < -1 || token >= p->vocab)
            return syi_bad_at(SYI_BAD_GIVEN_TOKEN, b, -1, token, p->vocab);
    }
    for (int64_t b = 0; p->n_score > 0 && b < p->batch; b++)
        for (int64_t j = 0; j < p->n_score; j++) {
            const int64_t token = syi_load_index(syi_at(p->score_token, b), j, p->score_token.type);
            if (token < -1 || token >= p->vocab)
                return syi_bad_at(SYI_BAD_SCORE_TOKEN, b, j, token, p->vocab);
        }
    return syi_good();
}

sy_status syi_cpu_sample(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_sample_plan *p = &plan->sample;
    struct job job = {.plan = p, .kernels = ctx->kernels, .n_tasks = count_tasks(ctx, p)};
    struct syi_arena arena = {workspace, 0};

    if (p->batch == 0)
        return SY_OK;
    const sy_status named = syi_report(ctx, check_tokens(p));
    if (named != SY_OK)
        return named;
    take_job(&arena, &job);
    for (int i = 0; i < job.n_tasks; i++)
        job.scratch[i] = syi_sample_scratch_of(&arena, p);
    if (p->overrides.indptr != NULL) {
        const struct syi_list_limits limits = {p->batch, p->vocab, .ascending = true};
        SYI_TRY(syi_check_lists(ctx, &p->overrides, &limits, job.n_tasks, job.found));
    }
    job.n_slices = count_slices(ctx, &job);
    if (job.n_slices > 1)
        syi_parallel(ctx, job.n_tasks * job.n_slices, scan_slice, &job);
    syi_parallel(ctx, job.n_tasks, sample_rows, &job);
    return SY_OK;
}
