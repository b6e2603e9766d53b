/*
 * Which backend runs a call: where its tensors are decides.
 */
#include "ops/call.h"
#include "cpu/backend.h"

const struct syi_backend *const syi_host_backend = &syi_cpu_backend;

struct choice {
    const struct syi_backend *const *backends;
    int n;
    const DLTensor *first; /* of the call, and its name */
    const char *name;
};

/* The backend for a device alone; NULL: none. */
static const struct syi_backend *backend_of(const sy_ctx *ctx, const struct choice *choice, bool mesh,
                                            DLDevice device)
{
    for (int i = 0; i < choice->n; i++)
        if (choice->backends[i]->accepts(ctx, device, device) &&
            (!mesh || choice->backends[i]->memory != NULL))
            return choice->backends[i];
    return NULL;
}

bool syi_is_held(const struct syi_call *call, int i)
{
    const DLTensor *t = call->tensor[i];
    return t != NULL && (call->op->info.fields[i].flags & SY_FIELD_PER_ROW) != 0 && t->ndim == 1 &&
           t->shape[0] == 1 && call->backend != syi_host_backend &&
           syi_host_backend->accepts(call->ctx, t->device, t->device);
}

bool syi_in_cpu_memory(const struct syi_call *call, int i)
{
    const DLTensor *t = call->tensor[i];
    return t != NULL && syi_host_backend->accepts(call->ctx, t->device, t->device);
}

/* What all devices of a mesh share may be in CPU memory: the host reads it. */
static bool is_shared_here(const struct syi_call *call, int i)
{
    return (call->op->info.fields[i].flags & SY_FIELD_SHARED) != 0 && syi_in_cpu_memory(call, i);
}

static sy_status choose(struct syi_call *call, void *data)
{
    struct choice *choice = data;
    for (int i = 0; i < call->op->info.n_tensors; i++) {
        const DLTensor *t = syi_tensor_of_plane(call, i);
        if (t == NULL || syi_is_held(call, i) || is_shared_here(call, i))
            continue;
        const struct syi_backend *of_tensor = backend_of(call->ctx, choice, call->op->info.mesh, t->device);
        if (of_tensor == NULL)
            return syi_fail(call->ctx, SY_ERR_DEVICE, call->op->info.fields[i].name,
                            "is on device type %d, want CPU memory (type 1): the context has no such device",
                            (int)t->device.device_type);
        if (choice->first == NULL) {
            choice->first = t;
            choice->name = call->op->info.fields[i].name;
            call->backend = of_tensor;
        }
        const DLDevice first = choice->first->device;
        if (!call->backend->accepts(call->ctx, t->device, first))
            return syi_fail(call->ctx, SY_ERR_DEVICE, call->op->info.fields[i].name,
                            "is on device %d of type %d, want device %d of type %d like %s",
                            (int)t->device.device_id, (int)t->device.device_type, (int)first.device_id,
                            (int)first.device_type, choice->name);
    }
    return SY_OK;
}

sy_status syi_choose_backend(struct syi_call *call, const struct syi_backend *const *backends, int n)
{
    struct choice choice = {backends, n, NULL, NULL};
    return syi_for_every_plane(call, choose, &choice);
}

sy_status syi_check_devices(struct syi_call *call)
{
    const struct syi_backend *const device = syi_device_backend(call->ctx);
    const struct syi_backend *const all[] = {&syi_cpu_backend, device};
    const sy_status st = syi_choose_backend(call, all, device != NULL ? 2 : 1);
    if (st != SY_OK || call->op->info.mesh || call->backend->op[call->op->info.number].run != NULL)
        return st;
    int first = 0;
    while (call->tensor[first] == NULL)
        first++; /* there is one, or the usual backend would have been chosen */
    return syi_fail(call->ctx, SY_ERR_UNSUPPORTED, call->op->info.fields[first].name,
                    "is on %s, where this operator is not available", call->backend->name);
}
