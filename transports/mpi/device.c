/*
 * Whether the MPI library accepts device memory. The headers of Open MPI and of MPICH 4 declare the query; it is called at run
 * time, because programs may run with a library other than the one they were built with. Other libraries get CPU memory.
 */
#include "transport.h"

#ifdef OPEN_MPI
#include <mpi-ext.h>
#endif

#if defined(OMPI_HAVE_MPI_EXT_CUDA) || (defined(MPICH_NUMVERSION) && MPICH_NUMVERSION >= 40000000)
#define HAS_QUERY 1
#endif

sy_transport_device syi_mpi_device_rows(void)
{
#ifdef HAS_QUERY
    return MPIX_Query_cuda_support() == 1 ? SY_TRANSPORT_DEVICE : SY_TRANSPORT_CPU;
#else
    return SY_TRANSPORT_CPU;
#endif
}
