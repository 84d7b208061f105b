#include "server/admin_service.h"

#include <malloc.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "backends/core/block_pool.h"
#include "backends/core/error.h"
#include "server/content_store.h"
#include "server/logging.h"
#include "server/process_stats.h"
#include "server/unary.h"
#include "server/wire_state.h"
#include "tenon/v1/admin.grpc.pb.h"

namespace tenon::server {
namespace {

constexpr char kTrimName[] = "tenon.v1.AdminService/Trim";
constexpr size_t kMaxWaitingTrims = 8;

absl::Status CheckSeconds(bool given, double seconds, const char* field) {
  // As --drain_delay and --grace_period.
  constexpr double kMost = 20 * 24 * 3600;
  if (!given || (seconds >= 0 && seconds <= kMost)) return absl::OkStatus();
  return Error(Reason::kBadParameter,
               StrCat(field, " is ", seconds, "; expected are 0 to ", kMost, " seconds"))
      .Field(field)
      .Meta("actual_seconds", seconds)
      .Meta("maximum_seconds", kMost);
}

absl::StatusOr<LogLevel> FromWire(v1::LogLevel level) {
  switch (level) {
    case v1::LOG_LEVEL_ERROR:
      return LogLevel::kError;
    case v1::LOG_LEVEL_WARNING:
      return LogLevel::kWarning;
    case v1::LOG_LEVEL_INFO:
      return LogLevel::kInfo;
    case v1::LOG_LEVEL_DEBUG:
      return LogLevel::kDebug;
    case v1::LOG_LEVEL_TRACE:
      return LogLevel::kTrace;
    case v1::LOG_LEVEL_UNSPECIFIED:
      return Error(Reason::kMissingField, "the level is required").Field("level");
    default:
      return Error(Reason::kBadParameter, StrCat("there is no level ", static_cast<int>(level)))
          .Field("level");
  }
}

v1::LogLevel ToWire(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return v1::LOG_LEVEL_TRACE;
    case LogLevel::kDebug:
      return v1::LOG_LEVEL_DEBUG;
    case LogLevel::kInfo:
      return v1::LOG_LEVEL_INFO;
    case LogLevel::kWarning:
      return v1::LOG_LEVEL_WARNING;
    case LogLevel::kError:
      return v1::LOG_LEVEL_ERROR;
  }
  return v1::LOG_LEVEL_UNSPECIFIED;
}

int64_t CacheBytes(const ServerState& state) {
  return state.programs.bytes() + state.plan_cache.counters().bytes + state.plans.bytes();
}

void Trim(const v1::TrimRequest& request, ServerState* state, v1::TrimResponse* response) {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  response->set_resident_before_bytes(ReadProcessStats().resident_bytes);
  int64_t freed = 0;
  if (request.resources() && state->store != nullptr) freed += state->store->DropResources();
  if (request.caches()) {
    freed += CacheBytes(*state);
    state->programs.Clear();
    state->plan_cache.Clear();
    state->plans.Clear();
    freed -= CacheBytes(*state);
  }
  if (request.stored() && state->store != nullptr) {
    const auto held = [&] { return state->store->bytes() + state->store->resource_bytes(); };
    freed += held();
    state->store->Evict(kAll);
    freed -= held();
  }
  BlockPool::Shared().Trim(0);
  malloc_trim(0);
  response->set_freed_bytes(std::max<int64_t>(freed, 0));
  response->set_resident_after_bytes(ReadProcessStats().resident_bytes);
}

// Freeing gigabytes takes its time, which gRPC's threads don't have.
class TrimCall final : public grpc::ServerUnaryReactor {
 public:
  TrimCall(grpc::CallbackServerContext* context, ServerState* state, Executor* executor,
           const v1::TrimRequest* request, v1::TrimResponse* response)
      : record_(&state->metrics, Method::kAdmin, kTrimName) {
    absl::Status status = CheckAccess(Method::kAdmin, context);
    if (status.ok()) {
      record_.set_caller(CallerOf(*context));
      status = executor->Submit([this, state, request, response] {
        End(AnswerWithinMemory([&] {
          Trim(*request, state, response);
          return absl::OkStatus();
        }));
      });
    }
    if (!status.ok()) End(status);
  }

 private:
  void End(const absl::Status& status) {
    record_.End(status);
    Finish(ToGrpcStatus(status));
  }
  void OnDone() override { delete this; }

  CallRecord record_;
};

class AdminService final : public v1::AdminService::CallbackService {
 public:
  explicit AdminService(ServerState* state) : state_(state) {}

  grpc::ServerUnaryReactor* Drain(grpc::CallbackServerContext* context,
                                  const v1::DrainRequest* request,
                                  v1::DrainResponse* response) override {
    return Answer(context, "tenon.v1.AdminService/Drain", [&]() -> absl::Status {
      std::optional<double> delay, grace;
      if (request->has_delay_seconds()) delay = request->delay_seconds();
      if (request->has_grace_seconds()) grace = request->grace_seconds();
      TENON_RETURN_IF_ERROR(CheckSeconds(delay.has_value(), delay.value_or(0), "delay_seconds"));
      TENON_RETURN_IF_ERROR(CheckSeconds(grace.has_value(), grace.value_or(0), "grace_seconds"));
      if (state_->drain == nullptr) {
        return Error(Reason::kNotImplemented, "this server can't shut itself down");
      }
      Log(LogLevel::kInfo, "drain", {{"principal", CallerOf(*context)}});
      state_->drain(delay, grace);
      response->set_state(ToWireState(state_->lifecycle.phase()));
      response->set_active_calls(static_cast<int32_t>(state_->metrics.in_flight() - 1));
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* SetLogLevel(grpc::CallbackServerContext* context,
                                        const v1::SetLogLevelRequest* request,
                                        v1::SetLogLevelResponse* response) override {
    return Answer(context, "tenon.v1.AdminService/SetLogLevel", [&]() -> absl::Status {
      TENON_ASSIGN_OR_RETURN(const LogLevel level, FromWire(request->level()));
      if (!request->component().empty()) {
        return Error(Reason::kBadParameter,
                     "this server has one level for all its parts; leave the component empty")
            .Field("component");
      }
      response->set_previous_level(ToWire(server::SetLogLevel(level)));
      return absl::OkStatus();
    });
  }

  grpc::ServerUnaryReactor* Trim(grpc::CallbackServerContext* context,
                                 const v1::TrimRequest* request,
                                 v1::TrimResponse* response) override {
    return new TrimCall(context, state_, &trims_, request, response);
  }

 private:
  template <typename Body>
  grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, std::string_view name,
                                   Body&& body) {
    return AnswerNow(context, &state_->metrics, Method::kAdmin, name, std::forward<Body>(body));
  }

  ServerState* const state_;
  Executor trims_{1, kMaxWaitingTrims};  // one at a time: a second one finds nothing
};

}  // namespace

std::unique_ptr<grpc::Service> MakeAdminService(ServerState* state) {
  return std::make_unique<AdminService>(state);
}

}  // namespace tenon::server
