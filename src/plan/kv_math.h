/*
 * Paged caches, for every backend: where a token is and what is wrong with it, page lists and sequences, and the scales of
 * packed rows. Every number is validated as 64 bits before it is multiplied or used as an address, so that these functions
 * are safe for any contents.
 */
#pragma once

#include "plan/load.h"

/* ---- Sequences ---- */

/* Properties of a whole index row. */
struct syi_kv_sequence {
    const unsigned char *indices, *table;
    int64_t columns; /* entries of `table` */
    int64_t live;    /* positions from here on are padding */
    int64_t length;  /* logical tokens */
};

/* t / block_size without a division where that is exact: a shift, or a multiplication for 32-bit operands. */
SYI_BOTH static inline int64_t syi_kv_block(const struct syi_kv_pool *pool, int64_t t)
{
    if (pool->block_shift >= 0)
        return t >> pool->block_shift;
    if (pool->block_magic != 0 && t <= UINT32_MAX)
        return (int64_t)((syi_u128)pool->block_magic * (uint64_t)t >> 64);
    return t / pool->block_size;
}

/* Of row r of the table, or list r. It is empty where there is none, and where a list is not valid, which is a fault of its
   own; then `table` is NULL. */
SYI_BOTH static inline struct syi_kv_sequence syi_kv_row_of(const struct syi_kv_pages *p, int64_t r)
{
    struct syi_kv_sequence s = {NULL, NULL, 0, 0, 0};
    if (r < 0 || r >= p->table.rows || p->table.len == 0)
        return s;
    if (!syi_kv_lists(&p->table)) {
        s.table = syi_row_at(p->table.entries, r);
        s.columns = p->table.len;
        s.length = p->table.len * p->pool.block_size;
        return s;
    }
    const int64_t begin = syi_column_int(&p->table.indptr, r), end = syi_column_int(&p->table.indptr, r + 1);
    if (begin < 0 || end <= begin || end > p->table.len)
        return s;
    s.table = p->table.entries.data + begin * (p->table.type == SY_TYPE_I32 ? 4 : 8);
    s.columns = end - begin;
    s.length = s.columns * p->pool.block_size;
    if (syi_present(&p->table.last_page_len))
        s.length -= p->pool.block_size - syi_column_int(&p->table.last_page_len, r);
    return s;
}

/* Of sequence b, without its indices, which not every operator has. */
SYI_BOTH static inline struct syi_kv_sequence syi_kv_sequence_of(const struct syi_kv_pages *p, int64_t b)
{
    struct syi_kv_sequence s = syi_kv_row_of(p, syi_present(&p->req_id) ? syi_column_int(&p->req_id, b) : b);
    s.live = syi_present(&p->counts) ? syi_column_int(&p->counts, b) : p->k;
    if (syi_present(&p->seq_lens))
        s.length = syi_column_int(&p->seq_lens, b);
    return s;
}

/* ---- Faults of lists and sequences ---- */

/* Entry r of indptr, then the last page of list r - 1. */
SYI_BOTH static inline struct syi_found syi_kv_list_fault(const struct syi_kv_pages *p, int64_t r)
{
    const struct syi_kv_table *const table = &p->table;
    const int64_t at = syi_column_int(&table->indptr, r),
                  before = r > 0 ? syi_column_int(&table->indptr, r - 1) : 0;
    if (at < before)
        return syi_bad_at(SYI_BAD_KV_INDPTR_BACK, r, -1, at, before);
    if (at > table->len)
        return syi_bad_at(SYI_BAD_KV_INDPTR_HIGH, r, -1, at, table->len);
    if (r == 0 || at == before || !syi_present(&table->last_page_len))
        return syi_good();
    const int64_t last = syi_column_int(&table->last_page_len, r - 1), most = p->pool.block_size;
    if (last < 1)
        return syi_bad_at(SYI_BAD_KV_LAST_PAGE_LOW, r - 1, -1, last, 1);
    return last > most ? syi_bad_at(SYI_BAD_KV_LAST_PAGE_HIGH, r - 1, -1, last, most) : syi_good();
}

/* Count, length and table row of sequence b. */
SYI_BOTH static inline struct syi_found syi_kv_sequence_fault(const struct syi_kv_pages *p, int64_t b)
{
    const int64_t count = syi_present(&p->counts) ? syi_column_int(&p->counts, b) : 0;
    const int64_t length = syi_present(&p->seq_lens) ? syi_column_int(&p->seq_lens, b) : 0;
    const int64_t request = syi_present(&p->req_id) ? syi_column_int(&p->req_id, b) : 0;
    if (count < 0 || count > p->k)
        return syi_bad_at(count < 0 && p->k == 0 ? SYI_BAD_KV_COUNT_NEGATIVE : SYI_BAD_KV_COUNT, b, -1, count,
                          p->k);
    if (length < 0)
        return syi_bad_at(SYI_BAD_KV_LENGTH, b, -1, length, 0);
    if (syi_present(&p->req_id) && (request < 0 || request >= p->table.rows))
        return syi_bad_at(syi_kv_lists(&p->table) ? SYI_BAD_KV_P_REQUEST : SYI_BAD_KV_REQUEST, b, -1, request,
                          p->table.rows);
    return syi_good();
}

/* Entry i of cu_lens, of kv_ragged. */
SYI_BOTH static inline struct syi_found syi_kv_dense_fault(const struct syi_column *cu_lens, int64_t i,
                                                           int64_t n_rows)
{
    const int64_t at = syi_column_int(cu_lens, i), before = i > 0 ? syi_column_int(cu_lens, i - 1) : 0;
    if (i == 0 && at != 0)
        return syi_bad_at(SYI_BAD_KV_DENSE_FIRST, i, -1, at, 0);
    if (at < before)
        return syi_bad_at(SYI_BAD_KV_DENSE_BACK, i, -1, at, before);
    return at > n_rows ? syi_bad_at(SYI_BAD_KV_DENSE_HIGH, i, -1, at, n_rows) : syi_good();
}

/* ---- Tokens ---- */

/* The number of token t in this rank's share; -1: another rank's. */
SYI_BOTH static inline int64_t syi_kv_own_token(const struct syi_kv_share *share, int64_t t)
{
    const int64_t run = t / share->run;
    return run % share->world == share->rank ? run / share->world * share->run + t % share->run : -1;
}

/* The token that is number `own` of this rank's share; saturates. */
SYI_BOTH static inline int64_t syi_kv_shared_token(const struct syi_kv_share *share, int64_t own)
{
    const syi_u128 run = (syi_u128)(own / share->run) * (uint64_t)share->world + (uint64_t)share->rank;
    const syi_u128 t = run * (uint64_t)share->run + (uint64_t)(own % share->run);
    return t > (syi_u128)INT64_MAX ? INT64_MAX : (int64_t)t;
}

/* The slot of token t of a sequence; -1: padding, another rank's, or a fault. The fault is without its place. */
SYI_BOTH static inline int64_t syi_kv_slot_of(const struct syi_kv_pages *p, const struct syi_kv_sequence *s,
                                              int64_t t, struct syi_found *found)
{
    const struct syi_kv_pool *const pool = &p->pool;
    const bool lists = syi_kv_lists(&p->table), shared = p->share.world > 1;
    found->bad = SYI_GOOD;
    if (t == -1 && p->pad != SY_PAD_ERROR)
        return -1;
    /* seq_lens counts the tokens of all ranks, a table or a list those of this one. */
    const bool own_length = shared && !syi_present(&p->seq_lens);
    const int64_t own = shared && t >= 0 ? syi_kv_own_token(&p->share, t) : t;
    if (t < 0 || (own_length ? own : t) >= s->length) {
        *found = syi_bad_at(SYI_BAD_KV_INDEX, -1, -1, t,
                            own_length ? syi_kv_shared_token(&p->share, s->length) : s->length);
        return -1;
    }
    if (own < 0)
        return -1;
    const int64_t column = syi_kv_block(pool, own);
    if (column >= s->columns) {
        *found =
            syi_bad_at(lists ? SYI_BAD_KV_P_TABLE_SHORT : SYI_BAD_KV_TABLE_SHORT, -1, -1, column, s->columns);
        return -1;
    }
    const int64_t block = syi_load_index(s->table, column, p->table.type);
    if (block < 0 || block >= pool->n_blocks) {
        *found = syi_bad_at(lists ? SYI_BAD_KV_P_BLOCK : SYI_BAD_KV_BLOCK, -1, -1, block, pool->n_blocks);
        return -1;
    }
    const int64_t row = block * pool->block_size + (own - column * pool->block_size);
    if (row < pool->n_rows)
        return row;
    *found = syi_bad_at(lists ? SYI_BAD_KV_P_ROW : SYI_BAD_KV_ROW, -1, -1, row, pool->n_rows);
    return -1;
}

/* The same fault in the words of kv_slots. */
SYI_BOTH static inline int32_t syi_kv_of_token(int32_t bad)
{
    switch (bad) {
    case SYI_BAD_KV_INDEX:
        return SYI_BAD_KV_OF_TOKEN_INDEX;
    case SYI_BAD_KV_BLOCK:
        return SYI_BAD_KV_OF_TOKEN_BLOCK;
    case SYI_BAD_KV_P_BLOCK:
        return SYI_BAD_KV_OF_TOKEN_P_BLOCK;
    case SYI_BAD_KV_ROW:
        return SYI_BAD_KV_OF_TOKEN_ROW;
    case SYI_BAD_KV_P_ROW:
        return SYI_BAD_KV_OF_TOKEN_P_ROW;
    default:
        return bad;
    }
}

/* ---- Packed rows ---- */

/* The first code of group g. */
SYI_BOTH static inline size_t syi_kv_code_offset(const struct syi_kv_codec *codec, size_t g)
{
    const size_t head = g / codec->per_head;
    return codec->q_off + head * (size_t)codec->head_stride + (g - head * codec->per_head) * codec->group;
}

/* A scale of the bits that are stored for it. */
SYI_BOTH static inline float syi_kv_scale_from(const struct syi_kv_codec *codec, uint32_t bits)
{
    return codec->e8m0 ? syi_e8m0_to_f32((uint8_t)bits) : syi_f32_from_bits(bits);
}

/* The scale of group g. */
SYI_BOTH static inline float syi_kv_scale(const struct syi_kv_codec *codec, const unsigned char *record,
                                          size_t g)
{
    const unsigned char *const scales = record + codec->scale_off;
    const size_t at = g / codec->share;
    return syi_kv_scale_from(codec, codec->e8m0 ? scales[at] : syi_load_u32(scales + at * 4));
}

/* The bits of a magnitude, which order like the numbers. NaN counts as 0. */
SYI_BOTH static inline uint32_t syi_kv_magnitude(float x)
{
    const uint32_t bits = syi_f32_bits(x) & 0x7fffffffu;
    return bits > 0x7f800000u ? 0 : bits;
}

/* The bits that are stored as the scale for a largest magnitude. */
SYI_BOTH static inline uint32_t syi_kv_scale_bits(const struct syi_kv_codec *codec, uint32_t magnitude)
{
    const float amax = syi_finite_magnitude(magnitude);
    const float least = codec->e8m0 ? 1e-4f : codec->code == SYI_CODE_I8 ? 1e-8f : 0.0f;
    const float scale = (amax > least ? amax : least) / syi_code_most(codec->code);
    const uint32_t bits = syi_f32_bits(scale);
    if (codec->e8m0) /* the least power of two that is not below it */
        return (bits >> 23) + ((bits & 0x7fffffu) != 0);
    return bits > 0x00800000u ? bits : 0x00800000u; /* at least FLT_MIN */
}

SYI_BOTH static inline void syi_kv_store_scale(const struct syi_kv_codec *codec, uint32_t bits,
                                               unsigned char *record, size_t at)
{
    unsigned char *const scales = record + codec->scale_off;
    if (codec->e8m0)
        scales[at] = (unsigned char)bits;
    else
        syi_store_u32(scales + at * 4, bits);
}

/* Makes scale number `at` of the largest magnitude it is for, and stores it. */
SYI_BOTH static inline void syi_kv_make_scale(const struct syi_kv_codec *codec, uint32_t magnitude,
                                              unsigned char *record, size_t at)
{
    syi_kv_store_scale(codec, syi_kv_scale_bits(codec, magnitude), record, at);
}

/* ---- Scales inline ---- */

enum { SYI_INLINE_GROUP = 32, SYI_INLINE_SCALE = 2 }; /* numbers of a group, bytes of its scale */

SYI_BOTH static inline size_t syi_inline_bytes(const struct syi_kv_codec *codec)
{
    return SYI_INLINE_SCALE + (codec->four ? SYI_INLINE_GROUP / 2 : SYI_INLINE_GROUP);
}

/* The bits of a magnitude; NaN counts as 0, infinity as FLT_MAX. */
SYI_BOTH static inline uint32_t syi_inline_magnitude(float x)
{
    const uint32_t bits = syi_kv_magnitude(x);
    return bits < 0x7f800000u ? bits : 0x7f7fffffu;
}

/* The scale for the number of the largest magnitude, which has no sign where codes are int8; what numbers are multiplied with. */
SYI_BOTH static inline float syi_inline_scale(bool four, float number)
{
    return four ? number / -8.0f : number / 127.0f;
}

SYI_BOTH static inline float syi_inline_factor(float scale)
{
    return scale != 0 ? 1.0f / scale : 0.0f;
}

/* Of a product: half away from zero, or 0 to 15. The largest number below a half, added, rounds a half up to the next
   integer and leaves every smaller rest below it. */
SYI_BOTH static inline uint8_t syi_inline_code(bool four, float y)
{
    const float z = four ? y + 8.5f : y, most = four ? 15.0f : 127.0f, least = four ? 0.0f : -128.0f;
    const float high = z < most ? z : most, clamped = high > least ? high : least;
    const float half = syi_f32_from_bits((syi_f32_bits(clamped) & 0x80000000u) | 0x3effffffu);
    const int32_t code = (int32_t)(four ? clamped : clamped + half);
    return (uint8_t)(y == y ? code : four ? 8 : 0);
}

/* ---- nvfp4 ---- */

enum { SYI_FP4_GROUP = 16, SYI_FP4_BYTES = 8 }; /* numbers and bytes of a group */

/* The global scale of row i as it is stored; whether it is one. */
SYI_BOTH static inline float syi_global_at(const struct syi_global *global, int64_t i)
{
    return syi_f32_from_bits(syi_load_u32(global->data + i * global->stride));
}

SYI_BOTH static inline bool syi_global_is_bad(const struct syi_global *global, int64_t i)
{
    const float x = syi_global_at(global, i);
    return !(x > 0.0f) || syi_f32_bits(x) >= 0x7f800000u;
}

/* Codes are multiplied by `decode`, after the scale of their group; that of amax, before it is rounded, is amax * encode. */
struct syi_fp4_scale {
    float decode, encode;
};

SYI_BOTH static inline float syi_at_most_flt_max(float x)
{
    return syi_f32_bits(x) < 0x7f800000u ? x : syi_f32_from_bits(0x7f7fffffu);
}

/* Of row i. 2688 is 6 * 448, the largest code by the largest scale. */
SYI_BOTH static inline struct syi_fp4_scale syi_fp4_scale_of(const struct syi_global *global, int64_t i)
{
    const float given = syi_global_at(global, i),
                all = syi_at_most_flt_max((global->amax ? 2688.0f : 1.0f) / given);
    const struct syi_fp4_scale scale = {global->amax ? 1.0f / all : given, all * (1.0f / 6.0f)};
    return scale;
}

/* The byte of a group's scale, of the bits of its largest magnitude; what its numbers are multiplied with. */
SYI_BOTH static inline uint8_t syi_fp4_byte(struct syi_fp4_scale scale, uint32_t magnitude)
{
    return syi_f32_to_e4m3(syi_f32_from_bits(magnitude) * scale.encode);
}

SYI_BOTH static inline float syi_fp4_factor(struct syi_fp4_scale scale, uint8_t byte)
{
    return byte != 0 ? syi_at_most_flt_max(1.0f / (syi_e4m3_to_f32(byte) * scale.decode)) : 0.0f;
}

/* The first byte of group g in a row. */
SYI_BOTH static inline size_t syi_fp4_offset(const struct syi_kv_codec *codec, size_t g)
{
    const size_t head = g / codec->per_head;
    return head * (size_t)codec->head_stride + (g - head * codec->per_head) * SYI_FP4_BYTES;
}
