#include "oracle/sample_overrides.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

static int64_t how_often(int64_t token, const int64_t *list, int64_t n)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += list[i] == token;
    return count;
}

/* Whether prompt and output, as one text, end with the first tokens of a sequence. */
static bool continues(const struct overrides_row *row, const int64_t *seq, int64_t n)
{
    const int64_t prompt = row->output_only ? 0 : row->n_prompt, all = prompt + row->n_output;
    if (all < n)
        return false;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = all - n + i;
        if ((at < prompt ? row->prompt[at] : row->output[at - prompt]) != seq[i])
            return false;
    }
    return true;
}

static float edited(const struct overrides_row *row, int64_t token)
{
    const int64_t count = how_often(token, row->output, row->n_output);
    const bool seen = count > 0 || how_often(token, row->prompt, row->n_prompt) > 0;
    float x = row->logits[token];
    if (seen && !isnan(row->repetition))
        x = (float)(x > 0 ? (double)x / (double)row->repetition : (double)x * (double)row->repetition);
    if (count > 0 && !isnan(row->frequency)) {
        const float often = (float)((double)row->frequency * (double)(float)count);
        x = (float)((double)x - (double)often);
    }
    if (count > 0 && !isnan(row->presence))
        x = (float)((double)x - (double)row->presence);
    for (int64_t i = 0; i < row->n_bias; i++)
        if (row->bias_token[i] == token)
            x = (float)((double)x + (double)row->bias[i]);
    for (int64_t s = 0; s < row->n_seqs; s++) {
        const int64_t before = row->n_seq[s] - 1;
        const float bias = row->seq_bias != NULL ? row->seq_bias[s] : -INFINITY;
        if (row->seq[s][before] == token && continues(row, row->seq[s], before))
            x = isinf(bias) && bias < 0 ? bias : (float)((double)x + (double)bias);
    }
    if (row->n_output < row->min_tokens && how_often(token, row->stop, row->n_stop) > 0)
        x = -INFINITY;
    return isnan(x) ? (float)NAN : x;
}

int64_t oracle_sample_overrides(const struct overrides_row *row, int32_t *token, float *logit, float *x)
{
    int64_t n = 0;
    for (int64_t t = 0; t < row->vocab; t++) {
        const float before = row->logits[t], after = edited(row, t);
        const bool same = before == after || (isnan(before) && isnan(after));
        if (x != NULL)
            x[t] = same ? before : after;
        if (same)
            continue;
        token[n] = (int32_t)t;
        logit[n++] = after;
    }
    return n;
}
