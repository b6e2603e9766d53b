/*
 * A dispatch of few choices in one kernel, for all_to_all.cu alone. Every block reads the choices of all tokens, so that it knows the verdict
 * and where all rows begin and waits for no other block. Meanwhile bulk loads bring the rows of its own tokens into shared memory.
 */
#ifndef SYC_ALL_TO_ALL_ONCE_CUH
#define SYC_ALL_TO_ALL_ONCE_CUH

#include "cuda/all_to_all_rows.cuh"
#include "cuda/bulk.cuh"
#include "cuda/scratch.cuh"

enum { ONCE_THREADS = SETTLE_THREADS, ONCE_SLOTS = 8, ONCE_CHOICES = 32768, ONCE_PLACES = 4096, ONCE_DEVICES = 32, ONCE_TOKENS = 64 };

/* Tokens and parts of their rows for each block; the last block has none and writes tables. */
struct once {
    int parts, per_block, stages; /* stages: rows that are in shared memory at a time */
    int n_keys, n_targets;        /* what choices name; most rows of a token */
    u32 width, all;               /* vectors of a part, of a row */
};

struct once_memory {
    u8 *ring;      /* [stages] */
    u8 **to;       /* [tokens][n_targets] rows to write, 1 more for zeros, NULL: no more */
    u64 *holder;   /* as in struct syc_leads */
    int64_t *need;
    int32_t *first;
    u32 *count;    /* [n_keys] tokens of each, with those of blocks before in the upper half until it is divided */
    u32 *base;     /* [n_keys] tokens of blocks before */
    u32 *hosts;    /* [n_keys] a bit for each position */
    u32 *visits;   /* [2][D] tokens that are sent there; of blocks before */
    int *key;      /* [tokens][K] of own tokens, -1: none */
    u32 *mask;     /* [tokens] positions they are sent to */
    int *home;     /* [tokens] device */
    int *n_to;     /* [tokens] */
};

static inline __device__ __host__ struct once_memory once_lay_out(u8 *memory, const struct once &o, int n_devices, int64_t n_experts, int64_t n_slots,
                                                                  size_t *bytes)
{
    struct once_memory s;
    size_t used = (size_t)o.stages * o.width * 16;
    const auto take = [&](size_t n) {
        u8 *const at = memory + used;
        used += (n + 7) / 8 * 8;
        return at;
    };
    const size_t keys = (size_t)o.n_keys * 4, tokens = (size_t)o.per_block, devices = (size_t)n_devices;
    s.ring = memory;
    s.to = (u8 **)take(tokens * (size_t)o.n_targets * sizeof *s.to);
    s.holder = (u64 *)take(2 * keys);
    s.need = (int64_t *)take(devices * 8);
    s.first = (int32_t *)take(devices * (size_t)n_experts * 4);
    s.count = (u32 *)take(keys);
    s.base = (u32 *)take(keys);
    s.hosts = (u32 *)take(keys);
    s.visits = (u32 *)take(2 * devices * 4);
    s.key = (int *)take(tokens * (size_t)n_slots * 4);
    s.mask = (u32 *)take(tokens * 4);
    s.home = (int *)take(tokens * 4);
    s.n_to = (int *)take(tokens * 4);
    *bytes = used;
    return s;
}

/* The positions that host what a choice names. */
static __device__ __forceinline__ u32 once_hosts(const struct choices &from, const struct served &pairs, const struct syc_team &m, int key)
{
    if (m.paired)
        return 1u << syi_position_of(m.mesh, m.axis, pairs.pairs.device[key]);
    const int group = key / (int)m.n_experts, e = key - group * (int)m.n_experts;
    u32 bits = 0;
#pragma unroll 1
    for (int q = 0; q < m.n_positions; q++)
        bits |= (from.hosted.word(syi_device_at(m.mesh, m.axis, group, q), e / 32) >> (e % 32) & 1) << q;
    return bits;
}

/* What choice e of token t names. */
static __device__ __forceinline__ int once_key(const struct served &pairs, const struct syc_team &m, int t, int d, int e)
{
    const int group = syi_group_of(m.mesh, m.axis, d);
    if (!m.paired)
        return group * (int)m.n_experts + e;
    const struct syi_a2a_device &home = m.device(d);
    return (int)syi_pair_of(pairs.rule, &pairs.pairs, m.mesh, m.axis, e, group, home.position, (u32)(home.before + t - home.first), 0);
}

/* Counts the choices of all tokens, keeps those of the n from t0 on; the first that is wrong. */
static __device__ __forceinline__ void once_count(const struct choices &from, const struct served &pairs, const struct syc_team &m, const struct once_memory &s,
                                                  int t0, int n, u64 *wrong)
{
    const int slots = (int)m.n_slots, all = (int)m.n_tokens;
#pragma unroll 1
    for (int first = 0; first < all; first += ONCE_THREADS) {
        const int t = first + (int)threadIdx.x, own = t - t0, d = t < all ? from.device_of(t) : 0;
        const bool mine = own >= 0 && own < n;
        int e[ONCE_SLOTS];
        u32 mask = 0;
        if (t < all) {
            int64_t row_number;
            const u8 *const row = from.row_of(t, d, &row_number);
#pragma unroll
            for (int k = 0; k < ONCE_SLOTS; k++) {
                const int64_t value = k < slots ? load_choice(row, k, from.type) : -1;
                e[k] = (int)max((int64_t)-2, min(value, from.n_experts));
            }
#pragma unroll
            for (int k = 0; k < ONCE_SLOTS; k++) {
                bool again = false;
#pragma unroll
                for (int j = 0; j < k; j++)
                    again |= e[j] == e[k];
                if (e[k] < -1 || e[k] >= (int)from.n_experts || (from.strict && again && e[k] >= 0))
                    atomicMin(wrong, (u64)((int64_t)t * slots + k));
                const int key = again || e[k] < 0 || e[k] >= (int)from.n_experts ? -1 : once_key(pairs, m, t, d, e[k]);
                if (key >= 0) {
                    atomicAdd(&s.count[key], own < 0 ? 0x10001u : 1u);
                    mask |= s.hosts[key];
                }
                if (mine && k < slots)
                    s.key[own * slots + k] = key;
            }
        }
        if (mine) {
            s.mask[own] = mask;
            s.home[own] = d;
        }
#pragma unroll 1
        for (int to = 0; to < m.n_devices && m.layout == SY_LAYOUT_PACKED; to++) {
            const bool there = (mask >> syi_position_of(m.mesh, m.axis, to) & 1) != 0 && syi_group_of(m.mesh, m.axis, to) == syi_group_of(m.mesh, m.axis, d);
            const u32 sent = __ballot_sync(SYC_ALL_LANES, there), before = __ballot_sync(SYC_ALL_LANES, there && own < 0);
            if (syc_lane() == 0 && sent != 0) {
                atomicAdd(&s.visits[to], (u32)__popc(sent));
                atomicAdd(&s.visits[m.n_devices + to], (u32)__popc(before));
            }
        }
    }
}

static __device__ __forceinline__ void once_add(const struct once_memory &s, const struct once &o, int j, u8 *row)
{
    s.to[j * o.n_targets + atomicAdd(&s.n_to[j], 1)] = row;
}

/* The rows of choice k of own token j; tables: writes what the routing and the caller keep of it. */
static __device__ __forceinline__ void once_choice(const struct syc_team &m, const struct once_memory &s, const struct once &o, int t0, int j, int k, u32 offset,
                                                   bool tables)
{
    const int slots = (int)m.n_slots, key = s.key[j * slots + k], d = s.home[j];
    const int64_t at = (int64_t)(t0 + j) * slots + k;
    const struct syi_a2a_device &home = m.device(d);
    const bool expert = m.layout == SY_LAYOUT_EXPERT;
    if (key < 0) {
        if (tables)
            m.leads.choice[at] = -1;
        if (tables && expert)
            m.leads.pick[at] = ~0ull;
        return;
    }
    const int e = m.paired ? key : key - home.group * (int)m.n_experts;
    int rank = (int)s.base[key];
#pragma unroll 1
    for (int i = 0; i < j * slots; i++)
        rank += s.key[i] == key;
    if (tables) {
        m.leads.choice[at] = e;
        m.leads.rank[at] = rank;
    }
    u32 bits = expert ? s.hosts[key] : 0;
    if (expert && tables)
        m.leads.pick[at] = bits == 0 ? ~0ull : s.holder[key] + (u64)rank;
#pragma unroll 1
    for (; bits != 0; bits &= bits - 1) {
        const int q = __ffs((int)bits) - 1, to = syi_device_at(m.mesh, m.axis, home.group, q);
        const int64_t row = (int64_t)s.first[to * m.n_experts + e] + rank;
        once_add(s, o, j, syc_out_row(m.device(to).to[0], row) + offset);
        if (tables && m.device(to).src.data != NULL)
            write_src(m.device(to), row, home.position, t0 + j - home.first, k, true);
    }
}

/* The row of own token j at position q, PACKED or PADDED. */
static __device__ __forceinline__ void once_visit(const struct syc_team &m, const struct once_memory &s, const struct once &o, int t0, int j, int q, u32 offset,
                                                  bool tables)
{
    const struct syi_a2a_device &home = m.device(s.home[j]);
    const int d = syi_device_at(m.mesh, m.axis, home.group, q);
    const struct syi_a2a_device &to = m.device(d);
    const bool hit = (s.mask[j] >> q & 1) != 0, packed = m.layout == SY_LAYOUT_PACKED;
    int64_t row = -1;
    if (packed && hit) {
        row = s.visits[m.n_devices + d];
#pragma unroll 1
        for (int i = 0; i < j; i++)
            row += (s.mask[i] >> q & 1) != 0 && m.device(s.home[i]).group == home.group;
    }
    if (packed && tables)
        m.leads.packed[(int64_t)(t0 + j) * m.n_positions + q] = (int32_t)row;
    if (packed && !hit)
        return;
    row = packed ? row : m.tau(home, t0 + j - home.first);
    if (tables && !packed && to.mask.data != NULL)
        to.mask.data[row] = hit;
    if (tables && to.src.data != NULL)
        write_src(to, row, home.position, t0 + j - home.first, 0, false);
    if (hit || m.zero)
        once_add(s, o, j, syc_out_row(to.to[0], row) + offset + (hit ? 0 : 1));
}

/* Own rows from shared memory to all of their places, `stages` at a time; fill(p) loads those from p on. */
template <class Fill>
static __device__ __forceinline__ void once_store(const struct once_memory &s, const struct once &o, int n, u32 width, struct syc_barrier *full, const Fill &fill)
{
    u32 round = 0;
#pragma unroll 1
    for (int p = 0; p < n; p += o.stages, round++) {
        const int m = min(o.stages, n - p);
        int i = 0;
#pragma unroll 1
        for (u32 v = threadIdx.x;; v += ONCE_THREADS) {
            for (; v >= width && i < m; i++)
                v -= width;
            if (i >= m)
                break;
            syc_barrier_wait(&full[i], round & 1);
            const uint4 x = ((const uint4 *)(s.ring + (u32)i * o.width * 16))[v];
            u8 *const *const to = s.to + (p + i) * o.n_targets;
#pragma unroll 1
            for (int j0 = 0; j0 < o.n_targets; j0 += 8)
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    u8 *const row = to[j0 + j];
                    if (row != NULL)
                        __stcs((uint4 *)(row - ((uintptr_t)row & 1)) + v, ((uintptr_t)row & 1) != 0 ? make_uint4(0, 0, 0, 0) : x);
                }
        }
        __syncthreads();
        fill(p + o.stages);
    }
}

/* After a fault, or when one was reported before: the first block tells the host. */
SYC_COLD void once_stop(const struct choices &from, const struct syc_team &m, const int64_t *need, u64 wrong, struct syc_gate gate)
{
    gate.n = 1;
    gate.order[0] = wrong;
    if (wrong < AFTER_CHOICES)
        from.explain((int64_t)wrong, &gate.found[0]);
    else if (wrong != SYC_NO_FAULT)
        explain_rows(m, need, wrong, &gate.found[0]);
    *m.leads.number = 0;
    __threadfence();
    syc_report_fault(gate);
}

/* What the routing keeps, and what the caller asked for, of all tokens. */
static __device__ __forceinline__ void once_tables(const struct syc_team &m, const struct once_memory &s, const struct once &o, const struct syc_gate &gate)
{
    const int places = m.n_devices * (int)m.n_experts, holders = (m.paired ? 1 : m.n_groups) * (int)m.n_experts;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < o.n_keys; i += ONCE_THREADS)
        m.leads.count[i] = (int32_t)s.count[i];
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < places; i += ONCE_THREADS)
        m.leads.first[i] = s.first[i];
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < holders; i += ONCE_THREADS)
        m.leads.holder[i] = s.holder[i];
#pragma unroll 1
    for (int d = (int)threadIdx.x; d < m.n_devices && m.layout != SY_LAYOUT_PADDED; d += ONCE_THREADS)
        m.leads.need[d] = s.need[d];
    if (threadIdx.x == 0) {
        *m.leads.number = m.number;
        gate.order[0] = SYC_NO_FAULT;
    }
    __syncthreads();
#pragma unroll 1
    for (int d = syc_warp(); d < m.n_devices; d += ONCE_THREADS / 32)
        write_counts(m, d);
}

static __global__ void __launch_bounds__(ONCE_THREADS, 1)
    dispatch_once(const __grid_constant__ struct choices from, const __grid_constant__ struct served pairs, const __grid_constant__ struct syc_team m,
                  const __grid_constant__ struct once o, const __grid_constant__ struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(u8, memory);
    __shared__ struct syc_barrier full[ONCE_TOKENS];
    __shared__ u64 wrong;
    if (!SYC_BULK)
        return;
    size_t unused;
    const struct once_memory s = once_lay_out(memory, o, m.n_devices, m.n_experts, m.n_slots, &unused);
    const int part = (int)blockIdx.x % o.parts, t0 = min((int)blockIdx.x / o.parts * o.per_block, (int)m.n_tokens),
              n = min(o.per_block, (int)m.n_tokens - t0), slots = (int)m.n_slots;
    const u32 begin = (u32)part * o.width, width = min(o.width, o.all - begin);
    const bool tables = part == 0;
    const auto fill = [&](int p) {
        for (int i = (int)threadIdx.x; i < min(o.stages, n - p); i += ONCE_THREADS) {
            const int t = t0 + p + i;
            const struct syi_a2a_device &home = m.device(m.device_of(t));
            syc_barrier_expect(&full[i], width * 16);
            syc_bulk_load(s.ring + (u32)i * o.width * 16, syc_row(home.from[0], t - home.first) + begin * 16, width * 16, &full[i]);
        }
    };
    const bool closed = threadIdx.x == 0 && __ldcg(gate.closed) != 0;
    if (threadIdx.x == 0) {
        wrong = SYC_NO_FAULT;
#pragma unroll 1
        for (int i = 0; i < o.stages; i++)
            syc_barrier_init(&full[i], 1);
        syc_barrier_fence();
    }
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < o.n_keys; i += ONCE_THREADS) {
        s.count[i] = 0;
        s.hosts[i] = once_hosts(from, pairs, m, i);
    }
    if ((int)threadIdx.x < 2 * m.n_devices)
        s.visits[threadIdx.x] = 0;
    if ((int)threadIdx.x < o.per_block)
        s.n_to[threadIdx.x] = 0;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < o.per_block * o.n_targets; i += ONCE_THREADS)
        s.to[i] = NULL;
    __syncthreads();
    fill(0);
    once_count(from, pairs, m, s, t0, n, &wrong);
    __syncthreads();
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < o.n_keys; i += ONCE_THREADS) {
        const u32 both = s.count[i];
        s.count[i] = both & 0xffffu;
        s.base[i] = both >> 16;
    }
    bool stop = __syncthreads_or(closed || wrong != SYC_NO_FAULT) != 0;
    if (!stop) {
        struct syc_leads here = {};
        here.need = s.need;
        here.first = s.first;
        here.holder = s.holder;
        const u64 bad = build(m, here, from.hosted, s.count, m.layout == SY_LAYOUT_PACKED ? s.visits : (const u32 *)NULL);
        if (bad != SYC_NO_FAULT)
            atomicMin(&wrong, bad);
        __syncthreads();
        stop = wrong != SYC_NO_FAULT;
    }
    if (stop) {
        for (int i = (int)threadIdx.x; i < min(o.stages, n); i += ONCE_THREADS) /* loads must end before the block may */
            syc_barrier_wait(&full[i], 0);
        if (blockIdx.x == 0 && threadIdx.x == 0)
            once_stop(from, m, s.need, wrong, gate);
        return;
    }
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n * slots && (tables || m.layout == SY_LAYOUT_EXPERT); i += ONCE_THREADS)
        once_choice(m, s, o, t0, i / slots, i % slots, begin * 16, tables);
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < n * m.n_positions && m.layout != SY_LAYOUT_EXPERT; i += ONCE_THREADS)
        once_visit(m, s, o, t0, i / m.n_positions, i % m.n_positions, begin * 16, tables);
#pragma unroll 1
    for (int i = syc_warp(); i < n * m.n_positions && tables; i += ONCE_THREADS / 32)
        write_metadata(m, m.device(s.home[i / m.n_positions]), t0 + i / m.n_positions, i % m.n_positions);
    __syncthreads();
    once_store(s, o, n, width, full, fill);
    if (m.align > 1)
        write_padding<uint4>(m, 0, o.all, (int)blockIdx.x, (int)gridDim.x, s.first, s.count);
    if (blockIdx.x == gridDim.x - 1)
        once_tables(m, s, o, gate);
}

/* How a call is divided into blocks; false: it takes more kernels. */
static inline bool once_plan(const struct syi_a2a_plan *p, const struct syc_device *device, const struct syc_team *m, u64 alignment, bool aligned, int64_t n_keys,
                             struct once *o, size_t *shared)
{
    const int64_t blocks = device->processors > 1 ? device->processors - 1 : 1, vectors = (int64_t)(p->row_bytes[0] / 16);
    const int64_t targets = m->layout == SY_LAYOUT_EXPERT ? p->n_slots * (m->single ? 1 : p->n_positions) : p->n_positions;
    if (!syc_has_bulk(device) || alignment % 16 != 0 || vectors == 0 || vectors > 1 << 16 || !aligned || p->n_planes != 1 || p->codes.given ||
        p->n_slots > ONCE_SLOTS || p->n_tokens == 0 || p->n_tokens * p->n_slots > ONCE_CHOICES || p->n_devices > ONCE_DEVICES ||
        p->n_devices * p->n_experts > ONCE_PLACES || targets > 64 || p->rule.replica == SY_A2A_REPLICA_BALANCED)
        return false;
    int64_t per = 0, parts = 0;
    for (int64_t cut = 1; cut <= 8 && (cut == 1 || (cut <= blocks && vectors / cut >= 128)); cut *= 2) { /* rows of a block, the fewest */
        const int64_t each = syc_ceil(p->n_tokens, blocks / cut);
        if (parts == 0 || each * parts < per * cut) {
            per = each;
            parts = cut;
        }
    }
    o->per_block = (int)per;
    o->width = (u32)syc_ceil(vectors, parts);
    o->parts = (int)syc_ceil(vectors, o->width);
    o->all = (u32)vectors;
    o->n_keys = (int)n_keys;
    o->n_targets = (int)syc_ceil(targets, 8) * 8;
    o->stages = 0;
    once_lay_out(NULL, *o, p->n_devices, p->n_experts, p->n_slots, shared);
    const int64_t room = ((int64_t)device->shared_bytes - 4096 - (int64_t)*shared) / (16 * (int64_t)o->width);
    if (per > ONCE_TOKENS || room < 1)
        return false;
    const int64_t rounds = syc_ceil(per, room < per ? room : per);
    o->stages = (int)syc_ceil(per, rounds); /* rounds of one length */
    once_lay_out(NULL, *o, p->n_devices, p->n_experts, p->n_slots, shared);
    return true;
}

#endif
