/*
 * kv_gather on the CPU: all or nothing. The first pass translates every position and remembers the first that
 * is wrong; the second translates again and copies. Translating twice costs less than storing row numbers,
 * and keeps the call free of scratch except for one fault per task.
 */
#include "cpu/backend.h"
#include "kernels/kernels.h"

enum {
    ROWS_ABREAST = 6,  /* enough to overlap page walks; more only splits the core's prefetch streams */
    MAX_RUN_ROWS = 128 /* consecutive rows copied as one */
};

struct job {
    const struct syi_kv_gather_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
    sy_fault *fault; /* [task]; status OK while nothing is wrong */
};

/* One position translated: a source row, padding, or a fault. */
enum found { FOUND_ROW, FOUND_PADDING, FOUND_FAULT };

/* What holds for a whole index row. */
struct sequence {
    const unsigned char *indices, *table;
    int64_t live;   /* positions from here on are padding */
    int64_t length; /* logical tokens */
};

static int count_tasks(const sy_ctx *ctx, const struct syi_kv_gather_plan *p)
{
    return syi_tasks(ctx, p->batch * p->k, (uint64_t)p->batch * (uint64_t)p->k * p->row_bytes);
}

size_t syi_cpu_kv_gather_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    return syi_align((size_t)count_tasks(ctx, &plan->kv_gather) * sizeof(sy_fault));
}

static bool present(const struct syi_column *column)
{
    return column->rows.data != NULL;
}

static struct sequence sequence_of(const struct syi_kv_gather_plan *p, int64_t b)
{
    const int64_t r = present(&p->req_id) ? syi_column_int(&p->req_id, b) : b;
    return (struct sequence){
        .indices = syi_row(p->indices, b),
        .table = syi_row(p->table, r),
        .live = present(&p->counts) ? syi_column_int(&p->counts, b) : p->k,
        .length = present(&p->seq_lens) ? syi_column_int(&p->seq_lens, b) : p->table_len * p->block_size,
    };
}

/* Phase 0: lengths and table rows, in order of b. */
static sy_fault check_sequences(const struct syi_kv_gather_plan *p)
{
    for (int64_t b = 0; b < p->batch; b++) {
        const int64_t count = present(&p->counts) ? syi_column_int(&p->counts, b) : 0;
        const int64_t length = present(&p->seq_lens) ? syi_column_int(&p->seq_lens, b) : 0;
        const int64_t request = present(&p->req_id) ? syi_column_int(&p->req_id, b) : 0;
        if (count < 0 || count > p->k)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE, "counts", b, -1, count, p->k};
        if (length < 0)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_LENGTH_RANGE, "seq_lens", b, -1, length, 0};
        if (present(&p->req_id) && (request < 0 || request >= p->table_rows))
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_REQ_RANGE, "req_id", b, -1, request, p->table_rows};
    }
    return (sy_fault){.status = SY_OK};
}

/* t / block_size without a division where that is exact: a shift, or a multiplication for 32-bit operands. */
static int64_t block_of(const struct syi_kv_gather_plan *p, int64_t t)
{
    if (p->block_shift >= 0)
        return t >> p->block_shift;
    if (p->block_magic != 0 && t <= UINT32_MAX)
        return (int64_t)((syi_u128)p->block_magic * (uint64_t)t >> 64);
    return t / p->block_size;
}

/* Phase 1 for one position. Every number is judged as 64 bits before it is multiplied. */
static enum found translate(const struct syi_kv_gather_plan *p, const struct sequence *seq, int64_t j,
                            const unsigned char **source, sy_fault *fault)
{
    if (j >= seq->live)
        return FOUND_PADDING;
    const int64_t t = p->index_type == SYI_I32 ? syi_load_i32(seq->indices, j)
                                               : syi_load_int(seq->indices + j * 8, SYI_I64);
    if (t == -1 && p->pad != SY_PAD_ERROR)
        return FOUND_PADDING;
    if (t < 0 || t >= seq->length) {
        *fault = (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "indices", 0, j, t, seq->length};
        return FOUND_FAULT;
    }
    const int64_t column = block_of(p, t), within = t - column * p->block_size;
    if (column >= p->table_len) {
        *fault = (sy_fault){SY_ERR_INDEX, SY_FAULT_TABLE_SHORT, "block_table", 0, j, column, p->table_len};
        return FOUND_FAULT;
    }
    const int64_t block = p->table_type == SYI_I32 ? syi_load_i32(seq->table, column)
                                                   : syi_load_int(seq->table + column * 8, SYI_I64);
    if (block < 0 || block >= p->n_blocks) {
        *fault = (sy_fault){SY_ERR_INDEX, SY_FAULT_BLOCK_RANGE, "block_table", 0, j, block, p->n_blocks};
        return FOUND_FAULT;
    }
    const int64_t row = block * p->block_size + within;
    if (row >= p->n_cache_rows) {
        *fault = (sy_fault){SY_ERR_INDEX, SY_FAULT_ROW_RANGE, "block_table", 0, j, row, p->n_cache_rows};
        return FOUND_FAULT;
    }
    *source = p->cache + block * p->block_stride + within * p->row_stride;
    return FOUND_ROW;
}

static void check_positions(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_gather_plan *p = job->plan;
    const int64_t end = syi_part(p->batch * p->k, job->n_tasks, task + 1);
    int64_t flat = syi_part(p->batch * p->k, job->n_tasks, task);
    const unsigned char *source;

    job->fault[task].status = SY_OK;
    while (flat < end) {
        const int64_t b = flat / p->k;
        const struct sequence seq = sequence_of(p, b);
        const int64_t stop = end < (b + 1) * p->k ? end : (b + 1) * p->k;
        for (; flat < stop; flat++)
            if (translate(p, &seq, flat - b * p->k, &source, &job->fault[task]) == FOUND_FAULT) {
                job->fault[task].batch = b;
                return;
            }
    }
}

/* Runs of rows that lie one after the other on both sides, several of equal length side by side. */
struct group {
    void *dst[ROWS_ABREAST];
    const void *src[ROWS_ABREAST];
    size_t n;
    int64_t rows; /* of every run */
};

/* Walks the positions of a task. The position it stands on is translated once, when first looked at. */
struct walk {
    int64_t flat, end;
    int64_t b;
    struct sequence seq;
    bool looked;
    const unsigned char *source; /* NULL: padding */
};

static const unsigned char *look(const struct syi_kv_gather_plan *p, struct walk *w)
{
    sy_fault never;
    if (w->looked)
        return w->source;
    if (w->b < 0 || w->flat >= (w->b + 1) * p->k) {
        w->b = w->flat / p->k;
        w->seq = sequence_of(p, w->b);
    }
    w->source = NULL;
    translate(p, &w->seq, w->flat - w->b * p->k, &w->source, &never);
    w->looked = true;
    return w->source;
}

static void step(struct walk *w)
{
    w->flat++;
    w->looked = false;
}

/* The next run of at most `most` rows; 0 at the end. Padding on the way is dealt with at once. */
static int64_t next_run(const struct syi_kv_gather_plan *p, struct walk *w, const unsigned char **src,
                        int64_t *first, int64_t most)
{
    for (; w->flat < w->end && look(p, w) == NULL; step(w))
        if (p->pad != SY_PAD_SKIP)
            memset(syi_row(p->out, w->flat), 0, p->row_bytes);
    int64_t rows = 0;
    *src = w->source;
    *first = w->flat;
    for (; w->flat < w->end && rows < most; step(w), rows++)
        if (look(p, w) == NULL || w->source != *src + (size_t)rows * p->row_bytes)
            break;
    return rows;
}

static void copy_group(const struct job *job, const struct group *now, const struct group *next)
{
    const bool alike = next->n >= now->n && next->rows == now->rows;
    job->kernels->copy_rows(now->dst, now->src, alike ? next->src : NULL, now->n,
                            (size_t)now->rows * job->plan->row_bytes);
}

static void copy_positions(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_gather_plan *p = job->plan;
    const bool dense = p->out.stride == (int64_t)p->row_bytes;
    const int64_t most = dense ? MAX_RUN_ROWS : 1;
    struct walk walk = {.flat = syi_part(p->batch * p->k, job->n_tasks, task),
                        .end = syi_part(p->batch * p->k, job->n_tasks, task + 1),
                        .b = -1};
    struct group now = {.n = 0}, next = {.n = 0};
    const unsigned char *src = NULL;
    int64_t first = 0, rows;

    while ((rows = next_run(p, &walk, &src, &first, most)) > 0) {
        if (next.n == ROWS_ABREAST || (next.n > 0 && next.rows != rows)) {
            if (now.n > 0)
                copy_group(job, &now, &next);
            now = next;
            next.n = 0;
        }
        next.rows = rows;
        next.dst[next.n] = syi_row(p->out, first);
        next.src[next.n++] = src;
    }
    if (now.n > 0)
        copy_group(job, &now, &next);
    if (next.n > 0)
        copy_group(job, &next, &(struct group){.n = 0});
}

static sy_status refuse(sy_ctx *ctx, const sy_fault *f)
{
    const long long value = f->value, limit = f->limit, batch = f->batch, position = f->position;
    const char *code = sy_fault_name(f->code);
    switch (f->code) {
    case SY_FAULT_LENGTH_RANGE:
        if (f->limit == 0 && f->value < 0)
            return syi_fail_at(ctx, f, "at batch %lld is %lld, want 0 or more (%s)", batch, value, code);
        return syi_fail_at(ctx, f, "at batch %lld is %lld, want 0 to %lld (%s)", batch, value, limit, code);
    case SY_FAULT_REQ_RANGE:
        return syi_fail_at(
            ctx, f, "at batch %lld is %lld, want 0 or more and below %lld, the rows of block_table (%s)",
            batch, value, limit, code);
    case SY_FAULT_INDEX_RANGE:
        return syi_fail_at(ctx, f, "at batch %lld, position %lld is %lld, want 0 or more and below %lld (%s)",
                           batch, position, value, limit, code);
    case SY_FAULT_TABLE_SHORT:
        return syi_fail_at(
            ctx, f, "has %lld columns, but the index at batch %lld, position %lld needs column %lld (%s)",
            limit, batch, position, value, code);
    case SY_FAULT_BLOCK_RANGE:
        return syi_fail_at(
            ctx, f, "gives block %lld for batch %lld, position %lld, want 0 or more and below %lld (%s)",
            value, batch, position, limit, code);
    default:
        return syi_fail_at(ctx, f,
                           "leads to cache row %lld for batch %lld, position %lld, want below %lld (%s)",
                           value, batch, position, limit, code);
    }
}

sy_status syi_cpu_kv_gather(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_kv_gather_plan *p = &plan->kv_gather;
    struct job job = {.plan = p, .kernels = ctx->kernels, .n_tasks = count_tasks(ctx, p), .fault = workspace};

    if (p->batch == 0 || p->k == 0)
        return SY_OK;
    const sy_fault fault = check_sequences(p);
    if (fault.status != SY_OK)
        return refuse(ctx, &fault);
    syi_parallel(ctx, job.n_tasks, check_positions, &job);
    for (int i = 0; i < job.n_tasks; i++)
        if (job.fault[i].status != SY_OK)
            return refuse(ctx, &job.fault[i]);
    syi_parallel(ctx, job.n_tasks, copy_positions, &job);
    return SY_OK;
}
