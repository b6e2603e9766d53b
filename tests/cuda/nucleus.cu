/*
 * The rough weights of src/cuda/sample/sample_nucleus.cuh, on the device the program was compiled for,
 * emulated or not: the polynomial against integers, sums of tiles against their weights and the bound that
 * docs/design.md proves, and which rows are decided by them. On a GPU every argument of the polynomial is
 * tried.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "cuda/runtime/backend.cuh"
#include "cuda/sample/sample_nucleus.cuh"

extern "C" {
#include <cmocka.h>
}
#undef skip

static uint64_t state = 0x9e3779b97f4a7c15ull;

static double unit_random()
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state * 0x2545f4914f6cdd1dull >> 11) * 0x1p-53;
}

static double normal_random()
{
    return sqrt(-2 * log(unit_random() + 0x1p-60)) * cos(6.283185307179586 * unit_random());
}

template <typename V> struct memory {
    V *data = NULL;
    explicit memory(size_t n)
    {
        assert_int_equal(cudaMalloc((void **)&data, n * sizeof(V)), cudaSuccess);
    }
    ~memory()
    {
        cudaFree(data);
    }
    void put(const V *from, size_t n)
    {
        assert_int_equal(cudaMemcpyAsync(data, from, n * sizeof(V), cudaMemcpyDefault, NULL), cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
    }
    void get(V *to, size_t n)
    {
        assert_int_equal(cudaMemcpyAsync(to, data, n * sizeof(V), cudaMemcpyDefault, NULL), cudaSuccess);
        assert_int_equal(cudaStreamSynchronize(NULL), cudaSuccess);
    }
};

static struct syc_queue queue = {NULL, cudaSuccess, 4, false};

/* ---- The polynomial ---- */

/* 2^(2^-i) with 63 bits after the point, from square roots of integers. */
struct roots {
    u64 of[64];
};

static u64 root_of(unsigned __int128 v)
{
    unsigned __int128 low = 0, high = ((unsigned __int128)1 << 64) - 1;
    while (low < high) {
        const unsigned __int128 middle = (low + high + 1) / 2;
        if (middle <= v / middle)
            low = middle;
        else
            high = middle - 1;
    }
    return (u64)low;
}

static struct roots find_roots()
{
    struct roots r = {};
    r.of[1] = root_of((unsigned __int128)1 << 127);
    for (int i = 2; i < 64; i++)
        r.of[i] = root_of((unsigned __int128)r.of[i - 1] << 63);
    return r;
}

/* The largest error of 2^a in units of 2^-24 of it, times 2^20, for floats whose bits are first + i * step;
   all of one sign, from 2^-40 up in magnitude, and 2^a normal. */
static __global__ void try_powers(const struct roots roots, u32 first, u64 n, u32 step, u64 *worst)
{
    u64 most = 0;
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < n; i += (u64)gridDim.x * blockDim.x) {
        const u32 bits = first + (u32)i * step;
        const u64 mantissa = (u64)(bits & 0x7fffffu) | 0x800000u; /* |a| = mantissa * 2^(left - 64) */
        const int left = (int)(bits >> 23 & 255) - 150 + 64;
        u64 part = left >= 64 ? 0 : left >= 0 ? mantissa << left : mantissa >> -left; /* of 2^64 */
        int whole = left > 40 ? (int)(left >= 64 ? mantissa << (left - 64) : mantissa >> (64 - left)) : 0;
        if (bits >> 31) { /* the integer below, and what is above it */
            whole = -whole - (part != 0);
            part = 0 - part;
        }
        u64 right = (u64)1 << 63; /* 2^a = right * 2^(whole - 63) */
        for (int b = 1; b < 64 && part != 0; b++, part <<= 1)
            if (part >> 63)
                right = __umul64hi(right, roots.of[b]) << 1;
        const u32 y = __float_as_uint(rough_power(__uint_as_float(bits)));
        const int above = (int)(y >> 23) - 127 - whole; /* 0, or 1 or -1 next to a power of two */
        u64 found = ((u64)(y & 0x7fffffu) | 0x800000u) << 39;
        found = above == 1 ? found << 1 : above == -1 ? found >> 1 : found;
        right >>= 1;
        const u64 off = found > right ? found - right : right - found;
        if (above < -1 || above > 1 || off >> 46 != 0)
            most = ~0ull; /* nowhere near */
        else
            most = max(most, (off << 17) / (right >> 27));
    }
    atomicMax(worst, most);
}

static void powers_of_two_are_near(void **)
{
#ifdef SWITCHYARD_CUDA_EMULATED
    const u32 step = 12289; /* a prime */
#else
    const u32 step = 1;
#endif
    const struct roots roots = find_roots();
    memory<u64> worst(1);
    for (u32 sign = 0; sign < 2; sign++) {
        const u32 first = sign << 31 | 0x2b800000u,
                  last = sign << 31 | (sign == 0 ? 0x42fe0000u : 0x42fc0000u); /* 2^-40; 127 or -126 */
        u64 most = 0;
        worst.put(&most, 1);
        syc_launch(&queue, try_powers, SYC_AFTER, step == 1 ? 2048 : 1, 256, 0, roots, first,
                   (u64)(last - first) / step + 1, step, worst.data);
        assert_int_equal(queue.error, cudaSuccess);
        worst.get(&most, 1);
        print_message("largest relative error: %.3f of 2^-24\n", (double)most * 0x1p-20);
        assert_true(most > (u64)1 << 20); /* the test sees errors */
        assert_true(most <= (u64)4 << 20);
    }
}

/* ---- Rows ---- */

/* Logits of a type, and the same as f32. */
struct row {
    sy_type type;
    std::vector<float> x;
    std::vector<u16> narrow;

    row(sy_type t, const std::vector<float> &logits) : type(t), x(logits), narrow(logits.size())
    {
        for (size_t i = 0; i < x.size() && type != SY_TYPE_F32; i++) {
            narrow[i] = type == SY_TYPE_BF16 ? syi_f32_to_bf16(x[i]) : syi_f32_to_f16(x[i]);
            x[i] = type == SY_TYPE_BF16 ? syi_bf16_to_f32(narrow[i]) : syi_f16_to_f32(narrow[i]);
        }
    }
    const u8 *bytes() const
    {
        return type == SY_TYPE_F32 ? (const u8 *)x.data() : (const u8 *)narrow.data();
    }
    size_t size() const
    {
        return x.size() * (type == SY_TYPE_F32 ? 4 : 2);
    }
};

static u64 weight_at(float x, float most, float inv_t)
{
    const float canonical = syi_key_value(syi_key(syi_f32_bits(x)));
    return syi_weight(syi_exp((canonical - most) * inv_t));
}

static float largest_of(const row &r)
{
    u32 key = 0;
    for (float v : r.x)
        key = std::max(key, syi_key(syi_f32_bits(v)));
    return syi_key_value(key);
}

/* ---- Sums ---- */

/* What each tile weighs: ~0 where that is not known. */
template <sy_type T>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS)
    weigh_tiles(const u8 *x, u32 vocab, float inv_t, float most, u64 *tile)
{
    const struct syc_logits l = {x, NULL, vocab};
    struct rough_scale r = rough_scale_of(inv_t);
    struct rough_top top;
    const bool near = find_top(top, most, r.unit);
    const struct syc_scale scale = {most, inv_t, false};
    const struct syc_vectors v = syc_vectors_of<T>(l);
    struct rough_tiles tiles;
    uint4 y[SYC_OWN_TILES];
    load_group<T>(l, v, threadIdx.x, SYC_SAMPLE_THREADS, y);
    read_rough<T, false>(l, v, r, y, tiles);
    for (u32 c = 0; c < SYC_OWN_TILES; c++) {
        const float weight = __fmul_rn(tiles.weight[c], top.from(r.base));
        const u64 known = near && is_known(weight) ? __float2ull_rn(weight * 0x1p40f) : ~0ull;
        tile[c * SYC_SAMPLE_THREADS + threadIdx.x] = near && !has_weight(tiles.key[c], scale) ? 0 : known;
    }
}

struct tally {
    int known = 0, unknown = 0;
    double worst = 0; /* of the bound */
};

static void check_sums(const row &r, float inv_t, struct tally *tally)
{
    const u32 vocab = (u32)r.x.size(), n = r.type == SY_TYPE_F32 ? 4 : 8;
    const float most = largest_of(r);
    memory<u8> x(r.size());
    memory<u64> tiles(SYC_TILES);
    std::vector<u64> rough(SYC_TILES), exact(SYC_TILES);
    x.put(r.bytes(), r.size());
    if (r.type == SY_TYPE_F32)
        syc_launch(&queue, weigh_tiles<SY_TYPE_F32>, SYC_AFTER, 1, SYC_SAMPLE_THREADS, 0, x.data, vocab,
                   inv_t, most, tiles.data);
    else if (r.type == SY_TYPE_F16)
        syc_launch(&queue, weigh_tiles<SY_TYPE_F16>, SYC_AFTER, 1, SYC_SAMPLE_THREADS, 0, x.data, vocab,
                   inv_t, most, tiles.data);
    else
        syc_launch(&queue, weigh_tiles<SY_TYPE_BF16>, SYC_AFTER, 1, SYC_SAMPLE_THREADS, 0, x.data, vocab,
                   inv_t, most, tiles.data);
    assert_int_equal(queue.error, cudaSuccess);
    tiles.get(rough.data(), SYC_TILES);
    for (u32 i = 0; i < vocab / n * n; i++)
        exact[i / n % SYC_TILES] += weight_at(r.x[i], most, inv_t);
    u64 all = 0, all_exact = 0;
    for (u32 c = 0; c < SYC_TILES; c++) {
        if (rough[c] == ~0ull) {
            tally->unknown++;
            continue;
        }
        tally->known++;
        if (rough[c] == 0 && exact[c] == 0)
            continue;
        /* A tile alone is within the bound of a row, but for the tokens of others. */
        const double off = fabs((double)exact[c] - (double)rough[c]);
        const double may =
            (double)rough[c] * (320 + vocab / 4096) * 0x1p-24 + vocab / n / SYC_TILES * n + n + 2;
        tally->worst = std::max(tally->worst, off / may);
        if (off > may)
            fail_msg("tile %u weighs %llu, roughly %llu", c, (unsigned long long)exact[c],
                     (unsigned long long)rough[c]);
        all += rough[c];
        all_exact += exact[c];
    }
    const u64 off = all > all_exact ? all - all_exact : all_exact - all;
    assert_true(off <= rough_error(all, vocab));
}

static std::vector<float> logits_of(u32 vocab, int kind)
{
    std::vector<float> x(vocab);
    const double width[] = {0.01, 0.5, 2.5, 8, 40}, centre[] = {0, -700, 55, 0, -3};
    for (auto &v : x)
        v = (float)(centre[kind % 5] + width[kind % 5] * normal_random());
    for (int i = 0; i < 40 && kind % 2 == 0; i++) /* peaks */
        x[(size_t)(unit_random() * vocab)] += (float)(width[kind % 5] * 6 * unit_random());
    if (kind % 3 == 1)
        for (auto &v : x)
            v = unit_random() < 0.9 ? -INFINITY : v;
    if (kind % 7 == 3)
        x[(size_t)(unit_random() * vocab)] = NAN;
    if (kind % 7 == 5)
        std::sort(x.begin(), x.end());
    return x;
}

static const sy_type types[] = {SY_TYPE_BF16, SY_TYPE_F16, SY_TYPE_F32};

static void sums_are_within_the_bound(void **)
{
    const u32 vocabs[] = {200000, 131072, 32000, 5003};
    struct tally tally;
    for (int kind = 0; kind < 40; kind++) {
        const std::vector<float> x = logits_of(vocabs[kind % 4], kind);
        const float t = (float)exp(4 * unit_random() - 2.5);
        check_sums(row(types[kind % 3], x), 1.0f / t, &tally);
        check_sums(row(types[kind % 3], x), 1.0f, &tally);
    }
    std::vector<float> far(
        131072,
        -88.0f); /* what a thread sees first tells nothing, and the others are near where powers become 0 */
    std::fill_n(far.begin(), 16384, -1e9f);
    far[100000] = -67.0f;
    check_sums(row(SY_TYPE_BF16, far), 1.0f, &tally);
    print_message("%d tiles known, %d not; largest error: %.2f of the bound\n", tally.known, tally.unknown,
                  tally.worst);
    assert_true(tally.known > 20 * tally.unknown);
    assert_true(tally.worst > 0.02); /* the test sees errors */
}

/* ---- Rows that are decided ---- */

template <sy_type T>
static __global__ void __launch_bounds__(SYC_SAMPLE_THREADS) try_row(const struct syi_sample_plan p, int *how)
{
    __shared__ struct listed_shared s;
    if (threadIdx.x == 0)
        s.more = NULL; /* what shared memory holds before is anything */
    __syncthreads();
    const enum outcome outcome = nucleus_row<T>(p, NULL, &s, NULL, NULL, 0, 1, 0, NULL, NULL);
    if (threadIdx.x == 0)
        *how = outcome;
}

/* The nucleus of a row, by a sort: how many, the weight of them, and of one less. */
struct nucleus {
    u32 n;
    u64 weight, less, all;
};

static struct nucleus nucleus_of(const row &r, float inv_t, float top_p)
{
    const float most = largest_of(r);
    std::vector<u64> w;
    u64 all = 0, sum = 0;
    for (float v : r.x)
        w.push_back(weight_at(v, most, inv_t));
    for (u64 v : w)
        all += v;
    std::sort(w.rbegin(), w.rend());
    const u64 target = syi_mass_target(top_p, all);
    u32 n = 0;
    while (sum < target)
        sum += w[n++];
    return {n, sum, sum - w[n - 1], all};
}

/* 1: decided, as it must be; 0: left to others. */
static int decide(const row &r, float inv_t, float top_p)
{
    struct syi_sample_plan p = {};
    memory<u8> x(r.size()), out(16);
    memory<float> params(2);
    memory<int> how(1);
    const float values[2] = {top_p, 1.0f / inv_t};
    u8 result[16];
    int outcome;
    x.put(r.bytes(), r.size());
    params.put(values, 2);
    p.batch = 1;
    p.vocab = (int64_t)r.x.size();
    p.logits = {x.data, (int64_t)r.size(), r.type};
    p.top_p = {{(u8 *)params.data, 4}, SY_TYPE_F32};
    p.temperature = {{(u8 *)(params.data + 1), 4}, SY_TYPE_F32};
    p.noise = SY_NOISE_CDF;
    p.token.data = out.data;
    p.kept.data = out.data + 8;
    if (r.type == SY_TYPE_F32)
        syc_launch(&queue, try_row<SY_TYPE_F32>, SYC_AFTER, 1, SYC_SAMPLE_THREADS, 0, p, how.data);
    else if (r.type == SY_TYPE_F16)
        syc_launch(&queue, try_row<SY_TYPE_F16>, SYC_AFTER, 1, SYC_SAMPLE_THREADS, 0, p, how.data);
    else
        syc_launch(&queue, try_row<SY_TYPE_BF16>, SYC_AFTER, 1, SYC_SAMPLE_THREADS, 0, p, how.data);
    assert_int_equal(queue.error, cudaSuccess);
    how.get(&outcome, 1);
    if (outcome != ROW_DONE)
        return 0;
    out.get(result, 16);
    const u32 kept = (u32)result[8] | (u32)result[9] << 8 | (u32)result[10] << 16;
    assert_int_equal(kept, nucleus_of(r, inv_t, top_p).n);
    return 1;
}

/* Peaks over normal logits: anywhere, or 200 that fall like a power of their rank. */
static std::vector<float> peaked(u32 vocab, int candidate_tiles)
{
    std::vector<float> x(vocab);
    for (auto &v : x)
        v = (float)(2.5 * normal_random());
    for (int i = 0; i < (candidate_tiles > 0 ? candidate_tiles : 200); i++)
        x[(size_t)(unit_random() * vocab)] =
            (float)(candidate_tiles > 0 ? 14 + 6 * unit_random() : 20 - 1.5 * log(1 + i));
    return x;
}

static void peaked_rows_are_decided(void **)
{
    const float top_p[] = {0.9f, 0.5f, 0.95f, 0.99f}, inv_t[] = {1.0f, 1.25f, 2.0f, 0.8f, 5.0f, 20.0f};
    const int n = 96;
    int decided = 0;
    for (int i = 0; i < n; i++)
        decided +=
            decide(row(types[i % 3], peaked(i % 4 == 3 ? 32000 : 131072, i % 2 == 0 ? 4 + i * 3 % 120 : 0)),
                   inv_t[i / 2 % 6], top_p[i / 2 % 4]);
    print_message("%d of %d peaked rows decided\n", decided, n);
    assert_true(decided >= n - 2);
}

/* A share at which the nucleus ends exactly, within what f32 can say: the bounds must not decide it wrongly,
   and mostly not at all. */
static void ends_of_nuclei_are_left_to_others(void **)
{
    const int n = 24;
    int decided = 0;
    for (int i = 0; i < n; i++) {
        const row r(types[i % 3], peaked(40000, 12 + i));
        const struct nucleus at = nucleus_of(r, 1.0f, 0.8f);
        const float p = (float)((double)at.weight / (double)at.all);
        decided += decide(r, 1.0f, i % 2 == 0 ? p : nextafterf(p, 2.0f));
    }
    print_message("%d of %d rows at the end of their nuclei decided\n", decided, n);
    assert_true(decided < n / 2);
}

static void equal_tokens_are_counted(void **)
{
    for (int i = 0; i < 6; i++) { /* all weight is in the candidate_tiles, so that no bound is needed */
        std::vector<float> x(20000, -100.0f);
        for (int j = 0; j < 8; j++)
            x[(size_t)(1000 * j + 17 * i)] = 3.0f;
        const row r(types[i % 3], x);
        assert_int_equal(decide(r, 1.0f, i % 2 == 0 ? 0.5f : 0.75f), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(powers_of_two_are_near),   cmocka_unit_test(sums_are_within_the_bound),
        cmocka_unit_test(peaked_rows_are_decided),  cmocka_unit_test(ends_of_nuclei_are_left_to_others),
        cmocka_unit_test(equal_tokens_are_counted),
    };
#ifndef SWITCHYARD_CUDA_EMULATED
    int devices = 0;
    if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
        printf("1..0 # SKIP there is no GPU\n");
        return 0;
    }
#endif
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
