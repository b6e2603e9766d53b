/*
 * Several requests at once. A request enters when there are blocks of the cache for all of its tokens; every step takes
 * the next token of each request that writes, and as many tokens of new prompts as fit in a chunk. Draws depend on the seed
 * and the number of the token alone, so a request writes the same text in any company.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lm.h"

struct running {
    struct request *r;
    int index;
    int64_t seen;   /* tokens in the cache */
    int32_t *table; /* its blocks */
};

struct engine {
    struct model *m;
    const struct engine_options *options;
    struct running *run; /* [most_requests] */
    int64_t n, table_width;
    int32_t *free_block;
    int64_t n_free;
};

static int64_t blocks_of(const struct request *r)
{
    return (r->n_prompt + r->most + BLOCK - 1) / BLOCK;
}

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool enter(struct engine *g, struct request *r, int index)
{
    const int64_t blocks = blocks_of(r);
    if (g->n == g->options->most_requests || blocks > g->n_free)
        return false;
    struct running *const one = &g->run[g->n++];
    *one = (struct running){r, index, 0, NEW(int32_t, g->table_width)};
    for (int64_t i = 0; i < blocks; i++)
        one->table[i] = g->free_block[--g->n_free];
    return true;
}

static void leave(struct engine *g, int64_t i)
{
    struct running *const one = &g->run[i];
    for (int64_t k = 0; k < blocks_of(one->r); k++)
        g->free_block[g->n_free++] = one->table[k];
    free(one->table);
    *one = g->run[--g->n];
}

/* The next token of each of n requests; every parameter is a column of one call. */
static void choose(struct model *m, struct running *const *who, int64_t n, const float *logits,
                   int64_t *token)
{
    float *const temperature = NEW(float, n), *const top_p = NEW(float, n), *const min_p = NEW(float, n);
    int64_t *const top_k = NEW(int64_t, n), *const seed = NEW(int64_t, n), *const step = NEW(int64_t, n);
    for (int64_t i = 0; i < n; i++) {
        const struct request *const r = who[i]->r;
        const bool greedy = r->temperature == 0;
        temperature[i] = greedy ? 1.0f : r->temperature;
        top_k[i] = greedy ? 1 : r->top_k > 0 ? r->top_k : m->vocabulary;
        top_p[i] = greedy || r->top_p <= 0 ? 1.0f : r->top_p;
        min_p[i] = greedy ? 0.0f : r->min_p;
        seed[i] = r->seed;
        step[i] = r->n_written;
    }
    sy_view at[9];
    const sy_sample_args sample = {.logits = sy_mat(&at[0], logits, SY_F32, n, m->vocabulary),
                                   .temperature = sy_vec(&at[1], temperature, SY_F32, n),
                                   .top_k = sy_vec(&at[2], top_k, SY_I64, n),
                                   .top_p = sy_vec(&at[3], top_p, SY_F32, n),
                                   .min_p = sy_vec(&at[4], min_p, SY_F32, n),
                                   .seed = sy_vec(&at[5], seed, SY_I64, n),
                                   .offset = sy_vec(&at[6], step, SY_I64, n),
                                   .stream = sy_number_i64(&at[7], 0),
                                   .token = sy_vec(&at[8], token, SY_I64, n)};
    model_must(m, sy_sample(m->ctx, &sample));
    free(temperature), free(top_p), free(min_p), free(top_k), free(seed), free(step);
}

static bool ends(const struct engine *g, int64_t token)
{
    for (int i = 0; i < g->m->n_eos && !g->options->ignore_eos; i++)
        if (g->m->eos[i] == token)
            return true;
    return false;
}

/* A request gets its token; the logits are kept where they are wanted. */
static void put_token(const struct engine *g, const struct running *one, int64_t token, const float *logits)
{
    struct request *const r = one->r;
    const int64_t vocabulary = g->m->vocabulary;
    if (token < 0)
        die("no logit of token %lld of prompt %d is a number", (long long)r->n_written + 1, one->index + 1);
    if (r->logits != NULL)
        memcpy(r->logits + r->n_logits++ * vocabulary, logits, (size_t)vocabulary * sizeof *logits);
    r->stopped = ends(g, token);
    if (!r->stopped)
        r->written[r->n_written++] = (int32_t)token;
}

/* Copies the experts of a step to the requests of its tokens. */
static void keep_choices(const struct model *m, const struct batch *b, struct running *const *owner)
{
    const size_t row = (size_t)m->top_k;
    for (int64_t t = 0; t < b->n; t++)
        for (int64_t l = 0; l < m->layers && owner[b->sequence[t]]->r->chosen != NULL; l++) {
            const struct request *const r = owner[b->sequence[t]]->r;
            const int64_t to = (b->position[t] * m->layers + l) * m->top_k, from = (l * b->n + t) * m->top_k;
            memcpy(r->chosen + to, b->chosen + from, row * sizeof *b->chosen);
            memcpy(r->weight + to, b->weight + from, row * sizeof *b->weight);
        }
}

/* One step of all requests that have entered. */
static void step(struct engine *g, struct engine_times *times)
{
    struct model *const m = g->m;
    const int64_t most = g->options->chunk + g->n, width = g->table_width;
    int32_t *const token = NEW(int32_t, most), *const position = NEW(int32_t, most);
    int32_t *const slot = NEW(int32_t, most), *const sequence = NEW(int32_t, most);
    int32_t *const length = NEW(int32_t, g->n), *const wanted = NEW(int32_t, g->n);
    int32_t *const table = NEW(int32_t, g->n * width);
    struct running **const owner = NEW(struct running *, g->n), **const who = NEW(struct running *, g->n);
    int64_t n = 0, n_wanted = 0, of_prompts = 0, sequences = 0, left = g->options->chunk;
    for (int64_t i = 0; i < g->n; i++) {
        struct running *const one = &g->run[i];
        const struct request *const r = one->r;
        const int64_t known = r->n_prompt + r->n_written, rest = known - one->seen;
        const int64_t taken = rest == 1 || rest < left ? rest : left;
        if (taken == 0)
            continue;
        of_prompts += one->seen < r->n_prompt ? taken : 0;
        left -= rest == 1 ? 0 : taken;
        for (int64_t p = one->seen; p < one->seen + taken; p++, n++) {
            token[n] = p < r->n_prompt ? r->prompt[p] : r->written[p - r->n_prompt];
            position[n] = (int32_t)p;
            slot[n] = one->table[p / BLOCK] * BLOCK + (int32_t)(p % BLOCK);
            sequence[n] = (int32_t)sequences;
        }
        one->seen += taken;
        memcpy(table + sequences * width, one->table, (size_t)width * sizeof *table);
        owner[sequences] = one;
        length[sequences++] = (int32_t)one->seen;
        if (one->seen == known) {
            wanted[n_wanted] = (int32_t)n - 1;
            who[n_wanted++] = one;
        }
    }
    const double start = now(CLOCK_MONOTONIC), processor_start = now(CLOCK_PROCESS_CPUTIME_ID);
    float *const logits = NEW(float, n_wanted * m->vocabulary);
    int64_t *const next = NEW(int64_t, n_wanted);
    const struct batch b = {.n = n,
                            .sequences = sequences,
                            .token = token,
                            .position = position,
                            .slot = slot,
                            .sequence = sequence,
                            .length = length,
                            .table = table,
                            .table_width = width,
                            .wanted = wanted,
                            .n_wanted = n_wanted,
                            .chosen = NEW(int32_t, m->layers * n * m->top_k),
                            .weight = NEW(float, m->layers *n * m->top_k)};
    model_step(m, &b, logits);
    keep_choices(m, &b, owner);
    if (n_wanted > 0)
        choose(m, who, n_wanted, logits, next);
    for (int64_t i = 0; i < n_wanted; i++)
        put_token(g, who[i], next[i], logits + i * m->vocabulary);
    struct phase *const phase = of_prompts > 0 ? &times->prefill : &times->decode;
    phase->seconds += now(CLOCK_MONOTONIC) - start;
    phase->processor_seconds += now(CLOCK_PROCESS_CPUTIME_ID) - processor_start;
    phase->tokens += n;
    free(token), free(position), free(slot), free(sequence), free(length), free(wanted), free(table);
    free(owner), free(who), free(logits), free(next), free(b.chosen), free(b.weight);
}

void engine_run(struct model *m, struct request *request, int n, const struct engine_options *options,
                struct engine_times *times)
{
    struct engine g = {.m = m, .options = options};
    int64_t prompts = 0; /* tokens of all of them */
    for (int i = 0; i < n; i++, prompts += request[i - 1].n_prompt)
        g.table_width = blocks_of(&request[i]) > g.table_width ? blocks_of(&request[i]) : g.table_width;
    g.n_free = g.table_width * (options->most_requests < n ? options->most_requests : n);
    g.run = NEW(struct running, options->most_requests);
    if (g.n_free > INT32_MAX / BLOCK)
        die("the cache would have %lld blocks, want at most %d", (long long)g.n_free, INT32_MAX / BLOCK);
    g.free_block = NEW(int32_t, g.n_free);
    for (int64_t i = 0; i < g.n_free; i++)
        g.free_block[i] = (int32_t)i;
    model_cache(m, g.n_free);
    mesh_prepare(m, (options->chunk < prompts ? options->chunk : prompts) + n);
    int next = 0; /* request that enters */
    for (;;) {
        while (next < n && (!mesh_owns(next) || enter(&g, &request[next], next)))
            next++;
        if (!mesh_any(g.n > 0))
            break;
        step(&g, times);
        for (int64_t i = g.n - 1; i >= 0; i--)
            if (g.run[i].r->stopped || g.run[i].r->n_written == g.run[i].r->most)
                leave(&g, i);
    }
    free(g.run), free(g.free_block);
}
