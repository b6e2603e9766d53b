# The compatibility layers: libraries with another vendor's API over our public header; they use nothing inside src.
# compat/<layer> holds the sources, the version script, and in include/ the vendor's header names.

function(switchyard_layer layer)
    set(target switchyard_${layer})
    switchyard_beside(${layer} compat/${layer})
    target_include_directories(${target}_objects PRIVATE compat/${layer}/include)
    # A folder of its own, so that these headers do not clash with the vendor's.
    target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/compat/${layer}/include>
                                                $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/switchyard/${layer}>)
    target_link_libraries(${target} PRIVATE switchyard)
    set(switchyard_layers ${switchyard_layers} ${layer} PARENT_SCOPE)
    set(switchyard_${layer}_vendor ${ARGN} PARENT_SCOPE)
endfunction()

# Vendor programs are C++: our examples in their style need a C++ compiler, the layers themselves do not.
if(SWITCHYARD_EXAMPLES)
    include(CheckLanguage)
    check_language(CXX)
    if(CMAKE_CXX_COMPILER)
        enable_language(CXX)
    else()
        switchyard_missing("a C++ compiler" "examples/compat/*.cpp are not built" setup g++ SWITCHYARD_EXAMPLES)
    endif()
endif()

set(switchyard_layers "")
if(EXISTS ${PROJECT_SOURCE_DIR}/compat/aclnn)
    switchyard_layer(aclnn "Ascend's aclnn")
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/compat/mluop)
    switchyard_layer(mluop "Cambricon's MLU-OPS")
endif()
list(JOIN switchyard_layers " " line)
list(APPEND switchyard_summary "  layers    ${line}")
