/*
 * Experts on several devices. Device d of D hosts experts [E*d/D, E*(d+1)/D) of every layer. The tokens of a step are sent to
 * the devices of their experts with all_to_all_dispatch, where rows of one expert are neighbours; all_to_all_combine returns
 * them, weighted and added up in the order of experts, as moe_unpermute does: the same bits as on one device.
 *
 * In one process the devices share the tokens of a step evenly. With MPI a process is one device, and the tokens of a step are
 * those of its own requests; a process without requests still takes part, because others need its experts.
 */
#include "lm.h"

#ifdef WITH_MPI
#include <switchyard_mpi.h>
#define IF_MPI(call) call
#else
#define IF_MPI(call) (void)0
#endif

enum { MOST_DEVICES = 64 };

struct mesh {
    sy_comm *comm;
    sy_routing *routing;
    int devices, first, here;       /* all; the first one of this process and how many it has */
    int64_t most_tokens, most_rows; /* of a device */
    float *rows;     /* [here, most_rows, hidden] in memory that other processes read in place */
    uint16_t *hosts; /* [experts, devices] 1: the device hosts the expert */
};

/* ---- Processes ------------------------------------------------------------------------------------------- */

int process, processes = 1;

void mesh_start(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    IF_MPI(MPI_Init(argc, argv));
    IF_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &process));
    IF_MPI(MPI_Comm_size(MPI_COMM_WORLD, &processes));
}

bool mesh_any(bool here)
{
    int any = here;
    IF_MPI(MPI_Allreduce(MPI_IN_PLACE, &any, 1, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
    return any != 0;
}

void mesh_collect(int64_t request, void *data, int64_t n, size_t bytes)
{
    const int64_t most = 1 << 20; /* counts of MPI are of type int */
    const int from = (int)(request % processes);
    (void)from; /* used with MPI only */
    for (char *at = data; n > 0 && data != NULL && processes > 1; n -= most, at += (size_t)most * bytes)
        IF_MPI(MPI_Bcast(at, (int)smaller(n, most) * (int)bytes, MPI_BYTE, from, MPI_COMM_WORLD));
}

void mesh_abort(void)
{
    IF_MPI(MPI_Abort(MPI_COMM_WORLD, 2));
}

/* ---- Devices --------------------------------------------------------------------------------------------- */

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
    mesh->devices = (int)(rows * cols);
    mesh->first = sy_comm_first_device(mesh->comm);
    mesh->here = sy_comm_shards(mesh->comm);
    return mesh;
}

/* Device d hosts experts [first_expert(d), first_expert(d + 1)). */
static int64_t first_expert(const struct mesh *mesh, int64_t device, int64_t experts)
{
    return experts * device / mesh->devices;
}

bool mesh_hosts(const struct mesh *mesh, int64_t expert, int64_t experts)
{
    return mesh == NULL || (expert >= first_expert(mesh, mesh->first, experts) &&
                            expert < first_expert(mesh, mesh->first + mesh->here, experts));
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
        for (int64_t e = first_expert(mesh, d, m->experts); e < first_expert(mesh, d + 1, m->experts); e++)
            mesh->hosts[e * mesh->devices + d] = 1;
    void *memory = NULL;
    const size_t bytes = (size_t)(mesh->here * mesh->most_rows * m->hidden) * sizeof(float);
    model_must(m, sy_routing_create(m->ctx, mesh->comm, &mesh->routing));
    model_must(m, sy_comm_alloc(m->ctx, mesh->comm, bytes, &memory));
    mesh->rows = memory;
}

void mesh_end(struct mesh *mesh)
{
    if (mesh != NULL) {
        sy_routing_destroy(mesh->routing);
        sy_comm_destroy(mesh->comm);
        free(mesh->hosts), free(mesh);
    }
    IF_MPI(MPI_Finalize());
}

/* The tensors of one field, one for each device of this process. */
struct field {
    DLTensor tensor[MOST_DEVICES];
    int64_t shape[MOST_DEVICES][2];
};

static void put(struct field *f, int device, const void *data, DLDataType type, int64_t rows, int64_t cols)
{
    f->shape[device][0] = rows;
    f->shape[device][1] = cols;
    f->tensor[device] = sy_tensor(data, type, cols > 0 ? 2 : 1, f->shape[device]);
}

void mesh_experts(struct model *m, const struct layer *l, const struct batch *b, const int32_t *ids,
                  const float *weights, float *out, const float *x)
{
    struct mesh *const mesh = m->mesh;
    struct field input, choices, scales, rows, offsets, output;
    const int64_t hidden = m->hidden, most = mesh->most_rows, width = m->experts + 1;
    int64_t *const first =
        NEW(int64_t, mesh->here * width); /* of each device: where its experts' rows begin */
    for (int i = 0; i < mesh->here; i++) {
        const int device = mesh->first + i;
        const int64_t at = b->n * i / mesh->here, n = b->n * (i + 1) / mesh->here - at;
        const int64_t hosted =
            first_expert(mesh, device + 1, m->experts) - first_expert(mesh, device, m->experts);
        put(&input, i, x + at * hidden, SY_F32, n, hidden);
        put(&choices, i, ids + at * m->top_k, SY_I32, n, m->top_k);
        put(&scales, i, weights + at * m->top_k, SY_F32, n, m->top_k);
        put(&rows, i, mesh->rows + i * most * hidden, SY_F32, most, hidden);
        put(&offsets, i, first + i * width, SY_I64, hosted + 1, 0);
        put(&output, i, out + at * hidden, SY_F32, n, hidden);
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
    model_must(m, sy_all_to_all_dispatch(m->ctx, mesh->comm, &there));
    for (int i = 0; i < mesh->here; i++) {
        float *const in_place = mesh->rows + i * most * hidden;
        run_experts(l, first_expert(mesh, mesh->first + i, m->experts), offsets.shape[i][0] - 1,
                    first + i * width, in_place, in_place);
    }
    const sy_all_to_all_combine_args back = {.input = rows.tensor,
                                             .weights = scales.tensor,
                                             .sum = true,
                                             .routing = mesh->routing,
                                             .output = output.tensor};
    model_must(m, sy_all_to_all_combine(m->ctx, mesh->comm, &back));
    free(first);
}
