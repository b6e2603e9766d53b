/*
 * Runs the C tests on another device: with SWITCHYARD_TEST_DEVICE=cuda every context is made for CUDA device 0 (of
 * SWITCHYARD_TEST_CUDA_LIBRARY, if set); calls wait for their end, and tensors in CPU memory are copied to the device before
 * a call and back after it. There is one kernel table. Calls are intercepted by the linker (--wrap), so the tests do not change.
 * With SWITCHYARD_TEST_FILLED contexts get scratch memory that is filled: initcheck would report tables that are read before
 * they are written, where an entry that names nothing is dropped.
 */
#include "plan/plan.h"
#include "support.h"
#include "wrapped.h"

#include <dlfcn.h>

/* Names that the linker makes. NOLINTBEGIN(bugprone-reserved-identifier) */

bool test_on_device(void)
{
    const char *const device = getenv("SWITCHYARD_TEST_DEVICE");
    return device != NULL && strcmp(device, "cuda") == 0;
}

static sy_ctx *copier(void);
sy_status __real_sy_ctx_set_workspace(sy_ctx *ctx, void *data, size_t bytes);

/* Scratch memory of a context that has been written as a whole. It is kept until the program ends. */
enum { FILLED = 64 << 20 };

static void lend_filled(sy_ctx *ctx)
{
    void *const fill = malloc(FILLED), *there;
    assert_non_null(fill);
    memset(fill, 0xA5, FILLED);
    assert_int_equal(sy_device_alloc(copier(), FILLED, &there), SY_OK);
    assert_int_equal(sy_device_copy(copier(), there, fill, FILLED), SY_OK);
    assert_int_equal(__real_sy_ctx_set_workspace(ctx, there, FILLED), SY_OK);
    free(fill);
}

WRAPPED(sy_status, sy_ctx_create_n, sy_ctx **ctx, const sy_ctx_options *options, size_t bytes)
{
    sy_ctx_options o = {0};
    if (!test_on_device() || bytes > sizeof o)
        return __real_sy_ctx_create_n(ctx, options, bytes);
    if (options != NULL)
        memcpy(&o, options, bytes);
    o.device = (DLDevice){kDLCUDA, 0};
    o.synchronous = true;
    o.device_library = getenv("SWITCHYARD_TEST_CUDA_LIBRARY");
    const sy_status status = __real_sy_ctx_create_n(ctx, &o, sizeof o);
    if (status == SY_OK && getenv("SWITCHYARD_TEST_FILLED") != NULL)
        lend_filled(*ctx);
    return status;
}

WRAPPED(const char *, sy_isa_name, int i)
{
    return i > 0 && test_on_device() ? NULL : __real_sy_isa_name(i);
}

sy_ctx *device_ctx(int ordinal)
{
    sy_ctx *ctx = NULL;
    const sy_ctx_options options = {.device = {kDLCUDA, ordinal},
                                    .device_library = getenv("SWITCHYARD_TEST_CUDA_LIBRARY")};
    if (__real_sy_ctx_create_n(&ctx, &options, sizeof options) != SY_OK)
        skip_because("there is no CUDA device of this number here");
    return ctx;
}

/* The library stays loaded, so that the function may be called. */
void *emulated(const char *function)
{
    const char *const name = getenv("SWITCHYARD_TEST_CUDA_LIBRARY");
    void *const library = name != NULL ? dlopen(name, RTLD_NOW) : NULL;
    return library != NULL ? dlsym(library, function) : NULL;
}

unsigned long emulator_count(const char *what)
{
    unsigned long (*count)(void) = NULL;
    *(void **)&count = emulated(what);
    return count != NULL ? count() : 0;
}

/* Copies are calls of a context of their own, so that they do not change errors of the one that is tested. */
static sy_ctx *copier(void)
{
    static sy_ctx *ctx;
    const sy_ctx_options options = {.device = {kDLCUDA, 0},
                                    .device_library = getenv("SWITCHYARD_TEST_CUDA_LIBRARY")};
    if (ctx == NULL && __real_sy_ctx_create_n(&ctx, &options, sizeof options) != SY_OK)
        fail_msg("%s", "no context for copies to the device");
    return ctx;
}

/* Memory of the host that a test lends becomes memory of the device, and more of it: tests ask what a call in CPU memory needs.
   It is kept until the program ends. */
enum { MORE_LENT = 16 << 20 };

WRAPPED(sy_status, sy_ctx_set_workspace, sy_ctx *ctx, void *data, size_t bytes)
{
    void *there;
    if (!test_on_device() || ctx == NULL || data == NULL || bytes == 0 || (uintptr_t)data % 64 != 0)
        return __real_sy_ctx_set_workspace(ctx, data, bytes);
    assert_int_equal(sy_device_alloc(copier(), bytes + MORE_LENT, &there), SY_OK);
    return __real_sy_ctx_set_workspace(ctx, there, bytes + MORE_LENT);
}

/* ---- Memory ---- */

enum { MOST_TENSORS = 1200 }; /* fields, and four of each plane */

/* Memory that one or several tensors share, its copy on the device, and what it was when it was copied: with several requests
   open, others change it meanwhile. */
struct region {
    unsigned char *begin, *end, *mirror, *was;
};

/* A call whose tensors are on the device. */
struct moved {
    union test_args args;
    DLTensor *tensor; /* [n] */
    int n, n_regions;
    bool keeps_shared; /* what all devices of a mesh share stays in CPU memory, in every other call */
    sy_kv_plane *planes;
    struct region *region; /* [n] */
};

/* Bytes from the first to the last element; false for a tensor that has none, or that only an error test makes. */
static bool span_of(const DLTensor *t, struct region *r)
{
    int64_t first = 0, last = 0, stride = 1;
    if (t->data == NULL || t->ndim < 0 || t->ndim > 8 || (t->ndim > 0 && t->shape == NULL))
        return false;
    for (int i = t->ndim - 1; i >= 0; i--) {
        const int64_t step = t->shape[i] == 1 ? 0 : t->strides != NULL ? t->strides[i] : stride;
        if (t->shape[i] <= 0 || t->shape[i] > INT32_MAX || step > INT32_MAX || step < INT32_MIN)
            return false;
        *(step < 0 ? &first : &last) += (t->shape[i] - 1) * step;
        stride *= t->shape[i];
    }
    const int64_t size = t->dtype.bits * t->dtype.lanes / 8;
    r->begin = (unsigned char *)t->data + t->byte_offset + first * size;
    r->end = (unsigned char *)t->data + t->byte_offset + (last + 1) * size;
    return r->end - r->begin <= (int64_t)4 << 30;
}

/* Adds the memory of a tensor; regions that touch become one. */
static void add_region(struct moved *m, struct region r)
{
    for (int i = 0; i < m->n_regions;)
        if (r.begin <= m->region[i].end && m->region[i].begin <= r.end) {
            r.begin = r.begin < m->region[i].begin ? r.begin : m->region[i].begin;
            r.end = r.end > m->region[i].end ? r.end : m->region[i].end;
            m->region[i] = m->region[--m->n_regions];
            i = 0;
        } else {
            i++;
        }
    m->region[m->n_regions++] = r;
}

/* An address that is nowhere, of the same alignment: no byte of the tensor may be touched. */
static void *nowhere(const void *data)
{
    return data != NULL ? (void *)(0x1000 + (uintptr_t)data % 64) : NULL;
}

/* Takes n tensors over into the call; their memory is copied later. */
static const DLTensor *take_all(struct moved *m, const DLTensor *tensors, int n)
{
    DLTensor *const all = &m->tensor[m->n];
    if (tensors == NULL)
        return NULL;
    for (int i = 0; i < n; i++) {
        struct region r = {0};
        DLTensor *const to = &m->tensor[m->n++];
        *to = tensors[i];
        if (to->device.device_type != kDLCPU)
            continue;
        to->device = (DLDevice){kDLCUDA, 0};
        if (span_of(to, &r))
            add_region(m, r);
        else
            to->data = nowhere(to->data);
    }
    return all;
}

static const DLTensor *take(struct moved *m, const DLTensor *tensor)
{
    return take_all(m, tensor, 1);
}

/* Before and after each copy on the device; none but the copy's own bytes may change. */
enum { GUARD_BYTES = 128 };

/* Bytes before the copy of a region: it has the alignment of the region. */
static size_t guard_before(const struct region *r)
{
    return GUARD_BYTES + (uintptr_t)r->begin % 64;
}

static void copy_in(struct moved *m)
{
    for (int i = 0; i < m->n_regions; i++) {
        struct region *const r = &m->region[i];
        const size_t bytes = (size_t)(r->end - r->begin), before = guard_before(r);
        const size_t all = before + bytes + GUARD_BYTES;
        unsigned char *const image = malloc(all);
        void *memory;
        memset(image, 0x5A, before);
        memcpy(image + before, r->begin, bytes);
        memset(image + before + bytes, 0x5A, GUARD_BYTES);
        assert_int_equal(sy_device_alloc(copier(), all, &memory), SY_OK);
        assert_int_equal(sy_device_copy(copier(), memory, image, all), SY_OK);
        r->mirror = (unsigned char *)memory + before;
        r->was = image;
    }
    for (int i = 0; i < m->n; i++) {
        struct region own;
        if (m->tensor[i].device.device_type != kDLCUDA || !span_of(&m->tensor[i], &own))
            continue;
        for (int k = 0; k < m->n_regions; k++)
            if (own.begin >= m->region[k].begin && own.end <= m->region[k].end)
                m->tensor[i].data =
                    m->region[k].mirror + ((unsigned char *)m->tensor[i].data - m->region[k].begin);
    }
}

/* Nothing is copied. */
static void leave(struct moved *m)
{
    m->n_regions = 0;
    for (int i = 0; i < m->n; i++)
        if (m->tensor[i].device.device_type == kDLCUDA)
            m->tensor[i].data = nowhere(m->tensor[i].data);
}

/* The same for several devices, whose tensors keep their distances: some of them are valid, and looked at first. */
static void keep(struct moved *m)
{
    m->n_regions = 0;
}

/* Bytes that the device changed. Inputs may be in memory that cannot be written. */
static void take_changes(const struct region *r, const unsigned char *now)
{
    const size_t bytes = (size_t)(r->end - r->begin);
    const unsigned char *const was = r->was + guard_before(r);
    for (size_t i = 0; i < bytes; i++)
        if (now[i] != was[i])
            r->begin[i] = now[i];
}

/* What an open request has written so far. */
static void copy_back(struct moved *m)
{
    for (int i = 0; i < m->n_regions; i++) {
        const struct region *const r = &m->region[i];
        const size_t bytes = (size_t)(r->end - r->begin);
        unsigned char *const now = malloc(bytes + 1);
        assert_int_equal(sy_device_copy(copier(), now, r->mirror, bytes), SY_OK);
        take_changes(r, now);
        free(now);
    }
}

/* Freeing waits for the whole device, and NCCL's kernels there for other processes: not before no request is open. */
static struct parked {
    struct parked *next;
    void *memory;
} * parked;

static void park(void *memory)
{
    struct parked *const p = malloc(sizeof *p);
    *p = (struct parked){parked, memory};
    parked = p;
}

static void free_parked(void)
{
    while (parked != NULL) {
        struct parked *const next = parked->next;
        sy_device_free(copier(), parked->memory);
        free(parked);
        parked = next;
    }
}

/* Outputs come back; a rejected call must have changed nothing. One that lost another process may have begun to write. */
static void copy_out(struct moved *m, sy_status status)
{
    const bool rejected = status != SY_OK && status != SY_ERR_TIMEOUT && status != SY_ERR_COMM;
    for (int i = 0; i < m->n_regions; i++) {
        const struct region *const r = &m->region[i];
        const size_t bytes = (size_t)(r->end - r->begin), before = guard_before(r);
        const size_t all = before + bytes + GUARD_BYTES;
        unsigned char *const image = malloc(all), *const now = image + before;
        assert_int_equal(sy_device_copy(copier(), image, r->mirror - before, all), SY_OK);
        for (size_t k = 0; k < all; k = k + 1 == before ? before + bytes : k + 1)
            if (image[k] != 0x5A)
                fail_msg("a call changed byte %zd of %zu of a tensor on the device",
                         (ptrdiff_t)k - (ptrdiff_t)before, bytes);
        if (status == SY_OK)
            take_changes(r, now);
        else if (rejected && memcmp(now, r->was + before, bytes) != 0)
            fail_msg("%s", "a rejected call changed memory of the device");
        free(image);
        free(r->was);
        park(r->mirror - before);
    }
}

/* ---- Calls ---- */

static void take_planes(struct moved *m, const sy_kv_plane *planes, int64_t n)
{
    m->planes = malloc((size_t)n * sizeof *m->planes);
    for (int64_t i = 0; i < n; i++) {
        m->planes[i] = planes[i];
        m->planes[i].cache = take(m, planes[i].cache);
        m->planes[i].rows = take(m, planes[i].rows);
        m->planes[i].scale = take(m, planes[i].scale);
        m->planes[i].global_scale = take(m, planes[i].global_scale);
    }
}

static void take_field(struct moved *m, const sy_op_info *op, int i, int n_shards)
{
    const sy_field_info *const field = sy_op_field(op, i);
    void *const at = (char *)&m->args + field->offset;
    const void *given;
    if (field->kind != SY_KIND_TENSOR && field->kind != SY_KIND_PLANES)
        return;
    memcpy(&given, at, sizeof given);
    if ((field->flags & SY_FIELD_SHARED) != 0 && m->keeps_shared)
        return;
    if (field->kind == SY_KIND_TENSOR && (field->flags & SY_FIELD_AGAIN) == 0) {
        const DLTensor *const to = take_all(m, given, (field->flags & SY_FIELD_SHARED) != 0 ? 1 : n_shards);
        memcpy(at, &to, sizeof to);
    } else if (field->kind == SY_KIND_PLANES && given != NULL) {
        int64_t n;
        memcpy(&n, (char *)&m->args + sy_op_field(op, i + 1)->offset, sizeof n);
        if (n <= 0 || n > SY_KV_MAX_PLANES)
            return;
        take_planes(m, given, n);
        memcpy(at, &m->planes, sizeof m->planes);
    }
}

/* Whether the memory of a tensor that was not taken is part of that of others. */
static bool touches(const struct moved *m, const sy_op_info *op, int i)
{
    const DLTensor *given;
    struct region r;
    memcpy(&given, (const char *)&m->args + sy_op_field(op, i)->offset, sizeof given);
    for (int k = 0; given != NULL && span_of(given, &r) && k < m->n_regions; k++)
        if (r.begin < m->region[k].end && m->region[k].begin < r.end)
            return true;
    return false;
}

sy_status __real_sy_call(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t bytes);

/* Calls of open requests: their outputs come back when a request is done. */
static struct open_call {
    struct open_call *next;
    sy_request *request;
    const sy_comm *comm;
    struct moved moved;
} * open_calls;

/* A call whose tensors will go to the device. */
static void begin(struct moved *m, const sy_op_info *op, const void *args, size_t bytes, int n_shards)
{
    static int calls;
    *m = (struct moved){.keeps_shared = calls++ % 2 == 0};
    memcpy(&m->args, args, bytes);
    m->tensor = malloc(MOST_TENSORS * sizeof *m->tensor);
    m->region = malloc(MOST_TENSORS * sizeof *m->region);
    for (int i = 0; i < op->n_fields; i++)
        take_field(m, op, i, n_shards);
    for (int i = 0; i < op->n_tensors && m->keeps_shared; i++)
        if ((sy_op_field(op, i)->flags & SY_FIELD_SHARED) != 0 && touches(m, op, i)) {
            m->keeps_shared = false; /* it shares memory with others */
            take_field(m, op, i, 1);
        }
}

static sy_status end(struct moved *m, sy_status status)
{
    copy_out(m, status);
    if (open_calls == NULL)
        free_parked();
    free(m->tensor);
    free(m->region);
    free(m->planes);
    return status;
}

static bool lends_what_is_asked; /* as the workspace */

void test_lend_what_is_asked(void)
{
    lends_what_is_asked = true;
}

/* A call with as much memory of the device as its query says, and bytes behind it that must not change. */
static sy_status call_with(sy_ctx *ctx, const sy_op_info *op, const struct moved *m, size_t bytes,
                           size_t asked)
{
    static void *memory;
    static size_t allocated;
    unsigned char guard[16384], now[sizeof guard]; /* kernels write here and there */
    if (asked > (size_t)4 << 30) { /* the query did not see the outputs that the call will reject */
        assert_int_equal(__real_sy_ctx_set_workspace(ctx, NULL, 0), SY_OK);
        return __real_sy_call(ctx, op, &m->args, bytes);
    }
    memset(guard, 0x5A, sizeof guard);
    if (asked + sizeof guard > allocated) {
        sy_device_free(copier(), memory);
        allocated = 2 * asked + sizeof guard;
        assert_int_equal(sy_device_alloc(copier(), allocated, &memory), SY_OK);
    }
    unsigned char *const behind = (unsigned char *)memory + asked;
    assert_int_equal(sy_device_copy(copier(), behind, guard, sizeof guard), SY_OK);
    assert_int_equal(__real_sy_ctx_set_workspace(ctx, memory, asked > 0 ? asked : 1), SY_OK); /* 0: its own */
    const sy_status status = __real_sy_call(ctx, op, &m->args, bytes);
    assert_int_equal(sy_device_copy(copier(), now, behind, sizeof now), SY_OK);
    assert_memory_equal(now, guard, sizeof guard);
    assert_int_not_equal(status, SY_ERR_NOMEM);
    return status;
}

/* The call, after its tensors went to the device. */
static sy_status call_there(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t bytes)
{
    struct moved m;
    sy_query query = {0};
    begin(&m, op, args, bytes, 1);
    const bool accepted = sy_call_query(ctx, op, &m.args, bytes, &query) == SY_OK;
    if (accepted)
        copy_in(&m);
    else
        leave(&m); /* rejected before its memory matters, which may not exist */
    return end(&m, accepted && lends_what_is_asked ? call_with(ctx, op, &m, bytes, query.workspace_bytes)
                                                   : __real_sy_call(ctx, op, &m.args, bytes));
}

/* Planes are copied as this header knows them. */
static bool usual_planes(const sy_op_info *op, const void *args)
{
    for (int i = 0; i < op->n_fields; i++) {
        const sy_field_info *const field = sy_op_field(op, i);
        size_t bytes;
        if (strcmp(field->name, "plane_bytes") != 0)
            continue;
        memcpy(&bytes, (const char *)args + field->offset, sizeof bytes);
        return bytes == 0 || bytes == sizeof(sy_kv_plane);
    }
    return true;
}

static bool goes_there(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t bytes)
{
    return test_on_device() && ctx != NULL && op != NULL && args != NULL && !op->mesh &&
           bytes == op->args_bytes && usual_planes(op, args);
}

WRAPPED(sy_status, sy_call, sy_ctx *ctx, const sy_op_info *op, const void *args, size_t bytes)
{
    return goes_there(ctx, op, args, bytes) ? call_there(ctx, op, args, bytes)
                                            : __real_sy_call(ctx, op, args, bytes);
}

#define WRAP(ID, op) \
    WRAPPED(sy_status, sy_##op##_n, sy_ctx *ctx, const sy_##op##_args *args, size_t bytes) \
    { \
        const sy_op_info *const info = sy_op_find(#op); \
        return goes_there(ctx, info, args, bytes) ? call_there(ctx, info, args, bytes) \
                                                  : __real_sy_##op##_n(ctx, args, bytes); \
    }
SYI_BACKEND_OPERATORS(WRAP)

/* ---- Calls between devices of a mesh ---- */

static bool meshes_there(sy_ctx *ctx, const sy_comm *comm, const sy_op_info *op, const void *args,
                         size_t bytes)
{
    return test_on_device() && ctx != NULL && comm != NULL && args != NULL && bytes == op->args_bytes &&
           sy_comm_shards(comm) * op->n_tensors <= MOST_TENSORS;
}

/* What a request that reached a phase has written. */
static sy_status see(sy_request *request, bool done, sy_status status)
{
    struct open_call **link = &open_calls, *found;
    while (*link != NULL && (*link)->request != request)
        link = &(*link)->next;
    found = *link;
    if (found == NULL)
        return status;
    if (done) {
        *link = found->next;
        end(&found->moved, status);
        free(found);
    } else if (status == SY_OK) {
        copy_back(&found->moved);
    }
    return status;
}

WRAPPED(sy_status, sy_request_wait, sy_request *request, sy_phase phase)
{
    const sy_status status = __real_sy_request_wait(request, phase);
    return see(request, phase == SY_PHASE_DONE, status);
}

WRAPPED(sy_status, sy_request_test, sy_request *request, sy_phase phase, bool *done)
{
    bool ended = false; /* a rejected call leaves it */
    const sy_status status = __real_sy_request_test(request, phase, done != NULL ? &ended : NULL);
    if (done != NULL && (status == SY_OK || ended))
        *done = ended;
    return ended ? see(request, phase == SY_PHASE_DONE, status) : status;
}

WRAPPED(sy_status, sy_request_free, sy_request *request)
{
    const sy_status status = __real_sy_request_free(request);
    return see(request, true, status);
}

/* Waits for requests that are still open. */
WRAPPED(void, sy_comm_destroy, sy_comm *comm)
{
    __real_sy_comm_destroy(comm);
    for (struct open_call *call = open_calls, *next; call != NULL; call = next) {
        next = call->next;
        if (call->comm != comm)
            continue;
        copy_back(&call->moved);
        see(call->request, true, SY_ERR_COMM); /* whatever its status was */
    }
}

WRAPPED(sy_status, sy_call_mesh, sy_ctx *ctx, sy_comm *comm, const sy_op_info *op, const void *args,
        size_t bytes)
{
    struct moved m;
    sy_query query;
    if (op == NULL || !op->mesh || !meshes_there(ctx, comm, op, args, bytes))
        return __real_sy_call_mesh(ctx, comm, op, args, bytes);
    begin(&m, op, args, bytes, sy_comm_shards(comm));
    if (sy_call_mesh_query(ctx, comm, op, &m.args, bytes, &query) == SY_OK)
        copy_in(&m);
    else
        keep(&m);
    return end(&m, __real_sy_call_mesh(ctx, comm, op, &m.args, bytes));
}

#define WRAP_MESH(op) \
    WRAPPED(sy_status, sy_##op##_n, sy_ctx *ctx, sy_comm *comm, const sy_##op##_args *args, size_t bytes) \
    { \
        const sy_op_info *const info = sy_op_find(#op); \
        return meshes_there(ctx, comm, info, args, bytes) \
                   ? __wrap_sy_call_mesh(ctx, comm, info, args, bytes) \
                   : __real_sy_##op##_n(ctx, comm, args, bytes); \
    } \
    WRAPPED(sy_status, sy_##op##_start_n, sy_ctx *ctx, sy_comm *comm, const sy_##op##_args *args, \
            size_t bytes, sy_request **request) \
    { \
        const sy_op_info *const info = sy_op_find(#op); \
        sy_query query; \
        if (!meshes_there(ctx, comm, info, args, bytes)) \
            return __real_sy_##op##_start_n(ctx, comm, args, bytes, request); \
        struct open_call *const call = calloc(1, sizeof *call); \
        begin(&call->moved, info, args, bytes, sy_comm_shards(comm)); \
        if (sy_call_mesh_query(ctx, comm, info, &call->moved.args, bytes, &query) == SY_OK) \
            copy_in(&call->moved); \
        else \
            keep(&call->moved); \
        const sy_status status = \
            __real_sy_##op##_start_n(ctx, comm, (const void *)&call->moved.args, bytes, request); \
        if (status == SY_OK && request != NULL) { \
            call->request = *request; \
            call->comm = comm; \
            call->next = open_calls; \
            open_calls = call; \
            return status; \
        } \
        end(&call->moved, status); \
        free(call); \
        return status; \
    }
WRAP_MESH(all_to_all_dispatch)
WRAP_MESH(all_to_all_combine)
/* NOLINTEND(bugprone-reserved-identifier) */
