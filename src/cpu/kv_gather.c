/*
 * kv_gather on the CPU: all or nothing. The first pass translates every position and remembers the first that
 * is wrong; the second translates again and copies. A position takes a few nanoseconds to translate and its
 * row a hundred to fetch, so translating twice is cheap and keeps the call free of scratch except for one fault
 * per task.
 */
#include "cpu/backend.h"
#include "kernels/kernels.h"

enum {
    CHUNK = 1024,            /* positions translated, and pieces collected, before any are copied */
    RUN_ROWS = 16,           /* consecutive rows are copied as one from so many rows */
    RUN_BYTES = 8 * 1024,    /* or so many bytes on; fewer are neighbours by chance, of no common length */
    MOST_BYTES = 256 * 1024, /* a run longer than this is cut, so that there are two to copy side by side */
};

struct job {
    const struct syi_kv_gather_plan *plan;
    const struct syi_kernels *kernels;
    int n_tasks;
    sy_fault *fault; /* [task]; status OK while nothing is wrong */
};

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
    static const unsigned char no_table[8]; /* what is read, and not used, where there is no table entry */
    const int64_t r = present(&p->req_id) ? syi_column_int(&p->req_id, b) : b;
    return (struct sequence){
        .indices = syi_row(p->indices, b),
        .table = p->table_len > 0 ? syi_row(p->table, r) : no_table,
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

static int64_t load_index(const unsigned char *base, int64_t i, enum syi_type type)
{
    return type == SYI_I32 ? syi_load_i32(base, i) : syi_load_int(base + i * 8, SYI_I64);
}

/*
 * Phase 1: the sources of positions [j, j + n) of a sequence, NULL for padding. No branch depends on the data:
 * a wrong number is replaced by 0 before it is used, and remembered. False when one of the positions is a
 * fault; its source is NULL, and fault_at tells which it is.
 */
static bool translate(const struct syi_kv_gather_plan *p, const struct sequence *seq, int64_t j, int64_t n,
                      const unsigned char **source)
{
    const int64_t seen = p->table_len * p->block_size;
    const uint64_t reach = (uint64_t)(seq->length < seen ? seq->length : seen);
    const int64_t live = seq->live - j < n ? seq->live - j : n;
    const bool pads = p->pad != SY_PAD_ERROR;
    bool good = true;
    int64_t i = 0;
    for (; i < live; i++) {
        const int64_t t = load_index(seq->indices, j + i, p->index_type);
        const bool inside = (uint64_t)t < reach;
        const int64_t token = inside ? t : 0;
        const int64_t column = block_of(p, token), within = token - column * p->block_size;
        const int64_t entry = load_index(seq->table, column, p->table_type);
        const bool exists = (uint64_t)entry < (uint64_t)p->n_blocks;
        const int64_t block = exists ? entry : 0;
        const bool found = inside & exists & (block * p->block_size + within < p->n_cache_rows);
        const size_t offset =
            (size_t)block * (size_t)p->block_stride + (size_t)within * (size_t)p->row_stride;
        source[i] = found ? p->cache + offset : NULL;
        good &= found | (pads & (t == -1));
    }
    for (; i < n; i++)
        source[i] = NULL;
    return good;
}

/* The fault of one position; status OK when there is none. Every number is judged as 64 bits before it is
   multiplied. */
static sy_fault fault_at(const struct syi_kv_gather_plan *p, const struct sequence *seq, int64_t b, int64_t j)
{
    const sy_fault none = {.status = SY_OK};
    if (j >= seq->live)
        return none;
    const int64_t t = load_index(seq->indices, j, p->index_type);
    if (t == -1 && p->pad != SY_PAD_ERROR)
        return none;
    if (t < 0 || t >= seq->length)
        return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "indices", b, j, t, seq->length};
    const int64_t column = block_of(p, t);
    if (column >= p->table_len)
        return (sy_fault){SY_ERR_INDEX, SY_FAULT_TABLE_SHORT, "block_table", b, j, column, p->table_len};
    const int64_t block = load_index(seq->table, column, p->table_type);
    if (block < 0 || block >= p->n_blocks)
        return (sy_fault){SY_ERR_INDEX, SY_FAULT_BLOCK_RANGE, "block_table", b, j, block, p->n_blocks};
    const int64_t row = block * p->block_size + (t - column * p->block_size);
    if (row >= p->n_cache_rows)
        return (sy_fault){SY_ERR_INDEX, SY_FAULT_ROW_RANGE, "block_table", b, j, row, p->n_cache_rows};
    return none;
}

/* Walks the positions of a task, a chunk of one sequence at a time. */
struct walk {
    int64_t flat, end; /* positions from `flat` on are not translated yet */
    int64_t b;
    struct sequence seq;
    int64_t n; /* positions of the chunk, the last before `flat` */
    const unsigned char *source[CHUNK];
};

static void start(struct walk *w, const struct job *job, int task)
{
    const int64_t n = job->plan->batch * job->plan->k;
    w->flat = syi_part(n, job->n_tasks, task);
    w->end = syi_part(n, job->n_tasks, task + 1);
    w->n = 0;
}

/* Translates the next chunk; false when there is a fault in it. */
static bool advance(const struct syi_kv_gather_plan *p, struct walk *w)
{
    w->b = w->flat / p->k;
    w->seq = sequence_of(p, w->b);
    const int64_t stop = w->end < (w->b + 1) * p->k ? w->end : (w->b + 1) * p->k;
    w->n = stop - w->flat < CHUNK ? stop - w->flat : CHUNK;
    const int64_t j = w->flat - w->b * p->k;
    w->flat += w->n;
    return translate(p, &w->seq, j, w->n, w->source);
}

static void check_positions(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_gather_plan *p = job->plan;
    sy_fault *fault = &job->fault[task];
    struct walk walk;

    fault->status = SY_OK;
    for (start(&walk, job, task); walk.flat < walk.end;) {
        if (advance(p, &walk))
            continue;
        for (int64_t flat = walk.flat - walk.n; flat < walk.flat && fault->status == SY_OK; flat++)
            *fault = fault_at(p, &walk.seq, walk.b, flat - walk.b * p->k);
        return;
    }
}

/*
 * Pieces of equal length, collected so that the kernel can go from one group of them to the next without
 * anything in between: what the core does there keeps it from asking for the next rows while it waits.
 * A run is consecutive rows on both sides. It grows until the next position does not go on with it.
 */
struct copier {
    const struct job *job;
    const unsigned char *run;
    int64_t run_first, run_rows, most_rows;
    size_t n, bytes; /* pieces, bytes of each */
    void *dst[CHUNK];
    const void *src[CHUNK];
};

static void copy_pieces(struct copier *c)
{
    c->job->kernels->copy_rows(c->dst, c->src, c->n, c->bytes);
    c->n = 0;
}

static void add_piece(struct copier *c, unsigned char *dst, const unsigned char *src, size_t bytes)
{
    if (c->n == CHUNK || c->bytes != bytes)
        copy_pieces(c);
    c->bytes = bytes;
    c->dst[c->n] = dst;
    c->src[c->n++] = src;
}

static void end_run(struct copier *c)
{
    const struct syi_kv_gather_plan *p = c->job->plan;
    const size_t bytes = (size_t)c->run_rows * p->row_bytes;
    if (c->run_rows >= RUN_ROWS || bytes >= RUN_BYTES)
        add_piece(c, syi_row(p->out, c->run_first), c->run, bytes);
    else
        for (int64_t i = 0; i < c->run_rows; i++)
            add_piece(c, syi_row(p->out, c->run_first + i), c->run + (size_t)i * p->row_bytes, p->row_bytes);
    c->run_rows = 0;
}

static void copy_chunk(struct copier *c, const struct walk *walk)
{
    const struct syi_kv_gather_plan *p = c->job->plan;
    const int64_t first = walk->flat - walk->n;
    for (int64_t i = 0; i < walk->n; i++) {
        /* NOLINTNEXTLINE(clang-analyzer-core.uninitialized.Assign): translate sets all n */
        const unsigned char *source = walk->source[i];
        const bool goes_on = c->run_rows > 0 && c->run_rows < c->most_rows &&
                             source == c->run + (size_t)c->run_rows * p->row_bytes;
        if (!goes_on) {
            end_run(c);
            c->run = source;
            c->run_first = first + i;
        }
        if (source != NULL)
            c->run_rows++;
        else if (p->pad != SY_PAD_SKIP)
            memset(syi_row(p->out, first + i), 0, p->row_bytes);
    }
}

static void copy_positions(void *data, int task)
{
    const struct job *job = data;
    const struct syi_kv_gather_plan *p = job->plan;
    const bool dense = p->out.stride == (int64_t)p->row_bytes;
    struct walk walk;
    struct copier copier;

    copier.job = job;
    copier.run_rows = 0;
    copier.most_rows = dense && p->row_bytes < MOST_BYTES ? (int64_t)(MOST_BYTES / p->row_bytes) : 1;
    copier.n = copier.bytes = 0;
    for (start(&walk, job, task); walk.flat < walk.end;) {
        advance(p, &walk);
        copy_chunk(&copier, &walk);
    }
    end_run(&copier);
    copy_pieces(&copier);
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
