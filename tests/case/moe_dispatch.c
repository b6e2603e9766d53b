/*
 * moe_dispatch: rows times their gates into expert slots, as numbers or as codes, apart or over the input.
 */
#include "case.h"

#include <math.h>

static sy_moe_dispatch_args *args_of(struct call *c)
{
    return case_args(c);
}

/* Slots, repeated ones welcome, or a random set of distinct ones; a sixth of the samples is invalid. */
static void fill_slots(struct call *c, int64_t experts, int64_t capacity, bool unique)
{
    static const int32_t far[] = {-1, INT32_MIN, INT32_MAX};
    struct operand *const indices = case_in(c, "indices"), *const locations = case_in(c, "locations");
    struct stream *const s = case_stream(c, "slots");
    const int64_t n = case_count(indices), slots = experts * capacity;
    int64_t *const order = case_memory(c, (size_t)slots * sizeof *order);
    for (int64_t i = 0; i < slots; i++) {
        const int64_t j = stream_below(s, i + 1);
        order[i] = order[j];
        order[j] = i;
    }
    for (int64_t i = 0; i < n; i++) {
        const bool spent = slots == 0 || (unique && i >= slots);
        const int64_t slot = spent    ? 0
                             : unique ? order[i]
                                      : stream_below(s, slots),
                      fault = stream_below(s, 12);
        int64_t e = slots > 0 ? slot / capacity : 0, l = slots > 0 ? slot % capacity : 0;
        if (fault == 0 || spent)
            e = stream_chance(s, 2) ? experts : far[stream_below(s, 3)];
        if (fault == 1)
            l = stream_chance(s, 2) ? capacity : far[stream_below(s, 3)];
        case_put(indices, i, e);
        case_put(locations, i, l);
    }
}

static void fill_input(struct call *c, struct operand *input, const sy_row_format *format)
{
    if (case_chance(c, "all_values", 40) && input->element == 2)
        for (int64_t i = 0; i < case_count(input); i++)
            case_put(input, i, i);
    else if (format != NULL)
        case_fill_groups(c, input, format->group > 0 ? format->group : input->shape[1] + 1);
    else
        case_fill_floats(c, input);
}

static void make(struct call *c)
{
    sy_moe_dispatch_args *const a = args_of(c);
    const bool coded = c->in->kind == READ_TEXT || case_chance(c, "coded", 3);
    const sy_row_format *const format = coded ? case_format(c, "row_format") : NULL;
    a->num_experts = case_size(c, "E", 0, 6, 9);
    a->capacity = case_size(c, "C", 0, 12, 60);
    case_size(c, "S", 0, 60, 300);
    if (format != NULL)
        case_extent(c, "G", format->group > 0 ? case_size(c, "groups", 0, 3, 9) : 1);
    if (format != NULL && format->group > 0)
        case_extent(c, "H", format->group * case_get_extent(c, "G"));
    else
        case_size(c, "H", 0, 40, 300);
    case_any_scalar(c, "zero_unwritten");
    a->unique_slots = case_chance(c, "unique_slots", 3);
    struct operand *const input = case_in(c, "input");
    fill_input(c, input, format);
    fill_slots(c, a->num_experts, a->capacity, a->unique_slots);
    if (case_pick(c, "gated", 3) > 0)
        case_fill_floats(c, case_in(c, "gates"));
    case_share(c, "dispatch", format == NULL && case_chance(c, "in_place", 3));
    if (format == NULL)
        return;
    case_out_codes(c, "dispatch", format->q_type, -1, NULL);
    case_out_codes(c, "dispatch_scales", format->scale_type, -1, NULL);
}

/* Sample i as numbers of the type of the input, at row `to` of an array. */
static void scale_row(struct call *c, const struct operand *rows, int64_t i, void *array, int64_t to)
{
    const struct operand *const gates = case_field(c, "gates");
    const double gate = gates->given ? case_real(gates, i) : 1;
    const int64_t hidden = rows->shape[1];
    const double least = rows->element == 2 && rows->type.code == kDLFloat ? 0x1p-14 : 0x1p-126;
    bool nan = false, minus_zero = false, subnormal = false, overflow = false;
    for (int64_t h = 0; h < hidden; h++) {
        const double exact = gate * case_real(rows, i * hidden + h);
        const double once = (double)f32_from_bits(f32_round(exact));
        case_put_real(rows, array, to * hidden + h, once);
        nan |= isnan(once);
        minus_zero |= once == 0 && signbit(once);
        subnormal |= once != 0 && fabs(once) < least;
        overflow |= isinf(once) && isfinite(exact);
    }
    case_note(c, "NaN", nan);
    case_note(c, "-0", minus_zero);
    case_note(c, "subnormal", subnormal);
    case_note(c, "overflow", overflow);
}

static void put_codes(struct call *c, const struct operand *one, int64_t slot)
{
    const sy_row_format *const f = args_of(c)->row_format;
    const int64_t hidden = one->shape[1];
    float *const x = case_memory(c, (size_t)hidden * sizeof *x);
    const struct operand *const scales = case_field(c, "dispatch_scales");
    for (int64_t h = 0; h < hidden; h++)
        x[h] = (float)case_real(one, h);
    case_quantize(f, x, hidden, case_field(c, "dispatch")->want + slot * hidden,
                  scales->want + (size_t)(slot * scales->shape[1]) * scales->element);
}

static void clear_row(const struct operand *x, int64_t row)
{
    const size_t bytes = x->given ? (size_t)x->shape[1] * x->element : 0;
    if (bytes > 0)
        memset(x->want + (size_t)row * bytes, 0, bytes);
}

/* The slot of each sample, -1: none; and how often each is named. */
static int64_t *slots_of(struct call *c, int64_t n, int *times)
{
    const sy_moe_dispatch_args *const a = args_of(c);
    const int64_t *const e = case_wide(c, "indices"), *const l = case_wide(c, "locations");
    int64_t *const slots = case_memory(c, (size_t)n * sizeof *slots);
    for (int64_t i = 0; i < n; i++) {
        const bool valid = e[i] >= 0 && e[i] < a->num_experts && l[i] >= 0 && l[i] < a->capacity;
        slots[i] = valid ? e[i] * a->capacity + l[i] : -1;
        if (valid)
            case_note(c, "repeated", times[slots[i]]++ > 0);
    }
    return slots;
}

static void oracle(struct call *c)
{
    const sy_moe_dispatch_args *const a = args_of(c);
    const struct operand *const input = case_field(c, "input"), *const out = case_field(c, "dispatch");
    const int64_t n = input->shape[0], hidden = input->shape[1], n_slots = a->num_experts * a->capacity;
    const size_t row = (size_t)hidden * input->element, most = (size_t)(n > n_slots ? n : n_slots);
    const bool shared = out->place == PLACE_SHARED, coded = a->row_format != NULL;
    int *const times = case_memory(c, (size_t)n_slots * sizeof *times);
    const int64_t *const slots = slots_of(c, n, times);
    struct operand rows = *input, one = *input; /* in place they are the rows that are written */
    c->query.rows = n_slots;
    case_note(c, "over fewer samples", shared && n < n_slots && row > 0);
    case_note(c, "over more samples", shared && n > n_slots && row > 0 && n_slots > 0);
    case_note(c, "codes with gates", coded && a->gates != NULL && row > 0);
    if (hidden == 0)
        return;
    one.dense = case_memory(c, row);
    rows.dense = case_memory(c, most * row);
    memcpy(rows.dense, out->dense, coded ? 0 : out->bytes);
    memcpy(rows.dense, input->dense, input->bytes);
    for (int64_t i = 0; i < n; i++) {
        if (slots[i] < 0)
            continue;
        scale_row(c, &rows, i, one.dense, 0);
        if (coded)
            put_codes(c, &one, slots[i]);
        else
            memcpy(out->want + (size_t)slots[i] * row, one.dense, row);
        if (shared)
            memcpy(rows.dense + (size_t)slots[i] * row, one.dense, row);
    }
    for (int64_t slot = 0; slot < n_slots; slot++) {
        case_note(c, "kept", times[slot] == 0 && !a->zero_unwritten);
        case_note(c, "cleared", times[slot] == 0 && a->zero_unwritten);
        if (shared)
            memcpy(out->want + (size_t)slot * row, rows.dense + (size_t)slot * row, row);
        if (times[slot] > 0 || !a->zero_unwritten)
            continue;
        clear_row(out, slot);
        clear_row(case_field(c, "dispatch_scales"), slot);
    }
}

#define SIZES "num_experts|capacity|dispatch|input"
#define CODED .line = "S=3 E=2 C=3 G=2 groups=2 row_format=fp8_128"
static const struct rejection rejections[] = {
    {"gates.dtype=f16", SY_ERR_DTYPE, "f16", "want f32"},
    {"gates.dtype=f16 input,dispatch.dtype=bf16", SY_ERR_DTYPE, "f16", "want f32 or bf16"},
    {"num_experts=2^31 capacity=2^29", SY_ERR_OVERFLOW, .blame = SIZES},
    /* No rows, but rows whose size alone does not fit. */
    {"input.shape=[0,2^62] gates,indices,locations.shape[0]=0", SY_ERR_OVERFLOW, .blame = SIZES},
    {"input.shape=[2^40,2^40] gates,indices,locations.shape[0]=2^40", SY_ERR_OVERFLOW, "1099511627776"},
    {"input.data=dispatch+28", SY_ERR_ALIAS},
    {"input.data=dispatch input.strides[0]=8", SY_ERR_ALIAS},
    {"row_format=-", SY_ERR_DTYPE, .blame = "dispatch", CODED, .late = true},
    {"row_format=- dispatch.dtype=f16", SY_ERR_VALUE, "is given", "none: there is no row_format",
     .blame = "dispatch_scales", CODED, .late = true},
    {"*.data=-", SY_OK, .line = "S=0 E=2 C=3 H=9 gated=1"},
    {"*.data=-", SY_OK, .line = "S=8 E=2 C=3 H=0 gated=1"},
    {"*.data=-", SY_OK, .line = "S=8 E=2 C=0 H=9 gated=1"},
    {"*.data=-", SY_OK, .line = "S=8 E=0 C=3 H=9 gated=1"},
    {"*.data=-", SY_ERR_NULL, "no data", .blame = "dispatch", .line = "S=0 E=2 C=3 H=9 zero_unwritten"},
    {.change = NULL},
};

static const struct rejection ladder[] = {
    {"capacity=-3", SY_ERR_VALUE},
    {"num_experts=2^62", SY_ERR_OVERFLOW, .blame = SIZES},
    {"dispatch.shape[1]=8", SY_ERR_SHAPE},
    {.change = NULL},
};

const struct op_case case_moe_dispatch = {
    .name = "moe_dispatch",
    .make = make,
    .oracle = oracle,
    .hard = {"NaN", "-0", "subnormal", "overflow", "repeated", "over fewer samples", "over more samples",
             "codes with gates", "kept", "cleared"},
    .small = "S=9 E=4 C=3 H=7 gated=1 f32",
    .shapes = {"S=50 E=3 C=20 H=2879 gated=1 bf16 zero_unwritten", "S=50 E=3 C=20 H=1031 gated=1 f16"},
    .lines = {"S=9001 E=5 C=100 H=65 gated=1 f32", "S=9001 E=7 C=1300 H=65 gated=1 bf16 unique_slots",
              "S=2001 E=3 C=500 H=257 gated=1 f16 gates=f16", "S=5 E=2 C=2 H=100003 gated=1 f32",
              "S=310 E=2 C=700 H=516 gated=1 f32 zero_unwritten", "S=301 E=3 C=60 H=520 gated=1 f16",
              "S=2003 E=3 C=1000 H=129 gated=1 f32 unique_slots zero_unwritten",
              "S=2500 E=5 C=500 H=101 gated=1 f32 in_place",
              "S=2500 E=3 C=500 H=201 gated=1 f16 in_place zero_unwritten",
              "S=100000 E=1 C=150000 H=1 f32 in_place", "S=5 E=1 C=9 H=65536 gated=1 f16 all_values",
              "S=5 E=1 C=9 H=65536 gated=1 bf16 all_values gates=bf16",
              "S=100 E=3 C=90 groups=32 gated=1 bf16 row_format=mxfp8 zero_unwritten"},
    .rejections = rejections,
    .ladder = ladder,
    .calls = 400,
};
