/*
 * Stable ranks, sorting, prefix sums and copies of src/cuda, called directly on the emulated device and compared with plain loops:
 * numbers of elements around the sizes of warps, blocks and chunks, few and many keys, devices of any size.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "cuda/prim/rank.cuh"
#include "cuda/prim/rows.cuh"
#include "cuda/prim/scan.cuh"

extern "C" {
#include <cmocka.h>
}
#undef skip /* the name of a function here */

static uint64_t state;

static uint64_t below(uint64_t n)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (state * 0x2545f4914f6cdd1dull >> 11) % n;
}

static const uint8_t guard = 0xa5;
enum { GUARD = 64 };

/* A call on a device with so many multiprocessors, and its scratch memory with a guard after it. */
struct fixture {
    struct syc_device device = {};
    struct syc_report report = {};
    uint32_t closed = 0;
    std::vector<u64> order = std::vector<u64>(SYC_MAX_CHECK_BLOCKS);
    std::vector<struct syi_found> found = std::vector<struct syi_found>(SYC_MAX_CHECK_BLOCKS);
    std::vector<u64> scratch; /* aligned to eight bytes */
    size_t bytes;
    struct syc_call call = {};

    fixture(int processors, size_t scratch_bytes) : scratch(scratch_bytes / 8 + GUARD), bytes(scratch_bytes)
    {
        memset(scratch.data(), guard, scratch.size() * 8);
        device.processors = processors;
        call.device = &device;
        call.queue = {NULL, cudaSuccess, processors, true};
        call.gate = {order.data(), found.data(), 0, &closed, &report, 7};
        call.scratch = (unsigned char *)scratch.data();
    }
    void check_guard() const
    {
        const uint8_t *const all = (const uint8_t *)scratch.data();
        for (size_t i = bytes; i < scratch.size() * 8; i++)
            assert_int_equal(all[i], guard);
    }
};

/* ---- Ranks ---- */

/* Keys; -1: none, below -1 or not below n_keys: wrong. */
struct numbers {
    int64_t n;
    int n_keys;
    const int *k;

    int key(int64_t i) const
    {
        return k[i] >= 0 && k[i] < n_keys ? k[i] : -1;
    }
    bool wrong(int64_t i) const
    {
        return k[i] < -1 || k[i] >= n_keys;
    }
    void explain(int64_t i, struct syi_found *f) const
    {
        *f = {SYI_BAD_ID_RANGE, 0, -1, i, k[i], n_keys, 0};
    }
};

enum { UNTOUCHED = -77 };

/* Everything that is called, and how often. */
struct recorder {
    int64_t *row;       /* [n] */
    int *times;         /* [n] */
    u32 *first, *count; /* [E] */
    int *begun;         /* [E] */
    int64_t *all;

    void put(int64_t i, int, int64_t at) const
    {
        row[i] = at;
        times[i]++;
    }
    void skip(int64_t i) const
    {
        put(i, -1, -1);
    }
    void begin(int key, u32 at, u32 n) const
    {
        first[key] = at;
        count[key] = n;
        begun[key]++;
    }
    void end(u32 n) const
    {
        *all = *all == UNTOUCHED ? (int64_t)n : -1;
    }
};

struct results {
    std::vector<int64_t> row;
    std::vector<int> times, begun;
    std::vector<u32> first, count;
    int64_t all = UNTOUCHED;

    results(size_t n, size_t n_keys)
        : row(n, UNTOUCHED), times(n), begun(n_keys), first(n_keys), count(n_keys)
    {
    }
    struct recorder recorder()
    {
        return {row.data(), times.data(), first.data(), count.data(), begun.data(), &all};
    }
};

static void expect_ranks(const std::vector<int> &key, int n_keys, const results &r)
{
    std::vector<u32> first((size_t)n_keys + 1), next;
    for (const int k : key)
        if (k >= 0)
            first[(size_t)k + 1]++;
    for (int e = 0; e < n_keys; e++) {
        assert_int_equal(r.count[(size_t)e], first[(size_t)e + 1]);
        first[(size_t)e + 1] += first[(size_t)e];
        assert_int_equal(r.first[(size_t)e], first[(size_t)e]);
        assert_int_equal(r.begun[(size_t)e], 1);
    }
    next = first;
    for (size_t i = 0; i < key.size(); i++) {
        assert_int_equal(r.times[i], 1);
        assert_int_equal(r.row[i], key[i] < 0 ? -1 : (int64_t)next[(size_t)key[i]]++);
    }
    assert_int_equal(r.all, first[(size_t)n_keys]);
}

static void expect_nothing(const results &r)
{
    for (const int64_t row : r.row)
        assert_int_equal(row, UNTOUCHED);
    for (const int begun : r.begun)
        assert_int_equal(begun, 0);
    assert_int_equal(r.all, UNTOUCHED);
}

enum order { RANDOM, EQUAL, ASCENDING, DESCENDING, MISSING, N_ORDERS };

static std::vector<int> make_keys(size_t n, int n_keys, enum order order)
{
    std::vector<int> key(n);
    for (size_t i = 0; i < n; i++) {
        const int by_place = (int)(i * (size_t)n_keys / n);
        key[i] = order == EQUAL        ? n_keys - 1
                 : order == ASCENDING  ? by_place
                 : order == DESCENDING ? n_keys - 1 - by_place
                                       : (int)below((uint64_t)n_keys + 1) - 1;
        if (order == MISSING && below(8) > 0)
            key[i] = -1;
    }
    return key;
}

static void rank_once(const std::vector<int> &key, int n_keys, int processors, int64_t fault)
{
    const size_t n = key.size();
    const struct numbers numbers = {(int64_t)n, n_keys, key.data()};
    fixture f(processors, syc_rank_bytes((int64_t)n, n_keys, processors));
    results r(n, (size_t)n_keys);
    syc_rank(&f.call, numbers, r.recorder(), f.call.scratch);
    cudaStreamSynchronize(NULL);
    f.check_guard();
    assert_int_equal(f.call.queue.error, cudaSuccess);
    if (fault < 0) {
        expect_ranks(key, n_keys, r);
        assert_int_equal(f.report.set, 0);
        return;
    }
    expect_nothing(r);
    assert_int_equal(f.report.set, 1);
    assert_int_equal(f.closed, 1);
    assert_int_equal(f.report.op, 7);
    assert_int_equal(f.report.found.position, fault);
    assert_int_equal(f.report.found.value, key[(size_t)fault]);
}

static const int sizes[] = {0,    1,   2,    31,   32,   33,   255,          511,
                            512,  513, 1023, 1024, 1025, 2047, SYC_RANK_FEW, SYC_RANK_FEW + 1,
                            3000, 4097};
static const int key_counts[] = {
    1, 2, 3, 31, 33, 255, 256, 511, 512, 513, 700, 1024, 1025, SYC_MOST_COUNTED, SYC_MOST_COUNTED + 1, 70000};
static const int devices[] = {1, 2, 3, 4, 132, 300};

static void ranks_of_all_sizes(void **)
{
    for (const int n : sizes)
        for (const int n_keys : key_counts)
            rank_once(make_keys((size_t)n, n_keys, (enum order)below(N_ORDERS)), n_keys, devices[below(6)],
                      -1);
}

static void ranks_of_all_orders(void **)
{
    for (int order = 0; order < N_ORDERS; order++)
        for (const int processors : devices)
            for (const int n_keys : {1, 7, 300, 5000}) {
                const size_t n = 600 + below(2500);
                rank_once(make_keys(n, n_keys, (enum order)order), n_keys, processors, -1);
            }
}

/* The first wrong key of several is reported, and nothing is written. */
static void wrong_keys(void **)
{
    for (int round = 0; round < 40; round++) {
        const size_t n = 1 + below(4000);
        const int n_keys = round % 4 == 0 ? 5000 : 1 + (int)below(600);
        std::vector<int> key = make_keys(n, n_keys, RANDOM);
        int64_t first = INT64_MAX;
        for (int i = 0; i < 1 + round % 3; i++) {
            const int64_t at = (int64_t)below(n);
            key[(size_t)at] = below(2) ? n_keys + (int)below(9) : -2 - (int)below(9);
            first = std::min(first, at);
        }
        rank_once(key, n_keys, devices[below(6)], first);
    }
}

/* After a fault that the host has not read, nothing is written. */
static void a_closed_gate(void **)
{
    const std::vector<int> key = make_keys(SYC_RANK_FEW + 1, 9, RANDOM);
    for (const int n : {700, SYC_RANK_FEW + 1})
        for (const int n_keys : {9, 5000}) {
            const struct numbers numbers = {n, n_keys, key.data()};
            fixture f(4, syc_rank_bytes(n, n_keys, 4));
            results r((size_t)n, (size_t)n_keys);
            f.closed = 1;
            syc_rank(&f.call, numbers, r.recorder(), f.call.scratch);
            cudaStreamSynchronize(NULL);
            expect_nothing(r);
            assert_int_equal(f.report.set, 0);
        }
}

/* ---- Sorting ---- */

struct elements {
    const u64 *k;
    const bool *is;

    bool has(int64_t i) const
    {
        return is[i];
    }
    u64 sort_key(int64_t i) const
    {
        return k[i];
    }
};

/* `spread` keys that differ only in the lower `bits`. */
static void sort_once(size_t n, int bits, uint64_t spread, int processors)
{
    std::vector<u64> key(n);
    std::vector<u32> want;
    bool *const is = new bool[n + 1];
    for (size_t i = 0; i < n; i++) {
        key[i] = below(spread) * 0x9e3779b97f4a7c15ull & (bits < 64 ? (1ull << bits) - 1 : ~0ull);
        is[i] = below(9) > 0;
        if (is[i])
            want.push_back((u32)i);
    }
    std::stable_sort(want.begin(), want.end(), [&](u32 a, u32 b) { return key[a] < key[b]; });
    struct syc_sort_memory memory;
    fixture f(processors, syc_sort_lay_out(&memory, (int64_t)n, processors, NULL));
    syc_sort_lay_out(&memory, (int64_t)n, processors, f.call.scratch);
    const struct elements elements = {key.data(), is};
    const struct syc_sorted sorted = syc_sort(&f.call, &memory, elements, (int64_t)n, bits);
    cudaStreamSynchronize(NULL);
    f.check_guard();
    assert_int_equal(*sorted.n, want.size());
    for (size_t i = 0; i < want.size(); i++) {
        assert_int_equal(sorted.value[i], want[i]);
        assert_true(sorted.key[i] == key[want[i]]);
    }
    delete[] is;
}

static void sorts(void **)
{
    for (const int n : sizes)
        for (const int bits : {1, 7, 8, 9, 16, 31, 33, 64})
            sort_once((size_t)n, bits, below(2) ? 3 : 1ull << 40, devices[below(6)]);
}

/* ---- Prefix sums ---- */

static void scan_kernel(u64 *value, int64_t n, u64 most, u64 *sum)
{
    __shared__ u64 part[SYC_BLOCK_WARPS];
    u64 all = 0;
    for (int64_t begin = 0; begin < n; begin += SYC_SCAN_THREADS) {
        const int64_t i = begin + threadIdx.x;
        const u64 before = syc_scan_up_to(i < n ? value[i] : 0, most, part, &all);
        if (i < n)
            value[i] = before;
    }
    if (threadIdx.x == 0)
        *sum = all;
}

static void prefix_sums(void **)
{
    const u64 limits[] = {~0ull, 1ull << 63, 1000, 0};
    for (const int n : sizes)
        for (const u64 most : limits) {
            std::vector<u64> value((size_t)n), want((size_t)n);
            u64 all = 0, sum = 1;
            for (size_t i = 0; i < (size_t)n; i++) {
                value[i] = most == 0        ? 0
                           : below(20) == 0 ? most - below(std::min<u64>(most, 5))
                                            : below(std::min<u64>(most, 50));
                want[i] = all;
                all = value[i] > most - all ? most : all + value[i];
            }
            struct syc_queue queue = {NULL, cudaSuccess, 1, true};
            syc_launch(&queue, scan_kernel, SYC_AFTER, 1, SYC_SCAN_THREADS, 0, value.data(), (int64_t)n, most,
                       &sum);
            cudaStreamSynchronize(NULL);
            assert_true(sum == all);
            assert_true(value == want);
        }
}

/* ---- Chunks ---- */

static void chunks_cover_everything(void **)
{
    for (const int64_t n :
         {(int64_t)0, (int64_t)1, (int64_t)512, (int64_t)513, (int64_t)1 << 20, (int64_t)1 << 40})
        for (const int processors : {0, 1, 7, 132, 264, 265, 10000}) {
            const struct syc_ranks r = syc_ranks_of(n, processors);
            assert_true(r.chunks >= 1 && r.chunks <= SYC_MAX_CHECK_BLOCKS);
            assert_true(r.per_chunk % SYC_RANK_THREADS == 0 && r.per_chunk > 0);
            assert_true(r.chunks * r.per_chunk >= n);
            assert_true((r.chunks - 1) * r.per_chunk < n || n == 0);
        }
}

/* ---- Rows ---- */

struct rows {
    const uint8_t *from;
    uint8_t *to;
    int64_t from_stride, to_stride;
    int *pieces;

    struct syc_piece at(int64_t i) const
    {
        atomicAdd(pieces, 1);
        return {i % 3 == 1 ? NULL : from + i * from_stride, i % 5 == 4 ? NULL : to + i * to_stride};
    }
};

/* Rows of any length, long ones by several blocks; nothing beside them is written. */
static void long_rows_are_cut(void **)
{
    enum { ROWS = 5, AROUND = 64 };
    const int64_t LONG = SYC_MOST_PIECE, one = 1;
    for (const int64_t bytes : {one, 16 * one, LONG - 1, LONG, LONG + 1, LONG + 4, LONG + 16, 2 * LONG,
                                2 * LONG + 1, 3 * LONG - 16, 3 * LONG + 7})
        for (const int64_t apart : {0, 4, 16, 1}) {
            struct fixture f(7, 0);
            const int64_t stride = bytes + apart, all = AROUND + ROWS * stride + AROUND;
            std::vector<uint8_t> from((size_t)all), to((size_t)all, guard), want = to;
            int pieces = 0;
            for (uint8_t &x : from)
                x = (uint8_t)below(256);
            const struct rows rows = {from.data() + AROUND, to.data() + AROUND, stride, stride, &pieces};
            for (int64_t i = 0; i < ROWS; i++)
                for (int64_t k = 0; k < bytes && i % 5 != 4; k++)
                    want[(size_t)(AROUND + i * stride + k)] =
                        i % 3 == 1 ? 0 : from[(size_t)(AROUND + i * stride + k)];
            syc_move_rows(&f.call, rows, ROWS, bytes,
                          (u64)(uintptr_t)rows.from | (u64)(uintptr_t)rows.to | (u64)stride | (u64)bytes);
            cudaStreamSynchronize(NULL);
            assert_true(to == want);
            assert_int_equal(pieces, ROWS * syc_ceil(bytes, LONG));
        }
}

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_of_all_sizes),
        cmocka_unit_test(ranks_of_all_orders),
        cmocka_unit_test(wrong_keys),
        cmocka_unit_test(a_closed_gate),
        cmocka_unit_test(sorts),
        cmocka_unit_test(prefix_sums),
        cmocka_unit_test(chunks_cover_everything),
        cmocka_unit_test(long_rows_are_cut),
    };
    state = 0x5eed5eed5eedull;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
