/*
 * Which rows go where. Random problems (meshes, axes, layouts, orders, ragged counts, experts in several places and
 * in none, repeats, empty slots) against the definitions said again in loops over everything; and what one device
 * sends must be, row for row, what the other expects.
 */
#include "cpu/all_to_all.h"
#include "support.h"

enum { MOST_DEVICES = 9, MOST_EXPERTS = 8, MOST_SLOTS = 10, MOST_TOKENS = 100 };

/* A problem, as a caller sees it. */
struct problem {
    sy_mesh mesh;
    sy_axis axis;
    int n_positions, n_groups;
    int64_t n_experts, n_slots, batch, seq; /* per device; seq 0: ragged */
    bool interleaved, single;               /* concatenated along dimension 2; no expert twice in a group */
    sy_a2a_layout layout;
    int64_t align;
    uint16_t mapping[MOST_EXPERTS * MOST_DEVICES];
    int64_t first[MOST_DEVICES + 1];
    int64_t index[MOST_TOKENS * MOST_SLOTS]; /* by tau; -1: none */
};

/* A row on the experts' side: slot k of token n of position p. All -1: padding, or nobody's. */
struct row {
    int64_t p, n, k;
};

static int64_t tokens_at(const struct problem *x, int p)
{
    return x->first[p + 1] - x->first[p];
}

static int64_t tau_of(const struct problem *x, int64_t p, int64_t n)
{
    const int64_t b = x->seq > 0 ? n / x->seq : 0, s = x->seq > 0 ? n % x->seq : 0;
    return x->interleaved ? b * (x->n_positions * x->seq) + p * x->seq + s : x->first[p] + n;
}

static int device_of(const struct problem *x, int group, int p)
{
    const int device[] = {p, p * x->mesh.cols + group, group * x->mesh.cols + p};
    return device[x->axis];
}

static bool is_host(const struct problem *x, int device, int64_t e)
{
    return x->mapping[e * x->mesh.rows * x->mesh.cols + device] == 1;
}

/* The expert of a slot that counts, else -1. */
static int64_t live(const struct problem *x, int64_t p, int64_t n, int64_t k)
{
    const int64_t *index = x->index + tau_of(x, p, n) * x->n_slots;
    for (int64_t before = 0; before < k; before++)
        if (index[before] == index[k])
            return -1;
    return index[k];
}

/* The slot in which a token names an expert. */
static int64_t slot_of(const struct problem *x, int64_t p, int64_t n, int64_t e)
{
    for (int64_t k = 0; k < x->n_slots; k++)
        if (live(x, p, n, k) == e)
            return k;
    return -1;
}

static bool comes_to(const struct problem *x, int64_t p, int64_t n, int device)
{
    for (int64_t e = 0; e < x->n_experts; e++)
        if (is_host(x, device, e) && slot_of(x, p, n, e) >= 0)
            return true;
    return false;
}

static int64_t rows_by_expert(const struct problem *x, int device, struct row *rows)
{
    int64_t n_rows = 0;
    for (int64_t e = 0; e < x->n_experts; e++) {
        for (int p = 0; is_host(x, device, e) && p < x->n_positions; p++)
            for (int64_t n = 0; n < tokens_at(x, p); n++)
                if (slot_of(x, p, n, e) >= 0)
                    rows[n_rows++] = (struct row){p, n, slot_of(x, p, n, e)};
        while (n_rows % x->align != 0)
            rows[n_rows++] = (struct row){-1, -1, -1};
    }
    return n_rows;
}

/* All rows of a device in the layout. */
static int64_t rows_of(const struct problem *x, int device, struct row *rows)
{
    int64_t n_rows = 0;
    if (x->layout == SY_LAYOUT_EXPERT)
        return rows_by_expert(x, device, rows);
    for (int p = 0; p < x->n_positions; p++)
        for (int64_t n = 0; n < tokens_at(x, p); n++) {
            const bool comes = comes_to(x, p, n, device);
            if (x->layout == SY_LAYOUT_PADDED)
                rows[tau_of(x, p, n)] = comes ? (struct row){p, n, -1} : (struct row){-1, -1, -1};
            else if (comes)
                rows[n_rows++] = (struct row){p, n, -1};
        }
    return x->layout == SY_LAYOUT_PADDED ? x->first[x->n_positions] : n_rows;
}

/* ---- Problems ------------------------------------------------------------------------------------------ */

static void make_mapping(struct problem *x, uint64_t *rng)
{
    const int n_devices = x->mesh.rows * x->mesh.cols;
    const int64_t density = 1 + rng_below(rng, 4);
    for (int64_t i = 0; i < x->n_experts * n_devices; i++)
        x->mapping[i] = rng_below(rng, n_devices) < density;
    for (int64_t e = 0; e < x->n_experts && x->single; e++)
        for (int group = 0; group < x->n_groups; group++) {
            const int64_t holder = rng_below(rng, x->n_positions + 1); /* or none */
            for (int p = 0; p < x->n_positions; p++)
                x->mapping[e * n_devices + device_of(x, group, p)] = p == holder;
        }
}

static struct problem make_problem(uint64_t *rng)
{
    struct problem x = {.mesh = {(int)(1 + rng_below(rng, 3)), 1}};
    x.mesh.cols = (int)(1 + rng_below(rng, 3));
    x.axis = (sy_axis)rng_below(rng, 3);
    x.n_positions = syi_group_size(x.mesh, x.axis);
    x.n_groups = x.mesh.rows * x.mesh.cols / x.n_positions;
    x.n_experts = 1 + rng_below(rng, MOST_EXPERTS);
    x.n_slots = 1 + rng_below(rng, MOST_SLOTS);
    x.layout = (sy_a2a_layout)rng_below(rng, 3);
    x.align = 1 + rng_below(rng, 5);
    x.single = rng_below(rng, 2) == 0;
    const bool ragged = rng_below(rng, 3) == 0;
    x.batch = rng_below(rng, 4);
    x.seq = ragged ? 0 : 1 + rng_below(rng, 3);
    x.interleaved = !ragged && rng_below(rng, 2) == 0;
    for (int p = 0; p < x.n_positions; p++)
        x.first[p + 1] = x.first[p] + (ragged ? rng_below(rng, 6) : x.batch * x.seq);
    make_mapping(&x, rng);
    const int64_t none = rng_below(rng, 5); /* of so many */
    for (int64_t i = 0; i < x.first[x.n_positions] * x.n_slots; i++) {
        const bool is_none = none > 0 && rng_below(rng, none + 1) == 0;
        x.index[i] = is_none ? -1 : rng_below(rng, x.n_experts);
    }
    return x;
}

/* ---- The same problem, as the library reads it --------------------------------------------------------- */

struct work {
    struct problem x;
    struct syi_a2a_hosts hosts;
    struct syi_a2a_group group;
    void *memory, *indices;
    int32_t *choice;
    int64_t *counters;
};

static void read_indices(sy_ctx *ctx, struct work *w, uint64_t *rng)
{
    static const sy_type types[] = {SY_TYPE_U16, SY_TYPE_I32, SY_TYPE_I64};
    static const size_t bytes[] = {2, 4, 8};
    const struct problem *x = &w->x;
    const size_t type = (size_t)rng_below(rng, 3), gap = (size_t)rng_below(rng, 3);
    const int64_t n_tokens = x->first[x->n_positions],
                  stride = (x->n_slots + (int64_t)gap) * (int64_t)bytes[type];
    w->indices = buf_new((size_t)(n_tokens * stride), 1);
    for (int64_t t = 0; t < n_tokens; t++)
        for (int64_t k = 0; k < x->n_slots; k++)
            memcpy((char *)w->indices + t * stride + k * (int64_t)bytes[type], &x->index[t * x->n_slots + k],
                   bytes[type]); /* low bytes first */
    w->choice = buf_new((size_t)(n_tokens * x->n_slots) * sizeof *w->choice, 0);
    expect_status(ctx,
                  syi_a2a_read_choices(ctx, 0, (struct syi_rows){w->indices, stride}, types[type], n_tokens,
                                       x->n_slots, x->n_experts, false, w->choice),
                  SY_OK);
}

static void begin_work(sy_ctx *ctx, struct work *w, uint64_t *rng)
{
    *w = (struct work){.x = make_problem(rng)};
    const struct problem *x = &w->x;
    const int n_devices = x->mesh.rows * x->mesh.cols;
    struct syi_arena arena = {NULL, 0};
    syi_a2a_hosts_take(&arena, &w->hosts, x->n_experts, n_devices);
    w->memory = buf_new(arena.used, 0);
    arena = (struct syi_arena){w->memory, 0};
    syi_a2a_hosts_take(&arena, &w->hosts, x->n_experts, n_devices);
    const struct syi_rows mapping = {(unsigned char *)w->x.mapping, 2 * n_devices};
    expect_status(ctx, syi_a2a_read_hosts(ctx, &w->hosts, mapping, 1), SY_OK);
    read_indices(ctx, w, rng);
    w->counters = buf_new((size_t)(2 * (x->n_experts + x->n_positions)) * sizeof *w->counters, 0);
    w->group = (struct syi_a2a_group){
        .mesh = x->mesh,
        .axis = x->axis,
        .order = {x->n_positions, x->first, x->interleaved ? x->seq : 0},
        .n_slots = x->n_slots,
        .choice = w->choice,
        .layout = x->layout,
        .align = x->align,
    };
}

static void end_work(struct work *w)
{
    buf_free(w->memory);
    buf_free(w->indices);
    buf_free(w->choice);
    buf_free(w->counters);
}

static struct syi_a2a_lists lists_new(int n_positions, int64_t room)
{
    struct syi_a2a_lists lists;
    lists.first = buf_new((size_t)(n_positions + 1) * sizeof *lists.first, 0);
    lists.rows = buf_new((size_t)room * sizeof *lists.rows, 0);
    return lists;
}

static void lists_free(struct syi_a2a_lists *lists)
{
    buf_free(lists->first);
    buf_free(lists->rows);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- Dispatch ------------------------------------------------------------------------------------------ */

static struct syi_a2a_pick *dispatch_picks(struct work *w, int p, int64_t *n_rows, int32_t **slot)
{
    const int device = device_of(&w->x, w->group.index, p);
    const size_t n_local = (size_t)w->hosts.n_local[device];
    int64_t *counts = buf_new(n_local * sizeof *counts, 0);
    *n_rows = syi_a2a_expert_rows(&w->hosts, &w->group, p, counts, NULL);
    struct syi_a2a_pick *pick = buf_new((size_t)*n_rows * sizeof *pick, 0);
    *slot = w->x.layout == SY_LAYOUT_EXPERT ? buf_new((size_t)*n_rows * sizeof **slot, 0) : NULL;
    assert_int_equal(syi_a2a_dispatch_picks(&w->hosts, &w->group, p, pick, *slot, w->counters), *n_rows);
    buf_free(counts);
    return pick;
}

static void expect_rows(struct work *w, int p)
{
    static struct row rows[MOST_TOKENS * MOST_SLOTS * 2];
    const int device = device_of(&w->x, w->group.index, p);
    int64_t n_rows, most;
    int32_t *slot;
    struct syi_a2a_pick *pick = dispatch_picks(w, p, &n_rows, &slot);
    assert_int_equal(n_rows, rows_of(&w->x, device, rows));
    for (int64_t r = 0; r < n_rows; r++) {
        assert_int_equal(pick[r].position, rows[r].p);
        assert_int_equal(pick[r].row, rows[r].n);
        assert_true(slot == NULL || slot[r] == rows[r].k);
    }
    assert_true(syi_a2a_most_rows(w->x.first[w->x.n_positions], w->x.n_slots, w->hosts.n_local[device],
                                  w->x.layout, w->x.align, &most));
    assert_true(n_rows <= most);
    buf_free(pick);
    if (slot != NULL)
        buf_free(slot);
}

static void expect_counts(struct work *w, int p)
{
    const int device = device_of(&w->x, w->group.index, p);
    const int64_t n_local = w->hosts.n_local[device];
    int64_t *counts = buf_new((size_t)n_local * sizeof *counts, 0), l = 0, end = 0;
    int64_t *offsets = buf_new((size_t)(n_local + 1) * sizeof *offsets, 0);
    syi_a2a_expert_rows(&w->hosts, &w->group, p, counts, offsets);
    for (int64_t e = 0; e < w->x.n_experts; e++) {
        if (!is_host(&w->x, device, e)) {
            assert_int_equal(w->hosts.local[device * w->x.n_experts + e], -1);
            continue;
        }
        int64_t count = 0;
        for (int q = 0; q < w->x.n_positions; q++)
            for (int64_t n = 0; n < tokens_at(&w->x, q); n++)
                count += slot_of(&w->x, q, n, e) >= 0;
        assert_int_equal(w->hosts.local[device * w->x.n_experts + e], l);
        assert_int_equal(counts[l], count);
        assert_int_equal(offsets[l++], end);
        while (count % w->x.align != 0)
            count++;
        end += count;
    }
    assert_int_equal(n_local, l);
    assert_int_equal(offsets[l], end);
    buf_free(counts);
    buf_free(offsets);
}

/* What p sends to q, in order, is what q expects from p. */
static void expect_dispatch_pair(struct work *w, int p, int q, const struct syi_a2a_lists *sends)
{
    const struct problem *x = &w->x;
    const int device = device_of(x, w->group.index, q);
    int64_t n_rows, at = sends->first[q];
    int32_t *slot, *seen = buf_new((size_t)x->first[x->n_positions] * sizeof *seen, 0);
    struct syi_a2a_pick *pick = dispatch_picks(w, q, &n_rows, &slot);
    struct syi_a2a_lists receives = lists_new(x->n_positions, least(n_rows, x->first[x->n_positions]));
    syi_a2a_dispatch_receives(&w->group, pick, n_rows, &receives, seen);
    assert_int_equal(receives.first[p + 1] - receives.first[p], sends->first[q + 1] - sends->first[q]);
    for (int64_t n = 0, i = receives.first[p]; n < tokens_at(x, p); n++) {
        if (!comes_to(x, p, n, device)) {
            assert_int_equal(seen[x->first[p] + n], -1);
            continue;
        }
        assert_int_equal(sends->rows[at++], n);
        const int32_t r = receives.rows[i++];
        assert_int_equal(seen[x->first[p] + n], r);
        assert_int_equal(pick[r].position, p);
        assert_int_equal(pick[r].row, n);
        for (int64_t lower = 0; lower < r; lower++)
            assert_false(pick[lower].position == p && pick[lower].row == n);
    }
    assert_int_equal(at, sends->first[q + 1]);
    lists_free(&receives);
    buf_free(pick);
    buf_free(seen);
    if (slot != NULL)
        buf_free(slot);
}

static void dispatch_is_as_defined(void **state)
{
    sy_ctx *ctx = test_ctx(1, NULL);
    uint64_t rng = 11;
    (void)state;
    for (int round = 0; round < 1500; round++) {
        struct work w;
        begin_work(ctx, &w, &rng);
        for (w.group.index = 0; w.group.index < w.x.n_groups; w.group.index++)
            for (int p = 0; p < w.x.n_positions; p++) {
                expect_rows(&w, p);
                expect_counts(&w, p);
                struct syi_a2a_lists sends = lists_new(w.x.n_positions, tokens_at(&w.x, p) * w.x.n_positions);
                syi_a2a_dispatch_sends(&w.hosts, &w.group, p, &sends, w.counters);
                for (int q = 0; q < w.x.n_positions; q++)
                    expect_dispatch_pair(&w, p, q, &sends);
                lists_free(&sends);
            }
        end_work(&w);
    }
    sy_ctx_destroy(ctx);
}

/* ---- Combine ------------------------------------------------------------------------------------------- */

/* The row of position q that holds token n of p for expert e, or for all its experts with e < 0. */
static int64_t find_row(const struct problem *x, int group, int q, int64_t p, int64_t n, int64_t e)
{
    static struct row rows[MOST_TOKENS * MOST_SLOTS * 2];
    const int device = device_of(x, group, q);
    if (x->layout == SY_LAYOUT_PADDED) {
        int64_t place = 0;
        for (int64_t before = 0; before < e; before++)
            place += is_host(x, device, before);
        return place * x->first[x->n_positions] + tau_of(x, p, n);
    }
    const int64_t n_rows = rows_of(x, device, rows), k = e < 0 ? -1 : slot_of(x, p, n, e);
    for (int64_t r = 0; r < n_rows; r++)
        if (rows[r].p == p && rows[r].n == n && (x->layout == SY_LAYOUT_PACKED || rows[r].k == k))
            return r;
    fail_msg("no row on device %d", device);
    return -1;
}

/* Lowest position that hosts an expert. */
static int holder_of(const struct problem *x, int group, int64_t e)
{
    for (int q = 0; q < x->n_positions; q++)
        if (e >= 0 && is_host(x, device_of(x, group, q), e))
            return q;
    return -1;
}

/* Slot that the reduced row of position q goes to. */
static int64_t reduced_slot(const struct problem *x, int group, int q, int64_t p, int64_t n)
{
    for (int64_t e = 0; e < x->n_experts; e++)
        if (is_host(x, device_of(x, group, q), e) && slot_of(x, p, n, e) >= 0)
            return slot_of(x, p, n, e);
    return -1;
}

static void expect_slots(const struct work *w, int p, const struct syi_a2a_pick *pick)
{
    const struct problem *x = &w->x;
    for (int64_t n = 0; n < tokens_at(x, p); n++)
        for (int64_t k = 0; k < x->n_slots; k++) {
            const struct syi_a2a_pick got = pick[k * tokens_at(x, p) + n];
            const int64_t e = live(x, p, n, k);
            const int q = holder_of(x, w->group.index, e);
            assert_int_equal(got.position, q);
            if (q >= 0)
                assert_int_equal(got.row, find_row(x, w->group.index, q, p, n, e));
        }
}

static void expect_reduced(const struct work *w, int p, const struct syi_a2a_pick *pick, bool by_position)
{
    const struct problem *x = &w->x;
    const int64_t n_home = tokens_at(x, p);
    for (int64_t n = 0; n < n_home; n++) {
        int64_t n_found = 0, n_picks = 0;
        for (int q = 0; q < x->n_positions; q++) {
            const int64_t k = reduced_slot(x, w->group.index, q, p, n);
            if (k < 0)
                continue;
            const struct syi_a2a_pick got = pick[(by_position ? n_found : k) * n_home + n];
            assert_int_equal(got.position, q);
            assert_int_equal(got.row, find_row(x, w->group.index, q, p, n, -1));
            n_found++;
        }
        for (int64_t k = 0; k < x->n_slots; k++)
            n_picks += pick[k * n_home + n].position >= 0;
        assert_int_equal(n_picks, n_found);
    }
}

/* What holders send home, in order, is what the home expects of them, ordered by n and k. */
static void expect_returns(struct work *w, int p, const struct syi_a2a_pick *pick, bool reduced)
{
    const struct problem *x = &w->x;
    const int64_t n_home = tokens_at(x, p), n_tokens = x->first[x->n_positions];
    struct syi_a2a_lists receives = lists_new(x->n_positions, n_home * x->n_slots);
    syi_a2a_combine_receives(&w->group, pick, n_home, &receives);
    for (int q = 0; q < x->n_positions; q++) {
        const int64_t n_local = w->hosts.n_local[device_of(x, w->group.index, q)];
        struct syi_a2a_lists sends = lists_new(x->n_positions, n_tokens * least(x->n_slots, n_local));
        syi_a2a_combine_sends(&w->hosts, &w->group, q, reduced, &sends, w->counters);
        const int64_t n = sends.first[p + 1] - sends.first[p];
        const int32_t *sent = sends.rows + sends.first[p], *at = receives.rows + receives.first[q];
        assert_int_equal(receives.first[q + 1] - receives.first[q], n);
        for (int64_t i = 0; i < n; i++) {
            assert_int_equal(pick[at[i]].position, q);
            assert_int_equal(pick[at[i]].row, sent[i]);
            if (i > 0)
                assert_true(at[i] % n_home * x->n_slots + at[i] / n_home >
                            at[i - 1] % n_home * x->n_slots + at[i - 1] / n_home);
        }
        lists_free(&sends);
    }
    int64_t n_picks = 0;
    for (int64_t i = 0; i < n_home * x->n_slots; i++)
        n_picks += pick[i].position >= 0;
    assert_int_equal(receives.first[x->n_positions], n_picks);
    lists_free(&receives);
}

/* PACKED without reduction is for devices with one expert. */
static bool one_expert_each(const struct work *w)
{
    for (int d = 0; d < w->hosts.n_devices; d++)
        if (w->hosts.n_local[d] > 1)
            return false;
    return true;
}

static void combine_is_as_defined(void **state)
{
    sy_ctx *ctx = test_ctx(1, NULL);
    uint64_t rng = 12;
    int n_slots = 0, n_packed = 0, n_reduced = 0;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        struct work w;
        begin_work(ctx, &w, &rng);
        const bool slots = w.x.layout != SY_LAYOUT_PACKED || one_expert_each(&w);
        const bool reduced = w.x.single && w.x.layout != SY_LAYOUT_EXPERT;
        n_slots += slots;
        n_packed += slots && w.x.layout == SY_LAYOUT_PACKED;
        n_reduced += reduced;
        for (w.group.index = 0; w.group.index < w.x.n_groups; w.group.index++)
            for (int p = 0; p < w.x.n_positions; p++) {
                struct syi_a2a_pick *pick =
                    buf_new((size_t)(tokens_at(&w.x, p) * w.x.n_slots) * sizeof *pick, 0);
                if (slots) {
                    syi_a2a_combine_picks(&w.hosts, &w.group, p, false, false, pick, w.counters);
                    expect_slots(&w, p, pick);
                    expect_returns(&w, p, pick, false);
                }
                for (int by_position = 0; reduced && by_position < 2; by_position++) {
                    syi_a2a_combine_picks(&w.hosts, &w.group, p, true, by_position == 1, pick, w.counters);
                    expect_reduced(&w, p, pick, by_position == 1);
                    expect_returns(&w, p, pick, true);
                }
                buf_free(pick);
            }
        end_work(&w);
    }
    assert_true(n_slots > 500 && n_packed > 50 && n_reduced > 500);
    sy_ctx_destroy(ctx);
}

/* ---- The most rows -------------------------------------------------------------------------------------- */

/* Tries all ways in which tokens from t on can choose at most k of the experts. */
static int64_t most_by_trying(int64_t *counts, int64_t n_left, int64_t k, int64_t n_local, int64_t align)
{
    int64_t most = 0;
    if (n_left == 0) {
        for (int64_t l = 0; l < n_local; l++)
            most += (counts[l] + align - 1) / align * align;
        return most;
    }
    for (unsigned chosen = 0; chosen < 1u << n_local; chosen++) {
        if (__builtin_popcount(chosen) > k)
            continue;
        for (int64_t l = 0; l < n_local; l++)
            counts[l] += chosen >> l & 1;
        const int64_t rows = most_by_trying(counts, n_left - 1, k, n_local, align);
        most = rows > most ? rows : most;
        for (int64_t l = 0; l < n_local; l++)
            counts[l] -= chosen >> l & 1;
    }
    return most;
}

static void most_rows_is_what_can_happen(void **state)
{
    int64_t counts[4] = {0}, rows;
    (void)state;
    for (int64_t t = 0; t <= 4; t++)
        for (int64_t k = 1; k <= 4; k++)
            for (int64_t l = 0; l <= 4; l++)
                for (int64_t align = 1; align <= 4; align++) {
                    assert_true(syi_a2a_most_rows(t, k, l, SY_LAYOUT_EXPERT, align, &rows));
                    assert_int_equal(rows, most_by_trying(counts, t, k, l, align));
                    assert_true(syi_a2a_most_rows(t, k, l, SY_LAYOUT_PACKED, align, &rows));
                    assert_int_equal(rows, l > 0 ? t : 0);
                    assert_true(syi_a2a_most_rows(t, k, l, SY_LAYOUT_PADDED, align, &rows));
                    assert_int_equal(rows, t);
                }
    const int64_t huge[] = {INT64_C(1) << 31, INT64_C(1) << 40, INT64_MAX};
    for (size_t i = 0; i < COUNT_OF(huge); i++) {
        assert_false(syi_a2a_most_rows(huge[i], 1, 1, SY_LAYOUT_PADDED, 1, &rows));
        assert_false(syi_a2a_most_rows(huge[i], 1, 1, SY_LAYOUT_PACKED, 1, &rows));
        assert_false(syi_a2a_most_rows(huge[i], INT64_MAX, 65535, SY_LAYOUT_EXPERT, 1, &rows));
        assert_false(syi_a2a_most_rows(7, 2, 65535, SY_LAYOUT_EXPERT, huge[i], &rows));
        assert_true(syi_a2a_most_rows(7, huge[i], 3, SY_LAYOUT_EXPERT, 1, &rows));
        assert_int_equal(rows, 21);
    }
    assert_true(syi_a2a_most_rows(INT32_MAX, 1, 1, SY_LAYOUT_EXPERT, 1, &rows));
}

static void hash_sees_every_byte(void **state)
{
    unsigned char bytes[64];
    uint64_t rng = 3;
    (void)state;
    rng_fill(&rng, bytes, sizeof bytes);
    const struct syi_rows rows = {bytes, 20};
    const uint64_t hash = syi_a2a_hash(1, rows, 3, 19);
    for (size_t i = 0; i < 60; i++) {
        bytes[i] ^= 1;
        assert_true((syi_a2a_hash(1, rows, 3, 19) != hash) ==
                    (i % 20 != 19)); /* not what lies between rows */
        bytes[i] ^= 1;
    }
    assert_true(syi_a2a_hash(2, rows, 3, 19) != hash);
    assert_true(syi_a2a_hash(1, rows, 2, 19) != hash);
    assert_true(syi_a2a_hash(1, rows, 0, 19) != syi_a2a_hash(1, rows, 19, 0));
}

int main(void)
{
    struct test_list list = {NULL, 0, 0};
    test_add(&list, "dispatch is as defined", dispatch_is_as_defined, NULL);
    test_add(&list, "combine is as defined", combine_is_as_defined, NULL);
    test_add(&list, "most_rows is what can happen", most_rows_is_what_can_happen, NULL);
    test_add(&list, "the hash sees every byte", hash_sees_every_byte, NULL);
    return test_run(&list, "all_to_all_lists");
}
