/*
 * moe_place on the CPU: layer by layer, in integers. An expert is a number within its node, a slot is a replica of one; slots of
 * a node are numbered in the order they are made, physical experts by device and rank.
 */
#include "cpu/backend.h"
#include "cpu/sort.h"

enum { UNIT_BITS = 24, SUM_BITS = 38 };

struct slot {
    int32_t expert; /* of the node */
    int32_t replica;
    int64_t load;
};

/* Items in packs of equal size. */
struct packs {
    int64_t n, size;
    int64_t *sum, *held; /* [n] of their items, and how many they hold */
    int32_t *item;       /* [n,size] */
    int64_t n_open, n_aside;
    int32_t
        *open; /* [n] heap of packs with room, the one with the smallest sum first, the lower of equal ones */
    int32_t *aside; /* [n] packs with room that have the expert of the last item */
};

struct layer {
    const struct syi_moe_place_plan *p;
    int64_t n_experts, n_slots, n_packs; /* of a node, which has n_packs devices */
    int64_t *loads;                      /* [E] */
    int32_t *logical;                    /* [E] experts of the nodes, one node after the other */
    int32_t *count;                      /* [E] replicas, in the same order */
    struct slot *slots;                  /* [P] of all nodes */
    int32_t *heap;                       /* [E of a node] experts, the one that gets the next replica first */
    int64_t *item_load;                  /* [P or groups] */
    struct syi_keyed *items, *spare;     /* the same */
    struct packs packs;
    uint64_t *on;   /* distinct: [packs,E of a node] bits, whether a device has an expert */
    int32_t *twice; /* distinct: [packs] replicas too many */
    int32_t *times; /* distinct: [E of a node] how often the device at hand has an expert, else 0 */
    int32_t *seen;  /* distinct: [E of a node] 1 + the last device that was found to have an expert */
    int32_t *at;    /* [P] slot of each physical expert */
    int32_t *moved; /* [P/D] */
    bool *used;     /* [P/D] */
};

static struct layer lay_out(const sy_ctx *ctx, const struct syi_moe_place_plan *p, struct syi_arena *arena)
{
    (void)ctx;
    const size_t experts = (size_t)p->n_experts, physical = (size_t)p->n_physical;
    const size_t items = physical > (size_t)p->n_groups ? physical : (size_t)p->n_groups;
    const size_t devices = (size_t)p->n_devices,
                 packs = devices > (size_t)p->n_nodes ? devices : (size_t)p->n_nodes;
    struct layer l = {.p = p,
                      .n_experts = p->n_experts / p->n_nodes,
                      .n_slots = p->n_physical / p->n_nodes,
                      .n_packs = p->n_devices / p->n_nodes};
    const size_t here = (size_t)l.n_experts, words = syi_size_mul((size_t)l.n_packs, here / 64 + 1);
    l.loads = syi_take(arena, syi_size_mul(experts, sizeof *l.loads));
    l.logical = syi_take(arena, syi_size_mul(experts, sizeof *l.logical));
    l.count = syi_take(arena, syi_size_mul(experts, sizeof *l.count));
    l.slots = syi_take(arena, syi_size_mul(physical, sizeof *l.slots));
    l.heap = syi_take(arena, syi_size_mul(here, sizeof *l.heap));
    l.item_load = syi_take(arena, syi_size_mul(items, sizeof *l.item_load));
    l.items = syi_take(arena, syi_size_mul(items, sizeof *l.items));
    l.spare = syi_take(arena, syi_size_mul(items, sizeof *l.spare));
    l.packs.sum = syi_take(arena, syi_size_mul(packs, sizeof *l.packs.sum));
    l.packs.held = syi_take(arena, syi_size_mul(packs, sizeof *l.packs.held));
    l.packs.item = syi_take(arena, syi_size_mul(items, sizeof *l.packs.item));
    l.packs.open = syi_take(arena, syi_size_mul(packs, sizeof *l.packs.open));
    l.packs.aside = syi_take(arena, syi_size_mul(packs, sizeof *l.packs.aside));
    l.on = p->args.distinct ? syi_take(arena, syi_size_mul(words, sizeof *l.on)) : NULL;
    l.twice = p->args.distinct ? syi_take(arena, syi_size_mul(packs, sizeof *l.twice)) : NULL;
    l.times = p->args.distinct ? syi_take(arena, syi_size_mul(here, sizeof *l.times)) : NULL;
    l.seen = p->args.distinct ? syi_take(arena, syi_size_mul(here, sizeof *l.seen)) : NULL;
    l.at = syi_take(arena, syi_size_mul(physical, sizeof *l.at));
    l.moved = syi_take(arena, syi_size_mul(physical / devices, sizeof *l.moved));
    l.used = syi_take(arena, physical / devices);
    return l;
}

SYI_CPU_WORKSPACE(moe_place)

/* ---- Contents ---- */

static sy_status check_layer(sy_ctx *ctx, const struct syi_moe_place_plan *p, int64_t layer)
{
    int64_t sum = 0;
    for (int64_t e = 0; e < p->n_experts; e++) {
        const int64_t load = syi_load_i64(syi_at(p->loads, layer), e);
        if (load < 0)
            return syi_reject(ctx, SYI_BAD_LOAD_NEGATIVE, layer, e, load, 0);
        sum += load < (INT64_C(1) << SUM_BITS) ? load : INT64_C(1) << SUM_BITS;
        if (sum >= INT64_C(1) << SUM_BITS)
            return syi_reject(ctx, SYI_BAD_LOAD_SUM, layer, -1, sum, INT64_C(1) << SUM_BITS);
    }
    for (int64_t i = 0; i < p->n_physical && p->previous.data != NULL; i++) {
        const int64_t e = syi_load_i32(syi_at(p->previous, layer), i);
        if (e < 0 || e >= p->n_experts)
            return syi_reject(ctx, SYI_BAD_PREVIOUS_EXPERT, layer, i, e, p->n_experts);
    }
    return SY_OK;
}

/* ---- Packing ---- */

static uint64_t *word_of(const struct layer *l, int64_t pack, int32_t expert)
{
    return &l->on[pack * (l->n_experts / 64 + 1) + expert / 64];
}

static bool has(const struct layer *l, int64_t pack, int32_t expert)
{
    return *word_of(l, pack, expert) >> expert % 64 & 1;
}

/* Counts an expert that comes to a pack. */
static void enter(const struct layer *l, int64_t pack, int32_t expert)
{
    l->twice[pack] += has(l, pack, expert);
    *word_of(l, pack, expert) |= UINT64_C(1) << expert % 64;
}

static bool fills_first(const struct packs *k, int32_t a, int32_t b)
{
    return k->sum[a] != k->sum[b] ? k->sum[a] < k->sum[b] : a < b;
}

static void open_pack(struct packs *k, int32_t pack)
{
    int64_t at = k->n_open++;
    for (; at > 0 && fills_first(k, pack, k->open[(at - 1) / 2]); at = (at - 1) / 2)
        k->open[at] = k->open[(at - 1) / 2];
    k->open[at] = pack;
}

/* Puts a pack to the front of the heap and then where it belongs. */
static void sink(struct packs *k, int32_t pack)
{
    int64_t at = 0;
    for (int64_t child = 1; child < k->n_open; child = 2 * at + 1) {
        if (child + 1 < k->n_open && fills_first(k, k->open[child + 1], k->open[child]))
            child++;
        if (fills_first(k, pack, k->open[child]))
            break;
        k->open[at] = k->open[child];
        at = child;
    }
    k->open[at] = pack;
}

static int32_t close_first(struct packs *k)
{
    const int32_t first = k->open[0];
    if (--k->n_open > 0)
        sink(k, k->open[k->n_open]);
    return first;
}

static void open_aside(struct packs *k)
{
    while (k->n_aside > 0)
        open_pack(k, k->aside[--k->n_aside]);
}

/* Whether a pack with room does not have the expert; the first of them is then the first of the heap. */
static bool find_without(struct layer *l, int32_t expert)
{
    struct packs *k = &l->packs;
    while (k->n_open > 0 && has(l, k->open[0], expert))
        k->aside[k->n_aside++] = close_first(k);
    if (k->n_open > 0)
        return true;
    open_aside(k);
    return false;
}

/*
 * The sorted items, each to the first pack of the heap. With `slots` a pack that has the expert is set aside until an item of
 * another one comes, so replicas that follow each other look at a pack once.
 */
static void fill_packs(struct layer *l, int64_t n, const struct syi_keyed *sorted, const struct slot *slots)
{
    struct packs *k = &l->packs;
    int32_t expert = -1;
    bool any = slots == NULL; /* of the packs with room */
    for (int64_t i = 0; i < n; i++) {
        const int32_t item = (int32_t)sorted[i].value;
        if (slots != NULL && slots[item].expert != expert) {
            expert = slots[item].expert;
            open_aside(k);
            any = false;
        }
        any = any || !find_without(l, expert);
        const int32_t q = k->open[0];
        k->item[q * k->size + k->held[q]++] = item;
        k->sum[q] += l->item_load[item];
        if (slots != NULL)
            enter(l, q, expert);
        if (k->held[q] == k->size)
            close_first(k);
        else if (any)
            sink(k, q);
        else
            k->aside[k->n_aside++] = close_first(k);
    }
}

/* n items with item_load onto n_packs packs. slots: what the items are, with `distinct`; else NULL. */
static void pack(struct layer *l, int64_t n, int64_t n_packs, const struct slot *slots)
{
    struct packs *k = &l->packs;
    k->n = n_packs;
    k->size = n / n_packs;
    if (k->size == 1) {
        for (int32_t i = 0; i < n; i++)
            k->item[i] = i;
        return;
    }
    k->n_open = n_packs;
    k->n_aside = 0;
    for (int32_t i = 0; i < n_packs; i++) {
        k->sum[i] = k->held[i] = 0;
        k->open[i] = i;
    }
    int64_t most = 0;
    for (int64_t i = 0; i < n; i++)
        most = l->item_load[i] > most ? l->item_load[i] : most;
    for (int64_t i = 0; i < n; i++)
        l->items[i] = (struct syi_keyed){(uint64_t)(most - l->item_load[i]), i};
    fill_packs(l, n, syi_sort_keyed(l->items, l->spare, (size_t)n, (uint64_t)most), slots);
}

/* ---- distinct ---- */

/* Which exchanges are made: those after which neither pack has an expert twice, or those that lower the repetitions of both. */
enum exchange_rule { BOTH_CLEAN, FEWER };

static int64_t count_in(const struct layer *l, const struct slot *slots, int64_t pack, int32_t expert)
{
    int64_t n = 0;
    for (int64_t i = pack * l->packs.size; i < (pack + 1) * l->packs.size; i++)
        n += slots[l->packs.item[i]].expert == expert;
    return n;
}

static void replace(struct layer *l, const struct slot *slots, int64_t at, int32_t come)
{
    const int64_t pack = at / l->packs.size;
    const int32_t gone = slots[l->packs.item[at]].expert;
    if (count_in(l, slots, pack, gone) > 1)
        l->twice[pack]--;
    else
        *word_of(l, pack, gone) &= ~(UINT64_C(1) << gone % 64);
    enter(l, pack, slots[come].expert);
    l->packs.item[at] = come;
}

static void count_times(const struct layer *l, const struct slot *slots, int64_t pack, int32_t add)
{
    for (int64_t i = pack * l->packs.size; i < (pack + 1) * l->packs.size; i++)
        l->times[slots[l->packs.item[i]].expert] += add;
}

/* The place of another pack to exchange `own` with, a replica that `pack` has twice: that of the least difference of loads, the
   first of equal ones; -1: none. */
static int64_t find_exchange(const struct layer *l, const struct slot *slots, int64_t pack, int32_t own,
                             enum exchange_rule rule)
{
    const int64_t size = l->packs.size;
    int64_t best = -1, least = INT64_MAX;
    for (int64_t q = 0; q < l->packs.n && least > 0; q++) {
        const bool has_own = has(l, q, slots[own].expert);
        if (q == pack || (has_own && (rule == BOTH_CLEAN || l->twice[q] == 0)))
            continue;
        if (l->twice[q] > 0)
            count_times(l, slots, q, 1);
        for (int64_t at = q * size; at < (q + 1) * size; at++) {
            const struct slot *other = &slots[l->packs.item[at]];
            const int64_t apart =
                other->load > slots[own].load ? other->load - slots[own].load : slots[own].load - other->load;
            const int gained = has(l, pack, other->expert) + has_own, lost = l->times[other->expert] > 1;
            if (apart < least && (rule == FEWER ? gained < 1 + lost : gained == 0 && l->twice[q] == lost)) {
                best = at;
                least = apart;
            }
        }
        if (l->twice[q] > 0)
            count_times(l, slots, q, -1);
    }
    return best;
}

/*
 * One pass over devices and ranks. With FEWER it leaves no repetition, since there always is an exchange: let pack p, of c items,
 * have expert e twice. An expert has at most as many replicas as there are packs, so some pack q does not have e. Either q has an
 * expert x that p has not, and x for e leaves p with one repetition less and q with none more. Or all c items of q are among the
 * c - 2 or fewer other experts of p, so that q has one of them twice, and giving it for e leaves q with one less and p with none
 * more. Each exchange lowers the number of repetitions, and a pack without any gets none: so the pass ends.
 */
static void separate(struct layer *l, const struct slot *slots, enum exchange_rule rule)
{
    const int64_t size = l->packs.size;
    memset(l->seen, 0, (size_t)l->n_experts * sizeof *l->seen);
    for (int64_t pack = 0; pack < l->packs.n; pack++)
        for (int64_t at = pack * size; at < (pack + 1) * size && l->twice[pack] > 0; at++) {
            const int32_t *own = &l->packs.item[at];
            while (l->seen[slots[*own].expert] == pack + 1 && (rule == FEWER || l->twice[pack] == 1)) {
                const int64_t with = find_exchange(l, slots, pack, *own, rule);
                if (with < 0)
                    break;
                const int32_t come = l->packs.item[with];
                replace(l, slots, with, *own);
                replace(l, slots, at, come);
            }
            l->seen[slots[*own].expert] = (int32_t)pack + 1;
        }
}

static void make_distinct(struct layer *l, const struct slot *slots)
{
    for (enum exchange_rule rule = BOTH_CLEAN; rule <= FEWER; rule++)
        separate(l, slots, rule);
}

/* ---- Steps ---- */

/* Experts of each node: groups are packed onto nodes, and keep the order of their ranks there. */
static void order_experts(struct layer *l)
{
    const struct syi_moe_place_plan *p = l->p;
    const int64_t each = p->n_groups > 0 ? p->n_experts / p->n_groups : 0;
    for (int32_t e = 0; e < p->n_experts; e++)
        l->logical[e] = e;
    if (p->n_groups == 0)
        return;
    for (int64_t g = 0; g < p->n_groups; g++) {
        l->item_load[g] = 0;
        for (int64_t e = g * each; e < (g + 1) * each; e++)
            l->item_load[g] += l->loads[e];
    }
    pack(l, p->n_groups, p->n_nodes, NULL);
    for (int64_t g = 0; g < p->n_groups; g++)
        for (int64_t i = 0; i < each; i++)
            l->logical[g * each + i] = (int32_t)(l->packs.item[g] * each + i);
}

/* Whether expert a comes before b for the next replica: w_a / c_a is larger, or equal and a is lower. */
static bool before(const int64_t *loads, const int32_t *logical, const int32_t *count, int32_t a, int32_t b)
{
    const syi_u128 of_a = (syi_u128)(uint64_t)loads[logical[a]] * (uint32_t)count[b],
                   of_b = (syi_u128)(uint64_t)loads[logical[b]] * (uint32_t)count[a];
    return of_a != of_b ? of_a > of_b : a < b;
}

static void sift_down(const struct layer *l, const int32_t *logical, const int32_t *count, int64_t n,
                      int64_t at)
{
    const int32_t moving = l->heap[at];
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child + 1 < n && before(l->loads, logical, count, l->heap[child + 1], l->heap[child]))
            child++;
        if (child >= n || before(l->loads, logical, count, moving, l->heap[child]))
            break;
        l->heap[at] = l->heap[child];
        at = child;
    }
    l->heap[at] = moving;
}

/* Slots of a node: one of each expert, then the added ones. */
static void add_replicas(struct layer *l, int64_t node)
{
    const int32_t *logical = l->logical + node * l->n_experts;
    int32_t *count = l->count + node * l->n_experts;
    struct slot *slots = l->slots + node * l->n_slots;
    int64_t n = l->n_experts;
    for (int32_t e = 0; e < n; e++) {
        slots[e] = (struct slot){.expert = e};
        l->heap[e] = e;
        count[e] = 1;
    }
    for (int64_t at = n / 2; at-- > 0;)
        sift_down(l, logical, count, n, at);
    for (int64_t i = l->n_experts; i < l->n_slots; i++) {
        const int32_t e = l->heap[0];
        slots[i] = (struct slot){.expert = e, .replica = count[e]++};
        if (l->p->args.distinct && count[e] == l->n_packs)
            l->heap[0] = l->heap[--n];
        if (n > 0)
            sift_down(l, logical, count, n, 0);
    }
    for (int64_t i = 0; i < l->n_slots; i++)
        slots[i].load = (l->loads[logical[slots[i].expert]] << UNIT_BITS) / count[slots[i].expert];
}

static void place_node(struct layer *l, int64_t node)
{
    struct slot *slots = l->slots + node * l->n_slots;
    for (int64_t i = 0; i < l->n_slots; i++)
        l->item_load[i] = slots[i].load;
    if (l->p->args.distinct) {
        memset(l->on, 0, (size_t)(l->n_packs * (l->n_experts / 64 + 1)) * sizeof *l->on);
        memset(l->twice, 0, (size_t)l->n_packs * sizeof *l->twice);
        memset(l->times, 0, (size_t)l->n_experts * sizeof *l->times);
    }
    pack(l, l->n_slots, l->n_packs, l->p->args.distinct ? slots : NULL);
    if (l->p->args.distinct && l->packs.size > 1)
        make_distinct(l, slots);
    for (int64_t i = 0; i < l->n_slots; i++)
        l->at[node * l->n_slots + i] = (int32_t)(node * l->n_slots) + l->packs.item[i];
}

static int32_t expert_of(const struct layer *l, int32_t slot)
{
    return l->logical[slot / l->n_slots * l->n_experts + l->slots[slot].expert];
}

/* Replicas of a device move to places where their expert was before. */
static void keep_places(struct layer *l, const unsigned char *previous, int64_t device)
{
    const int64_t size = l->p->n_physical / l->p->n_devices;
    int32_t *at = l->at + device * size;
    memset(l->used, 0, (size_t)size);
    for (int64_t i = 0; i < size; i++) {
        const int32_t was = syi_load_i32(previous, device * size + i);
        int64_t from = 0;
        while (from < size && (l->used[from] || expert_of(l, at[from]) != was))
            from++;
        l->moved[i] = from < size ? at[from] : -1;
        if (from < size)
            l->used[from] = true;
    }
    int64_t next = 0;
    for (int64_t i = 0; i < size; i++) {
        while (next < size && l->used[next])
            next++;
        if (l->moved[i] < 0)
            l->moved[i] = at[next++];
    }
    memcpy(at, l->moved, (size_t)size * sizeof *at);
}

static void place_layer(struct layer *l, int64_t layer)
{
    const struct syi_moe_place_plan *p = l->p;
    for (int64_t e = 0; e < p->n_experts; e++)
        l->loads[e] = syi_load_i64(syi_at(p->loads, layer), e);
    order_experts(l);
    for (int64_t node = 0; node < p->n_nodes; node++) {
        add_replicas(l, node);
        place_node(l, node);
    }
    for (int64_t d = 0; d < p->n_devices && p->previous.data != NULL; d++)
        keep_places(l, syi_at(p->previous, layer), d);
}

/* ---- Outputs ---- */

static sy_status check_replicas(sy_ctx *ctx, struct layer *l, int64_t layer)
{
    for (int64_t node = 0; node < l->p->n_nodes; node++)
        add_replicas(l, node);
    int64_t first = -1; /* the lowest expert */
    for (int64_t i = 0; i < l->p->n_experts; i++)
        if (l->count[i] > l->p->n_replicas && (first < 0 || l->logical[i] < l->logical[first]))
            first = i;
    if (first < 0)
        return SY_OK;
    return syi_reject(ctx, SYI_BAD_PLACE_REPLICAS, layer, l->logical[first], l->p->n_replicas,
                      l->count[first]);
}

static void write_layer(const struct layer *l, int64_t layer)
{
    const struct syi_moe_place_plan *p = l->p;
    const int64_t size = p->n_physical / p->n_devices;
    for (int64_t i = 0; i < p->n_experts; i++) {
        const int64_t e = l->logical[i];
        if (p->count.data != NULL)
            syi_store_index(syi_at(p->count, layer), e, l->count[i], p->count.type);
        for (int64_t r = l->count[i]; r < p->n_replicas && p->physical.data != NULL; r++)
            syi_store_index(syi_at(p->physical, layer * p->n_experts + e), r, -1, p->physical.type);
    }
    for (int64_t i = 0; i < p->n_physical; i++) {
        const int32_t e = expert_of(l, l->at[i]);
        if (p->logical.data != NULL)
            syi_store_index(syi_at(p->logical, layer), i, e, p->logical.type);
        if (p->physical.data != NULL)
            syi_store_index(syi_at(p->physical, layer * p->n_experts + e), l->slots[l->at[i]].replica, i,
                            p->physical.type);
    }
    for (int64_t d = 0; d < p->n_devices && p->device_load.data != NULL; d++) {
        int64_t sum = 0;
        for (int64_t i = d * size; i < (d + 1) * size; i++)
            sum += l->slots[l->at[i]].load;
        syi_store_i64(syi_at(p->device_load, layer), d, sum);
    }
}

static void write_mapping(const struct syi_moe_place_plan *p)
{
    const int64_t size = p->n_physical / p->n_devices;
    for (int64_t i = 0; i < p->n_physical; i++)
        for (int64_t d = 0; d < p->n_devices; d++) {
            const uint16_t here = i / size == d;
            memcpy(syi_at(p->mapping, i) + 2 * d, &here, sizeof here);
        }
}

sy_status syi_cpu_moe_place(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_place_plan *p = &plan->moe_place;
    struct syi_arena arena = {workspace, 0};
    struct layer l = lay_out(ctx, p, &arena);
    const bool few = p->physical.data != NULL && p->n_replicas < p->n_physical - p->n_experts + 1;
    for (int64_t i = 0; i < p->n_layers; i++)
        SYI_TRY(check_layer(ctx, p, i));
    for (int64_t i = 0; i < p->n_layers && few; i++) {
        for (int64_t e = 0; e < p->n_experts; e++)
            l.loads[e] = syi_load_i64(syi_at(p->loads, i), e);
        order_experts(&l);
        SYI_TRY(check_replicas(ctx, &l, i));
    }
    for (int64_t i = 0; i < p->n_layers; i++) {
        place_layer(&l, i);
        write_layer(&l, i);
    }
    if (p->mapping.data != NULL)
        write_mapping(p);
    return SY_OK;
}
