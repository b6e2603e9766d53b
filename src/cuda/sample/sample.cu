/*
 * sample on a device.
 *
 * A row of logits is read as vectors of 16 bytes: 4 tokens of f32, 8 of f16 or bf16. Tokens before the first
 * and after the last aligned vector are in none; each is read by one thread, every time.
 *
 *     vector     0    1    2  ...  2047   2048  2049  ...          n - 1
 *             |----|----|----|...|----|  |----|----|...           |----|
 *     tile       0    1    2  ...  2047      0     1  ...   (n - 1) mod 2048
 *
 * Vector v is in TILE v mod 2048, so each tile has tokens from all over the row. A block of 512 threads has a
 * row: thread t reads tiles t, t + 512, t + 1024 and t + 1536, a vector of each at a time (a GROUP), and
 * keeps the largest key of each, the TILE MAXIMUM, in registers. A KEY is a logit as an integer that grows
 * with it. All filters keep a prefix of one order: larger key first, then lower token.
 *
 * A THRESHOLD is a key that the wanted tokens reach. If k tile maxima reach it, k tokens do for certain. What
 * reaches it can only be in a CANDIDATE TILE, whose maximum does: a few of each hundred, which are read
 * again, from the cache. Their tokens are LISTED in shared memory, and from there on all threads work on the
 * list: each token is compared with all others, which gives its place in the order and what weighs before it.
 * Every sum is an integer, so no result depends on who adds it.
 *
 *     keys of a row     .  . :  .   | .   .  :  .  . | . .  .   .   one read
 *     tile maxima       -----*------*-----*----------*------*----   registers
 *     threshold         - - - - - - | - - - - - - - -| - - - - -    k maxima reach it
 *     candidate tiles               x                x              read again
 *     list                        a b c            d   e            shared memory: order, weights, draw
 *
 * A call with masks or overrides has a bit for each token of a row in shared memory: it is allowed, and not
 * overridden. Others count as -inf wherever a row is read; the overrides of a row are looked at with its
 * tokens that are in no vector. Of tokens equal to a threshold, where they are many, the first k are listed.
 *
 * Implementations, in the order of the list below, and what each reads:
 *
 *   greedy     the row once; the first of the order.
 *   whole      the row twice: its largest key, then, from its end on, weights by SEGMENTS, one for each warp;
 *              then the segment in which the draw falls. whole_wide: 16 small blocks for a row; whole_held: a
 *              part of the row stays in shared memory between the reads.
 *   nucleus    the row once: each tile is weighed roughly, with a bound of the error (sample_rough.cuh).
 *              Candidate tiles are read again and weighed exactly, and the row is decided if both bounds lead
 *              to the same tokens. A WIDE nucleus is read once more: its EDGE is between two values that a
 *              sample gave, and the tokens between them are listed.
 *   top_k_few  the row once, whole. k of 256 or less: the threshold from all tile maxima, then candidate
 *              tiles. Larger k: a threshold that is guessed from a first group, or, where a block holds its
 *              part in registers, from all of it.
 *   top_k      the row once. k of 256 or less: the threshold from the first half, candidate tiles of that
 *              half, and the vectors of the other half that reach it, while they are read. Larger k: guessed.
 *   listed     the row once for tile maxima, then candidate tiles, for calls without a kernel above;
 *              listed_parts: many blocks find the maxima of a row.
 *   any        the general steps: candidates in shared memory while they are few, else a cut by histograms of
 *              keys, which reads the row again for each; any_parts: many blocks find the maxima of a row.
 *
 * Rows that an implementation cannot decide (ties by the thousand, a guess that failed) take the general
 * steps in the same kernel, or in one after it where these need lists in scratch memory. Few rows have a
 * CLUSTER of blocks each: every block reads its share, and sends its threshold, then its list, to the first.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/prim/lists.cuh"
#include "cuda/sample/sample_launch.cuh"

/* ---- Why not ---- */

/* Implementations that keep a row's candidates on the processor, and its mask, in which overridden tokens are
   not. */
static const char *once_why_not(const struct syc_device *device, const struct sample_job *job)
{
    const struct syi_sample_plan *const p = job->p;
    if (syc_sample_mask_bytes(p) + sample_policy::MASK_BESIDE > (size_t)device->shared_bytes)
        return "masks of rows are larger than shared memory";
    if (p->masked.data != NULL)
        return "masked logits are asked: every token is written";
    if (p->lists)
        return "lists of candidates are asked";
    if (p->logprob.data != NULL && p->logprob_mode != SY_LOGPROB_FINAL)
        return "a log-probability of the input is asked";
    return NULL;
}

/* The same where a row is read as it is in memory. */
static const char *listed_why_not(const struct syc_device *device, const struct sample_job *job)
{
    return job->p->overrides.indptr != NULL ? "logits are overridden: the row is changed before it is read"
                                            : once_why_not(device, job);
}

static const char *greedy_why_not(const struct syc_device *device, const struct sample_job *job)
{
    const struct syi_sample_plan *const p = job->p;
    if (p->noise != SY_NOISE_NONE)
        return "tokens are drawn";
    if (p->logprob.data != NULL)
        return "a log-probability is asked: tokens are weighed";
    if (p->kept.data != NULL && syi_sample_filters(p))
        return "the number of tokens that filters leave is asked";
    return once_why_not(device, job);
}

static const char *whole_why_not(const struct syc_device *device, const struct sample_job *job)
{
    const struct syi_sample_plan *const p = job->p;
    if (syi_sample_filters(p))
        return "rows may have filters";
    if (p->args.probs_in)
        return "the input has probabilities";
    if (p->noise != SY_NOISE_CDF && (p->noise != SY_NOISE_NONE || p->logprob.data == NULL))
        return "tokens are not drawn by their weights";
    if (p->vocab < SYC_TILES)
        return "rows are short";
    return listed_why_not(device, job);
}

static const char *whole_wide_why_not(const struct syc_device *device, const struct sample_job *job)
{
    const int64_t batch = job->p->batch;
    const char *const why_not = whole_why_not(device, job);
    if (why_not != NULL)
        return why_not;
    if (job->more.asked)
        return "more than a token and its log-probability is asked";
    if (syc_sample_parts(device, job->p) != sample_policy::CLUSTER ||
        batch * sample_policy::WHOLE_WIDE_CLUSTER > device->processors)
        return "rows are too many, or too short, for a cluster of 16 blocks each";
    return batch > syc_sample_wide_clusters(device) ? "the device does not run so many clusters of 16 blocks"
                                                    : NULL;
}

/* Rows that are nearly as many as blocks run at once: all of them would be read, then all weighed. Clusters
   of two blocks have half of them in work, so that some rows are read while others are weighed. */
static const char *whole_held_why_not(const struct syc_device *device, const struct sample_job *job)
{
    const struct syi_sample_plan *const p = job->p;
    const int64_t at_once = 2 * (int64_t)device->processors;
    const char *const why_not = whole_why_not(device, job);
    if (why_not != NULL)
        return why_not;
    if (job->more.asked)
        return "more than a token and its log-probability is asked";
    if (!device->dependent || device->shared_bytes < (int)syc_sample_held_bytes())
        return "the device has no clusters, or too little shared memory";
    if (p->logits.type != SY_TYPE_F32 || syc_sample_vectors(p) < sample_policy::WHOLE_HELD_VECTORS)
        return "rows are not of f32, or are shorter than 256 KiB";
    return p->batch * 4 <= at_once * 3 || p->batch > at_once
               ? "rows are fewer than three quarters of the blocks that run at once, or more than these"
               : NULL;
}

static const char *nucleus_why_not(const struct syc_device *device, const struct sample_job *job)
{
    const struct syi_sample_plan *const p = job->p;
    if (p->top_k.rows.data != NULL)
        return "rows may have top-k";
    if (p->top_p.rows.data == NULL)
        return "rows have no top-p";
    if (p->args.probs_in)
        return "the input has probabilities";
    return once_why_not(device, job);
}

static const char *top_k_why_not(const struct syc_device *device, const struct sample_job *job)
{
    const struct syi_sample_plan *const p = job->p;
    if (p->top_k.rows.data == NULL &&
        (p->min_p.rows.data == NULL || p->top_p.rows.data != NULL || p->args.probs_in))
        return "rows have no top-k, or min-p alone";
    if (!device->dependent && p->batch * sample_policy::FEW_ROWS <= device->processors &&
        p->vocab >= SYC_TILES)
        return "the device has no clusters, and rows are few";
    return once_why_not(device, job);
}

static const char *top_k_few_why_not(const struct syc_device *device, const struct sample_job *job)
{
    const char *const why_not = top_k_why_not(device, job);
    if (why_not != NULL)
        return why_not;
    if (job->more.asked)
        return "more than a token and its log-probability is asked";
    return job->p->batch > device->processors ? "there are more rows than processors" : NULL;
}

/* Many blocks share a row to find its tile maxima. */
static const char *parts_why_not(const struct syc_device *device, const struct sample_job *job)
{
    const struct syi_sample_plan *const p = job->p;
    if (p->overrides.indptr != NULL)
        return "logits are overridden: one block has the row as it is then";
    if (p->vocab < SYC_TILES)
        return "rows are short";
    return p->batch >= device->processors ? "there is a row for every processor" : NULL;
}

static const char *listed_parts_why_not(const struct syc_device *device, const struct sample_job *job)
{
    const char *const why_not = listed_why_not(device, job);
    return why_not != NULL ? why_not : parts_why_not(device, job);
}

/* ---- Launching ---- */

/* What the general steps need of scratch, and their blocks. */
struct layout {
    size_t of_block, lists; /* bytes; where the lists begin */
    int64_t blocks;
    size_t left; /* bytes before all others: rows that a kernel before leaves */
};

static struct layout layout_of(const struct syc_device *device, const struct syi_sample_plan *p, bool sorts)
{
    const struct sample_blocks own =
        syc_sample_blocks(p, sorts, sample_policy::GENERAL_BLOCKS * (int64_t)device->processors);
    return {own.bytes, own.lists, own.n, syc_in_lines((size_t)p->batch * sizeof(u32))};
}

/* Parts of a row that keep the device busy. */
static int enough_parts(const struct syc_device *device, const struct syi_sample_plan *p)
{
    int parts = LEAST_PARTS;
    while (parts < (int)sample_policy::MOST_PARTS &&
           p->batch * parts * 2 <= sample_policy::PART_BLOCKS * (int64_t)device->processors)
        parts *= 2;
    return parts;
}

static size_t parts_bytes(const struct syc_device *device, const struct syi_sample_plan *p)
{
    return (size_t)p->batch * (SYC_TILES * sizeof(u32) + (size_t)enough_parts(device, p) * 2 * sizeof(u64));
}

static struct syc_parts parts_in(const struct syc_device *device, const struct syi_sample_plan *p, u8 *memory)
{
    const int n = enough_parts(device, p);
    u64 *const weight = (u64 *)memory;
    return {(u32 *)(weight + 2 * p->batch * n), weight + p->batch * n, weight, n};
}

/* The general steps, for the rows of a call that read_once leaves (scratch.left), or for all. */
static void launch_general(struct syc_call *call, const struct syi_sample_plan *p,
                           const struct sample_scratch *scratch, int64_t blocks)
{
    const bool first = scratch->split.parts == 0 && scratch->left == NULL && p->overrides.indptr == NULL;
    SYC_SAMPLE_STAGED(p, syc_sample_general)(call, p, scratch, first ? SYC_AFTER : SYC_EARLY, blocks);
}

/* Kernels that read each row once; where a row may need scratch memory, the general steps have what
   they leave. */
template <void (*kernel)(struct syc_call *, const struct syi_sample_plan *, const struct sample_scratch *)>
static void launch_once(struct syc_call *call, const struct sample_job *job)
{
    const struct syi_sample_plan *const p = job->p;
    const bool leaves = syi_sample_sorts(p) || p->overrides.indptr != NULL;
    const struct layout l = layout_of(call->device, p, syi_sample_sorts(p));
    u32 *const left = leaves ? (u32 *)call->scratch : NULL;
    const struct sample_scratch scratch = {
        call->scratch + l.left, l.of_block, l.lists, {}, left, true, job->more};
    const int64_t at_once = sample_policy::LEFT_BLOCKS * (int64_t)call->device->processors;
    if (p->overrides.indptr != NULL)
        syc_only_report(call); /* these kernels look for faults that are reported */
    kernel(call, p, &scratch);
    if (left != NULL)
        launch_general(call, p, &scratch, l.blocks < at_once ? l.blocks : at_once);
}

/* All rows by the general steps; `listed`: after those that keep a row's candidates on the processor, where
   they do. */
template <bool listed, bool in_parts>
static void launch_rows(struct syc_call *call, const struct sample_job *job)
{
    const struct syi_sample_plan *const p = job->p;
    const struct layout l = layout_of(call->device, p, syi_sample_sorts(p));
    u8 *const memory = call->scratch + l.left;
    const size_t split = in_parts ? parts_bytes(call->device, p) : 0;
    struct sample_scratch scratch = {memory + split, l.of_block, l.lists, {}, NULL, listed, job->more};
    if (in_parts) {
        scratch.split = parts_in(call->device, p, memory);
        syc_sample_tiles(call, p, scratch.split);
        if (syi_sample_sums_all(p))
            syc_sample_weights(call, p, scratch.split);
    }
    launch_general(call, p, &scratch, l.blocks);
}

static void launch_nucleus(struct syc_call *call, const struct syi_sample_plan *p,
                           const struct sample_scratch *scratch)
{
    SYC_SAMPLE_KERNEL(p, syc_sample_nucleus)(call, p, scratch);
}

template <bool few>
static void launch_top_k(struct syc_call *call, const struct syi_sample_plan *p,
                         const struct sample_scratch *scratch)
{
    const auto kernel =
        syc_sample_kernel(p, syc_sample_top_k<SY_TYPE_F32, few>, syc_sample_top_k<SY_TYPE_F16, few>,
                          syc_sample_top_k<SY_TYPE_BF16, few>);
    kernel(call, p, scratch);
}

/* Bytes before the scratch of blocks. */
static size_t left_bytes(const struct syc_device *device, const struct sample_job *job)
{
    return layout_of(device, job->p, false).left;
}

static size_t rows_bytes(const struct syc_device *device, const struct sample_job *job)
{
    return left_bytes(device, job) + parts_bytes(device, job->p);
}

static const struct syc_implementation<struct sample_job> implementations[] = {
    {"greedy", greedy_why_not, left_bytes, syc_sample_greedy},
        {"whole_wide", whole_wide_why_not, left_bytes, syc_sample_whole_wide},
        {"whole_held", whole_held_why_not, left_bytes, syc_sample_whole_held},
        {"whole", whole_why_not, left_bytes, syc_sample_whole},
        {"nucleus", nucleus_why_not, left_bytes, launch_once<launch_nucleus>},
        {"top_k_few", top_k_few_why_not, left_bytes, launch_once<launch_top_k<true>>},
        {"top_k", top_k_why_not, left_bytes, launch_once<launch_top_k<false>>},
        {"listed_parts", listed_parts_why_not, rows_bytes, launch_rows<true, true>},
        {"listed", listed_why_not, left_bytes, launch_rows<true, false>},
        {"any_parts", parts_why_not, rows_bytes, launch_rows<false, true>},
        {"any", NULL, left_bytes, launch_rows<false, false>},
};

/* ---- The call ---- */

/* A query stands for calls with fewer outputs, which may be made by others of the list, and for one without
   lists, which may have more blocks. */
size_t syc_sample_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    const struct sample_job job = {&plan->sample, {}};
    if (job.p->staged)
        return syc_sample_stages_workspace(device, job.p);
    if (syc_sample_asks_more(job.p))
        return syc_sample_more_workspace(device, job.p);
    const struct layout l = layout_of(device, job.p, syi_sample_sorts(job.p)),
                        without = layout_of(device, job.p, false);
    const size_t bytes = (size_t)l.blocks * l.of_block, less = (size_t)without.blocks * without.of_block;
    return syc_choose(implementations, device, &job)->scratch(device, &job) + (bytes > less ? bytes : less);
}

void syc_sample_check_overrides(struct syc_call *call, const struct syi_sample_plan *p)
{
    struct syc_lists_check<1> check = {};
    check.list[0] = p->overrides;
    check.batch = p->batch;
    check.vocab = p->vocab;
    check.ascending = true;
    check.count();
    syc_check(call, check);
}

/* Those that read a row once and find its first tokens. */
bool syc_sample_knows_more(const struct syc_device *device, const struct syi_sample_plan *p)
{
    const struct sample_job job = {p, {true, NULL, NULL, 0}};
    if (syi_sample_sorts(p) || p->overrides.indptr != NULL || p->n_top > SYC_TILES)
        return false; /* a row may need scratch */
    const auto launch = syc_choose(implementations, device, &job)->launch;
    if (launch == syc_sample_whole)
        return syc_sample_whole_knows_more(p);
    return launch == launch_once<launch_nucleus> || launch == launch_once<launch_top_k<false>>;
}

void syc_sample(struct syc_call *call, const union syi_plan *plan)
{
    if (plan->sample.batch == 0)
        return;
    if (plan->sample.staged)
        syc_sample_stages(call, &plan->sample);
    else if (syc_sample_asks_more(&plan->sample))
        syc_sample_more(call, &plan->sample);
    else
        syc_sample_pick(call, {&plan->sample, {}});
}

void syc_sample_pick(struct syc_call *call, struct sample_job job)
{
    if (job.p->overrides.indptr != NULL)
        syc_sample_check_overrides(call, job.p);
    syc_choose(implementations, call->device, &job, call)->launch(call, &job);
}
