#include "mesh_mirror.h"

#include "cuda/cuda.h"

/* Experts 0 to 10 on device e mod 4; 3 on devices 1 and 3; 11 nowhere. */
static int hosts(int e, int d)
{
    return e < 11 && (e % D == d || (e == 3 && d == 1));
}

static int locals(int d)
{
    int n = 0;
    for (int e = 0; e < E; e++)
        n += hosts(e, d);
    return n;
}

/* Extents that differ by device: its experts, and one more. */
enum { LOCALS = -1, LOCALS_AND_ONE = -2 };

static const struct described fields[N_FIELDS] = {
    [INPUT] = {SY_TYPE_BF16, {N, H}},
    [PLANE] = {SY_TYPE_F32, {N, X}},
    [CHOSEN] = {SY_TYPE_I32, {N, K}},
    [CHOSEN1] = {SY_TYPE_U16, {N, K}},
    [CHOSEN2] = {SY_TYPE_I64, {N, K}},
    [TABLE] = {SY_TYPE_I64, {T, K}},
    [RESULTS] = {SY_TYPE_BF16, {ROOM, H}},
    [RESULTS1] = {SY_TYPE_BF16, {T - 1, H}},
    [RESULTS2] = {SY_TYPE_BF16, {LOCALS, T, H}},
    [WEIGHTS] = {SY_TYPE_F32, {N, K}},
    [ROWS] = {SY_TYPE_BF16, {ROOM, H}},
    [PLANE_ROWS] = {SY_TYPE_F32, {ROOM, X}},
    [METADATA] = {SY_TYPE_I32, {T, K}},
    [SRC] = {SY_TYPE_I32, {ROOM, 3}},
    [COUNTS] = {SY_TYPE_I64, {LOCALS}},
    [OFFSETS] = {SY_TYPE_I64, {LOCALS_AND_ONE}},
    [SUMS] = {SY_TYPE_BF16, {N, H}},
    [ROWS1] = {SY_TYPE_BF16, {T - 1, H}},
    [PLANE_ROWS1] = {SY_TYPE_F32, {T - 1, X}},
    [SRC1] = {SY_TYPE_I32, {T - 1, 2}},
    [FROM] = {SY_TYPE_I64, {G}},
    [TO] = {SY_TYPE_I64, {G}},
    [REDUCED] = {SY_TYPE_BF16, {K, N, H}},
    [ROWS2] = {SY_TYPE_BF16, {T, H}},
    [PRESENT] = {SY_TYPE_U8, {T}},
    [SLOTS] = {SY_TYPE_BF16, {K, N, H}},
    [WRITTEN] = {SY_TYPE_BOOL, {K, N}},
};

void side_open(struct side *s, sy_ctx *ctx, int ordinal)
{
    struct described all[N_FIELDS * D];
    *s = (struct side){.ctx = ctx, .mapping_shape = {E, D}};
    for (int e = 0; e < E; e++)
        for (int d = 0; d < D; d++) {
            s->mapping[0][e][d] = (uint16_t)hosts(e, d);
            s->mapping[1][e][d] = e < 11 && e % D == d;
        }
    assert_int_equal(sy_comm_create_local(&s->comm, (sy_mesh){2, 2}, NULL), SY_OK);
    for (int i = 0; i < 2; i++)
        expect_status(ctx, sy_routing_create(ctx, s->comm, &s->routing[i]), SY_OK);
    for (int i = 0; i < N_FIELDS * D; i++) {
        all[i] = fields[i / D];
        if (all[i].shape[0] < 0)
            all[i].shape[0] = locals(i % D) + LOCALS - all[i].shape[0];
    }
    tensors_open(&s->of, ctx, ordinal, all, N_FIELDS * D);
    s->tensor = (DLTensor(*)[D])(void *)s->of.tensor;
    s->shape = (int64_t(*)[D][3])(void *)s->of.shape;
    s->inputs = (size_t)((unsigned char *)s->tensor[N_INPUTS][0].data - s->of.memory);
}

void side_close_comm(struct side *s)
{
    for (int i = 0; i < 2; i++)
        sy_routing_destroy(s->routing[i]);
    sy_comm_destroy(s->comm);
}

void side_close(struct side *s)
{
    if (s->comm != NULL)
        side_close_comm(s);
    tensors_close(&s->of, s->ctx);
    sy_ctx_destroy(s->ctx);
}

DLTensor side_mapping(struct side *s, int i)
{
    return sy_tensor(s->mapping[i], SY_U16, 2, s->mapping_shape);
}

sy_all_to_all_dispatch_args side_padded(const struct side *s, const DLTensor *mapping)
{
    return (sy_all_to_all_dispatch_args){.input = s->tensor[INPUT],
                                         .expert_indices = s->tensor[CHOSEN2],
                                         .expert_mapping = mapping,
                                         .cluster_axis = SY_AXIS_0,
                                         .tokens = s->tensor[ROWS2],
                                         .present = s->tensor[PRESENT]};
}

sy_all_to_all_combine_args side_slots(const struct side *s, const DLTensor *mapping)
{
    return (sy_all_to_all_combine_args){.input = s->tensor[RESULTS2],
                                        .expert_metadata = s->tensor[TABLE],
                                        .expert_mapping = mapping,
                                        .cluster_axis = SY_AXIS_0,
                                        .output = s->tensor[SLOTS],
                                        .written = s->tensor[WRITTEN]};
}

sy_status side_dispatch(struct side *s, sy_routing *routing)
{
    DLTensor(*const t)[D] = s->tensor;
    const DLTensor mapping = side_mapping(s, 0);
    return sy_all_to_all_dispatch(s->ctx, s->comm,
                                  &(sy_all_to_all_dispatch_args){.input = t[INPUT],
                                                                 .expert_indices = t[CHOSEN],
                                                                 .expert_mapping = &mapping,
                                                                 .num_planes = 1,
                                                                 .planes = {t[PLANE]},
                                                                 .plane_tokens = {t[PLANE_ROWS]},
                                                                 .cluster_axis = SY_AXIS_0,
                                                                 .layout = SY_LAYOUT_EXPERT,
                                                                 .align = ALIGN,
                                                                 .routing = routing,
                                                                 .tokens = t[ROWS],
                                                                 .metadata = t[METADATA],
                                                                 .src = t[SRC],
                                                                 .expert_counts = t[COUNTS],
                                                                 .expert_offsets = t[OFFSETS]});
}

sy_status side_combine(struct side *s, const sy_routing *routing)
{
    DLTensor(*const t)[D] = s->tensor;
    return sy_all_to_all_combine(
        s->ctx, s->comm,
        &(sy_all_to_all_combine_args){
            .input = t[RESULTS], .weights = t[WEIGHTS], .sum = true, .routing = routing, .output = t[SUMS]});
}

sy_status side_run(struct side *s)
{
    DLTensor(*const t)[D] = s->tensor;
    const DLTensor mapping = side_mapping(s, 0), single = side_mapping(s, 1);
    sy_all_to_all_dispatch_args padded = side_padded(s, &mapping);
    const sy_all_to_all_combine_args slots = side_slots(s, &mapping);
    padded.strict_unique = true;
    sy_status st = side_dispatch(s, s->routing[0]);
    if (st == SY_OK)
        st = side_combine(s, s->routing[0]);
    if (st == SY_OK)
        st = sy_all_to_all_dispatch(s->ctx, s->comm,
                                    &(sy_all_to_all_dispatch_args){.input = t[INPUT],
                                                                   .expert_indices = t[CHOSEN1],
                                                                   .expert_mapping = &single,
                                                                   .num_planes = 1,
                                                                   .planes = {t[PLANE]},
                                                                   .plane_tokens = {t[PLANE_ROWS1]},
                                                                   .cluster_axis = SY_AXIS_1,
                                                                   .layout = SY_LAYOUT_PACKED,
                                                                   .routing = s->routing[1],
                                                                   .tokens = t[ROWS1],
                                                                   .src = t[SRC1],
                                                                   .rows_from = t[FROM],
                                                                   .rows_to = t[TO]});
    if (st == SY_OK)
        st = sy_all_to_all_combine(s->ctx, s->comm,
                                   &(sy_all_to_all_combine_args){.input = t[RESULTS1],
                                                                 .local_reduce = true,
                                                                 .fill = SY_FILL_KEEP,
                                                                 .routing = s->routing[1],
                                                                 .output = t[REDUCED]});
    if (st == SY_OK)
        st = sy_all_to_all_dispatch(s->ctx, s->comm, &padded);
    if (st == SY_OK)
        st = sy_all_to_all_combine(s->ctx, s->comm, &slots);
    return st;
}

/* ---- Contents ---- */

void side_choose(const struct side *s, enum field f, int d, int64_t i, int64_t value)
{
    char *const at = (char *)s->tensor[f][d].data + i * (s->tensor[f][d].dtype.bits / 8);
    memcpy(at, &value, s->tensor[f][d].dtype.bits / 8);
}

/* Distinct experts, and sometimes none. Few tokens choose alike, so that some replays have more rows than fit. */
void side_fill(const struct side *s, uint64_t *rng)
{
    rng_fill(rng, s->of.memory, s->of.bytes);
    memset(s->of.memory + s->inputs, 0x5a, s->of.bytes - s->inputs);
    for (int d = 0; d < D; d++) {
        float *const weights = s->tensor[WEIGHTS][d].data, *const plane = s->tensor[PLANE][d].data;
        for (int i = 0; i < N * K; i++)
            weights[i] = (float)rng_below(rng, 64) / 32 - 1;
        for (int i = 0; i < N * X; i++)
            plane[i] = (float)i;
        for (enum field f = CHOSEN; f <= CHOSEN2; f++)
            for (int64_t n = 0; n < N; n++) {
                const int64_t first = rng_below(rng, E), step = 1 + 2 * rng_below(rng, 2);
                for (int64_t k = 0; k < K; k++)
                    side_choose(s, f, d, n * K + k, rng_below(rng, 5) == 0 ? -1 : (first + k * step) % E);
            }
        for (int64_t t = 0; t < T; t++) {
            const int64_t first = rng_below(rng, E);
            for (int64_t k = 0; k < K; k++) /* columns have one table: devices 0 and 2, 1 and 3 */
                side_choose(s, TABLE, d, t * K + k, (first + 5 * k) % E);
        }
        if (d >= G)
            memcpy(s->tensor[TABLE][d].data, s->tensor[TABLE][d - G].data, (size_t)T * K * 8);
    }
}

void side_choose_one(const struct side *s, int64_t expert)
{
    for (int64_t i = 0; i < N * K; i++)
        for (int d = 0; d < D; d++)
            side_choose(s, CHOSEN, d, i, i % K == 0 || expert < 0 ? expert : -1);
}

/* ---- Twins ---- */

int mirror_fail_at(const char *what, int n)
{
    int (*set)(const char *what, int n) = NULL;
    *(void **)&set = emulated("emulator_fail");
    if (set == NULL)
        skip_because("only the emulated device fails on demand");
    return set(what, n);
}

void mirror_open(struct mirror *w, uint64_t seed)
{
    *w = (struct mirror){.rng = seed};
    side_open(&w->there, device_ctx(0), 0);
    side_open(&w->here, test_ctx(1, NULL), -1);
    w->back = w->here.of;
    w->back.memory = malloc(w->back.bytes);
}

void mirror_send(const struct mirror *w)
{
    const struct tensors *const here = &w->here.of;
    expect_status(w->there.ctx, sy_device_copy(w->there.ctx, w->there.of.memory, here->memory, here->bytes),
                  SY_OK);
}

void mirror_fill(struct mirror *w)
{
    side_fill(&w->here, &w->rng);
    mirror_send(w);
}

void mirror_fetch(const struct mirror *w, const struct side *there)
{
    expect_status(there->ctx, sy_device_copy(there->ctx, w->back.memory, there->of.memory, w->back.bytes),
                  SY_OK);
}

void mirror_close(struct mirror *w)
{
    if (w->graph != NULL)
        syi_graph_free(w->there.ctx, w->graph);
    side_close(&w->there);
    side_close(&w->here);
    free(w->back.memory);
}

void *side_capture(struct side *s, sy_status (*calls)(struct side *s), sy_status want, const char *sentence)
{
    void *graph = NULL;
    char words[512];
    expect_status(s->ctx, syi_capture_begin(s->ctx), SY_OK);
    const sy_status st = calls(s);
    snprintf(words, sizeof words, "%s", sy_ctx_error(s->ctx));
    expect_status(s->ctx, syi_capture_end(s->ctx, &graph), SY_OK);
    if (st != want || strstr(words, sentence) == NULL)
        fail_msg("%s: %s", sy_status_name(st), words);
    return graph;
}
