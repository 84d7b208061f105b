#include "server/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <future>

#include "server/scratch_space.h"
#include "server/version.h"
#include "tenon/v1/admin.grpc.pb.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tenon/v1/job.grpc.pb.h"
#include "tenon/v1/provider.grpc.pb.h"
#include "tests/integration/raw_call.h"
#include "tests/integration/test_server.h"
#include "tests/support/fake_provider.h"
#include "tests/support/status_matchers.h"

namespace tenon::testing {
namespace {

using server::Server;
using ::testing::HasSubstr;

constexpr char kServing = 1, kNotServing = 2;

std::string HealthRequest(const std::string& service) {
  return "\x0A" + std::string(1, static_cast<char>(service.size())) + service;
}
// The status in a grpc.health.v1.HealthCheckResponse.
char HealthStatus(const std::string& response) {
  return response.size() == 2 && response[0] == 0x08 ? response[1] : 0;
}
char CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  std::string response;
  const grpc::Status status =
      RawUnary(channel, "/grpc.health.v1.Health/Check", HealthRequest(service), &response);
  EXPECT_TRUE(status.ok()) << service << ": " << status.error_message();
  return HealthStatus(response);
}

const char* const kServices[] = {"",
                                 "tenon.v1.ProviderService",
                                 "tenon.v1.ContractionService",
                                 "tenon.v1.MeasurementService",
                                 "tenon.v1.DatasetService",
                                 "tenon.v1.JobService",
                                 "tenon.v1.AdminService"};

// A provider "cpu" whose warm-up waits until the test opens the gate.
class GatedProvider {
 public:
  GatedProvider() {
    opened() = gate_.get_future().share();
    fake_.table.warm_up = [](tenon_provider*, tenon_status*) -> int32_t {
      opened().wait();
      return 0;
    };
  }
  ~GatedProvider() { Open(); }
  void Open() {
    if (!std::exchange(open_, true)) gate_.set_value();
  }
  Server::Parts Parts() const {
    Server::Parts parts;
    parts.providers = {{"cpu", fake_.api(), fake_.options()},
                       {"reference", reference_.api(), reference_.options()}};
    return parts;
  }
  FakeProvider& reference() { return reference_; }

 private:
  static std::shared_future<void>& opened() {
    static std::shared_future<void> future;
    return future;
  }
  FakeProvider fake_{"cpu"}, reference_{"reference"};
  std::promise<void> gate_;
  bool open_ = false;
};

template <typename Stub>
struct Client {
  explicit Client(const Server& server)
      : channel(ChannelTo(server.addresses()[0])), stub(Stub::NewStub(channel)) {}
  std::shared_ptr<grpc::Channel> channel;
  decltype(Stub::NewStub(nullptr)) stub;
};

v1::GetServerInfoResponse InfoOf(const Server& server) {
  const Client<v1::ProviderService> client(server);
  grpc::ClientContext context;
  v1::GetServerInfoResponse info;
  const grpc::Status status = client.stub->GetServerInfo(&context, {}, &info);
  EXPECT_TRUE(status.ok()) << status.error_message();
  return info;
}

TEST(Server, TellsWhatItIs) {
  server::Config config = TestConfig();
  config.memory_budget_bytes = int64_t{1} << 30;
  config.max_queued_requests = 17;
  const auto server = StartOrDie(config);
  ASSERT_TRUE(server->WaitUntilReady());
  const v1::GetServerInfoResponse info = InfoOf(*server);
  EXPECT_EQ(info.version(), server::Build().version);
  EXPECT_EQ(info.state(), v1::SERVER_STATE_READY);
  EXPECT_EQ(info.limits().memory_budget_bytes(), int64_t{1} << 30);
  EXPECT_EQ(info.limits().max_queue_length(), 17);
  EXPECT_LE(info.limits().max_chunk_bytes(), info.limits().max_message_bytes());
  EXPECT_EQ(info.limits().default_chunk_bytes(), 1 << 20);
  EXPECT_GE(info.host().threads(), 1);
  EXPECT_NE(info.host().isa(), "");
  EXPECT_EQ(info.instance_id().size(), 32u);
  EXPECT_EQ(InfoOf(*server).instance_id(), info.instance_id());
  EXPECT_GT(info.start_time().seconds(), 0);
}

TEST(Server, ListsItsProviders) {
  const auto server = StartOrDie(TestConfig());
  ASSERT_TRUE(server->WaitUntilReady());
  const Client<v1::ProviderService> client(*server);
  grpc::ClientContext context;
  v1::ListProvidersResponse response;
  ASSERT_TRUE(client.stub->ListProviders(&context, {}, &response).ok());
  ASSERT_EQ(response.providers_size(), 3);
  const v1::Provider &cpu = response.providers(0), &cuda = response.providers(1),
                     &reference = response.providers(2);
  EXPECT_EQ(cpu.name(), "cpu");
  EXPECT_EQ(cpu.state(), v1::PROVIDER_STATE_READY);
  EXPECT_TRUE(cpu.has_cold_init_seconds());
  ASSERT_EQ(cpu.steps_size(), 2);
  EXPECT_THAT(cpu.steps(0).dtypes(), ::testing::Contains(v1::DATA_TYPE_COMPLEX128));
  EXPECT_EQ(cpu.memory_total_bytes(), server->state()->budget.limit_bytes());
  EXPECT_EQ(reference.name(), "reference");
  EXPECT_EQ(reference.state(), v1::PROVIDER_STATE_READY);
  EXPECT_EQ(cuda.name(), "cuda:0");
  EXPECT_EQ(cuda.kind(), "cuda");
  EXPECT_EQ(cuda.state(), v1::PROVIDER_STATE_ABSENT);
  EXPECT_EQ(cuda.error().reason(), "NO_DEVICE");
  EXPECT_THAT(cuda.error().message(), HasSubstr("CUDA"));

  v1::ListProvidersRequest one;
  one.set_name("reference");
  grpc::ClientContext second;
  ASSERT_TRUE(client.stub->ListProviders(&second, one, &response).ok());
  ASSERT_EQ(response.providers_size(), 1);
  EXPECT_EQ(response.providers(0).name(), "reference");

  one.set_name("tpu");
  grpc::ClientContext third;
  const grpc::Status status = client.stub->ListProviders(&third, one, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(ReasonOf(status), "UNKNOWN_PROVIDER");
}

TEST(Server, CountsItsCalls) {
  const auto server = StartOrDie(TestConfig());
  ASSERT_TRUE(server->WaitUntilReady());
  InfoOf(*server);
  InfoOf(*server);
  const Client<v1::ProviderService> client(*server);
  grpc::ClientContext context;
  v1::GetStatisticsRequest request;
  request.set_method_prefix("tenon.v1.ProviderService");
  v1::GetStatisticsResponse response;
  ASSERT_TRUE(client.stub->GetStatistics(&context, request, &response).ok());
  ASSERT_EQ(response.methods_size(), 1);
  EXPECT_EQ(response.methods(0).started(), 3);
  EXPECT_EQ(response.methods(0).succeeded(), 2);
  EXPECT_EQ(response.methods(0).active(), 1);
  EXPECT_EQ(response.memory().budget_bytes(), server->state()->budget.limit_bytes());
  EXPECT_GT(response.memory().resident_bytes(), 0);
}

// Work, searches for plans and slow storage hold all of their threads until the end.
TEST(Server, AnswersProbesMetricsAndAdministrationWhateverThreadsAreBusyWith) {
  std::promise<void> released;
  const auto gate = released.get_future().share();
  const auto server = StartOrDie(TestConfigWithHttp());
  ASSERT_TRUE(server->WaitUntilReady());
  server::ServerState* state = server->state();
  for (server::Executor* executor : state->executors()) {
    for (int i = 0; i < 8; ++i) executor->Continue([gate] { gate.wait(); });
    EXPECT_TRUE(executor->Submit([gate] { gate.wait(); }).ok());
  }
  const auto channel = ChannelTo(server->addresses()[0]);
  EXPECT_EQ(CheckHealth(channel, ""), kServing);
  EXPECT_THAT(HttpRequest(server->metrics_port(), "GET", "/metrics").body,
              HasSubstr("tenon_queue_depth{class=\"default\"} "));
  EXPECT_EQ(HttpRequest(server->metrics_port(), "GET", "/readyz").code, 200);
  InfoOf(*server);
  const Client<v1::ProviderService> client(*server);
  grpc::ClientContext context;
  v1::GetStatisticsResponse response;
  ASSERT_TRUE(client.stub->GetStatistics(&context, {}, &response).ok());
  ASSERT_EQ(response.queues_size(), 3);
  EXPECT_EQ(response.queues(0).priority(), v1::PRIORITY_CLASS_INTERACTIVE);
  EXPECT_EQ(response.queues(0).waiting(), 0);
  EXPECT_EQ(response.queues(1).priority(), v1::PRIORITY_CLASS_DEFAULT);
  EXPECT_GE(response.queues(1).waiting(), 1);  // for the one thread that lists, at least
  EXPECT_EQ(response.queues(2).priority(), v1::PRIORITY_CLASS_BULK);
  std::string admin;
  EXPECT_NE(RawUnary(channel, "/tenon.v1.AdminService/Trim", "", &admin).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  released.set_value();
}

TEST(Server, RefusesWhatIsNotOfferedYetWithAReason) {
  const auto server = StartOrDie(TestConfig());
  ASSERT_TRUE(server->WaitUntilReady());
  const auto channel = ChannelTo(server->addresses()[0]);
  for (const char* method : {"JobService/SubmitContraction", "JobService/GetJob",
                             "JobService/ListJobs", "JobService/WatchJob", "JobService/ReadResult",
                             "JobService/CancelJob", "JobService/DeleteJob"}) {
    std::string response;
    const grpc::Status status = RawUnary(channel, StrCat("/tenon.v1.", method), "", &response);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << method;
    EXPECT_EQ(ReasonOf(status), "NOT_IMPLEMENTED") << method;
    EXPECT_THAT(status.error_message(), HasSubstr(method));
  }
  EXPECT_EQ(server->state()->metrics.in_flight(), 0);
}

TEST(Server, AnswersProbesAndRefusesWorkWhileItStarts) {
  GatedProvider provider;
  const auto server = StartOrDie(TestConfigWithHttp(), provider.Parts());
  const auto channel = ChannelTo(server->addresses()[0]);
  for (const char* service : kServices) {
    EXPECT_EQ(CheckHealth(channel, service), kNotServing) << service;
  }
  EXPECT_EQ(CheckHealth(channel, "provider/cpu"), kNotServing);
  EXPECT_EQ(HttpRequest(server->metrics_port(), "GET", "/livez").code, 200);
  EXPECT_EQ(HttpRequest(server->metrics_port(), "GET", "/readyz").code, 503);
  EXPECT_EQ(InfoOf(*server).state(), v1::SERVER_STATE_STARTING);
  std::string response;
  const grpc::Status status = RawUnary(channel, "/tenon.v1.JobService/GetJob", "", &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(ReasonOf(status), "STARTING");

  RawCall watch(channel, "/grpc.health.v1.Health/Watch");
  watch.Write(HealthRequest("tenon.v1.ContractionService"));
  watch.WritesDone();
  EXPECT_EQ(HealthStatus(watch.Read().value_or("")), kNotServing);
  provider.Open();
  EXPECT_EQ(HealthStatus(watch.Read().value_or("")), kServing);
  ASSERT_TRUE(server->WaitUntilReady());
  for (const char* service : kServices) {
    EXPECT_EQ(CheckHealth(channel, service), kServing) << service;
  }
  EXPECT_EQ(CheckHealth(channel, "provider/cpu"), kServing);
  EXPECT_EQ(CheckHealth(channel, "provider/reference"), kServing);
  EXPECT_EQ(CheckHealth(channel, "provider/cuda:0"), kNotServing);
  EXPECT_EQ(HttpRequest(server->metrics_port(), "GET", "/readyz").code, 200);
}

TEST(Server, HealthOfAnUnknownServiceIsNotFound) {
  const auto server = StartOrDie(TestConfig());
  std::string response;
  const grpc::Status status =
      RawUnary(ChannelTo(server->addresses()[0]), "/grpc.health.v1.Health/Check",
               HealthRequest("nobody"), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
}

TEST(Server, ServesOnWithoutAProviderThatFailed) {
  GatedProvider provider;
  provider.reference().FailNth(FakeProvider::Entry::kCreate, 1,
                               Error(Reason::kDeviceFault, "broken"));
  provider.Open();
  const auto server = StartOrDie(TestConfig(), provider.Parts());
  ASSERT_TRUE(server->WaitUntilReady());
  const Client<v1::ProviderService> client(*server);
  grpc::ClientContext context;
  v1::ListProvidersRequest request;
  request.set_name("reference");
  v1::ListProvidersResponse response;
  ASSERT_TRUE(client.stub->ListProviders(&context, request, &response).ok());
  EXPECT_EQ(response.providers(0).state(), v1::PROVIDER_STATE_FAILED);
  EXPECT_EQ(response.providers(0).error().reason(), "DEVICE_FAULT");
  EXPECT_EQ(CheckHealth(client.channel, "provider/reference"), kNotServing);
}

TEST(Server, StopsWithAnErrorWhenNoProviderGetsWarm) {
  FakeProvider broken("cpu");
  broken.FailNth(FakeProvider::Entry::kWarmUp, 0, Error(Reason::kDeviceFault, "broken"));
  Server::Parts parts;
  parts.providers = {{"cpu", broken.api(), broken.options()}};
  server::Config config = TestConfig();
  config.providers = {"cpu"};
  const auto server = StartOrDie(config, std::move(parts));
  EXPECT_FALSE(server->WaitUntilReady());
  EXPECT_FALSE(server->Wait());
}

TEST(Server, StopsCleanlyWhileItStarts) {
  GatedProvider provider;
  const auto server = StartOrDie(TestConfig(), provider.Parts());
  server->Shutdown();
  provider.Open();
  EXPECT_TRUE(server->Wait());
  EXPECT_FALSE(server->WaitUntilReady());
}

// What a signal changes while the server runs.
TEST(Server, TakesUpLimitsAndTimesAgain) {
  server::Config config = TestConfig();
  config.memory_budget_bytes = int64_t{1} << 30;
  config.scratch_dir = ::testing::TempDir() + "/tenon_reload_" + std::to_string(getpid());
  config.scratch_budget_bytes = 1000;
  config.max_queued_requests = 0;
  config.drain_delay = config.grace_period = absl::Hours(1);
  const auto server = StartOrDie(config);
  ASSERT_TRUE(server->WaitUntilReady());
  server::MemoryBudget& scratch = server->state()->scratch->budget();
  const auto all = scratch.Reserve(1000);
  server::MemoryBudget::Request request{.ticket = server::NewTicket(), .bytes = 1};
  request.granted = [](server::Reservation) { FAIL(); };
  EXPECT_FALSE(scratch.ReserveInTurn(request).ok());  // nobody may wait
  config.max_queued_requests = 1;
  config.memory_budget_bytes = int64_t{1} << 29;
  config.max_queue_wait = absl::Seconds(7);
  config.drain_delay = absl::ZeroDuration();
  server->Apply(config);
  EXPECT_TRUE(scratch.ReserveInTurn(request).ok());
  EXPECT_TRUE(scratch.Leave(request.ticket));
  EXPECT_EQ(InfoOf(*server).limits().memory_budget_bytes(), int64_t{1} << 29);
  EXPECT_EQ(server->state()->settings.max_queue_wait.load(), std::chrono::seconds(7));
  server->Shutdown();
  EXPECT_TRUE(server->Wait());  // not after an hour
  rmdir(config.scratch_dir.c_str());
}

TEST(Server, LameDuckServesButSaysNotReady) {
  server::Config config = TestConfigWithHttp();
  config.drain_delay = absl::Hours(1);
  const auto server = StartOrDie(config);
  ASSERT_TRUE(server->WaitUntilReady());
  const auto channel = ChannelTo(server->addresses()[0]);
  RawCall watch(channel, "/grpc.health.v1.Health/Watch");
  watch.Write(HealthRequest(""));
  watch.WritesDone();
  ASSERT_EQ(HealthStatus(watch.Read().value_or("")), kServing);

  server->Shutdown();
  EXPECT_EQ(HealthStatus(watch.Read().value_or("")), kNotServing);
  EXPECT_EQ(InfoOf(*server).state(), v1::SERVER_STATE_LAME_DUCK);  // a new connection, too
  EXPECT_EQ(HttpRequest(server->metrics_port(), "GET", "/readyz").code, 503);
  EXPECT_EQ(HttpRequest(server->metrics_port(), "GET", "/livez").code, 200);
  std::string response;
  EXPECT_EQ(ReasonOf(RawUnary(channel, "/tenon.v1.JobService/GetJob", "", &response)),
            "NOT_IMPLEMENTED");  // admitted still

  server->Shutdown();  // skips the hour
  EXPECT_TRUE(server->Wait());
  EXPECT_EQ(server->state()->lifecycle.phase(), server::ServerPhase::kStopped);
  EXPECT_THAT(HttpRequest(server->metrics_port(), "GET", "/metrics").body,
              HasSubstr("tenon_server_state{state=\"stopped\"} 1"));
}

// A health watch is no work: an idle server does not wait for it.
TEST(Server, AnOpenWatchDoesNotHoldUpTheEnd) {
  server::Config config = TestConfig();
  config.grace_period = absl::Hours(1);
  const auto server = StartOrDie(config);
  ASSERT_TRUE(server->WaitUntilReady());
  RawCall watch(ChannelTo(server->addresses()[0]), "/grpc.health.v1.Health/Watch");
  watch.Write(HealthRequest(""));
  watch.WritesDone();
  ASSERT_EQ(HealthStatus(watch.Read().value_or("")), kServing);
  server->Shutdown();
  EXPECT_TRUE(server->Wait());
}

TEST(Server, ASearchThatIsCutByTheEndIsToldWhy) {
  server::Config config = TestConfig();
  config.grace_period = absl::ZeroDuration();
  const auto server = StartOrDie(config);
  ASSERT_TRUE(server->WaitUntilReady());
  const auto stub = v1::ContractionService::NewStub(ChannelTo(server->addresses()[0]));
  v1::PlanContractionRequest request;
  constexpr int kTensors = 60;
  for (int t = 0; t < kTensors; ++t) {
    v1::Operand* operand = request.mutable_network()->add_operands();
    for (const int bond : {t, (t + 1) % kTensors, kTensors + t % (kTensors / 2)}) {
      const std::string index = StrCat("i", bond);
      operand->add_indices(index);
      (*request.mutable_network()->mutable_index_sizes())[index] = 2;
    }
  }
  request.mutable_search()->set_max_trials(int64_t{1} << 40);
  grpc::ClientContext context;
  const auto reader = stub->PlanContraction(&context, request);
  v1::PlanContractionResponse frame;
  ASSERT_TRUE(reader->Read(&frame));
  server->Shutdown();
  while (reader->Read(&frame)) EXPECT_FALSE(frame.has_plan());
  const grpc::Status status = reader->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE) << status.error_message();
  EXPECT_EQ(ReasonOf(status), "DRAINING");
  EXPECT_TRUE(server->Wait());
}

TEST(Server, HttpAnswersOnlyItsThreePages) {
  const auto server = StartOrDie(TestConfigWithHttp());
  ASSERT_TRUE(server->WaitUntilReady());
  const int port = server->metrics_port();
  const HttpAnswer metrics = HttpRequest(port, "GET", "/metrics");
  EXPECT_EQ(metrics.code, 200);
  EXPECT_THAT(metrics.headers, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(metrics.body, HasSubstr("tenon_provider_state{provider=\"cpu\",state=\"ready\"} 1"));
  EXPECT_EQ(HttpRequest(port, "HEAD", "/metrics").body, "");
  EXPECT_EQ(HttpRequest(port, "GET", "/etc/passwd").code, 404);
  EXPECT_EQ(HttpRequest(port, "GET", "/../../etc/passwd").code, 404);
  EXPECT_EQ(HttpRequest(port, "POST", "/metrics").code, 405);
}

TEST(Server, RefusesAnAddressThatIsTaken) {
  const auto first = StartOrDie(TestConfigWithHttp());
  server::Config config = TestConfig();
  config.listen = {*server::ParseAddress(first->addresses()[0])};
  const auto same_port = Server::Start(config);
  EXPECT_TRUE(Fails(same_port, Reason::kBadParameter, "listen"));
  EXPECT_THAT(std::string(same_port.status().message()), HasSubstr(first->addresses()[0]));

  config = TestConfig();
  config.metrics = StrCat("127.0.0.1:", first->metrics_port());
  EXPECT_TRUE(Fails(Server::Start(config), Reason::kBadParameter, "metrics"));
  config.metrics = "";
  const auto second = StartOrDie(config);
  EXPECT_EQ(second->metrics_port(), 0);
}

TEST(Server, ListensOnSeveralAddressesAndAUnixSocket) {
  const std::string path = StrCat(::testing::TempDir(), "/tenon_", getpid(), ".sock");
  server::Config config = TestConfig();
  config.listen = {*server::ParseAddress("unix:" + path), *server::ParseAddress("127.0.0.1:0"),
                   *server::ParseAddress("127.0.0.1:0")};
  const auto server = StartOrDie(config);
  ASSERT_TRUE(server->WaitUntilReady());
  ASSERT_EQ(server->addresses().size(), 3u);
  EXPECT_EQ(server->addresses()[1], StrCat("127.0.0.1:", server->port()));
  for (const std::string& address : server->addresses()) {
    EXPECT_EQ(CheckHealth(ChannelTo(address), ""), kServing) << address;
  }
}

TEST(Server, ReflectionListsTheServices) {
  const std::string list_services = "\x3A\x01*";  // ServerReflectionRequest.list_services
  const auto server = StartOrDie(TestConfig());
  RawCall call(ChannelTo(server->addresses()[0]),
               "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  ASSERT_TRUE(call.Write(list_services));
  const std::string response = call.Read().value_or("");
  for (const char* service : kServices) EXPECT_THAT(response, HasSubstr(service));
}

}  // namespace
}  // namespace tenon::testing
