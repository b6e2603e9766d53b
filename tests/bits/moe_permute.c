/*
 * moe_permute: scenes of both modes, and of tokens with too many experts.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_permute(sy_ctx *ctx, const void *args)
{
    return sy_moe_permute(ctx, args);
}

static void permute_scene(DLDataType type, const DLDataType *probs_type, bool capacity, bool zero_pad,
                          bool overfull)
{
    static const DLDataType map_types[] = {{6, 8, 1}, {0, 8, 1}, {1, 8, 1}};
    static const int64_t widths[] = {1, 3, 16, 37};
    int64_t n_tokens = 1 + below(24), n_experts = 1 + below(9), width = widths[below(COUNT(widths))];
    struct box *tokens = fill_random(box_strided(type, 2, (int64_t[]){n_tokens, width}, one_in(3) ? 5 : 0));
    struct box *map = box_new(map_types[below(3)], 2, (int64_t[]){n_tokens, n_experts});
    int64_t odds = 1 + below(4), most = 0;
    for (int64_t t = 0; t < n_tokens; t++) {
        int64_t routed = 0;
        for (int64_t e = 0; e < n_experts; e++) {
            bool on = one_in(e == 0 ? 1 + odds / 2 : odds + e); /* skewed: low experts get more */
            bool boolean = map->t.dtype.code == 6;
            put(map, t * n_experts + e, on ? (boolean ? 1 : 1 + (uint64_t)below(255)) : 0);
            routed += on;
        }
        most = routed > most ? routed : most;
    }
    sy_moe_permute_args args = {
        .tokens = &tokens->t, .routing_map = &map->t, .drop_and_pad = capacity, .zero_pad = zero_pad};
    int64_t slots = overfull ? most - 1 : most;
    args.num_out_tokens = capacity ? below(n_tokens * n_experts + 1) : slots > 0 ? slots * n_tokens : 0;
    if (!capacity && one_in(2) && args.num_out_tokens + n_tokens - 1 <= n_tokens * n_experts)
        args.num_out_tokens += below(n_tokens);
    if (probs_type) {
        args.probs = &fill_random(box_new(*probs_type, 2, (int64_t[]){n_tokens, n_experts}))->t;
        args.permuted_probs = args.probs; /* the query wants to know that it will be there */
    }
    sy_query query;
    if (sy_moe_permute_query(contexts[0], &args, &query) != SY_OK)
        query.rows = 0;
    args.permuted_tokens =
        &output(box_strided(type, 2, (int64_t[]){query.rows, width}, one_in(3) ? 2 : 0))->t;
    args.sorted_indices = &output(box_new(SY_I32, 1, &query.rows))->t;
    if (probs_type)
        args.permuted_probs = &output(box_new(*probs_type, 1, &query.rows))->t;
    if (one_in(2)) {
        args.expert_counts = &output(box_new(SY_I64, 1, &n_experts))->t;
        args.expert_offsets = &output(box_new(SY_I64, 1, &(int64_t){n_experts + 1}))->t;
    }
    run_scene(call_permute, &args);
}

void moe_permute_lines(void)
{
    static const struct {
        const char *name;
        DLDataType type;
    } types[] = {{"u8", {1, 8, 1}}, {"f16", {2, 16, 1}}, {"f32", {2, 32, 1}}, {"i64", {0, 64, 1}}},
      probs[] = {{"none", {0, 0, 0}}, {"f32", {2, 32, 1}}, {"f16", {2, 16, 1}}, {"bf16", {4, 16, 1}}};
    static const char *const modes[] = {"packed", "capacity", "zero_pad", "overfull"};
    char name[128];
    for (int t = 0; t < COUNT(types); t++)
        for (int p = 0; p < COUNT(probs); p++)
            for (int m = 0; m < COUNT(modes); m++) {
                if (m == 3 && p != t) /* refusals: once per token type */
                    continue;
                snprintf(name, sizeof name, "moe_permute %s probs=%s %s", types[t].name, probs[p].name,
                         modes[m]);
                begin_line(name);
                for (int i = 0; i < 30; i++)
                    permute_scene(types[t].type, p ? &probs[p].type : NULL, m == 1 || m == 2, m == 2, m == 3);
                end_line();
            }
}
