/*
 * moe_dispatch, every sample on a slot of its own. Must move: valid rows read and written, the other rows cleared where
 * "zero" is in the shape, 12 bytes of gate, expert and slot per sample. The limit copies and fills the same bytes. A format: rows
 * become codes.
 */
#include "described.h"

#include <string.h>

static const char *const shapes[] = {
    "f32 S=18432 C=11520 H=512 E=2 zero unique",
    "f32 S=18432 C=11520 H=512 E=2",
    "f32 S=4608 C=2880 H=1024 E=2 zero unique",
    "f32 S=31 C=2880 H=10240 E=2",
    "bf16 S=18432 C=11520 H=512 E=2 zero unique",
    "bf16 S=18432 C=11520 H=512 E=2",
    "bf16 S=4096 C=640 H=7168 E=8 zero unique",
    "f16 S=18432 C=11520 H=512 E=2 zero unique",
    "f16 S=4096 C=640 H=7168 E=8 zero unique",
    "bf16 S=4096 C=640 H=7168 E=8 zero unique fp8_128",
    /* Quick. */
    "f32 S=2048 C=1280 H=512 E=2 zero unique",
    "bf16 S=2048 C=1280 H=512 E=2",
    "f16 S=2048 C=1280 H=512 E=2 zero unique",
    "f16 S=31 C=640 H=1024 E=2",
    "bf16 S=64 C=40 H=512 E=2 zero unique mxfp8",
};

static const char *const there[] = {
    "f32 S=18432 C=11520 H=512 E=2 zero unique",
    "f32 S=18432 C=11520 H=512 E=2 zero",
    "f32 S=18432 C=11520 H=512 E=2",
    "f32 S=65536 C=5120 H=4096 E=16 zero unique",
    "f32 S=65536 C=5120 H=4096 E=16 zero",
    "f32 S=4608 C=2880 H=1024 E=2 zero",
    "bf16 S=18432 C=11520 H=512 E=2 zero unique",
    "bf16 S=18432 C=11520 H=2880 E=2 zero unique",
    "bf16 S=18432 C=11520 H=2879 E=2 zero unique",
    "bf16 S=65536 C=5120 H=4096 E=16 zero unique fp8_128",
};

enum { MOST_EXPERTS = 16 };

/* A few samples touch little of many slots: one array of slots is cold enough for several turns. */
static bool is_sparse(const struct bench_call *c)
{
    return 2 * bench_size(c, "S=") < bench_size(c, "C=") && !bench_says(c->shape, "zero");
}

/* The usual slots: a sample's slot is how many earlier samples chose its expert; past the capacity it is dropped. Turns
   that share their slots begin further on, each where the one before it ends. */
static BENCH_FILLER(fill_locations)
{
    const int32_t *const indices = bench_named(c, "indices")->data;
    const int64_t samples = x->shape[0];
    int32_t used[MOST_EXPERTS] = {0}, *const locations = x->data;
    const int64_t begin = is_sparse(c) ? bench_turn(seed) * samples % (n - samples) : 0;
    for (int64_t i = 0; i < samples; i++)
        locations[i] = (int32_t)begin + used[indices[i]]++;
}

static void make(struct bench_call *c)
{
    sy_moe_dispatch_args *const a = c->args;
    const int64_t samples = bench_size(c, "S=");
    a->row_format = c->format;
    const bool sparse = is_sparse(c);
    a->num_experts = bench_size(c, "E=");
    a->capacity = bench_size(c, "C=");
    a->zero_unwritten = bench_says(c->shape, "zero");
    a->unique_slots = bench_says(c->shape, "zero unique");
    bench_in(c, &a->gates, SY_F32, DIMS(samples), BENCH_ONCE, fill_unit, 100);
    bench_in(c, &a->indices, SY_I32, DIMS(samples), BENCH_ONCE, fill_ids, a->num_experts);
    bench_in(c, &a->locations, SY_I32, DIMS(samples), BENCH_TURNS, fill_locations, a->capacity);
    bench_in(c, &a->input, bench_type(c), DIMS(samples, bench_size(c, "H=")), BENCH_COPIES, fill_around_zero,
             0);
    if (!bench_out(c, &a->dispatch, sparse ? BENCH_POOL : BENCH_COPIES) ||
        (a->row_format != NULL && !bench_out(c, &a->dispatch_scales, BENCH_COPIES)))
        return;
    int64_t valid = 0;
    for (int64_t i = 0; i < samples; i++)
        valid += ((const int32_t *)a->locations->data)[i] < a->capacity;
    c->touched = sparse ? 2 * bench_bytes(a->input) : 0;
    const size_t read = (size_t)valid * (bench_bytes(a->input) / (size_t)samples),
                 all = bench_bytes(a->dispatch) + bench_bytes(a->dispatch_scales),
                 written = all / (size_t)(a->num_experts * a->capacity) * (size_t)valid;
    c->limit.copy_bytes = (read + written) / 2;
    c->limit.fill_bytes = a->zero_unwritten ? all - written : 0;
    if (a->row_format != NULL)
        bench_scratch(c, bench_bytes(a->input) / (size_t)samples);
    c->bytes = bench_work_bytes(&c->limit) + 12.0 * (double)samples;
}

static void scale(DLDataType type, void *to, const void *from, float gate, int64_t n)
{
    const float *const wide = from;
    const uint16_t *const half = from;
    for (int64_t j = 0; j < n; j++)
        if (type.bits == 32)
            ((float *)to)[j] = gate * wide[j];
        else if (type.code == kDLBfloat)
            ((uint16_t *)to)[j] = bf16_from_float(gate * bf16_to_float(half[j]));
        else
            ((uint16_t *)to)[j] = bench_f16_from_float(gate * bench_f16_to_float(half[j]));
}

/* The product to row `to` of the codes. */
static void encode(const sy_moe_dispatch_args *a, void *product, int64_t to)
{
    int64_t hidden = a->input->shape[1];
    const int64_t groups = a->dispatch_scales->shape[1];
    const DLTensor row = sy_tensor(product, a->input->dtype, 1, &hidden);
    bench_quantize(&row, a->row_format, (unsigned char *)a->dispatch->data + to * hidden,
                   (char *)a->dispatch_scales->data + to * groups * (a->dispatch_scales->dtype.bits / 8),
                   groups);
}

static void plain(const struct bench_call *c)
{
    const sy_moe_dispatch_args *const a = c->args;
    const int64_t hidden = a->input->shape[1], row_bytes = hidden * (a->input->dtype.bits / 8);
    const int32_t *const indices = a->indices->data, *const locations = a->locations->data;
    if (a->zero_unwritten)
        memset(a->dispatch->data, 0, bench_bytes(a->dispatch));
    if (a->zero_unwritten && a->row_format != NULL)
        memset(a->dispatch_scales->data, 0, bench_bytes(a->dispatch_scales));
    for (int64_t i = 0; i < a->input->shape[0]; i++) {
        const int64_t e = indices[i], slot = locations[i];
        if (e < 0 || e >= a->num_experts || slot < 0 || slot >= a->capacity)
            continue;
        const int64_t to = e * a->capacity + slot;
        void *const product = a->row_format != NULL ? c->scratch : (char *)a->dispatch->data + to * row_bytes;
        scale(a->input->dtype, product, (const char *)a->input->data + i * row_bytes,
              ((const float *)a->gates->data)[i], hidden);
        if (a->row_format != NULL)
            encode(a, product, to);
    }
}

BENCH_OP(moe_dispatch, shapes, 5, make, .plain = plain, BENCH_THERE, .peers = true);
