/*
 * What the operators on expert slots share on a device: the slot of a choice, numbers of a row in vectors,
 * and rows cut into parts for blocks. Arithmetic is one IEEE operation per step, as in src/kernels/scalar.c.
 */
#pragma once

#include "cuda/runtime/context.cuh"
#include "cuda/prim/load.cuh"
#include "cuda/prim/window.cuh"

#include <type_traits>

enum { SYC_SLOT_THREADS = 256, SYC_LONG_ROW = 256 }; /* vectors */

/* Choice i of the samples in `indices` and `locations`. */
struct syc_choice {
    int32_t e, place;
};
SYC_INLINE syc_choice syc_choice_of(const u8 *indices, const u8 *locations, int64_t i)
{
    return {(int32_t)syc_load_here<u32>(indices + i * 4), (int32_t)syc_load_here<u32>(locations + i * 4)};
}
SYC_INLINE int64_t syc_slot_of(const u8 *indices, const u8 *locations, int64_t i, int64_t n_experts,
                               int64_t capacity)
{
    const syc_choice choice = syc_choice_of(indices, locations, i);
    return syi_slot(choice.e, choice.place, n_experts, capacity);
}

/* Number i of a tensor that may be missing: then 1. */
SYC_INLINE float syc_gate_of(const u8 *gates, int64_t i, sy_type type)
{
    if (gates == NULL)
        return 1.0f;
    if (type == SY_TYPE_F32)
        return __uint_as_float(syc_load_here<u32>(gates + i * 4));
    const u16 bits = syc_load_here<u16>(gates + i * 2);
    return type == SY_TYPE_F16 ? syc_from_f16(bits) : syc_from_bf16(bits);
}

/*
 * syc_may_write in two steps, for kernels of calls that validate nothing: the load is on its way while rows
 * are looked up. No kernel of the call changes what it reads, so it need not wait for the one before.
 */
SYC_INLINE bool syc_is_closed(const syc_gate &gate)
{
    return threadIdx.x == 0 && __ldcg(gate.closed) != 0;
}
SYC_INLINE bool syc_all_open(bool closed)
{
    return __syncthreads_or(closed) == 0;
}

/* ---- Vectors of numbers ---- */

/* As syc_from_f16 and syc_to_f16; a NaN stays one, with any payload, and arithmetic follows. */
SYC_INLINE float syc_widen_f16(u16 bits)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    return syc_from_f16(bits);
#else
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
#endif
}

SYC_INLINE u16 syc_narrow_f16(float value)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    return syc_to_f16(value);
#else
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return value != value ? (u16)0x7e00u : bits;
#endif
}

/* Eight numbers of two bytes, rounded by conversions of pairs, whose NaN is not the canonical one: rows
   without NaN and infinities need no more. */
template <sy_type T> SYC_INLINE uint4 syc_narrow_eight(const float (&x)[8])
{
    u32 word[4];
    float odd = 0.0f; /* NaN, if any number is not finite */
#pragma unroll
    for (int j = 0; j < 4; j++) {
#ifdef SWITCHYARD_CUDA_EMULATED
        const u16 low = T == SY_TYPE_F16 ? syc_to_f16(x[2 * j]) : syc_to_bf16(x[2 * j]);
        const u16 high = T == SY_TYPE_F16 ? syc_to_f16(x[2 * j + 1]) : syc_to_bf16(x[2 * j + 1]);
        word[j] = (u32)high << 16 | low;
#else
        if constexpr (T == SY_TYPE_F16)
            asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word[j]) : "f"(x[2 * j + 1]), "f"(x[2 * j]));
        else
            asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word[j]) : "f"(x[2 * j + 1]), "f"(x[2 * j]));
        odd = __fmaf_rn(x[2 * j], 0.0f, __fmaf_rn(x[2 * j + 1], 0.0f, odd));
#endif
    }
    if (odd != odd) {
        const u32 canonical = T == SY_TYPE_F16 ? 0x7e00u : 0x7fc0u;
#pragma unroll
        for (int j = 0; j < 4; j++) {
            word[j] = x[2 * j] != x[2 * j] ? (word[j] & 0xffff0000u) | canonical : word[j];
            word[j] = x[2 * j + 1] != x[2 * j + 1] ? (word[j] & 0xffffu) | canonical << 16 : word[j];
        }
    }
    return make_uint4(word[0], word[1], word[2], word[3]);
}

/* WIDE: 16 bytes, aligned to them. Else one number of any alignment. */
template <sy_type T, bool WIDE> struct syc_numbers {
    enum { SIZE = T == SY_TYPE_F32 ? 4 : 2, N = WIDE ? 16 / SIZE : 1, BYTES = N * SIZE };
    typedef typename std::conditional<T == SY_TYPE_F32, u32, u16>::type Word;
    typedef typename std::conditional<WIDE, uint4, Word>::type V;

    /* Where vector i of a row is, of `bytes` bytes, that goes to to(). */
    typedef int64_t At;
    static __host__ __device__ int64_t count(int64_t hidden) { return hidden / N; }
    template <class To> SYC_INLINE At place(const To &, int64_t i, int64_t) { return i; }
    SYC_INLINE V take(const V &v, const u8 *, At) { return v; }
    SYC_INLINE V load(const u8 *row, int64_t i)
    {
        if constexpr (WIDE)
            return __ldcs((const uint4 *)row + i);
        else
            return syc_load_here<Word>(row + i * SIZE);
    }
    SYC_INLINE void store(u8 *row, int64_t i, V v)
    {
        if constexpr (WIDE)
            __stcs((uint4 *)row + i, v);
        else
            syc_store<Word>(row + i * SIZE, v);
    }
    SYC_INLINE void widen(V v, float (&x)[N])
    {
        Word bits[N];
        memcpy(bits, &v, sizeof v);
#pragma unroll
        for (int j = 0; j < N; j++)
            x[j] = T == SY_TYPE_F32   ? __uint_as_float(bits[j])
                   : T == SY_TYPE_F16 ? syc_widen_f16((u16)bits[j])
                                      : syc_from_bf16((u16)bits[j]);
    }
    /* Rounds to the type; NaN becomes the canonical one. */
    SYC_INLINE V narrow(const float (&x)[N])
    {
        if constexpr (N == 8)
            return syc_narrow_eight<T>(x);
        else
            return narrow_each(x);
    }
    SYC_INLINE V narrow_each(const float (&x)[N])
    {
        Word bits[N];
        V v;
#pragma unroll
        for (int j = 0; j < N; j++)
            bits[j] = (Word)(T == SY_TYPE_F32   ? __float_as_uint(syc_canonical(x[j]))
                             : T == SY_TYPE_F16 ? syc_narrow_f16(x[j])
                                                : syc_to_bf16(x[j]));
        memcpy(&v, bits, sizeof v);
        return v;
    }
    SYC_INLINE V scale(V v, float w)
    {
        float x[N];
        widen(v, x);
#pragma unroll
        for (int j = 0; j < N; j++)
            x[j] = __fmul_rn(w, x[j]);
        return narrow(x);
    }
};

/* The same for rows of any alignment, in windows; not WIDE, and yet many at a time. */
template <sy_type T> struct syc_window_numbers : syc_numbers<T, true> {
    enum { SIZE = syc_numbers<T, true>::SIZE };
    typedef syc_window V;
    struct At {
        int64_t begin, bytes;
    };
    static __host__ __device__ int64_t count(int64_t hidden) { return syc_windows(hidden * SIZE); }
    template <class To> SYC_INLINE At place(const To &to, int64_t i, int64_t bytes)
    {
        return {syc_window_at(to(), i, SIZE), bytes};
    }
    SYC_INLINE V load(const u8 *row, const At &at) { return syc_load_window(row, at.bytes, at.begin); }
    SYC_INLINE uint4 take(const V &v, const u8 *row, const At &at)
    {
        return row != NULL ? syc_shift_window(v, row, at.bytes, at.begin) : make_uint4(0, 0, 0, 0);
    }
    SYC_INLINE void store(u8 *to, const At &at, uint4 v)
    {
        if (at.begin < at.bytes)
            syc_store_window(to, at.bytes, at.begin, v);
    }
};

template <sy_type T, bool WIDE>
using syc_row_numbers = typename std::conditional<WIDE, syc_numbers<T, true>, syc_window_numbers<T>>::type;

/* Calls f.run<T, WIDE>() for rows of a type; `alignment` is the bitwise or of their addresses, strides and
   bytes. */
template <class F> static void syc_by_type(sy_type type, u64 alignment, const F &f)
{
    const bool wide = alignment % 16 == 0;
    if (type == SY_TYPE_F32)
        wide ? f.template run<SY_TYPE_F32, true>() : f.template run<SY_TYPE_F32, false>();
    else if (type == SY_TYPE_F16)
        wide ? f.template run<SY_TYPE_F16, true>() : f.template run<SY_TYPE_F16, false>();
    else
        wide ? f.template run<SY_TYPE_BF16, true>() : f.template run<SY_TYPE_BF16, false>();
}

static inline u64 syc_alignment(syi_rows rows)
{
    return (u64)(uintptr_t)rows.data | (u64)rows.stride;
}

/* ---- Rows in parts ---- */

/* Rows of `width` vectors are cut into parts of equal length, the last perhaps shorter; a block takes
   `per_block` parts. */
struct syc_row_parts {
    int64_t n;                    /* parts of all rows */
    int64_t bytes, width, of_row; /* bytes, vectors and parts of a row */
    syc_split by_row;
    syc_divisor vectors; /* of a part */
    int per_block;       /* at most SYC_SLOT_THREADS */
};

/* So many that they keep all processors busy for long. */
static inline bool syc_many_rows(int64_t rows, int64_t width, int processors)
{
    return rows > (int64_t)32 * 1024 * processors / width;
}

template <class Numbers>
static inline syc_row_parts syc_parts_of(int64_t rows, int64_t hidden, int processors)
{
    enum { MOST = 1024 }; /* four vectors for each thread */
    const int64_t width = Numbers::count(hidden), of_row = (width + MOST - 1) / MOST,
                  vectors = (width + of_row - 1) / of_row;
    const int64_t fit = MOST / vectors, few = fit < SYC_SLOT_THREADS ? fit : (int64_t)SYC_SLOT_THREADS;
    const bool many = syc_many_rows(rows, width, processors);
    return {rows * of_row,
            hidden * Numbers::SIZE,
            width,
            of_row,
            syc_split_by(of_row, rows * of_row),
            syc_divisor_of((u32)vectors),
            (int)(many && few < 8 ? 8 : few)};
}

static inline int64_t syc_parts_blocks(const syc_row_parts &parts)
{
    const int64_t blocks = (parts.n + parts.per_block - 1) / parts.per_block;
    return blocks < INT32_MAX ? blocks : INT32_MAX; /* blocks take several turns */
}

/* A part of a row: which row, its first vector, its length. */
struct syc_part {
    int64_t row, begin;
    u32 n;
};

SYC_INLINE syc_part syc_part_at(const syc_row_parts &parts, int64_t i)
{
    const int64_t row = parts.of_row == 1 ? i : syc_quotient(i, parts.by_row),
                  begin = (i - row * parts.of_row) * parts.vectors.d;
    return {row, begin, (u32)min((int64_t)parts.vectors.d, parts.width - begin)};
}

/* ---- Rows times gates ---- */

/* A row before it is cut. to NULL: nothing to do; from NULL: zeros. */
struct syc_scaled {
    const u8 *from;
    u8 *to;
    float gate;
};

/* A part of a row in shared memory: what is loaded, then what is stored. */
struct syc_scaled_part {
    const u8 *from;
    u8 *to;
    int64_t begin; /* vectors */
    float gate;
    u32 n;
    bool zeros; /* whatever was loaded */
};

/* What was loaded of a row: where it comes from, -1 for none, and numbers that are used when the loads of
   rows are on their way. */
struct syc_scaled_from {
    int64_t id;
    syc_choice choice;
    float gate;
};

/*
 * Items: a struct with `struct syc_scaled_from find(int64_t row)`, `const u8 *source(int64_t id)`, the row to
 * load, NULL for none, and `struct syc_scaled at(int64_t row, const struct syc_scaled_from &)`, which may
 * find that it was not the right one. They run before it is known whether the call may write. What the kernel
 * before this one left must be waited for there.
 */
template <sy_type T, bool WIDE, class Items>
static __global__ void __launch_bounds__(SYC_SLOT_THREADS, WIDE ? 5 : 3)
    syc_scale_rows(const __grid_constant__ Items items, const __grid_constant__ syc_row_parts parts,
                   const __grid_constant__ syc_gate gate)
{
    typedef syc_row_numbers<T, WIDE> Numbers;
    enum { AHEAD = 4 };
    __shared__ syc_scaled_part part[SYC_SLOT_THREADS];
    const bool closed = syc_is_closed(gate);
    const auto at_of = [&](const syc_scaled_part &p, u32 v) {
        return Numbers::place([&] { return p.to; }, p.begin + v, parts.bytes);
    };
    for (int64_t first = (int64_t)blockIdx.x * parts.per_block; first < parts.n;
         first += (int64_t)gridDim.x * parts.per_block) {
        const int own = (int)min((int64_t)parts.per_block, parts.n - first);
        const u32 all = (u32)own * parts.vectors.d;
        syc_scaled_from found = {};
        const auto place = [&](int64_t row) {
            const syc_scaled at = items.at(row, found);
            part[threadIdx.x].to = at.to;
            part[threadIdx.x].gate = at.gate;
            part[threadIdx.x].zeros = at.from == NULL;
        };
        if ((int)threadIdx.x < own) {
            const syc_part at = syc_part_at(parts, first + threadIdx.x);
            found = items.find(at.row);
            part[threadIdx.x].from = items.source(found.id);
            part[threadIdx.x].begin = at.begin;
            part[threadIdx.x].n = at.n;
            if (!WIDE) /* windows depend on where they go */
                place(at.row);
        }
        __syncthreads();
        /* the same turns for all threads */
        for (u32 begin = 0; begin < all; begin += AHEAD * SYC_SLOT_THREADS) {
            typename Numbers::V held[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const u32 i = begin + (u32)u * SYC_SLOT_THREADS + threadIdx.x,
                          p = syc_divide(i, parts.vectors), v = i - p * parts.vectors.d;
                held[u] = i < all && v < part[p].n && part[p].from != NULL
                              ? Numbers::load(part[p].from, at_of(part[p], v))
                              : syc_zero<typename Numbers::V>();
            }
            if (begin == 0) {
                if (WIDE && (int)threadIdx.x < own)
                    place(syc_part_at(parts, first + threadIdx.x).row);
                if (!syc_all_open(closed)) /* a barrier, too */
                    return;
            }
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const u32 i = begin + (u32)u * SYC_SLOT_THREADS + threadIdx.x,
                          p = syc_divide(i, parts.vectors), v = i - p * parts.vectors.d;
                if (i < all && v < part[p].n && part[p].to != NULL) {
                    const typename Numbers::At at = at_of(part[p], v);
                    Numbers::store(part[p].to, at,
                                   part[p].zeros ? make_uint4(0, 0, 0, 0)
                                                 : Numbers::scale(Numbers::take(held[u], part[p].from, at),
                                                                  part[p].gate));
                }
            }
        }
        __syncthreads();
    }
}

/* The same for rows that are many and long: a warp for each. */
template <sy_type T, class Items>
static __global__ void __launch_bounds__(SYC_SLOT_THREADS, 4)
    syc_scale_long_rows(const __grid_constant__ Items items, int64_t rows, u32 width,
                        const __grid_constant__ syc_gate gate)
{
    typedef syc_numbers<T, true> Numbers;
    enum { AHEAD = 8, WARPS = SYC_SLOT_THREADS / 32 };
    for (int64_t row = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32; row < rows;
         row += (int64_t)gridDim.x * WARPS) {
        const syc_scaled_from found = items.find(row);
        const u32 closed = __ldcg(gate.closed);
        const syc_scaled at = items.at(row, found);
        if (closed != 0)
            return;
        if (at.to == NULL)
            continue;
#pragma unroll 1
        for (u32 first = threadIdx.x % 32; first < width; first += AHEAD * 32) {
            uint4 held[AHEAD];
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                held[u] = at.from != NULL && first + u * 32 < width ? Numbers::load(at.from, first + u * 32)
                                                                    : make_uint4(0, 0, 0, 0);
#pragma unroll
            for (int u = 0; u < AHEAD; u++)
                if (first + u * 32 < width)
                    Numbers::store(at.to, first + u * 32,
                                   at.from != NULL ? Numbers::scale(held[u], at.gate) : held[u]);
        }
    }
}

/* For syc_by_type. */
template <class Items> struct syc_launch_scaling {
    syc_call *call;
    Items items;
    int64_t rows, hidden;
    syc_start start;
    template <sy_type T, bool WIDE> void run() const
    {
        const int64_t width = hidden / syc_numbers<T, WIDE>::N, warps = SYC_SLOT_THREADS / 32;
        if constexpr (WIDE) {
            const int64_t blocks = (rows + warps - 1) / warps;
            if (syc_takes(call, "long_rows",
                          width < SYC_LONG_ROW || width > INT32_MAX ? "rows are short"
                          : blocks < moe_policy::LONG_ROW_BLOCKS * (int64_t)call->device->processors ||
                                  !syc_many_rows(rows, width, call->device->processors)
                              ? "rows are few"
                              : NULL)) {
                syc_launch(&call->queue, syc_scale_long_rows<T, Items>, start,
                           blocks < INT32_MAX ? blocks : INT32_MAX, SYC_SLOT_THREADS, 0, items, rows,
                           (u32)width, call->gate);
                return;
            }
        }
        const syc_row_parts parts =
            syc_parts_of<syc_row_numbers<T, WIDE>>(rows, hidden, call->device->processors);
        syc_takes(call, "parts");
        syc_launch(&call->queue, syc_scale_rows<T, WIDE, Items>, start, syc_parts_blocks(parts),
                   SYC_SLOT_THREADS, 0, items, parts, call->gate);
    }
};
