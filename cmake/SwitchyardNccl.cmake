# libswitchyard_nccl: the transport over NCCL.
switchyard_beside(nccl transports/nccl)
target_include_directories(switchyard_nccl_objects SYSTEM PRIVATE ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
# The CUDA runtime is inside; libnccl.so.2 is the one that the program has loaded.
target_include_directories(switchyard_nccl SYSTEM INTERFACE ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
target_link_libraries(switchyard_nccl PUBLIC switchyard ${NCCL_LIBRARY} PRIVATE CUDA::cudart_static)
