/*
 * What the scenes of tests/bits are made of: random numbers and floats from integer arithmetic, tensors that
 * live for one scene, and lines of scenes. One file per operator beside this one.
 */
#ifndef SWITCHYARD_BITS_BITS_H
#define SWITCHYARD_BITS_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <switchyard.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* ---- Random numbers ------------------------------------------------------------------------------------ */

uint64_t rng(void);
int64_t below(int64_t n); /* [0, n) */
bool one_in(int64_t n);

/* ---- Tensors of one scene ------------------------------------------------------------------------------ */

enum { MAX_RANK = 4 };

/* A tensor, its memory, and the bytes it starts with, so that a scene can run again. */
struct box {
    DLTensor t;
    int64_t shape[MAX_RANK], strides[MAX_RANK];
    unsigned char *data, *initial;
    size_t bytes;
    bool is_output;
};

/* Memory starts as 0xA5. A strided box has rows that are `gap` elements longer than its last dimension. */
struct box *box_new(DLDataType type, int rank, const int64_t *shape);
struct box *box_strided(DLDataType type, int rank, const int64_t *shape, int64_t gap);
struct box *output(struct box *b);
struct box *fill_random(struct box *b);
int64_t box_elems(const struct box *b);
void put(struct box *b, int64_t i, uint64_t bits);

/* Codes of every kind, mostly with scales of moderate size (quantize_rows.c). */
const DLTensor *fill_codes(const sy_row_format *format, int rank, const int64_t *shape, int64_t gap);
const DLTensor *fill_scales(const sy_row_format *format, int rank, const int64_t *shape);
bool same_type(DLDataType a, DLDataType b);
DLDataType index_type(void); /* int32 or int64 */

/* f32, f16, bf16 and their names. */
enum { N_FLOATS = 3 };
struct named_type {
    const char *name;
    DLDataType type;
};
extern const struct named_type floats[N_FLOATS];

/* Names of sy_row_format_named that are not of caches. */
enum { N_ROW_FORMATS = 7 };
extern const char *const row_formats[N_ROW_FORMATS];

/* ---- Floats made of integers --------------------------------------------------------------------------- */

/* +-2^exponent * (1 + fraction / 128): exact in f32, f16 and bf16 for exponents in -14..15. */
uint64_t float_bits(DLDataType type, bool negative, int exponent, uint32_t fraction);
uint64_t infinity_bits(DLDataType type, bool negative);

/* 2^low .. 2^(low+n-1), negative one time in `negative_odds`, the fraction a multiple of `step` 128ths. */
uint64_t random_float(DLDataType type, int64_t negative_odds, int low, int n, uint32_t step);

enum flavour { TIES, FINE, SPECIAL, WILD, FLAT, EMPTY, FAR, PROBS, N_FLAVOURS };
uint64_t flavoured(DLDataType type, enum flavour flavour);
struct box *fill_flavour(struct box *b, enum flavour flavour);

/* ---- Lines of scenes ----------------------------------------------------------------------------------- */

enum { MAX_CTX = 16 };
extern sy_ctx *contexts[MAX_CTX];

/* Runs a scene on every table and thread count and forgets its tensors. */
void run_scene(sy_status (*call)(sy_ctx *ctx, const void *args), const void *args);

/* A line's inputs depend on its name alone, so a new line changes no other. */
void begin_line(const char *name);
void end_line(void);

/* A file each, in the order of expected.txt. */
#define BITS_FILES(X) \
    X(moe_route) \
    X(moe_permute) \
    X(moe_rows) \
    X(moe_permute_ids) \
    X(moe_unpermute_ids) \
    X(moe_align_block) \
    X(moe_pad_map) \
    X(moe_reorder_chunks) \
    X(moe_convert_indices) \
    X(kv_gather) \
    X(kv_scatter) \
    X(kv_translate) \
    X(kv_planes) \
    X(kv_format) \
    X(kv_ragged) \
    X(kv_lists) \
    X(kv_blocks) \
    X(sample) \
    X(sample_verify) \
    X(sample_overrides) \
    X(sample_noise) \
    X(local_reduce) \
    X(quantize_rows)

#define BITS_LINES(file) void file##_lines(void);
BITS_FILES(BITS_LINES)
#undef BITS_LINES

#endif
