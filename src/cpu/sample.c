/*
 * sample on the CPU: rows split over threads, each row through the same stages. All filters are prefixes of
 * one total order (larger logit first, then lower index), so the state of a row is just the candidates that
 * are left.
 */
#include "cpu/sample.h"
#include "cpu/backend.h"
#include "kernels/kernels.h"

/* Scratch of one task; every array has `vocab` entries unless stated. */
struct scratch {
    uint32_t *key;      /* of all tokens */
    uint32_t *kept_key; /* of the candidates once something was cut */
    int32_t *kept_idx;
    float *e;
    uint32_t *sort_key[2]; /* only when the plan can need rank order */
    int32_t *sort_idx[2];
    uint64_t *hist;                 /* [SYI_SELECT_BINS] */
    uint16_t *block_max;            /* [syi_scan_blocks(vocab)] */
    struct syi_pattern_table table; /* only when rows may be weighed as a whole */
};

struct job {
    const struct syi_sample_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
    int n_slices;            /* more than 1: block maxima are made by that many threads per row beforehand */
    struct scratch *scratch; /* [task] */
};

/* One row on its way through the stages. */
struct row {
    const struct syi_sample_plan *plan;
    const struct syi_kernels *kernels;
    const struct scratch *scratch;
    int64_t b, end; /* the row, and the end of those the task will do */
    struct syi_key_stats stats;
    bool empty;
    bool cold;    /* temperature so low that the first of the order is certain */
    bool greedy;  /* cold, or no noise: the first of the order is taken */
    bool scanned; /* block maxima are there already */
    bool ranked;  /* top-k or top-p acted: the list is in rank order, else in index order */
    float max, inv_t;
    int64_t k;                  /* top-k of this row, 0: off */
    bool one;                   /* top-p is 0 or less: keep one token, unless the row is empty */
    float top_p, min_p;         /* 1 and 0: off */
    struct syi_candidates c;    /* in index order */
    struct syi_candidates list; /* in list order; made by make_list */
    struct syi_scan scan;       /* the row and its block maxima; set when read_head looked */
    struct syi_mass mass;       /* of what top-k left; high is 0 until asked for */
    int64_t token;
};

static int count_tasks(const sy_ctx *ctx, const struct syi_sample_plan *p)
{
    return syi_tasks(ctx, p->batch, (uint64_t)p->batch * (uint64_t)p->vocab * sizeof(uint32_t));
}

static bool may_sort(const struct syi_sample_plan *p)
{
    return p->list_token.data != NULL || p->list_prob.data != NULL ||
           (p->noise == SY_NOISE_Q && p->q_order == SY_Q_LIST);
}

static bool may_weigh(const struct syi_sample_plan *p)
{
    return p->top_p.rows.data != NULL || p->noise == SY_NOISE_CDF;
}

/* Lays out the scratch of one task; on an arena without memory it only measures. */
static struct scratch take_scratch(struct syi_arena *arena, const struct syi_sample_plan *p)
{
    const size_t column = syi_size_mul((size_t)p->vocab, sizeof(uint32_t));
    struct scratch s = {.key = syi_take(arena, column)};
    s.kept_key = syi_take(arena, column);
    s.kept_idx = syi_take(arena, column);
    s.e = syi_take(arena, column);
    for (int i = 0; may_sort(p) && i < 2; i++) {
        s.sort_key[i] = syi_take(arena, column);
        s.sort_idx[i] = syi_take(arena, column);
    }
    s.hist = syi_take(arena, SYI_SELECT_BINS * sizeof *s.hist);
    s.block_max = syi_take(arena, syi_scan_blocks(p->vocab) * sizeof *s.block_max);
    if (may_weigh(p))
        s.table.strip = syi_take(arena, syi_weigh_strips(p->vocab) * sizeof *s.table.strip);
    if (may_weigh(p) && p->type != SYI_F32) {
        s.table.weight = syi_take(arena, SYI_PATTERNS * sizeof *s.table.weight);
        s.table.count = syi_take(arena, 2 * SYI_PATTERNS * sizeof *s.table.count);
        s.table.pattern = syi_take(arena, SYI_PATTERNS * sizeof *s.table.pattern);
        s.table.e = syi_take(arena, SYI_PATTERNS * sizeof *s.table.e);
    }
    return s;
}

size_t syi_cpu_sample_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    const size_t n_tasks = (size_t)count_tasks(ctx, &plan->sample);
    struct syi_arena one = {NULL, 0};
    take_scratch(&one, &plan->sample);
    return syi_size_add(syi_align(n_tasks * sizeof(struct scratch)), syi_size_mul(n_tasks, one.used));
}

/* ---- Weights ----------------------------------------------------------------------------------------- */

static float positive(float value)
{
    return value > 0.0f ? value : 0.0f;
}

/* e of candidates: the exponential of the scaled logit, or the probability itself. */
static void exponentials(const struct row *r, const struct syi_candidates *c, float *e)
{
    if (!r->plan->probs_in) {
        r->kernels->exp_keys(e, c->key, (size_t)c->n, r->max, r->inv_t);
        return;
    }
    for (int64_t i = 0; i < c->n; i++)
        e[i] = positive(syi_key_value(c->key[i]));
}

static uint64_t weight_sum(const float *e, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += syi_weight(e[i]);
    return sum;
}

/* ---- Stages ------------------------------------------------------------------------------------------ */

/* The row the long way: every key. */
static void read_row(struct row *r)
{
    const struct syi_sample_plan *p = r->plan;
    const unsigned char *x = syi_row(p->logits, r->b);
    const size_t n = (size_t)p->vocab;
    r->stats = (struct syi_key_stats){0, 0};
    if (p->type == SYI_F32)
        r->kernels->keys_f32(r->scratch->key, x, n, &r->stats);
    else if (p->type == SYI_F16)
        r->kernels->keys_f16(r->scratch->key, x, n, &r->stats);
    else
        r->kernels->keys_bf16(r->scratch->key, x, n, &r->stats);
    r->empty = r->stats.max == SYI_KEY_MINUS_INF;
    if (r->empty)
        r->stats.flags |= SY_ROW_EMPTY;
    r->max = syi_key_value(r->stats.max);
    r->c = (struct syi_candidates){r->scratch->key, NULL, p->vocab};
    r->mass = (struct syi_mass){0, 0};
}

static void read_temperature(struct row *r)
{
    const float coldest = 1e-5f, hottest = 0x1p100f;
    float t = 1.0f;
    if (r->plan->temperature.rows.data != NULL)
        t = syi_column_float(&r->plan->temperature, r->b);
    if (t != t)
        t = 1.0f;
    r->cold = t < coldest;
    r->greedy = r->cold || r->plan->noise == SY_NOISE_NONE;
    t = t < coldest ? coldest : t > hottest ? hottest : t;
    r->inv_t = 1.0f / t;
}

static bool top_k_on(const struct syi_sample_plan *p, int64_t k)
{
    if (p->k_limit == 0)
        return k >= 1 && k < p->vocab;
    return k >= 1 && k <= p->vocab && k <= p->k_limit;
}

static void read_filters(struct row *r)
{
    const struct syi_sample_plan *p = r->plan;
    const int64_t k = p->top_k.rows.data != NULL ? syi_column_int(&p->top_k, r->b) : 0;
    const float top_p = p->top_p.rows.data != NULL ? syi_column_float(&p->top_p, r->b) : 1.0f;
    const float min_p = p->min_p.rows.data != NULL ? syi_column_float(&p->min_p, r->b) : 0.0f;
    r->k = top_k_on(p, k) ? k : 0;
    r->top_p = top_p > 0.0f && top_p < 1.0f ? top_p : 1.0f;
    r->min_p = min_p > 0.0f ? min_p : 0.0f;
    r->one = top_p <= 0.0f;
}

static void cut_at(struct row *r, uint32_t key, int64_t ties)
{
    syi_keep(&r->c, key, ties, r->scratch->kept_key, r->scratch->kept_idx);
}

/* The first k of the order. */
static void keep_top_k(struct row *r, int64_t k)
{
    struct syi_cut cut;
    if (k < r->c.n && syi_select(&r->c, NULL, (uint64_t)k, r->scratch->hist, &cut))
        cut_at(r, cut.key, r->plan->ties == SY_TIES_ALL ? INT64_MAX : (int64_t)cut.rest);
    r->ranked = true;
}

/* Where the shortest prefix with mass p of a total ends. */
struct prefix {
    bool all; /* the candidates do not reach it: nothing is cut */
    uint32_t key;
    int64_t ties; /* tokens equal to the key that are kept */
};

static struct prefix find_prefix(const struct row *r, const float *e, uint64_t total)
{
    struct syi_cut cut;
    if (!syi_select(&r->c, e, syi_mass_target(r->top_p, total), r->scratch->hist, &cut))
        return (struct prefix){.all = true};
    const struct syi_candidates at_cut = {&cut.key, NULL, 1};
    float e_cut;
    exponentials(r, &at_cut, &e_cut);
    const uint64_t w = syi_weight(e_cut);
    const uint64_t ties = cut.rest / w + (cut.rest % w != 0);
    return (struct prefix){.key = cut.key, .ties = r->plan->ties == SY_TIES_ALL ? INT64_MAX : (int64_t)ties};
}

static struct syi_weigher weigher_of(const struct row *r)
{
    const bool last = r->b + 1 >= r->end;
    return (struct syi_weigher){.kernels = r->kernels,
                                .scan = &r->scan,
                                .m = r->max,
                                .inv_t = r->inv_t,
                                .next = last ? NULL : syi_row(r->plan->logits, r->b + 1),
                                .table = r->scratch->table};
}

static void weigh_exactly(struct row *r)
{
    const struct syi_weigher weigher = weigher_of(r);
    r->mass.low = r->mass.high = syi_weigh(&weigher);
}

static void weigh_roughly(struct row *r)
{
    const struct syi_weigher weigher = weigher_of(r);
    r->mass = syi_weigh_about(&weigher);
}

/* The shortest prefix whose mass reaches p. A total that is known only within bounds will do when both give
   the same prefix, which is nearly always. */
static void keep_top_p(struct row *r)
{
    float *e = r->scratch->e;
    exponentials(r, &r->c, e);
    if (r->plan->probs_in)
        r->mass = (struct syi_mass){SYI_WEIGHT_ONE, SYI_WEIGHT_ONE};
    else if (r->mass.high == 0)
        r->mass.low = r->mass.high = weight_sum(e, r->c.n);
    struct prefix prefix = find_prefix(r, e, r->mass.high);
    if (r->mass.low < r->mass.high) {
        const struct prefix least = find_prefix(r, e, r->mass.low);
        if (least.key != prefix.key || least.ties != prefix.ties) {
            weigh_exactly(r);
            prefix = find_prefix(r, e, r->mass.high);
        }
    }
    if (!prefix.all)
        cut_at(r, prefix.key, prefix.ties);
    r->ranked = true;
}

static void keep_min_p(struct row *r)
{
    if (r->min_p >= 1.0f) {
        cut_at(r, r->stats.max, 1);
        return;
    }
    const float floor = r->plan->probs_in ? r->min_p * positive(r->max) : r->min_p;
    float *e = r->scratch->e;
    exponentials(r, &r->c, e);
    /* e never grows down the order, so the smallest key that passes is a cut. */
    uint32_t lowest = UINT32_MAX;
    for (int64_t i = 0; i < r->c.n; i++)
        if (e[i] >= floor && r->c.key[i] < lowest)
            lowest = r->c.key[i];
    cut_at(r, lowest, INT64_MAX);
}

static void filter(struct row *r)
{
    const struct syi_sample_plan *p = r->plan;
    if (r->one && !r->empty)
        keep_top_k(r, 1);
    else if (r->k > 0)
        keep_top_k(r, r->k);
    if (r->empty)
        return;
    if (r->top_p < 1.0f)
        keep_top_p(r);
    else if (p->list_prob.data != NULL && !p->probs_in) {
        exponentials(r, &r->c, r->scratch->e);
        r->mass.low = r->mass.high = weight_sum(r->scratch->e, r->c.n);
    }
    if (r->min_p > 0.0f)
        keep_min_p(r);
}

/* ---- The choice -------------------------------------------------------------------------------------- */

static int64_t token_at(const struct syi_candidates *c, int64_t i)
{
    return c->idx != NULL ? c->idx[i] : i;
}

/* Always a candidate, whatever was cut. */
static int64_t first_of_order(const struct row *r)
{
    int64_t i = 0;
    while (r->c.key[i] != r->stats.max)
        i++;
    return token_at(&r->c, i);
}

static void make_list(struct row *r)
{
    r->list = r->c;
    if (r->ranked)
        r->list = syi_rank_order(&r->c, r->scratch->sort_key, r->scratch->sort_idx, r->scratch->hist);
}

struct noise {
    uint64_t seed, offset;
    uint32_t stream;
};

static struct noise noise_of(const struct row *r)
{
    const struct syi_sample_plan *p = r->plan;
    return (struct noise){
        .seed = (uint64_t)syi_column_int(&p->seed, r->b),
        .offset = p->offset.rows.data != NULL ? (uint64_t)syi_column_int(&p->offset, r->b) : 0,
        .stream = (uint32_t)(p->stream.rows.data != NULL ? syi_column_int(&p->stream, r->b) : r->b),
    };
}

static void draw(const struct noise *n, uint32_t c0, uint32_t word[4])
{
    const uint32_t counter[4] = {c0, (uint32_t)n->offset, (uint32_t)(n->offset >> 32), n->stream};
    syi_philox(counter, n->seed, word);
}

/* Where the noise of a candidate comes from: the caller's q by list place or by token, or counted by
   token. */
struct noise_source {
    const unsigned char *q; /* NULL: counted */
    bool by_list;
    float eps;
    struct noise noise;
    int64_t drawn; /* group of four tokens whose words are in `word` */
    uint32_t word[4];
};

static float noise_at(struct noise_source *from, int64_t place, int64_t token)
{
    if (from->q != NULL)
        return syi_load_float(from->q + 4 * (from->by_list ? place : token), SYI_F32);
    if (token / 4 != from->drawn) {
        from->drawn = token / 4;
        draw(&from->noise, (uint32_t)from->drawn, from->word);
    }
    return syi_exponential(from->word[token % 4]);
}

/* Largest score, ties to the earlier place of the list. The candidates are visited in list order only
   where q is given so; otherwise the place in a ranked list follows from the key. */
static int64_t choose_by_score(struct row *r, struct noise_source *from)
{
    const struct syi_candidates *c = from->by_list ? &r->list : &r->c;
    const bool compare_keys = r->ranked && !from->by_list;
    float *e = r->scratch->e, best = 0.0f;
    int64_t winner = -1;
    uint32_t winner_key = 0;
    exponentials(r, c, e);
    for (int64_t i = 0; i < c->n; i++) {
        if (!(e[i] > 0.0f))
            continue;
        const int64_t token = token_at(c, i);
        const float score = syi_score(e[i], noise_at(from, i, token), from->eps);
        const bool earlier = compare_keys && c->key[i] > winner_key;
        if (winner < 0 || score > best || (score == best && earlier)) {
            best = score;
            winner = token;
            winner_key = c->key[i];
        }
    }
    return winner < 0 ? first_of_order(r) : winner;
}

static int64_t choose_by_q(struct row *r)
{
    const struct syi_sample_plan *p = r->plan;
    struct noise_source from = {.q = syi_row(p->q, r->b), .by_list = p->q_order == SY_Q_LIST, .eps = p->eps};
    return choose_by_score(r, &from);
}

static int64_t choose_by_race(struct row *r)
{
    struct noise_source from = {.noise = noise_of(r), .drawn = -1};
    return choose_by_score(r, &from);
}

/* The first candidate in index order whose inclusive weight sum exceeds a uniform share of the total. */
static int64_t choose_by_cdf(struct row *r)
{
    const struct noise noise = noise_of(r);
    uint32_t word[4];
    float *e = r->scratch->e;
    draw(&noise, UINT32_MAX, word);
    exponentials(r, &r->c, e);
    const uint64_t total = weight_sum(e, r->c.n);
    if (total == 0)
        return first_of_order(r);
    const uint64_t uniform = word[0] | (uint64_t)word[1] << 32;
    const uint64_t target = (uint64_t)((syi_u128)uniform * total >> 64);
    uint64_t sum = 0;
    int64_t i = -1;
    do
        sum += syi_weight(e[++i]);
    while (sum <= target);
    return token_at(&r->c, i);
}

static int64_t choose(struct row *r)
{
    if (r->empty)
        return r->plan->empty_token;
    if (r->greedy)
        return first_of_order(r);
    switch (r->plan->noise) {
    case SY_NOISE_Q:
        return choose_by_q(r);
    case SY_NOISE_RACE:
        return choose_by_race(r);
    default:
        return choose_by_cdf(r);
    }
}

/* ---- Outputs ----------------------------------------------------------------------------------------- */

static float log_probability(struct row *r)
{
    const float minus_inf = syi_f32_from_bits(0xff800000u);
    const bool raw = r->plan->logprob_mode == SY_LOGPROB_RAW;
    if (r->empty)
        return minus_inf;
    if (!raw && r->cold)
        return 0.0f;
    if (raw) {
        r->inv_t = 1.0f;
        r->c = (struct syi_candidates){r->scratch->key, NULL, r->plan->vocab};
    }
    exponentials(r, &r->c, r->scratch->e);
    const uint64_t total = weight_sum(r->scratch->e, r->c.n);
    int64_t at = r->c.idx == NULL ? r->token : 0;
    while (token_at(&r->c, at) != r->token)
        at++;
    const float value = syi_key_value(r->c.key[at]);
    if (!r->plan->probs_in)
        return (float)((double)((value - r->max) * r->inv_t) - syi_log_weight(total));
    const uint64_t own = syi_weight(positive(value));
    return own == 0 ? minus_inf : (float)(syi_log_weight(own) - syi_log_weight(total));
}

static void write_list(const struct row *r)
{
    const struct syi_sample_plan *p = r->plan;
    const float scale = (float)r->mass.high * 0x1p-40f;
    unsigned char *tokens = p->list_token.data != NULL ? syi_row(p->list_token, r->b) : NULL;
    unsigned char *probs = p->list_prob.data != NULL ? syi_row(p->list_prob, r->b) : NULL;
    const size_t n = (size_t)r->list.n, rest = (size_t)p->vocab - n;
    if (tokens != NULL) {
        for (size_t i = 0; i < n; i++)
            syi_store_i64(tokens, (int64_t)i, token_at(&r->list, (int64_t)i));
        memset(tokens + n * 8, 0, rest * 8);
    }
    if (probs == NULL)
        return;
    exponentials(r, &r->list, r->scratch->e);
    const unsigned char *x = syi_row(p->logits, r->b);
    const size_t elem_bytes = syi_float_bytes(p->type);
    for (size_t i = 0; i < n; i++) {
        float prob = 0.0f;
        if (r->list.key[i] != SYI_KEY_MINUS_INF)
            prob = p->probs_in
                       ? syi_load_float(x + (size_t)token_at(&r->list, (int64_t)i) * elem_bytes, p->type)
                       : r->scratch->e[i] / scale;
        memcpy(probs + i * 4, &prob, sizeof prob);
    }
    memset(probs + n * 4, 0, rest * 4);
}

/* A row is read in step with being written, so masked logits may lie exactly over f32 logits. */
static void write_masked(const struct row *r)
{
    const struct syi_sample_plan *p = r->plan;
    const float fill = p->probs_in ? 0.0f : syi_f32_from_bits(0xff800000u);
    const size_t elem_bytes = syi_float_bytes(p->type);
    const unsigned char *x = syi_row(p->logits, r->b);
    unsigned char *out = syi_row(p->masked, r->b);
    int64_t next = 0;
    for (int64_t i = 0; i < p->vocab; i++) {
        float value = fill;
        if (next < r->c.n && token_at(&r->c, next) == i) {
            next++;
            const float logit = syi_load_float(x + (size_t)i * elem_bytes, p->type);
            if (!r->empty && logit == logit)
                value = logit;
        }
        memcpy(out + i * 4, &value, sizeof value);
    }
}

static int32_t count_kept(const struct row *r)
{
    int32_t n = 0;
    for (int64_t i = 0; i < r->c.n; i++)
        n += r->c.key[i] != SYI_KEY_MINUS_INF;
    return n;
}

/* Whether anything but the first token of the order is asked for. */
static bool wants_candidates(const struct row *r)
{
    const struct syi_sample_plan *p = r->plan;
    const bool final = p->logprob_mode == SY_LOGPROB_FINAL && !r->cold;
    return !r->greedy || final || p->kept != NULL || p->masked.data != NULL || p->list_token.data != NULL ||
           p->list_prob.data != NULL;
}

/* Whether any row may do with its head: no output speaks of the whole row. */
static bool may_scan(const struct syi_sample_plan *p)
{
    return !p->probs_in && p->row_flags == NULL && p->logprob_mode != SY_LOGPROB_RAW;
}

/* Whether the token is all that is asked for. */
static bool token_only(const struct syi_sample_plan *p)
{
    return p->kept == NULL && p->row_flags == NULL && p->logprob == NULL && p->masked.data == NULL &&
           p->list_token.data == NULL && p->list_prob.data == NULL;
}

enum head {
    HEAD_NONE, /* the row must be read the long way */
    HEAD_READ, /* r->c holds all candidates and perhaps more */
    HEAD_DRAWN /* r->token is the answer */
};

/* The tokens that reach a floor into r->c, with the row's maximum. */
static bool collect_from(struct row *r, uint16_t floor)
{
    r->c = (struct syi_candidates){r->scratch->kept_key, r->scratch->kept_idx, 0};
    if (!syi_scan_collect(r->kernels, &r->scan, floor, &r->c))
        return false;
    for (int64_t i = 0; i < r->c.n; i++)
        r->stats.max = r->c.key[i] > r->stats.max ? r->c.key[i] : r->stats.max;
    r->max = syi_key_value(r->stats.max);
    return true;
}

/* The first `k` of the order and perhaps more. */
static bool collect_head(struct row *r, size_t k)
{
    return k <= syi_scan_blocks(r->plan->vocab) && collect_from(r, syi_scan_floor(r->kernels, &r->scan, k));
}

/* A guess at the weight of the tokens below a floor, from one in 256. */
static uint64_t guess_below(const struct row *r, uint16_t floor)
{
    enum { EVERY = 256, AT_ONCE = 256 };
    const struct syi_sample_plan *p = r->plan;
    const unsigned char *x = syi_row(p->logits, r->b);
    const int64_t bytes = (int64_t)syi_float_bytes(p->type);
    uint32_t key[AT_ONCE];
    float e[AT_ONCE];
    uint64_t sum = 0;
    for (int64_t i = 0; i < p->vocab;) {
        size_t n = 0;
        for (; n < AT_ONCE && i < p->vocab; i += EVERY) {
            const float value = syi_load_float(x + i * bytes, p->type);
            if (value == value && syi_value_key(value) >> 16 < floor)
                key[n++] = syi_value_key(value);
        }
        r->kernels->exp_keys(e, key, n, r->max, r->inv_t);
        sum += weight_sum(e, (int64_t)n);
    }
    return sum * EVERY;
}

/* A head that holds the nucleus, as long as it need not be large. The maxima of the blocks tell which floor is
   low enough before a token is collected. */
static bool find_head(struct row *r)
{
    enum { FIRST = 64, LARGE = 1024 };
    const size_t n_blocks = syi_scan_blocks(r->plan->vocab);
    size_t k = n_blocks < FIRST ? n_blocks : FIRST;
    if (!collect_head(r, 1)) /* for the maximum */
        return false;
    uint16_t floor = syi_scan_floor(r->kernels, &r->scan, k);
    uint64_t have = syi_scan_weigh_maxima(r->kernels, &r->scan, floor, r->max, r->inv_t);
    if (have < syi_mass_target(r->top_p, have + guess_below(r, floor)) / 4)
        return false;
    if (r->plan->list_prob.data != NULL)
        weigh_exactly(r);
    else
        weigh_roughly(r);
    while (have < syi_mass_target(r->top_p, r->mass.high)) {
        k *= 2;
        if (k > n_blocks || k > LARGE)
            return false;
        floor = syi_scan_floor(r->kernels, &r->scan, k);
        have = syi_scan_weigh_maxima(r->kernels, &r->scan, floor, r->max, r->inv_t);
    }
    return collect_from(r, floor);
}

static int64_t draw_from_row(const struct row *r)
{
    const struct noise noise = noise_of(r);
    const struct syi_weigher weigher = weigher_of(r);
    uint32_t word[4];
    draw(&noise, UINT32_MAX, word);
    const struct syi_draw d = {.top_p = r->top_p,
                               .min_p = r->min_p,
                               .all_ties = r->plan->ties == SY_TIES_ALL,
                               .uniform = word[0] | (uint64_t)word[1] << 32};
    return syi_weigh_draw(&weigher, &d);
}

/* Whether a draw can do without candidates: from any whole row, and from 16-bit rows cut by p or min-p. */
static bool may_draw(const struct row *r, size_t k)
{
    const struct syi_sample_plan *p = r->plan;
    const bool whole = r->top_p >= 1.0f && r->min_p == 0.0f;
    return k == 0 && p->noise == SY_NOISE_CDF && token_only(p) &&
           (whole || (p->type != SYI_F32 && r->min_p < 1.0f));
}

/*
 * Tries to do without the keys of the whole row: with the head alone for top-k, greedy and most top-p rows,
 * by weights alone for other CDF draws. Not on rows with an infinity or NaN on top.
 */
static enum head read_head(struct row *r)
{
    const struct syi_sample_plan *p = r->plan;
    const size_t k = r->one || !wants_candidates(r) ? 1 : (size_t)r->k;
    const bool guess = k == 0 && r->top_p < 1.0f;
    const bool draws = may_draw(r, k);
    if (!may_scan(p) || (k == 0 && !guess && !draws))
        return HEAD_NONE;
    r->scan = (struct syi_scan){syi_row(p->logits, r->b), p->type, p->vocab, r->scratch->block_max, 0};
    if (!r->scanned)
        syi_scan_part(r->kernels, &r->scan, 0, syi_scan_blocks(p->vocab));
    if (!syi_scan_top(&r->scan))
        return HEAD_NONE;
    if (k > 0)
        return collect_head(r, k) ? HEAD_READ : HEAD_NONE;
    if (guess && find_head(r))
        return HEAD_READ;
    if (!draws || !collect_head(r, 1))
        return HEAD_NONE;
    r->token = draw_from_row(r);
    return HEAD_DRAWN;
}

static void sample_row(struct row *r)
{
    const struct syi_sample_plan *p = r->plan;
    read_temperature(r);
    read_filters(r);
    const enum head head = read_head(r);
    if (head == HEAD_NONE)
        read_row(r);
    if (head != HEAD_DRAWN) {
        if (wants_candidates(r))
            filter(r);
        if (may_sort(p))
            make_list(r);
        r->token = choose(r);
    }
    if (p->token != NULL)
        syi_store_i64(p->token, r->b, r->token);
    if (p->row_flags != NULL)
        syi_store_i32(p->row_flags, r->b, (int32_t)r->stats.flags);
    if (p->kept != NULL)
        syi_store_i32(p->kept, r->b, count_kept(r));
    if (p->list_token.data != NULL || p->list_prob.data != NULL)
        write_list(r);
    if (p->masked.data != NULL)
        write_masked(r);
    if (p->logprob != NULL) { /* last: RAW puts all candidates back */
        const float lp = log_probability(r);
        memcpy(p->logprob + r->b * 4, &lp, sizeof lp);
    }
}

static void sample_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_sample_plan *p = job->plan;
    const int64_t end = syi_part(p->batch, job->n_tasks, task + 1);
    for (int64_t b = syi_part(p->batch, job->n_tasks, task); b < end; b++) {
        struct row r = {.plan = p,
                        .kernels = job->kernels,
                        .scratch = &job->scratch[task],
                        .b = b,
                        .end = end,
                        .scanned = job->n_slices > 1};
        sample_row(&r);
    }
}

/* ---- Fewer rows than threads: several threads read a row, then one finishes it ----------------------- */

static void scan_slice(void *data, int task)
{
    const struct job *job = data;
    const struct syi_sample_plan *p = job->plan;
    const int row = task / job->n_slices, slice = task % job->n_slices;
    const struct syi_scan scan = {syi_row(p->logits, row), p->type, p->vocab, job->scratch[row].block_max, 0};
    const int64_t n_blocks = (int64_t)syi_scan_blocks(p->vocab);
    syi_scan_part(job->kernels, &scan, (size_t)syi_part(n_blocks, job->n_slices, slice),
                  (size_t)syi_part(n_blocks, job->n_slices, slice + 1));
}

/* Slices per row when every row is a task of its own and threads are left over; else 1. */
static int count_slices(const sy_ctx *ctx, const struct job *job)
{
    const struct syi_sample_plan *p = job->plan;
    if (!may_scan(p) || job->n_tasks != p->batch)
        return 1;
    const int spare = ctx->threads / job->n_tasks;
    const int worth =
        syi_tasks(ctx, (int64_t)syi_scan_blocks(p->vocab), (uint64_t)p->vocab * syi_float_bytes(p->type));
    return spare < worth ? spare : worth;
}

sy_status syi_cpu_sample(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_sample_plan *p = &plan->sample;
    struct job job = {.plan = p, .kernels = ctx->kernels, .n_tasks = count_tasks(ctx, p)};
    struct syi_arena arena = {workspace, 0};

    if (p->batch == 0)
        return SY_OK;
    job.scratch = syi_take(&arena, (size_t)job.n_tasks * sizeof *job.scratch);
    for (int i = 0; i < job.n_tasks; i++)
        job.scratch[i] = take_scratch(&arena, p);
    job.n_slices = count_slices(ctx, &job);
    if (job.n_slices > 1)
        syi_parallel(ctx, job.n_tasks * job.n_slices, scan_slice, &job);
    syi_parallel(ctx, job.n_tasks, sample_rows, &job);
    return SY_OK;
}
