#include "server/measurement_answer.h"

#include <cstring>
#include <string>
#include <utility>

#include "backends/core/error.h"
#include "server/measurement_codec.h"
#include "server/measurement_report.h"
#include "server/status.h"

namespace tenon::server {
namespace {

// Local arrays stand inside the message while it stays well below the limit of a message.
constexpr int64_t kMaxInlineSum = int64_t{2} << 20;

absl::StatusOr<Tensor> AsTensor(const std::vector<double>& values) {
  TENON_ASSIGN_OR_RETURN(
      Tensor tensor, Tensor::Allocate({DType::kFloat64, {static_cast<int64_t>(values.size())}}));
  if (!values.empty()) {
    std::memcpy(tensor.buffer.data(), values.data(), values.size() * sizeof(double));
  }
  return tensor;
}

absl::Status AddLocalArray(const MeasureCall& call, const Limits& limits, int64_t index, int spec,
                           const std::string& key, std::vector<double> values,
                           ProjectionAnswer* answer) {
  v1::MeasureScores* scores = answer->item.mutable_scores();
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(double));
  const int position = scores->local_arrays_size();
  v1::LocalArray* array = scores->add_local_arrays();
  array->set_spec(spec);
  array->set_key(key);
  WriteTensorSpec({DType::kFloat64, {static_cast<int64_t>(values.size())}},
                  array->mutable_tensor());
  answer->payload_bytes += bytes;
  if (bytes < limits.max_inline_bytes && answer->payload_bytes <= kMaxInlineSum) {
    array->set_inline_data(values.data(), static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  TENON_ASSIGN_OR_RETURN(Tensor tensor, AsTensor(values));
  const ChunkOptions options{.set = index,
                             .operand = position,
                             .chunk_bytes = call.granted.result_chunk_bytes(),
                             .checksums = call.header.result().checksums()};
  answer->chunks.push_back(
      std::make_shared<TensorSender>(std::make_shared<const Tensor>(std::move(tensor)), options));
  return absl::OkStatus();
}

ProjectionAnswer ErrorAnswer(const MeasureCall& call, const ProjectionItem& item) {
  ProjectionAnswer answer;
  v1::MeasureItemError* error = answer.item.mutable_error();
  error->set_index(item.index);
  error->set_name(item.name);
  *error->mutable_error() = ToErrorDetail(AsWireError(item.result.status(), call.header));
  return answer;
}

}  // namespace

absl::Status CheckAnswerSize(int64_t bytes, const Limits& limits) {
  if (bytes <= limits.answer_bytes()) return absl::OkStatus();
  return Error(Reason::kExceedsServerLimit,
               StrCat("for so many measures one answer takes ", bytes, " bytes; at most ",
                      limits.answer_bytes(), " fit in a message"))
      .Field("header.specs")
      .Meta("limit_bytes", limits.answer_bytes())
      .Meta("actual_bytes", bytes);
}

absl::StatusOr<ProjectionAnswer> MakeAnswer(const MeasureCall& call, const Limits& limits,
                                            ProjectionItem* item) {
  if (!item->result.ok()) return ErrorAnswer(call, *item);
  ProjectionAnswer answer;
  v1::MeasureScores* scores = answer.item.mutable_scores();
  scores->set_index(item->index);
  scores->set_name(item->name);
  WriteScores(call.session->specs(), *item->result, scores);
  if (!call.brief()) WriteRunInfo(call, *item, scores->mutable_run_info());
  for (size_t spec = 0; spec < item->result->specs.size(); ++spec) {
    for (auto& [key, values] : item->result->specs[spec].local_scores) {
      TENON_RETURN_IF_ERROR(AddLocalArray(call, limits, item->index, static_cast<int>(spec), key,
                                          std::move(values), &answer));
    }
  }
  const auto bytes = static_cast<int64_t>(answer.item.ByteSizeLong());
  const absl::Status fits = CheckAnswerSize(bytes, limits);
  if (fits.ok()) return answer;
  item->result = fits;
  return ErrorAnswer(call, *item);
}

std::function<bool(v1::MeasureResponse*)> AnswerProducer(ProjectionAnswer answer,
                                                         std::function<void()> written) {
  struct Progress {
    ProjectionAnswer answer;
    std::function<void()> written;
    bool sent = false;
    size_t array = 0;
  };
  auto progress = std::make_shared<Progress>();
  progress->answer = std::move(answer);
  progress->written = std::move(written);
  return [progress](v1::MeasureResponse* frame) {
    if (!std::exchange(progress->sent, true)) {
      v1::MeasureItem& item = progress->answer.item;
      if (item.has_error()) {
        frame->mutable_item_error()->Swap(item.mutable_error());
      } else {
        frame->mutable_scores()->Swap(item.mutable_scores());
      }
      return true;
    }
    auto& chunks = progress->answer.chunks;
    for (; progress->array < chunks.size(); ++progress->array) {
      if (chunks[progress->array]->Next(frame->mutable_local_chunk())) return true;
      chunks[progress->array].reset();
    }
    progress->written();
    return false;
  };
}

}  // namespace tenon::server
