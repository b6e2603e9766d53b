/* aclnnScatterPaKvCache and aclnnGatherPaKvCache: sy_kv_scatter and sy_kv_ragged, with keys and values as two planes. */
#include "internal.h"

#include <string.h>

enum { KEY, SLOTS, VALUE, KEY_CACHE, VALUE_CACHE, N_SCATTER };
enum { FROM_KEYS, FROM_VALUES, TABLE, LENGTHS, OFFSETS, TO_KEYS, TO_VALUES, N_GATHER };

#define TO_SCATTER(field) SYI_ACLNN_FIELD(kv_scatter, field)
#define TO_RAGGED(field) SYI_ACLNN_FIELD(kv_ragged, field)
#define MOVED \
    (SYI_ACLNN_FLOATS | SYI_ACLNN_BIT(ACL_INT8) | SYI_ACLNN_BIT(ACL_UINT8) | SYI_ACLNN_BIT(ACL_INT16) | \
     SYI_ACLNN_BIT(ACL_UINT16) | SYI_ACLNN_BIT(ACL_INT32) | SYI_ACLNN_BIT(ACL_UINT32))

static bool is_default(const char *word, const char *usual)
{
    return word == NULL || word[0] == '\0' || strcmp(word, usual) == 0;
}

/* Rows [T,H,D] of a cache: heads and elements as they are, or in its pieces [T,H*D/L,L]. */
static void match_rows(aclOpExecutor *e, struct syi_aclnn_view *rows, const struct syi_aclnn_view *cache,
                       bool pieces)
{
    const int64_t *c = cache->dims, *r = rows->dims;
    const bool fits = pieces ? c[3] > 0 && c[1] * c[3] == rows->shape[1] : c[2] == r[1] && c[3] == r[2];
    if (!fits)
        SYI_ACLNN_INVALID(e, "%s has rows of [%lld,%lld], want those of %s [%lld,%lld,%lld,%lld] in mode %s",
                          rows->name, (long long)r[1], (long long)r[2], cache->name, (long long)c[0],
                          (long long)c[1], (long long)c[2], (long long)c[3], pieces ? "PA_NZ" : "Norm");
    if (fits && pieces) {
        rows->dims[1] = c[1];
        rows->dims[2] = c[3];
    }
}

/* The cache has pieces of rows. */
static bool in_pieces(const char *mode)
{
    return mode != NULL && strcmp(mode, "PA_NZ") == 0;
}

/* Types, ranks, the mode, and the rows of both planes. */
static bool check_planes(aclOpExecutor *e, const struct syi_aclnn_rule *rules, const char *mode,
                         const int planes[4])
{
    if (!syi_aclnn_check_tensors(e, rules))
        return false;
    if (!in_pieces(mode) && !is_default(mode, "Norm"))
        SYI_ACLNN_INVALID(e, "cacheMode is %.20s, want Norm or PA_NZ", mode);
    for (int i = 0; e->status == ACLNN_SUCCESS && i < 4; i += 2)
        match_rows(e, &e->view[planes[i]], &e->view[planes[i + 1]], in_pieces(mode));
    e->plane = (sy_kv_plane){.cache = syi_aclnn_arg(e, planes[3]), .rows = syi_aclnn_arg(e, planes[2])};
    return e->status == ACLNN_SUCCESS;
}

/* ---- Scatter ---- */

static const struct syi_aclnn_op scatter = {"aclnnScatterPaKvCache", SYI_ACLNN_CALLS(kv_scatter),
                                            .on_device = true};

static bool are_all(const aclIntArray *numbers, int64_t value)
{
    for (uint64_t i = 0; numbers != NULL && i < numbers->size; i++)
        if (numbers->value[i] != value)
            return false;
    return true;
}

SYI_ACLNN_OPERATOR(aclnnScatterPaKvCache, scatter, const aclTensor *key, aclTensor *keyCacheRef,
                   const aclTensor *slotMapping, const aclTensor *value, aclTensor *valueCacheRef,
                   const aclTensor *compressLensOptional, const aclTensor *compressSeqOffsetOptional,
                   const aclTensor *seqLensOptional, char *cacheModeOptional, char *scatterModeOptional,
                   const aclIntArray *stridesOptional, const aclIntArray *offsetsOptional)
{
    const unsigned dense = SYI_ACLNN_DENSE, out = SYI_ACLNN_DENSE | SYI_ACLNN_OUTPUT;
    const struct syi_aclnn_rule rules[N_SCATTER] = {
        [KEY] = {SYI_NAMED(key), dense, MOVED, 0, 3, TO_SCATTER(src)},
        [SLOTS] = {SYI_NAMED(slotMapping), 0, SYI_ACLNN_INTEGERS, 0, 1, TO_SCATTER(slots)},
        [VALUE] = {SYI_NAMED(value), dense, 0, KEY + 1, 3, 0},
        [KEY_CACHE] = {SYI_NAMED(keyCacheRef), out, 0, KEY + 1, 4, TO_SCATTER(cache)},
        [VALUE_CACHE] = {SYI_NAMED(valueCacheRef), out, 0, KEY + 1, 4, 0},
    };
    const char *unsupported = compressLensOptional != NULL               ? "compressLensOptional"
                              : compressSeqOffsetOptional != NULL        ? "compressSeqOffsetOptional"
                              : seqLensOptional != NULL                  ? "seqLensOptional"
                              : !is_default(scatterModeOptional, "None") ? "scatterModeOptional"
                              : !are_all(stridesOptional, 1)             ? "stridesOptional"
                              : !are_all(offsetsOptional, 0)             ? "offsetsOptional"
                                                                         : NULL;
    aclOpExecutor *e = syi_aclnn_begin(&scatter, rules, N_SCATTER, workspaceSize, executor);
    if (!check_planes(e, rules, cacheModeOptional, (int[]){KEY, KEY_CACHE, VALUE, VALUE_CACHE}))
        return syi_aclnn_end(e);
    if (unsupported != NULL)
        SYI_ACLNN_INVALID(e, "%s is given, which is not supported here, want the default", unsupported);
    e->args.kv_scatter.pad = SY_PAD_SKIP;
    e->args.kv_scatter.planes = &e->plane;
    e->args.kv_scatter.num_planes = 1;
    e->args.kv_scatter.plane_bytes = sizeof e->plane;
    e->args.kv_scatter.layout = in_pieces(cacheModeOptional) ? SY_KV_HND : SY_KV_NHD;
    (void)syi_aclnn_query(e);
    return syi_aclnn_end(e);
}

/* ---- Gather ---- */

/* The first row of each sequence and the end, then the first token of each: `number` is whether lengths are sums, and S.
   A length that is not possible ends the sums with -1, which the operator rejects. */
static aclnnStatus run_gather(aclOpExecutor *e)
{
    int64_t *ends = e->list[0].data, *starts = e->list[1].data;
    const int64_t n = e->list_shape[0][0] - 1, block_size = e->number[1];
    for (int64_t b = 0; b <= n; b++)
        if (e->number[0] != 0) {
            ends[b] = syi_aclnn_integer(e, LENGTHS, b, 0);
        } else if (b == 0) {
            ends[b] = 0;
        } else {
            const int64_t length = syi_aclnn_integer(e, LENGTHS, b - 1, 0);
            const bool wrong = length < 0 || ends[b - 1] < 0 || length > INT64_MAX - ends[b - 1];
            ends[b] = wrong ? -1 : ends[b - 1] + length;
        }
    for (int64_t b = 0; b < n && e->view[OFFSETS].taken; b++) {
        const int64_t offset = syi_aclnn_integer(e, OFFSETS, b, 0);
        starts[b] = offset < 0 ? offset : offset / block_size * block_size;
    }
    return syi_aclnn_call(e);
}

static const struct syi_aclnn_op gather = {"aclnnGatherPaKvCache", SYI_ACLNN_CALLS(kv_ragged), run_gather,
                                           false};

static void plan_gather(aclOpExecutor *e, bool pieces, bool sums)
{
    const int64_t n = e->view[TABLE].shape[0], block_size = e->view[FROM_KEYS].dims[pieces ? 2 : 1];
    sy_kv_ragged_args *args = &e->args.kv_ragged;
    const DLTensor *starts = syi_aclnn_list(e, 1, SY_I64, n, -1);
    syi_aclnn_check_shape(e, LENGTHS, n + (sums ? 1 : 0), -1);
    syi_aclnn_check_shape(e, OFFSETS, n, -1);
    if (block_size < 1)
        SYI_ACLNN_INVALID(e, "keyCache has blocks of no tokens");
    e->number[0] = sums;
    e->number[1] = block_size;
    args->cu_lens = syi_aclnn_list(e, 0, SY_I64, n + 1, -1);
    args->starts = e->view[OFFSETS].taken ? starts : NULL;
    args->block_size = block_size;
    args->planes = &e->plane;
    args->num_planes = 1;
    args->plane_bytes = sizeof e->plane;
    args->layout = pieces ? SY_KV_HND : SY_KV_NHD;
    (void)syi_aclnn_query(e);
    syi_aclnn_check_shape(e, TO_VALUES, e->view[TO_KEYS].shape[0], e->view[TO_VALUES].shape[1]);
}

SYI_ACLNN_OPERATOR(aclnnGatherPaKvCache, gather, const aclTensor *keyCache, const aclTensor *valueCache,
                   const aclTensor *blockTables, const aclTensor *seqLens, aclTensor *keyRef,
                   aclTensor *valueRef, const aclTensor *seqOffsetOptional, char *cacheMode,
                   bool isSeqLensCumsum)
{
    const unsigned dense = SYI_ACLNN_DENSE, out = SYI_ACLNN_DENSE | SYI_ACLNN_OUTPUT;
    const unsigned optional = SYI_ACLNN_OPTIONAL, integers = SYI_ACLNN_INTEGERS;
    const struct syi_aclnn_rule rules[N_GATHER] = {
        [FROM_KEYS] = {SYI_NAMED(keyCache), dense, MOVED, 0, 4, TO_RAGGED(cache)},
        [FROM_VALUES] = {SYI_NAMED(valueCache), dense, 0, FROM_KEYS + 1, 4, 0},
        [TABLE] = {SYI_NAMED(blockTables), 0, integers, 0, 2, TO_RAGGED(block_table)},
        [LENGTHS] = {SYI_NAMED(seqLens), 0, integers, 0, 1, 0},
        [OFFSETS] = {SYI_NAMED(seqOffsetOptional), optional, integers, 0, 1, 0},
        [TO_KEYS] = {SYI_NAMED(keyRef), out, 0, FROM_KEYS + 1, 3, TO_RAGGED(out)},
        [TO_VALUES] = {SYI_NAMED(valueRef), out, 0, FROM_KEYS + 1, 3, 0},
    };
    aclOpExecutor *e = syi_aclnn_begin(&gather, rules, N_GATHER, workspaceSize, executor);
    if (check_planes(e, rules, cacheMode, (int[]){TO_KEYS, FROM_KEYS, TO_VALUES, FROM_VALUES}))
        plan_gather(e, in_pieces(cacheMode), isSeqLensCumsum);
    return syi_aclnn_end(e);
}
