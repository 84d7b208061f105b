// A server in the test's process whose answers are written by the test.

#ifndef TENON_TESTS_CLIENT_FAKE_SERVER_H_
#define TENON_TESTS_CLIENT_FAKE_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/core/tensor.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tenon/v1/measurement.grpc.pb.h"
#include "tenon/v1/provider.grpc.pb.h"

namespace tenon::testing {

using ContractServerStream = grpc::ServerReaderWriter<v1::ContractResponse, v1::ContractRequest>;
using MeasureServerStream = grpc::ServerReaderWriter<v1::MeasureResponse, v1::MeasureRequest>;

// Runs from construction to destruction on a free port. A method without a script is UNIMPLEMENTED.
class FakeServer {
 public:
  struct Script {
    std::function<grpc::Status(grpc::ServerContext*, ContractServerStream*)> contract = nullptr;
    std::function<grpc::Status(const v1::EstimateRequest&, v1::EstimateResponse*)> estimate =
        nullptr;
    std::function<grpc::Status(grpc::ServerContext*, MeasureServerStream*)> measure = nullptr;
    std::function<grpc::Status(const v1::ListMeasuresRequest&, v1::ListMeasuresResponse*)>
        list_measures = nullptr;
    std::function<grpc::Status(v1::GetServerInfoResponse*)> server_info = nullptr;
    std::function<grpc::Status(const v1::ListProvidersRequest&, v1::ListProvidersResponse*)>
        list_providers = nullptr;
  };

  explicit FakeServer(Script script);
  ~FakeServer();
  // "127.0.0.1:port".
  const std::string& address() const { return address_; }

 private:
  class Services;
  std::unique_ptr<Services> services_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

// An error as a server sends it.
struct WireError {
  grpc::StatusCode code = grpc::StatusCode::INVALID_ARGUMENT;
  std::string reason;
  std::string message;
  std::string field;
  std::map<std::string, std::string> metadata;
  double retry_seconds = 0;  // 0: no RetryInfo
};
grpc::Status MakeStatus(const WireError& error);

// Frames of a contraction.
v1::ContractResponse AcceptedFrame();
v1::ContractResult InlineResult(int64_t set, const TensorSpec& spec, const std::string& bytes);
v1::ContractResponse ResultFrame(int64_t set, const TensorSpec& spec);
v1::ContractResponse ChunkFrame(int64_t set, int64_t offset, const std::string& bytes);
v1::ContractResponse SetReportFrame(int64_t set, int64_t bytes);
v1::ContractResponse ReportFrame(int64_t sets);

// The bytes of values, and float64 tensors of them.
template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
Tensor MakeTensor(const std::vector<int64_t>& shape, const std::vector<double>& values);
// 0, 1, 2, ... in float64.
Tensor MakeRange(const std::vector<int64_t>& shape);

}  // namespace tenon::testing

#endif  // TENON_TESTS_CLIENT_FAKE_SERVER_H_
