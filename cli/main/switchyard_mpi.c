/*
 * The program `switchyard-mpi`: the command line as one of the processes of an MPI job. `switchyard` executes it under
 * mpirun; no other part of the command line uses MPI.
 *
 * The first process prints for all. Error messages of the others are kept, and the first prints one if only that process
 * has failed, for example because its machine does not have the file.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <switchyard_mpi.h>

#include "bench/mpi/mpi_bench.h"
#include "cli/cli.h"

enum { TAG_MESSAGE = 1, TAG_OUTPUT = 2, MESSAGE_BYTES = 2048, CHUNK_BYTES = 1 << 30 };

/* The state of a process: what it runs, and how often it has agreed. Processes in different states would wait for each
   other in different calls. */
struct place {
    int step; /* ENDED after the command */
    char task[64];
};

enum { ENDED = -1 };

static struct {
    MPI_Comm comm; /* used only for these messages */
    struct place place;
    bool failed;
    int code;
} job;

static int world_rank(void)
{
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

static sy_status connect_all(sy_comm **comm, sy_mesh mesh, const sy_comm_options *options)
{
    const sy_mpi_options with_mpi = {.comm = *options};
    return sy_comm_create_mpi(comm, MPI_COMM_WORLD, mesh, &with_mpi);
}

/* Sends the error messages of this process, read from the file that is its stderr. */
static void send_message(void)
{
    char text[MESSAGE_BYTES] = "";
    fflush(stderr);
    const ssize_t length = pread(STDERR_FILENO, text, sizeof text - 1, 0);
    text[length > 0 ? length : 0] = '\0';
    MPI_Send(text, MESSAGE_BYTES, MPI_CHAR, 0, TAG_MESSAGE, job.comm);
}

static void repeat(int rank)
{
    static const char prefix[] = "switchyard: ";
    char text[MESSAGE_BYTES] = "";
    MPI_Recv(text, MESSAGE_BYTES, MPI_CHAR, rank, TAG_MESSAGE, job.comm, MPI_STATUS_IGNORE);
    const size_t skip = strncmp(text, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0;
    fprintf(stderr, "%srank %d: %s", prefix, rank, text[skip] != '\0' ? text + skip : "failed\n");
}

static int compare_places(int code)
{
    struct place first = job.place;
    MPI_Bcast(&first, sizeof first, MPI_BYTE, 0, job.comm);
    if (code != EXIT_DONE || memcmp(&first, &job.place, sizeof first) == 0)
        return code;
    return plain_error("this line runs %s, want %s as in rank 0",
                       job.place.step == ENDED ? "nothing" : job.place.task,
                       first.step == ENDED ? "nothing" : first.task);
}

static int agree(int code)
{
    if (job.failed)
        return job.code;
    code = compare_places(code);
    const int rank = world_rank(), mine = code == EXIT_DONE ? INT_MAX : rank;
    int first = INT_MAX;
    MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, job.comm);
    job.place.step++;
    if (first == INT_MAX)
        return EXIT_DONE;
    if (first > 0 && rank == first)
        send_message();
    if (first > 0 && rank == 0)
        repeat(first);
    MPI_Bcast(&code, 1, MPI_INT, first, job.comm);
    job.failed = true;
    job.code = code;
    return code;
}

/* The last agreement, for a process that has ended before the others, and for errors at the very end. */
static int agree_at_end(int code)
{
    job.place = (struct place){.step = ENDED};
    return agree(code);
}

static void collect(void *data, size_t bytes, int from)
{
    const bool first = world_rank() == 0;
    for (size_t done = 0; done < bytes;) {
        const int n = bytes - done < CHUNK_BYTES ? (int)(bytes - done) : CHUNK_BYTES;
        char *const part = (char *)data + done;
        if (first)
            MPI_Recv(part, n, MPI_BYTE, from, TAG_OUTPUT, job.comm, MPI_STATUS_IGNORE);
        else
            MPI_Send(part, n, MPI_BYTE, 0, TAG_OUTPUT, job.comm);
        done += (size_t)n;
    }
}

/* Discards standard output, and redirects error messages to a private file. */
static void redirect_output(void)
{
    const int nowhere = open("/dev/null", O_WRONLY);
    FILE *const text = tmpfile();
    dup2(nowhere, STDOUT_FILENO);
    dup2(text ? fileno(text) : nowhere, STDERR_FILENO);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_dup(MPI_COMM_WORLD, &job.comm);
    const char *const task = team_task(argc, argv);
    snprintf(job.place.task, sizeof job.place.task, "%s", task ? task : "nothing");
    const struct team team = {
        .rank = world_rank(),
        .connect = connect_all,
        .agree = agree,
        .collect = collect,
#if SWITCHYARD_BENCH
        .bench = command_bench_mpi,
        .demo = command_demo_mpi
#endif
    };
    struct common common = {.team = &team};
    const int own_stderr = dup(STDERR_FILENO);
    if (team.rank > 0)
        redirect_output();
    const int code = agree_at_end(command_line(&common, more_commands, argc, argv));
    fflush(stderr);
    dup2(own_stderr, STDERR_FILENO); /* messages of MPI or a sanitizer at the end are shown */
    MPI_Comm_free(&job.comm);
    MPI_Finalize();
    return code;
}
