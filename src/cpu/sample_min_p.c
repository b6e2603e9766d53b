/*
 * Draws from the tokens that min-p keeps, when they are too many to collect: weights are summed block by block. In rows
 * of few values, where ties make the kept tokens many, an exponential for each is not needed: the weight of a block
 * whose kept tokens are all equal is their number times one weight.
 */
#include "cpu/sample.h"

typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));
typedef float any_f32 __attribute__((aligned(1), may_alias));

/* The kept part of some tokens. */
struct kept {
    uint64_t weight;
    int64_t count;
};

struct walk {
    struct syi_row_state *r;
    uint16_t threshold; /* least order that may be kept */
    float least;        /* and least f32 */
    float value;        /* of which the weight was taken last */
    struct kept each;   /* its weight, and 1; or 0 */
    bool equal;         /* what was kept of all strips so far was equal in each of them */
};

static void weigh_value(struct walk *w, float value)
{
    const struct syi_row_state *r = w->r;
    const uint32_t key = syi_value_key(value);
    float e;
    r->kernels->exp_keys(&e, &key, 1, r->max, r->inv_t);
    w->value = value;
    w->each = e >= r->min_p ? (struct kept){syi_weight(e), 1} : (struct kept){0, 0};
}

/* How many of n tokens may be kept, or -1 when they are not all equal to a value. */
static int32_t count_equal_f32(const any_f32 *x, size_t n, float least, float value)
{
    int32_t count = 0, others = 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t reaches = x[i] >= least; /* a NaN does not */
        count += reaches;
        others |= reaches & (x[i] != value);
    }
    return others ? -1 : count;
}

/* The same by orders, with -0 as +0. */
static int32_t count_equal_16(const any_u16 *x, size_t n, uint16_t threshold, uint16_t value)
{
    uint16_t count = 0, others = 0;
    for (size_t i = 0; i < n; i++) {
        const uint16_t order = (uint16_t)(x[i] ^ ((0u - (x[i] >> 15)) | 0x8000u));
        const uint16_t canonical = (uint16_t)(order + (order == 0x7fffu));
        const uint16_t reaches = canonical >= threshold;
        count = (uint16_t)(count + reaches);
        others |= (uint16_t)(reaches & (canonical != value));
    }
    return others ? -1 : count;
}

static float largest_f32(const any_f32 *x, size_t n)
{
    float largest = x[0];
    for (size_t i = 1; i < n; i++)
        largest = x[i] > largest || largest != largest ? x[i] : largest;
    return largest + 0.0f; /* -0 is +0 */
}

/* e of the n tokens of a block. */
static void exp_block(const struct walk *w, const unsigned char *x, size_t n, float *e)
{
    const struct syi_row_state *r = w->r;
    uint32_t key[SYI_BLOCK];
    struct syi_key_stats stats = {0, 0};
    r->kernels->keys[syi_float_of(r->logits.type)](key, x, n, &stats);
    r->kernels->exp_keys(e, key, n, r->max, r->inv_t);
}

/* `max` is the largest order of them. */
static int32_t count_equal(struct walk *w, const unsigned char *x, size_t n, uint16_t max)
{
    const sy_type type = w->r->logits.type;
    if (type != SY_TYPE_F32) {
        const uint16_t canonical = (uint16_t)(max + (max == 0x7fffu));
        const float value = syi_key_value(syi_scan_key(canonical, type));
        if (value != w->value)
            weigh_value(w, value);
        return count_equal_16((const any_u16 *)x, n, w->threshold, canonical);
    }
    const any_f32 *wide = (const any_f32 *)x;
    const int32_t count = count_equal_f32(wide, n, w->least, w->value);
    if (count >= 0)
        return count;
    weigh_value(w, largest_f32(wide, n));
    return count_equal_f32(wide, n, w->least, w->value);
}

/* Elements of a part of the row of at most this size. */
static size_t part_size(const struct syi_logits *row, size_t part, size_t size)
{
    const size_t left = (size_t)row->n - part * size;
    return left < size ? left : size;
}

static const unsigned char *part_at(const struct syi_logits *row, size_t part, size_t size)
{
    return row->x + part * size * syi_float_bytes(row->type);
}

static struct kept times_each(const struct walk *w, int32_t n)
{
    return (struct kept){w->each.weight * (uint64_t)n, w->each.count * n};
}

static struct kept weigh_block(struct walk *w, size_t block)
{
    const struct syi_row_state *r = w->r;
    const size_t n = part_size(&r->logits, block, SYI_BLOCK);
    const unsigned char *x = part_at(&r->logits, block, SYI_BLOCK);
    struct kept kept = {0, 0};
    float e[SYI_BLOCK];
    if (r->scan.max[block] < w->threshold)
        return kept;
    const int32_t equal = count_equal(w, x, n, r->scan.max[block]);
    if (equal >= 0)
        return times_each(w, equal);
    exp_block(w, x, n, e);
    for (size_t i = 0; i < n; i++) {
        kept.weight += e[i] >= r->min_p ? syi_weight(e[i]) : 0;
        kept.count += e[i] >= r->min_p;
    }
    return kept;
}

enum { BLOCKS = SYI_PIECE / SYI_BLOCK }; /* of a strip; a group of the scan has as many */

static struct kept weigh_strip(struct walk *w, size_t strip)
{
    const struct syi_row_state *r = w->r;
    const size_t n_blocks = syi_scan_blocks(r->logits.n), first = strip * BLOCKS;
    struct kept kept = {0, 0};
    if (r->scan.group[strip] < w->threshold)
        return kept;
    const int32_t equal = w->equal
                              ? count_equal(w, part_at(&r->logits, strip, SYI_PIECE),
                                            part_size(&r->logits, strip, SYI_PIECE), r->scan.group[strip])
                              : -1;
    if (equal >= 0)
        return times_each(w, equal);
    w->equal = false;
    for (size_t b = first; b < n_blocks && b < first + BLOCKS; b++) {
        const struct kept block = weigh_block(w, b);
        kept = (struct kept){kept.weight + block.weight, kept.count + block.count};
    }
    return kept;
}

/* The token of a block at which the weight exceeds a target. */
static int64_t find_in_block(const struct walk *w, size_t block, uint64_t target)
{
    const struct syi_logits *row = &w->r->logits;
    float e[SYI_BLOCK];
    uint64_t sum = 0;
    exp_block(w, part_at(row, block, SYI_BLOCK), part_size(row, block, SYI_BLOCK), e);
    for (int64_t i = 0;; i++) {
        sum += e[i] >= w->r->min_p ? syi_weight(e[i]) : 0;
        if (sum > target)
            return (int64_t)(block * SYI_BLOCK) + i;
    }
}

void syi_row_walk(struct syi_row_state *r, uint16_t threshold)
{
    uint64_t *strip = r->scratch->table.strip, seen = 0, weight;
    struct walk w = {.r = r,
                     .threshold = threshold,
                     .least = syi_key_value(syi_scan_key(threshold, r->logits.type)),
                     .equal = true};
    struct kept all = {0, 0};
    weigh_value(&w, r->max);
    for (size_t i = 0; i < syi_weigh_strips(r->logits.n); i++) {
        const struct kept kept = weigh_strip(&w, i);
        strip[i] = kept.weight;
        all = (struct kept){all.weight + kept.weight, all.count + kept.count};
    }
    const uint64_t target = (uint64_t)((syi_u128)syi_row_uniform(r) * all.weight >> 64);
    size_t block = 0;
    for (; seen + strip[block / BLOCKS] <= target; block += BLOCKS)
        seen += strip[block / BLOCKS];
    for (; seen + (weight = weigh_block(&w, block).weight) <= target; block++)
        seen += weight;
    r->token = find_in_block(&w, block, target - seen);
    r->final_weight = all.weight;
    r->final_count = all.count;
}
