/*
 * moe_place: replicas of experts by their loads, and their places on devices.
 */
#include "case.h"

#include "oracle/moe_place.h"

static sy_moe_place_args *args_of(struct call *c)
{
    return case_args(c);
}

static void fill_loads(struct call *c, struct operand *loads)
{
    enum { TIES_ONLY, USUAL, EQUAL, ZERO, SPARSE, LARGE, EVERY, KINDS };
    struct stream *const s = case_stream(c, "loads");
    const int64_t kind = case_pick(c, "kind", KINDS), n = case_count(loads), experts = loads->shape[1];
    for (int64_t i = 0; i < n; i++)
        case_put(loads, i,
                 kind == TIES_ONLY ? stream_below(s, 3)
                 : kind == USUAL   ? stream_below(s, 100)
                 : kind == EQUAL   ? 7
                 : kind == ZERO    ? 0
                 : kind == SPARSE  ? (stream_chance(s, 4) ? stream_below(s, 50) : 0)
                 : kind == LARGE   ? stream_below(s, INT64_C(1) << 33)
                                   : i / experts >> i % experts & 1); /* a layer for each choice of 0 and 1 */
    if (n > 0 && case_chance(c, "bad load", 20)) {
        const int64_t at = stream_below(s, n);
        case_put(loads, at, stream_chance(s, 2) ? -1 : INT64_C(1) << (38 + stream_below(s, 25)));
    }
}

static void make(struct call *c)
{
    sy_moe_place_args *const a = args_of(c);
    a->nodes = case_pick(c, "nodes", 4);
    const int64_t nodes = a->nodes > 0 ? a->nodes : 1;
    a->devices = nodes * case_size(c, "per_node", 1, nodes > 1 ? 3 : 6, nodes > 1 ? 3 : 8);
    a->groups = nodes * case_pick(c, "groups", 3);
    const int64_t experts =
        a->groups > 0 ? a->groups * case_size(c, "each", 1, 3, 3) : case_size(c, "e", 1, 12, 12);
    if (a->groups > 0 && case_chance(c, "one_group", 4))
        a->groups = 1; /* nodes may not divide it */
    case_any_scalar(c, "distinct");
    const bool by_node = a->groups > 0 && a->groups % nodes == 0;
    const int64_t least = (experts + a->devices - 1) / a->devices;
    const int64_t most = a->distinct ? experts / (by_node ? nodes : 1) : least + 4;
    const int64_t room = most - least < 4 ? most - least : 4;
    a->num_physical = a->devices * (least + case_pick(c, "more", (room > 0 ? room : 0) + 1));
    if (a->num_physical > PLACE_MOST)
        a->num_physical = a->devices * least;
    case_size(c, "L", 0, 3, experts < 8 ? 1 << experts : 60);
    case_extent(c, "E", experts);
    case_extent(c, "P", a->num_physical);
    case_extent(c, "D", a->devices);
    fill_loads(c, case_in(c, "loads"));
    if (case_flag(c, "previous")) {
        struct operand *const previous = case_in(c, "previous");
        case_fill_indices(c, previous, experts, case_chance(c, "bad previous", 12) ? 60 : 0);
    }
    const int64_t most_replicas = a->num_physical - experts + 1;
    const int64_t replicas = case_chance(c, "few", 2) ? 1 + case_pick(c, "replicas", most_replicas)
                                                      : most_replicas + case_pick(c, "spare", 3);
    const int64_t table[] = {case_get_extent(c, "L"), experts, replicas};
    case_out_as(c, "logical_to_physical", (DLDataType){0}, 3, table);
    static const char *const outputs[] = {"physical_to_logical", "logical_to_physical", "replica_count",
                                          "device_load", "expert_mapping"};
    case_field(c, "logical_to_physical")->needed = case_flag(c, "logical_to_physical");
    case_need(c, outputs[case_pick(c, "output", 5)]);
}

static sy_fault layer_fault(const int64_t *loads, const int64_t *previous, int64_t layer, int64_t experts,
                            int64_t physical)
{
    const int64_t limit = INT64_C(1) << 38;
    int64_t sum = 0;
    for (int64_t e = 0; e < experts; e++) {
        const int64_t load = loads[layer * experts + e];
        if (load < 0)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE, "loads", layer, e, load, 0};
        sum += load < limit ? load : limit;
        if (sum >= limit)
            return (sy_fault){SY_ERR_OVERFLOW, SY_FAULT_OVERFLOW, "loads", layer, -1, sum, limit};
    }
    for (int64_t i = 0; previous != NULL && i < physical; i++) {
        const int64_t e = previous[layer * physical + i];
        if (e < 0 || e >= experts)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "previous", layer, i, e, experts};
    }
    return (sy_fault){0};
}

static void put_layer(struct call *c, int64_t layer, const struct place_truth *t)
{
    const sy_moe_place_args *const a = args_of(c);
    struct operand *const expert = case_field(c, "physical_to_logical");
    struct operand *const load = case_field(c, "device_load");
    struct operand *const table = case_field(c, "logical_to_physical");
    struct operand *const count = case_field(c, "replica_count");
    const int64_t experts = case_get_extent(c, "E"), physical = a->num_physical, most = table->shape[2];
    for (int64_t e = 0; e < experts; e++) {
        if (count->given)
            case_put_want(count, layer * experts + e, t->count[e]);
        for (int64_t r = t->count[e]; table->given && r < most; r++)
            case_put_want(table, (layer * experts + e) * most + r, -1);
    }
    for (int64_t i = 0; i < physical; i++) {
        if (expert->given)
            case_put_want(expert, layer * physical + i, t->expert[i]);
        if (table->given && t->replica[i] < most)
            case_put_want(table, (layer * experts + t->expert[i]) * most + t->replica[i], i);
    }
    for (int64_t d = 0; load->given && d < a->devices; d++)
        case_put_want(load, layer * a->devices + d, t->load[d]);
}

/* The lowest expert of a layer with more replicas than the table has. */
static sy_fault replica_fault(struct call *c, int64_t layer, const struct place_truth *t)
{
    const struct operand *const table = case_field(c, "logical_to_physical");
    for (int64_t e = 0; table->given && e < table->shape[1]; e++)
        if (t->count[e] > table->shape[2])
            return (sy_fault){SY_ERR_CAPACITY, SY_FAULT_NONE, "logical_to_physical", layer, e,
                              table->shape[2], t->count[e]};
    return (sy_fault){0};
}

static void oracle(struct call *c)
{
    const sy_moe_place_args *const a = args_of(c);
    const int64_t *const loads = case_wide(c, "loads"), *const previous = case_wide(c, "previous");
    const int32_t *const own = case_dense(c, "previous");
    const int64_t layers = case_get_extent(c, "L"), experts = case_get_extent(c, "E"),
                  physical = a->num_physical;
    struct operand *const mapping = case_field(c, "expert_mapping");
    c->query = (sy_query){.rows = layers * physical, .slots = physical - experts + 1};
    for (int64_t l = 0; l < layers && c->want.status == SY_OK; l++)
        c->want = layer_fault(loads, previous, l, experts, physical);
    for (int64_t l = 0; l < layers && c->want.status == SY_OK; l++) {
        const struct place_case one = {.experts = (int)experts,
                                       .physical = (int)physical,
                                       .devices = (int)a->devices,
                                       .nodes = a->nodes > 0 ? (int)a->nodes : 1,
                                       .groups = (int)a->groups,
                                       .distinct = a->distinct,
                                       .loads = loads + l * experts,
                                       .previous = own != NULL ? own + l * physical : NULL};
        struct place_truth t;
        oracle_place(&one, &t);
        c->want = replica_fault(c, l, &t);
        put_layer(c, l, &t);
    }
    for (int64_t i = 0; mapping->given && i < physical * a->devices; i++)
        case_put_want(mapping, i, i / a->devices / (physical / a->devices) == i % a->devices);
    case_note(c, "bad load", c->want.status == SY_ERR_INDEX && c->want.argument[0] == 'l');
    case_note(c, "bad sum", c->want.status == SY_ERR_OVERFLOW);
    case_note(c, "bad previous", c->want.status == SY_ERR_INDEX && c->want.argument[0] == 'p');
    case_note(c, "more replicas than the table has", c->want.status == SY_ERR_CAPACITY);
    case_note(c, "nodes", a->nodes > 1 && a->groups > 0 && a->groups % a->nodes == 0 && layers > 0);
    case_note(c, "groups that nodes do not divide", a->nodes > 1 && a->groups == 1 && layers > 0);
    case_note(c, "distinct", a->distinct && physical > experts && layers > 0);
    case_note(c, "every choice of loads", layers == INT64_C(1) << experts);
}

static const struct rejection rejections[] = {
    {"outputs=-", SY_ERR_NULL, "missing", "at least one", .blame = "physical_to_logical"},
    {"loads.shape[1]=0", SY_ERR_SHAPE, "no experts", "at least 1"},
    {"devices=0", SY_ERR_VALUE, "0", "1 or more"},
    {"devices=3", SY_ERR_VALUE, "3", "a divisor"},
    {"nodes=-1", SY_ERR_VALUE, "-1", "0 or more"},
    {"nodes=3", SY_ERR_VALUE, "3", "a divisor"},
    {"groups=-1", SY_ERR_VALUE, "-1", "0 or more"},
    {"groups=3", SY_ERR_VALUE, "3", "a divisor"},
    {"num_physical=3", SY_ERR_VALUE, "3", "4 or more",
     .line = "nodes=2 per_node=2 groups=1 each=2 L=2 more=1"},
    /* Eight replicas would fit four devices, not the two of a node. */
    {"num_physical=12 previous.shape[1]=12", SY_ERR_VALUE, "12", "8"},
    {"only=loads,physical_to_logical num_physical=2^31 devices=4", SY_ERR_OVERFLOW, "2147483648",
     "2147483647", .blame = "num_physical"},
    {"only=loads,physical_to_logical loads.shape=[2^59,1] num_physical=2^30 devices=1", SY_ERR_OVERFLOW,
     "576460752303423488 layers", "8589934591", .blame = "loads"},
    {.change = NULL},
};

static const struct rejection ladder[] = {
    {"previous.shape[1]=7", SY_ERR_SHAPE},      {"groups=3", SY_ERR_VALUE},
    {"replica_count.shape[0]=1", SY_ERR_SHAPE}, {"physical_to_logical.data=previous", SY_ERR_ALIAS},
    {"loads.data[7]=-1", SY_ERR_INDEX},         {.change = NULL},
};

const struct op_case case_moe_place = {
    .name = "moe_place",
    .make = make,
    .oracle = oracle,
    .hard = {"bad load", "bad sum", "bad previous", "more replicas than the table has", "nodes",
             "groups that nodes do not divide", "distinct", "every choice of loads"},
    .small = "nodes=2 per_node=2 groups=1 each=2 L=2 more=1 distinct kind=1 previous physical_to_logical "
             "logical_to_physical replica_count device_load expert_mapping",
    .rejections = rejections,
    .ladder = ladder,
    .calls = 2000,
};
