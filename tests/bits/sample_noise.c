/*
 * sample_noise: scenes of any seed, offset and stream, short and long.
 */
#include "bits.h"

static sy_status call_noise(sy_ctx *ctx, const void *args)
{
    return sy_sample_noise(ctx, args);
}

void sample_noise_lines(void)
{
    static const int64_t lengths[] = {0, 1, 2, 3, 4, 5, 63, 130, 5000, 70001};
    begin_line("sample_noise");
    for (int i = 0; i < 60; i++) {
        sy_sample_noise_args args = {.seed = rng()};
        args.offset = rng();
        args.offset >>= below(64);
        args.stream = (uint32_t)rng();
        args.n = lengths[below(COUNT(lengths))];
        args.q = &output(box_new(SY_F32, 1, &args.n))->t;
        if (one_in(20))
            args.n = -args.n - 1;
        run_scene(call_noise, &args);
    }
    end_line();
}
