/*
 * sample_overrides: scenes of every type, with any of the lists and penalties, ordinary numbers and hostile ones.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_overrides(sy_ctx *ctx, const void *args)
{
    return sy_sample_overrides(ctx, args);
}

/* Lists of up to `longest` tokens per row, one of them wrong now and then; returns their length. */
static int64_t make_lists(const DLTensor **indptr_field, const DLTensor **token_field, int64_t batch,
                          int64_t vocab, int64_t longest)
{
    struct box *indptr = box_new(index_type(), 1, &(int64_t){batch + 1});
    int64_t n = 0;
    for (int64_t b = 0; b < batch; b++) {
        put(indptr, b, (uint64_t)n);
        n += below(longest + 1);
    }
    put(indptr, batch, (uint64_t)n);
    struct box *token = box_new(index_type(), 1, &n);
    for (int64_t i = 0; i < n; i++)
        put(token, i, (uint64_t)below(vocab));
    if (n > 0 && one_in(20))
        put(token, below(n), (uint64_t)vocab);
    *indptr_field = &indptr->t;
    *token_field = &token->t;
    return n;
}

static const DLTensor *per_row(DLDataType type, int64_t batch)
{
    const bool own_type = one_in(2);
    struct box *b = box_new(own_type ? type : SY_F32, 1, &(int64_t){one_in(2) ? 1 : batch});
    for (int64_t i = 0; i < box_elems(b); i++) {
        const enum flavour flavour = one_in(6) ? SPECIAL : FINE;
        put(b, i, flavoured(b->t.dtype, flavour));
    }
    return &b->t;
}

static void overrides_scene(DLDataType type)
{
    static const int64_t vocabs[] = {1, 7, 64, 65, 1031};
    const int64_t vocab = vocabs[below(COUNT(vocabs))];
    const int64_t batch = below(7);
    const int64_t longest = one_in(2) ? 4 : 60;
    struct box *logits = box_strided(type, 2, (int64_t[]){batch, vocab}, one_in(3) ? 5 : 0);
    sy_sample_overrides_args args = {.logits = &logits->t};
    int64_t most = 0;
    for (int64_t i = 0; i < box_elems(logits); i++) {
        const enum flavour flavour = (enum flavour)below(N_FLAVOURS);
        put(logits, i, flavoured(type, flavour));
    }
    if (one_in(2))
        most += make_lists(&args.prompt_indptr, &args.prompt_token, batch, vocab, longest);
    if (!one_in(4))
        most += make_lists(&args.output_indptr, &args.output_token, batch, vocab, longest);
    if (one_in(2)) {
        const int64_t n = make_lists(&args.bias_indptr, &args.bias_token, batch, vocab, longest);
        struct box *bias = box_new(SY_F32, 1, &n);
        for (int64_t i = 0; i < n; i++)
            put(bias, i, one_in(5) ? 0xff800000u : flavoured(SY_F32, FINE));
        args.bias = &bias->t;
        most += n;
    }
    if (!one_in(3))
        args.repetition_penalty = per_row(type, batch);
    if (!one_in(3))
        args.frequency_penalty = per_row(type, batch);
    if (!one_in(3))
        args.presence_penalty = per_row(type, batch);
    args.override_indptr = &output(box_new(SY_I64, 1, &(int64_t){batch + 1}))->t;
    args.override_token = &output(box_new(SY_I32, 1, &most))->t;
    args.override_logit = &output(box_new(SY_F32, 1, &most))->t;
    run_scene(call_overrides, &args);
}

void sample_overrides_lines(void)
{
    char name[64];
    for (int t = 0; t < N_FLOATS; t++) {
        snprintf(name, sizeof name, "sample_overrides %s", floats[t].name);
        begin_line(name);
        for (int i = 0; i < 100; i++)
            overrides_scene(floats[t].type);
        end_line();
    }
}
