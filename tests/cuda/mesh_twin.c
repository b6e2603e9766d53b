#include "mesh_twin.h"

#include "cuda/cuda.h"

#include <dlfcn.h>

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

static void put(struct side *s, enum field f, int d, DLDataType type, int rank, int64_t a, int64_t b,
                int64_t c)
{
    const int64_t shape[3] = {a, b, c};
    size_t bytes = type.bits / 8;
    memcpy(s->shape[f][d], shape, sizeof shape);
    s->tensor[f][d] = sy_tensor(s->memory + s->bytes, type, rank, s->shape[f][d]);
    for (int i = 0; i < rank; i++)
        bytes *= (size_t)shape[i];
    s->bytes += (bytes + 63) / 64 * 64;
}

static void lay_out(struct side *s) /* NOLINT(readability-function-size) */
{
    s->bytes = 0;
    for (int f = 0; f < N_FIELDS; f++) {
        s->inputs = f == N_INPUTS ? s->bytes : s->inputs;
        for (int d = 0; d < D; d++) {
            const int64_t l = locals(d);
            switch ((enum field)f) {
            case INPUT:
                put(s, f, d, SY_BF16, 2, N, H, 0);
                break;
            case PLANE:
                put(s, f, d, SY_F32, 2, N, X, 0);
                break;
            case CHOSEN:
                put(s, f, d, SY_I32, 2, N, K, 0);
                break;
            case CHOSEN1:
                put(s, f, d, SY_U16, 2, N, K, 0);
                break;
            case CHOSEN2:
                put(s, f, d, SY_I64, 2, N, K, 0);
                break;
            case TABLE:
                put(s, f, d, SY_I64, 2, T, K, 0);
                break;
            case RESULTS:
            case ROWS:
                put(s, f, d, SY_BF16, 2, ROOM, H, 0);
                break;
            case RESULTS1:
            case ROWS1:
                put(s, f, d, SY_BF16, 2, T - 1, H, 0);
                break;
            case RESULTS2:
                put(s, f, d, SY_BF16, 3, l, T, H);
                break;
            case WEIGHTS:
                put(s, f, d, SY_F32, 2, N, K, 0);
                break;
            case PLANE_ROWS:
                put(s, f, d, SY_F32, 2, ROOM, X, 0);
                break;
            case METADATA:
                put(s, f, d, SY_I32, 2, T, K, 0);
                break;
            case SRC:
                put(s, f, d, SY_I32, 2, ROOM, 3, 0);
                break;
            case COUNTS:
                put(s, f, d, SY_I64, 1, l, 0, 0);
                break;
            case OFFSETS:
                put(s, f, d, SY_I64, 1, l + 1, 0, 0);
                break;
            case SUMS:
                put(s, f, d, SY_BF16, 2, N, H, 0);
                break;
            case PLANE_ROWS1:
                put(s, f, d, SY_F32, 2, T - 1, X, 0);
                break;
            case SRC1:
                put(s, f, d, SY_I32, 2, T - 1, 2, 0);
                break;
            case FROM:
            case TO:
                put(s, f, d, SY_I64, 1, G, 0, 0);
                break;
            case REDUCED:
                put(s, f, d, SY_BF16, 3, K, N, H);
                break;
            case ROWS2:
                put(s, f, d, SY_BF16, 2, T, H, 0);
                break;
            case PRESENT:
                put(s, f, d, SY_U8, 1, T, 0, 0);
                break;
            case SLOTS:
                put(s, f, d, SY_BF16, 3, K, N, H);
                break;
            case WRITTEN:
                put(s, f, d, SY_BOOL, 2, K, N, 0);
                break;
            default:
                break;
            }
        }
    }
}

void side_open(struct side *s, sy_ctx *ctx, int ordinal)
{
    const sy_mesh mesh = {2, 2};
    const bool there = ordinal >= 0;
    *s = (struct side){.ctx = ctx, .ordinal = ordinal};
    for (int e = 0; e < E; e++)
        for (int d = 0; d < D; d++) {
            s->mapping[0][e][d] = (uint16_t)hosts(e, d);
            s->mapping[1][e][d] = e < 11 && e % D == d;
        }
    assert_int_equal(sy_comm_create_local(&s->comm, mesh, NULL), SY_OK);
    for (int i = 0; i < 2; i++)
        expect_status(ctx, sy_routing_create(ctx, s->comm, &s->routing[i]), SY_OK);
    lay_out(s);
    void *memory = NULL;
    if (there)
        expect_status(ctx, sy_device_alloc(ctx, s->bytes, &memory), SY_OK);
    else
        memory = malloc(s->bytes);
    s->memory = memory;
    lay_out(s);
    for (int f = 0; f < N_FIELDS && there; f++)
        for (int d = 0; d < D; d++)
            s->tensor[f][d].device = (DLDevice){kDLCUDA, ordinal};
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
    if (s->ordinal >= 0)
        sy_device_free(s->ctx, s->memory);
    else
        free(s->memory);
    sy_ctx_destroy(s->ctx);
}

sy_status side_dispatch(struct side *s, sy_routing *routing)
{
    const int64_t shape[] = {E, D};
    DLTensor(*const t)[D] = s->tensor;
    const DLTensor mapping = sy_tensor(s->mapping[0], SY_U16, 2, shape);
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
    const int64_t shape[] = {E, D};
    DLTensor(*const t)[D] = s->tensor;
    const DLTensor mapping = sy_tensor(s->mapping[0], SY_U16, 2, shape),
                   single = sy_tensor(s->mapping[1], SY_U16, 2, shape);
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
        st = sy_all_to_all_dispatch(s->ctx, s->comm,
                                    &(sy_all_to_all_dispatch_args){.input = t[INPUT],
                                                                   .expert_indices = t[CHOSEN2],
                                                                   .expert_mapping = &mapping,
                                                                   .cluster_axis = SY_AXIS_0,
                                                                   .strict_unique = true,
                                                                   .tokens = t[ROWS2],
                                                                   .present = t[PRESENT]});
    if (st == SY_OK)
        st = sy_all_to_all_combine(s->ctx, s->comm,
                                   &(sy_all_to_all_combine_args){.input = t[RESULTS2],
                                                                 .expert_metadata = t[TABLE],
                                                                 .expert_mapping = &mapping,
                                                                 .cluster_axis = SY_AXIS_0,
                                                                 .output = t[SLOTS],
                                                                 .written = t[WRITTEN]});
    return st;
}

/* ---- Contents --------------------------------------------------------------------------------------------- */

void side_choose(const struct side *s, enum field f, int d, int64_t i, int64_t value)
{
    char *const at = (char *)s->tensor[f][d].data + i * (s->tensor[f][d].dtype.bits / 8);
    memcpy(at, &value, s->tensor[f][d].dtype.bits / 8);
}

/* Distinct experts, and sometimes none. Few tokens choose alike, so that some replays have more rows than fit. */
void side_fill(const struct side *s, uint64_t *rng)
{
    rng_fill(rng, s->memory, s->bytes);
    memset(s->memory + s->inputs, 0x5a, s->bytes - s->inputs);
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

/* ---- Twins ------------------------------------------------------------------------------------------------ */

sy_ctx *twin_device_ctx(int ordinal)
{
    sy_ctx *ctx = NULL;
    const sy_ctx_options options = {.device = {kDLCUDA, ordinal},
                                    .device_library = getenv("SWITCHYARD_TEST_CUDA_LIBRARY")};
    if (sy_ctx_create(&ctx, &options) != SY_OK)
        skip_because("there is no CUDA device of this number here");
    return ctx;
}

/* A function of the emulator; NULL: the device is a real one. */
static void *emulated(const char *function)
{
    const char *const name = getenv("SWITCHYARD_TEST_CUDA_LIBRARY");
    void *const library = name != NULL ? dlopen(name, RTLD_NOW | RTLD_NOLOAD) : NULL;
    void *const found = library != NULL ? dlsym(library, function) : NULL;
    if (library != NULL)
        dlclose(library);
    return found;
}

unsigned long twin_slow_calls(void)
{
    unsigned long (*count)(void) = NULL;
    *(void **)&count = emulated("emulator_slow_calls");
    return count != NULL ? count() : 0;
}

int twin_fail_at(const char *what, int n)
{
    int (*set)(const char *what, int n) = NULL;
    *(void **)&set = emulated("emulator_fail");
    if (set == NULL)
        skip_because("only the emulated device fails on demand");
    return set(what, n);
}

void twin_open(struct twin *w)
{
    *w = (struct twin){.graph = NULL};
    side_open(&w->there, twin_device_ctx(0), 0);
    side_open(&w->here, test_ctx(1, NULL), -1);
    w->back = malloc(w->here.bytes);
}

void twin_send(const struct twin *w)
{
    expect_status(w->there.ctx, sy_device_copy(w->there.ctx, w->there.memory, w->here.memory, w->here.bytes),
                  SY_OK);
}

void twin_fetch(const struct twin *w, const struct side *there)
{
    expect_status(there->ctx, sy_device_copy(there->ctx, w->back, there->memory, w->here.bytes), SY_OK);
}

void twin_close(struct twin *w)
{
    if (w->graph != NULL)
        syi_graph_free(w->there.ctx, w->graph);
    side_close(&w->there);
    side_close(&w->here);
    free(w->back);
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
