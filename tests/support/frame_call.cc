#include "tests/support/frame_call.h"

#include <grpcpp/generic/generic_stub.h>

#include <cstdint>
#include <utility>

namespace tenon::testing {
namespace {

class FrameCall {
 public:
  FrameCall(const std::shared_ptr<grpc::Channel>& channel, const FrameScript& script)
      : script_(script), stub_(channel) {
    context_.set_deadline(std::chrono::system_clock::now() + script.timeout);
    call_ = stub_.PrepareCall(&context_, script.method, &queue_);
  }

  FrameAnswer Run() {
    call_->StartCall(Tag(kStart));
    while (pending_ > 0) {
      void* tag = nullptr;
      bool ok = false;
      if (!queue_.Next(&tag, &ok)) break;
      --pending_;
      On(static_cast<Event>(reinterpret_cast<intptr_t>(tag)), ok);
    }
    queue_.Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) {
    }
    return std::move(answer_);
  }

 private:
  enum Event : intptr_t { kStart = 1, kRead, kWrite, kWritesDone, kFinish };

  void* Tag(Event event) {
    ++pending_;
    return reinterpret_cast<void*>(static_cast<intptr_t>(event));
  }

  void On(Event event, bool ok) {
    switch (event) {
      case kStart:
        if (!ok) return Finish();
        if (script_.reads) Read();
        return WriteNext();
      case kWrite:
        return ok ? WriteNext() : StartReading();
      case kWritesDone:
        return StartReading();
      case kRead:
        if (!ok) return Finish();
        answer_.frames.push_back(Bytes());
        return Read();
      case kFinish:
        return;
    }
  }

  void WriteNext() {
    if (finishing_) return;
    if (next_ < script_.frames.size()) {
      const std::string& frame = script_.frames[next_++];
      const grpc::Slice slice(frame);
      call_->Write(grpc::ByteBuffer(&slice, 1), Tag(kWrite));
      return;
    }
    switch (script_.end) {
      case FrameScript::End::kHalfClose:
        return call_->WritesDone(Tag(kWritesDone));
      case FrameScript::End::kCancel:
        context_.TryCancel();
        break;
      case FrameScript::End::kDisconnect:
        script_.disconnect();
        break;
      case FrameScript::End::kSilence:
        break;
    }
    StartReading();
  }

  void StartReading() {
    if (!reading_) Read();
  }
  void Read() {
    reading_ = true;
    call_->Read(&buffer_, Tag(kRead));
  }
  std::string Bytes() const {
    grpc::Slice slice;
    if (!buffer_.DumpToSingleSlice(&slice).ok()) return "";
    return {reinterpret_cast<const char*>(slice.begin()), slice.size()};
  }
  void Finish() {
    finishing_ = true;
    call_->Finish(&answer_.status, Tag(kFinish));
  }

  const FrameScript& script_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue queue_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  grpc::ByteBuffer buffer_;
  FrameAnswer answer_;
  int pending_ = 0;
  size_t next_ = 0;
  bool reading_ = false, finishing_ = false;
};

}  // namespace

FrameAnswer RunFrames(const std::shared_ptr<grpc::Channel>& channel, const FrameScript& script) {
  return FrameCall(channel, script).Run();
}

}  // namespace tenon::testing
