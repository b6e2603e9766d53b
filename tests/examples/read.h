/*
 * Reads a file of worked examples; README.md describes the format. A file that cannot be read ends the program with a
 * message that names the line.
 */
#pragma once

#include "support.h"

#define MAX_ALTERNATIVES 8
#define EXAMPLE_MAX_RANK 6

/* A line "name type shape: values" or "name: value"; continuation lines are part of the values. */
struct entry {
    const char *name;
    bool out;    /* "-> name ..." */
    bool none;   /* "-> name none": the call has no such output */
    bool own;    /* of this case, not of the one it is like */
    int n_types; /* 0: a scalar */
    sy_type types[MAX_ALTERNATIVES];
    int rank;
    int64_t shape[EXAMPLE_MAX_RANK];
    char *values; /* NULL: none, as in "-> name type shape" */
    int line;
};

struct example {
    const char *name;
    int line;
    struct entry *entries;
    int n_entries;
    bool for_c;        /* no mark excludes C */
    bool inferred;     /* no mark "not inferred" */
    const char *query; /* the text after "query", or NULL */
    bool rejected;     /* the fault is expected; status is a name of sy_status_name */
    const char *status, *code, *argument, *sentence;
    int64_t numbers[4]; /* batch, position, value, limit */
    char **rows;        /* lines "with ...", "try ..." and "ask ...", of tests/compat */
    int n_rows;
};

struct examples {
    const char *path;
    struct example *list;
    int count;
};

struct examples examples_read(const char *path);
int example_alternatives(const struct example *ex);
const struct entry *example_entry(const struct example *ex, const char *name, bool out);

/* The dense values of an entry in alternative `alt`, over what `to` holds: "_" keeps an element. */
sy_type entry_type(const struct entry *entry, int alt);
DLDataType type_of(sy_type type);
void entry_values(const struct examples *file, const struct entry *entry, int alt, unsigned char *to);

/* The number of a name in pairs like "rows 6 slots 0"; `missing` where it is absent. */
int64_t pair_value(const char *pairs, const char *name, int64_t missing);

_Noreturn void bad_line(const struct examples *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
