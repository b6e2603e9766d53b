/*
 * From positions of sequences to slots of a paged cache: judged and translated in one place for every operator that
 * asks by position.
 */
#ifndef SYI_CPU_KV_PAGES_H
#define SYI_CPU_KV_PAGES_H

#include "cpu/backend.h"
#include "cpu/kv_rows.h"

/* What holds for a whole index row. */
struct syi_kv_sequence {
    const unsigned char *indices, *table;
    int64_t columns; /* entries of `table` */
    int64_t live;    /* positions from here on are padding */
    int64_t length;  /* logical tokens */
};

/* Without its indices, which not every operator has. */
struct syi_kv_sequence syi_kv_sequence_at(const struct syi_kv_pages *pages, int64_t b);

/* Only what a row of the table, or a list, tells. */
struct syi_kv_sequence syi_kv_row_at(const struct syi_kv_pages *pages, int64_t r);

/* The first fault of page lists: they follow each other inside the pages, and last pages hold 1 to S tokens. */
sy_fault syi_kv_judge_lists(const struct syi_kv_pages *pages);

/* The first fault of page lists, then of lengths and table rows, in order of b; status OK when there is none. */
sy_fault syi_kv_judge_sequences(const struct syi_kv_pages *pages);

/* What is wrong with a token of a sequence, without its place; status OK when nothing is. Every number is judged as
   64 bits before it is multiplied. */
sy_fault syi_kv_fault_of(const struct syi_kv_pages *pages, const struct syi_kv_sequence *sequence, int64_t t);

/* Judges all sequences, then all positions, on n_tasks tasks; `fault` is scratch, one for each. Fails with the
   sentence of the first fault in order. */
sy_status syi_kv_judge(sy_ctx *ctx, const struct syi_kv_pages *pages, int n_tasks, sy_fault *fault);

/* Fails with the sentence of a fault. */
sy_status syi_kv_refuse(sy_ctx *ctx, const struct syi_kv_pages *pages, const sy_fault *fault);

/* Walks the positions of a task, a chunk of one sequence at a time. */
struct syi_kv_walk {
    int64_t flat, end; /* positions from `flat` on are not translated yet */
    int64_t b;
    struct syi_kv_sequence sequence;
    int64_t n; /* positions of the chunk, the last before `flat` */
};

void syi_kv_walk_begin(struct syi_kv_walk *w, const struct syi_kv_pages *pages, int n_tasks, int task);

/* Translates the next chunk of at most `room` positions: slots, -1 for padding. False, and -1 there, when a position is
   a fault. */
bool syi_kv_walk_on(struct syi_kv_walk *w, const struct syi_kv_pages *pages, int64_t *slot, int64_t room);

#endif
