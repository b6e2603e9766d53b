/*
 * Rows of q8_0, q4_0 and nvfp4, a warp for each: blocks of 32 numbers with an f16 scale before their codes,
 * and of 16 numbers with an e4m3 scale elsewhere. A lane packs sixteen numbers and unpacks eight, or sixteen
 * of q4_0, whose bytes have a number of each half of a block. The bits are those of src/plan/kv_math.h; rows
 * with NaN or infinities, and places that are not aligned, take the general way of codes.cuh.
 */
#pragma once

#include "cuda/prim/bulk.cuh"
#include "cuda/codes/codes.cuh"
#include "cuda/codes/kv_code_rows.cuh"

enum syc_block_format { SYC_Q8_0, SYC_Q4_0, SYC_NVFP4 };

enum {
    /* sixteens that a lane loads together: 1,024 numbers for a warp */
    SYC_PACK_AHEAD = 2,
    SYC_CHUNK_WORDS = 8 * (SYI_INLINE_SCALE + SYI_INLINE_GROUP) /* what they become, at most */
};

enum { SYC_UNIT_THREADS = 256 };

/* Threads of a block where a warp takes so many rows at a time: few where rows are few, for more
   processors. */
static inline int syc_unit_threads(const syc_call *call, int64_t n, int rows)
{
    return n < (int64_t)16 * rows * call->device->processors ? 64 : (int)SYC_UNIT_THREADS;
}

template <typename P> SYC_INLINE P *syc_pointer_of_lane(P *p, int lane)
{
    return (P *)(uintptr_t)__shfl_sync(SYC_ALL_LANES, (u64)(uintptr_t)p, lane);
}

/* ---- Largest magnitudes ---- */

/* The larger of two numbers of 16 bits, twice. */
SYC_INLINE u32 syc_larger_of_each(u32 a, u32 b)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    u32 larger;
    asm("max.u16x2 %0, %1, %2;" : "=r"(larger) : "r"(a), "r"(b));
    return larger;
#else
    return max(a & 0xffff0000u, b & 0xffff0000u) | max(a & 0xffffu, b & 0xffffu);
#endif
}

/* The largest magnitude of a unit as its own bits: above those of infinity where there is a NaN. */
template <sy_type T> SYC_INLINE u32 syc_largest_word(const syc_sixteen<T> &numbers)
{
    const u32 signs = T == SY_TYPE_F32 ? 0x80000000u : 0x80008000u;
    u32 most = 0;
#pragma unroll
    for (int h = 0; h < 2; h++)
#pragma unroll
        for (int i = 0; i < syc_eight<T>::VECTORS; i++) {
            const uint4 v = numbers.half[h].v[i];
            const u32 word[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
            for (int j = 0; j < 4; j++) {
                most = T == SY_TYPE_F32 ? max(most, word[j] & ~signs)
                                        : syc_larger_of_each(most, word[j] & ~signs);
            }
        }
    return T == SY_TYPE_F32 ? most : max(most >> 16, most & 0xffffu);
}

template <sy_type T> SYC_INLINE float syc_from_own(u32 bits)
{
    return T == SY_TYPE_F32   ? __uint_as_float(bits)
           : T == SY_TYPE_F16 ? syc_widen_f16((u16)bits)
                              : __uint_as_float(bits << 16);
}

/* The bits of infinity. */
#define SYC_OWN_INFINITY(T) ((T) == SY_TYPE_F32 ? 0x7f800000u : (T) == SY_TYPE_F16 ? 0x7c00u : 0x7f80u)

/* ---- Packing ---- */

/* What a lane has loaded of a row, from unit `begin` on; behind the last of `n` units that one again. */
template <sy_type T, syc_block_format F> struct syc_block_numbers {
    syc_sixteen<T> at[SYC_PACK_AHEAD];

    __device__ __forceinline__ void load(int u, const u8 *dense, u32 begin, u32 n)
    {
        const u32 v = min(begin + 32 * (u32)u + threadIdx.x % 32, n - 1);
#pragma unroll
        for (int h = 0; h < 2; h++)
            at[u].half[h] = syc_eight<T>::load(dense, F == SYC_Q4_0 ? 2 * v - v % 2 + 2 * h : 2 * v + h);
    }
};

/*
 * Four codes of int8 of products y = x * factor that are at most 127, rounded half away from zero. The first
 * product is the number next to y towards zero. The second, not rounded, is above y by less than the distance
 * to the number after it: past the middle where y is in the middle of two integers, not where y is below it.
 */
SYC_INLINE u32 syc_pack_away(const float *x, float factor)
{
    u32 b[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        b[j] = __float_as_uint(
            __fmaf_rn(__fmul_rn(__fmul_rn(x[j], factor), 1.0f - 0x1p-24f), 1.0f + 0x1p-23f, 0x1.8p23f));
    return __byte_perm(__byte_perm(b[0], b[1], 0x0040), __byte_perm(b[2], b[3], 0x0040), 0x5410);
}

/*
 * A factor for syc_pack_near with the codes of x * factor, rounded half away from zero, of bf16 numbers.
 * Quotients by largest / 127 that are in the middle of two integers are half of the largest, whose product
 * decides, and those where largest / 127 is a power of two: then the products are exact, that of half the
 * largest is in the middle, and a larger factor rounds all of them away. Others are 2^-16 of themselves away
 * from it, and four units of the factor's last place are at most 2^-21.
 */
SYC_INLINE float syc_near_factor(float largest, float factor)
{
    const bool away = __fmul_rn(__fmul_rn(largest, 0.5f), factor) >= 63.5f;
    return largest == 0.0f ? 0.0f : __uint_as_float(__float_as_uint(factor) + (away ? 4u : -4u));
}

/* The bits of 2^23 plus the whole part of z, which is not negative. */
SYC_INLINE u32 syc_whole_bits(float z)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    return 0x4b000000u + (u32)z;
#else
    return __float_as_uint(__fadd_rz(z, 0x1p23f));
#endif
}

/* Four bytes of q4_0: a number of the first and of the second half in each. */
SYC_INLINE u32 syc_pack_nibbles(const float *low, const float *high, float factor)
{
    u32 b[4];
#pragma unroll
    for (int j = 0; j < 4; j++)
        b[j] = syc_whole_bits(fminf(__fadd_rn(__fmul_rn(low[j], factor), 8.5f), 15.0f)) +
               16 * syc_whole_bits(fminf(__fadd_rn(__fmul_rn(high[j], factor), 8.5f), 15.0f));
    return __byte_perm(__byte_perm(b[0], b[1], 0x0040), __byte_perm(b[2], b[3], 0x0040), 0x5410);
}

/*
 * Two lanes have a block of each of two units. The lane of an even number gets the larger of both lanes of
 * the first, the other lane of the second unit.
 */
SYC_INLINE u32 syc_larger_of_two(const u32 (&most)[SYC_PACK_AHEAD])
{
    const bool odd = (threadIdx.x & 1) != 0;
    return max(odd ? most[1] : most[0], __shfl_xor_sync(SYC_ALL_LANES, odd ? most[0] : most[1], 1));
}

/*
 * The first number of the largest magnitude of a unit, as bits of which those of numbers nearer to the
 * beginning of the block of two lanes are larger: of 16 bits, the magnitude from bit 17 on; then the place;
 * the sign at bit 0. Of f32 `most` is the magnitude; 0: none has it.
 */
template <sy_type T> SYC_INLINE u32 syc_first_largest(const syc_sixteen<T> &numbers, u32 most)
{
    enum { WORDS = 4 * syc_eight<T>::VECTORS };
    const u32 odd = threadIdx.x & 1;
    u32 first = 0, negative = 0;
    int32_t positive = INT32_MIN;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        u32 word[WORDS];
        memcpy(word, numbers.half[h].v, sizeof word);
#pragma unroll
        for (int j = 0; j < WORDS; j++)
            if constexpr (T == SY_TYPE_F32) {
                if ((word[j] & 0x7fffffffu) == most)
                    first = max(first, 62 - 16 * odd - (u32)(32 * h + 2 * j) + (word[j] >> 31));
            } else {
                /* of the numbers of two words, twice after each */
                const u32 places = 0x01010101u * (u32)(31 - 16 * h - 4 * (j / 2)) - 0x03020100u;
                const u32 low = __byte_perm(word[j], places, 0x1044 + j % 2 * 0x22),
                          high = __byte_perm(word[j], places, 0x3255 + j % 2 * 0x22);
                negative = max(max(negative, low), high);
                positive = max(max(positive, (int32_t)low), (int32_t)high);
            }
    }
    if (T == SY_TYPE_F32)
        return first;
    return max((int32_t)negative < 0 ? negative << 1 | 1 : 0, positive < 0 ? 0 : (u32)positive << 1) -
           odd * (2 * 8 * 0x0101);
}

/* The number of the largest magnitude of a block, the first of several, for the lane that syc_larger_of_two
   gives it. */
template <sy_type T, syc_block_format F>
SYC_INLINE u32 syc_largest_signed(const syc_block_numbers<T, F> &held)
{
    u32 most = 0, other = 0;
    if constexpr (T == SY_TYPE_F32) {
        const u32 own[] = {syc_largest_word<T>(held.at[0]), syc_largest_word<T>(held.at[1])};
        most = syc_larger_of_two(own);
        other = __shfl_xor_sync(SYC_ALL_LANES, most, 1);
    }
    const bool odd = (threadIdx.x & 1) != 0;
    const u32 firsts[] = {syc_first_largest<T>(held.at[0], odd ? other : most),
                          syc_first_largest<T>(held.at[1], odd ? most : other)};
    const u32 first = syc_larger_of_two(firsts), magnitude = T == SY_TYPE_F32 ? most : first >> 17;
    return magnitude == 0 ? 0 : magnitude | (first & 1) << (8 * syc_numbers<T, true>::SIZE - 1);
}

/* Any numbers; the 32 lanes of a warp call it. */
SYC_COLD void syc_pack_any_row(const syi_kv_codec &c, const syc_packed_row &row, const u8 *dense, int64_t i)
{
    if (c.fp4)
        syc_pack_fp4(c, row.codes, row.scales, dense, i);
    else
        syc_pack_inline(c, row.codes, dense);
}

/* What two lanes know of their block. */
struct syc_block_scale {
    float by; /* what numbers are multiplied with */
    u32 head; /* the stored scale, in the upper half */
};

/*
 * Two blocks of four lanes are an odd number of words, made in shared memory: the codes of the first two
 * lanes follow two bytes, those of the others begin with a word.
 */
template <sy_type T, syc_block_format F>
SYC_INLINE void syc_pack_inline_unit(const syc_sixteen<T> &numbers, syc_block_scale scale, u32 *to)
{
    enum { WORDS = F == SYC_Q4_0 ? 2 : 4 };
    const u32 lane = threadIdx.x % 32, names = (lane & 2) != 0 ? 0x7654u : 0x5432u;
    float x[SYC_PACK_UNIT];
    u32 q[WORDS];
    numbers.widen(x);
#pragma unroll
    for (int j = 0; j < WORDS; j++)
        q[j] = F == SYC_Q4_0       ? syc_pack_nibbles(x + 4 * j, x + SYC_UNIT + 4 * (j % 2), scale.by)
               : T == SY_TYPE_BF16 ? syc_pack_near(x + 4 * j, scale.by)
                                   : syc_pack_away(x + 4 * j, scale.by);
    const u32 up = __shfl_up_sync(SYC_ALL_LANES, q[WORDS - 1], 1);
    if (lane % 4 == 2)
        to[-1] = up >> 16 | scale.head;
    u32 before = lane % 4 == 0 ? scale.head : up;
#pragma unroll
    for (int j = 0; j < WORDS; j++) {
        to[j] = __byte_perm(before, q[j], names);
        before = q[j];
    }
}

/* x / 127 for a normal quotient, as division rounds it: all 2^23 significands were compared. */
SYC_INLINE float syc_over_127(float x)
{
    const float r = 1.0f / 127.0f, q = __fmul_rn(x, r);
    return __fmaf_rn(__fmaf_rn(q, -127.0f, x), r, q);
}

/* The block of syc_larger_of_two. False: a number is not finite, or the scale is too small. */
template <sy_type T, syc_block_format F>
SYC_INLINE bool syc_make_block_scale(const syc_block_numbers<T, F> &held, syc_block_scale *made)
{
    const u32 sign = T == SY_TYPE_F32 ? 0x80000000u : 0x8000u;
    u32 most;
    if constexpr (F == SYC_Q4_0) {
        most = syc_largest_signed(held);
    } else {
        const u32 own[] = {syc_largest_word<T>(held.at[0]), syc_largest_word<T>(held.at[1])};
        most = syc_larger_of_two(own);
    }
    const float largest = syc_from_own<T>(most);
    const float scale = F == SYC_Q4_0 ? syi_inline_scale(true, largest) : syc_over_127(largest),
                factor = syi_inline_factor(scale);
    *made = {F == SYC_Q8_0 && T == SY_TYPE_BF16 ? syc_near_factor(largest, factor) : factor,
             (u32)syc_narrow_f16(scale) << 16};
    return (most & ~sign) < SYC_OWN_INFINITY(T) && (most == 0 || fabsf(largest) >= 0x1p-100f);
}

/* Whole words of 16 bytes where `to` is aligned, and the rest. */
SYC_INLINE void syc_store_chunk(u8 *to, const u32 *chunk, u32 bytes)
{
    const u32 lane = threadIdx.x % 32, wide = ((uintptr_t)to & 15) == 0 ? bytes / 16 : 0;
#pragma unroll 1
    for (u32 k = lane; k < wide; k += 32)
        __stcs((uint4 *)to + k, ((const uint4 *)chunk)[k]);
#pragma unroll 1
    for (u32 k = 8 * wide + lane; k < bytes / 2; k += 32)
        ((u16 *)to)[k] = ((const u16 *)chunk)[k];
}

/* The code of e2m1 of a magnitude, plus the bits of 2^23: its integer in the steps of each exponent, of which
   the least is right. */
SYC_INLINE u32 syc_e2m1_bits(float y)
{
    const float most = fminf(y, 6.0f);
    const u32 halves = __float_as_uint(__fmaf_rn(most, 2.0f, 0x1p23f)),
              ones = __float_as_uint(__fadd_rn(most, 0x1p23f + 2.0f)),
              twos = __float_as_uint(__fmaf_rn(most, 0.5f, 0x1p23f + 4.0f));
    return min(min(halves, ones), twos);
}

/* The signs of eight numbers, in the places of their codes of four bits. */
template <sy_type T> SYC_INLINE u32 syc_eight_signs(const syc_eight<T> &numbers)
{
    u32 word[4 * syc_eight<T>::VECTORS], even, odd;
    memcpy(word, numbers.v, sizeof word);
    if constexpr (T == SY_TYPE_F32) {
        even =
            __byte_perm(__byte_perm(word[0], word[2], 0x0073), __byte_perm(word[4], word[6], 0x0073), 0x5410);
        odd =
            __byte_perm(__byte_perm(word[1], word[3], 0x0073), __byte_perm(word[5], word[7], 0x0073), 0x5410);
    } else {
        const u32 low = __byte_perm(word[0], word[1], 0x7351), high = __byte_perm(word[2], word[3], 0x7351);
        even = __byte_perm(low, high, 0x5410);
        odd = __byte_perm(low, high, 0x7632);
    }
    return (odd & 0x80808080u) | (even >> 4 & 0x08080808u);
}

/* A block of nvfp4, all of it finite. */
template <sy_type T>
SYC_INLINE void syc_pack_fp4_unit(const syc_sixteen<T> &numbers, float largest, syi_fp4_scale scale, u8 *to,
                                  u8 *record)
{
    const u8 byte = (u8)syc_two_codes(SYI_CODE_E4M3, __fmul_rn(largest, scale.encode), 0.0f);
    const float factor = syi_fp4_factor(scale, byte);
    u32 q[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float x[SYC_UNIT];
        numbers.half[h].widen(x);
        q[h] = 0u - 0x4b000000u * 0x11111111u;
#pragma unroll
        for (int j = 0; j < SYC_UNIT; j++)
            q[h] += syc_e2m1_bits(fabsf(__fmul_rn(x[j], factor))) << 4 * j;
        q[h] |= syc_eight_signs(numbers.half[h]);
    }
    __stcs((uint2 *)to, make_uint2(q[0], q[1]));
    *record = byte;
}

/* Where the codes of group g of nvfp4 are in a row. `heads`: groups of a head. */
SYC_INLINE u32 syc_fp4_offset(const syi_kv_codec &c, const syc_divisor &heads, u32 g)
{
    const u32 head = syc_divide(g, heads);
    return head * (u32)c.head_stride + (g - head * heads.d) * SYI_FP4_BYTES;
}

/* Of a multiprocessor at a time. */
#define SYC_BLOCKS_OF(T) ((T) == SY_TYPE_F32 ? 2 : 3)

SYC_INLINE syi_fp4_scale syc_scale_of_lane(const syi_fp4_scale &own, int lane)
{
    return {__shfl_sync(SYC_ALL_LANES, own.decode, lane), __shfl_sync(SYC_ALL_LANES, own.encode, lane)};
}

/* What the lanes of a warp have made in a chunk goes to a row, if there is one. */
SYC_INLINE void syc_store_units(u8 *to, const u32 *chunk, u32 bytes)
{
    __syncwarp();
    if (to != NULL)
        syc_store_chunk(to, chunk, bytes);
    __syncwarp();
}

/* NOLINT(readability-function-size): loads of what comes next are between the steps of this one */
/* Rows for each warp, one after the other; numbers of the next are loaded where those of one are packed, and
   the one after it goes to the second cache. Each lane looks up where one of 32 rows goes. */
template <sy_type T, syc_block_format F>
static __global__ void __launch_bounds__(SYC_UNIT_THREADS, SYC_BLOCKS_OF(T))
    syc_pack_blocks(const __grid_constant__ syc_packed_rows rows, const __grid_constant__ syc_divisor heads,
                    const __grid_constant__ syc_gate gate)
{
    enum {
        FP4 = F == SYC_NVFP4,
        CHUNK_UNITS = 32 * SYC_PACK_AHEAD,
        BYTES = F == SYC_Q4_0 ? 18 : 34,
        WORDS = F == SYC_Q4_0 ? 2 : 4
    };
    __shared__ uint4 chunks[FP4 ? 1 : SYC_UNIT_THREADS / 32][SYC_CHUNK_WORDS / 4];
    const syi_kv_codec &c = rows.plane.codec;
    const u32 lane = threadIdx.x % 32, units = (u32)c.n_groups * (FP4 ? 1 : 2);
    const int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32);
    const u32 offset = FP4 ? syc_fp4_offset(c, heads, lane) : 0;
    u32 *const chunk = (u32 *)chunks[FP4 ? 0 : threadIdx.x / 32];
    u32 *const own_words = chunk + lane / 4 * (4 * WORDS + 1) + lane % 4 * WORDS + (lane & 2) / 2;
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    syc_packed_row own;
    syi_fp4_scale own_scale = {};
    const auto look_up = [&] {
        const int64_t mine = i + lane * warps;
        own = rows.packed(mine);
        if (FP4 && mine < rows.n)
            own_scale = syi_fp4_scale_of(&c.global, mine);
    };
    const auto load_early = [&](int64_t row) {
        if (lane == 0 && row < rows.n)
            syc_bulk_prefetch(rows.dense(row), (u32)c.dense_bytes);
    };
    syc_block_numbers<T, F> held = {};
    if (i < rows.n) {
        held.load(0, rows.dense(i), 0, units);
        held.load(1, rows.dense(i), 0, units);
    }
    load_early(i + warps);
    syc_wait_for_previous();
    if (!syc_all_clear(gate, syc_sees_fault(gate)))
        return;
    look_up();
#pragma unroll 1
    for (int turn = 0; i < rows.n; turn = (turn + 1) % 32, i += warps) {
        if (turn == 0 && i >= 32 * warps)
            look_up();
        load_early(i + 2 * warps);
        u8 *const row = syc_pointer_of_lane(own.codes, turn);
        u8 *const record = FP4 ? syc_pointer_of_lane(own.scales, turn) : NULL;
        const u8 *const dense = rows.dense(i);
        const syi_fp4_scale scale = FP4 ? syc_scale_of_lane(own_scale, turn) : own_scale;
        bool good = true;
#pragma unroll 1
        for (u32 begin = 0; begin < units; begin += CHUNK_UNITS) {
            const bool last = units - begin <= CHUNK_UNITS;
            const u8 *const next = !last ? dense : i + warps < rows.n ? rows.dense(i + warps) : NULL;
            syc_block_scale made = {};
            /* of nvfp4 */
            const u32 most[] = {syc_largest_word<T>(held.at[0]), syc_largest_word<T>(held.at[1])};
            const bool odd =
                FP4 ? max(most[0], most[1]) >= SYC_OWN_INFINITY(T) : !syc_make_block_scale(held, &made);
            good = !__any_sync(SYC_ALL_LANES, odd) && good;
#pragma unroll
            for (int u = 0; u < SYC_PACK_AHEAD; u++) {
                if constexpr (FP4) {
                    const u32 v = begin + 32 * (u32)u + lane;
                    if (good && row != NULL && v < units)
                        syc_pack_fp4_unit(held.at[u], syc_from_own<T>(most[u]), scale,
                                          row + (v < 32 ? offset : syc_fp4_offset(c, heads, v)), record + v);
                } else {
                    const int from = (int)(lane & ~1u) + u;
                    const syc_block_scale its = {__shfl_sync(SYC_ALL_LANES, made.by, from),
                                                 __shfl_sync(SYC_ALL_LANES, made.head, from)};
                    syc_pack_inline_unit<T, F>(held.at[u], its, own_words + u * 8 * (4 * WORDS + 1));
                }
                if (next != NULL)
                    held.load(u, next, last ? 0 : begin + CHUNK_UNITS, units);
            }
            if constexpr (!FP4)
                syc_store_units(good && row != NULL ? row + (int64_t)(begin / 2) * BYTES : NULL, chunk,
                                min(units - begin, (u32)CHUNK_UNITS) / 2 * BYTES);
        }
        if (!good && row != NULL)
            syc_pack_any_row(c, {row, record}, dense, i);
    }
}

/* ---- Unpacking ---- */

/* What a lane has loaded of a packed row: codes of eight numbers, of q4_0 sixteen, of unit v, and the
   scale. */
template <sy_type T, syc_block_format F> struct syc_block_unit {
    /* units of a group; of a lane: 1,024 numbers for a warp */
    enum { PER_GROUP = F == SYC_Q8_0 ? 4 : 2, AHEAD = F == SYC_Q4_0 ? 2 : 4 };
    u16 q[4];
    u32 codes; /* of nvfp4 */
    u16 scale;

    /* Part of group g, whose codes of nvfp4 are at `offset`. */
    __device__ __forceinline__ void load(const u8 *row, const u8 *record, u32 g, u32 part, u32 offset)
    {
        if constexpr (F == SYC_NVFP4) {
            codes = __ldcs((const u32 *)(row + offset) + part);
            scale = __ldcs(record + g);
        } else {
            const u8 *const from = row + (int64_t)g * (F == SYC_Q4_0 ? 18 : 34);
            scale = __ldcs((const u16 *)from);
#pragma unroll
            for (int j = 0; j < 4; j++)
                q[j] = __ldcs((const u16 *)(from + SYI_INLINE_SCALE + part * SYC_UNIT) + j);
        }
    }
    /* Products with an f16 scale: with a finite one none is NaN. */
    __device__ __forceinline__ void store_inline(float (&x)[SYC_UNIT], u8 *dense, u32 at) const
    {
#pragma unroll
        for (int j = 0; j < SYC_UNIT; j++)
            x[j] = __fmul_rn(x[j], syc_widen_f16(scale));
        if ((scale & 0x7c00u) != 0x7c00u)
            syc_eight<T>::narrow_numbers(x).store(dense, at);
        else
            syc_eight<T>::narrow(x).store(dense, at);
    }
    /* The product of code and scale is exact; powers of two keep a code's bits and it in range. */
    __device__ __forceinline__ void store_fp4(float decode, u8 *dense, u32 at) const
    {
        const float group = syi_e4m3_to_f32((u8)scale), by = __fmul_rn(group, 0x1p118f),
                    all = __fmul_rn(decode, 0x1p8f);
        float x[SYC_UNIT];
        if (group == group && __float_as_uint(all) < 0x7f800000u) {
#pragma unroll
            for (int j = 0; j < SYC_UNIT; j++)
                x[j] = __fmul_rn(
                    __fmul_rn(__uint_as_float((u32)((int32_t)(codes << (28 - 4 * j)) >> 6) & 0x81c00000u),
                              by),
                    all);
            syc_eight<T>::narrow_numbers(x).store(dense, at);
        } else {
#pragma unroll
            for (int j = 0; j < SYC_UNIT; j++)
                x[j] = __fmul_rn(__fmul_rn(syi_e2m1_to_f32(codes >> 4 * j & 15u), group), decode);
            syc_eight<T>::narrow(x).store(dense, at);
        }
    }
    __device__ __forceinline__ void store(float decode, u8 *dense, u32 v) const
    {
        const u32 word[2] = {q[0] | (u32)q[1] << 16, q[2] | (u32)q[3] << 16};
        float x[SYC_UNIT];
        if constexpr (F == SYC_NVFP4) {
            store_fp4(decode, dense, v);
        } else if constexpr (F == SYC_Q8_0) {
            syc_four_codes(SYI_CODE_I8, word[0], x);
            syc_four_codes(SYI_CODE_I8, word[1], x + 4);
            store_inline(x, dense, v);
        } else {
#pragma unroll
            for (int h = 0; h < 2; h++) {
#pragma unroll
                for (int j = 0; j < SYC_UNIT; j++) /* 2^23 + code; less 8 */
                    x[j] = __fadd_rn(__uint_as_float(__byte_perm(word[j / 4] >> 4 * h & 0x0f0f0f0fu,
                                                                 0x4b000000u, 0x7440 + j % 4)),
                                     -8388616.0f);
                store_inline(x, dense, 2 * v - v % 2 + 2 * (u32)h);
            }
        }
    }
};

enum { SYC_UNPACK_BLOCKS = 4 }; /* of a multiprocessor at a time */

/* NOLINT(readability-function-size): loads of what comes next are between the steps of this one */
/* Rows for each warp, as syc_pack_blocks. The next loads are all before the first store: a unit whose loads
   were waited for after others had begun would wait for these too. */
template <sy_type T, syc_block_format F>
static __global__ void __launch_bounds__(SYC_UNIT_THREADS, SYC_UNPACK_BLOCKS)
    syc_unpack_blocks(const __grid_constant__ syc_packed_rows rows, const __grid_constant__ syc_divisor heads,
                      const __grid_constant__ syc_gate gate)
{
    typedef syc_block_unit<T, F> Unit;
    /* groups that a warp loads at once */
    enum {
        FP4 = F == SYC_NVFP4,
        AHEAD = Unit::AHEAD,
        GROUPS = 32 / Unit::PER_GROUP,
        EIGHTS = F == SYC_Q4_0 ? 2 : 1
    };
    const syi_kv_codec &c = rows.plane.codec;
    const u32 lane = threadIdx.x % 32, part = lane % Unit::PER_GROUP, first = lane / Unit::PER_GROUP,
              groups = (u32)c.n_groups;
    const int64_t warps = (int64_t)gridDim.x * (blockDim.x / 32);
    int64_t i = (int64_t)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    u32 offset[AHEAD] = {};
    Unit held[AHEAD] = {};
    syc_packed_row own;
    float own_decode = 0.0f;
    const auto look_up = [&] {
        const int64_t mine = i + lane * warps;
        own = rows.packed(mine);
        if (FP4 && mine < rows.n)
            own_decode = syi_fp4_scale_of(&c.global, mine).decode;
    };
    const auto load = [&](const u8 *row, const u8 *record, u32 begin) {
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const u32 g = min(begin + first + GROUPS * (u32)u, groups - 1);
            held[u].load(row, record, g, part,
                         !FP4         ? 0
                         : begin == 0 ? offset[u]
                                      : syc_fp4_offset(c, heads, g));
        }
    };
#pragma unroll
    for (int u = 0; u < AHEAD && FP4; u++)
        offset[u] = syc_fp4_offset(c, heads, min(first + GROUPS * (u32)u, groups - 1));
    syc_wait_for_previous();
    const bool bad = syc_sees_fault(gate);
    look_up();
    const u8 *row = syc_pointer_of_lane(own.codes, 0),
             *record = FP4 ? syc_pointer_of_lane(own.scales, 0) : NULL;
    if (row != NULL)
        load(row, record, 0);
    if (!syc_all_clear(gate, bad))
        return;
#pragma unroll 1
    for (int turn = 0; i < rows.n;) {
        u8 *const dense = rows.dense(i);
        const float decode = FP4 ? __shfl_sync(SYC_ALL_LANES, own_decode, turn) : 0.0f;
        const u8 *const this_row = row, *const this_record = record;
        i += warps;
        turn = (turn + 1) % 32;
        if (turn == 0 && i < rows.n)
            look_up();
        row = i < rows.n ? syc_pointer_of_lane(own.codes, turn) : NULL;
        record = FP4 ? syc_pointer_of_lane(own.scales, turn) : NULL;
#pragma unroll 1
        for (u32 begin = 0; begin < groups; begin += AHEAD * GROUPS) {
            const bool last = groups - begin <= AHEAD * GROUPS;
            const u8 *const next = last ? row : this_row, *const next_record = last ? record : this_record;
            Unit now[AHEAD];
            memcpy(now, held, sizeof now);
            if (next != NULL)
                load(next, next_record, last ? 0 : begin + AHEAD * GROUPS);
#pragma unroll
            for (int u = 0; u < AHEAD; u++) {
                const u32 g = begin + first + GROUPS * (u32)u;
                if (g < groups && this_row != NULL)
                    now[u].store(decode, dense, g * Unit::PER_GROUP + part);
            }
        }
        if (this_row == NULL && rows.clears)
#pragma unroll 1
            for (u32 v = lane; v < groups * Unit::PER_GROUP * EIGHTS; v += 32)
                syc_eight<T>::zero().store(dense, v);
    }
}

/* ---- Launching ---- */

template <bool TO_CACHE, sy_type T, syc_block_format F>
static void syc_launch_blocks(syc_call *call, const syc_packed_rows &rows)
{
    const int threads = syc_unit_threads(call, rows.n, 1);
    const int64_t blocks = syc_ceil(rows.n, threads / 32),
                  at_once = (int64_t)(SYC_UNIT_THREADS / threads) * call->device->processors;
    /* those that unpack come in two rounds: a shorter end */
    const int64_t most = (TO_CACHE ? SYC_BLOCKS_OF(T) : 2 * SYC_UNPACK_BLOCKS) * at_once;
    const syc_divisor heads = syc_divisor_of(F == SYC_NVFP4 ? (u32)rows.plane.codec.per_head : 1u);
    const auto launch = [&](void (*kernel)(syc_packed_rows, syc_divisor, syc_gate)) {
        syc_launch(&call->queue, kernel, syc_start_of(rows), blocks < most ? blocks : most, threads, 0, rows,
                   heads, call->gate);
    };
    if constexpr (TO_CACHE)
        launch(syc_pack_blocks<T, F>);
    else
        launch(syc_unpack_blocks<T, F>);
}

/* Whether the rows are of these formats and their places allow units. */
static bool syc_are_blocks(const syi_kv_plane &plane)
{
    const syi_kv_codec &c = plane.codec;
    const u64 cached = (u64)(uintptr_t)plane.cache | (u64)plane.block_stride | (u64)plane.row_stride,
              dense = (u64)(uintptr_t)plane.dense.data | (u64)plane.dense.stride;
    const bool heads = c.fp4 && c.per_head < c.n_groups,
               far = heads &&
                     (c.head_stride < 0 || c.head_stride > (int64_t)(INT32_MAX / (c.n_groups / c.per_head)));
    return (c.fp4 || c.inlined) && dense % 16 == 0 && c.n_groups > 0 && c.n_groups < 1 << 24 && !far &&
           (c.fp4 ? cached | (heads ? (u64)c.head_stride : 0) : cached * 4) % 8 == 0;
}

template <bool TO_CACHE, sy_type T> static void syc_code_blocks(syc_call *call, const syc_packed_rows &rows)
{
    if (rows.plane.codec.fp4)
        syc_launch_blocks<TO_CACHE, T, SYC_NVFP4>(call, rows);
    else if (rows.plane.codec.four)
        syc_launch_blocks<TO_CACHE, T, SYC_Q4_0>(call, rows);
    else
        syc_launch_blocks<TO_CACHE, T, SYC_Q8_0>(call, rows);
}
