/*
 * moe_dispatch: scenes of every mode, in place among them, with gates of every type.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_dispatch(sy_ctx *ctx, const void *args)
{
    return sy_moe_dispatch(ctx, args);
}

enum dispatch_mode { KEEP, ZERO, UNIQUE, IN_PLACE };

static void dispatch_scene(DLDataType type, const DLDataType *gates_type, enum dispatch_mode mode)
{
    static const int64_t widths[] = {0, 1, 3, 16, 33, 65};
    int64_t experts = 1 + below(6), capacity = below(7), rows = experts * capacity;
    int64_t samples = mode == IN_PLACE ? rows : below(40), width = widths[below(COUNT(widths))];
    int64_t gap = one_in(3) ? 3 : 0;
    enum flavour flavour = (enum flavour)(mode == IN_PLACE ? FINE : below(4));
    struct box *input = fill_flavour(box_strided(type, 2, (int64_t[]){samples, width}, gap), flavour);
    struct box *indices = box_new(SY_I32, 1, &samples), *locations = box_new(SY_I32, 1, &samples);
    for (int64_t i = 0; i < samples; i++) {
        int64_t expert = below(experts + 2) - 1, slot = below(capacity + 2) - 1;
        if (mode == UNIQUE) { /* each sample its own slot, from the last down; none for the rest */
            int64_t own = rows - 1 - i;
            expert = i < rows ? own / capacity : -1;
            slot = i < rows ? own % capacity : 0;
        }
        put(indices, i, (uint64_t)expert);
        put(locations, i, (uint64_t)slot);
    }
    sy_moe_dispatch_args args = {.indices = &indices->t, .locations = &locations->t, .input = &input->t};
    args.num_experts = experts;
    args.capacity = capacity;
    args.zero_unwritten = mode == ZERO;
    args.unique_slots = mode == UNIQUE;
    if (gates_type)
        args.gates = &fill_flavour(box_new(*gates_type, 1, &samples), one_in(2) ? FINE : SPECIAL)->t;
    struct box *dispatch = input;
    if (mode != IN_PLACE)
        dispatch = fill_random(box_strided(type, 2, (int64_t[]){rows, width}, one_in(3) ? 2 : 0));
    args.dispatch = &output(dispatch)->t;
    run_scene(call_dispatch, &args);
}

void moe_dispatch_lines(void)
{
    static const char *const modes[] = {"keep", "zero_unwritten", "unique_slots", "in_place"};
    static const char *const gates[] = {"none", "f32", "same"};
    char name[128];
    for (int t = 0; t < N_FLOATS; t++)
        for (int g = 0; g < COUNT(gates); g++)
            for (int m = 0; m < COUNT(modes); m++) {
                const DLDataType *own_or_f32 = g == 1 ? &floats[0].type : &floats[t].type;
                snprintf(name, sizeof name, "moe_dispatch %s gates=%s %s", floats[t].name, gates[g],
                         modes[m]);
                begin_line(name);
                for (int i = 0; i < 40; i++)
                    dispatch_scene(floats[t].type, g == 0 ? NULL : own_or_f32, (enum dispatch_mode)m);
                end_line();
            }
}
