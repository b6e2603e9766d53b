/*
 * Switchyard: the operators that move and pick tokens in large language models.
 *
 * Every operator is one call with one argument struct. Tensors are DLPack's DLTensor, so shape, type, strides and device
 * come with the data, and wrong input is rejected with an error sentence before a byte of any output is written:
 *
 *     sy_ctx *ctx = NULL;
 *     sy_ctx_create(&ctx, NULL);
 *     sy_view x, map, y, at;
 *     sy_status status = sy_moe_permute(ctx, &(sy_moe_permute_args){
 *         .tokens = sy_mat(&x, tokens, SY_BF16, 4, 2048),
 *         .routing_map = sy_mat(&map, routing, SY_BOOL, 4, 8),
 *         .num_out_tokens = 8,
 *         .permuted_tokens = sy_mat(&y, rows, SY_BF16, 8, 2048),
 *         .sorted_indices = sy_vec(&at, indices, SY_I32, 8)});
 *     if (status != SY_OK)
 *         fprintf(stderr, "%s\n", sy_ctx_error(ctx));
 *     sy_ctx_destroy(ctx);
 *
 * Rules that hold for every operator:
 *   - A zeroed field is the default. Optional tensors are NULL.
 *   - Checks run in one order: null, dtype, rank, input shape, values, overflow, output shape, stride,
 *     device, alias, scratch memory, contents. The first failure is returned, sy_ctx_error() holds its
 *     sentence, sy_ctx_fault() its numbers.
 *   - Elements of the last dimension are contiguous; the dimensions before it may have any row stride that
 *     spaces rows evenly and does not make them overlap. No alignment is required.
 *   - Inputs may overlap each other. An output overlaps nothing, except where an operator allows it.
 *   - Equal inputs give equal bytes on every instruction set and thread count. docs/ops/<operator>.md has the order and
 *     rounding of arithmetic, ties, corner cases, what each option does, and worked examples; the comments here are
 *     summaries.
 *   - Every operator returns SY_OK; NULL, DTYPE, SHAPE, STRIDE, DEVICE, ALIAS for a tensor, and VALUE for a scalar or an
 *     enum, that is not as the comment at its field says; OVERFLOW for sizes that cannot be counted; NOMEM. "Errors"
 *     of its page is what it adds, with the fields of sy_fault that bad contents set; `value` is the one found, unless
 *     stated.
 *   - Structs may grow at their end. The inline functions declared here pass sizeof of the struct to the exported
 *     symbols, whose names end in _n. Other languages call those; switchyard_inline.h lists them.
 *   - The numbers of enums are part of the interface: from 1.0 on none ever changes, and new ones follow the last.
 *   - The library never aborts, exits or prints, and has no writable globals.
 */
#ifndef SWITCHYARD_H
#define SWITCHYARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <switchyard_dlpack.h>

#define SY_VERSION_MAJOR 0
#define SY_VERSION_MINOR 2
#define SY_VERSION_PATCH 0
#define SY_VERSION_ABI 0 /* at the end of the library's file name: docs/promises.md */

#if defined(__GNUC__)
#define SY_API __attribute__((visibility("default")))
#else
#define SY_API
#endif

/* Marks a pointer argument that the function stores but does not read through, so that gcc does not warn about
   uninitialised data. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#define SY_ADDRESS(argument) __attribute__((access(none, argument)))
#else
#define SY_ADDRESS(argument)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Status ---- */

typedef enum sy_status {
    SY_OK = 0,
    SY_ERR_NULL = 1,      /* a required tensor, pointer or its data is missing */
    SY_ERR_DTYPE = 2,     /* a tensor has a type the operator does not take */
    SY_ERR_SHAPE = 3,     /* rank or extent */
    SY_ERR_STRIDE = 4,    /* elements of a row are not contiguous, or rows overlap */
    SY_ERR_VALUE = 5,     /* a scalar field is outside its range */
    SY_ERR_OVERFLOW = 6,  /* a size does not fit the arithmetic the operator is defined in */
    SY_ERR_ALIAS = 7,     /* an output shares bytes with another tensor */
    SY_ERR_INDEX = 8,     /* an index found in the data points outside */
    SY_ERR_ROUTING = 9,   /* a routing map found in the data does not fit the call */
    SY_ERR_CAPACITY = 10, /* more rows than the receiving side reserved */
    SY_ERR_STATE = 11,    /* calls in an order that is not allowed */
    SY_ERR_DEVICE =
        12, /* a tensor is on a device that the context does not have, or memory of several devices is mixed */
    SY_ERR_UNSUPPORTED = 13, /* a valid call that this build cannot execute */
    SY_ERR_NOMEM = 14,       /* the allocator failed, or the lent workspace is too small */
    SY_ERR_COMM = 15,        /* the transport between processes failed */
    SY_ERR_MISMATCH = 16,    /* devices disagree about the call */
    SY_ERR_TIMEOUT = 17      /* a process did not respond in time */
} sy_status;

/* "SY_ERR_SHAPE" for SY_ERR_SHAPE; "SY_ERR_UNKNOWN" for a number that is no status. Never NULL. */
SY_API const char *sy_status_name(sy_status status);

/* The release, as "0.2.0". */
SY_API const char *sy_version(void);

/* Equal inputs, seeds and results version give equal results. The number changes only when some result
   changes. */
SY_API int sy_results_version(void);

/* ---- Tensors ---- */

/* Element types. The numbers are DLPack's type codes, written out because older headers lack bool and fp8. */
#ifdef __cplusplus
#define SY_TYPE(code, bits) (DLDataType{code, bits, 1})
#else
#define SY_TYPE(code, bits) ((DLDataType){(uint8_t)(code), (uint8_t)(bits), 1})
#endif
#define SY_I8 SY_TYPE(0, 8)
#define SY_I16 SY_TYPE(0, 16)
#define SY_I32 SY_TYPE(0, 32)
#define SY_I64 SY_TYPE(0, 64)
#define SY_U8 SY_TYPE(1, 8)
#define SY_U16 SY_TYPE(1, 16)
#define SY_U32 SY_TYPE(1, 32)
#define SY_U64 SY_TYPE(1, 64)
#define SY_F16 SY_TYPE(2, 16)
#define SY_F32 SY_TYPE(2, 32)
#define SY_F64 SY_TYPE(2, 64)
#define SY_BF16 SY_TYPE(4, 16)
#define SY_BOOL SY_TYPE(6, 8)
#define SY_F8_E4M3 SY_TYPE(10, 8)
#define SY_F8_E5M2 SY_TYPE(12, 8)
#define SY_F8_E8M0 SY_TYPE(14, 8)
#define SY_F4_E2M1 SY_TYPE(17, 4) /* of formats: tensors of 4-bit codes are uint8, two in a byte */

/*
 * A compact row-major CPU tensor over the caller's memory. `shape` is kept by pointer and must outlive the tensor.
 * DLPack has no const: `data` may be const for an input, which is never written, and `shape` always.
 */
SY_ADDRESS(1)
static inline DLTensor sy_tensor(const void *data, DLDataType type, int rank, const int64_t *shape);

/*
 * A tensor with room for its own shape, for the functions below. They fill it and return its tensor, for a field of an
 * argument struct. A view must stay where it is while its tensor is used: the tensor of a copy has the shape of the
 * original. In C, &(sy_view){0} is an unnamed view, valid until the end of the block.
 */
typedef struct sy_view {
    DLTensor tensor;
    int64_t extent[2];
    int64_t integer; /* data of a single number */
    float real;
} sy_view;

SY_ADDRESS(2)
static inline const DLTensor *sy_vec(sy_view *view, const void *data, DLDataType type, int64_t n);
SY_ADDRESS(2)
static inline const DLTensor *sy_mat(sy_view *view, const void *data, DLDataType type, int64_t rows,
                                     int64_t cols);

/* One number for all rows, where a field is "per row": shape [1], int64 or f32, stored in the view. */
static inline const DLTensor *sy_number_i64(sy_view *view, int64_t number);
static inline const DLTensor *sy_number_f32(sy_view *view, float number);

/* ---- Context ---- */

typedef struct sy_ctx sy_ctx;

/* Must call task(task_data, i) once for every i in [0, n_tasks), on any threads, and return when all have
   ended. Tasks never wait for each other. */
typedef void (*sy_parallel_for_fn)(void *user, int n_tasks, void (*task)(void *task_data, int index),
                                   void *task_data);

/* Where an operator has several implementations of a step: one that the call was offered. */
typedef struct sy_choice {
    const char *name;    /* "ring" */
    const char *why_not; /* what is against it, a sentence; NULL: it ran */
} sy_choice;

/* Called once after every operator call, rejected ones included, on the calling thread. Its pointers are
   valid during the callback only. */
typedef struct sy_trace {
    const char *op;  /* "moe_permute" */
    const char *isa; /* kernel table of the context */
    sy_status status;
    int threads;   /* most threads this context may use; on a device, the multiprocessors it counts with */
    int n_tensors; /* tensors given: names[i] describes tensors[i] */
    const char *const *names;
    const DLTensor *const *tensors;
    uint64_t bytes;              /* bytes the call had to move, 0 when rejected */
    uint64_t nanoseconds;        /* wall time, checks included */
    uint64_t device_nanoseconds; /* a call on a device: time there, for which a traced call waits; else 0 */
    const char *rows; /* how an exchange moved its rows: "local"; "shared" (read in place), "messages"; on
                         devices "mapped" (in place), "pinned", "device", "stream" (messages); else NULL */
    int n_choices;    /* on a device: 0 for an operator of one implementation, and for an exchange */
    const sy_choice
        *choices; /* in the order they were tried: for each step, what did not run, then what did */
} sy_trace;
typedef void (*sy_trace_fn)(void *user, const sy_trace *trace);

typedef struct sy_ctx_options {
    const char *isa; /* kernel table by name, as `switchyard info` lists them; NULL: the best */
    int threads; /* most threads a call may use; 0: the number in the environment as SWITCHYARD_THREADS, else
                    OMP_NUM_THREADS, else all CPUs. On a device: the multiprocessors that launches are sized
                    for; 0: all. No result depends on it */
    sy_parallel_for_fn parallel_for; /* the caller's thread pool; NULL: own threads. n_tasks <= threads */
    void *parallel_user;
    void *(*alloc)(void *user, size_t bytes); /* NULL: malloc; memory is aligned by the library */
    void (*dealloc)(void *user, void *ptr);   /* NULL: free; given exactly when alloc is given */
    void *alloc_user;
    sy_trace_fn trace; /* NULL: no tracing */
    void *trace_user;
    char *error; /* where creation writes its own error sentence; may be NULL */
    size_t error_bytes;
    DLDevice
        device;   /* {kDLCUDA, n}: calls whose tensors are on that device run there; zero: CPU memory only */
    void *stream; /* of the device, a cudaStream_t; NULL: its default stream */
    bool synchronous; /* a call on the device returns when it has ended, with its own status */
    const char *
        device_library; /* file of libswitchyard_cuda; NULL: beside this library, or where the system looks */
} sy_ctx_options;

/*
 * Creates a context; `options` may be NULL. A context may be used by one thread at a time; contexts are independent of
 * each other. A call of an operator needs at most 16 KB of stack when it runs on one thread. Worker threads start when a
 * call first needs them, and end with the context; where the system refuses one, calls run on fewer. A context that a
 * forked child inherits runs on one thread there, or on the caller's pool. On failure *ctx is NULL.
 * Returns SY_OK; NULL (ctx is NULL, or only one of alloc and dealloc); VALUE (threads < 0, or SWITCHYARD_THREADS is no number; unknown isa); UNSUPPORTED (isa
 * known but not available on this CPU or in this build); NOMEM.
 */
static inline sy_status sy_ctx_create(sy_ctx **ctx, const sy_ctx_options *options);

/* Frees the context and its own workspace, never a lent one. NULL is allowed. */
SY_API void sy_ctx_destroy(sy_ctx *ctx);

/* The sentence of the last failed call: operator, argument, value found, value required. "" after a success. */
SY_API const char *sy_ctx_error(const sy_ctx *ctx);

/* The exact error, in numbers. */
typedef enum sy_fault_code {
    SY_FAULT_NONE = 0,
    SY_FAULT_NULL_POINTER = 1,
    SY_FAULT_BAD_DTYPE = 2,
    SY_FAULT_BAD_RANK = 3,
    SY_FAULT_BAD_SHAPE = 4,
    SY_FAULT_EMPTY = 5, /* an extent is 0 where the operator needs at least one element */
    SY_FAULT_BAD_VALUE = 6,
    SY_FAULT_BAD_BLOCK_SIZE = 7,
    SY_FAULT_BAD_OPTION = 8, /* an enum field holds no known value */
    SY_FAULT_OVERFLOW = 9,
    SY_FAULT_BAD_STRIDE = 10,
    SY_FAULT_BAD_DEVICE = 11,
    SY_FAULT_ALIAS = 12,
    SY_FAULT_NO_MEMORY = 13,
    SY_FAULT_UNSUPPORTED = 14,
    /* Found in tensor contents: value and limit are set, batch and position where they apply. */
    SY_FAULT_LENGTH_RANGE = 15, /* a count or a sum of lengths outside its range, or seq_lens[b] negative */
    SY_FAULT_REQ_RANGE = 16,    /* req_id[b] outside the rows of block_table */
    SY_FAULT_INDEX_RANGE = 17,  /* an index outside its sequence, or an expert that does not exist */
    SY_FAULT_TABLE_SHORT = 18,  /* an index needs a block_table column that does not exist */
    SY_FAULT_BLOCK_RANGE = 19,  /* a block number outside the cache */
    SY_FAULT_ROW_RANGE = 20,    /* a row inside the last, partial block that does not exist */
    SY_FAULT_ROW_OVERFULL = 21, /* a token is routed to more experts than it has choices */
    SY_FAULT_SLOT_RANGE = 22,   /* an element of sorted_indices or slots is not a row or token */
    SY_FAULT_SLOT_COUNT = 23,   /* a token is routed to another number of experts than it has live choices */
    SY_FAULT_DUPLICATE = 24,    /* a destination or expert named before: limit is the position that has it */
    SY_FAULT_INDEX_ORDER = 25,  /* indices that must ascend do not: limit is the one before */
    SY_FAULT_HAZARD = 26        /* a block one pair reads and another writes: limit is the earlier pair */
} sy_fault_code;

typedef struct sy_fault {
    sy_status status;
    sy_fault_code code;
    const char *argument; /* field name, static storage; "" when no single field is wrong */
    int64_t batch;        /* content faults: outer position, else -1 */
    int64_t position;     /* content faults: inner position, else -1 */
    int64_t value;        /* the value found */
    int64_t limit;        /* the limit it violates */
} sy_fault;

/* The fault of the last call; all fields are zero (argument "") after a success. Returns SY_OK, or NULL. */
static inline sy_status sy_ctx_fault(const sy_ctx *ctx, sy_fault *fault);

/* "INDEX_RANGE" for SY_FAULT_INDEX_RANGE. Never NULL. */
SY_API const char *sy_fault_name(sy_fault_code code);

/*
 * Lends memory for scratch; the context then allocates nothing, and a call that needs more is rejected with NOMEM. The size
 * comes from sy_<op>_query. A call that uses scratch rejects a tensor that shares a byte with the lent memory with ALIAS.
 * `bytes` 0 ends the loan. Of a context with a device the memory is that of the device, for calls there. Returns SY_OK;
 * NULL (ctx, or data with bytes > 0); VALUE (data not aligned to 64 bytes); DEVICE (memory of another device).
 */
SY_API sy_status sy_ctx_set_workspace(sy_ctx *ctx, void *data, size_t bytes);

/* Changes the option `threads`; 0 is the default, and all of a device. Returns SY_OK, NULL or VALUE. */
SY_API sy_status sy_ctx_set_threads(sy_ctx *ctx, int threads);

/*
 * Calls task(data, i) once for every i in [0, n_tasks) on the threads of the context, or on its pool, and returns when all
 * have ended: for work of the caller between calls. Tasks must not use the context. Returns SY_OK; NULL (ctx or task);
 * VALUE (n_tasks < 0, or more than sy_ctx_threads).
 */
SY_API sy_status sy_ctx_parallel(sy_ctx *ctx, int n_tasks, void (*task)(void *data, int index), void *data);

SY_API int sy_ctx_threads(const sy_ctx *ctx);     /* most threads a call uses here, at least 1; 0 for NULL */
SY_API const char *sy_ctx_isa(const sy_ctx *ctx); /* name of the kernel table in use; "" for NULL */

/* Name of the i-th kernel table this CPU can run, best first; NULL past the end. */
SY_API const char *sy_isa_name(int i);

/*
 * A context that was created for a CUDA device runs calls whose tensors are on that device there, and calls on CPU memory
 * as before; a call with both is rejected with DEVICE. A call on the device returns once its kernels are in the stream.
 * Contents are validated there: after bad contents no byte of any output of the call is written, inside CUDA graphs too,
 * and the work of later calls is skipped until the fault has been read: sy_ctx_sync, or the next call that finds it,
 * returns its status, with the sentence and numbers the CPU gives. With `synchronous` every call waits for its own status.
 */

/* Calls from now on run in this stream, a cudaStream_t; NULL: the default stream. They share scratch memory with earlier
   ones, so the new stream must wait for the old one; streams that work at the same time need a context each. Returns SY_OK,
   NULL, or DEVICE (the context has no device). */
SY_API sy_status sy_ctx_set_stream(sy_ctx *ctx, void *stream);

/* Waits for the stream and returns the first fault since the last one was read. Without a device it returns SY_OK. */
SY_API sy_status sy_ctx_sync(sy_ctx *ctx);

/* Memory of the context's device, for programs that do not use CUDA themselves. sy_device_copy copies between memory of the
   host and of the device, in either direction, after all calls in the stream, and returns when it has ended. They return
   SY_OK, NULL, DEVICE or NOMEM. */
SY_API sy_status sy_device_alloc(sy_ctx *ctx, size_t bytes, void **data);
SY_API void sy_device_free(sy_ctx *ctx, void *data);
SY_API sy_status sy_device_copy(sy_ctx *ctx, void *to, const void *from, size_t bytes);

typedef struct sy_device_info {
    int count;      /* devices of this kind in the machine */
    char name[128]; /* of the context's device */
    int major, minor, processors;
    uint64_t memory_bytes;
} sy_device_info;

/* What the context's device is. Returns SY_OK, NULL (ctx, info) or DEVICE (the context has none). */
static inline sy_status sy_ctx_device_info(sy_ctx *ctx, sy_device_info *info);

/* ---- Queries ---- */

/*
 * sy_<op>_query validates an operator's inputs and scalar fields like the call itself, but ignores outputs and reads no
 * data (data pointers may be NULL), and reports what the call will need. It returns the statuses of the call.
 */
typedef struct sy_query {
    int64_t rows;           /* rows of the main output */
    int64_t slots;          /* moe_permute: choices per token (packed) or rows per expert (capacity);
                               moe_capacity: the capacity if factor > 0; moe_align_block: blocks;
                               all_to_all_dispatch, all_to_all_combine: K; else 0 */
    size_t workspace_bytes; /* scratch the call needs at most, with every output and the context's present
                               thread limit; 0 when none */
} sy_query;

/* ---- Operators ---- */

/*
 * The functions of an operator, declared after its struct. SY_MESH_OPERATOR: of one between devices.
 *     sy_status sy_<op>(sy_ctx *ctx, [sy_comm *comm,] const sy_<op>_args *args)
 *     sy_status sy_<op>_start(sy_ctx *ctx, sy_comm *comm, const sy_<op>_args *args, sy_request **request)
 *     sy_status sy_<op>_query(sy_ctx *ctx, [sy_comm *comm,] const sy_<op>_args *args, sy_query *query)
 */
#define SY_OPERATOR(op) \
    SY_API sy_status sy_##op##_n(sy_ctx *ctx, const sy_##op##_args *args, size_t args_bytes); \
    SY_API sy_status sy_##op##_query_n(sy_ctx *ctx, const sy_##op##_args *args, size_t args_bytes, \
                                       sy_query *query, size_t query_bytes); \
    static inline sy_status sy_##op(sy_ctx *ctx, const sy_##op##_args *args) \
    { \
        return sy_##op##_n(ctx, args, sizeof *args); \
    } \
    static inline sy_status sy_##op##_query(sy_ctx *ctx, const sy_##op##_args *args, sy_query *query) \
    { \
        return sy_##op##_query_n(ctx, args, sizeof *args, query, sizeof *query); \
    }

#define SY_MESH_OPERATOR(op) \
    SY_API sy_status sy_##op##_n(sy_ctx *ctx, sy_comm *comm, const sy_##op##_args *args, size_t args_bytes); \
    SY_API sy_status sy_##op##_start_n(sy_ctx *ctx, sy_comm *comm, const sy_##op##_args *args, \
                                       size_t args_bytes, sy_request **request); \
    SY_API sy_status sy_##op##_query_n(sy_ctx *ctx, sy_comm *comm, const sy_##op##_args *args, \
                                       size_t args_bytes, sy_query *query, size_t query_bytes); \
    static inline sy_status sy_##op(sy_ctx *ctx, sy_comm *comm, const sy_##op##_args *args) \
    { \
        return sy_##op##_n(ctx, comm, args, sizeof *args); \
    } \
    static inline sy_status sy_##op##_start(sy_ctx *ctx, sy_comm *comm, const sy_##op##_args *args, \
                                            sy_request **request) \
    { \
        return sy_##op##_start_n(ctx, comm, args, sizeof *args, request); \
    } \
    static inline sy_status sy_##op##_query(sy_ctx *ctx, sy_comm *comm, const sy_##op##_args *args, \
                                            sy_query *query) \
    { \
        return sy_##op##_query_n(ctx, comm, args, sizeof *args, query, sizeof *query); \
    }

/* ---- moe_route ---- */

typedef enum sy_route_score {
    SY_SCORE_SOFTMAX = 0,     /* softmax over all experts */
    SY_SCORE_SIGMOID = 1,     /* sigmoid of each logit */
    SY_SCORE_NONE = 2,        /* the logits themselves */
    SY_SCORE_SQRTSOFTPLUS = 3 /* sqrt(ln(1 + e^x)) of each logit */
} sy_route_score;

typedef enum sy_route_select {
    SY_SELECT_SCORE = 0, /* experts are chosen by score + bias */
    SY_SELECT_LOGIT = 1  /* by logit + bias */
} sy_route_select;

typedef enum sy_group_score {
    SY_GROUP_MAX = 0,  /* the largest value of the group */
    SY_GROUP_SUM2 = 1, /* the sum of its two largest */
    SY_GROUP_SUMK = 2  /* the sum of its k/top_groups largest, at least one */
} sy_group_score;

typedef enum sy_slot_order {
    SY_SLOT_VALUE = 0, /* choices by descending value, ties by expert */
    SY_SLOT_EXPERT = 1 /* choices by ascending expert, as moe_permute counts them */
} sy_slot_order;

typedef enum sy_eps_rule {
    SY_EPS_ADD = 0, /* weights are divided by their sum + eps */
    SY_EPS_MAX = 1  /* by the larger of sum and eps */
} sy_eps_rule;

typedef enum sy_drop {
    SY_DROP_PROB = 0,    /* an expert keeps its tokens of largest weight, ties to the lower token */
    SY_DROP_POSITION = 1 /* an expert keeps its first tokens */
} sy_drop;

/*
 * Gating: chooses k of E experts for each of T tokens, and their weights. A logit that is NaN counts as -inf, +inf as
 * FLT_MAX.
 *   score s       of each logit, by `score`
 *   value v       s + bias[e], or with select LOGIT the logit + bias[e]; the bias affects the choice only, never a weight
 *   groups        E/groups experts each; only experts of the top_groups groups of largest score can be chosen
 *   choice        the k largest v, ties to the lower expert; or the experts that ids_in names, in its order
 *   weight        s, or with softmax_after the softmax of the chosen logits; then renormalize, expert_scale, scale
 * A finished token chooses nothing: ids are E + S, the rest zero. A capacity removes pairs from routing_map and probs alone.
 * Every token that is not finished has S = n_shared further slots, of the experts E, E+1, ..., after the others.
 */
typedef struct sy_moe_route_args {
    const DLTensor *logits;     /* in  [T,E]  f32, f16, bf16 */
    const DLTensor *bias;       /* in  [E]    f32; optional: 0 */
    const DLTensor *finished;   /* in  [T]    bool, int8, uint8; optional: none. Not 0: finished */
    int64_t k;                  /* experts per token, 1..E */
    sy_route_score score;       /* of a logit */
    bool softmax_after;         /* weights are the softmax of the chosen logits */
    int64_t groups;             /* 0: no groups */
    int64_t top_groups;         /* groups that stay, 1..groups; no effect without groups */
    sy_group_score group_score; /* of a group */
    sy_slot_order slot_order;   /* order of ids and weights in a row */
    bool renormalize;           /* weights of a token sum to 1 (before scale) */
    float eps;                  /* added to the sum, or its least value: eps_rule; >= 0 */
    float scale;                /* of every weight; 0: 1 */
    int64_t capacity;           /* most tokens of an expert in routing_map and probs; 0: no limit */
    sy_drop drop;               /* which tokens an expert keeps; no effect without capacity */
    const DLTensor *ids; /* out [T,k+S]  int32, int64; optional like every output, at least one is given */
    const DLTensor *weights;     /* out [T,k+S]  f32, f16, bf16 */
    const DLTensor *routing_map; /* out [T,E+S]  bool, int8, uint8: 1 where chosen */
    const DLTensor *probs;       /* out [T,E+S]  f32, f16, bf16: weight where chosen, else 0 */
    const DLTensor *counts;      /* out [E+S]    int64: tokens that chose each expert */
    const DLTensor *scores;      /* out [T,E]  f32: s, of finished tokens too */
    const DLTensor *ids_in; /* in [T,k], with ids_rows [V,k]  int32, int64, int16, uint16, uint8; optional */
    const DLTensor *ids_rows;      /* in  [T]    int32, int64; optional: row t of ids_in */
    bool allow_missing;            /* ids_in may have unused slots */
    sy_route_select select;        /* what experts are chosen by; no effect on weights */
    sy_eps_rule eps_rule;          /* how eps enters the divisor */
    const DLTensor *expert_scale;  /* in  [E]    f32; optional: 1 */
    int64_t n_shared;              /* S: slots of shared experts */
    float shared_weight;           /* of a shared expert; 0: 1 */
    const DLTensor *shared_logits; /* in  [T,S]  f32, f16, bf16; optional: the weight is shared_weight */
    bool shared_in_sum;            /* shared scores take part in renormalize */
} sy_moe_route_args;

SY_OPERATOR(moe_route)

/* ---- moe_map_from_ids, moe_ids_from_map ---- */

/*
 * The routing map of expert ids: routing_map[t, ids[t,j]] = 1, all else 0. With weights, probs[t, ids[t,j]] =
 * weights[t,j], byte for byte, all else zero. Every id is in [0, E), none occurs twice in a row.
 */
typedef struct sy_moe_map_from_ids_args {
    const DLTensor *ids;         /* in  [T,K]  int32, int64 */
    const DLTensor *weights;     /* in  [T,K]  f32, f16, bf16; optional, present iff probs is */
    int64_t num_experts;         /* E, 0 <= E < 2^31 */
    bool allow_missing;          /* ids -1 and E mean no expert */
    const DLTensor *routing_map; /* out [T,E]  bool, int8, uint8 */
    const DLTensor *probs;       /* out [T,E]  type of weights */
} sy_moe_map_from_ids_args;

SY_OPERATOR(moe_map_from_ids)

/*
 * The expert ids of a routing map: ids[t,j] is the j-th expert of token t, ascending, and -1 when it has fewer.
 * With probs, weights[t,j] = probs[t, ids[t,j]], byte for byte, zero where there is no expert. No token has more than k.
 */
typedef struct sy_moe_ids_from_map_args {
    const DLTensor *routing_map; /* in  [T,E]  bool, int8, uint8; not 0: routed */
    const DLTensor *probs;       /* in  [T,E]  f32, f16, bf16; optional, present iff weights is */
    int64_t k;                   /* choices per token, 0 or more */
    const DLTensor *ids;         /* out [T,k]  int32, int64 */
    const DLTensor *weights;     /* out [T,k]  type of probs */
} sy_moe_ids_from_map_args;

SY_OPERATOR(moe_ids_from_map)

typedef struct sy_kv_format sy_row_format; /* of rows that are no cache: see quantize_rows */

/* ---- moe_permute ---- */

/*
 * Copies each token row to one output row per expert it is routed to, grouped by expert; no element is interpreted. T
 * tokens, E experts, H elements per row, N = num_out_tokens.
 *   packed      K = N / T (floor) choices per token, M = K*T rows, by expert, then token; sorted_indices[t*K + j] is the row
 *               of the token's j-th expert, -1 when it has fewer. Rows after the last routed pair are zero
 *   capacity    C = N / E rows per expert, M = C*E; row e*C + i holds the i-th token of expert e, and sorted_indices its
 *               number: routed tokens ascending, then the others, or with zero_pad zero rows of index -1
 */
typedef struct sy_moe_permute_args {
    const DLTensor *tokens;          /* in  [T,H]  any type of 1, 2, 4 or 8 bytes */
    const DLTensor *routing_map;     /* in  [T,E]  bool, int8, uint8 */
    const DLTensor *probs;           /* in  [T,E]  f32, f16, bf16; optional, present iff permuted_probs is */
    int64_t num_out_tokens;          /* N, 0 <= N <= T*E */
    bool drop_and_pad;               /* false: packed mode; true: capacity mode */
    bool zero_pad;                   /* capacity mode: zero padding rows; no effect in packed mode */
    const DLTensor *permuted_tokens; /* out [M,H]  type of tokens */
    const DLTensor *sorted_indices;  /* out [M]    int32 */
    const DLTensor *permuted_probs;  /* out [M]    type of probs; zero where the row is padding (packed) */
    const DLTensor *expert_counts;   /* out [E]    int64, optional: routed tokens of each expert */
    const DLTensor *expert_offsets;  /* out [E+1]  int64, optional: first row of each expert, the end */
    const sy_row_format *row_format; /* NULL: rows as they are; else codes, see quantize_rows */
    const DLTensor *permuted_scales; /* out [M,G]  with row_format */
} sy_moe_permute_args;

SY_OPERATOR(moe_permute)

/* ---- moe_unpermute ---- */

/*
 * Returns permuted rows to their tokens: the inverse of moe_permute, with its sorted_indices. T comes from probs or
 * routing_map, else from num_tokens. Packed, K = M / T:
 *     tokens[t] = sum over choices j of the token with i = sorted_indices[t*K + j] >= 0, ascending, of w * permuted_tokens[i]
 * w is 1 without probs, else probs[t,e] with e the token's n-th routed expert for its n-th such choice. In capacity
 * mode, C = M / E:
 *     tokens[t] = sum over rows i with sorted_indices[i] = t, ascending, of w * permuted_tokens[i],   w = 1 or probs[t, i / C]
 * A weight of 0 contributes nothing.
 */
typedef struct sy_moe_unpermute_args {
    const DLTensor *permuted_tokens; /* in  [M,H]  f32, f16, bf16 */
    const DLTensor *sorted_indices;  /* in  [M]    int32, as moe_permute made them */
    const DLTensor *routing_map;     /* in  [T,E]  bool, int8, uint8; optional, required by packed probs */
    const DLTensor *probs;           /* in  [T,E]  f32, f16, bf16; optional: all weights are 1 */
    int64_t num_tokens;              /* T, when neither probs nor routing_map is given; else 0 or the same */
    bool drop_and_pad;               /* false: packed mode; true: capacity mode */
    bool zero_pad;                   /* capacity mode: -1 marks a padding row; no effect in packed mode */
    const DLTensor *tokens;          /* out [T,H]  type of permuted_tokens */
    const sy_row_format *row_format; /* NULL: numbers; else rows are codes, see quantize_rows */
    const DLTensor *permuted_scales; /* in  [M,G]  optional: with row_format */
} sy_moe_unpermute_args;

SY_OPERATOR(moe_unpermute)

/* ---- moe_permute_ids, moe_unpermute_ids ---- */

/*
 * moe_permute for a router that gives expert ids: choice i = t*K + j is choice j of token t, and the choices are put
 * in stable ascending order of their ids. Its place in that order is the row of a choice:
 *     sorted_indices[i] = place of choice i;   permuted_tokens[sorted_indices[i] - row_begin] = tokens[i / K]
 * N = num_out_tokens keeps rows: all when 0, those below N when positive, all but the last -N when negative. With
 * num_experts > 0 ids must be in [0, E), and counts and offsets are available. A missing choice has no row and the index -1; as
 * many rows at the end are zero bytes.
 */
typedef struct sy_moe_permute_ids_args {
    const DLTensor *tokens; /* in  [T,H]  any type of 1, 2, 4 or 8 bytes */
    const DLTensor *ids;    /* in  [T,K]  int32, int64 */
    const DLTensor *probs;  /* in  [T,K]  f32, f16, bf16; optional, present iff permuted_probs is */
    int64_t num_out_tokens; /* N, -T*K or more; above T*K it is T*K */
    int64_t num_experts;    /* E; 0: ids may be any numbers */
    bool window;            /* of the kept rows write [row_begin, row_end) only; else all of them */
    int64_t row_begin;
    int64_t row_end;
    const DLTensor *permuted_tokens; /* out [M,H]  type of tokens; M of the query */
    const DLTensor *sorted_indices;  /* out [T*K]  int32 */
    const DLTensor *permuted_probs;  /* out [M]    type of probs */
    const DLTensor *expert_counts;   /* out [E]    int64, optional: choices of each expert */
    const DLTensor *expert_offsets;  /* out [E+1]  int64, optional: first row of each expert, the end */
    bool allow_missing;              /* ids -1 and E mean no expert */
    const sy_row_format *row_format; /* NULL: rows as they are; else codes, see quantize_rows */
    const DLTensor *permuted_scales; /* out [M,G]  with row_format */
} sy_moe_permute_ids_args;

SY_OPERATOR(moe_permute_ids)

/*
 * The inverse: adds up the rows of a token, times its weights, in the order of its choices.
 *     tokens[t] = residual[t] + shared[t] + sum over j of probs[t,j] * permuted_tokens[sorted_indices[t*K + j] - row_begin]
 * +0 without any row. Choices whose row is not in permuted_tokens, -1 among them, and weights of exactly 0 add nothing. K =
 * length / T, T the rows of probs, or num_tokens, or the length itself. With `bias` a row x counts as
 * fl(x + bias[bias_ids[t,j]]), and -1 as a row of zeros.
 */
typedef struct sy_moe_unpermute_ids_args {
    const DLTensor *permuted_tokens; /* in  [M,H]  f32, f16, bf16 */
    const DLTensor *sorted_indices;  /* in  [T*K]  int32, as moe_permute_ids made them */
    const DLTensor *probs;           /* in  [T,K]  f32, f16, bf16; optional: all weights are 1 */
    int64_t num_tokens;              /* T, when probs is NULL; 0: one choice per token */
    int64_t row_begin;               /* number of the first row of permuted_tokens */
    const DLTensor *tokens;          /* out [T,H]  type of permuted_tokens */
    const DLTensor *bias;            /* in  [B,H]  as permuted_tokens; optional, with bias_ids */
    const DLTensor *bias_ids;        /* in  [T,K]  int32; optional: row of bias of each choice; -1: none */
    const DLTensor *residual;        /* in  [T,H]  as permuted_tokens; optional: added first */
    const DLTensor *shared;          /* in  [T,H]  as permuted_tokens; optional: added second */
    int64_t num_rows;                /* N: rows have numbers 0 to N-1, E*C of experts with capacity; 0: T*K */
    bool by_choice;                  /* sorted_indices is [K,T]: choice 0 of all tokens, then choice 1 */
} sy_moe_unpermute_ids_args;

SY_OPERATOR(moe_unpermute_ids)

/* ---- moe_align_block ---- */

/*
 * Lists the choices of every expert, padded to whole blocks, for a grouped matrix product whose blocks of rows have
 * one expert each. Choice i = t*K + j is choice j of token t. Experts ascend, and so do choices within an expert:
 *     sorted_slots  [offsets[e], offsets[e] + counts[e])   the choices that name e
 *                   up to offsets[e+1]                     T*K, which is not a choice: offsets are multiples of B
 *     block_experts [offsets[e] / B, offsets[e+1] / B)     e, or expert_map[e] where that is given
 *     num_padded    offsets[E]
 * From num_padded on, sorted_slots holds T*K and block_experts -1. The query returns their least lengths: rows = P,
 * slots = P / B.
 */
typedef struct sy_moe_align_block_args {
    const DLTensor *ids;            /* in  [T,K]  int32, int64 */
    const DLTensor *expert_map;     /* in  [E]    int32, optional: number on this rank; -1: on another */
    int64_t num_experts;            /* E, 0 <= E < 2^31 */
    int64_t block_size;             /* B, 1 <= B < 2^31 */
    bool allow_missing;             /* ids -1 and E mean no expert */
    bool skip_unmapped;             /* no places for experts of other ranks */
    const DLTensor *sorted_slots;   /* out [P or more]    int32 */
    const DLTensor *block_experts;  /* out [P/B or more]  int32 */
    const DLTensor *num_padded;     /* out [1]    int32 */
    const DLTensor *expert_counts;  /* out [E]    int64, optional: choices of each expert that have a place */
    const DLTensor *expert_offsets; /* out [E+1]  int64, optional: first place of each expert, the end */
} sy_moe_align_block_args;

SY_OPERATOR(moe_align_block)

/* ---- moe_pad_map ---- */

/*
 * Pads a routing map so that every expert has a multiple of `alignment` tokens, for matrix products with fixed tiles:
 * expert e gets the lowest tokens that are not routed to it; one without tokens gets none. Added entries are 1, others are
 * copied. padded_map may be routing_map itself. An expert that needs more tokens than there are is rejected.
 */
typedef struct sy_moe_pad_map_args {
    const DLTensor *routing_map;   /* in  [T,E]  bool, int8, uint8; not 0: routed */
    int64_t alignment;             /* 1 or more */
    const DLTensor *padded_map;    /* out [T,E]  type of routing_map */
    const DLTensor *expert_counts; /* out [E]    int64, optional: tokens of each expert, padding included */
} sy_moe_pad_map_args;

SY_OPERATOR(moe_pad_map)

/* ---- moe_reorder_chunks ---- */

/*
 * Groups rows by expert. After an exchange the rows of a rank are grouped by source rank, within that by expert;
 * counts[r,e] rows came from rank r for expert e:
 *     rows            (0,0) (0,1) ... (0,E-1) (1,0) ...      chunks (rank, expert)
 *     reordered_rows  (0,0) (1,0) ... (R-1,0) (0,1) ...      the same chunks, expert by expert
 * A row is everything after the first dimension; rows after the sum of the counts are neither read nor written.
 */
typedef struct sy_moe_reorder_chunks_args {
    const DLTensor *rows;   /* in  [N,...]  any type of whole bytes */
    const DLTensor *counts; /* in  [R,E]    int32, int64 */
    const DLTensor *extra;  /* in  [N,...]  any type of whole bytes; optional, iff reordered_extra is */
    bool inverse;           /* from (expert, rank) to (rank, expert) */
    const DLTensor *reordered_rows;  /* out as rows */
    const DLTensor *reordered_extra; /* out as extra */
    const DLTensor *expert_offsets;  /* out [E+1]    int64, optional: first row of each expert */
} sy_moe_reorder_chunks_args;

SY_OPERATOR(moe_reorder_chunks)

/* ---- moe_convert_indices ---- */

/* Forms of a permutation of T tokens into M rows. All are int32; -1 means none. */
typedef enum sy_index_form {
    SY_INDEX_SLOT = 0, /* [T*K]: the row of choice j of token t at t*K + j; moe_permute, packed */
    SY_INDEX_ROW = 1,  /* [M]: the token of each row; moe_permute, capacity mode, and Megatron-LM */
    /* [T,2E+1]: rows of the token descending, from column E on their experts, in the last column how many; Transformer
       Engine's row_id_map */
    SY_INDEX_TE = 2
} sy_index_form;

/*
 * Writes the same permutation in another form. A row belongs to one token or to none; a token's choices are its rows
 * in ascending order, that is by expert. Rows and choices without a partner become -1. Row r of a TE map belongs to
 * expert e when expert_offsets[e] <= r < expert_offsets[e+1].
 */
typedef struct sy_moe_convert_indices_args {
    const DLTensor *sorted_indices; /* in  in the form `from`  int32 */
    const DLTensor *expert_offsets; /* in  [E+1]  int64; required when `to` is TE, else ignored */
    sy_index_form from;             /* two different forms */
    sy_index_form to;
    int64_t num_tokens;                /* T */
    int64_t num_rows;                  /* M; 0: the length of sorted_indices, for SLOT and ROW */
    int64_t k;                         /* choices per token when `to` is SLOT; 0: M / T */
    const DLTensor *converted_indices; /* out in the form `to`  int32 */
} sy_moe_convert_indices_args;

SY_OPERATOR(moe_convert_indices)

/* ---- moe_permute_grad ---- */

/*
 * The gradient of moe_permute: M rows of H elements, T tokens, E experts, sorted_indices of the forward call.
 *     grad_tokens[t]   = sum of the rows of grad_permuted_tokens that are copies of token t, as moe_unpermute adds them
 *     grad_probs[t,e]  = grad_permuted_probs of the row that token t has at expert e, bit for bit; else +0
 * Without grad_permuted_probs grad_probs is ignored; packed, they need routing_map.
 */
typedef struct sy_moe_permute_grad_args {
    const DLTensor *grad_permuted_tokens; /* in  [M,H]  f32, f16, bf16 */
    const DLTensor *sorted_indices;       /* in  [M]    int32, as moe_permute made them */
    const DLTensor *grad_permuted_probs;  /* in  [M]    f32, f16, bf16; optional */
    const DLTensor *routing_map;          /* in  [T,E]  bool, int8, uint8; optional, see above */
    int64_t num_experts;                  /* E >= 1 */
    int64_t num_tokens;                   /* T >= 1 */
    bool drop_and_pad;                    /* false: packed mode; true: capacity mode */
    bool zero_pad;               /* capacity mode: -1 marks a padding row; no effect in packed mode */
    const DLTensor *grad_tokens; /* out [T,H]  type of grad_permuted_tokens */
    const DLTensor *grad_probs;  /* out [T,E]  type of grad_permuted_probs; optional */
} sy_moe_permute_grad_args;

SY_OPERATOR(moe_permute_grad)

/* ---- moe_unpermute_grad ---- */

/*
 * The gradient of moe_unpermute: M rows, the number of sorted_indices, of H elements; T tokens, E experts.
 *     grad_permuted_tokens[i] = w * grad_tokens[t],  row i being one of token t; else +0
 *     grad_probs[t,e]         = dot product of grad_tokens[t] and permuted_tokens[i], row i being that of expert e; else +0
 * Rows, tokens, experts and weights belong together as in moe_unpermute.
 */
typedef struct sy_moe_unpermute_grad_args {
    const DLTensor *grad_tokens;     /* in  [T,H]  f32, f16, bf16 */
    const DLTensor *sorted_indices;  /* in  [M]    int32, those of the forward call */
    const DLTensor *permuted_tokens; /* in  [M,H]  type of grad_tokens; optional, required by probs */
    const DLTensor *routing_map;     /* in  [T,E]  bool, int8, uint8; optional, required by probs */
    const DLTensor *probs;           /* in  [T,E]  f32, f16, bf16; optional: all weights are 1 */
    bool drop_and_pad;               /* false: packed mode; true: capacity mode */
    bool zero_pad;                   /* capacity mode: -1 marks a padding row; no effect in packed mode */
    const DLTensor *grad_permuted_tokens; /* out [M,H]  type of grad_tokens */
    const DLTensor *grad_probs;           /* out [T,E]  type of probs; optional */
} sy_moe_unpermute_grad_args;

SY_OPERATOR(moe_unpermute_grad)

/* ---- moe_dispatch ---- */

/*
 * Scales token rows into the places of experts. S samples, E experts of C places, H elements per row. In sample order:
 *     if 0 <= indices[i] < E and 0 <= locations[i] < C:
 *         dispatch[indices[i]*C + locations[i], :] = gates[i] * input[i, :]
 * Other samples are skipped. Of several samples on one place the last is kept, for the whole row. Other rows keep their
 * bytes. dispatch may be input itself (same data, same row stride): the loop above then runs on the shared rows.
 */
typedef struct sy_moe_dispatch_args {
    const DLTensor *gates;     /* in  [S]      f32 or the type of input; optional: all ones */
    const DLTensor *indices;   /* in  [S]      int32, expert of each sample */
    const DLTensor *locations; /* in  [S]      int32, place inside the expert */
    const DLTensor *input;     /* in  [S,H]    f32, f16, bf16 */
    int64_t num_experts;       /* E >= 0 */
    int64_t capacity;          /* C >= 0 */
    bool zero_unwritten;       /* set rows that are not written to +0 */
    bool unique_slots;         /* the caller guarantees that no two valid samples share a place. If some do,
                                  their row is unspecified and nothing else changes */
    const DLTensor *dispatch;  /* in/out [E*C,H]  type of input */
    const sy_row_format *row_format; /* NULL: rows as they are; else codes, see quantize_rows */
    const DLTensor *dispatch_scales; /* in/out [E*C,G]  with row_format */
} sy_moe_dispatch_args;

SY_OPERATOR(moe_dispatch)

/* ---- moe_combine ---- */

/*
 * Returns rows from the places of experts to their samples: each sample gets the sum of its choices' rows, each times
 * its gate. S samples, k choices, E experts of C places, H elements per row. A choice is valid when 0 <= indices[t,i]
 * < E and 0 <= locations[t,i] < C; its row is z = expert_out[indices[t,i]*C + locations[t,i], :].
 *     k = 1    output[i,:] = gates[i] * z, or +0 when the choice is not valid
 *     k > 1    acc = +0; for each valid choice t in order: acc = acc + gates[t,i] * z; output[i,:] = acc
 *
 * The data gradient of moe_dispatch is the same sum over the gradient of its buffer, with the gates of the dispatch:
 * sy_moe_dispatch_grad_data is another name for it.
 */
typedef struct sy_moe_combine_args {
    const DLTensor *gates;      /* in  [k,S] or [S]  f32 or the type of expert_out; optional: all ones */
    const DLTensor *indices;    /* in  [k,S] or [S]  int32, expert of each choice */
    const DLTensor *locations;  /* in  [k,S] or [S]  int32, place inside the expert */
    const DLTensor *expert_out; /* in  [E*C,H]       f32, f16, bf16 */
    int64_t num_experts;        /* E >= 0 */
    int64_t capacity;           /* C >= 0 */
    const DLTensor *output;     /* out [S,H]         type of expert_out */
} sy_moe_combine_args;

SY_OPERATOR(moe_combine)
static inline sy_status sy_moe_dispatch_grad_data(sy_ctx *ctx, const sy_moe_combine_args *args);

/* ---- moe_dispatch_grad_gate ---- */

/*
 * The gradient of the gates: the dot product of each sample's row with the row in its place, a choice being valid as
 * in moe_combine:
 *     grad_gates[t,i] = sum over j of dispatch[indices[t,i]*C + locations[t,i], j] * input[i,j], or +0
 * For moe_dispatch: input is the rows that were dispatched, dispatch the gradient of its buffer. For moe_combine:
 * input is the gradient of the output, dispatch the expert_out it read.
 */
typedef struct sy_moe_dispatch_grad_gate_args {
    const DLTensor *indices;    /* in  [k,S] or [S]  int32, expert of each choice */
    const DLTensor *locations;  /* in  [k,S] or [S]  int32, place inside the expert */
    const DLTensor *input;      /* in  [S,H]         f32, f16, bf16 */
    const DLTensor *dispatch;   /* in  [E*C,H]       type of input */
    int64_t num_experts;        /* E >= 0 */
    int64_t capacity;           /* C >= 0 */
    const DLTensor *grad_gates; /* out [k,S] or [S]  f32 or the type of input */
} sy_moe_dispatch_grad_gate_args;

SY_OPERATOR(moe_dispatch_grad_gate)

/* ---- moe_locations ---- */

/*
 * Gives every choice of every token its place inside the expert it names: how many choices named that expert before
 * it. k choices per token, S samples, E experts. All samples of choice 0 come first, in ascending order, or by descending
 * importance (of equal ones the lower first, NaN last). An index outside [0,E) gets location -1 and is not counted.
 * A location of `capacity` or more is a choice that will be dropped.
 */
typedef struct sy_moe_locations_args {
    const DLTensor *indices;    /* in  [k,S] or [S]  int32, expert of each choice */
    const DLTensor *importance; /* in  [S]           f32, f16, bf16; optional: sample order */
    int64_t num_experts;        /* E >= 0 */
    const DLTensor *locations;  /* out [k,S] or [S]  int32, as indices */
    const DLTensor *counts;     /* out [E]           int64, optional */
} sy_moe_locations_args;

SY_OPERATOR(moe_locations)

/* ---- moe_capacity ---- */

/*
 * Computes how many places each expert should have. S = samples, E = num_experts, P = S / E rounded up, M = the
 * largest of counts:
 *     factor > 0    C = k * trunc(factor * P)             a fixed share; counts are not read
 *     factor = 0    C = M                                 nothing is dropped
 *     factor < 0    C = min(M, k * trunc(-factor * P))    as many as are needed, up to a share
 * then rounded up to a multiple of alignment. The query returns C in `slots` when factor > 0, else 0.
 */
typedef struct sy_moe_capacity_args {
    const DLTensor *counts; /* in  [E]  int64, int32: demand for each expert; optional with factor > 0 */
    int64_t samples;        /* S >= 0; over several ranks the largest */
    int64_t num_experts;    /* E >= 1 */
    int64_t k;              /* choices per token; 0: 1 */
    double factor;
    int64_t alignment;        /* 0: 1 */
    const DLTensor *capacity; /* out [1]  int64 */
} sy_moe_capacity_args;

SY_OPERATOR(moe_capacity)

/* ---- moe_map_physical ---- */

/* Which of the n replicas of an expert serves a slot; i = token_base + t. */
typedef enum sy_replica_rule {
    SY_REPLICA_FIRST = 0,       /* replica 0 */
    SY_REPLICA_ROUND_ROBIN = 1, /* i mod n */
    SY_REPLICA_HASH = 2,        /* (i * 2654435769 mod 2^32) mod n */
    SY_REPLICA_BALANCED = 3,    /* (counts_before[e] + slots that name e before this one, row by row) mod n */
    SY_REPLICA_LOCAL = 4 /* one on `device`, else on its node, else any: number `device` mod how many */
} sy_replica_rule;

/*
 * Turns the ids of logical experts into those of physical experts, of which a logical one may have several: its
 * replicas, row e of logical_to_physical. T tokens of K slots, E logical experts, P physical ones.
 *     physical_ids[t,j] = logical_to_physical[e, r],   e = ids[t,j], r by `rule`
 *     load[physical_ids[t,j]] += 1,  logical_load[e] += 1
 * Expert e has replica_count[e] replicas, or without that as many as leading entries of its row that are not negative.
 * Physical expert p is on device p / (P / devices), and device d on node d / node_size; both matter for LOCAL only.
 */
typedef struct sy_moe_map_physical_args {
    const DLTensor *ids;                 /* in  [T,K]  int32, int64, uint16 */
    const DLTensor *logical_to_physical; /* in  [E,R]  int32, replicas of each expert, then -1 */
    const DLTensor *replica_count;       /* in  [E]    int32; optional */
    const DLTensor *counts_before;       /* in  [E]    int64; optional, BALANCED only */
    int64_t num_physical;                /* P >= 0 */
    sy_replica_rule rule;
    int64_t token_base;           /* number of token 0 */
    int64_t device;               /* LOCAL: the device of the tokens */
    int64_t devices;              /* LOCAL: how many there are */
    int64_t node_size;            /* LOCAL: devices of a node; 0: nodes do not matter */
    bool allow_missing;           /* unused slots are accepted */
    const DLTensor *physical_ids; /* out [T,K]  int32, int64, uint16; optional */
    const DLTensor *load;         /* out [P]    int64, added to; optional */
    const DLTensor *logical_load; /* out [E]    int64, added to; optional */
} sy_moe_map_physical_args;

SY_OPERATOR(moe_map_physical)

/* ---- moe_place ---- */

/*
 * Gives experts replicas by their loads, and spreads them over devices, as DeepSeek's EPLB does, in integers: L
 * layers, each by itself, E experts, P physical ones, P / devices on each device. With `previous` replicas keep the places of
 * their expert on their device. Tensors are in CPU memory.
 */
typedef struct sy_moe_place_args {
    const DLTensor *loads;               /* in  [L,E] int64 */
    const DLTensor *previous;            /* in  [L,P] int32, experts of an earlier call; optional */
    int64_t num_physical;                /* P */
    int64_t devices;                     /* a divisor of P */
    int64_t nodes;                       /* a divisor of devices; 0: 1 */
    int64_t groups;                      /* a divisor of E; 0: none */
    bool distinct;                       /* no two replicas of an expert on one device */
    const DLTensor *physical_to_logical; /* out [L,P] int32, int64; optional, as all outputs */
    const DLTensor *logical_to_physical; /* out [L,E,R] int32, int64: replicas in order, then -1 */
    const DLTensor *replica_count;       /* out [L,E] int32, int64 */
    const DLTensor *device_load;         /* out [L,devices] int64, in units of 2^-24 */
    const DLTensor *expert_mapping;      /* out [P,devices] uint16, for all_to_all_dispatch */
} sy_moe_place_args;

/* The query: rows is L*P; slots is P - E + 1, an R that always suffices. */
SY_OPERATOR(moe_place)

/* ---- kv_gather ---- */

typedef enum sy_kv_pad {
    SY_PAD_ERROR = 0, /* index -1 is rejected; rows past counts[b] are zero */
    SY_PAD_ZERO = 1,  /* index -1 gives a zero row; rows past counts[b] are zero */
    SY_PAD_SKIP = 2   /* the output rows of both keep their bytes */
} sy_kv_pad;

/* Order of the dimensions of a cache with heads: N tokens of a block (S), H heads, D elements of a head. */
typedef enum sy_kv_layout {
    SY_KV_NHD = 0, /* [blocks,S,H,D...]: all heads of a token, then the next token; also without heads */
    SY_KV_HND = 1  /* [blocks,H,S,D...]: all tokens of a head, then the next head */
} sy_kv_layout;

/* Where the scales of a quantised cache are stored. */
typedef enum sy_kv_scales {
    SY_SCALES_TENSOR = 0, /* in the tensor `scale`; a row is numbers of q_type and nothing else */
    SY_SCALES_ROW = 1,    /* inside each row */
    SY_SCALES_BLOCK = 2,  /* in a record for each row, after the rows of its block */
    SY_SCALES_INLINE = 3  /* in the row, before the codes of each group */
} sy_kv_scales;

/* How a scale follows from a, the largest magnitude of its group; see quantize_rows. Q is the largest number of q_type. */
typedef enum sy_scale_math {
    SY_SCALE_MATH_CACHE = 0, /* as kv_scatter does */
    SY_SCALE_MATH_DIV = 1,   /* f32: a / Q */
    SY_SCALE_MATH_MUL = 2,   /* f32: a * (1 / Q) */
    SY_SCALE_MATH_UP = 3,    /* e8m0: the least power of two that is at least a / Q */
    SY_SCALE_MATH_FLOOR = 4  /* e8m0: 2^(floor(log2 a) - floor(log2 Q)), as OCP MX 1.0 */
} sy_scale_math;

/* How a number becomes one that is rounded to a code; scales of e8m0 need no choice. */
typedef enum sy_code_math {
    SY_CODE_MATH_DIV = 0, /* x / scale */
    SY_CODE_MATH_RCP = 1, /* x * (1 / scale) */
    SY_CODE_MATH_AMAX = 2 /* x * (Q / a) */
} sy_code_math;

/* What global_scale of nvfp4 is: the scale of all numbers, or the largest magnitude of all. */
typedef enum sy_global_is { SY_GLOBAL_DECODE = 0, SY_GLOBAL_AMAX = 1 } sy_global_is;

/*
 * How the rows of a quantised cache are packed, for kv_gather to unpack and kv_scatter to pack; docs/ops/kv_gather.md
 * and kv_scatter.md have the arithmetic. An unpacked row is the q_count numbers, then the rope part, which is bf16 in
 * the cache: q_count + rope_bytes/2 elements of bf16, f16 or f32.
 * The place of the scales decides the shape of the cache, of elements of one byte: rows of at least row_bytes; with SCALES_BLOCK
 * blocks of S rows and then S scale records; with SCALES_TENSOR, where all fields but bytes and q_type are 0, as without a format,
 * and `scale` is f32: [G], which kv_scatter reads, or [rows,G] or [blocks,S,G], of every row, which it writes. SCALES_INLINE
 * is ggml's blocks: only bytes, types, scales and group are not 0. nvfp4, q_type SY_F4_E2M1, has two codes in a byte.
 */
typedef struct sy_kv_format {
    size_t bytes;          /* sizeof(sy_kv_format): the struct may grow at its end */
    DLDataType q_type;     /* SY_F8_E4M3, SY_F8_E5M2, SY_I8; INLINE: SY_I8, or SY_TYPE(1, 4); SY_F4_E2M1 */
    DLDataType scale_type; /* SY_F32, SY_F8_E8M0; INLINE: SY_F16; nvfp4: SY_F8_E4M3 */
    sy_kv_scales scales;
    int32_t row_bytes;            /* of a packed row */
    int32_t q_off, q_count;       /* codes: first byte in the row, how many */
    int32_t group;                /* codes that share a scale; divides q_count */
    int32_t scale_off;            /* first scale, in the row or in the scale record */
    int32_t scale_bytes;          /* of a scale record; 0 unless SCALES_BLOCK */
    int32_t rope_off, rope_bytes; /* bf16 numbers; 0 bytes: none */
    double a_min;                 /* formats of quantize_rows: the least amax, as f32 */
    sy_scale_math scale_math;     /* not CACHE: a format of quantize_rows */
    sy_code_math code_math;
    sy_global_is global_is; /* of nvfp4 */
} sy_kv_format;

/*
 * A format by its name, in docs/ops/kv_gather.md: rows of DeepSeek V3.2 in vLLM and FlashMLA (ds32_fp8) and in PyPTO (pto_int8),
 * blocks of DeepSeek V4 (ds4_fp8) and of its indexer's keys (indexer_fp8) in vLLM, blocks of ggml (q8_0, q4_0), rows of any
 * shape with scales in a tensor (e4m3, e5m2, int8, nvfp4, nvfp4_amax); and the formats of quantize_rows.
 * Returns SY_OK; NULL; VALUE (no such name: *format is zero).
 */
static inline sy_status sy_kv_format_named(const char *name, sy_kv_format *format);

/*
 * A further plane of a cache: a tensor with as many rows, found by the same slots, and its dense rows: keys and values,
 * latent and rope parts, scales, several layers. Planes have their own types, widths and strides, and may be parts of one
 * tensor as long as no byte that is written belongs to another tensor of the call. The struct may grow at its end, so an
 * array of planes goes with the size of one, sizeof(sy_kv_plane), in plane_bytes.
 */
typedef struct sy_kv_plane {
    const DLTensor *cache;
    const DLTensor *rows;         /* out of kv_gather and kv_ragged, src of kv_scatter, dst of kv_blocks */
    const sy_kv_format *format;   /* NULL: rows are copied as they are */
    const DLTensor *scale;        /* with a format of SY_SCALES_TENSOR */
    const DLTensor *global_scale; /* with nvfp4 */
} sy_kv_plane;

#define SY_KV_MAX_PLANES 255 /* beside the call's own */

/*
 * Copies the cache rows of selected logical tokens, in the order of indices, into a dense output. S = block_size:
 *     r = req_id ? req_id[b] : b;   t = indices[b,j];   block = block_table[r, t / S]
 *     out[b,j] = cache row block*S + t % S, byte for byte, or unpacked where `format` is given
 * The cache is [rows, D] flat, where the last block may be partial, or of higher rank [blocks, S, D...], or with
 * SY_KV_HND [blocks, H, S, D...]; blocks, rows and heads may have any strides without overlap. B is the product of the leading
 * dimensions of `indices`. A sequence ends at seq_lens[b] if given, else at the end of its table row. In place of
 * block_table there may be lists of pages, one after the other: block q of sequence r is then page_indices[indptr[r] +
 * q], and the sequence ends, without seq_lens, in its last page.
 */
typedef struct sy_kv_gather_args {
    const DLTensor *cache;       /* in  [rows,D] or [blocks,S,D...]  any type of whole bytes */
    const DLTensor *indices;     /* in  [...,k]   int32, int64: logical tokens, any order, repeats legal */
    const DLTensor *block_table; /* in  [R,n] or [n]  int32, int64; R = B unless req_id is given */
    const DLTensor *req_id;      /* in  [B]  int32, int64; optional: table row of each index row */
    const DLTensor *counts;   /* in  [B]  int32, int64; optional: indices of each row, the rest is padding */
    const DLTensor *seq_lens; /* in  [B]  int32, int64; optional: tokens of each index row's sequence */
    int64_t block_size;       /* S >= 1 */
    sy_kv_pad pad;
    const DLTensor *out;           /* out [...,k,D...]  type of cache (in/out with SY_PAD_SKIP) */
    const sy_kv_plane *planes;     /* in  [num_planes]  further caches and outs of any type and width */
    int64_t num_planes;            /* 0 to SY_KV_MAX_PLANES */
    size_t plane_bytes;            /* sizeof(sy_kv_plane), with planes */
    sy_kv_layout layout;           /* of all caches */
    const DLTensor *page_indices;  /* in  [N]    int32, int64; optional: lists of pages, not block_table */
    const DLTensor *indptr;        /* in  [R+1]  int32, int64: where each list begins, and the end */
    const DLTensor *last_page_len; /* in  [R]    int32, int64; optional: tokens of each last page, else S */
    const sy_kv_format *format;    /* how the rows of cache are packed; NULL: copied as they are */
    const DLTensor *scale;         /* in  [G], [rows,G] or [blocks,S,G]  f32, with SY_SCALES_TENSOR alone */
    const DLTensor *global_scale;  /* in  [1]  f32; optional: with nvfp4 */
} sy_kv_gather_args;

SY_OPERATOR(kv_gather)

/* ---- kv_translate ---- */

/*
 * The slots kv_gather would copy from, without a cache: for kernels that read pages in place. S = block_size:
 *     slots[b,j] = block * S + t % S,   t = indices[b,j],   block = block_table[r, t / S]
 * and -1 for padding: positions j >= counts[b], and index -1 unless pad is ERROR (ZERO and SKIP are the same here).
 * valid[b] is the number of entries of the row that are not padding.
 *
 * With world > 1 the tokens of a sequence are distributed over that many ranks in runs of `interleave`, and a token of another
 * rank has slot -1. Table, lists and num_rows are those of `rank`, seq_lens counts the tokens of all ranks.
 */
typedef struct sy_kv_translate_args {
    const DLTensor *indices;     /* in  [...,k]   int32, int64 */
    const DLTensor *block_table; /* in  [R,n] or [n]  int32, int64; R = B unless req_id is given */
    const DLTensor *req_id;      /* in  [B]  int32, int64; optional: table row of each index row */
    const DLTensor *counts;   /* in  [B]  int32, int64; optional: indices of each row, the rest is padding */
    const DLTensor *seq_lens; /* in  [B]  int32, int64; optional: tokens of each index row's sequence */
    int64_t block_size;       /* S >= 1 */
    int64_t num_rows;         /* rows of the cache; 0: not known */
    sy_kv_pad pad;
    const DLTensor *slots;         /* out [...,k]  int32, int64 */
    const DLTensor *valid;         /* out [B]      int32, int64; optional */
    const DLTensor *page_indices;  /* in  [N]    int32, int64; optional: lists of pages, not block_table */
    const DLTensor *indptr;        /* in  [R+1]  int32, int64: where each list begins, and the end */
    const DLTensor *last_page_len; /* in  [R]    int32, int64; optional: tokens of each last page, else S */
    int64_t world;                 /* ranks that share the tokens; 0: 1, not shared */
    int64_t rank;                  /* the rank of this call */
    int64_t interleave;            /* I, tokens of a run; 0: 1 */
} sy_kv_translate_args;

SY_OPERATOR(kv_translate)

/* ---- kv_slots ---- */

/*
 * The slot of every token of a flat batch, for kv_scatter: token i is number position[i] of sequence batch[i].
 *     slots[i] = block_table[batch[i], position[i] / S] * S + position[i] % S
 * Position -1 is rejected, or with SY_PAD_SKIP (or ZERO) its slot is -1. Lists of pages in place of block_table are as in
 * kv_gather.
 */
typedef struct sy_kv_slots_args {
    const DLTensor *batch;       /* in  [...]  int32, int64; optional where block_table has one row */
    const DLTensor *position;    /* in  [...]  int32, int64 */
    const DLTensor *block_table; /* in  [R,n] or [n]  int32, int64 */
    int64_t block_size;          /* S >= 1 */
    int64_t num_rows;            /* rows of the cache; 0: not known */
    sy_kv_pad pad;
    const DLTensor *slots;         /* out [...]  int32, int64 */
    const DLTensor *page_indices;  /* in  [N]    int32, int64; optional: lists of pages, not block_table */
    const DLTensor *indptr;        /* in  [R+1]  int32, int64: where each list begins, and the end */
    const DLTensor *last_page_len; /* in  [R]    int32, int64; optional: tokens of each last page, else S */
} sy_kv_slots_args;

SY_OPERATOR(kv_slots)

/* ---- kv_select ---- */

typedef enum sy_kv_order {
    SY_KV_ORDER_POSITION = 0, /* entries of a row ascend */
    SY_KV_ORDER_SCORE = 1     /* the largest score first, equal ones by position */
} sy_kv_order;

typedef enum sy_kv_dead {
    SY_KV_DEAD_SKIP = 0, /* NaN and -inf are never selected by score */
    SY_KV_DEAD_KEEP = 1  /* they come last, by position */
} sy_kv_dead;

typedef enum sy_kv_columns {
    SY_KV_COLUMNS_GLOBAL = 0, /* column t is token t */
    SY_KV_COLUMNS_OWN = 1     /* columns are the tokens of `rank` alone */
} sy_kv_columns;

/*
 * The k positions of largest score of every row: the indices that kv_gather and kv_translate take. Row b has L columns
 * from row_start[b] on, for the positions 0 to L-1. First come t < sink and t >= L - window, whatever their scores, then
 * the others by score, equal ones by position; entries from count[b] on are -1, of values -inf. With a table, slots are
 * the cache rows of the positions. With expand = G each has an entry for its tokens t*G to t*G + G-1.
 */
typedef struct sy_kv_select_args {
    const DLTensor *scores;    /* in  [...,N]  f32, f16, bf16 */
    const DLTensor *lengths;   /* in  [B] or [B/Q] of last rows  int32, int64; optional: L */
    const DLTensor *row_start; /* in  [B]  int32, int64; optional: first column of each row */
    const DLTensor *row_k;     /* in  per row  int32, int64; optional: most positions of each row, up to k */
    const DLTensor *position;  /* in  [...,N]  int32, int64; optional: position of each column; -1: none */
    const DLTensor *block_table; /* in  [R,n] or [n]  int32, int64; optional; R = B/Q without req_id */
    const DLTensor *req_id;      /* in  [B]  int32, int64; optional: table row of each row */
    const DLTensor *seq_lens; /* in  [B]  int32, int64; optional, with expand or position: tokens of each */
    const DLTensor *page_indices; /* in  [P]    int32, int64; optional: lists of pages, not block_table */
    const DLTensor *indptr;       /* in  [R+1]  int32, int64: where each list begins, and the end */
    const DLTensor *index_base;   /* in  [B]  int32, int64; optional: added to every entry of indices */
    int64_t k;                    /* 0: from the width of indices, values, slots or owner */
    sy_kv_order order;
    sy_kv_dead dead;
    int64_t sink;       /* first positions that are always selected */
    int64_t window;     /* last ones; sink + window <= k */
    int64_t query_rows; /* Q, rows of a request; 0: 1 */
    int64_t expand;     /* G, tokens of a position; 0: 1 */
    int64_t block_size; /* S >= 1, with a table */
    int64_t num_rows;   /* rows of the cache; 0: not known */
    int64_t world;      /* ranks that share the tokens; 0: 1, not shared */
    int64_t rank;       /* the rank of this call */
    int64_t interleave; /* I, tokens of a run; 0: 1 */
    sy_kv_columns columns;
    bool own_only;           /* write only entries that `rank` owns */
    const DLTensor *indices; /* out [...,kG]  int32, int64; optional */
    const DLTensor *values;  /* out [...,k]   type of scores, or f32; optional: the scores */
    const DLTensor *count;   /* out [B]       int32, int64; optional: entries of each row */
    const DLTensor *slots;   /* out [...,kG]  int32, int64; optional, with a table: cache rows */
    const DLTensor *owner;   /* out [...,kG]  int32; optional, with world > 1: the rank that has each entry */
    const DLTensor *row_flags; /* out [B]       uint32; optional: SY_ROW_* of the row's scores */
} sy_kv_select_args;

SY_OPERATOR(kv_select)

/* ---- kv_scatter ---- */

/*
 * Writes rows into a paged KV cache by slot, to fill it. Slot s is row s % S of block s / S.
 *     cache row slots[i] = src[i], byte for byte, or packed where `format` is given
 * The cache is as for kv_gather. Rows that no slot names keep their bytes. Slot -1 is rejected, or with SY_PAD_SKIP its row is
 * dropped; SY_PAD_ZERO is not allowed. Two equal slots are a caller error: the bytes of that row are unspecified, unless
 * check_unique makes the call fail. The query validates the cache too.
 */
typedef struct sy_kv_scatter_args {
    const DLTensor *cache; /* in/out [rows,D], [blocks,S,D...] or [blocks,H,S,D...]  any type */
    const DLTensor *src;   /* in  [...,D...]  type of cache */
    const DLTensor *slots; /* in  [...]       int32, int64 */
    sy_kv_pad pad;
    bool check_unique;          /* reject a slot that is named twice */
    const sy_kv_plane *planes;  /* in  [num_planes]  further caches and srcs of any type and width */
    int64_t num_planes;         /* 0 to SY_KV_MAX_PLANES */
    size_t plane_bytes;         /* sizeof(sy_kv_plane), with planes */
    sy_kv_layout layout;        /* of all caches */
    const sy_kv_format *format; /* how the rows of cache are packed; NULL: copied as they are */
    const DLTensor *scale; /* in [G], or in/out [rows,G], [blocks,S,G]  f32, with SY_SCALES_TENSOR alone */
    int64_t block_size;    /* S, required by formats of SY_SCALES_BLOCK; 0: from the caches */
    const DLTensor *global_scale; /* in  [1]  f32; optional: with nvfp4 */
} sy_kv_scatter_args;

SY_OPERATOR(kv_scatter)

/* ---- kv_ragged ---- */

/*
 * Copies runs of tokens, one of each sequence, out of a paged cache into consecutive rows: the context of a chunked
 * prefill. S = block_size, r = req_id ? req_id[b] : b, 0 <= u < cu_lens[b+1] - cu_lens[b]:
 *     t = starts[b] + u;   out[cu_lens[b] + u] = cache row block_table[r, t / S] * S + t % S, byte for byte or unpacked
 * Cache, table, lists and the end of a sequence are as in kv_gather. Rows of out from the end of cu_lens on keep their bytes.
 * The query does not read cu_lens, so its rows are 0.
 */
typedef struct sy_kv_ragged_args {
    const DLTensor *cache;         /* in  [rows,D] or [blocks,S,D...]  any type of whole bytes */
    const DLTensor *block_table;   /* in  [R,n] or [n]  int32, int64; R = B unless req_id is given */
    const DLTensor *cu_lens;       /* in  [B+1]  int32, int64: first row of each run in out, and the end */
    const DLTensor *starts;        /* in  [B]    int32, int64; optional: first token of each run, else 0 */
    const DLTensor *req_id;        /* in  [B]    int32, int64; optional: table row of each run */
    int64_t block_size;            /* S >= 1 */
    const DLTensor *out;           /* out [rows,D...]  type of cache; at least cu_lens[B] rows */
    const sy_kv_plane *planes;     /* in  [num_planes]  further planes; their `rows` are outputs like out */
    int64_t num_planes;            /* at most SY_KV_MAX_PLANES */
    size_t plane_bytes;            /* sizeof(sy_kv_plane), with planes */
    sy_kv_layout layout;           /* of all caches */
    const DLTensor *page_indices;  /* in  [N]    int32, int64; optional: lists of pages, not block_table */
    const DLTensor *indptr;        /* in  [R+1]  int32, int64: where each list begins, and the end */
    const DLTensor *last_page_len; /* in  [R]    int32, int64; optional: tokens of each last page, else S */
    const sy_kv_format *format;    /* how the rows of cache are packed; NULL: copied as they are */
    const DLTensor *scale;         /* in  [G], [rows,G] or [blocks,S,G]  f32, with SY_SCALES_TENSOR alone */
    const DLTensor *seq_lens;      /* in  [B]    int32, int64; optional: tokens of each run's sequence */
    const DLTensor *global_scale;  /* in  [1]    f32; optional: with nvfp4 */
} sy_kv_ragged_args;

SY_OPERATOR(kv_ragged)

/* ---- kv_blocks ---- */

/*
 * Copies whole blocks by pairs (s, d), within one cache or from one to another: the fork of a shared prefix, and moves
 * between pools.
 *     block d of cache = block s of cache,   or   block d of dst = block s of src,   byte for byte
 * A cache is [blocks, ...] of rank 3 or more, whose blocks are contiguous with any stride between them, or flat [rows,
 * D] without gaps in whole blocks of block_size rows. No block is written twice, and in one cache none is read by one pair and
 * written by another. The query validates the caches too; its rows are the pairs.
 */
typedef struct sy_kv_blocks_args {
    const DLTensor *cache; /* in/out [blocks,...] or [rows,D]  any type of whole bytes */
    const DLTensor *src;   /* in     in place of cache */
    const DLTensor *dst;   /* in/out with src, of its type */
    const DLTensor *pairs; /* in     [N,2]  int32, int64: source and destination */
    int64_t block_size;    /* rows per block of flat caches; ignored for others */
    const sy_kv_plane
        *planes;        /* in     [num_planes]  further {cache, NULL} or {src, dst} of any type and width */
    int64_t num_planes; /* 0 to SY_KV_MAX_PLANES */
    size_t plane_bytes; /* sizeof(sy_kv_plane), with planes */
} sy_kv_blocks_args;

SY_OPERATOR(kv_blocks)

/* ---- sample ---- */

typedef enum sy_noise {
    SY_NOISE_AUTO = 0, /* q if q is given, else CDF if seed is given, else none */
    SY_NOISE_NONE = 1, /* no sampling: the first token of the order */
    SY_NOISE_Q = 2,    /* largest prob / (|q| + eps), q from the caller */
    SY_NOISE_RACE = 3, /* the same with exponential noise made from (seed, offset, stream, token), eps 0 */
    SY_NOISE_CDF = 4   /* one draw per row from (seed, offset, stream), inverted through the distribution */
} sy_noise;

typedef enum sy_q_order {
    SY_Q_LIST = 0, /* q[b,j] belongs to the j-th candidate: by rank if top-k or top-p acted, else by token */
    SY_Q_VOCAB = 1 /* q[b,i] belongs to token i */
} sy_q_order;

typedef enum sy_ties {
    SY_TIES_EXACT = 0, /* of tokens equal to the cut value the lowest indices stay */
    SY_TIES_ALL = 1    /* all of them stay */
} sy_ties;

typedef enum sy_logprob {
    SY_LOGPROB_NONE = 0, /* logprob, rank, top_* and score_* are not allowed */
    SY_LOGPROB_RAW = 1,  /* softmax of the input logits: temperature 1, no filter, mask or override */
    SY_LOGPROB_FINAL = 2 /* after temperature and filters; 0 for temperature < 1e-5 */
} sy_logprob;

typedef enum sy_empty_token {
    SY_EMPTY_MINUS_ONE = 0, /* token of a row without any candidate is -1 */
    SY_EMPTY_ZERO = 1       /* ... is 0 */
} sy_empty_token;

/* Orders of the stages of a row. */
typedef enum sy_stages {
    SY_STAGES_DEFAULT = 0, /* temperature, top_n_sigma, top_k, typical_p, top_p, min_p, xtc */
    SY_STAGES_LLAMA = 1,   /* top_n_sigma, top_k, typical_p, top_p, min_p, xtc, temperature */
    SY_STAGES_VLLM = 2,    /* temperature, min_p, top_k, top_p; the other stages must be absent */
    SY_STAGES_HF = 3       /* temperature, top_k, top_p, min_p, typical_p; the other stages must be absent */
} sy_stages;

/* Bits of row_flags. */
#define SY_ROW_NAN 1u   /* an allowed token's logit is NaN */
#define SY_ROW_INF 2u   /* ... is +inf */
#define SY_ROW_EMPTY 4u /* no allowed token's logit is above -inf */

/*
 * Picks one token per row of logits: temperature, top-k, top-p, min-p, then a greedy or random choice. Order: a before
 * b when its logit is larger, or equal and a < b; NaN is -inf, +inf is FLT_MAX, -0 is +0.
 *   override  token override_token[j] gets the logit override_logit[j], for override_indptr[b] <= j < override_indptr[b+1]; then
 *   allow   tokens whose bit (i % 32 of word i / 32) is 0 get the logit -inf, before everything else.
 *   top-k   enabled when 1 <= k < V (with k_limit > 0: 1 <= k <= min(V, k_limit)); keeps the first k.
 *   softmax of x / temperature over what top-k kept.
 *   top-p   enabled when p < 1; keeps the shortest prefix of the order with mass >= p. p <= 0 acts as k = 1.
 *   min-p   enabled when mp > 0; keeps prob >= mp * largest prob. mp >= 1 keeps one token.
 *   choice  by `noise`; temperature < 1e-5 makes a row greedy. A given_token is not chosen.
 * The stages from top-k on, and more, may come in another order, `stages`: see the operator's page.
 * A draw depends on (seed, offset, stream). Without `stream` it is 0 where seed has an entry for each row ([B] or [B,1]), else
 * the row number: a sequence that changes its row between calls then needs a stream.
 *
 * A per-row tensor has shape [1], [B] or [B,1] and any stride of 0 or more; sy_number_f32 and sy_number_i64 make one
 * of a single number, which may be in CPU memory beside tensors on a device: the call reads it before it returns.
 * masked_logits may be f32 logits themselves (same data and stride).
 */
typedef struct sy_sample_args {
    const DLTensor *logits;      /* in  [B,V]     f32, f16, bf16 */
    const DLTensor *top_k;       /* in  per row   int32, int64; optional: disabled */
    const DLTensor *top_p;       /* in  per row   f32 or the type of logits; optional: disabled */
    const DLTensor *min_p;       /* in  per row   f32 or the type of logits; optional: disabled */
    const DLTensor *temperature; /* in  per row   f32 or the type of logits; optional: 1 */
    const DLTensor *q;           /* in  [B,V]     f32; optional */
    const DLTensor *seed;        /* in  per row   int64, uint64, int32; optional */
    const DLTensor *offset;      /* in  per row   int64, uint64, int32; optional: 0. Step of the sequence */
    const DLTensor *stream;     /* in  per row   32 or 64 bit integer, low 32 bits; optional, default above */
    const DLTensor *allow_bits; /* in  [B,ceil(V/32)], or one row for all  int32, uint32; optional: all */
    const DLTensor *override_indptr; /* in  [B+1]  int64, int32: where each row's overrides begin, the end */
    const DLTensor *override_token;  /* in  [N]    int32, int64: ascending within a row */
    const DLTensor *override_logit;  /* in  [N]    f32; all three or none */
    float eps;                       /* added to |q|; >= 0 */
    sy_noise noise;
    sy_q_order q_order;
    sy_ties ties;
    sy_logprob logprob_mode;
    sy_empty_token empty_token;
    int64_t k_limit;               /* 0: none; else largest k that is enabled */
    bool probs_in;                 /* logits are probabilities, above 1 as 1 in sums: no softmax, fill 0 */
    const DLTensor *token;         /* out [B]    int64 */
    const DLTensor *kept;          /* out [B]    int32: candidates with a logit above -inf */
    const DLTensor *row_flags;     /* out [B]    uint32: SY_ROW_* */
    const DLTensor *masked_logits; /* out [B,V]  f32: the candidates' logits, -inf (probs_in: 0) elsewhere */
    const DLTensor *list_token;    /* out [B,V]  int64: the candidates in list order, 0 after them */
    const DLTensor *list_prob;     /* out [B,V]  f32: their probabilities before top-p and min-p, 0 after */
    const DLTensor *logprob;       /* out [B]    f32: log-probability of token; -inf for an empty row */
    /* A hint of one vendor's API: no result depends on it. */
    int64_t top_k_guess;
    const DLTensor *given_token;       /* in  per row  int32, int64; optional. -1: pick one as usual */
    const DLTensor *score_token;       /* in  [B,S]    int32, int64; optional: tokens to score; -1: none */
    const DLTensor *rank;              /* out [B]      int32: place of token in the order, from 1 */
    const DLTensor *top_token;         /* out [B,M]    int64, int32; 1 <= M <= V, with top_logprob */
    const DLTensor *top_logprob;       /* out [B,M]    f32 */
    const DLTensor *score_logprob;     /* out [B,S]    f32, with score_token */
    int64_t top_logprobs;              /* M; 0: the width of top_token */
    const DLTensor *top_n_sigma;       /* in  per row  f32 or the type of logits; optional: disabled */
    const DLTensor *typical_p;         /* in  per row  f32 or the type of logits; optional: disabled */
    const DLTensor *xtc_probability;   /* in  per row  f32 or the type of logits; optional: disabled */
    const DLTensor *xtc_threshold;     /* in  per row  f32 or the type of logits; optional: .1 */
    const DLTensor *dynatemp_range;    /* in  per row  f32 or the type of logits; optional: disabled */
    const DLTensor *dynatemp_exponent; /* in  per row  f32 or the type of logits; optional: 1 */
    sy_stages stages;
} sy_sample_args;

SY_OPERATOR(sample)

/* ---- sample_verify ---- */

typedef enum sy_verify_mode {
    SY_VERIFY_MATCH = 0, /* a draft is accepted when it is the token that sample picks */
    SY_VERIFY_REJECT = 1 /* reserved for rejection sampling: UNSUPPORTED */
} sy_verify_mode;

/*
 * Verifies draft tokens (speculative decoding), as chains or trees, many requests in one call. B requests have N rows
 * of logits: ragged [N,V], request b having rows cu_lens[b] up to cu_lens[b+1], R of them; or dense [B,R,V]. Row 0 of
 * a request, its root, is the model's output after the last token that is certain. Row r >= 1 is its output after
 * draft_token[r], the continuation of row parent[r], which is in 0..r-1 (without parent r-1: a chain).
 * token[0..count) are those that calls of sample pick step by step, bit for bit, for any drafts: from the root, as long as a
 * row continues the token picked. The next call takes offset + count. A request without rows is inactive: next_token -1. Slots
 * from count on are -1, 0 or -inf. Streams are as in sample.
 */
typedef struct sy_sample_verify_args {
    const DLTensor *logits;      /* in  [N,V] or [B,R,V]  f32, f16, bf16 */
    const DLTensor *cu_lens;     /* in  [B+1]  int32, int64: first row of each request, the end; with [N,V] */
    const DLTensor *draft_token; /* in  [N], [B,R], or [B,R-1] without roots  int32, int64; -1: no draft */
    const DLTensor *parent;      /* in  [N] or [B,R]  int32, int64; optional: the row before it */
    const DLTensor *temperature; /* in  per request  f32 or the type of logits; optional: 1 */
    const DLTensor *top_k;       /* in  per request  int32, int64; optional: disabled */
    const DLTensor *top_p;       /* in  per request  f32 or the type of logits; optional: disabled */
    const DLTensor *min_p;       /* in  per request  f32 or the type of logits; optional: disabled */
    const DLTensor *seed;        /* in  per request  int64, uint64, int32; optional */
    const DLTensor *offset; /* in  per request  int64, uint64, int32; optional: 0. Step of its first token */
    const DLTensor *stream; /* in  per request  32 or 64 bit integer, low 32 bits; optional, default above */
    const DLTensor *allow_bits; /* in  [N,ceil(V/32)], [B,R,..] or one row  int32, uint32; optional: all */
    const DLTensor *override_indptr; /* in  [N+1]  int64, int32: where each row's overrides begin, the end */
    const DLTensor *override_token;  /* in  [K]    int32, int64: ascending within a row */
    const DLTensor *override_logit;  /* in  [K]    f32; all three or none; sample_overrides makes them */
    const DLTensor *stop_token;      /* in  [S]    int32, int64; optional: output ends after such a token */
    const DLTensor *stop_indptr;     /* in  [B+1]  int64, int32; optional: one list for all requests */
    sy_verify_mode mode;
    sy_noise noise; /* AUTO: CDF if seed is given, else NONE; not Q */
    sy_ties ties;
    sy_logprob logprob_mode;
    sy_empty_token empty_token;
    int64_t k_limit;            /* 0: none; else largest k that is enabled */
    int64_t top_logprobs;       /* M; 0: the width of top_token */
    const DLTensor *accepted;   /* out [B]           int32: accepted drafts */
    const DLTensor *count;      /* out [B]           int32: tokens written */
    const DLTensor *token;      /* out [N] or [B,R]  int64: slot i: i-th token of the request */
    const DLTensor *next_token; /* out [B]           int64: the last token written */
    const DLTensor *path; /* out [N] or [B,R]  int32: slot i: the row of the request that token i is from */
    const DLTensor *accept_mask; /* out [N] or [B,R]  bool, uint8: 1 for the root and accepted drafts */
    const DLTensor *row_flags;   /* out [N] or [B,R]  uint32: slot i: SY_ROW_* of the row of token i */
    const DLTensor *logprob;     /* out [N] or [B,R]  f32: slot i: log-probability of token i */
    const DLTensor *rank;        /* out [N] or [B,R]  int32: slot i: place of token i in the order, from 1 */
    const DLTensor *top_token;   /* out [N,M] or [B,R,M]  int64, int32; 1 <= M <= V, with top_logprob */
    const DLTensor *top_logprob; /* out [N,M] or [B,R,M]  f32 */
    const DLTensor *top_n_sigma; /* in  per request  f32 or the type of logits; optional: disabled */
    const DLTensor *typical_p;   /* in  per request  f32 or the type of logits; optional: disabled */
    const DLTensor *xtc_probability;   /* in  per request  f32 or the type of logits; optional: disabled */
    const DLTensor *xtc_threshold;     /* in  per request  f32 or the type of logits; optional: .1 */
    const DLTensor *dynatemp_range;    /* in  per request  f32 or the type of logits; optional: disabled */
    const DLTensor *dynatemp_exponent; /* in  per request  f32 or the type of logits; optional: 1 */
    sy_stages stages;
} sy_sample_verify_args;

SY_OPERATOR(sample_verify)

/* ---- sample_overrides ---- */

typedef enum sy_history_scope {
    SY_HISTORY_ALL = 0,   /* the prompt, then the output */
    SY_HISTORY_OUTPUT = 1 /* the output */
} sy_history_scope;

/*
 * Builds the overrides of sample: penalties for tokens that a sequence already contains, biases and bans. Lists hold
 * row after row: elements [indptr[b], indptr[b+1]) belong to row b, in any order, tokens as often as they occur. For
 * each token of a row's lists, in this order: repetition, frequency and presence penalty, the biases of the token, those of
 * sequences that it would end, and -inf for a stop token while the output is shorter than min_tokens. With bias_first the biases
 * of the token are the first of these.
 * The row's overrides are its tokens whose logit changed, ascending. The query's rows are the most there can be;
 * override_token and override_logit are at least as long, and elements from override_indptr[B] on are not touched.
 * sample takes them under the same names, with the same logits. With draft_token the rows of logits are those of
 * sample_verify, while lists and parameters are of the B requests; row r continues the output of its request with the
 * draft tokens on the way from the root to r.
 */
typedef struct sy_sample_overrides_args {
    const DLTensor *logits;             /* in  [B,V]    f32, f16, bf16 */
    const DLTensor *prompt_indptr;      /* in  [B+1]    int64, int32; optional, with prompt_token */
    const DLTensor *prompt_token;       /* in  [P]      int32, int64 */
    const DLTensor *output_indptr;      /* in  [B+1]    int64, int32; optional, with output_token */
    const DLTensor *output_token;       /* in  [O]      int32, int64 */
    const DLTensor *bias_indptr;        /* in  [B+1]    int64, int32; optional, with the next two */
    const DLTensor *bias_token;         /* in  [N]      int32, int64 */
    const DLTensor *bias;               /* in  [N]      f32 */
    const DLTensor *repetition_penalty; /* in  per row  f32, or as logits; optional: 1, disabled */
    const DLTensor *frequency_penalty;  /* in  per row  f32, or as logits; optional: 0, disabled */
    const DLTensor *presence_penalty;   /* in  per row  f32, or as logits; optional: 0, disabled */
    const DLTensor *override_indptr;    /* out [B+1]    int64 */
    const DLTensor *override_token;     /* out [P+O+N]  int32; may be longer */
    const DLTensor *override_logit;     /* out          f32, as long as override_token */
    const DLTensor *cu_lens;            /* in  [B+1]    int32, int64: rows of draft tokens, with the next */
    const DLTensor *draft_token;        /* in  [N], [B,R] or [B,R-1]  int32, int64; optional; -1: no draft */
    const DLTensor *parent;             /* in  [N] or [B,R]  int32, int64; optional: the row before it */
    const DLTensor *seq_indptr;         /* in  [S+1]    int64, int32; optional, with seq_token: sequences */
    const DLTensor *seq_token;          /* in  [Q]      int32, int64 */
    const DLTensor *seq_row_indptr;     /* in  [B+1]    int64, int32; optional: every row has all sequences */
    const DLTensor *seq_bias;           /* in  [S]      f32; optional: -inf */
    const DLTensor *min_tokens;         /* in  per row  int32, int64; optional, with stop_token and output */
    const DLTensor *stop_token;         /* in  [K]      int32, int64; optional: banned before min_tokens */
    const DLTensor *stop_indptr;        /* in  [B+1]    int64, int32; optional: one list for all rows */
    sy_history_scope history_scope;     /* of sequences */
    int64_t max_rows;                   /* with cu_lens: the most rows of a request, >= 1 */
    bool bias_first;                    /* bias is added before the penalties, not after them */
} sy_sample_overrides_args;

SY_OPERATOR(sample_overrides)

/* ---- sample_noise ---- */

/*
 * The noise that sample makes for SY_NOISE_RACE, as a tensor, to repeat a draw in another program or to inspect it.
 *     q[i] = -ln(1 - (w + 1/2) / 2^32)
 * in f32, w being word i % 4 of Philox4x32-10 under the key seed and the counter (i / 4, offset, stream). As q of
 * sample, with SY_Q_VOCAB and eps 0, it picks the token that SY_NOISE_RACE picks.
 */
typedef struct sy_sample_noise_args {
    uint64_t seed;
    uint64_t offset;   /* step of the sequence */
    uint32_t stream;   /* sample's default is 0, or the row number with one seed for several rows */
    int64_t n;         /* tokens, 0 <= n <= 2^34 - 4 */
    const DLTensor *q; /* out [n]  f32 */
} sy_sample_noise_args;

SY_OPERATOR(sample_noise)

/* ---- Meshes of devices ---- */

/*
 * A mesh of rows x cols devices, D = rows*cols; device d = r*cols + c. On a local comm all devices are in this process and
 * every call names the tensors of all of them. On a comm over a transport (switchyard_mpi.h, switchyard_transport.h) each
 * process is one device and names its own tensors only. A call has the same arguments and the same results in both.
 *
 * Collective calls of one comm (operators, sy_comm_alloc, _free, _reserve, _reject) are made in the same order in all
 * processes. A comm may be used by one thread at a time. What one process rejects, a NULL context or pointer
 * included, is rejected in all of them with the same status and sentence, and so is a call that the others do not
 * make; the comm can be used further. Only a NULL comm is unknown to the others.
 */
typedef struct sy_comm sy_comm;
typedef struct sy_request sy_request;
typedef struct sy_routing sy_routing;

typedef struct sy_mesh {
    int rows, cols;
} sy_mesh;

/* Which devices exchange: all of them, those of one column (axis 0), or those of one row (axis 1). Every such
   group is independent. The position of a device in its group is d, r or c. */
typedef enum sy_axis { SY_AXIS_ALL = 0, SY_AXIS_0 = 1, SY_AXIS_1 = 2 } sy_axis;

typedef enum sy_check {
    SY_CHECK_FULL = 0, /* all processes agree on a call before a row moves: if one rejects it, all do */
    SY_CHECK_NONE = 1  /* they do so in the first call only: a rejection in one leaves the others waiting */
} sy_check;

enum { SY_DEFAULT_TIMEOUT_MS = 600000 };

/* max_inflight, check, chunk_bytes and no_shared are the same in all processes. */
typedef struct sy_comm_options {
    int max_inflight;   /* requests open at a time; 0: 2 */
    int64_t timeout_ms; /* longest wait before a call fails and breaks the comm; 0: the default, ten
                           minutes; negative: no limit */
    sy_check check;     /* no effect on a local comm, which always checks everything */
    size_t chunk_bytes; /* longest message; 0: 1 GiB */
    bool pack;          /* rows are packed before they are sent, not sent from tensor to tensor */
    bool no_shared;     /* rows are sent in messages, even between processes that can share memory */
    void *(*alloc)(void *user, size_t bytes); /* NULL: malloc; memory is aligned by the library */
    void (*dealloc)(void *user, void *ptr);   /* NULL: free; given exactly when alloc is given */
    void *alloc_user;
    char *error; /* where creation writes its own error sentence; may be NULL */
    size_t error_bytes;
} sy_comm_options;

/*
 * A mesh inside this process; `options` may be NULL. On failure *comm is NULL. Returns SY_OK; NULL (comm is NULL, or only
 * one of alloc and dealloc); VALUE (rows or cols below 1, more than 65536 devices, a negative option); NOMEM.
 */
static inline sy_status sy_comm_create_local(sy_comm **comm, sy_mesh mesh, const sy_comm_options *options);

/* Waits for open requests and frees the comm. Collective over a transport. NULL is allowed. Requests and memory of
   the comm are freed with it; routings must be destroyed before. */
SY_API void sy_comm_destroy(sy_comm *comm);

SY_API sy_mesh sy_comm_mesh(const sy_comm *comm);     /* {0, 0} for NULL */
SY_API int sy_comm_shards(const sy_comm *comm);       /* devices in this process: D or 1; 0 for NULL */
SY_API int sy_comm_first_device(const sy_comm *comm); /* the first of them; -1 for NULL */
SY_API const char *sy_comm_transport_name(const sy_comm *comm); /* "local", "mpi", ...; "" for NULL */
SY_API bool sy_comm_shares_memory(const sy_comm *comm);         /* whether rows can pass without messages */
SY_API bool sy_comm_shares_device_memory(const sy_comm *comm);  /* whether those on devices do */

/*
 * Memory for tensors that the other processes can read in place: the input of an exchange in such memory is not copied
 * before it is sent. Memory is shared only when all processes of the mesh are on one machine; otherwise this is ordinary
 * memory. Collective: each process with the size that it needs. 64-byte aligned, contents unspecified. Freeing takes what
 * sy_comm_alloc returned in the same call of all processes; NULL is allowed where all pass it. Both return, the same in all processes, SY_OK; NULL; NOMEM; STATE (a request is open, or data is not such memory);
 * MISMATCH (the processes make different calls or free different memory); COMM; TIMEOUT.
 */
SY_API sy_status sy_comm_alloc(sy_ctx *ctx, sy_comm *comm, size_t bytes, void **data);
SY_API sy_status sy_comm_free(sy_ctx *ctx, sy_comm *comm, void *data);

/* The same on the context's device: the processes of a machine map it by handles of CUDA, whether they use one device
   or several. Where one of them cannot, it is ordinary device memory. Also DEVICE: the context has none. */
SY_API sy_status sy_comm_alloc_device(sy_ctx *ctx, sy_comm *comm, size_t bytes, void **data);

/*
 * Allocates in advance the shared memory through which rows are sent, so that no later call stops to allocate it: `bytes`
 * per open request, of this process. Collective. No effect where no memory is shared. Returns as sy_comm_alloc.
 */
SY_API sy_status sy_comm_reserve(sy_ctx *ctx, sy_comm *comm, size_t bytes);

/*
 * For language bindings whose own conversion of arguments has failed: takes part in the collective call that this
 * process cannot make, and rejects it. All processes return `status`, an error, with this sentence; no rows are sent, and the
 * comm stays usable. Waits for all processes. Returns status, or that of the lowest device that failed as well.
 */
SY_API sy_status sy_comm_reject(sy_ctx *ctx, sy_comm *comm, sy_status status, const char *sentence);

/* Where the tokens of one dispatch were sent: the indices of the group and the hosts of all experts. A dispatch fills it,
   combines take it in place of metadata and mapping. */
SY_API sy_status sy_routing_create(sy_ctx *ctx, sy_comm *comm, sy_routing **routing);
SY_API void sy_routing_destroy(sy_routing *routing);

/* Progress of an operation. ROUTED: metadata, counts and routing are valid, on a local comm and a device for calls of the
   context after it; of a combine: all processes agreed. DONE: everything is; inputs may be written again. */
typedef enum sy_phase { SY_PHASE_ROUTED = 0, SY_PHASE_DONE = 1 } sy_phase;

/*
 * sy_<op>_start begins an operation and returns; its request then reaches the phases above. Until DONE its tensors, its
 * context, its routing and its comm must stay valid, inputs unchanged and outputs unread; the structs may be freed.
 * After TIMEOUT or COMM the tensors must stay valid until the process ends, and those sent in messages unchanged: one may be late.
 * _start fails only where nothing could begin: NULL, STATE (max_inflight requests are open), COMM (the comm is
 * unusable). Every other failure, wrong arguments included, is returned by the waits, with its sentence in the
 * context. Requests may be waited for in any order: every test and wait makes progress on all requests of the comm.
 *
 * _test: *done is set when the phase is reached or the operation has failed. _wait returns then. Both return the
 * operation's status once it is known, SY_OK before. _free waits for DONE and frees; NULL is allowed. On a device a request does
 * not advance while its context's stream is captured: waits, and collective calls on its comm, return STATE and can be repeated.
 */
SY_API sy_status sy_request_test(sy_request *request, sy_phase phase, bool *done);
SY_API sy_status sy_request_wait(sy_request *request, sy_phase phase);
SY_API sy_status sy_request_free(sy_request *request);
/* T, the tokens of a device's group, once the request has reached ROUTED; -1 before, after a failure, or for no device. */
SY_API int64_t sy_request_tokens(const sy_request *request, int device);

/* The tensors of a field, an array of sy_comm_shards(comm): one for each device of this process, the first of them for device
   sy_comm_first_device(comm). Where that is one device, the address of its DLTensor. */
typedef const DLTensor *sy_tensors;

/* ---- all_to_all_dispatch ---- */

enum { SY_A2A_MAX_PLANES = 4 }; /* tensors that are sent together, the rows of `input` included */

/* The order of a group's tokens when they are concatenated along dimension 2 and B > 1. */
typedef enum sy_a2a_order {
    SY_ORDER_CONCAT = 0, /* b, then position, then s: the tensors are concatenated */
    SY_ORDER_FLAT = 1    /* position, then b, then s, whatever the dimension */
} sy_a2a_order;

/* Rows that are not sent. */
typedef enum sy_fill {
    SY_FILL_ZERO = 0, /* are zero bytes */
    SY_FILL_KEEP = 1  /* keep their bytes */
} sy_fill;

/* Which rows a device gets. */
typedef enum sy_a2a_layout {
    SY_LAYOUT_PADDED = 0, /* a row for every token of the group, sent or not */
    SY_LAYOUT_PACKED = 1, /* rows that were sent, by position and token */
    /* A row per token and local expert, by expert, position and token; the rows of each expert are padded with zero rows
       to a multiple of `align`. */
    SY_LAYOUT_EXPERT = 2
} sy_a2a_layout;

/* Hints of one vendor's API. They never change a result. */
typedef enum sy_topology {
    SY_TOPOLOGY_AUTO = 0,
    SY_TOPOLOGY_LINEAR = 1,
    SY_TOPOLOGY_RING = 2,
    SY_TOPOLOGY_MESH = 3,
    SY_TOPOLOGY_TORUS = 4
} sy_topology;
typedef enum sy_memory {
    SY_MEMORY_AUTO = 0,
    SY_MEMORY_DRAM = 1,
    SY_MEMORY_L1 = 2,
    SY_MEMORY_SHARDED = 3 /* rejected: UNSUPPORTED */
} sy_memory;

/* Which hosts of an expert in the group of a token serve its choice. Q: their n positions, ascending; p: the position of
   the token's device; i: its number in the group, by position and n. All rules but ALL name one of them. */
typedef enum sy_a2a_replica {
    SY_A2A_REPLICA_ALL = 0,         /* a token is sent to all of Q; combine reads Q[0] */
    SY_A2A_REPLICA_FIRST = 1,       /* Q[0] */
    SY_A2A_REPLICA_ROUND_ROBIN = 2, /* Q[i mod n] */
    SY_A2A_REPLICA_HASH = 3,        /* Q[(i * 2654435769 mod 2^32) mod n] */
    SY_A2A_REPLICA_BALANCED = 4,    /* Q[(live choices of this expert before this one, by i and k) mod n] */
    SY_A2A_REPLICA_LOCAL = 5        /* p; else number p mod m of the m of Q on its node, else of all of Q */
} sy_a2a_replica;

/*
 * Sends every token to each device of its group that hosts one of its experts, once, and the table of all choices to
 * all of them. A device has N = B*S tokens of H elements and K experts each; a group of G devices has T = G*N tokens;
 * E experts; expert_mapping[e,d] is 1 where device d hosts expert e. Token n = b*S + s of position p is row
 *     tau = p*N + n                      output_concat_dim 1, or SY_ORDER_FLAT
 *     tau = b*(G*S) + p*S + s            output_concat_dim 2
 * of its group. For every device:
 *     metadata[tau,:] = expert_indices of that token, as they are
 *     tokens[tau,:]   = input of that token if this device hosts one of its experts; else see `fill`
 * An index with all bits set (65535, -1) is no expert. L are the experts that a device hosts, in ascending order.
 *
 * The token dimensions [B,1,S] may also be [B,S,1], or [N] alone; in outputs [1,B*G,S] (dimension 1) or [1,B,S*G]
 * (dimension 2) may be [T]. With max_tokens > 0 devices may have different numbers of tokens, in the short shapes. PACKED and
 * EXPERT outputs are [R,H]; the caller chooses R, and rows after the last are not touched. Of several devices with a fault the
 * lowest is reported; all processes return the same.
 */
typedef struct sy_all_to_all_dispatch_args {
    sy_tensors input;               /* in  [B,1,S,H] any type of whole bytes */
    sy_tensors expert_indices;      /* in  [B,1,S,K] uint16, int32, int64 */
    const DLTensor *expert_mapping; /* in  [E,D], [1,1,E,D], [D,1,E,D]; uint16; also in CPU memory */
    sy_tensors planes[SY_A2A_MAX_PLANES - 1]; /* in  [B,1,S,X] sent with each row; any type */
    int num_planes;                           /* number of planes, 0 to 3; with row_format 0 to 2 */
    sy_axis cluster_axis;
    int output_concat_dim; /* 1 or 2; 0: 1 */
    sy_a2a_order order;
    sy_fill fill;
    sy_a2a_layout layout;
    int64_t align;       /* EXPERT: rows of an expert are padded to a multiple; 0: 1 */
    int64_t max_tokens;  /* > 0: token counts may differ */
    bool strict_unique;  /* reject a token that names an expert twice; else it counts once */
    bool reuse_routing;  /* routing is an input; expert_indices, expert_mapping and metadata may be NULL */
    sy_routing *routing; /* out: for combine; optional */
    sy_tensors tokens;   /* out [1,B*G,S,H] or [1,B,S*G,H]; PACKED, EXPERT [R,H]. Type of input */
    sy_tensors metadata; /* out the same with K; type of expert_indices. Optional */
    sy_tensors plane_tokens[SY_A2A_MAX_PLANES - 1]; /* out as tokens, for each plane */
    sy_tensors present; /* out [T] uint8, bool: 1 where a row was sent. Optional; PADDED only */
    sy_tensors src;     /* out [R,2] int32 (position, n) PACKED; [R,3] (position, n, k) EXPERT. Optional */
    sy_tensors expert_counts;  /* out [L] int64: tokens of each local expert. Optional */
    sy_tensors expert_offsets; /* out [L+1] int64: first row of each; EXPERT only. Optional */
    sy_tensors rows_from;      /* out [G] int64: rows received from each position. Optional */
    sy_tensors rows_to;        /* out [G] int64: rows sent to each position. Optional */
    /* Hints of one vendor's API: no result depends on them. */
    int num_links; /* messages for the rows of a pair of devices; 0: as many as they need */
    sy_topology topology;
    sy_memory memory;
    int subdevice_id;                /* 0 */
    sy_a2a_replica replica;          /* which hosts of an expert serve a choice */
    int64_t node_size;               /* LOCAL: positions of a node, a divisor of G; 0: nodes do not matter */
    const sy_row_format *row_format; /* NULL: rows as they are; else codes, see quantize_rows */
    sy_tensors scale_tokens;         /* out as tokens with G: scales of the rows, with row_format */
    int64_t expert_rows; /* EXPERT: rows of each expert; more tokens: CAPACITY. 0: as many as it has */
} sy_all_to_all_dispatch_args;

/* The query runs without communication. rows: those of `tokens`, T or the most that PACKED or EXPERT can need; slots: K. */
SY_MESH_OPERATOR(all_to_all_dispatch)

/* ---- all_to_all_combine ---- */

/*
 * Returns expert rows to the devices of their tokens. Letters as in all_to_all_dispatch; expert_metadata is the
 * group's table as it returned it, t = tau of token n of a device.
 * Choice k of a token is live when its index is an expert that no earlier choice of the token names.
 *     choices      output[k,n,:] = input[l,t,:] of the holder of the choice's expert: the host that `replica` names, or
 *                  without it the lowest position of the group that hosts it; it is local expert l there
 *     local_reduce a holder has one row per token, the sum over the choices it serves. output[k,n,:] = input[0,t,:] of
 *                  each holder, at its live choice of the expert with the lowest number
 *     sum          output[n,:] = the sum over live choices of weights[n,k] * row; with local_reduce that of the holders' rows
 * Other rows: see `fill`. Only the rows named here are read.
 *
 * Short shapes are [L,T,H] for the input, [K,N,H] for the output. layout is that of the input, as dispatch wrote it:
 * EXPERT is for choices, PACKED for local_reduce, or for devices with one expert each. With a routing,
 * expert_metadata, expert_mapping and the fields of the dispatch are left zero or repeat it.
 */
typedef struct sy_all_to_all_combine_args {
    sy_tensors input; /* in  [L,B*G,S,H] or [L,B,S*G,H]; local_reduce [1,...]; PACKED, EXPERT [R,H] */
    sy_tensors expert_metadata; /* in  [1,B*G,S,K] or [1,B,S*G,K], also without the 1; uint16, int32, int64 */
    const DLTensor *expert_mapping; /* in  [E,D], [1,1,E,D], [D,1,E,D]; uint16; also in CPU memory */
    sy_tensors weights; /* in  [B,1,S,K] f32, f16, bf16; with sum, without local_reduce. Optional: ones */
    bool local_reduce;
    bool sum; /* rows are f32, f16 or bf16 */
    sy_axis cluster_axis;
    int output_shard_dim; /* 1 or 2; 0: 1 */
    sy_a2a_order order;
    sy_fill fill;
    sy_a2a_layout layout;
    int64_t align;
    int64_t max_tokens;
    bool strict_unique;
    const sy_routing *routing; /* in: of a dispatch; optional */
    sy_tensors output;         /* out [K,B,S,H] or [K,N,H]; sum: [B,S,H], [B,1,S,H] or [N,H]. Type of input */
    sy_tensors written;        /* out [K,N] uint8, bool: 1 where a row was written. Optional; not with sum */
    int num_links;             /* this and the next three are hints, as in dispatch */
    sy_topology topology;
    sy_memory memory;
    int subdevice_id;       /* 0 */
    sy_a2a_replica replica; /* as in dispatch */
    int64_t node_size;
    const sy_row_format *row_format; /* NULL: rows as they are; else codes, see quantize_rows */
    sy_tensors input_scales;         /* in  as input with G; optional: with row_format */
    sy_tensors output_scales;        /* out as output with G; with row_format, not with sum */
    int64_t expert_rows;
} sy_all_to_all_combine_args;

/* The query: rows are the tokens of the first device of this process; slots: K. */
SY_MESH_OPERATOR(all_to_all_combine)

/* ---- local_reduce ---- */

/*
 * Computes the input of all_to_all_combine with local_reduce on one device: per token the sum over its experts, acc =
 * acc + weights[t,k] * row for ascending live choices whose expert the device hosts and, with `replica`, serves. Letters as in
 * all_to_all_combine; T tokens of the group in order of tau, L experts of the device in ascending order.
 *     PADDED  input [L,T,H], output [T,H]. Tokens that choose none of the device's experts: see `fill`
 *     EXPERT  input [R,H] as dispatch wrote it, output [R,H] with the rows of PACKED; rows after the last are not touched
 * With `replica` the group is all devices, or group_size of them, and output_concat_dim and order are those of the dispatch.
 */
typedef struct sy_local_reduce_args {
    const DLTensor *input;           /* in  [L,Bt,St,H] or [L,T,H]; EXPERT [R,H]. f32, f16, bf16 */
    const DLTensor *expert_metadata; /* in  [1,Bt,St,K] or [T,K]; uint16, int32, int64 */
    const DLTensor *expert_mapping;  /* in  [E,D], [1,1,E,D] or D equal copies [D,1,E,D]; uint16 */
    const DLTensor *weights; /* in  [1,Bt,St,K] or [T,K] f32, f16, bf16, of all tokens. Optional: ones */
    int64_t device;          /* the device whose rows these are */
    sy_fill fill;
    sy_a2a_layout layout;   /* PADDED or EXPERT */
    int64_t align;          /* EXPERT: as in dispatch; 0: 1 */
    int output_concat_dim;  /* as in dispatch; 0: 1, see above. 2 needs metadata of rank 4, unless FLAT */
    sy_a2a_order order;     /* EXPERT, replica: as in dispatch */
    int64_t group_size;     /* G, with output_concat_dim 2 and CONCAT, or replica (0: all) */
    const DLTensor *output; /* out [1,Bt,St,H] or [T,H]; EXPERT [R,H]. Type of input */
    sy_a2a_replica replica; /* as in dispatch: which of the device's experts serve a token */
    int64_t node_size;      /* as in dispatch */
    int64_t group_stride; /* with replica: between devices of a group; 0: 1; a column of the mesh: its cols */
    const sy_row_format *row_format; /* NULL: numbers; else rows are codes, see quantize_rows */
    const DLTensor *input_scales;    /* in  as input with G; optional: with row_format */
    int64_t expert_rows;             /* EXPERT: as in dispatch */
} sy_local_reduce_args;

/* The query: rows are T, the most the output needs. */
SY_OPERATOR(local_reduce)

/* ---- quantize_rows ---- */

/*
 * Rows of numbers as 8-bit codes, with a scale for every `group` neighbours (0: for the row): G = H / group scales. In f32,
 * every operation rounded to nearest even; NaN counts as no magnitude, infinity as FLT_MAX:
 *     a = max(largest magnitude of the group, a_min);   scale of a by scale_math;   y of x by code_math
 *     codes[t,i] = y to nearest even, at most Q in magnitude (int8: -128 to 127); NaN is 7f (e4m3), 7e (e5m2), 0 (int8)
 * sy_row_format_named, which is sy_kv_format_named, fills a format by its name on the page: fp8_128, fp8_128_deepep,
 * fp8_128_deepgemm, fp8_128_ue8m0, mxfp8, mxfp8_floor, int8_token; q8_0 and q4_0, whose codes [...,C] contain the scales;
 * nvfp4 and nvfp4_amax, whose codes are [...,H/2]. A format of the caller sets bytes, q_type (SY_F8_E4M3, SY_F8_E5M2, SY_I8),
 * scale_type, group, a_min, scale_math, code_math.
 *
 * row_format of moe_permute, moe_permute_ids, moe_dispatch and all_to_all_dispatch is such a format: f32, f16 or bf16
 * rows become codes on the way, with the results of quantize_rows, then of the operator on codes and scales; zero rows
 * have zero scales. Of moe_unpermute, local_reduce and all_to_all_combine it is that of the rows that come in: sums
 * add the numbers of dequantize_rows.
 */

/* Where scale g of row t is, of T rows in all; bytes that belong to no scale are 0. R is T rounded up to a multiple of 4. */
typedef enum sy_scale_layout {
    SY_SCALE_ROW = 0,    /* [...,G] */
    SY_SCALE_COL = 1,    /* f32 [G,R,1]: [g,t,0]; e8m0 [ceil(G/4),R,4]: [g/4, t, g%4] */
    SY_SCALE_SWIZZLE = 2 /* e8m0 [ceil(T/128),ceil(G/4),512]: [t/128, g/4, t%32*16 + t/32%4*4 + g%4] */
} sy_scale_layout;

typedef struct sy_quantize_rows_args {
    const DLTensor *input; /* in  [...,H] float32, float16, bfloat16 */
    const sy_row_format *format;
    const DLTensor *codes;  /* out [...,H] q_type or uint8; ggml's blocks [...,C] uint8 */
    const DLTensor *scales; /* out [...,G] or as scale_layout says, scale_type; e8m0, e4m3 also as uint8 */
    sy_scale_layout scale_layout;
    const DLTensor *global_scale; /* in  [1], or [T]: of each row  f32; optional: with nvfp4 */
} sy_quantize_rows_args;

/* The query: rows is T, slots is G. */
SY_OPERATOR(quantize_rows)

/* ---- dequantize_rows ---- */

/*
 * The numbers of quantised rows: f32(code) * scale of its group, rounded to f32, then to the type of out; a NaN is the
 * canonical one. Formats, layouts, errors and the query are those of quantize_rows.
 */
typedef struct sy_dequantize_rows_args {
    const DLTensor *codes;  /* in  [...,H] q_type or uint8; ggml's blocks [...,C] uint8 */
    const DLTensor *scales; /* in  [...,G] or as scale_layout says, scale_type or uint8; optional: ggml */
    const sy_row_format *format;
    const DLTensor *out; /* out [...,H] float32, float16, bfloat16 */
    sy_scale_layout scale_layout;
    const DLTensor *global_scale; /* in  [1], or [T]: of each row  f32; optional: with nvfp4 */
} sy_dequantize_rows_args;

SY_OPERATOR(dequantize_rows)

#undef SY_OPERATOR
#undef SY_MESH_OPERATOR

#ifdef __cplusplus
}
#endif

#include <switchyard_inline.h>

#endif /* SWITCHYARD_H */
