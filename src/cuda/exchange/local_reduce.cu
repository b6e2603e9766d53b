/*
 * local_reduce on a device. A first kernel validates and, in the layout of experts, counts the live slots of
 * chunks of tokens; a second one lists the rows of every sum, with their weights, by the counts of the chunks
 * before. For many tokens or experts slots are ranked by kernels of rank.cuh instead. Then the rows are added
 * up, slots ascending, by threads that load them or from a ring of bulk loads.
 */
#include "cuda/runtime/backend.cuh"
#include "cuda/exchange/local_reduce_lists.cuh"
#include "cuda/exchange/local_reduce_served.cuh"
#include "cuda/exchange/local_reduce_sums.cuh"

/* Whether blocks have room for what they know of all experts, and of all chunks. */
static bool is_small(const syi_local_reduce_plan *p)
{
    return p->n_experts < MOST_EXPERTS && p->n_slots <= MOST_SLOTS &&
           p->n_tokens <= INT32_MAX / (MOST_SLOTS + 1) &&
           (p->args.layout == SY_LAYOUT_PADDED || p->n_tokens <= CHUNK * MOST_CHUNKS);
}

static reduce lay_out(const syi_local_reduce_plan *p, syc_scratch *scratch)
{
    const int64_t n = p->n_tokens * (p->n_slots + 1);
    const u64 index_bytes = p->metadata.type == SY_TYPE_I64 ? 8 : p->metadata.type == SY_TYPE_I32 ? 4 : 2;
    reduce job = {};
    job.p = *p;
    job.interleave = syc_split_by(p->interleave, p->n_tokens);
    job.per_position = syc_split_by(p->n_tokens / p->n_positions, p->n_tokens);
    job.align = syc_split_by(p->align, p->n_tokens + p->align);
    job.each = syc_split_by(p->n_slots + 1, n);
    job.slots = syc_divisor_of(p->n_slots > 0 && p->n_slots <= MOST_SLOTS ? (u32)p->n_slots : 1);
    job.aligned = syc_alignment(p->metadata) % index_bytes == 0 && syc_alignment(p->mapping) % 2 == 0;
    job.n_sums = scratch->take<u32>(1);
    job.taken = scratch->take<u64>(1);
    job.n = scratch->take<u32>(p->n_tokens);
    job.apart = (p->n_slots + 1) / 2 * 2;
    job.entry = scratch->take<struct entry>(p->n_tokens * job.apart);
    if (is_small(p) && p->args.layout == SY_LAYOUT_EXPERT)
        job.chunks = scratch->take<u32>((p->n_experts + 1) * MOST_CHUNKS);
    if (is_small(p))
        return job;
    job.block = scratch->take<int64_t>(p->n_experts);
    if (p->args.layout == SY_LAYOUT_PADDED)
        return job;
    job.key = scratch->take<u32>(n);
    job.rank = scratch->take<u32>(n);
    job.first = scratch->take<u32>(p->n_experts + 1);
    job.count = scratch->take<u32>(p->n_experts + 1);
    return job;
}

/* Experts and one more key are numbers of 31 bits: for more of them no memory is enough. */
size_t syc_local_reduce_workspace(const syc_device *device, const syi_plan *plan)
{
    const syi_local_reduce_plan *const p = &plan->local_reduce;
    syc_scratch scratch = {NULL, 0};
    if (p->rule.replica != SY_A2A_REPLICA_ALL)
        scratch.take<u8>((int64_t)syc_served_bytes(p, device->processors));
    lay_out(p, &scratch);
    if (p->args.layout == SY_LAYOUT_PADDED || is_small(p))
        return scratch.used;
    if (p->n_experts == INT32_MAX)
        return SIZE_MAX;
    return scratch.used +
           syc_rank_bytes(p->n_tokens * (p->n_slots + 1), p->n_experts + 1, device->processors);
}

/* Ranks of all live slots, whatever is wrong with them: only scratch memory is written. */
static void rank(syc_call *call, const reduce &job, unsigned char *scratch)
{
    const int64_t n = job.p.n_tokens * (job.p.n_slots + 1);
    const int n_keys = (int)(job.p.n_experts + 1);
    const reduce_keys<false> keys = {n, n_keys, job};
    const reduce_keys<true> stored = {n, n_keys, job};
    const reduce_ranks out = {job.rank, job.first, job.count};
    syc_ranks ranks = syc_ranks_of(n, call->device->processors);
    if (n_keys > SYC_MOST_COUNTED || n > INT32_MAX) {
        syc_launch(&call->queue, reduce_live, SYC_AFTER, ranks.chunks, 256, 0, job, n);
        syc_rank(call, stored, out, scratch);
        return;
    }
    ranks.counts = (u32 *)scratch;
    syc_rank_launch(call, keys, stored, ranks, out, syc_open(call->gate));
}

/* Launches the kernels that validate and list the rows of all sums. */
static void find_rows(syc_call *call, const reduce &job, unsigned char *scratch)
{
    const syi_local_reduce_plan *const p = &job.p;
    reduce_check check = {
        p->n_experts * p->n_devices, (p->n_copies - 1) * p->n_experts, p->n_tokens * p->n_slots, {}, {}, job};
    check.devices = syc_split_by(p->n_devices, check.n_entries);
    check.slots = syc_split_by(p->n_slots, check.n_choices);
    const bool small = is_small(p), expert = p->args.layout == SY_LAYOUT_EXPERT;
    const int64_t tokens = small ? (int64_t)CHUNK : (int64_t)SYC_SCAN_THREADS,
                  wanted = syc_ceil(p->n_tokens, tokens);
    const int64_t all = call->device->processors < SYC_MAX_CHECK_BLOCKS ? call->device->processors
                                                                        : (int64_t)SYC_MAX_CHECK_BLOCKS;
    const int64_t most = small ? (int64_t)MOST_CHUNKS : all, blocks = wanted < 1      ? 1
                                                                      : wanted < most ? wanted
                                                                                      : most;
    if (!small && expert)
        rank(call, job, scratch);
    call->gate.n = (int)blocks + small;
    if (syc_takes(call, "list_chunks", small ? NULL : "tokens or experts are many")) {
        call->queue.most_shared = true; /* sums start beside it */
        syc_launch(&call->queue, reduce_count, SYC_AFTER, blocks, LIST_THREADS,
                   list_tables::bytes(p->n_experts), check, call->gate);
        syc_launch(&call->queue, reduce_list, SYC_EARLY, blocks, LIST_THREADS,
                   list_tables::bytes(p->n_experts), check, (int)blocks, call->gate);
        return;
    }
    syc_takes(call, "list_ranked");
    syc_launch(&call->queue, reduce_validate, expert ? SYC_EARLY : SYC_AFTER, call->gate.n, SYC_SCAN_THREADS,
               0, check, call->gate);
    syc_launch(&call->queue, reduce_list_ranked, SYC_EARLY, syc_ceil(p->n_tokens, 8), 256, 0, job);
}

void syc_local_reduce(syc_call *call, const syi_plan *plan)
{
    syi_local_reduce_plan served = plan->local_reduce;
    syc_scratch scratch = {call->scratch, 0};
    if (served.rule.replica != SY_A2A_REPLICA_ALL)
        served.metadata =
            syc_served(call, &plan->local_reduce,
                       scratch.take<u8>((int64_t)syc_served_bytes(&served, call->device->processors)));
    /* sums are in the order of the table; that of positions found the hosts */
    if (served.args.layout == SY_LAYOUT_PADDED) {
        served.interleave = 0;
        served.n_positions = 1;
    }
    const syi_local_reduce_plan *const p = &served;
    const reduce job = lay_out(p, &scratch);
    find_rows(call, job, scratch.rest());
    const u64 row_bytes = (u64)p->hidden * (p->type == SY_TYPE_F32 ? 4 : 2);
    if (p->codes.given && syc_takes(call, "coded_sums"))
        syc_sum_coded_rows(call, &p->codes, p->output, coded_sums{job}, sums_of(p));
    else
        syc_by_type(p->type, syc_alignment(p->input) | syc_alignment(p->output) | row_bytes,
                    launch_sum{call, job});
}
