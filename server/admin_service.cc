#include "server/admin_service.h"

#include "server/refusal.h"
#include "tenon/v1/admin.grpc.pb.h"

namespace tenon::server {
namespace {

class AdminService final : public v1::AdminService::CallbackService {
 public:
  explicit AdminService(ServerState* state) : state_(state) {}

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext*, const v1::DrainRequest*,
                                  v1::DrainResponse*) override {
    return Refuse<grpc::ServerUnaryReactor>("tenon.v1.AdminService/Drain");
  }
  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext*, const v1::SetLogLevelRequest*,
                                        v1::SetLogLevelResponse*) override {
    return Refuse<grpc::ServerUnaryReactor>("tenon.v1.AdminService/SetLogLevel");
  }
  grpc::ServerUnaryReactor* Trim(grpc::CallbackServerContext*, const v1::TrimRequest*,
                                 v1::TrimResponse*) override {
    return Refuse<grpc::ServerUnaryReactor>("tenon.v1.AdminService/Trim");
  }

 private:
  template <typename Reactor>
  Reactor* Refuse(std::string_view name) {
    return new Refusal<Reactor>(state_, Method::kAdmin, name);
  }

  ServerState* const state_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(ServerState* state) {
  return std::make_unique<AdminService>(state);
}

}  // namespace tenon::server
