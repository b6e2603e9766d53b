/*
 * moe_unpermute_ids on the CPU: indices are validated, then every token collects the rows that it adds and one kernel
 * call adds them up. With a bias they are added here, in strips of columns. Threads take ranges of tokens.
 */
#include "cpu/moe_rows.h"
#include "cpu/backend.h"

enum {
    STRIP = 256, /* columns of f32 sums */
    ADDED = 2    /* residual and shared, before the slots */
};

struct job {
    const struct syi_moe_unpermute_ids_plan *plan;
    syi_sum_rows_fn *sum;
    int n_validators, n_tasks; /* of slots, of tokens */
    struct syi_found *found;   /* [validator] */
    const void **row;          /* [task][ADDED + K] */
    const void **bias;         /* of each row, or NULL; with `row`, NULL without bias */
    float *weight;             /* with `row`; NULL without probs */
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_unpermute_ids_plan *p,
                          struct syi_arena *arena)
{
    const uint64_t row_bytes = (uint64_t)p->hidden * syi_float_bytes(p->permuted.type);
    const uint64_t index_bytes = (uint64_t)(p->n_tokens * p->n_slots) * sizeof(int32_t);
    struct job job = {.plan = p};
    job.n_validators = syi_tasks(ctx, p->n_tokens, index_bytes);
    job.n_tasks = syi_tasks(ctx, p->n_tokens, (uint64_t)(p->n_tokens + p->n_rows) * row_bytes);
    const size_t places = syi_size_mul((size_t)job.n_tasks, (size_t)p->n_slots + ADDED);
    job.found = syi_take(arena, (size_t)job.n_validators * sizeof *job.found);
    job.row = syi_take(arena, syi_size_mul(places, sizeof *job.row));
    if (p->bias_ids.data != NULL)
        job.bias = syi_take(arena, syi_size_mul(places, sizeof *job.bias));
    if (p->probs.data != NULL)
        job.weight = syi_take(arena, syi_size_mul(places, sizeof *job.weight));
    return job;
}

SYI_CPU_WORKSPACE(moe_unpermute_ids)

/* All indices come before all bias_ids; a task has a part of both. */
static void validate_slots(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_unpermute_ids_plan *p = job->plan;
    const int64_t total = p->n_tokens * p->n_slots, end = syi_part(total, job->n_validators, task + 1);
    const int64_t first = syi_part(total, job->n_validators, task);
    job->found[task] = syi_good();
    for (int64_t i = first; i < end; i++) {
        const int64_t row = syi_load_i32(p->sorted_indices.data, i);
        if (row < -1 || row >= p->limit) {
            job->found[task] = syi_bad_at(SYI_BAD_SORTED_RANGE, -1, i, row, p->limit);
            return;
        }
    }
    for (int64_t i = first; p->bias_ids.data != NULL && i < end; i++) {
        const int64_t t = i / p->n_slots, j = i % p->n_slots, id = syi_load_i32(syi_at(p->bias_ids, t), j);
        if (id < -1 || id >= p->n_biases) {
            job->found[task] = syi_bad_at(SYI_BAD_BIAS_RANGE, t, j, id, p->n_biases);
            return;
        }
    }
}

/* What a token adds. */
struct entries {
    const void **row, **bias; /* row NULL: zeros */
    float *weight;
    size_t n;
};

static void add_entry(struct entries *list, const void *row, const void *bias, float weight)
{
    if (list->weight != NULL)
        list->weight[list->n] = weight;
    if (list->bias != NULL)
        list->bias[list->n] = bias;
    list->row[list->n++] = row;
}

static void list_entries(const struct syi_moe_unpermute_ids_plan *p, int64_t t, struct entries *list)
{
    list->n = 0;
    if (p->residual.data != NULL)
        add_entry(list, syi_at(p->residual, t), NULL, 1.0f);
    if (p->shared.data != NULL)
        add_entry(list, syi_at(p->shared, t), NULL, 1.0f);
    for (int64_t j = 0; j < p->n_slots; j++) {
        const int32_t index = syi_load_i32(p->sorted_indices.data, syi_choice_at(p, t, j));
        const int64_t i = index - p->args.row_begin;
        const int32_t id = list->bias != NULL ? syi_load_i32(syi_at(p->bias_ids, t), j) : -1;
        const bool there = index >= 0 && i >= 0 && i < p->n_rows;
        if (!there && (index >= 0 || id < 0))
            continue;
        float weight = 1.0f;
        if (list->weight != NULL)
            weight = syi_load_float(syi_at(p->probs, t) + (size_t)j * syi_float_bytes(p->probs.type),
                                    p->probs.type);
        if (weight != 0.0f)
            add_entry(list, there ? syi_at(p->permuted, i) : NULL, id < 0 ? NULL : syi_at(p->bias, id),
                      weight);
    }
}

/* Columns of a row in f32; zeros of no row. */
static void widen(float *dst, const unsigned char *row, sy_type type, size_t first, size_t n)
{
    uint16_t bits[STRIP];
    if (row == NULL) {
        memset(dst, 0, n * sizeof *dst);
        return;
    }
    if (type == SY_TYPE_F32) {
        memcpy(dst, row + first * sizeof *dst, n * sizeof *dst);
        return;
    }
    memcpy(bits, row + first * sizeof *bits, n * sizeof *bits);
    for (size_t c = 0; type == SY_TYPE_F16 && c < n; c++)
        dst[c] = syi_f16_to_f32(bits[c]);
    for (size_t c = 0; type != SY_TYPE_F16 && c < n; c++)
        dst[c] = syi_bf16_to_f32(bits[c]);
}

/* sum = fl(sum + fl(w * fl(row + bias))) over a token's entries, `n` columns from `first` on. */
static void add_strip(const struct entries *list, sy_type type, size_t first, size_t n, float *sum)
{
    float x[STRIP], b[STRIP];
    memset(sum, 0, n * sizeof *sum);
    for (size_t k = 0; k < list->n; k++) {
        const float w = list->weight != NULL ? list->weight[k] : 1.0f;
        widen(x, list->row[k], type, first, n);
        if (list->bias[k] != NULL) {
            widen(b, list->bias[k], type, first, n);
            for (size_t c = 0; c < n; c++)
                x[c] += b[c];
        }
        for (size_t c = 0; c < n; c++)
            sum[c] += w * x[c];
    }
}

static void sum_with_bias(const struct syi_moe_unpermute_ids_plan *p, int64_t t, const struct entries *list)
{
    const size_t hidden = (size_t)p->hidden, bytes = syi_float_bytes(p->permuted.type);
    float sum[STRIP];
    for (size_t first = 0; first < hidden; first += STRIP) {
        const size_t n = hidden - first < STRIP ? hidden - first : STRIP;
        add_strip(list, p->permuted.type, first, n, sum);
        for (size_t c = 0; c < n; c++)
            syi_store_float(syi_at(p->tokens, t) + (first + c) * bytes, p->permuted.type,
                            syi_canonical(sum[c]));
    }
}

static void sum_tokens(void *data, int task)
{
    const struct job *job = data;
    const struct syi_moe_unpermute_ids_plan *p = job->plan;
    const int64_t end = syi_part(p->n_tokens, job->n_tasks, task + 1);
    const size_t place = (size_t)task * ((size_t)p->n_slots + ADDED);
    struct entries list = {job->row + place, job->bias != NULL ? job->bias + place : NULL,
                           job->weight != NULL ? job->weight + place : NULL, 0};
    for (int64_t t = syi_part(p->n_tokens, job->n_tasks, task); t < end; t++) {
        list_entries(p, t, &list);
        if (list.bias != NULL)
            sum_with_bias(p, t, &list);
        else
            job->sum(syi_at(p->tokens, t), list.row, list.weight, list.n, (size_t)p->hidden);
    }
}

sy_status syi_cpu_moe_unpermute_ids(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_unpermute_ids_plan *p = &plan->moe_unpermute_ids;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    job.sum = ctx->kernels->sum_rows[syi_float_of(p->permuted.type)];
    syi_parallel(ctx, job.n_validators, validate_slots, &job);
    for (int kind = 0; kind < 2; kind++)
        for (int i = 0; i < job.n_validators; i++)
            if (job.found[i].bad == (kind == 0 ? SYI_BAD_SORTED_RANGE : SYI_BAD_BIAS_RANGE))
                return syi_report(ctx, job.found[i]);
    if (p->hidden > 0)
        syi_parallel(ctx, job.n_tasks, sum_tokens, &job);
    return SY_OK;
}
