// The real server in the test's process, and ways to talk to it.

#ifndef TENON_TESTS_INTEGRATION_TEST_SERVER_H_
#define TENON_TESTS_INTEGRATION_TEST_SERVER_H_

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "google/rpc/status_details.pb.h"
#include "server/config.h"
#include "server/server.h"

namespace tenon::testing {

// A free port, no delays on the way out, and no HTTP endpoint (which takes two seconds to stop).
inline server::Config TestConfig() {
  server::Config config = *server::ConfigFromFlags();
  config.listen = {*server::ParseAddress("127.0.0.1:0")};
  config.metrics = "";
  config.drain_delay = absl::ZeroDuration();
  config.grace_period = absl::Seconds(20);
  config.kill_limit = absl::Seconds(20);
  return config;
}

inline server::Config TestConfigWithHttp() {
  server::Config config = TestConfig();
  config.metrics = "127.0.0.1:0";
  return config;
}

inline std::unique_ptr<server::Server> StartOrDie(const server::Config& config,
                                                  server::Server::Parts parts = {}) {
  auto server = server::Server::Start(config, std::move(parts));
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

// A connection of its own to the server.
inline std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(64 << 20);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
}

// The reason in a failed call's details; "" when there is none.
inline std::string ReasonOf(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  if (!details.ParseFromString(status.error_details())) return "";
  for (const auto& any : details.details()) {
    if (any.UnpackTo(&info)) return info.reason();
  }
  return "";
}

// Status code and body of an HTTP request, e.g. HttpRequest(port, "GET", "/livez").
struct HttpAnswer {
  int code = 0;
  std::string headers, body;
};
HttpAnswer HttpRequest(int port, const std::string& method, const std::string& path);

}  // namespace tenon::testing

#endif  // TENON_TESTS_INTEGRATION_TEST_SERVER_H_
