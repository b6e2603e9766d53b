/*
 * kv_select on a device: one kernel selects the places of every row, which are kept in scratch memory, and
 * one writes the outputs. With `position` rows are sorted by it before; by score what is selected is sorted
 * after. Selecting writes scratch memory alone, so that it runs beside the validation, and with a table ahead
 * of it: entries are looked up by the validation, too.
 */
#include "cuda/kv/kv_select_rows.cuh"
#include "cuda/prim/bulk.cuh"
#include "cuda/prim/load.cuh"
#include "cuda/runtime/backend.cuh"
#include "cuda/runtime/scratch.cuh"

enum { SELECT_CLUSTER = 8, SELECT_GRID = 1 << 16, WRITE_THREADS = 256 };

static void lay_out(const syc_device *, const syi_kv_select_plan *p, syc_scratch *scratch, select_memory *m)
{
    const bool sorts = p->position.data != NULL, by_score = p->args.order == SY_KV_ORDER_SCORE;
    const int64_t all = p->batch * p->n_columns, n_x = sorts ? all : 0,
                  n_y = by_score ? p->batch * p->room : 0, n_sorted = n_x > n_y ? n_x : n_y;
    if (p->idle)
        return;
    m->chosen = scratch->take<int32_t>(p->batch * p->room);
    m->n = scratch->take<int32_t>(p->batch);
    m->x = scratch->take<u64>(n_sorted);
    m->y = scratch->take<u64>(n_sorted);
    m->sorted = scratch->take<u8>(sorts ? all * 4 : 0);
    m->column = scratch->take<int32_t>(sorts ? all : 0);
    m->range = scratch->take<select_range>(sorts ? p->batch : 0);
}

size_t syc_kv_select_workspace(const syc_device *device, const syi_plan *plan)
{
    syc_scratch scratch = {NULL, 0};
    select_memory m;
    lay_out(device, &plan->kv_select, &scratch, &m);
    return scratch.used;
}

/* ---- Faults ---- */

/* Lists, rows, columns of `position`, and with a table the entries of rows that are selected. Each item is
   validated by itself, so that those of a wrong row have no faults. */
struct select_check {
    int64_t n, lists, columns, entries; /* items of each row */
    syi_kv_select_plan p;
    select_memory m;
    syc_split by_columns, by_entries;

    __device__ bool fault_of_entry(int64_t i, syi_found *f) const
    {
        const int64_t b = syc_quotient(i, by_entries), entry = i - b * entries, at = entry / p.expand;
        if (at >= __ldcg(&m.n[b]))
            return false;
        int64_t t = __ldcg(&m.chosen[b * p.room + at]);
        if (p.position.data != NULL)
            t = __ldcg(&m.column[b * p.n_columns + t]);
        const syi_select_row row = syi_select_row_of(&p, b);
        const syi_kv_sequence blocks = syi_select_sequence(&p, b);
        syi_select_entry_of(&p, &row, &blocks, syi_select_position(&p, b, t), entry - at * p.expand, f);
        f->batch = b;
        f->position = entry;
        return f->bad != SYI_GOOD;
    }
    __device__ bool fault(int64_t i, syi_found *f) const
    {
        f->bad = SYI_GOOD;
        if (i < lists)
            *f = syi_kv_list_fault(&p.pages, i);
        else if ((i -= lists) < p.batch)
            *f = syi_select_row_fault(&p, i);
        else if ((i -= p.batch) < p.batch * columns) {
            const int64_t b = syc_quotient(i, by_columns), t = i - b * columns;
            if (syi_select_row_fault(&p, b).bad != SYI_GOOD)
                return false;
            const syi_select_row row = syi_select_row_of(&p, b);
            if (t < row.length)
                *f = syi_select_position_fault(&p, &row, b, t);
        } else {
            return fault_of_entry(i - p.batch * columns, f);
        }
        return f->bad != SYI_GOOD;
    }
    __device__ bool wrong(int64_t i) const
    {
        syi_found f;
        if (p.has_table)
            syc_wait_for_previous();
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, syi_found *f) const { fault(i, f); }
};

static void check(syc_call *call, const syi_kv_select_plan *p, const select_memory &m)
{
    const int64_t lists = p->has_table && syi_kv_lists(&p->pages.table) ? p->pages.table.rows + 1 : 0,
                  columns = p->position.data != NULL ? p->n_columns : 0,
                  entries = p->has_table ? p->room * p->expand : 0,
                  n = lists + p->batch * (1 + columns + entries);
    syc_check(
        call,
        select_check{n, lists, columns, entries, *p, m, syc_split_by(columns, n), syc_split_by(entries, n)},
        p->has_table ? SYC_EARLY : SYC_AFTER);
}

/* ---- Sorting ---- */

/* The first number of x, sorted, whose upper half is at least t. */
static __device__ int64_t place_of(const u64 *x, int64_t n, int64_t t)
{
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if ((int64_t)(x[middle] >> 32) < t)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The columns of each row in the order of their positions; those without one are last. */
static __global__ void __launch_bounds__(SELECT_THREADS)
    sort_rows(const __grid_constant__ syi_kv_select_plan p, const select_memory m)
{
    __shared__ u32 counts[SYC_BLOCK_WARPS * SYC_DIGITS];
    __shared__ u64 part[SYC_BLOCK_WARPS];
    syc_start_next();
    syc_wait_for_previous();
    for (int64_t b = blockIdx.x; b < p.batch; b += gridDim.x) {
        u64 *const x = m.x + b * p.n_columns, *const y = m.y + b * p.n_columns;
        const bool good = syi_select_row_fault(&p, b).bad == SYI_GOOD;
        const syi_select_row row = good ? syi_select_row_of(&p, b) : syi_select_row{};
        u64 n = 0;
        for (int64_t i = threadIdx.x; i < row.length; i += SELECT_THREADS) {
            const int64_t t = syi_select_position(&p, b, i);
            n += t >= 0;
            x[i] = (u64)(u32)(t < 0 ? -1 : t) << 32 | (u32)i;
        }
        n = syc_block_sum(n, part);
        const u64 *const in_order = syc_sort_many(x, y, row.length, 64, counts);
        for (int64_t i = threadIdx.x; i < (int64_t)n; i += SELECT_THREADS) {
            const int64_t at = b * p.n_columns + i, c = (u32)in_order[i];
            m.column[at] = (int32_t)c;
            if (p.scores.type == SY_TYPE_F32)
                ((u32 *)m.sorted)[at] = syi_load_u32(syi_at(p.scores, b) + c * 4);
            else
                ((u16 *)m.sorted)[at] = syi_load_u16(syi_at(p.scores, b) + c * 2);
        }
        if (threadIdx.x == 0)
            m.range[b] = {(int64_t)n, place_of(in_order, (int64_t)n, row.head),
                          place_of(in_order, (int64_t)n, row.tail), 0};
        __syncthreads();
    }
}

/* What is selected in each row in the order of scores; equal ones stay in their order. */
static __global__ void __launch_bounds__(SELECT_THREADS)
    sort_chosen(const __grid_constant__ syi_kv_select_plan p, const select_memory m)
{
    __shared__ u32 counts[SYC_BLOCK_WARPS * SYC_DIGITS];
    const size_t bytes = p.scores.type == SY_TYPE_F32 ? 4 : 2;
    syc_start_next();
    syc_wait_for_previous();
    for (int64_t b = blockIdx.x; b < p.batch; b += gridDim.x) {
        u64 *const x = m.x + b * p.room, *const y = m.y + b * p.room;
        int32_t *const chosen = m.chosen + b * p.room;
        const int64_t n = __ldcg(&m.n[b]);
        if (n == 0)
            continue;
        const u8 *const row = p.position.data != NULL
                                  ? m.sorted + (size_t)(b * p.n_columns) * bytes
                                  : syi_at(p.scores, b) + syi_select_int(&p.row_start, b, 0) * (int64_t)bytes;
        for (int64_t i = threadIdx.x; i < n; i += SELECT_THREADS) {
            const int32_t place = __ldcg(&chosen[i]);
            x[i] = (u64)(~0u - syi_select_key(row, place, p.scores.type)) << 32 | (u32)place;
        }
        const u64 *const in_order = syc_sort_many(x, y, n, 64, counts);
        for (int64_t i = threadIdx.x; i < n; i += SELECT_THREADS)
            chosen[i] = (int32_t)(u32)in_order[i];
        __syncthreads();
    }
}

/* ---- Selecting ---- */

/* By one thread: the scores of row b, and what is selected of them; none where its numbers are wrong. */
SYC_COLD void find_row(const syi_kv_select_plan &p, const select_memory &m, int64_t b, select_shared *s)
{
    const int64_t bytes = p.scores.type == SY_TYPE_F32 ? 4 : 2;
    s->range = {0, 0, 0, 0};
    if (syi_select_row_fault(&p, b).bad != SYI_GOOD)
        return;
    const syi_select_row row = syi_select_row_of(&p, b);
    select_range r = {row.length, row.head, row.tail, 0};
    s->from = syi_at(p.scores, b) + row.start * bytes;
    if (p.position.data != NULL) {
        r = m.range[b];
        s->from = m.sorted + b * p.n_columns * bytes;
    }
    r.head = min(min(r.head, r.n), row.most);
    r.tail = max(min(r.tail, r.n), r.head);
    const int64_t last = min(r.n - r.tail, row.most - r.head);
    r.want = row.most - r.head - last;
    r.n = r.tail + last;
    s->range = r;
}

template <bool WIDE>
static __global__ void __launch_bounds__(SELECT_THREADS, 2)
    select_rows(const __grid_constant__ syi_kv_select_plan p, const select_memory m, const select_shape shape)
{
    SYC_DYNAMIC_SHARED(u8, shared);
    const select_block block = select_block_of(shape, shared);
    syc_start_next();
    if (shape.late)
        syc_wait_for_previous();
    for (int64_t b = blockIdx.x / shape.blocks; b < p.batch; b += gridDim.x / shape.blocks) {
        if (threadIdx.x == 0)
            find_row(p, m, b, block.s);
        __syncthreads();
        const select_range range = block.s->range;
        int32_t *const to = m.chosen + b * p.room;
        const int64_t live = (int64_t)select_live<WIDE>(block, p, to + range.head);
        const int64_t first = range.head + live, own = block.rank * SELECT_THREADS + threadIdx.x,
                      step = (int64_t)shape.blocks * SELECT_THREADS;
        for (int64_t i = own; i < range.head; i += step)
            to[i] = (int32_t)i;
        for (int64_t i = own; i < range.n - range.tail; i += step)
            to[first + i] = (int32_t)(range.tail + i);
        if (own == 0)
            m.n[b] = (int32_t)(first + range.n - range.tail);
        select_sync(block);
    }
    if (!shape.late) /* kernels after this one wait for the validation, too */
        syc_wait_for_previous();
}

/* ---- Outputs ---- */

static __device__ void write_value(const syi_kv_select_plan &p, const syi_select_row &row, int64_t b,
                                   int64_t i, int64_t column)
{
    const bool wide = p.scores.type == SY_TYPE_F32, widens = !wide && p.values.type == SY_TYPE_F32;
    const u8 *const from = syi_at(p.scores, b) + row.start * (wide ? 4 : 2);
    u8 *const to = syi_at(p.values, b);
    u32 u = wide || widens ? 0xff800000u : syi_select_inf16(p.scores.type) | 0x8000u;
    if (column >= 0)
        u = wide ? syi_load_u32(from + column * 4) : (u32)syi_load_u16(from + column * 2);
    if (column >= 0 && widens)
        u = syi_select_widened(u, p.scores.type);
    if (wide || widens)
        syi_store_u32(to + i * 4, u);
    else
        syi_store_u16(to + i * 2, (uint16_t)u);
}

static __device__ void write_entry(const syi_kv_select_plan &p, int64_t b, int64_t at,
                                   const syi_select_entry &e)
{
    if (p.indices.data != NULL)
        syi_store_index(syi_at(p.indices, b), at, e.index, p.indices.type);
    if (p.slots.data != NULL)
        syi_store_index(syi_at(p.slots, b), at, e.slot, p.slots.type);
    if (p.owner.data != NULL)
        syi_store_i32(syi_at(p.owner, b), at, e.owner);
}

/* The entries of row b from `begin` on, up to `end`; own_only: all of them, one after the other. */
static __device__ void write_row(const syi_kv_select_plan &p, const select_memory &m, int64_t b,
                                 int64_t begin, int64_t end, u64 *part)
{
    const syi_select_row row = syi_select_row_of(&p, b);
    const syi_kv_sequence blocks = p.has_table ? syi_select_sequence(&p, b) : syi_kv_sequence{};
    const int64_t n = __ldcg(&m.n[b]), width = p.k * p.expand;
    int64_t written = 0;
    for (int64_t first = begin; first < end; first += WRITE_THREADS) {
        const int64_t i = first + threadIdx.x, at = i / p.expand;
        syi_select_entry e = {-1, -1, -1};
        int64_t column = -1;
        if (i < end && at < n) {
            syi_found unused;
            column = __ldcg(&m.chosen[b * p.room + at]);
            if (p.position.data != NULL)
                column = __ldcg(&m.column[b * p.n_columns + column]);
            e = syi_select_entry_of(&p, &row, &blocks, syi_select_position(&p, b, column), i - at * p.expand,
                                    &unused);
        }
        if (i < end && p.values.data != NULL && at * p.expand == i)
            write_value(p, row, b, at, column);
        if (p.args.own_only) {
            const bool own = column >= 0 && e.owner == p.args.rank;
            u64 all;
            const u64 before = syc_block_before(own, part, &all);
            if (own)
                write_entry(p, b, written + (int64_t)before, e);
            written += (int64_t)all;
        } else if (i < end) {
            write_entry(p, b, i, e);
        }
    }
    for (int64_t i = written + threadIdx.x; p.args.own_only && i < width; i += WRITE_THREADS)
        write_entry(p, b, i, {-1, -1, -1});
    if (p.count.data != NULL && begin == 0 && threadIdx.x == 0)
        syi_store_index(p.count.data, b, p.args.own_only ? written : n, p.count.type);
}

/* `parts` blocks for each row. */
static __global__ void __launch_bounds__(WRITE_THREADS)
    write_rows(const __grid_constant__ syi_kv_select_plan p, const select_memory m, const syc_split parts,
               int64_t blocks, const __grid_constant__ syc_gate gate)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    const int64_t width = p.k * p.expand;
    if (!syc_may_write(gate))
        return;
    for (int64_t i = blockIdx.x; i < blocks; i += gridDim.x) {
        const int64_t b = syc_quotient(i, parts), q = i - b * parts.d, each = (width - 1) / parts.d + 1;
        write_row(p, m, b, min(width, q * each), min(width, (q + 1) * each), part);
    }
}

/* A block for each row, which is read once more. */
static __global__ void __launch_bounds__(SELECT_THREADS)
    write_flags(const __grid_constant__ syi_kv_select_plan p, const __grid_constant__ syc_gate gate)
{
    if (!syc_may_write(gate))
        return;
    for (int64_t b = blockIdx.x; b < p.batch; b += gridDim.x) {
        const syi_select_row row = syi_select_row_of(&p, b);
        const u8 *const from = syi_at(p.scores, b) + row.start * (p.scores.type == SY_TYPE_F32 ? 4 : 2);
        u32 any = 0;
        bool live = false;
        for (int64_t i = threadIdx.x; i < row.length; i += SELECT_THREADS) {
            if (p.position.data != NULL && syi_select_position(&p, b, i) < 0)
                continue;
            const u32 flags = syi_select_flags(from, i, p.scores.type);
            any |= flags;
            live |= (flags & SY_ROW_EMPTY) == 0;
        }
        const bool nan = __syncthreads_or((any & SY_ROW_NAN) != 0),
                   inf = __syncthreads_or((any & SY_ROW_INF) != 0), some = __syncthreads_or(live);
        if (threadIdx.x == 0)
            syi_store_u32(p.row_flags.data + b * 4,
                          (nan ? SY_ROW_NAN : 0u) | (inf ? SY_ROW_INF : 0u) | (some ? 0u : SY_ROW_EMPTY));
    }
}

/* ---- The call ---- */

/* As many blocks for a row as keep the device busy; more where a slice would be too long. */
static select_shape shape_of(const syc_device *device, const syi_kv_select_plan *p)
{
    const int64_t tiles = p->n_columns / SELECT_TILE + 2, sample = SELECT_SAMPLE;
    select_shape s = {1, 0, 0, false};
    while (device->dependent && s.blocks < SELECT_CLUSTER &&
           ((p->batch * s.blocks * 2 <= 2 * device->processors && tiles > s.blocks * 2 * SELECT_WARPS) ||
            tiles > (int64_t)s.blocks * SELECT_TILES))
        s.blocks *= 2;
    const int64_t each = (tiles - 1) / s.blocks + 1;
    s.tiles = (u32)(each < SELECT_TILES ? each : (int64_t)SELECT_TILES);
    /* half more than what a guess leaves, where it has the usual luck */
    const float expected = (float)p->k * (float)sample / (float)(p->n_columns + 1),
                list =
                    1.5f * (expected + 4 * sqrtf(expected) + 2) / (float)sample * (float)p->n_columns + 512;
    s.list = list < SELECT_FEW ? (u32)SELECT_FEW : list < SELECT_MANY ? (u32)list : (u32)SELECT_MANY;
    return s;
}

static void select(syc_call *call, const syi_kv_select_plan *p, const select_memory &m)
{
    const bool wide = p->scores.type == SY_TYPE_F32;
    const int64_t rows = p->batch < SELECT_GRID ? p->batch : (int64_t)SELECT_GRID;
    select_shape shape = shape_of(call->device, p);
    if (p->position.data != NULL)
        syc_launch(&call->queue, sort_rows, p->has_table ? SYC_AFTER : SYC_EARLY, rows, SELECT_THREADS, 0, *p,
                   m);
    shape.late = p->position.data != NULL;
    const auto kernel = wide ? select_rows<true> : select_rows<false>;
    const size_t shared = select_shared_bytes(shape);
    syc_allow_shared(&call->queue, kernel, shared);
    syc_launch_clusters(&call->queue, kernel, p->has_table && !shape.late ? SYC_AFTER : SYC_EARLY,
                        rows * shape.blocks, (int)shape.blocks, SELECT_THREADS, shared, *p, m, shape);
    if (p->args.order == SY_KV_ORDER_SCORE)
        syc_launch(&call->queue, sort_chosen, SYC_EARLY, rows, SELECT_THREADS, 0, *p, m);
}

void syc_kv_select(syc_call *call, const syi_plan *plan)
{
    const syi_kv_select_plan *const p = &plan->kv_select;
    const int64_t width = p->k * p->expand, all = (width + WRITE_THREADS - 1) / WRITE_THREADS;
    const int64_t parts = p->args.own_only || all < 1 ? 1 : all, blocks = p->batch * parts;
    select_memory m = {};
    syc_scratch scratch = {call->scratch, 0};
    lay_out(call->device, p, &scratch, &m);
    if (p->idle)
        return;
    if (!p->has_table)
        check(call, p, m);
    select(call, p, m);
    if (p->has_table)
        check(call, p, m);
    syc_launch(&call->queue, write_rows, SYC_EARLY, blocks < SELECT_GRID ? blocks : (int64_t)SELECT_GRID,
               WRITE_THREADS, 0, *p, m, syc_split_by(parts, blocks), blocks, call->gate);
    if (p->row_flags.data != NULL)
        syc_launch(&call->queue, write_flags, SYC_EARLY,
                   p->batch < SELECT_GRID ? p->batch : (int64_t)SELECT_GRID, SELECT_THREADS, 0, *p,
                   call->gate);
}
