/*
 * Fast paths of sample: most rows need only their few largest logits, and those are found at the speed of
 * reading. One pass takes the maximum of every 64 logits; about the k-th largest of these maxima, or of those of groups
 * of blocks, is a threshold that at least k logits reach, so only blocks that reach it are read again. The result is a superset of the candidates
 * with exact keys, in index order; the following stages cut it as they cut a whole row.
 */
#include "cpu/sample.h"

static uint16_t order_plus_inf(sy_type type)
{
    return type == SY_TYPE_F16 ? 0xfc00u : 0xff80u;
}

enum {
    GROUP = 16,    /* blocks */
    AT_ONCE = 256, /* blocks searched together */
    WIDE = 32
};

size_t syi_scan_blocks(int64_t vocab)
{
    return (size_t)(vocab + SYI_BLOCK - 1) / SYI_BLOCK;
}

size_t syi_scan_groups(int64_t vocab)
{
    return (syi_scan_blocks(vocab) + GROUP - 1) / GROUP;
}

/* ---- Logits not above -inf ---- */

static uint32_t pattern_minus_inf(sy_type type)
{
    return type == SY_TYPE_F32 ? 0xff800000u : type == SY_TYPE_F16 ? 0xfc00u : 0xff80u;
}

/* The result of block_max for it. */
static uint16_t low_minus_inf(sy_type type)
{
    return type == SY_TYPE_F16 ? 0xfc00u : 0xff80u;
}

/* Unaligned logits in place: loops over these are vectorised. */
typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t any_u32 __attribute__((aligned(1), may_alias));
typedef int32_t any_i32 __attribute__((aligned(1), may_alias));

/* Whether there is a NaN with a sign: its bit pattern is larger than that of -inf, which no number has. */
static bool any_low_nan(const unsigned char *x, size_t n, sy_type type)
{
    const uint32_t minus_inf = pattern_minus_inf(type);
    const any_u32 *wide = (const any_u32 *)x;
    const any_u16 *narrow = (const any_u16 *)x;
    uint32_t any = 0;
    for (size_t i = 0; type == SY_TYPE_F32 && i < n; i++)
        any |= wide[i] > minus_inf;
    for (size_t i = 0; type != SY_TYPE_F32 && i < n; i++)
        any |= narrow[i] > minus_inf;
    return any != 0;
}

static int64_t count_numbers(const unsigned char *x, size_t n, sy_type type)
{
    const uint32_t minus_inf = pattern_minus_inf(type);
    const any_u32 *wide = (const any_u32 *)x;
    const any_u16 *narrow = (const any_u16 *)x;
    uint32_t count = 0;
    for (size_t i = 0; type == SY_TYPE_F32 && i < n; i++)
        count += wide[i] < minus_inf;
    for (size_t i = 0; type != SY_TYPE_F32 && i < n; i++)
        count += narrow[i] < minus_inf;
    return count;
}

static size_t piece_size(const struct syi_logits *row, size_t first)
{
    return (size_t)row->n - first < SYI_PIECE ? (size_t)row->n - first : SYI_PIECE;
}

SYI_HAS_BUFFER bool syi_scan_has_nan(const struct syi_scan *s)
{
    const struct syi_logits *row = &s->row;
    const uint16_t minus_inf = low_minus_inf(row->type);
    unsigned char buffer[SYI_PIECE * 4];
    for (size_t first = 0; first < (size_t)row->n; first += SYI_PIECE) {
        const size_t n = piece_size(row, first);
        const uint16_t low = s->low[first / SYI_PIECE];
        if (low < minus_inf || (low == minus_inf && row->type != SY_TYPE_F32))
            continue;
        if ((low > minus_inf && row->n_out == 0) ||
            any_low_nan(syi_piece(row, first, n, buffer), n, row->type))
            return true;
    }
    return false;
}

SYI_HAS_BUFFER int64_t syi_scan_count(const struct syi_scan *s)
{
    struct syi_logits row = s->row;
    unsigned char buffer[SYI_PIECE * 4];
    int64_t count = 0;
    row.n_out = 0;
    for (size_t first = 0; first < (size_t)row.n; first += SYI_PIECE) {
        const size_t n = piece_size(&row, first);
        if (s->low[first / SYI_PIECE] < low_minus_inf(row.type))
            count += (int64_t)n;
        else if (syi_any_allowed(&row, first, n))
            count += count_numbers(syi_piece(&row, first, n, buffer), n, row.type);
    }
    for (int64_t j = 0; j < s->row.n_out; j++)
        count -= syi_scan_order(&row, s->row.out[j]) > syi_order_minus_inf(row.type);
    return count;
}

/* ---- Maxima ---- */

static uint16_t order_of(uint16_t upper)
{
    return (uint16_t)(upper ^ ((0u - (upper >> 15)) | 0x8000u));
}

static void put_orders(uint16_t *order, const unsigned char *x, size_t n, sy_type type)
{
    const any_u32 *wide = (const any_u32 *)x;
    const any_u16 *narrow = (const any_u16 *)x;
    for (size_t i = 0; type == SY_TYPE_F32 && i < n; i++)
        order[i] = order_of((uint16_t)(wide[i] >> 16));
    for (size_t i = 0; type != SY_TYPE_F32 && i < n; i++)
        order[i] = order_of(narrow[i]);
}

/* block_max of a block that is not whole. */
static void block_max_short(uint16_t *max, uint16_t *low, const unsigned char *x, size_t n, sy_type type)
{
    uint16_t order[SYI_BLOCK], least = UINT16_MAX, most = 0;
    put_orders(order, x, n, type);
    for (size_t i = 0; i < n; i++) {
        most = order[i] > most ? order[i] : most;
        least = order[i] < least ? order[i] : least;
    }
    *max = most;
    *low = least < 0x8000u ? (uint16_t)~least : most ^ 0x8000u;
}

static uint16_t scan_blocks(const struct syi_kernels *kernels, const struct syi_scan *s, size_t first,
                            const unsigned char *x, size_t n)
{
    const sy_type type = s->row.type;
    const size_t whole = n / SYI_BLOCK, rest = n % SYI_BLOCK;
    uint16_t *max = s->max + first / SYI_BLOCK, low = 0, low_rest = 0;
    (type == SY_TYPE_F32 ? kernels->block_max_32 : kernels->block_max_16)(max, s->low != NULL ? &low : NULL,
                                                                          x, whole);
    if (rest > 0)
        block_max_short(max + whole, &low_rest, x + (n - rest) * syi_float_bytes(type), rest, type);
    return low > low_rest ? low : low_rest;
}

void syi_scan_piece(const struct syi_kernels *kernels, const struct syi_scan *s, size_t first,
                    const unsigned char *x, size_t n)
{
    uint16_t low = low_minus_inf(s->row.type);
    if (x != NULL)
        low = scan_blocks(kernels, s, first, x, n);
    for (size_t i = 0; x == NULL && i < syi_scan_blocks((int64_t)n); i++)
        s->max[first / SYI_BLOCK + i] = syi_order_minus_inf(s->row.type);
    for (size_t i = 0; s->low != NULL && i < n; i += SYI_PIECE)
        s->low[(first + i) / SYI_PIECE] = low;
}

/* Separate from rows without bits, which need no buffer. */
static SYI_HAS_BUFFER void scan_allowed(const struct syi_kernels *kernels, const struct syi_scan *s,
                                        size_t first, size_t end)
{
    unsigned char buffer[SYI_PIECE * 4];
    struct syi_logits row = s->row;
    row.n_out = 0;
    for (size_t at = first; at < end; at += SYI_PIECE) {
        const size_t n = end - at < SYI_PIECE ? end - at : SYI_PIECE;
        const bool any = syi_some_allowed(&row, at, n);
        syi_scan_piece(kernels, s, at, any ? syi_mask_piece(&row, at, n, buffer) : NULL, n);
    }
}

void syi_scan_part(const struct syi_kernels *kernels, const struct syi_scan *s, size_t first, size_t end)
{
    const struct syi_logits *row = &s->row;
    const size_t from = first * SYI_BLOCK;
    const size_t to = end * SYI_BLOCK < (size_t)row->n ? end * SYI_BLOCK : (size_t)row->n;
    if (row->allow != NULL)
        scan_allowed(kernels, s, from, to);
    else if (from < to)
        syi_scan_piece(kernels, s, from, row->x + from * syi_float_bytes(row->type), to - from);
}

/* A block whose maximum may be that of an excluded element is read again; few are. */
void syi_scan_leave_out(const struct syi_kernels *kernels, const struct syi_scan *s)
{
    const struct syi_logits *row = &s->row;
    struct syi_scan maxima = *s;
    unsigned char buffer[SYI_BLOCK_BYTES_32];
    size_t done = SIZE_MAX;
    maxima.low = NULL;
    for (int64_t j = 0; j < row->n_out; j++) {
        const size_t block = (size_t)row->out[j] / SYI_BLOCK, first = block * SYI_BLOCK;
        const size_t left = (size_t)row->n - first, n = left < SYI_BLOCK ? left : SYI_BLOCK;
        if (block == done || syi_scan_order(row, row->out[j]) < s->max[block])
            continue;
        syi_scan_piece(kernels, &maxima, first, syi_piece(row, first, n, buffer), n);
        done = block;
    }
}

static uint16_t max_of(const uint16_t *v, size_t n)
{
    uint16_t max = 0;
    for (size_t i = 0; i < n; i++)
        max = v[i] > max ? v[i] : max;
    return max;
}

bool syi_scan_top(struct syi_scan *s)
{
    const size_t n_blocks = syi_scan_blocks(s->row.n), n_groups = syi_scan_groups(s->row.n),
                 whole = n_blocks / GROUP;
    for (size_t g = 0; g < whole; g++)
        s->group[g] = max_of(s->max + g * GROUP, GROUP);
    if (whole < n_groups)
        s->group[whole] = max_of(s->max + whole * GROUP, n_blocks - whole * GROUP);
    const uint16_t top = max_of(s->group, n_groups);
    s->top = top == 0x7fffu ? 0x8000u : top; /* -0 is +0 */
    return top > syi_order_minus_inf(s->row.type) && top < order_plus_inf(s->row.type);
}

uint16_t syi_scan_order(const struct syi_logits *row, int64_t i)
{
    const size_t bytes = syi_float_bytes(row->type);
    uint16_t upper; /* the machine is little-endian: the upper half comes last */
    if (!syi_allowed(row, i))
        return syi_order_minus_inf(row->type);
    memcpy(&upper, row->x + (size_t)(i + 1) * bytes - sizeof upper, sizeof upper);
    return (uint16_t)(upper ^ (upper & 0x8000u ? 0xffffu : 0x8000u));
}

/* The order of an f32 is the upper half of its key, and that of a bf16, which is the upper half of an f32, leaves
   one value. */
uint32_t syi_scan_key(uint16_t order, sy_type type)
{
    if (type == SY_TYPE_F16)
        return syi_value_key(syi_f16_to_f32((uint16_t)(order ^ (order & 0x8000u ? 0x8000u : 0xffffu))));
    return (uint32_t)order << 16 | (type == SY_TYPE_BF16 && order < 0x8000u ? 0xffffu : 0);
}

/* Zeros after n entries, which reach no threshold, pad them to whole vectors. */
static size_t fill_up(uint16_t *v, size_t n)
{
    const size_t wide = (n + WIDE - 1) / WIDE * WIDE;
    memset(v + n, 0, (wide - n) * sizeof *v);
    return wide;
}

/* The largest order that at least k of n maxima reach, or a lower one that at most k + more reach. */
static uint16_t kth_of(const struct syi_kernels *kernels, const uint16_t *max, size_t n, uint16_t top,
                       size_t k, size_t more)
{
    int32_t high = top, low = high, step = 32;
    size_t count = kernels->count_ge_u16(max, n, top);
    while (low > 0 && count < k) {
        high = low - 1;
        low = low > step ? low - step : 0;
        step *= 2;
        count = kernels->count_ge_u16(max, n, (uint16_t)low);
    }
    while (low < high && count > k + more) {
        const int32_t middle = low + (high - low + 1) / 2;
        const size_t here = kernels->count_ge_u16(max, n, (uint16_t)middle);
        low = here >= k ? middle : low; /* no branch, which would be mispredicted */
        high = here >= k ? high : middle - 1;
        count = here >= k ? here : count;
    }
    return (uint16_t)low;
}

uint16_t syi_scan_threshold(const struct syi_kernels *kernels, const struct syi_scan *s, size_t k)
{
    const size_t n_groups = syi_scan_groups(s->row.n);
    uint16_t threshold = s->top;
    if (k > 1 && 2 * k <= n_groups) /* enough groups: a slightly lower threshold, found much sooner */
        threshold = kth_of(kernels, s->group, n_groups, s->top, k, k / 8);
    else if (k > 1)
        threshold = kth_of(kernels, s->max, syi_scan_blocks(s->row.n), s->top, k, k / 8);
    return threshold == 0x8000u ? 0x7fffu : threshold; /* +0 equals -0, which is one below */
}

bool syi_scan_crowded(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t threshold,
                      size_t more)
{
    const size_t n_blocks = syi_scan_blocks(s->row.n);
    return kernels->count_ge_u16(s->max, n_blocks, threshold) > n_blocks / 4 * 3 + more;
}

/* Blocks that reach a threshold, from block *next on, at most `most`; returns how many. */
static size_t list_blocks(const struct syi_scan *s, uint16_t threshold, size_t *next, uint32_t *block,
                          size_t most)
{
    const size_t n_blocks = syi_scan_blocks(s->row.n);
    const uint16_t *max = s->max, *group = s->group;
    size_t n = 0, b = *next;
    for (; b < n_blocks && n + GROUP <= most; b += GROUP) {
        const size_t end = n_blocks - b < GROUP ? n_blocks : b + GROUP;
        if (group[b / GROUP] < threshold)
            continue;
        for (size_t i = b; i < end; i++) { /* no branch, which would be mispredicted */
            block[n] = (uint32_t)i;
            n += max[i] >= threshold;
        }
    }
    *next = b;
    return n;
}

uint64_t syi_scan_weigh_maxima(const struct syi_kernels *kernels, const struct syi_scan *s,
                               uint16_t threshold, float m, float inv_t)
{
    uint32_t block[AT_ONCE], key[AT_ONCE];
    float e[AT_ONCE];
    uint64_t sum = 0;
    for (size_t next = 0; next < syi_scan_blocks(s->row.n);) {
        const size_t n = list_blocks(s, threshold, &next, block, AT_ONCE);
        for (size_t i = 0; i < n; i++)
            key[i] = syi_scan_key(s->max[block[i]], s->row.type);
        kernels->exp_keys(e, key, n, m, inv_t);
        for (size_t i = 0; i < n; i++)
            sum += syi_weight(e[i]);
    }
    return sum;
}

/* ---- Floors of small rows ---- */

enum { FOLD = 8 };

/* The largest orders of groups of FOLD elements of a piece; the last n % FOLD are in none. Returns how many. */
static inline __attribute__((always_inline)) size_t fold_orders(uint16_t *restrict most, const any_u16 *upper,
                                                                size_t n, size_t stride)
{
    const size_t groups = n / FOLD;
    for (size_t i = 0; i < groups; i++) {
        uint16_t largest = 0;
        for (size_t j = 0; j < FOLD; j++) { /* with the largest distance: then neighbours form vectors */
            const uint16_t order = order_of(upper[(i + j * groups) * stride]);
            largest = order > largest ? order : largest;
        }
        most[i] = largest;
    }
    return groups;
}

SYI_HAS_BUFFER uint16_t syi_scan_threshold_each(const struct syi_kernels *kernels, const struct syi_scan *s,
                                                size_t k, uint16_t *order)
{
    const struct syi_logits *row = &s->row;
    const bool fold =
        (size_t)row->n >= k * 2 * FOLD; /* the threshold of enough groups is found much sooner */
    unsigned char buffer[SYI_PIECE * 4];
    size_t found = 0;
    for (size_t first = 0; first < (size_t)row->n; first += SYI_PIECE) {
        const size_t n = piece_size(row, first);
        const unsigned char *x = syi_piece(row, first, n, buffer);
        if (fold && row->type == SY_TYPE_F32)
            found += fold_orders(order + found, (const any_u16 *)x + 1, n, 2); /* upper halves come last */
        else if (fold)
            found += fold_orders(order + found, (const any_u16 *)x, n, 1);
        else
            put_orders(order + first, x, n, row->type);
    }
    found = fold ? found : (size_t)row->n;
    const uint16_t threshold =
        kth_of(kernels, order, found < WIDE ? found : fill_up(order, found), s->top, k, k / 8);
    return threshold == 0x8000u ? 0x7fffu : threshold;
}

/* ---- Tokens ---- */

/* Key of a number. */
static inline uint32_t key_at(const unsigned char *x, size_t i, sy_type type)
{
    uint16_t half;
    uint32_t bits;
    if (type == SY_TYPE_F32) {
        memcpy(&bits, x + i * 4, sizeof bits);
    } else {
        memcpy(&half, x + i * 2, sizeof half);
        bits = type == SY_TYPE_BF16 ? (uint32_t)half << 16 : syi_f32_bits(syi_f16_to_f32(half));
    }
    const uint32_t sign = 0u - (bits >> 31);
    return (bits ^ (sign | 0x80000000u)) + (bits == 0x80000000u); /* -0 is +0 */
}

typedef uint64_t reach_fn(const void *x, uint16_t threshold);

/* The last block, which may be short: filled up with the lowest order there is. Separate from the loop that
   calls it, which needs no buffer. */
static __attribute__((noinline)) uint64_t reach_last(reach_fn *reach, const struct syi_logits *row,
                                                     uint16_t threshold)
{
    const size_t bytes = syi_float_bytes(row->type), whole = (size_t)row->n / SYI_BLOCK * SYI_BLOCK;
    unsigned char last[SYI_BLOCK_BYTES_32];
    memset(last, 0xff, sizeof last);
    memcpy(last, row->x + whole * bytes, ((size_t)row->n - whole) * bytes);
    return reach(last, threshold);
}

/* An f32 as a signed integer that orders like it, -0 one below +0; NaNs with a sign are below -inf. */
static inline int32_t signed_order(const unsigned char *x, size_t i)
{
    const uint32_t bits = ((const any_u32 *)x)[i];
    return (int32_t)(bits ^ (0u - (bits >> 31)) >> 1);
}

/* The largest of n bit patterns as signed integers. */
static int32_t largest_of(const unsigned char *x, size_t n)
{
    enum { LANES = 16 }; /* four vectors, to hide latency */
    const any_i32 *bits = (const any_i32 *)x;
    int32_t lane[LANES], largest = INT32_MIN;
    size_t i = 0;
    for (size_t j = 0; j < LANES; j++)
        lane[j] = INT32_MIN;
    for (; i + LANES <= n; i += LANES)
        for (size_t j = 0; j < LANES; j++)
            lane[j] = bits[i + j] > lane[j] ? bits[i + j] : lane[j];
    for (; i < n; i++)
        largest = bits[i] > largest ? bits[i] : largest;
    for (size_t j = 0; j < LANES; j++)
        largest = lane[j] > largest ? lane[j] : largest;
    return largest;
}

/* The largest of n f32 as signed_order, which has the order of the bit patterns while any is non-negative; of only
   negatives the least pattern is needed. */
static int32_t best_of(const unsigned char *x, size_t n)
{
    const any_u32 *bits = (const any_u32 *)x;
    const int32_t largest = largest_of(x, n);
    uint32_t least = UINT32_MAX;
    if (largest >= 0)
        return largest;
    for (size_t i = 0; i < n; i++)
        least = bits[i] < least ? bits[i] : least;
    return least == 0x80000000u ? 0 : (int32_t)(least ^ 0x7fffffffu); /* -0 is +0 */
}

/* The place of the first that reaches it. */
static size_t first_best(const unsigned char *x, int32_t best)
{
    size_t i = 0;
    while (signed_order(x, i) < (best == 0 ? -1 : best))
        i++;
    return i;
}

/* How many of n blocks of a list, but no more than make a piece, follow each other in the row. */
static size_t run_of(const uint32_t *block, size_t n)
{
    size_t run = 1;
    while (run < n && run < SYI_PIECE / SYI_BLOCK && block[run] == block[0] + run)
        run++;
    return run;
}

/* The largest f32 of the blocks that reach a threshold, and where the run of blocks begins that has it first. The buffer is
   for rows with excluded tokens. */
static inline __attribute__((always_inline)) int32_t find_best(const struct syi_scan *s, uint16_t threshold,
                                                               unsigned char *buffer, size_t *at)
{
    const struct syi_logits *row = &s->row;
    uint32_t block[AT_ONCE];
    int32_t best = INT32_MIN;
    for (size_t next = 0; next < syi_scan_blocks(row->n);) {
        const size_t n = list_blocks(s, threshold, &next, block, AT_ONCE);
        for (size_t i = 0, run; i < n; i += run) {
            run = run_of(block + i, n - i);
            const size_t first = block[i] * (size_t)SYI_BLOCK, left = (size_t)row->n - first;
            const size_t size = left < run * SYI_BLOCK ? left : run * SYI_BLOCK;
            const int32_t here = best_of(syi_piece(row, first, size, buffer), size);
            *at = here > best ? first : *at;
            best = here > best ? here : best;
        }
    }
    return best;
}

/* The upper half of an f32 does not decide which of the blocks with the largest order has the maximum. */
static void find_first_f32(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t threshold,
                           struct syi_candidates *c)
{
    const struct syi_logits *row = &s->row;
    size_t at = 0;
    const int32_t best = find_best(s, threshold, NULL, &at), least = best == 0 ? -1 : best;
    c->key[0] = (uint32_t)best ^ 0x80000000u;
    for (; at + SYI_BLOCK <= (size_t)row->n; at += SYI_BLOCK) {
        const unsigned char *x = row->x + at * 4;
        uint64_t hits = kernels->reach_32(x, threshold);
        while (hits != 0 && signed_order(x, (size_t)__builtin_ctzll(hits)) < least)
            hits &= hits - 1;
        c->idx[0] = (int32_t)at + (hits != 0 ? __builtin_ctzll(hits) : 0);
        if (hits != 0)
            return;
    }
    c->idx[0] = (int32_t)(at + first_best(row->x + at * 4, best));
}

static SYI_HAS_BUFFER void find_first_f32_masked(const struct syi_scan *s, uint16_t threshold,
                                                 struct syi_candidates *c)
{
    unsigned char buffer[SYI_PIECE * 4];
    size_t at = 0;
    const int32_t best = find_best(s, threshold, buffer, &at);
    c->key[0] = (uint32_t)best ^ 0x80000000u;
    c->idx[0] = (int32_t)(at + first_best(syi_piece(&s->row, at, piece_size(&s->row, at), buffer), best));
}

/* In 16 bits the first block that has the largest order decides. */
static void find_first_16(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t threshold,
                          struct syi_candidates *c)
{
    const struct syi_logits *row = &s->row;
    unsigned char last[SYI_BLOCK_BYTES_16];
    size_t block = 0;
    while (s->group[block / GROUP] < threshold)
        block += GROUP;
    while (s->max[block] < threshold)
        block++;
    const size_t first = block * SYI_BLOCK, left = (size_t)row->n - first;
    const size_t size = left < SYI_BLOCK ? left : SYI_BLOCK;
    const unsigned char *x = syi_piece(row, first, size, last);
    if (size < SYI_BLOCK) {
        memmove(last, x, size * 2);
        memset(last + size * 2, 0xff, (SYI_BLOCK - size) * 2);
        x = last;
    }
    c->key[0] = syi_scan_key(s->top, row->type);
    c->idx[0] = (int32_t)first + __builtin_ctzll(kernels->reach_16(x, threshold));
}

void syi_scan_first(const struct syi_kernels *kernels, const struct syi_scan *s, struct syi_candidates *c)
{
    const uint16_t threshold = syi_scan_threshold(kernels, s, 1);
    c->n = 1;
    if (s->row.type != SY_TYPE_F32)
        find_first_16(kernels, s, threshold, c);
    else if (syi_counts_whole(&s->row))
        find_first_f32(kernels, s, threshold, c);
    else
        find_first_f32_masked(s, threshold, c);
}

bool syi_scan_dense(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t threshold)
{
    enum { SAMPLES = 8, MANY = 16 };
    const struct syi_logits *row = &s->row;
    const size_t whole = (size_t)row->n / SYI_BLOCK, step = whole / SAMPLES + 1;
    const size_t bytes = SYI_BLOCK * syi_float_bytes(row->type);
    reach_fn *reach = row->type == SY_TYPE_F32 ? kernels->reach_32 : kernels->reach_16;
    int hits = 0, blocks = 0;
    for (size_t b = 0; b < whole; b += step)
        if (s->max[b] >= threshold) {
            hits += __builtin_popcountll(reach(row->x + b * bytes, threshold));
            blocks++;
        }
    return hits > blocks * MANY;
}

/* A collection of the first of the order: `limit` of them, or all that reach the threshold when it is 0. */
struct collection {
    const struct syi_kernels *kernels;
    struct syi_candidates *c;
    size_t limit;
    uint64_t *hist;
    int64_t keys; /* how many have their keys */
    uint16_t threshold;
    uint32_t above; /* only keys above this one count */
};

/* The order of a key that a value of the type has. */
static uint16_t order_of_key(uint32_t key, sy_type type)
{
    if (type != SY_TYPE_F16)
        return (uint16_t)(key >> 16);
    const uint16_t bits = syi_f32_to_f16(syi_key_value(key));
    return (uint16_t)(bits ^ (bits & 0x8000u ? 0xffffu : 0x8000u));
}

/* Of the keys whose upper half is at the limit, those that are on the right side of it. */
static struct syi_cut cut_equals(const struct collection *to, uint16_t upper, uint64_t rest)
{
    const struct syi_candidates *c = to->c;
    uint32_t few[SYI_FEW], least = UINT32_MAX, most = 0;
    struct syi_candidates equals = {few, NULL, 0};
    struct syi_cut cut = {0, to->limit};
    for (int64_t i = 0; i < c->n; i++) {
        const uint32_t key = c->key[i], other = key >> 16 == upper ? 0 : UINT32_MAX;
        least = (key | other) < least ? key | other : least;
        most = (key & ~other) > most ? key & ~other : most;
    }
    if (least == most)
        return (struct syi_cut){least, rest};
    for (int64_t i = 0; i < c->n && equals.n < SYI_FEW; i++)
        if (c->key[i] >> 16 == upper)
            few[equals.n++] = c->key[i];
    if (equals.n < SYI_FEW)
        syi_select(&equals, NULL, rest, to->hist, &cut);
    else
        syi_select(c, NULL, to->limit, to->hist, &cut);
    return cut;
}

/* The least key that is not below a threshold. */
static uint32_t least_from(const struct syi_candidates *c, uint32_t threshold)
{
    uint32_t least = UINT32_MAX;
    for (int64_t i = 0; i < c->n; i++) {
        const uint32_t key = c->key[i] >= threshold ? c->key[i] : UINT32_MAX;
        least = key < least ? key : least;
    }
    return least;
}

/* Where the limit is. Upper halves of keys are compared first: they are found quickly, and few keys have the same. */
static struct syi_cut find_cut(const struct collection *to)
{
    const struct syi_candidates *c = to->c;
    const size_t capacity = SYI_SELECT_BINS * sizeof *to->hist / sizeof(uint16_t);
    uint16_t *upper = (uint16_t *)(void *)to->hist;
    struct syi_cut cut = {0, to->limit};
    if ((size_t)c->n + WIDE > capacity) {
        syi_select(c, NULL, to->limit, to->hist, &cut);
        return cut;
    }
    for (int64_t i = 0; i < c->n; i++)
        upper[i] = (uint16_t)(c->key[i] >> 16);
    const size_t n = fill_up(upper, (size_t)c->n);
    const uint16_t kth = kth_of(to->kernels, upper, n, max_of(upper, n), to->limit, 0);
    if (to->kernels->count_ge_u16(upper, n, kth) == to->limit)
        return (struct syi_cut){least_from(c, (uint32_t)kth << 16), to->limit};
    const size_t larger = kth == UINT16_MAX ? 0 : to->kernels->count_ge_u16(upper, n, kth + 1u);
    return cut_equals(to, kth, to->limit - larger);
}

/* Drops what is past the limit; returns the key at it. */
static uint32_t keep_limit(struct collection *to)
{
    const struct syi_cut cut = find_cut(to);
    struct syi_candidates *c = to->c;
    uint64_t equals = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < c->n; i++) { /* no branch, which would be mispredicted */
        const uint32_t key = c->key[i];
        c->key[n] = key;
        c->idx[n] = c->idx[i];
        equals += key == cut.key;
        n += (key > cut.key) | ((key == cut.key) & (equals <= cut.rest));
    }
    c->n = to->keys = n;
    return cut.key;
}

/* Cuts to the limit and raises the threshold: a token to come that equals the last one kept has a higher index, so it is not needed. */
static void prune(struct collection *to, sy_type type)
{
    to->above = keep_limit(to);
    to->threshold = (uint16_t)(order_of_key(to->above, type) + (type != SY_TYPE_F32));
}

/* Whether any of n f32 has a key above one. */
static bool any_above(const unsigned char *x, size_t n, uint32_t key)
{
    return best_of(x, n) > (int32_t)(key ^ 0x80000000u);
}

/* The tokens of a block after the n that are there; returns how many there are then. Two are always written: a
   branch on their number would be mispredicted. */
static int64_t push_tokens(int32_t *idx, int64_t n, uint64_t hits, size_t start)
{
    while (hits != 0)
        for (int i = 0; i < SYI_PUSHED; i++) {
            idx[n] = (int32_t)start + __builtin_ctzll(hits | UINT64_C(1) << 63);
            n += hits != 0;
            hits &= hits - 1;
        }
    return n;
}

static inline __attribute__((always_inline)) int64_t put_keys(const struct collection *to,
                                                              const unsigned char *x, sy_type type)
{
    uint32_t *key = to->c->key;
    int32_t *idx = to->c->idx;
    int64_t n = to->keys;
    for (int64_t i = to->keys; i < to->c->n; i++) {
        idx[n] = idx[i];
        key[n] = key_at(x, (size_t)idx[i], type);
        n += key[n] > to->above;
    }
    return n;
}

/* The keys of those tokens that have none yet; drops excluded ones. */
static void add_keys(struct collection *to, const struct syi_logits *row)
{
    to->c->n = row->type == SY_TYPE_F32   ? put_keys(to, row->x, SY_TYPE_F32)
               : row->type == SY_TYPE_F16 ? put_keys(to, row->x, SY_TYPE_F16)
                                          : put_keys(to, row->x, SY_TYPE_BF16);
    to->keys = to->c->n;
}

/* The tokens of a block that reach a threshold and count. */
static inline uint64_t hits_of(reach_fn *reach, const struct syi_logits *row, size_t block,
                               uint16_t threshold)
{
    const size_t start = block * SYI_BLOCK;
    uint64_t hits = start + SYI_BLOCK <= (size_t)row->n
                        ? reach(row->x + start * syi_float_bytes(row->type), threshold)
                        : reach_last(reach, row, threshold);
    if (row->n_out > 0)
        hits &= ~syi_out_bits(row, start);
    return row->allow != NULL ? hits & syi_allow_bits(row, start) : hits;
}

/* Puts the tokens of a block that reach the threshold after the others. */
static void collect_block(const struct syi_logits *row, size_t block, uint64_t hits, struct collection *to)
{
    const size_t start = block * SYI_BLOCK;
    const size_t many = to->limit * 4 < SYI_FEW ? SYI_FEW : to->limit * 4;
    to->c->n = push_tokens(to->c->idx, to->c->n, hits, start);
    if (to->limit == 0 || (size_t)to->c->n + SYI_BLOCK <= many)
        return;
    add_keys(to, row);
    if ((size_t)to->c->n + SYI_BLOCK > many)
        prune(to, row->type);
}

bool syi_scan_collect(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t threshold,
                      const struct syi_limit *limit, struct syi_candidates *c)
{
    const struct syi_logits *row = &s->row;
    const size_t bytes = SYI_BLOCK * syi_float_bytes(row->type), whole = (size_t)row->n / SYI_BLOCK;
    reach_fn *reach = row->type == SY_TYPE_F32 ? kernels->reach_32 : kernels->reach_16;
    struct collection to = {
        .kernels = kernels, .c = c, .limit = limit->n, .hist = limit->hist, .threshold = threshold};
    uint32_t block[AT_ONCE];
    c->n = 0;
    if (threshold <= syi_order_minus_inf(row->type))
        return false;
    for (size_t next = 0; next < syi_scan_blocks(row->n);) {
        const size_t n = list_blocks(s, to.threshold, &next, block, AT_ONCE);
        for (size_t i = 0; i < n; i++)
            for (size_t line = 0; line < bytes; line += 64) /* what was read has left the first-level cache */
                __builtin_prefetch(row->x + block[i] * bytes + line);
        for (size_t i = 0; i < n; i++) {
            const unsigned char *x = row->x + block[i] * bytes;
            if (s->max[block[i]] < to.threshold)
                continue;
            if (to.above > 0 && row->type == SY_TYPE_F32) {
                const size_t run = run_of(block + i, n - i);
                if (block[i] + run <= whole && !any_above(x, run * SYI_BLOCK, to.above)) {
                    i += run - 1;
                    continue;
                }
            }
            collect_block(row, block[i], hits_of(reach, row, block[i], to.threshold), &to);
        }
        add_keys(&to, row);
    }
    if (limit->exact && (size_t)c->n > limit->n)
        keep_limit(&to);
    return true;
}

int64_t syi_scan_before(const struct syi_kernels *kernels, const struct syi_scan *s, uint32_t key,
                        int64_t token)
{
    const struct syi_logits *row = &s->row;
    const uint16_t order = order_of_key(key, row->type);
    const uint16_t threshold = order == 0x8000u ? 0x7fffu : order; /* +0 equals -0, which is one below */
    reach_fn *reach = row->type == SY_TYPE_F32 ? kernels->reach_32 : kernels->reach_16;
    int64_t count = 0;
    for (size_t b = 0; b < syi_scan_blocks(row->n); b++) {
        if (s->max[b] < threshold)
            continue;
        const uint64_t above = hits_of(reach, row, b, (uint16_t)(order + 1u));
        count += __builtin_popcountll(above);
        for (uint64_t near = hits_of(reach, row, b, threshold) & ~above; near != 0; near &= near - 1) {
            const size_t i = b * SYI_BLOCK + (size_t)__builtin_ctzll(near);
            const uint32_t other = key_at(row->x, i, row->type);
            count += (other > key) | ((other == key) & ((int64_t)i < token));
        }
    }
    return count;
}
