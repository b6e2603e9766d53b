/* The command line. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lm.h"

#ifdef _OPENMP
#include <omp.h>
#endif

static const char help[] =
    "usage: moe_lm FOLDER [options] --prompt TEXT [options --prompt TEXT]...\n"
    "\n"
    "Writes on after each prompt with the model in FOLDER: config.json, model.safetensors and "
    "tokenizer.json\n"
    "as Hugging Face saves them (OLMoE, Mixtral, Qwen3-MoE). All prompts run in one batch.\n"
    "\n"
    "For the prompts that follow:\n"
    "  --tokens N         write at most N tokens (64)\n"
    "  --temperature X    0: the largest logit (0)\n"
    "  --top-k N, --top-p X, --min-p X   0: off\n"
    "  --seed N           of the draws (0); a prompt with its parameters gives the same text in any batch\n"
    "  --ids \"1 2 3\"      a prompt of token numbers; its result is printed as numbers\n"
    "For all:\n"
    "  --batch N          requests at once (16)\n"
    "  --chunk N          tokens of prompts in one step (512)\n"
    "  --threads N        0: all (0)\n"
    "  --mesh RxC         experts on R*C devices: of this process, or, with moe_lm-mpi, a process each\n"
    "  --blas             products of many rows by the BLAS: faster, but text may differ by batch and "
    "machine\n"
    "  --ignore-eos       write on after the end of a text\n"
    "  --logits FILE      all logits that were sampled from, f32, in the order of requests\n"
    "  --page FILE        a page for a browser: the experts of every token, and what the sampler chose from\n"
    "  --time             print tokens per second and the share of time in Switchyard\n";

/* The command line, read. */
struct settings {
    double tokens, temperature, top_k, top_p, min_p, seed; /* for the prompts that follow */
    double batch, chunk, threads;
    const char *folder, *mesh, *logits, *page, *prompt, *prompt_ids; /* the prompt that was just read */
    bool ignore_eos, timed;
    struct request *request;
    const char **text, **ids; /* of each request: one of both */
    int n;
};

static double number(const char *option, const char *text, double least, double most)
{
    char *end;
    const double value = strtod(text, &end);
    const bool near = value >= least && value <= most,
               whole = most <= 100 ||
                       (near && value == (double)(int64_t)value); /* fractions: temperature, top-p, min-p */
    if (end == text || *end != 0 || !near || !whole)
        die("%s is %s, want a %snumber from %g to %g", option, text, most <= 100 ? "" : "whole ", least,
            most);
    return value;
}

static int32_t *read_ids(const char *text, int64_t *n)
{
    int32_t *const ids = NEW(int32_t, strlen(text) / 2 + 1);
    char *end;
    for (*n = 0; *text != 0; text = end + strspn(end, " ,")) {
        const long id = strtol(text, &end, 10);
        if (end == text || id < 0 || id > INT32_MAX)
            die("--ids has %.20s, want numbers", text);
        ids[(*n)++] = (int32_t)id;
    }
    return ids;
}

static void add_request(struct settings *s)
{
    s->text[s->n] = s->prompt;
    s->ids[s->n] = s->prompt_ids;
    s->prompt = s->prompt_ids = NULL;
    s->request[s->n++] = (struct request){.most = (int64_t)s->tokens,
                                          .temperature = (float)s->temperature,
                                          .top_k = (int64_t)s->top_k,
                                          .top_p = (float)s->top_p,
                                          .min_p = (float)s->min_p,
                                          .seed = (int64_t)s->seed};
}

static void read_arguments(struct settings *s, int argc, char **argv)
{
    const struct option {
        const char *name;
        bool *flag; /* one of these three */
        const char **text;
        double *number, least, most;
    } options[] = {
        {.name = "--blas", .flag = &use_blas},
        {.name = "--ignore-eos", .flag = &s->ignore_eos},
        {.name = "--time", .flag = &s->timed},
        {.name = "--prompt", .text = &s->prompt},
        {.name = "--ids", .text = &s->prompt_ids},
        {.name = "--mesh", .text = &s->mesh},
        {.name = "--logits", .text = &s->logits},
        {.name = "--page", .text = &s->page},
        {.name = "--tokens", .number = &s->tokens, .least = 1, .most = 1e6},
        {.name = "--temperature", .number = &s->temperature, .most = 100},
        {.name = "--top-k", .number = &s->top_k, .most = 1e6},
        {.name = "--top-p", .number = &s->top_p, .most = 1},
        {.name = "--min-p", .number = &s->min_p, .most = 1},
        {.name = "--seed", .number = &s->seed, .most = 1e15},
        {.name = "--batch", .number = &s->batch, .least = 1, .most = 4096},
        {.name = "--chunk", .number = &s->chunk, .least = 1, .most = 1e6},
        {.name = "--threads", .number = &s->threads, .most = 4096},
    };
    for (int i = 1; i < argc; i++) {
        const struct option *o = options, *const end = options + sizeof options / sizeof *options;
        while (o < end && strcmp(argv[i], o->name) != 0)
            o++;
        if (o == end && (argv[i][0] == '-' || s->folder != NULL))
            die("%s is not an option; --help lists them", argv[i]);
        if (o == end)
            s->folder = argv[i];
        else if (o->flag != NULL)
            *o->flag = true;
        else if (++i == argc)
            die("%s is missing its value", o->name);
        else if (o->text != NULL)
            *o->text = argv[i];
        else
            *o->number = number(o->name, argv[i], o->least, o->most);
        if (s->prompt != NULL || s->prompt_ids != NULL)
            add_request(s);
    }
    if (s->folder == NULL || s->n == 0)
        die("want a folder and a --prompt; --help says more");
    if (use_blas && !have_blas())
        die("--blas: this program was built without a BLAS");
    if (s->page != NULL && !have_page())
        die("--page: this program was built without page.html");
}

static struct mesh *read_mesh(const char *text)
{
    char *end = NULL;
    const long rows = text != NULL ? strtol(text, &end, 10) : 0;
    const long cols = text != NULL && *end == 'x' ? strtol(end + 1, &end, 10) : 0;
    if (text != NULL && (rows < 1 || cols < 1 || *end != 0 || rows > MOST_DEVICES / cols))
        die("--mesh is %s, want rows and columns of at most %d devices, as in 1x4", text, MOST_DEVICES);
    return mesh_open((int)rows, (int)cols);
}

static void encode_prompts(const struct settings *s, const struct tokenizer *t)
{
    for (int i = 0; i < s->n; i++) {
        struct request *const r = &s->request[i];
        if (s->text[i] != NULL && t == NULL)
            die("%s/tokenizer.json is missing; prompts of numbers (--ids) need none", s->folder);
        r->prompt = s->text[i] != NULL ? tokenizer_encode(t, s->text[i], &r->n_prompt)
                                       : read_ids(s->ids[i], &r->n_prompt);
        if (r->n_prompt == 0)
            die("prompt %d is empty", i + 1);
    }
}

/* Checks prompts against the model, and makes room for what is written. */
static void prepare(const struct settings *s, const struct model *m)
{
    for (int i = 0; i < s->n; i++) {
        struct request *const r = &s->request[i];
        for (int64_t k = 0; k < r->n_prompt; k++)
            if (r->prompt[k] >= m->vocabulary)
                die("prompt %d has token %d, want less than %lld", i + 1, r->prompt[k],
                    (long long)m->vocabulary);
        if (r->n_prompt + r->most > m->positions)
            die("prompt %d has %lld tokens and wants %lld more: the model has %lld positions", i + 1,
                (long long)r->n_prompt, (long long)r->most, (long long)m->positions);
        const int64_t choices = (r->n_prompt + r->most) * m->layers * m->top_k;
        r->written = NEW(int32_t, r->most);
        r->logits = s->logits != NULL || s->page != NULL ? NEW(float, r->most * m->vocabulary) : NULL;
        r->chosen = s->page != NULL ? NEW(int32_t, choices) : NULL;
        r->weight = s->page != NULL ? NEW(float, choices) : NULL;
    }
}

/* All results, in all processes. */
static void collect(const struct settings *s, const struct model *m)
{
    for (int i = 0; i < s->n; i++) {
        struct request *const r = &s->request[i];
        const size_t choices = (size_t)((r->n_prompt + r->most) * m->layers * m->top_k);
        mesh_collect(i, &r->n_written, sizeof r->n_written);
        mesh_collect(i, r->written, (size_t)r->most * sizeof *r->written);
        mesh_collect(i, &r->n_logits, sizeof r->n_logits);
        if (r->logits != NULL)
            mesh_collect(i, r->logits, (size_t)(r->n_logits * m->vocabulary) * sizeof *r->logits);
        if (r->chosen != NULL) {
            mesh_collect(i, r->chosen, choices * sizeof *r->chosen);
            mesh_collect(i, r->weight, choices * sizeof *r->weight);
        }
    }
}

static void print_request(const struct request *r, const struct tokenizer *t, const char *text, int i)
{
    printf("%s--- %d%s\n", i > 0 ? "\n" : "", i + 1, text != NULL ? "" : ", tokens");
    if (text != NULL)
        fputs(text, stdout);
    for (int64_t k = 0; k < r->n_written; k++) {
        size_t bytes = 0;
        const char *const piece = text != NULL ? tokenizer_decode(t, r->written[k], &bytes) : NULL;
        if (piece != NULL)
            fwrite(piece, 1, bytes, stdout);
        else if (text == NULL)
            printf("%s%d", k > 0 ? " " : "", r->written[k]);
    }
    putchar('\n');
}

static void write_logits(const struct settings *s, const struct model *m)
{
    FILE *const file = fopen(s->logits, "wb");
    bool good = file != NULL;
    for (int i = 0; i < s->n && good; i++) {
        const size_t numbers = (size_t)(s->request[i].n_logits * m->vocabulary);
        good = fwrite(s->request[i].logits, sizeof(float), numbers, file) == numbers;
    }
    if (!good || fclose(file) != 0)
        die("%s cannot be written", s->logits);
}

static void print_phase(const char *name, const struct phase *p)
{
    printf("%s: %lld tokens, %.1f per second, %.1f per second of processor time\n", name,
           (long long)p->tokens, (double)p->tokens / (p->seconds + 1e-9),
           (double)p->tokens / (p->processor_seconds + 1e-9));
}

static void print_times(const struct engine_times *t, const struct model *m)
{
    putchar('\n');
    print_phase("prompts", &t->prefill);
    print_phase("writing", &t->decode);
    printf("in Switchyard: %.1f %% of the time\n",
           (double)m->operator_ns * 1e-7 / (t->prefill.seconds + t->decode.seconds + 1e-9));
}

int main(int argc, char **argv)
{
    mesh_start(&argc, &argv);
    struct settings s = {.tokens = 64,
                         .batch = 16,
                         .chunk = 512,
                         .request = NEW(struct request, argc),
                         .text = NEW(const char *, argc),
                         .ids = NEW(const char *, argc)};
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            mesh_end(NULL);
            return mesh_prints() && fputs(help, stdout) < 0;
        }
    read_arguments(&s, argc, argv);
#ifdef _OPENMP
    if (s.threads > 0)
        omp_set_num_threads((int)s.threads);
#endif
    const struct tokenizer *const t = tokenizer_open(s.folder);
    encode_prompts(&s, t);
    struct model *const m = model_open(s.folder, read_mesh(s.mesh), (int)s.threads);
    prepare(&s, m);
    struct engine_times times = {0};
    const struct engine_options options = {(int64_t)s.batch, (int64_t)s.chunk, s.ignore_eos};
    engine_run(m, s.request, s.n, &options, &times);
    collect(&s, m);
    if (mesh_prints()) {
        for (int i = 0; i < s.n; i++)
            print_request(&s.request[i], t, s.text[i], i);
        if (s.logits != NULL)
            write_logits(&s, m);
        if (s.page != NULL)
            write_page(s.page, m, t, s.request, s.n);
        if (s.timed)
            print_times(&times, m);
    }
    mesh_end(m->mesh);
    sy_ctx_destroy(m->ctx);
    return 0;
}
