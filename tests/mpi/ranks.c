#include "ranks.h"

#include <execinfo.h>
#include <signal.h>
#include <unistd.h>

enum { LONGEST_TEST_S = 120, GRACE_S = 15, TEXT_BYTES = 4000 };

int this_rank, n_ranks;

/* One verdict; also what the handler prints when the others never come to hear it. */
static struct {
    int failed, skipped;
    char text[TEXT_BYTES];
} verdict;

static MPI_Comm ours; /* nothing a test does can be taken for our messages */
static int real_error = STDERR_FILENO;
static const char *running = "";

static void say(const char *text)
{
    if (write(real_error, text, strlen(text)) < 0)
        return;
}

/* The test is over for this process; where it stands goes to the report. */
static void trapped(int signal_number)
{
    char line[300];
    void *frames[64];
    /* The process is lost anyway, so the rules for handlers may be broken to tell where. */
    const int n = backtrace(frames, (int)COUNT_OF(frames));          /* NOLINT(bugprone-signal-handler) */
    snprintf(line, sizeof line, "process %d, %s in %s\n", this_rank, /* NOLINT(bugprone-signal-handler) */
             signal_number == SIGALRM ? "out of time" : "told to stop", running);
    say(line);
    say(verdict.text);
    backtrace_symbols_fd(frames, n, real_error); /* NOLINT(bugprone-signal-handler) */
    _exit(99);
}

void ranks_begin(void)
{
    int done = 0;
    int level;
    MPI_Initialized(&done);
    if (!done)
        MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_dup(MPI_COMM_WORLD, &ours);
    MPI_Comm_rank(ours, &this_rank);
    MPI_Comm_size(ours, &n_ranks);
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
    alarm(LONGEST_TEST_S);
    verdict.failed = _cmocka_run_group_tests("one", test, 1, NULL, NULL);
    alarm(verdict.failed ? GRACE_S : LONGEST_TEST_S); /* the others may be waiting for us */
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

/* Process 0 tells what all of them found. */
static int report(const struct CMUnitTest *test, size_t number)
{
    int failed = verdict.failed;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, ours);
    alarm(0);
    close(real_error);
    real_error = STDERR_FILENO;
    if (this_rank == 0)
        printf("%s %zu - %s%s\n", failed ? "not ok" : "ok", number, test->name,
               verdict.skipped ? " # SKIP" : "");
    for (int r = 0; failed && r < n_ranks; r++) {
        if (r != 0 && this_rank == r)
            MPI_Send(&verdict, (int)sizeof verdict, MPI_BYTE, 0, 0, ours);
        if (r != 0 && this_rank == 0)
            MPI_Recv(&verdict, (int)sizeof verdict, MPI_BYTE, r, 0, ours, MPI_STATUS_IGNORE);
        if (this_rank == 0 && verdict.failed) {
            printf("# process %d:\n", r);
            for (char *line = strtok(verdict.text, "\n"); line; line = strtok(NULL, "\n"))
                printf("# %s\n", line);
        }
    }
    fflush(stdout);
    return failed;
}

int ranks_run(const struct CMUnitTest *tests, size_t n)
{
    int failed = 0;
    if (this_rank == 0)
        printf("1..%zu\n", n);
    for (size_t i = 0; i < n; i++) {
        run_one(&tests[i]);
        failed |= report(&tests[i], i + 1);
    }
    return failed;
}

int ranks_end(int failed)
{
    signal(SIGTERM, SIG_DFL);
    MPI_Comm_free(&ours);
    MPI_Finalize();
    return failed && this_rank == 0 ? 1 : 0;
}

void expect_same_everywhere(const void *data, size_t bytes)
{
    void *const first = malloc(bytes + 1);
    assert_non_null(first);
    memcpy(first, data, bytes);
    MPI_Bcast(first, (int)bytes, MPI_BYTE, 0, ours);
    expect_bytes(data, first, bytes);
    free(first);
}
