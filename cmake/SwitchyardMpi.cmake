# libswitchyard_mpi: the transport over MPI. It uses the public headers and symbols of the library, nothing inside it.
file(GLOB mpi_sources CONFIGURE_DEPENDS transports/common/*.c transports/mpi/*.c)
add_library(switchyard_mpi_objects OBJECT ${mpi_sources})
switchyard_defaults(switchyard_mpi_objects)
target_compile_options(switchyard_mpi_objects PRIVATE ${switchyard_strict_warnings})
target_include_directories(switchyard_mpi_objects PRIVATE include)
target_link_libraries(switchyard_mpi_objects PRIVATE MPI::MPI_C)

add_library(switchyard_mpi SHARED $<TARGET_OBJECTS:switchyard_mpi_objects>)
add_library(switchyard::mpi ALIAS switchyard_mpi)
set_target_properties(switchyard_mpi PROPERTIES VERSION ${PROJECT_VERSION} LINKER_LANGUAGE C EXPORT_NAME mpi
                      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} INSTALL_RPATH "$ORIGIN")
target_link_libraries(switchyard_mpi PUBLIC switchyard MPI::MPI_C)
switchyard_link_hardening(switchyard_mpi)
switchyard_export_only(switchyard_mpi transports/mpi/switchyard_mpi.map)
