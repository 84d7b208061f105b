#include "server/measurement_plan.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/numbers.h"
#include "backends/core/error.h"
#include "server/measurement_codec.h"
#include "server/measurement_resources.h"

namespace tenon::server {
namespace {

using measurement::MeasureSpec;
using measurement::Session;

// Widths of projections whose plans are remembered.
constexpr size_t kMaxKnownWidths = 64;
// Of what tells one kind of work from another.
constexpr size_t kMaxKindBytes = 16384;

int64_t LabelBytes(const MeasureCall& call) {
  const auto per_row = static_cast<int64_t>(sizeof(int64_t));
  return call.needs_labels || call.labels_follow ? call.rows() * per_row : 0;
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
  if (limit == "temporary") return v1::IN_FLIGHT_LIMIT_TEMPORARY_BUDGET;
  const v1::MeasureExecution& execution = call.header.execution();
  if (!execution.has_in_flight()) return v1::IN_FLIGHT_LIMIT_SERVER;
  if (execution.in_flight() == call.options.in_flight) return v1::IN_FLIGHT_LIMIT_REQUEST;
  return call.options.in_flight == limits.max_in_flight ? v1::IN_FLIGHT_LIMIT_SERVER
                                                        : v1::IN_FLIGHT_LIMIT_PROJECTION_COUNT;
}

v1::BatchLimit WireBatchLimit(const std::string& limit) {
  if (limit == "requested") return v1::BATCH_LIMIT_REQUEST;
  if (limit == "in_flight") return v1::BATCH_LIMIT_IN_FLIGHT;
  return v1::BATCH_LIMIT_NO_BATCHABLE_RESOURCE;
}

void WriteMemoryPlan(int64_t input, bool cut, const Limits& limits, MeasureCall* call) {
  const Session& session = *call->session;
  v1::MeasureMemoryPlan& memory = call->memory;
  const int width = session.in_flight();
  memory.set_in_flight(width);
  memory.set_in_flight_limit(cut ? v1::IN_FLIGHT_LIMIT_MEMORY_BUDGET
                                 : WireInFlightLimit(*call, limits));
  memory.set_batch_size(session.batch_size());
  memory.set_batch_limit(WireBatchLimit(session.batch_limit()));
  memory.set_input_bytes(input);
  call->warm_bytes = session.warm_bytes();
  memory.set_original_bytes(session.original_bytes() + call->warm_bytes);
  memory.set_original_working_bytes(session.original_working_bytes());
  const int64_t rest =
      session.planned_peak_bytes() - session.original_bytes() - session.original_working_bytes();
  memory.set_per_projection_bytes(rest / width + call->projection_buffer_bytes);
  memory.set_total_bytes(input + call->warm_bytes + session.planned_peak_bytes() +
                         width * call->projection_buffer_bytes);
  const int64_t temporary = session.planned_temporary_bytes();
  memory.set_temporary_bytes(temporary);
  memory.set_per_projection_temporary_bytes(temporary / width);
  std::vector<EngineResource> resources = session.planned_original();
  const auto projection = session.planned_projection();
  resources.insert(resources.end(), projection.begin(), projection.end());
  memory.set_pair_strategy(PairStrategyOf(resources));
}

// Plans the session so that it fits the budget together with the bytes between wire and session.
absl::Status Plan(int64_t budget, const Limits& limits, MeasureCall* call) {
  const auto start = std::chrono::steady_clock::now();
  TENON_ASSIGN_OR_RETURN(
      call->projection_buffer_bytes,
      CheckedByteCount({DType::kFloat64, {call->rows(), call->options.max_embedded_columns}}));
  const int64_t input = call->dataset_bytes + LabelBytes(*call);
  bool cut = false;  // fewer projections in flight, so that their buffers fit too
  int64_t warm = 0;  // resources that are there already; reserved, but part of the plan
  for (;;) {
    const int64_t besides = input + warm + call->projection_buffer_bytes;
    call->options.memory_budget_bytes = std::max<int64_t>(1, budget - besides);
    auto session = Session::Plan(call->specs, call->options, call->provider, call->fallback);
    if (!session.ok()) return BudgetError(session.status(), *call, budget, besides);
    call->session = *std::move(session);
    const int width = call->session->in_flight();
    const int64_t total = input + call->session->warm_bytes() +
                          call->session->planned_peak_bytes() +
                          width * call->projection_buffer_bytes;
    if (total <= budget) break;
    if (call->session->warm_bytes() > warm) {
      warm = call->session->warm_bytes();
    } else if (width > 1) {
      call->options.in_flight = width - 1;
      cut = true;
    } else {
      break;
    }
  }
  WriteMemoryPlan(input, cut, limits, call);
  call->setup_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return absl::OkStatus();
}

absl::Status OpenScratch(ServerState* state, MeasureCall* call) {
  const v1::MeasureExecution& execution = call->header.execution();
  if (!execution.has_temporary_budget_bytes()) return absl::OkStatus();
  auto folder = state->scratch->Make(execution.temporary_directory());
  if (!folder.ok()) return AtField(folder.status(), "header.execution.temporary_directory");
  call->scratch = *std::move(folder);
  call->options.temporary_directory = call->scratch.path();
  call->options.temporary_budget_bytes =
      std::min<int64_t>(execution.temporary_budget_bytes(), state->scratch->budget().limit_bytes());
  return absl::OkStatus();
}

void WriteGranted(int64_t budget, const Limits& limits, MeasureCall* call) {
  const v1::MeasureExecution& execution = call->header.execution();
  v1::GrantedLimits& granted = call->granted;
  granted.set_memory_budget_bytes(budget);
  granted.set_temporary_budget_bytes(call->options.temporary_budget_bytes);
  granted.set_threads(call->options.threads);
  granted.set_max_chunk_bytes(static_cast<int32_t>(limits.max_chunk_bytes));
  granted.set_result_chunk_bytes(call->header.result().has_chunk_bytes()
                                     ? call->header.result().chunk_bytes()
                                     : static_cast<int32_t>(limits.default_chunk_bytes));
  if (call->progress_interval()) granted.set_progress_interval_seconds(*call->progress_interval());
  granted.set_priority(ToWire(PriorityOf(execution.priority())));
}

// All of it but seeds, which are drawn anew for each call.
void AddSpec(const MeasureSpec& spec, std::string* kind) {
  *kind += StrCat(";", spec.info->id);
  for (const auto& [name, value] : spec.parameters) {
    if (name == measurement::SeedName(spec)) continue;
    *kind += StrCat(",", name, "=");
    std::visit([&](const auto& held) { *kind += StrCat(held); }, value);
  }
}

void AddResources(const std::vector<measurement::RunInfo::Resource>& resources, std::string* kind) {
  for (const auto& resource : resources) {
    *kind += StrCat(";", resource.kind, ",", resource.space, ",", resource.k, ",",
                    resource.parameter, ",", resource.provider, ",", resource.reused ? 1 : 0);
  }
}

MeasurementSeconds::Work WorkOf(const MeasureCall& call) {
  const measurement::SessionOptions& options = call.options;
  MeasurementSeconds::Work work;
  work.rows = options.rows;
  work.columns = options.original_columns;
  work.kind = StrCat(call.provider->name(), ",", DTypeName(options.compute_dtype), ",",
                     options.threads, ",", options.geodesic ? 1 : 0, options.return_local ? 1 : 0);
  for (const MeasureSpec& spec : call.session->specs()) AddSpec(spec, &work.kind);
  AddResources(call.session->planned_original(), &work.kind);
  AddResources(call.session->planned_projection(), &work.kind);
  if (work.kind.size() > kMaxKindBytes) work = {};  // such a one is not judged
  return work;
}

}  // namespace

absl::Status PlanMemory(ServerState* state, MeasureCall* call) {
  const v1::MeasureExecution& execution = call->header.execution();
  int64_t budget = state->budget.limit_bytes();
  if (execution.has_memory_budget_bytes()) {
    budget = std::min<int64_t>(budget, execution.memory_budget_bytes());
  }
  if (call->stored == nullptr) {
    TENON_ASSIGN_OR_RETURN(call->dataset_bytes, CheckedByteCount(call->dataset_spec));
    if (call->keep_dataset) call->dataset_bytes = ContentStore::EntryBytes(call->dataset_bytes);
    TENON_RETURN_IF_ERROR(state->budget.CheckFits(call->dataset_bytes));
  }
  TENON_RETURN_IF_ERROR(OpenScratch(state, call));
  TENON_RETURN_IF_ERROR(Plan(budget, state->limits, call));
  WriteGranted(budget, state->limits, call);
  call->work = WorkOf(*call);
  return absl::OkStatus();
}

int64_t MeasureCall::BytesBeyondPlan(int64_t columns) {
  if (columns <= options.max_embedded_columns) return 0;
  std::lock_guard lock(beyond_mutex);
  const auto known = beyond.find(columns);
  if (known != beyond.end()) return known->second;
  if (beyond.size() >= kMaxKnownWidths) beyond.clear();
  // One that does not fit is refused by the session, which says so better.
  const int64_t planned = memory.per_projection_bytes() - projection_buffer_bytes;
  const int64_t bytes = session->projection_bytes(columns).value_or(0);
  return beyond.emplace(columns, std::max<int64_t>(0, bytes - planned)).first->second;
}

}  // namespace tenon::server
