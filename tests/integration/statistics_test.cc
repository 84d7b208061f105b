// What the server counts: statistics, metrics and the reports of the calls say the same, and no
// request makes a series.

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/server.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tenon/v1/job.pb.h"
#include "tenon/v1/measurement.grpc.pb.h"
#include "tenon/v1/provider.grpc.pb.h"
#include "tests/integration/raw_call.h"
#include "tests/integration/test_server.h"
#include "tests/support/fake_provider.h"
#include "tests/support/prometheus_text.h"

namespace tenon::testing {
namespace {

using server::Server;

constexpr char kContract[] = "tenon.v1.ContractionService/Contract";
constexpr char kMeasure[] = "tenon.v1.MeasurementService/Measure";

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

void SetMatrix(v1::TensorSpec* spec, int64_t rows, int64_t columns) {
  spec->set_dtype(v1::DATA_TYPE_FLOAT64);
  spec->add_shape(rows);
  spec->add_shape(columns);
}

// A product of two matrices of `size`, cut into slices over the summed index.
v1::ContractRequest Product(int64_t size, bool sliced) {
  v1::ContractRequest frame;
  v1::ContractHeader* header = frame.mutable_header();
  const std::vector<double> ones(static_cast<size_t>(size * size), 1.0);
  const std::vector<std::vector<std::string>> names = {{"a", "b"}, {"b", "c"}};
  for (const auto& indices : names) {
    v1::Operand* operand = header->mutable_network()->add_operands();
    operand->mutable_indices()->Assign(indices.begin(), indices.end());
    SetMatrix(operand->mutable_spec(), size, size);
    operand->set_inline_data(BytesOf(ones));
  }
  header->mutable_network()->add_output("a");
  header->mutable_network()->add_output("c");
  if (sliced) {
    v1::ExplicitPlan* plan = header->mutable_path();
    plan->mutable_path()->set_format(v1::PATH_FORMAT_SSA);
    v1::PathStep* step = plan->mutable_path()->add_steps();
    step->add_operands(0);
    step->add_operands(1);
    plan->add_sliced_indices("b");
  }
  return frame;
}

class StatisticsTest : public ::testing::Test {
 protected:
  void Start(Server::Parts parts = {}) {
    server_ = StartOrDie(TestConfigWithHttp(), std::move(parts));
    ASSERT_TRUE(server_->WaitUntilReady());
    channel_ = ChannelTo(server_->addresses()[0]);
  }

  std::map<std::string, PrometheusFamily> Metrics() const {
    return ParsePrometheus(HttpRequest(server_->metrics_port(), "GET", "/metrics").body);
  }

  // Counts are complete once no call is in flight: a client sees the end a little sooner.
  void AwaitIdle() const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (server_->state()->metrics.in_flight() > 0 && std::chrono::steady_clock::now() < limit) {
      std::this_thread::yield();
    }
    EXPECT_EQ(server_->state()->metrics.in_flight(), 0);
  }

  v1::GetStatisticsResponse Statistics() const {
    AwaitIdle();
    grpc::ClientContext context;
    v1::GetStatisticsResponse statistics;
    EXPECT_TRUE(
        v1::ProviderService::NewStub(channel_)->GetStatistics(&context, {}, &statistics).ok());
    return statistics;
  }

  v1::ContractionReport Contract(const v1::ContractRequest& header) const {
    grpc::ClientContext context;
    const auto stream = v1::ContractionService::NewStub(channel_)->Contract(&context);
    stream->Write(header);
    stream->WritesDone();
    v1::ContractionReport report;
    for (v1::ContractResponse frame; stream->Read(&frame);) {
      if (frame.has_report()) report = frame.report();
      if (frame.has_single()) report = frame.single().report();
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return report;
  }

  v1::MeasureReport Measure(int projections) const {
    constexpr int64_t kRows = 40;
    std::minstd_rand random(5);
    const auto matrix = [&](int64_t columns) {
      std::vector<double> values(static_cast<size_t>(kRows * columns));
      for (double& value : values) value = static_cast<double>(random() % 1000);
      return BytesOf(values);
    };
    v1::MeasureRequest frame;
    v1::MeasureHeader* header = frame.mutable_header();
    SetMatrix(header->mutable_dataset_input()->mutable_spec(), kRows, 5);
    header->mutable_dataset_input()->set_inline_data(matrix(5));
    header->add_specs()->set_id("stress");
    for (int i = 0; i < projections; ++i) {
      v1::Projection* one = header->mutable_inline_projections()->add_projections();
      one->set_index(i);
      SetMatrix(one->mutable_spec(), kRows, 2);
      one->set_inline_data(matrix(2));
    }
    grpc::ClientContext context;
    const auto stream = v1::MeasurementService::NewStub(channel_)->Measure(&context);
    stream->Write(frame);
    stream->WritesDone();
    v1::MeasureReport report;
    for (v1::MeasureResponse answer; stream->Read(&answer);) {
      if (answer.has_summary()) report = answer.summary().report();
      if (answer.has_single()) report = answer.single().summary().report();
    }
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return report;
  }

  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

const v1::MethodStatistics& MethodIn(const v1::GetStatisticsResponse& statistics,
                                     const std::string& name) {
  static const v1::MethodStatistics none;
  for (const auto& method : statistics.methods()) {
    if (method.method() == name) return method;
  }
  ADD_FAILURE() << "no statistics of " << name;
  return none;
}

// The phases of `method` against the sums of the calls' reports, in statistics and in metrics.
void ExpectPhases(const v1::MethodStatistics& method,
                  std::map<std::string, PrometheusFamily>& metrics,
                  const std::map<std::string, double>& sums, int calls) {
  std::map<std::string, const v1::PhaseStatistics*> phases;
  for (const auto& phase : method.phases()) phases[phase.phase()] = &phase;
  for (const auto& [name, sum] : sums) {
    const double slack = 1e-9 + 1e-6 * sum;
    ASSERT_EQ(phases.count(name), 1u) << name;
    EXPECT_NEAR(phases[name]->total_seconds(), sum, slack) << name;
    EXPECT_EQ(phases[name]->count(), calls) << name;
    EXPECT_LE(phases[name]->max_seconds(), phases[name]->total_seconds() + slack) << name;
    const std::string labels = "method=\"" + method.method() + "\",phase=\"" + name + "\"";
    EXPECT_NEAR(metrics["tenon_phase_seconds"].series["_sum " + labels], sum, slack + 1e-6) << name;
    EXPECT_EQ(metrics["tenon_phase_seconds"].series["_count " + labels], calls) << name;
  }
}

void AddTiming(const v1::Timing& timing, std::map<std::string, double>* sums) {
  (*sums)["queue"] += timing.queue_seconds();
  (*sums)["input_receive"] += timing.input_receive_seconds();
  (*sums)["input_prepare"] += timing.input_prepare_seconds();
  (*sums)["setup"] += timing.setup_seconds();
  (*sums)["dispatch"] += timing.dispatch_seconds();
  (*sums)["execution"] += timing.execution_seconds();
  (*sums)["result_send"] += timing.result_send_seconds();
  // What the contract says of the sums.
  EXPECT_NEAR(timing.total_host_seconds(),
              timing.input_prepare_seconds() + timing.setup_seconds() + timing.dispatch_seconds(),
              1e-9);
  EXPECT_TRUE(timing.has_execution_seconds());
  EXPECT_GT(timing.execution_seconds(), 0);
  EXPECT_GE(timing.request_seconds() + 1e-9, timing.queue_seconds());
}

TEST_F(StatisticsTest, ContractionsAreCountedAsTheirReportsSay) {
  Start();
  constexpr int kCalls = 6;
  std::map<std::string, double> sums;
  double flops = 0, real_flops = 0;
  int64_t slices = 0, groups = 0, received = 0, sent = 0;
  for (int call = 0; call < kCalls; ++call) {
    const v1::ContractionReport report = Contract(Product(8 + call % 2 * 40, call % 3 == 0));
    AddTiming(report.timing(), &sums);
    flops += report.flops();
    real_flops += report.real_flops();
    slices += report.slices();
    groups += report.slice_groups();
    received += report.timing().received_bytes();
    sent += report.timing().sent_bytes();
    EXPECT_GT(report.memory().measured_peak_bytes(), 0);
  }
  EXPECT_GT(slices, kCalls);
  const v1::GetStatisticsResponse statistics = Statistics();
  auto metrics = Metrics();
  const v1::MethodStatistics& method = MethodIn(statistics, kContract);
  EXPECT_EQ(method.started(), kCalls);
  EXPECT_EQ(method.succeeded(), kCalls);
  EXPECT_EQ(method.active(), 0);
  EXPECT_EQ(method.items(), kCalls);
  EXPECT_EQ(method.received_bytes(), received);
  EXPECT_EQ(method.sent_bytes(), sent);
  ExpectPhases(method, metrics, sums, kCalls);

  ASSERT_GT(statistics.providers_size(), 0);
  const v1::ProviderStatistics& cpu = statistics.providers(0);
  EXPECT_EQ(cpu.provider(), "cpu");
  EXPECT_EQ(cpu.groups(), groups);
  EXPECT_NEAR(cpu.flops(), flops, 1e-9 * flops);
  EXPECT_GT(cpu.execution_seconds(), 0);
  EXPECT_EQ(cpu.failures(), 0);

  const std::string label = std::string("method=\"") + kContract + "\"";
  EXPECT_EQ(metrics["tenon_requests_total"].series["code=\"OK\"," + label], kCalls);
  EXPECT_EQ(metrics["tenon_request_seconds"].series["_count " + label], kCalls);
  EXPECT_EQ(metrics["tenon_received_bytes_total"].series[label], received);
  EXPECT_EQ(metrics["tenon_sent_bytes_total"].series[label], sent);
  EXPECT_EQ(metrics["tenon_slices_total"].series["outcome=\"ok\",provider=\"cpu\""], slices);
  EXPECT_EQ(metrics["tenon_slice_group_seconds"].series["_count provider=\"cpu\""], groups);
  EXPECT_EQ(metrics["tenon_flops_total"].series["dtype=\"float64\",provider=\"cpu\""], real_flops);
  // Two sizes, with and without slices, in whatever combinations came.
  std::map<std::string, const v1::CacheStatistics*> caches;
  for (const auto& cache : statistics.caches()) caches[cache.cache()] = &cache;
  ASSERT_EQ(caches.count("program_cache"), 1u);
  EXPECT_EQ(caches["program_cache"]->misses(), caches["program_cache"]->entries());
  EXPECT_EQ(caches["program_cache"]->hits() + caches["program_cache"]->misses(), kCalls);
  EXPECT_EQ(metrics["tenon_cache_entries"].series["cache=\"program_cache\""],
            caches["program_cache"]->entries());
}

TEST_F(StatisticsTest, MeasurementsAreCountedAsTheirReportsSay) {
  Start();
  constexpr int kCalls = 3, kProjections = 4;
  std::map<std::string, double> sums;
  int64_t received = 0, sent = 0;
  for (int call = 0; call < kCalls; ++call) {
    const v1::MeasureReport report = Measure(kProjections);
    AddTiming(report.timing(), &sums);
    received += report.timing().received_bytes();
    sent += report.timing().sent_bytes();
  }
  const v1::GetStatisticsResponse statistics = Statistics();
  auto metrics = Metrics();
  const v1::MethodStatistics& method = MethodIn(statistics, kMeasure);
  EXPECT_EQ(method.succeeded(), kCalls);
  EXPECT_EQ(method.items(), kCalls * kProjections);
  EXPECT_EQ(method.received_bytes(), received);
  EXPECT_EQ(method.sent_bytes(), sent);
  ExpectPhases(method, metrics, sums, kCalls);
  EXPECT_EQ(metrics["tenon_projections_total"].series["outcome=\"scored\""], kCalls * kProjections);
  const auto& cpu = statistics.providers(0);
  EXPECT_NEAR(cpu.execution_seconds(), sums["execution"], 1e-6);
  EXPECT_EQ(metrics["tenon_resources_total"].series["outcome=\"built\",provider=\"cpu\""],
            cpu.resources());
}

TEST_F(StatisticsTest, EveryCacheAndTheMemoryAreTold) {
  Start();
  const v1::GetStatisticsResponse statistics = Statistics();
  std::vector<std::string> names;
  for (const auto& cache : statistics.caches()) names.push_back(cache.cache());
  EXPECT_THAT(names, ::testing::ElementsAre("plan_cache", "program_cache", "datasets", "tensors",
                                            "resources"));
  EXPECT_GT(statistics.caches(0).limit_bytes(), 0);
  EXPECT_GT(statistics.memory().budget_bytes(), 0);
  EXPECT_GE(statistics.memory().peak_resident_bytes(), statistics.memory().resident_bytes() / 2);
  EXPECT_GT(statistics.since_time().seconds(), 0);
  std::vector<std::string> providers;
  for (const auto& provider : statistics.providers()) providers.push_back(provider.provider());
  EXPECT_THAT(providers, ::testing::UnorderedElementsAre("cpu", "reference", "cuda:0"));
}

// Every method of every service, with what clients that are broken or mean send.
void SendNonsense(const std::shared_ptr<grpc::Channel>& channel, uint32_t seed, int calls) {
  std::minstd_rand random(seed);
  std::vector<std::string> methods;
  for (const char* name : {"ContractionService", "MeasurementService", "DatasetService",
                           "JobService", "ProviderService", "AdminService"}) {
    const auto* service = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
        std::string("tenon.v1.") + name);
    ASSERT_NE(service, nullptr) << name;
    for (int m = 0; m < service->method_count(); ++m) {
      if (service->method(m)->name() == "Drain") continue;  // would end the test
      methods.push_back("/" + service->full_name() + "/" + service->method(m)->name());
    }
  }
  methods.emplace_back("/tenon.v1.NoService/NoMethod");
  for (int c = 0; c < calls; ++c) {
    RawCall call(channel, methods[random() % methods.size()], std::chrono::milliseconds(100));
    std::string message;
    if (random() % 3 == 0) {
      v1::ContractRequest product = Product(2, random() % 2 == 0);
      product.mutable_header()->set_request_id("id" + std::to_string(random()));
      if (random() % 2 == 0) {
        product.mutable_header()->mutable_execution()->add_providers("p" +
                                                                     std::to_string(random()));
      }
      message = product.SerializeAsString();
    }
    for (size_t i = random() % 8; i > 0 && !message.empty(); --i) {
      message[random() % message.size()] = static_cast<char>(random());
    }
    for (size_t i = random() % 40; i > 0; --i) message += static_cast<char>(random());
    call.Write(message);
    if (random() % 4 > 0) call.WritesDone();
    if (random() % 4 > 0) {
      call.Finish();
    } else {
      call.Cancel();
    }
  }
}

TEST_F(StatisticsTest, NoRequestMakesASeries) {
  FakeProvider cpu("cpu"), gpu("cuda:0");
  Server::Parts parts;
  parts.providers = {{"cpu", cpu.api(), cpu.options()}, {"cuda:0", gpu.api(), gpu.options()}};
  server::Config config = TestConfigWithHttp();
  config.providers = {"cpu", "cuda:0"};
  server_ = StartOrDie(config, std::move(parts));
  ASSERT_TRUE(server_->WaitUntilReady());
  channel_ = ChannelTo(server_->addresses()[0]);
  const std::set<std::string> before = SeriesOf(Metrics());
  EXPECT_LT(before.size(), 1500u);
  for (uint32_t seed = 1; seed <= 4; ++seed) SendNonsense(channel_, seed, 100);
  AwaitIdle();
  const std::set<std::string> after = SeriesOf(Metrics());
  EXPECT_EQ(after, before);
  server_.reset();  // before the providers
}

// Health, metrics and the services that describe answer while every worker waits.
TEST_F(StatisticsTest, WhatDescribesTheServerNeverWaitsForWork) {
  server::Config config = TestConfigWithHttp();
  config.concurrent_requests = 2;
  server_ = StartOrDie(config);
  ASSERT_TRUE(server_->WaitUntilReady());
  channel_ = ChannelTo(server_->addresses()[0]);
  std::promise<void> gate;
  const std::shared_future<void> opened = gate.get_future().share();
  std::vector<std::promise<void>> begun(3);
  for (int i = 0; i < 2; ++i) {
    server_->state()->executor.Continue([opened, &begun, i] {
      begun[static_cast<size_t>(i)].set_value();
      opened.wait();
    });
  }
  server_->state()->listing.Continue([opened, &begun] {  // where storage is waited for
    begun[2].set_value();
    opened.wait();
  });
  for (auto& one : begun) one.get_future().wait();

  const int port = server_->metrics_port();
  EXPECT_EQ(HttpRequest(port, "GET", "/livez").code, 200);
  EXPECT_EQ(HttpRequest(port, "GET", "/readyz").code, 200);
  EXPECT_EQ(HttpRequest(port, "GET", "/metrics").code, 200);
  std::string response;
  for (const char* method :
       {"/grpc.health.v1.Health/Check", "/tenon.v1.ProviderService/GetServerInfo",
        "/tenon.v1.ProviderService/ListProviders", "/tenon.v1.ProviderService/GetStatistics",
        "/tenon.v1.DatasetService/ListDatasets"}) {
    EXPECT_TRUE(RawUnary(channel_, method, "", &response).ok()) << method;
  }
  // An answer, whatever it is.
  EXPECT_NE(RawUnary(channel_, "/tenon.v1.AdminService/Trim", "", &response).error_code(),
            grpc::StatusCode::DEADLINE_EXCEEDED);
  gate.set_value();
}

}  // namespace
}  // namespace tenon::testing
