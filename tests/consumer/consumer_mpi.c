/* A user of the installed libswitchyard_mpi: a mesh of all processes; process 0 prints what it runs on. Also C++17. */
#define OMPI_SKIP_MPICXX 1 /* MPI's own C++ classes, which the standard gave up, would need a library more */
#define MPICH_SKIP_MPICXX 1
#include <stdio.h>

#include <switchyard_mpi.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    sy_mesh mesh = {1, 0};
    MPI_Comm_size(MPI_COMM_WORLD, &mesh.cols);
    sy_comm *comm = NULL;
    sy_status status = sy_comm_create_mpi(&comm, MPI_COMM_WORLD, mesh, NULL);
    if (status != SY_OK)
        fprintf(stderr, "%s\n", sy_status_name(status));
    else if (sy_comm_first_device(comm) == 0)
        printf("%s %s %d\n", sy_version(), sy_comm_transport_name(comm), sy_comm_mesh(comm).cols);
    sy_comm_destroy(comm);
    MPI_Finalize();
    return status != SY_OK;
}
