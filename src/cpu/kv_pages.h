/*
 * From positions of sequences to slots of a paged cache: validated and translated in one place for every operator that addresses by
 * position.
 *
 *     sequence b: position t  -->  page number t / S of its list  -->  entry of the table  -->  slot = page * S + t % S
 *
 *     table, as rows:   [ 7 | 3 | 9 | . ]  one row of page ids for each sequence, its length beside it
 *     table, as lists:  indices [7 3 9 | 2 | ...], indptr [0 3 4 ...]: pages of b are [indptr[b], indptr[b+1]), the last has 1..S tokens
 *
 * Invariants
 * - All positions of a call are validated before the first slot is used; the first fault is that of the lowest b, then of the lowest t.
 * - Every number is validated as 64 bits before it is multiplied; a valid slot is below pages * S.
 *
 * Terms: S is the tokens of a page; a slot is a row of the cache; a sequence is the pages of one b, with its length.
 */
#pragma once

#include "cpu/kv_rows.h"

/* Without its indices, which not every operator has. */
struct syi_kv_sequence syi_kv_sequence_at(const struct syi_kv_pages *pages, int64_t b);

/* Only the properties of a table row, or a list. */
struct syi_kv_sequence syi_kv_row_at(const struct syi_kv_pages *pages, int64_t r);

/* The first fault of page lists: they follow each other inside the pages, and last pages hold 1 to S tokens. */
struct syi_found syi_kv_validate_lists(const struct syi_kv_pages *pages);

/* The first fault of page lists, then of lengths and table rows, in order of b. */
struct syi_found syi_kv_validate_sequences(const struct syi_kv_pages *pages);

/* The fault of a token of a sequence, without its place. Every number is validated as 64 bits before it is
   multiplied. */
struct syi_found syi_kv_fault_of(const struct syi_kv_pages *pages, const struct syi_kv_sequence *sequence,
                                 int64_t t);

/*
 * Slots are written only after all positions were validated, which translates them. An operator whose output is the
 * slots keeps those that each task translates first, as they will be written: all of a small call, so that only the
 * rest of a large one is translated again.
 */
struct syi_kv_kept {
    unsigned char *data; /* [task][bytes] */
    size_t bytes;
    sy_type type;
};

/* Takes the memory for n slots of any type on n_tasks tasks. */
struct syi_kv_kept syi_kv_take_kept(struct syi_arena *arena, int64_t n, int n_tasks, sy_type type);

/* The place where n slots of a task are kept, after `done` others; NULL: they are not kept. */
static inline unsigned char *syi_kv_kept_at(const struct syi_kv_kept *kept, int task, int64_t done, int64_t n)
{
    const size_t width = kept->type == SY_TYPE_I32 ? 4 : 8;
    return (size_t)(done + n) * width <= kept->bytes
               ? kept->data + (size_t)task * kept->bytes + (size_t)done * width
               : NULL;
}

/* Validates all sequences, then all positions, on n_tasks tasks; `found` is scratch, one for each. Reports the
   first fault in order. `kept` may be NULL. */
sy_status syi_kv_validate(sy_ctx *ctx, const struct syi_kv_pages *pages, int n_tasks, struct syi_found *found,
                          const struct syi_kv_kept *kept);

/* The slots of n tokens by the kernel. False when one of them is padding or a fault, or 32 bits do not hold the numbers. */
enum { SYI_KV_FIND = 128 };
struct syi_kv_find {
    struct syi_kv_sequence first; /* a list, or the first of so many rows of a table */
    int64_t rows;
    const unsigned char *token, *row; /* row NULL: all tokens are of the first */
    sy_type row_type;
    int64_t n;
    unsigned char *slot;
    sy_type type; /* of slots */
};
bool syi_kv_find_slots(const struct syi_kernels *kernels, const struct syi_kv_pages *pages,
                       const struct syi_kv_find *find);

void syi_kv_store(unsigned char *to, sy_type type, int64_t n, const int64_t *slot);

/* Walks the positions of a task, a chunk of one sequence at a time. */
struct syi_kv_walk {
    const struct syi_kernels *kernels;
    int64_t flat, end; /* positions from `flat` on are not translated yet */
    int64_t b, j, n;   /* the chunk: n positions from j on of row b, the last before `flat` */
    struct syi_kv_sequence sequence;
};

void syi_kv_walk_begin(struct syi_kv_walk *w, const struct syi_kernels *kernels,
                       const struct syi_kv_pages *pages, int n_tasks, int task);

/* The next chunk, without translating it. */
void syi_kv_walk_next(struct syi_kv_walk *w, const struct syi_kv_pages *pages, int64_t capacity);

/* Translates the next chunk of at most `capacity` positions: slots, -1 for padding. False, and -1 there, when a position is
   a fault. */
bool syi_kv_walk_on(struct syi_kv_walk *w, const struct syi_kv_pages *pages, int64_t *slot, int64_t capacity);
