/*
 * moe_combine. Must move: the rows of all valid choices read, one row per sample written, 12 bytes of gate,
 * expert and slot per choice. The limit copies as many bytes of rows, read and written together.
 */
#include "described.h"

static const char *const shapes[] = {
    "f32 k=1 S=18432 C=11520 H=512 E=2",
    "f32 k=1 S=4608 C=2880 H=1024 E=2",
    "f32 k=2 S=4096 C=1280 H=4096 E=8",
    "bf16 k=1 S=18432 C=11520 H=512 E=2",
    "bf16 k=2 S=4096 C=1280 H=4096 E=8",
    "bf16 k=8 S=4096 C=640 H=2048 E=64",
    "f16 k=2 S=4096 C=1280 H=4096 E=8",
    "bf16 k=8 S=16 C=16 H=7168 E=256",
    "bf16 k=8 S=4096 C=640 H=2047 E=64",
    /* Quick. */
    "f32 k=1 S=1024 C=640 H=512 E=2",
    "bf16 k=2 S=512 C=160 H=1024 E=8",
};

static void make(struct bench_call *c)
{
    sy_moe_combine_args *const a = c->args;
    const int64_t k = bench_size(c, "k="), samples = bench_size(c, "S=");
    a->num_experts = bench_size(c, "E=");
    a->capacity = bench_size(c, "C=");
    bench_in(c, &a->gates, SY_F32, DIMS(k, samples), BENCH_ONCE, fill_unit, 100);
    const int64_t valid = slots_make(c, &a->indices, &a->locations, &a->expert_out);
    bench_out(c, &a->output, BENCH_POOL);
    c->limit.copy_bytes = (size_t)(valid + samples) * slots_row_bytes(c) / 2;
    c->bytes = bench_work_bytes(&c->limit) + 12.0 * (double)(k * samples);
}

static void plain(const struct bench_call *c)
{
    const sy_moe_combine_args *const a = c->args;
    const int64_t n = bench_count(a->indices), samples = a->output->shape[0], hidden = a->output->shape[1];
    const float *const gates = a->gates->data;
    for (int64_t i = 0; i < samples; i++)
        for (int64_t j = 0; j < hidden; j++) {
            float sum = 0;
            for (int64_t at = i; at < n; at += samples) {
                const int64_t row = slots_row(a->indices, a->locations, at, a->capacity);
                if (row >= 0)
                    sum += gates[at] * bench_load(a->expert_out, row * hidden + j);
            }
            bench_store(a->output, i * hidden + j, sum);
        }
}

/* By value: one choice keeps the sign of a zero, which the plain loop does not. */
static const char *check(const struct bench_call *c)
{
    const sy_moe_combine_args *const a = c->args;
    DLTensor want = *a->output;
    want.data = (void *)bench_want(a->output);
    for (int64_t i = 0; i < bench_count(a->output); i++)
        if (bench_load(a->output, i) != bench_load(&want, i))
            return "output differs from the plain loop";
    return NULL;
}

BENCH_OP(moe_combine, shapes, 2, make, .plain = plain, .check = check);
