// Tenon's small calls and transfers beside those of a bare echo server, in one run, taking turns.
//
//   load_driver --tenon=ADDRESS --echo=ADDRESS [--blocks --block_calls ...]
//
// Prints one JSON object; run.py starts the servers and keeps the result.

#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "tenon/v1/contraction.pb.h"
#include "tests/load/peer_call.h"

ABSL_FLAG(std::string, tenon, "", "Address of tenond.");
ABSL_FLAG(std::string, echo, "", "Address of echo_server.");
ABSL_FLAG(int32_t, blocks, 20, "Blocks of calls of each kind; they take turns. 0: none.");
ABSL_FLAG(int32_t, block_calls, 250, "Calls of a block.");
ABSL_FLAG(int32_t, concurrency, 16, "Calls at the same time when throughput is measured.");
ABSL_FLAG(int32_t, connections, 4, "Connections that share them.");
ABSL_FLAG(int32_t, rounds, 5, "Rounds of throughput of each kind; they take turns. 0: none.");
ABSL_FLAG(double, round_seconds, 1, "Length of a round.");
ABSL_FLAG(int32_t, transfers, 3, "Transfers of each kind; they take turns. 0: none.");
ABSL_FLAG(int64_t, transfer_bytes, int64_t{1} << 30, "Bytes of a transfer, a multiple of 1 MiB.");
ABSL_FLAG(int32_t, extent, 8, "Extent of the indices of the small contraction.");
ABSL_FLAG(std::vector<std::string>, kinds, {},
          "Only these: echo_once, tenon_once, echo_stream, tenon_stream. Empty: all.");
ABSL_FLAG(int32_t, tenon_pid, 0, "Process of tenond, to count its processor time. 0: not.");
ABSL_FLAG(int32_t, echo_pid, 0, "Process of echo_server, likewise.");
ABSL_FLAG(bool, brief, false, "Ask for brief reports.");

namespace tenon::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr char kContract[] = "/tenon.v1.ContractionService/Contract";
constexpr size_t kChunkBytes = 1 << 20;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// `elements` float64 that are no round numbers.
std::string Values(int64_t elements) {
  std::vector<double> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0 / static_cast<double>(i % 1009 + 3);
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

v1::Operand* AddOperand(v1::ContractHeader* header, std::vector<int64_t> shape,
                        v1::DataType dtype = v1::DATA_TYPE_FLOAT64) {
  v1::Operand* operand = header->mutable_einsum()->add_operands();
  operand->mutable_spec()->set_dtype(dtype);
  for (const int64_t extent : shape) operand->mutable_spec()->add_shape(extent);
  return operand;
}

v1::ContractRequest SmallHeader(bool varying) {
  const int64_t n = absl::GetFlag(FLAGS_extent);
  v1::ContractRequest request;
  v1::ContractHeader* header = request.mutable_header();
  header->mutable_einsum()->set_subscripts("ab,bc->ac");
  for (int k = 0; k < 2; ++k) {
    v1::Operand* operand = AddOperand(header, {n, n});
    operand->set_varying(varying);
    if (!varying) operand->set_inline_data(Values(n * n));
  }
  if (absl::GetFlag(FLAGS_brief)) {
    header->mutable_result()->set_report_detail(v1::REPORT_DETAIL_BRIEF);
  }
  return request;
}

v1::ContractRequest SmallSet(int64_t set) {
  const int64_t n = absl::GetFlag(FLAGS_extent);
  v1::ContractRequest request;
  request.mutable_operand_set()->set_set(set);
  for (int k = 0; k < 2; ++k) {
    v1::OperandData* data = request.mutable_operand_set()->add_operands();
    data->set_operand(k);
    data->set_data(Values(n * n));
  }
  return request;
}

// A message for the echo server, as long as the one it stands for.
grpc::ByteBuffer EchoMessage(size_t bytes, uint64_t reply_bytes, uint64_t count = 1) {
  std::string text(std::max<size_t>(bytes, 16), 'x');
  std::memcpy(text.data(), &reply_bytes, 8);
  std::memcpy(text.data() + 8, &count, 8);
  return ToBuffer(text);
}

// One way of asking one server.
struct Caller {
  virtual ~Caller() = default;
  virtual void Call() = 0;
};

// A new call for every question.
class OnceCaller : public Caller {
 public:
  OnceCaller(std::shared_ptr<grpc::Channel> channel, std::string method, grpc::ByteBuffer request)
      : stub_(std::move(channel)), method_(std::move(method)), request_(std::move(request)) {}
  void Call() override {
    PeerCall call(&stub_, method_, &queue_, /*corked=*/true);
    call.Exchange(request_, &answer_, /*last=*/true);
    call.Finish();
  }
  size_t answer_bytes() const { return answer_.Length(); }

 private:
  grpc::GenericStub stub_;
  const std::string method_;
  const grpc::ByteBuffer request_;
  grpc::CompletionQueue queue_;
  grpc::ByteBuffer answer_;
};

// One call that is kept open; every question is a message on it.
class StreamCaller : public Caller {
 public:
  StreamCaller(std::shared_ptr<grpc::Channel> channel, const std::string& method)
      : stub_(std::move(channel)), call_(&stub_, method, &queue_) {}
  ~StreamCaller() override {
    call_.HalfClose();
    grpc::ByteBuffer rest;
    while (call_.Read(&rest)) {
    }
    call_.Finish();
  }
  void Call() override { call_.Exchange(NextMessage(), &answer_); }
  size_t answer_bytes() const { return answer_.Length(); }

 protected:
  virtual grpc::ByteBuffer NextMessage() = 0;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  PeerCall call_;
  grpc::ByteBuffer answer_;
};

class EchoStreamCaller final : public StreamCaller {
 public:
  EchoStreamCaller(std::shared_ptr<grpc::Channel> channel, grpc::ByteBuffer message)
      : StreamCaller(std::move(channel), "/echo/Stream"), message_(std::move(message)) {}

 private:
  grpc::ByteBuffer NextMessage() override { return message_; }
  const grpc::ByteBuffer message_;
};

class TenonStreamCaller final : public StreamCaller {
 public:
  explicit TenonStreamCaller(std::shared_ptr<grpc::Channel> channel)
      : StreamCaller(std::move(channel), kContract) {
    call_.Exchange(ToBuffer(SmallHeader(/*varying=*/true)), &answer_);  // accepted
  }

 private:
  grpc::ByteBuffer NextMessage() override {
    message_.mutable_operand_set()->set_set(set_++);
    return ToBuffer(message_);
  }
  v1::ContractRequest message_ = SmallSet(0);
  int64_t set_ = 0;
};

// The sizes of messages, as Tenon has them.
struct Sizes {
  size_t once_request = 0, once_answer = 0, stream_request = 0, stream_answer = 0;
};

struct Peers {
  std::vector<std::shared_ptr<grpc::Channel>> tenon, echo;
  Sizes sizes;
};

enum class Kind { kEchoOnce, kTenonOnce, kEchoStream, kTenonStream };
const char* Name(Kind kind) {
  constexpr const char* kNames[] = {"echo_once", "tenon_once", "echo_stream", "tenon_stream"};
  return kNames[static_cast<size_t>(kind)];
}
bool IsTenon(Kind kind) { return kind == Kind::kTenonOnce || kind == Kind::kTenonStream; }

std::vector<Kind> Kinds() {
  const std::vector<std::string> wanted = absl::GetFlag(FLAGS_kinds);
  std::vector<Kind> kinds;
  for (const Kind kind :
       {Kind::kEchoOnce, Kind::kTenonOnce, Kind::kEchoStream, Kind::kTenonStream}) {
    const bool found = std::find(wanted.begin(), wanted.end(), Name(kind)) != wanted.end();
    if (found || wanted.empty()) kinds.push_back(kind);
  }
  if (kinds.empty()) Die("--kinds names nothing");
  return kinds;
}

// Seconds of processor time that the server of this kind has used; 0 when its process is not told.
double CpuSeconds(Kind kind) {
  const int pid = absl::GetFlag(IsTenon(kind) ? FLAGS_tenon_pid : FLAGS_echo_pid);
  clockid_t clock;
  timespec time;
  if (pid == 0 || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return 0;
  }
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::unique_ptr<Caller> MakeCaller(const Peers& peers, Kind kind, size_t connection) {
  const Sizes& sizes = peers.sizes;
  const auto& tenon = peers.tenon[connection % peers.tenon.size()];
  const auto& echo = peers.echo[connection % peers.echo.size()];
  switch (kind) {
    case Kind::kEchoOnce:
      return std::make_unique<OnceCaller>(echo, "/echo/Once",
                                          EchoMessage(sizes.once_request, sizes.once_answer));
    case Kind::kTenonOnce:
      return std::make_unique<OnceCaller>(tenon, kContract, ToBuffer(SmallHeader(false)));
    case Kind::kEchoStream:
      return std::make_unique<EchoStreamCaller>(
          echo, EchoMessage(sizes.stream_request, sizes.stream_answer));
    case Kind::kTenonStream:
      return std::make_unique<TenonStreamCaller>(tenon);
  }
  return nullptr;
}

Peers MakePeers() {
  Peers peers;
  for (int i = 0; i < std::max(absl::GetFlag(FLAGS_connections), 1); ++i) {
    peers.tenon.push_back(Connect(absl::GetFlag(FLAGS_tenon)));
    peers.echo.push_back(Connect(absl::GetFlag(FLAGS_echo)));
  }
  OnceCaller once(peers.tenon[0], kContract, ToBuffer(SmallHeader(false)));
  once.Call();
  TenonStreamCaller stream(peers.tenon[0]);
  stream.Call();
  peers.sizes = {SmallHeader(false).ByteSizeLong(), once.answer_bytes(), SmallSet(0).ByteSizeLong(),
                 stream.answer_bytes()};
  return peers;
}

Json Percentiles(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  Json json;
  json["calls"] = seconds.size();
  for (const auto& [name, share] : {std::pair{"p50_us", 0.5}, {"p90_us", 0.9}, {"p99_us", 0.99}}) {
    const auto rank = static_cast<size_t>(share * static_cast<double>(seconds.size() - 1) + 0.5);
    json[name] = 1e6 * seconds[rank];
  }
  json["max_us"] = 1e6 * seconds.back();
  return json;
}

// Nothing where one of the two was not measured.
void AddRatio(const char* name, const char* above, const char* below, const char* figure,
              Json* json) {
  if (!json->contains(above) || !json->contains(below)) return;
  (*json)[name] = (*json)[above][figure].get<double>() / (*json)[below][figure].get<double>();
}

// One call after the other; blocks of all kinds take turns, so that a busy moment of the machine
// meets all of them.
Json MeasureLatency(const Peers& peers) {
  const std::vector<Kind> kinds = Kinds();
  std::vector<std::unique_ptr<Caller>> callers;
  std::vector<std::vector<double>> seconds(kinds.size());
  std::vector<double> cpu_seconds(kinds.size());
  for (const Kind kind : kinds) callers.push_back(MakeCaller(peers, kind, 0));
  for (const auto& caller : callers) {
    for (int i = 0; i < absl::GetFlag(FLAGS_block_calls); ++i) caller->Call();  // warm-up
  }
  for (int block = 0; block < absl::GetFlag(FLAGS_blocks); ++block) {
    for (size_t k = 0; k < callers.size(); ++k) {
      const double cpu_before = CpuSeconds(kinds[k]);
      for (int i = 0; i < absl::GetFlag(FLAGS_block_calls); ++i) {
        const Clock::time_point start = Clock::now();
        callers[k]->Call();
        seconds[k].push_back(SecondsSince(start));
      }
      cpu_seconds[k] += CpuSeconds(kinds[k]) - cpu_before;
    }
  }
  Json json;
  for (size_t k = 0; k < callers.size(); ++k) {
    Json& entry = json[Name(kinds[k])] = Percentiles(seconds[k]);
    entry["server_cpu_us"] = 1e6 * cpu_seconds[k] / static_cast<double>(seconds[k].size());
  }
  AddRatio("once_p50_ratio", "tenon_once", "echo_once", "p50_us", &json);
  AddRatio("once_p99_ratio", "tenon_once", "echo_once", "p99_us", &json);
  AddRatio("stream_p50_ratio", "tenon_stream", "echo_stream", "p50_us", &json);
  AddRatio("stream_p99_ratio", "tenon_stream", "echo_stream", "p99_us", &json);
  return json;
}

// Calls per second of many callers at once.
double Throughput(const Peers& peers, Kind kind) {
  std::atomic<bool> stop = false;
  std::atomic<int> ready = 0;
  std::atomic<int64_t> calls = 0;
  std::vector<std::thread> threads;
  const int count = absl::GetFlag(FLAGS_concurrency);
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      const auto caller = MakeCaller(peers, kind, static_cast<size_t>(i));
      caller->Call();
      ++ready;
      while (!stop) {
        caller->Call();
        calls.fetch_add(1, std::memory_order_relaxed);
      }
    });
  }
  while (ready < count) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const Clock::time_point start = Clock::now();
  const int64_t before = calls;
  std::this_thread::sleep_for(std::chrono::duration<double>(absl::GetFlag(FLAGS_round_seconds)));
  const int64_t after = calls;
  const double seconds = SecondsSince(start);
  stop = true;
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(after - before) / seconds;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Json MeasureThroughput(const Peers& peers) {
  const std::vector<Kind> kinds = Kinds();
  std::vector<std::vector<double>> rates(kinds.size());
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (size_t k = 0; k < kinds.size(); ++k) rates[k].push_back(Throughput(peers, kinds[k]));
  }
  Json json;
  json["concurrency"] = absl::GetFlag(FLAGS_concurrency);
  json["connections"] = absl::GetFlag(FLAGS_connections);
  for (size_t k = 0; k < kinds.size(); ++k) {
    json[Name(kinds[k])] = {{"rps", Median(rates[k])}, {"rounds", rates[k]}};
  }
  AddRatio("once_ratio", "tenon_once", "echo_once", "rps", &json);
  AddRatio("stream_ratio", "tenon_stream", "echo_stream", "rps", &json);
  return json;
}

// A chunk whose payload is shared by all chunks: the client makes no copy of it.
class ChunkMaker {
 public:
  ChunkMaker() : payload_(std::string(kChunkBytes, '\0')) {}
  grpc::ByteBuffer Make(int64_t offset) const {
    v1::TensorChunk chunk;
    chunk.set_offset_bytes(offset);
    // ContractRequest.chunk (tag 2), then the fields of the chunk, its data (tag 5) last.
    std::string fields = chunk.SerializeAsString();
    fields += static_cast<char>(v1::TensorChunk::kDataFieldNumber << 3 | 2);
    AppendVarint(kChunkBytes, &fields);
    std::string front(1, static_cast<char>(v1::ContractRequest::kChunkFieldNumber << 3 | 2));
    AppendVarint(fields.size() + kChunkBytes, &front);
    const grpc::Slice slices[] = {grpc::Slice(front + fields), payload_};
    return {slices, 2};
  }

 private:
  static void AppendVarint(uint64_t value, std::string* out) {
    for (; value >= 128; value >>= 7) *out += static_cast<char>(value | 128);
    *out += static_cast<char>(value);
  }
  const grpc::Slice payload_;
};

// Bytes per second up. What Tenon computes from them afterwards does not count.
double TenonUpload(grpc::GenericStub* stub, const ChunkMaker& chunks, int64_t bytes) {
  grpc::CompletionQueue queue;
  v1::ContractRequest request;
  request.mutable_header()->mutable_einsum()->set_subscripts("a->");
  AddOperand(request.mutable_header(), {bytes / 4}, v1::DATA_TYPE_FLOAT32);
  PeerCall call(stub, kContract, &queue);
  grpc::ByteBuffer frame;
  call.Exchange(ToBuffer(request), &frame);  // accepted
  const Clock::time_point start = Clock::now();
  for (int64_t offset = 0; offset < bytes; offset += kChunkBytes) call.Write(chunks.Make(offset));
  call.HalfClose();
  double seconds = 0;
  v1::ContractResponse answer;
  while (call.Read(&frame)) {
    Parse(frame, &answer);
    if (!answer.has_report()) continue;
    const v1::Timing& timing = answer.report().timing();
    seconds = SecondsSince(start) - timing.execution_seconds() - timing.result_send_seconds();
  }
  call.Finish();
  return static_cast<double>(bytes) / seconds;
}

double EchoUpload(grpc::GenericStub* stub, const ChunkMaker& chunks, int64_t bytes) {
  grpc::CompletionQueue queue;
  PeerCall call(stub, "/echo/Upload", &queue);
  grpc::ByteBuffer answer;
  const Clock::time_point start = Clock::now();
  for (int64_t offset = 0; offset < bytes; offset += kChunkBytes) call.Write(chunks.Make(offset));
  call.HalfClose();
  while (call.Read(&answer)) {
  }
  const double seconds = SecondsSince(start);
  call.Finish();
  return static_cast<double>(bytes) / seconds;
}

// Bytes per second down, from the first frame of the result on: it is complete by then.
double TenonDownload(grpc::GenericStub* stub, int64_t bytes) {
  grpc::CompletionQueue queue;
  v1::ContractRequest request;
  request.mutable_header()->mutable_einsum()->set_subscripts("a,b->ab");
  constexpr int64_t kRow = 4096;
  for (const int64_t extent : {bytes / 4 / kRow, kRow}) {
    AddOperand(request.mutable_header(), {extent}, v1::DATA_TYPE_FLOAT32);
  }
  const std::string zeros(static_cast<size_t>(bytes / kRow), '\0');
  PeerCall call(stub, kContract, &queue);
  grpc::ByteBuffer frame;
  call.Exchange(ToBuffer(request), &frame);  // accepted
  for (int k = 0; k < 2; ++k) {
    v1::ContractRequest chunk;
    chunk.mutable_chunk()->set_operand(k);
    chunk.mutable_chunk()->set_data(
        zeros.substr(0, static_cast<size_t>(k == 0 ? bytes / kRow : kRow * 4)));
    call.Write(ToBuffer(chunk));
  }
  call.HalfClose();
  call.Read(&frame);  // result
  const Clock::time_point start = Clock::now();
  double seconds = 0;
  int64_t received = 0;
  while (call.Read(&frame)) {
    received += static_cast<int64_t>(frame.Length());
    if (received >= bytes && seconds == 0) seconds = SecondsSince(start);
  }
  call.Finish();
  if (seconds == 0) Die("the result is too short");
  return static_cast<double>(bytes) / seconds;
}

double EchoDownload(grpc::GenericStub* stub, int64_t bytes) {
  grpc::CompletionQueue queue;
  PeerCall call(stub, "/echo/Download", &queue);
  const int64_t count = bytes / static_cast<int64_t>(kChunkBytes) + 1;
  grpc::ByteBuffer frame;
  call.Exchange(EchoMessage(16, kChunkBytes, static_cast<uint64_t>(count)), &frame, true);
  const Clock::time_point start = Clock::now();
  while (call.Read(&frame)) {
  }
  const double seconds = SecondsSince(start);
  call.Finish();
  return static_cast<double>(bytes) / seconds;
}

Json MeasureTransfers(const Peers& peers) {
  const int64_t bytes = absl::GetFlag(FLAGS_transfer_bytes);
  grpc::GenericStub tenon(peers.tenon[0]), echo(peers.echo[0]);
  const ChunkMaker chunks;
  std::vector<double> rates[4];
  for (int i = 0; i < absl::GetFlag(FLAGS_transfers); ++i) {
    rates[0].push_back(EchoUpload(&echo, chunks, bytes) / 1e9);
    rates[1].push_back(TenonUpload(&tenon, chunks, bytes) / 1e9);
    rates[2].push_back(EchoDownload(&echo, bytes) / 1e9);
    rates[3].push_back(TenonDownload(&tenon, bytes) / 1e9);
  }
  Json json;
  json["bytes"] = bytes;
  constexpr const char* kNames[] = {"echo_upload", "tenon_upload", "echo_download",
                                    "tenon_download"};
  for (size_t k = 0; k < 4; ++k) {
    json[kNames[k]] = {{"gb_per_second", Median(rates[k])}, {"runs", rates[k]}};
  }
  AddRatio("upload_ratio", "tenon_upload", "echo_upload", "gb_per_second", &json);
  AddRatio("download_ratio", "tenon_download", "echo_download", "gb_per_second", &json);
  return json;
}

int Main() {
  const Peers peers = MakePeers();
  Json json;
  json["grpc_version"] = grpc::Version();
  json["hardware_threads"] = std::thread::hardware_concurrency();
  json["extent"] = absl::GetFlag(FLAGS_extent);
  json["message_bytes"] = {{"once_request", peers.sizes.once_request},
                           {"once_answer", peers.sizes.once_answer},
                           {"stream_request", peers.sizes.stream_request},
                           {"stream_answer", peers.sizes.stream_answer}};
  if (absl::GetFlag(FLAGS_blocks) > 0) json["latency"] = MeasureLatency(peers);
  if (absl::GetFlag(FLAGS_rounds) > 0) json["throughput"] = MeasureThroughput(peers);
  if (absl::GetFlag(FLAGS_transfers) > 0) json["transfer"] = MeasureTransfers(peers);
  std::printf("%s\n", json.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace tenon::testing

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  return tenon::testing::Main();
}
