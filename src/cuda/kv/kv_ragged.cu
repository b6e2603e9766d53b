/*
 * kv_ragged on a device. How many rows there are is known to the device alone: the kernels are launched for
 * all rows of out, and those past the last sequence do nothing.
 */
#include "cuda/kv/kv_rows.cuh"
#include "cuda/runtime/backend.cuh"

struct ragged {
    int64_t n, lengths, lists, batch; /* items: entries of cu_lens, of indptr, sequences, then rows */
    bool clears;
    syi_kv_pages pages;
    syi_column cu_lens, starts;
    int64_t n_rows;

    /* The last sequence that begins at `row` or before. */
    __device__ int64_t sequence_of(int64_t row) const
    {
        int64_t low = 0, high = batch;
        while (high - low > 1) {
            const int64_t middle = low + (high - low) / 2;
            if (syc_column_int(cu_lens, middle) <= row)
                low = middle;
            else
                high = middle;
        }
        return low;
    }
    __device__ int64_t slot(int64_t row, syi_found *f) const
    {
        f->bad = SYI_GOOD;
        if (batch == 0 || row >= syc_column_int(cu_lens, batch))
            return -1;
        const int64_t b = sequence_of(row), j = row - syc_column_int(cu_lens, b);
        const int64_t start = syc_present(starts) ? syc_column_int(starts, b) : 0;
        /* past 63 bits is past every sequence */
        const int64_t t = start > 0 && j > INT64_MAX - start ? INT64_MAX : start + j;
        const syi_kv_sequence s = syi_kv_sequence_of(&pages, b);
        const int64_t found = syi_kv_slot_of(&pages, &s, t, f);
        f->batch = b;
        f->position = j;
        if (f->bad == SYI_BAD_KV_INDEX)
            f->bad = syc_present(starts) ? SYI_BAD_KV_STARTS_TOKEN : SYI_BAD_KV_DENSE_TOKEN;
        return found;
    }
    __device__ int64_t slot(int64_t row) const
    {
        syi_found f;
        return slot(row, &f);
    }
    __device__ int64_t near(int64_t) const { return 0; }
    __device__ int64_t slot_near(int64_t, int64_t i) const { return slot(i); }
    __device__ bool fault(int64_t i, syi_found *f) const
    {
        const int64_t list = i - lengths, b = list - lists;
        if (i < lengths)
            *f = syi_kv_dense_fault(&cu_lens, i, n_rows);
        else if (list < lists)
            *f = syi_kv_list_fault(&pages, list);
        else if (b < batch)
            *f = syi_kv_sequence_fault(&pages, b);
        else
            slot(b - batch, f);
        return f->bad != SYI_GOOD;
    }
    __device__ bool wrong(int64_t i) const
    {
        syi_found f;
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, syi_found *f) const { fault(i, f); }
};

/* The usual call: lengths and starts of int32, one after the other, and the usual table. Items: entries of
   cu_lens, then rows. */
struct usual_ragged {
    int64_t n;
    const int32_t *cu_lens, *starts; /* starts NULL: 0 */
    u32 batch;
    bool clears;
    syc_kv_usual table;
    struct ragged ragged;

    /* A row of a sequence. */
    __device__ int64_t look_up(u32 b, int64_t row) const
    {
        const int64_t t = row - cu_lens[b] + (starts != NULL ? starts[b] : 0);
        return table.slot_of(b, (int32_t)max((int64_t)INT32_MIN, min((int64_t)INT32_MAX, t)));
    }
    __device__ bool past(int64_t row) const { return row >= cu_lens[batch]; }
    __device__ int64_t slot(int64_t row) const
    {
        const int64_t found = past(row) ? -1 : look_up(sequence_of(row), row);
        return found < 0 ? -1 : found;
    }
    __device__ u32 sequence_of(int64_t row) const
    {
        u32 low = 0, high = batch;
        while (high - low > 1) {
            const u32 middle = (low + high) / 2;
            if (cu_lens[middle] <= row)
                low = middle;
            else
                high = middle;
        }
        return low;
    }
    /* The sequence of a block's first row, found by all threads at once where sequences are not too many. */
    __device__ int64_t near(int64_t row) const
    {
        if (batch > 4 * SYC_MOVE_THREADS)
            return sequence_of(row);
        int64_t b = 0;
#pragma unroll 1
        for (u32 begin = 1; begin < batch; begin += SYC_MOVE_THREADS)
            b += __syncthreads_count(begin + threadIdx.x < batch && cu_lens[begin + threadIdx.x] <= row);
        return b;
    }
    __device__ int64_t slot_near(int64_t near, int64_t row) const
    {
        u32 b = (u32)near;
        while (b + 1 < batch && cu_lens[b + 1] <= row)
            b++;
        const int64_t found = past(row) ? -1 : look_up(b, row);
        return found < 0 ? -1 : found;
    }
    __device__ bool wrong(int64_t i) const
    {
        if (i <= batch)
            return syi_kv_dense_fault(&ragged.cu_lens, i, ragged.n_rows).bad != SYI_GOOD;
        const int64_t row = i - batch - 1;
        return !past(row) && look_up(sequence_of(row), row) == -2;
    }
    __device__ void explain(int64_t i, syi_found *f) const
    {
        ragged.fault(i <= batch ? i : i + batch, f);
    }
};

/* Absent, or int32 numbers one after the other. */
static bool is_plain(const syi_column *c)
{
    return !syi_present(c) ||
           (c->type == SY_TYPE_I32 && c->rows.stride == 4 && (uintptr_t)c->rows.data % 4 == 0);
}

size_t syc_kv_ragged_workspace(const syc_device *, const syi_plan *plan)
{
    const syi_kv_ragged_plan *const p = &plan->kv_ragged;
    syc_scratch scratch = {NULL, 0};
    syc_kv_take_list(&p->planes, &scratch);
    return scratch.used;
}

void syc_kv_ragged(syc_call *call, const syi_plan *plan)
{
    const syi_kv_ragged_plan *const p = &plan->kv_ragged;
    const int64_t lists = p->pages.table.indptr.rows.data != NULL ? p->pages.table.rows + 1 : 0,
                  batch = p->pages.batch;
    const struct ragged rows = {batch + 1 + lists + batch + p->n_rows,
                                batch + 1,
                                lists,
                                batch,
                                false,
                                p->pages,
                                p->cu_lens,
                                p->starts,
                                p->n_rows};
    syc_scratch scratch = {call->scratch, 0};
    int64_t *const list = syc_kv_take_list(&p->planes, &scratch);
    syc_kv_check_globals(call, &p->planes);
    if (p->n_rows > 0 && batch > 0 && batch < INT32_MAX && p->pages.table.rows >= batch &&
        syc_kv_is_usual(&p->pages) && is_plain(&p->cu_lens) && is_plain(&p->starts)) {
        const usual_ragged usual = {batch + 1 + p->n_rows,
                                    (const int32_t *)p->cu_lens.rows.data,
                                    (const int32_t *)p->starts.rows.data,
                                    (u32)batch,
                                    false,
                                    syc_kv_usual_of(&p->pages),
                                    rows};
        syc_check(call, usual);
        syc_kv_move<false>(call, usual, &p->planes, p->n_rows, list);
        return;
    }
    syc_check(call, rows);
    syc_kv_move<false>(call, rows, &p->planes, p->n_rows, list);
    if (p->n_rows == 0)
        syc_only_report(call);
}
