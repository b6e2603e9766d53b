# The front doors: libraries that speak another vendor's API over the public header of ours, nothing inside it.
# compat/<door> holds the sources, its version script, and in include/ the vendor's header names.

function(switchyard_door door)
    set(target switchyard_${door})
    file(GLOB sources CONFIGURE_DEPENDS compat/${door}/*.c)
    add_library(${target}_objects OBJECT ${sources})
    switchyard_defaults(${target}_objects)
    target_compile_options(${target}_objects PRIVATE ${switchyard_strict_warnings})
    target_include_directories(${target}_objects PRIVATE compat/${door}/include include)

    add_library(${target} SHARED $<TARGET_OBJECTS:${target}_objects>)
    add_library(switchyard::${door} ALIAS ${target})
    set_target_properties(${target} PROPERTIES VERSION ${PROJECT_VERSION} LINKER_LANGUAGE C EXPORT_NAME ${door}
                          SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR} INSTALL_RPATH "$ORIGIN")
    # A folder of its own: the vendor's header names must not meet the vendor's headers.
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/compat/${door}/include>
                                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/switchyard/${door}>)
    target_link_libraries(${target} PRIVATE switchyard)
    switchyard_link_hardening(${target})
    switchyard_export_only(${target} compat/${door}/${target}.map)
    set(switchyard_doors ${switchyard_doors} ${door} PARENT_SCOPE)
    set(switchyard_${door}_vendor ${ARGN} PARENT_SCOPE)
endfunction()

# Vendor programs are C++: our examples in their style need a C++ compiler, the doors themselves do not.
if(SWITCHYARD_EXAMPLES)
    include(CheckLanguage)
    check_language(CXX)
    if(CMAKE_CXX_COMPILER)
        enable_language(CXX)
    else()
        switchyard_missing("a C++ compiler" "examples/compat/*.cpp are not built" setup g++ SWITCHYARD_EXAMPLES)
    endif()
endif()

set(switchyard_doors "")
if(EXISTS ${PROJECT_SOURCE_DIR}/compat/aclnn)
    switchyard_door(aclnn "Ascend's aclnn")
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/compat/mluop)
    switchyard_door(mluop "Cambricon's MLU-OPS")
endif()
list(JOIN switchyard_doors " " line)
list(APPEND switchyard_summary "  doors     ${line}")
