/*
 * The local part of the exchange between devices: the hosts of experts, the destinations of rows, copying and adding
 * them. A source is a pointer: into this process, into shared memory or into a message.
 */
#pragma once

#include "plan/memory.h"
#include "plan/replica.h"

/* ---- Hosts of experts (all_to_all_hosts.c) ---- */

struct syi_a2a_hosts {
    int64_t n_experts;
    int n_devices;
    uint64_t hash;        /* of the mapping */
    int32_t *local;       /* [D*E] place of expert e among those of device d, at d*E + e; -1: not there */
    int32_t *n_local;     /* [D] experts of a device */
    int64_t *first;       /* [E+1] of each expert's devices in `holder` */
    int32_t *holder;      /* [D*E at most] devices that host an expert, ascending */
    const int32_t *owner; /* NULL; or [E], every expert has one device, and `local` is [E], its place there */
};

/* A hash of n rows of row_bytes bytes each, the same in every process. `seed` combines several pieces. */
uint64_t syi_a2a_hash(uint64_t seed, struct syi_rows rows, int64_t n, size_t row_bytes);
uint64_t syi_a2a_hash_words(const int64_t *words, int n);

/* Takes the arrays for E experts and D devices; only measures when the arena has no base. */
void syi_a2a_hosts_take(struct syi_arena *arena, struct syi_a2a_hosts *hosts, int64_t n_experts,
                        int n_devices);

/*
 * Reads mapping [copies,E,D] (uint16, compact rows of `stride` bytes between experts, copies one after the other) and
 * fills the arrays. ROUTING when an entry is neither 0 nor 1, with batch = expert, position = device; MISMATCH when a
 * copy differs from the first. Names the argument expert_mapping.
 */
sy_status syi_a2a_read_hosts(sy_ctx *ctx, struct syi_a2a_hosts *hosts, struct syi_rows mapping,
                             int64_t n_copies);

/* local_reduce needs one holder at most for an expert inside a group of the axis: ROUTING, with batch = expert,
   position = device. */
sy_status syi_a2a_check_single(sy_ctx *ctx, const struct syi_a2a_hosts *hosts, sy_mesh mesh, sy_axis axis);

/* ---- Replicas (all_to_all_replicas.c) ---- */

/* The pairs of experts and hosts, as experts with one host each. */
struct syi_a2a_replicas {
    struct syi_a2a_pairs pairs;
    struct syi_a2a_hosts hosts;
    uint32_t *served; /* scratch [E]: choices of each expert so far */
};

void syi_a2a_replicas_take(struct syi_arena *arena, struct syi_a2a_replicas *replicas, int64_t n_experts,
                           int n_devices, int n_groups);
void syi_a2a_read_replicas(struct syi_a2a_replicas *replicas, const struct syi_a2a_hosts *hosts, sy_mesh mesh,
                           sy_axis axis);

/* Choices of a group, [T,K] in order of tau: experts become pairs, -1 where no device of the group hosts one. */
void syi_a2a_serve(const struct syi_a2a_replicas *replicas, int64_t n_experts, struct syi_a2a_rule rule,
                   const struct syi_a2a_group *group, int32_t *choice);

/* ---- Choices of tokens (all_to_all_lists.c) ---- */

/*
 * Reads n rows of K indices into choice[n,K]: the expert, or -1 where there is none or an earlier slot of the row names
 * it. INDEX when one is neither an expert nor none (all bits set), or with `strict` named twice; batch = row, position =
 * slot, for `field` of the operator. Validates in order and writes choice only. choice NULL: validates only.
 */
sy_status syi_a2a_read_choices(sy_ctx *ctx, int field, struct syi_rows indices, sy_type type, int64_t n,
                               int64_t n_slots, int64_t n_experts, bool strict, int32_t *choice);

/* `counters` below is scratch of [2*(E+G)]. */

/* Rows of a device on the experts' side: counts[L] of its experts, offsets[L+1] of EXPERT (may be NULL).
   Returns how many rows the layout has: T, those that were sent, or the padded rows of all its experts. */
int64_t syi_a2a_expert_rows(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group,
                            int position, int64_t *counts, int64_t *offsets);

/* The first of its experts with more than expert_rows rows; -1: none. Fills counts[L]. */
int64_t syi_a2a_overfull(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group, int position,
                         int64_t *counts);

/* The most it can return for any choices, without expert_rows. false: more than INT32_MAX. */
bool syi_a2a_most_rows(int64_t n_tokens, int64_t n_slots, int64_t n_local, sy_a2a_layout layout,
                       int64_t align, int64_t *rows);

/*
 * Dispatch: the source of each row of a device, pick[rows]; row is n at the position. slot[rows], or NULL: k of
 * EXPERT rows, -1 for padding. Returns how many rows there are.
 */
int64_t syi_a2a_dispatch_picks(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group,
                               int position, struct syi_a2a_pick *pick, int32_t *slot, int64_t *counters);

/*
 * Combine: the source of each row of a token's device, pick[K*N], pick k*N + n for slot k of token n; row is that of the
 * holder's input, which is in the group's layout: [L,T] rows when PADDED, [T] with local_reduce, never more than
 * INT32_MAX. With `by_position` (sum of local_reduce) the picks of a token are not at their slots but in order of
 * position: pick j*N + n is the j-th holder.
 */
void syi_a2a_combine_picks(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group, int position,
                           bool local_reduce, bool by_position, struct syi_a2a_pick *pick, int64_t *counters);

/* Rows by peer: those of position p are rows[first[p]] to rows[first[p+1]-1], in the order of the message. */
struct syi_a2a_lists {
    int64_t *first; /* [G+1] */
    int32_t *rows;
};

/* What `position` sends: n of its tokens, ascending; rows of its input, by n and k of the token's device. Rows for
   itself included. Space for N*G rows (dispatch: an expert may be on all devices), T*min(K,L) (combine). */
void syi_a2a_dispatch_sends(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group,
                            int position, struct syi_a2a_lists *sends, int64_t *counters);
void syi_a2a_combine_sends(const struct syi_a2a_hosts *hosts, const struct syi_a2a_group *group, int position,
                           bool local_reduce, struct syi_a2a_lists *sends, int64_t *counters);

/*
 * The destinations of received rows, in the order they were sent: rows of the output. Dispatch: a token that has several rows
 * (EXPERT) arrives at the lowest of them. seen[T] is that row for each token, by position and n, or -1. Combine: by n
 * and k.
 */
void syi_a2a_dispatch_receives(const struct syi_a2a_group *group, const struct syi_a2a_pick *pick,
                               int64_t n_rows, struct syi_a2a_lists *receives, int32_t *seen);
void syi_a2a_combine_receives(const struct syi_a2a_group *group, const struct syi_a2a_pick *pick,
                              int64_t n_home, struct syi_a2a_lists *receives);

/* ---- Moving rows (all_to_all_rows.c) ---- */

extern const struct syi_memory syi_cpu_memory;

/* Its entries that are used or tested beside it. */
void syi_a2a_fan_out(sy_ctx *ctx, const struct syi_a2a_fan *fan); /* all_to_all_fan.c */
size_t syi_a2a_add_scratch(const sy_ctx *ctx, int64_t n_slots);
void syi_a2a_add(sy_ctx *ctx, const struct syi_a2a_sum *sum, int n_sums, void *scratch);
void syi_a2a_pack(sy_ctx *ctx, struct syi_rows to, struct syi_rows from, const int32_t *rows, int64_t n,
                  size_t row_bytes);
