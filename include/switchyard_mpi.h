/*
 * Meshes over MPI: libswitchyard_mpi, built against the MPI library whose mpi.h the caller includes too.
 *
 *     MPI_Init(&argc, &argv);
 *     sy_comm *comm = NULL;
 *     sy_comm_create_mpi(&comm, MPI_COMM_WORLD, (sy_mesh){2, 4}, NULL);    one process per device, rank = device
 *     sy_all_to_all_dispatch(ctx, comm, &args);
 *     sy_comm_destroy(comm);
 *     MPI_Finalize();
 */
#ifndef SWITCHYARD_MPI_H
#define SWITCHYARD_MPI_H

#include <mpi.h>

#include <switchyard.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sy_mpi_options {
    bool init; /* MPI is initialised here if it is not yet, and then finalised by sy_comm_destroy */
    sy_comm_options comm;
} sy_mpi_options;

/*
 * Collective over mpi_comm, which is duplicated and not used afterwards; `options` may be NULL. On failure *comm is
 * NULL. MPI's errors become SY_ERR_COMM. Error handlers are set on the library's own communicators only. MPICH reports
 * errors of transfers under way to the handler of MPI_COMM_WORLD, which ends the process unless it is
 * MPI_ERRORS_RETURN.
 * If all processes of the mesh are on one machine, rows pass through shared memory unless options.comm.no_shared; else every row is a
 * message, also between two processes of one machine.
 * Returns as sy_comm_create_local, the same in all processes; COMM also where MPI is not initialised, or mpi_comm has
 * not rows*cols processes; MISMATCH where they ask for different meshes. A failure also finalises what init began.
 */
SY_API sy_status sy_comm_create_mpi_n(sy_comm **comm, MPI_Comm mpi_comm, sy_mesh mesh,
                                      const sy_mpi_options *options, size_t options_bytes);
static inline sy_status sy_comm_create_mpi(sy_comm **comm, MPI_Comm mpi_comm, sy_mesh mesh,
                                           const sy_mpi_options *options)
{
    return sy_comm_create_mpi_n(comm, mpi_comm, mesh, options, sizeof *options);
}

/* The same for language bindings, which hold communicators as Fortran handles (MPI_Comm_c2f). */
SY_API sy_status sy_comm_create_mpi_f_n(sy_comm **comm, MPI_Fint mpi_comm, sy_mesh mesh,
                                        const sy_mpi_options *options, size_t options_bytes);

#ifdef __cplusplus
}
#endif

#endif /* SWITCHYARD_MPI_H */
