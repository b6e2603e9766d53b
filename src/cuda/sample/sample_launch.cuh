/*
 * The kernels of sample, by what they are for; the list in sample.cu chooses. Each file has those of one
 * family, and launches them by the type of the logits.
 */
#pragma once

#include "cuda/runtime/choice.cuh"
#include "cuda/sample/sample_policy.cuh"
#include "cuda/sample/sample_row.cuh"

/* ---- Calls ---- */

/* What the list of implementations in sample.cu is asked about. */
struct sample_job {
    const syi_sample_plan *p;
    syc_more more;
};

/* Whether a call has no masks, overrides, flags, min-p or ties that all stay, and its tokens are the first or
   drawn by weight: there are smaller kernels for it. */
static inline bool is_plain_call(const syi_sample_plan *p)
{
    return p->row_flags.data == NULL && p->allow_bits.data == NULL && p->min_p.rows.data == NULL &&
           p->overrides.indptr == NULL && p->args.ties != SY_TIES_ALL &&
           (p->noise == SY_NOISE_NONE || p->noise == SY_NOISE_CDF);
}

/* Log-probabilities beyond that of the token among its candidates, or given tokens: sample_logprob.cu. */
static inline bool syc_sample_asks_more(const syi_sample_plan *p)
{
    return (p->logprob.data != NULL && p->logprob_mode == SY_LOGPROB_RAW) || p->rank.data != NULL ||
           p->n_top > 0 || p->n_score > 0 || p->given_token.rows.data != NULL;
}

/* ---- Launching ---- */

/* Scratch of a block: a row of f32 with overrides, and two lists. */
struct sample_scratch {
    u8 *data;
    size_t of_block, lists; /* bytes; where the lists begin */
    syc_parts split;
    u32 *left;   /* what the kernel before says of a row: enum outcome; NULL: it did not run */
    bool listed; /* a row's candidates are kept on the processor first, if they can be */
    syc_more more;
};

static inline size_t syc_in_lines(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Blocks of the general steps, as many as scratch is for. */
struct sample_blocks {
    int64_t n;
    size_t lists, bytes; /* of one: where its lists begin, all */
};

static inline sample_blocks syc_sample_blocks(const syi_sample_plan *p, bool sorts, int64_t most)
{
    const size_t vocab = ((size_t)p->vocab + 63) / 64 * 64, enough = (size_t)sample_policy::SCRATCH_MIB << 20;
    sample_blocks l = {most, p->overrides.indptr != NULL ? vocab * 4 : 0, 0};
    l.bytes = l.lists + (sorts ? vocab * 16 : 0);
    if (l.bytes > 0 && (size_t)l.n > enough / l.bytes)
        l.n = (int64_t)(enough / l.bytes);
    l.n = l.n < p->batch ? l.n : p->batch;
    l.n = l.n > 1 ? l.n : p->batch > 0;
    return l;
}

template <class Kernel>
static Kernel *syc_sample_kernel(const syi_sample_plan *p, Kernel *f32, Kernel *f16, Kernel *bf16)
{
    return p->logits.type == SY_TYPE_F32 ? f32 : p->logits.type == SY_TYPE_F16 ? f16 : bf16;
}

/* The kernel of a family for the type of a call. */
#define SYC_SAMPLE_KERNEL(p, name) \
    syc_sample_kernel(p, name<SY_TYPE_F32>, name<SY_TYPE_F16>, name<SY_TYPE_BF16>)

/* The same where rows with overrides are read as f32. */
#define SYC_SAMPLE_STAGED(p, name) \
    ((p)->overrides.indptr != NULL ? name<SY_TYPE_F32> : SYC_SAMPLE_KERNEL(p, name))

/* 16 bytes of logits. */
static inline int64_t syc_sample_vectors(const syi_sample_plan *p)
{
    return p->vocab / (p->logits.type == SY_TYPE_F32 ? 4 : 8);
}

/* Bytes of shared memory for a mask of a row: of tokens that are allowed and have no override. Of a
   vector that is not all in the row, bits after its end are read, too. */
static inline size_t syc_sample_mask_bytes(const syi_sample_plan *p)
{
    return p->allow_bits.data == NULL && p->overrides.indptr == NULL ? 0 : (size_t)(p->vocab + 63) / 32 * 4;
}

/* Blocks for a row that is read by a cluster: as many as keep the device busy, if each has a group to read.
 */
static inline u32 syc_sample_parts(const syc_device *device, const syi_sample_plan *p)
{
    u32 parts = 1;
    while (device->dependent && parts < sample_policy::CLUSTER && p->batch * parts <= device->processors &&
           syc_sample_vectors(p) > (int64_t)parts * SYC_TILES)
        parts *= 2;
    return parts;
}

/* The same where blocks beyond the first have less to do: all are on processors of their own, and have
 * `vectors` each. */
static inline u32 syc_sample_cluster(const syc_device *device, const syi_sample_plan *p, u32 most,
                                     int64_t vectors)
{
    u32 blocks = 1;
    while (device->dependent && blocks < most && p->batch * blocks * 2 <= device->processors &&
           vectors >= (int64_t)blocks * 2 * SYC_TILES)
        blocks *= 2;
    return blocks;
}

/* Of many rows, the second block of each processor begins about half a row late: then one block reads while
   the other one finishes its row, instead of both reading, then both finishing. */
struct start_late {
    u32 first, n, cycles; /* blocks; n is 0: none */
};
static inline start_late late_of(const syc_device *device, const syi_sample_plan *p, u32 parts)
{
    const int64_t n = device->processors, vectors = syc_sample_vectors(p), most = sample_policy::LATE_CYCLES;
    if (parts > 1 || p->batch < sample_policy::LATE_ROWS * n)
        return {0, 0, 0};
    return {(u32)n, (u32)n, (u32)(vectors < most ? vectors : most)}; /* a cycle for each vector */
}

/* The implementations, in the order of the list. */
void syc_sample_greedy(syc_call *call, const sample_job *job);
void syc_sample_whole_wide(syc_call *call, const sample_job *job);
void syc_sample_whole_held(syc_call *call, const sample_job *job);
void syc_sample_whole(syc_call *call, const sample_job *job);
bool syc_sample_whole_knows_more(const syi_sample_plan *p);
int syc_sample_wide_clusters(const syc_device *device);
size_t syc_sample_held_bytes(void);
/* What these leave to syc_sample_general, they say in `left`; top-k leaves nothing where that is NULL. */
template <sy_type T>
void syc_sample_nucleus(syc_call *call, const syi_sample_plan *p, const sample_scratch *scratch);
template <sy_type T, bool few>
void syc_sample_top_k(syc_call *call, const syi_sample_plan *p, const sample_scratch *scratch);
/* Tile maxima, then weights, of rows that many blocks share. */
void syc_sample_tiles(syc_call *call, const syi_sample_plan *p, syc_parts split);
void syc_sample_weights(syc_call *call, const syi_sample_plan *p, syc_parts split);
template <sy_type T>
void syc_sample_general(syc_call *call, const syi_sample_plan *p, const sample_scratch *scratch,
                        enum syc_start start, int64_t blocks);

/* Picks tokens. Kernels for which syc_sample_knows_more write what else is asked. */
void syc_sample_pick(syc_call *call, sample_job job);
bool syc_sample_knows_more(const syc_device *device, const syi_sample_plan *p);

/* Where the kernel of log-probabilities finds the tokens, and what its blocks may use. */
struct logprob_scratch {
    const u8 *token; /* [batch] i64: as picked; -1 in an empty row */
    u8 *data;
    size_t of_block, lists; /* bytes; where the lists begin */
};
template <sy_type T>
void syc_sample_logprobs(syc_call *call, const syi_sample_plan *p, const logprob_scratch *scratch,
                         int64_t blocks);
/* The job that picks tokens of a call that asks for more; its plan goes to `picks`. */
sample_job syc_sample_picks(const syc_device *device, const syi_sample_plan *p, syi_sample_plan *picks);
size_t syc_sample_more_workspace(const syc_device *device, const syi_sample_plan *p);
void syc_sample_more(syc_call *call, const syi_sample_plan *p);

/* Calls with stages (sample_stages.cu). */
size_t syc_sample_stages_workspace(const syc_device *device, const syi_sample_plan *p);
void syc_sample_stages(syc_call *call, const syi_sample_plan *p);

/* Contents that may be wrong: tokens that the caller names, then overrides. */
void syc_sample_check_named(syc_call *call, const syi_sample_plan *p);
void syc_sample_check_overrides(syc_call *call, const syi_sample_plan *p);
