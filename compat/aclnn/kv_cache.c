/* aclnnScatterPaKvCache and aclnnGatherPaKvCache: sy_kv_scatter and sy_kv_ragged, with keys and values as two planes. */
#include "internal.h"

#include <string.h>

#include "aclnnop/aclnn_gather_pa_kv_cache.h"
#include "aclnnop/aclnn_scatter_pa_kv_cache.h"

enum { KEY, SLOTS, VALUE, KEY_CACHE, VALUE_CACHE, N_SCATTER };
enum { FROM_KEYS, FROM_VALUES, TABLE, LENGTHS, OFFSETS, TO_KEYS, TO_VALUES, N_GATHER };

#define MOVED \
    (SYI_ACLNN_FLOATS | SYI_ACLNN_BIT(ACL_INT8) | SYI_ACLNN_BIT(ACL_UINT8) | SYI_ACLNN_BIT(ACL_INT16) | \
     SYI_ACLNN_BIT(ACL_UINT16) | SYI_ACLNN_BIT(ACL_INT32) | SYI_ACLNN_BIT(ACL_UINT32))
#define INTEGERS (SYI_ACLNN_BIT(ACL_INT32) | SYI_ACLNN_BIT(ACL_INT64))

static bool is_default(const char *word, const char *usual)
{
    return word == NULL || word[0] == '\0' || strcmp(word, usual) == 0;
}

static aclnnStatus check_mode(const aclOpExecutor *e, const char *mode, bool *pieces)
{
    *pieces = mode != NULL && strcmp(mode, "PA_NZ") == 0;
    if (*pieces || is_default(mode, "Norm"))
        return ACLNN_SUCCESS;
    return syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: cacheMode is %.20s, want Norm or PA_NZ", e->op->name,
                          mode);
}

/* Rows [T,H,D] of a cache: heads and elements as they are, or in its pieces [T,H*D/L,L]. */
static aclnnStatus match_rows(const aclOpExecutor *e, struct syi_aclnn_view *rows,
                              const struct syi_aclnn_view *cache, bool pieces)
{
    const int64_t *c = cache->dims, *r = rows->dims;
    const bool fits = pieces ? c[3] > 0 && c[1] * c[3] == rows->shape[1] : c[2] == r[1] && c[3] == r[2];
    if (!fits)
        return syi_aclnn_fail(
            ACLNN_ERR_PARAM_INVALID,
            "%s: %s has rows of [%lld,%lld], want those of %s [%lld,%lld,%lld,%lld] in mode %s", e->op->name,
            rows->name, (long long)r[1], (long long)r[2], cache->name, (long long)c[0], (long long)c[1],
            (long long)c[2], (long long)c[3], pieces ? "PA_NZ" : "Norm");
    if (pieces) {
        rows->dims[1] = c[1];
        rows->dims[2] = c[3];
    }
    return ACLNN_SUCCESS;
}

/* Null, types, ranks, the mode, and the rows of both planes. */
static aclnnStatus check_planes(aclOpExecutor *e, const struct syi_aclnn_rule *rules, int n, const char *mode,
                                const int planes[4], bool *pieces)
{
    aclnnStatus st = syi_aclnn_check_null(e, rules, n);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_types(e, rules);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_ranks(e, rules);
    if (st == ACLNN_SUCCESS)
        st = check_mode(e, mode, pieces);
    for (int i = 0; st == ACLNN_SUCCESS && i < 4; i += 2)
        st = match_rows(e, &e->view[planes[i]], &e->view[planes[i + 1]], *pieces);
    if (st == ACLNN_SUCCESS)
        e->plane = (sy_kv_plane){.cache = syi_aclnn_arg(e, planes[3]), .rows = syi_aclnn_arg(e, planes[2])};
    return st;
}

/* ---- Scatter ----------------------------------------------------------------------------------------- */

static aclnnStatus run_scatter(aclOpExecutor *e, char *extra)
{
    (void)extra;
    return syi_aclnn_status(e, sy_kv_scatter(e->ctx, &e->args.kv_scatter));
}

static const struct syi_aclnn_op scatter = {"aclnnScatterPaKvCache", run_scatter, true};

static bool are_all(const aclIntArray *numbers, int64_t value)
{
    for (uint64_t i = 0; numbers != NULL && i < numbers->size; i++)
        if (numbers->value[i] != value)
            return false;
    return true;
}

aclnnStatus aclnnScatterPaKvCacheGetWorkspaceSize(
    const aclTensor *key, aclTensor *keyCacheRef, const aclTensor *slotMapping, const aclTensor *value,
    aclTensor *valueCacheRef, const aclTensor *compressLensOptional,
    const aclTensor *compressSeqOffsetOptional, const aclTensor *seqLensOptional, char *cacheModeOptional,
    char *scatterModeOptional, const aclIntArray *stridesOptional, const aclIntArray *offsetsOptional,
    uint64_t *workspaceSize, aclOpExecutor **executor)
{
    const unsigned dense = SYI_ACLNN_DENSE, out = SYI_ACLNN_DENSE | SYI_ACLNN_OUTPUT;
    const struct syi_aclnn_rule rules[N_SCATTER] = {
        [KEY] = {"key", key, dense, MOVED, 0, 3},
        [SLOTS] = {"slotMapping", slotMapping, 0, INTEGERS, 0, 1},
        [VALUE] = {"value", value, dense, 0, KEY + 1, 3},
        [KEY_CACHE] = {"keyCacheRef", keyCacheRef, out, 0, KEY + 1, 4},
        [VALUE_CACHE] = {"valueCacheRef", valueCacheRef, out, 0, KEY + 1, 4},
    };
    const char *unsupported = compressLensOptional != NULL               ? "compressLensOptional"
                              : compressSeqOffsetOptional != NULL        ? "compressSeqOffsetOptional"
                              : seqLensOptional != NULL                  ? "seqLensOptional"
                              : !is_default(scatterModeOptional, "None") ? "scatterModeOptional"
                              : !are_all(stridesOptional, 1)             ? "stridesOptional"
                              : !are_all(offsetsOptional, 0)             ? "offsetsOptional"
                                                                         : NULL;
    aclOpExecutor *e;
    bool pieces = false;
    aclnnStatus st = syi_aclnn_begin(&scatter, workspaceSize, executor, &e);
    if (st == ACLNN_SUCCESS)
        st = check_planes(e, rules, N_SCATTER, cacheModeOptional, (int[]){KEY, KEY_CACHE, VALUE, VALUE_CACHE},
                          &pieces);
    if (st == ACLNN_SUCCESS && unsupported != NULL)
        st = syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID,
                            "%s: %s is given, which is not supported here, want the default", scatter.name,
                            unsupported);
    if (st == ACLNN_SUCCESS) {
        sy_query query = {0};
        e->args.kv_scatter = (sy_kv_scatter_args){.cache = syi_aclnn_arg(e, KEY_CACHE),
                                                  .src = syi_aclnn_arg(e, KEY),
                                                  .slots = syi_aclnn_arg(e, SLOTS),
                                                  .pad = SY_PAD_SKIP,
                                                  .planes = &e->plane,
                                                  .num_planes = 1,
                                                  .plane_bytes = sizeof e->plane,
                                                  .layout = pieces ? SY_KV_HND : SY_KV_NHD};
        st = syi_aclnn_status(e, sy_kv_scatter_query(e->ctx, &e->args.kv_scatter, &query));
        syi_aclnn_need(e, query.workspace_bytes);
    }
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_alias(e, -1, -1);
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnScatterPaKvCache(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                  aclrtStream stream)
{
    return syi_aclnn_execute(&scatter, workspace, workspaceSize, executor, stream);
}

/* ---- Gather ------------------------------------------------------------------------------------------ */

/* The first row of each sequence and the end, then the first token of each: `number` is whether lengths are sums, and S.
   A length that is not possible ends the sums with -1, which the operator rejects. */
static aclnnStatus run_gather(aclOpExecutor *e, char *extra)
{
    int64_t *ends = (int64_t *)(void *)extra, *starts = ends + e->list_shape[0][0];
    const int64_t n = e->list_shape[0][0] - 1, block_size = e->number[1];
    for (int64_t b = 0; b <= n; b++)
        if (e->number[0] != 0) {
            ends[b] = syi_aclnn_integer(e, LENGTHS, b);
        } else if (b == 0) {
            ends[b] = 0;
        } else {
            const int64_t length = syi_aclnn_integer(e, LENGTHS, b - 1);
            const bool wrong = length < 0 || ends[b - 1] < 0 || length > INT64_MAX - ends[b - 1];
            ends[b] = wrong ? -1 : ends[b - 1] + length;
        }
    for (int64_t b = 0; b < n && e->view[OFFSETS].taken; b++) {
        const int64_t offset = syi_aclnn_integer(e, OFFSETS, b);
        starts[b] = offset < 0 ? offset : offset / block_size * block_size;
    }
    e->list[0].data = ends;
    e->list[1].data = starts;
    return syi_aclnn_status(e, sy_kv_ragged(e->ctx, &e->args.kv_ragged));
}

static const struct syi_aclnn_op gather = {"aclnnGatherPaKvCache", run_gather, false};

static aclnnStatus plan_gather(aclOpExecutor *e, bool pieces, bool sums)
{
    const int64_t n = e->view[TABLE].shape[0], block_size = e->view[FROM_KEYS].dims[pieces ? 2 : 1];
    sy_query query = {0};
    aclnnStatus st = syi_aclnn_check_shape(e, LENGTHS, n + (sums ? 1 : 0), -1);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, OFFSETS, n, -1);
    if (st == ACLNN_SUCCESS && block_size < 1)
        st = syi_aclnn_fail(ACLNN_ERR_PARAM_INVALID, "%s: keyCache has blocks of no tokens", gather.name);
    if (st != ACLNN_SUCCESS)
        return st;
    e->number[0] = sums;
    e->number[1] = block_size;
    e->extra_bytes = (2 * (size_t)n + 1) * sizeof(int64_t);
    const DLTensor *ends = syi_aclnn_list(e, 0, SY_I64, n + 1, 0),
                   *starts = syi_aclnn_list(e, 1, SY_I64, n, 0);
    e->args.kv_ragged = (sy_kv_ragged_args){.cache = syi_aclnn_arg(e, FROM_KEYS),
                                            .block_table = syi_aclnn_arg(e, TABLE),
                                            .cu_lens = ends,
                                            .starts = e->view[OFFSETS].taken ? starts : NULL,
                                            .block_size = block_size,
                                            .out = syi_aclnn_arg(e, TO_KEYS),
                                            .planes = &e->plane,
                                            .num_planes = 1,
                                            .plane_bytes = sizeof e->plane,
                                            .layout = pieces ? SY_KV_HND : SY_KV_NHD};
    st = syi_aclnn_status(e, sy_kv_ragged_query(e->ctx, &e->args.kv_ragged, &query));
    syi_aclnn_need(e, query.workspace_bytes);
    if (st == ACLNN_SUCCESS)
        st = syi_aclnn_check_shape(e, TO_VALUES, e->view[TO_KEYS].shape[0], e->view[TO_VALUES].shape[1]);
    return st == ACLNN_SUCCESS ? syi_aclnn_check_alias(e, -1, -1) : st;
}

aclnnStatus aclnnGatherPaKvCacheGetWorkspaceSize(const aclTensor *keyCache, const aclTensor *valueCache,
                                                 const aclTensor *blockTables, const aclTensor *seqLens,
                                                 aclTensor *keyRef, aclTensor *valueRef,
                                                 const aclTensor *seqOffsetOptional, char *cacheMode,
                                                 bool isSeqLensCumsum, uint64_t *workspaceSize,
                                                 aclOpExecutor **executor)
{
    const unsigned dense = SYI_ACLNN_DENSE, out = SYI_ACLNN_DENSE | SYI_ACLNN_OUTPUT;
    const struct syi_aclnn_rule rules[N_GATHER] = {
        [FROM_KEYS] = {"keyCache", keyCache, dense, MOVED, 0, 4},
        [FROM_VALUES] = {"valueCache", valueCache, dense, 0, FROM_KEYS + 1, 4},
        [TABLE] = {"blockTables", blockTables, 0, INTEGERS, 0, 2},
        [LENGTHS] = {"seqLens", seqLens, 0, INTEGERS, 0, 1},
        [OFFSETS] = {"seqOffsetOptional", seqOffsetOptional, SYI_ACLNN_OPTIONAL, INTEGERS, 0, 1},
        [TO_KEYS] = {"keyRef", keyRef, out, 0, FROM_KEYS + 1, 3},
        [TO_VALUES] = {"valueRef", valueRef, out, 0, FROM_KEYS + 1, 3},
    };
    aclOpExecutor *e;
    bool pieces = false;
    aclnnStatus st = syi_aclnn_begin(&gather, workspaceSize, executor, &e);
    if (st == ACLNN_SUCCESS)
        st = check_planes(e, rules, N_GATHER, cacheMode, (int[]){TO_KEYS, FROM_KEYS, TO_VALUES, FROM_VALUES},
                          &pieces);
    if (st == ACLNN_SUCCESS)
        st = plan_gather(e, pieces, isSeqLensCumsum);
    return syi_aclnn_end(e, st, workspaceSize, executor);
}

aclnnStatus aclnnGatherPaKvCache(void *workspace, uint64_t workspaceSize, aclOpExecutor *executor,
                                 aclrtStream stream)
{
    return syi_aclnn_execute(&gather, workspace, workspaceSize, executor, stream);
}
