/*
 * The part of the binding that uses MPI: it opens a mesh over a communicator. Loaded when the first such mesh is made,
 * so that other programs need no MPI library.
 */
#include <limits.h>
#include <string.h>

#include <switchyard_mpi.h>

#include "../mesh.h"

enum { FORTRAN_HANDLE, ROWS, COLS, MAX_INFLIGHT, TIMEOUT_MS, CHECK, CHUNK_BYTES, PACK, NO_SHARED, N_NUMBERS };

/* Every process must make the collective call: options beyond an int become values that the library rejects. */
static int as_int(int64_t number)
{
    return number >= INT_MIN && number <= INT_MAX ? (int)number : -1;
}

/* open(mesh, communicator as a Fortran handle, rows, cols, max_inflight, timeout_ms, check, chunk_bytes, pack, no_shared)
   -> status; collective */
static PyObject *open_mesh(PyObject *self, PyObject *const *values, Py_ssize_t n)
{
    (void)self;
    if (n != 1 + N_NUMBERS) {
        PyErr_SetString(PyExc_TypeError, "want a mesh, a communicator and options");
        return NULL;
    }
    long long number[N_NUMBERS];
    for (int i = 0; i < N_NUMBERS; i++)
        number[i] = PyLong_AsLongLong(values[1 + i]);
    struct syp_mesh *mesh = PyErr_Occurred() == NULL ? PyCapsule_GetPointer(values[0], "switchyard") : NULL;
    if (mesh == NULL)
        return NULL;
    const sy_mpi_options options = {.comm = {.max_inflight = as_int(number[MAX_INFLIGHT]),
                                             .timeout_ms = number[TIMEOUT_MS],
                                             .check = (sy_check)as_int(number[CHECK]),
                                             .chunk_bytes = (size_t)number[CHUNK_BYTES],
                                             .pack = number[PACK] != 0,
                                             .no_shared = number[NO_SHARED] != 0,
                                             .error = mesh->sentence,
                                             .error_bytes = sizeof mesh->sentence}};
    PyThreadState *state = PyEval_SaveThread();
    const sy_status status = sy_comm_create_mpi_f_n(
        &mesh->comm, (MPI_Fint)number[FORTRAN_HANDLE],
        (sy_mesh){.rows = as_int(number[ROWS]), .cols = as_int(number[COLS])}, &options, sizeof options);
    PyEval_RestoreThread(state);
    return PyLong_FromLong(status);
}

/* library() -> the version text of the MPI library */
static PyObject *library(PyObject *self, PyObject *unused)
{
    (void)self, (void)unused;
    char words[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    MPI_Get_library_version(words, &length);
    return PyUnicode_FromString(words);
}

static PyMethodDef functions[] = {{"open", (PyCFunction)(void (*)(void))open_mesh, METH_FASTCALL, NULL},
                                  {"library", library, METH_NOARGS, NULL},
                                  {NULL, NULL, 0, NULL}};

PyMODINIT_FUNC PyInit__mpi(void);
PyMODINIT_FUNC PyInit__mpi(void)
{
    static struct PyModuleDef definition = {
        PyModuleDef_HEAD_INIT, "switchyard._mpi", NULL, -1, functions, NULL, NULL, NULL, NULL};
    return PyModule_Create(&definition);
}
