/*
 * Runs the C tests on another device: with SWITCHYARD_TEST_DEVICE=cuda every context is made for CUDA device 0, calls wait
 * for their end, and tensors in CPU memory are passed as tensors of the device. The device must be able to use memory of
 * the host, as the emulated one and GPUs with coherent memory do. Calls are intercepted by the linker (--wrap), so the
 * tests themselves know nothing of it.
 */
#include "support.h"

static bool on_device(void)
{
    const char *const device = getenv("SWITCHYARD_TEST_DEVICE");
    return device != NULL && strcmp(device, "cuda") == 0;
}

sy_status __real_sy_ctx_create_n(sy_ctx **ctx, const sy_ctx_options *options, size_t bytes);
sy_status __wrap_sy_ctx_create_n(sy_ctx **ctx, const sy_ctx_options *options, size_t bytes);
sy_status __wrap_sy_ctx_create_n(sy_ctx **ctx, const sy_ctx_options *options, size_t bytes)
{
    sy_ctx_options o = {0};
    if (!on_device() || bytes > sizeof o)
        return __real_sy_ctx_create_n(ctx, options, bytes);
    if (options != NULL)
        memcpy(&o, options, bytes);
    o.device = (DLDevice){kDLCUDA, 0};
    o.synchronous = true;
    return __real_sy_ctx_create_n(ctx, &o, sizeof o);
}

/* A call whose tensors are passed as tensors of the device. */
struct moved {
    union test_args args;
    DLTensor tensor[SY_MAX_FIELDS];
    sy_kv_plane *planes;
    DLTensor *of_planes;
};

static const DLTensor *move(const DLTensor *tensor, DLTensor *to)
{
    if (tensor == NULL)
        return NULL;
    *to = *tensor;
    if (to->device.device_type == kDLCPU)
        to->device = (DLDevice){kDLCUDA, 0};
    return to;
}

static void move_planes(struct moved *m, const sy_kv_plane *planes, int64_t n)
{
    if (planes == NULL || n <= 0 || n > 256)
        return;
    m->planes = malloc((size_t)n * sizeof *m->planes);
    m->of_planes = malloc((size_t)n * 4 * sizeof *m->of_planes);
    for (int64_t i = 0; i < n; i++) {
        DLTensor *const to = m->of_planes + 4 * i;
        m->planes[i] = planes[i];
        m->planes[i].cache = move(planes[i].cache, to);
        m->planes[i].rows = move(planes[i].rows, to + 1);
        m->planes[i].scale = move(planes[i].scale, to + 2);
    }
}

static bool move_call(struct moved *m, const char *name, const void *args, size_t bytes)
{
    const sy_op_info *const op = sy_op_find(name);
    if (!on_device() || args == NULL || op->mesh || bytes != op->args_bytes)
        return false;
    memset(m, 0, sizeof *m);
    memcpy(&m->args, args, bytes);
    for (int i = 0; i < op->n_fields; i++) {
        const sy_field_info *const field = sy_op_field(op, i);
        void *const at = (char *)&m->args + field->offset;
        const void *given;
        memcpy(&given, at, field->kind == SY_KIND_TENSOR || field->kind == SY_KIND_PLANES ? sizeof given : 0);
        if (field->kind == SY_KIND_TENSOR && (field->flags & SY_FIELD_AGAIN) == 0) {
            const DLTensor *const to = move(given, &m->tensor[i]);
            memcpy(at, &to, sizeof to);
        } else if (field->kind == SY_KIND_PLANES) {
            int64_t n;
            memcpy(&n, (char *)&m->args + sy_op_field(op, i + 1)->offset, sizeof n);
            move_planes(m, given, n);
            memcpy(at, m->planes != NULL ? (void *)&m->planes : (void *)&given, sizeof given);
        }
    }
    return true;
}

static sy_status end(struct moved *m, sy_status status)
{
    free(m->planes);
    free(m->of_planes);
    return status;
}

#define WRAP(op) \
    sy_status __real_sy_##op##_n(sy_ctx *ctx, const sy_##op##_args *args, size_t bytes); \
    sy_status __wrap_sy_##op##_n(sy_ctx *ctx, const sy_##op##_args *args, size_t bytes); \
    sy_status __wrap_sy_##op##_n(sy_ctx *ctx, const sy_##op##_args *args, size_t bytes) \
    { \
        struct moved m; \
        if (!move_call(&m, #op, args, bytes)) \
            return __real_sy_##op##_n(ctx, args, bytes); \
        return end(&m, __real_sy_##op##_n(ctx, (const sy_##op##_args *)(void *)&m.args, bytes)); \
    }
WRAP(kv_gather)
WRAP(kv_translate)
WRAP(kv_slots)
WRAP(kv_scatter)
WRAP(kv_ragged)
WRAP(kv_blocks)

sy_status __real_sy_call(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t bytes);
sy_status __wrap_sy_call(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t bytes);
sy_status __wrap_sy_call(sy_ctx *ctx, const sy_op_info *op, const void *args, size_t bytes)
{
    struct moved m;
    if (op == NULL || !move_call(&m, op->name, args, bytes))
        return __real_sy_call(ctx, op, args, bytes);
    return end(&m, __real_sy_call(ctx, op, &m.args, bytes));
}
