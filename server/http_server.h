// The small HTTP endpoint beside gRPC: probes and metrics.

#ifndef TENON_SERVER_HTTP_SERVER_H_
#define TENON_SERVER_HTTP_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

struct mg_context;
struct mg_connection;

namespace tenon::server {

// Serves GET and HEAD of
//   /livez    200 as long as the process can answer
//   /readyz   200 while `ready` says so, else 503
//   /metrics  what `metrics` returns, in Prometheus' text format
// and 404 for everything else. The functions are called on the endpoint's own threads.
class HttpServer {
 public:
  struct Content {
    std::function<bool()> ready;
    std::function<std::string()> metrics;
  };

  // BAD_PARAMETER when the address can't be listened on.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& address,
                                                           Content content);
  // Waits for the answers under way.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }

 private:
  explicit HttpServer(Content content) : content_(std::move(content)) {}
  static int Handle(mg_connection* connection, void* self);

  const Content content_;
  mg_context* context_ = nullptr;
  int port_ = 0;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_HTTP_SERVER_H_
