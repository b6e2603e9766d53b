/*
 * Kernels of sample with many blocks for a row: what its tiles hold, what its parts weigh.
 */
#include "cuda/sample/sample_general.cuh"
#include "cuda/sample/sample_launch.cuh"

/* The logits of a row, and which of its parts the block has. */
struct row_part {
    syc_logits logits;
    int64_t row;
    int part;
};

SYC_INLINE row_part part_of_block(const syi_sample_plan &p, const syc_parts &split)
{
    const int64_t b = blockIdx.x / (u32)split.parts;
    return {{syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab},
            b,
            (int)(blockIdx.x - (u32)b * (u32)split.parts)};
}

/* A part has the tiles from part * own on; several threads share a tile where there are fewer tiles than
 * threads. */
template <sy_type T, bool wanted>
static __global__ void __launch_bounds__(SPLIT_THREADS)
    find_tiles(const __grid_constant__ syi_sample_plan p, const syc_parts split)
{
    __shared__ u32 key[SPLIT_THREADS], top;
    const row_part block = part_of_block(p, split);
    const syc_logits l = block.logits;
    const u32 own = SYC_TILES / (u32)split.parts;
    const u32 mine = threadIdx.x & (own - 1), tile = (u32)block.part * own + mine;
    u32 most = syc_minus_inf_word<T>(), flags = 0;
    syc_start_next();
    key[threadIdx.x] = 0;
    if (threadIdx.x == 0)
        top = 0;
    each_vector<T>(l, tile + (threadIdx.x - mine) * (u32)split.parts, SPLIT_THREADS * (u32)split.parts,
                   [&](u32, uint4 x) {
                       most = fold<T>(most, x);
                       if (wanted)
                           flags |= flags_of<T>(x);
                   });
    most = syc_word_key<T>(most);
    const u32 most_of_warp = __reduce_max_sync(SYC_ALL_LANES, most);
    __syncthreads();
    atomicMax(&key[mine], most);
    if (syc_lane() == 0)
        atomicMax(&top, most_of_warp);
    __syncthreads();
    if (threadIdx.x < own && split.tile != NULL)
        split.tile[block.row * SYC_TILES + tile] = tile < syc_vectors_of<T>(l).n ? key[threadIdx.x] : 0;
    if (wanted) {
        const bool nan = __syncthreads_or((flags & SY_ROW_NAN) != 0),
                   inf = __syncthreads_or((flags & SY_ROW_INF) != 0);
        flags = (nan ? SY_ROW_NAN : 0u) | (inf ? SY_ROW_INF : 0u);
    }
    if (threadIdx.x == 0)
        split.most[block.row * split.parts + block.part] = (u64)top << 32 | flags;
}

/* The largest key of a row. */
template <sy_type T>
static __device__ u32 largest_key(const syc_logits &l, const syc_parts &split, int64_t b, u64 *part)
{
    u32 key =
        (int)threadIdx.x < split.parts ? (u32)(__ldcg(split.most + b * split.parts + threadIdx.x) >> 32) : 0;
    syc_each_rest<T>(l, [&](u32, u32 bits) { key = max(key, syi_key(bits)); });
    return (u32)syc_block_max(key, part);
}

template <sy_type T>
static __global__ void __launch_bounds__(SPLIT_THREADS)
    weigh_parts(const __grid_constant__ syi_sample_plan p, const syc_parts split)
{
    __shared__ u64 sums[SYC_BLOCK_WARPS];
    const row_part block = part_of_block(p, split);
    const syc_logits l = block.logits;
    syc_sample_row r = {};
    r.p = &p;
    r.b = block.row;
    r.scale.probs_in = p.args.probs_in;
    syc_start_next();
    read_parameters(r);
    syc_wait_for_previous();
    if (!weighs_all(r))
        return;
    r.scale.max = syi_key_value(largest_key<T>(l, split, block.row, sums));
    const syc_scale scale = r.scale;
    const syc_share own = syc_part_of<T>(l, block.part, split.parts);
    const u64 sum = syc_block_sum(weigh_share<T>(l, scale, own, threadIdx.x, SPLIT_THREADS), sums);
    if (threadIdx.x == 0)
        split.weight[block.row * split.parts + block.part] = sum;
}

void syc_sample_tiles(syc_call *call, const syi_sample_plan *p, syc_parts split)
{
    const auto flags = syc_sample_kernel(p, find_tiles<SY_TYPE_F32, true>, find_tiles<SY_TYPE_F16, true>,
                                         find_tiles<SY_TYPE_BF16, true>),
               none = syc_sample_kernel(p, find_tiles<SY_TYPE_F32, false>, find_tiles<SY_TYPE_F16, false>,
                                        find_tiles<SY_TYPE_BF16, false>);
    syc_launch(&call->queue, p->row_flags.data != NULL ? flags : none, SYC_AFTER, p->batch * split.parts,
               SPLIT_THREADS, 0, *p, split);
}

void syc_sample_weights(syc_call *call, const syi_sample_plan *p, syc_parts split)
{
    syc_launch(&call->queue, SYC_SAMPLE_KERNEL(p, weigh_parts), SYC_EARLY, p->batch * split.parts,
               SPLIT_THREADS, 0, *p, split);
}
