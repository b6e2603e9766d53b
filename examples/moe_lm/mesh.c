/*
 * Experts on several devices. Device d of D hosts experts [E*d/D, E*(d+1)/D) of every layer. The tokens of a step are sent to
 * the devices of their experts with all_to_all_dispatch, where rows of one expert are neighbours; all_to_all_combine returns
 * them, weighted and added up in the order of experts, as moe_unpermute does: the same bits as on one device.
 *
 * In one process the devices share the tokens of a step evenly and take turns, which shows how an exchange works rather than saves
 * time. With MPI a process is one device, and the tokens of a step are
 * those of its own requests; a process without requests still takes part, because others need its experts.
 */
#include "lm.h"

#ifdef WITH_MPI
#include <switchyard_mpi.h>
#endif

enum { MOST_DEVICES = 64 };

struct mesh {
    sy_comm *comm;
    sy_routing *routing;             /* what the combine needs of the dispatch before it */
    int devices, first_device, here; /* all; the first one of this process and how many it has */
    int64_t most_tokens, most_rows;  /* of a device */
    float *rows;     /* [here, most_rows, hidden] in memory that other processes read in place */
    uint16_t *hosts; /* [experts, devices] 1: the device hosts the expert */
};

struct mesh *mesh_open(const char *shape)
{
    long rows = 1, cols = processes;
    if (shape == NULL && processes == 1)
        return NULL;
    if (shape != NULL) {
        char *end;
        rows = strtol(shape, &end, 10);
        cols = *end == 'x' ? strtol(end + 1, &end, 10) : 0;
        require(rows > 0 && cols > 0 && *end == 0 && rows <= MOST_DEVICES / cols,
                "--mesh is %s, want rows and columns of at most %d devices, as in 1x4", shape, MOST_DEVICES);
    }
    struct mesh *const mesh = NEW(struct mesh, 1);
    char sentence[256];
    const sy_mesh devices = {(int)rows, (int)cols};
    const sy_comm_options options = {.error = sentence, .error_bytes = sizeof sentence};
#ifdef WITH_MPI
    const sy_mpi_options mpi = {.comm = options};
    const sy_status status = sy_comm_create_mpi(&mesh->comm, MPI_COMM_WORLD, devices, &mpi);
#else
    const sy_status status = sy_comm_create_local(&mesh->comm, devices, &options);
#endif
    require(status == SY_OK, "--mesh: %s", sentence);
    mesh->devices = devices.rows * devices.cols;
    mesh->first_device = sy_comm_first_device(mesh->comm);
    mesh->here = sy_comm_shards(mesh->comm);
    return mesh;
}

/* Device d hosts experts [first_expert(d), first_expert(d + 1)). */
static int64_t first_expert(const struct model *m, int64_t device)
{
    return m->experts * device / m->mesh->devices;
}

bool mesh_hosts(const struct model *m, int64_t expert)
{
    const struct mesh *const mesh = m->mesh;
    return mesh == NULL || (expert >= first_expert(m, mesh->first_device) &&
                            expert < first_expert(m, mesh->first_device + mesh->here));
}

void mesh_prepare(struct model *m, int64_t most_tokens)
{
    struct mesh *const mesh = m->mesh;
    if (mesh == NULL)
        return;
    const int64_t most_experts = (m->experts + mesh->devices - 1) / mesh->devices;
    mesh->most_tokens = most_tokens;
    mesh->most_rows = mesh->devices * most_tokens * smaller(most_experts, m->top_k);
    mesh->hosts = NEW(uint16_t, m->experts * mesh->devices);
    for (int d = 0; d < mesh->devices; d++)
        for (int64_t e = first_expert(m, d); e < first_expert(m, d + 1); e++)
            mesh->hosts[e * mesh->devices + d] = 1;
    void *memory = NULL;
    const size_t bytes = (size_t)(mesh->here * mesh->most_rows * m->hidden) * sizeof(float);
    MUST(m, sy_routing_create(m->ctx, mesh->comm, &mesh->routing));
    MUST(m, sy_comm_alloc(m->ctx, mesh->comm, bytes, &memory));
    mesh->rows = memory;
}

void mesh_close(struct mesh *mesh)
{
    if (mesh == NULL)
        return;
    sy_routing_destroy(mesh->routing);
    sy_comm_destroy(mesh->comm);
}

/* The tensors of one field, one for each device of this process. */
struct field {
    DLTensor tensor[MOST_DEVICES];
    int64_t shape[MOST_DEVICES][2];
};

/* cols 0: a vector. */
static void put(struct field *f, int device, const void *data, DLDataType type, int64_t rows, int64_t cols)
{
    f->shape[device][0] = rows;
    f->shape[device][1] = cols;
    f->tensor[device] = sy_tensor(data, type, cols > 0 ? 2 : 1, f->shape[device]);
}

/* Sends rows of x to the experts of `ids`, runs those that are here, and adds up what comes back, times `weights`. */
void mesh_experts(struct model *m, const struct layer *l, int64_t n, const int32_t *ids, const float *weights,
                  float *out, const float *x)
{
    struct mesh *const mesh = m->mesh;
    struct field input, choices, scales, rows, offsets, output;
    const int64_t hidden = m->hidden, k = m->top_k, most = mesh->most_rows, width = m->experts + 1;
    /* Of each device: where rows of its experts begin. */
    int64_t *const begins = NEW(int64_t, mesh->here * width);
    for (int i = 0; i < mesh->here; i++) {
        const int64_t at = n * i / mesh->here, tokens = n * (i + 1) / mesh->here - at;
        const int64_t device = mesh->first_device + i,
                      hosted = first_expert(m, device + 1) - first_expert(m, device);
        put(&input, i, x + at * hidden, SY_F32, tokens, hidden);
        put(&choices, i, ids + at * k, SY_I32, tokens, k);
        put(&scales, i, weights + at * k, SY_F32, tokens, k);
        put(&rows, i, mesh->rows + i * most * hidden, SY_F32, most, hidden);
        put(&offsets, i, begins + i * width, SY_I64, hosted + 1, 0);
        put(&output, i, out + at * hidden, SY_F32, tokens, hidden);
    }
    const DLTensor *const hosts = MAT(mesh->hosts, SY_U16, m->experts, mesh->devices);
    const sy_all_to_all_dispatch_args there = {.input = input.tensor,
                                               .expert_indices = choices.tensor,
                                               .expert_mapping = hosts,
                                               .layout = SY_LAYOUT_EXPERT,
                                               .max_tokens = mesh->most_tokens,
                                               .routing = mesh->routing,
                                               .tokens = rows.tensor,
                                               .expert_offsets = offsets.tensor};
    MUST(m, sy_all_to_all_dispatch(m->ctx, mesh->comm, &there));
    for (int i = 0; i < mesh->here; i++) {
        float *const in_place = mesh->rows + i * most * hidden;
        run_experts(l, first_expert(m, mesh->first_device + i), offsets.shape[i][0] - 1, begins + i * width,
                    in_place, in_place);
    }
    const sy_all_to_all_combine_args back = {.input = rows.tensor,
                                             .weights = scales.tensor,
                                             .sum = true,
                                             .routing = mesh->routing,
                                             .output = output.tensor};
    MUST(m, sy_all_to_all_combine(m->ctx, mesh->comm, &back));
    free(begins);
}
