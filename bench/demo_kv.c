/*
 * The demo's paged cache: writes the row of each new token, then reads the rows of a sparse attention. A cached row is
 * a function of its sequence and position, so that results can be checked without a block table.
 */
#include "demo.h"

#include <stdlib.h>
#include <string.h>

enum { ROW_BYTES = DEMO_KV_ROW * 2 };

/* ---- The past ---- */

static void past_row(int sequence, int32_t position, uint16_t row[DEMO_KV_ROW])
{
    bench_fill_random(row, ROW_BYTES, (uint64_t)sequence << 32 | (uint32_t)position);
}

static uint16_t *row_at(const struct demo *demo, int sequence, int32_t position)
{
    const int64_t page = demo->table[sequence * DEMO_PAGES + position / DEMO_BLOCK];
    return demo->cache + (page * DEMO_BLOCK + position % DEMO_BLOCK) * DEMO_KV_ROW;
}

/* Sequences of many lengths, each with space for one more token; their pages are in random order in the pool. */
static bool make_past(struct demo *demo)
{
    uint64_t seed = 7;
    for (int b = 0; b < DEMO_TOKENS; b++) {
        demo->length[b] = (int32_t)(DEMO_SHORT + random_bits(&seed) % (DEMO_LONG - DEMO_SHORT));
        demo->pages += demo->length[b] / DEMO_BLOCK + 1;
    }
    int32_t *const order = demo_take(demo, (size_t)demo->pages, sizeof *order), *next = order;
    demo->table = demo_take(demo, (size_t)DEMO_TOKENS * DEMO_PAGES, sizeof *demo->table);
    demo->cache = demo_take(demo, (size_t)demo->pages * DEMO_BLOCK * DEMO_KV_ROW, 2);
    if (demo->no_memory)
        return false;
    bench_shuffle(order, demo->pages, 8);
    for (int b = 0; b < DEMO_TOKENS; b++) {
        for (int i = 0; i < DEMO_PAGES; i++)
            demo->table[b * DEMO_PAGES + i] = i <= demo->length[b] / DEMO_BLOCK ? *next++ : -1;
        for (int32_t t = 0; t < demo->length[b]; t++)
            past_row(b, t, row_at(demo, b, t));
    }
    return true;
}

/* A random projection of each hidden state: first the cache row, then the features of the vocabulary head. */
static bool make_fresh(struct demo *demo)
{
    enum { WIDE = DEMO_KV_ROW + DEMO_FEATURES };
    float *const x = demo_take(demo, (size_t)DEMO_TOKENS * DEMO_HIDDEN, sizeof *x);
    float *const w = demo_take(demo, (size_t)DEMO_HIDDEN * WIDE, sizeof *w);
    float *const out = demo_take(demo, (size_t)DEMO_TOKENS * WIDE, sizeof *out);
    demo->fresh = demo_take(demo, (size_t)DEMO_TOKENS * DEMO_KV_ROW, 2);
    demo->features = demo_take(demo, (size_t)DEMO_TOKENS * DEMO_FEATURES, sizeof *demo->features);
    if (demo->no_memory)
        return false;
    for (size_t i = 0; i < (size_t)DEMO_TOKENS * DEMO_HIDDEN; i++)
        x[i] = bf16_to_float(demo->hidden[i]);
    demo_fill(w, (size_t)DEMO_HIDDEN * WIDE, 0.03f, 9);
    demo_matmul(x, DEMO_TOKENS, DEMO_HIDDEN, w, WIDE / DEMO_TILE, out);
    for (int b = 0; b < DEMO_TOKENS; b++) {
        for (int i = 0; i < DEMO_KV_ROW; i++)
            demo->fresh[b * DEMO_KV_ROW + i] = bf16_from_float(out[b * WIDE + i]);
        memcpy(demo->features + (size_t)b * DEMO_FEATURES, out + (size_t)b * WIDE + DEMO_KV_ROW,
               DEMO_FEATURES * sizeof *out);
    }
    return true;
}

/* ---- kv_slots, kv_scatter ---- */

/* The new rows are where the tables say, and no row of the past has changed. */
static bool scatter_is_right(const struct demo *demo)
{
    uint16_t want[DEMO_KV_ROW];
    for (int b = 0; b < DEMO_TOKENS; b++) {
        for (int32_t t = 0; t < demo->length[b]; t++) {
            past_row(b, t, want);
            if (memcmp(row_at(demo, b, t), want, ROW_BYTES) != 0)
                return false;
        }
        if (memcmp(row_at(demo, b, demo->length[b]), demo->fresh + (size_t)b * DEMO_KV_ROW, ROW_BYTES) != 0)
            return false;
    }
    return true;
}

void demo_scatter(struct demo *demo)
{
    if (!make_past(demo) || !make_fresh(demo))
        return;
    int32_t sequence[DEMO_TOKENS], slot[DEMO_TOKENS];
    for (int b = 0; b < DEMO_TOKENS; b++)
        sequence[b] = b;
    const DLTensor cache =
        sy_tensor(demo->cache, SY_BF16, 3, (int64_t[]){demo->pages, DEMO_BLOCK, DEMO_KV_ROW});
    /* A new token comes after all others. */
    const sy_kv_slots_args where = {.batch = VEC(sequence, SY_I32, DEMO_TOKENS),
                                    .position = VEC(demo->length, SY_I32, DEMO_TOKENS),
                                    .block_table = MAT(demo->table, SY_I32, DEMO_TOKENS, DEMO_PAGES),
                                    .block_size = DEMO_BLOCK,
                                    .num_rows = demo->pages * DEMO_BLOCK,
                                    .slots = VEC(slot, SY_I32, DEMO_TOKENS)};
    const bool found = sy_kv_slots(demo->ctx, &where) == SY_OK;
    const sy_kv_scatter_args args = {.cache = &cache,
                                     .src = MAT(demo->fresh, SY_BF16, DEMO_TOKENS, DEMO_KV_ROW),
                                     .slots = where.slots,
                                     .check_unique = true};
    const size_t bytes = (size_t)DEMO_TOKENS * ROW_BYTES;
    struct demo_step *const step =
        demo_measure(demo, "kv_scatter", &args, 2 * (double)bytes + 4.0 * DEMO_TOKENS,
                     &(struct bench_work){.copy_bytes = bytes});
    snprintf(step->what, sizeof step->what,
             "writes %d new rows of %d bytes into a paged cache; kv_slots gives their rows", DEMO_TOKENS,
             ROW_BYTES);
    snprintf(step->detail, sizeof step->detail,
             "%d pages of %d rows belong to %d sequences of %d to %d tokens", (int)demo->pages, DEMO_BLOCK,
             DEMO_TOKENS, DEMO_SHORT, DEMO_LONG - 1);
    demo_print(demo, step, "each row is in the page of its sequence, every older row is untouched",
               found && step->good && scatter_is_right(demo));
}

/* ---- kv_gather ---- */

/* Whether the attention selects a page; the random attention of the demo selects a quarter of them. */
static bool matters(int sequence, int32_t page)
{
    uint64_t seed = (uint64_t)sequence * DEMO_PAGES + (uint64_t)page;
    return random_bits(&seed) % 4 == 0;
}

/* The tokens of a sparse attention: the newest ones, this one included, and as many older ones as fit, from the selected
   pages; in ascending order. */
static int64_t select_tokens(struct demo *demo)
{
    uint64_t seed = 10;
    int64_t all = 0;
    for (int b = 0; b < DEMO_TOKENS; b++) {
        const int32_t total = demo->length[b] + 1, old = total - DEMO_WINDOW;
        int32_t *const list = demo->selected + (size_t)b * DEMO_SELECTED;
        int32_t n = 0, left = 0;
        for (int32_t t = 0; t < old; t++)
            left += matters(b, t / DEMO_BLOCK);
        for (int32_t t = 0; t < total; t++) {
            const bool asked = t < old && matters(b, t / DEMO_BLOCK);
            const bool chosen = asked && random_unit(&seed) * left < DEMO_SELECTED - DEMO_WINDOW - n;
            left -= asked;
            if (chosen || t >= old)
                list[n++] = t;
        }
        demo->counts[b] = n;
        all += n;
        for (; n < DEMO_SELECTED; n++)
            list[n] = -1;
    }
    return all;
}

static bool gather_is_right(const struct demo *demo, const uint16_t *rows)
{
    for (int b = 0; b < DEMO_TOKENS; b++)
        for (int j = 0; j < DEMO_SELECTED; j++) {
            const int32_t t = demo->selected[b * DEMO_SELECTED + j];
            uint16_t want[DEMO_KV_ROW] = {0};
            if (t == demo->length[b])
                memcpy(want, demo->fresh + (size_t)b * DEMO_KV_ROW, ROW_BYTES);
            else if (t >= 0)
                past_row(b, t, want);
            if (memcmp(rows + ((size_t)b * DEMO_SELECTED + (size_t)j) * DEMO_KV_ROW, want, ROW_BYTES) != 0)
                return false;
        }
    return true;
}

void demo_gather(struct demo *demo)
{
    const int64_t all = (int64_t)DEMO_TOKENS * DEMO_SELECTED;
    uint16_t *const rows = demo_take(demo, (size_t)all * DEMO_KV_ROW, 2);
    demo->selected = demo_take(demo, (size_t)all, sizeof *demo->selected);
    if (demo->no_memory)
        return;
    const int64_t live = select_tokens(demo);
    const DLTensor cache =
        sy_tensor(demo->cache, SY_BF16, 3, (int64_t[]){demo->pages, DEMO_BLOCK, DEMO_KV_ROW});
    const DLTensor out = sy_tensor(rows, SY_BF16, 3, (int64_t[]){DEMO_TOKENS, DEMO_SELECTED, DEMO_KV_ROW});
    const sy_kv_gather_args args = {.cache = &cache,
                                    .indices = MAT(demo->selected, SY_I32, DEMO_TOKENS, DEMO_SELECTED),
                                    .block_table = MAT(demo->table, SY_I32, DEMO_TOKENS, DEMO_PAGES),
                                    .counts = VEC(demo->counts, SY_I32, DEMO_TOKENS),
                                    .block_size = DEMO_BLOCK,
                                    .pad = SY_PAD_ZERO,
                                    .out = &out};
    const size_t copied = (size_t)live * ROW_BYTES, filled = (size_t)(all - live) * ROW_BYTES;
    struct demo_step *const step =
        demo_measure(demo, "kv_gather", &args, 2 * (double)copied + (double)filled + 4.0 * (double)all,
                     &(struct bench_work){.copy_bytes = copied, .fill_bytes = filled});
    snprintf(step->what, sizeof step->what,
             "fetches what a sparse attention reads: %d rows, up to %d of each sequence", (int)live,
             DEMO_SELECTED);
    snprintf(step->detail, sizeof step->detail,
             "the newest %d of each sequence, and older ones from pages that matter now", DEMO_WINDOW);
    demo_print(demo, step,
               "every row is the one its sequence wrote at that position, the new ones among them",
               step->good && gather_is_right(demo, rows));
}
