/*
 * Memory that the processes of one machine share: a POSIX shared memory object of each process, mapped by all. It is
 * allocated in full when it is made, so that a full shared memory file system is an error here and not a signal later.
 * Its name is removed as soon as all processes have mapped it: a process that is killed later leaves no object.
 */
#include "transport.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* What another process needs to find an object and to verify that it is the right one: on another machine, or in
   another container, a different object may have the same name. */
struct token {
    uint64_t bytes; /* of the whole object; the mark is its end */
    uint64_t mark[2];
    char name[64];
};
_Static_assert(sizeof(struct token) <= SY_SHARE_TOKEN_BYTES, "a token fits");

enum { MARK_BYTES = sizeof((struct token){0}.mark) };

static bool fail(struct syi_mpi *self, size_t bytes, const char *what)
{
    char words[128] = "unknown error";
    (void)!strerror_r(errno, words, sizeof words);
    snprintf(self->common.error, sizeof self->common.error, "mpi: %zu bytes cannot be shared: %s: %s", bytes,
             what, words);
    return false;
}

/* ---- Objects ---- */

static uint64_t stir(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* A name that is new as far as one process can know; creation is exclusive as well. */
static void choose_name(struct syi_mpi *self, struct token *t)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t pid = (uint64_t)getpid();
    t->mark[0] = stir((uint64_t)now.tv_sec * 1000000007 + (uint64_t)now.tv_nsec + (pid << 32));
    t->mark[1] = stir(t->mark[0] ^ (uint64_t)(uintptr_t)self ^ ++self->n_shares);
    snprintf(t->name, sizeof t->name, "/switchyard-%llu-%016llx", (unsigned long long)pid,
             (unsigned long long)t->mark[1]);
}

/* Allocates all pages or fails: a missing page would otherwise be noticed only when it is written to. */
static bool allocate(struct syi_mpi *self, int fd, size_t bytes)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes) {
        errno = EFBIG; /* prevents the signal */
        return fail(self, bytes, "the limit on file sizes");
    }
    if (ftruncate(fd, (off_t)bytes) != 0)
        return fail(self, bytes, "ftruncate");
    /* Some kernels release what a call has allocated when a signal arrives: short pieces end before the next one. */
    for (size_t at = 0, piece = bytes; at < bytes;) {
        const size_t n = bytes - at < piece ? bytes - at : piece;
        errno = posix_fallocate(fd, (off_t)at, (off_t)n);
        if (errno != 0 && errno != EINTR)
            return fail(self, bytes, "posix_fallocate");
        at += errno == 0 ? n : 0;
        piece = errno == EINTR && piece > 4096 ? piece / 2 : piece;
    }
    return true;
}

static bool map(struct syi_mpi *self, int fd, size_t bytes, int protection, struct syi_mpi_mapping *to)
{
    void *at = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return fail(self, bytes, "mmap");
    *to = (struct syi_mpi_mapping){at, bytes};
    return true;
}

static bool make_object(struct syi_mpi *self, struct token *t, struct syi_mpi_segment *s)
{
    int fd = -1;
    for (int tries = 0; fd < 0 && tries < 16; tries++) {
        choose_name(self, t);
        fd = shm_open(t->name, O_RDWR | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0)
        return fail(self, (size_t)t->bytes, "shm_open");
    memcpy(s->name, t->name, sizeof s->name);
    struct syi_mpi_mapping *const own = &s->of[self->common.transport.device];
    const bool ok =
        allocate(self, fd, (size_t)t->bytes) && map(self, fd, (size_t)t->bytes, PROT_READ | PROT_WRITE, own);
    close(fd);
    if (ok)
        memcpy((unsigned char *)own->at + own->bytes - MARK_BYTES, t->mark, MARK_BYTES);
    return ok;
}

/* Maps the object of another process for reading. */
static bool find_object(struct syi_mpi *self, const struct token *t, struct syi_mpi_mapping *to)
{
    struct stat found;
    const int fd = shm_open(t->name, O_RDONLY, 0);
    if (fd < 0)
        return fail(self, (size_t)t->bytes, "shm_open of another process's memory");
    bool ok = fstat(fd, &found) == 0 && (uint64_t)found.st_size == t->bytes && t->bytes >= MARK_BYTES;
    errno = ok ? 0 : ENOENT;
    ok = ok ? map(self, fd, (size_t)t->bytes, PROT_READ, to) : fail(self, (size_t)t->bytes, t->name);
    close(fd);
    if (!ok || memcmp((unsigned char *)to->at + to->bytes - MARK_BYTES, t->mark, MARK_BYTES) == 0)
        return ok;
    errno = ENOENT;
    return fail(self, (size_t)t->bytes, t->name);
}

/* ---- Segments ---- */

sy_status syi_mpi_share(void *self, size_t bytes, unsigned char token[SY_SHARE_TOKEN_BYTES], void **segment)
{
    struct syi_mpi *const mpi = self;
    const size_t n = (size_t)syi_common_group_size(&mpi->common, SY_AXIS_ALL);
    const size_t struct_bytes = sizeof(struct syi_mpi_segment) + n * sizeof(struct syi_mpi_mapping);
    struct token t = {.bytes = 0};
    *segment = NULL;
    if (bytes > PTRDIFF_MAX / 2) {
        errno = EFBIG;
        fail(mpi, bytes, "too many");
        return SY_ERR_NOMEM;
    }
    struct syi_mpi_segment *const made = mpi->common.alloc(mpi->common.alloc_user, struct_bytes);
    if (made == NULL) {
        snprintf(mpi->common.error, sizeof mpi->common.error, "mpi: no memory for a segment");
        return SY_ERR_NOMEM;
    }
    memset(made, 0, struct_bytes);
    made->next = mpi->segments;
    mpi->segments = made;
    t.bytes = bytes + MARK_BYTES;
    if (!make_object(mpi, &t, made)) {
        syi_mpi_unshare(mpi, made);
        return SY_ERR_NOMEM;
    }
    memset(token, 0, SY_SHARE_TOKEN_BYTES);
    memcpy(token, &t, sizeof t);
    *segment = made;
    return SY_OK;
}

sy_status syi_mpi_attach(void *self, void *segment, const unsigned char *tokens, void **base)
{
    struct syi_mpi *const mpi = self;
    struct syi_mpi_segment *const s = segment;
    const int n = syi_common_group_size(&mpi->common, SY_AXIS_ALL);
    for (int d = 0; d < n; d++) {
        struct token t;
        memcpy(&t, tokens + (size_t)d * SY_SHARE_TOKEN_BYTES, sizeof t);
        t.name[sizeof t.name - 1] = '\0';
        if (d != mpi->common.transport.device && !find_object(mpi, &t, &s->of[d]))
            return SY_ERR_NOMEM;
        base[d] = s->of[d].at;
    }
    return SY_OK;
}

void syi_mpi_settle(void *self, void *segment)
{
    struct syi_mpi_segment *const s = segment;
    (void)self;
    if (s->name[0] != '\0')
        shm_unlink(s->name);
    s->name[0] = '\0';
}

void syi_mpi_unshare(void *self, void *segment)
{
    struct syi_mpi *const mpi = self;
    struct syi_mpi_segment *const gone = segment;
    struct syi_mpi_segment **link = &mpi->segments;
    while (*link != gone)
        link = &(*link)->next;
    *link = gone->next;
    syi_mpi_settle(mpi, gone);
    const int n = syi_common_group_size(&mpi->common, SY_AXIS_ALL);
    for (int d = 0; d < n; d++)
        if (gone->of[d].at != NULL)
            munmap(gone->of[d].at, gone->of[d].bytes);
    mpi->common.dealloc(mpi->common.alloc_user, gone);
}

/* ---- Whether it works ---- */

/* Collective: whether it is true in all processes; the status is COMM or TIMEOUT where the agreement fails. */
static sy_status in_all(struct syi_mpi *self, bool mine, bool *all)
{
    char words[SYI_SENTENCE] = "";
    const sy_status st = syi_mpi_agree(self, mine ? SY_OK : SY_ERR_NOMEM, words);
    *all = st == SY_OK;
    if (st != SY_ERR_COMM && st != SY_ERR_TIMEOUT)
        return SY_OK;
    memcpy(self->common.error, words, SYI_SENTENCE);
    self->failed = true;
    return st;
}

/* A trial with the board detects machines where memory cannot be shared (such as containers without a shared memory file
   system) and processes on different machines. */
sy_status syi_mpi_can_share(struct syi_mpi *self, bool *can)
{
    const size_t n = (size_t)syi_common_group_size(&self->common, SY_AXIS_ALL);
    unsigned char *const mine = self->buffers.token;
    void *segment = NULL;
    unsigned char *const tokens =
        self->common.alloc(self->common.alloc_user, n * (SY_SHARE_TOKEN_BYTES + sizeof(void *)));
    void **const base = (void **)(void *)(tokens != NULL ? tokens + n * SY_SHARE_TOKEN_BYTES : NULL);
    const bool made = tokens != NULL && syi_mpi_share(self, syi_mpi_board_bytes(), mine, &segment) == SY_OK;
    sy_status st = in_all(self, made, can);
    if (st == SY_OK && *can && tokens != NULL && segment != NULL) {
        MPI_Request request = MPI_REQUEST_NULL;
        const int code = MPI_Iallgather(mine, SY_SHARE_TOKEN_BYTES, MPI_BYTE, tokens, SY_SHARE_TOKEN_BYTES,
                                        MPI_BYTE, self->base, &request);
        /* NOLINTNEXTLINE(clang-analyzer-optin.mpi.MPI-Checker): syi_mpi_wait waits for it */
        st = syi_mpi_wait(self, code, &request, "MPI_Iallgather", self->common.error);
        if (st == SY_OK)
            st = in_all(self, syi_mpi_attach(self, segment, tokens, base) == SY_OK, can);
    }
    if (st == SY_OK && *can && segment != NULL) {
        self->board = segment;
        syi_mpi_settle(self, segment);
    } else if (segment != NULL) {
        syi_mpi_unshare(self, segment);
    }
    if (tokens != NULL && st != SY_ERR_TIMEOUT) /* MPI may still write to it */
        self->common.dealloc(self->common.alloc_user, tokens);
    return st;
}
