/*
 * moe_map_physical: seeded cases against the definition, slot by slot without a counter kept, on every kernel
 * table and several thread counts; and the same in two calls, as two ranks would make them.
 */
#include "support_random.h"

enum { RULES = 5 };

static struct {
    int missing, uneven, rule[RULES], on_device, on_node, far, window, narrow;
} seen;

struct fixture {
    sy_moe_map_physical_args args;
    int64_t tokens, slots, experts, replicas;
    int64_t *ids, *want, *before, *want_load, *want_logical;
    int32_t *table, *count;
};

/* The replica of slot i: everything counted anew for each slot. */
static int64_t replica_of(const struct fixture *f, int64_t i)
{
    const sy_moe_map_physical_args *a = &f->args;
    const int64_t e = f->ids[i], n = f->count[e], at = a->token_base + i / f->slots;
    const int32_t *row = f->table + e * f->replicas;
    int64_t same = f->before[e], near[3][64], found[3] = {0, 0, 0};
    for (int64_t before = 0; before < i; before++)
        same += f->ids[before] == e;
    if (a->rule == SY_REPLICA_ROUND_ROBIN)
        return row[at % n];
    if (a->rule == SY_REPLICA_HASH)
        return row[(int64_t)((uint64_t)at * UINT64_C(2654435769) % (UINT64_C(1) << 32)) % n];
    if (a->rule == SY_REPLICA_BALANCED)
        return row[same % n];
    if (a->rule == SY_REPLICA_FIRST)
        return row[0];
    for (int64_t r = 0; r < n; r++) {
        const int64_t device = row[r] * a->devices / a->num_physical;
        const bool here = device == a->device;
        const bool node = here || (a->node_size && device / a->node_size == a->device / a->node_size);
        near[2][found[2]++] = row[r];
        if (node)
            near[1][found[1]++] = row[r];
        if (here)
            near[0][found[0]++] = row[r];
    }
    const int which = found[0] ? 0 : found[1] ? 1 : 2;
    seen.on_device += which == 0;
    seen.on_node += which == 1;
    seen.far += which == 2;
    return near[which][a->device % found[which]];
}

static void fixture_make(struct fixture *f, uint64_t *rng, bool narrow)
{
    sy_moe_map_physical_args *a = &f->args;
    const int64_t per_device = 1 + rng_below(rng, 5), n = f->tokens * f->slots;
    a->devices = 1 + rng_below(rng, 6);
    a->device = rng_below(rng, a->devices);
    a->node_size = rng_below(rng, 4);
    a->num_physical = a->devices * per_device;
    a->token_base = rng_below(rng, 2) ? INT64_C(1) << 40 : rng_below(rng, 9);
    a->allow_missing = true;
    f->ids = need(n, 8);
    f->want = need(n, 8);
    f->table = need(f->experts * f->replicas, 4);
    f->count = need(f->experts, 4);
    f->before = need(f->experts, 8);
    f->want_load = need(a->num_physical, 8);
    f->want_logical = need(f->experts, 8);
    for (int64_t e = 0; e < f->experts; e++) {
        f->count[e] = (int32_t)(1 + rng_below(rng, f->replicas));
        f->before[e] = a->rule == SY_REPLICA_BALANCED ? rng_below(rng, 100) : 0;
        seen.uneven += f->count[e] != f->count[0];
        for (int64_t r = 0; r < f->replicas; r++)
            f->table[e * f->replicas + r] = r < f->count[e] ? (int32_t)rng_below(rng, a->num_physical) : -1;
        f->want_logical[e] = 1000 + e;
    }
    for (int64_t p = 0; p < a->num_physical; p++)
        f->want_load[p] = -p;
    for (int64_t i = 0; i < n; i++) {
        const int64_t none = rng_below(rng, 2) ? f->experts : narrow ? UINT16_MAX : -1;
        f->ids[i] = rng_below(rng, 9) == 0 ? none : rng_below(rng, f->experts);
    }
    seen.rule[a->rule]++;
    seen.narrow += narrow;
}

static void find_wanted(struct fixture *f, bool narrow)
{
    for (int64_t i = 0; i < f->tokens * f->slots; i++) {
        if (f->ids[i] < 0 || f->ids[i] >= f->experts) {
            f->want[i] = narrow ? UINT16_MAX : -1;
            seen.missing++;
            continue;
        }
        f->want[i] = replica_of(f, i);
        f->want_load[f->want[i]]++;
        f->want_logical[f->ids[i]]++;
    }
}

/* Integers of 16, 32 or 64 bits, from those of 64. */
static struct tensor *made_of(uint64_t *rng, DLDataType type, int64_t rows, int64_t columns, const void *from,
                              bool wide)
{
    struct tensor *x = any_tensor(rng, type, columns < 0 ? 1 : 2, rows, columns < 0 ? 0 : columns);
    const int64_t n = rows * (columns < 0 ? 1 : columns);
    const size_t bytes = type_bytes(type);
    unsigned char *dense = need(n, 8);
    for (int64_t i = 0; i < n; i++) /* little-endian: the low bytes */
        memcpy(dense + (size_t)i * bytes, (const unsigned char *)from + i * (wide ? 8 : 4), bytes);
    tensor_put(x, dense);
    return x;
}

/* Tokens from `begin` on of a tensor, n of them. */
static DLTensor part_of(const struct tensor *x, int64_t begin, int64_t n, int64_t shape[2])
{
    DLTensor part = x->t;
    shape[0] = n;
    shape[1] = x->shape[1];
    part.shape = shape;
    part.data = tensor_row(x, begin);
    part.byte_offset = 0;
    return part;
}

/* The second call goes on where the first has ended, with what it has counted. */
static void check_halves(const struct fixture *f, const struct tensor *ids, struct tensor *before,
                         struct tensor *out, const struct tensor *want, sy_ctx *ctx)
{
    const int64_t half = f->tokens / 2;
    const size_t bytes = (size_t)f->slots * type_bytes(out->t.dtype);
    for (int64_t t = 0; t < f->tokens; t++)
        memset(tensor_row(out, t), 0x77, bytes);
    for (int second = 0; second < 2; second++) {
        int64_t in_shape[2], out_shape[2];
        const int64_t begin = second ? half : 0, n = second ? f->tokens - half : half;
        const DLTensor in = part_of(ids, begin, n, in_shape), to = part_of(out, begin, n, out_shape);
        sy_moe_map_physical_args args = f->args;
        args.ids = &in;
        args.physical_ids = &to;
        args.load = args.logical_load = NULL;
        args.token_base += begin;
        for (int64_t i = 0; i < half * f->slots && second; i++)
            if (f->ids[i] >= 0 && f->ids[i] < f->experts)
                f->before[f->ids[i]]++;
        tensor_put(before, f->before);
        expect_status(ctx, sy_moe_map_physical(ctx, &args), SY_OK);
    }
    for (int64_t t = 0; t < f->tokens; t++)
        expect_bytes(tensor_row(out, t), tensor_row(want, t), bytes);
}

static void check(uint64_t seed, sy_ctx *ctx)
{
    static const DLDataType types[] = {{kDLInt, 32, 1}, {kDLInt, 64, 1}, {kDLUInt, 16, 1}};
    uint64_t rng = seed;
    const DLDataType type = types[seed % 3];
    const bool narrow = seed % 3 == 2;
    struct fixture f = {.args = {.rule = (sy_replica_rule)(seed % RULES)},
                        .tokens = rng_below(&rng, 40),
                        .slots = 1 + rng_below(&rng, 4),
                        .experts = seed % 37 == 0 ? 9000 : 1 + rng_below(&rng, 9),
                        .replicas = 1 + rng_below(&rng, 6)};
    fixture_make(&f, &rng, narrow);
    struct tensor *ids = made_of(&rng, type, f.tokens, f.slots, f.ids, true);
    struct tensor *table = made_of(&rng, SY_I32, f.experts, f.replicas, f.table, false);
    struct tensor *count = made_of(&rng, SY_I32, f.experts, -1, f.count, false);
    struct tensor *before = made_of(&rng, SY_I64, f.experts, -1, f.before, true);
    struct tensor *load = made_of(&rng, SY_I64, f.args.num_physical, -1, f.want_load, true);
    struct tensor *logical = made_of(&rng, SY_I64, f.experts, -1, f.want_logical, true);
    struct tensor *out = any_tensor(&rng, type, 2, f.tokens, f.slots);
    find_wanted(&f, narrow);
    struct tensor *want = made_of(&rng, type, f.tokens, f.slots, f.want, true);
    f.args.ids = &ids->t;
    f.args.logical_to_physical = &table->t;
    f.args.replica_count = seed % 2 ? &count->t : NULL;
    f.args.counts_before = f.args.rule == SY_REPLICA_BALANCED ? &before->t : NULL;
    f.args.physical_ids = &out->t;
    f.args.load = &load->t;
    f.args.logical_load = &logical->t;
    expect_status(ctx, sy_moe_map_physical(ctx, &f.args), SY_OK);
    for (int64_t t = 0; t < f.tokens; t++)
        expect_bytes(tensor_row(out, t), tensor_row(want, t), (size_t)f.slots * type_bytes(type));
    expect_bytes(tensor_row(load, 0), f.want_load, (size_t)f.args.num_physical * 8);
    expect_bytes(tensor_row(logical, 0), f.want_logical, (size_t)f.experts * 8);
    if (f.tokens > 0)
        check_halves(&f, ids, before, out, want, ctx);
    seen.window += f.args.token_base > INT32_MAX;
    free_all();
}

static void random_cases(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 600; seed++)
        check(seed, contexts[(int)(seed / 30) % n_contexts]);
    expect_hard(seen, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases),
    };
    return cmocka_run_group_tests_name("op_moe_map_physical", tests, open_contexts, close_contexts);
}
