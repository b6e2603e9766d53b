/*
 * What the calls of moe_unpermute and of both gradients have in common: T, E, M, the modes, indices and a map. And rows
 * of operators that permute codes.
 */
#pragma once

#include "case.h"

#include "oracle/moe_rows.h"

/* One time in `odds` a row_format, with G and H; NULL: none. A line states it by name. */
const sy_row_format *rows_format(struct call *c, int64_t odds);
/* Codes and scales of `tokens`. */
void rows_codes(struct call *c, const sy_row_format *f, const unsigned char **codes,
                const unsigned char **scales);

/* Sizes of at least `least` tokens and experts, flags, sorted_indices and routing_map, which is there where the call needs it or
   by chance. H is chosen unless the rows have a format. */
void rows_make(struct call *c, int64_t least, bool by_expert, bool coded);

/* The case of the oracle, whose rows have the type of x; its pairs, and from them what the call returns. */
struct rows_case rows_of(struct call *c, const struct operand *x, const char *probs, bool by_expert);
struct rows_pairs rows_pairs(struct call *c, const struct rows_case *in);

/* What the description does not say of a row_format of permuted_tokens; `of` is a line with one. */
#define FORMAT_REJECTIONS(of) \
    {"row_format=-", SY_ERR_DTYPE, .blame = "permuted_tokens", .late = true, .line = of}, \
    { \
        "row_format=- permuted_tokens.dtype=f32", SY_ERR_VALUE, "is given", "none: there is no row_format", \
            .blame = "permuted_scales", .late = true, .line = of \
    }

/* What rows_pairs notes; without weights the last two do not occur. */
#define ROWS_NO_WEIGHTS \
    "unused slot", "row twice", "padding", "token without rows", "token with many rows", "no rows", \
        "no elements", "many experts", "bad index", "bad count", "long rows"
#define ROWS_HARD ROWS_NO_WEIGHTS, "other type of probs", "zero weight"
