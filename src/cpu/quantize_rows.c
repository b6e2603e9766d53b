/*
 * quantize_rows on the CPU: for some groups at a time their largest magnitudes, the scales, then the codes by the loops of
 * the kernel table. Groups with a NaN or an infinity, and scales that are not normal numbers, are rare; their codes are
 * made once more, one by one.
 */
#include "base/row_math.h"
#include "cpu/backend.h"
#include "cpu/load.h"
#include "cpu/pool.h"
#include "kernels/kernels.h"

enum { GROUPS = 64 }; /* at a time; numbers of the usual formats stay in the first cache */

struct job {
    const struct syi_row_codes_plan *plan;
    syi_amax_fn *amax;
    syi_encode_fn *encode;
    size_t elem_bytes;
    int n_tasks;
};

size_t syi_cpu_quantize_rows_workspace(const sy_ctx *ctx, const union syi_plan *plan)
{
    (void)ctx;
    (void)plan;
    return 0;
}

static const sy_type types[SYI_N_FLOATS] = {SY_TYPE_F32, SY_TYPE_F16, SY_TYPE_BF16};

/* The largest magnitude of a group with NaNs, which count as none. */
static uint32_t largest(const struct job *job, const unsigned char *x)
{
    const struct syi_row_codes_plan *p = job->plan;
    uint32_t most = 0;
    for (size_t i = 0; i < p->group; i++) {
        const uint32_t size =
            syi_f32_bits(syi_load_float(x + i * job->elem_bytes, types[p->type])) & 0x7fffffffu;
        most = size > most && size <= 0x7f800000u ? size : most;
    }
    return most;
}

static void encode_one_by_one(const struct job *job, unsigned char *codes, const unsigned char *x, float by)
{
    const struct syi_row_codes_plan *p = job->plan;
    for (size_t i = 0; i < p->group; i++)
        codes[i] = syi_row_code(p, syi_load_float(x + i * job->elem_bytes, types[p->type]), by);
}

/* What the kernels demand; a scale that is subnormal can be so far off that numbers are beyond the largest code. */
static bool is_usual(const struct syi_row_codes_plan *p, uint32_t most, struct syi_row_scale scale)
{
    const uint32_t least = syi_row_divides(p) ? 0x17800000u : 0x00800000u; /* 2^-80, 2^-126 */
    const bool normal = p->e8m0 || scale.bits == 0 || scale.bits >= least;
    return normal && most < 0x7f800000u && syi_f32_bits(scale.by) < 0x7f800000u;
}

/* n <= GROUPS groups of a row, from group g on. */
static void encode_groups(const struct job *job, int64_t row, int64_t g, size_t n)
{
    const struct syi_row_codes_plan *p = job->plan;
    const size_t first = (size_t)g * p->group, group_bytes = p->group * job->elem_bytes;
    const unsigned char *x = syi_row(p->dense, row) + first * job->elem_bytes;
    unsigned char *codes = syi_row(p->codes, row) + first, *scales = syi_row(p->scales, row);
    uint32_t most[GROUPS];
    float by[GROUPS];
    uint64_t unusual = 0;
    job->amax(most, x, p->group, n);
    for (size_t i = 0; i < n; i++) {
        const bool nan = most[i] > 0x7f800000u;
        const struct syi_row_scale scale =
            syi_row_scale_of(p, nan ? largest(job, x + i * group_bytes) : most[i]);
        by[i] = scale.by;
        unusual |= (uint64_t)!is_usual(p, most[i], scale) << i;
        syi_row_store_scale(p, scales, g + (int64_t)i, scale.bits);
    }
    job->encode(codes, x, by, p->group, n);
    for (; unusual != 0; unusual &= unusual - 1) {
        const size_t i = (size_t)__builtin_ctzll(unusual);
        encode_one_by_one(job, codes + i * p->group, x + i * group_bytes, by[i]);
    }
}

static void encode_rows(void *data, int task)
{
    const struct job *job = data;
    const struct syi_row_codes_plan *p = job->plan;
    const int64_t end = syi_part(p->n_rows, job->n_tasks, task + 1);
    for (int64_t row = syi_part(p->n_rows, job->n_tasks, task); row < end; row++)
        for (int64_t g = 0; g < p->n_groups; g += GROUPS)
            encode_groups(job, row, g, (size_t)(p->n_groups - g < GROUPS ? p->n_groups - g : GROUPS));
}

sy_status syi_cpu_quantize_rows(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_row_codes_plan *p = &plan->row_codes;
    const struct syi_encoders *encoders = ctx->kernels->encoders;
    struct job job = {.plan = p, .amax = encoders->amax[p->type]};
    (void)workspace;
    job.encode = (syi_row_divides(p) ? encoders->over : encoders->times)[p->code][p->type];
    job.elem_bytes = syi_float_bytes(types[p->type]);
    const uint64_t numbers = (uint64_t)p->n_rows * (uint64_t)p->n_groups * p->group;
    job.n_tasks = syi_tasks(ctx, p->n_rows, numbers * (job.elem_bytes + 1));
    syi_parallel(ctx, job.n_tasks, encode_rows, &job);
    return SY_OK;
}
