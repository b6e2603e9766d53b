#include "moe_rows_case.h"

#include "moe_permute.h"

struct rows_seen rows_seen;

DLDataType rows_dl_type(enum rows_type type)
{
    const DLDataType types[ROWS_TYPES] = {SY_F32, SY_F16, SY_BF16};
    return types[type];
}

unsigned char *rows_numbers(uint64_t *rng, enum rows_type type, int64_t n, bool wild)
{
    static const uint32_t hard[] = {0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x00800000, 0x7f7fffff,
                                    0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc12345, 0x33000001};
    unsigned char *data = malloc((size_t)n * rows_bytes(type) + 1);
    assert_non_null(data);
    for (int64_t i = 0; i < n; i++) {
        const float tame = (float)(rng_unit(rng) * 4 - 2);
        const uint32_t odd =
            rng_below(rng, 2) ? (uint32_t)rng_u64(rng) : hard[rng_below(rng, COUNT_OF(hard))];
        rows_store(type, data, i, wild && rng_below(rng, 8) == 0 ? f32_from_bits(odd) : tame);
    }
    return data;
}

struct layout rows_layout(uint64_t *rng, size_t elem_bytes)
{
    struct layout at = {.strided = rng_below(rng, 2), .misalign = (size_t)rng_below(rng, 64)};
    if (rng_below(rng, 3) == 0)
        at.row_gap = 1 + rng_below(rng, 9);
    if (rng_below(rng, 3) == 0)
        at.byte_offset = (uint64_t)rng_below(rng, 5) * elem_bytes;
    rows_seen.gap += at.row_gap > 0;
    rows_seen.offset += at.byte_offset > 0;
    return at;
}

void rows_place(struct tensor *x, uint64_t *rng, DLDataType type, int rank, const int64_t *shape,
                const void *dense)
{
    struct layout at = {0};
    if (rng)
        at = rows_layout(rng, type_bytes(type));
    tensor_make(x, type, rank, shape, &at);
    if (dense)
        tensor_put(x, dense);
}

/* ---- Contexts and seeds --------------------------------------------------------------------------------------- */

sy_ctx *rows_contexts[16];
size_t rows_n_contexts;
uint64_t rows_seed;

int rows_open_contexts(void **state)
{
    static const int threads[] = {1, 2, 3, 8};
    (void)state;
    for (int i = 0; sy_isa_name(i) != NULL; i++)
        for (size_t t = 0; t < COUNT_OF(threads) && rows_n_contexts < COUNT_OF(rows_contexts); t++)
            rows_contexts[rows_n_contexts++] = test_ctx(threads[t], sy_isa_name(i));
    if (getenv("SWITCHYARD_TEST_DEVICE") != NULL) /* one is enough there */
        while (rows_n_contexts > 1)
            sy_ctx_destroy(rows_contexts[--rows_n_contexts]);
    return 0;
}

int rows_close_contexts(void **state)
{
    (void)state;
    while (rows_n_contexts > 0)
        sy_ctx_destroy(rows_contexts[--rows_n_contexts]);
    return 0;
}

int rows_tell_seed(void **state)
{
    (void)state;
    if (rows_seed != 0)
        print_error("the failing case has seed %llu\n", (unsigned long long)rows_seed);
    rows_seed = 0;
    return 0;
}

/* ---- Cases ----------------------------------------------------------------------------------------------------- */

static void *array(int64_t n, size_t bytes)
{
    void *data = calloc((size_t)n + 1, bytes);
    assert_non_null(data);
    return data;
}

static void choose_sizes(struct rows_fixture *f, uint64_t *rng)
{
    struct rows_case *in = &f->in;
    if (in->tokens > 0)
        return;
    in->tokens = 1 + rng_below(rng, 40);
    in->experts = 1 + rng_below(rng, rng_below(rng, 6) == 0 ? 600 : 12);
    in->hidden = rng_below(rng, 10) == 0 ? 0 : 1 + rng_below(rng, 90);
    const int64_t parts = in->capacity ? in->experts : in->tokens;
    const int64_t most = in->capacity ? in->tokens : in->experts < 12 ? in->experts : 12;
    in->rows = rng_below(rng, 20) == 0 ? 0 : parts * (1 + rng_below(rng, most));
}

/* A map with at most `k` experts per token. */
static void route(struct rows_fixture *f, uint64_t *rng, int64_t k)
{
    const struct rows_case *in = &f->in;
    for (int64_t t = 0; t < in->tokens; t++)
        for (int64_t left = rng_below(rng, 3) == 0 ? rng_below(rng, k + 1) : k; left > 0;) {
            uint8_t *cell = &f->map[t * in->experts + rng_below(rng, in->experts)];
            left -= *cell == 0;
            *cell = (uint8_t)(1 + rng_below(rng, 255));
        }
}

static void permuted(struct rows_fixture *f, uint64_t *rng)
{
    const struct rows_case *in = &f->in;
    const int64_t k = in->capacity ? 1 + rng_below(rng, in->experts) : in->rows / in->tokens;
    struct permute_truth truth;
    route(f, rng, k);
    oracle_moe_permute(&(struct permute_case){.tokens = in->tokens,
                                              .experts = in->experts,
                                              .out_tokens = in->rows,
                                              .capacity = in->capacity,
                                              .zero_pad = in->zero_pad,
                                              .token_bytes = 1,
                                              .map = f->map},
                       &truth);
    assert_true(truth.bad_token < 0 && truth.rows == in->rows);
    memcpy(f->indices, truth.indices, (size_t)in->rows * sizeof *f->indices);
    oracle_moe_permute_free(&truth);
}

static void by_hand(struct rows_fixture *f, uint64_t *rng)
{
    const struct rows_case *in = &f->in;
    const int64_t slots = in->rows / in->tokens;
    for (int64_t i = 0; i < in->rows; i++) {
        const bool none = rng_below(rng, 5) == 0 && (!in->capacity || in->zero_pad);
        f->indices[i] = none ? -1 : (int32_t)rng_below(rng, in->capacity ? in->tokens : in->rows);
    }
    for (int64_t t = 0; !in->capacity && t < in->tokens; t++) {
        int64_t live = 0;
        for (int64_t j = 0; j < slots; j++)
            live += f->indices[t * slots + j] >= 0;
        for (int64_t left = live; left > 0;) {
            uint8_t *cell = &f->map[t * in->experts + rng_below(rng, in->experts)];
            left -= *cell == 0;
            *cell = 1;
        }
    }
}

static void spoil(struct rows_fixture *f, uint64_t *rng)
{
    const struct rows_case *in = &f->in;
    const int64_t at = rng_below(rng, in->rows), limit = in->capacity ? in->tokens : in->rows;
    const int32_t bad[] = {(int32_t)limit, -2, INT32_MAX, INT32_MIN, (int32_t)limit + 7};
    if (in->by_expert && !in->capacity && rng_below(rng, 2)) {
        uint8_t *cell = &f->map[rng_below(rng, in->tokens * in->experts)];
        *cell = *cell == 0;
    } else {
        f->indices[at] = bad[rng_below(rng, COUNT_OF(bad))];
    }
}

static void note(const struct rows_fixture *f)
{
    const struct rows_case *in = &f->in;
    int *rows_of = array(in->tokens, sizeof *rows_of), *uses = array(in->rows, sizeof *uses);
    for (int64_t i = 0; i < in->rows; i++) {
        rows_seen.unused_slot += !in->capacity && in->indices[i] == -1;
        rows_seen.pad += in->capacity && in->indices[i] == -1;
    }
    for (size_t i = 0; i < f->pairs.count; i++) {
        rows_of[f->pairs.pair[i].token]++;
        rows_seen.repeat += uses[f->pairs.pair[i].row]++ > 0;
        rows_seen.zero_weight += f->pairs.pair[i].weight == 0.0f;
    }
    for (int64_t t = 0; t < in->tokens; t++) {
        rows_seen.empty_token += in->rows > 0 && rows_of[t] == 0;
        rows_seen.busy_token += rows_of[t] > 8;
    }
    rows_seen.mixed_types += in->probs != NULL && in->type != in->prob_type;
    rows_seen.no_rows += in->rows == 0;
    rows_seen.no_elements += in->hidden == 0;
    rows_seen.many_experts += in->by_expert && in->experts > 256 && in->rows > 0;
    rows_seen.bad_index += f->pairs.fault.position >= 0 && !f->pairs.fault.count;
    rows_seen.bad_count += f->pairs.fault.position >= 0 && f->pairs.fault.count;
    free(rows_of);
    free(uses);
}

void rows_fixture_make(struct rows_fixture *f, uint64_t *rng, const struct rows_choice *choice)
{
    struct rows_case *in = &f->in;
    in->capacity = choice->capacity;
    in->by_expert = choice->by_expert || choice->weighted;
    in->zero_pad = rng_below(rng, 2);
    in->type = (enum rows_type)rng_below(rng, ROWS_TYPES);
    in->prob_type = (enum rows_type)rng_below(rng, ROWS_TYPES);
    choose_sizes(f, rng);
    const int64_t cells = in->tokens * in->experts;
    f->indices = array(in->rows, sizeof *f->indices);
    f->map = array(cells, 1);
    f->probs = rows_numbers(rng, in->prob_type, cells, rng_below(rng, 3) == 0);
    for (int64_t i = 0; i < cells; i++)
        if (rng_below(rng, 9) == 0)
            rows_store(in->prob_type, f->probs, i, rng_below(rng, 2) ? 0.0f : -0.0f);
    (choice->style == ROWS_PERMUTED ? permuted : by_hand)(f, rng);
    if (choice->style == ROWS_BROKEN && in->rows > 0)
        spoil(f, rng);
    in->indices = f->indices;
    in->probs = choice->weighted ? f->probs : NULL;
    if ((in->by_expert && !in->capacity) || rng_below(rng, 2))
        in->map = f->map;
    f->pairs = oracle_pairs(in);
    note(f);
}

void rows_fixture_free(struct rows_fixture *f)
{
    free(f->indices);
    free(f->map);
    free(f->probs);
    oracle_pairs_free(&f->pairs);
}

void rows_expect_seen(int least)
{
    const int *counter = &rows_seen.unused_slot;
    for (size_t i = 0; i < sizeof rows_seen / sizeof *counter; i++)
        if (counter[i] < least)
            fail_msg("hard case number %zu occurred only %d times", i, counter[i]);
}
