#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "tenon/client.h"

int main() {
  const char* address = std::getenv("TENON_SERVER");
  auto client = tenon::client::Client::Connect(address ? address : "127.0.0.1:50551");
  auto a = tenon::Tensor::Allocate({tenon::DType::kFloat64, {2, 3}});
  auto b = tenon::Tensor::Allocate({tenon::DType::kFloat64, {3, 2}});
  if (!client.ok() || !a.ok() || !b.ok()) return 1;
  std::fill_n(a->buffer.as<double>(), 6, 1.5);
  std::fill_n(b->buffer.as<double>(), 6, 2.0);

  tenon::client::ContractRequest request;
  request.einsum = "ab,bc->ac";
  request.operands = {*a, *b};
  auto outcome = client->Contract(request);
  if (!outcome.ok()) {
    std::cerr << outcome.status().ToString(absl::StatusToStringMode::kWithNoExtraData) << "\n";
    return 1;
  }
  const double* c = outcome->results[0].tensor.buffer.as<double>();
  std::cout << c[0] << " " << c[1] << " " << c[2] << " " << c[3] << "\n";  // 9 9 9 9
}
