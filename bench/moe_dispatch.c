/*
 * moe_dispatch, every sample in its own slot. Must move: valid rows read and written, the other rows cleared
 * if requested, 12 bytes of gate, expert and slot per sample. The limit copies and
 * fills the same bytes.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/number.h"
#include "peers.h"

enum type { F32, BF16, F16 };
static const char *const type_names[] = {"f32", "bf16", "f16"};

struct shape {
    enum type type;
    int64_t samples, capacity, hidden, experts;
    bool zero_unwritten, unique_slots;
};

static const struct shape full[] = {
    {F32, 18432, 11520, 512, 2, true, true},  {F32, 18432, 11520, 512, 2, false, false},
    {F32, 4608, 2880, 1024, 2, true, true},   {F32, 31, 2880, 10240, 2, false, false},
    {BF16, 18432, 11520, 512, 2, true, true}, {BF16, 18432, 11520, 512, 2, false, false},
    {BF16, 4096, 640, 7168, 8, true, true},   {F16, 18432, 11520, 512, 2, true, true},
    {F16, 4096, 640, 7168, 8, true, true},
};
static const struct shape quick[] = {
    {F32, 2048, 1280, 512, 2, true, true},
    {BF16, 2048, 1280, 512, 2, false, false},
    {F16, 2048, 1280, 512, 2, true, true},
    {F16, 31, 640, 1024, 2, false, false},
};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

struct set {
    void *input, *slots; /* [S,H], [E*C,H] */
    int32_t *locations;  /* [S] */
    int64_t input_shape[2], slots_shape[2];
    DLTensor input_view, slots_view, locations_view;
};

struct state {
    struct shape shape;
    int64_t n_sets, valid;
    bool shared; /* all sets write into the slots of the first, each into its own rows */
    struct set *sets;
    float *gates;
    void *plain_slots;
    int32_t *indices;
    int64_t flat_shape[1];
    DLTensor gates_view, indices_view;
};

static size_t row_bytes(const struct shape *shape)
{
    return (size_t)shape->hidden * (shape->type == F32 ? sizeof(float) : sizeof(uint16_t));
}

static size_t slots_bytes(const struct shape *shape)
{
    return (size_t)(shape->experts * shape->capacity) * row_bytes(shape);
}

static sy_status run(sy_ctx *ctx, void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct set *const set = &state->sets[turn % state->n_sets];
    return sy_moe_dispatch(ctx, &(sy_moe_dispatch_args){.gates = &state->gates_view,
                                                        .indices = &state->indices_view,
                                                        .locations = &set->locations_view,
                                                        .input = &set->input_view,
                                                        .num_experts = state->shape.experts,
                                                        .capacity = state->shape.capacity,
                                                        .zero_unwritten = state->shape.zero_unwritten,
                                                        .unique_slots = state->shape.unique_slots,
                                                        .dispatch = &set->slots_view});
}

static void scale(enum type type, void *to, const void *from, float gate, int64_t n)
{
    float *const to_wide = to;
    uint16_t *const to_half = to;
    const float *const wide = from;
    const uint16_t *const half = from;
    for (int64_t j = 0; j < n; j++)
        if (type == F32)
            to_wide[j] = gate * wide[j];
        else if (type == BF16)
            to_half[j] = bf16_from_float(gate * bf16_to_float(half[j]));
        else
            to_half[j] = bench_f16_from_float(gate * bench_f16_to_float(half[j]));
}

static void plain(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const struct set *const set = &state->sets[turn % state->n_sets];
    char *const slots = turn == 0 ? state->plain_slots : set->slots;
    const char *const input = set->input;
    if (s->zero_unwritten)
        memset(slots, 0, slots_bytes(s));
    for (int64_t i = 0; i < s->samples; i++) {
        const int64_t e = state->indices[i], c = set->locations[i];
        if (e >= 0 && e < s->experts && c >= 0 && c < s->capacity)
            scale(s->type, slots + (size_t)(e * s->capacity + c) * row_bytes(s),
                  input + (size_t)i * row_bytes(s), state->gates[i], s->hidden);
    }
}

static const char *check(void *opaque)
{
    const struct state *const state = opaque;
    return memcmp(state->sets[0].slots, state->plain_slots, slots_bytes(&state->shape)) == 0
               ? NULL
               : "dispatch differs from the plain loop";
}

static void release(struct state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        free(state->sets[i].input);
        free(state->sets[i].locations);
        if (i == 0 || !state->shared)
            free(state->sets[i].slots);
    }
    free(state->sets);
    free(state->gates);
    free(state->plain_slots);
    free(state->indices);
}

/*
 * The usual slots: a sample's slot is how many earlier samples chose its expert; past the capacity it is
 * dropped. Sets that share their slots begin further on, each where the one before it ends.
 */
static void route(struct state *state)
{
    const struct shape *const s = &state->shape;
    uint64_t seed = 5;
    for (int64_t i = 0; i < s->samples; i++) {
        state->indices[i] = (int32_t)(bench_random(&seed) % (uint64_t)s->experts);
        state->gates[i] = (float)bench_unit(&seed);
    }
    for (int64_t n = 0; n < state->n_sets; n++) {
        int32_t used[8] = {0};
        const int64_t begin = state->shared ? n * s->samples % (s->capacity - s->samples) : 0;
        for (int64_t i = 0; i < s->samples; i++)
            state->sets[n].locations[i] = (int32_t)begin + used[state->indices[i]]++;
    }
    for (int64_t i = 0; i < s->samples; i++)
        state->valid += state->sets[0].locations[i] < s->capacity;
}

/* Numbers in [-0.5, 0.5). Some products with a gate are subnormal halves. */
static void fill_rows(const struct shape *shape, void *rows, uint64_t seed)
{
    float *const wide = rows;
    uint16_t *const half = rows;
    for (int64_t j = 0; j < shape->samples * shape->hidden; j++) {
        const float x = (float)bench_unit(&seed) - 0.5f;
        if (shape->type == F32)
            wide[j] = x;
        else
            half[j] = shape->type == BF16 ? bf16_from_float(x) : bench_f16_from_float(x);
    }
}

/* The other sets are copies of the first: generating numbers is slower than the calls. */
static bool prepare_set(struct state *state, struct set *set)
{
    const struct shape *const s = &state->shape;
    const DLDataType type = s->type == F32 ? SY_F32 : s->type == BF16 ? SY_BF16 : SY_F16;
    const bool first = set == state->sets;
    set->input = bench_alloc((size_t)s->samples, row_bytes(s));
    set->slots = first || !state->shared ? bench_alloc(slots_bytes(s), 1) : state->sets[0].slots;
    set->locations = bench_alloc((size_t)s->samples, sizeof *set->locations);
    if (!set->input || !set->slots || !set->locations)
        return false;
    if (first)
        fill_rows(s, set->input, 17);
    else
        memcpy(set->input, state->sets[0].input, (size_t)s->samples * row_bytes(s));
    memcpy(set->input_shape, (int64_t[]){s->samples, s->hidden}, sizeof set->input_shape);
    memcpy(set->slots_shape, (int64_t[]){s->experts * s->capacity, s->hidden}, sizeof set->slots_shape);
    set->input_view = sy_tensor(set->input, type, 2, set->input_shape);
    set->slots_view = sy_tensor(set->slots, type, 2, set->slots_shape);
    set->locations_view = sy_tensor(set->locations, SY_I32, 1, state->flat_shape);
    return true;
}

static bool prepare(struct state *state)
{
    const struct shape *const s = &state->shape;
    const size_t samples = (size_t)s->samples, input_bytes = samples * row_bytes(s);
    /* A few samples touch a small part of many slots: one array of slots is cold for all of them. */
    state->shared = 2 * s->samples < s->capacity && !s->zero_unwritten;
    state->n_sets = bench_sets(input_bytes + (state->shared ? input_bytes : slots_bytes(s)));
    state->sets = bench_alloc((size_t)state->n_sets, sizeof *state->sets);
    state->gates = bench_alloc(samples, sizeof *state->gates);
    state->indices = bench_alloc(samples, sizeof *state->indices);
    state->plain_slots = bench_alloc(slots_bytes(s), 1);
    if (!state->sets || !state->gates || !state->indices || !state->plain_slots)
        return false;
    state->flat_shape[0] = s->samples;
    for (int64_t i = 0; i < state->n_sets; i++)
        if (!prepare_set(state, &state->sets[i]))
            return false;
    /* Old contents that the check recognises: kept without zero_unwritten, cleared with it. */
    memset(state->plain_slots, 0x3c, slots_bytes(s));
    memset(state->sets[0].slots, 0x3c, slots_bytes(s));
    route(state);
    state->gates_view = sy_tensor(state->gates, SY_F32, 1, state->flat_shape);
    state->indices_view = sy_tensor(state->indices, SY_I32, 1, state->flat_shape);
    return true;
}

static const struct shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    const struct shape *const shape = shape_at(index);
    snprintf(text, bytes, "%s S=%d C=%d H=%d E=%d%s%s", type_names[shape->type], (int)shape->samples,
             (int)shape->capacity, (int)shape->hidden, (int)shape->experts,
             shape->zero_unwritten ? " zero" : "", shape->unique_slots ? " unique" : "");
}

void peers_moe_dispatch(int index, struct emit *json)
{
    const struct shape *const shape = shape_at(index);
    emit_string(json, "dtype", type_names[shape->type]);
    emit_integer(json, "samples", shape->samples);
    emit_integer(json, "capacity", shape->capacity);
    emit_integer(json, "hidden", shape->hidden);
    emit_integer(json, "experts", shape->experts);
    emit_bool(json, "zero", shape->zero_unwritten);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    const struct shape *const shape = shape_at(index);
    struct state state = {.shape = *shape};
    if (prepare(&state)) {
        const size_t copied = (size_t)state.valid * row_bytes(shape);
        const size_t filled = shape->zero_unwritten ? slots_bytes(shape) - copied : 0;
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_dispatch",
                                 .shape = name,
                                 .state = &state,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = 2 * (double)copied + (double)filled + 12.0 * (double)shape->samples,
                                 .limit = {.copy_bytes = copied, .fill_bytes = filled},
                             });
    } else {
        bench_no_memory(bench, "moe_dispatch", name);
    }
    release(&state);
}

const struct bench_op bench_moe_dispatch = {"moe_dispatch", N_FULL, N_QUICK, describe, run_case};
