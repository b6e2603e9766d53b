/*
 * The launches of an exchange, and where they have their scratch memory, for all_to_all.cu alone.
 */
#pragma once

#include "cuda/exchange/all_to_all_rows.cuh"
#include "cuda/codes/row_codes.cuh"
#include "cuda/runtime/scratch.cuh"

enum { PIECE = 3072 }; /* bytes that one launch carries */

struct piece {
    u8 bytes[PIECE];
};

static __global__ void __launch_bounds__(THREADS)
    store(const __grid_constant__ struct piece piece, u8 *to, int n)
{
    for (int i = (int)threadIdx.x; i < n; i += THREADS)
        to[i] = piece.bytes[i];
}

/* Bytes of the host, in the arguments of kernels: so they are part of a captured graph. fill(piece, first, n)
   writes n of them. */
template <class F> static void send(syc_call *call, u8 *to, size_t bytes, const F &fill)
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        struct piece piece;
        const size_t n = bytes - at < PIECE ? bytes - at : (size_t)PIECE;
        fill(piece.bytes, at, n);
        syc_launch(&call->queue, store, SYC_AFTER, 1, THREADS, 0, piece, to + at, (int)n);
    }
}

static void send_bytes(syc_call *call, void *to, const void *from, size_t bytes)
{
    send(call, (u8 *)to, bytes,
         [=](u8 *piece, size_t first, size_t n) { memcpy(piece, (const u8 *)from + first, n); });
}

static_assert(sizeof(choices_served) + sizeof(ranked) + sizeof(syc_ranks) + sizeof(syc_team) +
                      sizeof(syc_gate) + 64 <=
                  4096,
              "the arguments of a kernel");

/* A call: its arguments, and its scratch memory. */
struct exchange {
    const syi_a2a_plan *plan;
    syc_team team;
    syc_hosted hosted;
    u8 *devices, *words;             /* where arguments do not fit */
    int32_t *begins, *owners, *keys; /* with a rule: pairs, and what choices name */
    u8 *ranks;
    u8 *coded[2]; /* codes and scales of all tokens */
};

static int64_t tokens_here(const syi_a2a_plan *p)
{
    return p->own < 0 ? p->n_tokens : p->device[p->own].n_tokens;
}
static int64_t elements(const syi_a2a_plan *p)
{
    return p->n_tokens * p->n_slots;
}
static int64_t visits_of(const syi_a2a_plan *p)
{
    return p->layout == SY_LAYOUT_PACKED ? p->n_tokens * p->n_positions : 0;
}
static size_t word_bytes(const syi_a2a_plan *p)
{
    return (size_t)p->n_devices * (size_t)((p->n_experts + 31) / 32) * 4;
}

static bool paired(const syi_a2a_plan *p)
{
    return p->rule.replica != SY_A2A_REPLICA_ALL;
}
static int64_t begins_of(const syi_a2a_plan *p)
{
    return paired(p) && !p->routed ? p->n_groups * p->n_named + 1 : 0;
}

/* Different values of choices: pairs, or the experts of each group. */
static int64_t keys_of(const syi_a2a_plan *p)
{
    const int64_t named = p->n_groups * p->n_named;
    return !paired(p) || (p->rule.replica == SY_A2A_REPLICA_BALANCED && named > p->n_experts) ? named
                                                                                              : p->n_experts;
}

enum { MOST_ELEMENTS = INT32_MAX / 2 };

/* Ranking choices settles, too. */
static bool fused(const syi_a2a_plan *p)
{
    return !p->routed && p->id != SYI_ALL_TO_ALL_COMBINE && p->rule.replica != SY_A2A_REPLICA_BALANCED;
}
/* And it ranks visits with them. */
static bool joint(const syi_a2a_plan *p)
{
    return fused(p) && visits_of(p) > 0 && keys_of(p) + p->n_devices <= SYC_MOST_COUNTED &&
           elements(p) + visits_of(p) <= MOST_ELEMENTS;
}

static bool can(const syi_a2a_plan *p)
{
    const int64_t most = MOST_ELEMENTS;
    return keys_of(p) <= SYC_MOST_COUNTED && p->n_devices <= SYC_MOST_COUNTED && p->n_tokens <= most &&
           elements(p) <= most && visits_of(p) <= most && p->n_positions * p->n_tokens <= most;
}

static void take_leads(syc_scratch *from, const syi_a2a_plan *p, syc_leads *l)
{
    l->number = from->take<u64>(1);
    l->need = from->take<syi_row_count>(p->n_devices);
    l->choice = from->take<int32_t>(elements(p));
    l->rank = from->take<int32_t>(elements(p));
    l->count = from->take<int32_t>(keys_of(p));
    l->first = from->take<int32_t>(p->n_devices * p->n_experts);
    l->holder = from->take<u64>(paired(p) ? p->n_experts : p->n_groups * p->n_experts);
    l->packed = from->take<int32_t>(visits_of(p));
    l->pick = from->take<u64>(p->layout == SY_LAYOUT_EXPERT ? elements(p) : 0);
}

static bool encodes(const syi_a2a_plan *p)
{
    return p->codes.given && p->id == SYI_ALL_TO_ALL_DISPATCH;
}

/* Of the addresses and distances of a plane, on one side. */
static u64 rows_alignment(const syi_a2a_plan *p, int plane, bool out)
{
    u64 bits = 0;
    for (int d = 0; d < p->n_devices; d++)
        bits |= syc_alignment(out ? p->device[d].to[plane] : p->device[d].from[plane]);
    return bits;
}

/* Rows become codes in the kernel that spreads them. Not to be asked after encode, whose codes take the place
   of the rows. */
static bool encodes_later(const syi_a2a_plan *p)
{
    return encodes(p) &&
           syc_codes_why_not(&p->codes, rows_alignment(p, 0, false) | rows_alignment(p, 0, true)) == NULL;
}

static void take_scratch(syc_scratch *from, exchange *x, bool leads, int processors)
{
    const syi_a2a_plan *const p = x->plan;
    const size_t one = syc_rank_bytes(elements(p) + (joint(p) ? visits_of(p) : 0),
                                      keys_of(p) + (joint(p) ? p->n_devices : 0), processors),
                 two = joint(p) ? 0 : syc_rank_bytes(visits_of(p), p->n_devices, processors);
    x->ranks = from->take<u8>((int64_t)(one > two ? one : two));
    x->devices =
        from->take<u8>(p->n_devices > SYC_FEW_DEVICES ? p->n_devices * (int64_t)sizeof *p->device : 0);
    x->words = from->take<u8>(word_bytes(p) > sizeof x->hosted.few ? (int64_t)word_bytes(p) : 0);
    x->begins = from->take<int32_t>(begins_of(p));
    x->owners = from->take<int32_t>(begins_of(p) > 0 ? p->n_experts : 0);
    x->keys = from->take<int32_t>(begins_of(p) > 0 && !fused(p) ? elements(p) : 0);
    if (leads)
        take_leads(from, p, &x->team.leads);
    /* the first and the last */
    for (int plane = 0; encodes(p) && !encodes_later(p) && plane < p->n_planes; plane += p->n_planes - 1)
        x->coded[plane > 0] = from->take<u8>(p->n_tokens * (int64_t)p->row_bytes[plane]);
}

/* Codes and scales of all tokens, in scratch memory, take the place of the rows. */
static void encode(syc_call *call, const exchange *x)
{
    const syi_a2a_plan *const p = x->plan;
    const int last = p->n_planes - 1;
    const int64_t bytes = (int64_t)p->row_bytes[0], scale_bytes = (int64_t)p->row_bytes[last];
    for (int d = 0; d < p->n_devices; d++) {
        syi_a2a_device *const device = &p->device[d];
        syi_row_codes_plan plan = p->codes;
        plan.n_rows = device->n_tokens;
        plan.dense = device->from[0];
        plan.codes = device->from[0] = {x->coded[0] + device->first * bytes, bytes};
        plan.scales = device->from[last] = {x->coded[1] + device->first * scale_bytes, scale_bytes};
        syc_code_rows(call, &plan, syc_same_rows{plan.dense, plan.n_rows}, plan.n_rows, plan.n_rows);
    }
}

/* Whether every expert is on one device of a group at most. */
static bool single_holders(const syi_a2a_plan *p)
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

static void fill_team(exchange *x)
{
    const syi_a2a_plan *const p = x->plan;
    syc_team *const m = &x->team;
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
    m->number = p->own < 0 || p->routed ? p->number : 0; /* else in row_counts */
    m->more = p->n_devices > SYC_FEW_DEVICES ? (const syi_a2a_device *)x->devices : NULL;
    for (int d = 0; m->more == NULL && d < p->n_devices; d++)
        m->few[d] = p->device[d];
}

/* Words of all devices, from the byte `first` on. */
static void fill_words(const syi_a2a_plan *p, u8 *to, size_t first, size_t bytes)
{
    const int64_t words = (p->n_experts + 31) / 32;
    for (size_t at = first; at < first + bytes; at += sizeof(u32)) {
        const int64_t i = (int64_t)(at / sizeof(u32)), d = i / words, begin = (i - d * words) * 32;
        u32 word = 0;
        for (int64_t e = begin; e < begin + 32 && e < p->n_experts; e++)
            word |= (paired(p) ? p->pairs.device[e] == d : p->local[d * p->n_experts + e] >= 0)
                        ? 1u << (e - begin)
                        : 0;
        memcpy(to + (at - first), &word, sizeof word);
    }
}

static void fill_hosted(exchange *x)
{
    const syi_a2a_plan *const p = x->plan;
    syc_hosted *const h = &x->hosted;
    const bool few = word_bytes(p) <= sizeof h->few;
    h->words = (int)((p->n_experts + 31) / 32);
    h->more = few ? NULL : (const u32 *)x->words;
    if (few)
        fill_words(p, (u8 *)h->few, 0, word_bytes(p));
}

/* Of nothing, nothing is divided. */
static syc_divisor divisor_of(int64_t n)
{
    return syc_divisor_of(n > 0 ? (u32)n : 1);
}

static struct choices choices_of(const exchange *x)
{
    const syi_a2a_plan *const p = x->plan;
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

static tables tables_of(const exchange *x)
{
    const syi_a2a_plan *const p = x->plan;
    const syi_a2a_device *const last = &p->device[p->n_devices - 1];
    tables t = {};
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
static void launch_rank(syc_call *call, const Keys &keys, const Out &out, u8 *scratch, const syc_gate &gate)
{
    syc_ranks ranks = syc_ranks_of(keys.n, call->device->processors);
    ranks.counts = (u32 *)scratch;
    syc_rank_launch(call, keys, keys, ranks, out, gate);
}

/* Choices of a dispatch: their faults are words of the gate. */
template <class Choices>
static void launch_choices(syc_call *call, const exchange *x, const Choices &keys, const ranked &out,
                           int steps)
{
    syc_ranks ranks = syc_ranks_of(keys.n, call->device->processors);
    ranks.counts = (u32 *)x->ranks;
    if (syc_ranks_few(keys.n, keys.n_keys)) {
        call->gate.n = 1;
        syc_launch(&call->queue, rank_and_settle<Choices>, SYC_AFTER, 1, SYC_RANK_THREADS,
                   syc_rank_few_bytes(keys.n, keys.n_keys), keys, out, x->team, steps, call->gate);
        return;
    }
    call->gate.n = ranks.chunks;
    syc_launch(&call->queue, syc_rank_count<Choices>, SYC_AFTER, ranks.chunks, SYC_RANK_THREADS,
               (size_t)syc_padded_keys(keys.n_keys) * sizeof(u32), keys, ranks, call->gate);
    syc_launch(&call->queue, place_and_settle<Choices>, SYC_EARLY, ranks.chunks + 1, SYC_RANK_THREADS,
               syc_rank_place_bytes(keys.n_keys), keys, ranks, out, x->team, steps, call->gate);
}

/* With a rule: choices of pairs. */
static void launch_served(syc_call *call, const exchange *x, const struct choices &choices,
                          const syc_gate &gate)
{
    const syi_a2a_plan *const p = x->plan;
    const bool turns = p->rule.replica == SY_A2A_REPLICA_BALANCED;
    const served to = {p->rule, {p->n_groups, x->begins, x->owners}, (int)p->n_named, x->keys};
    const served_keys keys = {choices.n, (int)(turns ? choices.n_keys : p->n_experts), x->keys};
    syc_launch(&call->queue, serve, SYC_AFTER, syc_ceil(choices.n, THREADS), THREADS, 0, choices, to);
    launch_rank(call, keys, ranked_pairs{x->team.leads, to}, x->ranks, gate);
}

/* From choices to rows; all faults are words of the gate then. */
static void launch_leads(syc_call *call, const exchange *x)
{
    const syi_a2a_plan *const p = x->plan;
    const syc_team *const m = &x->team;
    const bool packed_later = p->layout == SY_LAYOUT_PACKED && !joint(p);
    const syc_gate open = syc_open(call->gate);
    const auto settle_by = [&](int steps) {
        /* The first of a call waits for what others wrote before the next one loads it. */
        syc_launch(&call->queue, settle, m->routed ? SYC_AFTER : SYC_EARLY, 1, SETTLE_THREADS, 0, *m,
                   x->hosted, steps, call->gate);
    };
    if (!m->routed) {
        const struct choices keys = choices_of(x);
        const ranked out = {m->leads,       (int)p->n_experts, keys.first_visit,
                            p->n_positions, keys.n_choices,    keys.by_tokens};
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
            launch_choices(call, x, choices_served{keys, p->rule, {p->n_groups, x->begins, x->owners}}, out,
                           steps);
        else if (joint(p))
            launch_choices(call, x, choices_and_visits{keys}, out, steps);
        else
            launch_choices(call, x, keys, out, steps);
        if (packed_later) {
            visits seen = {};
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
static u64 alignment_of(const syi_a2a_plan *p, int plane)
{
    return p->row_bytes[plane] | rows_alignment(p, plane, false) | rows_alignment(p, plane, true);
}

static bool asks_for_counts(const syi_a2a_plan *p)
{
    for (int d = 0; d < p->n_devices; d++)
        if (p->device[d].expert_counts != NULL || p->device[d].expert_offsets != NULL)
            return true;
    return false;
}

/* Tokens are cut so that there are three blocks for each multiprocessor, and `most` vectors in a part. */
static int64_t token_parts(const syc_call *call, const syi_a2a_plan *p, int64_t vectors, int64_t most)
{
    const int64_t wanted = syc_ceil(grid_policy::PARTS * (int64_t)call->device->processors,
                                    p->n_tokens > 0 ? p->n_tokens : 1),
                  useful = syc_ceil(vectors, THREADS / 2);
    const int64_t least = syc_ceil(vectors, most), some = wanted < useful ? wanted : useful;
    return some > least ? some : least > 1 ? least : 1;
}

/* Blocks that write counts, and padding. */
static int64_t counting_blocks(const syi_a2a_plan *p)
{
    return asks_for_counts(p) ? syc_ceil(p->n_devices, THREADS / 32) : 0;
}
static int64_t padding_blocks(const syc_call *call, const exchange *x)
{
    /* odd: a block has first and last rows of experts */
    const int64_t hosted = padded_experts(x->team) * padded_parts(x->team),
                  most = exchange_policy::PADDING_BLOCKS * (int64_t)call->device->processors + 1;
    return x->team.align == 1 && !x->team.fixed ? 0 : hosted < most ? hosted : most;
}

template <typename V> static void launch_spread(syc_call *call, const exchange *x, int plane)
{
    const syi_a2a_plan *const p = x->plan;
    const int64_t vectors = (int64_t)(p->row_bytes[plane] / sizeof(V)),
                  parts = token_parts(call, p, vectors, (int64_t)1 << 20);
    const int64_t counting = plane > 0 ? 0 : counting_blocks(p);
    /* While choices are listed, memory has nothing else to do: blocks that run then load their tokens, and
       those of the blocks after them. */
    const bool loads = sizeof(V) == 16 && p->own < 0 && p->row_bytes[plane] <= SYC_EARLY_PART;
    const int64_t ahead =
        loads ? syc_ceil(exchange_policy::SPREAD_BLOCKS * (int64_t)call->device->processors, parts) : 0;
    /* early ones read rows before they wait */
    const syc_start start = x->coded[0] != NULL ? SYC_AFTER : SYC_EARLY;
    syc_launch(&call->queue, spread<V>, start, p->n_tokens * parts + counting + padding_blocks(call, x),
               THREADS, 0, x->team, plane, (u32)parts, (u32)syc_ceil(vectors, parts), (u32)vectors,
               (u32)ahead, (int)counting, call->gate);
}

/* For syc_by_codes. */
struct launch_spread_codes {
    syc_call *call;
    const exchange *x;
    template <sy_type T, syi_code C> void run() const
    {
        const syi_a2a_plan *const p = x->plan;
        const int64_t lanes = (int64_t)(p->codes.group / SYC_PACK_UNIT), units = p->codes.n_groups * lanes,
                      counting = counting_blocks(p);
        const int64_t width =
                          syc_ceil(syc_ceil(units, token_parts(call, p, units, SPREAD_UNITS)), lanes) * lanes,
                      parts = units > 0 ? syc_ceil(units, width) : 1;
        syc_launch(&call->queue, spread_codes<T, C>, SYC_EARLY,
                   p->n_tokens * parts + counting + padding_blocks(call, x), THREADS, 0, x->team, p->codes,
                   p->n_planes - 1, (u32)parts, (u32)width, (u32)units, syc_code_shift(&p->codes),
                   (int)counting, call->gate);
    }
};

template <typename V> static void launch_collect(syc_call *call, const exchange *x, int plane)
{
    const syi_a2a_plan *const p = x->plan;
    const int64_t bytes = (int64_t)p->row_bytes[plane], width = syc_piece_vectors<V>::count(bytes),
                  n = tokens_here(p) * p->n_slots,
                  pieces = syc_pieces_of_block(n, width, bytes, call->device->processors);
    syc_launch(&call->queue, collect<V>, SYC_EARLY, (n + pieces - 1) / pieces, THREADS, 0, x->team, plane, n,
               (int)pieces, syc_divisor_of((u32)width), bytes, call->gate);
}

/* Calls f with the widest vectors that fit; Other: any alignment. */
template <typename Other, class F> static void by_vector(u64 alignment, u64 bytes, const F &f)
{
    switch (syc_vector_bytes(alignment, bytes)) {
    case 16:
        f((uint4 *)NULL);
        return;
    case 4:
        f((u32 *)NULL);
        return;
    default:
        f((Other *)NULL);
    }
}

template <typename V> struct pointed;
template <typename V> struct pointed<V *> {
    typedef V type;
};

static bool counts_rows(const syi_a2a_plan *p)
{
    for (int d = 0; d < p->n_devices; d++)
        if (p->device[d].rows_from != NULL || p->device[d].rows_to != NULL)
            return true;
    return false;
}

static void launch_rows(syc_call *call, const exchange *x)
{
    const syi_a2a_plan *const p = x->plan;
    if (x->team.combine && p->sum) {
        if (tokens_here(p) > 0 && p->codes.given)
            syc_by_sum(p->codes.type,
                       syc_sums_sixteens(&p->codes, rows_alignment(p, 0, false), rows_alignment(p, 1, false),
                                         rows_alignment(p, 0, true)),
                       launch_coded_sums{call, x->team, tokens_here(p), &p->codes});
        else if (tokens_here(p) > 0)
            syc_by_type(p->type, alignment_of(p, 0), launch_sums{call, x->team, tokens_here(p), p->hidden});
    } else if (x->team.combine) {
        for (int plane = 0; plane < p->n_planes; plane++)
            by_vector<syc_window>(alignment_of(p, plane), p->row_bytes[plane], [&](auto v) {
                launch_collect<typename pointed<decltype(v)>::type>(call, x, plane);
            });
    } else {
        const bool coded = encodes(p) && x->coded[0] == NULL;
        if (coded)
            syc_by_codes(&p->codes, launch_spread_codes{call, x});
        for (int plane = coded; plane < p->n_planes - coded; plane++)
            by_vector<u8>(alignment_of(p, plane), 0, [&](auto v) {
                launch_spread<typename pointed<decltype(v)>::type>(call, x, plane);
            });
        if (counts_rows(p))
            syc_launch(&call->queue, count_rows, SYC_EARLY, p->n_devices, THREADS, 0, x->team, call->gate);
    }
    if (p->n_tokens == 0)
        syc_only_report(call);
}
