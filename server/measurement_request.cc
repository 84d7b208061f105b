#include "server/measurement_request.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "backends/core/error.h"
#include "server/measurement_codec.h"
#include "server/measurement_plan.h"
#include "server/server_files.h"

namespace tenon::server {
namespace {

using measurement::Labels;
using measurement::Session;

constexpr size_t kMaxRequestIdBytes = 128;
constexpr int64_t kMinChunkBytes = 4096;
constexpr int64_t kAssumedColumns = 2;

Error BadParameter(std::string field, std::string message) {
  return Error(Reason::kBadParameter, std::move(message)).Field(std::move(field));
}

template <typename T>
absl::Status CheckAtLeastOne(bool given, T value, const char* field) {
  if (!given || value >= 1) return absl::OkStatus();
  return BadParameter(StrCat("header.execution.", field),
                      StrCat(field, " is ", value, "; it must be at least 1"))
      .Meta("value", value);
}

absl::Status CheckSeconds(bool given, double value, const char* field) {
  if (!given || (value > 0 && std::isfinite(value))) return absl::OkStatus();
  return BadParameter(StrCat("header.execution.", field),
                      StrCat(field, " is ", value, "; it must be positive and finite"))
      .Meta("value", value);
}

template <typename Enum>
absl::Status CheckEnum(bool valid, Enum value, const char* field) {
  if (valid) return absl::OkStatus();
  return BadParameter(StrCat("header.", field),
                      StrCat(static_cast<int>(value), " is no value of ", field))
      .Meta("value", static_cast<int>(value));
}

absl::Status NotImplemented(std::string field, std::string_view what) {
  return Error(Reason::kNotImplemented, StrCat("this server does not offer ", what, " yet"))
      .Field(std::move(field));
}

absl::Status CheckTemporary(const v1::MeasureExecution& execution, const ServerState& state) {
  const bool external = execution.pair_order_strategy() == v1::PAIR_ORDER_STRATEGY_EXTERNAL;
  TENON_RETURN_IF_ERROR(CheckAtLeastOne(execution.has_temporary_budget_bytes(),
                                        execution.temporary_budget_bytes(),
                                        "temporary_budget_bytes"));
  if (!execution.has_temporary_budget_bytes()) {
    if (external) {
      return BadParameter("header.execution.pair_order_strategy",
                          "the external strategy needs a temporary budget");
    }
    if (!execution.temporary_directory().empty()) {
      return BadParameter("header.execution.temporary_directory",
                          "a temporary directory needs a temporary budget");
    }
    return absl::OkStatus();
  }
  if (state.scratch != nullptr) return absl::OkStatus();
  return Error(Reason::kNotImplemented,
               "this server makes no temporary files; its --scratch_budget is 0")
      .Field("header.execution.temporary_budget_bytes");
}

absl::Status CheckExecution(const v1::MeasureExecution& execution, const ServerState& state) {
  TENON_RETURN_IF_ERROR(CheckAtLeastOne(execution.has_memory_budget_bytes(),
                                        execution.memory_budget_bytes(), "memory_budget_bytes"));
  TENON_RETURN_IF_ERROR(
      CheckAtLeastOne(execution.has_in_flight(), execution.in_flight(), "in_flight"));
  TENON_RETURN_IF_ERROR(CheckAtLeastOne(execution.has_threads(), execution.threads(), "threads"));
  TENON_RETURN_IF_ERROR(
      CheckAtLeastOne(execution.has_batch_size(), execution.batch_size(), "batch_size"));
  TENON_RETURN_IF_ERROR(CheckSeconds(execution.has_progress_interval_seconds(),
                                     execution.progress_interval_seconds(),
                                     "progress_interval_seconds"));
  TENON_RETURN_IF_ERROR(CheckSeconds(execution.has_max_queue_seconds(),
                                     execution.max_queue_seconds(), "max_queue_seconds"));
  TENON_RETURN_IF_ERROR(CheckEnum(v1::OnError_IsValid(execution.on_error()), execution.on_error(),
                                  "execution.on_error"));
  TENON_RETURN_IF_ERROR(CheckEnum(v1::PriorityClass_IsValid(execution.priority()),
                                  execution.priority(), "execution.priority"));
  TENON_RETURN_IF_ERROR(CheckEnum(v1::PairOrderStrategy_IsValid(execution.pair_order_strategy()),
                                  execution.pair_order_strategy(),
                                  "execution.pair_order_strategy"));
  return CheckTemporary(execution, state);
}

absl::Status CheckResult(const v1::MeasureResultOptions& result, const Limits& limits) {
  TENON_RETURN_IF_ERROR(CheckEnum(v1::ReportDetail_IsValid(result.report_detail()),
                                  result.report_detail(), "result.report_detail"));
  if (!result.has_chunk_bytes()) return absl::OkStatus();
  if (result.chunk_bytes() >= kMinChunkBytes && result.chunk_bytes() <= limits.max_chunk_bytes) {
    return absl::OkStatus();
  }
  return BadParameter("header.result.chunk_bytes",
                      StrCat("chunks of ", result.chunk_bytes(), " bytes; ", kMinChunkBytes, " to ",
                             limits.max_chunk_bytes, " are offered"))
      .Meta("minimum_bytes", kMinChunkBytes)
      .Meta("maximum_bytes", limits.max_chunk_bytes)
      .Meta("actual_bytes", result.chunk_bytes());
}

absl::Status CheckInline(const v1::MeasureHeader& header) {
  const auto& projections = header.inline_projections().projections();
  for (int i = 0; i < projections.size(); ++i) {
    const std::string field = StrCat("header.inline_projections.projections[", i, "]");
    if (projections[i].index() != i) {
      return Error(Reason::kFrameOrder, StrCat("the projection at position ", i, " has the index ",
                                               projections[i].index()))
          .Field(StrCat(field, ".index"))
          .Meta("expected_index", i)
          .Meta("actual_index", projections[i].index());
    }
    if (!projections[i].has_inline_data()) {
      return Error(Reason::kMissingField, "projections in the header carry their bytes")
          .Field(StrCat(field, ".inline_data"));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadFiles(const std::string& data_root, const CancelToken* cancel, MeasureCall* call) {
  const v1::ServerFilesSource& source = call->header.server_files();
  if (data_root.empty()) {
    return Error(Reason::kNotImplemented,
                 "this server reads no files of its own; it was started without --data_root")
        .Field("header.server_files");
  }
  if (source.has_limit() && source.limit() < 1) {
    return BadParameter("header.server_files.limit",
                        StrCat("limit is ", source.limit(), "; it must be at least 1"))
        .Meta("value", source.limit());
  }
  auto files = ListServerFiles(data_root, source.glob(),
                               source.has_limit() ? source.limit() : kMaxServerFiles, cancel);
  TENON_RETURN_IF_ERROR(cancel->Check());
  if (!files.ok()) return PrefixFields(files.status(), "header.server_files.");
  call->files = *std::move(files);
  return absl::OkStatus();
}

absl::Status ReadSource(const ServerState& state, const CancelToken* cancel, MeasureCall* call) {
  const v1::MeasureHeader& header = call->header;
  if (header.has_server_files()) return ReadFiles(state.settings.data_root, cancel, call);
  if (header.client_stream().has_expected_projections() &&
      header.client_stream().expected_projections() < 0) {
    return BadParameter("header.client_stream.expected_projections",
                        "the expected number of projections is negative")
        .Meta("value", header.client_stream().expected_projections());
  }
  return CheckInline(header);
}

// Stored matrices that measures name instead of the data set.
absl::Status ReadPrecomputed(ServerState* state, MeasureCall* call) {
  constexpr char kParameter[] = "precomputed_handle";
  for (size_t i = 0; i < call->specs.size(); ++i) {
    const auto given = call->specs[i].parameters.find(kParameter);
    if (given == call->specs[i].parameters.end()) continue;
    const auto* handle = std::get_if<std::string>(&given->second);
    if (handle == nullptr || handle->empty()) continue;
    const std::string field = StrCat(
        "header.specs[", i, "].", measurement::FindMeasure(call->specs[i].id)->id, ".", kParameter);
    if (state->store == nullptr) return NotImplemented(field, "stored data sets");
    const auto stored = state->store->Get(ContentStore::Kind::kDataset, call->owner, *handle);
    if (!stored.ok()) {
      return Error(Reason::kNotFound, std::string(stored.status().message())).Field(field);
    }
    const std::vector<int64_t>& shape = (*stored)->tensor.spec.shape;
    if (shape[0] != call->rows() || shape[1] != call->rows()) {
      return Error(Reason::kShapeMismatch,
                   StrCat("the stored matrix is ", shape[0], " x ", shape[1],
                          "; expected is one row and one column per row of the data set, ",
                          call->rows()))
          .Field(field)
          .Meta("expected_rows", call->rows())
          .Meta("actual_rows", shape[0])
          .Meta("actual_columns", shape[1]);
    }
    // Shares the content, so that it counts as in use.
    call->options.precomputed[*handle] = std::shared_ptr<const Tensor>(*stored, &(*stored)->tensor);
  }
  return absl::OkStatus();
}

bool KeepsResources(const v1::MeasureHeader& header) {
  return !header.execution().has_keep_resources() || header.execution().keep_resources();
}

absl::Status ReadDataset(ServerState* state, MeasureCall* call) {
  const v1::MeasureHeader& header = call->header;
  if (header.has_dataset_handle()) {
    if (state->store == nullptr) return NotImplemented("header.dataset_handle", "stored data sets");
    auto stored =
        state->store->Get(ContentStore::Kind::kDataset, call->owner, header.dataset_handle());
    if (!stored.ok()) return PrefixFields(stored.status(), "header.dataset_");
    call->stored = *std::move(stored);
    call->dataset_spec = call->stored->tensor.spec;
    if (KeepsResources(header)) call->original_side = call->stored->original_side;
    return absl::OkStatus();
  }
  if (!header.has_dataset_input()) {
    return Error(Reason::kMissingField, "the data set is required").Field("header.dataset");
  }
  const v1::DatasetInput& input = header.dataset_input();
  TENON_ASSIGN_OR_RETURN(call->dataset_spec,
                         ReadMatrixSpec(input.spec(), "header.dataset_input.spec", state->limits));
  if (call->rows() < 2) {
    return Error(Reason::kTooFewRows,
                 StrCat("the data set has ", call->rows(), " rows; at least 2 are needed"))
        .Field("header.dataset_input.spec.shape[0]")
        .Meta("minimum_rows", 2)
        .Meta("rows", call->rows());
  }
  call->keep_dataset = input.keep();
  if (input.keep() && state->store != nullptr && KeepsResources(header)) {
    call->original_side = state->store->MakeOriginalSide();
  }
  if (input.keep() && state->store == nullptr) {
    return NotImplemented("header.dataset_input.keep", "stored data sets");
  }
  if (input.keep()) {
    TENON_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteCount(call->dataset_spec));
    TENON_RETURN_IF_ERROR(
        AtField(state->store->CheckQuota(call->owner, ContentStore::EntryBytes(bytes)),
                "header.dataset_input.keep"));
  }
  if (input.has_shared()) TENON_RETURN_IF_ERROR(CheckHasPool(call->pool.get()));
  if (!input.has_inline_data()) return absl::OkStatus();
  if (input.has_shared()) {
    return Error(Reason::kBadHeader, "the bytes come twice: one source is shared memory")
        .Field("header.dataset_input.shared");
  }
  return CheckInlineSize(static_cast<int64_t>(input.inline_data().size()),
                         "header.dataset_input.inline_data", state->limits);
}

absl::Status CheckLabelCount(int64_t count, int64_t rows, const char* field) {
  if (count == rows) return absl::OkStatus();
  return Error(Reason::kBadLabels, StrCat("there are ", count, " labels for ", rows, " rows"))
      .Field(field)
      .Meta("rows", rows)
      .Meta("labels", count);
}

absl::Status ReadLabels(MeasureCall* call) {
  const v1::MeasureHeader& header = call->header;
  for (const auto& spec : call->specs) {
    call->needs_labels |= measurement::FindMeasure(spec.id)->needs_labels;
  }
  call->labels_follow = header.labels_follow();
  if (header.labels_follow() && header.has_labels()) {
    return Error(Reason::kBadHeader, "labels stand in the header and are announced as frames")
        .Field("header.labels");
  }
  if (!call->needs_labels) return absl::OkStatus();
  if (!header.labels_follow() && !header.has_labels()) {
    return Error(Reason::kLabelsRequired, "a measure needs labels and none were given")
        .Field("header.labels");
  }
  if (header.labels_follow()) return absl::OkStatus();
  TENON_RETURN_IF_ERROR(
      AppendLabels(header.labels(), call->rows(), "header.labels", &call->labels));
  return CheckLabelCount(LabelCount(call->labels), call->rows(), "header.labels");
}

measurement::PairOrdering PairOrderingOf(v1::PairOrderStrategy strategy) {
  if (strategy == v1::PAIR_ORDER_STRATEGY_MEMORY) return measurement::PairOrdering::kMemory;
  if (strategy == v1::PAIR_ORDER_STRATEGY_EXTERNAL) return measurement::PairOrdering::kExternal;
  return measurement::PairOrdering::kAuto;
}

// Of the first projection in the header whose bytes are there; bad ones are errors in their places,
// later, and must not spoil the plan.
int64_t PlannedColumns(const MeasureCall& call, const Limits& limits) {
  constexpr int kLookedAt = 100;
  const auto& projections = call.header.inline_projections().projections();
  for (int i = 0; i < std::min(kLookedAt, projections.size()); ++i) {
    const v1::Projection& projection = projections[i];
    const auto spec = ReadMatrixSpec(projection.spec(), "projection.spec", limits);
    if (!spec.ok() || spec->shape[0] != call.rows()) continue;
    const auto bytes = CheckedByteCount(*spec);
    if (bytes.ok() && *bytes == static_cast<int64_t>(projection.inline_data().size())) {
      return spec->shape[1];
    }
  }
  return kAssumedColumns;
}

absl::Status ReadOptions(const Limits& limits, MeasureCall* call) {
  const v1::MeasureExecution& execution = call->header.execution();
  measurement::SessionOptions& options = call->options;
  options.rows = call->rows();
  options.original_columns = call->dataset_spec.shape[1];
  options.max_embedded_columns = PlannedColumns(*call, limits);
  if (execution.compute_dtype() != v1::DATA_TYPE_UNSPECIFIED) {
    options.compute_dtype = static_cast<DType>(execution.compute_dtype());
  }
  if (options.compute_dtype != DType::kFloat64 && options.compute_dtype != DType::kFloat32) {
    return BadParameter("header.execution.compute_dtype",
                        "distances are computed in float64 or float32");
  }
  options.geodesic = execution.geodesic();
  if (options.geodesic && options.original_columns < 2) {
    return BadParameter("header.execution.geodesic",
                        StrCat("great-circle distances need two columns; the data set has ",
                               options.original_columns))
        .Meta("columns", options.original_columns);
  }
  options.return_local = call->header.return_local();
  options.skip_failed_measures = execution.on_error() == v1::ON_ERROR_SKIP_MEASURE;
  options.pair_ordering = PairOrderingOf(execution.pair_order_strategy());
  options.expected_projections = call->projection_count().value_or(0);
  options.warm = call->original_side;
  int64_t wanted = execution.has_in_flight() ? execution.in_flight() : 0;
  wanted = std::min(wanted, limits.max_in_flight);
  if (call->serves_itself()) {
    wanted = std::min(wanted, std::max<int64_t>(1, *call->projection_count()));
  }
  options.in_flight = static_cast<int>(wanted);
  options.batch_size = execution.batch_size();
  options.threads = static_cast<int>(limits.max_threads);
  if (execution.has_threads() && (options.threads == 0 || execution.threads() < options.threads)) {
    options.threads = execution.threads();
  }
  return absl::OkStatus();
}

absl::Status ReadProvider(ServerState* state, MeasureCall* call) {
  auto provider = state->providers.Find(call->header.execution().provider());
  if (!provider.ok()) return PrefixFields(provider.status(), "header.execution.provider");
  call->provider = *std::move(provider);
  if (!call->header.execution().allow_fallback()) return absl::OkStatus();
  auto fallback = state->providers.Find("");  // the CPU, by definition
  if (fallback.ok() && *fallback != call->provider) call->fallback = *std::move(fallback);
  return absl::OkStatus();
}

}  // namespace

std::optional<double> MeasureCall::progress_interval() const {
  if (!header.execution().has_progress_interval_seconds()) return std::nullopt;
  return header.execution().progress_interval_seconds();
}

bool MeasureCall::may_be_single() const {
  return header.has_inline_projections() && !labels_follow && !progress_interval() &&
         !header.return_local() && (stored != nullptr || dataset.complete());
}

std::optional<int64_t> MeasureCall::projection_count() const {
  if (header.has_inline_projections()) return header.inline_projections().projections_size();
  if (!files.empty()) return static_cast<int64_t>(files.size());
  if (!header.client_stream().has_expected_projections()) return std::nullopt;
  return header.client_stream().expected_projections();
}

ResourceContext MeasureCall::resource_context(bool planned) const {
  return {.requested = std::string(provider->name()),
          .compute_dtype = options.compute_dtype,
          .geodesic = options.geodesic,
          .planned = planned,
          .rows = rows(),
          .specs = &session->specs()};
}

absl::Status MeasureCall::Admit(Reservation all) {
  dataset_reservation = all.Split(dataset_bytes);
  reservation = std::move(all);
  if (stored != nullptr) return absl::OkStatus();
  v1::DatasetInput* input = header.mutable_dataset_input();
  TENON_ASSIGN_OR_RETURN(dataset, TensorReceiver::Create(dataset_spec));
  if (input->has_shared()) {
    const auto span = pool->TensorRegion(input->shared(), dataset.size_bytes());
    if (!span.ok()) return PrefixFields(span.status(), "header.dataset_input.shared.");
    return dataset.AcceptShared(span->data, span->size_bytes);
  }
  if (!input->has_inline_data()) return absl::OkStatus();
  const absl::Status accepted = dataset.AcceptAll(input->inline_data());
  input->clear_inline_data();
  return AtField(accepted, "header.dataset_input.inline_data");
}

absl::Status MeasureCall::UseLabels() {
  const Labels all = std::exchange(labels, {});
  if (!needs_labels) return absl::OkStatus();
  TENON_RETURN_IF_ERROR(CheckLabelCount(LabelCount(all), rows(), "labels"));
  return AsWireError(session->SetLabels(all), header);
}

absl::StatusOr<std::unique_ptr<MeasureCall>> PlanMeasure(v1::MeasureHeader header,
                                                         ServerState* state,
                                                         const std::string& owner,
                                                         const CancelToken* cancel) {
  TENON_RETURN_IF_ERROR(state->lifecycle.CheckAdmitting());
  auto call = std::make_unique<MeasureCall>();
  call->owner = owner;
  call->header = std::move(header);
  call->request_id = call->header.request_id();
  if (call->request_id.size() > kMaxRequestIdBytes) {
    return BadParameter("header.request_id",
                        StrCat("the id has ", call->request_id.size(), " bytes; at most ",
                               kMaxRequestIdBytes, " are taken"))
        .Meta("limit_bytes", kMaxRequestIdBytes)
        .Meta("actual_bytes", call->request_id.size());
  }
  if (call->request_id.empty()) call->request_id = NewRequestId();
  TENON_ASSIGN_OR_RETURN(
      call->pool, FindPool(state->shared_memory.get(), call->header.shared_pool(), call->owner));
  TENON_RETURN_IF_ERROR(CheckExecution(call->header.execution(), *state));
  TENON_RETURN_IF_ERROR(CheckResult(call->header.result(), state->limits));
  TENON_RETURN_IF_ERROR(ReadSource(*state, cancel, call.get()));
  TENON_ASSIGN_OR_RETURN(call->specs, ReadSpecs(call->header, state->limits));
  TENON_RETURN_IF_ERROR(ReadDataset(state, call.get()));
  TENON_RETURN_IF_ERROR(ReadProvider(state, call.get()));
  // Before the labels: a wrong parameter is no question of labels.
  const auto checked = measurement::CheckSpecs(call->specs, call->rows());
  if (!checked.ok()) return AsWireError(checked.status(), call->header);
  TENON_RETURN_IF_ERROR(ReadPrecomputed(state, call.get()));
  TENON_RETURN_IF_ERROR(ReadLabels(call.get()));
  TENON_RETURN_IF_ERROR(ReadOptions(state->limits, call.get()));
  TENON_RETURN_IF_ERROR(PlanMemory(state, call.get()));
  call->header.clear_labels();
  return call;
}

void WriteAccepted(const MeasureCall& call, v1::MeasureAccepted* accepted) {
  accepted->set_request_id(call.request_id);
  accepted->set_planned_peak_bytes(call.memory.total_bytes());
  *accepted->mutable_memory() = call.memory;
  *accepted->mutable_granted() = call.granted;
  accepted->set_planned_temporary_bytes(call.session->planned_temporary_bytes());
  if (!call.brief()) {
    const ResourceContext context = call.resource_context(true);
    WriteResources(call.session->planned_original(), context,
                   accepted->mutable_original_resources());
    WriteResources(call.session->planned_projection(), context,
                   accepted->mutable_projection_resources());
  }
  WriteTensorSpec(call.dataset_spec, accepted->mutable_dataset_spec());
  if (call.stored != nullptr) accepted->set_dataset_handle(call.stored->handle);
}

}  // namespace tenon::server
