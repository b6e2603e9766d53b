/*
 * Experts on several devices: tokens are sent to the experts they chose, are processed there, and return as one
 * weighted sum. The same program runs on a mesh of four devices inside one process, and, compiled with WITH_MPI,
 * with one process per device:
 *
 *     cc expert_parallel.c $(pkg-config --cflags --libs switchyard) && ./a.out
 *     mpicc -DWITH_MPI expert_parallel.c $(pkg-config --cflags --libs switchyard_mpi) && mpirun -n 4 ./a.out
 *
 * Only the creation of the comm differs. A process fills in the tensors of its devices, all of them or one:
 * sy_comm_shards devices from sy_comm_first_device on.
 */
#include <stdio.h>
#include <stdlib.h>
#ifdef WITH_MPI
#include <switchyard_mpi.h>
#else
#include <switchyard.h>
#endif

enum { TOKENS = 6, SLOTS = 2, HIDDEN = 4, LOCAL_EXPERTS = 2, MOST_DEVICES = 64 };

/* The data of one device. */
struct device {
    float tokens[TOKENS][HIDDEN];
    int32_t chosen[TOKENS][SLOTS]; /* experts of each token */
    float weights[TOKENS][SLOTS];
    int64_t counts[LOCAL_EXPERTS], offsets[LOCAL_EXPERTS + 1]; /* rows of its own experts */
    float (*rows)[HIDDEN];
    float result[TOKENS][HIDDEN]; /* the result */
};

/* The same as tensors: the library takes an array for each field, one entry per device. */
struct tensors {
    DLTensor tokens[MOST_DEVICES], chosen[MOST_DEVICES], weights[MOST_DEVICES], counts[MOST_DEVICES],
        offsets[MOST_DEVICES], rows[MOST_DEVICES], result[MOST_DEVICES];
};

struct program {
    sy_ctx *ctx;
    sy_comm *comm;
    sy_routing *routing;
    int n_devices, first, n_here; /* of the mesh; the first of this process and how many it has */
    struct device *devices;
    struct tensors tensors;
    uint16_t
        mapping[MOST_DEVICES * LOCAL_EXPERTS * MOST_DEVICES]; /* [E,D]: which device hosts which expert */
};

/* ---- The mesh ---- */

static sy_status make_comm(struct program *p, char *error, size_t error_bytes)
{
    const sy_comm_options options = {.error = error, .error_bytes = error_bytes};
#ifdef WITH_MPI
    MPI_Comm_size(MPI_COMM_WORLD, &p->n_devices);
    const sy_mpi_options mpi = {.comm = options};
    return sy_comm_create_mpi(&p->comm, MPI_COMM_WORLD, (sy_mesh){1, p->n_devices}, &mpi);
#else
    p->n_devices = 4;
    return sy_comm_create_local(&p->comm, (sy_mesh){1, p->n_devices}, &options);
#endif
}

/* ---- Data ---- */

/* Small whole numbers and quarters: every sum below is exact, so the check can require equality. */
static void fill_device(struct device *device, int d, int n_experts)
{
    for (int n = 0; n < TOKENS; n++) {
        for (int h = 0; h < HIDDEN; h++)
            device->tokens[n][h] = (float)(100 * d + 10 * n + h);
        device->chosen[n][0] = (3 * d + 5 * n) % n_experts;
        device->chosen[n][1] = (device->chosen[n][0] + 1 + n % 3) % n_experts;
        device->weights[n][0] = 0.75f;
        device->weights[n][1] = 0.25f;
    }
}

/* The function of expert e. */
static float expert(int e, float x)
{
    return (float)(e + 1) * x + (float)e;
}

static void make_data(struct program *p)
{
    static int64_t tokens[] = {TOKENS, HIDDEN}, slots[] = {TOKENS, SLOTS}, counts[] = {LOCAL_EXPERTS},
                   offsets[] = {LOCAL_EXPERTS + 1};
    struct tensors *const t = &p->tensors;
    for (int i = 0; i < p->n_here; i++) {
        struct device *const device = &p->devices[i];
        fill_device(device, p->first + i, p->n_devices * LOCAL_EXPERTS);
        t->tokens[i] = sy_tensor(device->tokens, SY_F32, 2, tokens);
        t->chosen[i] = sy_tensor(device->chosen, SY_I32, 2, slots);
        t->weights[i] = sy_tensor(device->weights, SY_F32, 2, slots);
        t->counts[i] = sy_tensor(device->counts, SY_I64, 1, counts);
        t->offsets[i] = sy_tensor(device->offsets, SY_I64, 1, offsets);
        t->result[i] = sy_tensor(device->result, SY_F32, 2, tokens);
    }
}

/* The rows of experts are in memory of the comm: other processes of this machine read them in place. */
static sy_status make_rows(struct program *p, int64_t n_rows)
{
    static int64_t shape[2] = {0, HIDDEN};
    void *memory = NULL;
    const size_t bytes = (size_t)n_rows * sizeof *p->devices->rows;
    const sy_status status = sy_comm_alloc(p->ctx, p->comm, bytes * (size_t)p->n_here, &memory);
    shape[0] = n_rows;
    for (int i = 0; i < p->n_here && status == SY_OK; i++) {
        p->devices[i].rows = (float(*)[HIDDEN])memory + i * n_rows;
        p->tensors.rows[i] = sy_tensor(p->devices[i].rows, SY_F32, 2, shape);
    }
    return status;
}

/* ---- The layer ---- */

/* Sends every token to the devices of its experts; rows of one expert are contiguous there. */
static sy_status there(struct program *p)
{
    /* Device d hosts experts 2d and 2d+1; the table is the same in all processes. */
    const int n_experts = p->n_devices * LOCAL_EXPERTS;
    for (int e = 0; e < n_experts; e++)
        p->mapping[e * p->n_devices + e / LOCAL_EXPERTS] = 1;
    const DLTensor mapping = sy_tensor(p->mapping, SY_U16, 2, (int64_t[]){n_experts, p->n_devices});
    const struct tensors *const t = &p->tensors;
    const sy_all_to_all_dispatch_args args = {.input = t->tokens,
                                              .expert_indices = t->chosen,
                                              .expert_mapping = &mapping,
                                              .layout = SY_LAYOUT_EXPERT,
                                              .routing = p->routing,
                                              .tokens = t->rows,
                                              .expert_counts = t->counts,
                                              .expert_offsets = t->offsets};

    /* The largest number of rows of a device follows from the shapes: it is enough for any choice of the router. */
    sy_query need;
    sy_status status = sy_all_to_all_dispatch_query(p->ctx, p->comm, &args, &need);
    if (status == SY_OK)
        status = make_rows(p, need.rows);
    return status == SY_OK ? sy_all_to_all_dispatch(p->ctx, p->comm, &args) : status;
}

/* Every device processes the rows of its experts. In a model this is a grouped matrix product. */
static void work(struct program *p)
{
    for (int i = 0; i < p->n_here; i++) {
        struct device *const device = &p->devices[i];
        for (int l = 0; l < LOCAL_EXPERTS; l++)
            for (int64_t row = device->offsets[l]; row < device->offsets[l] + device->counts[l]; row++)
                for (int h = 0; h < HIDDEN; h++)
                    device->rows[row][h] = expert((p->first + i) * LOCAL_EXPERTS + l, device->rows[row][h]);
    }
}

/* Returns the rows, weighted and added up. The routing holds the choices, the mapping and the order of rows. */
static sy_status back(struct program *p)
{
    const struct tensors *const t = &p->tensors;
    const sy_all_to_all_combine_args args = {
        .input = t->rows, .weights = t->weights, .sum = true, .routing = p->routing, .output = t->result};
    return sy_all_to_all_combine(p->ctx, p->comm, &args);
}

static sy_status layer(struct program *p)
{
    make_data(p);
    sy_status status = sy_routing_create(p->ctx, p->comm, &p->routing);
    if (status == SY_OK)
        status = there(p);
    if (status == SY_OK) {
        work(p);
        status = back(p);
    }
    return status;
}

/* Every token again, without exchange. */
static int wrong_values(const struct program *p)
{
    int wrong = 0;
    for (int i = 0; i < p->n_here; i++) {
        const struct device *const device = &p->devices[i];
        for (int n = 0; n < TOKENS; n++)
            for (int h = 0; h < HIDDEN; h++) {
                float want = 0;
                for (int k = 0; k < SLOTS; k++)
                    want += device->weights[n][k] * expert(device->chosen[n][k], device->tokens[n][h]);
                wrong += device->result[n][h] != want;
            }
    }
    return wrong;
}

static int run(struct program *p)
{
    char error[256] = "";
    if (sy_ctx_create(&p->ctx, NULL) != SY_OK)
        return 1;
    if (make_comm(p, error, sizeof error) != SY_OK) {
        fprintf(stderr, "%s\n", error);
        return 1;
    }
    p->first = sy_comm_first_device(p->comm);
    p->n_here = sy_comm_shards(p->comm);
    p->devices = calloc((size_t)p->n_here, sizeof *p->devices);
    if (p->n_devices > MOST_DEVICES || !p->devices)
        return 1;
    const sy_status status = layer(p);
    if (status != SY_OK) { /* the same status and sentence in every process */
        fprintf(stderr, "%s\n", sy_ctx_error(p->ctx));
        return 1;
    }
    const int wrong = wrong_values(p);
    for (int i = 0; i < p->n_here; i++)
        printf("device %d of %d (%s): its experts worked on %lld and %lld rows; token 0 returns as %g\n",
               p->first + i, p->n_devices, sy_comm_transport_name(p->comm),
               (long long)p->devices[i].counts[0], (long long)p->devices[i].counts[1],
               (double)p->devices[i].result[0][0]);
    if (wrong > 0)
        printf("%d values are WRONG\n", wrong);
    return wrong > 0;
}

int main(int argc, char **argv)
{
    static struct program program;
#ifdef WITH_MPI
    MPI_Init(&argc, &argv);
#else
    (void)argc;
    (void)argv;
#endif
    const int code = run(&program);
    sy_routing_destroy(program.routing);
    sy_comm_destroy(program.comm); /* frees the memory of sy_comm_alloc */
    sy_ctx_destroy(program.ctx);
    free(program.devices);
#ifdef WITH_MPI
    MPI_Finalize();
#endif
    return code;
}
