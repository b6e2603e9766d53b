#include "local_reduce.h"

#include <stdbool.h>
#include <stddef.h>

#include "oracle/numbers.h"

int64_t oracle_live(const struct reduce_case *c, int64_t t, int64_t k)
{
    const int64_t *choice = c->choice + t * c->slots;
    for (int64_t before = 0; before < k; before++)
        if (choice[before] == choice[k])
            return -1;
    return choice[k];
}

static bool chooses(const struct reduce_case *c, int64_t t, int64_t expert)
{
    for (int64_t k = 0; k < c->slots; k++)
        if (c->choice[t * c->slots + k] == expert)
            return true;
    return false;
}

static int64_t position_of(const struct reduce_case *c, int64_t t)
{
    return c->positions > 0 ? t % c->sequence / (c->sequence / c->positions) : 0;
}

static bool lies_before(const struct reduce_case *c, int64_t a, int64_t b)
{
    const int64_t pa = position_of(c, a), pb = position_of(c, b);
    return pa < pb || (pa == pb && a < b);
}

static int64_t padded_rows(const struct reduce_case *c, int64_t expert)
{
    int64_t n = 0;
    if (c->expert_rows > 0)
        return c->expert_rows;
    for (int64_t t = 0; t < c->tokens; t++)
        n += chooses(c, t, expert);
    while (n % c->align != 0)
        n++;
    return n;
}

int64_t oracle_input_row(const struct reduce_case *c, int64_t expert, int64_t t)
{
    int64_t row = 0;
    for (int64_t e = 0; e < expert; e++)
        row += c->hosts[e] ? (c->by_expert ? padded_rows(c, e) : c->tokens) : 0;
    if (!c->by_expert)
        return row + t;
    for (int64_t other = 0; other < c->tokens; other++)
        row += lies_before(c, other, t) && chooses(c, other, expert);
    return row;
}

static bool comes_here(const struct reduce_case *c, int64_t t)
{
    for (int64_t e = 0; e < c->experts; e++)
        if (c->hosts[e] && chooses(c, t, e))
            return true;
    return false;
}

int64_t oracle_output_row(const struct reduce_case *c, int64_t t)
{
    int64_t row = 0;
    if (!comes_here(c, t))
        return -1;
    if (!c->by_expert)
        return t;
    for (int64_t other = 0; other < c->tokens; other++)
        row += lies_before(c, other, t) && comes_here(c, other);
    return row;
}

int64_t oracle_input_rows(const struct reduce_case *c)
{
    return oracle_input_row(c, c->experts, c->by_expert ? c->tokens : 0);
}

float oracle_reduce(int64_t n, const float *weights, const float *values)
{
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        const double w = weights != NULL ? (double)weights[i] : 1.0;
        const float product = f32_from_bits(f32_round(w * (double)values[i]));
        sum = f32_from_bits(f32_round((double)sum + (double)product));
    }
    return sum;
}
