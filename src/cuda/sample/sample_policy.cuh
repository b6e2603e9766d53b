/*
 * Numbers of the sampler that were measured, with the shapes and the day. No result depends on them: they
 * decide which implementation reads a row, by how many blocks, and when it gives a row up. All were found on
 * an H200 (132 processors); `switchyard bench --device cuda sample` measures their rows again. Shapes are
 * [rows, vocabulary] of bf16 where nothing else is said.
 */
#pragma once

#include "cuda/runtime/device.cuh"

struct sample_policy {
    enum : u32 {
        /* ---- Blocks ---- */

        /* Rows that are read once: at most so many blocks for a row, while all rows together have no more
           than one for each processor. 2026-11-17, [1..48,131072]. */
        CLUSTER = 8,
        TOP_K_CLUSTER = 4, /* the same of top-k, where each block sends its tokens to the first */
        /* A draw from the whole row: 16 blocks of 8 warps instead of 8 of 16, since fewer warps of a
           processor weigh sooner. 2026-11-17, [1,131072]. */
        WHOLE_WIDE_CLUSTER = 16,
        WHOLE_WIDE_WARPS = 8,
        /* Groups of vectors of each warp that stay in shared memory between the two reads of a whole row of
           f32: 61.0 us instead of 63.9. Of rows with fewer vectors, or of bf16, it is slower. 2026-11-17, f32
           [256,131072]. */
        WHOLE_HELD = 3,
        WHOLE_HELD_VECTORS = 1 << 14,
        /* Blocks of the general steps for each processor: of a call, and where another kernel has left some
           of its rows. 2026-11-16. */
        GENERAL_BLOCKS = 4,
        LEFT_BLOCKS = 2,
        LOGPROB_BLOCKS = 2,
        /* Parts of a row that many blocks share, and the blocks for each processor at which there are enough
           of them. 2026-11-16, [1,131072] and [48,131072]. */
        MOST_PARTS = 64,
        PART_BLOCKS = 8,
        /* Without clusters, rows of top-k that are fewer than processors / 8 are read sooner in parts.
           2026-11-16. */
        FEW_ROWS = 8,
        /* Shared memory that kernels need at most beside the mask of a row. */
        MASK_BESIDE = 80 << 10,
        /* Scratch of all blocks of the general steps, MiB: lists of a row take 16 bytes for each token. */
        SCRATCH_MIB = 256,

        /* ---- Overlap ---- */

        /* Rows for each processor from which the second block of each begins late, so that one reads while
           the other finishes its row: 89.6 -> 87.0 us. A row of 16,384 vectors is 16,384 cycles late, one of
           top-k half of that; 16,000 cycles instead of 8,000 gave 88.2. 2026-11-17, [1024,131072] k=50. */
        LATE_ROWS = 6,
        LATE_CYCLES = 1 << 20, /* at most */
        /* Bytes of the row that comes next on a processor, which a block of top-k asks the L2 cache for when
           it has read its own. 16 to 32 KiB were best; with 64 KiB other rows waited for them. 2026-11-17,
           [1024,131072] k=50. */
        AHEAD_BYTES = 24 << 10,

        /* ---- Top-k ---- */

        LIST = 3072,   /* tokens that are listed, at most; of k = 1024 a guess lists 1100 to 1500. 2026-11-17,
                          [1..1024,131072] */
        PIECES = 64,   /* places of a row from which a threshold is guessed: 4 for each warp */
        SMALL_K = 256, /* k up to this has a certain threshold: few threads have two of the first k.
                          2026-11-17, k=50 */
        STREAM_K =
            96, /* the same of rows that are read in halves: above, the tokens of many rows would not fit */
        BY_THREADS = 96, /* tokens of the first group that are found among the largest of each thread */
        COMPARED = 320,  /* tokens that are ranked by comparing each with all others, at most */
        CROWD = 96, /* tokens of a bin that are compared with each other; if there are more, all are sorted,
                       as far as */
        SORTED = 2048,       /* there is room */
        TIES_MARGIN = 128,   /* more tiles than k + this reach a certain threshold: the row has ties */
        CROWDED_BY = 4,      /* a first group has so many times the tokens that were wanted, and some more: */
        CROWDED_MARGIN = 64, /* the row has ties */

        /* ---- Top-p ---- */

        EDGE_MARGIN = 4,  /* bins of an eighth of an octave below the end of a nucleus that are listed, too.
                             2026-11-16 */
        EDGE_LIST = 5632, /* tokens among which a wide nucleus is cut; 64 KiB of shared memory with it, two
                             blocks a processor. 2026-11-17, flat rows of [1..1024,131072]: 46 -> 36 us, 493
                             -> 433 us */
        EDGE_READS = 6,   /* of a wide row before it takes the general steps */
        SAMPLE_SHARE = 5, /* of a wide row a fifth of the vectors of a thread is sampled, but */
        SAMPLE_LEAST = 2, /* from so many */
        SAMPLE_MOST = 16, /* to so many. 2026-11-17, flat rows of [1,131072] */
    };
};
