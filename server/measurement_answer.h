// Answers to projections as frames.

#ifndef TENON_SERVER_MEASUREMENT_ANSWER_H_
#define TENON_SERVER_MEASUREMENT_ANSWER_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "server/measurement_request.h"
#include "server/measurement_window.h"
#include "server/tensor_sender.h"
#include "tenon/v1/measurement.pb.h"

namespace tenon::server {

// The answer to one projection: its scores and the local arrays that are too large to stand inside,
// or its error.
struct ProjectionAnswer {
  v1::MeasureItem item;
  // One per local array without inline data, in order.
  std::vector<std::shared_ptr<TensorSender>> chunks;
  int64_t payload_bytes = 0;  // of local arrays

  bool failed() const { return item.has_error(); }
};

// EXCEEDS_SERVER_LIMIT with field "header.specs" when clients may not take a message of so many
// bytes.
absl::Status CheckAnswerSize(int64_t bytes, const Limits& limits);

// Takes the item's result; one that does not fit in a message becomes an error. Errors as
// Tensor::Allocate, for local arrays.
absl::StatusOr<ProjectionAnswer> MakeAnswer(const MeasureCall& call, const Limits& limits,
                                            ProjectionItem* item);

// Produces the frames of an answer for BidiStream::Send, then calls `written`.
std::function<bool(v1::MeasureResponse*)> AnswerProducer(ProjectionAnswer answer,
                                                         std::function<void()> written);

}  // namespace tenon::server

#endif  // TENON_SERVER_MEASUREMENT_ANSWER_H_
