/*
 * Packed mode is the vendor's formula: list the routed pairs, sort them by expert and token to get the rows, sort the
 * rows by token to get the slots. Capacity mode sorts all tokens of each expert, routed ones first. Both use qsort on
 * full keys, so no property of the sort matters.
 */
#include "moe_permute.h"

#include <stdlib.h>
#include <string.h>

struct pair {
    int64_t major, minor;
    int64_t payload;
};

static int by_key(const void *left, const void *right)
{
    const struct pair *a = left, *b = right;
    if (a->major != b->major)
        return a->major < b->major ? -1 : 1;
    return (a->minor > b->minor) - (a->minor < b->minor);
}

static void *must(void *memory)
{
    if (memory == NULL)
        abort();
    return memory;
}

static void *zeroed(int64_t count, size_t bytes)
{
    return must(calloc((size_t)count + 1, bytes + 1));
}

static void copy_row(const struct permute_case *in, struct permute_truth *out, int64_t row, int64_t t,
                     int64_t e)
{
    const size_t row_bytes = (size_t)in->hidden * in->token_bytes;
    if (row_bytes)
        memcpy(out->x + (size_t)row * row_bytes, in->x + (size_t)t * row_bytes, row_bytes);
    if (in->prob_bytes)
        memcpy(out->probs + (size_t)row * in->prob_bytes,
               in->probs + (size_t)(t * in->experts + e) * in->prob_bytes, in->prob_bytes);
}

static void packed(const struct permute_case *in, struct permute_truth *out)
{
    struct pair *rows = zeroed(out->pairs, sizeof *rows);
    int64_t n = 0;
    for (int64_t t = in->tokens - 1; t >= 0; t--)
        for (int64_t e = 0; e < in->experts; e++)
            if (in->map[t * in->experts + e] != 0)
                rows[n++] = (struct pair){e, t, 0};
    qsort(rows, (size_t)n, sizeof *rows, by_key);
    for (int64_t row = 0; row < n; row++) {
        copy_row(in, out, row, rows[row].minor, rows[row].major);
        rows[row] = (struct pair){rows[row].minor, row, row}; /* rows ascend with the expert */
    }
    qsort(rows, (size_t)n, sizeof *rows, by_key);
    for (int64_t i = 0; i < out->rows; i++)
        out->indices[i] = -1;
    for (int64_t i = 0, slot = 0; i < n; i++) {
        slot = i > 0 && rows[i].major == rows[i - 1].major ? slot + 1 : 0;
        out->indices[rows[i].major * out->slots + slot] = (int32_t)rows[i].payload;
    }
    free(rows);
}

static void capacity(const struct permute_case *in, struct permute_truth *out)
{
    struct pair *order = zeroed(in->tokens, sizeof *order);
    for (int64_t e = 0; e < in->experts; e++) {
        for (int64_t t = 0; t < in->tokens; t++)
            order[t] = (struct pair){in->map[t * in->experts + e] == 0, t, t};
        qsort(order, (size_t)in->tokens, sizeof *order, by_key);
        for (int64_t i = 0; i < out->slots; i++) {
            const int64_t row = e * out->slots + i;
            if (order[i].major == 1 && in->zero_pad) {
                out->indices[row] = -1;
                continue;
            }
            out->indices[row] = (int32_t)order[i].payload;
            copy_row(in, out, row, order[i].payload, e);
        }
    }
    free(order);
}

void oracle_moe_permute(const struct permute_case *in, struct permute_truth *truth)
{
    const int64_t parts = in->capacity ? in->experts : in->tokens;
    *truth = (struct permute_truth){.bad_token = -1};
    truth->slots = parts > 0 ? in->out_tokens / parts : 0;
    truth->rows = truth->slots * parts;
    truth->counts = zeroed(in->experts, sizeof(int64_t));
    truth->offsets = zeroed(in->experts + 1, sizeof(int64_t));
    for (int64_t t = in->tokens - 1; t >= 0; t--) {
        int64_t routed = 0;
        for (int64_t e = 0; e < in->experts; e++)
            if (in->map[t * in->experts + e] != 0) {
                truth->counts[e]++;
                routed++;
            }
        truth->pairs += routed;
        if (!in->capacity && truth->rows > 0 && routed > truth->slots) {
            truth->bad_token = t;
            truth->bad_count = routed;
        }
    }
    for (int64_t e = 0; e < in->experts; e++)
        truth->offsets[e + 1] = in->capacity ? (e + 1) * truth->slots : truth->offsets[e] + truth->counts[e];
    if (truth->bad_token >= 0)
        return;
    truth->x = zeroed(truth->rows, (size_t)in->hidden * in->token_bytes);
    truth->probs = zeroed(truth->rows, in->prob_bytes);
    truth->indices = zeroed(truth->rows, sizeof(int32_t));
    if (truth->rows > 0)
        (in->capacity ? capacity : packed)(in, truth);
}

void oracle_moe_permute_free(struct permute_truth *truth)
{
    free(truth->x);
    free(truth->probs);
    free(truth->indices);
    free(truth->counts);
    free(truth->offsets);
    *truth = (struct permute_truth){.bad_token = -1};
}
