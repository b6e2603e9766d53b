/*
 * The part of the binding that uses MPI: it opens a mesh over a communicator. Loaded when the first such mesh is made,
 * so that other programs need no MPI library.
 */
#include <switchyard_mpi.h>

#include "../mesh.h"

enum { FORTRAN_HANDLE, ROWS, COLS, MAX_INFLIGHT, TIMEOUT_MS, CHECK, CHUNK_BYTES, PACK, NO_SHARED, N_NUMBERS };

/* open(mesh, communicator as a Fortran handle, rows, cols, max_inflight, timeout_ms, check, chunk_bytes, pack, no_shared)
   -> status; collective */
static PyObject *open_mesh(PyObject *self, PyObject *const *values, Py_ssize_t n)
{
    (void)self;
    long long number[N_NUMBERS];
    struct syp_mesh *mesh = syp_take_opening(values, n, number, N_NUMBERS);
    if (mesh == NULL)
        return NULL;
    sy_mpi_options options = {.comm = syp_comm_options(mesh, number + MAX_INFLIGHT)};
    options.comm.pack = number[PACK] != 0;
    options.comm.no_shared = number[NO_SHARED] != 0;
    PyThreadState *state = PyEval_SaveThread();
    const sy_status status =
        sy_comm_create_mpi_f_n(&mesh->comm, (MPI_Fint)number[FORTRAN_HANDLE],
                               (sy_mesh){.rows = syp_as_int(number[ROWS]), .cols = syp_as_int(number[COLS])},
                               &options, sizeof options);
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
