/* The command line: a table of options, from which --help is printed. */
#include "../lm.h"

static const char usage[] =
    "usage: moe_lm FOLDER [options] --prompt TEXT [options --prompt TEXT]...\n\n"
    "Continues each prompt with the model in FOLDER: config.json, model.safetensors and tokenizer.json\n"
    "as Hugging Face saves them (OLMoE, Mixtral, Qwen3-MoE). All prompts run in one batch. A prompt with\n"
    "its options gives the same text in any batch, with any number of threads, drafts and devices.\n";

struct option {
    enum { HEADING, FLAG, STRING, WHOLE, REAL } kind;
    const char *name, *help;
    void *to;
    double least, most;
};

static void read_value(const struct option *o, const char *text)
{
    char *end;
    const double value = strtod(text, &end);
    const bool good = end != text && *end == 0 && value >= o->least && value <= o->most &&
                      (o->kind == REAL || value == (double)(int64_t)value);
    require(good || o->kind == STRING, "%.*s is %s, want a %snumber from %g to %g",
            (int)strcspn(o->name, " "), o->name, text, o->kind == WHOLE ? "whole " : "", o->least, o->most);
    if (o->kind == STRING)
        *(const char **)o->to = text;
    else if (o->kind == WHOLE)
        *(int64_t *)o->to = (int64_t)value;
    else
        *(float *)o->to = (float)value;
}

struct settings read_options(int argc, char **argv)
{
    struct settings s = {.request = NEW(struct request, argc), .most_requests = 16, .chunk = 512};
    struct request next = {.max_new = 64, .top_p = 1};
    bool help = false;
    const struct option options[] = {
        {HEADING, "For the prompts that follow:", "", NULL, 0, 0},
        {WHOLE, "--tokens N", "write at most N tokens (64)", &next.max_new, 1, 1e6},
        {REAL, "--temperature X", "0: the largest logit (0)", &next.temperature, 0, 100},
        {WHOLE, "--top-k N", "0: off (0)", &next.top_k, 0, 1e6},
        {REAL, "--top-p X", "1: off (1)", &next.top_p, 0, 1},
        {REAL, "--min-p X", "0: off (0)", &next.min_p, 0, 1},
        {WHOLE, "--seed N", "of the draws (0)", &next.seed, 0, 1e15},
        {STRING, "--prompt TEXT", "a prompt, with the options before it", &next.text, 0, 0},
        {STRING, "--ids \"1 2 3\"", "a prompt of token numbers; the result is numbers too", &next.ids, 0, 0},
        {HEADING, "For all:", "", NULL, 0, 0},
        {WHOLE, "--batch N", "requests at once (16)", &s.most_requests, 1, 4096},
        {WHOLE, "--chunk N", "tokens of prompts in one step (512)", &s.chunk, 1, 1e6},
        {WHOLE, "--speculate N", "guess N tokens: same text, fewer steps (0)", &s.drafts, 0, 64},
        {WHOLE, "--threads N", "0: all (0)", &s.threads, 0, 4096},
        {STRING, "--mesh RxC", "experts on R*C devices; with moe_lm-mpi, processes", &s.mesh, 0, 0},
        {FLAG, "--blas", "long prompts by the BLAS: text may differ by batch and machine", &use_blas, 0, 0},
        {FLAG, "--ignore-eos", "go on after the end of a text", &s.ignore_eos, 0, 0},
        {STRING, "--logits FILE", "all logits that were sampled from, f32, by request", &s.logits, 0, 0},
        {STRING, "--page FILE", "a page that shows the experts of every token", &s.page, 0, 0},
        {FLAG, "--time", "print tokens per second and the share of Switchyard", &s.timed, 0, 0},
        {FLAG, "--help", "print this", &help, 0, 0},
    };
    const struct option *const end = options + sizeof options / sizeof *options, *o;
    for (int i = 1; i < argc; i++) {
        const char *const name = argv[i];
        for (o = options; o < end; o++)
            if (o->kind != HEADING && strcspn(o->name, " ") == strlen(name) &&
                strncmp(o->name, name, strlen(name)) == 0)
                break;
        if (o == end) {
            require(name[0] != '-' && s.folder == NULL, "%s is not an option; --help lists them", name);
            s.folder = name;
        } else if (o->kind == FLAG) {
            *(bool *)o->to = true;
        } else {
            require(++i < argc, "%s is missing its value", name);
            read_value(o, argv[i]);
        }
        if (next.text != NULL || next.ids != NULL) /* this option was a prompt */
            s.request[s.n++] = next;
        next.text = next.ids = NULL;
    }
    if (help && process == 0)
        puts(usage);
    for (o = options; o < end && help && process == 0; o++)
        printf("%s%-17s%s\n", o->kind == HEADING ? "" : "  ", o->name, o->help);
    if (help)
        processes_end(0);
    require(s.folder != NULL && s.n > 0, "want a folder and a --prompt; --help lists the options");
    require(!use_blas || have_blas, "--blas: this program was built without a BLAS");
    require(s.page == NULL || have_page, "--page: this program was built without page.html");
    return s;
}

int32_t *read_ids(const char *text, int64_t *n)
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
