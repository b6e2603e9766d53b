/*
 * moe_map_physical on the CPU: a pass over the table validates it, one over the ids validates them and finds the replicas of
 * experts that are named, one writes. Where something is wrong, everything is validated again in the documented order.
 */
#include "cpu/backend.h"
#include "kernels/kernels.h"

struct expert {
    const unsigned char *replica; /* its row of the table */
    int32_t replicas;             /* to choose from */
    int32_t next; /* BALANCED: the replica of its next slot; FIRST and LOCAL: the physical expert */
};

struct experts {
    struct expert *at; /* [E] those that are named */
    bool *named;       /* [E] */
};

static struct experts lay_out(const sy_ctx *ctx, const struct syi_moe_map_physical_plan *p,
                              struct syi_arena *arena)
{
    struct experts experts;
    (void)ctx;
    experts.at = syi_take(arena, syi_size_mul((size_t)p->n_experts, sizeof *experts.at));
    experts.named = syi_take(arena, (size_t)p->n_experts);
    return experts;
}

SYI_CPU_WORKSPACE(moe_map_physical)

SYI_INLINE int64_t load_id(const unsigned char *row, int64_t j, sy_type type)
{
    uint16_t narrow;
    if (type != SY_TYPE_U16)
        return syi_load_index(row, j, type);
    memcpy(&narrow, row + 2 * j, sizeof narrow);
    return narrow;
}

SYI_INLINE void store_id(unsigned char *row, int64_t j, int32_t id, sy_type type)
{
    const uint16_t narrow = (uint16_t)id;
    if (type != SY_TYPE_U16)
        syi_store_index(row, j, id, type);
    else
        memcpy(row + 2 * j, &narrow, sizeof narrow);
}

static bool is_missing(const struct syi_moe_map_physical_plan *p, int64_t id)
{
    return p->args.allow_missing &&
           (id == p->n_experts || id == (p->ids.type == SY_TYPE_U16 ? (int64_t)UINT16_MAX : -1));
}

static int64_t count_replicas(const struct syi_moe_map_physical_plan *p, int64_t e)
{
    if (p->replica_count.data != NULL)
        return syi_load_i32(p->replica_count.data, e);
    int64_t n = 0;
    while (n < p->n_replicas && syi_load_i32(syi_at(p->table, e), n) >= 0)
        n++;
    return n;
}

/* 0: on the device; 1: on its node; 2: elsewhere. */
static int distance(const struct syi_moe_map_physical_plan *p, int64_t physical)
{
    const int64_t device = physical / p->per_device;
    if (device == p->args.device)
        return 0;
    return p->args.node_size > 0 && device / p->args.node_size == p->args.device / p->args.node_size ? 1 : 2;
}

/* Of the nearest replicas the one with number `device` mod how many there are. */
static int32_t nearest(const struct syi_moe_map_physical_plan *p, int64_t e, int64_t n)
{
    const unsigned char *row = syi_at(p->table, e);
    int64_t count[3] = {0, 0, 0};
    for (int64_t r = 0; r < n; r++)
        count[distance(p, syi_load_i32(row, r))]++;
    const int near = count[0] > 0 ? 0 : count[1] > 0 ? 1 : 2;
    const bool all = near == 2;
    int64_t skip = p->args.device % (all ? n : count[near]), r = 0;
    for (;; r++)
        if ((all || distance(p, syi_load_i32(row, r)) == near) && skip-- == 0)
            return syi_load_i32(row, r);
}

static int64_t before_of(const struct syi_moe_map_physical_plan *p, int64_t e)
{
    return p->counts_before.data != NULL ? syi_load_i64(p->counts_before.data, e) : 0;
}

/* Of a number that is not negative; a division of 64 bits takes several times as long as one of 32. */
static inline int32_t rest_of(int64_t number, int64_t n)
{
    if (number < n)
        return (int32_t)number;
    return number <= UINT32_MAX ? (int32_t)((uint32_t)number % (uint32_t)n) : (int32_t)(number % n);
}

/* Of an expert that a slot names. False when it has no replica, more than there is room for, or none that can exist. */
static inline bool find_replicas(const struct syi_moe_map_physical_plan *p, struct expert *expert, int64_t e)
{
    const int64_t n = count_replicas(p, e);
    if (n < 1 || n > p->n_replicas || p->n_physical == 0)
        return false;
    expert->replica = syi_at(p->table, e);
    expert->replicas = (int32_t)n;
    expert->next = p->args.rule == SY_REPLICA_BALANCED ? rest_of(before_of(p, e), n)
                   : p->args.rule == SY_REPLICA_LOCAL  ? nearest(p, e, n)
                                                       : syi_load_i32(expert->replica, 0);
    return true;
}

static bool all_below(const unsigned char *entries, int64_t n, int64_t limit)
{
    const int32_t most = (int32_t)(limit - 1);
    int32_t above = 0;
    for (int64_t i = 0; i < n; i++)
        above |= syi_load_i32(entries, i) > most;
    return above == 0;
}

/* Every replica is a physical expert, and no count is negative. Entries after the first negative one count too: what is
   wrong there alone is found not to be. */
static bool table_is_good(const struct syi_moe_map_physical_plan *p)
{
    const int64_t n_replicas = p->n_replicas;
    const bool together = p->table.stride == n_replicas * 4 || p->n_experts == 1;
    bool good = !together || all_below(p->table.data, p->n_experts * n_replicas, p->n_physical);
    for (int64_t e = 0; e < p->n_experts && !together; e++)
        good &= all_below(syi_at(p->table, e), n_replicas, p->n_physical);
    for (int64_t e = 0; e < p->n_experts && p->counts_before.data != NULL; e++)
        good &= syi_load_i64(p->counts_before.data, e) >= 0;
    for (int64_t e = 0; e < p->n_experts && p->replica_count.data != NULL; e++) {
        const int64_t n = syi_load_i32(p->replica_count.data, e);
        for (int64_t r = 0; r < n && r < n_replicas; r++)
            good &= syi_load_i32(syi_at(p->table, e), r) >= 0;
    }
    return good;
}

SYI_INLINE bool ids_are_good_of(const struct syi_moe_map_physical_plan *p, bool *named, sy_type type)
{
    const int64_t n_slots = p->n_slots, n_experts = p->n_experts;
    for (int64_t t = 0; t < p->n_tokens && n_slots > 0; t++) {
        const unsigned char *row = syi_at(p->ids, t);
        for (int64_t j = 0; j < n_slots; j++) {
            const int64_t id = load_id(row, j, type);
            if (id >= 0 && id < n_experts)
                named[id] = true;
            else if (!is_missing(p, id))
                return false;
        }
    }
    return true;
}

static bool ids_are_good(const struct syi_moe_map_physical_plan *p, struct experts experts)
{
    bool good = p->ids.type == SY_TYPE_I32 ? ids_are_good_of(p, experts.named, SY_TYPE_I32)
                                           : ids_are_good_of(p, experts.named, p->ids.type);
    for (int64_t e = 0; good && e < p->n_experts; e++) {
        if (e % 8 == 0 && e + 8 <= p->n_experts &&
            syi_load_u64((const unsigned char *)experts.named + e) == 0)
            e += 7; /* few experts are named by few tokens */
        else if (experts.named[e])
            good = find_replicas(p, &experts.at[e], e);
    }
    return good;
}

/* The first fault: of all ids, then of experts, in order. */
static sy_status check_ids(sy_ctx *ctx, const struct syi_moe_map_physical_plan *p, bool *named)
{
    for (int64_t t = 0; t < p->n_tokens; t++)
        for (int64_t j = 0; j < p->n_slots; j++) {
            const int64_t id = load_id(syi_at(p->ids, t), j, p->ids.type);
            if (id >= 0 && id < p->n_experts)
                named[id] = true;
            else if (!is_missing(p, id))
                return syi_reject(ctx, SYI_BAD_ID_RANGE, t, j, id, p->n_experts);
        }
    return SY_OK;
}

static sy_status check_expert(sy_ctx *ctx, const struct syi_moe_map_physical_plan *p, bool named, int64_t e)
{
    const int64_t n = count_replicas(p, e), most = p->n_replicas, before = before_of(p, e);
    if (named && (n < 1 || n > most))
        return syi_reject(ctx, p->replica_count.data != NULL ? SYI_BAD_REPLICA_COUNT : SYI_BAD_REPLICA_NONE,
                          -1, e, n, most);
    for (int64_t r = 0; r < n && r < most; r++) {
        const int64_t physical = syi_load_i32(syi_at(p->table, e), r);
        if (physical < 0 || physical >= p->n_physical)
            return syi_reject(ctx, SYI_BAD_REPLICA_ENTRY, e, r, physical, p->n_physical);
    }
    return before < 0 ? syi_reject(ctx, SYI_BAD_BEFORE_NEGATIVE, -1, e, before, 0) : SY_OK;
}

static sy_status check_in_order(sy_ctx *ctx, const struct syi_moe_map_physical_plan *p,
                                struct experts experts)
{
    SYI_TRY(check_ids(ctx, p, experts.named));
    for (int64_t e = 0; e < p->n_experts; e++)
        SYI_TRY(check_expert(ctx, p, experts.named[e], e));
    return SY_OK;
}

/* The physical expert that serves a slot of token i = token_base + t. */
SYI_INLINE int32_t choose(sy_replica_rule rule, struct expert *expert, uint64_t i)
{
    const uint32_t n = (uint32_t)expert->replicas;
    if (rule == SY_REPLICA_FIRST || rule == SY_REPLICA_LOCAL)
        return expert->next;
    if (rule == SY_REPLICA_ROUND_ROBIN)
        return syi_load_i32(expert->replica, i <= UINT32_MAX ? (uint32_t)i % n : (int64_t)(i % n));
    if (rule == SY_REPLICA_HASH)
        return syi_load_i32(expert->replica, (uint32_t)(i * UINT64_C(2654435769)) % n);
    const int32_t r = expert->next, next = r + 1;
    expert->next = next == (int32_t)n ? 0 : next;
    return syi_load_i32(expert->replica, r);
}

/* Modulo 2^64. */
static inline void add_one(unsigned char *sums, int64_t i)
{
    syi_store_i64(sums, i, (int64_t)((uint64_t)syi_load_i64(sums, i) + 1));
}

static void count_slot(const struct syi_moe_map_physical_plan *p, int64_t e, int32_t physical)
{
    if (p->load.data != NULL)
        add_one(p->load.data, physical);
    if (p->logical_load.data != NULL)
        add_one(p->logical_load.data, e);
}

SYI_INLINE void write_ids_of(const struct syi_moe_map_physical_plan *p, struct expert *experts, sy_type in,
                             sy_type out)
{
    const sy_replica_rule rule = p->args.rule;
    const bool counts = p->load.data != NULL || p->logical_load.data != NULL;
    const int64_t n_slots = p->n_slots, n_experts = p->n_experts; /* which no store can change */
    for (int64_t t = 0; t < p->n_tokens && n_slots > 0; t++) {
        const unsigned char *from = syi_at(p->ids, t);
        unsigned char *to = p->out.data != NULL ? syi_at(p->out, t) : NULL;
        const uint64_t i = (uint64_t)p->args.token_base + (uint64_t)t;
        for (int64_t j = 0; j < n_slots; j++) {
            const int64_t e = load_id(from, j, in);
            const bool valid = e >= 0 && e < n_experts;
            const int32_t physical = valid ? choose(rule, &experts[e], i) : -1;
            if (valid && counts)
                count_slot(p, e, physical);
            if (to != NULL)
                store_id(to, j, physical, out);
        }
    }
}

static void write_ids(const struct syi_moe_map_physical_plan *p, struct expert *experts)
{
    if (p->ids.type == SY_TYPE_I32 && p->out.type == SY_TYPE_I32)
        write_ids_of(p, experts, SY_TYPE_I32, SY_TYPE_I32);
    else
        write_ids_of(p, experts, p->ids.type, p->out.type);
}

sy_status syi_cpu_moe_map_physical(sy_ctx *ctx, const union syi_plan *plan, void *workspace)
{
    const struct syi_moe_map_physical_plan *p = &plan->moe_map_physical;
    struct syi_arena arena = {workspace, 0};
    const struct experts experts = lay_out(ctx, p, &arena);
    if (p->n_experts > 0)
        memset(experts.named, 0, (size_t)p->n_experts);
    if (!ids_are_good(p, experts) || !table_is_good(p))
        SYI_TRY(check_in_order(ctx, p, experts));
    write_ids(p, experts.at);
    return SY_OK;
}
