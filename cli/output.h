/*
 * An output file. A regular file is written under a temporary name in the same folder and renamed, so that its name is
 * either the whole new file or the old one; links are followed first. Anything else (a pipe, a device, a descriptor by the name of
 * /dev/stdout) is written directly.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>

struct output {
    int fd;
    bool direct;           /* without a temporary file */
    char target[PATH_MAX]; /* the path without links */
};

/*
 * Opens it; returns 0 or an errno. A new file follows the umask; one that replaces another has its mode and, where
 * allowed, its owner. Until output_close a signal that ends the program removes the temporary file. One at a time.
 */
int output_open(struct output *output, const char *path);

/* Ends it. `error` is 0, or the errno of a write that failed: then the target is unchanged. Returns 0 or an errno. */
int output_close(struct output *output, int error);

/* Whether the path names the standard output: then nothing else may be printed there. */
bool output_is_stdout(const char *path);
