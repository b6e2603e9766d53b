/* The paged caches through the aclnn layer: both modes against plain loops, views of the rules, and every rejection. */
#include "aclnn.h"

#include "aclnnop/aclnn_gather_pa_kv_cache.h"
#include "aclnnop/aclnn_scatter_pa_kv_cache.h"

enum { BLOCKS = 3, SIZE = 4, HEADS = 2, WIDTH = 16, VALUE_WIDTH = 32, PIECE = 16, TOKENS = 5 };
enum { KEY, SLOTS, VALUE, KEY_CACHE, VALUE_CACHE, N_SCATTER };
enum { FROM_KEYS, FROM_VALUES, TABLE, LENGTHS, OFFSETS, TO_KEYS, TO_VALUES, N_GATHER };

static uint16_t keys[BLOCKS * SIZE * HEADS * WIDTH], values[BLOCKS * SIZE * HEADS * VALUE_WIDTH];
static uint16_t new_keys[TOKENS * HEADS * WIDTH], new_values[TOKENS * HEADS * VALUE_WIDTH];
static const int32_t slots[TOKENS] = {7, -1, 0, 11, 4};
static const int32_t table[2][3] = {{2, 0, 1}, {1, 2, 0}}, lengths[2] = {6, 3}, sums[3] = {0, 6, 9},
                     offsets[2] = {5, 0};

/* What the calls take besides tensors. */
static char *mode;
static char norm[] = "Norm", nz[] = "PA_NZ", other[] = "NZ", alibi[] = "Alibi";
static struct {
    bool compress_lens, compress_offsets, seq_lens, alibi, stride, offset;
} given;

static void fill(uint16_t *to, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1103515245u + 12345u;
        to[i] = (uint16_t)(seed >> 16);
    }
}

static aclnnStatus ask_scatter(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    const int64_t two[2] = {2, 2};
    aclIntArray *numbers = aclCreateIntArray(two, 2);
    const aclnnStatus st = aclnnScatterPaKvCacheGetWorkspaceSize(
        a[KEY].tensor, a[KEY_CACHE].tensor, a[SLOTS].tensor, a[VALUE].tensor, a[VALUE_CACHE].tensor,
        given.compress_lens ? a[SLOTS].tensor : NULL, given.compress_offsets ? a[SLOTS].tensor : NULL,
        given.seq_lens ? a[SLOTS].tensor : NULL, mode, given.alibi ? alibi : NULL,
        given.stride ? numbers : NULL, given.offset ? numbers : NULL, size, e);
    assert_int_equal(aclDestroyIntArray(numbers), 0);
    return st;
}

static struct call scatter(bool pieces)
{
    struct call c = {.op = "aclnnScatterPaKvCache",
                     .count = N_SCATTER,
                     .first_output = KEY_CACHE,
                     .ask = ask_scatter,
                     .execute = aclnnScatterPaKvCache};
    mode = pieces ? nz : norm;
    memset(&given, 0, sizeof given);
    c.args[KEY] = (struct arg)ARG3(ACL_BF16, TOKENS, HEADS, WIDTH, new_keys);
    c.args[SLOTS] = (struct arg)ARG1(ACL_INT32, TOKENS, slots);
    c.args[VALUE] = (struct arg)ARG3(ACL_BF16, TOKENS, HEADS, VALUE_WIDTH, new_values);
    c.args[KEY_CACHE] = (struct arg)ARG4(ACL_BF16, BLOCKS, SIZE, HEADS, WIDTH, keys);
    c.args[VALUE_CACHE] = (struct arg)ARG4(ACL_BF16, BLOCKS, SIZE, HEADS, VALUE_WIDTH, values);
    if (pieces) {
        c.args[KEY_CACHE] = (struct arg)ARG4(ACL_BF16, BLOCKS, HEADS * WIDTH / PIECE, SIZE, PIECE, keys);
        c.args[VALUE_CACHE] =
            (struct arg)ARG4(ACL_BF16, BLOCKS, HEADS * VALUE_WIDTH / PIECE, SIZE, PIECE, values);
    }
    return c;
}

/* The place of element j of the row of a slot, in rows of `width`. */
static size_t place(bool pieces, int64_t slot, int64_t j, int64_t width)
{
    const int64_t block = slot / SIZE, row = slot % SIZE;
    return (size_t)(pieces ? block * SIZE * width + (j / PIECE * SIZE + row) * PIECE + j % PIECE
                           : slot * width + j);
}

static void scattered(bool pieces, const uint16_t *from, const uint16_t *cache, int64_t width, uint16_t *want)
{
    memcpy(want, cache, (size_t)(BLOCKS * SIZE * width) * sizeof *want);
    for (int t = 0; t < TOKENS; t++)
        for (int64_t j = 0; slots[t] >= 0 && j < width; j++)
            want[place(pieces, slots[t], j, width)] = from[t * width + j];
}

static void scatter_both_modes(void **state)
{
    (void)state;
    static uint16_t want_keys[sizeof keys / 2], want_values[sizeof values / 2];
    for (int pieces = 0; pieces < 2; pieces++) {
        scattered(pieces, new_keys, keys, HEADS * WIDTH, want_keys);
        scattered(pieces, new_values, values, HEADS * VALUE_WIDTH, want_values);
        struct call c = scatter(pieces);
        call_expect(&c, want_keys, want_values);
        assert_true(memcmp(want_keys, keys, sizeof keys) != 0);
        int64_t wide[TOKENS];
        for (int t = 0; t < TOKENS; t++)
            wide[t] = slots[t];
        c = scatter(pieces);
        c.args[SLOTS] = (struct arg)ARG1(ACL_INT64, TOKENS, wide);
        mode = pieces ? nz : NULL; /* Norm is the default */
        call_expect(&c, want_keys, want_values);
    }
}

static aclnnStatus ask_gather(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnGatherPaKvCacheGetWorkspaceSize(a[FROM_KEYS].tensor, a[FROM_VALUES].tensor, a[TABLE].tensor,
                                                a[LENGTHS].tensor, a[TO_KEYS].tensor, a[TO_VALUES].tensor,
                                                a[OFFSETS].tensor, mode, c->flag[0], size, e);
}

static struct call gather(bool pieces, bool summed, bool offset)
{
    struct call s = scatter(pieces);
    struct call c = {.op = "aclnnGatherPaKvCache",
                     .count = N_GATHER,
                     .first_output = TO_KEYS,
                     .flag = {summed},
                     .ask = ask_gather,
                     .execute = aclnnGatherPaKvCache};
    c.args[FROM_KEYS] = s.args[KEY_CACHE];
    c.args[FROM_VALUES] = s.args[VALUE_CACHE];
    c.args[TABLE] = (struct arg)ARG2(ACL_INT32, 2, 3, table);
    c.args[LENGTHS] = summed ? (struct arg)ARG1(ACL_INT32, 3, sums) : (struct arg)ARG1(ACL_INT32, 2, lengths);
    if (offset)
        c.args[OFFSETS] = (struct arg)ARG1(ACL_INT32, 2, offsets);
    c.args[TO_KEYS] = (struct arg)ARG3(ACL_BF16, 10, HEADS, WIDTH, NULL);
    c.args[TO_VALUES] = (struct arg)ARG3(ACL_BF16, 10, HEADS, VALUE_WIDTH, NULL);
    return c;
}

static void gathered(bool pieces, bool offset, const uint16_t *cache, int64_t width, uint16_t *want)
{
    memset(want, 0xA5, (size_t)(10 * width) * sizeof *want); /* the row after the last keeps its bytes */
    int64_t row = 0;
    for (int b = 0; b < 2; b++)
        for (int64_t u = 0; u < lengths[b]; u++, row++) {
            const int64_t t = (offset ? offsets[b] / SIZE * SIZE : 0) + u;
            for (int64_t j = 0; j < width; j++)
                want[row * width + j] = cache[place(pieces, table[b][t / SIZE] * SIZE + t % SIZE, j, width)];
        }
}

static void gather_both_modes(void **state)
{
    (void)state;
    static uint16_t want_keys[10 * HEADS * WIDTH], want_values[10 * HEADS * VALUE_WIDTH];
    for (int i = 0; i < 8; i++) {
        const bool pieces = i & 1, summed = i & 2, offset = i & 4;
        gathered(pieces, offset, keys, HEADS * WIDTH, want_keys);
        gathered(pieces, offset, values, HEADS * VALUE_WIDTH, want_values);
        struct call c = gather(pieces, summed, offset);
        call_expect(&c, want_keys, want_values);
    }
}

/* ---- Rejections -------------------------------------------------------------------------------------- */

/* Made, run, and every tensor as it was. */
static void scatter_rejects(void **state)
{
    (void)state;
    for (int i = 0; i < N_SCATTER; i++) {
        struct call c = scatter(false);
        c.args[i] = (struct arg)NO_ARG;
        call_rejected(&c, 161001, "null");
        c = scatter(false);
        c.args[i].type = ACL_FLOAT; /* of one tensor, or no integer */
        c.args[i].data = NULL;      /* it would be larger */
        call_rejected(&c, 161002, "type");
        c = scatter(false);
        c.args[i].rank -= 1;
        if (i == SLOTS)
            c.args[i] = (struct arg)ARG2(ACL_INT32, TOKENS, 1, slots);
        call_rejected(&c, 161002, "rank");
        c = scatter(false);
        c.args[i].dims[i == SLOTS ? 0 : 1] -= 1;
        call_rejected(&c, 161002, "extent");
        if (i == SLOTS)
            continue;
        c = scatter(false); /* every other element */
        c.args[i].strided = true;
        int64_t step = 2;
        for (int d = c.args[i].rank; d-- > 0; step *= c.args[i].dims[d])
            c.args[i].strides[d] = step;
        call_rejected(&c, 161002, "stride");
    }
    bool *const options[] = {&given.compress_lens, &given.compress_offsets, &given.seq_lens,
                             &given.alibi,         &given.stride,           &given.offset};
    for (size_t i = 0; i < COUNT_OF(options); i++) {
        struct call c = scatter(false);
        *options[i] = true;
        call_rejected(&c, 161002, "option");
    }
    struct call c = scatter(false);
    mode = other;
    call_rejected(&c, 161002, "mode");
    c = scatter(true); /* pieces of another width */
    c.args[KEY_CACHE].dims[3] = 8;
    call_rejected(&c, 161002, "pieces");
    const int32_t beyond[TOKENS] = {7, -1, 0, 12, 4}, below[TOKENS] = {7, -2, 0, 11, 4};
    c = scatter(false);
    c.args[SLOTS].data = beyond;
    call_rejected(&c, 161002, "slot");
    c = scatter(false);
    c.args[SLOTS].data = below;
    call_rejected(&c, 161002, "slot");
}

static void gather_rejects(void **state)
{
    (void)state;
    for (int i = 0; i < N_GATHER; i++) {
        struct call c = gather(false, false, true);
        c.args[i] = (struct arg)NO_ARG;
        if (i != OFFSETS)
            call_rejected(&c, 161001, "null");
        c = gather(false, false, true);
        c.args[i].type = ACL_FLOAT;
        c.args[i].data = NULL; /* it would be larger */
        call_rejected(&c, 161002, "type");
        c = gather(false, false, true);
        c.args[i].dims[i == TABLE || i == LENGTHS || i == OFFSETS ? 0 : 1] -= 1;
        call_rejected(&c, 161002, "extent");
    }
    struct call c = gather(false, true, false);
    c.args[LENGTHS] = (struct arg)ARG1(ACL_INT32, 2, lengths); /* sums are one more */
    call_rejected(&c, 161002, "sums");
    static const int32_t negative[2] = {6, -1}, many[2] = {6, 5}, far[2] = {5, 12}, before[2] = {-4, 0};
    c = gather(false, false, true);
    c.args[LENGTHS].data = negative;
    call_rejected(&c, 161002, "length");
    c = gather(false, false, true);
    c.args[LENGTHS].data = many; /* 11 rows for 10 */
    call_rejected(&c, 161002, "rows");
    c = gather(false, false, true);
    c.args[OFFSETS].data = far;
    call_rejected(&c, 161002, "offset");
    c = gather(false, false, true);
    c.args[OFFSETS].data = before;
    call_rejected(&c, 161002, "offset");
    static const int32_t wrong[2][3] = {{2, 0, 3}, {3, 2, 0}};
    c = gather(false, false, false);
    c.args[TABLE].data = wrong;
    call_rejected(&c, 161002, "block");
}

int main(void)
{
    fill(keys, sizeof keys / 2, 1);
    fill(values, sizeof values / 2, 2);
    fill(new_keys, sizeof new_keys / 2, 3);
    fill(new_values, sizeof new_values / 2, 4);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scatter_both_modes),
        cmocka_unit_test(gather_both_modes),
        cmocka_unit_test(scatter_rejects),
        cmocka_unit_test(gather_rejects),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
