#include "server/http_server.h"

#include <civetweb.h>

#include <string_view>
#include <utility>

#include "backends/core/error.h"
#include "server/address.h"
#include "server/logging.h"

namespace tenon::server {
namespace {

struct Answer {
  int code = 200;
  const char* type = "text/plain; charset=utf-8";
  std::string body;
};

const char* StatusText(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    default:
      return "Service Unavailable";
  }
}

Answer AnswerTo(const mg_request_info& request, const HttpServer::Content& content) {
  const std::string_view method = request.request_method, path = request.local_uri;
  if (method != "GET" && method != "HEAD") return {.code = 405, .body = "only GET and HEAD\n"};
  if (path == "/livez") return {.body = "ok\n"};
  if (path == "/readyz") {
    return content.ready() ? Answer{.body = "ok\n"} : Answer{.code = 503, .body = "not ready\n"};
  }
  if (path == "/metrics") {
    return {.type = "text/plain; version=0.0.4; charset=utf-8", .body = content.metrics()};
  }
  return {.code = 404, .body = "only /livez, /readyz and /metrics\n"};
}

int LogCivetweb(const mg_connection*, const char* message) {
  Log(LogLevel::kDebug, "http", {{"message", std::string(message)}});
  return 1;  // handled: nothing on standard error
}

}  // namespace

int HttpServer::Handle(mg_connection* connection, void* self) {
  const mg_request_info* request = mg_get_request_info(connection);
  const Answer answer = AnswerTo(*request, static_cast<const HttpServer*>(self)->content_);
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            answer.code, StatusText(answer.code), answer.type, answer.body.size());
  if (std::string_view(request->request_method) != "HEAD") {
    mg_write(connection, answer.body.data(), answer.body.size());
  }
  return answer.code;
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const std::string& address,
                                                              Content content) {
  TENON_ASSIGN_OR_RETURN(const Address parsed, ParseAddress(address));
  // civetweb takes numbers only.
  const std::string listen =
      parsed.host == "localhost" ? StrCat("127.0.0.1:", parsed.port) : parsed.text;
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(content)));
  static const unsigned features = mg_init_library(0);
  (void)features;
  const char* options[] = {
      "listening_ports",   listen.c_str(), "num_threads", "16", "request_timeout_ms", "5000",
      "enable_keep_alive", "no",           nullptr};
  mg_callbacks callbacks{};
  callbacks.log_message = &LogCivetweb;
  server->context_ = mg_start(&callbacks, server.get(), options);
  if (server->context_ == nullptr) {
    return Error(Reason::kBadParameter,
                 StrCat("--metrics: cannot listen on ", address,
                        ": the port is in use or not permitted, or the address is not one of this "
                        "machine's"))
        .Field("metrics")
        .Meta("address", address);
  }
  mg_server_port port{};
  if (mg_get_server_ports(server->context_, 1, &port) == 1) server->port_ = port.port;
  mg_set_request_handler(server->context_, "**", &HttpServer::Handle, server.get());
  return server;
}

HttpServer::~HttpServer() {
  if (context_ != nullptr) mg_stop(context_);
}

}  // namespace tenon::server
