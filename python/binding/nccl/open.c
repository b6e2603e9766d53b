/*
 * The part of the binding that uses NCCL: it opens a mesh between processes that know each other by an id, which one of them
 * makes and Python carries to the others. Loaded when the first such mesh is made.
 */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <switchyard_nccl.h>

#include "../mesh.h"

enum { ID_WORDS = sizeof(ncclUniqueId) / sizeof(int64_t) };
enum {
    RANK,
    ROWS,
    COLS,
    MAX_INFLIGHT,
    TIMEOUT_MS,
    CHECK,
    CHUNK_BYTES,
    MAX_BLOCKS,
    ID,
    N_NUMBERS = ID + ID_WORDS
};
_Static_assert(sizeof(ncclUniqueId) == 8 * (size_t)ID_WORDS && 2 * sizeof(ncclUniqueId) < SYP_SENTENCE,
               "an id is whole words");

/* new_id(mesh) -> status; mesh_tell(mesh, "opening") is then the id, in hexadecimal */
static PyObject *new_id(PyObject *self, PyObject *capsule)
{
    (void)self;
    struct syp_mesh *mesh = PyCapsule_GetPointer(capsule, "switchyard");
    if (mesh == NULL)
        return NULL;
    ncclUniqueId id;
    const ncclResult_t made = ncclGetUniqueId(&id);
    for (size_t i = 0; made == ncclSuccess && i < sizeof id; i++)
        snprintf(mesh->sentence + 2 * i, 3, "%02x", (unsigned char)id.internal[i]);
    if (made != ncclSuccess)
        snprintf(mesh->sentence, sizeof mesh->sentence, "ncclGetUniqueId failed: %s",
                 ncclGetErrorString(made));
    return PyLong_FromLong(made == ncclSuccess ? SY_OK : SY_ERR_COMM);
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A communicator of all processes. */
static sy_status meet(ncclComm_t *nccl, const long long *number, char *sentence)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    const int64_t begin = now_ms(),
                  limit = number[TIMEOUT_MS] != 0 ? number[TIMEOUT_MS] : SY_DEFAULT_TIMEOUT_MS;
    const int processes = syp_as_int(number[ROWS] * number[COLS]);
    memcpy(&id, number + ID, sizeof id);
    config.blocking = 0;
    ncclResult_t state = ncclCommInitRankConfig(nccl, processes, id, syp_as_int(number[RANK]), &config);
    while (state == ncclInProgress ||
           (state == ncclSuccess && ncclCommGetAsyncError(*nccl, &state) != ncclSuccess)) {
        const struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
        if (limit >= 0 && now_ms() - begin > limit) {
            snprintf(sentence, SYP_SENTENCE,
                     "NcclMesh: waited %lld ms for another process, which did not arrive in time",
                     (long long)limit);
            return SY_ERR_TIMEOUT;
        }
        ncclCommGetAsyncError(*nccl, &state);
    }
    if (state != ncclSuccess)
        snprintf(sentence, SYP_SENTENCE, "NcclMesh: ncclCommInitRankConfig failed: %s: %.200s",
                 ncclGetErrorString(state), ncclGetLastError(*nccl));
    return state == ncclSuccess ? SY_OK : SY_ERR_COMM;
}

/* open(mesh, rank, rows, cols, max_inflight, timeout_ms, check, chunk_bytes, max_blocks, the words of an id) -> status;
   collective, on the current device */
static PyObject *open_mesh(PyObject *self, PyObject *const *values, Py_ssize_t n)
{
    (void)self;
    long long number[N_NUMBERS];
    struct syp_mesh *mesh = syp_take_opening(values, n, number, N_NUMBERS);
    if (mesh == NULL)
        return NULL;
    const sy_nccl_options options = {.max_blocks = syp_as_int(number[MAX_BLOCKS]),
                                     .comm = syp_comm_options(mesh, number + MAX_INFLIGHT)};
    ncclComm_t nccl = NULL;
    PyThreadState *state = PyEval_SaveThread();
    sy_status status = meet(&nccl, number, mesh->sentence);
    if (status == SY_OK)
        status = sy_comm_create_nccl(
            &mesh->comm, nccl, (sy_mesh){.rows = syp_as_int(number[ROWS]), .cols = syp_as_int(number[COLS])},
            &options);
    if (nccl != NULL)
        ncclCommAbort(
            nccl); /* the mesh does not use it: all processes have agreed over its own communicators */
    PyEval_RestoreThread(state);
    return PyLong_FromLong(status);
}

static PyMethodDef functions[] = {{"open", (PyCFunction)(void (*)(void))open_mesh, METH_FASTCALL, NULL},
                                  {"new_id", new_id, METH_O, NULL},
                                  {NULL, NULL, 0, NULL}};

PyMODINIT_FUNC PyInit__nccl(void);
PyMODINIT_FUNC PyInit__nccl(void)
{
    static struct PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, "switchyard._nccl", NULL, -1, functions, NULL, NULL, NULL, NULL};
    return PyModule_Create(&definition);
}
