#include "kv.h"

#include <math.h>
#include <stdio.h>

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- Formats ---- */

static const char *const formats[] = {KV_FORMATS};
enum { BY_ROW = 11, BY_BLOCK, N_FORMATS };

/* Of a plane; -1: none. A line names one for all planes. Those that have no name differ most: they are drawn most often. */
static int pick_format(struct call *c)
{
    for (int i = 0; c->in->kind == READ_TEXT && i < N_FORMATS; i++)
        if (case_flag(c, formats[i]))
            return i;
    if (c->in->kind == READ_TEXT || case_pick(c, "packed", 5) < 2)
        return -1;
    const int format = (int)case_pick(c, "format", N_FORMATS + 8);
    return format < N_FORMATS ? format : format % 2 == 0 ? BY_ROW : BY_BLOCK;
}

/* Codes, rope and scales in any order, with gaps between them; all sizes are multiples of `unit`. */
static void random_format(struct call *c, sy_kv_format *f)
{
    static const sy_type codes[] = {SY_TYPE_F8_E4M3, SY_TYPE_F8_E5M2, SY_TYPE_I8};
    struct stream *const s = case_stream(c, "random format");
    const int32_t unit = stream_chance(s, 2) ? 16 : 1, groups = 1 + (int32_t)stream_below(s, 4);
    const bool e8m0 = stream_chance(s, 2), last = stream_chance(s, 2), in_row = f->scales == SY_SCALES_ROW;
    f->bytes = sizeof *f;
    f->q_type = sy_dtype(codes[stream_below(s, 3)]);
    f->scale_type = e8m0 ? SY_F8_E8M0 : SY_F32;
    f->group =
        unit > 1 ? 8 << stream_below(s, 7) : 1 + (int32_t)stream_below(s, stream_chance(s, 8) ? 300 : 40);
    f->q_count = groups * f->group;
    f->rope_bytes = stream_chance(s, 3) ? 0 : 2 * unit * (int32_t)stream_below(s, 20);
    const int32_t scales = (groups * (e8m0 ? 1 : 4) + unit - 1) / unit * unit;
    int32_t at = f->rope_off = unit * (int32_t)stream_below(s, 3);
    at += f->rope_bytes;
    f->scale_off = in_row ? at : unit * (int32_t)stream_below(s, 3);
    at += in_row && last ? scales : 0;
    f->q_off = at + unit * (int32_t)stream_below(s, 3);
    at = f->q_off + (f->q_count + unit - 1) / unit * unit;
    if (in_row && !last)
        f->scale_off = at;
    at += in_row && !last ? scales : 0;
    f->row_bytes = at + unit * (int32_t)stream_below(s, 3);
    f->scale_bytes = in_row ? 0 : f->scale_off + scales + unit * (int32_t)stream_below(s, 3);
}

static const sy_kv_format *make_format(struct call *c, int number)
{
    sy_kv_format *const f = case_memory(c, sizeof *f);
    f->scales = number == BY_ROW ? SY_SCALES_ROW : SY_SCALES_BLOCK;
    if (number >= BY_ROW)
        random_format(c, f);
    else if (sy_kv_format_named(formats[number], f) != SY_OK)
        case_fail(c, NULL, "no format %s", formats[number]);
    return f;
}

static bool is_fp4(const struct kv_plane *p)
{
    return p->format != NULL && p->format->q_type.bits == 4 && p->format->scales == SY_SCALES_TENSOR;
}

static bool has_scales(const struct kv_plane *p, sy_kv_scales where)
{
    return p->format != NULL && p->format->scales == where;
}

/* A row in one dimension: what a format makes of it is another. */
static bool is_laid_out(const struct kv_plane *p)
{
    return p->format != NULL && p->format->scales != SY_SCALES_TENSOR;
}

/* ---- Caches ---- */

enum { IN_ROWS, IN_BLOCKS, WITH_HEADS, DEEP, KINDS };

/* An operand of the call or of a further plane. */
static struct operand *add(struct call *c, int plane, const char *field, const DLTensor **at, bool written,
                           DLDataType type, int rank, const int64_t *shape)
{
    if (plane == 0)
        return written ? case_inout_as(c, field, type, rank, shape) : case_in_as(c, field, type, rank, shape);
    for (int i = 0; i < c->info->n_tensors; i++) {
        const sy_field_info *const f = c->operand[i].field;
        if (strcmp(f->name, field) == 0 && ((f->flags & SY_FIELD_INOUT) != 0) == written)
            return case_plane_as(c, &c->operand[i], at, type, rank, shape);
    }
    case_fail(c, NULL, "has no tensor %s", field);
}

/* Elements of a row: heads, numbers of each, and of a deep one a further dimension. */
static void choose_row(struct call *c, struct kv_plane *p, int kind, bool hnd, int64_t *row)
{
    const int64_t width = case_size(c, "D", 1, 20, 80), heads = case_size(c, "H", 1, 4, 9);
    const sy_kv_format *const f = p->format;
    row[0] = !is_laid_out(p) && (kind >= WITH_HEADS || hnd) ? heads : 1;
    row[1] = width;
    row[2] = kind == DEEP && !is_laid_out(p) ? case_size(c, "X", 1, 3, 5) : 1;
    if (is_fp4(p))
        row[1] = 8 * ((width + 7) / 8);
    if (has_scales(p, SY_SCALES_ROW))
        row[1] = f->row_bytes + case_pick(c, "row gap", 3) * (f->row_bytes % 16 == 0 ? 16 : 1);
    if (has_scales(p, SY_SCALES_INLINE))
        row[1] = (width + 19) / 20 * (f->q_type.bits == 4 ? 18 : 34);
}

/* Shape of a cache whose rows are not packed by block, and where they are in its dense contents. */
static int lay_out(struct call *c, const struct kv_caches *k, struct kv_plane *p, int kind, size_t element,
                   int64_t *shape)
{
    const bool hnd = k->layout == SY_KV_HND;
    int64_t row[3];
    int rank = 0;
    choose_row(c, p, kind, hnd, row);
    const int64_t head = row[1] * row[2], heads = row[0];
    shape[rank++] = kind == IN_ROWS ? k->rows : k->blocks;
    if (hnd)
        shape[rank++] = heads;
    if (kind != IN_ROWS)
        shape[rank++] = k->block_size;
    if (!hnd && kind >= WITH_HEADS)
        shape[rank++] = heads;
    if (!hnd || head > 1 || p->format != NULL || case_pick(c, "no width", 2) == 0)
        shape[rank++] = row[1];
    if (kind == DEEP && !is_laid_out(p) && rank > 3)
        shape[rank++] = row[2];
    p->head_bytes = head * (int64_t)element;
    p->at.heads = heads;
    p->at.head_stride = (hnd ? k->block_size : 1) * p->head_bytes;
    p->at.row_stride = (hnd ? 1 : heads) * p->head_bytes;
    p->at.block_stride = k->block_size * heads * p->head_bytes;
    p->at.elems = has_scales(p, SY_SCALES_INLINE) ? row[1] / (p->format->q_type.bits == 4 ? 18 : 34) * 32
                                                  : heads * head * (is_fp4(p) ? 2 : 1);
    return rank;
}

static int lay_out_blocks(struct call *c, const struct kv_caches *k, struct kv_plane *p, int64_t *shape)
{
    const int64_t each = p->format->row_bytes + p->format->scale_bytes;
    const int64_t gap = (p->format->row_bytes % 16 == 0 ? 16 : 1) * case_pick(c, "block gap", 3);
    p->at.heads = 1;
    p->at.row_stride = p->format->row_bytes;
    p->at.block_stride = shape[1] = k->block_size * each + gap;
    shape[0] = k->blocks;
    return 2;
}

/* For all rows, or for each: one, one for each head, for each element, or for halves of heads. */
static void make_scale(struct call *c, const struct kv_caches *k, struct kv_plane *p, int plane, bool writes,
                       bool flat)
{
    const bool fp4 = is_fp4(p);
    const int64_t heads = p->at.heads, n = p->at.elems, half = n / heads % 2 == 0 ? 2 * heads : heads;
    const int64_t parts[] = {1, heads, n, half};
    const int rank = fp4 ? (flat ? 2 : 2 + (int)case_pick(c, "scale_rank", 2))
                         : 1 + (int)case_pick(c, "scale_rank", flat ? 2 : 3);
    p->at.parts = fp4 ? n / 16 : parts[case_pick(c, "parts", 4)];
    p->at.scale_stride = rank == 1 ? 0 : p->at.parts;
    const int64_t shapes[][3] = {
        {p->at.parts}, {k->rows, p->at.parts}, {k->blocks, k->block_size, p->at.parts}};
    const DLDataType type = !fp4 ? SY_F32 : case_flag(c, "scale bytes") ? SY_U8 : SY_F8_E4M3;
    p->scale = add(c, plane, "scale", &c->planes[plane > 0 ? plane - 1 : 0].scale, writes && rank > 1, type,
                   rank, shapes[rank - 1]);
    if (fp4)
        case_fill(c, p->scale);
    else
        case_fill_floats(c, p->scale);
}

static void make_global(struct call *c, struct kv_plane *p, int plane)
{
    static const uint32_t far[] = {1, 0x000ae398, 0x00800000, 0x7f7fffff, 0x7e967699},
                          bad[] = {0, 0x80000000, 0xbf800000, 0x7f800000, 0x7fc00000};
    struct stream *const s = case_stream(c, "global_scale");
    p->global = add(c, plane, "global_scale", &c->planes[plane > 0 ? plane - 1 : 0].global_scale, false,
                    SY_F32, 1, (const int64_t[]){1});
    case_put(p->global, 0,
             case_chance(c, "bad global", 9) ? bad[stream_below(s, 5)]
             : stream_chance(s, 5)           ? far[stream_below(s, 5)]
                                             : 0x30000000 + (uint32_t)stream_below(s, 0x14000000));
}

static uint32_t mask(int n, const sy_type *types)
{
    uint32_t all = 0;
    for (int i = 0; i < n; i++)
        all |= UINT32_C(1) << types[i];
    return all;
}

static void make_plane(struct call *c, struct kv_caches *k, int plane, int kind, bool writes)
{
    static const sy_type codes[] = {SY_TYPE_I8, SY_TYPE_U8, SY_TYPE_F8_E4M3, SY_TYPE_F8_E5M2};
    struct kv_plane *const p = &k->plane[plane];
    const int format = pick_format(c);
    const bool by_block = format == 2 || format == 3 || format == BY_BLOCK;
    int64_t shape[CASE_RANK];
    p->format =
        format < 0 || (by_block && k->rows != k->blocks * k->block_size) ? NULL : make_format(c, format);
    if (p->format != NULL)
        p->at.format = *p->format;
    p->at.block_size = k->block_size;
    const DLDataType type = p->format == NULL ? case_type(c, "cache")
                            : is_fp4(p)       ? SY_U8
                                              : sy_dtype(codes[case_pick(c, "code type", 4)]);
    const int rank = has_scales(p, SY_SCALES_BLOCK)
                         ? lay_out_blocks(c, k, p, shape)
                         : lay_out(c, k, p, kind, (size_t)type.bits * type.lanes / 8, shape);
    p->cache = add(c, plane, "cache", &c->planes[plane > 0 ? plane - 1 : 0].cache, writes, type, rank, shape);
    p->cache->upper = has_scales(p, SY_SCALES_BLOCK)                ? 1
                      : kind == IN_ROWS                             ? 1
                      : kind == IN_BLOCKS && k->layout == SY_KV_NHD ? 2
                                                                    : 3;
    p->cache->free = true;
    p->cache->accepts = p->format != NULL ? mask(4, codes) : 0;
    case_fill(c, p->cache);
    if (has_scales(p, SY_SCALES_TENSOR))
        make_scale(c, k, p, plane, writes, kind == IN_ROWS);
    if (is_fp4(p))
        make_global(c, p, plane);
    if (plane > 0)
        c->planes[plane - 1].format = p->format;
    if (p->format != NULL)
        case_note(c, formats[format], true);
}

/* Dense rows: the dimensions of a cache row after those of `lead`. */
static void make_rows(struct call *c, struct kv_caches *k, int plane, const char *dense, int rank,
                      const int64_t *lead)
{
    static const sy_type floats[] = {SY_TYPE_F32, SY_TYPE_F16, SY_TYPE_BF16};
    struct kv_plane *const p = &k->plane[plane];
    const DLTensor **const at = &c->planes[plane > 0 ? plane - 1 : 0].rows;
    const bool out = strcmp(dense, "out") == 0, hnd = k->layout == SY_KV_HND, flat = p->cache->rank == 2;
    const DLDataType type =
        p->format == NULL ? p->cache->type : sy_dtype(floats[case_pick(c, "dense type", 3)]);
    int64_t shape[CASE_RANK];
    const int first = rank;
    memcpy(shape, lead, (size_t)rank * sizeof *shape);
    if (is_laid_out(p))
        shape[rank++] = oracle_unpacked(&p->at);
    for (int d = flat ? 1 : hnd ? 1 : 2; d < p->cache->rank && !is_laid_out(p); d++)
        if (!hnd || flat || d != 2)
            shape[rank++] = p->cache->shape[d];
    shape[rank - 1] *= is_fp4(p) ? 2 : 1;
    if (out && plane == 0)
        p->rows = case_out_as(c, dense, type, rank, shape);
    else
        p->rows = add(c, plane, dense, at, false, type, rank, shape);
    p->rows->upper = first;
    p->rows->accepts = p->format != NULL ? mask(3, floats) : 0;
    if (!out && p->format != NULL)
        case_fill_floats(c, p->rows);
    else if (!out)
        case_fill(c, p->rows);
}

int kv_more_planes(struct call *c)
{
    enum { MANY = 11 }; /* as many as there may be are in shapes */
    const int n = (int)case_pick(c, "planes", 6);
    if (c->in->kind == READ_TEXT)
        return n;
    return case_chance(c, "many planes", 10) ? MANY - n : n > 2 ? n - 2 : 0;
}

struct kv_caches *kv_make_caches(struct call *c, const char *dense)
{
    struct kv_caches *const k = case_memory(c, sizeof *k);
    const bool writes = strcmp(dense, "src") == 0, flat = case_chance(c, "flat", 3);
    k->layout = !flat && case_chance(c, "hnd", 3) ? SY_KV_HND : SY_KV_NHD;
    k->block_size = case_size(c, "S", 1, 6, 20);
    k->blocks = case_size(c, "blocks", 0, 9, 30);
    k->rows = k->blocks * k->block_size;
    k->n_planes = 1 + kv_more_planes(c);
    if (flat && case_chance(c, "partial", 2)) /* rows of the last block that are not there */
        k->rows -= case_pick(c, "missing rows", least(k->rows, k->block_size));
    if (flat && k->rows > 0 && case_chance(c, "long block", 8)) {
        k->block_size = INT64_C(3) << (20 + case_pick(c, "block bits", 18));
        k->blocks = 1;
    }
    for (int i = 0; i < k->n_planes; i++) {
        const int kind = (int)case_pick(c, "kind", KINDS);
        make_plane(c, k, i,
                   flat                                        ? IN_ROWS
                   : kind == IN_ROWS && k->layout == SY_KV_HND ? IN_BLOCKS
                                                               : kind,
                   writes);
    }
    c->own = k;
    return k;
}

void kv_make_rows(struct call *c, struct kv_caches *k, const char *dense, int rank, const int64_t *lead)
{
    for (int i = 0; i < k->n_planes; i++)
        make_rows(c, k, i, dense, rank, lead);
}

/* Leading dimensions of n in all, and a last one of k. */
static int lead_of(int64_t n, int64_t k, int lead, int64_t *shape)
{
    int rank = 0;
    if (lead == 2)
        shape[rank++] = n % 2 == 0 ? 2 : 1;
    if (lead > 0)
        shape[rank++] = lead == 2 && n % 2 == 0 ? n / 2 : n;
    shape[rank++] = k;
    return rank;
}

int kv_shape(struct call *c, int64_t n, int64_t *shape)
{
    const int rank = (int)case_pick(c, "lead", 3);
    return n % 3 == 0 && rank > 0 ? lead_of(3, n / 3, rank, shape) : lead_of(1, n, rank, shape);
}

int64_t kv_choose_rows(struct call *c, DLDataType slots, int64_t *block_size)
{
    *block_size = case_size(c, "S", 1, 8, 100);
    int64_t blocks = case_size(c, "blocks", 1, 9, 200);
    const bool huge = case_chance(c, "huge", 6);
    if (huge && slots.bits == 32)
        blocks = (INT64_C(1) << 31) / *block_size;
    if (huge && slots.bits == 64)
        blocks = INT64_C(1) << (30 + case_pick(c, "bits", 20));
    return blocks * *block_size - (case_flag(c, "partial") ? case_pick(c, "missing rows", *block_size) : 0);
}

/* ---- Rows of a dense cache ---- */

static size_t row_bytes(const struct kv_plane *p)
{
    size_t bytes = p->rows->element;
    for (int d = p->rows->upper; d < p->rows->rank; d++)
        bytes *= (size_t)p->rows->shape[d];
    return bytes;
}

static struct packed_cache packed(const struct kv_plane *p)
{
    struct packed_cache at = p->at;
    at.cache = p->cache->out ? p->cache->want : p->cache->dense;
    at.scale = p->scale == NULL ? NULL : (float *)(void *)(p->scale->out ? p->scale->want : p->scale->dense);
    if (p->global != NULL)
        memcpy(&at.global, p->global->dense, sizeof at.global);
    return at;
}

/* Head h of a row that is copied as it is. */
static unsigned char *head_of(const struct packed_cache *at, int64_t slot, int64_t h)
{
    return at->cache + slot / at->block_size * at->block_stride + slot % at->block_size * at->row_stride +
           h * at->head_stride;
}

void kv_read(const struct kv_caches *k, int64_t slot, int64_t i)
{
    for (const struct kv_plane *p = k->plane; p < k->plane + k->n_planes; p++) {
        const struct packed_cache at = packed(p);
        unsigned char *const row = p->rows->want + (size_t)i * row_bytes(p);
        if (p->format != NULL)
            oracle_unpack(&at, slot, case_number(p->rows), row);
        for (int64_t h = 0; p->format == NULL && h < at.heads; h++)
            memcpy(row + h * p->head_bytes, head_of(&at, slot, h), (size_t)p->head_bytes);
    }
}

void kv_write(const struct kv_caches *k, int64_t slot, int64_t i)
{
    for (const struct kv_plane *p = k->plane; p < k->plane + k->n_planes; p++) {
        const struct packed_cache at = packed(p);
        const unsigned char *const row = p->rows->dense + (size_t)i * row_bytes(p);
        if (p->format != NULL)
            oracle_pack(&at, slot, case_number(p->rows), row);
        for (int64_t h = 0; p->format == NULL && h < at.heads; h++)
            memcpy(head_of(&at, slot, h), row + h * p->head_bytes, (size_t)p->head_bytes);
    }
}

void kv_clear(const struct kv_caches *k, int64_t i)
{
    for (const struct kv_plane *p = k->plane; p < k->plane + k->n_planes; p++)
        memset(p->rows->want + (size_t)i * row_bytes(p), 0, row_bytes(p));
}

bool kv_check_globals(struct call *c, const struct kv_caches *k)
{
    for (int i = 0; i < k->n_planes; i++) {
        const float global = k->plane[i].global != NULL ? packed(&k->plane[i]).global : 1;
        if (!isfinite(global) || global <= 0) {
            c->want = (sy_fault){SY_ERR_INDEX, SY_FAULT_INDEX_RANGE, "global_scale", 0, i, 0, 0};
            return false;
        }
    }
    return true;
}

void kv_note(struct call *c, const struct kv_caches *k)
{
    bool mixed = false;
    for (int i = 1; i < k->n_planes; i++)
        mixed = mixed || (k->plane[i].format == NULL) != (k->plane[0].format == NULL);
    case_note(c, "three planes", k->n_planes >= 3);
    case_note(c, "many planes", k->n_planes > 8);
    case_note(c, "planes of two kinds", mixed);
    case_note(c, "heads outside rows", k->layout == SY_KV_HND && k->plane[0].at.heads > 1);
    case_note(c, "partial block", k->block_size < 1000 && k->rows % k->block_size != 0);
    case_note(c, "long block", k->block_size > 1000);
}

/* ---- Tables ---- */

enum { UNMAPPED = 1000000007 };

static int64_t n_blocks(const struct kv_table *t)
{
    return t->rows / t->block_size + (t->rows % t->block_size != 0);
}

static int64_t first_page(const struct kv_table *t, int64_t r)
{
    return t->indptr != NULL ? case_get(t->indptr, r) : r * t->columns;
}

static int64_t n_pages(const struct kv_table *t, int64_t r)
{
    return t->indptr != NULL ? first_page(t, r + 1) - first_page(t, r) : t->columns;
}

/* Lists of up to `columns` pages, with unused pages before and after them. */
static void make_lists(struct call *c, struct kv_table *t, bool lengths)
{
    struct stream *const s = case_stream(c, "indptr");
    t->indptr = case_in_as(c, "indptr", (DLDataType){0}, 1, (const int64_t[]){t->n + 1});
    if (!lengths && case_flag(c, "last_page_len"))
        t->last = case_in_as(c, "last_page_len", (DLDataType){0}, 1, &t->n);
    t->indptr->free = true;
    int64_t end = stream_below(s, 3);
    case_put(t->indptr, 0, end);
    for (int64_t r = 0; r < t->n; r++) {
        const int64_t pages = stream_below(s, t->columns + 1);
        end += pages;
        case_put(t->indptr, r + 1, end);
        if (t->last != NULL)
            case_put(t->last, r, pages == 0 ? -1 : 1 + stream_below(s, t->block_size));
        case_note(c, "no pages", pages == 0);
    }
    end += stream_below(s, 3);
    t->entries = case_in_as(c, "page_indices", (DLDataType){0}, 1, &end);
}

struct kv_table kv_make_table(struct call *c, int64_t n, int64_t block_size, int64_t rows, bool lengths)
{
    struct stream *const s = case_stream(c, "table");
    struct kv_table t = {.n = n, .block_size = block_size, .rows = rows};
    const int64_t shape[] = {n, t.columns = case_size(c, "n", 0, 6, 40)};
    const bool lists = case_chance(c, "lists", 3), one = n == 1 && case_flag(c, "one");
    case_note(c, "lists", lists);
    if (lists)
        make_lists(c, &t, lengths);
    else
        t.entries = case_in_as(c, "block_table", (DLDataType){0}, one ? 1 : 2, one ? &shape[1] : shape);
    for (int64_t i = 0; i < case_count(t.entries); i++)
        case_put(t.entries, i, stream_chance(s, 2) ? -1 : UNMAPPED + stream_below(s, 9));
    return t;
}

int64_t kv_room(const struct kv_table *t, int64_t r)
{
    const int64_t pages = n_pages(t, r);
    if (pages == 0 || t->last == NULL)
        return pages * t->block_size;
    return (pages - 1) * t->block_size + case_get(t->last, r);
}

bool kv_map(struct call *c, const struct kv_table *t, int64_t r, int64_t token)
{
    struct stream *const s = case_stream(c, "map");
    const int64_t column = token / t->block_size, at = first_page(t, r) + column, blocks = n_blocks(t);
    int64_t block = case_get(t->entries, at);
    if (block < 0 || block >= UNMAPPED) {
        const int64_t before = column > 0 ? case_get(t->entries, at - 1) : -1;
        block = stream_chance(s, 6) && blocks > 0 ? blocks - 1 : stream_below(s, blocks);
        if (before >= 0 && before + 1 < blocks && stream_chance(s, 2))
            block = before + 1;
        case_put(t->entries, at, block);
    }
    return block * t->block_size + token % t->block_size < t->rows || stream_chance(s, 10);
}

int64_t kv_draw(struct call *c, struct kv_table *t, int64_t r, int64_t limit)
{
    struct stream *const s = case_stream(c, "tokens");
    limit = least(limit, kv_room(t, r));
    if (limit <= 0 || t->rows == 0)
        return -1;
    t->drawn = !stream_chance(s, 3) && t->drawn + 1 < limit ? t->drawn + 1 : stream_below(s, limit);
    if (!kv_map(c, t, r, t->drawn)) { /* a row of its block that is there */
        const int64_t column = t->drawn / t->block_size;
        t->drawn = column * t->block_size + stream_below(s, (t->rows - 1) % t->block_size + 1);
    }
    return t->drawn;
}

static struct operand *lengths_of(struct call *c, const char *field, int64_t n)
{
    return case_flag(c, field) ? case_in_as(c, field, (DLDataType){0}, 1, &n) : NULL;
}

/* Index rows without a fault, but for missing rows of a block; past counts there is anything. */
static void fill_indices(struct call *c, struct kv_table *t, sy_kv_pad pad)
{
    struct operand *const indices = case_field(c, "indices"), *const req = case_field(c, "req_id"),
                          *const counts = case_field(c, "counts"), *const lengths = case_field(c, "seq_lens");
    struct stream *const s = case_stream(c, "indices");
    const int64_t k = indices->shape[indices->rank - 1];
    for (int64_t i = 0; i < case_count(indices); i++) {
        const int64_t b = i / k, r = req->given ? case_get(req, b) : b;
        const int64_t limit = lengths->given ? case_get(lengths, b) : INT64_MAX;
        const bool past = counts->given && i % k >= case_get(counts, b);
        const bool padding = pad != SY_PAD_ERROR && stream_chance(s, 5);
        const int64_t room = kv_room(t, r), beyond = limit < INT64_MAX ? limit - room : 0;
        int64_t token = padding ? -1 : kv_draw(c, t, r, limit);
        if (beyond > 0 && stream_chance(s, 40)) /* of the sequence, but not of its table */
            token = room + stream_below(s, beyond);
        case_put(indices, i, !past ? token : stream_chance(s, 2) ? INT32_MIN : 99999);
        case_note(c, "past counts", past);
        case_note(c, "padding", padding);
        if (counts->given && !past && pad == SY_PAD_ERROR && case_get(indices, i) < 0)
            case_put(counts, b, i % k); /* no token is left */
    }
}

struct kv_table kv_make_sequences(struct call *c, int64_t b, int64_t k, int64_t block_size, int64_t rows)
{
    struct stream *const s = case_stream(c, "lengths");
    struct operand *const req = lengths_of(c, "req_id", b),
                          *const counts = k >= 0 ? lengths_of(c, "counts", b) : NULL,
                          *const lengths = lengths_of(c, "seq_lens", b);
    const int64_t n = req != NULL ? case_size(c, "R", 1, 3, 9) : b;
    const struct kv_table t = kv_make_table(c, n, block_size, rows, lengths != NULL);
    for (int64_t i = 0; i < b; i++) {
        if (req != NULL)
            case_put(req, i, stream_below(s, n));
        if (counts != NULL)
            case_put(counts, i, stream_chance(s, 2) ? k : stream_below(s, k + 1));
        const int64_t room = kv_room(&t, req != NULL ? case_get(req, i) : i);
        if (lengths != NULL)
            case_put(lengths, i,
                     stream_chance(s, 3) ? room + stream_below(s, 20) : stream_below(s, room + 1));
    }
    case_note(c, "several rows of a sequence", req != NULL && b > n);
    return t;
}

void kv_make_pages(struct call *c, int64_t b, int64_t k, int64_t block_size, int64_t rows, sy_kv_pad pad)
{
    int64_t shape[4];
    const int rank = lead_of(b, k, b == 1 ? 0 : 1 + (int)case_pick(c, "lead", 2), shape);
    struct kv_table t = kv_make_sequences(c, b, k, block_size, rows);
    case_in_as(c, "indices", (DLDataType){0}, rank, shape);
    fill_indices(c, &t, pad);
}

struct gather_case kv_find_pages(struct call *c, int64_t block_size, int64_t rows, sy_kv_pad pad)
{
    const struct operand *const indices = case_field(c, "indices");
    const int64_t k = indices->shape[indices->rank - 1];
    struct gather_case in = {.batch = 1,
                             .k = k,
                             .rows = rows,
                             .block_size = block_size,
                             .padded = pad != SY_PAD_ERROR,
                             .indices = case_wide(c, "indices"),
                             .req_id = case_wide(c, "req_id"),
                             .counts = case_wide(c, "counts"),
                             .seq_lens = case_wide(c, "seq_lens")};
    for (int d = 0; d < indices->rank - 1; d++)
        in.batch *= indices->shape[d];
    kv_find_table(c, &in);
    return in;
}

void kv_plant(struct call *c, const char *const *fields, int64_t limit, int64_t other)
{
    static const int count[] = {0, 0, 1, 3};
    struct stream *const s = case_stream(c, "plant");
    int n = 0;
    while (fields[n] != NULL)
        n++;
    for (int i = count[case_pick(c, "faults", 4)]; i > 0; i--) {
        struct operand *const x = case_field(c, fields[stream_below(s, n)]);
        const int64_t at = x->given ? stream_below(s, case_count(x)) : 0;
        if (!x->given || case_count(x) == 0)
            continue;
        const uint64_t old = (uint64_t)case_get(x, at), far = (uint64_t)1 << 32; /* sums may wrap */
        const int64_t odd[] = {
            -1,        -2,    INT32_MIN, INT32_MAX,     (int64_t)(old + 1),   (int64_t)(old - 1), limit,
            limit - 1, other, other + 1, (1 << 30) + 1, (int64_t)(old + far), INT64_MAX,          INT64_MIN};
        case_put(x, at, odd[stream_below(s, x->type.bits == 64 ? 14 : 11)]);
    }
}

void kv_find_table(struct call *c, struct gather_case *in)
{
    const struct operand *const table = case_field(c, "block_table"),
                                *const pages = case_field(c, "page_indices"),
                                *const indptr = case_field(c, "indptr");
    in->table_rows = !table->given ? indptr->shape[0] - 1 : table->rank == 1 ? 1 : table->shape[0];
    in->table_len = table->given ? table->shape[table->rank - 1] : pages->shape[0];
    in->table = case_wide(c, table->given ? "block_table" : "page_indices");
    in->indptr = case_wide(c, "indptr");
    for (int i = 0; i < c->info->n_tensors; i++)
        if (strcmp(c->info->fields[i].name, "last_page_len") == 0)
            in->last_page_len = case_wide(c, "last_page_len");
}

bool kv_expect(struct call *c, const sy_fault *f)
{
    if (f->status == SY_OK)
        return true;
    c->want = *f;
    case_note(c, sy_fault_name(f->code), true);
    return false;
}
