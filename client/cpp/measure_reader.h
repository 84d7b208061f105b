// The server's half of a Measure stream: frames in, items out, everything checked.

#ifndef TENON_CLIENT_CPP_MEASURE_READER_H_
#define TENON_CLIENT_CPP_MEASURE_READER_H_

#include <deque>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "client/cpp/wire.h"
#include "tenon/measure.h"

namespace tenon::client {

// Knows nothing of the transport.
class MeasureReader {
 public:
  explicit MeasureReader(std::function<void(const v1::MeasureProgress&)> on_progress)
      : on_progress_(std::move(on_progress)) {}

  absl::Status Add(const v1::MeasureResponse& frame);
  // The oldest item that is complete, if there is one.
  std::optional<MeasureItem> PopItem();
  // After the stream has ended with OK: whether it was complete.
  absl::Status CheckEnd() const;

  const v1::MeasureAccepted* accepted() const { return accepted_ ? &*accepted_ : nullptr; }
  const v1::MeasureSummary* summary() const { return summary_ ? &*summary_ : nullptr; }

 private:
  absl::Status AddScores(const v1::MeasureScores& scores);
  absl::Status AddError(const v1::MeasureItemError& error);
  absl::Status AddLocalChunk(const v1::TensorChunk& chunk);
  absl::Status AddSummary(const v1::MeasureSummary& summary);
  absl::Status AddSingle(const v1::MeasureSingle& single);
  // Begins the item that comes next.
  absl::Status OpenItem(int64_t index, const std::string& name);
  // Takes local arrays as far as they are complete; closes the item after the last one.
  absl::Status AdvanceLocal();

  std::function<void(const v1::MeasureProgress&)> on_progress_;
  std::optional<v1::MeasureAccepted> accepted_;
  std::optional<v1::MeasureSummary> summary_;
  std::deque<MeasureItem> items_;
  std::optional<MeasureItem> current_;
  int next_local_ = 0;
  bool local_open_ = false;  // the assembler waits for chunks of array `next_local_`
  TensorAssembler assembler_;
  int64_t scored_ = 0;
  int64_t failed_ = 0;
};

}  // namespace tenon::client

#endif  // TENON_CLIENT_CPP_MEASURE_READER_H_
