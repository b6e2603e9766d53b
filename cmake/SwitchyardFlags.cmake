# Compiler flags, in one place. Results are defined to the bit: no contraction into fma, no fast-math.
include(CheckCCompilerFlag)
include(CheckLinkerFlag)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)

set(switchyard_warnings -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
                        -Wpointer-arith -Wwrite-strings -Wundef -Wformat=2 -Wno-format-nonliteral)
# The library only: every conversion that can lose a value is written out.
set(switchyard_strict_warnings -Wconversion -Wcast-qual)

set(switchyard_hardening "")
set(switchyard_hardening_link "")
if(SWITCHYARD_HARDENING AND NOT SWITCHYARD_SANITIZE)
    set(CMAKE_REQUIRED_FLAGS -Werror) # clang only warns about a flag it does not use
    foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection -mbranch-protection=standard)
        string(MAKE_C_IDENTIFIER "SWITCHYARD_HAS${flag}" result)
        check_c_compiler_flag(${flag} ${result}) # the last two exist on one architecture each
        if(${result})
            list(APPEND switchyard_hardening ${flag})
        endif()
    endforeach()
    unset(CMAKE_REQUIRED_FLAGS)
    list(APPEND switchyard_hardening "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
    foreach(flag -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,-z,defs)
        string(MAKE_C_IDENTIFIER "SWITCHYARD_HAS${flag}" result)
        check_linker_flag(C ${flag} ${result})
        if(${result})
            list(APPEND switchyard_hardening_link ${flag})
        endif()
    endforeach()
endif()

set(switchyard_sanitize "")
if(SWITCHYARD_SANITIZE)
    set(switchyard_sanitize -fsanitize=${SWITCHYARD_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
    if(SWITCHYARD_FUZZ)
        list(APPEND switchyard_sanitize -fsanitize=fuzzer-no-link)
    endif()
endif()

function(switchyard_defaults target)
    set_target_properties(${target} PROPERTIES C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
                          C_VISIBILITY_PRESET hidden POSITION_INDEPENDENT_CODE ON)
    target_compile_options(${target} PRIVATE -ffp-contract=off -fno-fast-math ${switchyard_warnings}
                           $<$<BOOL:${SWITCHYARD_WERROR}>:-Werror> ${switchyard_hardening} ${switchyard_sanitize})
    # C11 without GNU extensions still needs the POSIX names (clock_gettime, getpid, mkstemp).
    target_compile_definitions(${target} PRIVATE _POSIX_C_SOURCE=200809L)
endfunction()

function(switchyard_link_hardening target)
    target_link_options(${target} PRIVATE ${switchyard_hardening_link} ${switchyard_sanitize})
endfunction()

# A program of ours: the defaults, and the link flags.
function(switchyard_program target)
    switchyard_defaults(${target})
    switchyard_link_hardening(${target})
endfunction()

# An example in a vendor's style: C++11, and the warnings of C++.
function(switchyard_cxx_program target)
    set_target_properties(${target} PROPERTIES CXX_STANDARD 11 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF)
    target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -Wshadow $<$<BOOL:${SWITCHYARD_WERROR}>:-Werror>
                           ${switchyard_sanitize})
    target_link_options(${target} PRIVATE ${switchyard_sanitize})
endfunction()

# A shared library exports only the names listed in the map file.
function(switchyard_export_only target map)
    set(map ${CMAKE_CURRENT_SOURCE_DIR}/${map})
    target_link_options(${target} PRIVATE -Wl,--version-script=${map})
    set_target_properties(${target} PROPERTIES LINK_DEPENDS ${map})
endfunction()

# A text file as a C array in a source, which is appended to the list `sources`: the program is a single file.
function(switchyard_embed sources file name header)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.c)
    set(script ${PROJECT_SOURCE_DIR}/cmake/EmbedText.cmake)
    add_custom_command(OUTPUT ${source} DEPENDS ${PROJECT_SOURCE_DIR}/${file} ${script} COMMENT "Embedding ${file}" VERBATIM
                       COMMAND ${CMAKE_COMMAND} -D IN=${PROJECT_SOURCE_DIR}/${file} -D OUT=${source} -D NAME=${name}
                               -D HEADER=${header} -P ${script})
    set(${sources} ${${sources}} ${source} PARENT_SCOPE)
endfunction()

# A library beside the library, switchyard_<name>: it uses the public headers and symbols, nothing inside. Its objects are linked with
# the libraries of ARGN, which its users see too. The version script is <folder>/switchyard_<name>.map.
function(switchyard_beside name folder)
    set(target switchyard_${name})
    file(GLOB sources CONFIGURE_DEPENDS ${folder}/*.c)
    set(common "")
    if(folder MATCHES "^transports/")
        file(GLOB common CONFIGURE_DEPENDS transports/common/*.c)
    endif()
    add_library(${target}_objects OBJECT ${common} ${sources})
    switchyard_defaults(${target}_objects)
    target_compile_options(${target}_objects PRIVATE ${switchyard_strict_warnings})
    target_include_directories(${target}_objects PRIVATE include)
    target_link_libraries(${target}_objects PRIVATE ${ARGN})

    add_library(${target} SHARED $<TARGET_OBJECTS:${target}_objects>)
    add_library(switchyard::${name} ALIAS ${target})
    set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} LINKER_LANGUAGE C EXPORT_NAME ${name}
                          SOVERSION ${SY_VERSION_ABI} INSTALL_RPATH "$ORIGIN")
    switchyard_link_hardening(${target})
    switchyard_export_only(${target} ${folder}/${target}.map)
endfunction()
