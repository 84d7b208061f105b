// Addresses to listen on, as the configuration writes them.

#ifndef TENON_SERVER_ADDRESS_H_
#define TENON_SERVER_ADDRESS_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tenon::server {

// "unix:/run/tenon.sock", "127.0.0.1:50551", "[::1]:50551", "localhost:0".
struct Address {
  std::string text;  // as written
  bool is_unix = false;
  std::string host;  // without brackets; the path of a Unix socket
  int port = 0;      // 0: the system chooses
  // Reached from this machine only: a Unix socket, 127.0.0.0/8, ::1 or localhost.
  bool local = false;

  // The same address with the port that was chosen.
  std::string WithPort(int chosen) const;
};

// BAD_PARAMETER that says what was expected.
absl::StatusOr<Address> ParseAddress(std::string_view text);

}  // namespace tenon::server

#endif  // TENON_SERVER_ADDRESS_H_
