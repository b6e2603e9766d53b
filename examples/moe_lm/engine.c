/*
 * Several requests at once. A request that runs has blocks of the cache for all of its tokens. Every step takes the next token
 * of each request that writes, and as many tokens of prompts as fit in a chunk. Draws depend on the seed and the number of the
 * token alone, so a request writes the same text in any company.
 *
 * With drafts (--speculate) a step also takes tokens that may come next. sample_verify keeps those that sampling one by one
 * would have written: the text is the same, in fewer steps.
 *
 * A batch of two requests. The first has written up to token 9 at position 7, and guesses that 4 follows; the second reads its
 * prompt 5 6 8. Logits are wanted after 9, after 4 (in case the guess is right) and after 8:
 *     token      9  4   5  6  8        wanted  0  1  4     rows of the batch
 *     position   7  8   0  1  2        draft   9  4  8     their tokens
 *     sequence   0  0   1  1  1        first   0  2  3     request i has those from first[i] to first[i + 1]
 */
#include <time.h>

#include "lm.h"

enum { LONGEST = 4, SHORTEST = 2 }; /* last tokens of a text that guess looks for */

struct engine {
    struct model *m;
    const struct settings *s;
    int64_t running; /* requests that have blocks */
    struct times times;
    struct batch batch;
    int32_t *draft; /* [n_wanted] the tokens that are wanted: the last one of a text, then its drafts */
    int32_t *first; /* [n + 1] group i of the wanted tokens is that of request i */
    int32_t *count; /* [n] tokens that a step has written */
    int64_t *next;  /* [n_wanted] these tokens, those of request i from first[i] on */
    int32_t *free_block;
    int64_t n_free;
};

static int64_t blocks_of(const struct request *r)
{
    return (r->n_prompt + r->max_new + BLOCK - 1) / BLOCK;
}

static bool done(const struct request *r)
{
    return r->stopped || r->n_written == r->max_new;
}

/* Requests that are done return their blocks, the next ones of this process take them: they start in order, so a request that
   waits comes after all that run. */
static void schedule(struct engine *g)
{
    for (int64_t i = process; i < g->s->n; i += processes) {
        struct request *const r = &g->s->request[i];
        if (r->table != NULL && done(r)) {
            for (int64_t k = 0; k < blocks_of(r); k++)
                g->free_block[g->n_free++] = r->table[k];
            free(r->table);
            r->table = NULL;
            g->running--;
        } else if (r->table == NULL && !done(r) && g->running < g->s->most_requests) {
            r->table = NEW(int32_t, g->batch.table_width);
            for (int64_t k = 0; k < blocks_of(r); k++)
                r->table[k] = g->free_block[--g->n_free];
            g->running++;
        }
    }
}

/* Writes drafts after a text: what followed when its last tokens occurred before. Returns how many. */
static int64_t guess(int32_t *text, int64_t n, int64_t drafts)
{
    for (int64_t same = LONGEST; same >= SHORTEST; same--)
        for (int64_t at = n - same - 1; at >= 0; at--)
            if (memcmp(text + at, text + n - same, (size_t)same * sizeof *text) == 0) {
                for (int64_t i = 0; i < drafts; i++)
                    text[n + i] = text[at + same + i];
                return drafts;
            }
    return 0;
}

/* Adds tokens of a request to the batch: its last token and drafts, or of its prompt as many as the chunk has left. */
static void add_to_batch(struct engine *g, struct request *r, int64_t *left)
{
    struct batch *const b = &g->batch;
    const int64_t known = r->n_prompt + r->n_written, rest = known - r->cached;
    int64_t end = known; /* position after the last one that is added */
    if (rest == 1) {
        end += guess(r->token, known, smaller(g->s->drafts, r->max_new - r->n_written - 1));
    } else {
        end = r->cached + smaller(rest, *left);
        *left -= end - r->cached;
    }
    r->begin = b->n;
    for (int64_t p = r->cached; p < end; p++, b->n++) {
        b->token[b->n] = r->token[p];
        b->position[b->n] = (int32_t)p;
        b->slot[b->n] = r->table[p / BLOCK] * BLOCK + (int32_t)(p % BLOCK);
        b->sequence[b->n] = (int32_t)b->sequences;
        if (p + 1 >= known) {
            g->draft[b->n_wanted] = r->token[p];
            b->wanted[b->n_wanted++] = (int32_t)b->n;
        }
    }
    if (end > r->cached) {
        memcpy(b->table + b->sequences * b->table_width, r->table, (size_t)b->table_width * sizeof *b->table);
        b->length[b->sequences++] = (int32_t)end;
    }
    r->end = b->n;
    r->cached = end;
}

/* A parameter of all requests as a tensor, where it is: from one struct request to the next. */
static const DLTensor *column(sy_view *view, const struct engine *g, const void *first, DLDataType type)
{
    sy_vec(view, first, type, g->s->n);
    view->extent[1] = (int64_t)sizeof(struct request) * 8 / type.bits;
    view->tensor.strides = &view->extent[1];
    return &view->tensor;
}
#define COLUMN(field, type) column(&(sy_view){0}, g, &g->s->request[0].field, type)

/* The next tokens of all requests: one, and one more for each draft that is accepted. Without drafts it does what sy_sample does
   for rows with parameters of their own. */
static void sample(const struct engine *g)
{
    const int64_t n = g->batch.n_wanted;
    const sy_sample_verify_args verify = {.logits = MAT(g->batch.logits, SY_F32, n, g->m->vocabulary),
                                          .cu_lens = VEC(g->first, SY_I32, g->s->n + 1),
                                          .draft_token = VEC(g->draft, SY_I32, n),
                                          .temperature = COLUMN(temperature, SY_F32),
                                          .top_k = COLUMN(top_k, SY_I64),
                                          .top_p = COLUMN(top_p, SY_F32),
                                          .min_p = COLUMN(min_p, SY_F32),
                                          .seed = COLUMN(seed, SY_I64),
                                          .offset = COLUMN(n_written, SY_I64),
                                          .count = VEC(g->count, SY_I32, g->s->n),
                                          .token = VEC(g->next, SY_I64, n)};
    if (n > 0)
        model_must(g->m, sy_sample_verify(g->m->ctx, &verify));
}

/* A page shows which experts a token used: of the tokens of a request in the batch. */
static void keep_choices(const struct engine *g, const struct request *r)
{
    const struct model *const m = g->m;
    const struct batch *const b = &g->batch;
    for (int64_t t = r->begin; t < r->end && r->chosen != NULL; t++)
        for (int64_t l = 0; l < m->layers; l++) {
            const int64_t to = (b->position[t] * m->layers + l) * m->top_k, from = (l * b->n + t) * m->top_k;
            memcpy(r->chosen + to, b->chosen + from, (size_t)m->top_k * sizeof *b->chosen);
            memcpy(r->weight + to, b->weight + from, (size_t)m->top_k * sizeof *b->weight);
        }
}

/* Request i gets its next tokens. Returns how many. */
static int64_t take_tokens(struct engine *g, int64_t i)
{
    const struct model *const m = g->m;
    struct request *const r = &g->s->request[i];
    const int64_t first = g->first[i], wanted = g->first[i + 1] - first, before = r->n_written;
    if (wanted == 0) /* more of its prompt comes first */
        return 0;
    for (int64_t k = first; k < first + g->count[i] && !r->stopped; k++) {
        require(g->next[k] >= 0, "no logit of token %lld of prompt %lld is a number",
                (long long)r->n_written + 1, (long long)i + 1);
        if (r->logits != NULL)
            memcpy(r->logits + r->n_written * m->vocabulary, g->batch.logits + k * m->vocabulary,
                   (size_t)m->vocabulary * sizeof *r->logits);
        for (int e = 0; e < m->n_eos && !g->s->ignore_eos; e++)
            r->stopped = r->stopped || m->eos[e] == g->next[k];
        if (!r->stopped)
            r->token[r->n_prompt + r->n_written++] = (int32_t)g->next[k];
    }
    r->cached = r->n_prompt + r->n_written - 1; /* later tokens overwrite rejected drafts in the cache */
    g->times.drafts += wanted - 1;
    g->times.accepted += g->count[i] - 1;
    return r->n_written - before;
}

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One step of all requests that run. */
static void step(struct engine *g)
{
    struct batch *const b = &g->batch;
    const double start = now(CLOCK_MONOTONIC), processor_start = now(CLOCK_PROCESS_CPUTIME_ID);
    int64_t left = g->s->chunk, written = 0;
    bool reads = false; /* the batch has tokens of a prompt */
    b->n = b->sequences = b->n_wanted = 0;
    for (int64_t i = 0; i < g->s->n; i++) {
        struct request *const r = &g->s->request[i];
        if (r->table != NULL) {
            reads = reads || r->cached < r->n_prompt;
            add_to_batch(g, r, &left);
        }
        g->first[i + 1] = (int32_t)b->n_wanted;
    }
    model_step(g->m, b);
    sample(g);
    for (int64_t i = 0; i < g->s->n; i++)
        if (g->s->request[i].table != NULL) {
            keep_choices(g, &g->s->request[i]);
            written += take_tokens(g, i);
        }
    struct phase *const phase = reads ? &g->times.prompts : &g->times.writing;
    phase->seconds += now(CLOCK_MONOTONIC) - start;
    phase->processor_seconds += now(CLOCK_PROCESS_CPUTIME_ID) - processor_start;
    phase->tokens += reads ? b->n : written;
}

struct times engine_run(struct model *m, const struct settings *s)
{
    const int64_t requests = smaller(s->most_requests, s->n), wanted = requests * (1 + s->drafts);
    int64_t prompts = 0, width = 0; /* tokens of all prompts; the most blocks of a request */
    for (int64_t i = 0; i < s->n; i++) {
        prompts += s->request[i].n_prompt;
        width = blocks_of(&s->request[i]) > width ? blocks_of(&s->request[i]) : width;
    }
    const int64_t blocks = width * requests;
    const int64_t most = smaller(s->chunk, prompts) + wanted; /* tokens of a step */
    require(blocks <= INT32_MAX / BLOCK, "the cache would have %lld blocks, want at most %d",
            (long long)blocks, INT32_MAX / BLOCK);
    struct engine g = {.m = m,
                       .s = s,
                       .batch = {.table_width = width,
                                 .token = NEW(int32_t, most),
                                 .position = NEW(int32_t, most),
                                 .slot = NEW(int32_t, most),
                                 .sequence = NEW(int32_t, most),
                                 .length = NEW(int32_t, requests),
                                 .table = NEW(int32_t, requests * width),
                                 .wanted = NEW(int32_t, wanted),
                                 .logits = NEW(float, wanted * m->vocabulary),
                                 .chosen = NEW(int32_t, m->layers * most * m->top_k),
                                 .weight = NEW(float, m->layers *most * m->top_k)},
                       .draft = NEW(int32_t, wanted),
                       .first = NEW(int32_t, s->n + 1),
                       .count = NEW(int32_t, s->n),
                       .next = NEW(int64_t, wanted),
                       .free_block = NEW(int32_t, blocks)};
    for (; g.n_free < blocks; g.n_free++)
        g.free_block[g.n_free] = (int32_t)g.n_free;
    model_cache(m, blocks);
    mesh_prepare(m, most);
    for (schedule(&g); mesh_any(g.running > 0); schedule(&g))
        step(&g);
    return g.times;
}
