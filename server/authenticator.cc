#include "server/authenticator.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/generic/async_generic_service.h>

#include <iterator>

#include "absl/strings/match.h"
#include "backends/core/error.h"
#include "backends/core/utf8.h"

namespace tenon::server {
namespace {

constexpr char kHeader[] = "authorization";
constexpr std::string_view kScheme = "bearer ";
constexpr size_t kMaxCertificateName = 1024;

// What gRPC holds for one call, with its caller.
class CallerContext final : public grpc::CallbackServerContext {
 public:
  explicit CallerContext(Authenticator* authenticator) : authenticator_(authenticator) {}

  const Authenticator& authenticator() const { return *authenticator_; }
  const std::optional<Principal>& caller() const { return caller_; }

  // Once, on the thread that begins the call; later ones only read.
  absl::Status Identify() {
    if (caller_.has_value() || authenticator_->source() == CallerSource::kNothing) {
      return absl::OkStatus();
    }
    TENON_ASSIGN_OR_RETURN(caller_, authenticator_->Identify(*this));
    return absl::OkStatus();
  }
  absl::Status TakePlace() {
    if (has_place_) return absl::OkStatus();
    TENON_ASSIGN_OR_RETURN(place_,
                           authenticator_->places().Take(caller_.has_value() ? caller_->name : ""));
    has_place_ = true;
    return absl::OkStatus();
  }

 private:
  Authenticator* const authenticator_;
  std::optional<Principal> caller_;
  bool has_place_ = false;
  CallPlaces::Place place_;
};

class CallerContexts final : public grpc::ContextAllocator {
 public:
  explicit CallerContexts(Authenticator* authenticator) : authenticator_(authenticator) {}
  grpc::CallbackServerContext* NewCallbackServerContext() override {
    return new CallerContext(authenticator_);
  }
  // Of methods that nobody offers. Release gets these, too, so they must not come from elsewhere.
  grpc::GenericCallbackServerContext* NewGenericCallbackServerContext() override {
    return new grpc::GenericCallbackServerContext();
  }
  void Release(grpc::CallbackServerContext* context) override { delete context; }
  void Release(grpc::GenericCallbackServerContext* context) override { delete context; }

 private:
  Authenticator* const authenticator_;
};

absl::Status Unauthenticated(std::string message) {
  return Error(Reason::kUnauthenticated, std::move(message));
}

// The first that a certificate has, in the order in which they are specific: a URI (SPIFFE), a DNS
// name, a mail address, and the common name, which old certificates have alone.
std::string CertificateName(const grpc::AuthContext& peer) {
  for (const char* property : {GRPC_PEER_URI_PROPERTY_NAME, GRPC_PEER_DNS_PROPERTY_NAME,
                               GRPC_PEER_EMAIL_PROPERTY_NAME, GRPC_X509_CN_PROPERTY_NAME}) {
    for (const grpc::string_ref& value : peer.FindPropertyValues(property)) {
      if (!value.empty()) return {value.data(), value.size()};
    }
  }
  return "";
}

}  // namespace

absl::StatusOr<CallPlaces::Place> CallPlaces::Take(const std::string& name) {
  const int64_t limit = limit_;
  if (limit == 0) return Place();
  std::lock_guard lock(mutex_);
  int64_t& open = open_[name];
  if (open >= limit) {
    return QuotaError(name, "calls", limit,
                      StrCat("the caller has ", open, " calls open; at most ", limit,
                             " are allowed at the same time"))
        .Meta("limit_calls", limit)
        .Meta("open_calls", open)
        .Meta("retry_delay_seconds", 1);
  }
  ++open;
  return Place(this, name);
}

Quota CallPlaces::QuotaOf(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto open = open_.find(name);
  return {limit_, open == open_.end() ? 0 : open->second};
}

void CallPlaces::Leave(const std::string& name) {
  std::lock_guard lock(mutex_);
  const auto open = open_.find(name);
  if (--open->second == 0) open_.erase(open);
}

void Authenticator::SetTokens(std::shared_ptr<const TokenTable> tokens) {
  std::lock_guard lock(mutex_);
  tokens_ = std::move(tokens);
}

void Authenticator::SetAdministrators(const std::vector<std::string>& names) {
  std::lock_guard lock(mutex_);
  administrators_ = {names.begin(), names.end()};
}

absl::StatusOr<Principal> Authenticator::Identify(const grpc::ServerContextBase& context) const {
  switch (source_) {
    case CallerSource::kNothing:
      return Principal{"", IsLocalPeer(context.peer())};
    case CallerSource::kCertificate:
      return FromCertificate(context);
    case CallerSource::kToken:
      return FromToken(context);
  }
  return Error(Reason::kInternal, "callers are told apart by nothing known");
}

absl::StatusOr<Principal> Authenticator::FromToken(const grpc::ServerContextBase& context) const {
  const auto [first, end] = context.client_metadata().equal_range(kHeader);
  if (first == end) {
    return Unauthenticated("this server needs a token: metadata 'authorization: Bearer TOKEN'");
  }
  const std::string_view value(first->second.data(), first->second.size());
  if (std::next(first) != end || !absl::StartsWithIgnoreCase(ToAbsl(value), ToAbsl(kScheme))) {
    return Unauthenticated("the metadata 'authorization' must be one value, 'Bearer TOKEN'");
  }
  std::shared_ptr<const TokenTable> tokens;
  {
    std::lock_guard lock(mutex_);
    tokens = tokens_;
  }
  const TokenTable::Entry* entry =
      tokens == nullptr ? nullptr : tokens->Find(value.substr(kScheme.size()));
  if (entry == nullptr) return Unauthenticated("the token is not one of this server's");
  return Principal{entry->name, entry->administrator};
}

absl::StatusOr<Principal> Authenticator::FromCertificate(
    const grpc::ServerContextBase& context) const {
  const auto peer = context.auth_context();
  std::string name = peer == nullptr ? "" : CertificateName(*peer);
  if (name.empty()) {
    // Unix sockets are not encrypted: their permissions say who may come.
    if (absl::StartsWith(context.peer(), "unix:")) return Principal{"", true};
    return Unauthenticated("the client's certificate has no name");
  }
  if (name.size() > kMaxCertificateName || ReplaceInvalidUtf8(name) != name) {
    return Unauthenticated("the name in the client's certificate is too long, or no text");
  }
  std::lock_guard lock(mutex_);
  const bool administrator = administrators_.count(name) > 0;
  return Principal{std::move(name), administrator};
}

std::unique_ptr<grpc::ContextAllocator> MakeCallerContexts(Authenticator* authenticator) {
  return std::make_unique<CallerContexts>(authenticator);
}

bool IsLocalPeer(std::string_view peer) {
  // The host of an IPv6 peer is percent-encoded, with its brackets.
  for (const std::string_view prefix :
       {"unix:", "ipv4:127.", "ipv6:[::1]:", "ipv6:%5B::1%5D:", "ipv6:%5B::ffff:127."}) {
    if (peer.starts_with(prefix)) return true;
  }
  return false;
}

// The rest is declared in principal.h, for those who only ask.

absl::Status CheckCaller(grpc::ServerContextBase* context) {
  auto* call = dynamic_cast<CallerContext*>(context);
  if (call == nullptr) return absl::OkStatus();
  TENON_RETURN_IF_ERROR(call->Identify());
  return call->TakePlace();
}

absl::Status CheckAdministrator(grpc::ServerContextBase* context) {
  if (auto* call = dynamic_cast<CallerContext*>(context)) TENON_RETURN_IF_ERROR(call->Identify());
  if (PrincipalOf(*context).administrator) return absl::OkStatus();
  return Error(Reason::kPermissionDenied,
               "only administrators may do this: see --token_file and --admin_principals of the "
               "server; where it knows no callers, only those on its machine");
}

Principal PrincipalOf(const grpc::ServerContextBase& context) {
  const auto* call = dynamic_cast<const CallerContext*>(&context);
  if (call == nullptr || call->authenticator().source() == CallerSource::kNothing) {
    return {"", IsLocalPeer(context.peer())};
  }
  return call->caller().value_or(Principal{"(unauthenticated)", false});
}

std::string CallerOf(const grpc::ServerContextBase& context) {
  const auto* call = dynamic_cast<const CallerContext*>(&context);
  if (call == nullptr || call->authenticator().source() == CallerSource::kNothing) return "";
  return PrincipalOf(context).name;
}

}  // namespace tenon::server
