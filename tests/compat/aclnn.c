/* See aclnn.h. */
#include "aclnn.h"

#include "aclnnop/aclnn_moe_token_permute_with_routing_map.h"
#include "aclnnop/aclnn_moe_token_permute_with_routing_map_grad.h"
#include "aclnnop/aclnn_moe_token_unpermute_with_routing_map.h"
#include "aclnnop/aclnn_moe_token_unpermute_with_routing_map_grad.h"
#include "aclnnop/aclnn_top_k_top_p_sample.h"
#include "aclnnop/aclnn_top_k_top_p_sample_v2.h"

/* ---- Tensors ----------------------------------------------------------------------------------------- */

size_t arg_elem_bytes(const struct arg *a)
{
    return aclDataTypeSize(a->type);
}

int64_t arg_count(const struct arg *a)
{
    int64_t count = 1;
    for (int d = 0; d < a->rank; d++)
        count *= a->dims[d] > 0 ? a->dims[d] : 0;
    return count;
}

/* Where element i, counted in row order, lies in mem. */
static size_t place_of(const struct arg *a, int64_t i)
{
    int64_t at = a->offset;
    for (int d = a->rank; d-- > 0;) {
        at += i % a->dims[d] * a->strides[d];
        i /= a->dims[d];
    }
    return (size_t)at * arg_elem_bytes(a);
}

static void arg_make(struct arg *a)
{
    if (a->rank == 0)
        return;
    uint64_t compact = 1;
    double reach = (double)a->offset; /* spoiled shapes may be of any size; nothing touches their memory */
    for (int d = a->rank; d-- > 0;) {
        if (!a->strided)
            a->strides[d] = (int64_t)compact;
        compact *= (uint64_t)a->dims[d];
        reach += a->dims[d] > 0 ? (double)(a->dims[d] - 1) * (double)a->strides[d] : 0;
    }
    const bool usual = a->offset >= 0 && reach >= 0 && reach < 1 << 28 && arg_elem_bytes(a) > 0;
    const bool empty = usual && arg_count(a) == 0;
    a->bytes = !usual || empty ? 64 : ((size_t)reach + 1) * arg_elem_bytes(a);
    a->mem = buf_new(a->bytes, a->misalign);
    for (int64_t i = 0; a->data != NULL && usual && i < arg_count(a); i++)
        memcpy(a->mem + place_of(a, i), (const char *)a->data + (size_t)i * arg_elem_bytes(a),
               arg_elem_bytes(a));
    a->before = malloc(a->bytes);
    assert_non_null(a->before);
    memcpy(a->before, a->mem, a->bytes);
    if (on_device()) {
        void *block;
        assert_int_equal(aclrtMalloc(&block, a->bytes + a->misalign, ACL_MEM_MALLOC_HUGE_FIRST), 0);
        a->device = (unsigned char *)block + a->misalign;
    }
    a->tensor = aclCreateTensor(a->dims, (uint64_t)a->rank, a->type, a->strides, a->offset,
                                a->format != 0 ? a->format : ACL_FORMAT_ND, a->dims, (uint64_t)a->rank,
                                a->no_data    ? NULL
                                : on_device() ? a->device
                                              : a->mem);
    assert_non_null(a->tensor);
}

static void arg_free(struct arg *a)
{
    if (a->device != NULL)
        assert_int_equal(aclrtFree(a->device - a->misalign), 0);
    a->device = NULL;
    if (a->mem != NULL)
        buf_free(a->mem);
    free(a->before);
    assert_int_equal(aclDestroyTensor(a->tensor), 0);
    a->mem = NULL;
    a->before = NULL;
    a->tensor = NULL;
}

void arg_get(const struct arg *a, void *dense)
{
    for (int64_t i = 0; i < arg_count(a); i++)
        memcpy((char *)dense + (size_t)i * arg_elem_bytes(a), a->mem + place_of(a, i), arg_elem_bytes(a));
}

void arg_expect_untouched(const struct arg *a, bool all, const char *what)
{
    if (a->rank == 0)
        return;
    unsigned char *now = malloc(a->bytes);
    assert_non_null(now);
    memcpy(now, a->mem, a->bytes);
    for (int64_t i = 0; !all && i < arg_count(a); i++)
        memcpy(now + place_of(a, i), a->before + place_of(a, i), arg_elem_bytes(a));
    if (memcmp(now, a->before, a->bytes) != 0)
        fail_msg("%s: memory of another was written", what);
    free(now);
}

/* ---- Calls ------------------------------------------------------------------------------------------- */

static aclnnStatus ask_permute(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnMoeTokenPermuteWithRoutingMapGetWorkspaceSize(
        a[PERMUTE_TOKENS].tensor, a[PERMUTE_MAP].tensor, a[PERMUTE_PROBS].tensor, c->number[0], c->flag[0],
        a[PERMUTE_OUT].tensor, a[PERMUTE_PROBS_OUT].tensor, a[PERMUTE_INDICES].tensor, size, e);
}

static aclnnStatus ask_unpermute(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    aclIntArray *restore = c->restore != NULL ? aclCreateIntArray(c->restore, c->restore_count) : NULL;
    const aclnnStatus st = aclnnMoeTokenUnpermuteWithRoutingMapGetWorkspaceSize(
        a[UNPERMUTE_ROWS].tensor, a[UNPERMUTE_INDICES].tensor, a[UNPERMUTE_MAP].tensor,
        a[UNPERMUTE_PROBS].tensor, c->flag[0], restore, a[UNPERMUTE_OUT].tensor,
        a[UNPERMUTE_OUT_INDEX].tensor, a[UNPERMUTE_TOKEN_ID].tensor, a[UNPERMUTE_KEPT_PROBS].tensor, size, e);
    assert_int_equal(aclDestroyIntArray(restore), 0);
    return st;
}

static aclnnStatus ask_permute_grad(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnMoeTokenPermuteWithRoutingMapGradGetWorkspaceSize(
        a[PGRAD_ROWS].tensor, a[PGRAD_PROBS].tensor, a[PGRAD_INDICES].tensor, a[PGRAD_MAP].tensor,
        c->number[0], c->number[1], c->flag[0], a[PGRAD_OUT].tensor, a[PGRAD_PROBS_OUT].tensor, size, e);
}

static aclnnStatus ask_unpermute_grad(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnMoeTokenUnpermuteWithRoutingMapGradGetWorkspaceSize(
        a[UGRAD_TOKENS].tensor, a[UGRAD_OUT_INDEX].tensor, a[UGRAD_TOKEN_ID].tensor, a[UGRAD_MAP].tensor,
        a[UGRAD_ROWS].tensor, a[UGRAD_PROBS].tensor, c->flag[0], NULL, a[UGRAD_OUT].tensor,
        a[UGRAD_PROBS_OUT].tensor, size, e);
}

static aclnnStatus ask_sample(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnTopKTopPSampleGetWorkspaceSize(
        a[SAMPLE_LOGITS].tensor, a[SAMPLE_K].tensor, a[SAMPLE_P].tensor, a[SAMPLE_Q].tensor, c->eps,
        c->flag[0], c->number[0], a[SAMPLE_TOKEN].tensor, a[SAMPLE_MASKED].tensor, size, e);
}

static aclnnStatus ask_sample_v2(struct call *c, uint64_t *size, aclOpExecutor **e)
{
    struct arg *a = c->args;
    return aclnnTopKTopPSampleV2GetWorkspaceSize(
        a[SAMPLE_LOGITS].tensor, a[SAMPLE_K].tensor, a[SAMPLE_P].tensor, a[SAMPLE_Q].tensor,
        a[SAMPLE_MINP].tensor, c->eps, c->flag[0], c->number[0], c->number[1], c->flag[1], c->flag[2],
        a[SAMPLE_TOKEN].tensor, a[SAMPLE_MASKED].tensor, a[SAMPLE_IDX].tensor, a[SAMPLE_LIST].tensor, size,
        e);
}

struct call call_permute(void)
{
    return (struct call){.op = "aclnnMoeTokenPermuteWithRoutingMap",
                         .count = PERMUTE_INDICES + 1,
                         .first_output = PERMUTE_OUT,
                         .ask = ask_permute,
                         .execute = aclnnMoeTokenPermuteWithRoutingMap};
}

struct call call_unpermute(void)
{
    return (struct call){.op = "aclnnMoeTokenUnpermuteWithRoutingMap",
                         .count = UNPERMUTE_KEPT_PROBS + 1,
                         .first_output = UNPERMUTE_OUT,
                         .ask = ask_unpermute,
                         .execute = aclnnMoeTokenUnpermuteWithRoutingMap};
}

struct call call_permute_grad(void)
{
    return (struct call){.op = "aclnnMoeTokenPermuteWithRoutingMapGrad",
                         .count = PGRAD_PROBS_OUT + 1,
                         .first_output = PGRAD_OUT,
                         .ask = ask_permute_grad,
                         .execute = aclnnMoeTokenPermuteWithRoutingMapGrad};
}

struct call call_unpermute_grad(void)
{
    return (struct call){.op = "aclnnMoeTokenUnpermuteWithRoutingMapGrad",
                         .count = UGRAD_PROBS_OUT + 1,
                         .first_output = UGRAD_OUT,
                         .ask = ask_unpermute_grad,
                         .execute = aclnnMoeTokenUnpermuteWithRoutingMapGrad};
}

struct call call_sample(void)
{
    return (struct call){.op = "aclnnTopKTopPSample",
                         .count = SAMPLE_MASKED + 1,
                         .first_output = SAMPLE_TOKEN,
                         .number = {32},
                         .eps = 1e-8,
                         .ask = ask_sample,
                         .execute = aclnnTopKTopPSample};
}

struct call call_sample_v2(void)
{
    return (struct call){.op = "aclnnTopKTopPSampleV2",
                         .count = SAMPLE_LIST + 1,
                         .first_output = SAMPLE_TOKEN,
                         .number = {32, 1024},
                         .flag = {false, true, false},
                         .eps = 1e-8,
                         .ask = ask_sample_v2,
                         .execute = aclnnTopKTopPSampleV2};
}

void call_make(struct call *c)
{
    for (int i = 0; i < c->count; i++)
        arg_make(&c->args[i]);
}

void call_free(struct call *c)
{
    for (int i = 0; i < c->count; i++)
        arg_free(&c->args[i]);
}

bool on_device(void)
{
    return getenv("SWITCHYARD_COMPAT_DEVICE") != NULL;
}

/* The memory of all tensors to the device, or back. */
static void move_args(struct call *c, bool there)
{
    for (int i = 0; i < c->count; i++) {
        struct arg *a = &c->args[i];
        if (a->device != NULL)
            assert_int_equal(aclrtMemcpy(there ? a->device : a->mem, a->bytes, there ? a->mem : a->device,
                                         a->bytes,
                                         there ? ACL_MEMCPY_HOST_TO_DEVICE : ACL_MEMCPY_DEVICE_TO_HOST),
                             0);
    }
}

aclnnStatus call_run(struct call *c)
{
    uint64_t size = 77;
    aclOpExecutor *executor = NULL;
    aclnnStatus st = c->ask(c, &size, &executor);
    if (st != ACLNN_SUCCESS) {
        assert_null(executor);
        assert_int_equal(size, 77);
        return st;
    }
    assert_non_null(executor);
    void *workspace = NULL;
    if (on_device() && size > 0)
        assert_int_equal(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST), 0);
    else if (size > 0)
        workspace = buf_new((size_t)size, 0);
    move_args(c, true);
    st = c->execute(workspace, size, executor, NULL);
    move_args(c, false);
    if (workspace != NULL && on_device())
        assert_int_equal(aclrtFree(workspace), 0);
    else if (workspace != NULL)
        buf_free(workspace);
    return st;
}

void call_expect_at(struct call *c, const void *const *want, const char *file, int line)
{
    call_make(c);
    expect_aclnn_at(call_run(c), ACLNN_SUCCESS, file, line);
    for (int i = 0; i < c->count; i++) {
        const struct arg *a = &c->args[i];
        const bool output = i >= c->first_output;
        arg_expect_untouched(a, !output || want[i - c->first_output] == NULL, c->op);
        if (!output || a->rank == 0 || want[i - c->first_output] == NULL)
            continue;
        const size_t bytes = (size_t)arg_count(a) * arg_elem_bytes(a);
        unsigned char *got = malloc(bytes + 1);
        assert_non_null(got);
        arg_get(a, got);
        test_expect_bytes(got, want[i - c->first_output], bytes, file, line);
        free(got);
    }
    call_free(c);
}

void call_rejected(struct call *c, aclnnStatus want, const char *what)
{
    call_make(c);
    expect_aclnn(call_run(c), want);
    for (int i = 0; i < c->count; i++)
        arg_expect_untouched(&c->args[i], true, what);
    call_free(c);
}

void expect_aclnn_at(aclnnStatus got, aclnnStatus want, const char *file, int line)
{
    const char *sentence = aclGetRecentErrMsg();
    if (got != want) {
        print_error("status %d, want %d: %s\n", (int)got, (int)want, sentence);
        _fail(file, line);
    }
    if (want != ACLNN_SUCCESS && sentence[0] == '\0') {
        print_error("status %d without a sentence\n", (int)got);
        _fail(file, line);
    }
}
