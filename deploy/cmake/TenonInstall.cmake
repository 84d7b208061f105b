# What `cmake --install BUILD --prefix P` puts where:
#   bin/                         tenond, tenon
#   lib/                         the client library and what it stands on, static
#   lib/cmake/tenon/             find_package(tenon CONFIG): tenon::client
#   include/tenon-cpp/           its headers: tenon/tenon.h first
#   share/tenon/proto/           the wire contract, for stubs of any language
#   share/bash-completion/, share/zsh/, share/fish/   completion of the command
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(headers ${CMAKE_INSTALL_INCLUDEDIR}/tenon-cpp)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/tenon)

install(TARGETS tenond tenon RUNTIME)

# The targets keep their names, by which tests/fuzz knows them, too; tenon::client is an alias.
install(TARGETS tenon_options tenon_plugin_abi tenon_core tenon_proto tenon_client
        EXPORT tenonTargets ARCHIVE INCLUDES DESTINATION ${headers})
install(EXPORT tenonTargets NAMESPACE tenon:: DESTINATION ${package})

configure_package_config_file(deploy/cmake/tenonConfig.cmake.in
  ${PROJECT_BINARY_DIR}/tenonConfig.cmake INSTALL_DESTINATION ${package}
  NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tenonConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tenonConfig.cmake
              ${PROJECT_BINARY_DIR}/tenonConfigVersion.cmake DESTINATION ${package})

install(DIRECTORY client/cpp/include/ DESTINATION ${headers} FILES_MATCHING PATTERN "*.h")
# What the public headers include of the engine, and .npy files.
install(FILES backends/core/dtype.h backends/core/error.h backends/core/memory.h
              backends/core/network.h backends/core/npy.h backends/core/strings.h
              backends/core/tensor.h DESTINATION ${headers}/backends/core)
install(DIRECTORY ${PROJECT_BINARY_DIR}/proto/generated/ DESTINATION ${headers}
        FILES_MATCHING PATTERN "*.pb.h" PATTERN "*.grpc.pb.h" EXCLUDE)
install(DIRECTORY proto/ DESTINATION ${CMAKE_INSTALL_DATADIR}/tenon/proto
        FILES_MATCHING PATTERN "*.proto")

# The command prints its own completion, so that it fits what is installed.
set(completions ${PROJECT_BINARY_DIR}/completions)
file(MAKE_DIRECTORY ${completions})
foreach(shell bash zsh fish)
  add_custom_command(OUTPUT ${completions}/tenon.${shell}
    COMMAND tenon completion ${shell} > ${completions}/tenon.${shell} DEPENDS tenon VERBATIM)
  list(APPEND completion_files ${completions}/tenon.${shell})
endforeach()
add_custom_target(tenon_completions ALL DEPENDS ${completion_files})
install(FILES ${completions}/tenon.bash RENAME tenon
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${completions}/tenon.zsh RENAME _tenon
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES ${completions}/tenon.fish
        DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
