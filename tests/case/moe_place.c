/*
 * moe_place: replicas of experts by their loads, and their places on devices.
 */
#include "case.h"

enum { PLACE_MOST = 64 }; /* experts, physical ones, devices, groups */

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

/* ---- The oracle: every decision is a search over all that could be chosen, and nothing is sorted or kept ---- */

struct place_case {
    int experts, physical, devices, nodes, groups; /* nodes >= 1 */
    bool distinct;
    const int64_t *loads;    /* [E] */
    const int32_t *previous; /* [P], or NULL */
};

struct place_truth {
    int expert[PLACE_MOST], replica[PLACE_MOST]; /* [P] */
    int64_t load[PLACE_MOST];                    /* [devices] */
    int count[PLACE_MOST];                       /* [E] */
};

struct item {
    int expert, replica; /* expert -1: a group */
    int64_t load;
};

/* in[pack][rank] is an item, in the order they came. */
struct packing {
    int n, size, held[PLACE_MOST], in[PLACE_MOST][PLACE_MOST];
};

static int64_t sum_of(const struct packing *k, const struct item *items, int pack)
{
    int64_t sum = 0;
    for (int r = 0; r < k->held[pack]; r++)
        sum += items[k->in[pack][r]].load;
    return sum;
}

static int times(const struct packing *k, const struct item *items, int pack, int expert)
{
    int n = 0;
    for (int r = 0; r < k->held[pack]; r++)
        n += items[k->in[pack][r]].expert == expert;
    return n;
}

/* Whether the item at rank r has its expert before it. */
static bool is_again(const struct packing *k, const struct item *items, int pack, int r)
{
    bool again = false;
    for (int s = 0; s < r; s++)
        again = again || items[k->in[pack][s]].expert == items[k->in[pack][r]].expert;
    return again;
}

static int repeats(const struct packing *k, const struct item *items, int pack)
{
    int n = 0;
    for (int r = 0; r < k->held[pack]; r++)
        n += is_again(k, items, pack, r);
    return n;
}

/* The item with exactly so many before it: a larger load, or the same and a lower number. */
static int item_number(const struct item *items, int n, int number)
{
    for (int i = 0;; i++) {
        int before = 0;
        for (int j = 0; j < n; j++)
            before += items[j].load > items[i].load || (items[j].load == items[i].load && j < i);
        if (before == number)
            return i;
    }
}

static int pack_for(const struct packing *k, const struct item *items, int expert)
{
    int best = -1;
    for (int p = k->n - 1; p >= 0; p--)
        if (k->held[p] < k->size && (expert < 0 || times(k, items, p, expert) == 0) &&
            (best < 0 || sum_of(k, items, p) <= sum_of(k, items, best)))
            best = p;
    return best;
}

static void swap(struct packing *k, int p, int r, int q, int s)
{
    const int item = k->in[p][r];
    k->in[p][r] = k->in[q][s];
    k->in[q][s] = item;
}

/* Tries every exchange, and undoes it. clean: of those that leave no repetition; else of those that leave fewer. */
static bool spread(struct packing *k, const struct item *items, int p, int r, bool clean)
{
    int to[2] = {-1, -1};
    int64_t least = 0;
    for (int q = 0; q < k->n; q++)
        for (int s = 0; s < k->size && q != p; s++) {
            const int64_t apart = llabs(items[k->in[p][r]].load - items[k->in[q][s]].load);
            const int before = repeats(k, items, p) + repeats(k, items, q);
            swap(k, p, r, q, s);
            const int after = repeats(k, items, p) + repeats(k, items, q);
            if ((clean ? after == 0 : after < before) && (to[0] < 0 || apart < least)) {
                to[0] = q;
                to[1] = s;
                least = apart;
            }
            swap(k, p, r, q, s);
        }
    if (to[0] >= 0)
        swap(k, p, r, to[0], to[1]);
    return to[0] >= 0;
}

static void pack(struct packing *k, const struct item *items, int n, int packs, bool distinct)
{
    *k = (struct packing){.n = packs, .size = n / packs};
    for (int i = 0; i < n; i++) {
        const int item = k->size == 1 ? i : item_number(items, n, i);
        int p = k->size == 1 ? i : distinct ? pack_for(k, items, items[item].expert) : -1;
        p = p < 0 ? pack_for(k, items, -1) : p;
        k->in[p][k->held[p]++] = item;
    }
    for (int clean = 1; clean >= 0; clean--)
        for (int p = 0; p < packs && distinct; p++)
            for (int r = 0; r < k->size; r++)
                while (is_again(k, items, p, r) && spread(k, items, p, r, clean))
                    continue;
}

/* Which experts a node has, in order. */
static void experts_of(const struct place_case *c, int nodes, int node, int *list)
{
    struct item groups[PLACE_MOST];
    struct packing k;
    const int each = nodes > 1 || (c->groups > 0 && c->groups % c->nodes == 0) ? c->experts / c->groups : 0;
    for (int e = 0; e < c->experts && each == 0; e++)
        list[e] = e;
    if (each == 0)
        return;
    for (int g = 0; g < c->groups; g++) {
        groups[g] = (struct item){-1, 0, 0};
        for (int e = g * each; e < (g + 1) * each; e++)
            groups[g].load += c->loads[e];
    }
    pack(&k, groups, c->groups, nodes, false);
    for (int i = 0; i < c->experts / nodes; i++)
        list[i] = k.in[node][i / each] * each + i % each;
}

static void replicate(const struct place_case *c, struct place_truth *t, const int *list, int n, int slots,
                      int most, struct item *items)
{
    for (int i = 0; i < n; i++) {
        items[i] = (struct item){list[i], 0, 0};
        t->count[list[i]] = 1;
    }
    for (int i = n; i < slots; i++) {
        int best = -1;
        for (int j = 0; j < n; j++) {
            const int e = list[j], b = best < 0 ? e : list[best];
            const bool may = !c->distinct || t->count[e] < most; /* loads are below 2^38, counts below 2^7 */
            if (may && (best < 0 || c->loads[e] * t->count[b] > c->loads[b] * t->count[e]))
                best = j;
        }
        items[i] = (struct item){list[best], t->count[list[best]]++, 0};
    }
    for (int i = 0; i < slots; i++)
        items[i].load = c->loads[items[i].expert] * (INT64_C(1) << 24) / t->count[items[i].expert];
}

static void keep(const struct place_case *c, struct place_truth *t, int first, int size)
{
    int expert[PLACE_MOST], replica[PLACE_MOST], from[PLACE_MOST];
    bool gone[PLACE_MOST] = {false};
    for (int i = 0; i < size; i++) {
        expert[i] = t->expert[first + i];
        replica[i] = t->replica[first + i];
        from[i] = -1;
    }
    for (int i = 0; i < size; i++)
        for (int j = 0; j < size && from[i] < 0; j++)
            if (!gone[j] && expert[j] == c->previous[first + i]) {
                from[i] = j;
                gone[j] = true;
            }
    for (int i = 0; i < size; i++) {
        for (int j = 0; j < size && from[i] < 0; j++)
            if (!gone[j]) {
                from[i] = j;
                gone[j] = true;
            }
        t->expert[first + i] = expert[from[i]];
        t->replica[first + i] = replica[from[i]];
    }
}

static void place(const struct place_case *c, struct place_truth *t)
{
    const int nodes = c->groups > 0 && c->groups % c->nodes == 0 ? c->nodes : 1;
    const int n = c->experts / nodes, slots = c->physical / nodes, devices = c->devices / nodes;
    const int size = c->physical / c->devices;
    for (int node = 0; node < nodes; node++) {
        struct item items[PLACE_MOST];
        struct packing k;
        int list[PLACE_MOST];
        experts_of(c, nodes, node, list);
        replicate(c, t, list, n, slots, devices, items);
        pack(&k, items, slots, devices, c->distinct);
        for (int d = 0; d < devices; d++) {
            t->load[node * devices + d] = sum_of(&k, items, d);
            for (int r = 0; r < size; r++) {
                t->expert[(node * devices + d) * size + r] = items[k.in[d][r]].expert;
                t->replica[(node * devices + d) * size + r] = items[k.in[d][r]].replica;
            }
        }
    }
    for (int d = 0; d < c->devices && c->previous != NULL; d++)
        keep(c, t, d * size, size);
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
        place(&one, &t);
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
