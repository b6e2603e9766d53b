# libswitchyard_cuda: the operators on CUDA devices, loaded by libswitchyard when a context asks for one. The same sources
# compiled for the CPU, with an emulator of the runtime, are libswitchyard_cuda_emulated: only for tests.
file(GLOB cuda_sources CONFIGURE_DEPENDS src/cuda/*.cu)

if(NOT SWITCHYARD_CUDA STREQUAL OFF)
    include(CheckLanguage)
    check_language(CUDA)
    if(CMAKE_CUDA_COMPILER)
        set(CMAKE_CUDA_ARCHITECTURES ${SWITCHYARD_CUDA_ARCHITECTURES})
        if(SWITCHYARD_CUDA_ARCHITECTURES STREQUAL AUTO)
            execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE found RESULT_VARIABLE error ERROR_QUIET)
            string(REGEX MATCHALL "(8|9|1[0-9])[.][0-9]" CMAKE_CUDA_ARCHITECTURES "${found}")
            list(REMOVE_DUPLICATES CMAKE_CUDA_ARCHITECTURES)
            list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "[.](.)" "\\1-real")
            if(error OR NOT CMAKE_CUDA_ARCHITECTURES)
                set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 120) # the last as PTX too
            endif()
        endif()
        enable_language(CUDA)
        add_library(switchyard_cuda SHARED ${cuda_sources})
        set_target_properties(switchyard_cuda PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON
                              CUDA_VISIBILITY_PRESET hidden CUDA_RUNTIME_LIBRARY Static VERSION ${PROJECT_VERSION}
                              SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
        target_include_directories(switchyard_cuda PRIVATE src include)
        # Arithmetic is exact by rule: no contraction into fma.
        target_compile_options(switchyard_cuda PRIVATE -fmad=false -Xcompiler=-Wall $<$<BOOL:${SWITCHYARD_WERROR}>:-Werror=all-warnings>)
        list(JOIN CMAKE_CUDA_ARCHITECTURES " " found)
        list(APPEND switchyard_summary "  CUDA      ${CMAKE_CUDA_COMPILER_VERSION}, for ${found}")
    elseif(SWITCHYARD_CUDA STREQUAL ON)
        message(FATAL_ERROR "SWITCHYARD_CUDA is ON and no nvcc was found")
    else()
        list(APPEND switchyard_summary "  CUDA      nvcc not found: libswitchyard_cuda is not built")
    endif()
endif()

if(SWITCHYARD_TESTS AND NOT SWITCHYARD_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
    include(CheckLanguage)
    check_language(CXX)
    if(CMAKE_CXX_COMPILER AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|x86_64|amd64|AMD64)$")
        enable_language(CXX)
        set(emulated_sources "")
        foreach(source IN LISTS cuda_sources)
            get_filename_component(name ${source} NAME_WE)
            set(copy ${CMAKE_CURRENT_BINARY_DIR}/emulated/${name}.cpp)
            file(WRITE ${copy}.new "#include \"cuda/${name}.cu\"\n")
            file(COPY_FILE ${copy}.new ${copy} ONLY_IF_DIFFERENT)
            list(APPEND emulated_sources ${copy})
        endforeach()
        add_library(switchyard_cuda_emulated SHARED ${emulated_sources} tests/cuda/emulator/emulator.cpp)
        set_target_properties(switchyard_cuda_emulated PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON
                              CXX_VISIBILITY_PRESET hidden)
        target_include_directories(switchyard_cuda_emulated PRIVATE tests/cuda/emulator src include)
        # A division by zero traps, as it does on x86.
        target_compile_options(switchyard_cuda_emulated PRIVATE -fsanitize=integer-divide-by-zero -fsanitize-undefined-trap-on-error
                               -O1 -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas -Wno-missing-field-initializers
                               $<$<BOOL:${SWITCHYARD_WERROR}>:-Werror>)
    endif()
endif()
