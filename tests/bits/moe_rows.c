/*
 * moe_unpermute and the gradients: scenes of both modes with indices as moe_permute makes them and with indices by hand, numbers of
 * several flavours, and a wrong index now and then.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_unpermute(sy_ctx *ctx, const void *args)
{
    return sy_moe_unpermute(ctx, args);
}

static sy_status call_permute_grad(sy_ctx *ctx, const void *args)
{
    return sy_moe_permute_grad(ctx, args);
}

static sy_status call_unpermute_grad(sy_ctx *ctx, const void *args)
{
    return sy_moe_unpermute_grad(ctx, args);
}

/* Sizes and inputs every scene has. */
struct scene {
    int64_t tokens, experts, rows, width;
    bool capacity, zero_pad;
    struct box *indices, *map;
};

/* Slots of a token hold any rows, some none; the map routes the token to as many experts. */
static void fill_slots(struct scene *s, int64_t slots)
{
    for (int64_t t = 0; t < s->tokens; t++) {
        int64_t live = 0, left;
        for (int64_t j = 0; j < slots; j++) {
            bool used = !one_in(5);
            put(s->indices, t * slots + j, (uint64_t)(used ? below(s->rows) : -1));
            live += used;
        }
        for (int64_t e = 0; e < s->experts; e++)
            put(s->map, t * s->experts + e, 0);
        for (left = live; left > 0;) {
            int64_t cell = t * s->experts + below(s->experts);
            left -= s->map->data[cell] == 0;
            put(s->map, cell, 1 + (uint64_t)below(255));
        }
    }
}

static struct scene make_scene(bool capacity, bool broken)
{
    static const int64_t widths[] = {0, 1, 3, 31, 32, 33, 64, 70};
    struct scene s = {.capacity = capacity};
    s.tokens = 1 + below(24); /* one draw per statement: initialisers and arguments have no order */
    s.experts = 1 + below(9);
    s.width = widths[below(COUNT(widths))];
    s.zero_pad = one_in(2);
    int64_t slots = 1 + below(capacity ? 2 * s.tokens : s.experts);
    s.rows = slots * (capacity ? s.experts : s.tokens);
    s.indices = box_new(SY_I32, 1, &s.rows);
    s.map = box_new(SY_U8, 2, (int64_t[]){s.tokens, s.experts});
    if (capacity) {
        for (int64_t i = 0; i < s.rows; i++)
            put(s.indices, i, (uint64_t)(s.zero_pad && one_in(6) ? -1 : below(s.tokens)));
        for (int64_t i = 0; i < s.tokens * s.experts; i++)
            put(s.map, i, (uint64_t)below(2));
    } else {
        fill_slots(&s, slots);
    }
    if (broken) {
        int64_t at = below(s.rows);
        put(s.indices, at, one_in(2) ? (uint64_t)(s.rows + s.tokens) : (uint64_t)-2);
    }
    return s;
}

static struct box *row_box(DLDataType type, int64_t rows, int64_t width)
{
    return box_strided(type, 2, (int64_t[]){rows, width}, one_in(3) ? 5 : 0);
}

static enum flavour some_flavour(void)
{
    static const enum flavour flavours[] = {TIES, FINE, SPECIAL, WILD};
    return flavours[below(COUNT(flavours))];
}

static void unpermute_scene(DLDataType type, const DLDataType *probs_type, bool capacity, bool broken)
{
    struct scene s = make_scene(capacity, broken);
    sy_moe_unpermute_args args = {.sorted_indices = &s.indices->t,
                                  .num_tokens = s.tokens,
                                  .drop_and_pad = s.capacity,
                                  .zero_pad = s.zero_pad};
    struct box *rows = row_box(type, s.rows, s.width);
    args.permuted_tokens = &fill_flavour(rows, some_flavour())->t;
    if (probs_type) {
        struct box *probs = row_box(*probs_type, s.tokens, s.experts);
        args.probs = &fill_flavour(probs, one_in(3) ? SPECIAL : PROBS)->t;
        args.routing_map = &s.map->t;
    }
    args.tokens = &output(row_box(type, s.tokens, s.width))->t;
    run_scene(call_unpermute, &args);
}

static void permute_grad_scene(DLDataType type, const DLDataType *probs_type, bool capacity, bool broken)
{
    struct scene s = make_scene(capacity, broken);
    sy_moe_permute_grad_args args = {.sorted_indices = &s.indices->t,
                                     .num_experts = s.experts,
                                     .num_tokens = s.tokens,
                                     .drop_and_pad = s.capacity,
                                     .zero_pad = s.zero_pad};
    struct box *rows = row_box(type, s.rows, s.width);
    args.grad_permuted_tokens = &fill_flavour(rows, some_flavour())->t;
    if (probs_type) {
        args.grad_permuted_probs = &fill_random(box_new(*probs_type, 1, &s.rows))->t;
        args.routing_map = &s.map->t;
        args.grad_probs = &output(row_box(*probs_type, s.tokens, s.experts))->t;
    }
    args.grad_tokens = &output(row_box(type, s.tokens, s.width))->t;
    run_scene(call_permute_grad, &args);
}

static void unpermute_grad_scene(DLDataType type, const DLDataType *probs_type, bool capacity, bool broken)
{
    struct scene s = make_scene(capacity, broken);
    sy_moe_unpermute_grad_args args = {
        .sorted_indices = &s.indices->t, .drop_and_pad = s.capacity, .zero_pad = s.zero_pad};
    struct box *grad = row_box(type, s.tokens, s.width);
    args.grad_tokens = &fill_flavour(grad, some_flavour())->t;
    if (probs_type) {
        struct box *rows = row_box(type, s.rows, s.width);
        args.permuted_tokens = &fill_flavour(rows, some_flavour())->t;
        struct box *probs = row_box(*probs_type, s.tokens, s.experts);
        args.probs = &fill_flavour(probs, one_in(3) ? SPECIAL : PROBS)->t;
        args.routing_map = &s.map->t;
        args.grad_probs = &output(row_box(*probs_type, s.tokens, s.experts))->t;
    }
    args.grad_permuted_tokens = &output(row_box(type, s.rows, s.width))->t;
    run_scene(call_unpermute_grad, &args);
}

typedef void scene_fn(DLDataType type, const DLDataType *probs_type, bool capacity, bool broken);

static void lines_of(const char *op, scene_fn *scene)
{
    static const struct named_type probs[] = {
        {"none", {0, 0, 0}}, {"f32", {2, 32, 1}}, {"f16", {2, 16, 1}}, {"bf16", {4, 16, 1}}};
    static const char *const modes[] = {"packed", "capacity", "packed broken", "capacity broken"};
    char name[128];
    for (int t = 0; t < N_FLOATS; t++)
        for (int p = 0; p < COUNT(probs); p++)
            for (int m = 0; m < COUNT(modes); m++) {
                if (m >= 2 && p != t) /* refusals: once per row type */
                    continue;
                snprintf(name, sizeof name, "%s %s probs=%s %s", op, floats[t].name, probs[p].name, modes[m]);
                begin_line(name);
                for (int i = 0; i < 30; i++)
                    scene(floats[t].type, p ? &probs[p].type : NULL, m % 2, m >= 2);
                end_line();
            }
}

void moe_rows_lines(void)
{
    lines_of("moe_unpermute", unpermute_scene);
    lines_of("moe_permute_grad", permute_grad_scene);
    lines_of("moe_unpermute_grad", unpermute_grad_scene);
}
