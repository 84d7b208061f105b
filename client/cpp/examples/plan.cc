#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "tenon/client.h"

int main() {
  const char* address = std::getenv("TENON_SERVER");
  auto client = tenon::client::Client::Connect(address ? address : "127.0.0.1:50551");
  auto matrix = tenon::Tensor::Allocate({tenon::DType::kFloat64, {40, 40}});
  if (!client.ok() || !matrix.ok()) return 1;
  std::fill_n(matrix->buffer.as<double>(), 40 * 40, 0.025);  // times itself: the same again

  // The trace of a product of nine matrices, searched in sixteen trials, in slices of at most 1024
  // elements.
  tenon::client::ContractRequest request;
  request.einsum = "ab,bc,cd,de,ef,fg,gh,hi,ia->";
  request.operands.assign(9, *matrix);
  request.search.emplace().set_max_trials(16);
  request.search->set_target_size(1024);
  tenon::client::PlanCallbacks callbacks;
  callbacks.on_improvement = [](const tenon::v1::PlanImprovement& better) {
    std::cerr << "10^" << better.total().log10_flops() << " multiply-adds\n";
  };
  auto planned = client->Plan(request, {}, callbacks);
  if (!planned.ok()) {
    std::cerr << planned.status().ToString(absl::StatusToStringMode::kWithNoExtraData) << "\n";
    return 1;
  }
  std::cout << planned->plan().slices() << " slices\n";

  // The plan's name stands for it as long as the server keeps it; PlanContraction's answer has the
  // path and the slices, too.
  request.search.reset();
  request.plan_id = planned->plan().plan_id();
  auto outcome = client->Contract(request);
  if (!outcome.ok()) return 1;
  std::cout << outcome->results[0].tensor.buffer.as<double>()[0] << "\n";  // 1
}
