/*
 * moe_unpermute_ids: scenes of every type of rows, with and without weights, windows, what else is added, and wrong indices.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_unpermute(sy_ctx *ctx, const void *args)
{
    return sy_moe_unpermute_ids(ctx, args);
}

/* A bias, a residual, a shared row; indices of choices, of rows with capacity. */
static void add_more(sy_moe_unpermute_ids_args *args, DLDataType type, int64_t slots, int64_t width,
                     bool wrong)
{
    const int64_t tokens = args->num_tokens, biases = 1 + below(6);
    struct box *ids = box_new(SY_I32, 2, (int64_t[]){tokens, slots});
    for (int64_t i = 0; i < tokens * slots; i++)
        put(ids, i, (uint64_t)(below(biases + 1) - (wrong && one_in(60) ? 2 : 1)));
    if (one_in(2)) {
        args->bias = &fill_flavour(box_new(type, 2, (int64_t[]){biases, width}), (enum flavour)below(4))->t;
        args->bias_ids = &ids->t;
    }
    if (one_in(2))
        args->residual = &fill_flavour(box_new(type, 2, (int64_t[]){tokens, width}), TIES)->t;
    if (one_in(2))
        args->shared = &fill_flavour(box_new(type, 2, (int64_t[]){tokens, width}), (enum flavour)below(4))->t;
    args->by_choice = one_in(2);
    args->num_rows = one_in(2) ? 2 * tokens * slots + 1 : 0;
}

static void unpermute_scene(DLDataType type, const DLDataType *weights, bool more, bool wrong)
{
    static const int64_t sizes[] = {1, 9, 30, 300};
    int64_t tokens = sizes[below(COUNT(sizes))], slots = below(11), width = below(70), total = tokens * slots;
    int64_t rows = below(total + 3);
    enum flavour flavour = (enum flavour)below(4);
    sy_moe_unpermute_ids_args args = {.num_tokens = tokens, .row_begin = one_in(2) ? below(total + 1) : 0};
    struct box *indices = box_new(SY_I32, 1, &total);
    for (int64_t i = 0; i < total; i++) {
        int64_t row = below(total + 1) - 1;
        put(indices, i, (uint64_t)(wrong && one_in(60) ? total + row : row));
    }
    args.permuted_tokens =
        &fill_flavour(box_strided(type, 2, (int64_t[]){rows, width}, one_in(3) ? 3 : 0), flavour)->t;
    args.sorted_indices = &indices->t;
    if (weights->bits)
        args.probs =
            &fill_flavour(box_new(*weights, 2, (int64_t[]){tokens, slots}), one_in(4) ? SPECIAL : TIES)->t;
    args.tokens = &output(box_strided(type, 2, (int64_t[]){tokens, width}, one_in(3) ? 2 : 0))->t;
    if (more)
        add_more(&args, type, slots, width, wrong);
    run_scene(call_unpermute, &args);
}

void moe_unpermute_ids_lines(void)
{
    static const struct named_type weights[] = {
        {"none", {0, 0, 0}}, {"f32", {2, 32, 1}}, {"bf16", {4, 16, 1}}};
    char name[128];
    for (int t = 0; t < N_FLOATS; t++)
        for (int w = 0; w < COUNT(weights); w++) {
            snprintf(name, sizeof name, "moe_unpermute_ids %s probs=%s", floats[t].name, weights[w].name);
            begin_line(name);
            for (int i = 0; i < 40; i++)
                unpermute_scene(floats[t].type, &weights[w].type, false, i % 10 == 9);
            end_line();
        }
    for (int t = 0; t < N_FLOATS; t++) {
        snprintf(name, sizeof name, "moe_unpermute_ids %s with more", floats[t].name);
        begin_line(name);
        for (int i = 0; i < 60; i++)
            unpermute_scene(floats[t].type, &weights[i % 3].type, true, i % 10 == 9);
        end_line();
    }
}
