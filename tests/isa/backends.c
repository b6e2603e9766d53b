/*
 * Which backend runs a call: with the CPU's and one for two devices of another kind, by the devices of the tensors.
 */
#include "ops/call.h"
#include "cpu/backend.h"
#include "support.h"

static bool accepts_one_device(const sy_ctx *ctx, DLDevice device, DLDevice first)
{
    (void)ctx;
    return device.device_type == kDLCUDA && first.device_type == kDLCUDA &&
           device.device_id == first.device_id;
}

static const struct syi_backend other = {.name = "other", .accepts = accepts_one_device};
static const struct syi_backend *const both[] = {&syi_cpu_backend, &other};

enum { CPU, PINNED, GPU, GPU1, UNKNOWN };
static const DLDevice devices[] = {
    {kDLCPU, 0}, {kDLCUDAHost, 1}, {kDLCUDA, 0}, {kDLCUDA, 1}, {(DLDeviceType)77, 0}};

struct row {
    const char *name;
    int tokens, map, probs; /* their devices */
    int n;                  /* backends */
    const struct syi_backend *chosen;
    const char *sentence; /* or why none is */
    bool mesh;
};

static const struct row rows[] = {
    {"ordinary memory", CPU, CPU, CPU, 2, &syi_cpu_backend, NULL, false},
    {"ordinary and pinned memory", CPU, PINNED, CPU, 2, &syi_cpu_backend, NULL, false},
    {"pinned memory first", PINNED, CPU, PINNED, 1, &syi_cpu_backend, NULL, false},
    {"one device", GPU, GPU, GPU, 2, &other, NULL, false},
    {"another device", GPU1, GPU1, GPU1, 2, &other, NULL, false},
    {"one tensor on a device", CPU, CPU, GPU, 2, NULL,
     "moe_permute: probs is on device 0 of type 2, want device 0 of type 1 like tokens", false},
    {"one tensor on another device", GPU, GPU1, GPU, 2, NULL,
     "moe_permute: routing_map is on device 1 of type 2, want device 0 of type 2 like tokens", false},
    {"pinned memory beside a device", GPU, PINNED, GPU, 2, NULL,
     "moe_permute: routing_map is on device 1 of type 3, want device 0 of type 2 like tokens", false},
    {"a device without a backend", CPU, GPU, GPU, 1, NULL,
     "moe_permute: routing_map is on device type 2, want CPU memory (type 1): the context has no such "
     "device",
     false},
    {"a device of an unknown kind", UNKNOWN, CPU, CPU, 2, NULL,
     "moe_permute: tokens is on device type 77, want CPU memory (type 1): the context has no such "
     "device",
     false},
    /* The other backend has no functions for the exchange between devices. */
    {"ordinary memory for a mesh", CPU, PINNED, CPU, 2, &syi_cpu_backend, NULL, true},
    {"a device without an exchange", GPU, GPU, GPU, 2, NULL,
     "all_to_all_dispatch: input is on device type 2, want CPU memory (type 1): the context has no such "
     "device",
     true},
};

static void choose(void **state)
{
    const struct row *row = *state;
    sy_ctx *ctx = test_ctx(1, NULL);
    const int of[] = {row->tokens, row->map, row->probs};
    DLTensor tensors[COUNT_OF(of)] = {{0}};
    struct syi_call call = {.ctx = ctx, .op = row->mesh ? &syi_op_all_to_all_dispatch : &syi_op_moe_permute};
    syi_clear_fault(ctx, call.op->info.name);
    for (size_t i = 0; i < COUNT_OF(tensors); i++) {
        tensors[i].device = devices[of[i]];
        call.tensor[i] = &tensors[i];
    }
    expect_status(ctx, syi_choose_backend(&call, both, row->n),
                  row->sentence != NULL ? SY_ERR_DEVICE : SY_OK);
    if (row->sentence != NULL)
        assert_string_equal(sy_ctx_error(ctx), row->sentence);
    else
        assert_ptr_equal(call.backend, row->chosen);
    sy_ctx_destroy(ctx);
}

TEST_GROUP(backends)
{
    struct test_list list = {NULL, 0, 0};
    for (size_t i = 0; i < COUNT_OF(rows); i++)
        test_add(&list, rows[i].name, choose, (void *)&rows[i]);
    return test_run(&list, "backends");
}
