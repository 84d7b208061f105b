#include "server/address.h"

#include <arpa/inet.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "backends/core/error.h"

namespace tenon::server {
namespace {

constexpr int kMaxPort = 65535;
constexpr uint32_t kLoopbackNetwork = 127;
constexpr size_t kMaxSocketPath = 107;  // sun_path with its NUL

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return ntohl(v4.s_addr) >> 24 == kLoopbackNetwork;
  }
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::Status BadAddress(std::string_view text) {
  return Error(Reason::kBadParameter,
               StrCat("'", text, "' is not an address; expected HOST:PORT with a port from 0 to ",
                      kMaxPort, " (IPv6 hosts in brackets), or unix:PATH"))
      .Meta("value", std::string(text));
}

}  // namespace

std::string Address::WithPort(int chosen) const {
  if (is_unix) return text;
  return text.substr(0, text.rfind(':') + 1) + std::to_string(chosen);
}

absl::StatusOr<Address> ParseAddress(std::string_view text) {
  constexpr std::string_view kUnixPrefix = "unix:";
  Address address;
  address.text = std::string(text);
  if (absl::StartsWith(ToAbsl(text), ToAbsl(kUnixPrefix))) {
    address.is_unix = address.local = true;
    address.host = std::string(text.substr(kUnixPrefix.size()));
    if (address.host.empty() || address.host.size() > kMaxSocketPath) return BadAddress(text);
    return address;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return BadAddress(text);
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return BadAddress(text);
  }
  if (host.empty() || host.find_first_of(" /[]") != std::string_view::npos ||
      !absl::SimpleAtoi(ToAbsl(text.substr(colon + 1)), &address.port) || address.port < 0 ||
      address.port > kMaxPort) {
    return BadAddress(text);
  }
  address.host = std::string(host);
  address.local = IsLoopback(address.host);
  return address;
}

}  // namespace tenon::server
