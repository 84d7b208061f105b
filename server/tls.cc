#include "server/tls.h"

#include <grpc/grpc_security.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <utility>

#include "backends/core/error.h"
#include "backends/core/file.h"
#include "server/logging.h"

namespace tenon::server {
namespace {

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, Deleter<&BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Deleter<&X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Deleter<&EVP_PKEY_free>>;

absl::Status BadFlag(const std::string& flag, const std::string& what) {
  ERR_clear_error();
  return Error(Reason::kBadParameter, StrCat("--", flag, ": ", what)).Field(flag);
}

absl::StatusOr<std::string> ReadText(const std::string& flag, const std::string& path) {
  const absl::StatusOr<Buffer> bytes = ReadFile(path);
  if (!bytes.ok()) return BadFlag(flag, std::string(bytes.status().message()));
  return std::string(AsText(*bytes));
}

// Null at the end, or where there is none.
Certificate NextCertificate(BIO* pem) {
  return Certificate(PEM_read_bio_X509(pem, nullptr, nullptr, nullptr));
}

Bio Open(const std::string& pem) {
  return Bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

// Without this OpenSSL would ask on the terminal.
int NoPassword(char*, int, int, void*) { return 0; }

absl::StatusOr<Certificate> FirstCertificate(const std::string& flag, const std::string& path,
                                             const std::string& pem) {
  const Bio bio = Open(pem);
  Certificate first = NextCertificate(bio.get());
  if (first == nullptr) return BadFlag(flag, StrCat("'", path, "' holds no PEM certificate"));
  while (NextCertificate(bio.get()) != nullptr) {
  }
  // The end says that no line is left to begin one; anything else is a certificate in pieces.
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
    return BadFlag(flag, StrCat("'", path, "' holds a certificate that can't be read"));
  }
  ERR_clear_error();
  return first;
}

absl::Status CheckPair(const TlsFiles& files, const TlsMaterial& material) {
  TENON_ASSIGN_OR_RETURN(const Certificate certificate,
                         FirstCertificate("tls_cert", files.cert, material.cert));
  if (X509_cmp_current_time(X509_get0_notAfter(certificate.get())) < 0) {
    return BadFlag("tls_cert", StrCat("the certificate in '", files.cert, "' has expired"));
  }
  const Bio bio = Open(material.key);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassword, nullptr));
  if (key == nullptr) {
    return BadFlag("tls_key",
                   StrCat("'", files.key, "' holds no PEM private key, or one with a password"));
  }
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return BadFlag("tls_key", StrCat("the key in '", files.key, "' is not that of the certificate ",
                                     "in '", files.cert, "'"));
  }
  return absl::OkStatus();
}

// gRPC's credentials around those of its C interface, which alone can ask for certificates anew.
class ListenerCredentials final : public grpc::ServerCredentials {
 public:
  ListenerCredentials(bool client_certificates, grpc_ssl_server_certificate_config_callback source,
                      void* data)
      : credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                client_certificates ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                                    : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
                source, data))) {}
  ~ListenerCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  grpc_server_credentials* const credentials_;
};

}  // namespace

absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files) {
  TlsMaterial material;
  TENON_ASSIGN_OR_RETURN(material.cert, ReadText("tls_cert", files.cert));
  TENON_ASSIGN_OR_RETURN(material.key, ReadText("tls_key", files.key));
  TENON_RETURN_IF_ERROR(CheckPair(files, material));
  if (files.client_ca.empty()) return material;
  TENON_ASSIGN_OR_RETURN(material.client_ca, ReadText("tls_client_ca", files.client_ca));
  TENON_RETURN_IF_ERROR(
      FirstCertificate("tls_client_ca", files.client_ca, material.client_ca).status());
  return material;
}

// Each listener asks for itself whether there is something new.
class TlsCertificates::Source {
 public:
  explicit Source(TlsCertificates* all) : all_(all) {}

  static grpc_ssl_certificate_config_reload_status Give(
      void* self, grpc_ssl_server_certificate_config** config) {
    return static_cast<Source*>(self)->Fetch(config);
  }

 private:
  grpc_ssl_certificate_config_reload_status Fetch(grpc_ssl_server_certificate_config** config) {
    std::lock_guard lock(all_->mutex_);
    if (given_ == all_->material_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    const TlsMaterial& material = *all_->material_;
    const grpc_ssl_pem_key_cert_pair pair = {material.key.c_str(), material.cert.c_str()};
    // gRPC insists on authorities even where no client is asked for a certificate; they are then
    // not used.
    const std::string& authorities =
        material.client_ca.empty() ? material.cert : material.client_ca;
    *config = grpc_ssl_server_certificate_config_create(authorities.c_str(), &pair, 1);
    given_ = all_->material_;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  TlsCertificates* const all_;
  std::shared_ptr<const TlsMaterial> given_;
};

TlsCertificates::TlsCertificates(TlsFiles files, TlsMaterial material,
                                 std::chrono::milliseconds interval)
    : files_(std::move(files)),
      material_(std::make_shared<const TlsMaterial>(std::move(material))) {
  if (interval.count() > 0) watcher_ = std::thread([this, interval] { Watch(interval); });
}

TlsCertificates::~TlsCertificates() {
  {
    std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  stop_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

void TlsCertificates::Set(TlsFiles files, TlsMaterial material) {
  std::lock_guard lock(mutex_);
  if (material.client_ca.empty() != material_->client_ca.empty()) {
    files.client_ca = files_.client_ca;
    material.client_ca = material_->client_ca;
  }
  files_ = std::move(files);
  Use(std::move(material));
}

void TlsCertificates::Use(TlsMaterial material) {
  if (material == *material_) return;
  material_ = std::make_shared<const TlsMaterial>(std::move(material));
  Log(LogLevel::kInfo, "certificates changed", {{"tls_cert", files_.cert}});
}

std::shared_ptr<grpc::ServerCredentials> TlsCertificates::NewCredentials() {
  std::lock_guard lock(mutex_);
  sources_.push_back(std::make_unique<Source>(this));
  return std::make_shared<ListenerCredentials>(!material_->client_ca.empty(), &Source::Give,
                                               sources_.back().get());
}

void TlsCertificates::Watch(std::chrono::milliseconds interval) {
  std::string told;  // the latest trouble
  std::unique_lock lock(mutex_);
  while (!stop_.wait_for(lock, interval, [this] { return stopped_; })) {
    const TlsFiles files = files_;
    lock.unlock();
    // Files are replaced one after the other: a pair that does not fit may fit the next time.
    absl::StatusOr<TlsMaterial> read = ReadTlsFiles(files);
    lock.lock();
    if (files != files_) continue;  // others were set meanwhile
    if (read.ok()) {
      told.clear();
      Use(*std::move(read));
    } else if (std::string why(read.status().message()); why != told) {
      Log(LogLevel::kError, "the certificates stay as they were", {{"reason", why}});
      told = std::move(why);
    }
  }
}

}  // namespace tenon::server
