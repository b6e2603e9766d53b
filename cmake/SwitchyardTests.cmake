# Tests. Every executable and every Python file is one CTest test with its folder as label; scripts/run_tests.py runs
# the same list and counts single tests. The timeouts are watchdogs against a hang, nothing is measured by them.
set(watchdog_seconds 900)

# A C test: linked with the static library, so that tests of the inside reach syi_ names.
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
    file(GLOB support_sources CONFIGURE_DEPENDS tests/support*.c tests/mesh_*.c tests/oracle/*.c
         tests/comm/threads_*.c)
    add_library(switchyard_test_support STATIC ${support_sources})
    switchyard_defaults(switchyard_test_support)
    target_include_directories(switchyard_test_support PUBLIC tests SYSTEM PUBLIC ${CMOCKA_INCLUDE_DIR})
    target_link_libraries(switchyard_test_support PUBLIC switchyard_static ${CMOCKA_LIBRARY} m Threads::Threads)
    foreach(room op bad fault isa comm)
        file(GLOB files CONFIGURE_DEPENDS tests/${room}/*.c)
        list(FILTER files EXCLUDE REGEX "/threads_[a-z]+\\.c$")
        foreach(file IN LISTS files)
            cmake_path(GET file STEM stem)
            switchyard_c_test(${room}_${stem} ${room} ${file})
            target_link_libraries(${room}_${stem} PRIVATE switchyard_test_support)
        endforeach()
    endforeach()
endif()

# Programs of several processes: tests/mpi/<name>.c, run with as many as are listed. Each of them is a test of its own.
function(switchyard_mpi_test name)
    add_executable(mpi_${name} tests/mpi/${name}.c $<TARGET_OBJECTS:switchyard_mpi_objects>)
    switchyard_program(mpi_${name})
    target_include_directories(mpi_${name} PRIVATE tests ${PROJECT_SOURCE_DIR})
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

if(SWITCHYARD_TESTS AND TARGET switchyard_mpi AND TARGET switchyard_test_support AND Python3_Interpreter_FOUND)
    add_custom_target(mpi_tests)
    add_library(switchyard_mpi_ranks STATIC tests/mpi/ranks.c tests/mpi/transport_support.c)
    switchyard_defaults(switchyard_mpi_ranks)
    target_include_directories(switchyard_mpi_ranks PRIVATE tests ${PROJECT_SOURCE_DIR})
    target_link_libraries(switchyard_mpi_ranks PUBLIC switchyard_test_support MPI::MPI_C)
    switchyard_mpi_test(transport 1 2 3 4 6 8)
    switchyard_mpi_test(create 1 2 3 4 6 8)
    switchyard_mpi_test(init 1 3)
    switchyard_mpi_test(all_to_all 1 2 3 4 6 8)
    switchyard_mpi_test(refusals 2)
    switchyard_mpi_test(killed) # run by the next one
    switchyard_py_test(tests/mpi/test_killed.py mpi SWITCHYARD_MPIRUN=${SWITCHYARD_MPIRUN}
                       SWITCHYARD_MPI_KILLED=$<TARGET_FILE:mpi_killed>)
elseif(SWITCHYARD_TESTS AND Python3_Interpreter_FOUND) # said in the report, too
    add_test(NAME mpi COMMAND Python3::Interpreter -c "print('1..1\\nok 1 - tests/mpi # SKIP libswitchyard_mpi was not built')")
    set_tests_properties(mpi PROPERTIES LABELS mpi)
endif()

# Programs that need neither cmocka nor jansson, so that they run on a foreign architecture too.
if(SWITCHYARD_TESTS)
    file(GLOB files CONFIGURE_DEPENDS tests/bits/*.c)
    add_executable(bits ${files})
    switchyard_program(bits)
    target_link_libraries(bits PRIVATE switchyard)
endif()

if(SWITCHYARD_EXAMPLES)
    file(GLOB files CONFIGURE_DEPENDS examples/*.c)
    if(NOT SWITCHYARD_HAS_CBLAS)
        list(FILTER files EXCLUDE REGEX "/moe_layer\\.c$")
    endif()
    foreach(file IN LISTS files)
        cmake_path(GET file STEM stem)
        add_executable(example_${stem} ${file})
        switchyard_program(example_${stem})
        target_link_libraries(example_${stem} PRIVATE switchyard m)
        add_test(NAME example_${stem} COMMAND example_${stem})
        set_tests_properties(example_${stem} PROPERTIES LABELS example TIMEOUT ${watchdog_seconds})
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
        # Its matrices are small, and threads the BLAS would start are none a sanitizer has seen.
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
    if(TARGET switchyard_cli)
        file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} tests/cli/test_*.py)
        foreach(file IN LISTS files)
            switchyard_py_test(${file} cli ${python_env} SWITCHYARD_CLI=$<TARGET_FILE:switchyard_cli>)
        endforeach()
    endif()
    # What the built library looks like from outside makes sense only without sanitizers in it.
    if(NOT SWITCHYARD_SANITIZE AND NOT CMAKE_CROSSCOMPILING)
        list(APPEND python_env SWITCHYARD_SHARED=$<TARGET_FILE:switchyard> SWITCHYARD_STATIC=$<TARGET_FILE:switchyard_static>
             SWITCHYARD_BITS=$<TARGET_FILE:bits> SWITCHYARD_DLPACK=${DLPACK_INCLUDE_DIR} SWITCHYARD_CONFIG=$<CONFIG>)
        if(TARGET switchyard_mpi)
            list(JOIN MPI_C_INCLUDE_DIRS ":" mpi_includes)
            list(APPEND python_env SWITCHYARD_MPI_SHARED=$<TARGET_FILE:switchyard_mpi> SWITCHYARD_MPI_INCLUDES=${mpi_includes}
                 SWITCHYARD_MPI_OBJECTS=$<JOIN:$<TARGET_OBJECTS:switchyard_mpi_objects>,:>)
        endif()
        if(SWITCHYARD_HAS_CBLAS)
            list(APPEND python_env SWITCHYARD_CBLAS=${CBLAS_LIBRARY} SWITCHYARD_CBLAS_INCLUDE=${CBLAS_INCLUDE_DIR})
        endif()
        file(GLOB files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
             tests/lint/test_*.py tests/bits/test_*.py tests/abi/test_*.py tests/consumer/test_*.py)
        foreach(file IN LISTS files)
            cmake_path(GET file PARENT_PATH folder)
            cmake_path(GET folder FILENAME room)
            switchyard_py_test(${file} ${room} ${python_env})
        endforeach()

        # The Python package as `make python` installed it, a test per file.
        file(GLOB_RECURSE files CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} python/tests/test_*.py)
        foreach(file IN LISTS files)
            string(MAKE_C_IDENTIFIER ${file} name)
            string(REGEX REPLACE "^python_tests_(.*)_py$" "\\1" name ${name})
            string(REPLACE "test_" "" name ${name})
            switchyard_pytest(python_${name} ${PROJECT_SOURCE_DIR}/${file})
        endforeach()
    endif()
endif()

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
