#include "client/cpp/measure_upload.h"

#include <algorithm>

#include "backends/core/error.h"
#include "backends/core/utf8.h"
#include "client/cpp/wire.h"

namespace tenon::client {
namespace {

constexpr size_t kMaxNameBytes = 1024;

size_t LabelCount(const LabelsView& labels) {
  return std::visit(
      [](const auto& values) -> size_t {
        if constexpr (std::is_same_v<std::decay_t<decltype(values)>, std::monostate>) {
          return 0;
        } else {
          return values.size();
        }
      },
      labels);
}

// Puts labels from `first` on into `wire`, until about `limit_bytes` are in it; the position after
// the last one.
size_t FillLabels(const LabelsView& labels, size_t first, size_t limit_bytes, v1::Labels* wire) {
  if (const auto* ints = std::get_if<std::span<const int64_t>>(&labels)) {
    const size_t count = std::min(ints->size() - first, limit_bytes / 10);  // a varint at its worst
    const auto part = ints->subspan(first, count);
    wire->mutable_int64s()->mutable_values()->Add(part.begin(), part.end());
    return first + count;
  }
  if (const auto* doubles = std::get_if<std::span<const double>>(&labels)) {
    const size_t count = std::min(doubles->size() - first, limit_bytes / 8);
    const auto part = doubles->subspan(first, count);
    wire->mutable_doubles()->mutable_values()->Add(part.begin(), part.end());
    return first + count;
  }
  const auto& texts = std::get<std::span<const std::string>>(labels);
  size_t used = 0;
  size_t next = first;
  for (; next < texts.size(); ++next) {
    // Room for tag and length. One label always goes, so that there is an end.
    const size_t bytes = texts[next].size() + 8;
    if (next > first && used + bytes > limit_bytes) break;
    wire->mutable_strings()->add_values(ReplaceInvalidUtf8(texts[next]));
    used += bytes;
  }
  return next;
}

void DescribeProjection(const ProjectionInput& projection, int64_t index, v1::Projection* wire) {
  wire->set_index(index);
  *wire->mutable_spec() = ToWire(projection.tensor.spec);
  wire->set_name(std::string(Utf8Prefix(ReplaceInvalidUtf8(projection.name), kMaxNameBytes)));
  if (static_cast<int64_t>(projection.tensor.bytes.size()) < kInlineLimitBytes) {
    wire->set_inline_data(std::string(AsText(projection.tensor.bytes)));
  }
}

}  // namespace

absl::StatusOr<MeasureUpload> MeasureUpload::Create(const MeasureRequest& request,
                                                    SharedPlacement* placement) {
  MeasureUpload upload(request, placement);
  TENON_RETURN_IF_ERROR(upload.BuildHeader());
  return upload;
}

absl::Status MeasureUpload::BuildHeader() {
  v1::MeasureHeader* header = header_.mutable_header();
  SetRequestId(request_->request_id);
  if (placement_ != nullptr) header->set_shared_pool(placement_->token());
  header->mutable_specs()->Add(request_->specs.begin(), request_->specs.end());
  if (!request_->dataset_handle.empty()) {
    header->set_dataset_handle(request_->dataset_handle);
  } else {
    TENON_RETURN_IF_ERROR(CheckView(request_->dataset, "header.dataset_input.spec"));
    v1::DatasetInput* input = header->mutable_dataset_input();
    *input->mutable_spec() = ToWire(request_->dataset.spec);
    input->set_keep(request_->keep_dataset);
    if (static_cast<int64_t>(request_->dataset.bytes.size()) < kInlineLimitBytes) {
      input->set_inline_data(std::string(AsText(request_->dataset.bytes)));
    } else if (const auto region = Place(SharedPlacement::kWholeCall, request_->dataset.bytes)) {
      *input->mutable_shared() = *region;
    }
  }
  BuildLabels();
  *header->mutable_execution() = request_->execution;
  *header->mutable_result() = request_->result;
  header->set_return_local(request_->return_local);
  return BuildSource();
}

void MeasureUpload::SetRequestId(const std::string& id) {
  header_.mutable_header()->set_request_id(ReplaceInvalidUtf8(id));
}

std::optional<v1::SharedRegion> MeasureUpload::Place(int64_t set,
                                                     std::span<const std::byte> bytes) const {
  return placement_ == nullptr ? std::nullopt : placement_->Place(set, bytes);
}

void MeasureUpload::BuildLabels() {
  const size_t count = LabelCount(request_->labels);
  if (count == 0) return;
  v1::MeasureHeader* header = header_.mutable_header();
  v1::Labels part;
  if (FillLabels(request_->labels, 0, kInlineLimitBytes, &part) == count) {
    *header->mutable_labels() = std::move(part);
  } else {
    header->set_labels_follow(true);
  }
}

absl::Status MeasureUpload::BuildSource() {
  const bool is_inline = !request_->inline_projections.empty();
  const int sources = (request_->next_projection ? 1 : 0) + (is_inline ? 1 : 0) +
                      (request_->server_files.has_value() ? 1 : 0);
  if (sources != 1) {
    return Error(
               Reason::kBadHeader,
               "exactly one of next_projection, inline_projections and server_files must be given")
        .Field("header.source");
  }
  v1::MeasureHeader* header = header_.mutable_header();
  if (request_->server_files.has_value()) {
    *header->mutable_server_files() = *request_->server_files;
  } else if (!is_inline) {
    header->mutable_client_stream();
    if (request_->expected_projections.has_value()) {
      header->mutable_client_stream()->set_expected_projections(*request_->expected_projections);
    }
  }
  int64_t used = 0;
  for (size_t i = 0; is_inline && i < request_->inline_projections.size(); ++i) {
    const ProjectionInput& projection = request_->inline_projections[i];
    const std::string field = StrCat("header.inline_projections.projections[", i, "]");
    TENON_RETURN_IF_ERROR(CheckView(projection.tensor, StrCat(field, ".spec")));
    const auto bytes = static_cast<int64_t>(projection.tensor.bytes.size());
    used += bytes;
    if (bytes >= kInlineLimitBytes || used > kInlineBudgetBytes) {
      return Error(Reason::kBadHeader, "the inline projections are too large; stream them")
          .Field(field)
          .Meta("bytes", bytes);
    }
    DescribeProjection(projection, static_cast<int64_t>(i),
                       header->mutable_inline_projections()->add_projections());
  }
  return absl::OkStatus();
}

bool MeasureUpload::SendLabels(const Send& send) const {
  const size_t count = LabelCount(request_->labels);
  for (size_t next = 0; next < count;) {
    v1::MeasureRequest frame;
    next = FillLabels(request_->labels, next, size_t{1} << 20, frame.mutable_labels());
    if (!send(frame)) return false;
  }
  return true;
}

bool MeasureUpload::SendDataset(int32_t chunk_bytes, const Send& send) const {
  const v1::DatasetInput& input = header_.header().dataset_input();
  if (header_.header().has_dataset_input() && !input.has_inline_data() && !input.has_shared()) {
    v1::MeasureRequest frame;
    if (!SendChunks(request_->dataset.bytes, chunk_bytes, request_->result.checksums(),
                    frame.mutable_dataset_chunk(), [&] { return send(frame); })) {
      return false;
    }
  }
  return !header_.header().labels_follow() || SendLabels(send);
}

absl::Status MeasureUpload::SendProjections(int32_t chunk_bytes, const AwaitTurn& await_turn,
                                            const Send& send) const {
  for (int64_t index = 0; await_turn(index); ++index) {
    ProjectionInput projection;
    TENON_ASSIGN_OR_RETURN(const bool more, request_->next_projection(&projection));
    if (!more) return absl::OkStatus();
    TENON_RETURN_IF_ERROR(CheckView(projection.tensor, StrCat("projections[", index, "]")));
    v1::MeasureRequest frame;
    DescribeProjection(projection, index, frame.mutable_projection());
    bool all = frame.projection().has_inline_data();
    if (const auto region = Place(index, projection.tensor.bytes)) {
      *frame.mutable_projection()->mutable_shared() = *region;
      all = true;
    }
    if (!send(frame)) return absl::OkStatus();
    if (all) continue;
    frame.mutable_projection_chunk()->set_set(index);
    if (!SendChunks(projection.tensor.bytes, chunk_bytes, request_->result.checksums(),
                    frame.mutable_projection_chunk(), [&] { return send(frame); })) {
      return absl::OkStatus();
    }
  }
  return absl::OkStatus();
}

}  // namespace tenon::client
