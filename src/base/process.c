/*
 * What the system knows about this process, and about time.
 */
#include "base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/*
 * Linux keeps a flag for it (PF_FORKNOEXEC) and shows it as the ninth field of /proc/self/stat. The second
 * field is the program's name in parentheses and may hold anything, so fields are counted from the last
 * parenthesis.
 */
bool syi_forked(void)
{
    enum { FLAGS_FIELD = 9, NAME_FIELD = 2, FORKED_NO_EXEC = 0x40 };
    char text[512];
    const int file = open("/proc/self/stat", O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    ssize_t n;
    do
        n = read(file, text, sizeof text - 1);
    while (n < 0 && errno == EINTR);
    close(file);
    if (n <= 0)
        return false;
    text[n] = '\0';
    const char *at = strrchr(text, ')');
    for (int field = NAME_FIELD; at != NULL && field < FLAGS_FIELD; field++)
        at = strchr(at + 1, ' ');
    return at != NULL && (strtoul(at, NULL, 10) & FORKED_NO_EXEC) != 0;
}

uint64_t syi_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}
