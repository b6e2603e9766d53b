# Tests. Every executable and every Python file is one CTest test with its folder as label; scripts/run_tests.py runs
# the same list and counts single tests. The timeouts are watchdogs against a hang, nothing is measured by them.
set(watchdog_seconds 900)

# Operators in a header's list of the form X(ID, name).
function(switchyard_operators names header)
    file(READ ${PROJECT_SOURCE_DIR}/${header} text)
    string(REGEX MATCHALL "X\\([A-Z_]+, [a-z_]+\\)" rows "${text}")
    list(TRANSFORM rows REPLACE ".*, ([a-z_]+)\\)" "\\1")
    set(${names} ${rows} PARENT_SCOPE)
endfunction()

# A C test: linked with the static library, so that tests can call internal functions (syi_).
function(switchyard_c_test name label)
    add_executable(${name} ${ARGN})
    switchyard_program(${name})
    target_include_directories(${name} PRIVATE src tests)
    target_link_libraries(${name} PRIVATE switchyard_static)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${watchdog_seconds})
endfunction()

# A Python test file (stdlib unittest): TAP on standard output.
function(switchyard_py_test path label)
    string(MAKE_C_IDENTIFIER ${path} name)
    string(REGEX REPLACE "^tests_(.*)_py$" "\\1" name ${name})
    add_test(NAME ${name} COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/tap.py ${PROJECT_SOURCE_DIR}/${path})
    set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${watchdog_seconds} ENVIRONMENT "${ARGN}")
endfunction()

# Tests of the Python package, by pytest in the project's venv; skipped with a reason where there is none.
function(switchyard_pytest name)
    add_test(NAME ${name} COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/pytest_tap.py ${ARGN})
    set_tests_properties(${name} PROPERTIES LABELS python TIMEOUT ${watchdog_seconds})
endfunction()

if(SWITCHYARD_TESTS AND CMOCKA_INCLUDE_DIR AND CMOCKA_LIBRARY)
    find_package(Threads REQUIRED)
    file(GLOB support_sources CONFIGURE_DEPENDS tests/device.c tests/support*.c tests/mesh_*.c tests/schedule*.c
         tests/oracle/*.c tests/comm/threads_*.c)
    # Expected results are computed by definition, slowly: without the sanitizers, whose subject is the library.
    if(SWITCHYARD_SANITIZE)
        set(oracles ${support_sources})
        list(FILTER oracles INCLUDE REGEX "/tests/oracle/")
        set_source_files_properties(${oracles} PROPERTIES COMPILE_OPTIONS "-O2;-fno-sanitize=all")
    endif()
    add_library(switchyard_test_support STATIC ${support_sources})
    switchyard_defaults(switchyard_test_support)
    target_include_directories(switchyard_test_support PUBLIC tests PRIVATE src)
    target_include_directories(switchyard_test_support SYSTEM PUBLIC ${CMOCKA_INCLUDE_DIR})
    target_link_libraries(switchyard_test_support PUBLIC switchyard_static ${CMOCKA_LIBRARY} m Threads::Threads)
    # Calls that tests/device.c can send to a CUDA device.
    switchyard_operators(wrapped src/base/plan.h)
    list(TRANSFORM wrapped APPEND _n)
    list(APPEND wrapped ctx_create_n ctx_set_workspace isa_name call all_to_all_dispatch_start_n all_to_all_combine_start_n
         request_wait request_test request_free comm_destroy)
    list(TRANSFORM wrapped PREPEND sy_)
    if(SWITCHYARD_SANITIZE MATCHES address)
        target_sources(switchyard_test_support PRIVATE tests/leaks.c)
        list(APPEND wrapped malloc calloc aligned_alloc posix_memalign strdup realloc free _cmocka_run_group_tests)
    endif()
    list(TRANSFORM wrapped PREPEND -Wl,--wrap=)
    target_link_options(switchyard_test_support INTERFACE ${wrapped})
    foreach(folder op bad fault isa comm)
        file(GLOB files CONFIGURE_DEPENDS tests/${folder}/*.c)
        list(FILTER files EXCLUDE REGEX "/threads_[a-z]+\\.c$")
        foreach(file IN LISTS files)
            cmake_path(GET file STEM stem)
            switchyard_c_test(${folder}_${stem} ${folder} ${file})
            target_link_libraries(${folder}_${stem} PRIVATE switchyard_test_support)
        endforeach()
    endforeach()

    # A library in the place of libswitchyard_cuda, for the sentences of the loader.
    add_library(fake_cuda MODULE tests/cuda/fake_library.c)
    switchyard_defaults(fake_cuda)
    target_include_directories(fake_cuda PRIVATE src include)
    add_dependencies(op_ctx_device fake_cuda)
    target_compile_definitions(op_ctx_device PRIVATE SWITCHYARD_FAKE_CUDA="$<TARGET_FILE:fake_cuda>")

    # Worked examples: one program, a test for each operator's file.
    add_executable(run_examples tests/examples/run.c tests/examples/read.c)
    switchyard_program(run_examples)
    target_link_libraries(run_examples PRIVATE switchyard_test_support)
    file(GLOB files CONFIGURE_DEPENDS tests/examples/*.txt)
    foreach(file IN LISTS files)
        cmake_path(GET file STEM stem)
        add_test(NAME examples_${stem} COMMAND run_examples ${file})
        set_tests_properties(examples_${stem} PROPERTIES LABELS op TIMEOUT ${watchdog_seconds})
    endforeach()

    # The kernels of src/cuda on an emulated device, by the same programs. Large inputs would take it too long.
    if(TARGET switchyard_cuda_emulated)
        file(GLOB parts_random CONFIGURE_DEPENDS tests/cuda/random_*.c tests/fuzz/args_*.c) # its calls, without a fuzzer
        set(parts_mesh tests/cuda/mesh_twin.c)
        foreach(stem context graph mesh random sample)
            switchyard_c_test(cuda_${stem} cuda tests/cuda/${stem}.c ${parts_${stem}})
            target_link_libraries(cuda_${stem} PRIVATE switchyard_test_support)
            add_dependencies(cuda_${stem} switchyard_cuda_emulated)
        endforeach()
        target_compile_definitions(cuda_context PRIVATE SWITCHYARD_EMULATED_CUDA="$<TARGET_FILE:switchyard_cuda_emulated>")
        set_tests_properties(cuda_graph cuda_mesh cuda_random cuda_sample PROPERTIES ENVIRONMENT
                             "EMULATED_PROCESSORS=132;SWITCHYARD_TEST_CUDA_LIBRARY=$<TARGET_FILE:switchyard_cuda_emulated>")
        if(TARGET switchyard_cuda) # skipped where there is no GPU
            add_test(NAME gpu_graph COMMAND cuda_graph)
            add_test(NAME gpu_mesh COMMAND cuda_mesh)
            add_test(NAME gpu_sample COMMAND cuda_sample)
            set_tests_properties(gpu_graph gpu_mesh gpu_sample PROPERTIES LABELS cuda TIMEOUT ${watchdog_seconds})
            add_dependencies(cuda_graph switchyard_cuda)
            add_dependencies(cuda_mesh switchyard_cuda)
        endif()
        # Parts of src/cuda that are called directly.
        set(nucleus ${CMAKE_CURRENT_BINARY_DIR}/emulated/test_nucleus.cpp)
        file(WRITE ${nucleus}.new "#include \"${PROJECT_SOURCE_DIR}/tests/cuda/nucleus.cu\"\n")
        file(COPY_FILE ${nucleus}.new ${nucleus} ONLY_IF_DIFFERENT)
        set(rank tests/cuda/rank.cpp)
        foreach(stem rank nucleus)
            add_executable(cuda_${stem} ${${stem}} tests/cuda/emulator/emulator.cpp)
            set_target_properties(cuda_${stem} PROPERTIES CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON)
            target_include_directories(cuda_${stem} PRIVATE tests/cuda/emulator src include)
            target_include_directories(cuda_${stem} SYSTEM PRIVATE ${CMOCKA_INCLUDE_DIR})
            target_compile_options(cuda_${stem} PRIVATE -O1 -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas -Wno-unused-function
                                   -Wno-missing-field-initializers $<$<BOOL:${SWITCHYARD_WERROR}>:-Werror>)
            target_link_libraries(cuda_${stem} PRIVATE ${CMOCKA_LIBRARY})
            add_test(NAME cuda_${stem} COMMAND cuda_${stem})
            set_tests_properties(cuda_${stem} PROPERTIES LABELS cuda TIMEOUT ${watchdog_seconds})
        endforeach()
        list(LENGTH CMAKE_CUDA_ARCHITECTURES architectures)
        if(TARGET switchyard_cuda AND architectures EQUAL 1) # as scripts/test_cuda.py builds
            add_executable(gpu_nucleus tests/cuda/nucleus.cu)
            set_target_properties(gpu_nucleus PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON)
            target_include_directories(gpu_nucleus PRIVATE src include)
            target_include_directories(gpu_nucleus SYSTEM PRIVATE ${CMOCKA_INCLUDE_DIR})
            target_compile_options(gpu_nucleus PRIVATE -fmad=false -w)
            target_link_libraries(gpu_nucleus PRIVATE ${CMOCKA_LIBRARY})
            add_test(NAME gpu_nucleus COMMAND gpu_nucleus)
            set_tests_properties(gpu_nucleus PROPERTIES LABELS cuda TIMEOUT ${watchdog_seconds})
        endif()
        set(emulated SWITCHYARD_TEST_DEVICE=cuda SWITCHYARD_TEST_CUDA_LIBRARY=$<TARGET_FILE:switchyard_cuda_emulated>)
        switchyard_operators(on_device src/cuda/backend.cuh)
        foreach(stem IN LISTS on_device)
            add_test(NAME cuda_examples_${stem} COMMAND run_examples ${PROJECT_SOURCE_DIR}/tests/examples/${stem}.txt)
            set_tests_properties(cuda_examples_${stem} PROPERTIES LABELS cuda TIMEOUT ${watchdog_seconds} ENVIRONMENT
                                 "${emulated};EMULATED_PROCESSORS=132")
        endforeach()
        foreach(stem
                all_to_all_combine
                all_to_all_dispatch
                all_to_all_reduced
                kv_blocks
                kv_format
                kv_planes
                kv_ragged
                kv_scatter
                kv_slots
                kv_translate
                local_reduce
                moe_align_block
                moe_convert_indices
                moe_pad_map
                moe_capacity
                moe_combine
                moe_dispatch
                moe_dispatch_grad_gate
                moe_dispatch_random
                moe_gradients
                moe_grads
                moe_ids_from_map
                moe_locations
                moe_map_from_ids
                moe_map_physical
                moe_permute_grad
                moe_permute_ids
                moe_permute_random
                moe_reorder_chunks
                moe_route
                moe_rows_wide
                moe_unpermute_grad
                moe_unpermute_ids
                moe_unpermute_random
                quantize_rows
                row_format
                sample_edits
                sample_overrides
                sample_verify)
            if(TARGET op_${stem})
                add_test(NAME cuda_op_${stem} COMMAND op_${stem})
                list(APPEND cuda_tests cuda_op_${stem})
            endif()
        endforeach()
        file(GLOB files CONFIGURE_DEPENDS tests/bad/*.c)
        list(FILTER files EXCLUDE REGEX "/(moe_place|tensors|workspace)\\.c$") # of the CPU alone
        foreach(file IN LISTS files)
            cmake_path(GET file STEM stem)
            add_test(NAME cuda_bad_${stem} COMMAND bad_${stem})
            list(APPEND cuda_tests cuda_bad_${stem})
        endforeach()
        set_tests_properties(${cuda_tests} PROPERTIES LABELS cuda TIMEOUT ${watchdog_seconds} ENVIRONMENT "${emulated}")
    endif()
endif()

# Compatibility layers: tests/compat/<layer>_<name>.c is one program; tests/compat/<layer>.c has shared code.
# They are linked with the layer's objects and the static library.
foreach(layer IN LISTS switchyard_layers)
    if(TARGET switchyard_test_support)
        file(GLOB shared_files CONFIGURE_DEPENDS tests/compat/${layer}.c)
        file(GLOB files CONFIGURE_DEPENDS tests/compat/${layer}_*.c)
        foreach(file IN LISTS files)
            cmake_path(GET file STEM stem)
            switchyard_c_test(compat_${stem} compat ${file} ${shared_files} $<TARGET_OBJECTS:switchyard_${layer}_objects>)
            target_include_directories(compat_${stem} PRIVATE compat/${layer}/include)
            target_link_libraries(compat_${stem} PRIVATE switchyard_test_support)
            # Again with tensors in memory of the emulated device.
            if(TARGET switchyard_cuda_emulated AND stem MATCHES "^(aclnn_(device|ids|kv|moe|more|route|views)|mluop_examples)$")
                add_dependencies(compat_${stem} switchyard_cuda_emulated)
                add_test(NAME cuda_compat_${stem} COMMAND compat_${stem})
                set_tests_properties(cuda_compat_${stem} PROPERTIES LABELS compat TIMEOUT ${watchdog_seconds} ENVIRONMENT
                    "SWITCHYARD_COMPAT_DEVICE=cuda;SWITCHYARD_COMPAT_DEVICE_LIBRARY=$<TARGET_FILE:switchyard_cuda_emulated>")
            endif()
        endforeach()
    endif()
endforeach()

# Programs of several processes: tests/mpi/<name>.c, run with the listed numbers of processes. Each number is a test of its own.
function(switchyard_mpi_test name)
    add_executable(mpi_${name} tests/mpi/${name}.c $<TARGET_OBJECTS:switchyard_mpi_objects>)
    switchyard_program(mpi_${name})
    target_include_directories(mpi_${name} PRIVATE tests src ${PROJECT_SOURCE_DIR})
    set_target_properties(mpi_${name} PROPERTIES C_VISIBILITY_PRESET default)
    add_dependencies(mpi_tests mpi_${name})
    target_link_options(mpi_${name} PRIVATE -rdynamic) # names in the stacks of hanging tests
    target_link_libraries(mpi_${name} PRIVATE switchyard_mpi_ranks switchyard_test_support MPI::MPI_C)
    foreach(processes IN LISTS ARGN)
        add_test(NAME mpi_${name}_${processes}
                 COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/mpirun.py -n ${processes}
                         --mpirun ${SWITCHYARD_MPIRUN} $<TARGET_FILE:mpi_${name}> ${processes})
        set_tests_properties(mpi_${name}_${processes} PROPERTIES LABELS mpi TIMEOUT ${watchdog_seconds})
    endforeach()
endfunction()

# The same programs with tensors on the emulated device. ARGN: numbers of processes; `rows`: MPI is said to accept device memory.
function(switchyard_mpi_device_test name rows)
    if(NOT TARGET switchyard_cuda_emulated)
        return()
    endif()
    set(environment SWITCHYARD_TEST_DEVICE=cuda SWITCHYARD_TEST_CUDA_LIBRARY=$<TARGET_FILE:switchyard_cuda_emulated>
        SWITCHYARD_EXCHANGES=300) # the device is slow
    if(rows)
        list(APPEND environment SWITCHYARD_TEST_DEVICE_ROWS=1)
        set(rows _rows)
    else()
        set(rows "")
    endif()
    foreach(processes IN LISTS ARGN)
        add_test(NAME cuda_mpi_${name}${rows}_${processes}
                 COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/mpirun.py -n ${processes}
                         --mpirun ${SWITCHYARD_MPIRUN} $<TARGET_FILE:mpi_${name}> ${processes})
        set_tests_properties(cuda_mpi_${name}${rows}_${processes} PROPERTIES LABELS mpi TIMEOUT ${watchdog_seconds}
                             ENVIRONMENT "${environment}")
    endforeach()
    add_dependencies(mpi_${name} switchyard_cuda_emulated)
endfunction()

if(SWITCHYARD_TESTS AND TARGET switchyard_mpi AND TARGET switchyard_test_support AND Python3_Interpreter_FOUND)
    add_custom_target(mpi_tests)
    add_library(switchyard_mpi_ranks STATIC tests/mpi/ranks.c tests/mpi/ranks_mpi.c tests/mpi/transport_support.c)
    switchyard_defaults(switchyard_mpi_ranks)
    target_include_directories(switchyard_mpi_ranks PRIVATE tests ${PROJECT_SOURCE_DIR})
    target_link_libraries(switchyard_mpi_ranks PUBLIC switchyard_test_support MPI::MPI_C)
    switchyard_mpi_test(transport 1 2 3 4 6 8)
    switchyard_mpi_test(create 1 2 3 4 6 8)
    switchyard_mpi_test(init 1 3)
    switchyard_mpi_test(finalised 1 3)
    switchyard_mpi_test(all_to_all 1 2 3 4 6 8)
    switchyard_mpi_test(rejections 2)
    switchyard_mpi_test(collective 2 3)
    switchyard_mpi_test(schedule 2 3 4 8)
    switchyard_mpi_test(device) # on a device only
    switchyard_mpi_device_test(device OFF 1 2 3)
    switchyard_mpi_device_test(device ON 2)
    switchyard_mpi_device_test(all_to_all OFF 1 2 3 4)
    switchyard_mpi_device_test(all_to_all ON 2 4)
    switchyard_mpi_device_test(rejections OFF 2)
    switchyard_mpi_device_test(collective OFF 2)
    switchyard_mpi_device_test(schedule OFF 2)
    switchyard_mpi_test(killed) # run by the next test
    set(emulated_device "")
    if(TARGET switchyard_cuda_emulated)
        set(emulated_device SWITCHYARD_EMULATED_CUDA=$<TARGET_FILE:switchyard_cuda_emulated>)
    endif()
    switchyard_py_test(tests/mpi/test_killed.py mpi SWITCHYARD_MPIRUN=${SWITCHYARD_MPIRUN}
                       SWITCHYARD_MPI_KILLED=$<TARGET_FILE:mpi_killed> ${emulated_device})
    switchyard_py_test(tests/mpi/test_small_shm.py mpi SWITCHYARD_MPIRUN=${SWITCHYARD_MPIRUN}
                       SWITCHYARD_MPI_COLLECTIVE=$<TARGET_FILE:mpi_collective>)
elseif(SWITCHYARD_TESTS AND Python3_Interpreter_FOUND) # a line in the report
    add_test(NAME mpi COMMAND Python3::Interpreter -c "print('1..1\\nok 1 - tests/mpi # SKIP libswitchyard_mpi was not built')")
    set_tests_properties(mpi PROPERTIES LABELS mpi)
endif()

# The transport over NCCL: the same programs, whose processes start themselves. With a double of NCCL and of the CUDA runtime, without a
# GPU; where libswitchyard_nccl is built, as gpu_nccl_<name> with the real ones.
function(switchyard_nccl_program program name)
    add_executable(${program} ${name} tests/mpi/ranks.c tests/nccl/ranks_nccl.c)
    switchyard_program(${program})
    target_compile_definitions(${program} PRIVATE SWITCHYARD_TEST_NCCL _DEFAULT_SOURCE)
    target_include_directories(${program} PRIVATE tests tests/mpi tests/nccl src ${PROJECT_SOURCE_DIR})
    set_target_properties(${program} PROPERTIES C_VISIBILITY_PRESET default)
    target_link_options(${program} PRIVATE -rdynamic)
    target_link_libraries(${program} PRIVATE switchyard_test_support)
endfunction()

# ARGN: numbers of processes, of which those in `on_device` are tests with tensors on the emulated device too.
function(switchyard_nccl_test name source on_device)
    switchyard_nccl_program(nccl_${name} ${source})
    target_include_directories(nccl_${name} PRIVATE tests/nccl/fake)
    target_link_libraries(nccl_${name} PRIVATE switchyard_fake_nccl)
    foreach(processes IN LISTS ARGN)
        add_test(NAME nccl_${name}_${processes} COMMAND nccl_${name})
        set_tests_properties(nccl_${name}_${processes} PROPERTIES LABELS nccl TIMEOUT ${watchdog_seconds}
                             ENVIRONMENT SWITCHYARD_RANKS=${processes})
        if(TARGET switchyard_cuda_emulated AND processes IN_LIST on_device)
            add_test(NAME cuda_nccl_${name}_${processes} COMMAND nccl_${name})
            set_tests_properties(cuda_nccl_${name}_${processes} PROPERTIES LABELS nccl TIMEOUT ${watchdog_seconds} ENVIRONMENT
                "SWITCHYARD_RANKS=${processes};${emulated}")
            add_dependencies(nccl_${name} switchyard_cuda_emulated)
        endif()
    endforeach()
    if(TARGET switchyard_nccl)
        switchyard_nccl_program(gpu_nccl_${name} ${source})
        target_include_directories(gpu_nccl_${name} SYSTEM PRIVATE ${NCCL_INCLUDE_DIR} ${CUDAToolkit_INCLUDE_DIRS})
        target_sources(gpu_nccl_${name} PRIVATE $<TARGET_OBJECTS:switchyard_nccl_objects>)
        target_link_libraries(gpu_nccl_${name} PRIVATE ${NCCL_LIBRARY} CUDA::cudart_static)
        if(NOT TARGET switchyard_cuda)
            set_target_properties(gpu_nccl_${name} PROPERTIES EXCLUDE_FROM_ALL ON)
        endif()
    endif()
endfunction()

if(SWITCHYARD_TESTS AND TARGET switchyard_test_support)
    file(GLOB nccl_sources CONFIGURE_DEPENDS nccl/*.c)
    add_library(switchyard_fake_nccl STATIC ${nccl_sources} tests/nccl/fake/nccl.c)
    switchyard_defaults(switchyard_fake_nccl)
    target_compile_definitions(switchyard_fake_nccl PRIVATE _DEFAULT_SOURCE)
    target_include_directories(switchyard_fake_nccl PRIVATE include tests/nccl/fake)
    switchyard_nccl_test(all_to_all tests/mpi/all_to_all.c "1;2" 1 2 4)
    switchyard_nccl_test(rejections tests/mpi/rejections.c "2" 2)
    switchyard_nccl_test(collective tests/mpi/collective.c "2" 2 3)
    switchyard_nccl_test(schedule tests/mpi/schedule.c "2" 2 3)
    switchyard_nccl_test(create tests/nccl/create.c "" 1 2 3)
    switchyard_nccl_test(bytes tests/nccl/bytes.c "4" 2 4)
    switchyard_nccl_test(killed tests/nccl/killed.c "")
    foreach(when header rows)
        foreach(way kill stop)
            foreach(notices silent notices)
                add_test(NAME nccl_killed_${when}_${way}_${notices} COMMAND nccl_killed ${when} ${way})
                set_tests_properties(nccl_killed_${when}_${way}_${notices} PROPERTIES LABELS nccl TIMEOUT ${watchdog_seconds}
                                     ENVIRONMENT "SWITCHYARD_RANKS=3;SWITCHYARD_FAKE_NCCL=${notices}")
            endforeach()
            if(TARGET switchyard_nccl AND TARGET switchyard_cuda)
                list(APPEND gpu_nccl_tests gpu_nccl_killed_${when}_${way})
                add_test(NAME gpu_nccl_killed_${when}_${way} COMMAND gpu_nccl_killed ${when} ${way})
            endif()
        endforeach()
    endforeach()
endif()

# Skipped where there is no GPU. Processes that share one switch every few milliseconds, so not all programs end soon there.
if(gpu_nccl_tests)
    foreach(name create bytes)
        list(APPEND gpu_nccl_tests gpu_nccl_${name}_2)
        add_test(NAME gpu_nccl_${name}_2 COMMAND gpu_nccl_${name})
    endforeach()
    set_tests_properties(${gpu_nccl_tests} PROPERTIES LABELS cuda TIMEOUT ${watchdog_seconds} RUN_SERIAL ON
                         ENVIRONMENT "SWITCHYARD_RANKS=2;SWITCHYARD_TEST_DEVICE=cuda")
    add_test(NAME gpu_nccl_all_to_all_2 COMMAND gpu_nccl_all_to_all)
    set_tests_properties(gpu_nccl_all_to_all_2 PROPERTIES LABELS cuda TIMEOUT ${watchdog_seconds} RUN_SERIAL ON ENVIRONMENT
                         "SWITCHYARD_RANKS=2;SWITCHYARD_TEST_DEVICE=cuda;SWITCHYARD_TEST_MATCH=1x2, messages")
endif()

# Programs that need neither cmocka nor jansson, so that they run on a foreign architecture too.
if(SWITCHYARD_TESTS)
    file(GLOB files CONFIGURE_DEPENDS tests/bits/*.c)
    add_executable(bits ${files})
    switchyard_program(bits)
    target_link_libraries(bits PRIVATE switchyard)
    if(TARGET switchyard_test_support) # the same with calls that tests/device.c can send to a CUDA device
        add_executable(bits_device ${files})
        switchyard_program(bits_device)
        target_link_libraries(bits_device PRIVATE switchyard_test_support)
    endif()
endif()

if(SWITCHYARD_EXAMPLES)
    file(GLOB files CONFIGURE_DEPENDS examples/*.c)
    if(NOT SWITCHYARD_HAS_CBLAS)
        list(FILTER files EXCLUDE REGEX "/moe_layer\\.c$")
    endif()
    find_package(Threads REQUIRED)
    foreach(file IN LISTS files)
        cmake_path(GET file STEM stem)
        add_executable(example_${stem} ${file})
        switchyard_program(example_${stem})
        target_link_libraries(example_${stem} PRIVATE switchyard m Threads::Threads)
        add_test(NAME example_${stem} COMMAND example_${stem})
        set_tests_properties(example_${stem} PROPERTIES LABELS example TIMEOUT ${watchdog_seconds})
    endforeach()
    # A language model on the operators, alone and with a process per device. Its sums have a fixed order, which contraction
    # would change. The command line has looked for jansson.
    if(SWITCHYARD_CLI)
        set(page ${CMAKE_CURRENT_BINARY_DIR}/page_html.c)
        add_custom_command(OUTPUT ${page} DEPENDS examples/moe_lm/support/page.html ${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake
                           COMMAND ${CMAKE_COMMAND} -D IN=${PROJECT_SOURCE_DIR}/examples/moe_lm/support/page.html -D OUT=${page}
                                   -D NAME=page_html -D HEADER=lm.h -P ${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake
                           COMMENT "Embedding examples/moe_lm/support/page.html" VERBATIM)
        file(GLOB files CONFIGURE_DEPENDS examples/moe_lm/*.c examples/moe_lm/support/*.c)
        set(programs moe_lm)
        if(TARGET switchyard_mpi)
            list(APPEND programs moe_lm_mpi)
        endif()
        foreach(program IN LISTS programs)
            add_executable(${program} ${files} ${page})
            switchyard_program(${program})
            target_compile_options(${program} PRIVATE -O3)
            target_compile_definitions(${program} PRIVATE WITH_PAGE)
            target_include_directories(${program} PRIVATE examples/moe_lm ${JANSSON_INCLUDE_DIR})
            target_link_libraries(${program} PRIVATE switchyard ${JANSSON_LIBRARY} m)
            if(OpenMP_C_FOUND)
                target_link_libraries(${program} PRIVATE OpenMP::OpenMP_C)
            endif()
            if(SWITCHYARD_HAS_CBLAS)
                target_compile_definitions(${program} PRIVATE WITH_CBLAS)
                target_include_directories(${program} SYSTEM PRIVATE ${CBLAS_INCLUDE_DIR})
                target_link_libraries(${program} PRIVATE ${CBLAS_LIBRARY})
            endif()
        endforeach()
        if(TARGET moe_lm_mpi)
            set_target_properties(moe_lm_mpi PROPERTIES OUTPUT_NAME moe_lm-mpi)
            target_compile_definitions(moe_lm_mpi PRIVATE WITH_MPI)
            target_link_libraries(moe_lm_mpi PRIVATE switchyard_mpi)
            add_dependencies(moe_lm_mpi moe_lm) # both compile the page, which one of them makes
        endif()
    endif()
    # Programs in the vendors' style: examples/compat/<layer>_<name>.c or .cpp, which include only the layer's headers.
    foreach(layer IN LISTS switchyard_layers)
        file(GLOB files CONFIGURE_DEPENDS examples/compat/${layer}_*.c)
        if(CMAKE_CXX_COMPILER)
            file(GLOB cxx_files CONFIGURE_DEPENDS examples/compat/${layer}_*.cpp)
            list(APPEND files ${cxx_files})
        endif()
        foreach(file IN LISTS files)
            cmake_path(GET file STEM stem)
            add_executable(example_${stem} ${file})
            if(file MATCHES "cpp$")
                switchyard_cxx_program(example_${stem})
            else()
                switchyard_program(example_${stem})
            endif()
            target_link_libraries(example_${stem} PRIVATE switchyard_${layer})
            add_test(NAME example_${stem} COMMAND example_${stem})
            set_tests_properties(example_${stem} PROPERTIES LABELS example TIMEOUT ${watchdog_seconds})
        endforeach()
    endforeach()
    # The same program with one process per device.
    if(TARGET switchyard_mpi)
        add_executable(example_expert_parallel_mpi examples/expert_parallel.c)
        switchyard_program(example_expert_parallel_mpi)
        target_compile_definitions(example_expert_parallel_mpi PRIVATE WITH_MPI)
        target_link_libraries(example_expert_parallel_mpi PRIVATE switchyard_mpi)
    endif()
    if(TARGET example_expert_parallel_mpi AND Python3_Interpreter_FOUND)
        add_test(NAME example_expert_parallel_mpi
                 COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/mpirun.py -n 4 --mpirun ${SWITCHYARD_MPIRUN}
                         $<TARGET_FILE:example_expert_parallel_mpi>)
        set_tests_properties(example_expert_parallel_mpi PROPERTIES LABELS example TIMEOUT ${watchdog_seconds})
    endif()
    if(SWITCHYARD_HAS_CBLAS)
        target_include_directories(example_moe_layer SYSTEM PRIVATE ${CBLAS_INCLUDE_DIR})
        target_link_libraries(example_moe_layer PRIVATE ${CBLAS_LIBRARY})
        # Its matrices are small, and the sanitizers do not know threads that the BLAS starts.
        set_tests_properties(example_moe_layer PROPERTIES ENVIRONMENT "OPENBLAS_NUM_THREADS=1;BLIS_NUM_THREADS=1")
    endif()
endif()

if(SWITCHYARD_TESTS AND Python3_Interpreter_FOUND)
    set(python_env SWITCHYARD_SOURCE=${PROJECT_SOURCE_DIR} SWITCHYARD_BUILD=${PROJECT_BINARY_DIR}
        SWITCHYARD_CC=${CMAKE_C_COMPILER})
    if(TARGET switchyard_mpi)
        list(APPEND python_env "SWITCHYARD_MPI_NAME=${SWITCHYARD_MPI_NAME}" SWITCHYARD_MPI_C_COMPILER=${MPI_C_COMPILER}
             SWITCHYARD_MPIRUN=${SWITCHYARD_MPIRUN})
    endif()
    if(TARGET switchyard_cuda_emulated)
        list(APPEND python_env SWITCHYARD_EMULATED_CUDA=$<TARGET_FILE:switchyard_cuda_emulated>)
    endif()
    if(TARGET switchyard_cli)
        file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} tests/cli/test_*.py)
        foreach(file IN LISTS files)
            switchyard_py_test(${file} cli ${python_env} SWITCHYARD_CLI=$<TARGET_FILE:switchyard_cli>)
        endforeach()
    endif()
    if(TARGET moe_lm AND NOT CMAKE_CROSSCOMPILING)
        set(moe_lm_mpi "")
        if(TARGET moe_lm_mpi)
            set(moe_lm_mpi SWITCHYARD_MOE_LM_MPI=$<TARGET_FILE:moe_lm_mpi> SWITCHYARD_MPIRUN=${SWITCHYARD_MPIRUN})
        endif()
        switchyard_py_test(tests/moe_lm/test_moe_lm.py example SWITCHYARD_MOE_LM=$<TARGET_FILE:moe_lm> ${moe_lm_mpi})
    endif()
    set(cuda_shared "")
    if(TARGET switchyard_cuda)
        set(cuda_shared SWITCHYARD_CUDA_SHARED=$<TARGET_FILE:switchyard_cuda>)
    endif()
    switchyard_py_test(tests/cuda/test_registers.py cuda ${cuda_shared}) # skipped where the library was not built
    # Checks of exports and symbols are valid only for a library built without sanitizers.
    if(NOT SWITCHYARD_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
        list(APPEND python_env SWITCHYARD_SHARED=$<TARGET_FILE:switchyard> SWITCHYARD_STATIC=$<TARGET_FILE:switchyard_static>
             SWITCHYARD_BITS=$<TARGET_FILE:bits> SWITCHYARD_CONFIG=$<CONFIG>)
        if(TARGET switchyard_mpi)
            list(JOIN MPI_C_INCLUDE_DIRS ":" mpi_includes)
            list(APPEND python_env SWITCHYARD_MPI_SHARED=$<TARGET_FILE:switchyard_mpi> SWITCHYARD_MPI_INCLUDES=${mpi_includes}
                 SWITCHYARD_MPI_OBJECTS=$<JOIN:$<TARGET_OBJECTS:switchyard_mpi_objects>,:>)
        endif()
        if(TARGET switchyard_nccl)
            list(APPEND python_env SWITCHYARD_NCCL_SHARED=$<TARGET_FILE:switchyard_nccl>
                 SWITCHYARD_NCCL_OBJECTS=$<JOIN:$<TARGET_OBJECTS:switchyard_nccl_objects>,:>)
        endif()
        foreach(layer IN LISTS switchyard_layers)
            string(TOUPPER ${layer} upper)
            list(APPEND python_env SWITCHYARD_COMPAT_${upper}=$<TARGET_FILE:switchyard_${layer}>
                 SWITCHYARD_COMPAT_${upper}_OBJECTS=$<JOIN:$<TARGET_OBJECTS:switchyard_${layer}_objects>,:>)
        endforeach()
        if(SWITCHYARD_HAS_CBLAS)
            list(APPEND python_env SWITCHYARD_CBLAS=${CBLAS_LIBRARY} SWITCHYARD_CBLAS_INCLUDE=${CBLAS_INCLUDE_DIR})
        endif()
        file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
             tests/lint/test_*.py tests/bits/test_*.py tests/abi/test_*.py tests/consumer/test_*.py)
        foreach(file IN LISTS files)
            cmake_path(GET file PARENT_PATH folder)
            cmake_path(GET folder FILENAME label)
            switchyard_py_test(${file} ${label} ${python_env})
        endforeach()

        if(TARGET switchyard_cuda_emulated AND TARGET bits_device)
            add_test(NAME cuda_bits COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/tap.py
                                            ${PROJECT_SOURCE_DIR}/tests/bits/test_bits.py)
            set_tests_properties(cuda_bits PROPERTIES LABELS cuda TIMEOUT ${watchdog_seconds} ENVIRONMENT
                "SWITCHYARD_BITS=$<TARGET_FILE:bits_device>;SWITCHYARD_BITS_OF=${PROJECT_SOURCE_DIR}/src/cuda/backend.cuh;${emulated}")
        endif()

        # The Python package as `make python` installed it, a test per file.
        file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} python/tests/test_*.py)
        foreach(file IN LISTS files)
            string(MAKE_C_IDENTIFIER ${file} name)
            string(REGEX REPLACE "^python_tests_(.*)_py$" "\\1" name ${name})
            string(REPLACE "test_" "" name ${name})
            switchyard_pytest(python_${name} ${PROJECT_SOURCE_DIR}/${file})
            if(TARGET switchyard_cuda_emulated)
                set_tests_properties(python_${name} PROPERTIES
                                     ENVIRONMENT SWITCHYARD_EMULATED_CUDA=$<TARGET_FILE:switchyard_cuda_emulated>)
            endif()
        endforeach()
    endif()
endif()

# Begun first, so that none of the longest is still running when all others have ended.
foreach(name cli_test_all_to_all_bad comm_collective comm_exchange comm_schedule cuda_bits cuda_examples_sample
             cuda_examples_sample_132 op_ctx_threads op_sample_shortcuts python_examples python_jax python_jax_examples
             python_mpi_mpi python_pytorch_compile python_pytorch_jax_gradients)
    if(TEST ${name})
        set_tests_properties(${name} PROPERTIES COST 1)
    endif()
endforeach()

if(SWITCHYARD_FUZZ)
    if(NOT CMAKE_C_COMPILER_ID MATCHES Clang)
        message(FATAL_ERROR "SWITCHYARD_FUZZ needs clang: cmake --preset fuzz")
    endif()
    file(GLOB files CONFIGURE_DEPENDS tests/fuzz/*.c)
    list(FILTER files EXCLUDE REGEX "_[a-z]+\\.c$") # x_part.c belongs to x.c
    foreach(file IN LISTS files)
        cmake_path(GET file STEM stem)
        file(GLOB parts CONFIGURE_DEPENDS tests/fuzz/${stem}_*.c)
        add_executable(fuzz_${stem} ${file} ${parts})
        switchyard_program(fuzz_${stem})
        target_compile_options(fuzz_${stem} PRIVATE -fsanitize=fuzzer)
        target_link_options(fuzz_${stem} PRIVATE -fsanitize=fuzzer)
        target_include_directories(fuzz_${stem} PRIVATE src)
        target_link_libraries(fuzz_${stem} PRIVATE switchyard_cli_parts switchyard_static)
    endforeach()
endif()
