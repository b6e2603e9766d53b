/*
 * Rows of any alignment, in windows: sixteen bytes that are aligned where they go to. A window may lie
 * anywhere in the row that it comes from: the two aligned vectors that hold it are loaded and shifted. No
 * byte outside of a row is read or written.
 */
#pragma once

#include "cuda/runtime/device.cuh"

/* The two vectors; what is not wholly inside of the row is 0. */
struct syc_window {
    uint4 low, high;
};

/* Most windows of a row. */
static inline __host__ __device__ int64_t syc_windows(int64_t bytes)
{
    return (bytes + 30) / 16;
}

/* Where window i of a row at `to` begins, from the first byte of the row on: the first before it, as a rule.
   Numbers of `size` bytes are not cut, whatever their alignment. */
SYC_INLINE int64_t syc_window_at(const u8 *to, int64_t i, int size)
{
    return 16 * i - (int64_t)(((uintptr_t)to & 15) / (unsigned)size * (unsigned)size);
}

template <typename I> SYC_INLINE syc_window syc_load_window(const u8 *row, I bytes, I at)
{
    const int apart = (int)((uintptr_t)(row + at) & 15);
    const I low = at - apart;
    const uint4 *const from = (const uint4 *)(row + low), zero = make_uint4(0, 0, 0, 0);
    return {low >= 0 && low + 16 <= bytes ? from[0] : zero,
            apart != 0 && low + 16 >= 0 && low + 32 <= bytes ? from[1] : zero};
}

/* Sixteen bytes from byte `apart` on. */
SYC_INLINE uint4 syc_shift_bytes(const syc_window &held, int apart)
{
    u32 w[8] = {held.low.x,  held.low.y,  held.low.z,  held.low.w,
                held.high.x, held.high.y, held.high.z, held.high.w};
#pragma unroll
    for (int i = 0; i < 6; i++)
        w[i] = (apart & 8) != 0 ? w[i + 2] : w[i];
#pragma unroll
    for (int i = 0; i < 5; i++)
        w[i] = (apart & 4) != 0 ? w[i + 1] : w[i];
#pragma unroll
    for (int i = 0; i < 4; i++)
        w[i] = (u32)(((u64)w[i + 1] << 32 | w[i]) >> (8 * (apart & 3)));
    return make_uint4(w[0], w[1], w[2], w[3]);
}

/* The bytes of a window that was loaded; those outside of the row are 0. */
template <typename I> SYC_INLINE uint4 syc_shift_window(const syc_window &held, const u8 *row, I bytes, I at)
{
    const int apart = (int)((uintptr_t)(row + at) & 15);
    if (at < apart || at - apart + (apart != 0 ? 32 : 16) > bytes) {
        u32 w[4] = {};
#pragma unroll
        for (int i = 0; i < 4; i++) {
#pragma unroll
            for (int b = 0; b < 4; b++)
                if (at + 4 * i + b >= 0 && at + 4 * i + b < bytes)
                    w[i] |= (u32)row[at + 4 * i + b] << (8 * b);
        }
        return make_uint4(w[0], w[1], w[2], w[3]);
    }
    return syc_shift_bytes(held, apart);
}

template <typename I> SYC_INLINE void syc_store_window(u8 *to, I bytes, I at, uint4 v)
{
    u8 *const place = to + at;
    const u32 w[4] = {v.x, v.y, v.z, v.w};
    if (at >= 0 && at + 16 <= bytes && ((uintptr_t)place & 15) == 0) {
        __stcs((uint4 *)place, v);
        return;
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const I first = at + 4 * i;
        if (first >= 0 && first + 4 <= bytes && ((uintptr_t)place & 3) == 0)
            *(u32 *)(place + 4 * i) = w[i];
        else
#pragma unroll
            for (int b = 0; b < 4; b++)
                if (first + b >= 0 && first + b < bytes)
                    place[4 * i + b] = (u8)(w[i] >> (8 * b));
    }
}

/* ---- Pieces ---- */

/* A piece to copy. to NULL: nothing to do; from NULL: zeros. */
struct syc_piece {
    const u8 *from;
    u8 *to;
};

/* How pieces of one length are copied: in vectors V that are aligned at both ends, or in windows. */
template <typename V> struct syc_piece_vectors {
    enum { BYTES = sizeof(V) };
    typedef V Held;
    static __host__ __device__ int64_t count(int64_t bytes) { return bytes / BYTES; }
    SYC_INLINE Held load(const syc_piece &p, u32 i, int64_t)
    {
        return p.from != NULL ? __ldcs((const V *)p.from + i) : syc_zero<V>();
    }
    SYC_INLINE void store(const syc_piece &p, u32 i, int64_t, const Held &held)
    {
        if (p.to != NULL)
            __stcs((V *)p.to + i, held);
    }
};

template <> struct syc_piece_vectors<syc_window> {
    enum { BYTES = 1 };
    typedef syc_window Held;
    static __host__ __device__ int64_t count(int64_t bytes) { return syc_windows(bytes); }
    template <typename I> SYC_INLINE Held load(const syc_piece &p, u32 i, I bytes)
    {
        return p.from != NULL ? syc_load_window(p.from, bytes, (I)syc_window_at(p.to, i, 1))
                              : syc_zero<syc_window>();
    }
    template <typename I> SYC_INLINE void store(const syc_piece &p, u32 i, I bytes, const Held &held)
    {
        const I at = (I)syc_window_at(p.to, i, 1);
        if (p.to != NULL && at < bytes)
            syc_store_window(p.to, bytes, at,
                             p.from != NULL ? syc_shift_window(held, p.from, bytes, at)
                                            : make_uint4(0, 0, 0, 0));
    }
};
