/*
 * Short cuts of sample: most rows need only their few largest logits, and those are found at the speed of
 * reading. One pass takes the maximum of every 64 logits; the k-th largest of these maxima is a floor that at
 * least k logits reach, so only blocks that reach it are looked at again. What comes out is a superset of the
 * candidates with exact keys, in index order; the stages that follow cut it as they cut a whole row.
 */
#include "cpu/sample.h"
#include "cpu/backend.h"

static uint16_t order_plus_inf(enum syi_type type)
{
    return type == SYI_F16 ? 0xfc00u : 0xff80u;
}

enum {
    GROUP = 16,   /* blocks */
    AT_ONCE = 256 /* blocks looked at together */
};

size_t syi_scan_blocks(int64_t vocab)
{
    return (size_t)(vocab + SYI_BLOCK - 1) / SYI_BLOCK;
}

size_t syi_scan_groups(int64_t vocab)
{
    return (syi_scan_blocks(vocab) + GROUP - 1) / GROUP;
}

void syi_scan_piece(const struct syi_kernels *kernels, const struct syi_scan *s, size_t first,
                    const unsigned char *x, size_t n)
{
    const enum syi_type type = s->row.type;
    const size_t bytes = syi_float_bytes(type), whole = n / SYI_BLOCK;
    uint16_t *max = s->max + first / SYI_BLOCK;
    void (*block_max)(uint16_t *, const void *, size_t) =
        type == SYI_F32 ? kernels->block_max_32 : kernels->block_max_16;
    if (x == NULL) {
        for (size_t i = 0; i < syi_scan_blocks((int64_t)n); i++)
            max[i] = syi_order_minus_inf(type);
        return;
    }
    block_max(max, x, whole);
    if (whole * SYI_BLOCK < n) { /* the last block is short: fill it up with the lowest order there is */
        unsigned char last[SYI_BLOCK_BYTES_32];
        memset(last, 0xff, sizeof last);
        memcpy(last, x + whole * SYI_BLOCK * bytes, (n - whole * SYI_BLOCK) * bytes);
        block_max(max + whole, last, 1);
    }
}

/* Apart from rows without bits, which need no buffer. */
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

/* A block whose maximum may be that of an element that is out is looked at again; few are. */
void syi_scan_leave_out(const struct syi_kernels *kernels, const struct syi_scan *s)
{
    const struct syi_logits *row = &s->row;
    unsigned char buffer[SYI_BLOCK_BYTES_32];
    size_t done = SIZE_MAX;
    for (int64_t j = 0; j < row->n_out; j++) {
        const size_t block = (size_t)row->out[j] / SYI_BLOCK, first = block * SYI_BLOCK;
        const size_t left = (size_t)row->n - first, n = left < SYI_BLOCK ? left : SYI_BLOCK;
        if (block == done || syi_scan_order(row, row->out[j]) < s->max[block])
            continue;
        syi_scan_piece(kernels, s, first, syi_piece(row, first, n, buffer), n);
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
uint32_t syi_scan_key(uint16_t order, enum syi_type type)
{
    if (type == SYI_F16)
        return syi_value_key(syi_f16_to_f32((uint16_t)(order ^ (order & 0x8000u ? 0x8000u : 0xffffu))));
    return (uint32_t)order << 16 | (type == SYI_BF16 && order < 0x8000u ? 0xffffu : 0);
}

/* The largest order that at least k of n maxima reach: down from the top in growing steps, then by halves. */
static uint16_t kth_of(const struct syi_kernels *kernels, const uint16_t *max, size_t n, uint16_t top,
                       size_t k)
{
    int32_t high = top, low = high, step = 32;
    while (low > 0 && kernels->count_ge_u16(max, n, (uint16_t)low) < k) {
        high = low - 1;
        low = low > step ? low - step : 0;
        step *= 2;
    }
    while (low < high) {
        const int32_t middle = low + (high - low + 1) / 2;
        if (kernels->count_ge_u16(max, n, (uint16_t)middle) >= k)
            low = middle;
        else
            high = middle - 1;
    }
    return (uint16_t)low;
}

uint16_t syi_scan_floor(const struct syi_kernels *kernels, const struct syi_scan *s, size_t k)
{
    const size_t n_groups = syi_scan_groups(s->row.n);
    uint16_t floor = s->top;
    if (k > 1 && 2 * k <= n_groups) /* enough groups: a slightly lower floor, found much sooner */
        floor = kth_of(kernels, s->group, n_groups, s->top, k);
    else if (k > 1)
        floor = kth_of(kernels, s->max, syi_scan_blocks(s->row.n), s->top, k);
    return floor == 0x8000u ? 0x7fffu : floor; /* +0 equals -0, which lies one below */
}

/* Blocks that reach a floor, from block *next on, at most `most`; returns how many. */
static size_t list_blocks(const struct syi_scan *s, uint16_t floor, size_t *next, uint32_t *block,
                          size_t most)
{
    const size_t n_blocks = syi_scan_blocks(s->row.n);
    const uint16_t *max = s->max, *group = s->group;
    size_t n = 0, b = *next;
    for (; b < n_blocks && n + GROUP <= most; b += GROUP) {
        const size_t end = n_blocks - b < GROUP ? n_blocks : b + GROUP;
        if (group[b / GROUP] < floor)
            continue;
        for (size_t i = b; i < end; i++) { /* no branch: it could not be guessed */
            block[n] = (uint32_t)i;
            n += max[i] >= floor;
        }
    }
    *next = b;
    return n;
}

uint64_t syi_scan_weigh_maxima(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t floor,
                               float m, float inv_t)
{
    uint32_t block[AT_ONCE], key[AT_ONCE];
    float e[AT_ONCE];
    uint64_t sum = 0;
    for (size_t next = 0; next < syi_scan_blocks(s->row.n);) {
        const size_t n = list_blocks(s, floor, &next, block, AT_ONCE);
        for (size_t i = 0; i < n; i++)
            key[i] = syi_scan_key(s->max[block[i]], s->row.type);
        kernels->exp_keys(e, key, n, m, inv_t);
        for (size_t i = 0; i < n; i++)
            sum += syi_weight(e[i]);
    }
    return sum;
}

/* Key of a number. */
static inline uint32_t key_at(const unsigned char *x, size_t i, enum syi_type type)
{
    uint16_t half;
    uint32_t bits;
    if (type == SYI_F32) {
        memcpy(&bits, x + i * 4, sizeof bits);
    } else {
        memcpy(&half, x + i * 2, sizeof half);
        bits = type == SYI_BF16 ? (uint32_t)half << 16 : syi_f32_bits(syi_f16_to_f32(half));
    }
    const uint32_t sign = 0u - (bits >> 31);
    return (bits ^ (sign | 0x80000000u)) + (bits == 0x80000000u); /* -0 is +0 */
}

typedef uint64_t reach_fn(const void *x, uint16_t floor);

/* The last block, which may be short: filled up with the lowest order there is. Apart from the loop that calls
   it, which needs no buffer. */
static __attribute__((noinline)) uint64_t reach_last(reach_fn *reach, const struct syi_logits *row,
                                                     uint16_t floor)
{
    const size_t bytes = syi_float_bytes(row->type), whole = (size_t)row->n / SYI_BLOCK * SYI_BLOCK;
    unsigned char last[SYI_BLOCK_BYTES_32];
    memset(last, 0xff, sizeof last);
    memcpy(last, row->x + whole * bytes, ((size_t)row->n - whole) * bytes);
    return reach(last, floor);
}

/* Puts the tokens of a block that reach the floor behind n candidates; returns how many there are then. */
static inline int64_t collect_block(const struct syi_logits *row, size_t block, uint64_t hits, uint32_t *key,
                                    int32_t *idx, int64_t n)
{
    const size_t start = block * SYI_BLOCK;
    for (; hits != 0; hits &= hits - 1) {
        const size_t i = start + (size_t)__builtin_ctzll(hits);
        if (!syi_allowed(row, (int64_t)i))
            continue;
        key[n] = key_at(row->x, i, row->type);
        idx[n++] = (int32_t)i;
    }
    return n;
}

bool syi_scan_collect(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t floor,
                      struct syi_candidates *c)
{
    const struct syi_logits *row = &s->row;
    const size_t bytes = SYI_BLOCK * syi_float_bytes(row->type), whole = (size_t)row->n / SYI_BLOCK;
    reach_fn *reach = row->type == SYI_F32 ? kernels->reach_32 : kernels->reach_16;
    uint32_t block[AT_ONCE];
    int64_t found = 0;
    if (floor <= syi_order_minus_inf(row->type))
        return false;
    for (size_t next = 0; next < syi_scan_blocks(row->n);) {
        const size_t n = list_blocks(s, floor, &next, block, AT_ONCE);
        for (size_t i = 0; i < n; i++)
            for (size_t line = 0; line < bytes; line += 64) /* what was read has left the first cache */
                __builtin_prefetch(row->x + block[i] * bytes + line);
        for (size_t i = 0; i < n; i++) {
            const uint64_t hits =
                block[i] < whole ? reach(row->x + block[i] * bytes, floor) : reach_last(reach, row, floor);
            found = collect_block(row, block[i], hits, c->key, c->idx, found);
        }
    }
    c->n = found;
    return true;
}
