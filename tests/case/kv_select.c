/*
 * kv_select: every row is a list of entries that is sorted, by what the specification calls its order.
 */
#include "kv.h"

#include <math.h>

__extension__ typedef __int128 wide;

static int64_t or_1(int64_t n)
{
    return n > 0 ? n : 1;
}

/* The token of column i of this rank. */
static wide token_of(const sy_kv_select_args *a, int64_t i)
{
    const wide run = or_1(a->interleave);
    return a->columns == SY_KV_COLUMNS_OWN ? ((wide)(i / run) * a->world + a->rank) * run + i % run : i;
}

static int64_t clamp(wide x)
{
    return x > INT64_MAX ? INT64_MAX : (int64_t)x;
}

/* ---- The oracle ---- */

struct entry {
    int64_t column, position;
    double score;
    bool dead, keep, taken;
};

static int by_position(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return x->column < y->column ? -1 : 1;
}

static int by_score(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->dead != y->dead)
        return x->dead ? 1 : -1;
    if (!x->dead && x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return by_position(a, b);
}

struct row {
    int64_t start, tokens, columns, most, end, base, position_limit;
};

struct select_case {
    const sy_kv_select_args *a;
    struct operand *scores, *indices;
    int64_t rows, n, k, q, g, index_limit;
    const int64_t *lengths, *start, *row_k, *position, *req_id, *seq_lens, *base;
    int64_t n_lengths, n_row_k;
    struct gather_case table;
    bool has_table;
};

static struct select_case read_case(struct call *c)
{
    struct select_case s = {.a = case_args(c), .scores = case_field(c, "scores")};
    const struct operand *const indices = case_field(c, "indices");
    s.n = s.scores->shape[s.scores->rank - 1];
    s.rows = 1;
    for (int d = 0; d + 1 < s.scores->rank; d++)
        s.rows *= s.scores->shape[d];
    s.k = case_get_extent(c, "k");
    s.q = or_1(s.a->query_rows);
    s.g = or_1(s.a->expand);
    s.index_limit = indices->given && indices->type.bits == 32 ? INT64_C(1) << 31 : INT64_MAX;
    s.lengths = case_wide(c, "lengths");
    s.n_lengths = s.lengths ? case_field(c, "lengths")->shape[0] : 0;
    s.start = case_wide(c, "row_start");
    s.row_k = case_wide(c, "row_k");
    s.n_row_k = s.row_k ? case_field(c, "row_k")->shape[0] : 0;
    s.position = case_wide(c, "position");
    s.req_id = case_wide(c, "req_id");
    s.seq_lens = case_wide(c, "seq_lens");
    s.base = case_wide(c, "index_base");
    s.has_table = case_field(c, "block_table")->given || case_field(c, "page_indices")->given;
    if (s.has_table)
        kv_find_table(c, &s.table);
    return s;
}

static sy_fault fault(sy_fault_code code, const char *argument, int64_t b, int64_t value, wide limit)
{
    return (sy_fault){SY_ERR_INDEX, code, argument, b, -1, value, clamp(limit)};
}

/* The numbers of row b, or what is wrong with them. */
static sy_fault read_row(const struct select_case *s, int64_t b, struct row *r)
{
    const sy_kv_select_args *const a = s->a;
    r->start = s->start ? s->start[b] : 0;
    if (r->start < 0 || r->start > s->n)
        return fault(SY_FAULT_LENGTH_RANGE, "row_start", b, r->start, s->n);
    const int64_t rest = s->n - r->start;
    const bool own = a->columns == SY_KV_COLUMNS_OWN;
    r->tokens = own && rest > 0 ? clamp(token_of(a, rest - 1) + 1) : rest;
    if (s->lengths && s->n_lengths == s->rows)
        r->tokens = s->lengths[b];
    else if (s->lengths) {
        r->tokens = s->lengths[b / s->q];
        for (int64_t j = b % s->q; j < s->q - 1 && r->tokens > 0; j++)
            r->tokens--;
    }
    const wide most = own ? token_of(a, rest) : rest;
    if (r->tokens < 0 || r->tokens > most)
        return fault(SY_FAULT_LENGTH_RANGE, "lengths", b, r->tokens, most);
    r->columns = 0;
    while (r->columns < rest && token_of(a, r->columns) < r->tokens)
        r->columns++;
    r->most = s->row_k ? s->row_k[s->n_row_k == 1 ? 0 : b] : s->k;
    if (r->most < a->sink + a->window)
        return fault(SY_FAULT_LENGTH_RANGE, "row_k", b, r->most, a->sink + a->window);
    if (r->most > s->k)
        return fault(SY_FAULT_LENGTH_RANGE, "row_k", b, r->most, s->k);
    const int64_t seq = s->seq_lens ? s->seq_lens[b] : INT64_MAX;
    if (seq < 0)
        return fault(SY_FAULT_LENGTH_RANGE, "seq_lens", b, seq, 0);
    r->end = s->g > 1 ? seq : INT64_MAX;
    r->base = s->base ? s->base[b] : 0;
    const wide named = s->position || r->columns == 0 ? 0 : (token_of(a, r->columns - 1) + 1) * s->g;
    if (r->base < 0 || r->base > s->index_limit - named)
        return fault(SY_FAULT_LENGTH_RANGE, "index_base", b, r->base, s->index_limit - named);
    r->position_limit = (s->index_limit - r->base) / s->g;
    if (r->position_limit > INT64_C(1) << 31)
        r->position_limit = INT64_C(1) << 31;
    if (s->has_table && s->req_id && (s->req_id[b] < 0 || s->req_id[b] >= s->table.table_rows))
        return fault(SY_FAULT_REQ_RANGE, "req_id", b, s->req_id[b], s->table.table_rows);
    return (sy_fault){0};
}

static sy_fault check_positions(const struct select_case *s, int64_t b, const struct row *r)
{
    for (int64_t i = 0; s->position && i < r->columns; i++) {
        const int64_t t = s->position[b * s->n + i];
        if (t < -1 || t >= r->position_limit)
            return (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "position", b, i, t, r->position_limit};
    }
    return (sy_fault){0};
}

/* The columns of row b, ascending by position. Returns how many have one. */
static int64_t list_row(const struct select_case *s, int64_t b, const struct row *r, struct entry *list)
{
    const sy_kv_select_args *const a = s->a;
    const bool merges = s->position != NULL;
    const int64_t end = !merges                   ? r->tokens
                        : s->seq_lens && s->g > 1 ? s->seq_lens[b] / s->g + (s->seq_lens[b] % s->g > 0)
                        : s->seq_lens             ? s->seq_lens[b]
                                                  : INT64_MAX;
    int64_t n = 0;
    for (int64_t i = 0; i < r->columns; i++) {
        struct entry e = {.column = r->start + i};
        e.position = merges ? s->position[b * s->n + i] : clamp(token_of(a, i));
        e.score = case_real(s->scores, b * s->n + e.column);
        e.dead = !(e.score > -(double)INFINITY);
        e.keep = e.position < a->sink || (a->window > 0 && e.position >= end - a->window);
        if (e.position >= 0)
            list[n++] = e;
    }
    qsort(list, (size_t)n, sizeof *list, by_position);
    return n;
}

/* Marks what is selected, then puts it first, in the order of the call. */
static int64_t select_row(const struct select_case *s, const struct row *r, struct entry *list, int64_t n)
{
    int64_t taken = 0;
    for (int64_t i = 0; i < n && taken < r->most; i++)
        taken += list[i].taken = list[i].keep;
    qsort(list, (size_t)n, sizeof *list, by_score);
    for (int64_t i = 0; i < n && taken < r->most; i++)
        if (!list[i].taken && (!list[i].dead || s->a->dead == SY_KV_DEAD_KEEP))
            taken += list[i].taken = true;
    int64_t out = 0;
    for (int64_t i = 0; i < n; i++)
        if (list[i].taken)
            list[out++] = list[i];
    if (s->a->order == SY_KV_ORDER_POSITION)
        qsort(list, (size_t)out, sizeof *list, by_position);
    return out;
}

static uint32_t flags_of(const struct entry *list, int64_t n)
{
    uint32_t flags = SY_ROW_EMPTY;
    for (int64_t i = 0; i < n; i++) {
        if (!list[i].dead)
            flags &= ~SY_ROW_EMPTY;
        flags |= isnan(list[i].score) ? SY_ROW_NAN : list[i].score == (double)INFINITY ? SY_ROW_INF : 0;
    }
    return flags;
}

static void expect_value(struct call *c, const struct select_case *s, int64_t at, const struct entry *e)
{
    struct operand *const values = case_field(c, "values");
    const enum number_type type = case_number(s->scores);
    const bool same = case_number(values) == type;
    if (e == NULL)
        case_put_real(values, values->want, at, -(double)INFINITY);
    else if (same)
        memcpy(values->want + (size_t)at * values->element,
               s->scores->dense + (size_t)e->column * values->element, values->element);
    else
        case_put_real(values, values->want, at, e->score);
}

/* Of row b, entries in their order: what the outputs have, but for slots. tokens: of each entry, -1: none. */
static void expect_row(struct call *c, const struct select_case *s, int64_t b, const struct row *r,
                       const struct entry *list, int64_t n, int64_t *tokens)
{
    struct entry shifted;
    for (int64_t i = 0; i < s->k * s->g; i++) {
        tokens[i] = -1;
        if (i / s->g < n) {
            const int64_t token = list[i / s->g].position * s->g + i % s->g;
            tokens[i] = token < r->end ? token : -1;
            case_note(c, "token past the sequence", token >= r->end);
        }
    }
    for (int64_t i = 0; case_field(c, "values")->given && i < s->k; i++) {
        if (i < n) {
            shifted = list[i];
            shifted.column += b * s->n;
        }
        expect_value(c, s, b * s->k + i, i < n ? &shifted : NULL);
    }
}

/* Slots of every row, and of what is written of them. */
static bool expect_entries(struct call *c, const struct select_case *s, const struct row *rows,
                           const int64_t *n_of, const int64_t *tokens)
{
    struct operand *const indices = case_field(c, "indices"), *const slots = case_field(c, "slots"),
                          *const owner = case_field(c, "owner"), *const count = case_field(c, "count");
    const sy_kv_select_args *const a = s->a;
    const int64_t width = s->k * s->g, n = s->rows * width, run = or_1(a->interleave);
    int64_t *const slot = case_memory(c, (size_t)n * sizeof *slot);
    if (s->has_table) {
        struct gather_case in = s->table;
        int64_t *const req = case_memory(c, (size_t)s->rows * sizeof *req), *const all = case_memory(
                                                                                c, (size_t)s->rows *
                                                                                       sizeof *all);
        const int64_t size = a->block_size;
        in.batch = s->rows;
        in.k = width;
        in.indices = tokens;
        in.padded = true;
        in.req_id = req;
        in.seq_lens = all;
        in.block_size = size;
        in.rows = a->num_rows > 0                          ? a->num_rows
                  : slots->given && slots->type.bits == 32 ? INT64_C(1) << 31
                                                           : INT64_MAX / size * size;
        in.world = a->world;
        in.rank = a->rank;
        in.interleave = a->interleave;
        for (int64_t b = 0; b < s->rows; b++) {
            req[b] = s->req_id ? s->req_id[b] : b / s->q;
            all[b] = INT64_MAX;
        }
        const sy_fault f = oracle_kv_gather(&in, slot);
        if (!kv_expect(c, &f))
            return false;
    }
    for (int64_t b = 0; b < s->rows; b++) {
        int64_t out = b * width;
        for (int64_t i = b * width; i < (b + 1) * width; i++) {
            const int64_t who = tokens[i] < 0 || a->world < 2 ? -1 : tokens[i] / run % a->world;
            case_note(c, "a token of another rank", s->has_table && who >= 0 && who != a->rank);
            if (a->own_only && who != a->rank)
                continue;
            if (indices->given)
                case_put_want(indices, out, tokens[i] < 0 ? -1 : tokens[i] + rows[b].base);
            if (slots->given)
                case_put_want(slots, out, slot[i]);
            if (owner->given)
                case_put_want(owner, out, who);
            out++;
        }
        if (count->given)
            case_put_want(count, b, a->own_only ? out - b * width : n_of[b]);
        for (; out < (b + 1) * width; out++) {
            if (indices->given)
                case_put_want(indices, out, -1);
            if (slots->given)
                case_put_want(slots, out, -1);
            if (owner->given)
                case_put_want(owner, out, -1);
        }
    }
    return true;
}

static void note_row(struct call *c, const struct row *r, const struct entry *list, int64_t n, int64_t all)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < n; i++) {
        kept += list[i].keep;
        case_note(c, "a dead one that is selected", list[i].dead);
    }
    case_note(c, "must keep and others", kept > 0 && n > kept);
    case_note(c, "fewer than k", n < r->most);
    case_note(c, "a cut", n == r->most && all > n && n > 0);
    case_note(c, "empty row", all == 0);
}

static void oracle(struct call *c)
{
    const struct select_case s = read_case(c);
    struct row *const rows = case_memory(c, (size_t)s.rows * sizeof *rows);
    int64_t *const n_of = case_memory(c, (size_t)s.rows * sizeof *n_of);
    struct entry *const list = case_memory(c, (size_t)s.n * sizeof *list);
    c->query.rows = s.a->k > 0 ? s.rows * s.k : 0;
    if (s.rows == 0)
        return;
    if (s.has_table) { /* lists first */
        struct gather_case in = s.table;
        const int64_t none = -1;
        int64_t slot;
        in.batch = in.k = in.block_size = 1;
        in.rows = 1;
        in.padded = true;
        in.indices = &none;
        const sy_fault f = oracle_kv_gather(&in, &slot);
        if (f.code == SY_FAULT_LENGTH_RANGE && !kv_expect(c, &f))
            return;
    }
    for (int64_t b = 0; b < s.rows; b++) {
        const sy_fault f = read_row(&s, b, &rows[b]);
        if (!kv_expect(c, &f))
            return;
    }
    for (int64_t b = 0; b < s.rows; b++) {
        const sy_fault f = check_positions(&s, b, &rows[b]);
        if (!kv_expect(c, &f))
            return;
    }
    int64_t *const tokens = case_memory(c, (size_t)(s.rows * s.k * s.g) * sizeof *tokens);
    struct operand *const flags = case_field(c, "row_flags");
    for (int64_t b = 0; b < s.rows; b++) {
        const int64_t all = list_row(&s, b, &rows[b], list);
        if (flags->given)
            case_put_want(flags, b, flags_of(list, all));
        n_of[b] = select_row(&s, &rows[b], list, all);
        note_row(c, &rows[b], list, n_of[b], all);
        expect_row(c, &s, b, &rows[b], list, n_of[b], tokens + b * s.k * s.g);
    }
    expect_entries(c, &s, rows, n_of, tokens);
}

/* ---- Calls ---- */

/* Scores of a flavour; in some rows most of them are equal, or ascend, or descend. */
static void fill_scores(struct call *c, struct operand *x)
{
    const int64_t n = x->shape[x->rank - 1];
    struct stream *const s = case_stream(c, "plateau");
    case_fill_floats(c, x);
    for (int64_t i = 0; n > 0 && i < case_count(x); i += n) {
        const int64_t kind = c->in->kind == READ_TEXT ? case_pick(c, "kind", 5) : stream_below(s, 9);
        const int64_t from = stream_below(s, n), one_in = 1 + stream_below(s, 6);
        unsigned char *const row = x->dense + (size_t)i * x->element;
        for (int64_t j = 0; j < n; j++) {
            if (kind == 1 && stream_below(s, one_in) == 0) /* a plateau */
                memcpy(row + (size_t)j * x->element, row + (size_t)from * x->element, x->element);
            if (kind == 2 || kind == 3)
                case_put_real(x, x->dense, i + j, (double)(kind == 2 ? j : -j) / 8);
            if (kind == 4 && case_real(x, i + j) < 0)
                case_put_real(x, x->dense, i + j, 0);
        }
    }
}

/* Lengths of rows or requests that fit, and what row b has then. */
static void make_lengths(struct call *c, int64_t rows, int64_t q, int64_t n)
{
    const sy_kv_select_args *const a = case_args(c);
    struct operand *const start =
        a->columns == SY_KV_COLUMNS_GLOBAL && case_field(c, "position")->given ? NULL
        : case_chance(c, "row_start", 4) ? case_in_as(c, "row_start", (DLDataType){0}, 1, &rows)
                                         : NULL;
    struct stream *const s = case_stream(c, "lengths");
    for (int64_t b = 0; start != NULL && b < rows; b++)
        case_put(start, b, stream_below(s, n + 1));
    const bool causal = q > 1 && case_flag(c, "causal");
    const int64_t many = causal ? rows / q : rows;
    struct operand *const lengths =
        case_flag(c, "lengths") ? case_in_as(c, "lengths", (DLDataType){0}, 1, &many) : NULL;
    for (int64_t i = 0; lengths != NULL && i < many; i++) {
        int64_t rest = n;
        for (int64_t b = causal ? i * q : i; start != NULL && b <= (causal ? i * q + q - 1 : i); b++) {
            const int64_t left = n - case_get(start, b);
            rest = left < rest ? left : rest;
        }
        const int64_t limit = clamp(token_of(a, rest)),
                      most = lengths->type.bits == 32 ? INT32_MAX : INT64_MAX;
        const int64_t bound = limit < most ? limit : most;
        case_put(lengths, i, stream_chance(s, 3) ? bound : stream_below(s, bound + 1));
    }
    case_note(c, "causal", lengths != NULL && causal && rows > 0);
}

/* Positions in any order, some of them nothing and some equal; or those of ranks one after the other. */
static void make_positions(struct call *c, struct operand *position, int64_t n)
{
    struct stream *const s = case_stream(c, "position");
    const int64_t ranks = 1 + stream_below(s, 5), far = stream_chance(s, 8) ? INT32_MAX - 2 * n : 0;
    const bool shuffled = stream_chance(s, 3);
    for (int64_t i = 0; i < case_count(position); i++) {
        const int64_t j = i % n, each = n / ranks + 1;
        const int64_t t = shuffled ? stream_below(s, 2 * n) : j % each * ranks + j / each;
        case_put(position, i, stream_chance(s, 7) ? -1 : t + far);
    }
    if (case_count(position) > 0 && case_chance(c, "bad position", 12))
        case_put(position, stream_below(s, case_count(position)), stream_chance(s, 2) ? -2 : INT32_MIN);
    case_note(c, "columns of nothing", case_count(position) > 0);
}

/* Blocks of the tokens that are selected, most of which the table has room for. */
static void map_tokens(struct call *c, struct kv_table *t, int64_t rows)
{
    const sy_kv_select_args *const a = case_args(c);
    struct select_case s = read_case(c);
    struct entry *const list = case_memory(c, (size_t)s.n * sizeof *list);
    for (int64_t b = 0; b < rows; b++) {
        struct row r;
        const int64_t req = s.req_id ? s.req_id[b] : b / s.q, run = or_1(a->interleave);
        if (read_row(&s, b, &r).status != SY_OK || check_positions(&s, b, &r).status != SY_OK)
            continue;
        const int64_t n = select_row(&s, &r, list, list_row(&s, b, &r, list));
        for (int64_t i = 0; i < n * s.g; i++) {
            wide token = (wide)list[i / s.g].position * s.g + i % s.g;
            if (token >= r.end || (a->world > 1 && token / run % a->world != a->rank))
                continue;
            if (a->world > 1)
                token = token / run / a->world * run + token % run;
            if (token < kv_room(t, req) && t->rows > 0)
                kv_map(c, t, req, (int64_t)token);
        }
    }
}

static void make_table(struct call *c, int64_t rows, int64_t q)
{
    sy_kv_select_args *const a = case_args(c);
    const DLDataType type = case_type(c, "slots");
    case_out_as(c, "slots", type, -1, NULL);
    const int64_t cache = kv_choose_rows(c, type, &a->block_size), requests = rows / q;
    a->num_rows = case_flag(c, "unknown") ? 0 : cache;
    struct operand *const req =
        case_flag(c, "req_id") ? case_in_as(c, "req_id", (DLDataType){0}, 1, &rows) : NULL;
    const int64_t n = req != NULL ? case_size(c, "R", 1, 3, 9) : requests;
    struct kv_table t = kv_make_table(c, n, a->block_size, cache, true);
    struct stream *const s = case_stream(c, "requests");
    for (int64_t b = 0; req != NULL && b < rows; b++)
        case_put(req, b, stream_below(s, n));
    struct operand *const lengths = case_field(c, "lengths");
    for (int64_t i = 0; lengths->given && i < case_count(lengths); i++) { /* what the table can hold */
        const int64_t b = case_count(lengths) == rows ? i : i * q;
        const int64_t room = kv_room(&t, req != NULL ? case_get(req, b) : b / q) / or_1(a->expand);
        if (case_get(lengths, i) > room && !stream_chance(s, 8))
            case_put(lengths, i, room);
    }
    map_tokens(c, &t, rows);
    case_note(c, "a table", rows > 0);
}

static void make(struct call *c)
{
    static const char *const planted[] = {"lengths",    "lengths",     "row_start",   "row_k",
                                          "seq_lens",   "position",    "position",    "position",
                                          "index_base", "block_table", "block_table", "page_indices",
                                          "indptr",     "req_id",      "req_id",      NULL};
    static const char *const outputs[] = {"indices", "values", "count", "slots", "row_flags"};
    sy_kv_select_args *const a = case_args(c);
    const int64_t q = case_size(c, "Q", 1, 2, 4), rows = q * case_size(c, "requests", 0, 3, 9);
    const int64_t n = case_size(c, "N", 0, 40, 3000);
    const int64_t k = case_size(c, "k", 1, 14, n < 1 ? 1 : n + 3);
    int64_t shape[SY_MAX_RANK];
    case_extent(c, "B", rows);
    int rank = rows == 1 && case_flag(c, "one row") ? 0 : kv_shape(c, rows, shape);
    shape[rank++] = n;
    a->query_rows = q > 1 || case_flag(c, "Q=1") ? q : 0;
    a->k = k;
    case_any_scalar(c, "order");
    case_any_scalar(c, "dead");
    const bool merges = case_chance(c, "position", 5), pages = case_chance(c, "pages", 4);
    a->expand = pages ? case_size(c, "G", 2, 3, 6) : case_pick(c, "G=1", 2);
    if (case_chance(c, "shared", 3)) {
        a->world = case_size(c, "W", 2, 4, 100);
        a->rank = case_pick(c, "rank", a->world);
        a->interleave = case_size(c, "I", 0, 6, 40);
        if (!merges && case_flag(c, "own"))
            a->columns = SY_KV_COLUMNS_OWN;
        a->own_only = case_chance(c, "own_only", 3);
    }
    if (case_chance(c, "keep", 3)) {
        a->sink = case_pick(c, "sink", k + 1);
        a->window = case_pick(c, "window", k - a->sink + 1);
    }
    struct operand *const scores = case_in_as(c, "scores", (DLDataType){0}, rank, shape);
    fill_scores(c, scores);
    struct stream *const s = case_stream(c, "others");
    if (merges)
        make_positions(c, case_in_as(c, "position", (DLDataType){0}, rank, shape), or_1(n));
    make_lengths(c, rows, q, n);
    if ((pages && case_flag(c, "seq_lens")) || merges) {
        struct operand *const seq = case_in_as(c, "seq_lens", (DLDataType){0}, 1, &rows);
        for (int64_t b = 0; b < rows; b++)
            case_put(seq, b, stream_below(s, n * or_1(a->expand) + 2));
    }
    if (case_chance(c, "row_k", 4)) {
        const int64_t many = rows == 1 || case_flag(c, "one k") ? 1 : rows;
        struct operand *const row_k = case_in_as(c, "row_k", (DLDataType){0}, 1, &many);
        for (int64_t b = 0; b < many; b++)
            case_put(row_k, b, a->sink + a->window + stream_below(s, k - a->sink - a->window + 1));
    }
    if (case_chance(c, "index_base", 5)) {
        struct operand *const base = case_in_as(c, "index_base", (DLDataType){0}, 1, &rows);
        for (int64_t b = 0; b < rows; b++)
            case_put(base, b, stream_below(s, 1000));
    }
    const bool table = case_chance(c, "table", 2);
    if (table)
        make_table(c, rows, q);
    if (a->own_only)
        case_leave(c, "values");
    const char *const needed = outputs[case_pick(c, "needed", 5)];
    case_need(c,
              (!table && needed == outputs[3]) || (a->own_only && needed == outputs[1]) ? "indices" : needed);
    if (merges || a->columns == SY_KV_COLUMNS_OWN)
        case_note(c, merges ? "merge" : "own columns", rows > 0 && n > 0);
    kv_plant(c, planted, n, k);
}

#define LINE \
    "f32 i32 requests=3 Q=2 N=9 k=4 table S=4 blocks=6 n=4 lengths req_id row_start row_k indices slots " \
    "count"

#define MERGE "f32 i32 requests=3 N=9 k=4 position seq_lens keep window=2 indices"
#define PAGES "f32 i32 requests=3 N=9 k=4 pages G=2 seq_lens indices"

static const struct rejection rejections[] = {
    {"outputs=-", SY_ERR_NULL, NULL, "at least one", .blame = "indices"},
    {"block_table=-", SY_ERR_NULL, NULL, "page_indices and indptr", .late = true, .line = LINE},
    {"seq_lens=-", SY_ERR_NULL, "position and window", .line = MERGE},
    {"query_rows=4", SY_ERR_SHAPE, "6 rows", "query_rows, 4", .blame = "scores"},
    {"window=5", SY_ERR_VALUE, "5", "at most 4"},
    {"sink=3 window=2", SY_ERR_VALUE, "2", "at most 1", .blame = "window"},
    {"columns=1", SY_ERR_VALUE, "0", "2 or more", .blame = "world"},
    {"rank=1", SY_ERR_VALUE, "1", "0"},
    {"num_rows=-1", SY_ERR_VALUE, "-1", "0 or more"},
    {"block_size=0", SY_ERR_VALUE, "0", "1 or more", .line = LINE},
    {"expand=1", SY_ERR_VALUE, "without position", .blame = "seq_lens", .line = PAGES},
    {"columns=1 world=2", SY_ERR_VALUE, "columns OWN", .blame = "position", .line = MERGE},
    {"scores.shape[1]=2^31", SY_ERR_OVERFLOW, "2147483648", "2147483647"},
    {"k=2^31", SY_ERR_OVERFLOW, "2147483648", "2^32"},
    {"expand=2^29", SY_ERR_OVERFLOW, .blame = "k"},
    {.change = NULL},
};

const struct op_case case_kv_select = {
    .name = "kv_select",
    .make = make,
    .oracle = oracle,
    .hard = {"LENGTH_RANGE",
             "REQ_RANGE",
             "INDEX_RANGE",
             "TABLE_SHORT",
             "BLOCK_RANGE",
             "ROW_RANGE",
             "lists",
             "no pages",
             "a table",
             "merge",
             "own columns",
             "causal",
             "columns of nothing",
             "token past the sequence",
             "a token of another rank",
             "a dead one that is selected",
             "must keep and others",
             "fewer than k",
             "a cut",
             "empty row"},
    .small = "f32 i32 requests=3 N=9 k=4 indices count",
    .shapes = {"f32 i32 requests=2 N=20000 k=300 indices values count kind=4",
               "bf16 i32 requests=3 N=9000 k=2500 indices order=score",
               "f16 i32 requests=1 N=70001 k=64 indices count",
               "f32 i32 requests=2 N=9000 k=40 table S=16 blocks=600 n=600 indices slots lengths"},
    .lines = {"f32 i32 requests=1 N=1048576 k=2048 indices count",
              "f32 i32 requests=3 N=131072 k=2048 indices kind=4",
              "f32 i32 requests=2 N=131072 k=2048 indices kind=2 sink=3 window=70",
              "f32 i32 requests=2 N=131072 k=2048 indices kind=3",
              "f16 i32 requests=2 N=131072 k=2048 indices values",
              "bf16 i32 requests=2 N=131072 k=100 indices values kind=4 dead=keep",
              "f32 i32 requests=2 N=16384 k=2048 indices position seq_lens window=9"},
    .rejections = rejections,
    .own_extents = " block_table page_indices indptr lengths ",
    .calls = 800,
};
