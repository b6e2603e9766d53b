/*
 * Strided and offset views through the aclnn door: whatever way the tensors of a call lie in memory, the results are
 * those of the compact call, and no byte beside the elements changes. Random calls, all tensors laid out anew at once.
 */
#include "aclnn.h"

enum { T = 23, E = 7, H = 5, K = 3, C = 4 }; /* tokens, experts, elements, slots, rows per expert */

struct data {
    uint16_t x[T * H], rows[T * K * H], g[T * H];
    uint8_t map[T * E];
    float probs[T * E], dpp[T * K];
    int32_t slots[T * K], padded[E * C], order[E * C], ids[E * C];
    float logits[T * H], q[T * H];
    int32_t k[T];
    float p[T], min_p[T];
};

/* A permutation of K experts for each token, and what the compact calls of the door make of it. */
static void fill(struct data *d, uint64_t *rng)
{
    for (int i = 0; i < T * H; i++) {
        d->x[i] = bf16_round(rng_unit(rng) * 8 - 4);
        d->g[i] = bf16_round(rng_unit(rng) * 8 - 4);
        d->logits[i] = (float)(rng_unit(rng) * 8 - 4);
        d->q[i] = (float)(rng_unit(rng) + .01);
    }
    for (int i = 0; i < T * K * H; i++)
        d->rows[i] = bf16_round(rng_unit(rng) * 8 - 4);
    memset(d->map, 0, sizeof d->map);
    for (int t = 0; t < T; t++) {
        for (int n = 0; n < K;) {
            uint8_t *place = &d->map[t * E + (int)rng_below(rng, E)];
            n += *place == 0;
            *place = 1;
        }
        for (int e = 0; e < E; e++)
            d->probs[t * E + e] = (float)rng_unit(rng);
        d->k[t] = (int32_t)rng_below(rng, H + 2) - 1;
        d->p[t] = (float)(rng_unit(rng) * 1.3);
        d->min_p[t] = (float)(rng_unit(rng) * .3 - .1);
    }
    for (int i = 0; i < T * K; i++)
        d->dpp[i] = (float)rng_unit(rng);
}

static struct call permute_of(const struct data *d, bool pad)
{
    const int64_t m = pad ? E * C : T * K;
    struct call c = call_permute();
    c.args[PERMUTE_TOKENS] = (struct arg)ARG2(ACL_BF16, T, H, d->x);
    c.args[PERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, T, E, d->map);
    c.args[PERMUTE_PROBS] = (struct arg)ARG2(ACL_FLOAT, T, E, d->probs);
    c.args[PERMUTE_OUT] = (struct arg)ARG2(ACL_BF16, m, H, NULL);
    c.args[PERMUTE_PROBS_OUT] = (struct arg)ARG1(ACL_FLOAT, m, NULL);
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(ACL_INT32, m, NULL);
    c.number[0] = m;
    c.flag[0] = pad;
    return c;
}

static struct call unpermute_of(const struct data *d, bool pad)
{
    const int64_t m = pad ? E * C : T * K;
    struct call c = call_unpermute();
    c.args[UNPERMUTE_ROWS] = (struct arg)ARG2(ACL_BF16, m, H, d->rows);
    c.args[UNPERMUTE_INDICES] = (struct arg)ARG1(ACL_INT32, m, pad ? d->padded : d->slots);
    c.args[UNPERMUTE_MAP] = (struct arg)ARG2(ACL_BOOL, T, E, d->map);
    c.args[UNPERMUTE_PROBS] = (struct arg)ARG2(ACL_FLOAT, T, E, d->probs);
    c.args[UNPERMUTE_OUT] = (struct arg)ARG2(ACL_BF16, T, H, NULL);
    c.args[UNPERMUTE_OUT_INDEX] = (struct arg)ARG1(ACL_INT32, m, NULL);
    c.args[UNPERMUTE_TOKEN_ID] = (struct arg)ARG1(ACL_INT32, m, NULL);
    c.args[UNPERMUTE_KEPT_PROBS] = (struct arg)ARG1(ACL_FLOAT, m, NULL);
    c.flag[0] = pad;
    return c;
}

static struct call permute_grad_of(const struct data *d, bool pad)
{
    const int64_t m = pad ? E * C : T * K;
    struct call c = call_permute_grad();
    c.args[PGRAD_ROWS] = (struct arg)ARG2(ACL_BF16, m, H, d->rows);
    c.args[PGRAD_PROBS] = (struct arg)ARG1(ACL_FLOAT, m, d->dpp);
    c.args[PGRAD_INDICES] = (struct arg)ARG1(ACL_INT32, m, pad ? d->padded : d->slots);
    c.args[PGRAD_MAP] = (struct arg)ARG2(ACL_BOOL, T, E, d->map);
    c.args[PGRAD_OUT] = (struct arg)ARG2(ACL_BF16, T, H, NULL);
    c.args[PGRAD_PROBS_OUT] = (struct arg)ARG2(ACL_FLOAT, T, E, NULL);
    c.number[0] = E;
    c.number[1] = T;
    c.flag[0] = pad;
    return c;
}

static struct call unpermute_grad_of(const struct data *d, bool pad)
{
    const int64_t m = pad ? E * C : T * K;
    struct call c = call_unpermute_grad();
    c.args[UGRAD_TOKENS] = (struct arg)ARG2(ACL_BF16, T, H, d->g);
    c.args[UGRAD_OUT_INDEX] = (struct arg)ARG1(ACL_INT32, m, pad ? d->order : d->slots);
    c.args[UGRAD_TOKEN_ID] = (struct arg)ARG1(ACL_INT32, m, pad ? d->ids : d->slots);
    c.args[UGRAD_MAP] = (struct arg)ARG2(ACL_BOOL, T, E, d->map);
    c.args[UGRAD_ROWS] = (struct arg)ARG2(ACL_BF16, m, H, d->rows);
    c.args[UGRAD_PROBS] = (struct arg)ARG2(ACL_FLOAT, T, E, d->probs);
    c.args[UGRAD_OUT] = (struct arg)ARG2(ACL_BF16, m, H, NULL);
    c.args[UGRAD_PROBS_OUT] = (struct arg)ARG2(ACL_FLOAT, T, E, NULL);
    c.flag[0] = pad;
    return c;
}

static struct call sample_of(const struct data *d, bool lists)
{
    struct call c = call_sample_v2();
    c.args[SAMPLE_LOGITS] = (struct arg)ARG2(ACL_FLOAT, T, H, d->logits);
    c.args[SAMPLE_K] = (struct arg)ARG2(ACL_INT32, T, 1, d->k);
    c.args[SAMPLE_P] = (struct arg)ARG1(ACL_FLOAT, T, d->p);
    c.args[SAMPLE_MINP] = (struct arg)ARG2(ACL_FLOAT, T, 1, d->min_p);
    if (!lists) {
        c.args[SAMPLE_Q] = (struct arg)ARG2(ACL_FLOAT, T, H, d->q);
        c.args[SAMPLE_TOKEN] = (struct arg)ARG2(ACL_INT64, T, 1, NULL);
    } else {
        c.args[SAMPLE_IDX] = (struct arg)ARG2(ACL_INT64, T, H, NULL);
        c.args[SAMPLE_LIST] = (struct arg)ARG2(ACL_FLOAT, T, H, NULL);
    }
    c.args[SAMPLE_MASKED] = (struct arg)ARG2(ACL_FLOAT, T, H, NULL);
    c.flag[0] = true;
    c.flag[2] = lists;
    return c;
}

/* Runs the call and keeps its outputs, dense; the caller frees them. */
static void results(struct call *c, unsigned char **got)
{
    call_make(c);
    expect_aclnn(call_run(c), ACLNN_SUCCESS);
    for (int i = 0; i < c->count; i++)
        arg_expect_untouched(&c->args[i], i < c->first_output, c->op);
    for (int i = c->first_output; i < c->count; i++) {
        const struct arg *a = &c->args[i];
        got[i] = NULL;
        if (a->rank == 0)
            continue;
        got[i] = malloc((size_t)arg_count(a) * arg_elem_bytes(a) + 1);
        assert_non_null(got[i]);
        arg_get(a, got[i]);
    }
    call_free(c);
}

enum { LAYOUTS = 5 };
static int seen[LAYOUTS];

/* Compact; rows apart; elements apart; columns first; columns first and apart. Anywhere in its memory. */
static void lay_out(struct arg *a, uint64_t *rng)
{
    if (a->rank == 0)
        return;
    const int form = (int)rng_below(rng, LAYOUTS);
    const int64_t gap = 1 + rng_below(rng, 4), step = form == 2 || form == 4 ? 2 + rng_below(rng, 2) : 1;
    seen[form]++;
    a->strided = true;
    a->offset = rng_below(rng, 20);
    a->misalign = (size_t)rng_below(rng, 4); /* nobody has to align anything */
    const int64_t rows = a->dims[0], columns = a->rank == 2 ? a->dims[1] : 1;
    if (form < 3) {
        a->strides[a->rank - 1] = step;
        if (a->rank == 2)
            a->strides[0] = columns * step + (form > 0 ? gap : 0);
    } else {
        a->strides[0] = step;
        if (a->rank == 2)
            a->strides[1] = rows * step + gap;
    }
}

static void compare(struct call (*make)(const struct data *, bool), bool flag, const struct data *d,
                    uint64_t *rng)
{
    unsigned char *want[CALL_ARGS] = {NULL}, *got[CALL_ARGS] = {NULL};
    struct call c = make(d, flag);
    results(&c, want);
    for (int round = 0; round < 40; round++) {
        struct call other = make(d, flag);
        for (int i = 0; i < other.count; i++)
            lay_out(&other.args[i], rng);
        results(&other, got);
        for (int i = c.first_output; i < c.count; i++) {
            if (want[i] != NULL)
                expect_bytes(got[i], want[i], (size_t)arg_count(&c.args[i]) * arg_elem_bytes(&c.args[i]));
            free(got[i]);
        }
    }
    for (int i = c.first_output; i < c.count; i++)
        free(want[i]);
}

/* Indices for the ways back, from the way there. */
static void route(struct data *d)
{
    for (int pad = 0; pad < 2; pad++) {
        unsigned char *got[CALL_ARGS] = {NULL};
        struct call c = permute_of(d, pad);
        results(&c, got);
        memcpy(pad ? d->padded : d->slots, got[PERMUTE_INDICES], pad ? sizeof d->padded : sizeof d->slots);
        for (int i = c.first_output; i < c.count; i++)
            free(got[i]);
    }
    unsigned char *got[CALL_ARGS] = {NULL};
    struct call u = unpermute_of(d, true);
    results(&u, got);
    memcpy(d->order, got[UNPERMUTE_OUT_INDEX], sizeof d->order);
    memcpy(d->ids, got[UNPERMUTE_TOKEN_ID], sizeof d->ids);
    for (int i = u.first_output; i < u.count; i++)
        free(got[i]);
    for (int i = 0; i < E * C; i++) { /* sorted, stable, and leading back */
        assert_int_equal(d->padded[d->order[i]], d->ids[i]);
        if (i > 0)
            assert_true(d->ids[i - 1] < d->ids[i] ||
                        (d->ids[i - 1] == d->ids[i] && d->order[i - 1] < d->order[i]));
    }
}

static void random_layouts(void **state)
{
    (void)state;
    static struct data d;
    uint64_t rng = 20;
    print_message("seed %llu\n", (unsigned long long)rng);
    fill(&d, &rng);
    route(&d);
    for (int flag = 0; flag < 2; flag++) {
        compare(permute_of, flag, &d, &rng);
        compare(unpermute_of, flag, &d, &rng);
        compare(permute_grad_of, flag, &d, &rng);
        compare(unpermute_grad_of, flag, &d, &rng);
        compare(sample_of, flag, &d, &rng);
    }
    for (int i = 0; i < LAYOUTS; i++)
        assert_true(seen[i] > 0);
}

/* An input may stand for many rows at once. */
static void broadcast(void **state)
{
    (void)state;
    const float x[2] = {1, 2}, rows[6][2] = {{1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 2}, {1, 2}};
    const uint8_t one = 1;
    struct call c = call_permute();
    c.args[PERMUTE_TOKENS] =
        (struct arg){.type = ACL_FLOAT, .rank = 2, .dims = {3, 2}, .strides = {0, 1}, .strided = true};
    c.args[PERMUTE_MAP] = (struct arg){.type = ACL_BOOL, .rank = 2, .dims = {3, 2}, .strided = true};
    c.args[PERMUTE_OUT] = (struct arg)ARG2(ACL_FLOAT, 6, 2, NULL);
    c.args[PERMUTE_INDICES] = (struct arg)ARG1(ACL_INT32, 6, NULL);
    c.number[0] = 6;
    call_make(&c);
    memcpy(c.args[PERMUTE_TOKENS].mem, x, sizeof x);
    memcpy(c.args[PERMUTE_MAP].mem, &one, 1);
    expect_aclnn(call_run(&c), ACLNN_SUCCESS);
    expect_bytes(c.args[PERMUTE_OUT].mem, rows, sizeof rows);
    const int32_t slots[6] = {0, 3, 1, 4, 2, 5};
    expect_bytes(c.args[PERMUTE_INDICES].mem, slots, sizeof slots);
    call_free(&c);
}

/* Input and output as the two halves of one wider tensor. */
static void halves_of_one_tensor(void **state)
{
    (void)state;
    const float before[2][5] = {{1, 2, 9, 9, 9}, {3, 4, 9, 9, 9}};
    const float want[3][2][5] = {{{1, 2, 9, 3, 4}, {3, 4, 9, 1, 2}},
                                 {{1, 2, 3, 4, 9}, {3, 4, 1, 2, 9}},
                                 {{1, 2, 9, 9, 9}, {3, 4, 9, 9, 9}}};
    const uint8_t map[2][2] = {{0, 1}, {1, 0}};
    int32_t index[2];
    const int64_t dims[2] = {2, 2}, strides[2] = {5, 1}, two[1] = {2};
    for (int shift = 0; shift < 3; shift++) { /* columns 3 and 4, then 2 and 3, then 1 and 2, which meet */
        float memory[2][5];
        memcpy(memory, before, sizeof memory);
        aclTensor *x = aclCreateTensor(dims, 2, ACL_FLOAT, strides, 0, ACL_FORMAT_ND, dims, 2, memory);
        aclTensor *y =
            aclCreateTensor(dims, 2, ACL_FLOAT, strides, 3 - shift, ACL_FORMAT_ND, dims, 2, memory);
        aclTensor *m =
            aclCreateTensor(dims, 2, ACL_BOOL, NULL, 0, ACL_FORMAT_ND, dims, 2, (void *)(uintptr_t)map);
        aclTensor *i = aclCreateTensor(two, 1, ACL_INT32, NULL, 0, ACL_FORMAT_ND, two, 1, index);
        struct call c = call_permute();
        c.args[PERMUTE_TOKENS].tensor = x;
        c.args[PERMUTE_MAP].tensor = m;
        c.args[PERMUTE_OUT].tensor = y;
        c.args[PERMUTE_INDICES].tensor = i;
        c.number[0] = 2;
        expect_aclnn(call_run(&c), shift < 2 ? ACLNN_SUCCESS : ACLNN_ERR_PARAM_INVALID);
        expect_bytes(memory, want[shift], sizeof memory);
        call_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_layouts),
        cmocka_unit_test(broadcast),
        cmocka_unit_test(halves_of_one_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
