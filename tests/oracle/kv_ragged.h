/*
 * Truth for kv_ragged: the lengths, then every token as kv_gather has it, where the library goes page by page.
 */
#ifndef SWITCHYARD_ORACLE_KV_RAGGED_H
#define SWITCHYARD_ORACLE_KV_RAGGED_H

#include "kv_gather.h"

struct ragged_case {
    struct gather_case gather; /* all but k, indices, counts and padded */
    int64_t out_rows;
    const int64_t *cu_lens; /* [batch + 1]     */
    const int64_t *starts;  /* [batch] or NULL */
};

/* Fills the slots of rows [out_rows] that cu_lens has, unless a fault is returned. */
struct gather_fault oracle_kv_ragged(const struct ragged_case *in, int64_t *slots);

#endif
