/*
 * The parts of moe_route: rows of logits to experts and weights (moe_route.c), experts that are given instead
 * (moe_route_given.c), the largest of a row (moe_route_pick.c), and the pairs that a capacity removes from the map
 * afterwards (moe_route_drop.c).
 */
#pragma once

#include "plan/plan.h"

struct syi_kernels;

enum {
    SYI_ROUTE_WIDTH = 64, /* keys whose comparisons fill a word */
    SYI_ROUTE_FOUND = 64  /* candidates that are ranked by comparing each with each */
};

static inline size_t syi_route_padded(int64_t n)
{
    return ((size_t)n + SYI_ROUTE_WIDTH - 1) / SYI_ROUTE_WIDTH * SYI_ROUTE_WIDTH;
}

/* Scratch of one task; arrays have E entries, or as stated, and go on to a multiple of SYI_ROUTE_WIDTH. */
struct syi_route_scratch {
    uint32_t *key;         /* of the logits */
    float *score;          /* exponentials, then scores; in the end weights by expert */
    float *sum;            /* score + bias */
    uint32_t *value;       /* keys of the selection; 0: not selectable */
    uint32_t *group_value; /* [groups] */
    uint32_t *group_key;   /* [E/groups] of one group, where more than two are added */
    int32_t *winner;       /* [most_picks], by descending value; then [K+S], by slot */
    float *weight;         /* [K+S] */
    uint32_t *winner_key;  /* [K] */
    int32_t *given;        /* [K] experts of the slots, if they are given; -1: unused */
    int32_t *found;        /* candidates, ascending */
    unsigned char *mark;   /* chosen experts, to be found in ascending order */
    uint32_t *many_key[3]; /* for a radix select */
    int32_t *many_idx[2];
    uint64_t *hist; /* [SYI_SELECT_BINS] */
};

/*
 * At least the k first of n keys in descending order, equal ones by place, into s->winner; returns how many. Keys are followed by
 * zeros up to a multiple of SYI_ROUTE_WIDTH; 0 is below every key that can be picked. Uses what `s` has for finding.
 */
int64_t syi_route_pick(const struct syi_kernels *kernels, const struct syi_route_scratch *s, uint32_t *key,
                       int64_t n, int64_t k);

/* The two largest keys; the second is 0 where there is one. */
void syi_route_two_largest(const uint32_t *key, int64_t n, uint32_t top[2]);

/* The choices of the tokens, kept if there is a capacity. */
struct syi_route_pairs {
    int32_t *expert; /* [T*K]; -1: no more of this token */
    uint32_t *key;   /* [T*K] order of the weights */
    int64_t *count;  /* [task][E+S]: pairs of each expert among the tokens of a task */
    int n_tasks;     /* parts the tokens were cut into by syi_part */
};

/* The first fault among given experts of the tokens from t to end; `mark` is [E], all 0, and is so again. */
struct syi_found syi_route_validate(const struct syi_moe_route_plan *p, int64_t t, int64_t end,
                                    unsigned char *mark);

/* Scratch of syi_route_drop. */
size_t syi_route_drop_bytes(const struct syi_moe_route_plan *p, int n_tasks);

/* Removes the pairs beyond an expert's capacity from the map and the probs. The counts are overwritten. */
void syi_route_drop(sy_ctx *ctx, const struct syi_moe_route_plan *p, const struct syi_route_pairs *pairs,
                    void *scratch);
