// Frames of a Measure call, sent to the service in this process: every stream ends with a status,
// what comes before it is in order, and everything is given back.

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "backends/cpu/provider.h"
#include "google/rpc/status_details.pb.h"
#include "server/content_store.h"
#include "server/logging.h"
#include "server/measurement_service.h"
#include "server/state.h"
#include "tenon/v1/measurement.grpc.pb.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/frame_input.h"
#include "tests/fuzz/frame_target.h"
#include "tests/support/frame_call.h"

namespace tenon::fuzz {
namespace {

using Kind = server::ContentStore::Kind;

constexpr int64_t kBudgetBytes = int64_t{4} << 20;  // keeps what is computed small
constexpr std::chrono::seconds kDeadline{5};        // of a call
constexpr std::chrono::seconds kPatience{20};       // until everything is given back

// A server that never stops: a fuzzer ends without leaving main.
class Service {
 public:
  static Service& Get() {
    static auto* const service = new Service;
    return *service;
  }

  testing::FrameAnswer Run(std::vector<std::string> frames) {
    testing::FrameScript script;
    script.method = "/tenon.v1.MeasurementService/Measure";
    script.frames = std::move(frames);
    script.timeout = kDeadline;
    return testing::RunFrames(channel_, script);
  }

  void CheckReleased() {
    const auto limit = std::chrono::steady_clock::now() + kPatience;
    while (state_.metrics.in_flight() > 0 || state_.budget.reserved_bytes() != Stored()) {
      FUZZ_CHECK(std::chrono::steady_clock::now() < limit);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    for (const auto& kept : state_.store->List(Kind::kDataset, std::nullopt)) {
      FUZZ_CHECK(state_.store->Delete(Kind::kDataset, "", kept.handle).ok());
    }
    FUZZ_CHECK(state_.budget.reserved_bytes() == 0);
  }

 private:
  Service() {
    server::InitLogging("error", false);
    state_.limits.max_threads = 2;
    state_.store = std::make_shared<server::ContentStore>(&state_.budget, std::chrono::hours(1));
    auto provider = plugin::Provider::Create(cpu::CpuProviderApi(), "");
    FUZZ_CHECK(provider.ok() && (*provider)->WarmUp().ok());
    state_.providers.Set({"cpu", *provider, absl::OkStatus()});
    state_.lifecycle.MoveTo(server::ServerPhase::kReady);
    service_ = server::MakeMeasurementService(&state_);
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    channel_ = server_->InProcessChannel(grpc::ChannelArguments());
  }

  int64_t Stored() { return state_.store->reserved_bytes() + state_.store->resource_bytes(); }

  server::ServerState state_{kBudgetBytes, 2, 16, std::chrono::seconds(30)};
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

// The order of measurement.proto: `accepted` first, items by index, `summary` last; or `single`.
class AnswerOrder {
 public:
  void OnFrame(const std::string& bytes) {
    v1::MeasureResponse frame;
    FUZZ_CHECK(frame.ParseFromString(bytes));
    FUZZ_CHECK(frame.frame_case() != v1::MeasureResponse::FRAME_NOT_SET && !ended_);
    FUZZ_CHECK(accepted_ != (frame.has_accepted() || frame.has_single()));
    accepted_ = true;
    if (frame.has_scores()) OnItem(frame.scores().index());
    if (frame.has_item_error()) OnItem(frame.item_error().index());
    if (frame.has_single()) {
      for (const v1::MeasureItem& item : frame.single().items()) {
        OnItem(item.has_scores() ? item.scores().index() : item.error().index());
      }
    }
    ended_ = frame.has_summary() || frame.has_single();
  }
  void OnStatus(const grpc::Status& status) const {
    FUZZ_CHECK(!status.ok() || ended_);
    if (status.ok()) return;
    google::rpc::Status details;
    FUZZ_CHECK(details.ParseFromString(status.error_details()));
    google::rpc::ErrorInfo info;
    bool found = false;
    for (const auto& any : details.details()) found = found || any.UnpackTo(&info);
    // Only the deadline may end a call without details: gRPC's client does that by itself.
    FUZZ_CHECK(found || status.error_code() == grpc::DEADLINE_EXCEEDED);
    if (!found) return;
    const auto reason = ReasonFromName(info.reason());
    FUZZ_CHECK(reason.ok() && *reason != Reason::kInternal);
  }

 private:
  void OnItem(int64_t index) {
    FUZZ_CHECK(index == next_);
    ++next_;
  }

  bool accepted_ = false, ended_ = false;
  int64_t next_ = 0;
};

void CheckOne(std::string_view input) {
  const std::vector<std::string> frames = SplitFrames(input);
  for (const std::string& frame : frames) {
    CheckSplit(v1::MeasureRequest::default_instance(),
               {v1::MeasureRequest::kDatasetChunkFieldNumber,
                v1::MeasureRequest::kProjectionChunkFieldNumber},
               frame);
  }
  const testing::FrameAnswer answer = Service::Get().Run(frames);
  AnswerOrder order;
  for (const std::string& frame : answer.frames) order.OnFrame(frame);
  order.OnStatus(answer.status);
  Service::Get().CheckReleased();
}

}  // namespace
}  // namespace tenon::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenon::fuzz::CheckOne({reinterpret_cast<const char*>(data), size});
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  return tenon::fuzz::MutateInput(tenon::v1::MeasureRequest::default_instance(), data, size,
                                  max_size, seed);
}
