# libswitchyard_cuda: the operators on CUDA devices, loaded by libswitchyard when a context asks for one. The same sources
# compiled for the CPU, with an emulator of the runtime, are libswitchyard_cuda_emulated: only for tests.
file(GLOB cuda_sources CONFIGURE_DEPENDS src/cuda/*/*.cu)

# Compute capabilities of the GPUs of this machine, as architectures of CMake.
function(switchyard_gpus architectures)
    execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader OUTPUT_VARIABLE text ERROR_QUIET
                    RESULT_VARIABLE ignored)
    string(REGEX MATCHALL "(8|9|1[0-9])[.][0-9]" found "${text}")
    list(REMOVE_DUPLICATES found)
    list(TRANSFORM found REPLACE "[.](.)" "\\1-real")
    set(${architectures} ${found} PARENT_SCOPE)
endfunction()

set(switchyard_cuda_line off)
if(NOT SWITCHYARD_CUDA STREQUAL OFF)
    include(CheckLanguage)
    check_language(CUDA)
    switchyard_gpus(gpus)
    if(NOT CMAKE_CUDA_COMPILER)
        set(switchyard_cuda_line "nvcc not found: libswitchyard_cuda is not built")
        if(SWITCHYARD_CUDA STREQUAL ON)
            message(FATAL_ERROR "SWITCHYARD_CUDA is ON and no nvcc was found")
        endif()
    elseif(SWITCHYARD_CUDA STREQUAL AUTO AND NOT gpus)
        set(switchyard_cuda_line "no GPU found: libswitchyard_cuda is not built")
        if(PROJECT_IS_TOP_LEVEL)
            message(NOTICE "switchyard: nvcc found, but no GPU: libswitchyard_cuda is not built. To build it: -DSWITCHYARD_CUDA=ON.")
        endif()
    else()
        set(CMAKE_CUDA_ARCHITECTURES ${SWITCHYARD_CUDA_ARCHITECTURES})
        if(SWITCHYARD_CUDA_ARCHITECTURES STREQUAL AUTO AND gpus)
            set(CMAKE_CUDA_ARCHITECTURES ${gpus})
        elseif(SWITCHYARD_CUDA_ARCHITECTURES MATCHES "^(AUTO|release)$")
            set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 100-real 120) # the last as PTX too
        endif()
        find_program(SWITCHYARD_CCACHE ccache)
        mark_as_advanced(SWITCHYARD_CCACHE)
        if(SWITCHYARD_CCACHE AND NOT DEFINED CMAKE_CUDA_COMPILER_LAUNCHER)
            set(CMAKE_CUDA_COMPILER_LAUNCHER ${SWITCHYARD_CCACHE}) # minutes of nvcc
        endif()
        enable_language(CUDA)
        add_library(switchyard_cuda SHARED ${cuda_sources})
        set_target_properties(switchyard_cuda PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON
                              CUDA_VISIBILITY_PRESET hidden CUDA_RUNTIME_LIBRARY Static VERSION ${PROJECT_VERSION}
                              SOVERSION ${SY_VERSION_ABI})
        target_include_directories(switchyard_cuda PRIVATE src include)
        # Arithmetic is exact by rule: no contraction into fma. Images are compressed: a fifth of the size, and the first call of
        # a process takes no longer.
        target_compile_options(switchyard_cuda PRIVATE -fmad=false -Xfatbin=-compress-all -Xcompiler=-Wall $<$<BOOL:${SWITCHYARD_WERROR}>:-Werror=all-warnings>)
        # ptxas compiles functions that are out of line again for every kernel that reaches them: ten times the work for the
        # general sampler. Compiled once, by -Ofc=min or as relocatable code, they save and restore the registers of their
        # callers: top-k beyond 256 is up to a third slower, a flat nucleus a seventh (docs/cuda.md). Inlined they slow the short
        # paths of their kernels. So only builds that are not shipped do it.
        if(SWITCHYARD_CUDA_QUICK)
            set(general ${cuda_sources})
            list(FILTER general INCLUDE REGEX "/sample_(general|logprob)_")
            set_source_files_properties(${general} PROPERTIES COMPILE_OPTIONS "-Xptxas=-Ofc=min")
        endif()
        list(JOIN CMAKE_CUDA_ARCHITECTURES " " architectures)
        set(switchyard_cuda_line "${CMAKE_CUDA_COMPILER_VERSION}, for ${architectures}")
    endif()
endif()
list(APPEND switchyard_summary "  CUDA      ${switchyard_cuda_line}")

if(SWITCHYARD_TESTS AND NOT SWITCHYARD_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
    include(CheckLanguage)
    check_language(CXX)
    if(CMAKE_CXX_COMPILER AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|x86_64|amd64|AMD64)$")
        enable_language(CXX)
        set(emulated_sources "")
        foreach(source IN LISTS cuda_sources)
            get_filename_component(name ${source} NAME_WE)
            set(copy ${CMAKE_CURRENT_BINARY_DIR}/emulated/${name}.cpp)
            file(RELATIVE_PATH unit ${PROJECT_SOURCE_DIR}/src ${source})
            file(WRITE ${copy}.new "#include \"${unit}\"\n")
            file(COPY_FILE ${copy}.new ${copy} ONLY_IF_DIFFERENT)
            list(APPEND emulated_sources ${copy})
        endforeach()
        # Code for the emulated device. -Og: compiled in half the time of -O1, and runs as fast.
        function(switchyard_emulated target)
            set_target_properties(${target} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_VISIBILITY_PRESET hidden
                                  POSITION_INDEPENDENT_CODE ON)
            target_include_directories(${target} PRIVATE tests/cuda/emulator src include)
            target_compile_options(${target} PRIVATE -Og -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas
                                   -Wno-missing-field-initializers $<$<BOOL:${SWITCHYARD_WERROR}>:-Werror>)
        endfunction()
        add_library(switchyard_emulator OBJECT tests/cuda/emulator/emulator.cpp)
        switchyard_emulated(switchyard_emulator)
        target_compile_options(switchyard_emulator PRIVATE -O2)
        add_library(switchyard_cuda_emulated SHARED ${emulated_sources} $<TARGET_OBJECTS:switchyard_emulator>)
        switchyard_emulated(switchyard_cuda_emulated)
        # A division by zero traps, as it does on x86.
        target_precompile_headers(switchyard_cuda_emulated PRIVATE src/cuda/runtime/backend.cuh) # half a second of each of its units
        target_compile_options(switchyard_cuda_emulated PRIVATE -fsanitize=integer-divide-by-zero -fsanitize-undefined-trap-on-error)
    endif()
endif()
