// How a server tells its callers apart, and what each may have open.

#ifndef TENON_SERVER_AUTHENTICATOR_H_
#define TENON_SERVER_AUTHENTICATOR_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/principal.h"
#include "server/quota.h"
#include "server/token_table.h"

namespace tenon::server {

// What says who calls. Chosen at the start.
enum class CallerSource {
  kNothing,      // all callers are one
  kCertificate,  // the client's certificate; who comes over a Unix socket is the administrator ""
  kToken,        // a bearer token, on every connection
};

// Counts the calls that each principal has open. Thread-safe; outlives its places.
class CallPlaces {
 public:
  // Given back when destroyed. Movable.
  class Place {
   public:
    Place() = default;
    Place(CallPlaces* owner, std::string name) : owner_(owner), name_(std::move(name)) {}
    Place(Place&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), name_(std::move(other.name_)) {}
    Place& operator=(Place&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(name_, other.name_);
      return *this;
    }
    ~Place() {
      if (owner_ != nullptr) owner_->Leave(name_);
    }

   private:
    CallPlaces* owner_ = nullptr;
    std::string name_;
  };

  // 0: without limit, and nothing is counted.
  void SetLimit(int64_t calls) { limit_ = calls; }
  // QUOTA with limit_calls and a retry delay.
  absl::StatusOr<Place> Take(const std::string& name);
  // Of open calls; none are counted without a limit.
  Quota QuotaOf(const std::string& name) const;

 private:
  void Leave(const std::string& name);

  std::atomic<int64_t> limit_ = 0;
  mutable std::mutex mutex_;
  std::map<std::string, int64_t> open_;  // by name, those above 0
};

// Thread-safe once the source is set.
class Authenticator {
 public:
  // Before the first call.
  void SetSource(CallerSource source) { source_ = source; }
  CallerSource source() const { return source_; }
  // May change at any time; calls that have begun go on.
  void SetTokens(std::shared_ptr<const TokenTable> tokens);
  // Certificates' names that administer.
  void SetAdministrators(const std::vector<std::string>& names);
  CallPlaces& places() { return places_; }
  const CallPlaces& places() const { return places_; }

  // UNAUTHENTICATED, without what came: it may be a token with a slip in it.
  absl::StatusOr<Principal> Identify(const grpc::ServerContextBase& context) const;

 private:
  absl::StatusOr<Principal> FromToken(const grpc::ServerContextBase& context) const;
  absl::StatusOr<Principal> FromCertificate(const grpc::ServerContextBase& context) const;

  CallerSource source_ = CallerSource::kNothing;
  CallPlaces places_;
  mutable std::mutex mutex_;
  std::shared_ptr<const TokenTable> tokens_;
  std::set<std::string> administrators_;
};

// Makes the contexts of a server's calls, which carry their caller; other contexts (of a server
// that was built without it) are callers of a server that knows no principals.
// `authenticator` outlives the server.
std::unique_ptr<grpc::ContextAllocator> MakeCallerContexts(Authenticator* authenticator);

// Whether a peer, as ServerContextBase::peer() tells it, is on this machine.
bool IsLocalPeer(std::string_view peer);

}  // namespace tenon::server

#endif  // TENON_SERVER_AUTHENTICATOR_H_
