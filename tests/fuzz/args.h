/*
 * What the argument fuzzer and its operators share: the bytes that choose, a call over the arena, and the table of
 * operators.
 */
#ifndef SWITCHYARD_FUZZ_ARGS_H
#define SWITCHYARD_FUZZ_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <switchyard_describe.h>

#include "../call_args.h"

enum { MOST_ITEMS = 32, MOST_RANK = 40 };

struct reader {
    const uint8_t *data;
    size_t size, at;
};

/* The next choice out of n; 0, the harmless one, when the bytes are spent. */
int pick(struct reader *r, int n);
int64_t extent(struct reader *r,
               int n); /* the same for a size; a program with more memory may choose larger ones */
int64_t hostile(struct reader *r);

struct item {
    const char *name;
    const DLTensor **field;
    bool output;
    DLTensor t;
    int64_t shape[MOST_RANK], strides[MOST_RANK];
};

struct call {
    int op, count;
    size_t used; /* bytes of the arena */
    struct item items[MOST_ITEMS];
    sy_kv_plane planes[SY_KV_MAX_PLANES];
    sy_kv_format format;
    bool mesh_column;                       /* a mesh of one column */
    const DLTensor *mesh[SY_MAX_FIELDS][2]; /* by field: what each of two devices has of its own */
    DLTensor mesh_own[3];                   /* over tables of args_exchange.c */
    int64_t mesh_shape[3][2];
    union test_args args;
};

/* A compact tensor in the next free bytes of the arena; output: the one added last is written. */
void add(struct call *c, const char *name, const DLTensor **field, DLDataType type, int rank, int64_t d0,
         int64_t d1, int64_t d2);
void output(struct call *c);

/* Makes the call wrong in one place, which the library must find unless it is none. */
void spoil(struct call *c, struct reader *r);
void *elsewhere(struct call *c,
                struct reader *r); /* of the program: an address in its memory, at any alignment */

/* Bytes of a tensor, counted from `memory`; false when it reaches outside its `bytes`. */
bool range_of(const DLTensor *t, const void *memory, size_t bytes, int64_t *from, int64_t *to, bool *empty);
size_t element_bytes(DLDataType type);

/* An allocator that gives no more than a small machine has. */
void *small_alloc(void *user, size_t bytes);
void small_free(void *user, void *ptr);

void make_sample(struct call *c, struct reader *r);
void make_verify(struct call *c, struct reader *r);
void make_overrides(struct call *c, struct reader *r);
void make_noise(struct call *c, struct reader *r);

struct fuzz_op {
    const char *name;
    void (*make)(struct call *c, struct reader *r); /* a valid call */
};
extern const struct fuzz_op fuzz_ops[];
extern const int n_fuzz_ops;

/* ---- The operators of args_kv.c ------------------------------------------------------------------------------ */

/* Up to two further planes with blocks of `size` rows, whose names tell them apart only in a report. */
int64_t make_planes(struct call *c, struct reader *r, sy_kv_layout layout, int64_t blocks, int64_t size,
                    int64_t outer, int64_t inner, bool to_cache);

/* Flat or in blocks; heads of HND have one element each. */
void make_cache(struct call *c, const DLTensor **field, DLDataType type, sy_kv_layout layout, bool flat,
                int64_t blocks, int64_t size, int64_t width);

struct table_fields {
    const DLTensor **block_table, **page_indices, **indptr, **last_page_len;
};
void make_table(struct call *c, struct reader *r, int64_t rows, int64_t columns,
                const struct table_fields *f);
void make_blocks(struct call *c, struct reader *r);

/* Where the arguments keep what belongs to the call's own cache. */
struct own_plane {
    const DLTensor **cache, **scale, **global;
    const sy_kv_format **format;
    bool to_cache;
    DLDataType type; /* of its dense rows */
    int64_t width;
};

/* The cache of a call, its rows packed by chance; fills type and width. */
void make_own(struct call *c, struct reader *r, struct own_plane *own, sy_kv_layout layout, int64_t blocks,
              int64_t size);

void make_ragged(struct call *c, struct reader *r);

/* ---- The operators of args_moe.c ----------------------------------------------------------------------------- */

void make_align_block(struct call *c, struct reader *r);
void make_map_physical(struct call *c, struct reader *r);
void make_place(struct call *c, struct reader *r);
void make_pad_map(struct call *c, struct reader *r);
void make_quantize(struct call *c, struct reader *r);

/* One call in four with a row_format: rows of `type` are then numbers, of whole groups. `codes` is the type of the codes that an
   operator writes or reads, and without a format that of the rows. */
struct coded {
    bool on;
    DLDataType codes, scales;
    int64_t groups;
};
struct coded make_coded(struct call *c, struct reader *r, const sy_row_format **field, DLDataType *type,
                        int64_t *hidden);
void make_dequantize(struct call *c, struct reader *r);
void make_reorder_chunks(struct call *c, struct reader *r);

/* ---- The operators of args_mesh.c ---------------------------------------------------------------------------- */

void make_local_reduce(struct call *c, struct reader *r);

/* ---- The operators of args_exchange.c ------------------------------------------------------------------------ */

void make_a2a_dispatch(struct call *c, struct reader *r);
void make_a2a_combine(struct call *c, struct reader *r);

/* The arguments of any operator, and the comm of one between devices, whose tensors lie side by side in `both`. */
sy_comm *bind_args(const struct call *c, const sy_op_info *info, DLTensor (*both)[2], union test_args *args);

/* The field of this name of the call's operator. */
int field_number(const struct call *c, const char *name);

/* The comm of a call, made when it is first asked for: two devices in a row or a column. */
sy_comm *mesh_comm(bool column);
void forget_comms(void); /* the next ones count their calls from 1 again */

#endif
