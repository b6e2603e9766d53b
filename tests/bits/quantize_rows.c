/*
 * quantize_rows and dequantize_rows: every named format, types of numbers, sizes that differ from group to group.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_quantize(sy_ctx *ctx, const void *args)
{
    return sy_quantize_rows(ctx, args);
}

static sy_status call_dequantize(sy_ctx *ctx, const void *args)
{
    return sy_dequantize_rows(ctx, args);
}

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

static void quantize_scene(const sy_row_format *format)
{
    const struct sizes s = make_sizes(format);
    const bool bytes = one_in(2);
    const enum flavour flavours[] = {TIES, FINE, SPECIAL, WILD, EMPTY, FAR};
    struct box *input = box_strided(s.type, 2, s.shape, s.gap[0]);
    fill_flavour(input, flavours[below(COUNT(flavours))]);
    sy_quantize_rows_args args = {.input = &input->t, .format = format};
    args.codes = &output(box_strided(bytes ? SY_U8 : format->q_type, 2, s.shape, s.gap[1]))->t;
    args.scales = &output(box_new(format->scale_type, 2, (int64_t[]){s.rows, s.groups}))->t;
    run_scene(call_quantize, &args);
}

/* Random bytes are codes and scales of every kind. */
static void dequantize_scene(const sy_row_format *format)
{
    const struct sizes s = make_sizes(format);
    struct box *codes = fill_random(box_strided(format->q_type, 2, s.shape, s.gap[0]));
    struct box *scales = box_new(format->scale_type, 2, (int64_t[]){s.rows, s.groups});
    if (format->scale_type.bits == 32 && one_in(2))
        fill_flavour(scales, FINE);
    else
        fill_random(scales);
    const sy_dequantize_rows_args args = {&codes->t, &scales->t, format,
                                          &output(box_strided(s.type, 2, s.shape, s.gap[1]))->t};
    run_scene(call_dequantize, &args);
}

void quantize_rows_lines(void)
{
    static const char *const names[] = {"fp8_128", "fp8_128_deepep", "fp8_128_deepgemm", "fp8_128_ue8m0",
                                        "mxfp8",   "mxfp8_floor",    "int8_token"};
    char name[128];
    for (int i = 0; i < 2 * COUNT(names); i++) {
        sy_row_format format;
        sy_row_format_named(names[i / 2], &format);
        snprintf(name, sizeof name, "%s %s", i % 2 ? "dequantize_rows" : "quantize_rows", names[i / 2]);
        begin_line(name);
        for (int k = 0; k < 12; k++)
            (i % 2 ? dequantize_scene : quantize_scene)(&format);
        end_line();
    }
}
