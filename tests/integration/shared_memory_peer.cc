// A client that holds a pool and computes in it until somebody ends it: the victim of
// shared_memory_test.
//
//   shared_memory_peer ADDRESS SOCKET
//
// Prints "running" once its first result has come.

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "tenon/client.h"

namespace tenon::client {
namespace {

constexpr int64_t kExtent = 1024;

int Run(const std::string& address, const std::string& socket) {
  auto client = Client::Connect(address);
  auto pool = SharedPool::Connect(socket, int64_t{64} << 20);
  if (!client.ok() || !pool.ok()) return 1;
  const TensorSpec spec{DType::kFloat64, {kExtent, kExtent}};
  auto operand = (*pool)->Allocate(kExtent * kExtent * 8);
  if (!operand.ok()) return 1;
  std::memset(operand->bytes().data(), 0, operand->bytes().size());
  ContractRequest request;
  request.einsum = "ab,bc->ac";
  request.operands = {TensorView(spec, operand->bytes()), TensorView(spec, operand->bytes())};
  request.operands[1].varying = true;
  request.pool = *pool;
  request.result_in_pool = true;
  request.next_set = [&](int64_t, std::vector<TensorView>* views) {
    views->emplace_back(spec, operand->bytes());
    return true;
  };
  ContractCallbacks callbacks;
  bool told = false;
  callbacks.on_result = [&](const ContractResult& result) {
    if (result.block != nullptr && !std::exchange(told, true)) {
      std::puts("running");
      std::fflush(stdout);
    }
    return absl::OkStatus();
  };
  return client->Contract(request, {}, callbacks).ok() ? 0 : 1;
}

}  // namespace
}  // namespace tenon::client

int main(int argc, char** argv) { return argc == 3 ? tenon::client::Run(argv[1], argv[2]) : 2; }
