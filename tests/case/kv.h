/*
 * What the cases of the operators on paged KV caches share: caches with further planes and formats, the rows of a dense
 * cache, and page tables.
 */
#pragma once

#include "case.h"

#include "oracle/kv_format.h"
#include "oracle/kv_gather.h"

struct kv_plane {
    struct operand *cache, *rows, *scale, *global;
    const sy_kv_format *format; /* NULL: rows are copied as they are */
    struct packed_cache at;     /* where the rows of a dense cache are */
    int64_t head_bytes;
};

struct kv_caches {
    int64_t blocks, block_size, rows;
    int n_planes; /* with that of the call */
    sy_kv_layout layout;
    struct kv_plane plane[1 + CASE_PLANES];
};

/* Caches and their dense rows [lead..., row...] in `dense`, src or out; src: the call writes the caches. */
int kv_more_planes(struct call *c); /* how many besides that of the call */
struct kv_caches *kv_make_caches(struct call *c, const char *dense);
void kv_make_rows(struct call *c, struct kv_caches *k, const char *dense, int rank, const int64_t *lead);
#define KV_TAKE(a, k) \
    do { \
        (a)->layout = (k)->layout; \
        (a)->format = (k)->plane[0].format; \
        (a)->planes = c->planes; \
        (a)->num_planes = (k)->n_planes - 1; \
        (a)->plane_bytes = sizeof(sy_kv_plane); \
    } while (0)

/* For the oracle: row `slot` of a plane to or from dense row i. Then the fault of a global scale; false: there is one. */
void kv_read(const struct kv_caches *k, int64_t slot, int64_t i);
void kv_write(const struct kv_caches *k, int64_t slot, int64_t i);
void kv_clear(const struct kv_caches *k, int64_t i);
bool kv_check_globals(struct call *c, const struct kv_caches *k);
void kv_note(struct call *c, const struct kv_caches *k);
#define KV_FORMATS \
    "ds32_fp8", "pto_int8", "ds4_fp8", "indexer_fp8", "e4m3", "e5m2", "int8", "q8_0", "q4_0", "nvfp4", \
        "nvfp4_amax", "by_row", "by_block"
#define KV_NOTES \
    KV_FORMATS, "three planes", "many planes", "planes of two kinds", "heads outside rows", "partial block", \
        "long block"

/* One to three dimensions of n in all. Returns their number. */
int kv_shape(struct call *c, int64_t n, int64_t *shape);

/* A small cache, or one whose slots need all bits of their type. */
int64_t kv_choose_rows(struct call *c, DLDataType slots, int64_t *block_size);

/* Block tables and lists. Their entries are unmapped until a token needs them. */
struct kv_table {
    struct operand *entries, *indptr, *last;
    int64_t n, columns, block_size, rows, drawn;
};
struct kv_table kv_make_table(struct call *c, int64_t n, int64_t block_size, int64_t rows, bool lengths);
int64_t kv_room(const struct kv_table *t, int64_t r); /* tokens of sequence r */
/* Maps the page of a token; to blocks that follow each other, or not. False: the last block lacks its row. */
bool kv_map(struct call *c, const struct kv_table *t, int64_t r, int64_t token);
/* A token below `limit` of sequence r, mostly the one after the last drawn; -1: there is none. */
int64_t kv_draw(struct call *c, struct kv_table *t, int64_t r, int64_t limit);

/* req_id and seq_lens of b sequences, counts where k >= 0, and their table. Then indices [...,k], and what the oracle reads. */
struct kv_table kv_make_sequences(struct call *c, int64_t b, int64_t k, int64_t block_size, int64_t rows);
void kv_make_pages(struct call *c, int64_t b, int64_t k, int64_t block_size, int64_t rows, sy_kv_pad pad);
struct gather_case kv_find_pages(struct call *c, int64_t block_size, int64_t rows, sy_kv_pad pad);
#define KV_PAGES "TABLE_SHORT", "past counts", "padding", "several rows of a sequence"
/* Of a line of 3 index rows of 5, 2 table rows of 8, req_id, counts, seq_lens. */
#define KV_PAGE_REJECTIONS \
    {"block_table=-", SY_ERR_NULL, NULL, "page_indices and indptr"}, \
        {"req_id.shape[0]=2", SY_ERR_SHAPE, "[2]", "[3]"}, \
        {"req_id=-", SY_ERR_SHAPE, "2 rows", "3, one for each row of indices", .blame = "block_table"}, \
        {"block_size=0", SY_ERR_VALUE, "0", "1 or more", .code = SY_FAULT_BAD_BLOCK_SIZE, .numbers = {0, 1}}, \
    { \
        "block_size=2^61", SY_ERR_OVERFLOW, "8 columns", "2^63", .blame = "block_table" \
    }

/* Puts numbers that may be wrong into these tensors, up to three. */
void kv_plant(struct call *c, const char *const *fields, int64_t limit, int64_t other);

/* For the oracle: the table of the call, and what a fault of it is. */
void kv_find_table(struct call *c, struct gather_case *in);
bool kv_expect(struct call *c, const sy_fault *f);
#define KV_FAULTS "LENGTH_RANGE", "REQ_RANGE", "INDEX_RANGE", "BLOCK_RANGE", "ROW_RANGE", "lists", "no pages"
