/*
 * The sampler on the CPU. All filters (top-k, top-p, min-p) keep prefixes of one total order of the tokens of a row, the larger logit first,
 * then the lower index; so the state of a row is its remaining candidates (struct syi_row_state). A row goes through these stages:
 *
 *     logits [V] --> overrides, temperature, filters     the parameters of the row; overridden tokens are left out of `logits`
 *        |
 *        v           block maxima (SYI_BLOCK elements)   |--64--|--64--|--64--| ...          scan.max
 *     syi_row_head     maxima of groups of blocks        |------ group -------|              scan.group, scan.top
 *        |               a threshold that enough maxima reach -> only blocks that reach it are read
 *        |--> FULL_ROW: not enough is known, every key of the row is computed (read_row)
 *        |--> TOKEN: it was drawn from weights of strips (SYI_PIECE elements), without a list
 *        v
 *     candidates c (index order) --> cut by the filters --> list (list order) --> choose a token --> write lists, log-probabilities
 *
 * Invariants
 * - A key is the logit as a u32 that orders like it; an order is 16 bits wide (block_max in kernels.h): enough to leave blocks
 *   out, not to compare tokens. -inf and NaN are never candidates of a scan.
 * - Weights are integers, 2^40 times the exponential of the scaled logit; all sums are sums of integers, so neither their order nor the
 *   number of threads matters. Sums of floats (`mass`) only bound them: a decision that the bounds do not make is made exactly.
 * - Candidates may be more than the filters keep, never fewer.
 *
 * Terms: head: the first tokens of the order, perhaps with others; threshold: the least 16-bit order that is collected; nucleus: what
 * top-p keeps; piece: SYI_PIECE elements, with excluded ones as -inf; strip: a piece as a unit of weights; cut: the key at which a prefix ends, and how much of the tokens equal to it is inside; given: the caller names the token.
 *
 * Files, from the lower layer up: sample_allow.c rows with excluded tokens, sample_scan.c maxima, sample_weigh.c sums of weights,
 * sample_select.c cuts, sample_stages.c other stages and orders of them, sample_nucleus.c and sample_min_p.c draws from many tokens; then the stages: sample_edit.c, sample_head.c, sample_cut.c,
 * sample_choose.c, sample_write.c, sample_logprob.c, run by sample.c.
 */
#pragma once

#include "plan/plan.h"
#include "kernels/kernels.h"

/*
 * The remaining candidates, in index order. idx is NULL while every token is one: position i is then token i.
 */
struct syi_candidates {
    uint32_t *key;
    int32_t *idx;
    int64_t n;
};

/* ---- sample_allow.c ---- */

enum { SYI_PIECE = 1024 }; /* most elements of a piece */

/* A row of logits, of which some may be excluded. */
struct syi_logits {
    const unsigned char *x;
    sy_type type;
    int64_t n;
    const unsigned char *allow; /* bit i % 8 of byte i / 8: element i is included, else -inf; NULL: all */
    const int32_t *out;         /* ascending: these few are excluded too */
    int64_t n_out;
};

/* Whether the bits include an element; `out` is not considered. */
static inline bool syi_allowed(const struct syi_logits *row, int64_t i)
{
    return row->allow == NULL || (row->allow[i / 8] >> i % 8 & 1) != 0;
}

static inline bool syi_counts_whole(const struct syi_logits *row)
{
    return row->allow == NULL && row->n_out == 0;
}

/* The general case of the two functions below. */
bool syi_some_allowed(const struct syi_logits *row, size_t first, size_t n);
const unsigned char *syi_mask_piece(const struct syi_logits *row, size_t first, size_t n,
                                    unsigned char *buffer);

/* Whether the bits include any of the elements [first, first + n); first is a multiple of 8. */
static inline bool syi_any_allowed(const struct syi_logits *row, size_t first, size_t n)
{
    return row->allow == NULL || syi_some_allowed(row, first, n);
}

/* The elements [first, first + n) with -inf for excluded ones: in place, or in the buffer, which has space for
   them. first is a multiple of 8. */
static inline const unsigned char *syi_piece(const struct syi_logits *row, size_t first, size_t n,
                                             unsigned char *buffer)
{
    return syi_counts_whole(row) ? row->x + first * syi_float_bytes(row->type)
                                 : syi_mask_piece(row, first, n, buffer);
}

/* Which of the SYI_BLOCK elements from `first` on, a multiple of that, are in `out`, and which the bits include; the
   first in the lowest bit. */
uint64_t syi_out_bits(const struct syi_logits *row, size_t first);
uint64_t syi_allow_bits(const struct syi_logits *row, size_t first);

/* A function with a buffer of kilobytes is not inlined: several buffers in one frame would add up, and the stack may be
   small. */
#define SYI_HAS_BUFFER __attribute__((noinline))

/* Elements per iteration of a loop over pieces: a row without exclusions is one piece. */
static inline size_t syi_piece_length(const struct syi_logits *row)
{
    return syi_counts_whole(row) ? (size_t)row->n : SYI_PIECE;
}

/* ---- sample_scan.c ---- */

/* A row, the maxima of its blocks, and the maxima of groups of blocks. */
struct syi_scan {
    struct syi_logits row;
    uint16_t *max;   /* [syi_scan_blocks(n)] */
    uint16_t *group; /* [syi_scan_groups(n)] */
    /* [syi_weigh_strips(n)] of every SYI_PIECE elements the bits of the lowest value, which are the largest bit pattern; perhaps of
       excluded or other elements. From that of -inf on there may be a -inf or a negative NaN. NULL: not needed */
    uint16_t *low;
    uint16_t top; /* largest of them */
};

/* Order of minus infinity (see block_max in kernels.h): every order above it and below that of plus infinity
   is a finite value. */
static inline uint16_t syi_order_minus_inf(sy_type type)
{
    return type == SY_TYPE_F16 ? 0x03ffu : 0x007fu;
}

size_t syi_scan_blocks(int64_t vocab);
size_t syi_scan_groups(int64_t vocab);

/* Maxima of the blocks [first, end), of the elements that the bits include. */
void syi_scan_part(const struct syi_kernels *kernels, const struct syi_scan *s, size_t first, size_t end);

/* The same for the blocks of n elements from a multiple of SYI_BLOCK on, with `low` of SYI_PIECE; x NULL: none. */
void syi_scan_piece(const struct syi_kernels *kernels, const struct syi_scan *s, size_t first,
                    const unsigned char *x, size_t n);

/* Corrects the maxima for the elements of `out`. */
void syi_scan_leave_out(const struct syi_kernels *kernels, const struct syi_scan *s);

/* Maxima of the groups, and the top; false when it is an infinity or a NaN, which need the full row. */
bool syi_scan_top(struct syi_scan *s);

/* With `low`, and a top that is a number: whether there is a NaN, and how many logits are above -inf. */
bool syi_scan_has_nan(const struct syi_scan *s);
int64_t syi_scan_count(const struct syi_scan *s);

/* The order of one logit, excluded or not. */
uint16_t syi_scan_order(const struct syi_logits *row, int64_t i);

/* The least key a logit of this order can have; the only one if it is a 16-bit one. */
uint32_t syi_scan_key(uint16_t order, sy_type type);

/* A 16-bit order that at least k tokens reach, as large as is cheap to find; 1 <= k <= syi_scan_blocks(). */
uint16_t syi_scan_threshold(const struct syi_kernels *kernels, const struct syi_scan *s, size_t k);

/* The same for 1 <= k <= n; `order` is scratch for as many as there are tokens. */
uint16_t syi_scan_threshold_each(const struct syi_kernels *kernels, const struct syi_scan *s, size_t k,
                                 uint16_t *order);

/* The weight of the maxima that reach a threshold: a lower bound for that of all tokens that do. */
uint64_t syi_scan_weigh_maxima(const struct syi_kernels *kernels, const struct syi_scan *s,
                               uint16_t threshold, float m, float inv_t);

/* Whether more than three quarters of the blocks, and some more, reach a threshold: collecting their tokens does not pay. */
bool syi_scan_crowded(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t threshold,
                      size_t more);

/* The same by a sample: whether blocks that reach the threshold have many tokens that do. */
bool syi_scan_dense(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t threshold);

/* The first token of the order into c->key[0] and c->idx[0]. */
void syi_scan_first(const struct syi_kernels *kernels, const struct syi_scan *s, struct syi_candidates *c);

/* hist has SYI_SELECT_BINS entries. */
struct syi_limit {
    size_t n;   /* first tokens of the order that are needed; 0: all */
    bool exact; /* and no others; n is not 0 */
    uint64_t *hist;
};

/* Collects the tokens that reach a threshold into c->key and c->idx, which has space for SYI_PUSHED more. With limit->n > 0 tokens
   after the first limit->n of the order may be left out, with `exact` all of them are. False when that would include -inf and NaN. */
enum { SYI_PUSHED = 2 };
bool syi_scan_collect(const struct syi_kernels *kernels, const struct syi_scan *s, uint16_t threshold,
                      const struct syi_limit *limit, struct syi_candidates *c);

/* How many tokens of the row come before one, which need not be in the row, with this key. */
int64_t syi_scan_before(const struct syi_kernels *kernels, const struct syi_scan *s, uint32_t key,
                        int64_t token);

/* ---- sample_weigh.c ---- */

enum {
    SYI_WEIGH_AT_ONCE = 256,
    SYI_PATTERNS = 65536 /* bit patterns of a 16-bit value */
};

/* Scratch for weighing: strip has syi_weigh_strips() entries; the others, for 16-bit rows only, one for each
   bit pattern, and count two. */
struct syi_pattern_table {
    uint64_t *strip;
    uint64_t *weight;
    uint32_t *count;
    uint16_t *pattern;
    float *e;
};

/* exp(z / temperature) of every 16-bit value z: computed by the first row that needs it and kept for the next ones
   with the same temperature. */
struct syi_exp_table {
    float *e;    /* [SYI_PATTERNS] */
    float inv_t; /* 1 / temperature; 0: not made yet */
    bool flat;   /* the last row had a large nucleus: the next is not summed in advance */
};

/* A row whose weights are summed. */
struct syi_weigher {
    const struct syi_kernels *kernels;
    const struct syi_scan *scan;
    float m, inv_t;            /* the largest logit, and 1 / temperature */
    const unsigned char *next; /* the next row, to prefetch; may be NULL */
    int64_t n_rows;            /* this one and the following ones */
    struct syi_pattern_table table;
    struct syi_exp_table *exp_table;
    struct syi_candidates extra; /* additional tokens, which are excluded from the row; none above m */
    const struct syi_sample_scratch *scratch;
};

/* A weight sum: low <= sum <= high. */
struct syi_mass {
    uint64_t low, high;
};

/* The parameters of a draw. */
struct syi_draw {
    float top_p, min_p; /* 1 and 0: off */
    bool all_ties;
    bool exact; /* mass and number of the kept tokens are needed, too */
    uint64_t uniform;
};

size_t syi_weigh_strips(int64_t vocab);

/* The weight of the whole row, and of each strip. */
uint64_t syi_weigh(const struct syi_weigher *w);

/* The same, approximately: to a few millionths. */
struct syi_mass syi_weigh_about(const struct syi_weigher *w);

/* The weight of the additional tokens with at least this key. The sums above include all of them. */
uint64_t syi_weigh_extra(const struct syi_weigher *w, uint32_t least);

/* Adds the weights of the additional tokens to the strips; returns their sum. */
uint64_t syi_weigh_extra_strips(const struct syi_weigher *w);

/* Summing weights is slower than memory, so the next row is prefetched meanwhile: n elements from `first`. */
void syi_weigh_fetch_next(const struct syi_weigher *w, size_t first, size_t n);

/* Whether the weights of such rows come from a table of exponentials. If so, syi_weigh_scan computes the block maxima
   and the sum in one pass, before the maximum is known, and syi_weigh_scanned then returns the mass. */
bool syi_weigh_by_table(const struct syi_weigher *w);
double syi_weigh_scan(const struct syi_weigher *w);
struct syi_mass syi_weigh_scanned(const struct syi_weigher *w, double sum);

/* The result of a draw. */
struct syi_drawn {
    int64_t token;
    uint64_t weight; /* of all that was kept; 0: not known */
    int64_t kept;    /* tokens; 0: not known */
};

/* The token a CDF draw picks from what top-p and min-p keep of a 16-bit row: by counting equal logits, so that
   nothing is sorted or collected for any number of tokens. */
struct syi_drawn syi_weigh_draw(const struct syi_weigher *w, const struct syi_draw *d);

/* ---- sample_select.c ---- */

enum { SYI_SELECT_BINS = 2048 };

/* A cut through the total order: everything above the key is kept, and of the tokens equal to it the first,
   until their measure reaches `rest`. */
struct syi_cut {
    uint32_t key;
    uint64_t rest; /* measure that the tokens equal to the key must contribute, >= 1 */
};

/*
 * The largest key at which the measure of all keys >= it reaches `target` >= 1. The measure of a candidate is
 * its weight, or 1 when e is NULL. False when all together do not reach the target. hist has SYI_SELECT_BINS
 * entries.
 */
bool syi_select(const struct syi_candidates *c, const float *e, uint64_t target, uint64_t *hist,
                struct syi_cut *cut);

/* Keeps what a cut keeps, in `key` and `idx`, which may be those of c. */
void syi_keep(struct syi_candidates *c, uint32_t cut_key, int64_t ties, uint32_t *key, int32_t *idx);

/* place[r] is the r-th of at most SYI_FEW candidates in the order. */
enum { SYI_FEW = 256 };
void syi_rank_few(const struct syi_candidates *c, uint32_t *place);

/* The candidates by key descending, index ascending, in a pair of the four arrays of n entries given. */
struct syi_candidates syi_rank_order(const struct syi_candidates *c, uint32_t *const key[2],
                                     int32_t *const idx[2], uint64_t *hist);

/* ---- sample_nucleus.c ---- */

/* The token a CDF draw picks from the whole row, with its weight on request. */
struct syi_drawn syi_nucleus_draw_whole(const struct syi_weigher *w, uint64_t uniform, bool weight);

/* The same from the tokens that top-p keeps. */
struct syi_drawn syi_nucleus_draw(const struct syi_weigher *w, const struct syi_draw *d);

/* The tokens that top-p keeps, and perhaps others with the weight of the last of them, in the scratch; returns the mass
   of the row. */
struct syi_mass syi_nucleus_collect(const struct syi_weigher *w, float top_p, struct syi_candidates *c);

/* ---- One row (sample_cut.c, sample_head.c, sample_choose.c, sample_write.c, sample_logprob.c) ---- */

/* Scratch of one task; every array has `vocab` entries unless stated. */
struct syi_sample_scratch {
    uint32_t *key;      /* of all tokens */
    uint32_t *cand_key; /* of the candidates, once they are not all tokens */
    int32_t *cand_idx;  /* [vocab + SYI_PUSHED] */
    float *e;
    uint32_t *sort_key[2]; /* only when the plan can need rank order */
    int32_t *sort_idx[2];
    uint32_t *top_key;              /* only with top_token */
    int32_t *top_idx;               /* [vocab + SYI_PUSHED] */
    uint64_t *hist;                 /* [SYI_SELECT_BINS] */
    uint16_t *block_max;            /* [syi_scan_blocks(vocab)] */
    uint16_t *group_max;            /* [syi_scan_groups(vocab)] */
    uint16_t *low;                  /* [syi_weigh_strips(vocab)] */
    struct syi_pattern_table table; /* only when weights of whole rows may be needed */
    float *exp;                     /* [SYI_PATTERNS], only when 16-bit rows may be */
    uint32_t *code;                 /* [2 * vocab], only with typical_p */
    int32_t *out;                   /* only with overrides, [the smaller of vocab and all of them], */
    uint32_t *extra_key;            /* and so the next two */
    int32_t *extra_idx;
};

/* State of one row. */
struct syi_row_state {
    const struct syi_sample_plan *plan;
    const struct syi_kernels *kernels;
    const struct syi_sample_scratch *scratch;
    struct syi_exp_table *exp_table; /* of the task */
    int64_t b, end;                  /* the row, and the end of the task's rows */
    struct syi_logits logits;
    struct syi_candidates extra; /* overridden tokens above -inf; all are excluded from `logits` */
    struct syi_key_stats extra_stats;
    struct syi_key_stats stats;
    bool empty;
    bool cold;     /* temperature so low that the first of the order is certain */
    bool greedy;   /* cold, no noise, or a given token: nothing is drawn */
    int64_t given; /* the token that the caller gives; -1: none */
    int64_t first; /* what is picked where none is given */
    bool scanned;  /* block maxima are computed */
    bool staged;   /* it has stages beside the usual ones, which need its candidates */
    bool ranked;   /* top-k or top-p acted: the list is in rank order, else in index order */
    float max, inv_t;
    int64_t k;                  /* top-k of this row, 0: off */
    bool one;                   /* top-p is 0 or less: keep one token, unless the row is empty */
    float top_p, min_p;         /* 1 and 0: off */
    struct syi_candidates c;    /* in index order */
    struct syi_candidates list; /* in list order; filled by syi_row_list */
    struct syi_scan scan;       /* the row and its block maxima; set by syi_row_head */
    struct syi_mass mass;       /* of the tokens that top-k kept; high is 0 until it is computed */
    int64_t token;
    uint64_t
        final_weight; /* of the candidates and how many they are, where r->c does not hold them; else 0 */
    int64_t final_count;
};

/* Lays out the scratch of one task; on an arena without memory it only measures. */
struct syi_sample_scratch syi_sample_scratch_of(struct syi_arena *arena, const struct syi_sample_plan *p);

/* Picks the token of a row that is new but for plan, kernels, scratch, exp_table, b, end, logits and scanned; writes its
   outputs. */
void syi_sample_row(struct syi_row_state *r);

static inline int64_t syi_token_at(const struct syi_candidates *c, int64_t i)
{
    return c->idx != NULL ? c->idx[i] : i;
}

static inline float syi_positive(float value)
{
    return value > 0.0f ? value : 0.0f;
}

/* ---- Stages in another order, and more of them (sample_stages.c) ---- */

/* Makes the candidates of a row whose stages are not top-k, top-p and min-p in this order; false: they are. */
bool syi_row_stages(struct syi_row_state *r);

/* ---- Lists of tokens (sample_lists.c) ---- */

struct syi_list_limits {
    int64_t batch, vocab;
    bool ascending; /* the tokens of a row, and none twice */
    bool filled;    /* no list is empty */
};

/* Rejects lists that leave their range or do not ascend; `found` is scratch, one for each task. Lists without indptr are
   one list. */
sy_status syi_check_lists(sy_ctx *ctx, const struct syi_token_lists *l, const struct syi_list_limits *limits,
                          int n_tasks, struct syi_found *found);

/* The lists of a row: elements [first, end), none if there are no lists. */
struct syi_span {
    int64_t first, end;
};
struct syi_span syi_list_span(const struct syi_token_lists *l, int64_t b);

static inline int64_t syi_list_token(const struct syi_token_lists *l, int64_t j)
{
    int64_t wide;
    int32_t narrow;
    if (l->token_type == SY_TYPE_I64) {
        memcpy(&wide, l->token + j * 8, sizeof wide);
        return wide;
    }
    memcpy(&narrow, l->token + j * 4, sizeof narrow);
    return narrow;
}

static inline float syi_list_value(const struct syi_token_lists *l, int64_t j)
{
    float value;
    memcpy(&value, l->value + j * 4, sizeof value);
    return value;
}

/* The first element of an ascending span whose token is at least this one. */
int64_t syi_list_find(const struct syi_token_lists *l, struct syi_span span, int64_t token);

/* ---- Overrides (sample_edit.c) ---- */

/* Takes the overridden tokens out of r->logits and puts those that can be picked into r->extra. */
void syi_row_overrides(struct syi_row_state *r);

/* Puts the overrides of at least this key in the place of their tokens among candidates in index order. */
void syi_row_replace(const struct syi_row_state *r, struct syi_candidates *c, uint32_t least);

/* ---- Stages ---- */

/* The input logits of a row, and which of them the bits include. */
struct syi_logits syi_row_logits(const struct syi_sample_plan *p, int64_t b);

/* Keys of a whole row into the scratch; adds to the statistics. */
void syi_row_keys(const struct syi_row_state *r, const struct syi_logits *row, struct syi_key_stats *stats);

/* The row in full: every key. */
void syi_row_read(struct syi_row_state *r);

/* The parameters of the row. */
void syi_row_read_temperature(struct syi_row_state *r);
void syi_row_read_filters(struct syi_row_state *r);

/* e of candidates: the exponential of the scaled logit, or the probability itself. */
void syi_row_exp(const struct syi_row_state *r, const struct syi_candidates *c, float *e);
uint64_t syi_weight_sum(const float *e, int64_t n);

/* The weight of the whole row into r->mass, exactly or about. */
struct syi_weigher syi_row_weigher(const struct syi_row_state *r);
void syi_row_weigh(struct syi_row_state *r);
void syi_row_weigh_about(struct syi_row_state *r);

/* Top-k, top-p and min-p, in that order. */
void syi_row_cut(struct syi_row_state *r);

/* The candidates in list order into r->list. */
void syi_row_list(struct syi_row_state *r);

int64_t syi_row_choose(struct syi_row_state *r);

/* The numbers that the draws of a row are made from. */
struct syi_noise syi_row_noise(const struct syi_row_state *r);

/* The uniform number of a CDF draw, in units of 2^-64. */
uint64_t syi_row_uniform(const struct syi_row_state *r);

/* A draw from the whole row, without a list of candidates: the token, final_weight and final_count. */
void syi_row_draw(struct syi_row_state *r);

/* The same from what min-p, between 0 and 1, keeps: of the candidates, or without them (sample_min_p.c) of a row
   without exclusions, where they reach the order `threshold`. */
void syi_row_draw_min_p(struct syi_row_state *r);
void syi_row_walk(struct syi_row_state *r, uint16_t threshold);

enum syi_head {
    SYI_HEAD_FULL_ROW,   /* the keys of all tokens are needed */
    SYI_HEAD_STAGED,     /* r->c holds the candidates, whose stages are done */
    SYI_HEAD_CANDIDATES, /* r->c holds all candidates and perhaps more */
    SYI_HEAD_TOKEN       /* r->token is the result */
};

/* Tries to do without the keys of the whole row. */
enum syi_head syi_row_head(struct syi_row_state *r);

/* Whether the head may be enough for any row. */
bool syi_may_scan(const struct syi_sample_plan *p);

/* Whether the weights of all tokens are best computed without keys: the table for 16-bit logits must be worth it. */
static inline bool syi_row_weighs_well(const struct syi_row_state *r)
{
    enum { ENOUGH = 16384 };
    return r->logits.type == SY_TYPE_F32 || r->logits.n >= ENOUGH;
}

/* The maximum of the row by its block maxima, which are made if r->scanned is false; false when it is no number. */
bool syi_row_max(struct syi_row_state *r);

/* The first n tokens of the order above -inf, perhaps with others, of a row with block maxima that are a number; c has
   space for all tokens and SYI_PUSHED more. */
void syi_row_first(const struct syi_row_state *r, size_t n, struct syi_candidates *c);

/* Whether more than the first token of the order is needed. */
bool syi_row_wants_candidates(const struct syi_row_state *r);

/* Outputs. Log-probabilities are computed after everything that reads keys, which they may overwrite; the masked logits
   last, because they may overwrite the row. */
int32_t syi_row_count(const struct syi_row_state *r);
void syi_row_write_list(const struct syi_row_state *r);
void syi_row_write_logprobs(const struct syi_row_state *r);
void syi_row_write_masked(const struct syi_row_state *r);
