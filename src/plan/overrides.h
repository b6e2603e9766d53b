/*
 * What a row of sample_overrides sees of its request: the tokens before it, last first, and which sequences they begin. For
 * every backend.
 */
#pragma once

#include "plan/drafts.h"

/* A row of a request. */
struct syi_past {
    struct syi_draft of;
    int64_t row;   /* of the request */
    int64_t depth; /* drafts before it */
    bool none;     /* it has no overrides: no request has it, or a draft before it is none */
};

SYI_BOTH static inline struct syi_past syi_past_of(const struct syi_sample_overrides_plan *p, int64_t row)
{
    const struct syi_draft_rows *d = &p->drafts;
    struct syi_past past = {{0, 0, 0}, 0, 0, row >= syi_drafts_first(d, d->n_requests)};
    if (past.none)
        return past;
    past.of = syi_draft_of(d, syi_drafts_request(d, row));
    past.row = row - past.of.first;
    for (int64_t r = past.row; r > 0; r = syi_draft_parent(d, &past.of, r)) {
        past.none = past.none || syi_draft_token(d, &past.of, r) < 0;
        past.depth++;
    }
    return past;
}

/* A place in the history, which moves to its beginning. */
struct syi_back {
    int64_t row, output, prompt; /* of the request; elements that are left of the lists, from their ends */
    int64_t output_first, prompt_first;
};

SYI_BOTH static inline struct syi_back syi_back_from(const struct syi_sample_overrides_plan *p,
                                                     const struct syi_past *past)
{
    struct syi_back at = {past->row, 0, 0, 0, 0};
    if (p->output.indptr != NULL) {
        at.output_first = syi_shared_first(&p->output, past->of.b);
        at.output = syi_shared_end(&p->output, past->of.b);
    }
    if (p->prompt.indptr != NULL && !p->output_only) {
        at.prompt_first = syi_shared_first(&p->prompt, past->of.b);
        at.prompt = syi_shared_end(&p->prompt, past->of.b);
    }
    return at;
}

/* The token before the place; -1: there is none. */
SYI_BOTH static inline int64_t syi_back_step(const struct syi_sample_overrides_plan *p,
                                             const struct syi_past *past, struct syi_back *at)
{
    if (at->row > 0) {
        const int64_t token = syi_draft_token(&p->drafts, &past->of, at->row);
        at->row = syi_draft_parent(&p->drafts, &past->of, at->row);
        return token;
    }
    if (at->output > at->output_first)
        return syi_load_index(p->output.token, --at->output, p->output.token_type);
    return at->prompt > at->prompt_first ? syi_load_index(p->prompt.token, --at->prompt, p->prompt.token_type)
                                         : -1;
}

/* The last token of sequence s, if the others are the end of the history; else -1. */
SYI_BOTH static inline int64_t syi_seq_match(const struct syi_sample_overrides_plan *p,
                                             const struct syi_past *past, int64_t s)
{
    const int64_t first = syi_shared_first(&p->seq, s), last = syi_shared_end(&p->seq, s) - 1;
    struct syi_back at = syi_back_from(p, past);
    for (int64_t j = last - 1; j >= first; j--)
        if (syi_back_step(p, past, &at) != syi_load_index(p->seq.token, j, p->seq.token_type))
            return -1;
    return syi_load_index(p->seq.token, last, p->seq.token_type);
}

/* The sequences of a request: [first, end). */
SYI_BOTH static inline int64_t syi_seq_first(const struct syi_sample_overrides_plan *p, int64_t b)
{
    return p->seq.indptr != NULL ? syi_shared_first(&p->seq_row, b) : 0;
}

SYI_BOTH static inline int64_t syi_seq_end(const struct syi_sample_overrides_plan *p, int64_t b)
{
    return p->seq.indptr != NULL ? syi_shared_end(&p->seq_row, b) : 0;
}

/* What the bias of a sequence makes of a logit. */
SYI_BOTH static inline float syi_seq_add(const struct syi_sample_overrides_plan *p, float x, int64_t s)
{
    const uint32_t minus_inf = 0xff800000u,
                   bits = p->seq.value != NULL ? syi_load_u32(p->seq.value + s * 4) : minus_inf;
    return bits == minus_inf ? syi_f32_from_bits(minus_inf) : x + syi_f32_from_bits(bits);
}

/* Whether the stop tokens of a row are banned. */
SYI_BOTH static inline bool syi_stop_banned(const struct syi_sample_overrides_plan *p,
                                            const struct syi_past *past)
{
    const int64_t b = past->of.b;
    if (p->min_tokens.rows.data == NULL)
        return false;
    const int64_t length = syi_shared_end(&p->output, b) - syi_shared_first(&p->output, b) + past->depth;
    return length < syi_column_int(&p->min_tokens, b);
}

/* Where a row is built: after all that the rows before it may have. */
SYI_BOTH static inline int64_t syi_overrides_place(const struct syi_sample_overrides_plan *p,
                                                   const struct syi_past *past)
{
    const struct syi_token_lists *lists[] = {&p->prompt, &p->output, &p->bias};
    const int64_t b = past->of.b, most = p->drafts.token.data != NULL ? p->drafts.most : 1;
    int64_t before = 0, own = 0;
    for (int i = 0; i < 3; i++)
        if (lists[i]->indptr != NULL) {
            const int64_t first = syi_shared_first(lists[i], b);
            before += first - syi_shared_first(lists[i], 0);
            own += syi_shared_end(lists[i], b) - first;
        }
    return most * before + past->row * own + (past->of.first + past->row) * p->more;
}

/* The same for lists of biases alone. */
SYI_BOTH static inline int64_t syi_biases_place(const struct syi_sample_overrides_plan *p,
                                                const struct syi_past *past)
{
    const int64_t b = past->of.b, most = p->drafts.token.data != NULL ? p->drafts.most : 1;
    if (p->bias.indptr == NULL)
        return 0;
    const int64_t first = syi_shared_first(&p->bias, b);
    return most * (first - syi_shared_first(&p->bias, 0)) + past->row * (syi_shared_end(&p->bias, b) - first);
}
