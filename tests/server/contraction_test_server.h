// A server of contractions inside the test, and a client that checks the order of what comes back.

#ifndef TENON_TESTS_SERVER_CONTRACTION_TEST_SERVER_H_
#define TENON_TESTS_SERVER_CONTRACTION_TEST_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <complex>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/state.h"
#include "tenon/v1/contraction.grpc.pb.h"
#include "tests/support/fake_provider.h"

namespace tenon::server {

// Makes a provider, warms it up and enters it in the server's list.
void AddProvider(const std::string& name, const tenon_provider_api* api, const std::string& options,
                 ServerState* state);

struct ContractionServerOptions {
  int64_t budget_bytes = int64_t{512} << 20;
  int executor_threads = 2;
  int64_t max_queued = 64;
  // Called last before the server is built.
  std::function<void(ServerState*, grpc::ServerBuilder*)> extend{};
};

// On a real port of the loopback. Providers "cpu", "reference", and "fake", which the test scripts.
class ContractionTestServer {
 public:
  explicit ContractionTestServer(const ContractionServerOptions& options = {});
  ~ContractionTestServer();

  ServerState& state() { return *state_; }
  testing::FakeProvider& fake() { return fake_; }
  v1::ContractionService::Stub& stub() { return *stub_; }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  const std::string& address() const { return address_; }  // "127.0.0.1:port"

  // Waits until no request holds memory; false after 30 seconds.
  bool AllReleased();

 private:
  testing::FakeProvider fake_;
  std::unique_ptr<ServerState> state_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ContractionService::Stub> stub_;
};

// Keeps the executor's threads busy until it goes, so that whatever comes waits in the queue.
class BusyExecutor {
 public:
  BusyExecutor(Executor* executor, int threads);
  ~BusyExecutor() { Release(); }
  void Release();

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

// One result, put together.
struct ReceivedResult {
  v1::TensorSpec spec;
  std::string bytes;
  v1::SetReport report;
  std::optional<double> log10_scale;
  bool in_line = false;  // stood in the frame `result`
  std::optional<v1::SharedRegion> shared;
  int chunks = 0;
  int checked_chunks = 0;  // that carry the right checksum
};

// All that came before the status. `order_error` tells the first frame that the table of the
// service does not allow at its place; empty when there is none.
struct Answer {
  grpc::Status status;
  std::string order_error;
  bool single = false;
  std::optional<v1::ContractAccepted> accepted;
  std::vector<ReceivedResult> results;
  std::vector<v1::ContractProgress> progress;
  std::optional<v1::ContractionReport> report;
};

class ContractClient {
 public:
  explicit ContractClient(ContractionTestServer* server,
                          std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  ~ContractClient();

  // False when the call is over already.
  bool Send(const v1::ContractRequest& frame) { return stream_->Write(frame); }
  bool SendHeader(const v1::ContractHeader& header);
  bool SendChunk(int64_t set, int32_t operand, int64_t offset, std::string_view data,
                 std::optional<uint32_t> crc32c = std::nullopt);
  // Every chunk of one operand.
  bool SendOperand(int64_t set, int32_t operand, std::string_view bytes, size_t chunk_bytes);
  bool SendSet(int64_t set, const std::vector<std::pair<int32_t, std::string>>& operands);
  void HalfClose() { stream_->WritesDone(); }
  void Cancel() { context_.TryCancel(); }

  // The next frame; empty when there is none.
  v1::ContractResponse Read();
  // Reads on to the end; counts what Read has given before.
  Answer Finish();

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::ContractRequest, v1::ContractResponse>> stream_;
  std::vector<v1::ContractResponse> read_;
  bool finished_ = false;
};

// Sends a header, half-closes and reads to the end.
Answer Contract(ContractionTestServer* server, const v1::ContractHeader& header);

// The bytes of `values`, as the element type has them.
std::string Encode(v1::DataType dtype, const std::vector<std::complex<double>>& values);
std::vector<std::complex<double>> Decode(v1::DataType dtype, const std::string& bytes);

// Appends an operand; with values they stand inside the header.
v1::Operand* AddOperand(v1::ContractHeader* header, const std::vector<std::string>& indices,
                        v1::DataType dtype, const std::vector<int64_t>& shape);
v1::Operand* AddOperand(v1::ContractHeader* header, const std::vector<std::string>& indices,
                        v1::DataType dtype, const std::vector<int64_t>& shape,
                        const std::vector<std::complex<double>>& values);
void SetOutput(v1::ContractHeader* header, const std::vector<std::string>& indices);

// ab,bc->ac with [[1, 2], [3, 4]] and [[5, 6], [7, 8]] in float64: [[19, 22], [43, 50]]. Without
// values the bytes come in frames.
v1::ContractHeader MatrixProduct(bool with_values = true);
extern const std::vector<std::complex<double>> kLeft, kRight, kProduct;

}  // namespace tenon::server

#endif  // TENON_TESTS_SERVER_CONTRACTION_TEST_SERVER_H_
