/*
 * moe_unpermute_ids: the weighted sum of each token's rows, with a bias, a residual and a shared row.
 */
#include "case.h"

#include "oracle/sum.h"

enum { MOST_SLOTS = 16 };

/* Below `limit` or -1, and wrong ones. */
static void fill_places(struct call *c, struct operand *x, int64_t limit, bool wrong)
{
    struct stream *const s = case_stream(c, x->field->name);
    const int64_t bad[] = {limit, -2, INT32_MIN, INT32_MAX};
    const int64_t first = wrong ? stream_below(s, case_count(x)) : INT64_MAX;
    for (int64_t i = 0; i < case_count(x); i++)
        case_put(x, i,
                 i >= first && (i - first) % 7 == 0 ? bad[stream_below(s, 4)]
                                                    : stream_below(s, limit + 1) - 1);
}

static void make(struct call *c)
{
    sy_moe_unpermute_ids_args *const a = case_args(c);
    const bool alone = case_chance(c, "alone", 8);
    const int64_t tokens = case_size(c, "T", 0, 20, 60),
                  slots = alone ? 1 : case_size(c, "K", 0, 10, MOST_SLOTS);
    const int64_t total = tokens * slots;
    case_extent(c, "K", slots);
    case_size(c, "M", 0, total + 2, total + 2);
    case_size(c, "H", 0, 40, 530);
    case_size(c, "B", 1, 5, 9);
    a->row_begin = case_flag(c, "begin") ? case_pick(c, "first", total + 1) : 0;
    a->num_rows = case_chance(c, "num_rows", 3) ? total + 1 + case_pick(c, "more", 9) : 0;
    a->by_choice = case_flag(c, "by_choice");
    fill_places(c, case_in(c, "sorted_indices"), a->num_rows > 0 ? a->num_rows : total,
                case_chance(c, "wrong_indices", 12));
    case_fill_floats(c, case_in(c, "permuted_tokens"));
    const bool weighted = !alone && case_pick(c, "weights", 3) > 0;
    if (weighted)
        case_fill_floats(c, case_in(c, "probs"));
    a->num_tokens = alone || (weighted && case_flag(c, "unsaid")) ? 0 : tokens;
    if (case_chance(c, "bias", 3)) {
        case_fill_floats(c, case_in(c, "bias"));
        fill_places(c, case_in(c, "bias_ids"), case_get_extent(c, "B"), case_chance(c, "wrong_biases", 6));
    }
    if (case_chance(c, "residual", 3))
        case_fill_floats(c, case_in(c, "residual"));
    if (case_chance(c, "shared", 3))
        case_fill_floats(c, case_in(c, "shared"));
}

/* Indices come before biases. */
static bool find_wrong(struct call *c, const int64_t *indices, const int64_t *biases, int64_t total,
                       int64_t limit)
{
    const int64_t slots = case_get_extent(c, "K"), n = case_get_extent(c, "B");
    for (int64_t i = 0; i < total; i++)
        if (indices[i] < -1 || indices[i] >= limit) {
            c->want =
                (sy_fault){SY_ERR_ROUTING, SY_FAULT_SLOT_RANGE, "sorted_indices", -1, i, indices[i], limit};
            return true;
        }
    for (int64_t i = 0; biases != NULL && i < total; i++)
        if (biases[i] < -1 || biases[i] >= n) {
            c->want = (sy_fault){
                SY_ERR_ROUTING, SY_FAULT_INDEX_RANGE, "bias_ids", i / slots, i % slots, biases[i], n};
            return true;
        }
    return false;
}

struct sums {
    const struct operand *rows, *probs, *bias, *added[2];
    const int64_t *indices, *biases;
    int64_t tokens, slots, hidden, begin;
    bool by_choice;
};

/* The value of slot j of a token: false where it adds nothing. */
static bool value_of(struct call *c, const struct sums *s, int64_t t, int64_t j, int64_t h, float *value)
{
    const int64_t row = s->indices[s->by_choice ? j * s->tokens + t : t * s->slots + j], at = row - s->begin;
    const int64_t id = s->biases != NULL ? s->biases[t * s->slots + j] : -1;
    const bool there = row >= 0 && at >= 0 && at < s->rows->shape[0];
    const double x = there ? case_real(s->rows, at * s->hidden + h) : 0;
    *value = id < 0 ? (float)x : (float)(x + case_real(s->bias, id * s->hidden + h));
    case_note(c, "missing", row == -1);
    case_note(c, "outside", row >= 0 && !there);
    case_note(c, "bias alone", row == -1 && id >= 0);
    case_note(c, "no bias", s->biases != NULL && id < 0 && there);
    return there || (row == -1 && id >= 0);
}

static float sum_of(struct call *c, const struct sums *s, int64_t t, int64_t h)
{
    float weights[MOST_SLOTS + 2], values[MOST_SLOTS + 3], sum = 0;
    int64_t n = 0;
    for (int a = 0; a < 2; a++)
        if (s->added[a]->given) {
            weights[n] = 1;
            values[n++] = (float)case_real(s->added[a], t * s->hidden + h);
        }
    for (int64_t j = 0; j < s->slots; j++)
        if (value_of(c, s, t, j, h, &values[n])) {
            weights[n] = s->probs->given ? (float)case_real(s->probs, t * s->slots + j) : 1;
            case_note(c, "zero weight", weights[n++] == 0);
        }
    case_note(c, "nothing", n == 0);
    for (int64_t j = 0; j < n; j++)
        if (weights[j] != 0) /* else it adds nothing, not even 0 times infinity */
            sum = oracle_plus_product(sum, (double)weights[j], (double)values[j]);
    return sum;
}

static void oracle(struct call *c)
{
    const sy_moe_unpermute_ids_args *const a = case_args(c);
    const struct operand *const out = case_field(c, "tokens");
    const struct sums s = {.rows = case_field(c, "permuted_tokens"),
                           .probs = case_field(c, "probs"),
                           .bias = case_field(c, "bias"),
                           .added = {case_field(c, "residual"), case_field(c, "shared")},
                           .indices = case_wide(c, "sorted_indices"),
                           .biases = case_wide(c, "bias_ids"),
                           .tokens = case_get_extent(c, "T"),
                           .slots = case_get_extent(c, "K"),
                           .hidden = case_get_extent(c, "H"),
                           .begin = a->row_begin,
                           .by_choice = a->by_choice};
    const int64_t total = s.tokens * s.slots;
    c->query.rows = s.tokens;
    const bool wrong = find_wrong(c, s.indices, s.biases, total, a->num_rows > 0 ? a->num_rows : total);
    case_note(c, "wrong", wrong);
    for (int64_t i = 0; !wrong && i < case_count(out); i++)
        case_put_real(out, out->want, i, (double)sum_of(c, &s, i / s.hidden, i % s.hidden));
}

static const struct rejection rejections[] = {
    {"sorted_indices.shape=[5368709120]", SY_ERR_VALUE, "5368709120 slots", "2147483647"},
    {"bias_ids=-", SY_ERR_NULL, "want both or none", .line = "T=5 K=2 M=6 H=3 bias"},
    {"bias=-", SY_ERR_NULL, "want both or none", .line = "T=5 K=2 M=6 H=3 bias"},
    {"num_tokens=4", SY_ERR_SHAPE, "10 slots", "4 tokens", .blame = "sorted_indices"},
    {"num_tokens=10", SY_ERR_VALUE, "is 10", "5, the rows of probs", .line = "T=5 K=2 M=6 H=3 weights=1"},
    {.change = NULL},
};

const struct op_case case_moe_unpermute_ids = {
    .name = "moe_unpermute_ids",
    .make = make,
    .oracle = oracle,
    .hard = {"missing", "outside", "bias alone", "no bias", "zero weight", "nothing", "wrong"},
    .small = "T=5 K=2 M=6 H=3",
    .shapes = {"T=40 K=2 M=70 H=520 weights=1", "T=40 K=4 M=70 H=520 f16",
               "T=40 K=6 M=70 H=520 bf16 weights=1",
               "T=40 K=8 M=70 H=520 f32 weights=1 bias residual shared"},
    .lines = {"T=1201 K=6 M=6000 H=65 bf16 weights=1", "T=1201 K=6 M=6000 H=65 bf16 bias shared",
              "T=20001 K=6 M=9 H=1 wrong_indices"},
    .rejections = rejections,
    .calls = 240,
};
