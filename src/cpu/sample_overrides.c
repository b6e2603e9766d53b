/*
 * sample_overrides on the CPU. A row marks the tokens of its lists in a bitmap and counts them; a pass over
 * the bitmap gives each token once and in order, for any order of the lists. Rows are built in parallel in scratch, then
 * moved together. Draft tokens before a row are part of its output.
 */
#include "plan/overrides.h"
#include "cpu/sample.h"
#include "cpu/backend.h"

/* Scratch of one task. */
struct marks {
    uint64_t *bits;  /* [vocab / 64] tokens of the row at hand; all 0 between rows */
    uint32_t *entry; /* [vocab] of a marked token: IN_PROMPT, and ONE for each output; then its place */
    const unsigned char *logits; /* of the row at hand */
    size_t logit_bytes;
};

enum { IN_PROMPT = 1, ONE = 2 };

struct job {
    const struct syi_sample_overrides_plan *plan;
    int n_tasks;
    struct marks *marks;     /* [task] */
    struct syi_found *found; /* [task] */
    int64_t *count;          /* [rows] overrides of a row */
    int32_t *token;          /* [most] */
    float *logit;
};

static size_t bit_words(const struct syi_sample_overrides_plan *p)
{
    return ((size_t)p->vocab + 63) / 64;
}

/* Lays out the scratch; on an arena without memory it only measures. */
static void take_job(struct syi_arena *arena, struct job *job)
{
    const struct syi_sample_overrides_plan *p = job->plan;
    const size_t n = (size_t)p->most, n_tasks = (size_t)job->n_tasks;
    job->marks = syi_take(arena, n_tasks * sizeof *job->marks);
    job->found = syi_take(arena, n_tasks * sizeof *job->found);
    job->count = syi_take(arena, syi_size_mul((size_t)p->drafts.n_rows, sizeof *job->count));
    job->token = syi_take(arena, syi_size_mul(n, sizeof *job->token));
    job->logit = syi_take(arena, syi_size_mul(n, sizeof *job->logit));
}

static struct marks take_marks(struct syi_arena *arena, const struct syi_sample_overrides_plan *p)
{
    struct marks m = {.bits = syi_take(arena, bit_words(p) * sizeof *m.bits)};
    m.entry = syi_take(arena, syi_size_mul((size_t)p->vocab, sizeof *m.entry));
    return m;
}

static int count_tasks(const sy_ctx *ctx, const struct syi_sample_overrides_plan *p)
{
    enum { COST = 64 }; /* an element takes as long as that many bytes of a copy or more */
    return syi_tasks(ctx, p->drafts.n_rows > 0 ? p->drafts.n_rows : 1, (uint64_t)p->most * COST);
}

size_t syi_cpu_sample_overrides_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    struct job job = {.plan = &plan->sample_overrides, .n_tasks = count_tasks(ctx, &plan->sample_overrides)};
    struct syi_arena all = {NULL, 0}, one = {NULL, 0};
    take_job(&all, &job);
    take_marks(&one, job.plan);
    return syi_size_add(all.used, syi_size_mul((size_t)job.n_tasks, one.used));
}

/* ---- One row ---- */

struct penalties {
    float repetition, frequency, presence; /* 1, 0, 0: off */
};

static float penalty_of(const struct syi_column *column, int64_t b, float off)
{
    const float value = column->rows.data != NULL ? syi_column_float(column, b) : off;
    return value == value ? value : off;
}

static struct penalties penalties_of(const struct syi_sample_overrides_plan *p, int64_t b)
{
    return (struct penalties){penalty_of(&p->repetition, b, 1.0f), penalty_of(&p->frequency, b, 0.0f),
                              penalty_of(&p->presence, b, 0.0f)};
}

/* Prefetches a logit that is read later: it may be anywhere in a row that is not in the caches. */
static void mark(const struct marks *m, int64_t token)
{
    const uint64_t bit = UINT64_C(1) << token % 64;
    if (!(m->bits[token / 64] & bit)) {
        m->bits[token / 64] |= bit;
        m->entry[token] = 0;
        __builtin_prefetch(m->logits + (size_t)token * m->logit_bytes);
    }
}

static void mark_output(const struct marks *m, int64_t token)
{
    mark(m, token);
    m->entry[token] += ONE;
}

/* Marks the tokens that sequences and min_tokens can change. */
static void mark_bans(const struct syi_sample_overrides_plan *p, const struct syi_past *past,
                      const struct marks *m)
{
    const int64_t b = past->of.b, seq_end = syi_seq_end(p, b);
    for (int64_t s = syi_seq_first(p, b); s < seq_end; s++) {
        const int64_t token = syi_seq_match(p, past, s);
        if (token >= 0)
            mark(m, token);
    }
    const int64_t stop_end = syi_stop_banned(p, past) ? syi_shared_end(&p->stop, b) : 0;
    for (int64_t j = syi_shared_first(&p->stop, b); j < stop_end; j++)
        mark(m, syi_list_token(&p->stop, j));
}

/* Marks the tokens that may change. */
static void mark_row(const struct syi_sample_overrides_plan *p, const struct syi_past *past,
                     const struct penalties *by, const struct marks *m)
{
    const int64_t b = past->of.b;
    const struct syi_span prompt = syi_list_span(&p->prompt, b), output = syi_list_span(&p->output, b),
                          bias = syi_list_span(&p->bias, b);
    const bool repetition = by->repetition != 1.0f;
    for (int64_t j = prompt.first; repetition && j < prompt.end; j++) {
        const int64_t token = syi_list_token(&p->prompt, j);
        mark(m, token);
        m->entry[token] |= IN_PROMPT;
    }
    const bool any = repetition || by->frequency != 0.0f || by->presence != 0.0f;
    for (int64_t j = output.first; any && j < output.end; j++)
        mark_output(m, syi_list_token(&p->output, j));
    for (int64_t r = past->row; any && r > 0; r = syi_draft_parent(&p->drafts, &past->of, r))
        mark_output(m, syi_draft_token(&p->drafts, &past->of, r));
    for (int64_t j = bias.first; j < bias.end; j++)
        mark(m, syi_list_token(&p->bias, j));
    mark_bans(p, past, m);
}

static float penalise(float x, const struct penalties *by, uint32_t entry)
{
    const uint32_t count = entry / ONE;
    if (entry != 0)
        x = x > 0.0f ? x / by->repetition : x * by->repetition;
    if (count > 0) {
        const float often = by->frequency * (float)count;
        x = x - often;
        x = x - by->presence;
    }
    return x;
}

static float logit_at(const struct marks *m, int64_t token, sy_type type)
{
    return syi_load_float(m->logits + (size_t)token * m->logit_bytes, type);
}

static int64_t place_of(const int32_t *token, int64_t n, int64_t wanted)
{
    int64_t first = 0;
    while (n > 1) {
        const int64_t half = n / 2;
        first += token[first + half] <= wanted ? half : 0;
        n -= half;
    }
    return first;
}

/* The marked tokens in order and their logits after penalties, and with bias_first after their biases before; each entry
   becomes the token's place, and all marks are cleared. Returns how many. */
static int64_t list_row(const struct syi_sample_overrides_plan *p, const struct syi_past *past,
                        const struct marks *m, int32_t *token, float *logit)
{
    const struct penalties by = penalties_of(p, past->of.b);
    const struct syi_span bias = syi_list_span(&p->bias, past->of.b);
    int64_t n = 0;
    mark_row(p, past, &by, m);
    for (size_t word = 0; word < bit_words(p); word++) {
        for (uint64_t bits = m->bits[word]; bits != 0; bits &= bits - 1) {
            const int64_t t = (int64_t)(word * 64) + __builtin_ctzll(bits);
            token[n] = (int32_t)t;
            logit[n++] = logit_at(m, t, p->type);
        }
        m->bits[word] = 0;
    }
    for (int64_t j = bias.first; p->bias_first && j < bias.end; j++) {
        float *x = &logit[place_of(token, n, syi_list_token(&p->bias, j))];
        *x = *x + syi_list_value(&p->bias, j);
    }
    for (int64_t i = 0; i < n; i++) {
        logit[i] = penalise(logit[i], &by, m->entry[token[i]]);
        m->entry[token[i]] = (uint32_t)i;
    }
    return n;
}

/* Biases that are not first, then sequences, each in the order of its list; then bans. */
static void add_biases(const struct syi_sample_overrides_plan *p, const struct syi_past *past,
                       const uint32_t *place, float *logit)
{
    const int64_t b = past->of.b, seq_end = syi_seq_end(p, b);
    const struct syi_span bias = syi_list_span(&p->bias, b);
    for (int64_t j = bias.first; !p->bias_first && j < bias.end; j++) {
        float *x = &logit[place[syi_list_token(&p->bias, j)]];
        *x = *x + syi_list_value(&p->bias, j);
    }
    for (int64_t s = syi_seq_first(p, b); s < seq_end; s++) {
        const int64_t token = syi_seq_match(p, past, s);
        if (token >= 0)
            logit[place[token]] = syi_seq_add(p, logit[place[token]], s);
    }
    const int64_t stop_end = syi_stop_banned(p, past) ? syi_shared_end(&p->stop, b) : 0;
    for (int64_t j = syi_shared_first(&p->stop, b); j < stop_end; j++)
        logit[place[syi_list_token(&p->stop, j)]] = syi_f32_from_bits(0xff800000u);
}

static int64_t build_row(const struct syi_sample_overrides_plan *p, const struct syi_past *past,
                         const struct marks *m, int32_t *token, float *logit)
{
    const int64_t n = list_row(p, past, m, token, logit);
    add_biases(p, past, m->entry, logit);
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        const float before = logit_at(m, token[i], p->type), after = syi_canonical(logit[i]);
        const bool same = before == after || (before != before && after != after);
        token[kept] = token[i];
        logit[kept] = after;
        kept += !same;
    }
    return kept;
}

static void build_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_sample_overrides_plan *p = job->plan;
    struct marks *m = &job->marks[task];
    const int64_t end = syi_part(p->drafts.n_rows, job->n_tasks, task + 1);
    memset(m->bits, 0, bit_words(p) * sizeof *m->bits);
    m->logit_bytes = syi_float_bytes(p->type);
    for (int64_t row = syi_part(p->drafts.n_rows, job->n_tasks, task); row < end; row++) {
        const struct syi_past past = syi_past_of(p, row);
        const int64_t place = past.none ? 0 : syi_overrides_place(p, &past);
        m->logits = syi_row_at(p->logits, row);
        job->count[row] = past.none ? 0 : build_row(p, &past, m, job->token + place, job->logit + place);
    }
}

/* ---- The call ---- */

static void write_rows(const struct job *job)
{
    const struct syi_sample_overrides_plan *p = job->plan;
    const int64_t rows = p->drafts.n_rows;
    int64_t at = 0;
    for (int64_t row = 0; row < rows; row++) {
        const int64_t n = job->count[row];
        syi_store_i64(p->indptr, row, at);
        if (n > 0) {
            const struct syi_past past = syi_past_of(p, row);
            const int64_t place = syi_overrides_place(p, &past);
            memcpy(p->token + at * 4, job->token + place, (size_t)n * sizeof *job->token);
            memcpy(p->logit + at * 4, job->logit + place, (size_t)n * sizeof *job->logit);
        }
        at += n;
    }
    syi_store_i64(p->indptr, rows, at);
}

/* Sequences: which of them each request has, where they begin, their tokens. */
static sy_status check_sequences(sy_ctx *ctx, const struct syi_sample_overrides_plan *p,
                                 const struct job *job)
{
    const struct syi_list_limits limits = {p->batch, p->vocab, .ascending = false},
                                 sequences = {p->seq_row.n, p->vocab, .ascending = false, .filled = true};
    SYI_TRY(p->seq_row.indptr != NULL ? syi_check_lists(ctx, &p->seq_row, &limits, job->n_tasks, job->found)
                                      : SY_OK);
    if (p->seq.indptr != NULL)
        SYI_TRY(syi_check_lists(ctx, &p->seq, &sequences, job->n_tasks, job->found));
    return SY_OK;
}

static sy_status check_contents(sy_ctx *ctx, const struct job *job)
{
    const struct syi_sample_overrides_plan *p = job->plan;
    const struct syi_list_limits limits = {p->batch, p->vocab, .ascending = false};
    const struct syi_token_lists *lists[] = {&p->prompt, &p->output, &p->bias};
    for (int i = 0; i < 3; i++)
        SYI_TRY(syi_check_lists(ctx, lists[i], &limits, job->n_tasks, job->found));
    SYI_TRY(check_sequences(ctx, p, job));
    SYI_TRY(syi_check_lists(ctx, &p->stop, &limits, job->n_tasks, job->found));
    const int64_t items = p->drafts.token.data != NULL ? syi_drafts_items(&p->drafts) : 0;
    for (int64_t i = 0; i < items; i++)
        SYI_TRY(syi_report(ctx, syi_drafts_bad(&p->drafts, i, p->vocab)));
    return SY_OK;
}

sy_status syi_cpu_sample_overrides(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_sample_overrides_plan *p = &plan->sample_overrides;
    struct job job = {.plan = p, .n_tasks = count_tasks(ctx, p)};
    struct syi_arena arena = {workspace, 0};
    take_job(&arena, &job);
    for (int i = 0; i < job.n_tasks; i++)
        job.marks[i] = take_marks(&arena, p);
    SYI_TRY(p->batch > 0 ? check_contents(ctx, &job) : SY_OK);
    if (p->batch > 0)
        syi_parallel(ctx, job.n_tasks, build_rows, &job);
    else if (p->drafts.n_rows > 0)
        memset(job.count, 0, (size_t)p->drafts.n_rows * sizeof *job.count);
    write_rows(&job);
    return SY_OK;
}
