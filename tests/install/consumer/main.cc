// Contracts in the background and reads the answer: consumer ADDRESS.

#include <iostream>
#include <span>
#include <vector>

#include "tenon/tenon.h"

int main(int argc, char** argv) {
  namespace tc = tenon::client;
  if (argc != 2) return 2;
  auto client = tc::Client::Connect(argv[1]);
  if (!client.ok() || !client->WaitUntilReady(absl::Seconds(60)).ok()) return 1;
  const std::vector<double> a(6, 1.5);
  const std::vector<double> b(6, 2.0);
  tc::ContractRequest request;
  request.einsum = "ab,bc->ac";
  request.operands = {
      tc::TensorView({tenon::DType::kFloat64, {2, 3}}, std::as_bytes(std::span(a))),
      tc::TensorView({tenon::DType::kFloat64, {3, 2}}, std::as_bytes(std::span(b)))};
  auto outcome = client->ContractAsync(request).Get();
  if (!outcome.ok()) {
    std::cerr << outcome.status() << "\n";
    return 1;
  }
  std::cout << outcome->results[0].tensor.buffer.as<double>()[3] << "\n";
  request.operands.pop_back();
  const auto error = tc::ServerErrorOf(client->Contract(request).status());
  std::cout << (error.has_value() ? error->reason : "no error") << "\n";
}
