/*
 * moe_permute_ids: scenes of counted ids, any ids and wrong ones, with kept rows and windows.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_permute(sy_ctx *ctx, const void *args)
{
    return sy_moe_permute_ids(ctx, args);
}

enum mode { COUNTED, ANY, WRONG };

static struct box *make_ids(int64_t tokens, int64_t slots, int64_t experts, enum mode mode)
{
    struct box *ids = box_new(index_type(), 2, (int64_t[]){tokens, slots});
    for (int64_t i = 0; i < tokens * slots; i++) {
        int64_t id = below(experts);
        if (mode == ANY && one_in(6))
            id = (int64_t)rng();
        if (mode == WRONG && one_in(40))
            id = one_in(2) ? -1 - id : experts + id;
        put(ids, i, (uint64_t)id);
    }
    return ids;
}

static void choose_rows(sy_moe_permute_ids_args *args, int64_t total, int64_t *rows)
{
    int64_t kept = total;
    if (one_in(3) && total > 0)
        kept = args->num_out_tokens = 1 + below(total);
    else if (one_in(3)) {
        args->num_out_tokens = -below(total + 1);
        kept = total + args->num_out_tokens;
    }
    *rows = kept;
    args->window = one_in(3);
    if (args->window) {
        args->row_begin = below(kept + 1);
        args->row_end = args->row_begin + below(kept - args->row_begin + 1);
        *rows = args->row_end - args->row_begin;
    }
}

static void permute_scene(DLDataType type, enum mode mode)
{
    static const int64_t sizes[] = {0, 1, 9, 30, 400};
    int64_t tokens = sizes[below(COUNT(sizes))], slots = below(11), experts = 1 + below(30),
            width = below(40);
    int64_t total = tokens * slots, rows;
    sy_moe_permute_ids_args args = {.num_experts = mode == ANY ? 0 : experts};
    choose_rows(&args, total, &rows);
    args.tokens = &fill_random(box_strided(type, 2, (int64_t[]){tokens, width}, one_in(3) ? 3 : 0))->t;
    args.ids = &make_ids(tokens, slots, experts, mode)->t;
    args.permuted_tokens = &output(box_strided(type, 2, (int64_t[]){rows, width}, one_in(3) ? 3 : 0))->t;
    args.sorted_indices = &output(box_new(SY_I32, 1, &total))->t;
    if (one_in(2)) {
        args.probs = &fill_random(box_new(SY_F32, 2, (int64_t[]){tokens, slots}))->t;
        args.permuted_probs = &output(box_new(SY_F32, 1, &rows))->t;
    }
    if (mode != ANY) {
        args.expert_counts = &output(box_new(SY_I64, 1, &experts))->t;
        args.expert_offsets = &output(box_new(SY_I64, 1, &(int64_t){experts + 1}))->t;
    }
    run_scene(call_permute, &args);
}

void moe_permute_ids_lines(void)
{
    static const struct {
        const char *name;
        DLDataType type;
    } types[] = {{"u8", {1, 8, 1}}, {"bf16", {4, 16, 1}}, {"f32", {2, 32, 1}}};
    static const char *const modes[] = {"counted", "any", "wrong"};
    char name[128];
    for (int t = 0; t < COUNT(types); t++)
        for (int m = 0; m < COUNT(modes); m++) {
            snprintf(name, sizeof name, "moe_permute_ids %s %s", types[t].name, modes[m]);
            begin_line(name);
            for (int i = 0; i < (m == WRONG ? 12 : 40); i++)
                permute_scene(types[t].type, (enum mode)m);
            end_line();
        }
}
