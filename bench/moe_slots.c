/*
 * Seeded samples, choices and slots; see moe_slots.h.
 */
#include "moe_slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/number.h"

size_t slots_row_bytes(const struct slots_shape *shape)
{
    return (size_t)shape->hidden * (shape->type == SLOTS_F32 ? sizeof(float) : sizeof(uint16_t));
}

float slots_load(enum slots_type type, const void *row, int64_t i)
{
    if (type == SLOTS_F32)
        return ((const float *)row)[i];
    const uint16_t bits = ((const uint16_t *)row)[i];
    return type == SLOTS_BF16 ? bf16_to_float(bits) : bench_f16_to_float(bits);
}

void slots_store(enum slots_type type, void *row, int64_t i, float value)
{
    if (type == SLOTS_F32)
        ((float *)row)[i] = value;
    else
        ((uint16_t *)row)[i] = type == SLOTS_BF16 ? bf16_from_float(value) : bench_f16_from_float(value);
}

const struct slots_set *slots_of_turn(const struct slots *s, int64_t turn)
{
    return &s->sets[turn % s->n_sets];
}

const void *slots_row(const struct slots *s, const struct slots_set *set, int64_t choice, int64_t sample)
{
    const int64_t at = choice * s->shape.samples + sample, e = set->indices[at], c = set->locations[at];
    if (e < 0 || e >= s->shape.experts || c < 0 || c >= s->shape.capacity)
        return NULL;
    return (const char *)set->slots + (size_t)(e * s->shape.capacity + c) * slots_row_bytes(&s->shape);
}

void slots_describe(const struct slots_shape *shape, char *text, size_t bytes)
{
    static const char *const types[] = {"f32", "bf16", "f16"};
    snprintf(text, bytes, "%s k=%d S=%d C=%d H=%d E=%d", types[shape->type], (int)shape->choices,
             (int)shape->samples, (int)shape->capacity, (int)shape->hidden, (int)shape->experts);
}

static void fill_rows(const struct slots_shape *shape, void *rows, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n * shape->hidden; i++)
        slots_store(shape->type, rows, i, (float)bench_unit(&seed) - 0.5f);
}

/* Different experts for the choices of a sample, each at the next free slot; if samples are few, at random slots, so
   that different turns use different ones. */
static void route(const struct slots *s, struct slots_set *set, uint64_t seed)
{
    const struct slots_shape *const shape = &s->shape;
    const bool sparse = shape->choices * shape->samples < shape->experts * shape->capacity / 4;
    int32_t used[256] = {0};
    for (int64_t i = 0; i < shape->samples; i++) {
        const uint64_t first = bench_random(&seed), step = bench_random(&seed) | 1;
        for (int64_t t = 0; t < shape->choices; t++) /* the order of slots does not matter here */
            set->indices[t * shape->samples + i] =
                (int32_t)((first + (uint64_t)t * step) % (uint64_t)shape->experts);
    }
    for (int64_t at = 0; at < shape->choices * shape->samples; at++) {
        const int32_t next = used[set->indices[at]]++;
        set->locations[at] = sparse ? (int32_t)(bench_random(&seed) % (uint64_t)shape->capacity) : next;
    }
}

static bool make_set(struct slots *s, int64_t index)
{
    const struct slots_shape *const shape = &s->shape;
    struct slots_set *const set = &s->sets[index];
    const size_t n = (size_t)(shape->choices * shape->samples), row_bytes = slots_row_bytes(shape);
    const DLDataType type = shape->type == SLOTS_F32 ? SY_F32 : shape->type == SLOTS_BF16 ? SY_BF16 : SY_F16;
    const bool own = index < s->n_memory;
    const struct slots_set *const other = &s->sets[index % s->n_memory];
    set->indices = bench_alloc(n, sizeof *set->indices);
    set->locations = bench_alloc(n, sizeof *set->locations);
    set->slots = own ? bench_alloc((size_t)s->slots_shape[0], row_bytes) : other->slots;
    set->rows = own ? bench_alloc((size_t)shape->samples, row_bytes) : other->rows;
    if (!set->indices || !set->locations || !set->slots || !set->rows)
        return false;
    if (own) {
        fill_rows(shape, set->slots, s->slots_shape[0], 11 + (uint64_t)index);
        fill_rows(shape, set->rows, shape->samples, 1011 + (uint64_t)index);
    }
    route(s, set, 2011 + (uint64_t)index);
    set->indices_view = sy_tensor(set->indices, SY_I32, 2, s->choice_shape);
    set->locations_view = sy_tensor(set->locations, SY_I32, 2, s->choice_shape);
    set->slots_view = sy_tensor(set->slots, type, 2, s->slots_shape);
    set->rows_view = sy_tensor(set->rows, type, 2, s->rows_shape);
    return true;
}

bool slots_make(struct slots *s, const struct slots_shape *shape)
{
    const size_t row_bytes = slots_row_bytes(shape);
    const size_t touched = (size_t)((shape->choices + 1) * shape->samples) * row_bytes;
    *s = (struct slots){.shape = *shape};
    memcpy(s->choice_shape, (int64_t[]){shape->choices, shape->samples}, sizeof s->choice_shape);
    memcpy(s->slots_shape, (int64_t[]){shape->experts * shape->capacity, shape->hidden},
           sizeof s->slots_shape);
    memcpy(s->rows_shape, (int64_t[]){shape->samples, shape->hidden}, sizeof s->rows_shape);
    s->n_sets = bench_sets(touched);
    s->n_memory = bench_sets((size_t)(s->slots_shape[0] + shape->samples) * row_bytes);
    if (s->n_memory > s->n_sets)
        s->n_memory = s->n_sets;
    s->sets = bench_alloc((size_t)s->n_sets, sizeof *s->sets);
    s->gates = bench_alloc((size_t)(shape->choices * shape->samples), sizeof *s->gates);
    for (int64_t i = 0; i < s->n_sets; i++)
        if (!s->sets || !s->gates || !make_set(s, i))
            return false;
    uint64_t seed = 5;
    for (int64_t i = 0; i < shape->choices * shape->samples; i++)
        s->gates[i] = (float)bench_unit(&seed);
    s->gates_view = sy_tensor(s->gates, SY_F32, 2, s->choice_shape);
    for (int64_t t = 0; t < shape->choices; t++)
        for (int64_t i = 0; i < shape->samples; i++)
            s->valid += slots_row(s, s->sets, t, i) != NULL;
    return true;
}

void slots_free(struct slots *s)
{
    for (int64_t i = 0; s->sets && i < s->n_sets; i++) {
        free(s->sets[i].indices);
        free(s->sets[i].locations);
        if (i < s->n_memory) {
            free(s->sets[i].slots);
            free(s->sets[i].rows);
        }
    }
    free(s->sets);
    free(s->gates);
}
