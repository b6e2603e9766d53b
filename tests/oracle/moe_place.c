#include "moe_place.h"

#include <stdlib.h>

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

void oracle_place(const struct place_case *c, struct place_truth *t)
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
