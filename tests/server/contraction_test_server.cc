#include "tests/server/contraction_test_server.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>
#include <utility>

#include "backends/core/crc32c.h"
#include "backends/cpu/provider.h"
#include "backends/plugin/provider.h"
#include "server/content_store.h"
#include "server/contraction_service.h"
#include "server/logging.h"

namespace tenon::server {
namespace {

template <typename T>
void AppendAs(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
double ReadAs(const char* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

bool IsDouble(v1::DataType dtype) {
  return dtype == v1::DATA_TYPE_FLOAT64 || dtype == v1::DATA_TYPE_COMPLEX128;
}

bool IsComplexType(v1::DataType dtype) {
  return dtype == v1::DATA_TYPE_COMPLEX64 || dtype == v1::DATA_TYPE_COMPLEX128;
}

// Follows the server's frames through the table of the service.
class AnswerReader {
 public:
  explicit AnswerReader(Answer* answer) : answer_(*answer) {}

  void Take(const v1::ContractResponse& frame) {
    switch (frame.frame_case()) {
      case v1::ContractResponse::kAccepted:
        Expect(!answer_.accepted.has_value() && answer_.results.empty(), "accepted");
        answer_.accepted = frame.accepted();
        break;
      case v1::ContractResponse::kProgress:
        Expect(!open_, "progress");
        answer_.progress.push_back(frame.progress());
        break;
      case v1::ContractResponse::kResult:
        Expect(answer_.accepted.has_value() && !open_, "result");
        TakeResult(frame.result());
        break;
      case v1::ContractResponse::kChunk:
        TakeChunk(frame.chunk());
        break;
      case v1::ContractResponse::kSetReport:
        Expect(open_, "set_report");
        open_ = false;
        if (!answer_.results.empty()) answer_.results.back().report = frame.set_report();
        break;
      case v1::ContractResponse::kReport:
        Expect(answer_.accepted.has_value() && !open_ && !answer_.report.has_value(), "report");
        answer_.report = frame.report();
        break;
      case v1::ContractResponse::kSingle:
        Expect(!answer_.accepted.has_value(), "single");
        answer_.single = true;
        answer_.accepted = frame.single().accepted();
        for (const auto& result : frame.single().results()) TakeResult(result);
        answer_.report = frame.single().report();
        break;
      case v1::ContractResponse::FRAME_NOT_SET:
        Expect(false, "an empty frame");
    }
  }

 private:
  void Expect(bool legal, const std::string& frame) {
    if (answer_.report.has_value()) legal = false;  // nothing follows the report
    if (!legal && answer_.order_error.empty()) answer_.order_error = frame;
  }

  void TakeResult(const v1::ContractResult& result) {
    Expect(result.set() == static_cast<int64_t>(answer_.results.size()), "result of another set");
    ReceivedResult& received = answer_.results.emplace_back();
    received.spec = result.spec();
    received.in_line = result.has_inline_data();
    received.bytes = result.inline_data();
    received.report = result.report();
    if (result.has_log10_scale()) received.log10_scale = result.log10_scale();
    if (result.has_shared()) received.shared = result.shared();
    const bool whole = result.has_inline_data() || result.has_shared();
    Expect(result.has_report() == whole, "result with or without report");
    Expect(!(result.has_inline_data() && result.has_shared()), "a result in two places");
    open_ = !whole;
  }

  void TakeChunk(const v1::TensorChunk& chunk) {
    Expect(open_, "chunk");
    if (answer_.results.empty()) return;
    ReceivedResult& received = answer_.results.back();
    Expect(chunk.set() + 1 == static_cast<int64_t>(answer_.results.size()) &&
               chunk.operand() == 0 &&
               chunk.offset_bytes() == static_cast<int64_t>(received.bytes.size()),
           "chunk at another place");
    received.bytes += chunk.data();
    ++received.chunks;
    if (chunk.has_crc32c() && chunk.crc32c() == Crc32c(chunk.data())) ++received.checked_chunks;
  }

  Answer& answer_;
  bool open_ = false;  // a result's chunks and set_report are still to come
};

}  // namespace

const std::vector<std::complex<double>> kLeft = {1, 2, 3, 4};
const std::vector<std::complex<double>> kRight = {5, 6, 7, 8};
const std::vector<std::complex<double>> kProduct = {19, 22, 43, 50};

void AddProvider(const std::string& name, const tenon_provider_api* api, const std::string& options,
                 ServerState* state) {
  auto provider = plugin::Provider::Create(api, options);
  ASSERT_TRUE(provider.ok()) << provider.status();
  ASSERT_TRUE((*provider)->WarmUp().ok());
  state->providers.Set({name, *provider, absl::OkStatus()});
}

ContractionTestServer::ContractionTestServer(const ContractionServerOptions& options) {
  InitLogging("error", false);
  state_ = std::make_unique<ServerState>(options.budget_bytes, options.executor_threads,
                                         options.max_queued, std::chrono::seconds(30));
  state_->store = std::make_shared<ContentStore>(&state_->budget, std::chrono::seconds(3600));
  AddProvider("cpu", cpu::CpuProviderApi(), "", state_.get());
  AddProvider("reference", cpu::ReferenceProviderApi(), "", state_.get());
  AddProvider("fake", fake_.api(), fake_.options(), state_.get());
  state_->lifecycle.MoveTo(ServerPhase::kReady);
  service_ = MakeContractionService(state_.get());
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize(static_cast<int>(state_->limits.max_message_bytes));
  builder.RegisterService(service_.get());
  if (options.extend) options.extend(state_.get(), &builder);
  server_ = builder.BuildAndStart();
  address_ = "127.0.0.1:" + std::to_string(port);
  channel_ = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  stub_ = v1::ContractionService::NewStub(channel_);
}

ContractionTestServer::~ContractionTestServer() { server_->Shutdown(); }

bool ContractionTestServer::AllReleased() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (state_->budget.reserved_bytes() != state_->store->reserved_bytes()) {
    if (std::chrono::steady_clock::now() > limit) return false;
    std::this_thread::yield();
  }
  return true;
}

struct BusyExecutor::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;
  bool released = false;
};

BusyExecutor::BusyExecutor(Executor* executor, int threads) : shared_(std::make_shared<Shared>()) {
  for (int i = 0; i < threads; ++i) {
    executor->Continue([shared = shared_] {
      std::unique_lock lock(shared->mutex);
      ++shared->inside;
      shared->changed.notify_all();
      shared->changed.wait(lock, [&] { return shared->released; });
    });
  }
  std::unique_lock lock(shared_->mutex);
  shared_->changed.wait(lock, [&] { return shared_->inside == threads; });
}

void BusyExecutor::Release() {
  std::lock_guard lock(shared_->mutex);
  shared_->released = true;
  shared_->changed.notify_all();
}

ContractClient::ContractClient(ContractionTestServer* server,
                               std::optional<std::chrono::milliseconds> timeout) {
  // A test that hangs fails instead.
  context_.set_deadline(std::chrono::system_clock::now() +
                        timeout.value_or(std::chrono::milliseconds(120'000)));
  stream_ = server->stub().Contract(&context_);
}

ContractClient::~ContractClient() {
  if (finished_) return;
  context_.TryCancel();
  Finish();
}

bool ContractClient::SendHeader(const v1::ContractHeader& header) {
  v1::ContractRequest frame;
  *frame.mutable_header() = header;
  return Send(frame);
}

bool ContractClient::SendChunk(int64_t set, int32_t operand, int64_t offset, std::string_view data,
                               std::optional<uint32_t> crc32c) {
  v1::ContractRequest frame;
  v1::TensorChunk* chunk = frame.mutable_chunk();
  chunk->set_set(set);
  chunk->set_operand(operand);
  chunk->set_offset_bytes(offset);
  chunk->set_data(std::string(data));
  if (crc32c.has_value()) chunk->set_crc32c(*crc32c);
  return Send(frame);
}

bool ContractClient::SendOperand(int64_t set, int32_t operand, std::string_view bytes,
                                 size_t chunk_bytes) {
  for (size_t offset = 0; offset < bytes.size(); offset += chunk_bytes) {
    const auto data = bytes.substr(offset, chunk_bytes);
    if (!SendChunk(set, operand, static_cast<int64_t>(offset), data)) return false;
  }
  return true;
}

bool ContractClient::SendSet(int64_t set,
                             const std::vector<std::pair<int32_t, std::string>>& operands) {
  v1::ContractRequest frame;
  frame.mutable_operand_set()->set_set(set);
  for (const auto& [operand, data] : operands) {
    v1::OperandData* entry = frame.mutable_operand_set()->add_operands();
    entry->set_operand(operand);
    entry->set_data(data);
  }
  return Send(frame);
}

v1::ContractResponse ContractClient::Read() {
  v1::ContractResponse frame;
  if (!stream_->Read(&frame)) return {};
  read_.push_back(frame);
  return frame;
}

Answer ContractClient::Finish() {
  while (Read().frame_case() != v1::ContractResponse::FRAME_NOT_SET) {
  }
  Answer answer;
  AnswerReader reader(&answer);
  for (const v1::ContractResponse& frame : read_) reader.Take(frame);
  answer.status = stream_->Finish();
  if (answer.status.ok() && !answer.report.has_value()) answer.order_error = "no report";
  finished_ = true;
  return answer;
}

Answer Contract(ContractionTestServer* server, const v1::ContractHeader& header) {
  ContractClient client(server);
  client.SendHeader(header);
  client.HalfClose();
  return client.Finish();
}

std::string Encode(v1::DataType dtype, const std::vector<std::complex<double>>& values) {
  std::string bytes;
  for (const std::complex<double>& value : values) {
    const std::vector<double> parts = IsComplexType(dtype)
                                          ? std::vector<double>{value.real(), value.imag()}
                                          : std::vector<double>{value.real()};
    for (const double part : parts) {
      if (IsDouble(dtype)) {
        AppendAs(part, &bytes);
      } else {
        AppendAs(static_cast<float>(part), &bytes);
      }
    }
  }
  return bytes;
}

std::vector<std::complex<double>> Decode(v1::DataType dtype, const std::string& bytes) {
  const size_t part_bytes = IsDouble(dtype) ? 8 : 4;
  const size_t parts = IsComplexType(dtype) ? 2 : 1;
  std::vector<std::complex<double>> values(bytes.size() / part_bytes / parts);
  for (size_t i = 0; i < values.size(); ++i) {
    double part[2] = {0, 0};
    for (size_t p = 0; p < parts; ++p) {
      const char* data = bytes.data() + (i * parts + p) * part_bytes;
      part[p] = IsDouble(dtype) ? ReadAs<double>(data) : ReadAs<float>(data);
    }
    values[i] = {part[0], part[1]};
  }
  return values;
}

v1::Operand* AddOperand(v1::ContractHeader* header, const std::vector<std::string>& indices,
                        v1::DataType dtype, const std::vector<int64_t>& shape) {
  v1::Operand* operand = header->mutable_network()->add_operands();
  operand->mutable_indices()->Assign(indices.begin(), indices.end());
  operand->mutable_spec()->set_dtype(dtype);
  operand->mutable_spec()->mutable_shape()->Assign(shape.begin(), shape.end());
  return operand;
}

v1::Operand* AddOperand(v1::ContractHeader* header, const std::vector<std::string>& indices,
                        v1::DataType dtype, const std::vector<int64_t>& shape,
                        const std::vector<std::complex<double>>& values) {
  v1::Operand* operand = AddOperand(header, indices, dtype, shape);
  operand->set_inline_data(Encode(dtype, values));
  return operand;
}

void SetOutput(v1::ContractHeader* header, const std::vector<std::string>& indices) {
  header->mutable_network()->mutable_output()->Assign(indices.begin(), indices.end());
}

v1::ContractHeader MatrixProduct(bool with_values) {
  v1::ContractHeader header;
  header.set_request_id("product");
  if (with_values) {
    AddOperand(&header, {"a", "b"}, v1::DATA_TYPE_FLOAT64, {2, 2}, kLeft);
    AddOperand(&header, {"b", "c"}, v1::DATA_TYPE_FLOAT64, {2, 2}, kRight);
  } else {
    AddOperand(&header, {"a", "b"}, v1::DATA_TYPE_FLOAT64, {2, 2});
    AddOperand(&header, {"b", "c"}, v1::DATA_TYPE_FLOAT64, {2, 2});
  }
  SetOutput(&header, {"a", "c"});
  return header;
}

}  // namespace tenon::server
