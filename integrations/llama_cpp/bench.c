/*
 * One step of sampling, from a model's logits to a token, by llama.cpp's chain and by the sampler of this folder:
 * `bench [rounds]`, compiled without llama_switchyard.c, which it includes. Microseconds, the shortest of the rounds.
 * Logits are near to normal with a deviation of 2; in half of the steps 16 tokens are much more likely than the others.
 */
#include "llama_switchyard.c" /* NOLINT(bugprone-suspicious-include): for its static functions */

#include <time.h>

enum { N_VOCAB = 128256, OF_EACH = 10, STEPS = 2 * OF_EACH };

static double now(void)
{
    struct timespec at;
    timespec_get(&at, TIME_UTC);
    return 1e6 * (double)at.tv_sec + 1e-3 * (double)at.tv_nsec;
}

/* As llama_sampler_sample does it: the array of candidates, then the stages. */
static llama_token step(struct llama_sampler *smpl, const float *logits, llama_token_data *data)
{
    for (int32_t i = 0; i < N_VOCAB; i++)
        data[i] = (llama_token_data){i, logits[i], 0.0f};
    llama_token_data_array all = {data, N_VOCAB, -1, false};
    llama_sampler_apply(smpl, &all);
    llama_token token = all.data[all.selected].id;
    llama_sampler_accept(smpl, token);
    return token;
}

/* llama.cpp's stages. */
static struct llama_sampler *stock_chain(bool all)
{
    struct llama_sampler *chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    if (all)
        llama_sampler_chain_add(chain, llama_sampler_init_top_k(40));
    llama_sampler_chain_add(chain, llama_sampler_init_top_p(0.95f, 1));
    if (all)
        llama_sampler_chain_add(chain, llama_sampler_init_min_p(0.05f, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_temp(0.8f));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(1));
    return chain;
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? (int)strtol(argv[1], NULL, 10) : 20;
    static float logits[N_VOCAB * STEPS];
    static llama_token_data data[N_VOCAB];
    uint64_t random = 1;
    for (int i = 0; i < N_VOCAB * STEPS; i++) {
        logits[i] = 0;
        for (int part = 0; part < 12; part++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            logits[i] += (float)(random >> 40) / (float)(1 << 23) - 1.0f;
        }
        if (i < N_VOCAB * OF_EACH && i % (N_VOCAB / 16) == 77)
            logits[i] += 16;
    }
    struct llama_sampler *stock = stock_chain(true), *no_top_k = stock_chain(false);
    struct llama_switchyard_params params = llama_switchyard_default_params();
    struct llama_sampler *ours = llama_sampler_init_switchyard(N_VOCAB, params);
    params.top_k = 0;
    params.min_p = 0;
    struct llama_sampler *ours_no_top_k = llama_sampler_init_switchyard(N_VOCAB, params);

    enum { VARIANTS = 5 };
    const char *names[VARIANTS] = {"llama.cpp's chain", "the sampler in its place",
                                   "llama_switchyard_sample's part",
                                   "llama.cpp's chain without top-k and min-p", "the sampler in its place"};
    struct llama_sampler *const samplers[VARIANTS] = {stock, ours, NULL, no_top_k, ours_no_top_k};
    double best[VARIANTS][2]; /* few likely tokens; many */
    for (int round = 0; round < rounds; round++) {
        for (int variant = 0; variant < 2 * VARIANTS; variant++) {
            struct llama_sampler *smpl = samplers[variant / 2];
            double begin = now();
            for (int at = 0; at < OF_EACH; at++) {
                const float *row = logits + (size_t)(variant % 2 * OF_EACH + at) * N_VOCAB;
                if (smpl)
                    step(smpl, row, data);
                else
                    draw(state_of(ours), row); /* as llama_switchyard_sample does */
            }
            double taken = (now() - begin) / OF_EACH, *shortest = &best[variant / 2][variant % 2];
            if (round == 0 || taken < *shortest)
                *shortest = taken;
        }
    }
    printf("%-46s %10s %10s\n", "one step, us: likely tokens", "few", "many");
    for (int variant = 0; variant < VARIANTS; variant++)
        printf("%-46s %10.1f %10.1f\n", names[variant], best[variant][0], best[variant][1]);
    llama_sampler_free(stock);
    llama_sampler_free(no_top_k);
    llama_sampler_free(ours);
    llama_sampler_free(ours_no_top_k);
    return 0;
}
