/*
 * The program of a folder of tests: its first argument is the name of a file, whose group of tests runs with the rest of the
 * arguments. The build defines TEST_GROUPS: X(name) for each file.
 */
#include "groups.h"

#include <stdio.h>
#include <string.h>

#define X(name) int group_##name(int argc, char **argv);
TEST_GROUPS
#undef X

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} groups[] = {
#define X(name) {#name, group_##name},
    TEST_GROUPS
#undef X
};

int main(int argc, char **argv)
{
    const size_t n = sizeof groups / sizeof *groups;
    for (size_t i = 0; i < n && argc > 1; i++)
        if (strcmp(groups[i].name, argv[1]) == 0)
            return groups[i].run(argc - 1, argv + 1);
    fprintf(stderr, "usage: %s GROUP, one of", argv[0]);
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, " %s", groups[i].name);
    fprintf(stderr, "\n");
    return 2;
}
