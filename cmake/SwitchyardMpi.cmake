# libswitchyard_mpi: the transport over MPI.
switchyard_beside(mpi transports/mpi MPI::MPI_C)
target_link_libraries(switchyard_mpi PUBLIC switchyard MPI::MPI_C)
