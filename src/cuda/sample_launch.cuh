/*
 * The kernels of sample, by what they are for; sample.cu chooses. Each file has those of one family, and launches them by the type
 * of the logits.
 */
#ifndef SYC_SAMPLE_LAUNCH_CUH
#define SYC_SAMPLE_LAUNCH_CUH

#include "cuda/context.cuh"
#include "cuda/sample_row.cuh"

/* ---- Calls that a family can take --------------------------------------------------------------------------------- */

/* What the quick way can write. */
static inline bool may_be_quick(const struct syi_sample_plan *p)
{
    return p->overrides.indptr == NULL && p->masked.data == NULL && !p->lists &&
           (p->logprob.data == NULL || p->logprob_mode == SY_LOGPROB_FINAL);
}

static inline bool may_be_nucleus(const struct syi_sample_plan *p)
{
    return may_be_quick(p) && p->top_p.rows.data != NULL && !p->args.probs_in;
}

/* Whether no filter acts on any row of a call, and what is wanted of most of them depends on the weights of all tokens. */
static inline bool weighs_rows(const struct syi_sample_plan *p)
{
    return may_be_quick(p) && (p->noise == SY_NOISE_CDF || (p->noise == SY_NOISE_NONE && p->logprob.data != NULL)) && !p->args.probs_in &&
           !syi_sample_filters(p) && p->vocab >= SYC_FEW;
}

/* Whether a call has no masks, flags, min-p or ties that all stay, and its tokens are the first or drawn by weight: there are smaller kernels for it. */
static inline bool is_plain_call(const struct syi_sample_plan *p)
{
    return p->row_flags.data == NULL && p->allow_bits.data == NULL && p->min_p.rows.data == NULL && p->args.ties != SY_TIES_ALL && (p->noise == SY_NOISE_NONE || p->noise == SY_NOISE_CDF);
}

/* Whether log-probabilities beyond that of the token among its candidates, or given tokens, are asked for: sample_logprob.cu. */
static inline bool has_more(const struct syi_sample_plan *p)
{
    return (p->logprob.data != NULL && p->logprob_mode == SY_LOGPROB_RAW) || p->rank.data != NULL || p->n_top > 0 || p->n_score > 0 || p->given_token.rows.data != NULL;
}

/* ---- Launching ------------------------------------------------------------------------------------------------------ */

/* Rows that are looked for before any other is processed. */
enum path { PATH_GENERAL, PATH_QUICK, PATH_NUCLEUS, PATH_TOP_K };

/* Scratch of a block: a row of f32 with overrides, and two lists. */
struct sample_scratch {
    u8 *data;
    size_t of_block, lists; /* bytes; where the lists begin */
    struct syc_parts split;
    u32 *left; /* what the kernel before says of a row: enum quick; NULL: it did not run */
    enum path path;
    struct syc_more more;
};

/* Rows with overrides are read as f32. */
template <class Kernel> static Kernel *syc_sample_kernel(const struct syi_sample_plan *p, Kernel *f32, Kernel *f16, Kernel *bf16)
{
    return p->overrides.indptr != NULL || p->logits.type == SY_TYPE_F32 ? f32 : p->logits.type == SY_TYPE_F16 ? f16 : bf16;
}

/* The kernel of a family for the type of a call. */
#define SYC_SAMPLE_KERNEL(p, name) syc_sample_kernel(p, name<SY_TYPE_F32>, name<SY_TYPE_F16>, name<SY_TYPE_BF16>)

/* 16 bytes of logits. */
static inline int64_t syc_sample_vectors(const struct syi_sample_plan *p) { return p->vocab / (p->logits.type == SY_TYPE_F32 ? 4 : 8); }

/* Blocks for a row that is read by a cluster: as many as keep the device busy, if each has a group to read. */
enum { MOST_CLUSTER = 8 };
static inline u32 syc_sample_parts(const struct syc_device *device, const struct syi_sample_plan *p)
{
    u32 parts = 1;
    while (device->dependent && parts < MOST_CLUSTER && p->batch * parts <= device->processors && syc_sample_vectors(p) > (int64_t)parts * SYC_FEW)
        parts *= 2;
    return parts;
}

/* Of many rows, the second block of each multiprocessor begins about half a row late: then one block reads while the other one finishes its row, instead of both
   reading, then both finishing. */
struct start_late {
    u32 first, n, cycles; /* blocks; n is 0: none */
};
static inline struct start_late late_of(const struct syc_device *device, const struct syi_sample_plan *p, u32 parts)
{
    const u32 n = (u32)device->processors;
    if (parts > 1 || p->batch < 6 * (int64_t)n)
        return {0, 0, 0};
    return {n, n, (u32)(syc_sample_vectors(p) < 1 << 20 ? syc_sample_vectors(p) : 1 << 20)}; /* a cycle for each vector */
}

void syc_sample_greedy(struct syc_call *call, const struct syi_sample_plan *p);
void syc_sample_whole(struct syc_call *call, const struct syi_sample_plan *p, struct syc_more more);
bool syc_sample_whole_knows_more(const struct syi_sample_plan *p);
/* What these leave to syc_sample_general, they say in `left`; top-k leaves nothing where that is NULL. */
template <sy_type T> void syc_sample_top_k(struct syc_call *call, const struct syi_sample_plan *p, const struct sample_scratch *scratch);
template <sy_type T> void syc_sample_nucleus(struct syc_call *call, const struct syi_sample_plan *p, const struct sample_scratch *scratch);
/* Cells, then weights, of rows that many blocks share; nothing where split.parts is 0. */
void syc_sample_cells(struct syc_call *call, const struct syi_sample_plan *p, struct syc_parts split);
void syc_sample_weights(struct syc_call *call, const struct syi_sample_plan *p, struct syc_parts split);
template <sy_type T> void syc_sample_general(struct syc_call *call, const struct syi_sample_plan *p, const struct sample_scratch *scratch, enum syc_start start, int64_t blocks);

/* Picks tokens. Kernels for which syc_sample_knows_more write what else is asked. */
void syc_sample_pick(struct syc_call *call, const struct syi_sample_plan *p, struct syc_more more);
bool syc_sample_knows_more(const struct syc_device *device, const struct syi_sample_plan *p);

/* Where the kernel of log-probabilities finds the tokens, and what its blocks may use. */
struct logprob_scratch {
    const u8 *token; /* [batch] i64: as picked; -1 in an empty row */
    u8 *data;
    size_t of_block, lists; /* bytes; where the lists begin */
};
template <sy_type T> void syc_sample_logprobs(struct syc_call *call, const struct syi_sample_plan *p, const struct logprob_scratch *scratch, int64_t blocks);
size_t syc_sample_more_workspace(const struct syc_device *device, const struct syi_sample_plan *p);
void syc_sample_more(struct syc_call *call, const struct syi_sample_plan *p);

#endif
