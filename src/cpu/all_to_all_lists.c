/*
 * Sources and destinations of rows, from the table of all choices only: every device computes what it receives, what it
 * sends and where received rows are stored, and no counts are exchanged. Each list is one pass over the tokens in order
 * of (position, n); if rows have an order of their own (EXPERT), a counting pass comes before.
 */
#include "cpu/all_to_all.h"
#include "cpu/load.h"

static const struct syi_a2a_pick nowhere = {-1, -1};

/* ---- Choices ---- */

static sy_status reject(sy_ctx *ctx, int field, struct syi_found found)
{
    found.field = field;
    return syi_report(ctx, found);
}

/* An index of a row, -1 for none. */
static inline int64_t load_choice(const unsigned char *row, int64_t k, sy_type type)
{
    if (type != SY_TYPE_U16)
        return syi_load_index(row, k, type);
    uint16_t value;
    memcpy(&value, row + 2 * k, sizeof value);
    return value == UINT16_MAX ? -1 : value;
}

/* Whether every index next to each other is an expert or none, which is -1: one comparison each. */
static bool all_experts(const unsigned char *from, sy_type type, int64_t n, uint64_t n_experts)
{
    bool bad = false;
    for (int64_t i = 0; type == SY_TYPE_U16 && i < n; i++) {
        uint16_t e;
        memcpy(&e, from + 2 * i, sizeof e);
        bad |= (uint16_t)(e + 1) > n_experts;
    }
    for (int64_t i = 0; type == SY_TYPE_I32 && i < n; i++) {
        uint32_t e;
        memcpy(&e, from + 4 * i, sizeof e);
        bad |= e + 1 > n_experts;
    }
    for (int64_t i = 0; type == SY_TYPE_I64 && i < n; i++) {
        uint64_t e;
        memcpy(&e, from + 8 * i, sizeof e);
        bad |= e + 1 > n_experts;
    }
    return !bad;
}

sy_status syi_a2a_read_choices(sy_ctx *ctx, int field, struct syi_rows indices, sy_type type, int64_t n,
                               int64_t n_slots, int64_t n_experts, bool strict, int32_t *choice)
{
    const size_t width = type == SY_TYPE_U16 ? 2 : type == SY_TYPE_I32 ? 4 : 8;
    if (choice == NULL && !strict && indices.stride == n_slots * (int64_t)width &&
        all_experts(indices.data, type, n * n_slots, (uint64_t)n_experts))
        return SY_OK;
    for (int64_t r = 0; r < n; r++) {
        const unsigned char *row = syi_row_at(indices, r);
        uint64_t seen = 0;
        for (int64_t k = 0; k < n_slots; k++) {
            const int64_t e = load_choice(row, k, type);
            if (e < -1 || e >= n_experts)
                return reject(ctx, field,
                              syi_bad_at(type == SY_TYPE_U16 ? SYI_BAD_CHOICE_U16 : SYI_BAD_CHOICE, r, k, e,
                                         n_experts));
            const uint64_t bit = UINT64_C(1) << (e & 63); /* of experts that may be named before */
            int64_t before = (seen & bit) != 0 ? 0 : k;
            if (e >= 0 && (strict || choice != NULL))
                while (before < k && load_choice(row, before, type) != e)
                    before++;
            seen |= bit;
            if (e >= 0 && before < k && strict)
                return reject(ctx, field, syi_bad_at(SYI_BAD_CHOICE_TWICE, r, k, e, before));
            if (choice != NULL)
                choice[r * n_slots + k] = e >= 0 && before == k ? (int32_t)e : -1;
        }
    }
    return SY_OK;
}

/* ---- Tokens of a group ---- */

static int64_t tokens_at(const struct syi_a2a_group *group, int position)
{
    return group->order.first[position + 1] - group->order.first[position];
}

static const int32_t *choices_of(const struct syi_a2a_group *group, int64_t t)
{
    return group->choice + t * group->n_slots;
}

/* Places of all experts on a device of the group. */
struct places {
    const int32_t *local, *owner;
    int32_t device;
};

static struct places places_at(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group,
                               int position)
{
    const int device = syi_device_at(group->mesh, group->axis, group->index, position);
    return (struct places){hosts->local + (hosts->owner == NULL ? device * hosts->n_experts : 0),
                           hosts->owner, device};
}

/* Of expert e; -1: it is not there. */
static inline int32_t place_of(const struct places *at, int32_t e)
{
    return at->owner == NULL || at->owner[e] == at->device ? at->local[e] : -1;
}

/* Position of a device in this group; -1: it belongs to another. */
static int position_here(const struct syi_a2a_group *group, int device)
{
    const bool here = syi_group_of(group->mesh, group->axis, device) == group->index;
    return here ? syi_position_of(group->mesh, group->axis, device) : -1;
}

static inline int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Choices of a token that a device hosts, or of several tokens. */
enum { SOME = 64 };
struct hosted {
    int32_t place[SOME], at[SOME]; /* and which choice it is */
};

/* Those of n choices, at most SOME, without a branch for each: whether a device hosts an expert is as random as the choice. */
static inline int hosted_of(const struct places *at, const int32_t *choice, int64_t n, struct hosted *to)
{
    int m = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t e = choice[i] < 0 ? 0 : choice[i], place = choice[i] < 0 ? -1 : place_of(at, e);
        to->place[m] = place;
        to->at[m] = (int32_t)i;
        m += place >= 0;
    }
    return m;
}

static bool hits(const struct places *at, const int32_t *choice, int64_t n_slots)
{
    for (int64_t k = 0; k < n_slots; k++)
        if (choice[k] >= 0 && place_of(at, choice[k]) >= 0)
            return true;
    return false;
}

/* EXPERT: rows of an expert that so many tokens name. */
static int64_t block_rows(const struct syi_a2a_group *group, int64_t count)
{
    return group->expert_rows > 0 ? group->expert_rows
                                  : (count + group->align - 1) / group->align * group->align;
}

/* ---- Dispatch ---- */

int64_t syi_a2a_expert_rows(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group,
                            int position, int64_t *counts, int64_t *offsets)
{
    const struct places at = places_at(hosts, group, position);
    const int64_t n_local = hosts->n_local[at.device], n_tokens = syi_order_tokens(&group->order);
    const int64_t n_choices = n_tokens * group->n_slots;
    int64_t n_sent = 0, n_rows = 0;
    struct hosted found;
    for (int64_t l = 0; l < n_local; l++)
        counts[l] = 0;
    for (int64_t i = 0; i < n_choices; i += SOME) {
        const int m = hosted_of(&at, group->choice + i, smaller(n_choices - i, SOME), &found);
        for (int j = 0; j < m; j++)
            counts[found.place[j]]++;
    }
    for (int64_t t = 0; t < n_tokens && group->layout == SY_LAYOUT_PACKED; t++)
        n_sent += hits(&at, choices_of(group, t), group->n_slots);
    for (int64_t l = 0; l < n_local; l++) {
        if (offsets != NULL)
            offsets[l] = n_rows;
        n_rows += block_rows(group, counts[l]);
    }
    if (offsets != NULL)
        offsets[n_local] = n_rows;
    return group->layout == SY_LAYOUT_PADDED ? n_tokens : group->layout == SY_LAYOUT_PACKED ? n_sent : n_rows;
}

int64_t syi_a2a_overfull(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group, int position,
                         int64_t *counts)
{
    const int device = syi_device_at(group->mesh, group->axis, group->index, position);
    if (group->layout != SY_LAYOUT_EXPERT || group->expert_rows == 0)
        return -1;
    syi_a2a_expert_rows(hosts, group, position, counts, NULL);
    for (int64_t l = 0; l < hosts->n_local[device]; l++)
        if (counts[l] > group->expert_rows)
            return l;
    return -1;
}

/*
 * The worst case is one row more than whole blocks: every expert uses its first block for one row, each further block
 * holds `align` rows, and none has more rows than there are tokens.
 */
bool syi_a2a_most_rows(int64_t n_tokens, int64_t n_slots, int64_t n_local, sy_a2a_layout layout,
                       int64_t align, int64_t *rows)
{
    const bool none = n_local == 0 || n_tokens == 0 || n_slots == 0;
    int64_t sent = 0, whole = 0;
    *rows = layout == SY_LAYOUT_PADDED || !none ? n_tokens : 0;
    if (layout == SY_LAYOUT_EXPERT && !none) {
        if (!syi_mul(n_tokens, n_slots < n_local ? n_slots : n_local, &sent))
            return false;
        const int64_t used = sent < n_local ? sent : n_local, more = (sent - used) / align;
        if (!syi_mul(used, (n_tokens - 1) / align, &whole) ||
            !syi_mul(used + (more < whole ? more : whole), align, rows))
            return false;
    }
    return *rows <= INT32_MAX;
}

/* EXPERT: by place of the expert, then position and n. */
static int64_t pick_by_expert(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group,
                              int position, struct syi_a2a_pick *pick, int32_t *slot, int64_t *counters)
{
    const struct places at = places_at(hosts, group, position);
    int64_t *next = counters, *counts = counters + hosts->n_experts + 1;
    const int64_t slots = group->n_slots, at_once = slots > 0 && slots < SOME ? SOME / slots : 1;
    int32_t token[SOME]; /* of the choices of `at_once` tokens */
    struct hosted found;
    const int64_t n_rows = syi_a2a_expert_rows(hosts, group, position, counts, next);
    for (int i = 0; i < SOME; i++)
        token[i] = at_once > 1 ? i / (int32_t)slots : 0;
    for (int64_t r = 0; r < n_rows; r++)
        pick[r] = nowhere;
    for (int64_t r = 0; r < n_rows && slot != NULL; r++)
        slot[r] = -1;
    for (int p = 0; p < group->order.n_positions; p++) {
        const int64_t n_tokens = tokens_at(group, p), run = syi_run_of(&group->order, n_tokens);
        for (int64_t n = 0, some; n < n_tokens;
             n += some) { /* that follow each other among those of the group, too */
            const int32_t *choice = choices_of(group, syi_tau(&group->order, p, n));
            some = smaller(smaller(at_once, run - n % run), n_tokens - n);
            for (int64_t i = 0; i < some * slots; i += SOME) {
                const int m = hosted_of(&at, choice + i, smaller(some * slots - i, SOME), &found);
                for (int j = 0; j < m; j++) {
                    const int64_t r = next[found.place[j]]++;
                    pick[r] = (struct syi_a2a_pick){p, (int32_t)n + token[found.at[j]]};
                    if (slot != NULL)
                        slot[r] = (int32_t)i + found.at[j] - token[found.at[j]] * (int32_t)slots;
                }
            }
        }
    }
    return n_rows;
}

int64_t syi_a2a_dispatch_picks(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group,
                               int position, struct syi_a2a_pick *pick, int32_t *slot, int64_t *counters)
{
    const struct places at = places_at(hosts, group, position);
    const bool packed = group->layout == SY_LAYOUT_PACKED;
    int64_t r = 0;
    if (group->layout == SY_LAYOUT_EXPERT)
        return pick_by_expert(hosts, group, position, pick, slot, counters);
    for (int p = 0; p < group->order.n_positions; p++)
        for (int64_t n = 0; n < tokens_at(group, p); n++) {
            const int64_t t = syi_tau(&group->order, p, n);
            const bool hit = hits(&at, choices_of(group, t), group->n_slots);
            if (hit)
                pick[packed ? r++ : t] = (struct syi_a2a_pick){p, (int32_t)n};
            else if (!packed)
                pick[t] = nowhere;
        }
    return packed ? r : syi_order_tokens(&group->order);
}

/* ---- Lists by peer: counted at first[p+1], then summed, then filled from first[p] on ---- */

static void begin_lists(struct syi_a2a_lists *lists, int n_positions)
{
    for (int p = 0; p <= n_positions; p++)
        lists->first[p] = 0;
}

static void sum_lists(struct syi_a2a_lists *lists, int n_positions)
{
    for (int p = 0; p < n_positions; p++)
        lists->first[p + 1] += lists->first[p];
}

/* Filling has moved each beginning to the next. */
static void end_lists(struct syi_a2a_lists *lists, int n_positions)
{
    for (int p = n_positions; p > 0; p--)
        lists->first[p] = lists->first[p - 1];
    lists->first[0] = 0;
}

static void list_row(struct syi_a2a_lists *lists, int position, int64_t row, bool fill)
{
    if (fill)
        lists->rows[lists->first[position]++] = (int32_t)row;
    else
        lists->first[position + 1]++;
}

static void list_hosts(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group, int position,
                       struct syi_a2a_lists *sends, int64_t *last, bool fill)
{
    for (int q = 0; q < group->order.n_positions; q++)
        last[q] = -1;
    for (int64_t n = 0; n < tokens_at(group, position); n++) {
        const int32_t *choice = choices_of(group, syi_tau(&group->order, position, n));
        for (int64_t k = 0; k < group->n_slots; k++) {
            if (choice[k] < 0)
                continue;
            for (int64_t i = hosts->first[choice[k]]; i < hosts->first[choice[k] + 1]; i++) {
                const int q = position_here(group, hosts->holder[i]);
                if (q < 0 || last[q] == n)
                    continue;
                last[q] = n;
                list_row(sends, q, n, fill);
            }
        }
    }
}

void syi_a2a_dispatch_sends(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group,
                            int position, struct syi_a2a_lists *sends, int64_t *counters)
{
    begin_lists(sends, group->order.n_positions);
    list_hosts(hosts, group, position, sends, counters, false);
    sum_lists(sends, group->order.n_positions);
    list_hosts(hosts, group, position, sends, counters, true);
    end_lists(sends, group->order.n_positions);
}

void syi_a2a_dispatch_receives(const struct syi_a2a_group *group, const struct syi_a2a_pick *pick,
                               int64_t n_rows, struct syi_a2a_lists *receives, int32_t *seen)
{
    const int64_t *first = group->order.first;
    for (int64_t i = 0; i < syi_order_tokens(&group->order); i++)
        seen[i] = -1;
    for (int64_t r = n_rows - 1; r >= 0; r--)
        if (pick[r].position >= 0)
            seen[first[pick[r].position] + pick[r].row] = (int32_t)r;
    int64_t n_listed = 0;
    for (int p = 0; p < group->order.n_positions; p++) {
        receives->first[p] = n_listed;
        for (int64_t i = first[p]; i < first[p + 1]; i++)
            if (seen[i] >= 0)
                receives->rows[n_listed++] = seen[i];
    }
    receives->first[group->order.n_positions] = n_listed;
}

/* ---- Combine ---- */

/* Rows on the experts' side, token after token by position and n. */
struct cursor {
    const struct syi_a2a_hosts *hosts;
    const struct syi_a2a_group *group;
    struct syi_a2a_pick
        *holder;     /* [E] lowest position that hosts it; its first (PADDED) or next (EXPERT) row */
    int64_t *n_here; /* [G] tokens of a position so far, this one included */
    int64_t *best;   /* [G] slot of its expert with the lowest number, counted over the slots of all tokens */
};

/* First rows of the experts: those before them on their device are padded to whole blocks. */
static void find_blocks(const struct cursor *c, int64_t *counts)
{
    const struct syi_a2a_group *group = c->group;
    const int64_t n_experts = c->hosts->n_experts;
    for (int64_t e = 0; e < n_experts; e++)
        counts[e] = 0;
    for (int64_t i = 0; i < syi_order_tokens(&group->order) * group->n_slots; i++)
        if (group->choice[i] >= 0)
            counts[group->choice[i]]++;
    for (int q = 0; q < group->order.n_positions; q++) {
        const struct places at = places_at(c->hosts, group, q);
        int64_t row = 0;
        for (int32_t e = 0; e < n_experts; e++) {
            if (place_of(&at, e) < 0)
                continue;
            if (c->holder[e].position == q)
                c->holder[e].row = (int32_t)row;
            row += block_rows(group, counts[e]);
        }
    }
}

static struct cursor begin_cursor(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group,
                                  int64_t *counters)
{
    const int n_positions = group->order.n_positions;
    int64_t *counts = counters + hosts->n_experts;
    struct cursor c = {hosts, group, (struct syi_a2a_pick *)counters, counts + hosts->n_experts, NULL};
    c.best = c.n_here + n_positions;
    for (int32_t e = 0; e < hosts->n_experts; e++) {
        c.holder[e] = nowhere;
        for (int64_t i = hosts->first[e]; i < hosts->first[e + 1] && c.holder[e].position < 0; i++)
            c.holder[e].position = position_here(group, hosts->holder[i]);
        if (group->layout == SY_LAYOUT_PADDED && c.holder[e].position >= 0) {
            const struct places at = places_at(hosts, group, c.holder[e].position);
            c.holder[e].row = (int32_t)(place_of(&at, e) * syi_order_tokens(&group->order));
        }
    }
    if (group->layout == SY_LAYOUT_EXPERT)
        find_blocks(&c, counts);
    for (int q = 0; q < n_positions; q++) {
        c.n_here[q] = 0;
        c.best[q] = -1;
    }
    return c;
}

/* Adds token number i of the group to its holders. */
static void bring_token(const struct cursor *c, const int32_t *choice, int64_t i)
{
    const int64_t slot = i * c->group->n_slots;
    for (int64_t k = 0; k < c->group->n_slots; k++) {
        if (choice[k] < 0)
            continue;
        for (int64_t h = c->hosts->first[choice[k]]; h < c->hosts->first[choice[k] + 1]; h++) {
            const int q = position_here(c->group, c->hosts->holder[h]);
            if (q < 0)
                continue;
            if (c->best[q] < slot)
                c->n_here[q]++;
            if (c->best[q] < slot || choice[k] < choice[c->best[q] - slot])
                c->best[q] = slot + k;
        }
    }
}

/* Row of expert e for the last added token, t. EXPERT: it is the expert's next. */
static struct syi_a2a_pick slot_pick(const struct cursor *c, int32_t e, int64_t t)
{
    if (e < 0 || c->holder[e].position < 0)
        return nowhere;
    struct syi_a2a_pick pick = c->holder[e];
    if (c->group->layout == SY_LAYOUT_EXPERT)
        c->holder[e].row++;
    else if (c->group->layout == SY_LAYOUT_PACKED)
        pick.row = (int32_t)(c->n_here[pick.position] - 1);
    else
        pick.row += (int32_t)t;
    return pick;
}

/* The one row of a position for that token. */
static struct syi_a2a_pick reduced_pick(const struct cursor *c, int position, int64_t t)
{
    const bool packed = c->group->layout == SY_LAYOUT_PACKED;
    return (struct syi_a2a_pick){position, (int32_t)(packed ? c->n_here[position] - 1 : t)};
}

/* Slot k of token number i is the one its holder's row goes to. */
static bool is_best(const struct cursor *c, const int32_t *choice, int64_t k, int64_t i)
{
    const int position = choice[k] < 0 ? -1 : c->holder[choice[k]].position;
    return position >= 0 && c->best[position] == i * c->group->n_slots + k;
}

/* Picks of one token, n_home apart. */
static void pick_reduced(const struct cursor *c, const int32_t *choice, int64_t t, int64_t i,
                         bool by_position, struct syi_a2a_pick *pick, int64_t n_home)
{
    int64_t n_picks = 0;
    for (int64_t k = 0; k < c->group->n_slots; k++)
        pick[k * n_home] = nowhere;
    for (int64_t k = 0; k < c->group->n_slots; k++) {
        if (!is_best(c, choice, k, i))
            continue;
        const struct syi_a2a_pick new = reduced_pick(c, c->holder[choice[k]].position, t);
        int64_t place = by_position ? n_picks++ : k;
        for (; by_position && place > 0 && pick[(place - 1) * n_home].position > new.position; place--)
            pick[place * n_home] = pick[(place - 1) * n_home];
        pick[place * n_home] = new;
    }
}

/* PADDED rows have fixed places; others follow those of the positions before. */
void syi_a2a_combine_picks(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group, int position,
                           bool local_reduce, bool by_position, struct syi_a2a_pick *pick, int64_t *counters)
{
    const struct cursor c = begin_cursor(hosts, group, counters);
    const bool brought = local_reduce || group->layout == SY_LAYOUT_PACKED;
    const int64_t n_home = tokens_at(group, position);
    for (int p = group->layout == SY_LAYOUT_PADDED ? position : 0; p <= position; p++)
        for (int64_t n = 0; n < tokens_at(group, p); n++) {
            const int64_t t = syi_tau(&group->order, p, n), i = group->order.first[p] + n;
            const int32_t *choice = choices_of(group, t);
            if (brought)
                bring_token(&c, choice, i);
            if (local_reduce && p == position)
                pick_reduced(&c, choice, t, i, by_position, pick + n, n_home);
            for (int64_t k = 0; k < group->n_slots && !local_reduce; k++) {
                const struct syi_a2a_pick from = slot_pick(&c, choice[k], t);
                if (p == position)
                    pick[k * n_home + n] = from;
            }
        }
}

void syi_a2a_combine_sends(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group, int position,
                           bool local_reduce, struct syi_a2a_lists *sends, int64_t *counters)
{
    const struct cursor c = begin_cursor(hosts, group, counters);
    const bool brought = local_reduce || group->layout == SY_LAYOUT_PACKED;
    int64_t n_listed = 0;
    for (int p = 0; p < group->order.n_positions; p++) {
        sends->first[p] = n_listed;
        for (int64_t n = 0; n < tokens_at(group, p); n++) {
            const int64_t t = syi_tau(&group->order, p, n), i = group->order.first[p] + n;
            const int32_t *choice = choices_of(group, t);
            if (brought)
                bring_token(&c, choice, i);
            if (local_reduce && c.best[position] >= i * group->n_slots)
                sends->rows[n_listed++] = reduced_pick(&c, position, t).row;
            for (int64_t k = 0; k < group->n_slots && !local_reduce; k++) {
                const struct syi_a2a_pick from = slot_pick(&c, choice[k], t);
                if (from.position == position)
                    sends->rows[n_listed++] = from.row;
            }
        }
    }
    sends->first[group->order.n_positions] = n_listed;
}

static void list_picks(const struct syi_a2a_group *group, const struct syi_a2a_pick *pick, int64_t n_home,
                       struct syi_a2a_lists *receives, bool fill)
{
    for (int64_t n = 0; n < n_home; n++)
        for (int64_t k = 0; k < group->n_slots; k++)
            if (pick[k * n_home + n].position >= 0)
                list_row(receives, pick[k * n_home + n].position, k * n_home + n, fill);
}

void syi_a2a_combine_receives(const struct syi_a2a_group *group, const struct syi_a2a_pick *pick,
                              int64_t n_home, struct syi_a2a_lists *receives)
{
    begin_lists(receives, group->order.n_positions);
    list_picks(group, pick, n_home, receives, false);
    sum_lists(receives, group->order.n_positions);
    list_picks(group, pick, n_home, receives, true);
    end_lists(receives, group->order.n_positions);
}
