/*
 * The program of the cases.
 *     cases [OP]...            every test of these operators, or of all (TAP)
 *     cases --seed S [--calls N] OP    one random call, what a failed test names; or N from it on
 *     cases --line TEXT OP     the call of a line
 *     cases --bits [OP]...     one hash for each operator, over results of fixed calls: the same for every build
 *     cases --record FILE [--seed S] [--first I] [--calls N] [OP]...    random wrong calls and their answers: fuzz.c
 *     cases --list             the operators
 */
#include "case.h"

#include <setjmp.h>
#include <stdio.h>

enum { CASE_CALLS = 120, BITS_CALLS = 60 };

/* ---- Tests ---- */

static int calls_of(const struct op_case *op)
{
    return (op->calls > 0 ? op->calls : CASE_CALLS) / (case_on_device() ? 3 : 1);
}

/* Two contexts of each kernel table. Bits of the seed: 0 the first has compact tensors, not any layout; 1 work is split; 2 in place; 3
   the other thread counts. */
static void check_call(struct call *c, uint64_t seed)
{
    note_call(c);
    for (int k = 0; k<n_case_ctx; k += n_case_ctx> 1 ? 2 : 1) {
        sy_ctx *const ctx = case_ctx[n_case_ctx > 1 ? k + (int)(seed / 8 % 2) : k];
        case_split = (seed / 2 + (uint64_t)k / 2) % 2;
        call_lay_out(c, k == 0 && seed % 2 ? 0 : seed * 31 + (uint64_t)k + 1, (seed / 4 + (uint64_t)k) % 2);
        call_check(c, ctx, call_run(c, ctx));
    }
    case_split = false;
}

static void check_seed(const struct op_case *op, uint64_t seed)
{
    static struct call c;
    struct reader in = reader_seed(seed);
    snprintf(case_where, sizeof case_where, "seed %llu", (unsigned long long)seed);
    call_make(&c, op, &in);
    check_call(&c, seed);
    call_free(&c);
}

static void check_line(const struct op_case *op, const char *line)
{
    static struct call c;
    struct reader in = reader_text(line);
    snprintf(case_where, sizeof case_where, "\"%s\"", line);
    call_make(&c, op, &in);
    /* In any layout, of a device compact; then compact, with other contexts. */
    check_call(&c, case_on_device() ? 1 : 0);
    check_call(&c, 9);
    call_free(&c);
}

static int test_random(const struct op_case *op)
{
    const bool more = tests_are("more");
    const bool few = tests_are("few");
    const int n = calls_of(op) / (few ? 3 : 1), first = more ? n : 0;
    const int end = tests_are("full") ? 10 * n : more ? (case_on_device() ? 2 : 4) * n : n;
    for (int seed = first + 1; seed <= end; seed++)
        check_seed(op, (uint64_t)seed);
    if (!case_on_device() && !more && !few) /* of the first calls */
        check_coverage(op);
    return end - first;
}

static int check_lines(const struct op_case *op, const char *const *lines)
{
    int n = 0;
    for (; n < CASE_LINES && lines[n] != NULL; n++)
        check_line(op, lines[n]);
    return n;
}

static int test_shapes(const struct op_case *op)
{
    return check_lines(op, op->shapes);
}

static int test_lines(const struct op_case *op)
{
    return check_lines(op, op->lines);
}

static const struct {
    const char *name;
    int (*run)(const struct op_case *op);
    bool on_device;
} tests[] = {{"random calls", test_random, true},
             {"shapes", test_shapes, true},
             {"lines", test_lines, false},
             {"rejections", test_rejections, true},
             {"failing allocations", test_allocations, false},
             {"tensors over the workspace", test_workspace, false},
             {"descriptors", test_descriptors, false},
             {"calls on a small stack", test_stack, false}};

static jmp_buf failed;

static void end_test(void)
{
    longjmp(failed, 1);
}

/* Runs a test; -1: it failed. */
static int guarded(int (*run)(const struct op_case *op), const struct op_case *op)
{
    case_end_test = end_test;
    if (setjmp(failed) == 0)
        return run(op);
    case_split = false;
    for (int i = 0; i < n_case_ctx; i++)
        sy_ctx_set_workspace(case_ctx[i], NULL, 0);
    return -1;
}

static int run_tests(const struct op_case *const *ops, int n)
{
    const int each = tests_are("more") ? 1 : sizeof tests / sizeof *tests; /* the first: random calls */
    int n_failed = 0, number = 0;
    printf("1..%d\n", n * each);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < each; k++) {
            number++;
            if (case_on_device() && !tests[k].on_device) {
                printf("ok %d - %s: %s # SKIP on a device\n", number, ops[i]->name, tests[k].name);
                continue;
            }
            const int count = guarded(tests[k].run, ops[i]);
            n_failed += count < 0;
            if (count >= 0)
                printf("ok %d - %s: %d %s\n", number, ops[i]->name, count, tests[k].name);
            else
                printf("not ok %d - %s: %s\n", number, ops[i]->name, tests[k].name);
            fflush(stdout);
        }
    return n_failed > 0;
}

/* ---- Recorded bits ---- */

static int print_bits(const struct op_case *op)
{
    static struct call c;
    uint64_t hash = 0xcbf29ce484222325u;
    int done = 0;
    const int calls = op->recorded > 0 ? op->recorded : BITS_CALLS;
    for (uint64_t seed = 1; seed <= (uint64_t)calls; seed++) {
        struct reader in = reader_seed(seed << 32);
        uint64_t first = 0;
        snprintf(case_where, sizeof case_where, "bits, seed %llu", (unsigned long long)seed << 32);
        call_make_only(&c, op, &in);
        for (int k = 0; k<n_case_ctx; k += n_case_ctx> 1 ? 2 : 1) { /* 1 and 3 threads */
            call_lay_out(&c, seed, false);
            const sy_status status = call_run(&c, case_ctx[k]);
            const uint64_t own = call_hash(&c, case_ctx[k], status);
            if (k > 0 && own != first)
                case_fail(&c, case_ctx[k], "another result than %s with %d threads", sy_ctx_isa(case_ctx[0]),
                          sy_ctx_threads(case_ctx[0]));
            first = own;
            done += k == 0 && status == SY_OK;
        }
        hash = (hash ^ first) * 0x100000001b3u;
        call_free(&c);
    }
    printf("%-24s %016llx %d done %d rejected\n", op->name, (unsigned long long)hash, done, calls - done);
    return 0;
}

static int run_bits(const struct op_case *const *ops, int n)
{
    int n_failed = 0;
    case_recording = true;
    printf("results_version %d\n", sy_results_version());
    for (int i = 0; i < n; i++)
        n_failed += guarded(print_bits, ops[i]) < 0;
    return n_failed > 0;
}

/* ---- The program ---- */

static struct {
    const char *what, *line, *file; /* what: --bits, --list */
    uint64_t seed;
    int64_t first, calls;
    const struct op_case *op[64];
    int n;
} options = {.what = ""};

static int run_seed(const struct op_case *op)
{
    check_seed(op, options.seed);
    for (int64_t i = 1; i < options.calls; i++)
        check_seed(op, options.seed + (uint64_t)i);
    return 0;
}

static int run_line(const struct op_case *op)
{
    check_line(op, options.line);
    return 0;
}

static int run_one(int (*run)(const struct op_case *op))
{
    if (options.n != 1) {
        fprintf(stderr, "cases: want one operator\n");
        return 2;
    }
    const bool fine = guarded(run, options.op[0]) == 0;
    if (fine)
        printf("as the oracle says\n");
    return !fine;
}

static int run_record(const struct op_case *op)
{
    (void)op;
    record_calls(options.op, options.n, options.file, options.seed, options.first,
                 options.calls > 0 ? options.calls : 2000);
    return 0;
}

static int run(void)
{
    if (options.file != NULL)
        return guarded(run_record, NULL) != 0;
    if (options.line != NULL)
        return run_one(run_line);
    if (options.seed > 0)
        return run_one(run_seed);
    return strcmp(options.what, "--bits") == 0 ? run_bits(options.op, options.n)
                                               : run_tests(options.op, options.n);
}

static bool read_option(const char *name, const char *value)
{
    if (strcmp(name, "--seed") == 0)
        options.seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "--line") == 0)
        options.line = value;
    else if (strcmp(name, "--record") == 0)
        options.file = value;
    else if (strcmp(name, "--first") == 0)
        options.first = strtoll(value, NULL, 10);
    else if (strcmp(name, "--calls") == 0)
        options.calls = strtoll(value, NULL, 10);
    else
        return false;
    return true;
}

static const struct op_case *find_case(const char *name)
{
    for (int i = 0; i < n_all_cases; i++)
        if (all_cases[i] != NULL && strcmp(all_cases[i]->name, name) == 0)
            return all_cases[i];
    fprintf(stderr, "cases: no case of %s\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    /* tests/device.c asserts outside of a test of cmocka, which would end the program without a word. */
    setenv("CMOCKA_TEST_ABORT", "1", 1);
    for (int i = 1; i < argc; i++)
        if (strncmp(argv[i], "--", 2) != 0)
            options.op[options.n++] = find_case(argv[i]);
        else if (i + 1 < argc && read_option(argv[i], argv[i + 1]))
            i++;
        else
            options.what = argv[i];
    for (int i = 0, all = options.n == 0; all && i < n_all_cases; i++)
        if (all_cases[i] != NULL)
            options.op[options.n++] = all_cases[i];
    const bool list = strcmp(options.what, "--list") == 0;
    for (int i = 0; list && i < options.n; i++)
        printf("%s\n", options.op[i]->name);
    if (list)
        return 0;
    case_open();
    const int status = run();
    case_close();
    return status;
}
