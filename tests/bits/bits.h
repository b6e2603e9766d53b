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
bool same_type(DLDataType a, DLDataType b);
DLDataType index_type(void); /* int32 or int64 */

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

void moe_route_lines(void);
void moe_map_from_ids_lines(void);
void moe_ids_from_map_lines(void);
void moe_permute_lines(void);
void moe_rows_lines(void);
void moe_permute_ids_lines(void);
void moe_unpermute_ids_lines(void);
void moe_align_block_lines(void);
void moe_pad_map_lines(void);
void moe_reorder_chunks_lines(void);
void moe_convert_indices_lines(void);
void moe_dispatch_lines(void);
void moe_combine_lines(void);
void moe_dispatch_grad_gate_lines(void);
void moe_locations_lines(void);
void moe_capacity_lines(void);
void kv_gather_lines(void);
void kv_scatter_lines(void);
void kv_translate_lines(void); /* and kv_slots */
void kv_planes_lines(void);
void kv_format_lines(void); /* of kv_gather and kv_scatter */
void kv_ragged_lines(void);
void kv_lists_lines(void);
void kv_blocks_lines(void);
void sample_lines(void);
void sample_overrides_lines(void);
void sample_noise_lines(void);
void local_reduce_lines(void);
void all_to_all_lines(void); /* dispatch and combine */

#endif
