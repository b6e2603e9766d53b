/*
 * The truth about sample_verify for one request, from the tokens that all its rows would give. Nothing is walked: of every
 * row it is decided whether the tokens of its ancestors lead to it, and the rows that are led to are sorted by depth.
 */
#ifndef SWITCHYARD_TESTS_ORACLE_SAMPLE_VERIFY_H
#define SWITCHYARD_TESTS_ORACLE_SAMPLE_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

struct verify_request {
    int64_t n;             /* rows */
    const int64_t *parent; /* [n] entry 0 is not read; NULL: a chain */
    const int64_t *draft;  /* [n] the same */
    const int64_t *picked; /* [n] what sample picks from each row */
    const bool *empty;     /* [n] the row has no candidate */
    int64_t n_stop;
    const int64_t *stop;
};

struct verify_result {
    int64_t accepted, count;
    int64_t *path;       /* [n] rows of the tokens, -1 after them */
    bool *accepted_rows; /* [n] */
};

void oracle_sample_verify(const struct verify_request *of, struct verify_result *to);

#endif
