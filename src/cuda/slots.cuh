/*
 * What the operators on expert slots share on a device: the slot of a choice, numbers of a row in vectors, and rows cut
 * into parts for blocks. Arithmetic is one IEEE operation per step, as in src/kernels/scalar.c.
 */
#ifndef SYC_SLOTS_CUH
#define SYC_SLOTS_CUH

#include "cuda/context.cuh"
#include "cuda/load.cuh"

#include <type_traits>

enum { SYC_SLOT_THREADS = 256 };

/* Choice i of the samples in `indices` and `locations`. */
static __device__ __forceinline__ int64_t syc_slot_of(const u8 *indices, const u8 *locations, int64_t i, int64_t n_experts,
                                                      int64_t capacity)
{
    const int32_t e = (int32_t)syc_load<u32>(indices + i * 4), place = (int32_t)syc_load<u32>(locations + i * 4);
    return syi_slot(e, place, n_experts, capacity);
}

/* Number i of a tensor that may be missing: then 1. */
static __device__ __forceinline__ float syc_gate_of(const u8 *gates, int64_t i, sy_type type)
{
    return gates == NULL ? 1.0f : syc_load_float(gates + i * (type == SY_TYPE_F32 ? 4 : 2), type);
}

/* ---- Vectors of numbers ------------------------------------------------------------------------------------------ */

/* WIDE: 16 bytes, aligned to them. Else one number of any alignment. */
template <sy_type T, bool WIDE> struct syc_numbers {
    enum { SIZE = T == SY_TYPE_F32 ? 4 : 2, N = WIDE ? 16 / SIZE : 1, BYTES = N * SIZE };
    typedef typename std::conditional<T == SY_TYPE_F32, u32, u16>::type Word;
    typedef typename std::conditional<WIDE, uint4, Word>::type V;

    /* Vector i of a row. */
    static __device__ __forceinline__ V load(const u8 *row, int64_t i)
    {
        if constexpr (WIDE)
            return __ldcs((const uint4 *)row + i);
        else
            return syc_load<Word>(row + i * SIZE);
    }
    static __device__ __forceinline__ void store(u8 *row, int64_t i, V v)
    {
        if constexpr (WIDE)
            __stcs((uint4 *)row + i, v);
        else
            syc_store<Word>(row + i * SIZE, v);
    }
    static __device__ __forceinline__ void widen(V v, float (&x)[N])
    {
        Word bits[N];
        memcpy(bits, &v, sizeof v);
#pragma unroll
        for (int j = 0; j < N; j++)
            x[j] = T == SY_TYPE_F32 ? __uint_as_float(bits[j]) : T == SY_TYPE_F16 ? syc_from_f16((u16)bits[j]) : syc_from_bf16((u16)bits[j]);
    }
    /* Rounds to the type; NaN becomes the canonical one. */
    static __device__ __forceinline__ V narrow(const float (&x)[N])
    {
        Word bits[N];
        V v;
#pragma unroll
        for (int j = 0; j < N; j++)
            bits[j] = (Word)(T == SY_TYPE_F32   ? __float_as_uint(syc_canonical(x[j]))
                             : T == SY_TYPE_F16 ? syc_to_f16(x[j])
                                                : syc_to_bf16(x[j]));
        memcpy(&v, bits, sizeof v);
        return v;
    }
    static __device__ __forceinline__ V scale(V v, float w)
    {
        float x[N];
        widen(v, x);
#pragma unroll
        for (int j = 0; j < N; j++)
            x[j] = __fmul_rn(w, x[j]);
        return narrow(x);
    }
};

/* Calls f.run<T, WIDE>() for rows of a type; `alignment` is the bitwise or of their addresses, strides and bytes. */
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

static inline u64 syc_alignment(struct syi_rows rows) { return (u64)(uintptr_t)rows.data | (u64)rows.stride; }

/* ---- Rows in parts ----------------------------------------------------------------------------------------------- */

/* Rows of `width` vectors are cut into parts of equal length, the last perhaps shorter; a block takes `per_block` parts. */
struct syc_parts {
    int64_t n;                  /* parts of all rows */
    int64_t width, of_row;      /* vectors and parts of a row */
    struct syc_split by_row;
    struct syc_divisor vectors; /* of a part */
    int per_block;              /* at most SYC_SLOT_THREADS */
};

static inline struct syc_parts syc_parts_of(int64_t rows, int64_t width)
{
    enum { MOST = 1024, MANY = 1 << 23 }; /* four vectors for each thread; vectors that keep every processor busy for long */
    const int64_t of_row = (width + MOST - 1) / MOST, vectors = (width + of_row - 1) / of_row;
    const int64_t fit = MOST / vectors, few = fit < SYC_SLOT_THREADS ? fit : (int64_t)SYC_SLOT_THREADS;
    const bool many = rows > MANY / width;
    return {rows * of_row, width, of_row, syc_split_by(of_row, rows * of_row), syc_divisor_of((u32)vectors),
            (int)(many && few < 8 ? 8 : few)};
}

static inline int64_t syc_parts_blocks(const struct syc_parts &parts)
{
    const int64_t blocks = (parts.n + parts.per_block - 1) / parts.per_block;
    return blocks < INT32_MAX ? blocks : INT32_MAX; /* blocks take several turns */
}

/* A part of a row: which row, its first vector, its length. */
struct syc_part {
    int64_t row, begin;
    u32 n;
};

static __device__ __forceinline__ struct syc_part syc_part_at(const struct syc_parts &parts, int64_t i)
{
    const int64_t row = parts.of_row == 1 ? i : syc_quotient(i, parts.by_row), begin = (i - row * parts.of_row) * parts.vectors.d;
    return {row, begin, (u32)min((int64_t)parts.vectors.d, parts.width - begin)};
}

#endif
