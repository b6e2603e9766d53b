/*
 * A page that shows what was chosen for every token: the experts of each layer, their load, and what the sampler could have
 * taken instead. It is page.html with its data inside, as JSON; hover over a token, or tap it.
 */
#include "../lm.h"

enum { CANDIDATES = 5 };

#ifdef WITH_PAGE
extern const char page_html[]; /* page.html, embedded by the build */
const bool have_page = true;
#else
static const char page_html[] = "";
const bool have_page = false;
#endif

/* A token as it is shown: bytes that are no UTF-8 on their own become a sign. */
static json_t *shown(const struct tokenizer *t, int64_t token)
{
    size_t n = 0;
    char *const text = t != NULL ? tokenizer_decode(t, (int32_t)token, &n) : NULL;
    json_t *const known = text != NULL ? json_stringn(text, n) : json_sprintf("%lld ", (long long)token);
    free(text);
    return known != NULL ? known : json_string("\xEF\xBF\xBD");
}

/* [[expert, weight], ...] of each layer; a dense layer has none. */
static json_t *experts_of(const struct model *m, const struct request *r, int64_t position)
{
    json_t *const layers = json_array();
    for (int64_t l = 0; l < m->layers; l++) {
        const int64_t first = (position * m->layers + l) * m->top_k;
        json_t *const experts = json_array();
        for (int64_t i = first; i < first + m->top_k && r->chosen[i] >= 0; i++)
            json_array_append_new(experts, json_pack("[i,f]", r->chosen[i], (double)r->weight[i]));
        json_array_append_new(layers, experts);
    }
    return layers;
}

/* {prompt, temperature, seed, tokens: [{id, t: text, e: experts, c: [[text, probability, id], ...]}, ...]} */
static json_t *data_of(const struct model *m, const struct tokenizer *t, const struct request *r)
{
    /* The most likely tokens of each step by temperature, before any filter. */
    const int64_t n = r->n_written + r->stopped, most = smaller(m->vocabulary, CANDIDATES);
    int64_t *const token = NEW(int64_t, n * most);
    float *const logprob = NEW(float, n *most), temperature = r->temperature > 0 ? r->temperature : 1;
    const sy_sample_args sample = {.logits = MAT(r->logits, SY_F32, n, m->vocabulary),
                                   .temperature = sy_number_f32(&(sy_view){0}, temperature),
                                   .logprob_mode = SY_LOGPROB_FINAL,
                                   .top_token = MAT(token, SY_I64, n, most),
                                   .top_logprob = MAT(logprob, SY_F32, n, most)};
    MUST(m, sy_sample(m->ctx, &sample));
    json_t *const tokens = json_array();
    for (int64_t p = 0; p < r->n_prompt + r->n_written; p++) {
        const int64_t w = p - r->n_prompt;
        json_t *const one = json_pack("{s:i,s:o}", "id", r->token[p], "t", shown(t, r->token[p]));
        if (w + 1 < n) /* the last token is not read where another one need not follow */
            json_object_set_new(one, "e", experts_of(m, r, p));
        if (w >= 0)
            json_object_set_new(one, "c", json_array());
        for (int64_t k = w * most; k >= 0 && k < (w + 1) * most && token[k] >= 0; k++)
            json_array_append_new(
                json_object_get(one, "c"),
                json_pack("[o,f,I]", shown(t, token[k]), exp((double)logprob[k]), (json_int_t)token[k]));
        json_array_append_new(tokens, one);
    }
    free(token), free(logprob);
    return json_pack("{s:I,s:f,s:I,s:o}", "prompt", (json_int_t)r->n_prompt, "temperature",
                     (double)r->temperature, "seed", (json_int_t)r->seed, "tokens", tokens);
}

void write_page(const struct settings *s, const struct model *m, const struct tokenizer *t)
{
    static const char mark[] = "DATA_OF_THE_PROGRAM";
    const char *const place = strstr(page_html, mark);
    json_t *const requests = json_array();
    for (int64_t i = 0; i < s->n; i++)
        json_array_append_new(requests, data_of(m, t, &s->request[i]));
    json_t *const data = json_pack("{s:I,s:I,s:o}", "layers", (json_int_t)m->layers, "experts",
                                   (json_int_t)m->experts, "requests", requests);
    char *const text = json_dumps(data, JSON_COMPACT | JSON_REAL_PRECISION(4));
    FILE *const out = fopen(s->page, "w");
    require(place != NULL && out != NULL, "%s cannot be written", s->page);
    fwrite(page_html, 1, (size_t)(place - page_html), out);
    for (const char *c = text; *c != 0; c++)
        fputs(*c == '<' ? "\\u003c" : (char[]){*c, 0}, out); /* nothing in it ends the script */
    fputs(place + sizeof mark - 1, out);
    require(!ferror(out) && fclose(out) == 0, "%s cannot be written", s->page);
    json_decref(data), free(text);
}
