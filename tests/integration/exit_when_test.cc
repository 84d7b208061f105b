// What the whole server shows and does when providers fail while it serves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>

#include "backends/core/error.h"
#include "server/gauges.h"
#include "server/server.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tenon/v1/provider.grpc.pb.h"
#include "tests/integration/raw_call.h"
#include "tests/integration/test_server.h"
#include "tests/support/fake_provider.h"

namespace tenon::testing {
namespace {

using server::Server;
using server::ServerPhase;
using ::testing::HasSubstr;
using Entry = FakeProvider::Entry;

constexpr char kContraction[] = "tenon.v1.ContractionService";

// A server with the providers "cpu" and "reference", both fakes that die on the first group.
class ExitWhenTest : public ::testing::Test {
 protected:
  void Start(const std::string& exit_when) {
    server::Config config = TestConfigWithHttp();
    config.exit_when = exit_when;
    config.drain_delay = absl::Minutes(10);  // the test looks at the way out, and then hurries it
    Server::Parts parts;
    for (FakeProvider* fake : {&cpu_, &reference_}) {
      fake->FailFrom(Entry::kRunGroup, 1, Error(Reason::kDeviceFault, "illegal access"));
    }
    parts.providers = {{"cpu", cpu_.api(), cpu_.options()},
                       {"reference", reference_.api(), reference_.options()}};
    server_ = StartOrDie(config, std::move(parts));
    ASSERT_TRUE(server_->WaitUntilReady());
    channel_ = ChannelTo(server_->addresses()[0]);
  }

  // A scalar product on this provider, which kills it.
  grpc::Status Contract(const std::string& provider) {
    const auto stub = v1::ContractionService::NewStub(channel_);
    grpc::ClientContext context;
    const auto stream = stub->Contract(&context);
    v1::ContractRequest request;
    v1::ContractHeader* header = request.mutable_header();
    for (int k = 0; k < 2; ++k) {
      v1::Operand* operand = header->mutable_network()->add_operands();
      operand->add_indices("a");
      operand->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT64);
      operand->mutable_spec()->add_shape(2);
      operand->set_inline_data(std::string(16, '\0'));
    }
    header->mutable_execution()->add_providers(provider);
    stream->Write(request);
    stream->WritesDone();
    v1::ContractResponse response;
    while (stream->Read(&response)) {
    }
    return stream->Finish();
  }
  void Kill(const std::string& provider) {
    const grpc::Status status = Contract(provider);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
    EXPECT_EQ(ReasonOf(status), "DEVICE_FAULT");
  }

  bool Serves(const std::string& service) {
    std::string response;
    const std::string request =
        "\x0A" + std::string(1, static_cast<char>(service.size())) + service;
    const grpc::Status status =
        RawUnary(channel_, "/grpc.health.v1.Health/Check", request, &response);
    EXPECT_TRUE(status.ok()) << service << ": " << status.error_message();
    return response == std::string("\x08\x01");
  }
  int Readyz() { return HttpRequest(server_->metrics_port(), "GET", "/readyz").code; }
  v1::ProviderState StateOf(const std::string& provider, std::string* reason) {
    const auto stub = v1::ProviderService::NewStub(channel_);
    grpc::ClientContext context;
    v1::ListProvidersRequest request;
    request.set_name(provider);
    v1::ListProvidersResponse response;
    EXPECT_TRUE(stub->ListProviders(&context, request, &response).ok());
    *reason = response.providers(0).error().reason();
    return response.providers(0).state();
  }
  void ExpectFailed(const std::string& provider) {
    std::string reason;
    EXPECT_EQ(StateOf(provider, &reason), v1::PROVIDER_STATE_FAILED);
    EXPECT_EQ(reason, "DEVICE_FAULT");
    EXPECT_FALSE(Serves("provider/" + provider));
    const std::string metrics = server::MetricsText(*server_->state());
    const std::string label = "{provider=\"" + provider + "\",";
    const std::string fault = "{kind=\"sticky\",provider=\"" + provider + "\"} 1";
    EXPECT_THAT(metrics, HasSubstr("tenon_provider_state" + label + "state=\"failed\"} 1"));
    EXPECT_THAT(metrics, HasSubstr("tenon_provider_state" + label + "state=\"ready\"} 0"));
    EXPECT_THAT(metrics, HasSubstr("tenon_provider_faults_total" + fault));
  }
  // The way out begins on a thread of its own.
  void AwaitLameDuck() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (server_->state()->lifecycle.phase() == ServerPhase::kReady &&
           std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
    ASSERT_EQ(server_->state()->lifecycle.phase(), ServerPhase::kLameDuck);
  }
  bool HurryOut() {
    server_->Shutdown();
    server_->Shutdown();
    return server_->Wait();
  }

  FakeProvider cpu_{"cpu"}, reference_{"reference"};
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(ExitWhenTest, AllIsWhenNoneIsLeft) {
  Start("all");
  Kill("reference");
  ExpectFailed("reference");
  EXPECT_TRUE(Serves(""));
  EXPECT_TRUE(Serves(kContraction));
  EXPECT_TRUE(Serves("provider/cpu"));
  EXPECT_EQ(Readyz(), 200);
  EXPECT_EQ(server_->state()->lifecycle.phase(), ServerPhase::kReady);
  Kill("cpu");
  ExpectFailed("cpu");
  EXPECT_FALSE(Serves(""));
  EXPECT_FALSE(Serves(kContraction));
  EXPECT_EQ(Readyz(), 503);
  AwaitLameDuck();
  EXPECT_FALSE(HurryOut());  // the process exits with an error
}

TEST_F(ExitWhenTest, AnyIsTheFirst) {
  Start("any");
  Kill("reference");
  AwaitLameDuck();
  ExpectFailed("reference");
  EXPECT_FALSE(HurryOut());
}

TEST_F(ExitWhenTest, NeverGoesOnButIsNotReady) {
  Start("never");
  Kill("reference");
  EXPECT_EQ(Readyz(), 200);
  Kill("cpu");
  ExpectFailed("cpu");
  EXPECT_FALSE(Serves(""));
  EXPECT_EQ(Readyz(), 503);
  EXPECT_EQ(server_->state()->lifecycle.phase(), ServerPhase::kReady);
  EXPECT_EQ(ReasonOf(Contract("cpu")), "DEVICE_FAULT");
  EXPECT_TRUE(HurryOut());
}

}  // namespace
}  // namespace tenon::testing
