# libswitchyard_nccl: the transport over NCCL. It uses the public headers and symbols of the library, nothing inside it.
file(GLOB nccl_sources CONFIGURE_DEPENDS transports/common/*.c transports/nccl/*.c)
add_library(switchyard_nccl_objects OBJECT ${nccl_sources})
switchyard_defaults(switchyard_nccl_objects)
target_compile_options(switchyard_nccl_objects PRIVATE ${switchyard_strict_warnings})
target_include_directories(switchyard_nccl_objects PRIVATE include)
target_include_directories(switchyard_nccl_objects SYSTEM PRIVATE ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})

add_library(switchyard_nccl SHARED $<TARGET_OBJECTS:switchyard_nccl_objects>)
add_library(switchyard::nccl ALIAS switchyard_nccl)
set_target_properties(switchyard_nccl PROPERTIES VERSION ${PROJECT_VERSION} LINKER_LANGUAGE C EXPORT_NAME nccl
                      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} INSTALL_RPATH "$ORIGIN")
# The CUDA runtime is inside; libnccl.so.2 is the one that the program has loaded.
target_include_directories(switchyard_nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(switchyard_nccl PUBLIC switchyard ${NCCL_LIBRARY} PRIVATE CUDA::cudart_static)
switchyard_link_hardening(switchyard_nccl)
switchyard_export_only(switchyard_nccl transports/nccl/switchyard_nccl.map)
