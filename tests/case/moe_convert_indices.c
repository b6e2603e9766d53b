/*
 * moe_convert_indices: a permutation in each form, from each form.
 */
#include "case.h"

/* A row has a token or none, a token at most K rows. */
static int64_t *choose_owners(struct call *c, int64_t tokens, int64_t slots, int64_t rows)
{
    struct stream *const s = case_stream(c, "owners");
    const int64_t odds = 2 + stream_below(s, 20);
    int64_t *const owner = case_memory(c, (size_t)rows * sizeof *owner);
    int64_t *const left = case_memory(c, (size_t)tokens * sizeof *left);
    for (int64_t row = 0; row < rows; row++) {
        const int64_t t = stream_below(s, tokens);
        owner[row] = tokens > 0 && left[t] < slots && !stream_chance(s, odds) ? t : -1;
        if (owner[row] >= 0)
            left[t]++;
    }
    return owner;
}

static void write_form(struct operand *x, sy_index_form form, int64_t tokens, int64_t pitch,
                       const int64_t *owner, int64_t rows)
{
    memset(x->dense, 0xff, x->bytes);
    for (int64_t row = 0; row < rows && form == SY_INDEX_ROW; row++)
        case_put(x, row, owner[row]);
    for (int64_t t = 0; t < tokens && form != SY_INDEX_ROW; t++) {
        int64_t n = 0;
        for (int64_t row = 0; row < rows; row++)
            if (owner[row] == t)
                case_put(x, t * pitch + n++, row);
        if (form == SY_INDEX_TE)
            case_put(x, (t + 1) * pitch - 1, n);
    }
}

static void fill_offsets(struct call *c, struct operand *x, int64_t rows)
{
    struct stream *const s = case_stream(c, "expert_offsets");
    const int64_t experts = x->shape[0] - 1,
                  end = case_chance(c, "early_end", 6) ? stream_below(s, rows + 1) : rows;
    for (int64_t e = 1; e <= experts; e++)
        case_put(x, e, e == experts ? end : end * e * e / (experts * experts));
    if (case_chance(c, "wrong_offset", 8)) {
        const int64_t at = stream_below(s, experts + 1);
        case_put(x, at, stream_below(s, rows + 4) - 2);
    }
}

static void make(struct call *c)
{
    sy_moe_convert_indices_args *const a = case_args(c);
    struct stream *const s = case_stream(c, "wrong");
    const int64_t tokens = case_size(c, "T", 0, 20, 40), slots = case_size(c, "slots", 0, 6, 6);
    case_any_scalar(c, "from");
    case_any_scalar(c, "to");
    if (a->to == a->from)
        a->to = (sy_index_form)((a->from + 1 + case_flag(c, "next")) % 3);
    const int64_t experts = case_size(c, "E", a->from == SY_INDEX_TE ? slots : 0, slots + 4, 2 * slots + 12);
    const int64_t total = tokens * slots;
    const int64_t rows = case_flag(c, "other_rows") ? case_pick(c, "rows", total + 9) : total;
    const int64_t *const owner = choose_owners(c, tokens, slots, rows);
    const int64_t pitch = a->from == SY_INDEX_TE ? 2 * experts + 1 : slots;
    const int64_t shape[] = {a->from == SY_INDEX_TE ? tokens : a->from == SY_INDEX_ROW ? rows : total, pitch};
    struct operand *const in = case_in_as(c, "sorted_indices", SY_I32, a->from == SY_INDEX_TE ? 2 : 1, shape);
    write_form(in, a->from, tokens, pitch, owner, rows);
    for (int n = case_chance(c, "wrong", 6) && case_count(in) > 0 ? 3 : 0; n > 0; n--) {
        const int64_t at = stream_below(s, case_count(in));
        case_put(in, at, stream_below(s, rows + 4) - 2);
    }
    if (a->to == SY_INDEX_TE || case_flag(c, "expert_offsets"))
        fill_offsets(c, case_in(c, "expert_offsets"), rows);
    a->num_tokens = tokens;
    a->num_rows = a->from == SY_INDEX_TE || rows != shape[0] || case_flag(c, "num_rows") ? rows : 0;
    if (rows == 0 && a->from == SY_INDEX_SLOT) /* 0: as many as slots */
        a->num_rows = 0;
    if (case_flag(c, "k"))
        a->k = slots + case_pick(c, "more", 3) - (slots > 0);
}

/* ---- The oracle ---- */

struct convert_case {
    sy_index_form from, to;
    int64_t tokens, rows, slots_in, slots_out, experts; /* slots of SLOT forms, experts of a TE form */
    const int32_t *in;
    const int64_t *offsets; /* [E+1] when `to` is TE */
    int32_t *owner;         /* [M]: set to the token of each row, or -1 */
};

static sy_fault bad(sy_fault_code code, int64_t batch, int64_t position, int64_t value, int64_t limit)
{
    return (sy_fault){SY_ERR_ROUTING, code, "sorted_indices", batch, position, value, limit};
}

static sy_fault read_slots(const struct convert_case *c)
{
    for (int64_t i = 0; i < c->tokens * c->slots_in; i++) {
        const int32_t row = c->in[i];
        if (row < -1 || row >= c->rows)
            return bad(SY_FAULT_SLOT_RANGE, -1, i, row, c->rows);
        for (int64_t j = 0; row >= 0 && c->owner[row] >= 0; j++)
            if (c->in[j] == row)
                return bad(SY_FAULT_DUPLICATE, -1, i, row, j);
        if (row >= 0)
            c->owner[row] = (int32_t)(i / c->slots_in);
    }
    return (sy_fault){0};
}

static sy_fault read_rows(const struct convert_case *c)
{
    for (int64_t row = 0; row < c->rows; row++) {
        c->owner[row] = c->in[row];
        if (c->in[row] < -1 || c->in[row] >= c->tokens)
            return bad(SY_FAULT_SLOT_RANGE, -1, row, c->in[row], c->tokens);
    }
    return (sy_fault){0};
}

static sy_fault read_te(const struct convert_case *c)
{
    const int64_t columns = 2 * c->experts + 1;
    for (int64_t t = 0; t < c->tokens; t++) {
        const int32_t *const own = c->in + t * columns, n = own[columns - 1];
        if (n < 0 || n > c->experts)
            return bad(SY_FAULT_SLOT_RANGE, t, columns - 1, n, c->experts + 1);
        for (int64_t i = 0; i < n; i++) {
            if (own[i] < 0 || own[i] >= c->rows)
                return bad(SY_FAULT_SLOT_RANGE, t, i, own[i], c->rows);
            if (c->owner[own[i]] >= 0)
                return bad(SY_FAULT_DUPLICATE, t, i, own[i], c->owner[own[i]]);
            c->owner[own[i]] = (int32_t)t;
        }
    }
    return (sy_fault){0};
}

/* Offsets ascend from 0 to at most M, and every row with a token has an expert. */
static sy_fault check_offsets(const struct convert_case *c)
{
    for (int64_t e = 0; e <= c->experts; e++) {
        const int64_t low = e > 0 ? c->offsets[e - 1] : 0, high = e > 0 ? c->rows : 0, at = c->offsets[e];
        if (at < low || at > high)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE, "expert_offsets", -1, e,
                              at,           at < low ? low : high};
    }
    for (int64_t row = c->offsets[c->experts]; row < c->rows; row++)
        if (c->owner[row] >= 0)
            return (sy_fault){SY_ERR_ROUTING, SY_FAULT_SLOT_RANGE,    "expert_offsets", -1,
                              c->experts,     c->offsets[c->experts], row + 1};
    return (sy_fault){0};
}

static sy_fault check_tokens(const struct convert_case *c, int64_t most)
{
    for (int64_t t = 0; t < c->tokens; t++) {
        int64_t n = 0;
        for (int64_t row = 0; row < c->rows; row++)
            n += c->owner[row] == t;
        if (n > most)
            return bad(SY_FAULT_ROW_OVERFULL, -1, t, n, most);
    }
    return (sy_fault){0};
}

/* The n-th row of a token, from the top or from the bottom; -1: it has fewer. */
static int32_t nth_row(const struct convert_case *c, int64_t t, int64_t n, bool descending)
{
    for (int64_t i = 0; i < c->rows; i++) {
        const int64_t row = descending ? c->rows - 1 - i : i;
        if (c->owner[row] == t && n-- == 0)
            return (int32_t)row;
    }
    return -1;
}

static void write_te(const struct convert_case *c, int64_t t, int32_t *out)
{
    int32_t n = 0;
    for (int64_t i = 0; i < c->experts; i++) {
        int32_t e = 0;
        out[i] = nth_row(c, t, i, true);
        while (out[i] >= c->offsets[e + 1])
            e++;
        out[c->experts + i] = out[i] < 0 ? -1 : e;
        n += out[i] >= 0;
    }
    out[2 * c->experts] = n;
}

/* The token of each row, and every element of the output searches all rows. */
static sy_fault convert(const struct convert_case *c, int32_t *out)
{
    for (int64_t row = 0; row < c->rows; row++)
        c->owner[row] = -1;
    sy_fault fault = c->from == SY_INDEX_SLOT  ? read_slots(c)
                     : c->from == SY_INDEX_ROW ? read_rows(c)
                                               : read_te(c);
    if (fault.status == SY_OK && c->to == SY_INDEX_TE)
        fault = check_offsets(c);
    if (fault.status == SY_OK && c->to != SY_INDEX_ROW)
        fault = check_tokens(c, c->to == SY_INDEX_SLOT ? c->slots_out : c->experts);
    for (int64_t row = 0; fault.status == SY_OK && c->to == SY_INDEX_ROW && row < c->rows; row++)
        out[row] = c->owner[row];
    for (int64_t i = 0; fault.status == SY_OK && c->to == SY_INDEX_SLOT && i < c->tokens * c->slots_out; i++)
        out[i] = nth_row(c, i / c->slots_out, i % c->slots_out, false);
    for (int64_t t = 0; fault.status == SY_OK && c->to == SY_INDEX_TE && t < c->tokens; t++)
        write_te(c, t, out + t * (2 * c->experts + 1));
    return fault;
}

static void oracle(struct call *c)
{
    const sy_moe_convert_indices_args *const a = case_args(c);
    const struct operand *const in = case_field(c, "sorted_indices");
    const struct operand *const out = case_field(c, "converted_indices");
    const int64_t tokens = a->num_tokens,
                  rows = a->num_rows > 0 || a->from == SY_INDEX_TE ? a->num_rows : in->shape[0];
    const struct convert_case of = {.from = a->from,
                                    .to = a->to,
                                    .tokens = tokens,
                                    .rows = rows,
                                    .slots_in = case_get_extent(c, "slots"),
                                    .slots_out = a->k > 0     ? a->k
                                                 : tokens > 0 ? rows / tokens
                                                              : 0,
                                    .experts = case_get_extent(c, "E"),
                                    .in = (const int32_t *)(const void *)in->dense,
                                    .offsets = case_wide(c, "expert_offsets"),
                                    .owner = case_memory(c, (size_t)rows * sizeof(int32_t))};
    c->want = convert(&of, (int32_t *)(void *)out->want);
    c->query.rows = a->to == SY_INDEX_ROW ? rows : a->to == SY_INDEX_SLOT ? tokens * of.slots_out : tokens;
    const sy_fault_code code = c->want.code;
    case_note(c, "not a row", code == SY_FAULT_SLOT_RANGE && *c->want.argument == 's');
    case_note(c, "row twice", code == SY_FAULT_DUPLICATE);
    case_note(c, "too many rows of a token", code == SY_FAULT_ROW_OVERFULL);
    case_note(c, "wrong offset", code == SY_FAULT_LENGTH_RANGE);
    case_note(c, "row after the last expert", code == SY_FAULT_SLOT_RANGE && *c->want.argument == 'e');
    for (int64_t row = 0; row < rows && code == SY_FAULT_NONE; row++)
        case_note(c, "row without token", of.owner[row] < 0);
    case_note(c, "another number of rows", code == SY_FAULT_NONE && rows != tokens * of.slots_in && rows > 0);
}

static const struct rejection rejections[] = {
    {"from=3", SY_ERR_VALUE, "is 3", "TE", .code = SY_FAULT_BAD_OPTION},
    {"to=0", SY_ERR_VALUE, "is the same form as from"},
    {"sorted_indices.ndim=2", SY_ERR_SHAPE, "has rank 2", "want 1"},
    {"converted_indices.ndim=1", SY_ERR_SHAPE, "[4]", "[4,7]"},
    {"expert_offsets=-", SY_ERR_NULL, "is missing"},
    {"expert_offsets.shape[0]=0", SY_ERR_SHAPE, "[0]", "the end"},
    {"num_tokens=3", SY_ERR_SHAPE, "8 slots", "3 tokens", .blame = "sorted_indices"},
    {"num_tokens=-1", SY_ERR_VALUE, "-1"},
    {"num_rows=-1", SY_ERR_VALUE, "-1"},
    {"num_tokens=2^31", SY_ERR_VALUE, "2147483648"},
    {"num_rows=2^31", SY_ERR_VALUE, "2147483648"},
    {"k=-1", SY_ERR_VALUE, "-1"},
    {"num_rows=7", SY_ERR_VALUE, "is 7", "the 8 rows", .line = "T=4 slots=2 from=row to=slot"},
    {"sorted_indices.strides[0]=2", SY_ERR_STRIDE, "2", "contiguous"},
    {"sorted_indices.shape[1]=6", SY_ERR_SHAPE, "6 columns", "2E+1",
     .line = "T=4 slots=2 E=3 from=te to=slot"},
    {"num_tokens=2^31-1 k=2^31-1", SY_ERR_OVERFLOW, "2147483647", .line = "T=4 slots=2 from=row to=slot"},
    {.change = NULL},
};

static const struct rejection ladder[] = {
    {"k=-1", SY_ERR_VALUE},
    {"converted_indices.shape[0]=5", SY_ERR_SHAPE},
    {"sorted_indices.strides[0]=2", SY_ERR_STRIDE},
    {.change = NULL},
};

const struct op_case case_moe_convert_indices = {
    .name = "moe_convert_indices",
    .make = make,
    .oracle = oracle,
    .hard = {"not a row", "row twice", "too many rows of a token", "wrong offset",
             "row after the last expert", "row without token", "another number of rows"},
    .small = "T=4 slots=2 E=3 from=slot to=te",
    .lines = {"T=1500 slots=3 E=9 from=slot to=te", "T=1500 slots=3 E=9 from=row to=slot k",
              "T=1500 slots=3 E=9 from=te to=row"},
    .rejections = rejections,
    .ladder = ladder,
    .unchecked = " from expert_offsets sorted_indices ",
    .calls = 480,
};
