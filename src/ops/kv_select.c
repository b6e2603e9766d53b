/*
 * kv_select: check and plan.
 */
#include "ops/kv.h"
#include "plan/select_math.h"

enum {
    SCORES,
    LENGTHS,
    ROW_START,
    ROW_K,
    POSITION,
    TABLE,
    REQ_ID,
    SEQ_LENS,
    PAGE_INDICES,
    INDPTR,
    INDEX_BASE,
    INDICES,
    VALUES,
    COUNT,
    SLOTS,
    OWNER,
    ROW_FLAGS,
    N_TENSORS
};

#define OPERATOR kv_select

static const sy_field_info fields[] = {
    [SCORES] = SYI_INPUT(scores, SYI_FLOAT_TYPES, 0, 1, SYI_MAX_RANK, "... N", "a score for every position"),
    [LENGTHS] = SYI_OPTIONAL(lengths, SYI_INDEX_TYPES, 0, 1, 1, "B",
                             "columns of each row, or of each request's last; missing: all"),
    [ROW_START] =
        SYI_OPTIONAL(row_start, SYI_INDEX_TYPES, 0, 1, 1, "B", "first column of each row; missing: 0"),
    [ROW_K] = SYI_PER_ROW(row_k, SYI_INDEX_TYPES, 0, "most positions of each row; missing: k"),
    [POSITION] = SYI_OPTIONAL(position, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK, "... N",
                              "position of each column, -1: none; missing: 0, 1, ..."),
    [TABLE] =
        SYI_OPTIONAL(block_table, SYI_INDEX_TYPES, 0, 1, 2, "R n | n", "physical block of each logical one"),
    [REQ_ID] = SYI_OPTIONAL(req_id, SYI_INDEX_TYPES, 0, 1, 1, "B",
                            "table row of each row; missing: that of its request"),
    [SEQ_LENS] = SYI_OPTIONAL(seq_lens, SYI_INDEX_TYPES, 0, 1, 1, "B",
                              "with expand or position: tokens of each row's sequence"),
    [PAGE_INDICES] =
        SYI_OPTIONAL(page_indices, SYI_INDEX_TYPES, 0, 1, 1, "P", "lists of blocks, in place of block_table"),
    [INDPTR] = SYI_OPTIONAL(indptr, SYI_INDEX_TYPES, 0, 1, 1, "R+1", "where each list begins, and the end"),
    [INDEX_BASE] = SYI_OPTIONAL(index_base, SYI_INDEX_TYPES, 0, 1, 1, "B",
                                "added to every entry of indices; missing: 0"),
    [INDICES] = SYI_OPTIONAL_OUTPUT(indices, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK, "... k*G",
                                    "selected positions, then -1", .preset = "i32"),
    [VALUES] = SYI_TENSOR(values, SY_FIELD_OUT | SY_FIELD_OPTIONAL | SY_FIELD_EXTRA, SYI_F32, SCORES + 1, 1,
                          SYI_MAX_RANK, "... k", "their scores, then -inf", .words = "values"),
    [COUNT] =
        SYI_OPTIONAL_OUTPUT(count, SYI_INDEX_TYPES, 0, 1, 1, "B", "entries of each row", .preset = "i32"),
    [SLOTS] = SYI_OPTIONAL_OUTPUT(slots, SYI_INDEX_TYPES, 0, 1, SYI_MAX_RANK, "... k*G",
                                  "with a table: cache row of each entry, then -1", .preset = "i32"),
    [OWNER] = SYI_OPTIONAL_OUTPUT(owner, SYI_I32, 0, 1, SYI_MAX_RANK, "... k*G",
                                  "with world: the rank that has each entry, then -1"),
    [ROW_FLAGS] = SYI_EXTRA_OUTPUT(row_flags, SYI_U32, 0, 1, 1, "B", "1: a NaN, 2: +inf, 4: no live score",
                                   .words = "row_flags"),
    SYI_SCALAR(k, I64, .range = "0..", .help = "positions to select; 0: as many as the outputs are wide"),
    SYI_SCALAR(order, ENUM, .words = "position score", .help = "order of the entries of a row"),
    SYI_SCALAR(dead, ENUM, .words = "skip keep", .help = "NaN and -inf: never selected by score, or last"),
    SYI_SCALAR(sink, I64, .range = "0..", .help = "first positions that are always selected"),
    SYI_SCALAR(window, I64, .range = "0..", .help = "last positions that are always selected"),
    SYI_SCALAR(query_rows, I64, .range = "0..", .help = "Q: rows of a request; 0: 1"),
    SYI_SCALAR(expand, I64, .range = "0..", .help = "G: tokens of a position; 0: 1"),
    SYI_SCALAR(block_size, I64, .range = "0..", .help = "S: rows per block, with a table"),
    SYI_SCALAR(num_rows, I64, .help = "rows of the cache; 0: unknown"),
    SYI_SCALAR(world, I64, .help = "ranks that share the tokens; 0: 1"),
    SYI_SCALAR(rank, I64, .help = "rank of this call; tokens of other ranks: slot -1"),
    SYI_SCALAR(interleave, I64, .help = "consecutive tokens of a rank; 0: 1"),
    SYI_SCALAR(columns, ENUM, .words = "global own", .help = "columns are all tokens, or those of rank"),
    SYI_SCALAR(own_only, BOOL, .help = "write only entries that rank owns"),
};

static const struct syi_kv_page_rules page_rules = {-1, -1, -1, -1, {TABLE, PAGE_INDICES, INDPTR, -1}};

static int64_t or_1(int64_t n)
{
    return n > 0 ? n : 1;
}

static bool has_table(const struct syi_call *call)
{
    return call->tensor[TABLE] != NULL || call->tensor[PAGE_INDICES] != NULL;
}

/* Null. */
static sy_status check_given(struct syi_call *call)
{
    const bool lists = call->tensor[PAGE_INDICES] != NULL || call->tensor[INDPTR] != NULL;
    SYI_TRY(syi_check_some_output(call));
    if (call->tensor[SLOTS] != NULL || lists)
        SYI_TRY(syi_kv_check_given(call, &page_rules.tables));
    if (call->args.kv_select.window > 0 && call->tensor[POSITION] != NULL && call->tensor[SEQ_LENS] == NULL)
        return syi_fail(call->ctx, SY_ERR_NULL, "seq_lens",
                        "is missing while position and window are given, want where the window ends");
    return SY_OK;
}

/* Input shape: rows, requests, and what each has. */
static sy_status check_table(struct syi_call *call, int64_t requests)
{
    int64_t rows;
    if (!has_table(call))
        return SY_OK;
    return call->tensor[REQ_ID] != NULL
               ? syi_kv_check_lists(call, &page_rules.tables, &rows)
               : syi_kv_check_table(call, &page_rules.tables, REQ_ID, requests, "request");
}

static sy_status check_rows(struct syi_call *call)
{
    const DLTensor *scores = call->tensor[SCORES], *lengths = call->tensor[LENGTHS];
    const int64_t q = or_1(call->args.kv_select.query_rows);
    const bool known = call->args.kv_select.query_rows >= 0; /* else it is rejected among the values */
    int64_t batch;
    if (!syi_kv_product(scores, 0, scores->ndim - 1, &batch))
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "scores", "has more than 2^63-1 rows");
    if (batch % q != 0)
        return syi_fail_value(call, SY_ERR_SHAPE, "scores", batch, q,
                              "has %lld rows, want a multiple of query_rows, %lld");
    if (lengths != NULL && lengths->shape[0] != batch / q && known)
        SYI_TRY(syi_check_vector(call, LENGTHS, batch));
    SYI_TRY(syi_check_shape(call, POSITION, scores->ndim, scores->shape));
    if (known)
        SYI_TRY(check_table(call, batch / q));
    syi_bind(call, 'B', batch);
    syi_bind(call, 'N', scores->shape[scores->ndim - 1]);
    syi_bind(call, 'Q', q);
    syi_bind(call, 'G', or_1(call->args.kv_select.expand));
    return SY_OK;
}

/* k, or what the first output with a width says; 0: none has one. */
static int64_t find_k(const struct syi_call *call)
{
    static const int wide[] = {INDICES, VALUES, SLOTS, OWNER};
    if (call->args.kv_select.k > 0)
        return call->args.kv_select.k;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        const DLTensor *t = call->tensor[wide[i]];
        if (t != NULL)
            return t->shape[t->ndim - 1] / (wide[i] == VALUES ? 1 : syi_bound(call, 'G'));
    }
    return 0;
}

static bool has_width(const struct syi_call *call)
{
    return call->args.kv_select.k > 0 || call->tensor[INDICES] != NULL || call->tensor[VALUES] != NULL ||
           call->tensor[SLOTS] != NULL || call->tensor[OWNER] != NULL;
}

static sy_status check_kept(struct syi_call *call)
{
    const sy_kv_select_args *a = &call->args.kv_select;
    const int64_t k = syi_bound(call, 'K');
    if (!has_width(call))
        return SY_OK;
    SYI_TRY(syi_check_value(call, "sink", a->sink, 0, k));
    if (a->window <= k - a->sink)
        return SY_OK;
    return syi_fail_value(call, SY_ERR_VALUE, "window", a->window, k - a->sink,
                          "is %lld, want at most %lld: sink + window are at most k");
}

static sy_status check_shared(struct syi_call *call)
{
    const sy_kv_select_args *a = &call->args.kv_select;
    const bool own = a->columns == SY_KV_COLUMNS_OWN;
    SYI_TRY(syi_kv_check_share(call, a->world, a->rank, a->interleave));
    if (a->world < 2 && (call->tensor[OWNER] != NULL || own || a->own_only))
        return syi_fail_value(call, SY_ERR_VALUE, "world", a->world, 2,
                              "is %lld, want %lld or more with owner, own_only or columns OWN");
    if (call->tensor[POSITION] != NULL && (own || call->tensor[ROW_START] != NULL))
        return syi_fail(call->ctx, SY_ERR_VALUE, "position", "is given beside %s, want one of them",
                        own ? "columns OWN" : "row_start");
    if (a->own_only && call->tensor[VALUES] != NULL)
        return syi_fail(call->ctx, SY_ERR_VALUE, "values", "is given with own_only, want it missing");
    return SY_OK;
}

static struct syi_kv_slot_args slot_args(const struct syi_call *call)
{
    const sy_kv_select_args *a = &call->args.kv_select;
    return (struct syi_kv_slot_args){SLOTS, a->block_size, a->num_rows, SY_PAD_SKIP};
}

static sy_status check_values(struct syi_call *call)
{
    const sy_kv_select_args *a = &call->args.kv_select;
    const struct syi_kv_slot_args slots = slot_args(call);
    SYI_TRY(syi_check_scalars(call, N_TENSORS, call->op->info.n_fields));
    syi_bind(call, 'K', find_k(call));
    SYI_TRY(check_kept(call));
    if (has_table(call))
        SYI_TRY(syi_kv_check_slot_rows(call, &page_rules, &slots));
    SYI_TRY(syi_check_value(call, "num_rows", a->num_rows, 0, INT64_MAX));
    SYI_TRY(check_shared(call));
    if (call->tensor[SEQ_LENS] != NULL && a->expand < 2 && call->tensor[POSITION] == NULL)
        return syi_fail(call->ctx, SY_ERR_VALUE, "seq_lens",
                        "is given without position and expand above 1, want one of them");
    return SY_OK;
}

/* The tokens that columns can name, one after the last; INT64_MAX where they are more. */
static int64_t n_tokens(const struct syi_call *call, const struct syi_kv_share *share)
{
    const int64_t n = syi_bound(call, 'N'), g = syi_bound(call, 'G');
    int64_t positions = n, tokens;
    if (call->args.kv_select.columns == SY_KV_COLUMNS_OWN && n > 0) {
        const int64_t last = syi_kv_shared_token(share, n - 1), all = n * share->world; /* both below 2^31 */
        positions = last < INT64_MAX ? last + 1 : last;
        positions = positions > all ? positions : all;
    }
    return syi_mul(positions, g, &tokens) ? tokens : INT64_MAX;
}

static sy_status check_counts(struct syi_call *call)
{
    const int64_t b = syi_bound(call, 'B'), n = syi_bound(call, 'N'), k = syi_bound(call, 'K'),
                  g = syi_bound(call, 'G');
    int64_t rows, all;
    if (n > INT32_MAX)
        return syi_fail_value(call, SY_ERR_OVERFLOW, "scores", n, INT32_MAX,
                              "has %lld columns, want at most %lld");
    if (!syi_mul(b, k, &rows) || !syi_mul(rows, g, &all) || all > UINT32_MAX)
        return syi_fail(call->ctx, SY_ERR_OVERFLOW, "k",
                        "is %lld for %lld rows and expand %lld, want fewer than 2^32 entries", (long long)k,
                        (long long)b, (long long)g);
    return SY_OK;
}

static sy_status check_sizes(struct syi_call *call)
{
    struct syi_kv_select_plan *p = &call->plan.kv_select;
    const sy_kv_select_args *a = &call->args.kv_select;
    const struct syi_kv_slot_args slots = slot_args(call);
    const bool narrow = syi_type_at(call, INDICES) == SY_TYPE_I32;
    SYI_TRY(check_counts(call));
    p->pages.share = (struct syi_kv_share){a->world, a->rank, or_1(a->interleave)};
    p->token_limit = narrow ? (int64_t)INT32_MAX + 1 : INT64_MAX;
    const int64_t tokens = n_tokens(call, &p->pages.share);
    if (tokens > p->token_limit || tokens == INT64_MAX)
        return syi_fail_value(call, SY_ERR_OVERFLOW, "indices", tokens, p->token_limit,
                              narrow ? "is i32 for %lld tokens, want i64"
                                     : "would name %lld tokens, want fewer than 2^63");
    if (!has_table(call))
        return SY_OK;
    SYI_TRY(syi_kv_count_table(call, &page_rules.tables, a->block_size, &p->pages.table));
    return syi_kv_number_rows(call, &slots, &p->pages.pool);
}

/* Those that this call cannot have are no part of it. sy_infer has none for a call that touches nothing. */
static sy_status check_outputs(struct syi_call *call)
{
    const DLTensor *scores = call->tensor[SCORES];
    const int64_t b = syi_bound(call, 'B'), k = syi_bound(call, 'K'), width = k * syi_bound(call, 'G');
    int64_t shape[SYI_MAX_RANK], per_position[SYI_MAX_RANK];
    for (int d = 0; d < scores->ndim - 1; d++)
        shape[d] = per_position[d] = scores->shape[d];
    shape[scores->ndim - 1] = width;
    per_position[scores->ndim - 1] = k;
    if (has_width(call)) {
        SYI_TRY(syi_check_shape(call, INDICES, scores->ndim, shape));
        if (!call->args.kv_select.own_only)
            SYI_TRY(syi_check_shape(call, VALUES, scores->ndim, per_position));
        if (has_table(call))
            SYI_TRY(syi_check_shape(call, SLOTS, scores->ndim, shape));
        if (call->args.kv_select.world > 1)
            SYI_TRY(syi_check_shape(call, OWNER, scores->ndim, shape));
    }
    if (call->shapes != NULL && !has_width(call))
        return SY_OK;
    SYI_TRY(syi_check_vector(call, COUNT, b));
    return syi_check_vector(call, ROW_FLAGS, b);
}

static void plan(struct syi_call *call)
{
    struct syi_kv_select_plan *p = syi_bind_plan(call, "BNKQG");
    p->has_table = has_table(call);
    if (p->has_table)
        syi_kv_view_table(call, &page_rules.tables, &p->pages.table);
    p->pages.batch = p->batch;
    p->pages.req_id = syi_column_of(call, REQ_ID);
    p->pages.pad = SY_PAD_SKIP;
    p->by_request = p->query_rows > 1 && syi_extent(call, LENGTHS, 0) != p->batch;
    p->own = p->args.columns == SY_KV_COLUMNS_OWN;
    p->idle = p->batch == 0 || (!call->query && !has_width(call));
    p->room = p->k > p->n_columns || !has_width(call) ? p->n_columns : p->k;
    call->rows = p->batch * p->k;
}

static const struct syi_steps own = {
    .together = check_given,
    .bind = check_rows,
    .values = check_values,
    .sizes = check_sizes,
    .outputs = check_outputs,
    .plan = plan,
    .late = 1u << SCORES | 1u << LENGTHS | 1u << POSITION | 1u << TABLE | 1u << PAGE_INDICES | 1u << INDPTR,
};

SYI_DEFINE_PLANNED(kv_select, KV_SELECT, "select the positions of largest score in every row", row_flags, 1)
