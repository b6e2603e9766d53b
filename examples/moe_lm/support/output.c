/* What a run prints, and the file of --logits. */
#include "../lm.h"

/* A prompt of text is continued with text, a prompt of numbers with numbers. */
static void print_request(const struct request *r, const struct tokenizer *t, int64_t i)
{
    const bool numbers = r->text == NULL;
    printf("%s--- %lld%s\n%s", i > 0 ? "\n" : "", (long long)i + 1, numbers ? ", tokens" : "",
           numbers ? "" : r->text);
    for (int64_t k = 0; k < r->n_written; k++) {
        const int32_t token = r->token[r->n_prompt + k];
        size_t bytes = 0;
        char *const piece = numbers ? NULL : tokenizer_decode(t, token, &bytes);
        if (numbers)
            printf("%s%d", k > 0 ? " " : "", token);
        else
            fwrite(piece != NULL ? piece : "", 1, bytes, stdout);
        free(piece);
    }
    putchar('\n');
}

static void write_logits(const struct settings *s, const struct model *m)
{
    FILE *const file = fopen(s->logits, "wb");
    bool good = file != NULL;
    for (int64_t i = 0; i < s->n && good; i++) {
        const struct request *const r = &s->request[i];
        const size_t numbers = (size_t)((r->n_written + r->stopped) * m->vocabulary);
        good = fwrite(r->logits, sizeof(float), numbers, file) == numbers;
    }
    require(good && fclose(file) == 0, "%s cannot be written", s->logits);
}

static void print_times(const struct settings *s, const struct model *m, const struct times *times)
{
    double seconds = 1e-9;
    for (int reads = 1; reads >= 0; reads--) {
        const struct phase *const p = &times->phase[reads];
        printf("%s: %lld tokens, %.1f per second, %.1f per second of processor time\n",
               reads ? "\nprompts" : "writing", (long long)p->tokens, (double)p->tokens / (p->seconds + 1e-9),
               (double)p->tokens / (p->processor_seconds + 1e-9));
        seconds += p->seconds;
    }
    if (s->drafts > 0)
        printf("drafts: %lld of %lld accepted\n", (long long)times->accepted, (long long)times->drafts);
    printf("in Switchyard: %.1f %% of the time\n", (double)m->operator_ns * 1e-7 / seconds);
}

void write_results(const struct settings *s, const struct model *m, const struct tokenizer *t,
                   const struct times *times)
{
    for (int64_t i = 0; i < s->n; i++)
        print_request(&s->request[i], t, i);
    if (s->logits != NULL)
        write_logits(s, m);
    if (s->page != NULL)
        write_page(s, m, t);
    if (s->timed)
        print_times(s, m, times);
}
