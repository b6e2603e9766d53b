/*
 * moe_unpermute, packed, bf16 rows and f32 probs. Must move: the K rows of each token read, the token written,
 * the map read twice, indices and weights read. The limit is a copy that moves as many row bytes.
 */
#include "moe_rows.h"

#include <string.h>

static const struct rows_shape full[] = {
    {4096, 64, 8, 2048, true}, {4096, 64, 8, 2048, false}, {4096, 256, 8, 7168, true},
    {4096, 8, 2, 4096, true},  {128, 64, 8, 2048, true},   {1, 64, 8, 2048, true},
};
static const struct rows_shape quick[] = {{512, 64, 8, 1024, true}, {1, 64, 8, 2048, true}};
enum { N_FULL = sizeof full / sizeof *full, N_QUICK = sizeof quick / sizeof *quick };

static sy_status run(sy_ctx *ctx, void *state, int64_t turn)
{
    const struct rows *const r = state;
    const struct rows_set *const set = rows_of_turn(r, turn);
    return sy_moe_unpermute(ctx, &(sy_moe_unpermute_args){.permuted_tokens = &set->permuted_view,
                                                          .sorted_indices = &r->index_view,
                                                          .routing_map = &r->map_view,
                                                          .probs = r->shape.weighted ? &r->probs_view : NULL,
                                                          .tokens = &set->tokens_view});
}

static void plain(void *state, int64_t turn)
{
    const struct rows *const r = state;
    const struct rows_set *const set = rows_of_turn(r, turn);
    rows_plain_sum(r, set, turn == 0 ? r->plain_tokens : set->tokens);
}

static const char *check(void *state)
{
    const struct rows *const r = state;
    const size_t bytes = (size_t)(r->shape.tokens * r->shape.hidden) * sizeof(uint16_t);
    return memcmp(r->sets[0].tokens, r->plain_tokens, bytes) != 0 ? "tokens differ from the plain loop"
                                                                  : NULL;
}

static const struct rows_shape *shape_at(int index)
{
    return index < N_FULL ? &full[index] : &quick[index - N_FULL];
}

static void describe(int index, char *text, size_t bytes)
{
    rows_describe(shape_at(index), text, bytes);
}

static void run_case(struct bench *bench, int index, const char *name)
{
    struct rows r;
    const bool made = rows_make(&r, shape_at(index));
    const double small = 2.0 * (double)(r.shape.tokens * r.shape.experts) + 8.0 * (double)r.n_rows;
    if (made)
        bench_measure(bench, &(struct bench_case){
                                 .op = "moe_unpermute",
                                 .shape = name,
                                 .state = &r,
                                 .run = run,
                                 .plain = plain,
                                 .check = check,
                                 .bytes = (double)rows_bytes(&r) + small,
                                 .limit = {.copy_bytes = rows_bytes(&r) / 2},
                             });
    else
        bench_no_memory(bench, "moe_unpermute", name);
    rows_free(&r);
}

const struct bench_op bench_moe_unpermute = {"moe_unpermute", N_FULL, N_QUICK, describe, run_case};
