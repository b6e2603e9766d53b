/*
 * From choices to rows, for all_to_all.cu alone: choices of all tokens are validated and ranked (rank.cuh),
 * one block turns their counts into rows and validates that they fit.
 */
#pragma once

#include "cuda/exchange/all_to_all.cuh"
#include "cuda/prim/block.cuh"
#include "cuda/prim/rank.cuh"

enum { FIELD = 1, THREADS = 256, SETTLE_THREADS = SYC_BLOCK_WARPS * 32 };
enum { BUILD = 1, FINISH = 2 };

static const u64 AFTER_CHOICES = 1ull << 62; /* order of faults that are found later */

/* ---- Choices ---- */

/* Rows of choices are aligned to their type, or loaded by functions out of line: that is rare. */
SYC_COLD int64_t load_any_choice(const u8 *row, int64_t k, sy_type type)
{
    if (type != SY_TYPE_U16)
        return syc_index(row, k, type);
    const u16 value = syc_load<u16>(row + 2 * k);
    return value == 0xffffu ? -1 : (int64_t)value;
}

/* Slot of the row that names the expert of slot k first. */
SYC_COLD int64_t first_any_slot(const u8 *row, int64_t k, int64_t e, sy_type type)
{
    int64_t before = 0;
    while (before < k && load_any_choice(row, before, type) != e)
        before++;
    return before;
}

/* The expert of slot k of an aligned row; -1: none, out of range, or named before. Several slots are loaded
   at a time. No expert has the number that stands for none, of any type. */
template <typename V> SYC_INLINE int live_choice(const V *row, int k, int n_experts)
{
    enum { AHEAD = 4 };
    const V e = row[k];
    bool again = (u64)e >= (u64)n_experts;
#pragma unroll 1
    for (int first = 0; first < k && !again; first += AHEAD) {
        V held[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            held[i] = row[min(first + i, k)];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            again |= first + i < k && held[i] == e;
    }
    return again ? -1 : (int)e;
}

/* What is wrong with a choice: nothing, or the fault. */
SYC_COLD bool bad_choice(const u8 *row, int64_t n, int64_t k, int64_t n_experts, bool strict, sy_type type,
                         syi_found *f)
{
    const int64_t e = load_any_choice(row, k, type);
    const bool range = e < -1 || e >= n_experts;
    const int64_t before = strict && !range && e >= 0 ? first_any_slot(row, k, e, type) : k;
    if (!range && before == k)
        return false;
    *f = range ? syi_bad_at(type == SY_TYPE_U16 ? SYI_BAD_CHOICE_U16 : SYI_BAD_CHOICE, n, k, e, n_experts)
               : syi_bad_at(SYI_BAD_CHOICE_TWICE, n, k, e, before);
    f->field = FIELD;
    return true;
}

struct choices;
SYC_COLD bool fault_of(const choices &c, int64_t i, syi_found *f);

/*
 * The choices of all tokens: keys are the experts of each group. In a combine they come from the first table
 * of the group, and are validated by `tables`. Elements and tokens are below 2^31. Its code is long enough,
 * so it is inlined once: a thread has one element.
 */
struct choices {
    enum { EACH = 1 };
    int64_t n, n_choices;
    int n_keys, first_visit, n_devices, n_positions; /* keys of choices are below first_visit */
    int n_slots, n_experts, interleave;
    syc_divisor by_slots, by_run, by_tokens;
    syc_hosted hosted;
    sy_mesh mesh;
    sy_axis axis;
    sy_type type;
    bool combine, strict, aligned;
    const syi_a2a_device *more;
    syi_rows rows[SYC_FEW_DEVICES];
    int first[SYC_FEW_DEVICES], before[SYC_FEW_DEVICES];

    __device__ int first_of(int d) const { return more != NULL ? (int)more[d].first : first[d]; }
    __device__ int before_of(int d) const { return more != NULL ? (int)more[d].before : before[d]; }
    __device__ int device_of(int t) const
    {
        int low = 0;
        if (more != NULL) {
#pragma unroll 1
            for (int high = n_devices; high - low > 1;) {
                const int middle = (low + high) / 2;
                if (more[middle].first <= t)
                    low = middle;
                else
                    high = middle;
            }
            return low;
        }
#pragma unroll
        for (int d = 1; d < SYC_FEW_DEVICES; d++)
            low += d < n_devices && first[d] <= t;
        return low;
    }
    /* The choices of token t of device d, which is token n there. */
    __device__ const u8 *row_of(int t, int d, int *n) const
    {
        int row = *n = t - first_of(d);
        if (combine) {
            row += before_of(d);
            if (interleave > 0) {
                const int run = (int)syc_divide((u32)*n, by_run);
                row = run * (n_positions * interleave) + syi_position_of(mesh, axis, d) * interleave + *n -
                      run * interleave;
            }
            d = syi_device_at(mesh, axis, syi_group_of(mesh, axis, d), 0);
        }
        return syc_row(more != NULL ? more[d].indices : rows[d], row);
    }
    /* What slot k names. */
    __device__ __forceinline__ int64_t named(const u8 *row, int k) const
    {
        if (!aligned)
            return load_any_choice(row, k, type);
        return type == SY_TYPE_U16   ? ((const u16 *)row)[k]
               : type == SY_TYPE_I32 ? ((const int32_t *)row)[k]
                                     : ((const int64_t *)row)[k];
    }
    /* The same, -1 for an expert that was named before. */
    __device__ __forceinline__ int expert(const u8 *row, int k) const
    {
        if (aligned && type == SY_TYPE_U16)
            return live_choice((const u16 *)row, k, n_experts);
        if (aligned && type == SY_TYPE_I32)
            return live_choice((const u32 *)row, k, n_experts);
        if (aligned)
            return live_choice((const u64 *)row, k, n_experts);
        const int64_t e = load_any_choice(row, k, type);
        return e < 0 || e >= n_experts || first_any_slot(row, k, e, type) < k ? -1 : (int)e; /* of 64 bits */
    }
    __device__ __forceinline__ int key(int64_t i) const
    {
        int n;
        const int t = (int)syc_divide((u32)i, by_slots), d = device_of(t);
        const int e = expert(row_of(t, d, &n), (int)i - t * n_slots);
        return e < 0 ? -1 : syi_group_of(mesh, axis, d) * n_experts + e;
    }
    template <typename C> __device__ const C *counts_of_visits(const C *counts) const
    {
        return n > n_choices ? counts + first_visit : NULL;
    }
    __device__ __forceinline__ bool wrong(int64_t i) const
    {
        syi_found f;
        return !combine && i < n_choices && fault_of(*this, i, &f);
    }
    __device__ void explain(int64_t i, syi_found *f) const
    {
        fault_of(*this, i, f);
    }
};

SYC_COLD bool fault_of(const choices &c, int64_t i, syi_found *f)
{
    int n;
    const int t = (int)syc_divide((u32)i, c.by_slots), d = c.device_of(t);
    const u8 *const row = c.row_of(t, d, &n);
    if (!bad_choice(row, n, (int)i - t * c.n_slots, c.n_experts, c.strict, c.type, f))
        return false;
    f->device = d + 1;
    return true;
}

/* PACKED: choices, then visits, element q * tokens + t, whose keys are the devices that token t is sent to at
   position q. A type of its own: code that finds visits would slow down the kernels of other layouts. */
struct choices_and_visits : choices {
    template <typename V> __device__ __forceinline__ bool hits(const V *row, int d) const
    {
        enum { AHEAD = 4 };
        bool hit = false;
#pragma unroll 1
        for (int first = 0; first < n_slots && !hit; first += AHEAD) {
            V e[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                e[u] = row[min(first + u, n_slots - 1)];
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                hit |= (u64)e[u] < (u64)n_experts &&
                       (hosted.word(d, (int)e[u] / 32) >> ((int)e[u] % 32) & 1) != 0;
        }
        return hit;
    }
    __device__ bool visits(const u8 *row, int d) const
    {
        if (aligned && type == SY_TYPE_U16)
            return hits((const u16 *)row, d);
        if (aligned && type == SY_TYPE_I32)
            return hits((const u32 *)row, d);
        if (aligned)
            return hits((const u64 *)row, d);
        bool hit = false;
#pragma unroll 1
        for (int k = 0; k < n_slots && !hit; k++) {
            const int64_t e = named(row, k);
            hit = e >= 0 && e < n_experts && (hosted.word(d, (int)e / 32) >> ((int)e % 32) & 1) != 0;
        }
        return hit;
    }
    __device__ __forceinline__ int key_of_visit(int i) const
    {
        int n;
        const int q = (int)syc_divide((u32)i, by_tokens), t = i - q * (int)by_tokens.d;
        const int own = device_of(t), d = syi_device_at(mesh, axis, syi_group_of(mesh, axis, own), q);
        return visits(row_of(t, own, &n), d) ? first_visit + d : -1;
    }
    __device__ __forceinline__ int key(int64_t i) const
    {
        return i < n_choices ? choices::key(i) : key_of_visit((int)(i - n_choices));
    }
};

/* With a rule for replicas, but for BALANCED: keys are pairs of an expert and a host, then visits to the
   hosts of pairs. */
struct choices_served : choices {
    syi_a2a_rule rule;
    syi_a2a_pairs pairs;
    __device__ __forceinline__ int pair_of(int t, int d, int e) const
    {
        return syi_pair_of(rule, &pairs, mesh, axis, e, syi_group_of(mesh, axis, d),
                           syi_position_of(mesh, axis, d), (u32)(before_of(d) + t - first_of(d)), 0);
    }
    /* The pairs of a token's slots have equal hosts if their experts are equal: experts that were named
       before count as well. */
    __device__ __forceinline__ bool visits(const u8 *row, int t, int own, int d) const
    {
        enum { AHEAD = 4 };
        bool hit = false;
#pragma unroll 1
        for (int first = 0; first < n_slots && !hit; first += AHEAD) {
            int pair[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const int64_t e = named(row, min(first + u, n_slots - 1));
                pair[u] = e < 0 || e >= n_experts ? -1 : pair_of(t, own, (int)e);
            }
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                hit |= pair[u] >= 0 && pairs.device[pair[u]] == d;
        }
        return hit;
    }
    __device__ __forceinline__ int key(int64_t i) const
    {
        int n;
        const bool visit = i >= n_choices;
        const u32 v = (u32)(visit ? i - n_choices : i), part = syc_divide(v, visit ? by_tokens : by_slots);
        const int t = visit ? (int)(v - part * by_tokens.d) : (int)part, own = device_of(t);
        const u8 *const row = row_of(t, own, &n);
        if (visit) {
            const int d = syi_device_at(mesh, axis, syi_group_of(mesh, axis, own), (int)part);
            return visits(row, t, own, d) ? first_visit + d : -1;
        }
        const int e = expert(row, (int)i - t * n_slots);
        return e < 0 ? -1 : pair_of(t, own, e);
    }
};

struct ranked {
    syc_leads leads;
    int n_experts, first_visit, n_positions;
    int64_t n_choices;
    syc_divisor by_tokens;
    enum { COUNTS_FROM_FIRST };
    __device__ int32_t *visit(int64_t i) const
    {
        const u32 v = (u32)(i - n_choices), q = syc_divide(v, by_tokens), t = v - q * by_tokens.d;
        return leads.packed + (int64_t)t * n_positions + q;
    }
    __device__ void put(int64_t i, int key, int64_t row) const
    {
        if (i >= n_choices) {
            *visit(i) = (int32_t)row;
            return;
        }
        leads.choice[i] = key - key / n_experts * n_experts;
        leads.rank[i] = (int32_t)row;
    }
    __device__ void skip(int64_t i) const { *(i < n_choices ? leads.choice + i : visit(i)) = -1; }
    __device__ void begin(int key, u32, u32 count) const
    {
        if (key < first_visit)
            leads.count[key] = (int32_t)count;
        else
            leads.need[key - first_visit] = {(int64_t)count, -1};
    }
    __device__ void end(u32) const {}
};

/* With a rule for replicas: what choices name, pairs, is stored first and ranked then. BALANCED: choice
   number r of an expert is served by replica r mod n, and r div n come before it there; so experts of each
   group are ranked. */
struct served {
    syi_a2a_rule rule;
    syi_a2a_pairs pairs;
    int n_experts;
    int32_t *keys; /* [n] */
};

static __global__ void __launch_bounds__(THREADS)
    serve(const __grid_constant__ choices from, const __grid_constant__ served to)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= from.n)
        return;
    const int key = from.key(i);
    int pair = -1;
    if (key >= 0) {
        const int t = (int)syc_divide((u32)i, from.by_slots), d = from.device_of(t),
                  group = key / to.n_experts;
        pair = syi_pair_of(to.rule, &to.pairs, from.mesh, from.axis, key - group * to.n_experts, group,
                           syi_position_of(from.mesh, from.axis, d),
                           (u32)(from.before_of(d) + t - from.first_of(d)), 0);
    }
    to.keys[i] = pair >= 0 && to.rule.replica == SY_A2A_REPLICA_BALANCED ? key : pair;
}

struct served_keys {
    int64_t n;
    int n_keys;
    const int32_t *keys;
    __device__ int key(int64_t i) const { return keys[i]; }
    __device__ bool wrong(int64_t) const { return false; }
    __device__ void explain(int64_t, syi_found *) const {}
};

struct ranked_pairs {
    syc_leads leads;
    served of;
    enum { COUNTS_FROM_FIRST };
    __device__ bool turns() const { return of.rule.replica == SY_A2A_REPLICA_BALANCED; }
    __device__ const int32_t *begin_of(int key) const
    {
        const int group = key / of.n_experts;
        return of.pairs.begin + (key - group * of.n_experts) * of.pairs.n_groups + group;
    }
    __device__ void put(int64_t i, int key, int64_t row) const
    {
        u32 r = 0, before = (u32)row;
        if (turns()) {
            const int32_t *const begin = begin_of(key);
            const u32 n = (u32)(begin[1] - begin[0]);
            before = (u32)row / n;
            r = (u32)row - before * n;
            key = begin[0];
        }
        leads.choice[i] = key + (int32_t)r;
        leads.rank[i] = (int32_t)before;
    }
    __device__ void skip(int64_t i) const { leads.choice[i] = -1; }
    __device__ void begin(int key, u32, u32 count) const
    {
        const int32_t *const begin = turns() ? begin_of(key) : NULL;
        const int first = turns() ? begin[0] : key;
        const u32 n = turns() ? (u32)(begin[1] - first) : 1;
#pragma unroll 1
        for (u32 r = 0; r < n; r++)
            leads.count[first + (int)r] = (int32_t)((count + n - 1 - r) / n);
    }
    __device__ void end(u32) const {}
};

/* The same visits by themselves, for choices of other kinds. Choices may be left over from another call if
   there was a fault. */
struct visits {
    int64_t n;
    int n_keys;
    int64_t n_slots, n_experts, n_positions;
    syc_split by_positions;
    choices tokens;
    syc_leads leads;
    __device__ int key(int64_t i) const
    {
        const int64_t t = syc_quotient(i, by_positions);
        const int own = tokens.device_of((int)t), group = syi_group_of(tokens.mesh, tokens.axis, own);
        const int d = syi_device_at(tokens.mesh, tokens.axis, group, (int)(i - t * n_positions));
#pragma unroll 1
        for (int64_t k = 0; k < n_slots; k++) {
            const int32_t e = leads.choice[t * n_slots + k];
            if (e >= 0 && e < n_experts && leads.first[d * n_experts + e] >= 0)
                return d;
        }
        return -1;
    }
    __device__ bool wrong(int64_t) const
    {
        return false;
    }
    __device__ void explain(int64_t, syi_found *) const {}
};

struct packed {
    syc_leads leads;
    enum { COUNTS_FROM_FIRST };
    __device__ void put(int64_t i, int, int64_t row) const { leads.packed[i] = (int32_t)row; }
    __device__ void skip(int64_t i) const { leads.packed[i] = -1; }
    __device__ void begin(int key, u32, u32 count) const { leads.need[key] = {(int64_t)count, -1}; }
    __device__ void end(u32) const {}
};

struct tables;
SYC_COLD void explain_row(const tables &t, int64_t i, syi_found *f);

/* Combine without a routing: every device has a table of all choices of its group. Its rows are validated,
   then compared with those of the first device of the group. */
struct tables {
    int64_t n, n_rows; /* two items for each row of all tables */
    int64_t n_slots, n_experts;
    int n_devices;
    sy_mesh mesh;
    sy_axis axis;
    sy_type type;
    bool strict;
    int64_t number, row_bytes; /* of the call, for the sentence */
    const syi_a2a_device *more;
    syi_rows rows[SYC_FEW_DEVICES];
    int64_t first[SYC_FEW_DEVICES], tokens[SYC_FEW_DEVICES];

    __device__ int64_t first_of(int d) const { return more != NULL ? more[d].table_first : first[d]; }
    __device__ syi_rows rows_of(int d) const { return more != NULL ? more[d].indices : rows[d]; }
    __device__ int64_t tokens_of(int d) const { return more != NULL ? more[d].n_tokens : tokens[d]; }
    __device__ bool fault(int64_t i, syi_found *f) const
    {
        const int64_t r = i < n_rows ? i : i - n_rows;
        int d = 0;
#pragma unroll 1
        while (d + 1 < n_devices && first_of(d + 1) <= r)
            d++;
        const int64_t n = r - first_of(d);
        const u8 *const row = syc_row(rows_of(d), n);
        if (i < n_rows) {
#pragma unroll 1
            for (int64_t k = 0; k < n_slots; k++)
                if (bad_choice(row, n, k, n_experts, strict, type, f)) {
                    f->device = d + 1;
                    return true;
                }
            return false;
        }
        const int lead = syi_device_at(mesh, axis, syi_group_of(mesh, axis, d), 0);
        const u8 *const same = syc_row(rows_of(lead), n);
#pragma unroll 1
        for (int64_t k = 0; k < n_slots; k++)
            if (load_any_choice(row, k, type) != load_any_choice(same, k, type)) {
                *f = syi_bad_tables(
                    d, lead,
                    {tokens_of(d), tokens_of(lead), number, n_slots, row_bytes, (int)n_experts, (int)axis});
                return true;
            }
        return false;
    }
    __device__ bool wrong(int64_t i) const
    {
        syi_found f;
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, syi_found *f) const
    {
        explain_row(*this, i, f);
    }
};

SYC_COLD void explain_row(const tables &t, int64_t i, syi_found *f)
{
    t.fault(i, f);
}

/* ---- Rows of experts ---- */

/* Calls f(e, has, place) for the experts of a device in order, by a warp. `has` is false for lanes without
   one. */
template <class F> SYC_INLINE void each_expert(const syc_team &m, const syc_hosted &hosted, int d, const F &f)
{
    int place = 0;
#pragma unroll 1
    for (int64_t e = syc_lane(); e - syc_lane() < m.n_experts; e += 32) {
        const u32 word = hosted.word(d, e / 32);
        f(e, (word >> syc_lane() & 1) != 0, place + __popc(word & ((1u << syc_lane()) - 1u)));
        place += __popc(word);
    }
}

/* The order of faults: of an expert of a device; after them that of its rows, e is the number of experts. */
SYC_INLINE u64 order_of_rows(const syc_team &m, int d, int64_t e)
{
    return AFTER_CHOICES + 1 + (u64)d * (u64)(m.n_experts + 1) + (u64)e;
}

/* Where the rows of every expert begin on its devices, and its first holder. counts: [groups][E], in any
   memory; visits: [D], or NULL. Returns the first fault of rows that this thread sees. */
/* NOLINT(readability-function-size): experts, devices and visits are one pass: its sums go on */
template <typename C>
SYC_INLINE u64 build(const syc_team &m, const syc_hosted &hosted, const C *counts, const C *visits)
{
    u64 bad = SYC_NO_FAULT;
    const syc_leads &to = m.leads;
    const int64_t experts = m.n_experts;
    const u32 align = (u32)m.align;
    const int all = (m.paired ? 1 : m.n_groups) * (int)experts;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < all; i += SETTLE_THREADS)
        to.holder[i] = ~0ull;
    __syncthreads();
#pragma unroll 1
    for (int d = syc_warp(); d < m.n_devices; d += SYC_BLOCK_WARPS) {
        const int group = syi_group_of(m.mesh, m.axis, d);
        /* the first expert of `fixed` ones that has too many rows, and how many */
        u32 row = 0, over = ~0u, most = 0;
        each_expert(m, hosted, d, [&](int64_t e, bool has, int place) {
            if (!__any_sync(SYC_ALL_LANES, has)) { /* most words of a device have no expert */
                if (e < experts)
                    to.first[d * experts + e] = -1;
                return;
            }
            const u32 count = has ? (u32)counts[m.key_of(group, e)] : 0;
            const u32 own = m.fixed      ? (has ? align : 0)
                            : align == 1 ? count
                                         : (count + align - 1) / align * align;
            if (m.fixed && count > align && over == ~0u) {
                over = (u32)e;
                most = count;
            }
            u32 sum = own;
#pragma unroll
            for (int i = 1; i < 32; i *= 2) {
                const u32 up = __shfl_up_sync(SYC_ALL_LANES, sum, (unsigned)i);
                sum += syc_lane() >= i ? up : 0;
            }
            const int32_t first = !has                           ? -1
                                  : m.layout == SY_LAYOUT_EXPERT ? (int32_t)(row + sum - own)
                                                                 : place;
            if (e < experts)
                to.first[d * experts + e] = first;
            if (has && m.single)
                to.holder[m.key_of(group, e)] = syc_spot(d, first);
            row += __shfl_sync(SYC_ALL_LANES, sum, 31);
        });
        row = visits != NULL ? (u32)visits[d] : row;
        if (m.fixed) {
            const u32 least = ~__reduce_max_sync(SYC_ALL_LANES, ~over);
            if (least != ~0u && least == over) {
                to.need[d] = {(int64_t)most, (int64_t)over};
                bad = min(bad, order_of_rows(m, d, over));
            }
            if (least != ~0u)
                continue;
        }
        if (syc_lane() != 0 || (m.layout != SY_LAYOUT_EXPERT && visits == NULL))
            continue;
        to.need[d] = {(int64_t)row, -1};
        if (row > m.device(d).capacity)
            bad = min(bad, order_of_rows(m, d, experts));
    }
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < all && !m.single; i += SETTLE_THREADS) {
        const int group = i / (int)experts, e = i - group * (int)experts;
#pragma unroll 1
        for (int q = m.n_positions - 1; q >= 0; q--) {
            const int d = syi_device_at(m.mesh, m.axis, group, q);
            if ((hosted.word(d, e / 32) >> (e % 32) & 1) != 0)
                to.holder[i] = syc_spot(d, to.first[d * experts + e]);
        }
    }
    return bad;
}

SYC_INLINE void explain_rows(const syc_team &m, u64 order, syi_found *f)
{
    if (order == AFTER_CHOICES) {
        *f = syi_bad_at(SYI_BAD_ROUTING_EMPTY, -1, -1, 0, 0);
        return;
    }
    const int d = (int)((int64_t)(order - AFTER_CHOICES - 1) / (m.n_experts + 1));
    const syi_row_count need = m.leads.need[d];
    if (need.overfull >= 0) {
        int64_t e = m.begins == NULL ? need.overfull : 0;
        while (m.begins != NULL && m.begins[(e + 1) * m.n_groups] <= need.overfull) /* the expert of a pair */
            e++;
        *f = syi_bad_at(SYI_BAD_EXPERT_ROWS, e, -1, m.align, need.rows);
        f->device = d + 1;
        return;
    }
    *f = syi_bad_at(m.combine ? SYI_BAD_INPUT_SHORT : SYI_BAD_TOKENS_SHORT, -1, -1, m.device(d).capacity,
                    need.rows);
    f->device = d + 1;
}

/* What is wrong with the routing, or with the rows of a device: the first that this thread sees. */
SYC_INLINE u64 bad_rows(const syc_team &m)
{
    if (m.routed && threadIdx.x == 0 && __ldcg(m.leads.number) != m.number)
        return AFTER_CHOICES;
#pragma unroll 1
    for (int d = (int)threadIdx.x; d < m.n_devices && m.layout != SY_LAYOUT_PADDED; d += (int)blockDim.x)
        if (m.leads.need[d].overfull < 0 && m.leads.need[d].rows > m.device(d).capacity)
            return order_of_rows(m, d, m.n_experts);
    return SYC_NO_FAULT;
}

/* The first fault of choices, for the host. */
SYC_COLD void report_choices(syi_found *to, const syc_gate &gate)
{
    u64 least = SYC_NO_FAULT;
    for (int i = 0; i < gate.n; i++)
        if (__ldcg(gate.order + i) < least) {
            least = __ldcg(gate.order + i);
            *to = gate.found[i];
        }
}

/*
 * One block between choices and rows. BUILD: where rows begin. FINISH: whether they fit, and whether the
 * routing is the one that the host knows: one more word of the gate; then the routing is filled. stop: there
 * was a fault.
 */
template <typename C>
SYC_INLINE void settle_block(const syc_team &m, const syc_hosted &hosted, const C *counts, const C *visits,
                             int steps, bool stop, const syc_gate &gate)
{
    __shared__ u64 found;
    u64 own = SYC_NO_FAULT, number = m.number;
    if (threadIdx.x == 0)
        found = SYC_NO_FAULT;
    if (threadIdx.x == 0 && m.row_counts != NULL) /* early: it is in memory of the host */
        number = *(const volatile u64 *)&m.row_counts->number;
    if (!stop && (steps & BUILD) != 0)
        own = build(m, hosted, counts, visits);
    __syncthreads();
    if ((steps & FINISH) == 0)
        return;
    if (!stop && (steps & BUILD) == 0)
        own = bad_rows(m);
    if (own != SYC_NO_FAULT)
        atomicMin(&found, own);
#pragma unroll 1
    for (int d = (int)threadIdx.x; m.row_counts != NULL && d < m.n_devices && m.layout != SY_LAYOUT_PADDED;
         d += (int)blockDim.x)
        syi_row_counts_of(m.row_counts)[d] = m.leads.need[d];
    __syncthreads();
    if (threadIdx.x == 0) {
        if (m.row_counts != NULL && stop)
            report_choices(&m.row_counts->found, gate);
        else if (m.row_counts != NULL)
            m.row_counts->found.bad = SYI_GOOD;
        gate.order[gate.n] = found;
        if (found != SYC_NO_FAULT)
            explain_rows(m, found, &gate.found[gate.n]);
        /* a replay has the number of the one before it: a routing that was not made must not keep it */
        if (!m.routed)
            *m.leads.number = !stop && found == SYC_NO_FAULT ? number : 0;
    }
}

static __global__ void __launch_bounds__(SETTLE_THREADS)
    settle(const __grid_constant__ syc_team m, const __grid_constant__ syc_hosted hosted, int steps,
           const __grid_constant__ syc_gate gate)
{
    syc_start_next();
    syc_wait_for_previous();
    settle_block(m, hosted, m.leads.count, (const int32_t *)NULL, steps,
                 __syncthreads_or(syc_sees_fault(gate)) != 0, gate);
}

/* The same in the kernels that rank choices: few of them by one block, many beside those that place them. */
template <class Choices>
static __global__ void __launch_bounds__(SYC_RANK_THREADS)
    rank_and_settle(const __grid_constant__ Choices keys, const __grid_constant__ ranked out,
                    const __grid_constant__ syc_team m, int steps, const __grid_constant__ syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u32, counts);
    const bool good = syc_rank_all(keys, out, gate);
    __syncthreads();
    for (int e = (int)threadIdx.x; e < keys.n_keys && good; e += SYC_RANK_THREADS)
        counts[e] =
            e < keys.first_visit ? (u32)m.leads.count[e] : (u32)m.leads.need[e - keys.first_visit].rows;
    __syncthreads();
    settle_block(m, keys.hosted, counts, keys.counts_of_visits(counts), steps, !good, gate);
}

template <class Choices>
static __global__ void __launch_bounds__(SYC_RANK_THREADS, 2)
    place_and_settle(const __grid_constant__ Choices keys, const syc_ranks ranks,
                     const __grid_constant__ ranked out, const __grid_constant__ syc_team m, int steps,
                     const __grid_constant__ syc_gate gate)
{
    if ((int)blockIdx.x < ranks.chunks) {
        syc_place_chunk(keys, ranks, out, gate);
        return;
    }
    SYC_DYNAMIC_SHARED(u32, total);
    const int padded = syc_padded_keys(keys.n_keys);
    syc_start_next();
    for (int e = (int)threadIdx.x; e < 2 * padded; e += SYC_RANK_THREADS)
        total[e] = 0;
    __syncthreads();
    syc_wait_for_previous();
    const bool bad = syc_sees_fault(gate);
    syc_rank_sums(ranks, keys.n_keys, total, total + padded);
    const bool stop = __syncthreads_or(bad) != 0; /* a barrier, too */
    settle_block(m, keys.hosted, total, keys.counts_of_visits(total), steps, stop, gate);
}

/* Whether rows may move, after all other kernels of the call; if it is the only one, whether the routing
   leads to rows. */
SYC_COLD void report_rows(const syc_team &m, u64 order, syc_gate gate)
{
    if (threadIdx.x == 0)
        gate.order[0] = SYC_NO_FAULT;
    __syncthreads();
    if (order != SYC_NO_FAULT)
        atomicMin(gate.order, order);
    __threadfence();
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    gate.n = 1;
    const u64 least = __ldcg(gate.order);
    if (least != SYC_NO_FAULT)
        explain_rows(m, least, &gate.found[0]);
    __threadfence();
    syc_report_fault(gate);
}

SYC_INLINE bool may_move(const syc_team &m, const syc_gate &gate)
{
    const bool bad = syc_sees_fault(gate);
    if (!m.alone)
        return syc_all_clear(gate, bad);
    const u64 order = bad_rows(m);
    if (__syncthreads_or(bad || order != SYC_NO_FAULT) == 0)
        return true;
    if (blockIdx.x == 0)
        report_rows(m, order, gate);
    return false;
}
