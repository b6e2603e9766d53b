/*
 * Samples, their choices and expert slots, for the operators that read rows from slots: seeded, routed as moe_locations
 * would, rotated so that slots and rows are read from memory.
 */
#ifndef SWITCHYARD_BENCH_MOE_SLOTS_H
#define SWITCHYARD_BENCH_MOE_SLOTS_H

#include "bench.h"

enum slots_type { SLOTS_F32, SLOTS_BF16, SLOTS_F16 };

struct slots_shape {
    enum slots_type type;
    int64_t choices, samples, capacity, hidden,
        experts; /* more than one choice: experts are a power of two */
};

/* Inputs and outputs of one turn. */
struct slots_set {
    int32_t *indices, *locations; /* [k,S] */
    void *slots, *rows;           /* [E*C,H], [S,H] */
    DLTensor indices_view, locations_view, slots_view, rows_view;
};

struct slots {
    struct slots_shape shape;
    int64_t choice_shape[2], slots_shape[2], rows_shape[2];
    int64_t n_sets, n_memory; /* sets; arrays of slots and rows that they use in turn */
    int64_t valid;            /* choices of a turn that have a slot */
    struct slots_set *sets;
    float *gates; /* [k,S] */
    DLTensor gates_view;
};

/* False: no memory. Call slots_free in either case. */
bool slots_make(struct slots *s, const struct slots_shape *shape);
void slots_free(struct slots *s);

const struct slots_set *slots_of_turn(const struct slots *s, int64_t turn);
size_t slots_row_bytes(const struct slots_shape *shape);

/* The slot of a choice, or NULL. */
const void *slots_row(const struct slots *s, const struct slots_set *set, int64_t choice, int64_t sample);

/* Elements of the row type. */
float slots_load(enum slots_type type, const void *row, int64_t i);
void slots_store(enum slots_type type, void *row, int64_t i, float value);

void slots_describe(const struct slots_shape *shape, char *text, size_t bytes);

#endif
