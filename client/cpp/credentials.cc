#include "client/cpp/credentials.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "backends/core/error.h"
#include "backends/core/file.h"

namespace tenon::client {
namespace {

absl::Status BadOption(const char* field, const std::string& what) {
  return Error(Reason::kBadParameter, what).Field(field);
}

absl::StatusOr<std::string> ReadPem(const char* field, const std::string& path) {
  if (path.empty()) return std::string();
  const absl::StatusOr<Buffer> bytes = ReadFile(path);
  if (!bytes.ok()) return BadOption(field, std::string(bytes.status().message()));
  return std::string(AsText(*bytes));
}

}  // namespace

bool IsLocal(const std::string& address) {
  for (const char* prefix : {"unix:", "unix-abstract:", "localhost", "127.", "[::1]"}) {
    if (address.rfind(prefix, 0) == 0) return true;
  }
  return false;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> MakeCredentials(
    const std::string& address, const ClientOptions& options) {
  const bool plain_token_allowed = IsLocal(address) || options.allow_plaintext_token;
  // gRPC would end the process over a line break in metadata.
  if (!std::all_of(options.token.begin(), options.token.end(),
                   [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); })) {
    return BadOption("token", "a token has printable ASCII characters without spaces only");
  }
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return options.tls_key.empty() ? BadOption("tls_cert", "tls_cert needs tls_key beside it")
                                   : BadOption("tls_key", "tls_key needs tls_cert beside it");
  }
  const bool encrypted = options.tls || !options.tls_ca.empty() || !options.tls_cert.empty();
  const bool is_socket = address.rfind("unix", 0) == 0;
  if (!encrypted || is_socket) {
    if (!options.token.empty() && !plain_token_allowed) {
      return BadOption("token", StrCat("the token would travel to ", address,
                                       " in the open; encrypt the connection, or allow it"));
    }
    return grpc::InsecureChannelCredentials();
  }
  grpc::SslCredentialsOptions ssl;
  TENON_ASSIGN_OR_RETURN(ssl.pem_root_certs, ReadPem("tls_ca", options.tls_ca));
  TENON_ASSIGN_OR_RETURN(ssl.pem_cert_chain, ReadPem("tls_cert", options.tls_cert));
  TENON_ASSIGN_OR_RETURN(ssl.pem_private_key, ReadPem("tls_key", options.tls_key));
  return grpc::SslCredentials(ssl);
}

}  // namespace tenon::client
