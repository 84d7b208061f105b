#include "tests/integration/test_server.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace tenon::testing {

HttpAnswer HttpRequest(int port, const std::string& method, const std::string& path) {
  HttpAnswer answer;
  const int socket_fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket_fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0) {
    const std::string request =
        method + " " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    EXPECT_EQ(send(socket_fd, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = recv(socket_fd, buffer, sizeof(buffer), 0)) > 0;) {
      text.append(buffer, static_cast<size_t>(got));
    }
    const size_t end = text.find("\r\n\r\n");
    if (end != std::string::npos) {
      answer.code = std::atoi(text.c_str() + text.find(' '));
      answer.headers = text.substr(0, end);
      answer.body = text.substr(end + 4);
    }
  }
  close(socket_fd);
  return answer;
}

}  // namespace tenon::testing
