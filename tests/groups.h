/*
 * TEST_GROUP(name) begins what would be the main of a file of tests: groups.c calls it. argv[1] is the first argument after the name.
 */
#pragma once

#define TEST_GROUP(name) \
    int group_##name(int argc, char **argv); \
    int group_##name(__attribute__((unused)) int argc, __attribute__((unused)) char **argv)
