/*
 * moe_combine: scenes of one and several choices, with gates of every type, values of every kind.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_combine(sy_ctx *ctx, const void *args)
{
    return sy_moe_combine(ctx, args);
}

static void combine_scene(DLDataType type, const DLDataType *gates_type, bool single)
{
    static const int64_t widths[] = {0, 1, 3, 16, 33, 65, 130};
    int64_t experts = below(6), capacity = below(7), samples = below(30);
    const int64_t both[2] = {single ? 1 : 2 + below(4), samples};
    bool flat = single && one_in(2);
    const int64_t *shape = flat ? both + 1 : both;
    int64_t width = widths[below(COUNT(widths))], rank = flat ? 1 : 2;
    enum flavour flavour = (enum flavour)below(4);
    struct box *slots = box_strided(type, 2, (int64_t[]){experts * capacity, width}, one_in(3) ? 3 : 0);
    fill_flavour(slots, flavour);
    struct box *indices = box_strided(SY_I32, (int)rank, shape, one_in(3) ? 2 : 0);
    struct box *locations = box_strided(SY_I32, (int)rank, shape, one_in(3) ? 1 : 0);
    for (int64_t i = 0; i < box_elems(indices); i++)
        put(indices, i, (uint64_t)(below(experts + 2) - 1));
    for (int64_t i = 0; i < box_elems(locations); i++)
        put(locations, i, (uint64_t)(below(capacity + 2) - 1));
    sy_moe_combine_args args = {.indices = &indices->t, .locations = &locations->t, .expert_out = &slots->t};
    args.num_experts = experts;
    args.capacity = capacity;
    if (gates_type) {
        struct box *gates = box_strided(*gates_type, (int)rank, shape, one_in(3) ? 4 : 0);
        args.gates = &fill_flavour(gates, one_in(2) ? FINE : SPECIAL)->t;
    }
    args.output = &output(box_strided(type, 2, (int64_t[]){samples, width}, one_in(3) ? 2 : 0))->t;
    run_scene(call_combine, &args);
}

void moe_combine_lines(void)
{
    static const char *const gates[] = {"none", "f32", "same"}, *const choices[] = {"several", "one"};
    char name[128];
    for (int t = 0; t < N_FLOATS; t++)
        for (int g = 0; g < COUNT(gates); g++)
            for (int c = 0; c < COUNT(choices); c++) {
                const DLDataType *own_or_f32 = g == 1 ? &floats[0].type : &floats[t].type;
                snprintf(name, sizeof name, "moe_combine %s gates=%s choices=%s", floats[t].name, gates[g],
                         choices[c]);
                begin_line(name);
                for (int i = 0; i < 40; i++)
                    combine_scene(floats[t].type, g == 0 ? NULL : own_or_f32, c == 1);
                end_line();
            }
}
