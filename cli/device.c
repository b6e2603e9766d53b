/*
 * See device.h.
 */
#include "device.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The name that libswitchyard loads, too. */
#define TEXT_OF(x) #x
#define NAME_OF(major, minor) "libswitchyard_cuda.so." TEXT_OF(major) "." TEXT_OF(minor)

const struct syc_tools *device_tools(const struct common *common)
{
    const char *const file =
        common->device_library ? common->device_library : NAME_OF(SY_VERSION_MAJOR, SY_VERSION_MINOR);
    void *const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    const struct syc_tools *(*entry)(void) = NULL;
    if (handle)
        *(void **)&entry = dlsym(handle, "syi_cuda_tools");
    const struct syc_tools *const tools = entry ? entry() : NULL;
    if (tools && tools->size == sizeof *tools)
        return tools;
    plain_error("%s is not of the build of this command: it has no matching syi_cuda_tools", file);
    return NULL;
}

/* ---- A call -------------------------------------------------------------------------------------------- */

/* A tensor of the call that is on the device for a while. */
struct twin {
    const DLTensor **place, *here;
    DLTensor there;
    size_t bytes;
    bool changes;
};

/* Moves the tensor of one place; one that is not given, or already there, stays. */
static sy_status send(sy_ctx *ctx, DLDevice device, const DLTensor **place, bool changes, struct twin *twin)
{
    void *data = NULL;
    if (!*place || (*place)->device.device_type == kDLCUDA)
        return SY_OK;
    *twin = (struct twin){.here = *place, .there = **place, .changes = changes};
    st_shape_bytes(twin->here->shape, twin->here->ndim, twin->here->dtype, &twin->bytes);
    sy_status status = sy_device_alloc(ctx, twin->bytes, &data);
    if (status == SY_OK)
        status = sy_device_copy(ctx, data, twin->here->data, twin->bytes);
    twin->there.data = data;
    twin->there.device = device;
    twin->place = place;
    *place = &twin->there;
    return status;
}

sy_status device_call(sy_ctx *ctx, DLDevice device, const struct op *op, struct op_call *call)
{
    const int planes = 1 + (int)call->n_planes, n = op->info->n_tensors * planes;
    struct twin *const twins = calloc((size_t)n, sizeof *twins);
    sy_status status = twins ? SY_OK : SY_ERR_NOMEM;
    for (int i = 0; i < n && status == SY_OK; i++) {
        const sy_field_info *const tensor = op_tensor(op, i / planes);
        status =
            send(ctx, device, op_pointer(op, call, tensor, i % planes), op_changes(op, tensor), &twins[i]);
    }
    if (status == SY_OK)
        status = sy_call(ctx, op->info, call->args.bytes, op->info->args_bytes);
    for (int i = 0; i < n && twins; i++) {
        const struct twin *const t = &twins[i];
        if (!t->place)
            continue;
        if (status == SY_OK && t->changes)
            status = sy_device_copy(ctx, t->here->data, t->there.data, t->bytes);
        sy_device_free(ctx, t->there.data);
        *t->place = t->here;
    }
    free(twins);
    return status;
}

bool device_has(const struct syc_tools *tools, const char *operator_name)
{
    for (const char *const *name = tools->operators; *name; name++)
        if (strcmp(*name, operator_name) == 0)
            return true;
    return false;
}

/* ---- What there is ------------------------------------------------------------------------------------- */

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
