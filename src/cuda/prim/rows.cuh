/*
 * Pieces of equal length from anywhere to anywhere, in vectors as wide as their alignment allows.
 */
#pragma once

#include "cuda/runtime/context.cuh"

/* Largest vector that divides all of these addresses, distances and sizes. */
static inline int syc_vector_bytes(u64 bits)
{
    return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 1;
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
    const int64_t width = bytes / (int64_t)sizeof(V),
                  pieces = syc_pieces_of_block(n, width, bytes, call->device->processors);
    syc_launch(&call->queue, syc_move<V, Rows>, SYC_EARLY, (n + pieces - 1) / pieces, SYC_MOVE_THREADS, 0,
               call->gate, n, (int)pieces, syc_divisor_of((u32)width), rows);
}

template <class Rows>
static void syc_move_rows(syc_call *call, const Rows &rows, int64_t n, int64_t bytes, u64 alignment)
{
    const int vector = syc_vector_bytes(alignment | (u64)bytes);
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
        syc_move_vectors<u8>(call, cut, n * parts, part);
    }
}
