// Networks to plan, and a client of PlanContraction.

#ifndef TENON_TESTS_SERVER_PLAN_SERVICE_FIXTURE_H_
#define TENON_TESTS_SERVER_PLAN_SERVICE_FIXTURE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <complex>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "backends/core/strings.h"
#include "tests/server/contraction_test_server.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {

// A ring of `n` matrices with a chord from every tensor to the one opposite: no outer dimensions.
inline v1::ContractHeader Ring(int n, const std::string& prefix, bool with_values = false) {
  v1::ContractHeader header;
  for (int t = 0; t < n; ++t) {
    const std::vector<std::string> indices = {prefix + std::to_string(t),
                                              prefix + std::to_string((t + 1) % n),
                                              prefix + "chord" + std::to_string(t % (n / 2))};
    if (with_values) {
      std::vector<std::complex<double>> values;
      for (int e = 0; e < 8; ++e) values.emplace_back((t * 5 + e * 3) % 7 - 3);
      AddOperand(&header, indices, v1::DATA_TYPE_FLOAT64, {2, 2, 2}, values);
    } else {
      AddOperand(&header, indices, v1::DATA_TYPE_FLOAT64, {2, 2, 2});
    }
  }
  header.mutable_network()->mutable_output();
  return header;
}

// A square lattice of bonds of one size, with values where there are few.
inline v1::ContractHeader Lattice(int width, int64_t bond, bool with_values = false) {
  v1::ContractHeader header;
  const auto name = [](int a, int b) { return StrCat(a, "-", b); };
  for (int t = 0; t < width * width; ++t) {
    std::vector<std::string> indices;
    if (t % width > 0) indices.push_back(name(t - 1, t));
    if (t % width < width - 1) indices.push_back(name(t, t + 1));
    if (t >= width) indices.push_back(name(t - width, t));
    if (t < width * (width - 1)) indices.push_back(name(t, t + width));
    const std::vector<int64_t> shape(indices.size(), bond);
    if (!with_values) {
      AddOperand(&header, indices, v1::DATA_TYPE_FLOAT64, shape);
      continue;
    }
    std::vector<std::complex<double>> values;
    for (int e = 0; e < std::pow(bond, indices.size()); ++e) values.emplace_back(e % 3 - 1 + t % 2);
    AddOperand(&header, indices, v1::DATA_TYPE_FLOAT64, shape, values);
  }
  header.mutable_network()->mutable_output();
  return header;
}

// A search that only a cancel or a deadline ends.
inline v1::SearchOptions Endless() {
  v1::SearchOptions search;
  search.set_max_trials(int64_t{1} << 40);
  search.set_cache(v1::PLAN_CACHE_POLICY_BYPASS);
  return search;
}

class PlanServiceTest : public ::testing::Test {
 protected:
  struct Planned {
    grpc::Status status;
    int progress = 0;  // frames
    std::vector<v1::PlanImprovement> improvements;
    std::optional<v1::PlanResult> plan;
  };

  Planned Plan(const v1::PlanContractionRequest& request) {
    Planned planned;
    grpc::ClientContext context;
    const auto reader = server_.stub().PlanContraction(&context, request);
    v1::PlanContractionResponse frame;
    while (reader->Read(&frame)) {
      EXPECT_FALSE(planned.plan.has_value()) << "a frame after the plan";
      planned.progress += frame.has_progress() ? 1 : 0;
      if (frame.has_improvement()) planned.improvements.push_back(frame.improvement());
      if (frame.has_plan()) planned.plan = frame.plan();
    }
    planned.status = reader->Finish();
    return planned;
  }

  // Until no request is at work.
  void AwaitIdle() {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    const auto running = [this] { return server_.state().running(); };
    while (running() > 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    EXPECT_EQ(running(), 0);
  }

  static v1::PlanContractionRequest Request(const v1::ContractHeader& header, int64_t trials = 8) {
    v1::PlanContractionRequest request;
    *request.mutable_network() = header.network();
    request.mutable_search()->set_max_trials(trials);
    return request;
  }

  ContractionTestServer server_;
};

}  // namespace tenon::server

#endif  // TENON_TESTS_SERVER_PLAN_SERVICE_FIXTURE_H_
