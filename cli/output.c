/*
 * Output files: links, temporary files, and their removal when a signal ends the program.
 */
#define _XOPEN_SOURCE 700 /* readlink, fchown, SIGHUP */

#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "number.h"

enum { MAX_LINKS = 40, MAX_TRIES = 100 };

/* ---- Paths ---- */

/* The number in /dev/fd/3 and its relatives; -1 for any other path. */
static int descriptor(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
    int64_t number = -1;
    if (strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0)
        return STDERR_FILENO;
    for (int i = 0; i < 2; i++) {
        const size_t length = strlen(folders[i]);
        if (strncmp(path, folders[i], length) == 0 && parse_int64(path + length, &number) &&
            number <= INT_MAX)
            return (int)number;
    }
    return -1;
}

static size_t folder_length(const char *path)
{
    const char *const slash = strrchr(path, '/');
    return slash ? (size_t)(slash - path) + 1 : 0;
}

/* The path without the links at its end, also when no such file exists. Stops at the name of a descriptor. */
static int follow(const char *path, char target[PATH_MAX])
{
    char link[PATH_MAX], next[2 * PATH_MAX];
    if (strlen(path) >= PATH_MAX)
        return ENAMETOOLONG;
    memcpy(target, path, strlen(path) + 1);
    for (int links = 0; links < MAX_LINKS; links++) {
        const ssize_t length = descriptor(target) < 0 ? readlink(target, link, sizeof link - 1) : -1;
        if (length < 0) /* no link, or no such file; opening it reports other errors */
            return 0;
        link[length] = '\0';
        snprintf(next, sizeof next, "%.*s%s", link[0] == '/' ? 0 : (int)folder_length(target), target, link);
        if (strlen(next) >= PATH_MAX)
            return ENAMETOOLONG;
        memcpy(target, next, strlen(next) + 1);
    }
    return ELOOP;
}

bool output_is_stdout(const char *path)
{
    char target[PATH_MAX];
    return follow(path, target) == 0 && descriptor(target) == STDOUT_FILENO;
}

/* ---- Signals ---- */

static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGTERM};
enum { N_SIGNALS = sizeof signals / sizeof signals[0] };

/* State of the handler, which may run in any thread at any time; `state` synchronises it with the opener. */
enum { IDLE = -1, OPENING = -2, OPEN = -3 }; /* or the number of a signal that arrived while opening */
static atomic_int state = IDLE;
static char temporary[PATH_MAX + 64];
static struct sigaction old_actions[N_SIGNALS];

/* Calls only async-signal-safe functions. The signal is blocked until the return, and then ends the program. */
static void on_signal(int number)
{
    int expected = OPENING;
    if (atomic_compare_exchange_strong(&state, &expected, number))
        return; /* the opener raises it again */
    if (expected == OPEN)
        unlink(temporary);
    signal(number, SIG_DFL);
    raise(number);
}

/* A signal that is ignored, as under nohup, or that already has a handler is left unchanged. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    for (int i = 0; i < N_SIGNALS; i++)
        if (sigaction(signals[i], NULL, &old_actions[i]) == 0 && old_actions[i].sa_handler == SIG_DFL)
            sigaction(signals[i], &action, NULL);
}

static void release_signals(void)
{
    for (int i = 0; i < N_SIGNALS; i++)
        sigaction(signals[i], &old_actions[i], NULL);
}

/* ---- Temporary files ---- */

/* A short name in the folder of the target, whose own name may have the maximal length. */
static int create(const char *target, mode_t mode)
{
    int fd = -1;
    for (int i = 0; i < MAX_TRIES && fd < 0 && (i == 0 || errno == EEXIST); i++) {
        snprintf(temporary, sizeof temporary, "%.*s.switchyard.%ld.%d.tmp", (int)folder_length(target),
                 target, (long)getpid(), i);
        fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    }
    return fd;
}

/* Mode and owner of the file that will be replaced. Bits that would mean another owner or group are left out. */
static int copy_owner(int fd, const struct stat *old)
{
    mode_t kept = 07777;
    if (fchown(fd, old->st_uid, old->st_gid) != 0)
        kept = fchown(fd, (uid_t)-1, old->st_gid) == 0 ? 0777 : 0707;
    return fchmod(fd, old->st_mode & kept) == 0 ? 0 : errno;
}

/* Ends the use of a temporary file, which is removed unless it has been renamed. */
static void settle(bool renamed)
{
    if (!renamed)
        unlink(temporary);
    atomic_store(&state, IDLE);
    release_signals();
}

static int open_beside(struct output *output, const struct stat *old)
{
    int expected = OPENING;
    atomic_store(&state, OPENING);
    catch_signals();
    output->fd = create(output->target, old ? 0600 : 0666);
    int error = output->fd >= 0 ? 0 : errno;
    const bool calm = atomic_compare_exchange_strong(&state, &expected, error == 0 ? OPEN : IDLE);
    if (error == 0 && calm && old)
        error = copy_owner(output->fd, old);
    if (error == 0 && calm)
        return 0;
    if (output->fd >= 0)
        close(output->fd);
    settle(output->fd < 0);
    if (!calm)
        raise(expected);
    return error;
}

/* ---- Open and close ---- */

int output_open(struct output *output, const char *path)
{
    struct stat old;
    const int error = follow(path, output->target);
    if (error != 0)
        return error;
    const int number = descriptor(output->target);
    const bool exists = number < 0 && lstat(output->target, &old) == 0;
    output->direct = number >= 0 || (exists && !S_ISREG(old.st_mode));
    if (!output->direct)
        return open_beside(output, exists ? &old : NULL);
    output->fd = number >= 0 ? dup(number) : open(output->target, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    return output->fd >= 0 ? 0 : errno;
}

/* Flushes the new name to the disk. Not every file system can; without it the old file may reappear, whole. */
static void sync_folder(const char *target)
{
    char folder[PATH_MAX];
    const size_t length = folder_length(target);
    snprintf(folder, sizeof folder, "%.*s", length > 0 ? (int)length : 1, length > 0 ? target : ".");
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

int output_close(struct output *output, int error)
{
    /* EINVAL: not supported by the file system */
    if (error == 0 && !output->direct && fsync(output->fd) != 0 && errno != EINVAL)
        error = errno;
    if (close(output->fd) != 0 && error == 0)
        error = errno;
    if (output->direct)
        return error;
    if (error == 0 && rename(temporary, output->target) != 0)
        error = errno;
    settle(error == 0);
    if (error == 0)
        sync_folder(output->target);
    return error;
}
