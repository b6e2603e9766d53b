/*
 * moe_dispatch_grad_gate. Must read: the rows of all valid choices, the row of every sample, 8 bytes of expert and
 * slot per choice. The limit reads the rows.
 */
#include "moe_slots.h"

#include <math.h>
#include <stdlib.h>

static const struct slots_shape full[] = {
    {SLOTS_F32, 1, 18432, 11520, 512, 2}, {SLOTS_F32, 1, 8192, 8192, 2048, 2},
    {SLOTS_F32, 2, 4096, 1280, 4096, 8},  {SLOTS_BF16, 2, 4096, 1280, 4096, 8},
    {SLOTS_F16, 2, 4096, 1280, 4096, 8},  {SLOTS_BF16, 8, 4096, 640, 2048, 64},
    {SLOTS_F32, 1, 1, 35, 512012, 1},
};
static const struct slots_shape quick[] = {
    {SLOTS_F32, 1, 1024, 640, 512, 2},
    {SLOTS_BF16, 2, 512, 160, 1024, 8},
};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct state {
    struct slots slots;
    float *gates;  /* [k,S] */
    double *plain; /* [k,S] */
    double *size;  /* [k,S]: sum of the absolute products */
};

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    struct slots *const s = &state->slots;
    const struct slots_set *const set = slots_of_turn(s, turn);
    const DLTensor gates = sy_tensor(state->gates, SY_F32, 2, s->choice_shape);
    return sy_moe_dispatch_grad_gate(ctx, &(sy_moe_dispatch_grad_gate_args){.indices = &set->indices_view,
                                                                            .locations = &set->locations_view,
                                                                            .input = &set->rows_view,
                                                                            .dispatch = &set->slots_view,
                                                                            .num_experts = s->shape.experts,
                                                                            .capacity = s->shape.capacity,
                                                                            .grad_gates = &gates});
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct slots *const s = &state->slots;
    const struct slots_set *const set = slots_of_turn(s, turn);
    for (int64_t i = 0; i < s->shape.choices * s->shape.samples; i++) {
        const int64_t t = i / s->shape.samples, sample = i % s->shape.samples;
        const void *const row = slots_row(s, set, t, sample);
        const char *const x = (const char *)set->rows + (size_t)sample * slots_row_bytes(&s->shape);
        double sum = 0, size = 0;
        for (int64_t j = 0; row && j < s->shape.hidden; j++) {
            const double p =
                (double)slots_load(s->shape.type, x, j) * (double)slots_load(s->shape.type, row, j);
            sum += p;
            size += fabs(p);
        }
        state->plain[i] = sum;
        state->size[i] = size;
    }
}

/* The plain loop sums in double, so it is the more exact of the two. */
static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    for (int64_t i = 0; i < state->slots.shape.choices * state->slots.shape.samples; i++)
        if (!(fabs((double)state->gates[i] - state->plain[i]) <= 1e-5 * state->size[i]))
            return "grad_gates differ from the plain loop";
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
    const size_t n = (size_t)(shape->choices * shape->samples);
    struct state state = {.gates = bench_alloc(n, sizeof *state.gates),
                          .plain = bench_alloc(n, sizeof *state.plain),
                          .size = bench_alloc(n, sizeof *state.size)};
    if (slots_make(&state.slots, shape) && state.gates && state.plain && state.size) {
        const size_t read = (size_t)(state.slots.valid + shape->samples) * slots_row_bytes(shape);
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_dispatch_grad_gate",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)read + 8.0 * (double)n,
                                 .limit = {.read_bytes = read},
                             });
    } else {
        bench_no_memory(bench, "moe_dispatch_grad_gate", name);
    }
    slots_free(&state.slots);
    free(state.gates);
    free(state.plain);
    free(state.size);
}

const struct bench_op bench_moe_dispatch_grad_gate = {"moe_dispatch_grad_gate", N_FULL, N_QUICK, describe,
                                                      run_case};
