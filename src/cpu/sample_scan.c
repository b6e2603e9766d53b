/*
 * Short cuts of sample: most rows need only their few largest logits, and those are found at the speed of
 * reading. One pass takes the maximum of every 64 logits; the k-th largest of these maxima is a floor that at
 * least k logits reach, so only blocks that reach it are looked at again. What comes out is a superset of the
 * candidates with exact keys, in index order; the stages that follow cut it as they cut a whole row.
 */
#include "cpu/sample.h"
#include "cpu/backend.h"

/* Orders of the infinities (see block_max in kernels.h). Between them every order is a finite value. */
static uint16_t order_plus_inf(enum syi_type type)
{
    return type == SYI_F16 ? 0xfc00u : 0xff80u;
}

static uint16_t order_minus_inf(enum syi_type type)
{
    return type == SYI_F16 ? 0x03ffu : 0x007fu;
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
    return top > order_minus_inf(s->type) && top < order_plus_inf(s->type);
}

/* The largest floor that at least k blocks reach: down from the top in growing steps, then by halves. */
static uint16_t floor_of(const struct syi_kernels *kernels, const struct syi_scan *s, size_t k)
{
    const size_t n = syi_scan_blocks(s->n);
    int32_t high = s->top, low = high, step = 32;
    while (low > 0 && kernels->count_ge_u16(s->max, n, (uint16_t)low) < k) {
        high = low - 1;
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
    return (uint16_t)low;
}

bool syi_scan_collect(const struct syi_kernels *kernels, const struct syi_scan *s, size_t k,
                      struct syi_candidates *c)
{
    const size_t n_blocks = syi_scan_blocks(s->n), bytes = syi_float_bytes(s->type);
    if (k > n_blocks)
        return false;
    uint16_t floor = k == 1 ? s->top : floor_of(kernels, s, k);
    if (floor == 0x8000u)
        floor = 0x7fffu; /* +0 equals -0, which lies one below */
    if (floor <= order_minus_inf(s->type))
        return false; /* the superset would reach -inf and NaN */
    int32_t pos[SYI_BLOCK];
    c->n = 0;
    for (size_t b = 0; b < n_blocks; b++) {
        if (s->max[b] < floor)
            continue;
        const size_t start = b * SYI_BLOCK;
        const unsigned char *x = s->x + start * bytes;
        const size_t width = (size_t)s->n - start < SYI_BLOCK ? (size_t)s->n - start : SYI_BLOCK;
        const size_t found = s->type == SYI_F32 ? kernels->collect_32(pos, x, width, floor)
                                                : kernels->collect_16(pos, x, width, floor);
        for (size_t i = 0; i < found; i++) {
            const float value = syi_load_float(x + (size_t)pos[i] * bytes, s->type);
            c->key[c->n] = syi_value_key(value + 0.0f); /* -0 becomes +0 */
            c->idx[c->n++] = (int32_t)start + pos[i];
        }
    }
    return true;
}

/* ---- Orders of 16-bit values ------------------------------------------------------------------------- */

static inline uint16_t order_of_bits(uint16_t bits)
{
    const uint16_t flip = (uint16_t)(0u - (bits >> 15)); /* all ones for a negative */
    return (uint16_t)(bits ^ (uint16_t)(flip | 0x8000u));
}

static float value_of_order(uint16_t order, enum syi_type type)
{
    const uint16_t bits = order & 0x8000u ? (uint16_t)(order & 0x7fffu) : (uint16_t)~order;
    return (type == SYI_F16 ? syi_f16_to_f32(bits) : syi_bf16_to_f32(bits)) + 0.0f; /* -0 becomes +0 */
}

/* Key of a value given by its order. A bf16 is the upper half of an f32, so its order is the upper half of
   the key. */
static inline uint32_t key_of_order(uint16_t order, enum syi_type type)
{
    if (type == SYI_F16)
        return syi_value_key(value_of_order(order, type));
    return order == 0x7fffu ? 0x80000000u : (uint32_t)order << 16 | (order & 0x8000u ? 0 : 0xffffu);
}

/* The lowest order that may weigh anything, by halves: the weight never grows downwards. */
static uint16_t first_weight(const struct syi_scan *s, float m, float inv_t)
{
    int32_t low = order_minus_inf(s->type) + 1, high = s->top;
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if ((value_of_order((uint16_t)middle, s->type) - m) * inv_t < -28.5f) /* exp(-28.5) * 2^40 < 1/2 */
            low = middle + 1;
        else
            high = middle;
    }
    return (uint16_t)low;
}

/* ---- Weight of a whole row --------------------------------------------------------------------------- */

/*
 * A 16-bit row has few distinct values, so weights are looked up. The index of a value is its distance in
 * order above the first value that weighs anything, with the many values around zero that cannot be told
 * apart after subtracting m folded into one: |z| < m*2^-27 is less than a quarter of m's last place.
 */
struct fold {
    uint16_t low, below_zero, above_zero; /* orders: first that counts, ends of the folded stretch */
};

static inline uint16_t index_of(uint16_t order, struct fold f)
{
    const uint16_t under = order < f.below_zero ? order : f.below_zero;
    const uint16_t counted = under > f.low ? under : f.low;
    const uint16_t over = order > f.above_zero ? order : f.above_zero;
    return (uint16_t)((uint16_t)(counted - f.low) + (uint16_t)(over - f.above_zero));
}

/* Elements indexed before they are looked up, so that no load waits for a vector store. */
enum { STRIP = 1024 };

/* Kept apart and free of branches so that compilers turn it into vector code. */
static void index_strip(uint16_t *restrict index, const uint16_t *restrict bits, const struct fold f)
{
    for (size_t j = 0; j < STRIP; j++)
        index[j] = index_of(order_of_bits(bits[j]), f);
}

static uint64_t look_up(const uint64_t *restrict weight, const uint16_t *restrict index)
{
    uint64_t sum[4] = {0, 0, 0, 0};
    for (size_t j = 0; j < STRIP; j += 4) {
        uint64_t four; /* one load for four indices */
        memcpy(&four, index + j, sizeof four);
        sum[0] += weight[four & 0xffffu];
        sum[1] += weight[four >> 16 & 0xffffu];
        sum[2] += weight[four >> 32 & 0xffffu];
        sum[3] += weight[four >> 48];
    }
    return sum[0] + sum[1] + sum[2] + sum[3];
}

static struct fold make_fold(const struct syi_scan *s, float m, float inv_t)
{
    enum { STEP = 64 };
    const float tiny = m * 0x1p-27f;
    const uint16_t low = (uint16_t)(first_weight(s, m, inv_t) - 1);
    uint16_t half = 0; /* orders folded on either side of zero */
    while (0x8000u + half + STEP < s->top &&
           value_of_order((uint16_t)(0x8000u + half + STEP), s->type) < tiny)
        half = (uint16_t)(half + STEP);
    if (low >= 0x7fffu - half) /* everything that counts is positive: nothing to fold */
        return (struct fold){low, 0xffffu, 0xffffu};
    return (struct fold){low, (uint16_t)(0x7fffu - half), (uint16_t)(0x8000u + half)};
}

size_t syi_scan_table_entries(void)
{
    return 65536;
}

uint64_t syi_scan_weigh(const struct syi_kernels *kernels, const struct syi_scan *s, float m, float inv_t,
                        struct syi_weight_table *table)
{
    if (s->type == SYI_F32)
        return kernels->weigh_f32(s->x, (size_t)s->n, m, inv_t);
    const struct fold f = make_fold(s, m, inv_t);
    const size_t entries = (size_t)index_of(s->top, f) + 1;
    /* Entry i stands for the order that index_of maps to it; folded orders share the entry of below_zero. */
    const uint16_t turn = f.below_zero < 0xffffu ? (uint16_t)(f.below_zero - f.low) : 0xffffu;
    for (size_t i = 0; i < entries; i++) {
        const uint16_t order = i <= turn ? (uint16_t)(f.low + i) : (uint16_t)(f.above_zero + (i - turn));
        table->key[i] = key_of_order(order, s->type);
    }
    kernels->exp_keys(table->e, table->key, entries, m, inv_t);
    for (size_t i = 0; i < entries; i++)
        table->weight[i] = syi_weight(table->e[i]);
    table->weight[0] = 0;
    uint64_t sum = 0;
    uint16_t bits[STRIP], index[STRIP];
    const size_t whole = (size_t)s->n / STRIP, rest = (size_t)s->n % STRIP;
    for (size_t b = 0; b < whole; b++) {
        memcpy(bits, s->x + b * sizeof bits, sizeof bits);
        index_strip(index, bits, f);
        sum += look_up(table->weight, index);
    }
    memset(bits, 0xff, sizeof bits); /* a NaN weighs nothing */
    memcpy(bits, s->x + whole * sizeof bits, rest * sizeof *bits);
    index_strip(index, bits, f);
    return sum + look_up(table->weight, index);
}

/* ---- A draw by counting ------------------------------------------------------------------------------ */

/* How often each order occurs, in two interleaved halves so that equal neighbours do not wait for each
   other. Orders below `low` fall into the place before it. */
static void count_orders(const struct syi_scan *s, uint16_t low, uint32_t *count)
{
    enum { HALF = 65536 };
    const size_t places = (size_t)s->top - low + 2;
    const uint16_t before = (uint16_t)(low - 1);
    size_t i = 0;
    memset(count + before, 0, places * sizeof *count);
    memset(count + HALF + before, 0, places * sizeof *count);
    for (; i + 2 <= (size_t)s->n; i += 2) {
        uint16_t bits[2];
        memcpy(bits, s->x + i * 2, sizeof bits);
        const uint16_t a = order_of_bits(bits[0]), b = order_of_bits(bits[1]);
        count[a > before ? a : before]++;
        count[HALF + (b > before ? b : before)]++;
    }
    if (i < (size_t)s->n) {
        uint16_t bits;
        memcpy(&bits, s->x + i * 2, sizeof bits);
        const uint16_t a = order_of_bits(bits);
        count[a > before ? a : before]++;
    }
    for (size_t p = before; p < before + places; p++)
        count[p] += count[HALF + p];
}

/* The orders that occur, from the top, with their weights; returns how many. -0 counts as +0. */
static size_t list_orders(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t low, float m,
                          float inv_t, struct syi_weight_table *table)
{
    size_t n = 0;
    if (low <= 0x7fffu && s->top >= 0x8000u) {
        table->count[0x8000u] += table->count[0x7fffu];
        table->count[0x7fffu] = 0;
    }
    for (uint32_t order = s->top; order >= low; order--)
        if (table->count[order] != 0) {
            table->order[n] = (uint16_t)order;
            table->key[n++] = key_of_order((uint16_t)order, s->type);
        }
    kernels->exp_keys(table->e, table->key, n, m, inv_t);
    for (size_t i = 0; i < n; i++)
        table->weight[i] = syi_weight(table->e[i]);
    return n;
}

/* What is kept of the orders that occur: their weights by order, 0 for what is cut. */
struct kept_orders {
    uint64_t weight; /* of all that is kept */
    uint16_t last;   /* the lowest order kept ... */
    uint64_t ties;   /* ... and how many tokens of it */
};

static struct kept_orders keep_orders(const struct syi_weight_table *table, size_t n,
                                      const struct syi_draw *d)
{
    struct kept_orders kept = {.weight = 0};
    uint64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += table->weight[i] * table->count[table->order[i]];
    const uint64_t enough = d->top_p < 1.0f ? syi_mass_target(d->top_p, total) : total;
    for (size_t i = 0; i < n && kept.weight < enough && table->e[i] >= d->min_p; i++) {
        const uint64_t w = table->weight[i], count = table->count[table->order[i]];
        const uint64_t need = w == 0 ? 0 : (enough - kept.weight + w - 1) / w;
        kept.last = table->order[i];
        kept.ties = need < count && !d->all_ties ? need : count;
        kept.weight += kept.ties * w;
        table->by_order[kept.last] = w;
    }
    return kept;
}

/* The first token at which the weight of the kept ones, summed in index order, exceeds the target. */
static int64_t locate(const struct syi_scan *s, uint16_t low, struct kept_orders kept, uint64_t target,
                      uint64_t *weight)
{
    uint64_t seen = 0;
    for (int64_t i = 0;; i++) {
        uint16_t bits;
        memcpy(&bits, s->x + i * 2, sizeof bits);
        uint16_t order = order_of_bits(bits);
        order = order == 0x7fffu ? 0x8000u : order; /* -0 is +0 */
        order = order < low ? (uint16_t)(low - 1) : order;
        seen += weight[order];
        if (seen > target)
            return i;
        if (order == kept.last && --kept.ties == 0)
            weight[order] = 0; /* later equals are cut */
    }
}

int64_t syi_scan_draw(const struct syi_kernels *kernels, const struct syi_scan *s, float m, float inv_t,
                      const struct syi_draw *d, struct syi_weight_table *table)
{
    const uint16_t low = first_weight(s, m, inv_t);
    count_orders(s, low, table->count);
    const size_t n = list_orders(kernels, s, low, m, inv_t, table);
    memset(table->by_order + low - 1, 0, ((size_t)s->top - low + 2) * sizeof *table->by_order);
    const struct kept_orders kept = keep_orders(table, n, d);
    const uint64_t target = (uint64_t)((syi_u128)d->uniform * kept.weight >> 64);
    return locate(s, low, kept, target, table->by_order);
}
