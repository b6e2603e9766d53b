/*
 * Contents for random calls of every operator: by the names of its tensors, so that most calls are valid, in the orders and
 * densities that lead kernels along different ways.
 */
#include "random.h"

#include "support.h"
#include "support_random.h"

uint64_t rng;

int64_t below(int64_t n)
{
    return n > 0 ? rng_below(&rng, n) : 0;
}

bool chance(int64_t one_of)
{
    return below(one_of) == 0;
}

int pick(struct reader *r, int n)
{
    (void)r;
    return (int)below(n);
}

static struct item *item_of(struct call *c, const char *name)
{
    for (int i = 0; i < c->count; i++)
        if (strcmp(c->items[i].name, name) == 0)
            return &c->items[i];
    return NULL;
}

static int64_t extent_of(struct call *c, const char *name, int d)
{
    const struct item *const x = item_of(c, name);
    return x != NULL ? x->shape[d] : 0;
}

int64_t scalar_of(const struct call *c, const char *name)
{
    const sy_op_info *const info = sy_op_find(fuzz_ops[c->op].name);
    for (int i = info->n_tensors; i < info->n_fields; i++) {
        const sy_field_info *const field = sy_op_field(info, i);
        const char *const at = (const char *)&c->args + field->offset;
        int64_t wide = 0;
        int32_t narrow;
        if (strcmp(field->name, name) != 0)
            continue;
        if (field->kind == SY_KIND_BOOL)
            return *(const bool *)at;
        if (field->kind == SY_KIND_INT || field->kind == SY_KIND_ENUM) {
            memcpy(&narrow, at, sizeof narrow);
            return narrow;
        }
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    return 0;
}

static bool named(const struct item *x, const char *name)
{
    return strcmp(x->name, name) == 0;
}

/* Numbers below a limit in one of the orders that matter to kernels. */
static void spread(int64_t *v, int64_t n, int64_t limit)
{
    const int64_t how = below(6), same = below(limit);
    for (int64_t i = 0; i < n; i++)
        v[i] = how == 0   ? same
               : how == 1 ? i * limit / n
               : how == 2 ? limit - 1 - i * limit / n
               : how == 3 ? (same + below(3)) % (limit > 0 ? limit : 1)
                          : below(limit);
}

/* The numbers below `most`, mixed; again from the first where these are fewer than n. */
static void mix(int64_t *v, int64_t n, int64_t most)
{
    const bool keep = chance(3);
    int64_t *const all = malloc((size_t)(most + 1) * sizeof *all);
    for (int64_t i = 0; i < most; i++)
        all[i] = i;
    for (int64_t i = most - 1; i > 0 && !keep; i--) {
        const int64_t k = below(i + 1), held = all[i];
        all[i] = all[k];
        all[k] = held;
    }
    for (int64_t i = 0; i < n; i++)
        v[i] = most > 0 ? all[i % most] : 0;
    free(all);
}

/* Some become -1, a part of them or none. */
static void leave_out(int64_t *v, int64_t n)
{
    const int64_t odds = chance(2) ? 0 : 2 + below(9);
    for (int64_t i = 0; i < n; i++)
        if (odds > 0 && chance(odds))
            v[i] = -1;
}

/* Ascending from 0 to at most `last`, with steps of at most `step`. */
static void ascend(int64_t *v, int64_t n, int64_t last, int64_t step)
{
    const bool even = chance(2);
    const int64_t each = n > 1 ? last / (n - 1) : 0;
    for (int64_t i = 1; i < n; i++) {
        const int64_t left = last - v[i - 1], free_ = chance(3) ? 0 : even ? each : below(left + 1);
        v[i] = v[i - 1] + (free_ < step ? free_ : step);
    }
}

/* Rows of a map with at most, or exactly, so many experts. NULL: the same `most` for all. */
static void fill_map(int64_t *v, int64_t tokens, int64_t experts, const int64_t *exactly, int64_t most)
{
    const int64_t how = below(4), first = below(experts);
    for (int64_t t = 0; t < tokens; t++) {
        int64_t n = exactly != NULL ? exactly[t] : how == 3 ? most : below(most + 1);
        n = n < experts ? n : experts;
        for (int64_t k = 0, e = how == 0 ? first : below(experts); k < n; k++, e = (e + 1) % experts) {
            while (v[t * experts + e] != 0 && how != 0)
                e = below(experts);
            v[t * experts + e] = 1;
        }
    }
}

/* Distinct numbers in each row, while there are enough of them. */
static void fill_ids(int64_t *v, int64_t tokens, int64_t slots, int64_t experts)
{
    const int64_t how = below(4), first = below(experts);
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t k = 0, e = how == 0 ? first : below(experts); k < slots; k++) {
            v[t * slots + k] = e;
            e = experts > 0 ? (e + 1 + (how == 1 && experts > 4 * slots ? below(3) : 0)) % experts : 0;
        }
}

static int64_t *live; /* rows of each token in sorted_indices, for the map */
static int64_t *ends; /* the list ends made last, and how many */
static int64_t n_ends;

void forget(void)
{
    free(live);
    free(ends);
    live = ends = NULL;
    n_ends = 0;
}

static void remember(int64_t **where, const int64_t *v, int64_t n)
{
    *where = realloc(*where, (size_t)(n + 1) * sizeof **where);
    memcpy(*where, v, (size_t)n * sizeof **where);
}

/* Slots of moe_permute: row of each slot, at most E of a token; and how many each token has. */
static void fill_slots(struct call *c, int64_t *v, int64_t n, int64_t tokens, int64_t experts)
{
    int64_t *const count = calloc((size_t)tokens + 1, sizeof *count);
    mix(v, n, n);
    leave_out(v, n);
    for (int64_t i = 0; i < n && tokens > 0; i++) {
        const int64_t t = i / (n / tokens);
        if (experts > 0 && count[t] == experts)
            v[i] = -1;
        count[t] += v[i] >= 0;
    }
    remember(&live, count, tokens);
    free(count);
    (void)c;
}

static void fill_sorted(struct call *c, const struct item *x, int64_t *v, int64_t n)
{
    const char *const op = fuzz_ops[c->op].name;
    const int64_t tokens = scalar_of(c, "num_tokens") != 0 ? scalar_of(c, "num_tokens")
                           : item_of(c, "tokens") != NULL  ? extent_of(c, "tokens", 0)
                                                           : extent_of(c, "grad_tokens", 0);
    const struct item *const map = item_of(c, "routing_map");
    if (strcmp(op, "moe_unpermute_ids") == 0) {
        const int64_t rows = scalar_of(c, "num_rows") != 0 ? scalar_of(c, "num_rows") : n;
        chance(2) ? mix(v, n, rows) : spread(v, n, rows);
        leave_out(v, n);
    } else if (strcmp(op, "moe_convert_indices") == 0 && x->t.ndim == 2) {
        const int64_t width = x->shape[1], experts = width / 2, rows = scalar_of(c, "num_rows");
        int64_t *const row = calloc((size_t)rows + 1, sizeof *row), next = 0;
        mix(row, rows, rows);
        for (int64_t t = 0; t < x->shape[0]; t++) {
            const int64_t of_token = below((experts < 4 ? experts : 4) + 1);
            int64_t k = 0;
            for (; k < of_token && next < rows; k++)
                v[t * width + k] = row[next++];
            v[t * width + width - 1] = k;
            for (; k < experts; k++)
                v[t * width + k] = -1;
        }
        free(row);
    } else if (strcmp(op, "moe_convert_indices") == 0 && scalar_of(c, "from") == SY_INDEX_ROW) {
        mix(v, n, n);
        for (int64_t i = 0; i < n; i++)
            v[i] = tokens > 0 ? v[i] % tokens : -1;
        leave_out(v, n);
    } else if (scalar_of(c, "drop_and_pad")) {
        spread(v, n, tokens);
        if (scalar_of(c, "zero_pad"))
            leave_out(v, n);
    } else {
        fill_slots(c, v, n, tokens, map != NULL ? map->shape[1] : 0);
    }
}

static void fill_routing_map(struct call *c, const struct item *x, int64_t *v)
{
    const char *const op = fuzz_ops[c->op].name;
    const int64_t tokens = x->shape[0], experts = x->shape[1];
    int64_t most = experts;
    if (strcmp(op, "moe_permute") == 0 && !scalar_of(c, "drop_and_pad") && tokens > 0)
        most = scalar_of(c, "num_out_tokens") / tokens;
    else if (strcmp(op, "moe_ids_from_map") == 0)
        most = scalar_of(c, "k");
    const bool exact = item_of(c, "sorted_indices") != NULL && !item_of(c, "sorted_indices")->output &&
                       !scalar_of(c, "drop_and_pad");
    fill_map(v, tokens, experts, exact ? live : NULL, most < experts ? most : experts);
}

/* Tokens that a list of pages can have, and the pages of the cache. */
static int64_t kv_tokens(struct call *c)
{
    const int64_t size = scalar_of(c, "block_size"), lists = extent_of(c, "indptr", 0) - 1;
    const int64_t columns = item_of(c, "block_table") != NULL ? extent_of(c, "block_table", 1)
                            : lists > 0                       ? extent_of(c, "page_indices", 0) / lists
                                                              : 0;
    return columns * size;
}

static int64_t kv_pages(struct call *c)
{
    const struct item *const cache = item_of(c, "cache");
    const int64_t size = scalar_of(c, "block_size") > 0 ? scalar_of(c, "block_size") : 1;
    if (cache == NULL)
        return scalar_of(c, "num_rows") / size;
    return cache->t.ndim == 2 && c->args.gather.format == NULL ? cache->shape[0] / size : cache->shape[0];
}

/* Blocks that are written are no other pair's, and none that is read, while there are enough. */
static void fill_pairs(struct call *c, int64_t *v, int64_t n)
{
    const bool two = c->args.blocks.src != NULL;
    const int64_t size = scalar_of(c, "block_size"), pages = kv_pages(c), held = two ? 0 : pages / 2;
    const DLTensor *const to = two ? c->args.blocks.dst : c->args.blocks.cache;
    const int64_t room = (to->ndim == 2 ? to->shape[0] / size : to->shape[0]) - held;
    int64_t *const writes = calloc((size_t)n / 2 + 1, sizeof *writes);
    mix(writes, n / 2, room);
    for (int64_t i = 0; i < n; i += 2) {
        v[i] = below(two ? pages : held);
        v[i + 1] = held + writes[i / 2];
    }
    free(writes);
}

static void fill_mapping(struct call *c, const struct item *x, int64_t *v, int64_t n)
{
    const int64_t devices = x->shape[x->t.ndim - 1], experts = x->shape[x->t.ndim - 2],
                  own = scalar_of(c, "device");
    const struct item *const input = item_of(c, "input");
    const int64_t here = input->t.ndim == 2 ? below(experts + 1) : input->shape[0], first = below(experts);
    for (int64_t e = 0; e < experts; e++) {
        const bool is_here = (e + first) % experts < here;
        const int64_t other = devices > 1 ? (own + 1 + below(devices - 1)) % devices : -1;
        if (is_here)
            v[e * devices + own] = 1;
        else if (other >= 0)
            v[e * devices + other] = 1;
    }
    for (int64_t i = experts * devices; i < n; i++) /* further copies */
        v[i] = v[i - experts * devices];
}

/* Tokens of lists; ascending in each where the operator wants it. */
static void fill_tokens(const struct item *x, int64_t *v, int64_t n, int64_t rows, int64_t vocabulary)
{
    spread(v, n, vocabulary);
    for (int64_t i = 0; i < n && (named(x, "given_token") || named(x, "score_token")); i++)
        v[i] = chance(3) ? -1 : v[i];
    for (int64_t row = 0; row < rows && row + 1 < n_ends && named(x, "override_token"); row++)
        for (int64_t i = ends[row]; i < ends[row + 1] && i < n; i++)
            v[i] = (i - ends[row]) * vocabulary / (ends[row + 1] - ends[row]);
}

static void fill_kv(struct call *c, const struct item *x, int64_t *v, int64_t n)
{
    const int64_t tokens = kv_tokens(c), size = scalar_of(c, "block_size");
    const int64_t lists =
        item_of(c, "block_table") ? extent_of(c, "block_table", 0) : extent_of(c, "indptr", 0) - 1;
    if (named(x, "block_table") || named(x, "page_indices"))
        spread(v, n, kv_pages(c));
    else if (named(x, "indptr"))
        ascend(v, n, extent_of(c, "page_indices", 0), INT64_MAX);
    else if (named(x, "cu_lens"))
        ascend(v, n, extent_of(c, "out", 0), tokens);
    else if (named(x, "last_page_len"))
        for (int64_t i = 0; i < n; i++)
            v[i] = chance(2) ? size : 1 + below(size);
    else if (named(x, "seq_lens"))
        for (int64_t i = 0; i < n; i++)
            v[i] = chance(9) ? below(tokens + 1) : tokens;
    else if (named(x, "req_id") || named(x, "batch"))
        spread(v, n, lists);
    else if (named(x, "starts"))
        spread(v, n, chance(2) ? 1 : 2);
    else if (named(x, "counts"))
        spread(v, n, extent_of(c, "indices", 1) + 1);
    else if (named(x, "pairs"))
        fill_pairs(c, v, n);
    else if (named(x, "slots")) {
        const int64_t rows = kv_pages(c) * (size > 0 ? size : item_of(c, "cache")->shape[1]);
        chance(6) ? spread(v, n, rows) : mix(v, n, rows);
        if (scalar_of(c, "pad") == SY_PAD_SKIP) {
            leave_out(v, n);
            for (int64_t i = rows; i < n; i++) /* else they repeat the first ones */
                v[i] = -1;
        }
    } else { /* indices, position */
        spread(v, n, tokens);
        if (scalar_of(c, "pad") != SY_PAD_ERROR)
            leave_out(v, n);
    }
}

static void fill_physical(struct call *c, const struct item *x, int64_t *v, int64_t n)
{
    const int64_t replicas = extent_of(c, "logical_to_physical", 1), full = below(replicas + 1);
    if (named(x, "ids")) {
        spread(v, n, extent_of(c, "logical_to_physical", 0));
        if (scalar_of(c, "allow_missing"))
            leave_out(v, n);
    } else if (named(x, "logical_to_physical")) {
        spread(v, n, scalar_of(c, "num_physical"));
        for (int64_t i = 0; i < n && item_of(c, "replica_count") == NULL; i++)
            v[i] = i % replicas > full ? -1 : v[i];
    } else if (named(x, "replica_count"))
        for (int64_t i = 0; i < n; i++)
            v[i] = 1 + below(replicas);
    else /* counts_before, sums */
        for (int64_t i = 0; i < n; i++)
            v[i] = (int64_t)(rng_u64(&rng) >> (1 + below(63)));
}

/* Ends of the sequences of sample_overrides, none of them empty. */
static void fill_sequences(int64_t *v, int64_t n, int64_t tokens)
{
    for (int64_t i = 1; i < n; i++)
        v[i] = v[i - 1] + 1 + (tokens - v[i - 1] > n - i ? below(tokens - v[i - 1] - (n - 1 - i)) : 0);
}

/* Rows that drafts continue: before them, in each request. */
static void fill_parents(struct call *c, const struct item *x, int64_t *v, int64_t n)
{
    const bool dense = x->t.ndim == 2;
    for (int64_t i = 0, first = 0; i < n; i++) {
        for (int64_t b = 0; !dense && b + 1 < n_ends; b++)
            first = ends[b] <= i ? ends[b] : first;
        const int64_t r = dense ? i % x->shape[1] : i - first;
        v[i] = chance(2) ? r - 1 : below(r);
    }
    (void)c;
}

/* Given experts of moe_route: distinct ones in each row, and a row for each token. */
static void fill_given(struct call *c, const struct item *x, int64_t *v, int64_t n)
{
    if (named(x, "ids_rows")) {
        spread(v, n, extent_of(c, "ids_in", 0));
        return;
    }
    fill_ids(v, x->shape[0], x->shape[1], extent_of(c, "logits", 1));
    if (scalar_of(c, "allow_missing"))
        leave_out(v, n);
}

/* Ends of experts, the last mostly that of the rows. */
static void fill_offsets(struct call *c, int64_t *v, int64_t n)
{
    const struct item *const sorted = item_of(c, "sorted_indices");
    ascend(v, n, sorted->shape[0], INT64_MAX);
    if (n > 1 && !chance(4))
        v[n - 1] = sorted->t.ndim == 1 ? sorted->shape[0] : v[n - 1];
}

/* Lengths of chunks that are together no longer than the rows. */
static void fill_chunks(struct call *c, int64_t *v, int64_t n)
{
    int64_t left = extent_of(c, "rows", 0);
    for (int64_t i = 0; i < n; left -= v[i++])
        v[i] = chance(3)                        ? 0
               : chance(20)                     ? left
               : below(left * 2 / n + 2) < left ? below(left * 2 / n + 2)
                                                : 0;
    for (int64_t i = 0, all = 0; i < n; i++) { /* the draws above differ */
        v[i] = all + v[i] <= extent_of(c, "rows", 0) ? v[i] : 0;
        all += v[i];
    }
}

/* Valid numbers for one tensor, or nearly so. */
static void fill_numbers(struct call *c, const struct item *x, int64_t *v, int64_t n)
{
    const char *const op = fuzz_ops[c->op].name;
    const struct item *const logits = item_of(c, "logits");
    const int64_t experts = scalar_of(c, "num_experts"),
                  vocabulary = logits != NULL ? logits->shape[logits->t.ndim - 1] : 0;
    const bool samples = strncmp(op, "sample_", 7) == 0;
    if (strcmp(op, "moe_map_physical") == 0)
        fill_physical(c, x, v, n);
    else if (named(x, "sorted_indices"))
        fill_sorted(c, x, v, n);
    else if (named(x, "routing_map"))
        fill_routing_map(c, x, v);
    else if (named(x, "ids")) {
        fill_ids(v, x->shape[0], x->shape[1], experts > 0 ? experts : 40);
        if (scalar_of(c, "allow_missing"))
            leave_out(v, n);
    } else if (named(x, "bias_ids")) {
        spread(v, n, extent_of(c, "bias", 0));
        leave_out(v, n);
    } else if (named(x, "ids_in") || named(x, "ids_rows"))
        fill_given(c, x, v, n);
    else if (named(x, "expert_map")) {
        mix(v, n, n);
        leave_out(v, n);
    } else if (named(x, "expert_offsets"))
        fill_offsets(c, v, n);
    else if (samples && named(x, "cu_lens")) {
        ascend(v, n, extent_of(c, "logits", 0),
               scalar_of(c, "max_rows") > 0 ? scalar_of(c, "max_rows") : INT64_MAX);
        remember(&ends, v, n);
        n_ends = n;
    } else if (named(x, "parent"))
        fill_parents(c, x, v, n);
    else if (named(x, "seq_indptr"))
        fill_sequences(v, n, extent_of(c, "seq_token", 0));
    else if (named(x, "seq_row_indptr"))
        ascend(v, n, extent_of(c, "seq_indptr", 0) - 1, INT64_MAX);
    else if (named(x, "min_tokens"))
        spread(v, n, 9);
    else if (strstr(x->name, "_indptr") != NULL) {
        char name[40];
        snprintf(name, sizeof name, "%.*s_token", (int)(strlen(x->name) - 7), x->name);
        ascend(v, n, extent_of(c, name, 0), named(x, "override_indptr") ? vocabulary : INT64_MAX);
        remember(&ends, v, n);
        n_ends = n;
    } else if (strstr(x->name, "_token") != NULL) {
        const bool few = samples && !named(x, "override_token") && vocabulary > 2 && chance(3);
        fill_tokens(x, v, n, extent_of(c, "override_indptr", 0) - 1, few ? 2 : vocabulary);
        if (named(x, "draft_token"))
            leave_out(v, n);
    } else if (named(x, "top_k"))
        for (int64_t i = 0; i < n; i++)
            v[i] =
                (int64_t[]){0, 1, 2, vocabulary, vocabulary + 1, -1, below(60), below(vocabulary)}[below(8)];
    else if (named(x, "expert_mapping"))
        fill_mapping(c, x, v, n);
    else if (named(x, "expert_metadata")) {
        const struct item *const map = item_of(c, "expert_mapping");
        spread(v, n, map->shape[map->t.ndim - 2]);
        leave_out(v, n);
    } else if (strncmp(op, "kv_", 3) == 0)
        fill_kv(c, x, v, n);
    else if (strcmp(op, "moe_reorder_chunks") == 0)
        fill_chunks(c, v, n);
    else if (named(x, "indices")) {
        spread(v, n, experts);
        leave_out(v, n);
    } else if (named(x, "locations")) {
        const int64_t room = scalar_of(c, "capacity");
        chance(2) ? mix(v, n, room + 1) : spread(v, n, room + 2);
        leave_out(v, n);
    } else if (named(x, "counts"))
        spread(v, n, scalar_of(c, "samples") + 1);
    else if (named(x, "finished") ||
             strcmp(op, "moe_place") == 0) /* flags, loads, or experts of `previous` */
        spread(v, n, named(x, "finished") ? 2 : named(x, "loads") ? 100 : extent_of(c, "loads", 1));
    else /* bits, seeds */
        for (int64_t i = 0; i < n; i++)
            v[i] = (int64_t)rng_u64(&rng);
}

/* One or a few numbers become others: neighbours of what they are, those of other places, any. */
static void disturb(int64_t *v, int64_t n)
{
    for (int64_t k = 1 + below(3); k > 0 && n > 0; k--) {
        const int64_t at = chance(3) ? n - 1 : below(n);
        v[at] = (int64_t[]){(int64_t)((uint64_t)v[at] + 1),
                            (int64_t)((uint64_t)v[at] - 1),
                            v[below(n)],
                            -1,
                            -2,
                            n,
                            any_outside(&rng, n),
                            INT64_MIN,
                            INT64_C(1) << 32 | v[at],
                            255}[below(10)];
    }
}

static bool is_float(DLDataType type)
{
    return type.bits >= 16 && (type.code == kDLFloat || type.code == kDLBfloat);
}

/* Floats of any bits, few different ones, special ones; those that steer an operator in the range it accepts. */
static void fill_reals(const struct item *x, unsigned char *to, int64_t n)
{
    static const uint32_t special[] = {0x7fc00000, 0x7f800000, 0xff800000, 0, 0x80000000, 0x3f800000};
    const size_t size = element_bytes(x->t.dtype);
    const bool half = x->t.dtype.code == kDLFloat && size == 2;
    const int64_t how = below(6), few = 1 + below(6);
    fill_floats(&rng, x->t.dtype, to, n, how == 0 ? 0 : how == 1 ? 3 : 40);
    const bool limited = named(x, "top_p") || named(x, "min_p"),
               positive = named(x, "temperature") || named(x, "q");
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        double value = 0;
        if (limited && how < 5)
            value = chance(5) ? 1 : rng_unit(&rng);
        else if (positive && how < 5)
            value = 0.05 + 2 * rng_unit(&rng);
        else if (how == 5 || (how == 4 && chance(3)))
            value = (double)f32_from_bits(special[below(few)]);
        else if (how == 3)
            value = (double)(below(few) - 2) / 4;
        else
            continue;
        bits = size == 4 ? f32_round(value) : half ? f16_round(value) : bf16_round(value);
        memcpy(to + (size_t)i * size, &bits, size);
    }
}

/* Places an array without gaps into the tensor. */
static void put(const struct item *x, const unsigned char *dense, int64_t n)
{
    const size_t size = element_bytes(x->t.dtype);
    for (int64_t i = 0; i < n; i++) {
        int64_t at = 0, rest = i, compact = 1;
        for (int d = x->t.ndim - 1; d >= 0; d--) {
            at += rest % x->shape[d] * (x->t.strides != NULL ? x->strides[d] : compact);
            compact *= x->shape[d];
            rest /= x->shape[d];
        }
        memcpy((unsigned char *)x->t.data + x->t.byte_offset + at * (int64_t)size, dense + (size_t)i * size,
               size);
    }
}

void fill(struct call *c, const struct item *x, bool disturbed)
{
    const size_t size = element_bytes(x->t.dtype);
    int64_t n = 1;
    for (int d = 0; d < x->t.ndim; d++)
        n *= x->shape[d];
    unsigned char *const dense = calloc((size_t)n + 1, size);
    if (is_float(x->t.dtype)) {
        fill_reals(x, dense, n);
    } else if (strstr(x->name, "plane") != NULL || named(x, "rows") || named(x, "extra") || named(x, "src") ||
               named(x, "cache") || (disturbed && chance(12))) {
        rng_fill(&rng, dense, (size_t)n * size);
    } else {
        int64_t *const v = calloc((size_t)n + 1, sizeof *v);
        fill_numbers(c, x, v, n);
        if (disturbed && chance(2))
            disturb(v, n);
        for (int64_t i = 0; i < n; i++)
            memcpy(dense + (size_t)i * size, &v[i], size);
        free(v);
    }
    put(x, dense, n);
    free(dense);
}

static int64_t number_at(const DLTensor *t, int64_t i)
{
    const char *const at = (const char *)t->data + t->byte_offset +
                           i * (t->strides != NULL ? t->strides[0] : 1) * t->dtype.bits / 8;
    int64_t wide = 0;
    int32_t narrow;
    if (t->dtype.bits == 64) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Whether two numbers i * scale + j, both given as tensors, are equal; j may be missing. */
static bool twice(const DLTensor *i, const DLTensor *j, int64_t limit, int64_t scale)
{
    if (i == NULL || i->data == NULL || i->shape == NULL || i->ndim != 1 || i->shape[0] < 2 ||
        i->dtype.bits < 32)
        return false;
    if (j != NULL && (j->data == NULL || j->shape == NULL || j->ndim != 1 || j->shape[0] != i->shape[0]))
        return false;
    const int64_t n = i->shape[0];
    int64_t *const v = calloc((size_t)n, sizeof *v), kept = 0;
    bool found = false;
    for (int64_t k = 0; k < n; k++) {
        const int64_t first = number_at(i, k), second = j != NULL ? number_at(j, k) : 0;
        if (first >= 0 && first < limit && second >= 0 && second < scale)
            v[kept++] = first * scale + second;
    }
    qsort(v, (size_t)kept, sizeof *v, ascending);
    for (int64_t k = 1; k < kept; k++)
        found |= v[k] == v[k - 1];
    free(v);
    return found;
}

void settle(struct call *c)
{
    sy_moe_dispatch_args *const d = &c->args.dispatch;
    sy_kv_scatter_args *const s = &c->args.scatter;
    if (strcmp(fuzz_ops[c->op].name, "moe_dispatch") == 0)
        d->unique_slots = d->unique_slots && !twice(d->indices, d->locations, INT32_MAX, d->capacity);
    if (strcmp(fuzz_ops[c->op].name, "kv_scatter") == 0)
        s->check_unique = s->check_unique || twice(s->slots, NULL, INT64_MAX / 2, 1);
    for (int i = 0; i < c->count; i++)
        c->items[i].t.device = (DLDevice){kDLCPU, 0};
}
