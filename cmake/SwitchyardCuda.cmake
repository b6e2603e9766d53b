# libswitchyard_cuda: the operators on CUDA devices, loaded by libswitchyard when a context asks for one. The same sources
# compiled for the CPU, with an emulator of the runtime, are libswitchyard_cuda_emulated: only for tests.
file(GLOB cuda_sources CONFIGURE_DEPENDS src/cuda/*.cu)

if(SWITCHYARD_TESTS)
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
        target_compile_options(switchyard_cuda_emulated PRIVATE -O1 -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas
                               -Wno-missing-field-initializers $<$<BOOL:${SWITCHYARD_WERROR}>:-Werror>)
    endif()
endif()
