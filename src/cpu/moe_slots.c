/*
 * Validation and counting.
 */
#include "cpu/moe_slots.h"
#include "cpu/pool.h"

void syi_slots_lay_out(const sy_ctx *ctx, struct syi_slots *s, bool counted, struct syi_arena *arena)
{
    if (s->n_slots == 0)
        s->n_tokens = 0; /* no ids, for any number of tokens */
    s->n_chunks = syi_tasks(ctx, s->n_tokens, (uint64_t)s->n_tokens * (uint64_t)s->n_slots * sizeof(int32_t));
    s->fault = syi_take(arena, (size_t)s->n_chunks * sizeof *s->fault);
    if (counted)
        s->count = syi_take(
            arena, syi_size_mul(syi_size_mul((size_t)s->n_chunks, (size_t)s->n_experts), sizeof *s->count));
}

/* A copy of the struct is passed, which the bytes written here cannot alias. */
static struct syi_slot_fault count_rows(struct syi_slots s, int32_t *count, int64_t t, int64_t end)
{
    for (; t < end; t++)
        for (int64_t j = 0; j < s.n_slots; j++) {
            const int64_t id = syi_slot_id(&s, t, j);
            if (id >= 0 && id < s.n_experts) {
                if (count != NULL)
                    count[id]++;
            } else if (!(s.allow_missing && (id == -1 || id == s.n_experts))) {
                return (struct syi_slot_fault){t, j};
            }
        }
    return (struct syi_slot_fault){-1, 0};
}

static void count_chunk(void *data, int chunk)
{
    const struct syi_slots *s = data;
    int32_t *count = s->count != NULL ? syi_slot_counts(s, chunk) : NULL;
    if (count != NULL)
        memset(count, 0, (size_t)s->n_experts * sizeof *count);
    s->fault[chunk] = count_rows(*s, count, syi_part(s->n_tokens, s->n_chunks, chunk),
                                 syi_part(s->n_tokens, s->n_chunks, chunk + 1));
}

sy_status syi_slots_count(sy_ctx *ctx, struct syi_slots *s)
{
    syi_parallel(ctx, s->n_chunks, count_chunk, s);
    for (int b = 0; b < s->n_chunks; b++) {
        const struct syi_slot_fault *f = &s->fault[b];
        if (f->token >= 0)
            return syi_reject(ctx, SYI_BAD_ID_RANGE, f->token, f->slot, syi_slot_id(s, f->token, f->slot),
                              s->n_experts);
    }
    return SY_OK;
}
