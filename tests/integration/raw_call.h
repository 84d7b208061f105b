// One call of any method over a real channel, with messages as bytes: for what generated stubs
// don't do (broken order, services without a stub here).

#ifndef TENON_TESTS_INTEGRATION_RAW_CALL_H_
#define TENON_TESTS_INTEGRATION_RAW_CALL_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace tenon::testing {

inline grpc::ByteBuffer ToByteBuffer(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

inline std::string FromByteBuffer(const grpc::ByteBuffer& buffer) {
  grpc::Slice slice;
  if (!buffer.DumpToSingleSlice(&slice).ok()) return "";
  return std::string(reinterpret_cast<const char*>(slice.begin()), slice.size());
}

// Every operation waits until it is done. A call that is not finished is cancelled by the
// destructor. After 60 s the call ends whatever happens, so that no test hangs.
class RawCall {
 public:
  RawCall(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
          std::chrono::milliseconds timeout = std::chrono::seconds(60))
      : stub_(channel) {
    context_.set_deadline(std::chrono::system_clock::now() + timeout);
    call_ = stub_.PrepareCall(&context_, method, &queue_);
    call_->StartCall(this);
    Done();
  }
  ~RawCall() {
    if (!finished_) {
      context_.TryCancel();
      Finish();
    }
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  bool Write(const std::string& bytes) {
    call_->Write(ToByteBuffer(bytes), this);
    return Done();
  }
  bool WritesDone() {
    call_->WritesDone(this);
    return Done();
  }
  // The next message, or nothing at the end.
  std::optional<std::string> Read() {
    grpc::ByteBuffer buffer;
    call_->Read(&buffer, this);
    if (!Done()) return std::nullopt;
    return FromByteBuffer(buffer);
  }
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, this);
    Done();
    finished_ = true;
    return status;
  }
  void Cancel() { context_.TryCancel(); }

 private:
  bool Done() {
    void* tag;
    bool ok = false;
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool finished_ = false;
};

// One request, one answer.
inline grpc::Status RawUnary(const std::shared_ptr<grpc::Channel>& channel,
                             const std::string& method, const std::string& request,
                             std::string* response) {
  RawCall call(channel, method);
  call.Write(request);
  call.WritesDone();
  if (const auto answer = call.Read()) *response = *answer;
  return call.Finish();
}

}  // namespace tenon::testing

#endif  // TENON_TESTS_INTEGRATION_RAW_CALL_H_
