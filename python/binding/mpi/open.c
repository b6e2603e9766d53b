/*
 * The part of the binding that uses MPI: it opens a mesh over a communicator. Loaded when the first such mesh is made,
 * so that other programs need no MPI library.
 */
#include <limits.h>
#include <string.h>

#include <switchyard_mpi.h>

#include "../mesh.h"

#define EXPORT __attribute__((visibility("default")))

enum { FORTRAN_HANDLE, ROWS, COLS, MAX_INFLIGHT, TIMEOUT_MS, CHECK, CHUNK_BYTES, PACK, NO_SHARED, N_NUMBERS };

static int reject(const char *message)
{
    TVMFFIErrorSetRaisedFromCStr("TypeError", message);
    return -1;
}

static bool all_numbers(const TVMFFIAny *values, int64_t *numbers)
{
    for (int i = 0; i < N_NUMBERS; i++) {
        if (values[i].type_index != kTVMFFIInt && values[i].type_index != kTVMFFIBool)
            return false;
        numbers[i] = values[i].v_int64;
    }
    return true;
}

/* Every process must make the collective call: options beyond an int become values that the library rejects. */
static int as_int(int64_t number)
{
    return number >= INT_MIN && number <= INT_MAX ? (int)number : -1;
}

/* open(mesh, communicator as a Fortran handle, rows, cols, max_inflight, timeout_ms, check, chunk_bytes, pack, no_shared)
   -> status; collective */
EXPORT int __tvm_ffi_open(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_open(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self;
    int64_t number[N_NUMBERS];
    if (n != 1 + N_NUMBERS || values[0].type_index != kTVMFFIOpaquePtr || !all_numbers(values + 1, number))
        return reject("want a mesh, a communicator and options");
    struct syp_mesh *mesh = values[0].v_ptr;
    const sy_mpi_options options = {.comm = {.max_inflight = as_int(number[MAX_INFLIGHT]),
                                             .timeout_ms = number[TIMEOUT_MS],
                                             .check = (sy_check)as_int(number[CHECK]),
                                             .chunk_bytes = (size_t)number[CHUNK_BYTES],
                                             .pack = number[PACK] != 0,
                                             .no_shared = number[NO_SHARED] != 0,
                                             .error = mesh->sentence,
                                             .error_bytes = sizeof mesh->sentence}};
    const sy_status status = sy_comm_create_mpi_f_n(
        &mesh->comm, (MPI_Fint)number[FORTRAN_HANDLE],
        (sy_mesh){.rows = as_int(number[ROWS]), .cols = as_int(number[COLS])}, &options, sizeof options);
    result->type_index = kTVMFFIInt;
    result->zero_padding = 0;
    result->v_int64 = status;
    return 0;
}

/* library() -> the version text of the MPI library */
EXPORT int __tvm_ffi_library(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result);
int __tvm_ffi_library(void *self, const TVMFFIAny *values, int32_t n, TVMFFIAny *result)
{
    (void)self, (void)values, (void)n;
    char words[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(words, &length);
    return TVMFFIStringFromByteArray(&(TVMFFIByteArray){words, strlen(words)}, result);
}
