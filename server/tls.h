// Certificates of the listeners, which may change while the server runs.

#ifndef TENON_SERVER_TLS_H_
#define TENON_SERVER_TLS_H_

#include <grpcpp/security/server_credentials.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"

namespace tenon::server {

// Paths of PEM files, as the settings tls_cert, tls_key and tls_client_ca name them.
struct TlsFiles {
  std::string cert;       // the server's certificate first, then its chain
  std::string key;        // its private key, without a password
  std::string client_ca;  // who signs clients' certificates; empty: none are asked for
  bool operator==(const TlsFiles&) const = default;
};

// What stands in them, checked.
struct TlsMaterial {
  std::string cert, key, client_ca;
  bool operator==(const TlsMaterial&) const = default;
};

// BAD_PARAMETER with the setting as field: a file that can't be read or holds something else, a
// certificate that has expired, a key that is not the certificate's.
absl::StatusOr<TlsMaterial> ReadTlsFiles(const TlsFiles& files);

// Gives every new connection what was set last; connections that are open stay as they are.
// Thread-safe. Outlives the servers that use its credentials.
class TlsCertificates {
 public:
  // Reads the files anew every `interval` (0: never). What can't be used is logged, once for each
  // such content, and changes nothing.
  TlsCertificates(TlsFiles files, TlsMaterial material, std::chrono::milliseconds interval);
  ~TlsCertificates();
  TlsCertificates(const TlsCertificates&) = delete;
  TlsCertificates& operator=(const TlsCertificates&) = delete;

  // Whether there is a client_ca was decided at the start: a change of that is left out.
  void Set(TlsFiles files, TlsMaterial material);

  // For one listening address. Whether clients need certificates is decided now: by whether there
  // is a client_ca.
  std::shared_ptr<grpc::ServerCredentials> NewCredentials();

 private:
  class Source;  // of the certificates of one listener

  void Watch(std::chrono::milliseconds interval);
  void Use(TlsMaterial material);  // with mutex_ held

  std::mutex mutex_;
  std::condition_variable stop_;
  bool stopped_ = false;
  TlsFiles files_;
  std::shared_ptr<const TlsMaterial> material_;
  std::vector<std::unique_ptr<Source>> sources_;
  std::thread watcher_;
};

}  // namespace tenon::server

#endif  // TENON_SERVER_TLS_H_
