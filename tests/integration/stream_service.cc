#include "tests/integration/stream_service.h"

#include "backends/core/error.h"
#include "tests/integration/raw_call.h"

namespace tenon::testing {
namespace {

// A frame that is its own bytes.
struct Frame {
  void Clear() { bytes.Clear(); }
  grpc::ByteBuffer bytes;
};

}  // namespace
}  // namespace tenon::testing

template <>
class grpc::SerializationTraits<tenon::testing::Frame> {
 public:
  static Status Deserialize(ByteBuffer* bytes, tenon::testing::Frame* frame) {
    frame->bytes.Swap(bytes);
    bytes->Clear();
    return Status::OK;
  }
  static Status Serialize(const tenon::testing::Frame& frame, ByteBuffer* bytes, bool*) {
    *bytes = frame.bytes;
    return Status::OK;
  }
};

namespace tenon::testing {
namespace {

using server::Method;

class Stream final : public server::BidiStream<Frame, Frame, server::PlainFrame> {
 public:
  Stream(grpc::GenericCallbackServerContext* context, server::ServerState* state,
         StreamService* service)
      : BidiStream(context, &state->watchdog),
        kind_(context->method()),
        state_(state),
        service_(service) {
    state_->metrics.CallBegan(Method::kContract);
  }

 private:
  static bool Flood(Frame* out) {
    out->bytes = ToByteBuffer(std::string(1 << 20, 'x'));
    return true;
  }

  void OnFrame(const Frame& frame) override {
    const bool finish = kind_ == "/test/flood_and_finish";
    if (kind_ == "/test/flood" || finish) Send(Flood);
    if (kind_ == "/test/fail") {
      Send([this](Frame* out) {
        service_->CountProduced();
        return Flood(out);
      });
    }
    if (kind_ == "/test/fail_while_producing") {
      Send([this](Frame* out) {
        Fail(Error(Reason::kBadPath, "as asked"));
        Send(Flood);  // by who has not heard of it
        return Flood(out);
      });
      return;
    }
    if (kind_ == "/test/chunk") return Answer("parsed");
    if (finish) {
      Finish();
      return;
    }
    if (kind_ == "/test/fail") {
      Fail(Error(Reason::kBadPath, "as asked").Field("header.path"));
      service_->KeepProducedAtFailure();
      return;
    }
    SendFrame(frame);
    if (kind_ == "/test/echo") ReadNext(Awaits::kNothing);
    if (kind_ == "/test/upload") ReadNext(Awaits::kUpload);
    if (kind_ == "/test/idle" || kind_ == "/test/busy") ReadNext(Awaits::kNext);
  }
  bool Busy() override { return kind_ == "/test/busy"; }
  std::span<const int> chunk_fields() const override {
    static constexpr int kFields[] = {2};
    if (kind_ == "/test/chunk") return kFields;
    return {};
  }
  void OnChunk(int field, const server::ChunkView& chunk) override {
    std::string data = StrCat(field, ":");
    for (const std::string_view piece : chunk.data) data += piece;
    Answer(data);
  }
  void Answer(const std::string& text) {
    Frame answer;
    answer.bytes = ToByteBuffer(text);
    SendFrame(answer);
    ReadNext(Awaits::kNothing);
  }
  void OnHalfClose() override { Finish(); }
  void OnEnd() override {
    const absl::Status why = cancel()->Check();
    if (kind_ == "/test/stuck") service_->WaitUntilReleased();
    state_->metrics.CallEnded(Method::kContract, why, 0);
    service_->Ended(kind_ == "/test/flood_and_finish" ? outcome() : why);
  }

  const std::string kind_;
  server::ServerState* const state_;
  StreamService* const service_;
};

}  // namespace

grpc::ServerGenericBidiReactor* StreamService::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  auto stream = std::make_shared<Stream>(context, state_, this);
  stream->Begin();
  return stream.get();
}

std::vector<std::string> StreamService::WaitForEnds(size_t count) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return ends_.size() >= count; });
  return ends_;
}

void StreamService::Release() {
  std::lock_guard lock(mutex_);
  released_ = true;
  changed_.notify_all();
}

void StreamService::WaitUntilReleased() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return released_; });
}

void StreamService::Ended(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  ends_.emplace_back(why.ok() ? "OK" : ReasonName(GetErrorDetails(why).reason));
  changed_.notify_all();
}

}  // namespace tenon::testing
