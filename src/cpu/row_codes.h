/*
 * Rows as codes, and the rows that operators write: as they are, or with a row_format as codes and scales (row_codes.c).
 */
#pragma once

#include "plan/plan.h"
#include "cpu/moe.h"

struct syi_row_encoder {
    const struct syi_row_codes_plan *plan;
    syi_amax_fn *amax;
    syi_encode_fn *encode;
    size_t elem_bytes; /* of a number */
};

/* All rows of a plan. */
sy_status syi_encode_rows(sy_ctx *ctx, const struct syi_row_codes_plan *p);

/* ---- Sums of rows that are codes ---- */

/* What sums of rows are made by, chosen once for a call: numbers, or with codes given. */
struct syi_row_adder {
    const struct syi_row_codes_plan *codes; /* NULL: rows are numbers */
    syi_sum_rows_fn *sum;
    syi_decode_fn *decode;
    sy_type type; /* of the sum */
};

struct syi_row_adder syi_row_adder_of(const sy_ctx *ctx, const struct syi_row_codes_plan *codes,
                                      sy_type type);

/* As sum_rows of the kernels. scales: of the rows, with codes. */
void syi_add_rows(const struct syi_row_adder *a, void *dst, const void *const *rows,
                  const void *const *scales, const float *w, size_t n_rows, size_t n);

/* ---- Rows of an operator ---- */

/* Chosen once for a call. */
struct syi_row_writer {
    const struct syi_kernels *kernels;
    struct syi_tensor to;
    struct syi_rows scales;
    size_t row_bytes, scale_bytes; /* of a row of each */
    bool coded;
    struct syi_row_encoder encoder;
};

/* row_bytes: of a row of `to`. The plan outlives the writer. */
struct syi_row_writer syi_row_writer_of(const sy_ctx *ctx, const struct syi_row_codes_plan *codes,
                                        struct syi_tensor to, size_t row_bytes);

void syi_write_row(const struct syi_row_writer *w, int64_t row, const unsigned char *from);
void syi_clear_row(const struct syi_row_writer *w, int64_t row); /* zero bytes */

/* One row to several places, for the kernel in groups; the last needs syi_fan_write. */
struct syi_fan {
    const struct syi_row_writer *writer;
    const unsigned char *from, *scales; /* scales NULL: `from` is not coded yet */
    void *to[SYI_FAN], *scales_to[SYI_FAN];
    size_t n;
};

void syi_fan_write(struct syi_fan *fan);

static inline void syi_fan_add(struct syi_fan *fan, int64_t row)
{
    if (fan->n == SYI_FAN)
        syi_fan_write(fan);
    fan->to[fan->n] = syi_at(fan->writer->to, row);
    if (fan->writer->coded)
        fan->scales_to[fan->n] = syi_row_at(fan->writer->scales, row);
    fan->n++;
}
