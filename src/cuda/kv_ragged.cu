/*
 * kv_ragged on a device. How many rows there are is known to the device alone: the kernels are launched for all rows of
 * out, and those past the last sequence do nothing.
 */
#include "cuda/kv_rows.cuh"
#include "cuda/backend.cuh"

struct ragged {
    int64_t n, lengths, lists, batch; /* items: entries of cu_lens, of indptr, sequences, then rows */
    bool clears;
    struct syi_kv_pages pages;
    struct syi_column cu_lens, starts;
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
    __device__ int64_t slot(int64_t row, struct syi_found *f) const
    {
        f->bad = SYI_GOOD;
        if (batch == 0 || row >= syc_column_int(cu_lens, batch))
            return -1;
        const int64_t b = sequence_of(row), j = row - syc_column_int(cu_lens, b);
        const int64_t start = syc_present(starts) ? syc_column_int(starts, b) : 0;
        const int64_t t = start > 0 && j > INT64_MAX - start ? INT64_MAX : start + j; /* past 63 bits is past every sequence */
        const struct syi_kv_sequence s = syi_kv_sequence_of(&pages, b);
        const int64_t found = syi_kv_slot_of(&pages, &s, t, f);
        f->batch = b;
        f->position = j;
        if (f->bad == SYI_BAD_KV_INDEX)
            f->bad = syc_present(starts) ? SYI_BAD_KV_STARTS_TOKEN : SYI_BAD_KV_DENSE_TOKEN;
        return found;
    }
    __device__ int64_t slot(int64_t row) const
    {
        struct syi_found f;
        return slot(row, &f);
    }
    __device__ int64_t near(int64_t) const { return 0; }
    __device__ int64_t slot_near(int64_t, int64_t i) const { return slot(i); }
    __device__ bool fault(int64_t i, struct syi_found *f) const
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
        struct syi_found f;
        return fault(i, &f);
    }
    __device__ void explain(int64_t i, struct syi_found *f) const { fault(i, f); }
};

size_t syc_kv_ragged_workspace(const struct syc_device *, const union syi_plan *) { return 0; }

void syc_kv_ragged(struct syc_call *call, const union syi_plan *plan)
{
    const struct syi_kv_ragged_plan *const p = &plan->kv_ragged;
    const int64_t lists = p->pages.table.indptr.rows.data != NULL ? p->pages.table.rows + 1 : 0, batch = p->pages.batch;
    const struct ragged rows = {batch + 1 + lists + batch + p->n_rows, batch + 1, lists, batch, false, p->pages, p->cu_lens, p->starts, p->n_rows};
    syc_check(call, rows);
    syc_kv_move<false>(call, rows, &p->planes, p->n_rows);
    if (p->n_rows == 0)
        syc_only_report(call);
}
