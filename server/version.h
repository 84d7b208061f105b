// What was built: told by --version, GetServerInfo, the first line of the log and
// tenon_build_info.

#ifndef TENON_SERVER_VERSION_H_
#define TENON_SERVER_VERSION_H_

#include <string>
#include <vector>

namespace tenon::server {

struct BuildDescription {
  std::string version;             // "0.1.0"
  std::string commit;              // hexadecimal, "-dirty" behind it when changed; may be empty
  std::string type;                // "Release"
  std::string compiler;            // "GNU 12.2.0"
  std::vector<std::string> flags;  // those that matter for results and speed
  std::vector<std::string> sanitizers;
  std::string grpc_version;
  std::string protobuf_version;
  bool cuda = false;  // the CUDA provider was built
};

const BuildDescription& Build();

// "tenond 0.1.0 (commit 1a2b3c, Release, GNU 12.2.0, gRPC 1.51.1)".
std::string VersionLine();

}  // namespace tenon::server

#endif  // TENON_SERVER_VERSION_H_
