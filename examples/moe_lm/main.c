/* The command line: main, at the end, is the whole program in short. */
#include "lm.h"

#ifdef _OPENMP
#include <omp.h>
#endif

static const char usage[] =
    "usage: moe_lm FOLDER [options] --prompt TEXT [options --prompt TEXT]...\n\n"
    "Continues each prompt with the model in FOLDER: config.json, model.safetensors and tokenizer.json\n"
    "as Hugging Face saves them (OLMoE, Mixtral, Qwen3-MoE). All prompts run in one batch. A prompt with\n"
    "its options gives the same text in any batch, with any number of threads, drafts and devices.\n";

/* The command line, read. */
struct settings {
    struct request next; /* with the options for the prompts that follow */
    struct engine_options engine;
    int64_t threads;
    const char *folder, *mesh, *logits, *page;
    bool timed;
    struct request *request;
    int n;
};

struct option {
    enum { HEADING, FLAG, STRING, WHOLE, REAL } kind;
    const char *name, *help;
    void *to;
    double least, most;
};

static void read_number(const struct option *o, const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    const bool good = end != text && *end == 0 && value >= o->least && value <= o->most &&
                      (o->kind == REAL || value == (double)(int64_t)value);
    require(good, "%.*s is %s, want a %snumber from %g to %g", (int)strcspn(o->name, " "), o->name, text,
            o->kind == WHOLE ? "whole " : "", o->least, o->most);
    if (o->kind == WHOLE)
        *(int64_t *)o->to = (int64_t)value;
    else
        *(float *)o->to = (float)value;
}

static void read_arguments(struct settings *s, int argc, char **argv)
{
    struct request *const r = &s->next;
    bool help = false;
    const struct option options[] = {
        {HEADING, "For the prompts that follow:", "", NULL, 0, 0},
        {WHOLE, "--tokens N", "write at most N tokens (64)", &r->max_new, 1, 1e6},
        {REAL, "--temperature X", "0: the largest logit (0)", &r->temperature, 0, 100},
        {WHOLE, "--top-k N", "0: off (0)", &r->top_k, 0, 1e6},
        {REAL, "--top-p X", "1: off (1)", &r->top_p, 0, 1},
        {REAL, "--min-p X", "0: off (0)", &r->min_p, 0, 1},
        {WHOLE, "--seed N", "of the draws (0)", &r->seed, 0, 1e15},
        {STRING, "--prompt TEXT", "a prompt, with the options before it", &r->text, 0, 0},
        {STRING, "--ids \"1 2 3\"", "a prompt of token numbers; the result is numbers too", &r->ids, 0, 0},
        {HEADING, "For all:", "", NULL, 0, 0},
        {WHOLE, "--batch N", "requests at once (16)", &s->engine.most_requests, 1, 4096},
        {WHOLE, "--chunk N", "tokens of prompts in one step (512)", &s->engine.chunk, 1, 1e6},
        {WHOLE, "--speculate N", "guess N tokens: same text, fewer steps (0)", &s->engine.drafts, 0, 64},
        {WHOLE, "--threads N", "0: all (0)", &s->threads, 0, 4096},
        {STRING, "--mesh RxC", "experts on R*C devices; with moe_lm-mpi, processes", &s->mesh, 0, 0},
        {FLAG, "--blas", "long prompts by the BLAS: text may differ by batch and machine", &use_blas, 0, 0},
        {FLAG, "--ignore-eos", "go on after the end of a text", &s->engine.ignore_eos, 0, 0},
        {STRING, "--logits FILE", "all logits that were sampled from, f32, by request", &s->logits, 0, 0},
        {STRING, "--page FILE", "a page that shows the experts of every token", &s->page, 0, 0},
        {FLAG, "--time", "print tokens per second and the share of Switchyard", &s->timed, 0, 0},
        {FLAG, "--help", "print this", &help, 0, 0},
    };
    const struct option *const end = options + sizeof options / sizeof *options, *o;
    for (int i = 1; i < argc; i++) {
        const char *const name = strcmp(argv[i], "-h") == 0 ? "--help" : argv[i];
        const size_t n = strlen(name);
        for (o = options; o < end; o++)
            if (o->kind != HEADING && strcspn(o->name, " ") == n && strncmp(o->name, name, n) == 0)
                break;
        if (o == end) {
            require(name[0] != '-' && s->folder == NULL, "%s is not an option; --help lists them", name);
            s->folder = name;
        } else if (o->kind == FLAG) {
            *(bool *)o->to = true;
        } else {
            require(++i < argc, "%s is missing its value", name);
            if (o->kind == STRING)
                *(const char **)o->to = argv[i];
            else
                read_number(o, argv[i]);
        }
        if (r->text != NULL || r->ids != NULL) /* this option was a prompt */
            s->request[s->n++] = *r;
        r->text = r->ids = NULL;
    }
    if (help) {
        if (process == 0)
            puts(usage);
        for (o = options; o < end && process == 0; o++)
            printf("%s%-17s%s\n", o->kind == HEADING ? "" : "  ", o->name, o->help);
        mesh_end(NULL);
        exit(0);
    }
    require(s->folder != NULL && s->n > 0, "want a folder and a --prompt; --help lists the options");
    require(!use_blas || have_blas, "--blas: this program was built without a BLAS");
    require(s->page == NULL || have_page, "--page: this program was built without page.html");
}

static struct mesh *read_mesh(const char *text)
{
    if (text == NULL)
        return mesh_open(0, 0);
    char *end;
    const long rows = strtol(text, &end, 10), cols = *end == 'x' ? strtol(end + 1, &end, 10) : 0;
    require(rows > 0 && cols > 0 && *end == 0 && rows <= MOST_DEVICES / cols,
            "--mesh is %s, want rows and columns of at most %d devices, as in 1x4", text, MOST_DEVICES);
    return mesh_open((int)rows, (int)cols);
}

static int32_t *read_ids(const char *text, int64_t *n)
{
    int32_t *const ids = NEW(int32_t, strlen(text) / 2 + 1);
    char *end;
    for (*n = 0; *text != 0; text = end + strspn(end, " ,")) {
        const long id = strtol(text, &end, 10);
        require(end != text && id >= 0 && id <= INT32_MAX, "--ids has %.20s, want numbers", text);
        ids[(*n)++] = (int32_t)id;
    }
    return ids;
}

/* Encodes the prompt of request i, and makes room for its results. */
static void prepare(const struct settings *s, int i, const struct tokenizer *t, const struct model *m)
{
    struct request *const r = &s->request[i];
    require(r->text == NULL || t != NULL,
            "%s/tokenizer.json is missing; prompts of numbers (--ids) need none", s->folder);
    int32_t *const prompt =
        r->text != NULL ? tokenizer_encode(t, r->text, &r->n_prompt) : read_ids(r->ids, &r->n_prompt);
    const int64_t tokens = r->n_prompt + r->max_new, choices = tokens * m->layers * m->top_k;
    require(r->n_prompt > 0, "prompt %d is empty", i + 1);
    require(tokens <= m->positions,
            "prompt %d has %lld tokens and wants %lld more: the model has %lld positions", i + 1,
            (long long)r->n_prompt, (long long)r->max_new, (long long)m->positions);
    r->token = NEW(int32_t, tokens);
    for (int64_t k = 0; k < r->n_prompt; k++) {
        r->token[k] = prompt[k];
        require(prompt[k] < m->vocabulary, "prompt %d has token %d, want less than %lld", i + 1, prompt[k],
                (long long)m->vocabulary);
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
static void collect(struct request *r, int i, const struct model *m)
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
static void print_request(const struct request *r, const struct tokenizer *t, int i)
{
    const bool numbers = r->text == NULL;
    printf("%s--- %d%s\n%s", i > 0 ? "\n" : "", i + 1, numbers ? ", tokens" : "", numbers ? "" : r->text);
    for (int64_t k = 0; k < r->n_written; k++) {
        const int32_t token = r->token[r->n_prompt + k];
        size_t bytes = 0;
        const char *const piece = numbers ? NULL : tokenizer_decode(t, token, &bytes);
        if (numbers)
            printf("%s%d", k > 0 ? " " : "", token);
        else if (piece != NULL)
            fwrite(piece, 1, bytes, stdout);
    }
    putchar('\n');
}

static void write_logits(const struct settings *s, const struct model *m)
{
    FILE *const file = fopen(s->logits, "wb");
    bool good = file != NULL;
    for (int i = 0; i < s->n && good; i++) {
        const struct request *const r = &s->request[i];
        const size_t numbers = (size_t)((r->n_written + r->stopped) * m->vocabulary);
        good = fwrite(r->logits, sizeof(float), numbers, file) == numbers;
    }
    require(good && fclose(file) == 0, "%s cannot be written", s->logits);
}

static void print_times(const struct engine_times *t, const struct settings *s, const struct model *m)
{
    const struct phase phases[] = {t->prefill, t->decode};
    putchar('\n');
    for (int i = 0; i < 2; i++)
        printf("%s: %lld tokens, %.1f per second, %.1f per second of processor time\n",
               i == 0 ? "prompts" : "writing", (long long)phases[i].tokens,
               (double)phases[i].tokens / (phases[i].seconds + 1e-9),
               (double)phases[i].tokens / (phases[i].processor_seconds + 1e-9));
    if (s->engine.drafts > 0)
        printf("drafts: %lld of %lld accepted\n", (long long)t->accepted, (long long)t->drafts);
    printf("in Switchyard: %.1f %% of the time\n",
           (double)m->operator_ns * 1e-7 / (t->prefill.seconds + t->decode.seconds + 1e-9));
}

/* Called after every operator. */
static void count_time(void *operator_ns, const sy_trace *trace)
{
    *(uint64_t *)operator_ns += trace->nanoseconds;
}

int main(int argc, char **argv)
{
    mesh_start(&argc, &argv);
    struct settings s = {.next = {.max_new = 64, .top_p = 1},
                         .engine = {.most_requests = 16, .chunk = 512},
                         .request = NEW(struct request, argc)};
    read_arguments(&s, argc, argv);
#ifdef _OPENMP
    if (s.threads > 0)
        omp_set_num_threads((int)s.threads);
#endif
    const struct tokenizer *const t = tokenizer_open(s.folder);
    struct model *const m = model_open(s.folder, read_mesh(s.mesh));
    char sentence[256];
    const sy_ctx_options options = {.threads = (int)s.threads,
                                    .trace = count_time,
                                    .trace_user = &m->operator_ns,
                                    .error = sentence,
                                    .error_bytes = sizeof sentence};
    require(sy_ctx_create(&m->ctx, &options) == SY_OK, "%s", sentence);

    struct engine_times times = {0};
    for (int i = 0; i < s.n; i++)
        prepare(&s, i, t, m);
    engine_run(m, s.request, s.n, &s.engine, &times);
    for (int i = 0; i < s.n; i++)
        collect(&s.request[i], i, m);
    for (int i = 0; i < s.n && process == 0; i++)
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
