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
