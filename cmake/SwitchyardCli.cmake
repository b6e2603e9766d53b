# The command line: cli/ and the bench and demo commands of bench/. Everything but cli/main is a library of its own, so that
# the fuzz targets can reach the file reader.
file(GLOB cli_sources CONFIGURE_DEPENDS cli/*.c)
file(GLOB example_files CONFIGURE_DEPENDS tests/examples/*.txt)
set(example_source ${CMAKE_CURRENT_BINARY_DIR}/op_examples.c)
add_custom_command(OUTPUT ${example_source} DEPENDS ${example_files} ${PROJECT_SOURCE_DIR}/cmake/EmbedExamples.cmake
                   COMMAND ${CMAKE_COMMAND} -D FOLDER=${PROJECT_SOURCE_DIR}/tests/examples -D OUT=${example_source}
                           -D HEADER=ops.h -P ${PROJECT_SOURCE_DIR}/cmake/EmbedExamples.cmake
                   COMMENT "Embedding tests/examples" VERBATIM)
list(APPEND cli_sources ${example_source})
switchyard_embed(cli_sources cli/help.txt help_text cli/cli.h)
if(SWITCHYARD_BENCH)
    file(GLOB bench_sources CONFIGURE_DEPENDS bench/*.c)
    # The list of benchmarks, in the order of their files.
    set(bench_list "#define BENCH_OPS(X)")
    foreach(source IN LISTS bench_sources)
        file(STRINGS ${source} lines REGEX "^BENCH_OP[(]")
        foreach(line IN LISTS lines)
            string(REGEX REPLACE "BENCH_OP[(]([a-z0-9_]+),.*" "X(\\1)" line "${line}")
            string(APPEND bench_list " \\\n    ${line}")
        endforeach()
    endforeach()
    file(CONFIGURE OUTPUT bench/bench_list.h CONTENT "/* Made by the build. */\n@bench_list@\n" @ONLY)
    switchyard_embed(bench_sources bench/peers.py bench_peers_py bench/report.h)
    switchyard_embed(bench_sources bench/demo.css demo_style bench/demo.h)
endif()

add_library(switchyard_cli_parts STATIC ${cli_sources} ${bench_sources})
switchyard_defaults(switchyard_cli_parts)
target_include_directories(switchyard_cli_parts PUBLIC ${PROJECT_SOURCE_DIR}/cli ${PROJECT_SOURCE_DIR}/bench
                                                       ${PROJECT_SOURCE_DIR} ${JANSSON_INCLUDE_DIR}
                           PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/bench
                                   $<TARGET_PROPERTY:switchyard,INTERFACE_INCLUDE_DIRECTORIES>)
target_compile_definitions(switchyard_cli_parts PUBLIC SWITCHYARD_BENCH=$<BOOL:${SWITCHYARD_BENCH}>)
if(TARGET switchyard_mpi)
    target_compile_definitions(switchyard_cli_parts PRIVATE SWITCHYARD_MPI_NAME="${SWITCHYARD_MPI_NAME}")
endif()
target_link_libraries(switchyard_cli_parts PUBLIC ${JANSSON_LIBRARY} m ${CMAKE_DL_LIBS}) # the program links shared or static

add_executable(switchyard_cli cli/main/switchyard.c cli/main/more.c)
switchyard_program(switchyard_cli)
target_link_libraries(switchyard_cli PRIVATE switchyard_cli_parts switchyard)
file(RELATIVE_PATH lib_from_bin /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
set_target_properties(switchyard_cli PROPERTIES OUTPUT_NAME switchyard INSTALL_RPATH "$ORIGIN/${lib_from_bin}")

# The same program with MPI: the other one executes it under mpirun, and needs no MPI otherwise.
if(TARGET switchyard_mpi)
    if(SWITCHYARD_BENCH)
        file(GLOB bench_mpi_sources CONFIGURE_DEPENDS bench/mpi/*.c)
    endif()
    add_executable(switchyard_cli_mpi cli/main/switchyard_mpi.c cli/main/more.c ${bench_mpi_sources})
    switchyard_program(switchyard_cli_mpi)
    target_link_libraries(switchyard_cli_mpi PRIVATE switchyard_cli_parts switchyard_mpi)
    set_target_properties(switchyard_cli_mpi PROPERTIES OUTPUT_NAME switchyard-mpi
                                                        INSTALL_RPATH "$ORIGIN/${lib_from_bin}")
endif()

# Man pages: scripts/reference.py asks the program that was just built.
find_package(Python3 COMPONENTS Interpreter QUIET)
if(Python3_Interpreter_FOUND AND PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CROSSCOMPILING AND NOT SWITCHYARD_SANITIZE AND NOT SWITCHYARD_PYTHON)
    file(GLOB pages CONFIGURE_DEPENDS docs/ops/*.md python/switchyard/ops/*.py)
    add_custom_command(OUTPUT man.stamp COMMAND Python3::Interpreter ${PROJECT_SOURCE_DIR}/scripts/reference.py
                                                $<TARGET_FILE:switchyard_cli> ${PROJECT_BINARY_DIR}/man
                       COMMAND ${CMAKE_COMMAND} -E touch man.stamp
                       DEPENDS switchyard_cli scripts/reference.py include/switchyard.h ${pages}
                       COMMENT "Writing man pages" VERBATIM)
    add_custom_target(switchyard_man ALL DEPENDS man.stamp)
    install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR} OPTIONAL)
endif()
if(PROJECT_IS_TOP_LEVEL)
    install(FILES cli/complete/switchyard.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME switchyard)
    install(FILES cli/complete/_switchyard DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
    install(FILES cli/complete/switchyard.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
endif()
