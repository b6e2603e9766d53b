/* The program: main, at the end, has all of it in short. */
#include "lm.h"

#ifdef _OPENMP
#include <omp.h>
#endif

/* Encodes the prompt of request i, and makes room for its results. */
static void prepare(const struct settings *s, int64_t i, const struct tokenizer *t, const struct model *m)
{
    struct request *const r = &s->request[i];
    require(r->text == NULL || t != NULL,
            "%s/tokenizer.json is missing; prompts of numbers (--ids) need none", s->folder);
    int32_t *const prompt =
        r->text != NULL ? tokenizer_encode(t, r->text, &r->n_prompt) : read_ids(r->ids, &r->n_prompt);
    const int64_t tokens = r->n_prompt + r->max_new, choices = tokens * m->layers * m->top_k;
    require(r->n_prompt > 0, "prompt %lld is empty", (long long)i + 1);
    require(tokens <= m->positions,
            "prompt %lld has %lld tokens and wants %lld more: the model has %lld positions", (long long)i + 1,
            (long long)r->n_prompt, (long long)r->max_new, (long long)m->positions);
    r->token = NEW(int32_t, tokens);
    for (int64_t k = 0; k < r->n_prompt; k++) {
        r->token[k] = prompt[k];
        require(prompt[k] < m->vocabulary, "prompt %lld has token %d, want less than %lld", (long long)i + 1,
                prompt[k], (long long)m->vocabulary);
    }
    free(prompt);
    if (s->logits != NULL || s->page != NULL)
        r->logits = NEW(float, r->max_new * m->vocabulary);
    if (s->page != NULL) {
        r->chosen = NEW(int32_t, choices);
        r->weight = NEW(float, choices);
    }
}

/* The results of request i, in all processes. */
static void collect(struct request *r, int64_t i, const struct model *m)
{
    const int64_t tokens = r->n_prompt + r->max_new, choices = tokens * m->layers * m->top_k;
    mesh_collect(i, &r->n_written, 1, sizeof r->n_written);
    mesh_collect(i, &r->stopped, 1, sizeof r->stopped);
    mesh_collect(i, r->token, tokens, sizeof *r->token);
    mesh_collect(i, r->logits, r->max_new * m->vocabulary, sizeof *r->logits);
    mesh_collect(i, r->chosen, choices, sizeof *r->chosen);
    mesh_collect(i, r->weight, choices, sizeof *r->weight);
}

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

static void print_phase(const char *name, const struct phase *p)
{
    printf("%s: %lld tokens, %.1f per second, %.1f per second of processor time\n", name,
           (long long)p->tokens, (double)p->tokens / (p->seconds + 1e-9),
           (double)p->tokens / (p->processor_seconds + 1e-9));
}

static void print_times(const struct times *t, const struct settings *s, const struct model *m)
{
    const double seconds = t->prompts.seconds + t->writing.seconds;
    print_phase("\nprompts", &t->prompts);
    print_phase("writing", &t->writing);
    if (s->drafts > 0)
        printf("drafts: %lld of %lld accepted\n", (long long)t->accepted, (long long)t->drafts);
    printf("in Switchyard: %.1f %% of the time\n", (double)m->operator_ns * 1e-7 / (seconds + 1e-9));
}

/* Called after every operator. */
static void count_time(void *operator_ns, const sy_trace *trace)
{
    *(uint64_t *)operator_ns += trace->nanoseconds;
}

int main(int argc, char **argv)
{
    mesh_start(&argc, &argv);
    const struct settings s = read_options(argc, argv);
#ifdef _OPENMP
    if (s.threads > 0)
        omp_set_num_threads((int)s.threads);
#endif
    const struct tokenizer *const t = tokenizer_open(s.folder);
    struct model *const m = model_open(s.folder, mesh_open(s.mesh));
    char sentence[256];
    const sy_ctx_options options = {.threads = (int)s.threads,
                                    .trace = count_time,
                                    .trace_user = &m->operator_ns,
                                    .error = sentence,
                                    .error_bytes = sizeof sentence};
    require(sy_ctx_create(&m->ctx, &options) == SY_OK, "%s", sentence);

    for (int64_t i = 0; i < s.n; i++)
        prepare(&s, i, t, m);
    const struct times times = engine_run(m, &s);
    for (int64_t i = 0; i < s.n; i++)
        collect(&s.request[i], i, m);
    for (int64_t i = 0; i < s.n && process == 0; i++)
        print_request(&s.request[i], t, i);
    if (process == 0 && s.logits != NULL)
        write_logits(&s, m);
    if (process == 0 && s.page != NULL)
        write_page(s.page, m, t, s.request, s.n);
    if (process == 0 && s.timed)
        print_times(&times, &s, m);
    mesh_end(m->mesh);
    sy_ctx_destroy(m->ctx);
    return 0;
}
