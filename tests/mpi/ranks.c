#include "ranks.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

enum { GRACE_S = 15, TEXT_BYTES = 4000 };

int this_rank, n_ranks;

/* One verdict; also what the handler prints when the others never come to hear it. */
static struct {
    int failed, skipped;
    char text[TEXT_BYTES];
} verdict;

static int real_error = STDERR_FILENO;
static const char *running = "";

static void say(const char *text)
{
    if (write(real_error, text, strlen(text)) < 0)
        return;
}

/* The test is over for this process; its place goes to the report. */
static void trapped(int signal_number)
{
    char line[300];
    void *frames[64];
    /* The process is lost anyway, so the rules for handlers may be broken to tell where. */
    const int n = backtrace(frames, (int)COUNT_OF(frames));          /* NOLINT(bugprone-signal-handler) */
    snprintf(line, sizeof line, "process %d, %s in %s\n", this_rank, /* NOLINT(bugprone-signal-handler) */
             signal_number == SIGALRM ? "the last to fail" : "told to stop", running);
    say(line);
    say(verdict.text);
    backtrace_symbols_fd(frames, n, real_error); /* NOLINT(bugprone-signal-handler) */
    _exit(99);
}

void ranks_begin(void)
{
    ranks_open();
    void *frame;
    (void)backtrace(&frame, 1); /* loads what it needs now, not in the handler */
    signal(SIGALRM, trapped);
    signal(SIGTERM, trapped);
    cmocka_set_message_output(CM_OUTPUT_TAP);
}

/* Runs one test with its output in a file, which becomes the text of the verdict. */
static void run_one(const struct CMUnitTest *test)
{
    FILE *const file = tmpfile();
    const int out = dup(STDOUT_FILENO);
    real_error = dup(STDERR_FILENO);
    fflush(stdout);
    if (file != NULL) {
        dup2(fileno(file), STDOUT_FILENO);
        dup2(fileno(file), STDERR_FILENO);
    }
    memset(&verdict, 0, sizeof verdict);
    running = test->name;
    verdict.failed = _cmocka_run_group_tests("one", test, 1, NULL, NULL);
    alarm(verdict.failed ? GRACE_S : 0); /* the others may be waiting for us */
    fflush(stdout);
    dup2(out, STDOUT_FILENO);
    dup2(real_error, STDERR_FILENO);
    close(out);
    if (file != NULL) {
        rewind(file);
        verdict.text[fread(verdict.text, 1, sizeof verdict.text - 1, file)] = '\0';
        fclose(file);
    }
    verdict.skipped = strstr(verdict.text, "# SKIP") != NULL;
}

/* Process 0 reports what all of them found. */
static int report(const struct CMUnitTest *test, size_t number)
{
    int failed = 0;
    void *const of_all = malloc((size_t)n_ranks * sizeof verdict);
    ranks_gather(&verdict, sizeof verdict, of_all);
    alarm(0);
    close(real_error);
    real_error = STDERR_FILENO;
    const bool skipped = verdict.skipped;
    for (int r = 0; r < n_ranks; r++) {
        memcpy(&verdict, (char *)of_all + (size_t)r * sizeof verdict, sizeof verdict);
        failed |= verdict.failed;
    }
    if (this_rank == 0)
        printf("%s %zu - %s%s\n", failed ? "not ok" : "ok", number, test->name, skipped ? " # SKIP" : "");
    for (int r = 0; failed && r < n_ranks; r++) {
        memcpy(&verdict, (char *)of_all + (size_t)r * sizeof verdict, sizeof verdict);
        if (this_rank == 0 && verdict.failed) {
            printf("# process %d:\n", r);
            for (char *line = strtok(verdict.text, "\n"); line; line = strtok(NULL, "\n"))
                printf("# %s\n", line);
        }
    }
    fflush(stdout);
    free(of_all);
    return failed;
}

/* SWITCHYARD_TEST_MATCH: a part of the names of the tests to run. SWITCHYARD_TEST_PART=1/4: every fourth, from the second on. */
static bool is_wanted(const struct CMUnitTest *tests, size_t i)
{
    const char *const part = getenv("SWITCHYARD_TEST_MATCH"), *const share = getenv("SWITCHYARD_TEST_PART");
    const char *const of = share != NULL ? strchr(share, '/') : NULL;
    const unsigned long n = of != NULL ? strtoul(of + 1, NULL, 10) : 1;
    return (part == NULL || strstr(tests[i].name, part) != NULL) &&
           (n <= 1 || i % n == strtoul(share, NULL, 10));
}

int ranks_run(const struct CMUnitTest *tests, size_t n)
{
    int failed = 0;
    size_t wanted = 0, number = 0;
    for (size_t i = 0; i < n; i++)
        wanted += is_wanted(tests, i);
    if (this_rank == 0)
        printf("1..%zu\n", wanted);
    for (size_t i = 0; i < n; i++) {
        if (!is_wanted(tests, i))
            continue;
        run_one(&tests[i]);
        failed |= report(&tests[i], ++number);
    }
    return failed;
}

int ranks_end(int failed)
{
    signal(SIGTERM, SIG_DFL);
    ranks_close();
    return failed && this_rank == 0 ? 1 : 0;
}

int ranks_run_list(struct test_list *list)
{
    const int failed = ranks_run(list->tests, list->count);
    free(list->tests);
    return ranks_end(failed);
}

void expect_same_everywhere(const void *data, size_t bytes)
{
    void *const all = malloc((size_t)n_ranks * bytes + 1);
    assert_non_null(all);
    ranks_gather(data, bytes, all);
    expect_bytes(data, all, bytes);
    free(all);
}

void ranks_barrier(void)
{
    char all[64];
    assert_true(n_ranks <= (int)sizeof all);
    ranks_gather("", 1, all);
}

int n_meshes(void)
{
    int n = 0;
    for (int rows = 1; rows <= n_ranks; rows++)
        n += n_ranks % rows == 0;
    return n;
}

sy_mesh mesh_number(int i)
{
    int rows = 1;
    for (; n_ranks % rows != 0 || i-- > 0; rows++)
        ;
    return (sy_mesh){rows, n_ranks / rows};
}
