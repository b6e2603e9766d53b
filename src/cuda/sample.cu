/*
 * sample on a device. A first kernel, many blocks for a row, finds the largest key of each of many cells; where the weight
 * of a whole row is needed, a second one sums it. Then a block per row: the cells give a floor that few tokens reach, and
 * those are gathered from the cells that reach it, in shared memory, and sorted. Rows that keep
 * more are cut by histograms of their keys, which is exact for every distribution. Everything that is summed is an integer.
 */
#include "cuda/backend.cuh"
#include "cuda/sample_draw.cuh"
#include "cuda/sample_nucleus.cuh"

/* ---- Kernels of many blocks for a row ------------------------------------------------------------------------------- */

/* The logits of a row, and which of its parts the block has. */
struct part {
    struct syc_logits logits;
    int64_t row;
    int part;
};

static __device__ __forceinline__ struct part part_of_block(const struct syi_sample_plan &p, const struct syc_parts &split)
{
    const int64_t b = blockIdx.x / (u32)split.parts;
    return {{syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, (u32)p.vocab}, b,
            (int)(blockIdx.x - (u32)b * (u32)split.parts)};
}

/* A part has the cells from part * own on; several threads share a cell where there are fewer cells than threads. */
template <sy_type T, bool wanted>
static __global__ void __launch_bounds__(SPLIT_THREADS)
    find_cells(const __grid_constant__ struct syi_sample_plan p, const struct syc_parts split)
{
    __shared__ u32 key[SPLIT_THREADS], top;
    const struct part block = part_of_block(p, split);
    const struct syc_logits l = block.logits;
    const u32 own = SYC_FEW / (u32)split.parts;
    const u32 mine = threadIdx.x & (own - 1), cell = (u32)block.part * own + mine;
    u32 most = syc_minus_inf_word<T>(), flags = 0;
    syc_start_next();
    key[threadIdx.x] = top = 0;
    each_vector<T>(l, cell + (threadIdx.x - mine) * (u32)split.parts, SPLIT_THREADS * (u32)split.parts, [&](u32, uint4 x) {
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
    if (threadIdx.x < own && split.cell != NULL)
        split.cell[block.row * SYC_FEW + cell] = cell < syc_vectors_of<T>(l).n ? key[threadIdx.x] : 0;
    if (wanted) {
        const bool nan = __syncthreads_or((flags & SY_ROW_NAN) != 0), inf = __syncthreads_or((flags & SY_ROW_INF) != 0);
        flags = (nan ? SY_ROW_NAN : 0u) | (inf ? SY_ROW_INF : 0u);
    }
    if (threadIdx.x == 0)
        split.most[block.row * split.parts + block.part] = (u64)top << 32 | flags;
}

/* The largest key of a row. */
template <sy_type T> static __device__ u32 largest_key(const struct syc_logits &l, const struct syc_parts &split, int64_t b, u64 *part)
{
    u32 key = (int)threadIdx.x < split.parts ? (u32)(__ldcg(split.most + b * split.parts + threadIdx.x) >> 32) : 0;
    syc_each_rest<T>(l, [&](u32, u32 bits) { key = max(key, syi_key(bits)); });
    return (u32)syc_block_max(key, part);
}

template <sy_type T>
static __global__ void __launch_bounds__(SPLIT_THREADS)
    weigh_parts(const __grid_constant__ struct syi_sample_plan p, const struct syc_parts split)
{
    __shared__ u64 sums[SYC_BLOCK_WARPS];
    const struct part block = part_of_block(p, split);
    const struct syc_logits l = block.logits;
    struct syc_sample_row r = {};
    r.p = &p;
    r.b = block.row;
    r.scale.probs_in = p.probs_in;
    syc_start_next();
    read_parameters(r);
    syc_wait_for_previous();
    if (!weighs_all(r))
        return;
    r.scale.max = syi_key_value(largest_key<T>(l, split, block.row, sums));
    const struct syc_scale scale = r.scale;
    const struct syc_share own = syc_part_of<T>(l, block.part, split.parts);
    const u64 sum = syc_block_sum(weigh_share<T>(l, scale, own, threadIdx.x, SPLIT_THREADS), sums);
    if (threadIdx.x == 0)
        split.weight[block.row * split.parts + block.part] = sum;
}

/* ---- The kernel of a block for a row ---------------------------------------------------------------------------------- */

/* Rows that are looked for before any other is processed. */
enum road { ROAD_GENERAL, ROAD_QUICK, ROAD_NUCLEUS, ROAD_TOP_K, ROAD_TOP_K_OR_P };

/* Scratch of a block: a row of f32 with overrides, and two lists. */
struct sample_scratch {
    u8 *data;
    size_t of_block, lists; /* bytes; where the lists begin */
    struct syc_parts split;
    u32 *left; /* what the kernel before says of a row: enum quick; NULL: it did not run */
    enum road road;
};

template <sy_type T> static __device__ __forceinline__ void sample_row(struct syc_sample_row &r, const u32 *cell, u32 flags)
{
    const struct syi_sample_plan &p = *r.p;
    const bool lists = p.list_token.data != NULL || p.list_prob.data != NULL;
    const bool by_list = p.noise == SY_NOISE_Q && p.q_order == SY_Q_LIST;
    flags = scan_row<T>(r, cell, flags);
    int64_t token = r.empty ? p.empty_token : (int64_t)syc_token_of(r.first);
    if (needs_candidates(r) && (!r.empty || lists)) {
        filter_row<T>(r);
        const bool draws = !r.empty && !r.greedy;
        if (draws && p.noise == SY_NOISE_CDF)
            token = choose_by_cdf<T>(r);
        else if (draws && !by_list)
            token = choose_by_token<T>(r);
        if (lists || (draws && by_list))
            make_list<T>(r);
        if (draws && by_list)
            token = choose_by_list<T>(r);
    }
    const u32 kept = p.kept != NULL ? (u32)measure<T>(r, false) : 0;
    if (lists)
        write_list<T>(r);
    const float lp = p.logprob != NULL ? logprob<T>(r, (u32)token) : 0.0f;
    if (p.masked.data != NULL) {
        __syncthreads(); /* all have read the row */
        write_masked<T>(r);
    }
    if (threadIdx.x != 0)
        return;
    if (p.token != NULL)
        syc_store<u64>(p.token + r.b * 8, (u64)token);
    if (p.row_flags != NULL)
        syc_store<u32>(p.row_flags + r.b * 4, flags);
    if (p.kept != NULL)
        syc_store<u32>(p.kept + r.b * 4, kept);
    if (p.logprob != NULL)
        syc_store<u32>(p.logprob + r.b * 4, __float_as_uint(lp));
}

/* Any row; all others come here, with their cells. */
template <sy_type T>
SYC_COLD void general_row(const struct syi_sample_plan &p, const struct sample_scratch &scratch, struct syc_sample_shared *s, struct syc_sample_row &r,
                          int64_t b, uint4 cells, u32 flags, bool known)
{
    u32 cell[SYC_CELLS] = {cells.x, cells.y, cells.z, cells.w};
    u8 *const own = scratch.data + blockIdx.x * scratch.of_block;
    const bool staged = p.overrides.indptr != NULL;
    __syncthreads();
    if (syc_warp() == 0) {
        const struct syc_params a = load_params(p, b);
        if (syc_lane() == 0) {
            r = {};
            r.p = &p;
            r.s = s;
            r.b = b;
            r.vocab = r.n = (u32)p.vocab;
            r.logits = {syc_row(p.logits, b), p.allow_bits.data != NULL ? syc_row(p.allow_bits, b) : NULL, r.vocab};
            r.scale.probs_in = p.probs_in;
            r.split = scratch.split;
            r.list = (u64 *)(own + scratch.lists);
            set_params(r, a);
        }
    }
    __syncthreads();
    if (staged) {
        stage_row(r, (u32 *)own);
        r.logits = {own, NULL, (u32)p.vocab};
    }
    if (!known)
        flags = get_cells<T>(p, r.split, r.logits, b, cell);
    sample_row<T>(r, cell, flags);
}

template <sy_type T>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    sample_rows(const __grid_constant__ struct syi_sample_plan p, const __grid_constant__ struct sample_scratch scratch,
                const __grid_constant__ struct syc_gate gate)
{
    __shared__ union {
        struct syc_sample_shared general;
        struct quick_shared quick;
    } s;
    __shared__ struct syc_sample_row row;
    const struct syc_gate *look = &gate; /* until a row was processed */
    if (scratch.road == ROAD_GENERAL && !syc_may_write(gate))
        return;
    if (scratch.left != NULL) { /* mostly nothing: all rows of the block at once */
        bool any = false;
        syc_wait_for_previous();
        for (int64_t b = blockIdx.x + (int64_t)threadIdx.x * gridDim.x; b < p.batch; b += (int64_t)SYC_SAMPLE_THREADS * gridDim.x)
            any |= __ldcg(scratch.left + b) != 0;
        if (__syncthreads_or(any) == 0)
            return;
    }
#pragma unroll 1
    for (int64_t b = blockIdx.x; b < p.batch; b += gridDim.x) {
        u32 cell[SYC_CELLS] = {0, 0, 0, 0}, flags = 0;
        enum quick quick = scratch.road == ROAD_GENERAL ? QUICK_WIDE : QUICK_NO;
        if (scratch.left != NULL)
            quick = (enum quick)__ldcg(scratch.left + b);
        if (quick == QUICK_DONE)
            continue;
        const bool unread = quick == QUICK_WIDE;
        if (quick == QUICK_NO)
            quick = quick_row<T>(p, scratch.split, &s.quick, b, look, cell, flags);
        if (quick == QUICK_CLOSED)
            return;
        if (quick == QUICK_NO || quick == QUICK_WIDE)
            general_row<T>(p, scratch, &s.general, row, b, make_uint4(cell[0], cell[1], cell[2], cell[3]), flags, !unread);
        look = NULL;
        __syncthreads();
    }
}

/* Rows of calls with top-k; those without it, or of which it leaves many, are left to sample_rows. The two are apart, since this
   one has registers enough and no call. */
template <sy_type T>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    top_k_rows(const __grid_constant__ struct syi_sample_plan p, u32 *left, const __grid_constant__ struct syc_gate gate)
{
    __shared__ struct quick_shared s;
    const int64_t b = blockIdx.x;
    syc_start_next();
    const enum quick quick = stream_row<T>(p, &s, b, &gate);
    if (threadIdx.x == 0)
        left[b] = quick;
}

/* The same for calls with top-p alone; `blocks` blocks read a row together. */
struct nucleus_shared {
    struct quick_shared quick;
    struct far_cells far;
};

template <sy_type T>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS, 2)
    nucleus_rows(const __grid_constant__ struct syi_sample_plan p, u32 blocks, u32 *left, const __grid_constant__ struct syc_gate gate)
{
    SYC_DYNAMIC_SHARED(struct nucleus_shared, s);
    const u32 b = blockIdx.x / blocks, rank = blockIdx.x - b * blocks;
    syc_start_next();
    const enum quick quick = nucleus_row<T>(p, &s->quick, &s->far, rank, blocks, b, &gate);
    if (threadIdx.x == 0 && rank == 0)
        left[b] = quick;
}

/* ---- The call ----------------------------------------------------------------------------------------------------- */

/* What the launches need of scratch, and their blocks. */
struct layout {
    size_t of_block, lists; /* of the kernel with a block for a row */
    int64_t blocks;
    int parts;              /* of a row; 0: the kernels of many blocks are not used */
    size_t left, split;     /* bytes before all others: rows that top_k_rows leaves, results of the kernels of many blocks */
};

/* Whether the first of the order is taken, and no other token counts but in the number of all. */
static bool takes_first(const struct syi_sample_plan *p)
{
    const bool filters = p->top_k.rows.data != NULL || p->top_p.rows.data != NULL || p->min_p.rows.data != NULL;
    return may_be_quick(p) && p->noise == SY_NOISE_NONE && p->logprob == NULL && (p->kept == NULL || !filters);
}

/* Few rows are read sooner by the kernels of many blocks. */
static enum road road_of(const struct syc_device *device, const struct syi_sample_plan *p)
{
    if (!may_be_quick(p))
        return ROAD_GENERAL;
    if (p->top_k.rows.data == NULL)
        return may_be_nucleus(p) ? ROAD_NUCLEUS : ROAD_QUICK;
    if (p->batch * 8 <= device->processors && p->vocab >= SYC_FEW)
        return ROAD_QUICK;
    return may_be_nucleus(p) ? ROAD_TOP_K_OR_P : ROAD_TOP_K;
}

/* Calls whose rows are read once. */
static bool reads_once(const struct syc_device *device, const struct syi_sample_plan *p)
{
    return takes_first(p) || road_of(device, p) >= ROAD_NUCLEUS;
}

/* Parts of a row that keep the device busy. */
static int enough_parts(const struct syc_device *device, const struct syi_sample_plan *p)
{
    int parts = LEAST_PARTS;
    while (parts < MOST_PARTS && p->batch * parts * 2 <= 8 * (int64_t)device->processors)
        parts *= 2;
    return parts;
}

/* Rows with overrides are read by one block, which replaces them; so are short rows, and those of a batch that keeps the
   device busy with a block for each. */
static int parts_of(const struct syc_device *device, const struct syi_sample_plan *p)
{
    if (p->overrides.indptr != NULL || p->vocab < SYC_FEW || p->batch >= device->processors || reads_once(device, p))
        return 0;
    return enough_parts(device, p);
}

static struct layout layout_of(const struct syc_device *device, const struct syi_sample_plan *p, bool sorts)
{
    const size_t vocab = ((size_t)p->vocab + 63) / 64 * 64, enough = (size_t)256 << 20;
    struct layout l = {0, p->overrides.indptr != NULL ? vocab * 4 : 0, 4 * (int64_t)device->processors, parts_of(device, p), ((size_t)p->batch * sizeof(u32) + 63) / 64 * 64, 0};
    if (l.parts > 0)
        l.split = (size_t)p->batch * (SYC_FEW * sizeof(u32) + (size_t)l.parts * 2 * sizeof(u64));
    l.of_block = l.lists + (sorts ? vocab * 16 : 0);
    if (l.of_block > 0 && (size_t)l.blocks > enough / l.of_block)
        l.blocks = (int64_t)(enough / l.of_block);
    l.blocks = l.blocks < p->batch ? l.blocks : p->batch;
    l.blocks = l.blocks > 1 ? l.blocks : p->batch > 0;
    return l;
}

static struct syc_parts split_of(const struct layout *l, int64_t batch, u8 *memory)
{
    if (l->parts == 0)
        return {};
    u64 *const weight = (u64 *)memory;
    return {(u32 *)(weight + 2 * batch * l->parts), weight + batch * l->parts, weight, l->parts};
}

static bool may_sort(const struct syi_sample_plan *p)
{
    return p->list_token.data != NULL || p->list_prob.data != NULL ||
           (p->noise == SY_NOISE_Q && p->q_order == SY_Q_LIST);
}

/* Enough for the same call without lists, too, which may have more blocks: a query stands for all outputs. */
size_t syc_sample_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    const struct layout l = layout_of(device, &plan->sample, may_sort(&plan->sample)),
                        without = layout_of(device, &plan->sample, false);
    const size_t bytes = (size_t)l.blocks * l.of_block, less = (size_t)without.blocks * without.of_block;
    const size_t all = l.left + l.split + (bytes > less ? bytes : less), draws = draw_bytes(plan->sample.batch, enough_parts(device, &plan->sample));
    return all > draws ? all : draws;
}

static void check_overrides(struct syc_call *call, const struct syi_sample_plan *p)
{
    struct syc_lists_check<1> check = {};
    check.list[0] = p->overrides;
    check.batch = p->batch;
    check.vocab = p->vocab;
    check.ascending = true;
    check.n = syc_list_items(&p->overrides, p->batch);
    syc_check(call, check);
}

/* Whether any row could be weighed as a whole; see weighs_all. */
static bool may_weigh(const struct syi_sample_plan *p)
{
    return (!p->probs_in && (p->top_p.rows.data != NULL || p->list_prob.data != NULL)) || p->noise == SY_NOISE_CDF ||
           (p->logprob != NULL && p->logprob_mode == SY_LOGPROB_FINAL);
}

/* Blocks that read a row together: as many as keep the device busy, if each has vectors to read. */
template <sy_type T> static u32 row_blocks(const struct syc_device *device, const struct syi_sample_plan *p)
{
    const int64_t vectors = p->vocab / (T == SY_TYPE_F32 ? 4 : 8);
    u32 blocks = 1;
    if (p->row_flags == NULL)
        while (device->dependent && blocks < MOST_FAR && p->batch * blocks * 2 <= device->processors && vectors > (int64_t)blocks * SYC_SAMPLE_THREADS)
            blocks *= 2;
    return blocks;
}

template <sy_type T> static void launch_sample(struct syc_call *call, const struct syi_sample_plan *p)
{
    if (takes_first(p)) {
        const u32 parts = greedy_parts<T>(call->device, p);
        const bool extra = p->row_flags != NULL || p->kept != NULL;
        syc_launch_clusters(&call->queue, extra ? greedy_rows<T, true> : greedy_rows<T, false>, SYC_AFTER, p->batch * parts, (int)parts, SYC_SAMPLE_THREADS, sizeof(struct greedy_shared),
                            *p, parts, call->gate);
        return;
    }
    if (draws_from_rows(p)) {
        const int parts = enough_parts(call->device, p);
        const struct syc_parts split = draw_parts(p->batch, parts, call->scratch);
        syc_launch(&call->queue, p->row_flags != NULL ? find_cells<T, true> : find_cells<T, false>, SYC_AFTER, p->batch * parts,
                   SPLIT_THREADS, 0, *p, split);
        syc_launch(&call->queue, weigh_segments<T>, SYC_EARLY, p->batch * parts, SPLIT_THREADS, 0, *p, split);
        syc_launch(&call->queue, draw_rows<T>, SYC_EARLY, p->batch, SPLIT_THREADS, 0, *p, split, call->gate);
        return;
    }
    const struct layout l = layout_of(call->device, p, may_sort(p));
    const enum road road = road_of(call->device, p);
    u32 *const left = road >= ROAD_NUCLEUS ? (u32 *)call->scratch : NULL;
    u8 *const memory = call->scratch + l.left;
    const struct sample_scratch scratch = {memory + l.split, l.of_block, l.lists, split_of(&l, p->batch, memory), left, road};
    struct syc_parts split = scratch.split;
    const int64_t blocks = p->batch * l.parts;
    syc_launch(&call->queue, p->row_flags != NULL ? find_cells<T, true> : find_cells<T, false>, SYC_AFTER, blocks, SPLIT_THREADS, 0, *p, split);
    if (may_weigh(p))
        syc_launch(&call->queue, weigh_parts<T>, SYC_EARLY, blocks, SPLIT_THREADS, 0, *p, split);
    if (road == ROAD_NUCLEUS) {
        const u32 together = row_blocks<T>(call->device, p);
        syc_launch_clusters(&call->queue, nucleus_rows<T>, SYC_AFTER, p->batch * together, (int)together, SYC_SAMPLE_THREADS, sizeof(struct nucleus_shared),
                            *p, together, left, call->gate);
    } else if (left != NULL)
        syc_launch(&call->queue, top_k_rows<T>, SYC_AFTER, p->batch, SYC_SAMPLE_THREADS, 0, *p, left, call->gate);
    const bool first = blocks == 0 && left == NULL && p->overrides.indptr == NULL;
    const int64_t at_once = 2 * (int64_t)call->device->processors, rows = left != NULL && l.blocks > at_once ? at_once : l.blocks;
    syc_launch(&call->queue, sample_rows<T>, first ? SYC_AFTER : SYC_EARLY, rows, SYC_SAMPLE_THREADS, 0, *p, scratch, call->gate);
}

void syc_sample(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_sample_plan *const p = &plan->sample;
    const bool staged = p->overrides.indptr != NULL; /* as f32 */
    if (p->batch == 0)
        return;
    if (staged)
        check_overrides(call, p);
    if (staged || p->type == SY_TYPE_F32)
        launch_sample<SY_TYPE_F32>(call, p);
    else if (p->type == SY_TYPE_F16)
        launch_sample<SY_TYPE_F16>(call, p);
    else
        launch_sample<SY_TYPE_BF16>(call, p);
}
