/*
 * The part of the binding that uses NCCL: it opens a mesh between processes that know each other by an id, which one of them
 * makes and Python carries to the others. Loaded when the first such mesh is made.
 */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <switchyard_nccl.h>

#include "../mesh.h"

#define EXPORT __attribute__((visibility("default")))

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

static int reject(const char *message)
{
    TVMFFIErrorSetRaisedFromCStr("TypeError", message);
    return -1;
}

static void return_int(TVMFFIAny *result, int64_t value)
{
    result->type_index = kTVMFFIInt;
    result->zero_padding = 0;
    result->v_int64 = value;
}

static int as_int(int64_t number)
{
    return number >= INT_MIN && number <= INT_MAX ? (int)number : -1;
}

/* new_id(mesh) -> status; mesh_tell(mesh, "opening") is then the id, in hexadecimal */
EXPORT int __tvm_ffi_new_id(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_new_id(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    if (n != 1 || values[0].type_index != kTVMFFIOpaquePtr)
        return reject("want a mesh");
    struct syp_mesh *mesh = values[0].v_ptr;
    ncclUniqueId id;
    const ncclResult_t made = ncclGetUniqueId(&id);
    for (size_t i = 0; made == ncclSuccess && i < sizeof id; i++)
        snprintf(mesh->sentence + 2 * i, 3, "%02x", (unsigned char)id.internal[i]);
    if (made != ncclSuccess)
        snprintf(mesh->sentence, sizeof mesh->sentence, "ncclGetUniqueId failed: %s",
                 ncclGetErrorString(made));
    return_int(result, made == ncclSuccess ? SY_OK : SY_ERR_COMM);
    return 0;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* A communicator of all processes. */
static sy_status meet(ncclComm_t *nccl, const int64_t *number, char *sentence)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId id;
    const int64_t begin = now_ms(),
                  limit = number[TIMEOUT_MS] != 0 ? number[TIMEOUT_MS] : SY_DEFAULT_TIMEOUT_MS;
    const int processes = as_int(number[ROWS] * number[COLS]);
    memcpy(&id, number + ID, sizeof id);
    config.blocking = 0;
    ncclResult_t state = ncclCommInitRankConfig(nccl, processes, id, as_int(number[RANK]), &config);
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
EXPORT int __tvm_ffi_open(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_open(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    int64_t number[N_NUMBERS];
    if (n != 1 + N_NUMBERS || values[0].type_index != kTVMFFIOpaquePtr)
        return reject("want a mesh, options and an id");
    for (int i = 0; i < N_NUMBERS; i++) {
        if (values[1 + i].type_index != kTVMFFIInt && values[1 + i].type_index != kTVMFFIBool)
            return reject("want numbers");
        number[i] = values[1 + i].v_int64;
    }
    struct syp_mesh *mesh = values[0].v_ptr;
    const sy_nccl_options options = {.max_blocks = as_int(number[MAX_BLOCKS]),
                                     .comm = {.max_inflight = as_int(number[MAX_INFLIGHT]),
                                              .timeout_ms = number[TIMEOUT_MS],
                                              .check = (sy_check)as_int(number[CHECK]),
                                              .chunk_bytes = (size_t)number[CHUNK_BYTES],
                                              .error = mesh->sentence,
                                              .error_bytes = sizeof mesh->sentence}};
    ncclComm_t nccl = NULL;
    sy_status status = meet(&nccl, number, mesh->sentence);
    if (status == SY_OK)
        status = sy_comm_create_nccl(&mesh->comm, nccl,
                                     (sy_mesh){.rows = as_int(number[ROWS]), .cols = as_int(number[COLS])},
                                     &options);
    if (nccl != NULL)
        ncclCommAbort(
            nccl); /* the mesh does not use it: all processes have agreed over its own communicators */
    return_int(result, status);
    return 0;
}
