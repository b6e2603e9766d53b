# Headers, libraries, command, pkg-config file and CMake package.
include(CMakePackageConfigHelpers)

install(FILES include/switchyard.h include/switchyard_inline.h include/switchyard_dlpack.h include/switchyard_describe.h
              include/switchyard_transport.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS switchyard EXPORT switchyardTargets)
install(TARGETS switchyard_static EXPORT switchyardStaticTargets)
if(TARGET switchyard_mpi)
    install(FILES include/switchyard_mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    install(TARGETS switchyard_mpi EXPORT switchyardMpiTargets)
endif()
foreach(layer IN LISTS switchyard_layers)
    install(DIRECTORY compat/${layer}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/switchyard/${layer})
    install(TARGETS switchyard_${layer} EXPORT switchyard_${layer}Targets)
endforeach()
if(TARGET switchyard_cli)
    install(TARGETS switchyard_cli)
endif()
if(TARGET switchyard_cli_mpi)
    install(TARGETS switchyard_cli_mpi)
endif()

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/switchyard)
install(EXPORT switchyardTargets NAMESPACE switchyard:: DESTINATION ${package_dir})
# Separate, because only the static library requires OpenMP of its users.
install(EXPORT switchyardStaticTargets NAMESPACE switchyard:: DESTINATION ${package_dir})
if(TARGET switchyard_mpi) # separate, because only it requires MPI
    install(EXPORT switchyardMpiTargets NAMESPACE switchyard:: DESTINATION ${package_dir})
endif()
foreach(layer IN LISTS switchyard_layers)
    install(EXPORT switchyard_${layer}Targets NAMESPACE switchyard:: DESTINATION ${package_dir})
endforeach()
configure_package_config_file(cmake/switchyardConfig.cmake.in switchyardConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(switchyardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/switchyardConfig.cmake ${PROJECT_BINARY_DIR}/switchyardConfigVersion.cmake
        DESTINATION ${package_dir})

# The pkg-config file derives the prefix from its own location, so that an installed tree can be moved.
file(RELATIVE_PATH PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" PC_PREFIX "${PC_PREFIX}")
set(PC_LIBS_PRIVATE "-lm")
if(OpenMP_C_FOUND)
    string(PREPEND PC_LIBS_PRIVATE "${OpenMP_C_FLAGS} ")
endif()
configure_file(cmake/switchyard.pc.in switchyard.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/switchyard.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(TARGET switchyard_mpi)
    set(PC_MPI_CFLAGS "")
    foreach(folder IN LISTS MPI_C_INCLUDE_DIRS)
        string(APPEND PC_MPI_CFLAGS " -I${folder}")
    endforeach()
    list(JOIN MPI_C_LIBRARIES " " PC_MPI_LIBS)
    configure_file(cmake/switchyard_mpi.pc.in switchyard_mpi.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/switchyard_mpi.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

foreach(PC_LAYER IN LISTS switchyard_layers)
    set(PC_LAYER_VENDOR "${switchyard_${PC_LAYER}_vendor}")
    configure_file(cmake/switchyard_layer.pc.in switchyard_${PC_LAYER}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/switchyard_${PC_LAYER}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()
