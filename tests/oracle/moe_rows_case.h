/*
 * Random cases for moe_unpermute and the gradients: sizes, map, indices and probs, from a permutation or made by hand
 * with repeats, holes and faults; and numbers on which arithmetic breaks.
 */
#ifndef SWITCHYARD_ORACLE_MOE_ROWS_CASE_H
#define SWITCHYARD_ORACLE_MOE_ROWS_CASE_H

#include "../support.h"
#include "moe_rows.h"

enum rows_style {
    ROWS_PERMUTED, /* what moe_permute makes of a random map                         */
    ROWS_HAND,     /* any legal indices: rows and tokens repeat, slots are left out  */
    ROWS_BROKEN,   /* the same with one fault                                        */
    ROWS_STYLES
};

struct rows_choice {
    enum rows_style style;
    bool capacity, weighted, by_expert;
};

/* A case that owns its arrays; `in` points into them. */
struct rows_fixture {
    struct rows_case in;
    int32_t *indices;
    uint8_t *map;
    unsigned char *probs;
    struct rows_pairs pairs;
};

/* Sizes are chosen unless in.tokens is set. Probs are there when weighted, the map when the packed case needs it
   or by chance. */
void rows_fixture_make(struct rows_fixture *f, uint64_t *rng, const struct rows_choice *choice);
void rows_fixture_free(struct rows_fixture *f);

DLDataType rows_dl_type(enum rows_type type);

/* n numbers of a type: of moderate size, or with `wild` zeros, infinities, NaNs and subnormals among them. */
unsigned char *rows_numbers(uint64_t *rng, enum rows_type type, int64_t n, bool wild);

/* Any layout the library must accept: gaps between rows, an offset, no alignment. */
struct layout rows_layout(uint64_t *rng, size_t elem_bytes);

/* Contexts of every kernel table and several thread counts, opened and closed around a group of tests. */
extern sy_ctx *rows_contexts[16];
extern size_t rows_n_contexts;
int rows_open_contexts(void **state);
int rows_close_contexts(void **state);

/* The seed of the case that runs; a teardown that tells it when it is not 0, which it is after the last case. */
extern uint64_t rows_seed;
int rows_tell_seed(void **state);

/* A tensor laid out at random, or compact without `rng`, with these contents or none. */
void rows_place(struct tensor *x, uint64_t *rng, DLDataType type, int rank, const int64_t *shape,
                const void *dense);

/* How often the hard things came up; asserted by the tests. */
extern struct rows_seen {
    int unused_slot, repeat, pad, empty_token, busy_token, zero_weight, nan_sum, gap, offset, mixed_types,
        no_rows, no_elements, many_experts, bad_index, bad_count;
} rows_seen;

/* Fails unless each of the first n counters is at least `least`. */
void rows_expect_seen(int least);

#endif
