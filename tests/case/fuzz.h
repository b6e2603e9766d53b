/*
 * Random wrong calls, of random numbers or of a fuzzer's bytes.
 */
#pragma once

#include "case.h"

struct trial {
    struct call *c;
    struct stream *s; /* of the choices below */
    char what[240];   /* what was changed */
    struct {
        sy_kv_format is;
        unsigned char more[16]; /* behind it, for a format that is longer */
    } format;
    sy_kv_plane planes[CASE_PLANES];
    bool no_args;
    size_t args_bytes, newer; /* newer > 0: this byte behind the arguments is not 0 */
    void *workspace;
    size_t workspace_bytes;
    _Alignas(64) unsigned char lent[1 << 14];
};

void corrupt_call(struct trial *t, int64_t places);
