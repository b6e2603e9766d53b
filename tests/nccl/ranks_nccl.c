/*
 * Processes connected by NCCL: SWITCHYARD_RANKS of them, started by ranks_begin, which talk about the tests through shared memory.
 * The program that started them waits for their end. All use CUDA device 0: NCCL accepts several processes on a device when each seems
 * to be on a machine of its own.
 */
#include "ranks_nccl.h"

#include "support_memory.h"

#include "transports/nccl/transport.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_RANKS = 8, PART_BYTES = 8192 };

static struct {
    _Atomic int arrived, absent,
        failed; /* processes in a barrier, without a device; one has ended with an error */
    char part[MOST_RANKS][PART_BYTES];
    ncclUniqueId id;
} * board;

ncclComm_t ranks_nccl;
static int n_barriers;

/* All processes have come here. */
static void meet(void)
{
    n_barriers++;
    atomic_fetch_add(&board->arrived, 1);
    while (atomic_load(&board->arrived) < n_barriers * n_ranks) {
        if (atomic_load(&board->failed))
            _exit(1);
        sched_yield();
    }
}

void ranks_gather(const void *mine, size_t bytes, void *all)
{
    for (size_t at = 0; at < bytes; at += PART_BYTES) {
        const size_t n = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
        memcpy(board->part[this_rank], (const char *)mine + at, n);
        meet();
        for (int r = 0; r < n_ranks; r++)
            memcpy((char *)all + (size_t)r * bytes + at, board->part[r], n);
        meet();
    }
}

/* Waits for all processes. A stopped one is killed when the others have ended; one that was killed is the test's intent. */
static int supervise(const pid_t *pid)
{
    int code = 0;
    for (int left = n_ranks; left > 0;) {
        int status;
        const pid_t ended = waitpid(-1, &status, WUNTRACED);
        if (ended < 0)
            return 1;
        left--;
        if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
            code = WEXITSTATUS(status);
        if (WIFSIGNALED(status) && WTERMSIG(status) != SIGKILL)
            code = 1;
        if (code != 0)
            atomic_store(&board->failed, 1); /* the others may wait for it */
    }
    for (int r = 0; r < n_ranks; r++)
        kill(pid[r], SIGKILL); /* ended ones are not there any more, except those that stopped */
    return code;
}

/* One whose calls do not block: the first collective of another waits for all processes, without a limit. */
ncclComm_t ranks_nccl_new(void)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t made = NULL;
    config.blocking = 0;
    meet();
    if (this_rank == 0)
        assert_int_equal(ncclGetUniqueId(&board->id), ncclSuccess);
    meet();
    ncclResult_t state = ncclCommInitRankConfig(&made, n_ranks, board->id, this_rank, &config);
    while (state == ncclInProgress) {
        sched_yield();
        ncclCommGetAsyncError(made, &state);
    }
    if (state != ncclSuccess)
        fail_msg("ncclCommInitRankConfig: %s, %s", ncclGetErrorString(state), ncclGetLastError(made));
    return made;
}

void ranks_open(void)
{
    const char *const given = getenv("SWITCHYARD_RANKS");
    pid_t pid[MOST_RANKS];
    n_ranks = given != NULL ? (int)strtol(given, NULL, 10) : 2;
    board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (n_ranks < 1 || n_ranks > MOST_RANKS || board == MAP_FAILED)
        exit(2);
    fflush(stdout);
    for (int r = 0; r < n_ranks; r++) {
        pid[r] = fork();
        if (pid[r] < 0)
            exit(2);
        if (pid[r] == 0) {
            char host[32];
            this_rank = r;
            snprintf(host, sizeof host, "switchyard-%d", r);
            setenv("NCCL_HOSTID", host, 0);
            setenv("NCCL_SOCKET_IFNAME", "lo", 0);
            const cudaError_t found = cudaSetDevice(0);
            atomic_fetch_add(&board->absent, found != cudaSuccess);
            meet();
            const int absent = atomic_load(&board->absent);
            if (absent == n_ranks && r == 0)
                printf("1..1\nok 1 - NCCL # SKIP no CUDA device\n");
            if (absent < n_ranks && found != cudaSuccess)
                fprintf(stderr, "process %d has no CUDA device: %s\n", r, cudaGetErrorString(found));
            if (absent > 0)
                exit(absent < n_ranks);
            ranks_nccl = ranks_nccl_new();
            return;
        }
    }
    exit(supervise(pid));
}

void ranks_close(void)
{
    ncclCommAbort(ranks_nccl); /* ncclCommDestroy comes after ncclCommFinalize, which waits for all */
}

sy_status ranks_comm(sy_comm **comm, sy_mesh mesh, const sy_comm_options *options)
{
    const sy_nccl_options o = {.comm = *options};
    return sy_comm_create_nccl(comm, ranks_nccl, mesh, &o);
}

sy_transport ranks_transport(sy_mesh mesh)
{
    static struct allocator usual;
    struct syi_nccl *made = NULL;
    char sentence[SYI_SENTENCE] = "";
    const sy_nccl_options o = {.comm = limited_options(&usual)};
    const sy_status status = syi_nccl_open(&made, ranks_nccl, mesh, &o, SY_OK, sentence);
    if (status != SY_OK)
        fail_msg("%s: %s", sy_status_name(status), sentence);
    return made->common.transport;
}
