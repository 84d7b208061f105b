#include "server/security_settings.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "backends/core/error.h"
#include "backends/core/file.h"

ABSL_FLAG(std::string, tls_cert, "",
          "PEM file with the server's certificate and its chain. With --tls_key all TCP addresses "
          "of --listen are encrypted, and may be reached from other machines; Unix sockets are "
          "not. Empty: no encryption.");
ABSL_FLAG(std::string, tls_key, "",
          "PEM file with the private key of --tls_cert, without password.");
ABSL_FLAG(std::string, tls_client_ca, "",
          "PEM file with the authorities that sign clients' certificates, which are then required. "
          "Without --token_file the caller's name is the certificate's: its URI, DNS name, mail "
          "address or common name. Empty: clients need no certificate.");
ABSL_FLAG(absl::Duration, tls_reload_interval, absl::Minutes(1),
          "The three files are read anew this often; new connections use what is in them. 0: only "
          "on SIGHUP.");
ABSL_FLAG(std::string, token_file, "",
          "File of bearer tokens, one line each: name, role (compute or admin) and the SHA-256 of "
          "the token; 'tenon token new NAME' makes one. Every call then needs one, health and "
          "reflection excepted. Empty: none is needed.");
ABSL_FLAG(std::vector<std::string>, admin_principals, {},
          "With --tls_client_ca and without --token_file: names of certificates that administer.");
ABSL_FLAG(int32_t, max_streams_per_principal, 0,
          "Calls at the same time of one principal, whatever the number of its connections. 0: no "
          "limit.");
ABSL_FLAG(std::string, max_stored_bytes_per_principal, "0",
          "Data sets and tensors of one principal together: bytes with a unit, or a percentage of "
          "--memory_budget. 0: no limit.");

namespace tenon::server {
namespace {

absl::Status BadSetting(const std::string& flag, const std::string& what) {
  return Error(Reason::kBadParameter, StrCat("--", flag, ": ", what)).Field(flag);
}

absl::Status FillTls(Config* config) {
  config->tls_files = {absl::GetFlag(FLAGS_tls_cert), absl::GetFlag(FLAGS_tls_key),
                       absl::GetFlag(FLAGS_tls_client_ca)};
  config->tls_reload_interval = absl::GetFlag(FLAGS_tls_reload_interval);
  const absl::Duration interval = config->tls_reload_interval;
  if (interval != absl::ZeroDuration() &&
      (interval < absl::Milliseconds(10) || interval > absl::Hours(24 * 20))) {
    return BadSetting("tls_reload_interval",
                      StrCat("expected 0, or 10ms to 480h; got ", absl::FormatDuration(interval)));
  }
  const TlsFiles& files = config->tls_files;
  if (files.cert.empty() && !files.key.empty()) {
    return BadSetting("tls_key", "needs --tls_cert beside it");
  }
  if (files.cert.empty() && !files.client_ca.empty()) {
    return BadSetting("tls_client_ca", "needs --tls_cert and --tls_key beside it");
  }
  if (files.cert.empty()) return absl::OkStatus();
  if (files.key.empty()) return BadSetting("tls_cert", "needs --tls_key beside it");
  TENON_ASSIGN_OR_RETURN(TlsMaterial material, ReadTlsFiles(files));
  config->tls = std::make_shared<const TlsMaterial>(std::move(material));
  return absl::OkStatus();
}

absl::Status FillTokens(Config* config) {
  const std::string path = absl::GetFlag(FLAGS_token_file);
  if (path.empty()) return absl::OkStatus();
  const absl::StatusOr<Buffer> bytes = ReadFile(path);
  if (!bytes.ok()) return BadSetting("token_file", std::string(bytes.status().message()));
  absl::StatusOr<TokenTable> tokens = TokenTable::Parse(AsText(*bytes), path);
  if (!tokens.ok()) return BadSetting("token_file", std::string(tokens.status().message()));
  config->tokens = std::make_shared<const TokenTable>(*std::move(tokens));
  return absl::OkStatus();
}

}  // namespace

absl::Status FillSecurity(Config* config) {
  TENON_RETURN_IF_ERROR(FillTls(config));
  TENON_RETURN_IF_ERROR(FillTokens(config));
  config->admin_principals = absl::GetFlag(FLAGS_admin_principals);
  const bool by_certificate = config->tokens == nullptr && !config->tls_files.client_ca.empty();
  if (!config->admin_principals.empty() && !by_certificate) {
    return BadSetting("admin_principals",
                      config->tokens != nullptr
                          ? "the roles are those of --token_file"
                          : "needs --tls_client_ca, so that callers have names");
  }
  return absl::OkStatus();
}

absl::Status FillQuotas(Config* config) {
  config->max_streams_per_principal = absl::GetFlag(FLAGS_max_streams_per_principal);
  if (config->max_streams_per_principal < 0) {
    return BadSetting("max_streams_per_principal",
                      StrCat("expected 0 or more, got ", config->max_streams_per_principal));
  }
  const absl::StatusOr<int64_t> bytes =
      ParseBytes(absl::GetFlag(FLAGS_max_stored_bytes_per_principal), config->memory_budget_bytes);
  if (!bytes.ok()) {
    return BadSetting("max_stored_bytes_per_principal", std::string(bytes.status().message()));
  }
  config->max_stored_bytes_per_principal = *bytes;
  return absl::OkStatus();
}

}  // namespace tenon::server
