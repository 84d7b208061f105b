// A server of measurements inside the test, and a client that says what came back.

#ifndef TENON_TESTS_SERVER_MEASUREMENT_TEST_SERVER_H_
#define TENON_TESTS_SERVER_MEASUREMENT_TEST_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backends/core/tensor.h"
#include "server/content_store.h"
#include "server/state.h"
#include "tenon/v1/dataset.grpc.pb.h"
#include "tenon/v1/measurement.grpc.pb.h"

namespace tenon::server {

struct TestServerOptions {
  int64_t budget_bytes = int64_t{256} << 20;
  int executor_threads = 4;
  int64_t max_queued = 64;
  std::string data_root{};           // of server files; empty: none
  std::string scratch_root{};        // of temporary files; empty: none
  int64_t scratch_budget_bytes = 0;  // of them
};

// Providers "cpu", "reference", "gated": the CPU's, whose projections wait at a Gate; and
// "partial": the CPU's without neighbours and ranks.
class TestServer {
 public:
  explicit TestServer(const TestServerOptions& options = {});
  ~TestServer();

  ServerState& state() { return *state_; }
  v1::MeasurementService::Stub& measurement() { return *measurement_; }
  v1::DatasetService::Stub& datasets() { return *datasets_; }

  // Waits until nothing is reserved beyond what the store holds; false after 30 seconds.
  bool AllReleased();

 private:
  std::unique_ptr<ServerState> state_;
  std::unique_ptr<grpc::Service> measurement_service_, dataset_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::MeasurementService::Stub> measurement_;
  std::unique_ptr<v1::DatasetService::Stub> datasets_;
};

// Where projections of the provider "gated" wait. One for the process; open at first.
class Gate {
 public:
  static void Close();
  static void Open();
  // Waits until `count` projections are inside together.
  static void AwaitInside(int count);
  static int max_inside();
};

// What a failed call says.
struct CallError {
  grpc::StatusCode code = grpc::StatusCode::OK;
  std::string reason, message, field;
  std::map<std::string, std::string> metadata;
};
CallError ErrorOf(const grpc::Status& status);
// "INVALID_ARGUMENT K_OUT_OF_RANGE header.specs[0].x.k", for comparison.
std::string Summary(const grpc::Status& status);
std::string Summary(const v1::ErrorDetail& detail);

// A Measure call.
class MeasureClient {
 public:
  explicit MeasureClient(
      TestServer* server,
      std::optional<std::chrono::system_clock::time_point> deadline = std::nullopt);
  ~MeasureClient();

  // False when the call is over already.
  bool Send(const v1::MeasureRequest& frame);
  bool Send(const v1::MeasureHeader& header);
  bool Stop();
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }
  grpc::ClientContext& context() { return context_; }

  // Sends all, half-closes, and reads meanwhile: a client that only writes is held back as soon as
  // its answers wait. Tells what came.
  std::vector<v1::MeasureResponse> Exchange(const std::vector<v1::MeasureRequest>& frames);
  // The next frame; one without a set field at the end.
  v1::MeasureResponse Read();
  // Half-closes, reads what is left, and ends the call.
  std::vector<v1::MeasureResponse> ReadAll();
  // Reads what is left without half-closing.
  std::vector<v1::MeasureResponse> ReadRest();
  // Once; after the last frame has been read.
  grpc::Status Finish();

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::MeasureRequest, v1::MeasureResponse>> stream_;
  bool finished_ = false;
};

// Matrices as they travel.
struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<double> values;

  std::string bytes() const;
};
// Values that look random, the same on every run.
Matrix MakeMatrix(int64_t rows, int64_t columns, uint32_t seed);

void SetSpec(int64_t rows, int64_t columns, v1::TensorSpec* spec);
v1::DatasetInput InlineDataset(const Matrix& matrix);
v1::Projection InlineProjection(int64_t index, const Matrix& matrix);
v1::MeasureRequest Frame(const v1::Projection& projection);
v1::MeasureRequest DatasetChunk(int64_t offset, const std::string& data);
v1::MeasureRequest ProjectionChunk(int64_t index, int64_t offset, const std::string& data);
// A header with an inline data set and the measures, all parameters default except k where > 0.
v1::MeasureHeader Header(const Matrix& dataset, const std::vector<std::string>& ids, int k = 0);
// A specification with k; ids that take none ignore it.
void AddSpec(const std::string& id, int k, v1::MeasureHeader* header);

}  // namespace tenon::server

#endif  // TENON_TESTS_SERVER_MEASUREMENT_TEST_SERVER_H_
