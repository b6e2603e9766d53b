/*
 * Page lists in place of a block table: the four operators that take them, with and without faults in the contents.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_gather(sy_ctx *ctx, const void *args)
{
    return sy_kv_gather(ctx, args);
}

static sy_status call_translate(sy_ctx *ctx, const void *args)
{
    return sy_kv_translate(ctx, args);
}

static sy_status call_slots(sy_ctx *ctx, const void *args)
{
    return sy_kv_slots(ctx, args);
}

static sy_status call_ragged(sy_ctx *ctx, const void *args)
{
    return sy_kv_ragged(ctx, args);
}

/* Lists of up to four pages; what was drawn for them. */
struct lists {
    int64_t n, size, blocks, longest;  /* lists, S, blocks of the cache, most tokens of a list */
    struct box *pages, *indptr, *last; /* last may be NULL */
};

static struct lists make_lists(bool faults)
{
    struct lists x = {.n = 1 + below(5)};
    int64_t begin[8] = {0}, pages = 0;
    x.size = 1 + below(7);
    x.blocks = 1 + below(9);
    for (int64_t r = 0; r < x.n; r++) {
        const int64_t length = below(5);
        begin[r] = pages;
        pages += length;
        x.longest = length * x.size > x.longest ? length * x.size : x.longest;
    }
    begin[x.n] = pages;
    if (faults && one_in(6)) {
        const int64_t r = below(x.n + 1); /* one draw per statement: operands have no order */
        begin[r] += one_in(2) ? 9 : -3;
    }
    const DLDataType type = index_type();
    x.pages = box_new(type, 1, &pages);
    for (int64_t i = 0; i < pages; i++) {
        const int64_t block = below(faults && one_in(9) ? x.blocks + 2 : x.blocks);
        put(x.pages, i, (uint64_t)block);
    }
    const DLDataType indptr_type = index_type();
    x.indptr = box_new(indptr_type, 1, (int64_t[]){x.n + 1});
    for (int64_t r = 0; r <= x.n; r++)
        put(x.indptr, r, (uint64_t)begin[r]);
    if (one_in(2)) {
        const DLDataType last_type = index_type();
        x.last = box_new(last_type, 1, &x.n);
        for (int64_t r = 0; r < x.n; r++)
            put(x.last, r, (uint64_t)(1 + below(faults && one_in(9) ? x.size + 1 : x.size)));
    }
    return x;
}

static struct box *make_tokens(int64_t rows, int64_t columns, int64_t length)
{
    const DLDataType type = index_type();
    struct box *tokens = box_new(type, 2, (int64_t[]){rows, columns});
    for (int64_t i = 0; i < rows * columns; i++) {
        const int64_t t = one_in(3) ? -1 : below(length + 1);
        put(tokens, i, (uint64_t)t);
    }
    return tokens;
}

static void gather_scene(bool faults)
{
    const struct lists x = make_lists(faults);
    const int64_t k = one_in(6) ? 2000 : 1 + below(3);
    struct box *cache = fill_random(box_new(SY_F16, 3, (int64_t[]){x.blocks, x.size, 5}));
    struct box *indices = make_tokens(x.n, k, faults ? x.longest : 0);
    struct box *out = output(box_new(SY_F16, 3, (int64_t[]){x.n, k, 5}));
    const sy_kv_gather_args args = {.cache = &cache->t,
                                    .indices = &indices->t,
                                    .block_size = x.size,
                                    .pad = SY_PAD_ZERO,
                                    .out = &out->t,
                                    .page_indices = &x.pages->t,
                                    .indptr = &x.indptr->t,
                                    .last_page_len = x.last ? &x.last->t : NULL};
    run_scene(call_gather, &args);
}

static void translate_scene(bool faults)
{
    const struct lists x = make_lists(faults);
    const int64_t k = one_in(6) ? 9000 : 1 + below(3);
    struct box *indices = make_tokens(x.n, k, faults ? x.longest : 0);
    const DLDataType type = index_type();
    struct box *slots = output(box_new(type, 2, (int64_t[]){x.n, k}));
    const sy_kv_translate_args args = {.indices = &indices->t,
                                       .block_size = x.size,
                                       .num_rows = x.blocks * x.size,
                                       .pad = SY_PAD_SKIP,
                                       .slots = &slots->t,
                                       .page_indices = &x.pages->t,
                                       .indptr = &x.indptr->t,
                                       .last_page_len = x.last ? &x.last->t : NULL};
    run_scene(call_translate, &args);
}

static void slots_scene(bool faults)
{
    const struct lists x = make_lists(faults);
    const int64_t n = one_in(6) ? 9000 : 1 + below(3);
    struct box *position = make_tokens(1, n, faults ? x.longest : 0);
    const DLDataType type = index_type();
    struct box *batch = box_new(type, 2, (int64_t[]){1, n}),
               *slots = output(box_new(SY_I64, 2, (int64_t[]){1, n}));
    for (int64_t i = 0; i < n; i++)
        put(batch, i, (uint64_t)below(x.n));
    const sy_kv_slots_args args = {.batch = &batch->t,
                                   .position = &position->t,
                                   .block_size = x.size,
                                   .pad = SY_PAD_SKIP,
                                   .slots = &slots->t,
                                   .page_indices = &x.pages->t,
                                   .indptr = &x.indptr->t,
                                   .last_page_len = x.last ? &x.last->t : NULL};
    run_scene(call_slots, &args);
}

static void ragged_scene(bool faults)
{
    const struct lists x = make_lists(faults);
    const int64_t width = one_in(4) ? 3000 : 1 + below(9);
    int64_t rows = 0;
    struct box *cu_lens = box_new(SY_I32, 1, (int64_t[]){x.n + 1});
    put(cu_lens, 0, 0);
    for (int64_t b = 0; b < x.n; b++) {
        rows += one_in(2) ? 0 : below(x.size + (faults ? 2 : 1));
        put(cu_lens, b + 1, (uint64_t)rows);
    }
    struct box *cache = fill_random(box_new(SY_BF16, 3, (int64_t[]){x.blocks, x.size, width}));
    struct box *out = output(box_new(SY_BF16, 2, (int64_t[]){rows, width}));
    const sy_kv_ragged_args args = {.cache = &cache->t,
                                    .cu_lens = &cu_lens->t,
                                    .block_size = x.size,
                                    .out = &out->t,
                                    .page_indices = &x.pages->t,
                                    .indptr = &x.indptr->t,
                                    .last_page_len = x.last ? &x.last->t : NULL};
    run_scene(call_ragged, &args);
}

void kv_lists_lines(void)
{
    static const struct {
        const char *name;
        void (*scene)(bool faults);
    } all[] = {{"kv_gather", gather_scene},
               {"kv_translate", translate_scene},
               {"kv_slots", slots_scene},
               {"kv_ragged", ragged_scene}};
    char name[128];
    for (int i = 0; i < COUNT(all); i++)
        for (int f = 0; f < 2; f++) {
            snprintf(name, sizeof name, "kv_lists %s%s", all[i].name, f ? " faulty" : "");
            begin_line(name);
            for (int n = 0; n < 60; n++)
                all[i].scene(f);
            end_line();
        }
}
