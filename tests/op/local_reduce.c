/*
 * local_reduce: seeded cases against the oracle on every kernel table and several thread counts. Rows that are not to be
 * read hold NaN, bytes that are not to be written are compared. Then there and back through a mesh. Examples and rules
 * are in tests/examples.
 */
#include "support.h"

#include "oracle/local_reduce.h"

#include <math.h>

static const DLDataType types[] = {{kDLFloat, 32, 1}, {kDLFloat, 16, 1}, {kDLBfloat, 16, 1}};

static sy_ctx *contexts[16];
static int n_contexts;

/* Hard cases that occurred. */
static struct {
    int none, repeated, orphan, elsewhere, kept, interleaved, padding, no_experts, nan, weight_zero;
} seen;

static int open_contexts(void **state)
{
    static const int threads[] = {1, 2, 3, 8};
    const char *isa;
    (void)state;
    for (int i = 0; (isa = sy_isa_name(i)) != NULL; i++)
        for (size_t j = 0; j < COUNT_OF(threads) && n_contexts < (int)COUNT_OF(contexts); j++)
            contexts[n_contexts++] = test_ctx(threads[j], isa);
    return 0;
}

static int close_contexts(void **state)
{
    (void)state;
    while (n_contexts > 0)
        sy_ctx_destroy(contexts[--n_contexts]);
    return 0;
}

/* ---- Random cases against the oracle ------------------------------------------------------------------------- */

static float value_of(DLDataType type, const unsigned char *p)
{
    uint32_t wide = 0;
    memcpy(&wide, p, type_bytes(type));
    if (type.bits == 32)
        return f32_from_bits(wide);
    return (float)(type.code == kDLFloat ? f16_value((uint16_t)wide) : bf16_value((uint16_t)wide));
}

static void put_value(DLDataType type, unsigned char *p, double value)
{
    const uint32_t wide = f32_round(value);
    const uint16_t narrow = type.code == kDLFloat ? f16_round(value) : bf16_round(value);
    if (type.bits == 32)
        memcpy(p, &wide, 4);
    else
        memcpy(p, &narrow, 2);
}

struct fixture {
    struct reduce_case c;
    int64_t devices, device, batch, sequence, hidden, rows, out_rows;
    bool long_shapes, keep, weighted, concat, compact; /* compact: no gaps between rows of experts */
    struct tensor input, metadata, mapping, weights, output;
    int64_t choice[4096];
    unsigned char hosts[32];
};

/* [T,n], or [1,Bt,St,n]; with a leading extent `first` of its own [first,T,n] or [first,Bt,St,n]. */
static void make_tensor(struct fixture *f, uint64_t *rng, struct tensor *x, DLDataType type, int64_t first,
                        int64_t n)
{
    const bool is_long = rng_below(rng, 2) == 0 ? f->long_shapes : false;
    const struct layout at = {.row_gap = rng_below(rng, 3) ? 0 : 1 + rng_below(rng, 7),
                              .misalign = rng_below(rng, 3) ? 0 : (size_t)rng_below(rng, 64)};
    if (is_long || x == &f->metadata)
        tensor_make(x, type, f->long_shapes ? 4 : 2,
                    f->long_shapes ? (int64_t[]){first < 0 ? 1 : first, f->batch, f->sequence, n}
                                   : (int64_t[]){f->c.tokens, n},
                    &at);
    else if (first < 0)
        tensor_make(x, type, 2, (int64_t[]){f->c.tokens, n}, &at);
    else
        tensor_make(x, type, 3, (int64_t[]){first, f->c.tokens, n}, &at);
}

static void put_index(struct tensor *x, int64_t row, int64_t k, int64_t value)
{
    const size_t bytes = type_bytes(x->t.dtype); /* low bytes first; -1 is all bits in each type */
    memcpy((unsigned char *)tensor_row(x, row) + (size_t)k * bytes, &value, bytes);
}

static void make_choices(struct fixture *f, uint64_t *rng)
{
    static const DLDataType index_types[] = {{kDLUInt, 16, 1}, {kDLInt, 32, 1}, {kDLInt, 64, 1}};
    struct reduce_case *c = &f->c;
    make_tensor(f, rng, &f->metadata, index_types[rng_below(rng, 3)], -1, c->slots);
    for (int64_t i = 0; i < c->tokens * c->slots; i++) {
        f->choice[i] = rng_below(rng, 5) == 0 ? -1 : rng_below(rng, c->experts);
        put_index(&f->metadata, i / c->slots, i % c->slots, f->choice[i]);
        seen.none += f->choice[i] < 0;
    }
    c->choice = f->choice;
    c->hosts = f->hosts;
    for (int64_t i = 0; i < c->tokens * c->slots; i++)
        seen.repeated += f->choice[i] >= 0 && oracle_live(c, i / c->slots, i % c->slots) < 0;
}

static void make_mapping(struct fixture *f, uint64_t *rng)
{
    const int64_t copies = rng_below(rng, 3) == 0 ? f->devices : 1;
    const bool is_long = copies > 1 || rng_below(rng, 2) == 0;
    int64_t n_local = 0;
    tensor_make(&f->mapping, (DLDataType){kDLUInt, 16, 1}, is_long ? 4 : 2,
                is_long ? (int64_t[]){copies, 1, f->c.experts, f->devices}
                        : (int64_t[]){f->c.experts, f->devices},
                &(struct layout){.row_gap = rng_below(rng, 2)});
    for (int64_t e = 0; e < f->c.experts; e++) {
        int hosted = 0;
        for (int64_t d = 0; d < f->devices; d++) {
            const uint16_t value = rng_below(rng, f->devices + 1) == 0;
            for (int64_t copy = 0; copy < copies; copy++)
                put_index(&f->mapping, copy * f->c.experts + e, d, value);
            hosted += value;
            if (d == f->device)
                f->hosts[e] = (unsigned char)value;
        }
        seen.orphan += hosted == 0;
        n_local += f->hosts[e];
    }
    seen.no_experts += n_local == 0;
}

/* Every element an ordinary number or any bits, zeros of both signs among them. */
static void fill(struct tensor *x, uint64_t *rng)
{
    const size_t element = type_bytes(x->t.dtype);
    for (int64_t r = 0; r < tensor_rows(x); r++)
        for (size_t at = 0; at < tensor_row_bytes(x); at += element) {
            unsigned char *p = (unsigned char *)tensor_row(x, r) + at;
            put_value(x->t.dtype, p, 4 * rng_unit(rng) - 2);
            if (rng_below(rng, 20) == 0)
                rng_fill(rng, p, element);
            if (rng_below(rng, 10) == 0)
                put_value(x->t.dtype, p, rng_below(rng, 2) ? 0.0 : -0.0);
        }
}

/* Rows nobody may read become NaN. */
static void poison(struct fixture *f)
{
    const int64_t n_rows = tensor_rows(&f->input);
    unsigned char *read = calloc((size_t)n_rows + 1, 1);
    for (int64_t i = 0; i < f->c.tokens * f->c.slots; i++) {
        const int64_t e = oracle_live(&f->c, i / f->c.slots, i % f->c.slots);
        if (e >= 0 && f->hosts[e])
            read[oracle_input_row(&f->c, e, i / f->c.slots)] = 1;
    }
    for (int64_t r = 0; r < n_rows; r++) {
        seen.padding += f->c.by_expert && !read[r];
        if (!read[r])
            memset(tensor_row(&f->input, r), 0xff, tensor_row_bytes(&f->input));
    }
    free(read);
}

/* The rows of the output, in memory as the tensor has them. */
static void want_rows(struct fixture *f, struct tensor *want)
{
    const DLDataType type = f->input.t.dtype;
    const size_t element = type_bytes(type), weight = type_bytes(f->weights.t.dtype);
    for (int64_t t = 0; t < f->c.tokens; t++) {
        const int64_t row = oracle_output_row(&f->c, t);
        seen.elsewhere += row < 0;
        seen.kept += row < 0 && !f->c.by_expert && f->keep;
        if (row < 0 && (f->c.by_expert || f->keep))
            continue;
        for (int64_t h = 0; h < f->hidden; h++) {
            float weights[16], values[16];
            int64_t n = 0;
            for (int64_t k = 0; k < f->c.slots; k++) {
                const int64_t e = oracle_live(&f->c, t, k);
                if (e < 0 || !f->hosts[e])
                    continue;
                weights[n] = value_of(f->weights.t.dtype,
                                      (unsigned char *)tensor_row(&f->weights, t) + (size_t)k * weight);
                seen.weight_zero += weights[n] == 0;
                values[n++] =
                    value_of(type, (unsigned char *)tensor_row(&f->input, oracle_input_row(&f->c, e, t)) +
                                       (size_t)h * element);
            }
            const float sum = oracle_reduce(n, f->weighted ? weights : NULL, values);
            seen.nan += isnan(sum);
            put_value(type, (unsigned char *)tensor_row(want, row < 0 ? t : row) + (size_t)h * element,
                      (double)sum);
        }
    }
}

static void make_rows(struct fixture *f, uint64_t *rng, DLDataType type)
{
    int64_t n_local = 0;
    for (int64_t e = 0; e < f->c.experts; e++)
        n_local += f->hosts[e];
    if (f->c.by_expert) {
        f->rows = oracle_input_rows(&f->c) + (rng_below(rng, 2) ? rng_below(rng, 3) : 0);
        f->out_rows = f->c.tokens;
        tensor_make(&f->input, type, 2, (int64_t[]){f->rows, f->hidden},
                    &(struct layout){.row_gap = f->compact ? 0 : rng_below(rng, 4)});
        tensor_make(&f->output, type, 2, (int64_t[]){f->out_rows, f->hidden},
                    &(struct layout){.row_gap = f->compact ? 0 : rng_below(rng, 4)});
    } else {
        make_tensor(f, rng, &f->input, type, n_local, f->hidden);
        make_tensor(f, rng, &f->output, type, -1, f->hidden);
    }
    make_tensor(f, rng, &f->weights, types[rng_below(rng, 3)], -1, f->c.slots);
    fill(&f->input, rng);
    fill(&f->weights, rng);
    poison(f);
}

static void check_case(struct fixture *f, uint64_t *rng, DLDataType type)
{
    make_choices(f, rng);
    make_mapping(f, rng);
    if (f->c.by_expert && rng_below(rng, 3) == 0)
        f->c.expert_rows = f->c.align * (f->c.tokens / f->c.align + 1 + rng_below(rng, 3));
    make_rows(f, rng, type);
    memset(f->output.mem, 0xA5, f->output.bytes);
    unsigned char *before = tensor_snapshot(&f->output);
    want_rows(f, &f->output);
    unsigned char *want = tensor_snapshot(&f->output);
    const sy_local_reduce_args args = {.input = &f->input.t,
                                       .expert_metadata = &f->metadata.t,
                                       .expert_mapping = &f->mapping.t,
                                       .weights = f->weighted ? &f->weights.t : NULL,
                                       .device = f->device,
                                       .fill = f->keep ? SY_FILL_KEEP : SY_FILL_ZERO,
                                       .layout = f->c.by_expert ? SY_LAYOUT_EXPERT : SY_LAYOUT_PADDED,
                                       .align = f->c.align,
                                       .expert_rows = f->c.expert_rows,
                                       .output_concat_dim = f->concat ? 2 : 1,
                                       .group_size = f->c.positions,
                                       .output = &f->output.t};
    for (int i = 0; i < n_contexts; i++) {
        memcpy(f->output.mem, before, f->output.bytes);
        expect_status(contexts[i], sy_local_reduce(contexts[i], &args), SY_OK);
        tensor_expect_unchanged(&f->output, want, "output");
    }
    free(before);
    free(want);
    struct tensor *const all[] = {&f->input, &f->metadata, &f->mapping, &f->weights, &f->output};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        tensor_free(all[i]);
}

static void random_cases(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 900; seed++) {
        static struct fixture f;
        uint64_t rng = seed;
        memset(&f, 0, sizeof f);
        f.devices = 1 + rng_below(&rng, 3);
        f.device = rng_below(&rng, f.devices);
        f.c.experts = 1 + rng_below(&rng, 9);
        f.c.slots = 1 + rng_below(&rng, 11);
        f.c.by_expert = rng_below(&rng, 2);
        f.c.align = 1 + rng_below(&rng, 4);
        f.long_shapes = rng_below(&rng, 2);
        const int64_t positions = 1 + rng_below(&rng, 3);
        f.batch = rng_below(&rng, 5);
        f.sequence = positions * (1 + rng_below(&rng, 3));
        f.c.tokens = f.batch * f.sequence;
        f.concat = f.c.by_expert && f.long_shapes && rng_below(&rng, 2);
        if (f.concat) {
            f.c.positions = positions;
            f.c.sequence = f.sequence;
            seen.interleaved += positions > 1 && f.batch > 1;
        }
        f.hidden = 1 + rng_below(&rng, 40);
        f.keep = rng_below(&rng, 2);
        f.weighted = rng_below(&rng, 3) > 0;
        check_case(&f, &rng, types[seed % 3]);
    }
    static struct fixture large = {.devices = 2,
                                   .device = 1,
                                   .batch = 1,
                                   .sequence = 600,
                                   .hidden = 304,
                                   .weighted = true,
                                   .c = {.tokens = 600, .slots = 6, .experts = 16, .align = 1}};
    static struct fixture wide = {
        .devices = 2,
        .batch = 1,
        .sequence = 50,
        .hidden = 4104,
        .compact = true,
        .weighted = true,
        .c = {.tokens = 50, .slots = 9, .experts = 16, .align = 1, .by_expert = true}};
    uint64_t rng = 7;
    check_case(&large, &rng, SY_BF16);
    for (int i = 0; i < 3; i++)
        check_case(&wide, &rng, types[i]);
    const int all[] = {seen.none,        seen.repeated, seen.orphan,     seen.elsewhere, seen.kept,
                       seen.interleaved, seen.padding,  seen.no_experts, seen.nan,       seen.weight_zero};
    for (size_t i = 0; i < COUNT_OF(all); i++)
        if (all[i] < 20)
            fail_msg("hard case number %zu occurred only %d times", i, all[i]);
}

/* ---- There and back ------------------------------------------------------------------------------------------ */

enum {
    MESH_DEVICES = 4,
    MESH_GROUP = 2,
    MESH_B = 2,
    MESH_S = 2,
    MESH_E = 6,
    MESH_H = 5,
    MESH_K = 300 /* at most */
};
enum { MESH_N = MESH_B * MESH_S, MESH_T = MESH_GROUP * MESH_N, MESH_ROWS = MESH_T * MESH_K + MESH_E };

/* A 2x2 mesh whose rows exchange; every row of the mesh has all experts once. */
struct mesh_case {
    float x[MESH_DEVICES][MESH_N][MESH_H], home[MESH_DEVICES][MESH_N][MESH_H];
    float rows[MESH_DEVICES][MESH_ROWS][MESH_H], sums[MESH_DEVICES][MESH_T][MESH_H];
    int slots;
    uint16_t index[MESH_DEVICES][MESH_N * MESH_K], table[MESH_DEVICES][MESH_T * MESH_K];
    float weights[MESH_DEVICES][MESH_N * MESH_K], all_weights[MESH_DEVICES][MESH_T * MESH_K];
    uint16_t mapping[MESH_E][MESH_DEVICES];
};

/* Whole numbers, so that no sum is rounded. */
static void make_mesh(struct mesh_case *c, uint64_t *rng, bool replicas)
{
    for (int e = 0; e < MESH_E; e++)
        for (int d = 0; d < MESH_DEVICES; d++)
            c->mapping[e][d] = d % MESH_GROUP == e % MESH_GROUP || (replicas && e % 3 == 1);
    for (int d = 0; d < MESH_DEVICES; d++)
        for (int n = 0; n < MESH_N; n++) {
            const int t = n / MESH_S * MESH_GROUP * MESH_S + d % MESH_GROUP * MESH_S + n % MESH_S;
            for (int h = 0; h < MESH_H; h++)
                c->x[d][n][h] = (float)(rng_below(rng, 201) - 100);
            for (int k = 0; k < c->slots; k++) {
                const int at = n * c->slots + k;
                c->index[d][at] = (uint16_t)(rng_below(rng, 7) == 0 ? 65535 : rng_below(rng, MESH_E));
                c->weights[d][at] = (float)rng_below(rng, 9);
                for (int q = 0; q < MESH_GROUP; q++) /* to all of its row of the mesh */
                    c->all_weights[d / MESH_GROUP * MESH_GROUP + q][t * c->slots + k] = c->weights[d][at];
            }
        }
}

static void run_mesh(struct mesh_case *c, sy_ctx *ctx, sy_comm *comm, sy_a2a_replica replica)
{
    int64_t x_shape[] = {MESH_B, 1, MESH_S, MESH_H}, index_shape[] = {MESH_B, 1, MESH_S, c->slots},
            rows_shape[] = {MESH_ROWS, MESH_H}, sums_shape[] = {MESH_T, MESH_H},
            table_shape[] = {1, MESH_B, MESH_S * MESH_GROUP, c->slots}, home_shape[] = {MESH_N, MESH_H},
            hosts_shape[] = {MESH_E, MESH_DEVICES}, weights_shape[] = {MESH_T, c->slots};
    DLTensor x[MESH_DEVICES], index[MESH_DEVICES], rows[MESH_DEVICES], table[MESH_DEVICES],
        sums[MESH_DEVICES], home[MESH_DEVICES], hosts = sy_tensor(c->mapping, SY_U16, 2, hosts_shape);
    for (int d = 0; d < MESH_DEVICES; d++) {
        x[d] = sy_tensor(c->x[d], SY_F32, 4, x_shape);
        index[d] = sy_tensor(c->index[d], SY_U16, 4, index_shape);
        rows[d] = sy_tensor(c->rows[d], SY_F32, 2, rows_shape);
        table[d] = sy_tensor(c->table[d], SY_U16, 4, table_shape);
        sums[d] = sy_tensor(c->sums[d], SY_F32, 2, sums_shape);
        home[d] = sy_tensor(c->home[d], SY_F32, 2, home_shape);
    }
    const sy_all_to_all_dispatch_args dispatch = {.input = x,
                                                  .expert_indices = index,
                                                  .expert_mapping = &hosts,
                                                  .cluster_axis = SY_AXIS_1,
                                                  .output_concat_dim = 2,
                                                  .layout = SY_LAYOUT_EXPERT,
                                                  .align = 2,
                                                  .replica = replica,
                                                  .node_size = 1,
                                                  .tokens = rows,
                                                  .metadata = table};
    expect_status(ctx, sy_all_to_all_dispatch(ctx, comm, &dispatch), SY_OK);
    for (int d = 0; d < MESH_DEVICES; d++) {
        DLTensor weights = sy_tensor(c->all_weights[d], SY_F32, 2, weights_shape);
        const sy_local_reduce_args reduce_args = {.input = &rows[d],
                                                  .expert_metadata = &table[d],
                                                  .expert_mapping = &hosts,
                                                  .weights = &weights,
                                                  .device = d,
                                                  .layout = SY_LAYOUT_EXPERT,
                                                  .align = 2,
                                                  .output_concat_dim = 2,
                                                  .group_size = MESH_GROUP,
                                                  .replica = replica,
                                                  .node_size = 1,
                                                  .output = &sums[d]};
        expect_status(ctx, sy_local_reduce(ctx, &reduce_args), SY_OK);
    }
    const sy_all_to_all_combine_args combine = {.input = sums,
                                                .expert_metadata = table,
                                                .expert_mapping = &hosts,
                                                .local_reduce = true,
                                                .sum = true,
                                                .cluster_axis = SY_AXIS_1,
                                                .output_shard_dim = 2,
                                                .layout = SY_LAYOUT_PACKED,
                                                .replica = replica,
                                                .node_size = 1,
                                                .output = home};
    expect_status(ctx, sy_all_to_all_combine(ctx, comm, &combine), SY_OK);
}

/* Experts that change nothing: every token comes home times the weights of its live slots. */
static void there_and_back(void **state)
{
    static struct mesh_case c;
    sy_comm *comm = NULL;
    uint64_t rng = 41;
    (void)state;
    assert_int_equal(sy_comm_create_local(&comm, (sy_mesh){2, 2}, NULL), SY_OK);
    for (int round = 0; round < 24; round++) {
        const sy_a2a_replica replica = (sy_a2a_replica)(round % 6);
        c.slots = round % 12 < 6 ? 3 : MESH_K; /* so many are ranked by several blocks of a device */
        make_mesh(&c, &rng, replica != SY_A2A_REPLICA_ALL);
        run_mesh(&c, contexts[round % n_contexts], comm, replica);
        for (int d = 0; d < MESH_DEVICES; d++)
            for (int n = 0; n < MESH_N; n++) {
                float weight = 0;
                for (int k = 0; k < c.slots; k++) {
                    const int first = n * c.slots, at = first + k;
                    bool live = c.index[d][at] != 65535;
                    for (int before = first; before < at; before++)
                        live = live && c.index[d][before] != c.index[d][at];
                    weight += live ? c.weights[d][at] : 0;
                }
                for (int h = 0; h < MESH_H; h++)
                    assert_true(c.home[d][n][h] == weight * c.x[d][n][h]);
            }
    }
    sy_comm_destroy(comm);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases),
        cmocka_unit_test(there_and_back),
    };
    return cmocka_run_group_tests_name("op_local_reduce", tests, open_contexts, close_contexts);
}
