/*
 * Pieces of equal length from anywhere to anywhere, in vectors as wide as their alignment allows.
 */
#pragma once

#include "cuda/runtime/context.cuh"
#include "cuda/prim/window.cuh"

/* of a block: threads, loads ahead, most pieces */
enum { SYC_MOVE_THREADS = 256, SYC_MOVE_AHEAD = 4, SYC_MOVE_PIECES = 128 };

/* Copies the pieces of a block, `all` vectors, of `bytes` bytes each; the first loads run before the verdict
   of the validating kernel. Where pieces go is read after the barrier of the verdict, but for windows.
   AHEAD: loads of a thread. */
template <typename V, int AHEAD = SYC_MOVE_AHEAD>
SYC_INLINE void syc_move_pieces(const syc_piece *piece, u32 all, const syc_divisor &width, int bytes,
                                const syc_gate &gate)
{
    typedef syc_piece_vectors<V> Vectors;
    typename Vectors::Held held[AHEAD];
    for (u32 begin = 0; begin < all || begin == 0; begin += AHEAD * SYC_MOVE_THREADS) {
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const u32 i = begin + (u32)u * SYC_MOVE_THREADS + threadIdx.x,
                      p = syc_divide(i < all ? i : 0, width);
            if (begin + (u32)u * SYC_MOVE_THREADS >= all) /* for all threads */
                break;
            held[u] = i < all ? Vectors::load(piece[p], i - p * width.d, bytes)
                              : syc_zero<typename Vectors::Held>();
        }
        if (begin == 0) {
            syc_wait_for_previous();
            if (!syc_all_clear(gate, syc_sees_fault(gate)))
                return;
        }
#pragma unroll
        for (int u = 0; u < AHEAD; u++) {
            const u32 i = begin + (u32)u * SYC_MOVE_THREADS + threadIdx.x, p = syc_divide(i, width);
            if (begin + (u32)u * SYC_MOVE_THREADS >= all)
                break;
            if (i < all)
                Vectors::store(piece[p], i - p * width.d, bytes, held[u]);
        }
    }
}

/*
 * Copies n pieces of `bytes` bytes, `width` vectors V, each; a block takes `pieces` of them. Rows is a struct
 * with `struct syc_piece at(int64_t i)`, which may read inputs and must return only addresses that it has
 * validated itself: it runs before the verdict of the validating kernel. The first loads do too.
 */
template <typename V, class Rows>
static __global__ void __launch_bounds__(SYC_MOVE_THREADS)
    syc_move(const __grid_constant__ syc_gate gate, int64_t n, int pieces, syc_divisor width, int bytes,
             const Rows rows)
{
    __shared__ syc_piece piece[SYC_MOVE_PIECES];
    const int64_t first = (int64_t)blockIdx.x * pieces;
    const int own = (int)min((int64_t)pieces, n - first);
    const u32 all = (u32)own * width.d;
    if ((int)threadIdx.x < own)
        piece[threadIdx.x] = rows.at(first + threadIdx.x);
    __syncthreads();
    syc_move_pieces<V>(piece, all, width, bytes, gate);
}

enum { SYC_SHORT_PIECE = 128 };

/* Of vectors that divide all of these addresses, distances and sizes; 1: windows, which are faster for more
   than a few bytes. */
static inline int syc_vector_bytes(u64 bits, u64 bytes)
{
    bits |= bytes;
    return bits % 16 == 0 ? 16 : bits % 4 == 0 && bytes <= SYC_SHORT_PIECE ? 4 : 1;
}

/*
 * Copies n pieces of `bytes` bytes each, in vectors that fit `alignment` (the bitwise or of all addresses,
 * strides and sizes). Long pieces are cut into parts of one length, so that a block has work of a bounded
 * size; the last part may begin inside the one before, and what both copy is the same.
 */
enum { SYC_MOST_PIECE = 64 * 1024, SYC_MANY_BYTES = 64 << 20 };

template <class Rows> struct syc_cut_rows {
    Rows rows;
    int64_t parts, part_bytes, last; /* where the last begins */
    __device__ syc_piece at(int64_t i) const
    {
        if (parts == 1)
            return rows.at(i);
        const int64_t whole = i / parts, offset = min((i - whole * parts) * part_bytes, last);
        syc_piece p = rows.at(whole);
        p.from = p.from != NULL ? p.from + offset : NULL;
        p.to = p.to != NULL ? p.to + offset : NULL;
        return p;
    }
};

/* As many as are loaded at once, so that all loads of a block but those of large calls run ahead of the
   verdict; fewer where blocks would be too few to keep the device busy. */
static inline int64_t syc_pieces_of_block(int64_t n, int64_t width, int64_t bytes, int processors,
                                          int ahead = SYC_MOVE_AHEAD)
{
    const int64_t at_once = ahead * SYC_MOVE_THREADS / width, large = n * bytes > SYC_MANY_BYTES ? 2 : 1;
    const int64_t share = (n + 2 * processors - 1) / (2 * processors);
    int64_t pieces = at_once * large < share ? at_once * large : share;
    pieces = pieces > SYC_MOVE_PIECES ? (int64_t)SYC_MOVE_PIECES : pieces;
    return pieces > 1 ? pieces : 1;
}

template <typename V, class Rows>
static void syc_move_vectors(syc_call *call, const Rows &rows, int64_t n, int64_t bytes)
{
    const int64_t width = syc_piece_vectors<V>::count(bytes),
                  pieces = syc_pieces_of_block(n, width, bytes, call->device->processors);
    syc_launch(&call->queue, syc_move<V, Rows>, SYC_EARLY, (n + pieces - 1) / pieces, SYC_MOVE_THREADS, 0,
               call->gate, n, (int)pieces, syc_divisor_of((u32)width), (int)bytes, rows);
}

template <class Rows>
static void syc_move_rows(syc_call *call, const Rows &rows, int64_t n, int64_t bytes, u64 alignment)
{
    const int vector = syc_vector_bytes(alignment, (u64)bytes);
    const int64_t parts = (bytes + SYC_MOST_PIECE - 1) / SYC_MOST_PIECE;
    if (n == 0 || bytes == 0)
        return;
    const int64_t part = (bytes / vector + parts - 1) / parts * vector;
    const syc_cut_rows<Rows> cut = {rows, parts, part, bytes - part};
    switch (vector) {
    case 16:
        syc_move_vectors<uint4>(call, cut, n * parts, part);
        return;
    case 4:
        syc_move_vectors<u32>(call, cut, n * parts, part);
        return;
    default:
        syc_move_vectors<syc_window>(call, cut, n * parts, part);
    }
}
