/*
 * moe_convert_indices: a permutation in each form, from each form.
 */
#include "case.h"

#include "oracle/moe_convert_indices.h"

/* A row has a token or none, a token at most K rows. */
static int64_t *choose_owners(struct call *c, int64_t tokens, int64_t slots, int64_t rows)
{
    struct stream *const s = case_stream(c, "owners");
    const int64_t odds = 2 + stream_below(s, 20);
    int64_t *const owner = case_memory(c, (size_t)rows * sizeof *owner), *const left =
                                                                             case_memory(c, (size_t)tokens *
                                                                                                sizeof *left);
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

static void oracle(struct call *c)
{
    const sy_moe_convert_indices_args *const a = case_args(c);
    const struct operand *const in = case_field(c, "sorted_indices"), *const out =
                                                                          case_field(c, "converted_indices");
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
    c->want = oracle_moe_convert_indices(&of, (int32_t *)(void *)out->want);
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
