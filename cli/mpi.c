/*
 * The program `switchyard-mpi`: the command line as one of the processes of an MPI job. `switchyard` turns into it under
 * mpirun; nothing else of the command line knows MPI.
 *
 * The first process prints for all. What another one says is kept, and told by the first if only that one has failed,
 * as when a machine does not see the file.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <switchyard_mpi.h>

#include "bench/mpi/mpi_bench.h"
#include "cli.h"
#include "team.h"

enum { TAG_SAID = 1, TAG_OUTPUT = 2, SAID_BYTES = 2048, CHUNK_BYTES = 1 << 30 };

/* Where a process is: what it runs, and how often it has agreed. Processes at different places would wait for each
   other in different calls. */
struct place {
    int step; /* ENDED after the command */
    char task[64];
};

enum { ENDED = -1 };

static struct {
    MPI_Comm comm; /* of these messages alone */
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

/* What this process has said, from the file behind its stderr. */
static void tell_first(void)
{
    char said[SAID_BYTES] = "";
    fflush(stderr);
    const ssize_t length = pread(STDERR_FILENO, said, sizeof said - 1, 0);
    said[length > 0 ? length : 0] = '\0';
    MPI_Send(said, SAID_BYTES, MPI_CHAR, 0, TAG_SAID, job.comm);
}

static void repeat(int rank)
{
    static const char prefix[] = "switchyard: ";
    char said[SAID_BYTES] = "";
    MPI_Recv(said, SAID_BYTES, MPI_CHAR, rank, TAG_SAID, job.comm, MPI_STATUS_IGNORE);
    const size_t skip = strncmp(said, prefix, strlen(prefix)) == 0 ? strlen(prefix) : 0;
    fprintf(stderr, "%srank %d: %s", prefix, rank, said[skip] != '\0' ? said + skip : "failed\n");
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
        tell_first();
    if (first > 0 && rank == 0)
        repeat(first);
    MPI_Bcast(&code, 1, MPI_INT, first, job.comm);
    job.failed = true;
    job.code = code;
    return code;
}

/* The last agreement, for a process that has ended before the others, and for what went wrong at the very end. */
static int agree_at_end(int code)
{
    job.place = (struct place){.step = ENDED};
    return agree(code);
}

static void bring(void *data, size_t bytes, int from)
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

/* Sends what is printed into nowhere, and what is complained about into a file that nobody else sees. */
static void be_quiet(void)
{
    const int nowhere = open("/dev/null", O_WRONLY);
    FILE *const said = tmpfile();
    dup2(nowhere, STDOUT_FILENO);
    dup2(said ? fileno(said) : nowhere, STDERR_FILENO);
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
        .bring = bring,
#if SWITCHYARD_BENCH
        .bench = command_bench_mpi,
        .demo = command_demo_mpi
#endif
    };
    struct common common = {.team = &team};
    const int own_stderr = dup(STDERR_FILENO);
    if (team.rank > 0)
        be_quiet();
    const int code = agree_at_end(command_line(&common, argc, argv));
    fflush(stderr);
    dup2(own_stderr, STDERR_FILENO); /* what MPI or a sanitizer says at the end is for everybody */
    MPI_Comm_free(&job.comm);
    MPI_Finalize();
    return code;
}
