# The Python package: the binding, the library, the command line and, if they are built, the libraries for MPI and CUDA.
# scikit-build-core requests this; python/switchyard is copied unchanged.
find_package(Python 3.10 COMPONENTS Interpreter REQUIRED OPTIONAL_COMPONENTS Development.Module)
if(NOT Python_Development.Module_FOUND)
    message(FATAL_ERROR "switchyard: the Python package needs the headers of Python, and ${Python_EXECUTABLE} has none: "
                        "install them (Debian: apt install python3-dev), or install a wheel")
endif()

# A module of Python's stable ABI: one file for all versions, 3.10 and later.
function(switchyard_binding target name)
    add_library(${target} MODULE ${ARGN})
    switchyard_defaults(${target})
    target_include_directories(${target} PRIVATE include)
    target_include_directories(${target} SYSTEM PRIVATE ${Python_INCLUDE_DIRS})
    target_link_libraries(${target} PRIVATE switchyard)
    set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${name} SUFFIX .abi3.so INSTALL_RPATH "$ORIGIN/lib"
                          BUILD_WITH_INSTALL_RPATH ON)
    set(link ${switchyard_hardening_link})
    list(REMOVE_ITEM link -Wl,-z,defs) # the interpreter has the symbols of Python
    target_link_options(${target} PRIVATE ${link} ${switchyard_sanitize})
    switchyard_export_only(${target} python/binding/binding.map)
endfunction()

# The handlers of switchyard.jax: jaxlib has the header of XLA's C interface. Without it JAX calls back into Python.
set(SWITCHYARD_XLA_INCLUDE "" CACHE PATH "Folder with xla/ffi/api/c_api.h, for switchyard.jax; empty: that of jaxlib")
set(xla_include "${SWITCHYARD_XLA_INCLUDE}")
if(NOT EXISTS "${xla_include}/xla/ffi/api/c_api.h") # jaxlib may come after a first build
    execute_process(COMMAND ${Python_EXECUTABLE} -c "import importlib.util as u; print(*u.find_spec('jaxlib').submodule_search_locations)"
                    OUTPUT_VARIABLE jaxlib OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    set(xla_include "${jaxlib}/include")
endif()

file(GLOB binding_sources CONFIGURE_DEPENDS python/binding/*.c)
switchyard_binding(switchyard_binding _core ${binding_sources})
if(EXISTS "${xla_include}/xla/ffi/api/c_api.h")
    file(GLOB binding_jax_sources CONFIGURE_DEPENDS python/binding/jax/*.c)
    target_sources(switchyard_binding PRIVATE ${binding_jax_sources})
    target_include_directories(switchyard_binding SYSTEM PRIVATE ${xla_include})
    target_compile_definitions(switchyard_binding PRIVATE SWITCHYARD_HAS_JAX)
    list(APPEND switchyard_summary "  JAX       with XLA's handlers, ${xla_include}")
else()
    list(APPEND switchyard_summary "  JAX       by callbacks: jaxlib, which has XLA's header, is not installed here")
endif()
target_compile_definitions(switchyard_binding PRIVATE SWITCHYARD_MPI_NAME="${SWITCHYARD_MPI_NAME}") # "" without MPI
set(binding_targets switchyard_binding)
if(TARGET switchyard_mpi) # a module of its own, so that programs without MpiMesh need no MPI library
    file(GLOB binding_mpi_sources CONFIGURE_DEPENDS python/binding/mpi/*.c)
    switchyard_binding(switchyard_binding_mpi _mpi ${binding_mpi_sources})
    target_link_libraries(switchyard_binding_mpi PRIVATE switchyard_mpi)
    list(APPEND binding_targets switchyard_binding_mpi)
endif()
if(TARGET switchyard_nccl) # likewise
    file(GLOB binding_nccl_sources CONFIGURE_DEPENDS python/binding/nccl/*.c)
    switchyard_binding(switchyard_binding_nccl _nccl ${binding_nccl_sources})
    target_link_libraries(switchyard_binding_nccl PRIVATE switchyard_nccl)
    list(APPEND binding_targets switchyard_binding_nccl)
endif()

# Wheels cannot hold links: one file for each library, with the name that the loader looks for.
set(python_targets switchyard)
foreach(target switchyard_cuda switchyard_mpi switchyard_nccl switchyard_cli switchyard_cli_mpi)
    if(TARGET ${target})
        list(APPEND python_targets ${target})
    endif()
endforeach()
foreach(target IN LISTS python_targets)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)
        set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    else()
        set_target_properties(${target} PROPERTIES VERSION ${SY_VERSION_ABI})
    endif()
endforeach()
install(TARGETS ${python_targets} COMPONENT python
        RUNTIME DESTINATION switchyard/bin
        LIBRARY DESTINATION switchyard/lib NAMELINK_SKIP)
install(TARGETS ${binding_targets} COMPONENT python LIBRARY DESTINATION switchyard)
if(NOT CMAKE_CROSSCOMPILING AND NOT switchyard_sanitize) # types of words, from the descriptions of the library; without them checkers take any word
    install(CODE "execute_process(COMMAND \"${Python_EXECUTABLE}\" \"${CMAKE_CURRENT_SOURCE_DIR}/python/binding/words.py\"
                  \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/switchyard\" COMMAND_ERROR_IS_FATAL ANY)" COMPONENT python)
endif()
add_custom_target(switchyard_python DEPENDS ${python_targets} ${binding_targets})

# Not in the package: a loop around the operators, for python/bench/calls.py.
switchyard_binding(switchyard_python_bench python_bench ${binding_sources} python/bench/repeat.c)
target_compile_definitions(switchyard_python_bench PRIVATE SWITCHYARD_MPI_NAME="${SWITCHYARD_MPI_NAME}")
set_target_properties(switchyard_python_bench PROPERTIES EXCLUDE_FROM_ALL ON INSTALL_RPATH "" BUILD_WITH_INSTALL_RPATH OFF)
