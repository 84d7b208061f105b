// A bare callback server to compare with: bytes in, bytes out, no work between.
//
//   /echo/Once      one message, answered together with the status
//   /echo/Stream    every message is answered, until the client half-closes
//   /echo/Upload    messages are thrown away, one answer at the half-close
//   /echo/Download  one message, answered by `count` messages
//
// A message begins with two little-endian uint64: the bytes of the answer, and `count`.
//
//   echo_server PORT_FILE      listens on a free port of the loopback until its input ends

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

#include "backends/core/file.h"
#include "backends/core/strings.h"
#include "server/allocator.h"

namespace tenon::testing {
namespace {

constexpr uint64_t kMaxReplyBytes = 4 << 20;

// Memory of its own for every message, filled by one copy: the least that a server does which sends
// what it holds elsewhere.
grpc::ByteBuffer MakeReply(uint64_t bytes) {
  static const auto* source = new std::string(kMaxReplyBytes, 'x');
  grpc::Slice slice(source->data(), std::min<size_t>(bytes, kMaxReplyBytes));
  return {&slice, 1};
}

enum class Kind { kOnce, kStream, kUpload, kDownload };

class Reactor final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Reactor(Kind kind) : kind_(kind) { StartRead(&request_); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      // Half-close. The single answers have been given.
      if (kind_ == Kind::kUpload) return Answer(8, /*last=*/true);
      if (kind_ == Kind::kStream) Finish(grpc::Status::OK);
      return;
    }
    if (kind_ == Kind::kUpload) {
      request_.Clear();
      return StartRead(&request_);
    }
    ReadNumbers();
    Answer(reply_bytes_, kind_ == Kind::kOnce || left_ <= 1);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::CANCELLED);
    if (kind_ == Kind::kStream) return StartRead(&request_);
    --left_;
    Answer(reply_bytes_, left_ <= 1);
  }

  void OnDone() override { delete this; }

 private:
  void ReadNumbers() {
    grpc::Slice slice;
    uint64_t numbers[2] = {0, 1};
    if (request_.DumpToSingleSlice(&slice).ok() && slice.size() >= sizeof(numbers)) {
      std::memcpy(numbers, slice.begin(), sizeof(numbers));
    }
    reply_bytes_ = numbers[0];
    left_ = kind_ == Kind::kDownload ? numbers[1] : 2;
    request_.Clear();
  }

  void Answer(uint64_t bytes, bool last) {
    reply_ = MakeReply(bytes);
    if (last) {
      StartWriteAndFinish(&reply_, grpc::WriteOptions(), grpc::Status::OK);
    } else {
      StartWrite(&reply_);
    }
  }

  const Kind kind_;
  grpc::ByteBuffer request_, reply_;
  uint64_t reply_bytes_ = 0, left_ = 0;
};

class Service final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) final {
    const std::string& method = context->method();
    if (method == "/echo/Once") return new Reactor(Kind::kOnce);
    if (method == "/echo/Stream") return new Reactor(Kind::kStream);
    if (method == "/echo/Upload") return new Reactor(Kind::kUpload);
    if (method == "/echo/Download") return new Reactor(Kind::kDownload);
    return CallbackGenericService::CreateReactor(context);
  }
};

int Main(const std::string& port_file) {
  server::TuneAllocator();  // as tenond does
  Service service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.SetMaxReceiveMessageSize((4 << 20) + (64 << 10));
  builder.RegisterCallbackGenericService(&service);
  const auto server = builder.BuildAndStart();
  if (server == nullptr) return 1;
  const std::string text = StrCat("127.0.0.1:", port, "\n");
  if (!WriteFile(port_file, {text}).ok()) return 1;
  while (std::getchar() != EOF) {
  }
  server->Shutdown(std::chrono::system_clock::now());
  return 0;
}

}  // namespace
}  // namespace tenon::testing

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: echo_server PORT_FILE\n");
    return 2;
  }
  return tenon::testing::Main(argv[1]);
}
