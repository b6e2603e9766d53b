/*
 * Operators that make codes of the rows they move, or add up rows that are codes, in every named format; sizes that differ
 * from group to group.
 */
#include "bits.h"

#include <stdio.h>

static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};

/* Sizes of a scene; one call after the other, in an order that the language defines. */
struct sizes {
    DLDataType type;
    int64_t rows, groups, gap[2];
    int64_t shape[2];
};

static struct sizes make_sizes(const sy_row_format *format)
{
    struct sizes s = {.type = types[below(3)]};
    s.rows = below(40);
    s.groups = format->group > 0 ? below(80) : 1;
    s.gap[0] = below(4);
    s.gap[1] = below(4);
    s.shape[0] = s.rows;
    s.shape[1] = s.groups * (format->group > 0 ? format->group : below(900));
    return s;
}

/* ---- Codes on the way ---------------------------------------------------------------------------------- */

static sy_status call_permute(sy_ctx *ctx, const void *args)
{
    return sy_moe_permute(ctx, args);
}

static sy_status call_permute_ids(sy_ctx *ctx, const void *args)
{
    return sy_moe_permute_ids(ctx, args);
}

/* The rows of a scene, and what they become. */
struct moved {
    struct sizes s;
    const DLTensor *rows, *codes, *scales;
};

static struct moved make_moved(const sy_row_format *format, struct sizes s, int64_t n)
{
    static const enum flavour flavours[] = {TIES, FINE, SPECIAL, WILD};
    struct moved m = {.s = s};
    struct box *rows = box_strided(m.s.type, 2, m.s.shape, m.s.gap[0]);
    m.rows = &fill_flavour(rows, flavours[below(COUNT(flavours))])->t;
    m.codes = &output(box_strided(SY_U8, 2, (int64_t[]){n, m.s.shape[1]}, m.s.gap[1]))->t;
    m.scales = &output(box_new(format->scale_type, 2, (int64_t[]){n, m.s.groups}))->t;
    return m;
}

static void permute_scene(const sy_row_format *format)
{
    const struct sizes s = make_sizes(format);
    const bool drop = one_in(2); /* else some tokens have no expert, and no row */
    const int64_t experts = 1 + below(5), n = experts * (drop ? below(s.rows + 1) : s.rows);
    const struct moved m = make_moved(format, s, n);
    struct box *map = box_new(SY_BOOL, 2, (int64_t[]){m.s.rows, experts});
    for (int64_t i = 0; i < m.s.rows * experts; i++)
        put(map, i, one_in(3));
    const sy_moe_permute_args args = {.tokens = m.rows,
                                      .routing_map = &map->t,
                                      .num_out_tokens = n,
                                      .drop_and_pad = drop,
                                      .zero_pad = drop,
                                      .permuted_tokens = m.codes,
                                      .sorted_indices = &output(box_new(SY_I32, 1, &n))->t,
                                      .row_format = format,
                                      .permuted_scales = m.scales};
    run_scene(call_permute, &args);
}

static void permute_ids_scene(const sy_row_format *format)
{
    const struct sizes s = make_sizes(format);
    const int64_t total = s.rows * (1 + below(10)), slots = s.rows > 0 ? total / s.rows : 1;
    const int64_t n = below((total < 40 ? total : 40) + 1);
    const struct moved m = make_moved(format, s, n);
    struct box *ids = box_new(SY_I32, 2, (int64_t[]){m.s.rows, slots});
    for (int64_t i = 0; i < total; i++)
        put(ids, i, (uint64_t)(below(9) - 1));
    const sy_moe_permute_ids_args args = {.tokens = m.rows,
                                          .ids = &ids->t,
                                          .num_experts = 8,
                                          .allow_missing = true,
                                          .window = true,
                                          .row_end = n,
                                          .permuted_tokens = m.codes,
                                          .sorted_indices = &output(box_new(SY_I32, 1, &total))->t,
                                          .row_format = format,
                                          .permuted_scales = m.scales};
    run_scene(call_permute_ids, &args);
}

/* ---- Sums of codes ------------------------------------------------------------------------------------- */

static sy_status call_unpermute(sy_ctx *ctx, const void *args)
{
    return sy_moe_unpermute(ctx, args);
}

static sy_status call_reduce(sy_ctx *ctx, const void *args)
{
    return sy_local_reduce(ctx, args);
}

const DLTensor *fill_codes(const sy_row_format *format, int rank, const int64_t *shape, int64_t gap)
{
    return &fill_random(box_strided(format->q_type, rank, shape, gap))->t;
}

const DLTensor *fill_scales(const sy_row_format *format, int rank, const int64_t *shape)
{
    struct box *scales = box_new(format->scale_type, rank, shape);
    if (format->scale_type.bits == 32)
        return &fill_flavour(scales, FINE)->t;
    for (int64_t i = 0; i < box_elems(scales); i++)
        put(scales, i, (uint64_t)(120 + below(12)));
    return &scales->t;
}

static void unpermute_scene(const sy_row_format *format)
{
    const struct sizes s = make_sizes(format);
    const int64_t slots = 1 + below(10), n = s.rows * slots;
    struct box *sorted = box_new(SY_I32, 1, &n);
    for (int64_t i = 0; i < n; i++)
        put(sorted, i, (uint64_t)(one_in(6) ? -1 : below(n)));
    const sy_moe_unpermute_args args = {.permuted_tokens =
                                            fill_codes(format, 2, (int64_t[]){n, s.shape[1]}, s.gap[0]),
                                        .sorted_indices = &sorted->t,
                                        .num_tokens = s.rows,
                                        .tokens = &output(box_strided(s.type, 2, s.shape, s.gap[1]))->t,
                                        .row_format = format,
                                        .permuted_scales = fill_scales(format, 2, (int64_t[]){n, s.groups})};
    run_scene(call_unpermute, &args);
}

static void reduce_scene(const sy_row_format *format)
{
    const struct sizes s = make_sizes(format);
    const int64_t slots = 1 + below(10), experts = 1 + below(6);
    struct box *table = box_new(SY_I32, 2, (int64_t[]){s.rows, slots}),
               *mapping = box_new(SY_U16, 2, (int64_t[]){experts, 1});
    for (int64_t i = 0; i < s.rows * slots; i++)
        put(table, i, (uint64_t)(below(experts + 1) - 1));
    for (int64_t e = 0; e < experts; e++)
        put(mapping, e, 1);
    const sy_local_reduce_args args = {
        .input = fill_codes(format, 3, (int64_t[]){experts, s.rows, s.shape[1]}, 0),
        .expert_metadata = &table->t,
        .expert_mapping = &mapping->t,
        .weights = &fill_flavour(box_new(SY_F32, 2, (int64_t[]){s.rows, slots}), PROBS)->t,
        .output = &output(box_strided(s.type, 2, s.shape, s.gap[1]))->t,
        .row_format = format,
        .input_scales = fill_scales(format, 3, (int64_t[]){experts, s.rows, s.groups})};
    run_scene(call_reduce, &args);
}

const char *const row_formats[N_ROW_FORMATS] = {
    "fp8_128", "fp8_128_deepep", "fp8_128_deepgemm", "fp8_128_ue8m0", "mxfp8", "mxfp8_floor", "int8_token"};

/* Scenes of every format. */
static void lines_of(const char *op, void (*scene)(const sy_row_format *format))
{
    for (int i = 0; i < N_ROW_FORMATS; i++) {
        char name[128];
        sy_row_format format;
        sy_row_format_named(row_formats[i], &format);
        snprintf(name, sizeof name, "%s %s", op, row_formats[i]);
        begin_line(name);
        for (int k = 0; k < 12; k++)
            scene(&format);
        end_line();
    }
}

void quantize_rows_lines(void)
{
    lines_of("moe_permute", permute_scene);
    lines_of("moe_permute_ids", permute_ids_scene);
    lines_of("moe_unpermute", unpermute_scene);
    lines_of("local_reduce", reduce_scene);
}
