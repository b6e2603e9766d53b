/*
 * moe_align_block on the CPU: slots are counted by expert, every expert gets whole blocks, and the chunks of tokens
 * place their slots in parallel. Padding and the experts of blocks are few and written in the same pass.
 */
#include "cpu/moe_slots.h"
#include "cpu/backend.h"

struct job {
    const struct syi_moe_align_block_plan *plan;
    struct syi_slots slots;
};

static struct job lay_out(const sy_ctx *ctx, const struct syi_moe_align_block_plan *p,
                          struct syi_arena *arena)
{
    struct job job = {.plan = p,
                      .slots = {.ids = p->ids,
                                .n_tokens = p->n_tokens,
                                .n_slots = p->n_slots,
                                .n_experts = p->n_experts,
                                .allow_missing = p->args.allow_missing}};
    syi_slots_lay_out(ctx, &job.slots, true, arena);
    return job;
}

SYI_CPU_WORKSPACE(moe_align_block)

static sy_status reject_map(sy_ctx *ctx, const struct syi_moe_align_block_plan *p)
{
    for (int64_t e = 0; e < p->n_experts && p->expert_map.data != NULL; e++) {
        const int64_t here = syi_load_i32(p->expert_map.data, e);
        if (here < -1)
            return syi_reject(ctx, SYI_BAD_EXPERT_MAP, -1, e, here, -1);
    }
    return SY_OK;
}

/* The number of an expert in block_experts. */
static int32_t number_here(const struct syi_moe_align_block_plan *p, int64_t e)
{
    return p->expert_map.data != NULL ? syi_load_i32(p->expert_map.data, e) : (int32_t)e;
}

static bool is_skipped(const struct syi_moe_align_block_plan *p, int64_t e)
{
    return p->args.skip_unmapped && syi_load_i32(p->expert_map.data, e) == -1;
}

static void fill(unsigned char *to, int64_t i, int64_t end, int32_t value)
{
    for (; i < end; i++)
        syi_store_i32(to, i, value);
}

/* Counts become first places, -1 where there are none. Writes everything but the slots themselves. */
static void scan(const struct job *job)
{
    const struct syi_moe_align_block_plan *p = job->plan;
    const int64_t none = p->n_tokens * p->n_slots;
    int64_t at = 0; /* a multiple of the block size at every expert */
    for (int64_t e = 0; e < p->n_experts; e++) {
        const int64_t first = at;
        const bool skipped = is_skipped(p, e);
        for (int b = 0; b < job->slots.n_chunks; b++) {
            int32_t *place = &syi_slot_counts(&job->slots, b)[e];
            const int32_t count = *place;
            *place = skipped ? -1 : (int32_t)at;
            at += skipped ? 0 : count;
        }
        if (p->counts.data != NULL)
            syi_store_i64(p->counts.data, e, at - first);
        if (p->offsets.data != NULL)
            syi_store_i64(p->offsets.data, e, first);
        const int64_t end = (at + p->args.block_size - 1) / p->args.block_size * p->args.block_size;
        fill(p->sorted_slots.data, at, end, (int32_t)none);
        fill(p->block_experts.data, first / p->args.block_size, end / p->args.block_size, number_here(p, e));
        at = end;
    }
    if (p->offsets.data != NULL)
        syi_store_i64(p->offsets.data, p->n_experts, at);
    syi_store_i32(p->num_padded.data, 0, (int32_t)at);
    fill(p->sorted_slots.data, at, p->n_places, (int32_t)none);
    fill(p->block_experts.data, at / p->args.block_size, p->n_blocks, -1);
}

static void place_rows(struct syi_slots s, unsigned char *sorted, int32_t *place, int64_t t, int64_t end)
{
    for (; t < end; t++)
        for (int64_t j = 0; j < s.n_slots; j++) {
            const int64_t id = syi_slot_id(&s, t, j);
            if (id >= 0 && id < s.n_experts && place[id] >= 0)
                syi_store_i32(sorted, place[id]++, (int32_t)(t * s.n_slots + j));
        }
}

static void place_chunk(void *data, int chunk)
{
    const struct job *job = data;
    const struct syi_slots *s = &job->slots;
    place_rows(*s, job->plan->sorted_slots.data, syi_slot_counts(s, chunk),
               syi_part(s->n_tokens, s->n_chunks, chunk), syi_part(s->n_tokens, s->n_chunks, chunk + 1));
}

sy_status syi_cpu_moe_align_block(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_align_block_plan *p = &plan->moe_align_block;
    struct syi_arena arena = {workspace, 0};
    struct job job = lay_out(ctx, p, &arena);
    SYI_TRY(syi_slots_count(ctx, &job.slots));
    SYI_TRY(reject_map(ctx, p));
    scan(&job);
    syi_parallel(ctx, job.slots.n_chunks, place_chunk, &job);
    return SY_OK;
}
