/*
 * moe_dispatch_grad_gate: scenes of every type of rows and gates, short rows and rows of several blocks.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_grad_gate(sy_ctx *ctx, const void *args)
{
    return sy_moe_dispatch_grad_gate(ctx, args);
}

static void grad_gate_scene(DLDataType type, DLDataType gate_type)
{
    static const int64_t widths[] = {0, 1, 3, 15, 16, 17, 33, 65, 130, 8192, 20011};
    int64_t experts = below(6), capacity = below(5), width = widths[below(COUNT(widths))];
    int64_t both[2] = {1 + below(3)}; /* one draw per statement: initialisers have no order */
    both[1] = width > 1000 ? 1 + below(2) : below(20);
    bool flat = both[0] == 1 && one_in(2);
    const int64_t *shape = flat ? both + 1 : both;
    int rank = flat ? 1 : 2;
    enum flavour flavour = one_in(4) ? SPECIAL : FINE;
    struct box *input = box_strided(type, 2, (int64_t[]){both[1], width}, one_in(3) ? 3 : 0);
    struct box *slots = box_strided(type, 2, (int64_t[]){experts * capacity, width}, one_in(3) ? 2 : 0);
    fill_flavour(input, flavour);
    fill_flavour(slots, FINE);
    struct box *indices = box_strided(SY_I32, rank, shape, one_in(3) ? 2 : 0);
    struct box *locations = box_strided(SY_I32, rank, shape, one_in(3) ? 1 : 0);
    for (int64_t i = 0; i < box_elems(indices); i++)
        put(indices, i, (uint64_t)(below(experts + 2) - 1));
    for (int64_t i = 0; i < box_elems(locations); i++)
        put(locations, i, (uint64_t)(below(capacity + 2) - 1));
    sy_moe_dispatch_grad_gate_args args = {.indices = &indices->t, .locations = &locations->t};
    args.input = &input->t;
    args.dispatch = &slots->t;
    args.num_experts = experts;
    args.capacity = capacity;
    args.grad_gates = &output(box_strided(gate_type, rank, shape, one_in(3) ? 4 : 0))->t;
    run_scene(call_grad_gate, &args);
}

void moe_dispatch_grad_gate_lines(void)
{
    static const char *const gates[] = {"f32", "same"};
    char name[128];
    for (int t = 0; t < N_FLOATS; t++)
        for (int g = 0; g < COUNT(gates); g++) {
            if (t == 0 && g == 1)
                continue;
            snprintf(name, sizeof name, "moe_dispatch_grad_gate %s gates=%s", floats[t].name, gates[g]);
            begin_line(name);
            for (int i = 0; i < 40; i++)
                grad_gate_scene(floats[t].type, floats[g == 0 ? 0 : t].type);
            end_line();
        }
}
