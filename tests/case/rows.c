/*
 * Indices as moe_permute makes them, or by hand with repeats and holes, or wrong.
 */
#include "rows.h"

#include "oracle/moe_permute.h"

enum style { PERMUTED, BY_HAND, BROKEN, ONE_TOKEN, STYLES };

static bool flag(struct call *c, const char *field)
{
    return *((const bool *)&c->args + case_scalar(c, field)->offset);
}

const sy_row_format *rows_format(struct call *c, int64_t odds)
{
    const bool coded = c->in->kind == READ_TEXT || case_chance(c, "coded", odds);
    const sy_row_format *const f = coded ? case_format(c, "row_format") : NULL;
    if (f != NULL)
        case_groups(c, f);
    return f;
}

void rows_codes(struct call *c, const sy_row_format *f, const unsigned char **codes,
                const unsigned char **scales)
{
    const struct operand *const x = case_field(c, "tokens");
    const int64_t hidden = x->shape[1];
    const size_t row = (size_t)case_get_extent(c, "G") * f->scale_type.bits / 8;
    unsigned char *const to = case_memory(c, (size_t)case_count(x)), *const scale = case_memory(
                                                                         c, (size_t)x->shape[0] * row);
    float *const numbers = case_memory(c, (size_t)case_count(x) * sizeof *numbers);
    for (int64_t i = 0; i < case_count(x); i++)
        numbers[i] = (float)case_real(x, i);
    for (int64_t t = 0; t < x->shape[0]; t++)
        case_quantize(f, numbers + t * hidden, hidden, to + t * hidden, scale + (size_t)t * row);
    *codes = to;
    *scales = scale;
}

/* Long rows where there are few of them. */
static void choose_hidden(struct call *c, int64_t rows)
{
    static const int64_t wide[] = {256, 520, 1032, 2048, 3080, 5136, 9216};
    enum { MOST = 100000 };
    int64_t i = case_pick(c, "wide", 12), n = rows + case_get_extent(c, "T");
    while (i < 7 && i > 0 && n * wide[i] > MOST)
        i--;
    if (i < 7 && c->in->kind != READ_TEXT && n * wide[i] <= MOST)
        case_extent(c, "H", wide[i]);
    else
        case_size(c, "H", 0, n * 90 > MOST ? 9 : 90, n * 90 > MOST ? 9 : 90);
}

static void permuted(struct call *c, struct operand *indices, const struct operand *map)
{
    struct permute_truth truth;
    oracle_moe_permute(&(struct permute_case){.tokens = map->shape[0],
                                              .experts = map->shape[1],
                                              .out_tokens = indices->shape[0],
                                              .capacity = flag(c, "drop_and_pad"),
                                              .zero_pad = flag(c, "zero_pad"),
                                              .token_bytes = 1,
                                              .map = map->dense},
                       &truth);
    if (truth.bad_token >= 0 || truth.rows != indices->shape[0])
        case_fail(c, NULL, "indices of another number of rows");
    memcpy(indices->dense, truth.indices, indices->bytes);
    oracle_moe_permute_free(&truth);
}

/* Any rows or tokens, some slots without; the map has as many experts as slots with rows. */
static void by_hand(struct call *c, struct operand *indices, struct operand *map, bool one)
{
    struct stream *const s = case_stream(c, "sorted_indices");
    const int64_t tokens = map->shape[0], experts = map->shape[1], rows = indices->shape[0];
    const bool capacity = flag(c, "drop_and_pad");
    const int64_t slots = capacity ? 1 : rows / (tokens > 0 ? tokens : 1), odds = 2 + stream_below(s, 8);
    if (!capacity)
        memset(map->dense, 0, map->bytes);
    for (int64_t i = 0; i < rows; i++) {
        const bool none = stream_chance(s, odds) && (!capacity || flag(c, "zero_pad"));
        case_put(indices, i, none ? -1 : one ? 0 : stream_below(s, capacity ? tokens : rows));
        for (int64_t cell = stream_below(s, experts); experts > 0 && !none && !capacity;
             cell = (cell + 1) % experts)
            if (case_get(map, i / slots * experts + cell) == 0) {
                case_put(map, i / slots * experts + cell, 1 + stream_below(s, 255));
                break;
            }
    }
}

static void corrupt(struct call *c, struct operand *indices, struct operand *map, bool by_expert)
{
    struct stream *const s = case_stream(c, "broken");
    const bool capacity = flag(c, "drop_and_pad");
    const int64_t limit = capacity ? map->shape[0] : indices->shape[0];
    const int64_t bad[] = {limit, -2, INT32_MAX, INT32_MIN, limit + 7, -1};
    const int64_t cell = stream_below(s, case_count(map));
    if (by_expert && !capacity && case_count(map) > 0 && stream_chance(s, 2))
        case_put(map, cell, case_get(map, cell) == 0);
    else {
        const int64_t at = stream_below(s, indices->shape[0]);
        case_put(indices, at, bad[stream_below(s, 6)]);
    }
}

void rows_make(struct call *c, int64_t least, bool by_expert, bool coded)
{
    case_any_scalar(c, "drop_and_pad");
    case_any_scalar(c, "zero_pad");
    const bool capacity = flag(c, "drop_and_pad");
    const int64_t tokens = case_size(c, "T", least, coded ? 9 : 40, coded ? 12 : 80),
                  experts = case_size(c, "E", least, 12, coded ? 20 : 600),
                  most = capacity      ? 2 * tokens
                         : experts > 0 ? experts
                                       : 8;
    const enum style style = (enum style)case_pick(c, "style", STYLES);
    int64_t slots = case_size(c, "K", 0, most < 12 ? most : 12, most < 40 ? most : 40);
    struct operand *const map = case_in(c, "routing_map");
    if (style == PERMUTED) {
        const int64_t routed = case_route(c, map, slots < experts ? slots : experts);
        slots = capacity ? (slots < tokens ? slots : tokens) : routed;
    }
    slots = tokens > 0 && (experts > 0 || !capacity) ? slots : 0;
    case_extent(c, "M", slots * (capacity ? experts : tokens));
    if (!coded)
        choose_hidden(c, case_get_extent(c, "M"));
    struct operand *const indices = case_in(c, "sorted_indices");
    if (style == PERMUTED && slots > 0)
        permuted(c, indices, map);
    else if (slots > 0)
        by_hand(c, indices, map, style == ONE_TOKEN && capacity);
    if (style == BROKEN && slots > 0)
        corrupt(c, indices, map, by_expert);
    map->given = (by_expert && !capacity) || case_flag(c, "map");
}

struct rows_case rows_of(struct call *c, const struct operand *x, const char *probs, bool by_expert)
{
    const struct operand *const p = probs != NULL ? case_field(c, probs) : NULL;
    const struct operand *const map = case_field(c, "routing_map");
    return (struct rows_case){.tokens = case_get_extent(c, "T"),
                              .experts = case_get_extent(c, "E"),
                              .rows = case_get_extent(c, "M"),
                              .hidden = case_get_extent(c, "H"),
                              .capacity = flag(c, "drop_and_pad"),
                              .zero_pad = flag(c, "zero_pad"),
                              .type = case_number(x),
                              .prob_type = p != NULL && p->given ? case_number(p) : NUMBER_F32,
                              .indices = (const int32_t *)(const void *)case_dense(c, "sorted_indices"),
                              .map = map->given ? map->dense : NULL,
                              .probs = p != NULL && p->given ? p->dense : NULL,
                              .by_expert = by_expert};
}

static void note(struct call *c, const struct rows_case *in, const struct rows_pairs *pairs)
{
    int *const rows_of_token = case_memory(c, (size_t)in->tokens * sizeof(int));
    int *const uses = case_memory(c, (size_t)in->rows * sizeof(int));
    for (int64_t i = 0; i < in->rows; i++)
        case_note(c, in->capacity ? "padding" : "unused slot", in->indices[i] == -1);
    for (size_t i = 0; i < pairs->count; i++) {
        rows_of_token[pairs->pair[i].token]++;
        case_note(c, "row twice", uses[pairs->pair[i].row]++ > 0);
        if (in->probs != NULL)
            case_note(c, "zero weight", pairs->pair[i].weight == 0.0f);
    }
    for (int64_t t = 0; t < in->tokens; t++) {
        case_note(c, "token without rows", in->rows > 0 && rows_of_token[t] == 0);
        case_note(c, "token with many rows", rows_of_token[t] > 8);
    }
    case_note(c, "no rows", in->rows == 0);
    case_note(c, "no elements", in->hidden == 0);
    case_note(c, "long rows", in->hidden >= 256 && in->rows > 0);
    case_note(c, "many experts", in->by_expert && in->experts > 256 && in->rows > 0);
    if (in->probs != NULL)
        case_note(c, "other type of probs", in->prob_type != in->type);
}

struct rows_pairs rows_pairs(struct call *c, const struct rows_case *in)
{
    const struct rows_pairs pairs = oracle_pairs(in);
    const struct rows_fault *const f = &pairs.fault;
    note(c, in, &pairs);
    case_note(c, "bad index", f->position >= 0 && !f->count);
    case_note(c, "bad count", f->position >= 0 && f->count);
    const sy_fault_code code = f->count ? SY_FAULT_SLOT_COUNT : SY_FAULT_SLOT_RANGE;
    const char *const argument = f->count ? "routing_map" : "sorted_indices";
    if (f->position >= 0)
        c->want = (sy_fault){SY_ERR_ROUTING, code, argument, -1, f->position, f->value, f->limit};
    return pairs;
}
