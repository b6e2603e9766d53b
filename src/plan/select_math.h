/*
 * What a row of kv_select is, for every backend: its columns, what it must select, where its tokens are, and what is wrong with its
 * numbers; keys of scores. Numbers are validated before they are multiplied: a row is looked at once its fault is none.
 */
#pragma once

#include "plan/kv_math.h"

/* ---- Keys: unsigned numbers that order like scores, and equal ones for both zeros; 0 for NaN and -inf, which are dead ---- */

SYI_BOTH static inline uint32_t syi_select_key32(uint32_t u)
{
    if ((u & 0x7fffffffu) > 0x7f800000u || u == 0xff800000u)
        return 0;
    return u >> 31 && u != 0x80000000u ? ~u : u | 0x80000000u;
}

/* Of a 16-bit type, by the bits of its +inf. */
SYI_BOTH static inline uint32_t syi_select_key16(uint32_t u, uint32_t inf)
{
    if ((u & 0x7fffu) > inf || u == (inf | 0x8000u))
        return 0;
    return u >> 15 && u != 0x8000u ? ~u & 0xffffu : u | 0x8000u;
}

SYI_BOTH static inline uint32_t syi_select_inf16(sy_type type)
{
    return type == SY_TYPE_BF16 ? 0x7f80u : 0x7c00u;
}

/* Of element i of a row. */
SYI_BOTH static inline uint32_t syi_select_key(const unsigned char *row, int64_t i, sy_type type)
{
    return type == SY_TYPE_F32 ? syi_select_key32(syi_load_u32(row + i * 4))
                               : syi_select_key16(syi_load_u16(row + i * 2), syi_select_inf16(type));
}

/* SY_ROW_* of a score alone; SY_ROW_EMPTY where it is dead. A row is what is in any of them, but EMPTY only where it is in all. */
SYI_BOTH static inline uint32_t syi_select_flags(const unsigned char *row, int64_t i, sy_type type)
{
    const bool wide = type == SY_TYPE_F32;
    const uint32_t u = wide ? syi_load_u32(row + i * 4) : syi_load_u16(row + i * 2);
    const uint32_t inf = wide ? 0x7f800000u : syi_select_inf16(type), sign = wide ? 0x80000000u : 0x8000u;
    if ((u & ~sign) > inf)
        return SY_ROW_NAN | SY_ROW_EMPTY;
    return u == inf ? SY_ROW_INF : u == (inf | sign) ? SY_ROW_EMPTY : 0u;
}

/* The score as an f32, as `values` has it: a NaN of 16 bits becomes the canonical one. */
SYI_BOTH static inline uint32_t syi_select_widened(uint32_t u, sy_type type)
{
    if ((u & 0x7fffu) > syi_select_inf16(type))
        return 0x7fc00000u;
    return type == SY_TYPE_BF16 ? u << 16 : syi_f32_bits(syi_f16_to_f32((uint16_t)u));
}

/* ---- Rows ---- */

/* Number b of an optional tensor of one number per row. */
SYI_BOTH static inline int64_t syi_select_int(const struct syi_tensor *t, int64_t b, int64_t missing)
{
    return t->data != NULL ? syi_load_index(t->data, b, t->type) : missing;
}

/* How many of the first n tokens are this rank's. */
SYI_BOTH static inline int64_t syi_kv_own_count(const struct syi_kv_share *share, int64_t n)
{
    const int64_t turn = share->world * share->run, rest = n % turn - share->rank * share->run;
    return n / turn * share->run + (rest < 0 ? 0 : rest < share->run ? rest : share->run);
}

struct syi_select_row {
    int64_t start, length; /* columns */
    int64_t most;          /* K_b: positions to select */
    /* Columns before `head` and from `tail` on are always selected. With `position` they are positions, and sorting says which
       columns have them. */
    int64_t head, tail;
    int64_t token_end;      /* tokens from here on do not exist */
    int64_t base;           /* is added to entries of `indices` */
    int64_t position_limit; /* with `position`: all are below it */
};

/* Tokens of row b, of all ranks; its lengths may be wrong. */
SYI_BOTH static inline int64_t syi_select_tokens(const struct syi_kv_select_plan *p, int64_t b, int64_t start)
{
    const int64_t rest = p->n_columns - start;
    if (p->lengths.data == NULL)
        return p->own && rest > 0 ? syi_kv_shared_token(&p->pages.share, rest - 1) + 1 : rest;
    if (!p->by_request)
        return syi_load_index(p->lengths.data, b, p->lengths.type);
    const int64_t n = syi_load_index(p->lengths.data, b / p->query_rows, p->lengths.type),
                  after = p->query_rows - 1 - b % p->query_rows;
    return n < 0 ? n : n > after ? n - after : 0;
}

/* Of a row without fault. */
SYI_BOTH static inline struct syi_select_row syi_select_row_of(const struct syi_kv_select_plan *p, int64_t b)
{
    struct syi_select_row r;
    const struct syi_kv_share *const share = &p->pages.share;
    r.start = syi_select_int(&p->row_start, b, 0);
    const int64_t tokens = syi_select_tokens(p, b, r.start), seq = syi_select_int(&p->seq_lens, b, INT64_MAX);
    int64_t end = tokens, head = p->args.sink;
    r.length = p->own ? syi_kv_own_count(share, tokens) : tokens;
    r.most = syi_present(&p->row_k) ? syi_column_int(&p->row_k, b) : p->k;
    r.token_end = p->expand > 1 ? seq : INT64_MAX;
    r.base = syi_select_int(&p->index_base, b, 0);
    r.position_limit = (int64_t)1 << 31;
    if (p->position.data != NULL) {
        const int64_t most = (p->token_limit - r.base) / p->expand;
        r.position_limit = most < r.position_limit ? most : r.position_limit;
        end = p->seq_lens.data != NULL ? seq / p->expand + (seq % p->expand != 0) : INT64_MAX;
    } else {
        head = head < tokens ? head : tokens;
    }
    r.head = head;
    r.tail = p->args.window > 0 ? end - p->args.window : INT64_MAX;
    if (p->own) {
        r.head = syi_kv_own_count(share, head);
        if (p->args.window > 0)
            r.tail = r.tail > 0 ? syi_kv_own_count(share, r.tail) : 0;
    }
    return r;
}

/* The position that column t of a row, counted from its first, stands for; -1: nothing. */
SYI_BOTH static inline int64_t syi_select_position(const struct syi_kv_select_plan *p, int64_t b, int64_t t)
{
    if (p->position.data != NULL)
        return syi_load_index(syi_at(p->position, b), t, p->position.type);
    return p->own ? syi_kv_shared_token(&p->pages.share, t) : t;
}

/* ---- Faults ---- */

/* index_base of a row of valid length. */
SYI_BOTH static inline struct syi_found syi_select_base_fault(const struct syi_kv_select_plan *p, int64_t b,
                                                              int64_t start, int64_t tokens)
{
    const struct syi_kv_share *const share = &p->pages.share;
    const int64_t base = syi_load_index(p->index_base.data, b, p->index_base.type);
    int64_t named = tokens; /* positions, one after the last */
    (void)start;
    if (p->own) {
        const int64_t n = syi_kv_own_count(share, tokens);
        named = n > 0 ? syi_kv_shared_token(share, n - 1) + 1 : 0;
    }
    if (p->position.data != NULL)
        named = 0; /* positions have a limit of their own */
    const int64_t limit = p->token_limit - named * p->expand;
    return base < 0 || base > limit ? syi_bad_at(SYI_BAD_SELECT_BASE, b, -1, base, limit) : syi_good();
}

/* Of the numbers of row b: the first phase. Lists have faults of their own (syi_kv_list_fault), which come before those of rows. */
SYI_BOTH static inline struct syi_found syi_select_row_fault(const struct syi_kv_select_plan *p, int64_t b)
{
    const int64_t start = syi_select_int(&p->row_start, b, 0), least = p->args.sink + p->args.window;
    if (start < 0 || start > p->n_columns)
        return syi_bad_at(SYI_BAD_SELECT_START, b, -1, start, p->n_columns);
    const int64_t tokens = syi_select_tokens(p, b, start), rest = p->n_columns - start;
    const int64_t most = p->own ? syi_kv_shared_token(&p->pages.share, rest) : rest;
    if (tokens < 0 || tokens > most) {
        struct syi_found found =
            syi_bad_at(p->own ? SYI_BAD_SELECT_OWN_LENGTH : SYI_BAD_SELECT_LENGTH, b, -1, tokens, most);
        found.extra = rest;
        return found;
    }
    if (syi_present(&p->row_k)) {
        const int64_t k = syi_column_int(&p->row_k, b);
        struct syi_found found = k < least ? syi_bad_at(SYI_BAD_SELECT_K_LOW, b, -1, k, least)
                                           : syi_bad_at(SYI_BAD_SELECT_K_HIGH, b, -1, k, p->k);
        found.extra = k < least ? p->k : least;
        if (k < least || k > p->k)
            return found;
    }
    const int64_t seq = syi_select_int(&p->seq_lens, b, 0);
    if (seq < 0)
        return syi_bad_at(SYI_BAD_KV_LENGTH, b, -1, seq, 0);
    if (p->index_base.data != NULL) {
        const struct syi_found found = syi_select_base_fault(p, b, start, tokens);
        if (found.bad != SYI_GOOD)
            return found;
    }
    const int64_t request = p->has_table ? syi_select_int(&p->req_id, b, 0) : 0;
    if (p->has_table && p->req_id.data != NULL && (request < 0 || request >= p->pages.table.rows))
        return syi_bad_at(syi_kv_lists(&p->pages.table) ? SYI_BAD_KV_P_REQUEST : SYI_BAD_KV_REQUEST, b, -1,
                          request, p->pages.table.rows);
    return syi_good();
}

/* Of column t < length of a row without such a fault, with `position`: the second phase. */
SYI_BOTH static inline struct syi_found syi_select_position_fault(const struct syi_kv_select_plan *p,
                                                                  const struct syi_select_row *row, int64_t b,
                                                                  int64_t t)
{
    const int64_t position = syi_load_index(syi_at(p->position, b), t, p->position.type);
    if (position < -1 || position >= row->position_limit)
        return syi_bad_at(SYI_BAD_SELECT_POSITION, b, t, position, row->position_limit);
    return syi_good();
}

/* ---- Entries ---- */

/* Token `token` as an entry of the outputs; it exists, or all three are -1. */
struct syi_select_entry {
    int64_t index, slot;
    int32_t owner;
};

/* The blocks of row b; its faults other than of entries have been found. */
SYI_BOTH static inline struct syi_kv_sequence syi_select_sequence(const struct syi_kv_select_plan *p,
                                                                  int64_t b)
{
    struct syi_kv_sequence s = syi_kv_row_of(&p->pages, syi_select_int(&p->req_id, b, b / p->query_rows));
    s.length = INT64_MAX; /* positions have been validated */
    return s;
}

/* Entry g of position t. A fault of its look-up, the third phase, is without its place. */
SYI_BOTH static inline struct syi_select_entry
syi_select_entry_of(const struct syi_kv_select_plan *p, const struct syi_select_row *row,
                    const struct syi_kv_sequence *blocks, int64_t t, int64_t g, struct syi_found *found)
{
    const int64_t token = t * p->expand + g;
    struct syi_select_entry e = {-1, -1, -1};
    found->bad = SYI_GOOD;
    if (token >= row->token_end)
        return e;
    e.index = row->base + token;
    if (p->args.world > 1)
        e.owner = (int32_t)(token / p->pages.share.run % p->args.world);
    if (p->has_table)
        e.slot = syi_kv_slot_of(&p->pages, blocks, token, found);
    return e;
}
