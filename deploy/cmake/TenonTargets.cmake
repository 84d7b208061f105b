# tenon_library(<room> SOURCES ... ROOMS ... [PUBLIC ...] [PRIVATE ...] [MAY_INCLUDE ...])
#
# One static library per room (folder), named tenon_<room>. ROOMS are the other rooms it uses, by
# target; PUBLIC and PRIVATE are libraries of the system. Two checks keep dependencies one way:
#   - the table below says which rooms a room may use at all; asking for another one is an error;
#   - deploy/cmake/check_includes.py (a test) compares every #include with the same table.
set(TENON_ROOM_DEPENDENCIES
    "core:plugin_abi"
    "plugin_abi:"
    "plugin:core,plugin_abi"
    "contraction:core,plugin_abi"
    "planner:core,plugin_abi,contraction"
    "measurement:core,plugin_abi,plugin"
    "schedule:core,plugin_abi,plugin,contraction"
    "cpu:core,plugin_abi,plugin,contraction,measurement"
    "cuda:core,plugin_abi,contraction,measurement"
    "proto:"
    "server:core,plugin_abi,plugin,contraction,planner,measurement,schedule,cpu,proto"
    "client:core,proto")

add_library(tenon_options INTERFACE)
target_compile_features(tenon_options INTERFACE cxx_std_20)
# Programs that use an installed library have warnings and paths of their own.
# -Wrestrict of GCC 12 is wrong about std::string at -O3.
target_compile_options(tenon_options INTERFACE
                       "$<BUILD_INTERFACE:-Wall;-Wextra;-Werror;-Wno-restrict>")
target_include_directories(tenon_options INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
if(TENON_SANITIZE STREQUAL "address")
  target_compile_options(tenon_options INTERFACE -g1 -O1 -fno-omit-frame-pointer
                         -fsanitize=address,undefined -fno-sanitize-recover=undefined)
  target_link_options(tenon_options INTERFACE -fsanitize=address,undefined)
elseif(TENON_SANITIZE STREQUAL "thread")
  target_compile_options(tenon_options INTERFACE -g1 -O1 -fno-omit-frame-pointer -fsanitize=thread)
  target_link_options(tenon_options INTERFACE -fsanitize=thread)
elseif(TENON_SANITIZE)
  message(FATAL_ERROR "TENON_SANITIZE must be address, thread or empty, not '${TENON_SANITIZE}'")
endif()

function(tenon_library room)
  cmake_parse_arguments(ARG "" "" "SOURCES;ROOMS;PUBLIC;PRIVATE" ${ARGN})
  set(allowed "")
  foreach(entry IN LISTS TENON_ROOM_DEPENDENCIES)
    if(entry MATCHES "^${room}:(.*)$")
      string(REPLACE "," ";" allowed "${CMAKE_MATCH_1}")
    endif()
  endforeach()
  foreach(other IN LISTS ARG_ROOMS)
    if(NOT other IN_LIST allowed)
      message(FATAL_ERROR "room '${room}' may not depend on '${other}'")
    endif()
  endforeach()
  list(TRANSFORM ARG_ROOMS PREPEND tenon_)
  add_library(tenon_${room} STATIC ${ARG_SOURCES})
  set_property(GLOBAL APPEND PROPERTY TENON_ROOMS tenon_${room})
  target_link_libraries(tenon_${room} PUBLIC tenon_options ${ARG_ROOMS} ${ARG_PUBLIC}
                        PRIVATE ${ARG_PRIVATE})
endfunction()

# Headers that cost more than most sources that include them; they are compiled once per target, or
# once for many (REUSE_FROM). Sources include what they use all the same: a build with
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON passes too.
set(TENON_SERVICE_HEADERS <grpcpp/grpcpp.h> <tenon/v1/admin.grpc.pb.h>
    <tenon/v1/contraction.grpc.pb.h> <tenon/v1/dataset.grpc.pb.h> <tenon/v1/job.grpc.pb.h>
    <tenon/v1/measurement.grpc.pb.h> <tenon/v1/provider.grpc.pb.h>
    <algorithm> <chrono> <functional> <map> <memory> <optional> <string> <thread> <utility> <vector>
    <absl/status/statusor.h> <absl/strings/str_cat.h>)
set(TENON_TEST_HEADERS <gmock/gmock.h> <gtest/gtest.h>
    <algorithm> <chrono> <complex> <filesystem> <map> <random> <set> <string> <thread> <vector>
    <absl/status/statusor.h>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)  # for ccache
  # GCC forgets which of those headers are the system's, and its doubts about std::string with it.
  set(TENON_PRECOMPILED_OPTIONS -Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread)
endif()
