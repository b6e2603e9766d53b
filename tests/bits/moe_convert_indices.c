/*
 * moe_convert_indices: every pair of forms, of permutations with short tokens and empty rows, and of wrong ones.
 */
#include "bits.h"

#include <stdio.h>

static sy_status call_convert(sy_ctx *ctx, const void *args)
{
    return sy_moe_convert_indices(ctx, args);
}

enum { MOST_ROWS = 40 * 6 };

/* Every row gets a token or none, a token at most `slots`. */
static void own_rows(int64_t tokens, int64_t slots, int64_t *owner)
{
    int64_t left[40];
    for (int64_t t = 0; t < tokens; t++)
        left[t] = slots;
    for (int64_t row = 0; row < tokens * slots; row++) {
        int64_t t = below(tokens + 1) - 1;
        owner[row] = t >= 0 && left[t] > 0 ? t : -1;
        if (owner[row] >= 0)
            left[t]--;
    }
}

static struct box *write_form(sy_index_form form, int64_t tokens, int64_t slots, int64_t experts,
                              const int64_t *owner)
{
    const int64_t rows = tokens * slots, shape[2] = {form == SY_INDEX_TE ? tokens : rows, 2 * experts + 1};
    struct box *b = box_new(SY_I32, form == SY_INDEX_TE ? 2 : 1, shape);
    int64_t used[40] = {0}, pitch = form == SY_INDEX_TE ? shape[1] : slots;
    for (int64_t i = 0; i < box_elems(b); i++)
        put(b, i, (uint64_t)-1);
    for (int64_t row = 0; row < rows; row++) {
        if (form == SY_INDEX_ROW)
            put(b, row, (uint64_t)owner[row]);
        else if (owner[row] >= 0)
            put(b, owner[row] * pitch + used[owner[row]]++, (uint64_t)row);
    }
    for (int64_t t = 0; form == SY_INDEX_TE && t < tokens; t++)
        put(b, t * pitch + 2 * experts, (uint64_t)used[t]);
    return b;
}

static void convert_scene(sy_index_form from, sy_index_form to, bool faulty)
{
    int64_t tokens = 1 + below(40), slots = 1 + below(6), experts = slots + below(5), rows = tokens * slots;
    int64_t owner[MOST_ROWS];
    own_rows(tokens, slots, owner);
    sy_moe_convert_indices_args args = {.from = from, .to = to, .num_tokens = tokens};
    struct box *in = write_form(from, tokens, slots, experts, owner);
    if (faulty)
        for (int64_t n = 1 + below(3); n > 0; n--) {
            int64_t at = below(box_elems(in));
            put(in, at, (uint64_t)(below(rows + 4) - 2));
        }
    args.sorted_indices = &in->t;
    if (from == SY_INDEX_TE)
        args.num_rows = rows;
    if (to == SY_INDEX_SLOT)
        args.k = slots;
    if (to == SY_INDEX_TE) {
        struct box *offsets = box_new(SY_I64, 1, &(int64_t){experts + 1});
        for (int64_t e = 0; e <= experts; e++)
            put(offsets, e, (uint64_t)(e == experts ? rows : rows * e * e / (experts * experts)));
        args.expert_offsets = &offsets->t;
        args.converted_indices =
            &output(box_strided(SY_I32, 2, (int64_t[]){tokens, 2 * experts + 1}, one_in(3) ? 3 : 0))->t;
    } else {
        args.converted_indices = &output(box_new(SY_I32, 1, &rows))->t;
    }
    run_scene(call_convert, &args);
}

void moe_convert_indices_lines(void)
{
    static const char *const forms[] = {"slot", "row", "te"};
    char name[128];
    for (int from = 0; from < 3; from++)
        for (int to = 0; to < 3; to++)
            for (int faulty = 0; faulty < 2 && from != to; faulty++) {
                snprintf(name, sizeof name, "moe_convert_indices %s to %s %s", forms[from], forms[to],
                         faulty ? "faulty" : "valid");
                begin_line(name);
                for (int i = 0; i < (faulty ? 10 : 40); i++)
                    convert_scene((sy_index_form)from, (sy_index_form)to, faulty);
                end_line();
            }
}
