/*
 * moe_dispatch_grad_gate. Must read: the rows of all valid choices, the row of every sample, 8 bytes of expert and
 * slot per choice. The limit reads the rows.
 */
#include "described.h"

#include <math.h>

static const char *const shapes[] = {
    "f32 k=1 S=18432 C=11520 H=512 E=2",
    "f32 k=1 S=8192 C=8192 H=2048 E=2",
    "f32 k=2 S=4096 C=1280 H=4096 E=8",
    "bf16 k=2 S=4096 C=1280 H=4096 E=8",
    "f16 k=2 S=4096 C=1280 H=4096 E=8",
    "bf16 k=8 S=4096 C=640 H=2048 E=64",
    "f32 k=1 S=1 C=35 H=512012 E=1",
    /* Quick. */
    "f32 k=1 S=1024 C=640 H=512 E=2",
    "bf16 k=2 S=512 C=160 H=1024 E=8",
};

static void make(struct bench_call *c)
{
    sy_moe_dispatch_grad_gate_args *const a = c->args;
    const int64_t k = bench_size(c, "k="), samples = bench_size(c, "S=");
    a->num_experts = bench_size(c, "E=");
    a->capacity = bench_size(c, "C=");
    const int64_t valid = slots_make(c, &a->indices, &a->locations, &a->dispatch);
    bench_in(c, &a->input, bench_type(c), DIMS(samples, bench_size(c, "H=")), BENCH_POOL, fill_around_zero,
             0);
    bench_room(c, &a->grad_gates, SY_F32, DIMS(k, samples), BENCH_ONCE);
    bench_scratch(c, (size_t)(2 * k * samples) * sizeof(double));
    c->limit.read_bytes = (size_t)(valid + samples) * slots_row_bytes(c);
    c->bytes = bench_work_bytes(&c->limit) + 8.0 * (double)(k * samples);
}

/* In double, each sum beside that of the absolute products. */
static void plain(const struct bench_call *c)
{
    const sy_moe_dispatch_grad_gate_args *const a = c->args;
    const int64_t n = bench_count(a->indices), samples = a->indices->shape[1], hidden = a->input->shape[1];
    double *const sums = c->scratch;
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = slots_row(a->indices, a->locations, i, a->capacity);
        double sum = 0, size = 0;
        for (int64_t j = 0; row >= 0 && j < hidden; j++) {
            const double p = (double)bench_load(a->input, i % samples * hidden + j) *
                             (double)bench_load(a->dispatch, row * hidden + j);
            sum += p;
            size += fabs(p);
        }
        sums[2 * i] = sum;
        sums[2 * i + 1] = size;
    }
}

/* The plain loop sums in double, so it is the more exact of the two. */
static const char *check(const struct bench_call *c)
{
    const sy_moe_dispatch_grad_gate_args *const a = c->args;
    const double *const sums = c->scratch;
    for (int64_t i = 0; i < bench_count(a->grad_gates); i++)
        if (!(fabs((double)bench_load(a->grad_gates, i) - sums[2 * i]) <= 1e-5 * sums[2 * i + 1]))
            return "grad_gates differ from the plain loop";
    return NULL;
}

BENCH_OP(moe_dispatch_grad_gate, shapes, 2, make, .plain = plain, .check = check);
