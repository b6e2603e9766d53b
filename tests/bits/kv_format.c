/*
 * kv_gather and kv_scatter of packed rows: every named format, all types of dense rows, numbers of every kind.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_gather(sy_ctx *ctx, const void *args)
{
    return sy_kv_gather(ctx, args);
}

static sy_status call_scatter(sy_ctx *ctx, const void *args)
{
    return sy_kv_scatter(ctx, args);
}

static const DLDataType types[] = {{2, 32, 1}, {2, 16, 1}, {4, 16, 1}};

struct scene {
    sy_kv_format format;
    int64_t blocks, size, n, width;
    struct box *cache, *dense, *scale, *global, *at;
};

/* Random bytes are codes, scales and rope numbers of every kind. */
static struct scene make_scene(const char *name, DLDataType type)
{
    struct scene s = {.format = {.group = 0}};
    sy_kv_format_named(name, &s.format);
    s.blocks = 1 + below(5);
    s.size = 1 + below(6);
    s.n = 1 + below(s.blocks * s.size);
    int64_t rows = s.blocks * s.size, bytes = s.size * (s.format.row_bytes + s.format.scale_bytes);
    s.width = s.format.q_count + s.format.rope_bytes / 2;
    if (s.format.scales == SY_SCALES_BLOCK) {
        s.cache = box_new(SY_U8, 2, (int64_t[]){s.blocks, bytes + below(9)});
    } else if (s.format.scales == SY_SCALES_ROW) {
        s.cache = box_strided(SY_U8, 3, (int64_t[]){s.blocks, s.size, s.format.row_bytes}, below(4));
    } else if (s.format.scales == SY_SCALES_INLINE) {
        const int64_t groups = 1 + below(5);
        s.width = 32 * groups;
        s.cache = box_strided(SY_U8, 3,
                              (int64_t[]){s.blocks, s.size, groups * (s.format.q_type.bits == 4 ? 18 : 34)},
                              below(4));
    } else if (s.format.q_type.bits == 4) {
        const int64_t groups = 1 + below(5), one = 1;
        s.width = 16 * groups;
        s.cache = box_strided(SY_U8, 3, (int64_t[]){s.blocks, s.size, 8 * groups}, below(4));
        s.scale = fill_random(box_new(SY_U8, 2, (int64_t[]){rows, groups}));
        s.global = box_new(SY_F32, 1, &one);
        put(s.global, 0, (uint64_t)(0x30000000 + below(0x10000000)));
    } else {
        int64_t parts = 1 + below(3);
        s.width = parts * (1 + below(40));
        s.cache = box_new(SY_U8, 2, (int64_t[]){rows, s.width});
        s.scale = one_in(2) ? box_new(SY_F32, 2, (int64_t[]){rows, parts}) : box_new(SY_F32, 1, &parts);
        fill_flavour(s.scale, FINE);
    }
    fill_random(s.cache);
    s.dense = box_new(type, 2, (int64_t[]){s.n, s.width});
    s.at = box_new(SY_I32, 1, &s.n);
    return s;
}

static void gather_scene(const char *name, DLDataType type)
{
    struct scene s = make_scene(name, type);
    struct box *table = box_new(SY_I32, 1, &s.blocks);
    for (int64_t i = 0; i < s.blocks; i++)
        put(table, i, (uint64_t)below(s.blocks));
    for (int64_t i = 0; i < s.n; i++)
        put(s.at, i, (uint64_t)below(s.blocks * s.size));
    output(s.dense);
    sy_kv_gather_args args = {.cache = &s.cache->t, .indices = &s.at->t, .block_table = &table->t};
    args.block_size = s.size;
    args.format = &s.format;
    args.scale = s.scale != NULL ? &s.scale->t : NULL;
    args.global_scale = s.global != NULL ? &s.global->t : NULL;
    args.out = &s.dense->t;
    run_scene(call_gather, &args);
}

static void scatter_scene(const char *name, DLDataType type)
{
    static const enum flavour flavours[] = {FINE, SPECIAL, WILD, FAR};
    struct scene s = make_scene(name, type);
    fill_flavour(s.dense, flavours[below(COUNT(flavours))]);
    for (int64_t i = 0; i < s.n; i++)
        put(s.at, i, (uint64_t)(s.n - 1 - i));
    output(s.cache);
    if (s.scale != NULL)
        output(s.scale);
    sy_kv_scatter_args args = {.cache = &s.cache->t, .src = &s.dense->t, .slots = &s.at->t};
    args.block_size = s.format.scales == SY_SCALES_BLOCK ? s.size : 0;
    args.format = &s.format;
    args.scale = s.scale != NULL ? &s.scale->t : NULL;
    args.global_scale = s.global != NULL ? &s.global->t : NULL;
    run_scene(call_scatter, &args);
}

void kv_format_lines(void)
{
    static const char *const names[] = {"ds32_fp8", "pto_int8", "ds4_fp8", "indexer_fp8", "e4m3",      "e5m2",
                                        "int8",     "q8_0",     "q4_0",    "nvfp4",       "nvfp4_amax"};
    static const char *const type_names[] = {"f32", "f16", "bf16"};
    char line[128];
    for (int i = 0; i < COUNT(names); i++)
        for (int t = 0; t < COUNT(types); t++)
            for (int to = 0; to < 2; to++) {
                snprintf(line, sizeof line, "%s %s %s", to ? "kv_scatter" : "kv_gather", names[i],
                         type_names[t]);
                begin_line(line);
                for (int k = 0; k < 12; k++)
                    (to ? scatter_scene : gather_scene)(names[i], types[t]);
                end_line();
            }
}
