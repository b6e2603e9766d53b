/*
 * local_reduce: must read one row for each choice of an expert of the device and write one for each token that has any.
 * The limit is a copy that moves as much. A format: rows are codes.
 */
#include "described.h"

static const char *const shapes[] = {
    "bf16 T=16384 E=256 D=8 K=8 H=7168",
    "bf16 T=4096 E=256 D=8 K=8 H=7168",
    "bf16 T=4096 E=64 D=8 K=8 H=2048",
    "bf16 T=256 E=256 D=8 K=8 H=7168",
    "bf16 T=4096 E=256 D=8 K=8 H=7169",
    "bf16 T=4096 E=256 D=8 K=8 H=7168 fp8_128",
    /* Quick. */
    "bf16 T=512 E=64 D=4 K=8 H=512",
    "bf16 T=64 E=64 D=4 K=8 H=512 int8_token",
};

/* n experts on each device. */
BENCH_OWN(fill_mapping, bench_store_integer, i % x->shape[1] == i / x->shape[1] / n)

/* The scratch: the row of each choice, [T,K], -1 where its expert is on another device. This one has the first. */
static int64_t number_rows(const DLTensor *choices, int64_t n_local, int32_t *row)
{
    int32_t n_rows = 0;
    for (int64_t i = 0; i < bench_count(choices); i++)
        row[i] = -1;
    for (int64_t e = 0; e < n_local; e++)
        for (int64_t i = 0; i < bench_count(choices); i++)
            if (((const uint16_t *)choices->data)[i] == e)
                row[i] = n_rows++;
    return n_rows;
}

static bool has_rows(const int32_t *row, int64_t k)
{
    bool any = false;
    for (int64_t j = 0; j < k; j++)
        any = any || row[j] >= 0;
    return any;
}

static void make(struct bench_call *c)
{
    sy_local_reduce_args *const a = c->args;
    const int64_t tokens = bench_size(c, "T="), experts = bench_size(c, "E="), devices = bench_size(c, "D=");
    const int64_t k = bench_size(c, "K="), hidden = bench_size(c, "H="), n_local = experts / devices;
    int32_t *const row = bench_scratch(c, (size_t)(tokens * k) * sizeof *row);
    a->row_format = c->format;
    a->layout = SY_LAYOUT_EXPERT;
    bench_in(c, &a->expert_mapping, SY_U16, DIMS(experts, devices), BENCH_ONCE, fill_mapping, n_local);
    bench_in(c, &a->weights, SY_F32, DIMS(tokens, k), BENCH_ONCE, fill_unit, 100);
    if (!bench_in(c, &a->expert_metadata, SY_U16, DIMS(tokens, k), BENCH_ONCE, fill_different, experts))
        return;
    const int64_t n_rows = number_rows(a->expert_metadata, n_local, row);
    int64_t n_sums = 0;
    for (int64_t t = 0; t < tokens; t++)
        n_sums += has_rows(row + t * k, k);
    bench_rows(c, &a->input, &a->input_scales, n_rows, hidden);
    bench_room(c, &a->output, SY_BF16, DIMS(n_sums, hidden), BENCH_COPIES);
    c->limit.copy_bytes = (bench_bytes(a->input) + bench_bytes(a->output) + bench_bytes(a->input_scales)) / 2;
}

static void plain(const struct bench_call *c)
{
    const sy_local_reduce_args *const a = c->args;
    const int64_t k = a->weights->shape[1], hidden = a->input->shape[1];
    const float *const weights = a->weights->data;
    const uint16_t *const rows = a->input->data;
    uint16_t *sum = a->output->data;
    for (int64_t t = 0; t < a->weights->shape[0]; t++) {
        const int32_t *const row = (const int32_t *)c->scratch + t * k;
        const bool any = has_rows(row, k);
        for (int64_t h = 0; any && h < hidden; h++) {
            float acc = 0;
            for (int64_t j = 0; j < k; j++)
                if (row[j] >= 0)
                    acc += weights[t * k + j] *
                           (a->row_format != NULL
                                ? bench_decoded(a->row_format, a->input, a->input_scales, row[j] * hidden + h)
                                : bf16_to_float(rows[row[j] * hidden + h]));
            *sum++ = bf16_from_float(acc);
        }
    }
}

BENCH_OP(local_reduce, shapes, 2, make, .plain = plain);
