/*
 * sample on a device: which kernels a call takes. Calls whose rows need one read take a kernel that does all of it, and leave the
 * rows that need more to the general one. For the others many blocks share a row to find the largest key of each of many cells, and
 * to weigh it where that is needed; the general kernel then has a block for each row. Everything that is summed is an integer.
 */
#include "cuda/backend.cuh"
#include "cuda/lists.cuh"
#include "cuda/sample_launch.cuh"

/* What the launches need of scratch, and their blocks. */
struct layout {
    size_t of_block, lists; /* of the kernel with a block for a row */
    int64_t blocks;
    int parts;              /* of a row; 0: the kernels of many blocks are not used */
    size_t left, split;     /* bytes before all others: rows that top_k_rows leaves, results of the kernels of many blocks */
};

/* Whether the first of the order is taken, and no other token counts but in the number of all. */
static bool takes_first(const struct syi_sample_plan *p)
{
    return may_be_quick(p) && p->noise == SY_NOISE_NONE && p->logprob.data == NULL && (p->kept.data == NULL || !syi_sample_filters(p));
}

/* Few rows are read sooner by the kernels of many blocks. */
static enum path path_of(const struct syc_device *device, const struct syi_sample_plan *p)
{
    if (!may_be_quick(p))
        return PATH_GENERAL;
    if (p->top_k.rows.data == NULL)
        return may_be_nucleus(p) ? PATH_NUCLEUS : PATH_QUICK;
    if (!device->dependent && p->batch * 8 <= device->processors && p->vocab >= SYC_FEW)
        return PATH_QUICK; /* there are no clusters */
    return PATH_TOP_K;
}

/* Calls whose rows are read once. */
static bool reads_once(const struct syc_device *device, const struct syi_sample_plan *p)
{
    return takes_first(p) || path_of(device, p) >= PATH_NUCLEUS;
}

/* Parts of a row that keep the device busy. */
static int enough_parts(const struct syc_device *device, const struct syi_sample_plan *p)
{
    int parts = LEAST_PARTS;
    while (parts < MOST_PARTS && p->batch * parts * 2 <= 8 * (int64_t)device->processors)
        parts *= 2;
    return parts;
}

/* Rows with overrides are read by one block, which replaces them; so are short rows, and those of a batch that keeps the
   device busy with a block for each. */
static int parts_of(const struct syc_device *device, const struct syi_sample_plan *p)
{
    if (p->overrides.indptr != NULL || p->vocab < SYC_FEW || p->batch >= device->processors || reads_once(device, p))
        return 0;
    return enough_parts(device, p);
}

static struct layout layout_of(const struct syc_device *device, const struct syi_sample_plan *p, bool sorts)
{
    const size_t vocab = ((size_t)p->vocab + 63) / 64 * 64, enough = (size_t)256 << 20;
    struct layout l = {0, p->overrides.indptr != NULL ? vocab * 4 : 0, 4 * (int64_t)device->processors, parts_of(device, p), ((size_t)p->batch * sizeof(u32) + 63) / 64 * 64, 0};
    if (l.parts > 0)
        l.split = (size_t)p->batch * (SYC_FEW * sizeof(u32) + (size_t)l.parts * 2 * sizeof(u64));
    l.of_block = l.lists + (sorts ? vocab * 16 : 0);
    if (l.of_block > 0 && (size_t)l.blocks > enough / l.of_block)
        l.blocks = (int64_t)(enough / l.of_block);
    l.blocks = l.blocks < p->batch ? l.blocks : p->batch;
    l.blocks = l.blocks > 1 ? l.blocks : p->batch > 0;
    return l;
}

static struct syc_parts split_of(const struct layout *l, int64_t batch, u8 *memory)
{
    if (l->parts == 0)
        return {};
    u64 *const weight = (u64 *)memory;
    return {(u32 *)(weight + 2 * batch * l->parts), weight + batch * l->parts, weight, l->parts};
}

/* Enough for the same call without lists, too, which may have more blocks: a query stands for all outputs. */
size_t syc_sample_workspace(const struct syc_device *device, const union syi_plan *plan)
{
    if (has_more(&plan->sample))
        return syc_sample_more_workspace(device, &plan->sample);
    const struct layout l = layout_of(device, &plan->sample, syi_sample_sorts(&plan->sample)),
                        without = layout_of(device, &plan->sample, false);
    const size_t bytes = (size_t)l.blocks * l.of_block, less = (size_t)without.blocks * without.of_block;
    return l.left + l.split + (bytes > less ? bytes : less);
}

static void check_overrides(struct syc_call *call, const struct syi_sample_plan *p)
{
    struct syc_lists_check<1> check = {};
    check.list[0] = p->overrides;
    check.batch = p->batch;
    check.vocab = p->vocab;
    check.ascending = true;
    check.count();
    syc_check(call, check);
}

bool syc_sample_knows_more(const struct syc_device *device, const struct syi_sample_plan *p)
{
    if (takes_first(p) || syi_sample_sorts(p) || p->n_top > SYC_FEW)
        return false; /* a row may need scratch */
    return weighs_rows(p) ? syc_sample_whole_knows_more(p) : path_of(device, p) >= PATH_NUCLEUS;
}

void syc_sample(struct syc_call *call, const union syi_plan *plan)
{
    if (plan->sample.batch == 0)
        return;
    if (has_more(&plan->sample))
        syc_sample_more(call, &plan->sample);
    else
        syc_sample_pick(call, &plan->sample, {});
}

void syc_sample_pick(struct syc_call *call, const struct syi_sample_plan *p, struct syc_more more)
{
    if (p->overrides.indptr != NULL)
        check_overrides(call, p);
    if (takes_first(p)) {
        syc_sample_greedy(call, p);
        return;
    }
    if (weighs_rows(p)) {
        syc_sample_whole(call, p, more);
        return;
    }
    const struct layout l = layout_of(call->device, p, syi_sample_sorts(p));
    const enum path path = path_of(call->device, p);
    const bool top_k = path == PATH_TOP_K, once = top_k || path == PATH_NUCLEUS;
    u32 *const left = once && syi_sample_sorts(p) ? (u32 *)call->scratch : NULL;
    u8 *const memory = call->scratch + l.left;
    const struct sample_scratch scratch = {memory + l.split, l.of_block, l.lists, split_of(&l, p->batch, memory), left, path, more};
    syc_sample_cells(call, p, scratch.split);
    if (syi_sample_sums_all(p))
        syc_sample_weights(call, p, scratch.split);
    if (path == PATH_NUCLEUS)
        SYC_SAMPLE_KERNEL(p, syc_sample_nucleus)(call, p, &scratch);
    if (top_k)
        SYC_SAMPLE_KERNEL(p, syc_sample_top_k)(call, p, &scratch);
    if (once && left == NULL)
        return;
    const bool first = l.parts == 0 && left == NULL && p->overrides.indptr == NULL;
    const int64_t at_once = 2 * (int64_t)call->device->processors, rows = left != NULL && l.blocks > at_once ? at_once : l.blocks;
    SYC_SAMPLE_KERNEL(p, syc_sample_general)(call, p, &scratch, first ? SYC_AFTER : SYC_EARLY, rows);
}
