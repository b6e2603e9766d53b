/*
 * all_to_all_dispatch and all_to_all_combine of a mesh inside one process, on tensors of one device, or the part of one process,
 * which reads what others have in mapped memory. The choices of all
 * tokens are validated and ranked (rank.cuh), one block turns the counts into rows and validates that they fit, then one
 * kernel moves rows or adds them. The host reads no contents but those of the mapping.
 */
#include "cuda/all_to_all_rows.cuh"
#include "cuda/row_codes.cuh"
#include "cuda/scratch.cuh"

#include <cstdio>
#include <cstdlib>

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

enum { PIECE = 3072 }; /* bytes that one launch carries */

struct piece {
    u8 bytes[PIECE];
};

static __global__ void __launch_bounds__(THREADS) store(const __grid_constant__ struct piece piece, u8 *to, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        to[i] = piece.bytes[i];
}

/* Bytes of the host, in the arguments of kernels: so they are part of a captured graph. fill(piece, first, n) writes n of them. */
template <class F> static void send(struct syc_call *call, u8 *to, size_t bytes, const F &fill)
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        struct piece piece;
        const size_t n = bytes - at < PIECE ? bytes - at : (size_t)PIECE;
        fill(piece.bytes, at, n);
        syc_launch(&call->queue, store, SYC_AFTER, 1, THREADS, 0, piece, to + at, (int)n);
    }
}

static void send_bytes(struct syc_call *call, void *to, const void *from, size_t bytes)
{
    send(call, (u8 *)to, bytes, [=](u8 *piece, size_t first, size_t n) { memcpy(piece, (const u8 *)from + first, n); });
}

static_assert(sizeof(struct choices_served) + sizeof(struct ranked) + sizeof(struct syc_ranks) + sizeof(struct syc_team) + sizeof(struct syc_gate) + 64 <=
                  4096,
              "the arguments of a kernel");

/* A call: its arguments, and its scratch memory. */
struct exchange {
    const struct syi_a2a_plan *plan;
    struct syc_team team;
    struct syc_hosted hosted;
    u8 *devices, *words; /* where arguments do not fit */
    int32_t *begins, *owners, *keys; /* with a rule: pairs, and what choices name */
    u8 *ranks;
    u8 *coded[2]; /* codes and scales of all tokens */
};

static int64_t tokens_here(const struct syi_a2a_plan *p) { return p->own < 0 ? p->n_tokens : p->device[p->own].n_tokens; }
static int64_t elements(const struct syi_a2a_plan *p) { return p->n_tokens * p->n_slots; }
static int64_t visits_of(const struct syi_a2a_plan *p) { return p->layout == SY_LAYOUT_PACKED ? p->n_tokens * p->n_positions : 0; }
static size_t word_bytes(const struct syi_a2a_plan *p) { return (size_t)p->n_devices * (size_t)((p->n_experts + 31) / 32) * 4; }

static bool paired(const struct syi_a2a_plan *p) { return p->rule.replica != SY_A2A_REPLICA_ALL; }
static int64_t begins_of(const struct syi_a2a_plan *p) { return paired(p) && !p->routed ? p->n_groups * p->n_named + 1 : 0; }

/* Different values of choices: pairs, or the experts of each group. */
static int64_t keys_of(const struct syi_a2a_plan *p)
{
    const int64_t named = p->n_groups * p->n_named;
    return !paired(p) || (p->rule.replica == SY_A2A_REPLICA_BALANCED && named > p->n_experts) ? named : p->n_experts;
}

enum { MOST_ELEMENTS = INT32_MAX / 2 };

/* Ranking choices settles, too. */
static bool fused(const struct syi_a2a_plan *p)
{
    return !p->routed && p->id != SYI_ALL_TO_ALL_COMBINE && p->rule.replica != SY_A2A_REPLICA_BALANCED;
}
/* And it ranks visits with them. */
static bool joint(const struct syi_a2a_plan *p)
{
    return fused(p) && visits_of(p) > 0 && keys_of(p) + p->n_devices <= SYC_MOST_COUNTED && elements(p) + visits_of(p) <= MOST_ELEMENTS;
}

static bool can(const struct syi_a2a_plan *p)
{
    const int64_t most = MOST_ELEMENTS;
    return keys_of(p) <= SYC_MOST_COUNTED && p->n_devices <= SYC_MOST_COUNTED && p->n_tokens <= most && elements(p) <= most &&
           visits_of(p) <= most && p->n_positions * p->n_tokens <= most;
}

static void take_leads(struct syc_scratch *from, const struct syi_a2a_plan *p, struct syc_leads *l)
{
    l->number = from->take<u64>(1);
    l->need = from->take<int64_t>(p->n_devices);
    l->choice = from->take<int32_t>(elements(p));
    l->rank = from->take<int32_t>(elements(p));
    l->count = from->take<int32_t>(keys_of(p));
    l->first = from->take<int32_t>(p->n_devices * p->n_experts);
    l->holder = from->take<u64>(paired(p) ? p->n_experts : p->n_groups * p->n_experts);
    l->packed = from->take<int32_t>(visits_of(p));
    l->pick = from->take<u64>(p->layout == SY_LAYOUT_EXPERT ? elements(p) : 0);
}

static bool encodes(const struct syi_a2a_plan *p) { return p->codes.given && p->id == SYI_ALL_TO_ALL_DISPATCH; }

/* Of the addresses and distances of a plane, on one side. */
static u64 rows_alignment(const struct syi_a2a_plan *p, int plane, bool out)
{
    u64 bits = 0;
    for (int d = 0; d < p->n_devices; d++)
        bits |= syc_alignment(out ? p->device[d].to[plane] : p->device[d].from[plane]);
    return bits;
}

/* Rows become codes in the kernel that spreads them. Not to be asked after encode, whose codes take the place of the rows. */
static bool encodes_later(const struct syi_a2a_plan *p)
{
    return encodes(p) && syc_codes_by_lanes(&p->codes, rows_alignment(p, 0, false) | rows_alignment(p, 0, true));
}

static void take_scratch(struct syc_scratch *from, struct exchange *x, bool leads, int processors)
{
    const struct syi_a2a_plan *const p = x->plan;
    const size_t one = syc_rank_bytes(elements(p) + (joint(p) ? visits_of(p) : 0), keys_of(p) + (joint(p) ? p->n_devices : 0), processors),
                 two = joint(p) ? 0 : syc_rank_bytes(visits_of(p), p->n_devices, processors);
    x->ranks = from->take<u8>((int64_t)(one > two ? one : two));
    x->devices = from->take<u8>(p->n_devices > SYC_FEW_DEVICES ? p->n_devices * (int64_t)sizeof *p->device : 0);
    x->words = from->take<u8>(word_bytes(p) > sizeof x->hosted.few ? (int64_t)word_bytes(p) : 0);
    x->begins = from->take<int32_t>(begins_of(p));
    x->owners = from->take<int32_t>(begins_of(p) > 0 ? p->n_experts : 0);
    x->keys = from->take<int32_t>(begins_of(p) > 0 && !fused(p) ? elements(p) : 0);
    if (leads)
        take_leads(from, p, &x->team.leads);
    for (int plane = 0; encodes(p) && !encodes_later(p) && plane < p->n_planes; plane += p->n_planes - 1) /* the first and the last */
        x->coded[plane > 0] = from->take<u8>(p->n_tokens * (int64_t)p->row_bytes[plane]);
}

/* Codes and scales of all tokens, in scratch memory, take the place of the rows. */
static void encode(struct syc_call *call, const struct exchange *x)
{
    const struct syi_a2a_plan *const p = x->plan;
    const int last = p->n_planes - 1;
    const int64_t bytes = (int64_t)p->row_bytes[0], scale_bytes = (int64_t)p->row_bytes[last];
    for (int d = 0; d < p->n_devices; d++) {
        struct syi_a2a_device *const device = &p->device[d];
        struct syi_row_codes_plan plan = p->codes;
        plan.n_rows = device->n_tokens;
        plan.dense = device->from[0];
        plan.codes = device->from[0] = {x->coded[0] + device->first * bytes, bytes};
        plan.scales = device->from[last] = {x->coded[1] + device->first * scale_bytes, scale_bytes};
        syc_code_rows(call, &plan, syc_same_rows{plan.dense, plan.n_rows}, plan.n_rows, plan.n_rows);
    }
}

/* Whether every expert is on one device of a group at most. */
static bool single_holders(const struct syi_a2a_plan *p)
{
    for (int g = 0; g < p->n_groups && !paired(p); g++)
        for (int64_t e = 0; e < p->n_experts; e++) {
            int n = 0;
            for (int q = 0; q < p->n_positions; q++)
                n += p->local[syi_device_at(p->mesh, p->axis, g, q) * p->n_experts + e] >= 0;
            if (n > 1)
                return false;
        }
    return true;
}

static void fill_team(struct exchange *x)
{
    const struct syi_a2a_plan *const p = x->plan;
    struct syc_team *const m = &x->team;
    m->mesh = p->mesh;
    m->axis = p->axis;
    m->n_devices = p->n_devices;
    m->n_positions = p->n_positions;
    m->n_groups = p->n_groups;
    m->n_tokens = p->n_tokens;
    m->n_slots = p->n_slots;
    m->n_experts = p->n_experts;
    m->interleave = p->interleave;
    m->fixed = p->layout == SY_LAYOUT_EXPERT && p->expert_rows > 0;
    m->align = p->layout != SY_LAYOUT_EXPERT ? 1 : m->fixed ? p->expert_rows : p->align;
    m->begins = begins_of(p) > 0 ? x->begins : NULL;
    m->by_run = syc_split_by(p->interleave > 0 ? p->interleave : 1, p->n_tokens);
    m->by_positions = syc_split_by(p->n_positions, p->n_slots * p->n_positions);
    m->index_type = p->index_type;
    m->layout = p->layout;
    m->combine = p->id == SYI_ALL_TO_ALL_COMBINE;
    m->zero = p->zero;
    m->local_reduce = p->local_reduce;
    m->routed = p->routed;
    m->alone = m->combine && m->routed;
    m->single = single_holders(p);
    m->paired = paired(p);
    m->own = p->own;
    m->number = p->own < 0 || p->routed ? p->number : 0; /* else told */
    m->more = p->n_devices > SYC_FEW_DEVICES ? (const struct syi_a2a_device *)x->devices : NULL;
    for (int d = 0; m->more == NULL && d < p->n_devices; d++)
        m->few[d] = p->device[d];
}

/* Words of all devices, from the byte `first` on. */
static void fill_words(const struct syi_a2a_plan *p, u8 *to, size_t first, size_t bytes)
{
    const int64_t words = (p->n_experts + 31) / 32;
    for (size_t at = first; at < first + bytes; at += sizeof(u32)) {
        const int64_t i = (int64_t)(at / sizeof(u32)), d = i / words, begin = (i - d * words) * 32;
        u32 word = 0;
        for (int64_t e = begin; e < begin + 32 && e < p->n_experts; e++)
            word |= (paired(p) ? p->pairs.device[e] == d : p->local[d * p->n_experts + e] >= 0) ? 1u << (e - begin) : 0;
        memcpy(to + (at - first), &word, sizeof word);
    }
}

static void fill_hosted(struct exchange *x)
{
    const struct syi_a2a_plan *const p = x->plan;
    struct syc_hosted *const h = &x->hosted;
    const bool few = word_bytes(p) <= sizeof h->few;
    h->words = (int)((p->n_experts + 31) / 32);
    h->more = few ? NULL : (const u32 *)x->words;
    if (few)
        fill_words(p, (u8 *)h->few, 0, word_bytes(p));
}

/* Of nothing, nothing is divided. */
static struct syc_divisor divisor_of(int64_t n) { return syc_divisor_of(n > 0 ? (u32)n : 1); }

static struct choices choices_of(const struct exchange *x)
{
    const struct syi_a2a_plan *const p = x->plan;
    struct choices c = {};
    c.n_choices = elements(p);
    c.n = c.n_choices + (joint(p) ? visits_of(p) : 0);
    c.first_visit = (int)(paired(p) && fused(p) ? p->n_experts : p->n_groups * p->n_named);
    c.n_keys = c.first_visit + (joint(p) ? p->n_devices : 0);
    c.n_devices = p->n_devices;
    c.n_positions = p->n_positions;
    c.n_slots = (int)p->n_slots;
    c.n_experts = (int)p->n_named;
    c.interleave = (int)p->interleave;
    c.by_slots = divisor_of(p->n_slots);
    c.by_run = divisor_of(p->interleave);
    c.by_tokens = divisor_of(p->n_tokens);
    c.hosted = x->hosted;
    c.mesh = p->mesh;
    c.axis = p->axis;
    c.type = p->index_type;
    c.combine = x->team.combine;
    c.strict = p->strict;
    u64 bits = 0;
    for (int d = 0; d < p->n_devices; d++)
        bits |= syc_alignment(p->device[d].indices);
    c.aligned = bits % (p->index_type == SY_TYPE_U16 ? 2 : p->index_type == SY_TYPE_I32 ? 4 : 8) == 0;
    c.more = x->team.more;
    for (int d = 0; c.more == NULL && d < p->n_devices; d++) {
        c.rows[d] = p->device[d].indices;
        c.first[d] = (int)p->device[d].first;
        c.before[d] = (int)p->device[d].before;
    }
    return c;
}

static struct tables tables_of(const struct exchange *x)
{
    const struct syi_a2a_plan *const p = x->plan;
    const struct syi_a2a_device *const last = &p->device[p->n_devices - 1];
    struct tables t = {};
    t.n_rows = last->table_first + last->group_tokens;
    t.n = 2 * t.n_rows;
    t.n_slots = p->n_slots;
    t.n_experts = p->n_named;
    t.n_devices = p->n_devices;
    t.mesh = p->mesh;
    t.axis = p->axis;
    t.type = p->index_type;
    t.strict = p->strict;
    t.number = (int64_t)p->number - 1;
    t.row_bytes = (int64_t)p->row_bytes[0];
    t.more = x->team.more;
    for (int d = 0; t.more == NULL && d < p->n_devices; d++) {
        t.rows[d] = p->device[d].indices;
        t.first[d] = p->device[d].table_first;
        t.tokens[d] = p->device[d].n_tokens;
    }
    return t;
}

template <class Keys, class Out>
static void launch_rank(struct syc_call *call, const Keys &keys, const Out &out, u8 *scratch, const struct syc_gate &gate)
{
    struct syc_ranks ranks = syc_ranks_of(keys.n, call->device->processors);
    ranks.counts = (u32 *)scratch;
    syc_rank_launch(call, keys, keys, ranks, out, gate);
}

/* Choices of a dispatch: their faults are words of the gate. */
template <class Choices>
static void launch_choices(struct syc_call *call, const struct exchange *x, const Choices &keys, const struct ranked &out, int steps)
{
    struct syc_ranks ranks = syc_ranks_of(keys.n, call->device->processors);
    ranks.counts = (u32 *)x->ranks;
    if (syc_ranks_few(keys.n, keys.n_keys)) {
        call->gate.n = 1;
        syc_launch(&call->queue, rank_and_settle<Choices>, SYC_AFTER, 1, SYC_RANK_THREADS, syc_rank_few_bytes(keys.n, keys.n_keys), keys, out, x->team, steps,
                   call->gate);
        return;
    }
    call->gate.n = ranks.chunks;
    syc_launch(&call->queue, syc_rank_count<Choices>, SYC_AFTER, ranks.chunks, SYC_RANK_THREADS,
               (size_t)syc_padded_keys(keys.n_keys) * sizeof(u32), keys, ranks, call->gate);
    syc_launch(&call->queue, place_and_settle<Choices>, SYC_EARLY, ranks.chunks + 1, SYC_RANK_THREADS, syc_rank_place_bytes(keys.n_keys), keys, ranks, out,
               x->team, steps, call->gate);
}

/* With a rule: choices of pairs. */
static void launch_served(struct syc_call *call, const struct exchange *x, const struct choices &choices, const struct syc_gate &gate)
{
    const struct syi_a2a_plan *const p = x->plan;
    const bool turns = p->rule.replica == SY_A2A_REPLICA_BALANCED;
    const struct served to = {p->rule, {p->n_groups, x->begins, x->owners}, (int)p->n_named, x->keys};
    const struct served_keys keys = {choices.n, (int)(turns ? choices.n_keys : p->n_experts), x->keys};
    syc_launch(&call->queue, serve, SYC_AFTER, syc_ceil(choices.n, THREADS), THREADS, 0, choices, to);
    launch_rank(call, keys, ranked_pairs{x->team.leads, to}, x->ranks, gate);
}

/* From choices to rows; all faults are words of the gate then. */
static void launch_leads(struct syc_call *call, const struct exchange *x)
{
    const struct syi_a2a_plan *const p = x->plan;
    const struct syc_team *const m = &x->team;
    const bool packed_later = p->layout == SY_LAYOUT_PACKED && !joint(p);
    const struct syc_gate open = syc_open(call->gate);
    const auto settle_by = [&](int steps) {
        /* The first of a call waits for what others wrote before the next one loads it. */
        syc_launch(&call->queue, settle, m->routed ? SYC_AFTER : SYC_EARLY, 1, SETTLE_THREADS, 0, *m, x->hosted, steps, call->gate);
    };
    if (!m->routed) {
        const struct choices keys = choices_of(x);
        const struct ranked out = {m->leads, (int)p->n_experts, keys.first_visit, p->n_positions, keys.n_choices, keys.by_tokens};
        const int steps = packed_later ? BUILD : BUILD | FINISH;
        if (!fused(p) && m->paired)
            launch_served(call, x, keys, open);
        else if (!fused(p))
            launch_rank(call, keys, out, x->ranks, open);
        if (m->combine)
            syc_check(call, tables_of(x));
        else if (!fused(p))
            syc_check(call, keys);
        else if (m->paired)
            launch_choices(call, x, choices_served{keys, p->rule, {p->n_groups, x->begins, x->owners}}, out, steps);
        else if (joint(p))
            launch_choices(call, x, choices_and_visits{keys}, out, steps);
        else
            launch_choices(call, x, keys, out, steps);
        if (packed_later) {
            struct visits seen = {};
            seen.n = visits_of(p);
            seen.n_keys = p->n_devices;
            seen.n_slots = p->n_slots;
            seen.n_experts = p->n_experts;
            seen.n_positions = p->n_positions;
            seen.by_positions = syc_split_by(p->n_positions, seen.n);
            seen.tokens = keys;
            seen.leads = m->leads;
            if (!fused(p))
                settle_by(BUILD);
            launch_rank(call, seen, packed{m->leads}, x->ranks, open);
        }
    }
    if (m->alone && tokens_here(p) > 0) /* without tokens no other kernel looks at the routing */
        return;
    if (!fused(p) || packed_later)
        settle_by(p->layout == SY_LAYOUT_PACKED || m->routed ? FINISH : BUILD | FINISH);
    call->gate.n++;
}

/* Of both sides of a plane, and of sizes. */
static u64 alignment_of(const struct syi_a2a_plan *p, int plane)
{
    return p->row_bytes[plane] | rows_alignment(p, plane, false) | rows_alignment(p, plane, true);
}

static bool asks_for_counts(const struct syi_a2a_plan *p)
{
    for (int d = 0; d < p->n_devices; d++)
        if (p->device[d].expert_counts != NULL || p->device[d].expert_offsets != NULL)
            return true;
    return false;
}

/* Tokens are cut so that there are three blocks for each multiprocessor, and `most` vectors in a part. */
static int64_t token_parts(const struct syc_call *call, const struct syi_a2a_plan *p, int64_t vectors, int64_t most)
{
    const int64_t wanted = syc_ceil(3 * (int64_t)call->device->processors, p->n_tokens > 0 ? p->n_tokens : 1), useful = syc_ceil(vectors, THREADS / 2);
    const int64_t least = syc_ceil(vectors, most), some = wanted < useful ? wanted : useful;
    return some > least ? some : least > 1 ? least : 1;
}

/* Blocks that write counts, and padding. */
static int64_t counting_blocks(const struct syi_a2a_plan *p) { return asks_for_counts(p) ? syc_ceil(p->n_devices, THREADS / 32) : 0; }
static int64_t padding_blocks(const struct syc_call *call, const struct exchange *x)
{
    const int64_t hosted = padded_experts(x->team) * padded_parts(x->team), most = 4 * (int64_t)call->device->processors + 1; /* odd: a block has first and last rows of experts */
    return x->team.align == 1 && !x->team.fixed ? 0 : hosted < most ? hosted : most;
}

template <typename V> static void launch_spread(struct syc_call *call, const struct exchange *x, int plane)
{
    const struct syi_a2a_plan *const p = x->plan;
    const int64_t vectors = (int64_t)(p->row_bytes[plane] / sizeof(V)), parts = token_parts(call, p, vectors, (int64_t)1 << 20);
    const int64_t counting = plane > 0 ? 0 : counting_blocks(p);
    /* While choices are listed, memory has nothing else to do: blocks that run then load their tokens, and those of the blocks after them. */
    const bool loads = sizeof(V) == 16 && p->own < 0 && p->row_bytes[plane] <= SYC_EARLY_PART;
    const int64_t ahead = loads ? syc_ceil(SPREAD_BLOCKS * (int64_t)call->device->processors, parts) : 0;
    const enum syc_start start = x->coded[0] != NULL ? SYC_AFTER : SYC_EARLY; /* early ones read rows before they wait */
    syc_launch(&call->queue, spread<V>, start, p->n_tokens * parts + counting + padding_blocks(call, x), THREADS, 0, x->team, plane, (u32)parts,
               (u32)syc_ceil(vectors, parts), (u32)vectors, (u32)ahead, (int)counting, call->gate);
}

/* For syc_by_codes. */
struct launch_spread_codes {
    struct syc_call *call;
    const struct exchange *x;
    template <sy_type T, enum syi_code C> void run() const
    {
        const struct syi_a2a_plan *const p = x->plan;
        const int64_t lanes = (int64_t)(p->codes.group / SYC_PACK_UNIT), units = p->codes.n_groups * lanes, counting = counting_blocks(p);
        const int64_t width = syc_ceil(syc_ceil(units, token_parts(call, p, units, SPREAD_UNITS)), lanes) * lanes, parts = units > 0 ? syc_ceil(units, width) : 1;
        syc_launch(&call->queue, spread_codes<T, C>, SYC_EARLY, p->n_tokens * parts + counting + padding_blocks(call, x), THREADS, 0, x->team, p->codes,
                   p->n_planes - 1, (u32)parts, (u32)width, (u32)units, syc_code_shift(&p->codes), (int)counting, call->gate);
    }
};

template <typename V> static void launch_collect(struct syc_call *call, const struct exchange *x, int plane)
{
    const struct syi_a2a_plan *const p = x->plan;
    const int64_t width = (int64_t)(p->row_bytes[plane] / sizeof(V)), n = tokens_here(p) * p->n_slots;
    const int64_t pieces = syc_pieces_of_block(n, width, (int64_t)p->row_bytes[plane], call->device->processors);
    syc_launch(&call->queue, collect<V>, SYC_EARLY, (n + pieces - 1) / pieces, THREADS, 0, x->team, plane, n, (int)pieces, syc_divisor_of((u32)width),
               call->gate);
}

/* Calls f.run<V>() for the widest vectors that fit. */
template <class F> static void by_vector(u64 alignment, const F &f)
{
    switch (syc_vector_bytes(alignment)) {
    case 16:
        f((uint4 *)NULL);
        return;
    case 4:
        f((u32 *)NULL);
        return;
    default:
        f((u8 *)NULL);
    }
}

template <typename V> struct pointed;
template <typename V> struct pointed<V *> {
    typedef V type;
};

static bool counts_rows(const struct syi_a2a_plan *p)
{
    for (int d = 0; d < p->n_devices; d++)
        if (p->device[d].rows_from != NULL || p->device[d].rows_to != NULL)
            return true;
    return false;
}

static void launch_rows(struct syc_call *call, const struct exchange *x)
{
    const struct syi_a2a_plan *const p = x->plan;
    if (x->team.combine && p->sum) {
        if (tokens_here(p) > 0 && p->codes.given)
            syc_by_sum(p->codes.type, syc_sums_sixteens(&p->codes, rows_alignment(p, 0, false), rows_alignment(p, 1, false), rows_alignment(p, 0, true)),
                       launch_coded_sums{call, x->team, tokens_here(p), &p->codes});
        else if (tokens_here(p) > 0)
            syc_by_type(p->type, alignment_of(p, 0), launch_sums{call, x->team, tokens_here(p), p->hidden});
    } else if (x->team.combine) {
        for (int plane = 0; plane < p->n_planes; plane++)
            by_vector(alignment_of(p, plane), [&](auto v) { launch_collect<typename pointed<decltype(v)>::type>(call, x, plane); });
    } else {
        const bool coded = encodes(p) && x->coded[0] == NULL;
        if (coded)
            syc_by_codes(&p->codes, launch_spread_codes{call, x});
        for (int plane = coded; plane < p->n_planes - coded; plane++)
            by_vector(alignment_of(p, plane), [&](auto v) { launch_spread<typename pointed<decltype(v)>::type>(call, x, plane); });
        if (counts_rows(p))
            syc_launch(&call->queue, count_rows, SYC_EARLY, p->n_devices, THREADS, 0, x->team, call->gate);
    }
    if (p->n_tokens == 0)
        syc_only_report(call);
}

/* ---- The host's part --------------------------------------------------------------------------------------------- */

static sy_status no_memory(sy_ctx *ctx, size_t bytes)
{
    snprintf(ctx->backend_error, sizeof ctx->backend_error, "has no memory for an exchange: %zu bytes", bytes);
    cudaGetLastError();
    return SY_ERR_NOMEM;
}

/* Memory that grows is empty. */
static bool grow(struct syc_device *d, struct syi_there *there, size_t bytes)
{
    void *made = NULL;
    syc_beside_captures beside;
    struct syi_kept *const kept = (struct syi_kept *)malloc(sizeof *kept);
    if (kept == NULL || cudaMalloc(&made, bytes) != cudaSuccess || cudaMemsetAsync(made, 0, sizeof(u64), d->stream) != cudaSuccess) {
        cudaFree(made);
        free(kept);
        return false;
    }
    *kept = {there->data, there->kept};
    there->kept = kept;
    there->data = made;
    there->bytes = bytes;
    there->ordinal = d->ordinal;
    there->by = &syc_mesh_device;
    return true;
}

static size_t told_bytes(int n) { return (size_t)n * sizeof(int64_t) + sizeof(struct syi_found) + sizeof(uint64_t); }

/*
 * A dispatch of one process is launched again and again with the same arguments: the number of the call is in memory. A graph of its kernels
 * takes one launch. It is made when a call is seen for the second time; of calls whose tensors are elsewhere each time there is none.
 */
enum { GRAPHS = 4 };

/* What launches depend on. */
struct graph_key {
    struct exchange x;
    size_t row_bytes[SY_A2A_MAX_PLANES];
    int64_t n_named;
    int n_planes, processors, ordinal;
    bool strict;
};

struct graphs {
    struct graph_key now; /* of the call */
    struct {
        struct graph_key key;
        cudaGraphExec_t exec; /* NULL: it was seen once, or cannot be made */
        int seen;
    } of[GRAPHS];
    int next; /* is replaced */
};

static void free_graphs(struct graphs *g)
{
    for (int i = 0; g != NULL && i < GRAPHS; i++)
        if (g->of[i].exec != NULL)
            cudaGraphExecDestroy(g->of[i].exec);
    free(g);
}

/* All calls that write to the smaller one have ended. */
static bool make_told(struct syi_there *there, int n)
{
    syc_beside_captures beside;
    cudaFreeHost(there->told);
    there->told = NULL;
    there->n_told = 0;
    if (cudaHostAlloc((void **)&there->told, told_bytes(n), cudaHostAllocMapped | cudaHostAllocPortable) != cudaSuccess)
        return false;
    there->n_told = n;
    return true;
}

static void forget(struct syi_there *there)
{
    free_graphs((struct graphs *)there->graphs);
    cudaFree(there->data);
    cudaFreeHost(there->told);
    while (there->kept != NULL) {
        struct syi_kept *const next = there->kept->next;
        cudaFree(there->kept->data);
        free(there->kept);
        there->kept = next;
    }
    cudaGetLastError();
    *there = {};
}

static sy_status take_memory(sy_ctx *ctx, struct exchange *x, struct syi_there *there)
{
    struct syc_device *const d = ctx->cuda_device;
    struct syc_scratch measured = {NULL, 0}, leads = {NULL, 0};
    take_scratch(&measured, x, there == NULL, d->processors);
    take_leads(&leads, x->plan, &x->team.leads);
    if (there != NULL && (leads.used > there->bytes || there->ordinal != d->ordinal) && !grow(d, there, leads.used))
        return no_memory(ctx, leads.used);
    if (x->plan->own >= 0 && there->n_told < x->plan->n_devices && !make_told(there, x->plan->n_devices))
        return no_memory(ctx, told_bytes(x->plan->n_devices));
    void *data = NULL;
    if (!syc_own_scratch(d, measured.used, &data))
        return no_memory(ctx, measured.used);
#ifdef SWITCHYARD_CUDA_EMULATED
    cudaMemsetAsync(data, 0xa5, measured.used, d->stream); /* what other calls left is of no use */
#endif
    struct syc_scratch taken = {(u8 *)data, 0}, kept = {there != NULL ? (u8 *)there->data : NULL, 0};
    take_scratch(&taken, x, there == NULL, d->processors);
    if (there != NULL)
        take_leads(&kept, x->plan, &x->team.leads);
    return SY_OK;
}

/* Captures the launches of a call. NULL: it cannot. */
static cudaGraphExec_t make_graph(const struct syc_call *call, const struct exchange *x)
{
    struct syc_call kept = *call;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    syc_beside_captures beside;
    if (cudaStreamCreateWithFlags(&kept.queue.stream, cudaStreamNonBlocking) != cudaSuccess)
        return NULL;
    if (cudaStreamBeginCapture(kept.queue.stream, cudaStreamCaptureModeRelaxed) == cudaSuccess) {
        launch_leads(&kept, x);
        launch_rows(&kept, x);
        if (cudaStreamEndCapture(kept.queue.stream, &graph) == cudaSuccess && kept.queue.error == cudaSuccess &&
            cudaGraphInstantiateWithFlags(&exec, graph, 0) != cudaSuccess)
            exec = NULL;
    }
    if (graph != NULL)
        cudaGraphDestroy(graph);
    cudaStreamDestroy(kept.queue.stream);
    cudaGetLastError();
    return exec;
}

/* Whether a graph has launched the call. */
static bool launched_graph(struct syc_call *call, const struct exchange *x, struct syi_there *there)
{
    const struct syi_a2a_plan *const p = x->plan;
    if (p->own < 0 || p->routed || paired(p) || p->codes.given || p->id != SYI_ALL_TO_ALL_DISPATCH || x->team.more != NULL || x->hosted.more != NULL)
        return false;
    if (there->graphs == NULL)
        there->graphs = calloc(1, sizeof(struct graphs));
    struct graphs *const g = (struct graphs *)there->graphs;
    if (g == NULL)
        return false;
    memcpy(&g->now.x, x, sizeof *x);
    g->now.x.plan = NULL;
    memcpy(g->now.row_bytes, p->row_bytes, sizeof g->now.row_bytes);
    g->now.n_named = p->n_named;
    g->now.n_planes = p->n_planes;
    g->now.processors = call->device->processors;
    g->now.ordinal = call->device->ordinal;
    g->now.strict = p->strict;
    int i = 0;
    while (i < GRAPHS && memcmp(&g->now, &g->of[i].key, sizeof g->now) != 0)
        i++;
    if (i == GRAPHS) {
        i = g->next++ % GRAPHS;
        if (g->of[i].exec != NULL)
            cudaGraphExecDestroy(g->of[i].exec);
        memcpy(&g->of[i].key, &g->now, sizeof g->now);
        g->of[i].exec = NULL;
        g->of[i].seen = 0;
    }
    if (++g->of[i].seen == 2)
        g->of[i].exec = make_graph(call, x);
    if (g->of[i].exec == NULL)
        return false;
    call->queue.error = cudaGraphLaunch(g->of[i].exec, call->queue.stream);
    return true;
}

static sy_status run(sy_ctx *ctx, const struct syi_a2a_plan *plan, struct syi_there *there)
{
    struct syc_device *const d = ctx->cuda_device;
    struct exchange x;
    memset(&x, 0, sizeof x); /* its bytes are compared */
    syc_on_device on(d);
    x.plan = plan;
    const sy_status st = take_memory(ctx, &x, there);
    if (st != SY_OK)
        return st;
    struct syc_call call = syc_begin(d, plan->id, NULL);
    if (plan->own >= 0) { /* other processes wait for it: faults of other calls do not skip it, and it reports none */
        call.gate.closed += 1; /* never set */
        call.gate.report = NULL;
        x.team.told = there->told;
        *syi_told_number(there->told, plan->n_devices) = plan->number;
    }
    if (encodes(plan) && !encodes_later(plan))
        encode(&call, &x);
    fill_team(&x);
    fill_hosted(&x);
    if (x.team.more != NULL)
        send_bytes(&call, x.devices, plan->device, (size_t)plan->n_devices * sizeof *plan->device);
    if (x.hosted.more != NULL)
        send(&call, x.words, word_bytes(plan), [&](u8 *to, size_t first, size_t n) { fill_words(plan, to, first, n); });
    if (begins_of(plan) > 0) {
        send_bytes(&call, x.begins, plan->pairs.begin, (size_t)begins_of(plan) * sizeof *x.begins);
        send_bytes(&call, x.owners, plan->pairs.device, (size_t)plan->n_experts * sizeof *x.owners);
    }
    if (!launched_graph(&call, &x, there)) {
        launch_leads(&call, &x);
        launch_rows(&call, &x);
    }
    if (plan->need != NULL && call.queue.error == cudaSuccess)
        call.queue.error = cudaMemcpyAsync(plan->need, x.team.leads.need, (size_t)plan->n_devices * sizeof *plan->need, cudaMemcpyDefault, d->stream);
    return syc_queued(ctx, &call, "could not run the exchange");
}

static bool captures(const sy_ctx *ctx)
{
    syc_on_device on(ctx->cuda_device);
    return syc_captures(ctx->cuda_device);
}

/* ---- Between processes ------------------------------------------------------------------------------------------- */

static sy_status fetch(sy_ctx *ctx, const struct syi_there *there, const struct syi_a2a_plan *plan, int64_t first, int64_t run, int64_t runs,
                       int32_t *to, int64_t stride)
{
    struct syc_device on_it = {};
    on_it.ordinal = there->ordinal;
    syc_on_device on(&on_it);
    struct syc_scratch from = {(u8 *)there->data, 0};
    struct syc_leads leads;
    take_leads(&from, plan, &leads);
    const size_t bytes = (size_t)(run * plan->n_slots) * sizeof *to;
    const cudaStream_t stream = ctx->cuda_device != NULL && ctx->cuda_device->ordinal == there->ordinal ? ctx->cuda_device->stream : NULL;
    cudaError_t code = cudaMemcpy2DAsync(to, (size_t)(stride * plan->n_slots) * sizeof *to, leads.choice + first * plan->n_slots, bytes, bytes, (size_t)runs,
                                         cudaMemcpyDefault, stream);
    code = code == cudaSuccess ? cudaStreamSynchronize(stream) : code;
    return code == cudaSuccess ? SY_OK : syc_failed(ctx, "could not be read", code);
}

/* Loads the kernels of calls with rows of so many bytes, for few choices and for many. */
static void load_rows(struct syc_call *call, struct syi_a2a_plan *p)
{
    for (const int64_t tokens : {(int64_t)1, (int64_t)1 << 20})
        for (const sy_a2a_layout layout : {SY_LAYOUT_PACKED, SY_LAYOUT_EXPERT})
            for (const sy_a2a_replica replica : {SY_A2A_REPLICA_ALL, SY_A2A_REPLICA_HASH, SY_A2A_REPLICA_BALANCED}) {
                struct exchange x = {};
                p->n_tokens = p->device->n_tokens = tokens;
                p->layout = layout;
                p->rule.replica = replica;
                x.plan = p;
                fill_team(&x);
                launch_leads(call, &x);
                launch_rows(call, &x);
            }
}

/* The driver loads a kernel when it is first launched, and may wait for the device then, which may wait for another process. */
cudaError_t syc_mesh_load(struct syc_device *d)
{
    struct syc_call call = syc_begin(d, SYI_ALL_TO_ALL_DISPATCH, NULL);
    static const int32_t local = 0;
    struct syi_a2a_device device = {};
    device.rows_to = (unsigned char *)&device; /* any */
    struct syi_a2a_plan p = {};
    p.mesh = {1, 1};
    p.n_devices = p.n_positions = p.n_groups = p.n_planes = 1;
    p.n_slots = p.n_experts = p.n_named = p.align = 1;
    p.hidden = 16; /* a vector of any type */
    p.device = &device;
    p.local = &local;
    call.queue.only_load = true;
    p.codes.n_groups = 1;
    p.codes.group = 16;
    const struct syc_team team = {};
    for (const enum syi_float type : {SYI_FLOAT_F32, SYI_FLOAT_F16, SYI_FLOAT_BF16})
        for (const bool wide : {false, true})
            syc_by_sum(type, wide, launch_coded_sums{&call, team, 1, &p.codes});
    syc_launch(&call.queue, store, SYC_AFTER, 1, THREADS, 0, piece{}, (u8 *)NULL, 0);
    syc_only_report(&call);
    for (const size_t bytes : {16, 4, 1}) {
        p.row_bytes[0] = bytes;
        p.id = SYI_ALL_TO_ALL_DISPATCH;
        load_rows(&call, &p);
        p.id = SYI_ALL_TO_ALL_COMBINE;
        p.routed = true;
        load_rows(&call, &p);
        p.sum = true;
        for (const sy_type type : {SY_TYPE_F32, SY_TYPE_F16, SY_TYPE_BF16}) {
            p.type = type;
            load_rows(&call, &p);
        }
        p.routed = p.sum = false;
    }
    return call.queue.error;
}

/* ---- Marks ------------------------------------------------------------------------------------------------------- */

static sy_status failed(sy_ctx *ctx, cudaError_t code) { return syc_failed(ctx, "could not be waited for", code); }

static sy_status mark(sy_ctx *ctx, struct syi_mark *m)
{
    struct syc_device *const d = ctx->cuda_device;
    const struct syc_call call = syc_begin(d, 0, NULL);
    syc_on_device on(d);
    cudaError_t code = cudaSuccess;
    m->by = &syc_mesh_device;
    if (m->event != NULL && m->ordinal != d->ordinal) { /* an event is for streams of its device */
        cudaEventDestroy((cudaEvent_t)m->event);
        m->event = NULL;
    }
    if (m->skipped == NULL)
        code = cudaHostAlloc((void **)&m->skipped, sizeof *m->skipped, cudaHostAllocMapped | cudaHostAllocPortable);
    if (code == cudaSuccess && m->event == NULL)
        code = cudaEventCreateWithFlags((cudaEvent_t *)&m->event, cudaEventDisableTiming);
    m->ordinal = d->ordinal;
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(m->skipped, call.gate.closed, sizeof *m->skipped, cudaMemcpyDefault, d->stream);
    if (code == cudaSuccess)
        code = cudaEventRecord((cudaEvent_t)m->event, d->stream);
    return code == cudaSuccess ? SY_OK : failed(ctx, code);
}

static sy_status reached(sy_ctx *ctx, struct syi_mark *m, bool wait, bool *done, bool *skipped)
{
    syc_on_device on(ctx->cuda_device);
    const cudaError_t code = wait ? cudaEventSynchronize((cudaEvent_t)m->event) : cudaEventQuery((cudaEvent_t)m->event);
    *done = code == cudaSuccess;
    if (code != cudaSuccess && code != cudaErrorNotReady)
        return failed(ctx, code);
    cudaGetLastError();
    *skipped = *done && *(volatile uint32_t *)m->skipped != 0;
    return SY_OK;
}

static void unmark(struct syi_mark *m)
{
    if (m->event != NULL)
        cudaEventDestroy((cudaEvent_t)m->event);
    if (m->skipped != NULL)
        cudaFreeHost(m->skipped);
    cudaGetLastError();
    *m = {};
}

const struct syi_mesh_device syc_mesh_device = {can, run, forget, fetch, captures, mark, reached, unmark};
