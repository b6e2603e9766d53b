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

size_t syi_scan_blocks(int64_t vocab)
{
    return (size_t)(vocab + SYI_BLOCK - 1) / SYI_BLOCK;
}

void syi_scan_part(const struct syi_kernels *kernels, const struct syi_scan *s, size_t first, size_t end)
{
    const size_t bytes = syi_float_bytes(s->type), whole = (size_t)s->n / SYI_BLOCK;
    const unsigned char *x = s->x + first * SYI_BLOCK * bytes;
    void (*block_max)(uint16_t *, const void *, size_t) =
        s->type == SYI_F32 ? kernels->block_max_32 : kernels->block_max_16;
    if (end > whole && first < end) { /* the last block is short: fill it up with the lowest order there is */
        unsigned char last[SYI_BLOCK * 4];
        memset(last, 0xff, sizeof last);
        memcpy(last, s->x + whole * SYI_BLOCK * bytes, ((size_t)s->n - whole * SYI_BLOCK) * bytes);
        block_max(s->max + whole, last, 1);
        end = whole;
    }
    block_max(s->max + first, x, end - first);
}

bool syi_scan_top(struct syi_scan *s)
{
    const size_t n = syi_scan_blocks(s->n);
    uint16_t top = 0;
    for (size_t i = 0; i < n; i++)
        top = s->max[i] > top ? s->max[i] : top;
    s->top = top == 0x7fffu ? 0x8000u : top; /* -0 is +0 */
    return top > syi_order_minus_inf(s->type) && top < order_plus_inf(s->type);
}

uint16_t syi_scan_order(const struct syi_scan *s, int64_t i)
{
    const size_t bytes = syi_float_bytes(s->type);
    uint16_t upper; /* the machine is little-endian: the upper half comes last */
    memcpy(&upper, s->x + (size_t)(i + 1) * bytes - sizeof upper, sizeof upper);
    return (uint16_t)(upper ^ (upper & 0x8000u ? 0xffffu : 0x8000u));
}

/* The least key a logit of this order can have. The order of an f32 is the upper half of its key, and that of
   a bf16, which is the upper half of an f32, leaves one value. */
static uint32_t least_key(uint16_t order, enum syi_type type)
{
    if (type == SYI_F16)
        return syi_value_key(syi_f16_to_f32((uint16_t)(order ^ (order & 0x8000u ? 0x8000u : 0xffffu))));
    return (uint32_t)order << 16 | (type == SYI_BF16 && order < 0x8000u ? 0xffffu : 0);
}

uint16_t syi_scan_floor(const struct syi_kernels *kernels, const struct syi_scan *s, size_t k)
{
    const size_t n = syi_scan_blocks(s->n);
    int32_t high = s->top, low = high, step = 32;
    while (k > 1 && low > 0 && kernels->count_ge_u16(s->max, n, (uint16_t)low) < k) {
        high = low - 1; /* down from the top in growing steps, then by halves */
        low = low > step ? low - step : 0;
        step *= 2;
    }
    while (low < high) {
        const int32_t middle = low + (high - low + 1) / 2;
        if (kernels->count_ge_u16(s->max, n, (uint16_t)middle) >= k)
            low = middle;
        else
            high = middle - 1;
    }
    return low == 0x8000 ? 0x7fffu : (uint16_t)low; /* +0 equals -0, which lies one below */
}

uint64_t syi_scan_weigh_maxima(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t floor,
                               float m, float inv_t)
{
    enum { AT_ONCE = 256 };
    const size_t n_blocks = syi_scan_blocks(s->n);
    uint32_t key[AT_ONCE];
    float e[AT_ONCE];
    uint64_t sum = 0;
    for (size_t b = 0; b < n_blocks;) {
        size_t n = 0;
        for (; n < AT_ONCE && b < n_blocks; b++)
            if (s->max[b] >= floor)
                key[n++] = least_key(s->max[b], s->type);
        kernels->exp_keys(e, key, n, m, inv_t);
        for (size_t i = 0; i < n; i++)
            sum += syi_weight(e[i]);
    }
    return sum;
}

static bool any_reaches(const uint16_t *max, size_t n, uint16_t floor)
{
    uint16_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= max[i] >= floor;
    return any != 0;
}

/* Adds the tokens of a block that reach the floor. */
static void collect_block(const struct syi_kernels *kernels, const struct syi_scan *s, size_t block,
                          uint16_t floor, struct syi_candidates *c)
{
    const size_t bytes = syi_float_bytes(s->type), start = block * SYI_BLOCK;
    const size_t width = (size_t)s->n - start < SYI_BLOCK ? (size_t)s->n - start : SYI_BLOCK;
    const unsigned char *x = s->x + start * bytes;
    int32_t pos[SYI_BLOCK];
    const size_t found = s->type == SYI_F32 ? kernels->collect_32(pos, x, width, floor)
                                            : kernels->collect_16(pos, x, width, floor);
    for (size_t i = 0; i < found; i++) {
        const float value = syi_load_float(x + (size_t)pos[i] * bytes, s->type);
        c->key[c->n] = syi_value_key(value + 0.0f); /* -0 becomes +0 */
        c->idx[c->n++] = (int32_t)start + pos[i];
    }
}

bool syi_scan_collect(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t floor,
                      struct syi_candidates *c)
{
    enum { GROUP = 16 }; /* most blocks do not reach the floor: passed over together */
    const size_t n_blocks = syi_scan_blocks(s->n);
    c->n = 0;
    if (floor <= syi_order_minus_inf(s->type))
        return false;
    for (size_t b = 0; b < n_blocks; b += GROUP) {
        const size_t end = n_blocks - b < GROUP ? n_blocks : b + GROUP;
        if (end == b + GROUP && !any_reaches(s->max + b, GROUP, floor))
            continue;
        for (size_t i = b; i < end; i++)
            if (s->max[i] >= floor)
                collect_block(kernels, s, i, floor, c);
    }
    return true;
}
