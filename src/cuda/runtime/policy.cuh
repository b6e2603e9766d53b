/*
 * Measured numbers of the kernels that move rows and indices, a struct for each family; the sampler's are in
 * sample_policy.cuh. No result depends on them. All are of an H200 (132 processors); the day is that on which
 * the number was set, and the rows of `switchyard bench --device cuda` that are named measure it again.
 */
#pragma once

/* Where the grid goes over its items, a kernel takes at most so many blocks for each processor: few for short
   work, which starts sooner, more where blocks wait for memory. 2026-11-16. */
struct grid_policy {
    enum : int {
        CHECK = 2,    /* contents are validated: moe_pad_map, kv_gather */
        COUNT = 4,    /* counted in shared memory: moe_map_physical, moe_route with drops */
        INDEX = 8,    /* an index for each thread: moe_locations, moe_convert_indices */
        CODES = 16,   /* rows become codes, and codes rows: quantize_rows, dequantize_rows */
        NUMBERS = 32, /* single numbers: moe_unpermute_ids with a bias */
        PARTS =
            3, /* few rows are cut into parts until there are so many: moe_permute T=64, all_to_all T=128 */
    };
};

struct moe_policy {
    enum : int {
        /* Cells of the map for each processor up to which one kernel does a moe_permute. T=64 E=256.
           2026-11-16 */
        ALONE_CELLS = 125,
        /* Rows for each processor from which a ring of rows in shared memory beats parts: moe_permute T=4096
           E=256 K=8 H=7168; of sums, moe_unpermute; of gradients and dot products, moe_unpermute_grad, at the
           same shape. 2026-11-16 */
        RING_ROWS = 15,
        SUM_RING_TOKENS = 8,
        SPREAD_RING_TOKENS = 4,
        /* Blocks for each processor from which long rows have a warp each: moe_dispatch S=65536 H=4096.
           2026-11-17 */
        LONG_ROW_BLOCKS = 8,
        /* Dot products for each processor up to which a row is cut into blocks: moe_dispatch_grad_gate.
           2026-11-16 */
        FEW_PRODUCTS = 16,
    };
};

struct kv_policy {
    enum : int {
        /* Loads of a thread in blocks that hold many rows. They take rows that are more than the usual blocks
           of all processors hold at a time: 32768 rows of 1152 bytes are moved in two turns of the blocks,
           instead of two and a short third. kv_gather of 16 sequences. 2026-11-17 */
        AHEAD = 9,
        USUAL_BLOCKS = 8, /* of a processor at a time */
    };
};

struct exchange_policy {
    enum : int {
        /* Blocks of a processor at a time that write a token to its rows; blocks for each that write padding,
           and tables of moves. all_to_all T=128 E=256 K=8 H=7168. 2026-11-16 */
        SPREAD_BLOCKS = 4,
        PADDING_BLOCKS = 4,
        TABLE_BLOCKS = 4,
        /* The ring of local_reduce: blocks of a processor, shared memory and pieces of each, and the shortest
           row, in bytes. T=4096 and 16384, E=256 K=8 H=7168. 2026-11-17 */
        RING_BLOCKS = 4,
        RING_BYTES = 46 * 1024,
        RING_STAGES = 16,
        RING_LEAST_ROW = 512,
    };
};
