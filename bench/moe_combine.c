/*
 * moe_combine. Must move: the rows of all valid choices read, one row per sample written, 12 bytes of gate,
 * expert and slot per choice. The limit copies as many bytes of rows, read and written together.
 */
#include "moe_slots.h"

#include <stdlib.h>
#include <string.h>

static const struct slots_shape full[] = {
    {SLOTS_F32, 1, 18432, 11520, 512, 2}, {SLOTS_F32, 1, 4608, 2880, 1024, 2},
    {SLOTS_F32, 2, 4096, 1280, 4096, 8},  {SLOTS_BF16, 1, 18432, 11520, 512, 2},
    {SLOTS_BF16, 2, 4096, 1280, 4096, 8}, {SLOTS_BF16, 8, 4096, 640, 2048, 64},
    {SLOTS_F16, 2, 4096, 1280, 4096, 8},  {SLOTS_BF16, 8, 16, 16, 7168, 256},
};
static const struct slots_shape quick[] = {
    {SLOTS_F32, 1, 1024, 640, 512, 2},
    {SLOTS_BF16, 2, 512, 160, 1024, 8},
};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    struct slots slots;
    void *plain_rows; /* [S,H] */
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct slots *const s = &((const struct state *)opaque)->slots;
    const struct slots_set *const set = slots_of_turn(s, turn);
    return sy_moe_combine(ctx, &(sy_moe_combine_args){.gates = &s->gates_view,
                                                      .indices = &set->indices_view,
                                                      .locations = &set->locations_view,
                                                      .expert_out = &set->slots_view,
                                                      .num_experts = s->shape.experts,
                                                      .capacity = s->shape.capacity,
                                                      .output = &set->rows_view});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct slots *const s = &state->slots;
    const struct slots_set *const set = slots_of_turn(s, turn);
    char *const rows = turn == 0 ? state->plain_rows : set->rows;
    for (int64_t i = 0; i < s->shape.samples; i++)
        for (int64_t j = 0; j < s->shape.hidden; j++) {
            float sum = 0;
            for (int64_t t = 0; t < s->shape.choices; t++) {
                const void *const row = slots_row(s, set, t, i);
                if (row)
                    sum += s->gates[t * s->shape.samples + i] * slots_load(s->shape.type, row, j);
            }
            slots_store(s->shape.type, rows + (size_t)i * slots_row_bytes(&s->shape), j, sum);
        }
}

/* By value: one choice keeps the sign of a zero, which the plain loop does not. */
static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    const struct slots_shape *const shape = &state->slots.shape;
    for (int64_t i = 0; i < shape->samples * shape->hidden; i++)
        if (slots_load(shape->type, state->slots.sets[0].rows, i) !=
            slots_load(shape->type, state->plain_rows, i))
            return "output differs from the plain loop";
    return NULL;
}

static const struct slots_shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    slots_describe(shape_at(index), text, bytes);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    const struct slots_shape *const shape = shape_at(index);
    const size_t row_bytes = slots_row_bytes(shape);
    struct state state = {.plain_rows = bench_alloc((size_t)shape->samples, row_bytes)};
    if (slots_make(&state.slots, shape) && state.plain_rows) {
        const size_t moved = (size_t)(state.slots.valid + shape->samples) * row_bytes;
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_combine",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)moved + 12.0 * (double)(shape->choices * shape->samples),
                                 .limit = {.copy_bytes = moved / 2},
                             });
    } else {
        bench_no_memory(bench, "moe_combine", name);
    }
    slots_free(&state.slots);
    free(state.plain_rows);
}

const struct bench_op bench_moe_combine = {"moe_combine", N_FULL, N_QUICK, describe, run_case};
