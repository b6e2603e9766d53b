/*
 * See device.h.
 */
#include "device.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The name that libswitchyard loads, too. */
#define TEXT_OF(x) #x
#define NAME_OF(abi) "libswitchyard_cuda.so." TEXT_OF(abi)

static const char *file_of(const struct common *common)
{
    return common->device_library ? common->device_library : NAME_OF(SY_VERSION_ABI);
}

static const struct sy_cuda_tools *loaded(const struct common *common)
{
    void *const handle = dlopen(file_of(common), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    const struct sy_cuda_tools *(*entry)(void) = NULL;
    if (handle)
        *(void **)&entry = dlsym(handle, "sy_cuda_tools_entry");
    const struct sy_cuda_tools *const tools = entry ? entry() : NULL;
    return tools && tools->size == sizeof *tools ? tools : NULL;
}

const struct sy_cuda_tools *device_tools(const struct common *common)
{
    const struct sy_cuda_tools *const tools = loaded(common);
    if (!tools)
        plain_error("%s is not of the build of this command: it has no matching sy_cuda_tools_entry",
                    file_of(common));
    return tools;
}

/* A library stays loaded when its context finds no device. */
const struct sy_cuda_tools *device_library(const struct common *common)
{
    sy_device_info info;
    char sentence[256];
    device_describe(common, 0, &info, sentence, sizeof sentence);
    return loaded(common);
}

/* ---- Tensors of a call ---- */

enum { PARTS = 4 }; /* tensors of a plane */

/* Tensors of a field that are on the device for a while. */
struct device_twin {
    const DLTensor **place, *here; /* [n] */
    DLTensor *there;
    int n;
    bool changes;
};

/* Moves the n tensors of one place; those that are not given, or already there, stay. */
static sy_status send(sy_ctx *ctx, DLDevice device, const DLTensor **place, int n, bool changes,
                      struct device_tensors *tensors)
{
    if (!*place || (*place)->device.device_type == kDLCUDA)
        return SY_OK;
    DLTensor *const there = calloc((size_t)n, sizeof *there);
    if (!there)
        return SY_ERR_NOMEM;
    const DLTensor *const here = *place;
    sy_status status = SY_OK;
    tensors->twins[tensors->n++] = (struct device_twin){place, here, there, n, changes};
    *place = there;
    for (int i = 0; i < n && status == SY_OK; i++) {
        there[i] = here[i];
        there[i].data = NULL;
        there[i].device = device;
        status = sy_device_alloc(ctx, st_bytes(&here[i]), &there[i].data);
        if (status == SY_OK)
            status = sy_device_copy(ctx, there[i].data, here[i].data, st_bytes(&here[i]));
    }
    return status;
}

/* The further planes of a call. */
static sy_kv_plane *planes_of(const sy_op_info *op, void *args, int64_t *n)
{
    sy_kv_plane *planes = NULL;
    for (int i = op->n_tensors; i + 1 < op->n_fields; i++)
        if (sy_op_field(op, i)->kind == SY_KIND_PLANES) {
            memcpy(&planes, (char *)args + sy_op_field(op, i)->offset, sizeof planes);
            memcpy(n, (char *)args + sy_op_field(op, i + 1)->offset, sizeof *n);
        }
    return planes;
}

sy_status device_send(sy_ctx *ctx, DLDevice device, const sy_op_info *op, void *args, int devices,
                      struct device_tensors *tensors)
{
    int64_t n = 0;
    sy_kv_plane *const planes = planes_of(op, args, &n);
    const bool reads = planes && !op_changes(op, sy_op_field(op, 0)->offset); /* the cache, which is first */
    sy_status status = SY_OK;
    *tensors = (struct device_tensors){
        .twins = calloc((size_t)op->n_tensors + PARTS * (size_t)(planes ? n : 0), sizeof *tensors->twins)};
    if (!tensors->twins)
        return SY_ERR_NOMEM;
    for (int i = 0; i < op->n_tensors && status == SY_OK; i++) {
        const size_t offset = sy_op_field(op, i)->offset;
        if (!(sy_op_field(op, i)->flags & SY_FIELD_SHARED))
            status = send(ctx, device, (const DLTensor **)(void *)((char *)args + offset), devices,
                          op_changes(op, offset), tensors);
    }
    for (int64_t i = 0; i < n && planes && status == SY_OK; i++) {
        const DLTensor **const parts[PARTS] = {&planes[i].cache, &planes[i].rows, &planes[i].scale,
                                               &planes[i].global_scale};
        const bool changed[PARTS] = {!reads, reads, !reads, false};
        for (int k = 0; k < PARTS && status == SY_OK; k++)
            status = send(ctx, device, parts[k], 1, changed[k], tensors);
    }
    return status;
}

sy_status device_return(sy_ctx *ctx, struct device_tensors *tensors, sy_status status)
{
    for (int i = 0; i < tensors->n; i++) {
        const struct device_twin *const t = &tensors->twins[i];
        for (int d = 0; d < t->n; d++) {
            if (status == SY_OK && t->changes)
                status = sy_device_copy(ctx, t->here[d].data, t->there[d].data, st_bytes(&t->here[d]));
            sy_device_free(ctx, t->there[d].data);
        }
        *t->place = t->here;
        free(t->there);
    }
    free(tensors->twins);
    return status;
}

bool device_has(const struct sy_cuda_tools *tools, const char *operator_name)
{
    for (const char *const *name = tools->operators; *name; name++)
        if (strcmp(*name, operator_name) == 0)
            return true;
    return false;
}

/* ---- What there is ---- */

bool device_describe(const struct common *common, int number, sy_device_info *info, char *sentence,
                     size_t bytes)
{
    struct common one = *common;
    one.device = (DLDevice){kDLCUDA, number};
    sy_ctx *const ctx = try_context(&one, sentence, bytes);
    const bool done = ctx && sy_ctx_device_info(ctx, info) == SY_OK;
    if (ctx && !done)
        snprintf(sentence, bytes, "%s", sy_ctx_error(ctx));
    sy_ctx_destroy(ctx);
    return done;
}

void device_print(const sy_device_info *info)
{
    printf("%s, compute capability %d.%d, %d multiprocessors, %.4g GiB", info->name, info->major, info->minor,
           info->processors, (double)info->memory_bytes / 0x1p30);
}

void device_emit(struct emit *json, const char *key, int number, const sy_device_info *info)
{
    char id[32];
    snprintf(id, sizeof id, "cuda:%d", number);
    emit_begin(json, key, '{');
    emit_string(json, "id", id);
    emit_string(json, "name", info->name);
    emit_integer(json, "major", info->major);
    emit_integer(json, "minor", info->minor);
    emit_integer(json, "multiprocessors", info->processors);
    emit_integer(json, "memory_bytes", (int64_t)info->memory_bytes);
    emit_end(json, '}');
}
