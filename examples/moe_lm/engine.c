/*
 * Several requests at once. A request that runs has blocks of the cache for all of its tokens. Every step takes the next token
 * of each request that writes, and as many tokens of prompts as fit in a chunk. The logits of a token have the same bits in
 * any batch (model.c says why, and when not), and a draw depends on them, the seed and the number of the token alone: so a
 * request writes the same text in any company.
 *
 * With drafts (--speculate) a step also takes tokens that may come next. sample_verify draws from every row as the operator
 * sample, and goes on to the next row while the drawn token is the draft there: the text is that of sampling one by one, in
 * fewer steps.
 *
 * A batch of two requests. The first has written up to token 9 at position 7, and guesses that 4 follows; the second reads its
 * prompt 5 6 8. Logits are wanted after 9, after 4 (in case the guess is right) and after 8:
 *     token      9  4   5  6  8        wanted        0  1  4     rows of the batch
 *     position   7  8   0  1  2        wanted_token  9  4  8     their tokens
 *     owner      0  0   1  1  1        first_wanted  0  2  3     request i wants first_wanted[i] to first_wanted[i + 1]
 * If the draw after 9 is 4, the guess was right, and the draw after 4 counts too, say 2: count is 2, 1 and next 4 2 | 7. Request
 * 0 has written 4 2, of which 2 is not in the cache yet: cached is 9. If the draw after 9 is 3, count is 1, 1 and next 3 . | 7:
 * cached is 8, and the next step overwrites the row of the guess.
 */
#include <time.h>

#include "lm.h"

enum { LONGEST = 4, SHORTEST = 2 }; /* last tokens of a text that guess looks for */

struct engine {
    struct model *m;
    const struct settings *s;
    struct batch batch;
    int64_t running;     /* requests */
    int32_t *free_block; /* [n_free] of the cache */
    int64_t n_free;
    struct times times;
};

static int64_t blocks_of(const struct request *r)
{
    return (r->n_prompt + r->max_new + BLOCK - 1) / BLOCK;
}

/* Requests that are done return their blocks, the next ones of this process take them. They start in order, so one that waits comes
   after those that are done, whose blocks are free by then; there are enough for most_requests of the longest. */
static void schedule(struct engine *g)
{
    for (int64_t i = process; i < g->batch.requests; i += processes) {
        struct request *const r = &g->batch.request[i];
        int32_t *const table = g->batch.table + i * g->batch.table_width;
        const bool done = r->stopped || r->n_written == r->max_new;
        if (r->running && done) {
            r->running = false;
            g->running--;
            for (int64_t k = 0; k < blocks_of(r); k++)
                g->free_block[g->n_free++] = table[k];
        } else if (!r->running && !done && g->running < g->s->most_requests) {
            r->running = true;
            g->running++;
            for (int64_t k = 0; k < blocks_of(r); k++)
                table[k] = g->free_block[--g->n_free];
        }
    }
}

/* Writes drafts after a text: what followed when its last tokens occurred before. Returns how many. */
static int64_t guess(int32_t *text, int64_t n, int64_t drafts)
{
    for (int64_t same = LONGEST; same >= SHORTEST && drafts > 0; same--)
        for (int64_t at = n - same - 1; at >= 0; at--)
            if (memcmp(text + at, text + n - same, (size_t)same * sizeof *text) == 0) {
                for (int64_t i = 0; i < drafts; i++)
                    text[n + i] = text[at + same + i];
                return drafts;
            }
    return 0;
}

/* Adds tokens of request i to the batch: its last token and drafts, or of its prompt as many as the chunk has left. */
static void add_to_batch(struct engine *g, int64_t i, int64_t *left)
{
    struct batch *const b = &g->batch;
    struct request *const r = &g->batch.request[i];
    const int64_t known = r->n_prompt + r->n_written, rest = known - r->cached;
    int64_t end = known; /* position after the last one that is added */
    if (rest == 1) {     /* it writes: the last token is not in the cache yet */
        end += guess(r->token, known, smaller(g->s->drafts, r->max_new - r->n_written - 1));
    } else {
        end = r->cached + smaller(rest, *left);
        *left -= end - r->cached;
    }
    for (; r->cached < end; r->cached++, b->n++) {
        const int32_t p = (int32_t)r->cached;
        b->token[b->n] = r->token[p];
        b->position[b->n] = p;
        b->owner[b->n] = (int32_t)i;
        b->slot[b->n] = b->table[i * b->table_width + p / BLOCK] * BLOCK + p % BLOCK;
        if (p + 1 >= known) {
            b->wanted_token[b->n_wanted] = r->token[p];
            b->wanted[b->n_wanted++] = (int32_t)b->n;
        }
    }
}

static void make_batch(struct engine *g)
{
    struct batch *const b = &g->batch;
    int64_t left = g->s->chunk; /* tokens of prompts that may still be added */
    b->n = b->n_wanted = 0;
    for (int64_t i = 0; i < b->requests; i++) {
        const struct request *const r = &g->batch.request[i];
        if (r->running)
            add_to_batch(g, i, &left);
        b->first_wanted[i + 1] = (int32_t)b->n_wanted;
        b->first_row[i + 1] = b->first_row[i] + (r->running ? (int32_t)r->cached : 0);
    }
}

/* A parameter of all requests as a tensor of one dimension, where it is: its stride is a struct request. */
static const DLTensor *column(sy_view *view, const struct batch *b, const void *first, DLDataType type)
{
    sy_vec(view, first, type, b->requests);
    view->extent[1] = (int64_t)sizeof(struct request) * 8 / type.bits;
    view->tensor.strides = &view->extent[1];
    return &view->tensor;
}
#define COLUMN(field, type) column(&(sy_view){0}, b, &b->request[0].field, type)

/* The next tokens of all requests: one, and one more for each draft that is accepted. Of a request's rows the first has its last
   token, which is no draft; row j is drawn with random numbers of (seed, offset + j). */
static void sample(const struct model *m, const struct batch *b)
{
    const sy_sample_verify_args verify = {.logits = MAT(b->logits, SY_F32, b->n_wanted, m->vocabulary),
                                          .cu_lens = VEC(b->first_wanted, SY_I32, b->requests + 1),
                                          .draft_token = VEC(b->wanted_token, SY_I32, b->n_wanted),
                                          .temperature = COLUMN(temperature, SY_F32),
                                          .top_k = COLUMN(top_k, SY_I64),
                                          .top_p = COLUMN(top_p, SY_F32),
                                          .min_p = COLUMN(min_p, SY_F32),
                                          .seed = COLUMN(seed, SY_I64),
                                          .offset = COLUMN(n_written, SY_I64),
                                          .count = VEC(b->count, SY_I32, b->requests),
                                          .token = VEC(b->next, SY_I64, b->n_wanted)};
    MUST(m, sy_sample_verify(m->ctx, &verify));
}

/* Request i gets its next tokens, if its prompt has been read. */
static void take_tokens(struct engine *g, int64_t i)
{
    const struct model *const m = g->m;
    const struct batch *const b = &g->batch;
    struct request *const r = &g->batch.request[i];
    const int64_t first = b->first_wanted[i];
    if (b->count[i] == 0)
        return;
    for (int64_t k = first; k < first + b->count[i] && !r->stopped; k++) {
        require(b->next[k] >= 0, "no logit of token %lld of prompt %lld is a number",
                (long long)r->n_written + 1, (long long)i + 1);
        if (r->logits != NULL)
            COPY(r->logits + r->n_written * m->vocabulary, b->logits + k * m->vocabulary, m->vocabulary);
        for (int e = 0; e < m->n_eos && !g->s->ignore_eos; e++)
            r->stopped = r->stopped || m->eos[e] == b->next[k];
        if (!r->stopped)
            r->token[r->n_prompt + r->n_written++] = (int32_t)b->next[k];
    }
    r->cached = r->n_prompt + r->n_written - 1; /* later tokens overwrite rejected drafts in the cache */
    g->times.drafts += b->first_wanted[i + 1] - first - 1;
    g->times.accepted += b->count[i] - 1;
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
    const double start = now(CLOCK_MONOTONIC), processor_start = now(CLOCK_PROCESS_CPUTIME_ID);
    struct batch *const b = &g->batch;
    make_batch(g);
    const bool reads = b->n > b->n_wanted; /* more than last tokens and drafts */
    struct phase *const phase = &g->times.phase[reads];
    model_step(g->m, b);
    sample(g->m, b);
    for (int64_t i = 0; i < b->requests; i++) {
        take_tokens(g, i);
        phase->tokens += reads ? 0 : b->count[i];
    }
    phase->tokens += reads ? b->n : 0;
    phase->seconds += now(CLOCK_MONOTONIC) - start;
    phase->processor_seconds += now(CLOCK_PROCESS_CPUTIME_ID) - processor_start;
}

struct times engine_run(struct model *m, const struct settings *s)
{
    const int64_t at_once = smaller(s->most_requests, s->n), wanted = at_once * (1 + s->drafts);
    int64_t prompts = 0, width = 0; /* tokens of all prompts; the most blocks of a request */
    for (int64_t i = 0; i < s->n; i++) {
        prompts += s->request[i].n_prompt;
        width = blocks_of(&s->request[i]) > width ? blocks_of(&s->request[i]) : width;
    }
    const int64_t most = smaller(s->chunk, prompts) + wanted; /* tokens of a step */
    const int64_t blocks = width * at_once;
    require(blocks <= INT32_MAX / BLOCK, "the cache would have %lld blocks, want at most %d",
            (long long)blocks, INT32_MAX / BLOCK);
    struct engine g = {.m = m, .s = s, .free_block = NEW(int32_t, blocks)};
    g.batch = (struct batch){.request = s->request,
                             .requests = s->n,
                             .table_width = width,
                             .token = NEW(int32_t, most),
                             .position = NEW(int32_t, most),
                             .owner = NEW(int32_t, most),
                             .slot = NEW(int32_t, most),
                             .table = NEW(int32_t, s->n * width),
                             .first_row = NEW(int32_t, s->n + 1),
                             .wanted = NEW(int32_t, wanted),
                             .wanted_token = NEW(int32_t, wanted),
                             .first_wanted = NEW(int32_t, s->n + 1),
                             .logits = NEW(float, wanted * m->vocabulary),
                             .count = NEW(int32_t, s->n),
                             .next = NEW(int64_t, wanted)};
    for (; g.n_free < blocks; g.n_free++)
        g.free_block[g.n_free] = (int32_t)g.n_free;
    model_cache(m, blocks);
    mesh_prepare(m, most);
    for (schedule(&g); any_process(g.running > 0); schedule(&g))
        step(&g);
    return g.times;
}
