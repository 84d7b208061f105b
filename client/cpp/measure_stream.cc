#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "client/cpp/client_impl.h"
#include "client/cpp/duplex.h"
#include "client/cpp/measure_reader.h"
#include "client/cpp/measure_upload.h"
#include "client/cpp/retrier.h"
#include "client/cpp/shared_placement.h"
#include "client/cpp/status.h"

namespace tenon::client {
namespace {

// Projections on their way beside those that the server holds: enough that it never waits for one.
constexpr int64_t kOnTheWay = 2;

}  // namespace

class MeasureStream::Impl {
 public:
  using Stream = Duplex<v1::MeasureRequest, v1::MeasureResponse>;

  // Keeps `client` alive as long as the call.
  template <typename ClientImpl>
  static absl::StatusOr<std::unique_ptr<Impl>> Start(std::shared_ptr<ClientImpl> client,
                                                     MeasureRequest request,
                                                     const CallOptions& options) {
    std::unique_ptr<Impl> impl(new Impl(std::move(request), client->options.chunk_bytes,
                                        client->MakeRetrier(options), client->endpoint,
                                        options.canceller));
    impl->Place();
    impl->open_ = [impl = impl.get(), client = std::move(client)]() -> absl::Status {
      TENON_ASSIGN_OR_RETURN(MeasureUpload upload,
                             MeasureUpload::Create(impl->request_, impl->placement_.get()));
      upload.SetRequestId(impl->request_id_);
      CallOptions call = impl->retrier_.options();
      call.canceller = &impl->canceller_;
      impl->stream_ = std::make_unique<Stream>(
          call, client->options.default_timeout, client->endpoint,
          [&](auto* context) { return client->measurement->Measure(context); });
      impl->AllowProjections();
      impl->stream_->StartWriter([impl, upload = std::move(upload)](Stream* stream) {
        return impl->Upload(upload, stream);
      });
      return absl::OkStatus();
    };
    TENON_RETURN_IF_ERROR(impl->open_());
    return impl;
  }

  absl::StatusOr<std::optional<MeasureItem>> Next() {
    while (!ended_) {
      if (std::optional<MeasureItem> item = PopItem()) return item;
      if (stream_->Read(&frame_)) {
        endpoint_.NoteAnswer();
        const absl::Status status = CatchExceptions([this] { return reader_.Add(frame_); });
        if (!status.ok()) {
          End(stream_->Finish(status));
        } else if (frame_.has_accepted()) {
          Accept();
        }
      } else {
        const absl::Status status = stream_->Finish();
        if (!SendInstead(status) && !Repeat(status)) End(status);
      }
    }
    if (std::optional<MeasureItem> item = PopItem()) return item;
    if (!end_status_.ok()) return end_status_;
    return std::optional<MeasureItem>();
  }

  void Stop() {
    const std::lock_guard lock(stream_mutex_);
    stream_->Stop();
  }
  void Cancel() { canceller_.Cancel(); }
  const MeasureReader& reader() const { return reader_; }

 private:
  Impl(MeasureRequest request, int32_t chunk_bytes, const Retrier& retrier,
       const Endpoint& endpoint, Canceller* caller)
      : request_(std::move(request)),
        request_id_(request_.request_id.empty() ? NewRequestId() : request_.request_id),
        retrier_(retrier),
        endpoint_(endpoint),
        caller_(&canceller_, caller),
        chunk_bytes_(chunk_bytes),
        reader_(request_.on_progress) {
    retrier_.SetCanceller(&canceller_);
  }

  // Memory shared with the server, for the stream that begins next.
  void Place() {
    const std::shared_ptr<SharedPool>& pool = request_.pool;
    const std::string token = pool == nullptr ? "" : pool->EnsureConnected();
    placement_.reset();
    if (!token.empty()) placement_ = std::make_unique<SharedPlacement>(pool, token, 0);
  }

  // HTTP/2's own window holds hundreds of small projections; so the generator gets leave for a few
  // beyond those that are answered, or it would run far ahead of them and of Stop().
  void AllowProjections() { stream_->Allow(answered_ + window_); }

  std::optional<MeasureItem> PopItem() {
    std::optional<MeasureItem> item = reader_.PopItem();
    if (item.has_value()) {
      if (placement_ != nullptr) placement_->Release(item->index);
      ++answered_;
      AllowProjections();
    }
    return item;
  }

  void Accept() {
    window_ = kOnTheWay + std::max(1, reader_.accepted()->memory().in_flight());
    AllowProjections();
    const int32_t granted = reader_.accepted()->granted().max_chunk_bytes();
    if (granted > 0) chunk_bytes_ = std::min(chunk_bytes_.load(), granted);
    stream_->SetAccepted();
  }

  // Begins anew without shared memory when the server does not know the pool. Nothing has been
  // asked of the generator then. A Stop that came meanwhile is for the new stream.
  bool SendInstead(const absl::Status& status) {
    if (placement_ == nullptr || reader_.accepted() != nullptr || !IsPoolRefused(status)) {
      return false;
    }
    placement_.reset();
    Reopen();
    return true;
  }

  // Begins anew after a break, where everything that was sent can be sent again and nothing is out.
  bool Repeat(const absl::Status& status) {
    endpoint_.Note(status);
    if (endpoint_.answered()) retrier_.Heard();
    if (has_asked_ || answered_ > 0 || !retrier_.Again(status, false)) return false;
    reader_ = MeasureReader(request_.on_progress);
    window_ = kOnTheWay + 1;
    Place();
    Reopen();
    return true;
  }

  void Reopen() {
    const std::lock_guard lock(stream_mutex_);
    const bool stopped = stream_->stopped();
    const absl::Status opened = open_();
    if (stopped) stream_->Stop();
    if (!opened.ok()) End(opened);
  }

  void End(absl::Status status) {
    ended_ = true;
    end_status_ = std::move(status);
    if (MayRepeat(end_status_) && canceller_.cancelled()) {
      end_status_ = absl::CancelledError("cancelled before the next try");
    }
    if (end_status_.ok()) end_status_ = reader_.CheckEnd();
    if (end_status_.ok()) end_status_ = generator_status_;
  }

  // The writing thread.
  absl::Status Upload(const MeasureUpload& upload, Stream* stream) {
    if (!stream->Write(upload.header())) return absl::OkStatus();
    const auto send = [stream](const v1::MeasureRequest& frame) {
      return !stream->stopped() && stream->Write(frame);
    };
    const auto await_turn = [stream](int64_t index) { return stream->WaitAllowed(index + 1); };
    // Small data goes at once; there is nothing to save by waiting for the server's consent.
    const v1::MeasureHeader& header = upload.header().header();
    const bool small = header.dataset_input().has_inline_data() && !header.labels_follow() &&
                       header.shared_pool().empty();
    const bool going = (small || stream->WaitAccepted()) && upload.SendDataset(chunk_bytes_, send);
    if (going && request_.next_projection) {
      has_asked_ = true;
      // An error here must not cost the answers before it: the stream is stopped, not cancelled.
      generator_status_ =
          CatchExceptions([&] { return upload.SendProjections(chunk_bytes_, await_turn, send); });
      if (!generator_status_.ok()) stream->Stop();
    } else if (going && request_.server_files.has_value()) {
      stream->WaitStopped();
    }
    if (stream->stopped()) {
      v1::MeasureRequest stop;
      stop.mutable_stop();
      stream->Write(stop);
    }
    stream->WritesDone();
    return absl::OkStatus();
  }

  MeasureRequest request_;
  const std::string request_id_;
  Retrier retrier_;
  const Endpoint endpoint_;
  Canceller canceller_;  // of this stream, pauses included
  const CancelLink caller_;
  std::unique_ptr<SharedPlacement> placement_;  // null: everything is sent
  std::function<absl::Status()> open_;          // the stream; keeps the client alive
  std::atomic<int32_t> chunk_bytes_;
  MeasureReader reader_;
  v1::MeasureResponse frame_;
  int64_t answered_ = 0;
  bool has_asked_ = false;  // the generator; written by the writing thread, as generator_status_ is
  int64_t window_ = kOnTheWay + 1;  // of projections without an answer
  bool ended_ = false;
  absl::Status end_status_;
  // Written by the writing thread, read after it has been joined.
  absl::Status generator_status_;
  std::mutex stream_mutex_;  // whoever replaces the stream, and other threads that use it
  // The last member: its thread uses the others and is joined first.
  std::unique_ptr<Stream> stream_;
};

MeasureStream::MeasureStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MeasureStream::MeasureStream(MeasureStream&&) noexcept = default;
MeasureStream& MeasureStream::operator=(MeasureStream&&) noexcept = default;
MeasureStream::~MeasureStream() = default;

absl::StatusOr<std::optional<MeasureItem>> MeasureStream::Next() { return impl_->Next(); }
void MeasureStream::Stop() { impl_->Stop(); }
void MeasureStream::Cancel() { impl_->Cancel(); }
const v1::MeasureAccepted* MeasureStream::accepted() const { return impl_->reader().accepted(); }
const v1::MeasureSummary* MeasureStream::summary() const { return impl_->reader().summary(); }

absl::StatusOr<MeasureStream> Client::Measure(MeasureRequest request, const CallOptions& options) {
  absl::StatusOr<std::unique_ptr<MeasureStream::Impl>> impl = absl::UnknownError("");
  TENON_RETURN_IF_ERROR(CatchExceptions([&] {
    impl = MeasureStream::Impl::Start(impl_, std::move(request), options);
    return impl.status();
  }));
  return MeasureStream(*std::move(impl));
}

absl::StatusOr<MeasureOutcome> Client::MeasureAll(
    MeasureRequest request, const CallOptions& options,
    const std::function<absl::Status(MeasureItem)>& on_item) {
  TENON_ASSIGN_OR_RETURN(MeasureStream stream, Measure(std::move(request), options));
  MeasureOutcome outcome;
  for (;;) {
    TENON_ASSIGN_OR_RETURN(std::optional<MeasureItem> item, stream.Next());
    if (!item.has_value()) break;
    if (!on_item) {
      outcome.items.push_back(*std::move(item));
      continue;
    }
    TENON_RETURN_IF_ERROR(CatchExceptions([&] { return on_item(*std::move(item)); }));
  }
  outcome.summary = *stream.summary();
  return outcome;
}

}  // namespace tenon::client
