/*
 * What all layers share: the context, failing with a sentence, element types, checked sizes, scratch
 * memory and floating-point control. Nothing here knows an operator.
 */
#pragma once

#include <string.h>

#include <switchyard_describe.h>

#include "base/faults.h"
#include "base/floats.h"
#include "base/team.h"

#if defined(__GNUC__)
#define SYI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define SYI_PRINTF(fmt, args)
#endif

#define SYI_ALIGN 64 /* scratch memory is aligned to a cache line */

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "Switchyard needs a little-endian target"
#endif

struct syi_kernels; /* kernels/kernels.h */
struct syc_library; /* cuda/cuda.h */
struct syc_device;

struct sy_ctx {
    const struct syi_kernels *kernels;
    int threads; /* most threads a call may use, >= 1 */
    struct syi_team team;
    long owner_pid; /* the process in which the context was created: a forked child has none of its threads */
    sy_parallel_for_fn parallel_for;
    void *parallel_user;
    void *(*alloc)(void *user, size_t bytes);
    void (*dealloc)(void *user, void *ptr);
    void *alloc_user;
    sy_trace_fn trace;
    void *trace_user;
    void *block;     /* what alloc returned; NULL while the workspace is lent or not made yet */
    void *workspace; /* aligned start of the scratch memory */
    size_t workspace_bytes;
    bool workspace_lent;
    const char *op;                 /* operator of the call in progress, prefix of every sentence */
    int64_t plane;                  /* which further plane its argument belongs to; 0: none */
    int device;                     /* number of the device whose argument it is, plus one; 0: none */
    struct syi_found found;         /* what a backend found in contents */
    const struct syc_library *cuda; /* of a context with a CUDA device; else NULL */
    struct syc_device *cuda_device;
    void *device_workspace; /* lent memory of the device; NULL: none */
    size_t device_workspace_bytes;
    bool synchronous;        /* calls on the device wait for their end */
    char backend_error[160]; /* what a backend could not do, behind the name of the argument */
    sy_fault fault;
    char error[512];
};

/* ---- Failing ---- */

/*
 * Records "<operator>: <argument> <format...>" with the fault and returns fault->status. An unset fault->code
 * is derived from the status.
 */
sy_status syi_fail_at(sy_ctx *ctx, const sy_fault *fault, const char *format, ...) SYI_PRINTF(3, 4);

/* Returns the status of a step that has failed from the function that calls it. */
#define SYI_TRY(step) \
    do { \
        const sy_status step_status = (step); \
        if (step_status != SY_OK) \
            return step_status; \
    } while (0)

/* The same of an argument, not of contents: a value and the limit it broke; or neither. `argument` has static storage. */
sy_status syi_fail_with(sy_ctx *ctx, sy_status status, sy_fault_code code, const char *argument,
                        int64_t value, int64_t limit, const char *format, ...) SYI_PRINTF(7, 8);
sy_status syi_fail(sy_ctx *ctx, sy_status status, const char *argument, const char *format, ...)
    SYI_PRINTF(4, 5);

/* What a backend could not do: its sentence. */
sy_status syi_fail_backend(sy_ctx *ctx, sy_status status, const char *argument);

/* For backends: keeps a fault of contents in the context and returns its status. The sentence is made by the layer that
   called the backend. */
sy_status syi_reject(sy_ctx *ctx, enum syi_bad bad, int64_t batch, int64_t position, int64_t value,
                     int64_t limit);

/* The same of a record, which may be good: then SY_OK. */
static inline sy_status syi_report(sy_ctx *ctx, struct syi_found found)
{
    if (found.bad == SYI_GOOD)
        return SY_OK;
    const sy_status status =
        syi_reject(ctx, (enum syi_bad)found.bad, found.batch, found.position, found.value, found.limit);
    ctx->found = found;
    return status;
}

/* Forgets the last error and names the operator whose sentences follow. */
void syi_clear_fault(sy_ctx *ctx, const char *op);

/* ---- Element types ---- */

/* The types operators tell apart, by type code and bytes; everything else is SY_TYPE_OTHER. A call needs the type of each
   tensor several times, so nothing is searched. */
enum { SYI_TYPE_CODES = 15 };
extern const uint8_t syi_type_table[SYI_TYPE_CODES][9];

static inline sy_type syi_type_of(DLDataType type)
{
    if (type.lanes != 1 || type.code >= SYI_TYPE_CODES || type.bits > 64 || type.bits % 8 != 0)
        return SY_TYPE_OTHER;
    return (sy_type)syi_type_table[type.code][type.bits / 8];
}
void syi_describe_type(DLDataType type, char *text, size_t text_bytes);

/* Bytes of one element, 0 when it is not a whole number of bytes. */
static inline size_t syi_elem_bytes(DLDataType type)
{
    const size_t bits = (size_t)type.bits * type.lanes;
    return bits % 8 == 0 ? bits / 8 : 0;
}

/* The same for the float types operators compute with. */
static inline size_t syi_float_bytes(sy_type type)
{
    return type == SY_TYPE_F32 ? 4 : 2;
}

__extension__ typedef unsigned __int128 syi_u128;

/* ---- Checked sizes ---- */

/* True and the result when it fits, for non-negative operands. */
static inline bool syi_mul(int64_t a, int64_t b, int64_t *result)
{
    return !__builtin_mul_overflow(a, b, result);
}

static inline bool syi_add(int64_t a, int64_t b, int64_t *result)
{
    return !__builtin_add_overflow(a, b, result);
}

/* The next multiple of `step` >= 1, for a non-negative value. */
static inline bool syi_round_up(int64_t value, int64_t step, int64_t *result)
{
    const int64_t rest = value % step;
    return syi_add(value, rest > 0 ? step - rest : 0, result);
}

/* Next multiple of SYI_ALIGN; saturates instead of wrapping. */
static inline size_t syi_align(size_t bytes)
{
    return bytes > SIZE_MAX - SYI_ALIGN ? SIZE_MAX : (bytes + SYI_ALIGN - 1) / SYI_ALIGN * SYI_ALIGN;
}

/* Scratch sizes are added and multiplied saturating: SIZE_MAX can never be allocated, so it ends as NOMEM. */
size_t syi_size_add(size_t a, size_t b);
size_t syi_size_mul(size_t a, size_t b);

/* Where a struct of a caller whose header is newer sets a field that this library, which knows so many bytes, does not; `bytes`: nowhere. */
size_t syi_unknown_field(const void *data, size_t bytes, size_t known);

/* ---- Scratch memory ---- */

/* Makes the scratch of the context at least `bytes` long, when it is its own; NOMEM with a sentence otherwise. */
sy_status syi_workspace_grow(sy_ctx *ctx, size_t bytes);

/* At least `bytes` of scratch in *data. */
static inline sy_status syi_workspace(sy_ctx *ctx, size_t bytes, void **data)
{
    const sy_status st = bytes <= ctx->workspace_bytes ? SY_OK : syi_workspace_grow(ctx, bytes);
    *data = ctx->workspace;
    return st;
}
void syi_workspace_free(sy_ctx *ctx);

/* What a caller has who gives no allocator. */
void *syi_default_alloc(void *user, size_t bytes);
void syi_default_dealloc(void *user, void *ptr);

/*
 * Cuts pieces off the scratch memory of a call, each aligned to SYI_ALIGN. Without a base it only measures:
 * the function that lays out a scratch struct also returns its size.
 */
struct syi_arena {
    unsigned char *base;
    size_t used; /* saturates */
};
void *syi_take(struct syi_arena *arena, size_t bytes);

/* ---- Processor ---- */

/* What the processor can do and the operating system saves. A table lists all bits it needs. */
enum syi_cpu_bit {
    SYI_CPU_NEON = 1,
    SYI_CPU_AVX2 = 2,   /* AVX2, FMA and F16C */
    SYI_CPU_AVX512 = 4, /* AVX-512 F, BW, DQ and VL */
    SYI_CPU_BF16 = 8    /* Arm's BF16, FP16 and FHM */
};
uint32_t syi_cpu_bits(void);

/* ---- Time ---- */

/* Nanoseconds of a clock that only goes forward. */
uint64_t syi_now(void);

/* ---- Floating-point control ---- */

/* Sets round-to-nearest with subnormals kept, and canonical NaNs where the processor can make them; returns what
   was set before, for syi_fp_leave. */
uint64_t syi_fp_enter(void);
void syi_fp_leave(uint64_t saved);
