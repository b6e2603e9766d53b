/*
 * all_to_all_dispatch and all_to_all_combine on a mesh of eight devices inside this process. A dispatch must write all
 * its rows, copied or filled; a combine must read every row it returns and write the results. Limits are a copy of the rows
 * that were sent and a fill of the others; for sums a copy that reads and writes as many bytes together.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mesh_case.h"

enum { DEVICES = 8 };

struct shape {
    int64_t tokens, experts, k, hidden; /* tokens of each device; bf16 rows */
    bool combine, sum;
    sy_a2a_layout layout; /* of dispatch; combine takes EXPERT rows */
};

static const struct shape dispatches[] = {
    {128, 256, 8, 7168, false, false, SY_LAYOUT_PADDED}, {128, 256, 8, 7168, false, false, SY_LAYOUT_PACKED},
    {128, 256, 8, 7168, false, false, SY_LAYOUT_EXPERT}, {512, 64, 8, 2048, false, false, SY_LAYOUT_EXPERT},
    {8, 64, 8, 2048, false, false, SY_LAYOUT_EXPERT},    {16, 64, 4, 256, false, false, SY_LAYOUT_PADDED},
    {16, 64, 4, 256, false, false, SY_LAYOUT_EXPERT},
};
static const struct shape combines[] = {
    {128, 256, 8, 7168, true, false, SY_LAYOUT_EXPERT}, {128, 256, 8, 7168, true, true, SY_LAYOUT_EXPERT},
    {512, 64, 8, 2048, true, true, SY_LAYOUT_EXPERT},   {8, 64, 8, 2048, true, false, SY_LAYOUT_EXPERT},
    {8, 64, 8, 2048, true, true, SY_LAYOUT_EXPERT},     {16, 64, 4, 256, true, false, SY_LAYOUT_EXPERT},
    {16, 64, 4, 256, true, true, SY_LAYOUT_EXPERT},
};
enum {
    N_DISPATCHES = sizeof dispatches / sizeof *dispatches,
    N_COMBINES = sizeof combines / sizeof *combines,
    N_QUICK = 2, /* the last ones */
};

/* Inputs and outputs of one call: rows of all devices, one after the other. */
struct set {
    uint16_t *own, *remote; /* [D*N,H] tokens; rows of the experts */
    DLTensor own_view[DEVICES], remote_view[DEVICES];
    uint16_t *slots; /* combine: [D,K*N,H] */
    DLTensor slots_view[DEVICES];
};

struct state {
    struct shape shape;
    struct mesh_case mesh;
    sy_comm *comm;
    sy_routing *routing;
    int64_t first[DEVICES + 1]; /* rows on the experts' side before each device */
    int64_t n_sets;
    struct set *sets;
    uint16_t *metadata; /* [D][D*N,K] */
    float *weights;     /* [D*N,K] */
    int64_t offsets[DEVICES][257], counts[DEVICES][256];
    uint16_t *plain_rows; /* results of the plain loop for the first set */
    int64_t own_shape[2], index_shape[2], mapping_shape[2], metadata_shape[2], slots_shape[3],
        remote_shape[DEVICES][2], counts_shape[1], offsets_shape[1];
    DLTensor index_view[DEVICES], metadata_view[DEVICES], weights_view[DEVICES], counts_view[DEVICES],
        offsets_view[DEVICES], mapping_view;
};

/* ---- Calls --------------------------------------------------------------------------------------------- */

static sy_status run_dispatch(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const struct set *const set = &state->sets[turn % state->n_sets];
    const bool by_expert = state->shape.layout == SY_LAYOUT_EXPERT;
    return sy_all_to_all_dispatch(
        ctx, state->comm,
        &(sy_all_to_all_dispatch_args){.input = set->own_view,
                                       .expert_indices = state->index_view,
                                       .expert_mapping = &state->mapping_view,
                                       .layout = state->shape.layout,
                                       .routing = state->routing,
                                       .tokens = set->remote_view,
                                       .metadata = state->metadata_view,
                                       .expert_counts = by_expert ? state->counts_view : NULL,
                                       .expert_offsets = by_expert ? state->offsets_view : NULL});
}

static sy_status run_combine(sy_ctx *ctx, void *opaque, int64_t turn)
{
    struct state *const state = opaque;
    const struct set *const set = &state->sets[turn % state->n_sets];
    const bool sum = state->shape.sum;
    return sy_all_to_all_combine(
        ctx, state->comm,
        &(sy_all_to_all_combine_args){.input = set->remote_view,
                                      .weights = sum ? state->weights_view : NULL,
                                      .sum = sum,
                                      .routing = state->routing,
                                      .output = sum ? set->own_view : set->slots_view});
}

/* ---- The plain loops ----------------------------------------------------------------------------------- */

/* The row of choice k of token t, among those of all devices. */
static int64_t row_of(const struct state *state, int64_t t, int64_t k)
{
    const int64_t at = t * state->shape.k + k;
    return state->first[mesh_case_device(&state->mesh, state->mesh.indices[at])] + state->mesh.row[at];
}

static void plain_dispatch(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const struct set *const set = &state->sets[turn % state->n_sets];
    const int64_t all = DEVICES * s->tokens;
    const size_t bytes = (size_t)s->hidden * sizeof *set->own;
    uint16_t *const out = turn == 0 ? state->plain_rows : set->remote;
    if (s->layout == SY_LAYOUT_EXPERT) {
        for (int64_t t = 0; t < all; t++)
            for (int64_t k = 0; k < s->k; k++)
                memcpy(out + row_of(state, t, k) * s->hidden, set->own + t * s->hidden, bytes);
        return;
    }
    for (int d = 0; d < DEVICES; d++) {
        uint16_t *next = out + state->first[d] * s->hidden;
        for (int64_t t = 0; t < all; t++) {
            const bool hit = mesh_case_hits(&state->mesh, t, d);
            if (hit)
                memcpy(next, set->own + t * s->hidden, bytes);
            else if (s->layout == SY_LAYOUT_PADDED)
                memset(next, 0, bytes);
            next += hit || s->layout == SY_LAYOUT_PADDED ? s->hidden : 0;
        }
    }
}

static void plain_combine(void *opaque, int64_t turn)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const struct set *const set = &state->sets[turn % state->n_sets];
    uint16_t *const out = turn == 0 ? state->plain_rows : s->sum ? set->own : set->slots;
    for (int64_t t = 0; t < DEVICES * s->tokens; t++) {
        const int64_t d = t / s->tokens, n = t % s->tokens;
        for (int64_t k = 0; k < s->k && !s->sum; k++)
            memcpy(out + ((d * s->k + k) * s->tokens + n) * s->hidden,
                   set->remote + row_of(state, t, k) * s->hidden, (size_t)s->hidden * sizeof *out);
        for (int64_t h = 0; h < s->hidden && s->sum; h++) {
            float sum = 0;
            for (int64_t k = 0; k < s->k; k++)
                sum += state->weights[t * s->k + k] *
                       bench_bf16_value(set->remote[row_of(state, t, k) * s->hidden + h]);
            out[t * s->hidden + h] = bench_bf16_round(sum);
        }
    }
}

static const char *check_dispatch(void *opaque)
{
    const struct state *const state = opaque;
    const size_t bytes = (size_t)(state->first[DEVICES] * state->shape.hidden) * sizeof *state->plain_rows;
    const size_t table = (size_t)(DEVICES * state->shape.tokens * state->shape.k) * sizeof *state->metadata;
    for (size_t d = 0; d < DEVICES; d++)
        if (memcmp(state->metadata + d * table / sizeof *state->metadata, state->mesh.indices, table) != 0)
            return "metadata is not what the tokens chose";
    return memcmp(state->sets[0].remote, state->plain_rows, bytes) == 0 ? NULL
                                                                        : "rows differ from the plain loop";
}

static const char *check_combine(void *opaque)
{
    const struct state *const state = opaque;
    const struct shape *const s = &state->shape;
    const size_t rows = (size_t)(DEVICES * s->tokens * (s->sum ? 1 : s->k));
    const uint16_t *const out = s->sum ? state->sets[0].own : state->sets[0].slots;
    return memcmp(out, state->plain_rows, rows * (size_t)s->hidden * sizeof *out) == 0
               ? NULL
               : "rows differ from the plain loop";
}

/* ---- Data ---------------------------------------------------------------------------------------------- */

static void release(struct state *state)
{
    for (int64_t i = 0; state->sets && i < state->n_sets; i++) {
        free(state->sets[i].own);
        free(state->sets[i].remote);
        free(state->sets[i].slots);
    }
    sy_routing_destroy(state->routing);
    sy_comm_destroy(state->comm);
    mesh_case_free(&state->mesh);
    free(state->sets);
    free(state->metadata);
    free(state->weights);
    free(state->plain_rows);
}

/* Rows on the experts' side: all tokens, those that were sent, or one for each choice. */
static void count_rows(struct state *state)
{
    const struct mesh_case *const m = &state->mesh;
    for (int d = 0; d < DEVICES; d++) {
        int64_t rows = state->shape.layout == SY_LAYOUT_EXPERT   ? m->rows[d]
                       : state->shape.layout == SY_LAYOUT_PADDED ? DEVICES * m->tokens
                                                                 : 0;
        for (int p = 0; p < DEVICES && state->shape.layout == SY_LAYOUT_PACKED; p++)
            rows += m->sent[p * DEVICES + d];
        state->first[d + 1] = state->first[d] + rows;
        memcpy(state->remote_shape[d], (int64_t[]){rows, state->shape.hidden}, sizeof state->remote_shape[d]);
    }
}

static bool make_set(struct state *state, struct set *set, uint64_t seed)
{
    const struct shape *const s = &state->shape;
    const size_t hidden = (size_t)s->hidden, own = (size_t)(DEVICES * s->tokens) * hidden,
                 remote = (size_t)state->first[DEVICES] * hidden, slots = s->combine && !s->sum ? remote : 0;
    set->own = bench_alloc(own, sizeof *set->own);
    set->remote = bench_alloc(remote, sizeof *set->remote);
    set->slots = bench_alloc(slots, sizeof *set->slots);
    if (!set->own || !set->remote || !set->slots)
        return false;
    bench_fill_bf16(s->combine ? set->remote : set->own, s->combine ? remote : own, seed);
    for (int64_t d = 0; d < DEVICES; d++) {
        set->own_view[d] = sy_tensor(set->own + d * s->tokens * s->hidden, SY_BF16, 2, state->own_shape);
        set->remote_view[d] =
            sy_tensor(set->remote + state->first[d] * s->hidden, SY_BF16, 2, state->remote_shape[d]);
        if (slots > 0)
            set->slots_view[d] =
                sy_tensor(set->slots + d * s->k * s->tokens * s->hidden, SY_BF16, 3, state->slots_shape);
    }
    return true;
}

static void make_views(struct state *state)
{
    const struct shape *const s = &state->shape;
    const int64_t all = DEVICES * s->tokens, choices = s->tokens * s->k, local = s->experts / DEVICES;
    memcpy(state->own_shape, (int64_t[]){s->tokens, s->hidden}, sizeof state->own_shape);
    memcpy(state->index_shape, (int64_t[]){s->tokens, s->k}, sizeof state->index_shape);
    memcpy(state->metadata_shape, (int64_t[]){all, s->k}, sizeof state->metadata_shape);
    memcpy(state->mapping_shape, (int64_t[]){s->experts, DEVICES}, sizeof state->mapping_shape);
    memcpy(state->slots_shape, (int64_t[]){s->k, s->tokens, s->hidden}, sizeof state->slots_shape);
    state->counts_shape[0] = local;
    state->offsets_shape[0] = local + 1;
    state->mapping_view = sy_tensor(state->mesh.mapping, SY_U16, 2, state->mapping_shape);
    for (int64_t d = 0; d < DEVICES; d++) {
        state->index_view[d] = sy_tensor(state->mesh.indices + d * choices, SY_U16, 2, state->index_shape);
        state->metadata_view[d] =
            sy_tensor(state->metadata + d * all * s->k, SY_U16, 2, state->metadata_shape);
        state->weights_view[d] = sy_tensor(state->weights + d * choices, SY_F32, 2, state->index_shape);
        state->counts_view[d] = sy_tensor(state->counts[d], SY_I64, 1, state->counts_shape);
        state->offsets_view[d] = sy_tensor(state->offsets[d], SY_I64, 1, state->offsets_shape);
    }
}

static bool prepare(struct state *state, sy_ctx *ctx)
{
    const struct shape *const s = &state->shape;
    const size_t choices = (size_t)(DEVICES * s->tokens * s->k);
    uint64_t seed = 71;
    if (!mesh_case_make(&state->mesh, DEVICES, s->tokens, s->experts, s->k, 70))
        return false;
    count_rows(state);
    const size_t remote = (size_t)(state->first[DEVICES] * s->hidden) * sizeof(uint16_t);
    state->n_sets = bench_sets(remote + (size_t)(DEVICES * s->tokens * s->hidden) * sizeof(uint16_t));
    state->sets = bench_alloc((size_t)state->n_sets, sizeof *state->sets);
    state->metadata = bench_alloc(DEVICES * choices, sizeof *state->metadata);
    state->weights = bench_alloc(choices, sizeof *state->weights);
    state->plain_rows = bench_alloc(remote, 1);
    if (!state->sets || !state->metadata || !state->weights || !state->plain_rows)
        return false;
    for (size_t i = 0; i < choices; i++)
        state->weights[i] = (float)bench_unit(&seed);
    make_views(state);
    for (int64_t i = 0; i < state->n_sets; i++)
        if (!make_set(state, &state->sets[i], 72 + (uint64_t)i))
            return false;
    return sy_comm_create_local(&state->comm, (sy_mesh){1, DEVICES}, NULL) == SY_OK &&
           sy_routing_create(ctx, state->comm, &state->routing) == SY_OK;
}

/* A combine needs the routing of a dispatch, which overwrites the combine's input; that is then filled again. */
static bool fill_routing(struct state *state, sy_ctx *ctx)
{
    struct set *const set = &state->sets[0];
    bool filled = run_dispatch(ctx, state, 0) == SY_OK;
    bench_fill_bf16(set->remote, (size_t)(state->first[DEVICES] * state->shape.hidden), 72);
    return filled;
}

/* ---- Cases --------------------------------------------------------------------------------------------- */

static void describe(const struct shape *s, char *text, size_t bytes)
{
    static const char *const layouts[] = {"padded", "packed", "expert"};
    const char *const kind = !s->combine ? layouts[s->layout] : s->sum ? "sum" : "slots";
    snprintf(text, bytes, "bf16 D=%d N=%d E=%d K=%d H=%d %s", DEVICES, (int)s->tokens, (int)s->experts,
             (int)s->k, (int)s->hidden, kind);
}

static void describe_dispatch(int index, char *text, size_t bytes)
{
    describe(&dispatches[index], text, bytes);
}

static void describe_combine(int index, char *text, size_t bytes)
{
    describe(&combines[index], text, bytes);
}

/* Rows that are copied, and rows that are filled. */
static struct bench_work dispatch_work(const struct state *state)
{
    const size_t row = (size_t)state->shape.hidden * sizeof(uint16_t);
    const int64_t copied =
        state->shape.layout == SY_LAYOUT_PADDED ? mesh_case_sent(&state->mesh) : state->first[DEVICES];
    return (struct bench_work){.copy_bytes = (size_t)copied * row,
                               .fill_bytes = (size_t)(state->first[DEVICES] - copied) * row};
}

static void run_dispatch_case(struct bench *bench, int index, const char *name)
{
    struct state *const state = calloc(1, sizeof *state);
    if (state)
        state->shape = dispatches[index];
    if (state && prepare(state, bench->ctx)) {
        const struct bench_work work = dispatch_work(state);
        bench_measure(bench, &(struct bench_case){
                                 .op = "all_to_all_dispatch",
                                 .shape = name,
                                 .state = state,
                                 .run = run_dispatch,
                                 .plain = plain_dispatch,
                                 .check = check_dispatch,
                                 .bytes = bench_work_bytes(&work),
                                 .limit = work,
                             });
    } else {
        bench_no_memory(bench, "all_to_all_dispatch", name);
    }
    if (state)
        release(state);
    free(state);
}

static void run_combine_case(struct bench *bench, int index, const char *name)
{
    struct state *const state = calloc(1, sizeof *state);
    if (state)
        state->shape = combines[index];
    if (state && prepare(state, bench->ctx) && fill_routing(state, bench->ctx)) {
        const struct shape *const s = &state->shape;
        const int64_t own = DEVICES * s->tokens * (s->sum ? 1 : s->k);
        const size_t moved = (size_t)((state->first[DEVICES] + own) * s->hidden) * sizeof(uint16_t);
        bench_measure(bench, &(struct bench_case){
                                 .op = "all_to_all_combine",
                                 .shape = name,
                                 .state = state,
                                 .run = run_combine,
                                 .plain = plain_combine,
                                 .check = check_combine,
                                 .bytes = (double)moved,
                                 .limit = {.copy_bytes = moved / 2},
                             });
    } else {
        bench_no_memory(bench, "all_to_all_combine", name);
    }
    if (state)
        release(state);
    free(state);
}

const struct bench_op bench_all_to_all_dispatch = {"all_to_all_dispatch", N_DISPATCHES - N_QUICK, N_QUICK,
                                                   describe_dispatch, run_dispatch_case};
const struct bench_op bench_all_to_all_combine = {"all_to_all_combine", N_COMBINES - N_QUICK, N_QUICK,
                                                  describe_combine, run_combine_case};
