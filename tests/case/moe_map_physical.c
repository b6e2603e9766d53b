/*
 * moe_map_physical: a replica of the expert of every slot.
 */
#include "case.h"

static sy_moe_map_physical_args *args_of(struct call *c)
{
    return case_args(c);
}

static void fill_ids(struct call *c, int64_t experts)
{
    struct operand *const ids = case_in(c, "ids");
    struct stream *const s = case_stream(c, "ids");
    const int64_t n = case_count(ids), far[] = {-2, experts + 1, INT32_MAX, INT32_MIN, -1, experts};
    for (int64_t i = 0; i < n; i++) {
        const bool none = args_of(c)->allow_missing && stream_chance(s, 9);
        case_put(ids, i,
                 none || experts == 0 ? (stream_chance(s, 2) ? -1 : experts) : stream_below(s, experts));
    }
    if (n > 0 && case_chance(c, "bad id", 12)) {
        const int64_t at = stream_below(s, n);
        case_put(ids, at, far[stream_below(s, 6)]);
    }
}

/* Some replicas of each expert, then -1. */
static void fill_table(struct call *c, int64_t physical)
{
    struct operand *const table = case_in(c, "logical_to_physical");
    struct operand *const count = case_flag(c, "replica_count") ? case_in(c, "replica_count") : NULL;
    struct stream *const s = case_stream(c, "table");
    const int64_t experts = table->shape[0], most = table->shape[1], n = experts * most;
    for (int64_t e = 0; e < experts; e++) {
        const int64_t own = most > 0 && physical > 0 ? 1 + stream_below(s, most) : 0;
        for (int64_t r = 0; r < most; r++)
            case_put(table, e * most + r, r < own ? stream_below(s, physical) : -1);
        if (count != NULL)
            case_put(count, e, own);
    }
    if (n > 0 && case_chance(c, "bad entry", 12)) {
        const int64_t at = stream_below(s, n);
        case_put(table, at, stream_chance(s, 2) ? physical : -1);
    }
    if (count != NULL && experts > 0 && case_chance(c, "bad count", 12)) {
        const int64_t at = stream_below(s, experts);
        case_put(count, at, stream_chance(s, 2) ? most + 1 : -stream_below(s, 2));
    }
}

static void make(struct call *c)
{
    static const char *const outputs[] = {"physical_ids", "load", "logical_load"};
    sy_moe_map_physical_args *const a = args_of(c);
    const int64_t experts = case_size(c, "E", 0, 40, 900);
    case_size(c, "T", 0, 40, 400);
    case_size(c, "K", 0, 4, 8);
    case_size(c, "R", 0, 6, 70);
    a->devices = case_size(c, "devices", 1, 6, 9);
    a->device = case_pick(c, "device", a->devices);
    a->node_size = case_pick(c, "node_size", 4);
    a->num_physical = a->devices * case_size(c, "each", 0, 5, 9);
    a->token_base = case_chance(c, "late", 2) ? INT64_C(1) << 40 : case_pick(c, "base", 9);
    case_extent(c, "P", a->num_physical);
    case_any_scalar(c, "rule");
    a->allow_missing = !case_chance(c, "all", 4);
    case_need(c, outputs[case_pick(c, "output", 3)]);
    fill_ids(c, experts);
    fill_table(c, a->num_physical);
    if (a->rule != SY_REPLICA_BALANCED || !case_flag(c, "counts_before"))
        return;
    struct operand *const before = case_in(c, "counts_before");
    struct stream *const s = case_stream(c, "before");
    for (int64_t e = 0; e < experts; e++)
        case_put(before, e, stream_below(s, stream_chance(s, 9) ? INT64_MAX : 1000));
    if (experts > 0 && case_chance(c, "bad before", 8))
        case_put(before, stream_below(s, experts), -1);
}

/* The call in numbers. */
struct view {
    const sy_moe_map_physical_args *a;
    const int64_t *ids, *table, *given, *before;
    int64_t n, k, experts, most, missing;
};

static int64_t count_of(const struct view *v, int64_t e)
{
    int64_t n = 0;
    while (v->given == NULL && n < v->most && v->table[e * v->most + n] >= 0)
        n++;
    return v->given != NULL ? v->given[e] : n;
}

static bool is_named(const struct view *v, int64_t e)
{
    for (int64_t i = 0; i < v->n; i++)
        if (v->ids[i] == e)
            return true;
    return false;
}

static sy_fault first_fault(const struct view *v)
{
    const char *const counts = v->given != NULL ? "replica_count" : "logical_to_physical";
    for (int64_t i = 0; i < v->n; i++) {
        const bool missing = v->a->allow_missing && (v->ids[i] == v->missing || v->ids[i] == v->experts);
        if ((v->ids[i] < 0 || v->ids[i] >= v->experts) && !missing)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "ids", i / v->k, i % v->k, v->ids[i],
                              v->experts};
    }
    for (int64_t e = 0; e < v->experts; e++) {
        const int64_t n = count_of(v, e);
        if (is_named(v, e) && (n < 1 || n > v->most))
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE, counts, -1, e, n, v->most};
        for (int64_t r = 0; r < n && r < v->most; r++) {
            const int64_t at = v->table[e * v->most + r];
            if (at < 0 || at >= v->a->num_physical)
                return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "logical_to_physical", e, r,
                                  at,           v->a->num_physical};
        }
        if (v->before != NULL && v->before[e] < 0)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE, "counts_before", -1, e, v->before[e], 0};
    }
    return (sy_fault){0};
}

/* Of the replicas that are nearest to the device, the one with its number. */
static int64_t nearest(struct call *c, const struct view *v, const int64_t *row, int64_t n)
{
    const sy_moe_map_physical_args *const a = v->a;
    int64_t near[3][70], found[3] = {0, 0, 0};
    for (int64_t r = 0; r < n; r++) {
        const int64_t device = row[r] * a->devices / a->num_physical;
        const bool here = device == a->device;
        near[2][found[2]++] = row[r];
        if (here || (a->node_size > 0 && device / a->node_size == a->device / a->node_size))
            near[1][found[1]++] = row[r];
        if (here)
            near[0][found[0]++] = row[r];
    }
    const int which = found[0] > 0 ? 0 : found[1] > 0 ? 1 : 2;
    case_note(c, "on the device", which == 0);
    case_note(c, "on the node", which == 1);
    case_note(c, "far", which == 2);
    return near[which][a->device % found[which]];
}

/* The replica of slot i, of whose expert `same` slots came before. */
static int64_t replica_of(struct call *c, const struct view *v, int64_t i, int64_t same)
{
    const int64_t e = v->ids[i], n = count_of(v, e);
    const int64_t *const row = v->table + e * v->most;
    const uint64_t at = (uint64_t)v->a->token_base + (uint64_t)(i / v->k);
    switch (v->a->rule) {
    case SY_REPLICA_ROUND_ROBIN:
        return row[at % (uint64_t)n];
    case SY_REPLICA_HASH:
        return row[at * UINT64_C(2654435769) % (UINT64_C(1) << 32) % (uint64_t)n];
    case SY_REPLICA_BALANCED:
        return row[((uint64_t)same + (uint64_t)(v->before != NULL ? v->before[e] : 0)) % (uint64_t)n];
    case SY_REPLICA_LOCAL:
        return nearest(c, v, row, n);
    default:
        return row[0];
    }
}

static void add_one(const struct operand *sums, int64_t i)
{
    uint64_t sum;
    memcpy(&sum, sums->want + 8 * i, sizeof sum);
    sum++;
    memcpy(sums->want + 8 * i, &sum, sizeof sum);
}

static void oracle(struct call *c)
{
    const struct operand *const ids = case_field(c, "ids");
    const struct operand *const table = case_field(c, "logical_to_physical");
    struct operand *const out = case_field(c, "physical_ids");
    const struct operand *const load = case_field(c, "load"), *const logical = case_field(c, "logical_load");
    const struct view v = {.a = args_of(c),
                           .ids = case_wide(c, "ids"),
                           .table = case_wide(c, "logical_to_physical"),
                           .given = case_wide(c, "replica_count"),
                           .before = case_wide(c, "counts_before"),
                           .n = case_count(ids),
                           .k = ids->shape[1],
                           .experts = table->shape[0],
                           .most = table->shape[1],
                           .missing = ids->type.bits == 16 ? UINT16_MAX : -1};
    int64_t *const same = case_memory(c, (size_t)v.experts * sizeof *same);
    c->query.rows = v.n;
    c->want = first_fault(&v);
    case_note(c, "bad id", c->want.argument != NULL && strcmp(c->want.argument, "ids") == 0);
    case_note(c, "bad count", c->want.code == SY_FAULT_LENGTH_RANGE && c->want.limit > 0);
    case_note(c, "bad entry", c->want.code == SY_FAULT_INDEX_RANGE && c->want.argument[0] == 'l');
    case_note(c, "bad before", c->want.code == SY_FAULT_LENGTH_RANGE && c->want.limit == 0);
    for (int64_t i = 0; i < v.n && c->want.status == SY_OK; i++) {
        const bool missing = v.ids[i] < 0 || v.ids[i] >= v.experts;
        const int64_t at = missing ? -1 : replica_of(c, &v, i, same[v.ids[i]]++);
        case_note(c, "missing", missing);
        if (out->given)
            case_put_want(out, i, at);
        if (!missing && load->given)
            add_one(load, at);
        if (!missing && logical->given)
            add_one(logical, v.ids[i]);
    }
}

static const struct rejection rejections[] = {
    {"outputs=-", SY_ERR_NULL, "every other output", "at least one", .blame = "physical_ids"},
    {"rule=hash", SY_ERR_VALUE, "another rule", "BALANCED", .blame = "counts_before"},
    {"devices=0 device=0 counts_before=- rule=local", SY_ERR_VALUE, "0", "1 or more"},
    {"device=-1 devices=4 counts_before=- rule=local", SY_ERR_VALUE, "-1", "0 to 3"},
    {"device=4 devices=4 counts_before=- rule=local", SY_ERR_VALUE, "4", "0 to 3"},
    {"devices=5 device=0 counts_before=- rule=local", SY_ERR_VALUE, "5", "a divisor"},
    {"physical_ids.dtype=u16 num_physical=65536", SY_ERR_DTYPE, "u16", "above 65535"},
    {.change = NULL},
};

const struct op_case case_moe_map_physical = {
    .name = "moe_map_physical",
    .make = make,
    .oracle = oracle,
    .hard = {"bad id", "bad count", "bad entry", "bad before", "missing", "on the device", "on the node",
             "far"},
    .small = "T=5 K=2 E=4 R=3 devices=2 each=4 rule=balanced replica_count counts_before load logical_load",
    .lines = {"T=2000 K=8 E=9000 R=3 rule=balanced load logical_load",
              "T=2000 K=8 E=300 R=5 rule=hash late load",
              "T=2000 K=8 E=300 R=5 rule=local devices=6 each=9 device=2 node_size=2"},
    .rejections = rejections,
    .calls = 400,
};
