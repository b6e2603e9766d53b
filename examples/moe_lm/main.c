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
        memset(r->chosen, 0xFF, (size_t)choices * sizeof *r->chosen); /* -1 */
        r->weight = NEW(float, choices);
    }
}

/* The results of request i, in all processes. */
static void share(struct request *r, int64_t i, const struct model *m)
{
    const int64_t tokens = r->n_prompt + r->max_new, choices = tokens * m->layers * m->top_k;
    share_result(i, &r->n_written, 1, sizeof r->n_written);
    share_result(i, &r->stopped, 1, sizeof r->stopped);
    share_result(i, r->token, tokens, sizeof *r->token);
    share_result(i, r->logits, r->max_new * m->vocabulary, sizeof *r->logits);
    share_result(i, r->chosen, choices, sizeof *r->chosen);
    share_result(i, r->weight, choices, sizeof *r->weight);
}

/* Called after every operator. */
static void count_time(void *operator_ns, const sy_trace *trace)
{
    *(uint64_t *)operator_ns += trace->nanoseconds;
}

int main(int argc, char **argv)
{
    processes_start(&argc, &argv);
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
        share(&s.request[i], i, m);
    if (process == 0)
        write_results(&s, m, t, &times);
    mesh_close(m->mesh);
    sy_ctx_destroy(m->ctx);
    processes_end(0);
}
