# Libraries of the system, for this project and for tests/fuzz, which links what this one has built.
find_package(Threads REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(TBB CONFIG REQUIRED)
find_package(hwy CONFIG REQUIRED)  # vector kernels, per instruction set
find_package(nlohmann_json CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(OPENBLAS REQUIRED IMPORTED_TARGET openblas)
pkg_check_modules(QHULL REQUIRED IMPORTED_TARGET qhull_r)
if(NOT TENON_SANITIZE)
  find_package(Protobuf REQUIRED)  # MODULE mode: Debian ships no protobuf-config.cmake
  find_package(gRPC CONFIG REQUIRED)
  find_package(prometheus-cpp CONFIG REQUIRED)
  find_package(civetweb CONFIG REQUIRED)
  find_package(spdlog CONFIG REQUIRED)
  pkg_check_modules(SQLITE REQUIRED IMPORTED_TARGET sqlite3)  # the job store
  find_package(OpenSSL REQUIRED)
  find_package(ZLIB REQUIRED)  # .npz files in the command
endif()
