/*
 * Calls of sample with more than a token and its log-probability: the first of the order, ranks, tokens to
 * score, given tokens. Kernels that read a row once and pick its token write these, too, where they are of
 * the distribution that the token was drawn from. Else the token goes to scratch, and a kernel after it has a
 * block for each row (sample_logprob.cuh).
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/sample/sample_launch.cuh"

/* ---- Tokens that the caller names ---- */

/* A check (see syc_validate): given tokens, then tokens to score. */
struct named_check {
    syi_sample_plan p;
    int64_t n_given, n;

    __device__ bool fault(int64_t i, syi_found *f) const
    {
        const int64_t j = i - n_given, b = i < n_given ? i : j / p.n_score,
                      position = i < n_given ? -1 : j - b * p.n_score;
        const int64_t token = i < n_given
                                  ? syc_column_int(p.given_token, b)
                                  : syc_index(syc_row(p.score_token, b), position, p.score_token.type);
        *f = {i < n_given ? SYI_BAD_GIVEN_TOKEN : SYI_BAD_SCORE_TOKEN, 0, b, position, token, p.vocab, 0};
        return token < -1 || token >= p.vocab;
    }

    __device__ bool wrong(int64_t i) const
    {
        syi_found f;
        return fault(i, &f);
    }

    __device__ void explain(int64_t i, syi_found *f) const { fault(i, f); }
};

/* Kernels that pick tokens look for faults that are reported, not for those of a check before them. */
void syc_sample_check_named(syc_call *call, const syi_sample_plan *p)
{
    const int64_t n_given = p->given_token.rows.data != NULL ? p->batch : 0;
    const struct named_check check = {*p, n_given, n_given + p->batch * p->n_score};
    if (check.n == 0)
        return;
    syc_check(call, check);
    syc_only_report(call);
}

/* ---- The call ---- */

/* What the kernels that pick tokens leave: [batch] tokens, then log-probabilities that are not used. */
struct picked_bytes {
    size_t token, logprob; /* bytes */
};

static struct picked_bytes picked_of(const syi_sample_plan *p)
{
    const size_t rows = (size_t)p->batch;
    return {syc_in_lines(rows * 8), syc_in_lines(rows * 4)};
}

/* The plan that picks tokens. What may be written over the logits is made last. */
static syi_sample_plan picks_of(const syi_sample_plan *p, u8 *token)
{
    syi_sample_plan picks = *p;
    picks.token.data = token;
    picks.logprob_mode = SY_LOGPROB_NONE;
    picks.logprob.data = picks.rank.data = NULL;
    picks.masked.data = NULL;
    picks.given_token.rows.data = NULL;
    picks.n_top = picks.n_score = 0;
    picks.empty_token = -1;
    return picks;
}

/* The same where the distribution is that of the candidates: with `logprob` they are weighed, and the rest is
 * asked, too. */
static syi_sample_plan final_picks_of(const syi_sample_plan *p, u8 *token, u8 *logprob)
{
    syi_sample_plan picks = *p;
    picks.token.data = token;
    picks.logprob.data = logprob;
    picks.masked.data = NULL;
    picks.empty_token = -1;
    return picks;
}

static bool knows_more(const syc_device *device, const syi_sample_plan *p)
{
    u8 some;
    const syi_sample_plan picks = final_picks_of(p, NULL, &some);
    return p->logprob_mode == SY_LOGPROB_FINAL && syc_sample_knows_more(device, &picks);
}

sample_job syc_sample_picks(const syc_device *device, const syi_sample_plan *p, syi_sample_plan *picks)
{
    u8 some;
    const bool more = knows_more(device, p);
    *picks = more ? final_picks_of(p, &some, &some) : picks_of(p, &some);
    return {picks, {more, NULL, NULL, 0}};
}

static syi_sample_plan masks_of(const syi_sample_plan *p)
{
    syi_sample_plan masks = picks_of(p, NULL);
    masks.noise = SY_NOISE_NONE;
    masks.kept.data = masks.row_flags.data = NULL;
    masks.list_token.data = masks.list_prob.data = NULL;
    masks.lists = false;
    masks.masked = p->masked;
    return masks;
}

/* The plan of what is written here. The input has no overrides. */
static syi_sample_plan rest_of(const syi_sample_plan *p)
{
    syi_sample_plan rest = *p;
    if (p->logprob_mode == SY_LOGPROB_RAW)
        rest.overrides.indptr = NULL;
    rest.kept.data = rest.row_flags.data = NULL;
    rest.masked.data = rest.list_token.data = rest.list_prob.data = NULL;
    rest.lists = false;
    return rest;
}

static sample_blocks blocks_of(const syc_device *device, const syi_sample_plan *p, bool sorts)
{
    return syc_sample_blocks(p, sorts, sample_policy::LOGPROB_BLOCKS * (int64_t)device->processors);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t syc_sample_more_workspace(const syc_device *device, const syi_sample_plan *p)
{
    const sample_blocks with = blocks_of(device, p, p->n_top > SYC_FEW),
                        without = blocks_of(device, p, false);
    syi_plan picks, masks, plain;
    picks.sample = picks_of(p, NULL);
    masks.sample = masks_of(p);
    plain.sample = *p; /* a query stands for the call without what is made here */
    if (p->logprob_mode == SY_LOGPROB_RAW)
        plain.sample.logprob.data = NULL;
    plain.sample.rank.data = NULL;
    plain.sample.given_token.rows.data = NULL;
    plain.sample.n_top = plain.sample.n_score = 0;
    size_t bytes = larger((size_t)with.n * with.bytes, (size_t)without.n * without.bytes);
    bytes = larger(bytes, syc_sample_workspace(device, &picks));
    bytes = larger(bytes, syc_sample_workspace(device, &masks));
    const struct picked_bytes picked = picked_of(p);
    return larger(picked.token + picked.logprob + bytes, syc_sample_workspace(device, &plain));
}

void syc_sample_more(syc_call *call, const syi_sample_plan *p)
{
    const sample_blocks l = blocks_of(call->device, p, p->n_top > SYC_FEW);
    const syi_sample_plan rest = rest_of(p), masks = masks_of(p);
    const bool more = knows_more(call->device, p);
    const struct picked_bytes picked = picked_of(p);
    u8 *const token = call->scratch, *const logprob = token + picked.token;
    const syi_sample_plan picks = more ? final_picks_of(p, token, logprob) : picks_of(p, token);
    syc_sample_check_named(call, p);
    call->scratch = logprob + picked.logprob;
    const logprob_scratch scratch = {token, call->scratch, l.bytes, l.lists};
    syc_sample_pick(call, {&picks, {more, p->token.data, p->logprob.data, p->empty_token}});
    if (!more)
        SYC_SAMPLE_STAGED(&rest, syc_sample_logprobs)(call, &rest, &scratch, l.n);
    if (p->masked.data != NULL)
        syc_sample_pick(call, {&masks, {}});
    call->scratch = token;
}
