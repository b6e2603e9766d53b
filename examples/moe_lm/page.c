/*
 * A page that shows what was chosen for every token: the experts of each layer, their load, and what the sampler could have
 * taken instead. page.html with its data inside; hover over a token, or tap it.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "lm.h"

enum { CANDIDATES = 5 };

#ifdef WITH_PAGE
extern const char page_html[]; /* page.html, embedded by the build */
#else
static const char page_html[] = "";
#endif

bool have_page(void)
{
    return page_html[0] != 0;
}

/* A token as it is shown: bytes that are no UTF-8 on their own become a sign. */
static json_t *token_text(const struct tokenizer *t, int64_t token)
{
    size_t n = 0;
    const char *const text = t != NULL ? tokenizer_decode(t, (int32_t)token, &n) : NULL;
    json_t *const shown = text != NULL ? json_stringn(text, n) : json_sprintf("%lld ", (long long)token);
    return shown != NULL ? shown : json_string("\xEF\xBF\xBD");
}

/* The most likely tokens of a step and their probabilities by temperature, before any filter. */
static json_t *candidates_of(const float *logits, int64_t n, float temperature, const struct tokenizer *t)
{
    json_t *const list = json_array();
    const double by = temperature > 0 ? (double)temperature : 1.0;
    double sum = 0, most = -INFINITY;
    for (int64_t i = 0; i < n; i++)
        most = (double)logits[i] > most ? (double)logits[i] : most;
    for (int64_t i = 0; i < n; i++)
        sum += exp(((double)logits[i] - most) / by);
    int64_t taken[CANDIDATES];
    for (int c = 0; c < CANDIDATES && c < n; c++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++) {
            bool free_one = true;
            for (int k = 0; k < c; k++)
                free_one = free_one && taken[k] != i;
            if (free_one && (best < 0 || logits[i] > logits[best]))
                best = i;
        }
        taken[c] = best;
        const double prob = exp(((double)logits[best] - most) / by) / sum;
        json_array_append_new(list, json_pack("[o,f,I]", token_text(t, best), prob, (json_int_t)best));
    }
    return list;
}

/* [[[expert, weight], ...] of each layer]; a dense layer has none. */
static json_t *experts_of(const struct model *m, const struct request *r, int64_t position)
{
    json_t *const layers = json_array();
    for (int64_t l = 0; l < m->layers; l++) {
        json_t *const list = json_array();
        for (int64_t k = 0; k < m->top_k; k++) {
            const int64_t at = (position * m->layers + l) * m->top_k + k;
            if (r->chosen[at] >= 0)
                json_array_append_new(list, json_pack("[i,f]", r->chosen[at], (double)r->weight[at]));
        }
        json_array_append_new(layers, list);
    }
    return layers;
}

static json_t *request_of(const struct model *m, const struct tokenizer *t, const struct request *r)
{
    json_t *const tokens = json_array();
    for (int64_t p = 0; p < r->n_prompt + r->n_written; p++) {
        const int64_t w = p - r->n_prompt;
        const int32_t token = w < 0 ? r->prompt[p] : r->written[w];
        json_t *const one = json_pack("{s:o,s:i}", "t", token_text(t, token), "id", token);
        if (w + 1 < r->n_logits) /* the last token is not read where another one need not follow */
            json_object_set_new(one, "e", experts_of(m, r, p));
        if (w >= 0)
            json_object_set_new(
                one, "c", candidates_of(r->logits + w * m->vocabulary, m->vocabulary, r->temperature, t));
        json_array_append_new(tokens, one);
    }
    return json_pack("{s:I,s:f,s:I,s:o}", "prompt", (json_int_t)r->n_prompt, "temperature",
                     (double)r->temperature, "seed", (json_int_t)r->seed, "tokens", tokens);
}

void write_page(const char *path, const struct model *m, const struct tokenizer *t,
                const struct request *request, int n)
{
    static const char mark[] = "DATA_OF_THE_PROGRAM";
    const char *const place = strstr(page_html, mark);
    if (place == NULL)
        die("page.html has no place for the data");
    json_t *const requests = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(requests, request_of(m, t, &request[i]));
    json_t *const all = json_pack("{s:I,s:I,s:o}", "layers", (json_int_t)m->layers, "experts",
                                  (json_int_t)m->experts, "requests", requests);
    const char *const data = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(4));
    FILE *const out = fopen(path, "w");
    if (out == NULL || data == NULL)
        die("%s cannot be written", path);
    fwrite(page_html, 1, (size_t)(place - page_html), out);
    for (const char *c = data; *c != 0; c++)
        if (*c == '<') /* nothing in a token ends the script */
            fputs("\\u003c", out);
        else
            fputc(*c, out);
    fputs(place + sizeof mark - 1, out);
    if (ferror(out) || fclose(out) != 0)
        die("%s cannot be written", path);
    json_decref(all);
}
