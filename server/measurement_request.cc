#include "server/measurement_request.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "absl/strings/numbers.h"
#include "backends/core/error.h"
#include "server/measurement_codec.h"

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

// Pairs in files are not offered; what asks for them is refused with the right reason.
absl::Status CheckTemporary(const v1::MeasureExecution& execution) {
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
  return NotImplemented("header.execution.temporary_budget_bytes", "temporary files");
}

absl::Status CheckExecution(const v1::MeasureExecution& execution) {
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
  if (execution.on_error() == v1::ON_ERROR_SKIP_MEASURE) {
    return NotImplemented("header.execution.on_error", "ON_ERROR_SKIP_MEASURE");
  }
  return CheckTemporary(execution);
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

absl::Status CheckSource(const v1::MeasureHeader& header) {
  if (header.has_server_files()) {
    return NotImplemented("header.server_files", "projections from files of the server");
  }
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

absl::Status ReadDataset(ServerState* state, MeasureCall* call) {
  const v1::MeasureHeader& header = call->header;
  if (header.has_dataset_handle()) {
    if (state->store == nullptr) return NotImplemented("header.dataset_handle", "stored data sets");
    auto stored = state->store->Get(ContentStore::Kind::kDataset, header.dataset_handle());
    if (!stored.ok()) return PrefixFields(stored.status(), "header.dataset_");
    call->stored = *std::move(stored);
    call->dataset_spec = call->stored->tensor.spec;
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
  if (input.keep() && state->store == nullptr) {
    return NotImplemented("header.dataset_input.keep", "stored data sets");
  }
  if (!input.has_inline_data()) return absl::OkStatus();
  return CheckInlineSize(static_cast<int64_t>(input.inline_data().size()),
                         "header.dataset_input.inline_data", state->limits);
}

// Two classes in turn: they satisfy every condition on labels that some labels of this many rows
// can satisfy, so that a plan can be made before the real ones come.
Labels PlaceholderLabels(int64_t rows) {
  std::vector<int64_t> labels(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) labels[static_cast<size_t>(i)] = i % 2;
  return labels;
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

int64_t LabelBytes(const MeasureCall& call) {
  const auto per_row = static_cast<int64_t>(sizeof(int64_t));
  return call.needs_labels || call.labels_follow ? call.rows() * per_row : 0;
}

absl::Status ReadOptions(const Limits& limits, MeasureCall* call) {
  const v1::MeasureExecution& execution = call->header.execution();
  measurement::SessionOptions& options = call->options;
  options.rows = call->rows();
  options.original_columns = call->dataset_spec.shape[1];
  options.max_embedded_columns = kAssumedColumns;
  const auto& inline_projections = call->header.inline_projections().projections();
  if (!inline_projections.empty()) {
    const auto& shape = inline_projections[0].spec().shape();
    // A bad shape is that projection's error, later.
    if (shape.size() == 2 && shape[1] >= 1 && shape[1] <= limits.max_message_bytes) {
      options.max_embedded_columns = shape[1];
    }
  }
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
  int64_t wanted = execution.has_in_flight() ? execution.in_flight() : 0;
  wanted = std::min(wanted, limits.max_in_flight);
  if (!inline_projections.empty() && wanted > inline_projections.size()) {
    wanted = inline_projections.size();
  }
  options.in_flight = static_cast<int>(wanted);
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
  return absl::OkStatus();
}

// The session's budget error in figures of the whole request; `besides` are the bytes that are
// not the session's.
absl::Status BudgetError(const absl::Status& status, const MeasureCall& call, int64_t budget,
                         int64_t besides) {
  const ErrorDetails details = GetErrorDetails(status);
  if (details.reason != Reason::kExceedsMemoryBudget) return AsWireError(status, call.header);
  int64_t smallest = 0;
  const auto known = details.metadata.find("smallest_budget_bytes");
  if (known == details.metadata.end() || !absl::SimpleAtoi(known->second, &smallest)) {
    return AsWireError(status, call.header);
  }
  smallest += besides;
  // Without a budget of its own the request failed by the server's.
  const bool own = call.header.execution().has_memory_budget_bytes();
  return Error(own ? Reason::kExceedsMemoryBudget : Reason::kExceedsServerLimit,
               StrCat("the request needs at least ", smallest, " bytes of memory; ",
                      own ? "its budget is " : "this server grants ", budget))
      .Field("header.execution.memory_budget_bytes")
      .Meta("smallest_budget_bytes", smallest)
      .Meta(own ? "budget_bytes" : "limit_bytes", budget);
}

v1::InFlightLimit WireInFlightLimit(const MeasureCall& call, const Limits& limits) {
  const std::string limit = call.session->in_flight_limit();
  if (limit == "memory") return v1::IN_FLIGHT_LIMIT_MEMORY_BUDGET;
  if (limit == "threads") return v1::IN_FLIGHT_LIMIT_THREADS;
  const v1::MeasureExecution& execution = call.header.execution();
  if (!execution.has_in_flight()) return v1::IN_FLIGHT_LIMIT_SERVER;
  if (execution.in_flight() == call.options.in_flight) return v1::IN_FLIGHT_LIMIT_REQUEST;
  return call.options.in_flight == limits.max_in_flight ? v1::IN_FLIGHT_LIMIT_SERVER
                                                        : v1::IN_FLIGHT_LIMIT_PROJECTION_COUNT;
}

// Plans the session so that it fits the budget together with the bytes between wire and session.
absl::Status Plan(int64_t budget, const Limits& limits, MeasureCall* call) {
  const auto start = std::chrono::steady_clock::now();
  TENON_ASSIGN_OR_RETURN(
      call->projection_buffer_bytes,
      CheckedByteCount({DType::kFloat64, {call->rows(), call->options.max_embedded_columns}}));
  const int64_t input = call->dataset_reservation.bytes() + LabelBytes(*call);
  const bool placeholder = call->needs_labels && call->labels_follow;
  bool cut = false;  // fewer projections in flight, so that their buffers fit too
  for (;;) {
    const int64_t besides = input + call->projection_buffer_bytes;
    call->options.memory_budget_bytes = std::max<int64_t>(1, budget - besides);
    auto session = Session::Prepare(call->specs, call->options,
                                    placeholder ? PlaceholderLabels(call->rows()) : call->labels,
                                    call->provider);
    if (!session.ok()) return BudgetError(session.status(), *call, budget, besides);
    call->session = *std::move(session);
    const int width = call->session->in_flight();
    const int64_t total =
        input + call->session->planned_peak_bytes() + width * call->projection_buffer_bytes;
    if (total <= budget || width == 1) break;
    call->options.in_flight = width - 1;
    cut = true;
  }
  const Session& session = *call->session;
  v1::MeasureMemoryPlan& memory = call->memory;
  const int width = session.in_flight();
  memory.set_in_flight(width);
  memory.set_in_flight_limit(cut ? v1::IN_FLIGHT_LIMIT_MEMORY_BUDGET
                                 : WireInFlightLimit(*call, limits));
  memory.set_batch_size(1);
  memory.set_input_bytes(input);
  memory.set_original_bytes(session.original_bytes());
  const int64_t per_projection = (session.planned_peak_bytes() - session.original_bytes()) / width;
  memory.set_per_projection_bytes(per_projection + call->projection_buffer_bytes);
  memory.set_total_bytes(input + session.planned_peak_bytes() +
                         width * call->projection_buffer_bytes);
  call->setup_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return absl::OkStatus();
}

// Reserves and plans. The data set's bytes have a reservation of their own: they may go to the
// store.
absl::Status Admit(ServerState* state, MeasureCall* call) {
  const v1::MeasureExecution& execution = call->header.execution();
  int64_t budget = state->budget.limit_bytes();
  if (execution.has_memory_budget_bytes()) {
    budget = std::min<int64_t>(budget, execution.memory_budget_bytes());
  }
  if (call->stored == nullptr) {
    TENON_ASSIGN_OR_RETURN(const int64_t bytes, CheckedByteCount(call->dataset_spec));
    TENON_ASSIGN_OR_RETURN(call->dataset_reservation, state->budget.Reserve(bytes));
  }
  // The plan is made with labels in hand; their bytes are taken before they are.
  TENON_ASSIGN_OR_RETURN(call->reservation, state->budget.Reserve(LabelBytes(*call)));
  TENON_RETURN_IF_ERROR(Plan(budget, state->limits, call));
  call->reservation.Release();
  TENON_ASSIGN_OR_RETURN(
      call->reservation,
      state->budget.Reserve(call->memory.total_bytes() - call->dataset_reservation.bytes()));
  v1::GrantedLimits& granted = call->granted;
  granted.set_memory_budget_bytes(budget);
  granted.set_threads(call->options.threads);
  granted.set_max_chunk_bytes(static_cast<int32_t>(state->limits.max_chunk_bytes));
  granted.set_result_chunk_bytes(call->header.result().has_chunk_bytes()
                                     ? call->header.result().chunk_bytes()
                                     : static_cast<int32_t>(state->limits.default_chunk_bytes));
  if (call->progress_interval()) granted.set_progress_interval_seconds(*call->progress_interval());
  granted.set_priority(execution.priority() == v1::PRIORITY_CLASS_UNSPECIFIED
                           ? v1::PRIORITY_CLASS_DEFAULT
                           : execution.priority());
  return absl::OkStatus();
}

absl::Status TakeDataset(MeasureCall* call) {
  if (call->stored != nullptr) return absl::OkStatus();
  v1::DatasetInput* input = call->header.mutable_dataset_input();
  TENON_ASSIGN_OR_RETURN(call->dataset, TensorReceiver::Create(call->dataset_spec));
  if (!input->has_inline_data()) return absl::OkStatus();
  const absl::Status accepted = call->dataset.AcceptAll(input->inline_data());
  input->clear_inline_data();
  return AtField(accepted, "header.dataset_input.inline_data");
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

absl::Status MeasureCall::UseLabels(Labels all) {
  if (!needs_labels) return absl::OkStatus();
  TENON_RETURN_IF_ERROR(CheckLabelCount(LabelCount(all), rows(), "labels"));
  auto with_labels = Session::Prepare(specs, options, std::move(all), provider);
  if (!with_labels.ok()) return AsWireError(with_labels.status(), header);
  session = *std::move(with_labels);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<MeasureCall>> AdmitMeasure(v1::MeasureHeader header,
                                                          ServerState* state) {
  TENON_RETURN_IF_ERROR(state->lifecycle.CheckAdmitting());
  auto call = std::make_unique<MeasureCall>();
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
  TENON_RETURN_IF_ERROR(CheckExecution(call->header.execution()));
  TENON_RETURN_IF_ERROR(CheckResult(call->header.result(), state->limits));
  TENON_RETURN_IF_ERROR(CheckSource(call->header));
  TENON_ASSIGN_OR_RETURN(call->specs, ReadSpecs(call->header, state->limits));
  TENON_RETURN_IF_ERROR(ReadDataset(state, call.get()));
  TENON_RETURN_IF_ERROR(ReadProvider(state, call.get()));
  // Before the labels: a wrong parameter is no question of labels.
  const auto checked = measurement::CheckSpecs(call->specs, call->rows());
  if (!checked.ok()) return AsWireError(checked.status(), call->header);
  TENON_RETURN_IF_ERROR(ReadLabels(call.get()));
  TENON_RETURN_IF_ERROR(ReadOptions(state->limits, call.get()));
  TENON_RETURN_IF_ERROR(Admit(state, call.get()));
  TENON_RETURN_IF_ERROR(TakeDataset(call.get()));
  call->header.clear_labels();
  return call;
}

void WriteAccepted(const MeasureCall& call, v1::MeasureAccepted* accepted) {
  accepted->set_request_id(call.request_id);
  accepted->set_planned_peak_bytes(call.memory.total_bytes());
  *accepted->mutable_memory() = call.memory;
  *accepted->mutable_granted() = call.granted;
  WriteTensorSpec(call.dataset_spec, accepted->mutable_dataset_spec());
  if (call.stored != nullptr) accepted->set_dataset_handle(call.stored->handle);
}

}  // namespace tenon::server
