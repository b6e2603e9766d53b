/*
 * Sums of the rows of each token where there is much to add (see moe_ring.cuh).
 */
#include "cuda/codes/coded_sums.cuh"
#include "cuda/moe/moe_ring.cuh"

/* least; most codes with 16 bytes of scales; least bytes of a row: a bulk load has a price of its own */
enum { STAGES = 6, CODES_UNIT = 1024, LEAST_ROW = 2048 };

/* Codes whose scales are 16 bytes. */
static __host__ __device__ __forceinline__ u32 codes_of_scales(const syi_row_codes_plan &p)
{
    return (u32)p.group * (p.e8m0 ? 16u : 4u);
}

/* Whether vectors of 16 bytes are not aligned. */
static bool in_windows(const syc_moe_sums *s)
{
    const u64 bytes = (u64)s->hidden * (s->type == SY_TYPE_F32 ? 4 : 2);
    return (syc_alignment(s->rows) | syc_alignment(s->out) | bytes) % 16 != 0;
}

/* The scales of a piece of codes are behind it; pieces in windows begin up to 16 bytes early and end as
   late. */
static syc_items items_of(const syc_device *device, const syc_moe_sums *s)
{
    const int slots = (int)s->lists.n_slots;
    const int64_t most = syc_items_memory(device) / (STAGES * slots) < SYC_ITEM_PIECE
                             ? syc_items_memory(device) / (STAGES * slots)
                             : (int64_t)SYC_ITEM_PIECE;
    const int64_t bytes = s->hidden * (s->type == SY_TYPE_F32 ? 4 : 2);
    if (!s->codes.given && !in_windows(s))
        return syc_items_of(device, bytes, slots, 16, 0, SYC_ITEM_PIECE, STAGES, true);
    if (!s->codes.given)
        return syc_items_of(device, 16 * syc_windows(bytes), slots, 16, 32, SYC_ITEM_PIECE, STAGES, true);
    const int unit = (int)codes_of_scales(s->codes);
    return syc_items_of(device, s->hidden, slots, unit, (int)(most / unit * 16), most, STAGES, true);
}

/* Whether pieces of codes can be loaded with their scales. */
static bool has_pieces(const syc_moe_sums *s)
{
    const syi_row_codes_plan *const p = &s->codes;
    const u64 places = syc_alignment(p->codes) | syc_alignment(p->scales) | syc_alignment(s->out);
    return p->group > 0 && p->group % SYC_PACK_UNIT == 0 && p->group <= CODES_UNIT &&
           codes_of_scales(*p) <= CODES_UNIT && s->hidden % codes_of_scales(*p) == 0 && places % 16 == 0;
}

/* Whether rows are many and long enough, whatever the alignment of those that are no codes. */
const char *syc_moe_ring_why_not(const syc_device *device, const syc_moe_sums *s)
{
    const syc_moe_lists *const l = &s->lists;
    const int64_t row_bytes = s->hidden * (s->type == SY_TYPE_F32 ? 4 : 2);
    return !syc_has_bulk(device)               ? "the device has no bulk loads"
           : l->capacity                       ? "experts have capacity places"
           : l->n_slots < 4 || l->n_slots > 16 ? "a token has fewer than 4 choices, or more than 16"
           : s->hidden < 256 || (!s->codes.given && row_bytes < LEAST_ROW) ? "rows are short"
           : l->n_tokens < moe_policy::SUM_RING_TOKENS * (int64_t)device->processors
               ? "tokens are fewer than 8 for each processor"
           : s->codes.given && !has_pieces(s) ? "pieces of codes cannot be loaded with their scales"
                                              : NULL;
}

static __device__ __forceinline__ float scale_at(const syi_row_codes_plan &p, const u8 *scales, int group)
{
    return p.e8m0 ? syi_e8m0_to_f32(scales[group]) : ((const float *)scales)[group];
}

enum rows_kind { NUMBERS, WINDOWS, USUAL_CODES, ANY_CODES }; /* usual: e4m3 */

static __device__ __forceinline__ int64_t first_window(const syc_moe_sums &s, int64_t t)
{
    return syc_window_at(syc_out_row(s.out, t), 0, s.type == SY_TYPE_F32 ? 4 : 2);
}
static __device__ __forceinline__ const u8 *vector_before(const u8 *p)
{
    return (const u8 *)((uintptr_t)p & ~(uintptr_t)15);
}

/* Loads what the rows of a token have of the windows of a piece, and what is beside it in their vectors: of
   the rows before and after. So the first row and the last are not loaded. */
static __device__ __forceinline__ void load_windows(const syc_moe_sums &s, const syc_items &r,
                                                    const syc_cursor &c, int32_t row, int64_t row_bytes,
                                                    u8 *to, syc_barrier *full)
{
    const int64_t start = c.offset(r) + first_window(s, c.t), end = min(start + c.bytes(r), row_bytes);
    const u8 *const own = syc_row(s.rows, max(row, 0)),
                    *const first = vector_before(own + max(start, (int64_t)0)),
                    *const last = vector_before(own + end + 15);
    const u32 bytes = row > 0 && row < s.lists.n_rows - 1 && first < last ? (u32)(last - first) : 0,
              all = __reduce_add_sync(SYC_ALL_LANES, bytes);
    if (syc_lane() == 0)
        syc_barrier_expect(full, all);
    __syncwarp();
    if (bytes > 0)
        syc_bulk_load(to + (first - vector_before(own + start)), first, bytes, full);
}

/* Adds window v of a piece of all rows of a token; lane j has row and weight of slot j. */
template <class Numbers>
static __device__ __forceinline__ void add_windows(const syc_moe_sums &s, const syc_items &r,
                                                   const syc_cursor &c, int32_t own_row, float w,
                                                   const u8 *stage, int v, bool in, float (&sum)[Numbers::N])
{
    const int64_t start = c.offset(r) + first_window(s, c.t), at = start + v * 16,
                  all = s.hidden * Numbers::SIZE;
    const int own_apart = (int)((uintptr_t)(syc_row(s.rows, max(own_row, 0)) + start) & 15);
#pragma unroll 2
    for (int j = 0; j < (int)s.lists.n_slots; j++) {
        const float each = __shfl_sync(SYC_ALL_LANES, w, j);
        const int apart = __shfl_sync(SYC_ALL_LANES, own_apart, j);
        const int32_t row = __shfl_sync(SYC_ALL_LANES, own_row, j);
        const uint4 *const from = (const uint4 *)(stage + j * r.apart) + v;
        if (each == 0.0f || !in)
            continue;
        const u8 *const x = syc_row(s.rows, row);
        if (row > 0 && row < s.lists.n_rows - 1)
            syc_add_row<Numbers>(sum, each, syc_shift_bytes({from[0], from[1]}, apart));
        else
            syc_add_row<Numbers>(sum, each, syc_shift_window(syc_load_window(x, all, at), x, all, at));
    }
}

/* Adds a vector of all rows of a token; lane j has the weight of slot j. */
template <class Numbers>
static __device__ __forceinline__ void add_numbers(const u8 *from, int apart, int slots, float w, bool in,
                                                   float (&sum)[Numbers::N])
{
#pragma unroll 1
    for (int j0 = 0; j0 < slots; j0 += 4) {
        uint4 y[4];
        float each[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            each[k] = __shfl_sync(SYC_ALL_LANES, w, j0 + k);
            y[k] = each[k] != 0.0f && in ? *(const uint4 *)(from + (j0 + k) * apart) : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < 4; k++)
            syc_add_row<Numbers>(sum, each[k], y[k]);
    }
}

/* KIND: of codes, the sums are of type `type`. */
template <sy_type type, rows_kind KIND>
/* of SYC_WORKERS + 32: 72 or 64 registers leave room for two blocks of the kernel that validates */
static __global__ void __launch_bounds__(KIND != NUMBERS ? 896 : 1024, 1)
    sum_ring(const __grid_constant__ syc_moe_sums s, const __grid_constant__ syc_items r,
             const __grid_constant__ syc_gate gate)
{
    constexpr bool CODED = KIND == USUAL_CODES || KIND == ANY_CODES;
    typedef typename std::conditional<CODED, syc_coded_numbers<type, true>, syc_numbers<type, true>>::type
        Numbers;
    SYC_DYNAMIC_SHARED(u8, memory); /* [stage][slot][piece] */
    __shared__ syc_barrier full[SYC_ITEM_STAGES], empty[SYC_ITEM_STAGES];
    const syc_moe_lists &l = s.lists;
    const int slots = (int)l.n_slots, turns = SYC_WORKERS >> r.shift;
    const bool producer = syc_warp() == SYC_WORKERS / 32;
    if (!SYC_BULK)
        return;
    syc_items_begin(r, full, empty, (1 << r.shift) / 32);
    if (l.weights != NULL && !producer)
        syc_list_tokens(l);
    const bool good = syc_items_run(l, r, full, empty, producer, gate, [&](const syc_cursor &c, int32_t row) {
        const u32 live = __ballot_sync(SYC_ALL_LANES, row >= 0), bytes = c.bytes(r),
                  unit = CODED ? codes_of_scales(s.codes) : 1;
        const u32 scales = CODED ? bytes / unit * 16 : 0;
        u8 *const to = c.row(memory, r, syc_lane());
        if constexpr (KIND == WINDOWS) {
            load_windows(s, r, c, row, s.hidden * Numbers::SIZE, to, full + c.stage);
            return;
        }
        if (syc_lane() == 0)
            syc_barrier_expect(full + c.stage, (u32)__popc(live) * (bytes + scales));
        __syncwarp();
        if (row >= 0)
            syc_bulk_load(to, syc_row(CODED ? s.codes.codes : s.rows, row) + c.offset(r), bytes,
                          full + c.stage);
        if (CODED && row >= 0)
            syc_bulk_load(to + r.piece,
                          syc_row(s.codes.scales, row) + (int64_t)c.piece * ((u32)r.piece / unit * 16),
                          scales, full + c.stage);
    });
    if (!good || producer)
        return;
    const int v = (int)threadIdx.x & ((1 << r.shift) - 1),
              group = CODED ? v * SYC_PACK_UNIT / (int)s.codes.group : 0;
    syc_cursor c = {blockIdx.x, 0, 0, 0};
    syc_slots_ahead ahead;
    ahead.begin(l, r, SYC_WEIGHTS, (int)threadIdx.x >> r.shift, turns);
    if (threadIdx.x >> r.shift > 0)
        c.advance(r, (int)threadIdx.x >> r.shift);
#pragma unroll 1
    for (; c.t < l.n_tokens; c.advance(r, turns)) {
        const int base = ahead.next(l, r, SYC_WEIGHTS);
        const u32 live = syc_live_slots(l, ahead.row, base);
        const float own = syc_slot_weight(l, ahead.weight, base, live),
                    w = (live >> syc_lane() & 1) != 0 ? own : 0.0f;
        const bool in = v * 16 < (int)c.bytes(r);
        const u8 *const stage = c.row(memory, r, 0);
        float sum[Numbers::N] = {};
        syc_barrier_wait(full + c.stage, c.turn);
        if constexpr (KIND == WINDOWS) {
            const int32_t row = __shfl_sync(SYC_ALL_LANES, ahead.row, (base + syc_lane()) & 31);
            add_windows<Numbers>(s, r, c, row, w, stage, v, in, sum);
        } else if constexpr (CODED) {
            /* a warp past the end of the piece has nothing to add */
            const int used = (v & ~31) * 16 < (int)c.bytes(r) ? slots : 0;
            /* and a lane adds what is there */
            const u8 *codes = stage + (in ? v : 0) * 16, *scales = stage + r.piece;
#pragma unroll 1
            for (int j = 0; j < used; j++, codes += r.apart, scales += r.apart) {
                const float each = __shfl_sync(SYC_ALL_LANES, w, j);
                if (each != 0.0f)
                    Numbers::add_codes(KIND == USUAL_CODES ? SYI_CODE_E4M3 : s.codes.code,
                                       scale_at(s.codes, scales, in ? group : 0), each, *(const uint4 *)codes,
                                       sum);
            }
        } else {
            add_numbers<Numbers>(stage + v * 16, r.apart, slots, w, in, sum);
        }
        __syncwarp();
        if (syc_lane() == 0)
            syc_barrier_arrive(empty + c.stage);
        if (!in)
            continue;
        if constexpr (CODED)
            Numbers::store(syc_out_row(s.out, c.t), c.offset(r) + v * SYC_PACK_UNIT, sum);
        else if constexpr (KIND == WINDOWS)
            syc_window_numbers<type>::store(
                syc_out_row(s.out, c.t),
                {c.offset(r) + v * 16 + first_window(s, c.t), s.hidden * Numbers::SIZE},
                Numbers::narrow(sum));
        else
            Numbers::store(syc_out_row(s.out, c.t) + c.offset(r), v, Numbers::narrow(sum));
    }
}

/* For syc_by_type: WIDE is whether rows are no codes. */
struct ring_launch {
    syc_call *call;
    const syc_moe_sums *s;

    template <sy_type T, bool WIDE> void run() const
    {
        const syc_items r = items_of(call->device, s);
        syc_moe_sums sums = *s;
        sums.lists.weights = s->ring_weights;
        const auto launch = [&](void (*kernel)(syc_moe_sums, syc_items, syc_gate)) {
            syc_launch_large(&call->queue, kernel, SYC_EARLY, call->device->processors, SYC_WORKERS + 32,
                             syc_items_bytes(call->device, &r), sums, r, call->gate);
        };
        if (!s->codes.given && in_windows(s))
            launch(sum_ring<T, WINDOWS>);
        else if constexpr (WIDE)
            launch(sum_ring<T, NUMBERS>);
        else if (s->codes.code == SYI_CODE_E4M3)
            launch(sum_ring<T, USUAL_CODES>);
        else
            launch(sum_ring<T, ANY_CODES>);
    }
};

void syc_moe_sum_ring(syc_call *call, const syc_moe_sums *s)
{
    syc_by_type(s->type, s->codes.given ? 1 : 0, ring_launch{call, s});
}
