#include "server/version.h"

#include <google/protobuf/stubs/common.h>
#include <grpcpp/grpcpp.h>

#include "absl/strings/str_split.h"
#include "backends/core/strings.h"

// The build defines these for this file only, so that a new commit compiles nothing else again.
#ifndef TENON_VERSION
#define TENON_VERSION "unknown"
#endif
#ifndef TENON_COMMIT
#define TENON_COMMIT ""
#endif
#ifndef TENON_BUILD_TYPE
#define TENON_BUILD_TYPE ""
#endif
#ifndef TENON_COMPILER
#define TENON_COMPILER "C++ " __VERSION__
#endif
#ifndef TENON_BUILD_FLAGS
#define TENON_BUILD_FLAGS ""
#endif

namespace tenon::server {
namespace {

BuildDescription Describe() {
  BuildDescription build;
  build.version = TENON_VERSION;
  build.commit = TENON_COMMIT;
  build.type = TENON_BUILD_TYPE;
  build.compiler = TENON_COMPILER;
  build.flags = absl::StrSplit(TENON_BUILD_FLAGS, ' ', absl::SkipEmpty());
#ifdef __SANITIZE_ADDRESS__
  build.sanitizers.emplace_back("address");
#endif
#ifdef __SANITIZE_THREAD__
  build.sanitizers.emplace_back("thread");
#endif
  build.grpc_version = grpc::Version();
  build.protobuf_version = google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION);
// Not defined anywhere yet: tenond does not load the plug-in that TENON_CUDA=ON builds.
#ifdef TENON_WITH_CUDA
  build.cuda = true;
#endif
  return build;
}

}  // namespace

const BuildDescription& Build() {
  static const BuildDescription* build = new BuildDescription(Describe());
  return *build;
}

std::string VersionLine() {
  const BuildDescription& build = Build();
  return StrCat("tenond ", build.version, " (commit ",
                build.commit.empty() ? "unknown" : build.commit, ", ", build.type, ", ",
                build.compiler, ", gRPC ", build.grpc_version, ")");
}

}  // namespace tenon::server
