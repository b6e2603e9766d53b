/*
 * A page that shows what was chosen for every token: the experts of each layer, their load, and what the sampler could have
 * taken instead. page.html with its data inside, as JavaScript; hover over a token, or tap it.
 */
#include "lm.h"

enum { CANDIDATES = 5 };

#ifdef WITH_PAGE
extern const char page_html[]; /* page.html, embedded by the build */
const bool have_page = true;
#else
static const char page_html[] = "";
const bool have_page = false;
#endif

/* A token as it is shown: bytes that are no UTF-8 on their own become a sign, and nothing in it ends the script. */
static void put_text(FILE *out, const struct tokenizer *t, int64_t token)
{
    size_t n = 0;
    const char *const text = t != NULL ? tokenizer_decode(t, (int32_t)token, &n) : NULL;
    json_t *const shown = text != NULL ? json_stringn(text, n) : json_sprintf("%lld ", (long long)token);
    char *const quoted = shown != NULL ? json_dumps(shown, JSON_ENCODE_ANY) : strdup("\"\xEF\xBF\xBD\"");
    for (const char *c = quoted; *c != 0; c++)
        if (*c == '<')
            fputs("\\u003c", out);
        else
            fputc(*c, out);
    json_decref(shown);
    free(quoted);
}

/* e: [[expert, weight], ...] of each layer; a dense layer has none. */
static void put_experts(FILE *out, const struct model *m, const struct request *r, int64_t position)
{
    const int64_t first = position * m->layers * m->top_k;
    fputs(",e:[", out);
    for (int64_t i = 0; i < m->layers * m->top_k; i++) {
        fputs(i % m->top_k == 0 ? "[" : "", out);
        if (r->chosen[first + i] >= 0)
            fprintf(out, "[%d,%.4g],", r->chosen[first + i], (double)r->weight[first + i]);
        fputs((i + 1) % m->top_k == 0 ? "]," : "", out);
    }
    fputs("]", out);
}

static void put_request(FILE *out, const struct model *m, const struct tokenizer *t, const struct request *r)
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
    model_must(m, sy_sample(m->ctx, &sample));
    fprintf(out, "{prompt:%lld,temperature:%g,seed:%lld,tokens:[", (long long)r->n_prompt,
            (double)r->temperature, (long long)r->seed);
    for (int64_t p = 0; p < r->n_prompt + r->n_written; p++) {
        const int64_t w = p - r->n_prompt;
        fprintf(out, "\n{id:%d,t:", r->token[p]);
        put_text(out, t, r->token[p]);
        if (w + 1 < n) /* the last token is not read where another one need not follow */
            put_experts(out, m, r, p);
        fputs(w >= 0 ? ",c:[" : "", out);
        for (int64_t k = w * most; k >= 0 && k < (w + 1) * most && token[k] >= 0; k++) {
            fputs("[", out);
            put_text(out, t, token[k]);
            fprintf(out, ",%.4g,%lld],", exp((double)logprob[k]), (long long)token[k]);
        }
        fputs(w >= 0 ? "]}," : "},", out);
    }
    fputs("]},", out);
    free(token), free(logprob);
}

void write_page(const char *path, const struct model *m, const struct tokenizer *t,
                const struct request *request, int n)
{
    static const char mark[] = "DATA_OF_THE_PROGRAM";
    const char *const place = strstr(page_html, mark);
    FILE *const out = fopen(path, "w");
    require(place != NULL && out != NULL, "%s cannot be written", path);
    fprintf(out, "%.*s{layers:%lld,experts:%lld,requests:[", (int)(place - page_html), page_html,
            (long long)m->layers, (long long)m->experts);
    for (int i = 0; i < n; i++)
        put_request(out, m, t, &request[i]);
    fprintf(out, "]}%s", place + sizeof mark - 1);
    require(!ferror(out) && fclose(out) == 0, "%s cannot be written", path);
}
