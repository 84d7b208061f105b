#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

#include "backends/core/binary_scale.h"
#include "backends/core/error.h"
#include "backends/core/npy.h"
#include "client/cpp/tool/check.h"
#include "client/cpp/tool/commands.h"
#include "client/cpp/tool/contract_report.h"
#include "client/cpp/tool/network_input.h"
#include "client/cpp/tool/npz.h"
#include "client/cpp/tool/progress_bar.h"
#include "client/cpp/tool/search_input.h"
#include "client/cpp/tool/text.h"

namespace tenon::tool {
namespace {

constexpr double kProgressSeconds = 0.25;

std::string ProgressText(const v1::ContractProgress& progress) {
  std::string text = ShortEnumName(progress.phase());
  if (progress.phase() == v1::CONTRACT_PHASE_QUEUED) {
    return StrCat(text, ", ", progress.queue_position(), " before");
  }
  if (progress.slices_total() > 1) {
    text += StrCat(", slice ", progress.slices_done(), " of ", progress.slices_total());
  }
  if (progress.has_left_seconds()) {
    text += StrCat(", ", FormatSeconds(progress.left_seconds()), " left");
  }
  return text;
}

std::optional<double> Fraction(const v1::ContractProgress& progress) {
  if (progress.phase() != v1::CONTRACT_PHASE_EXECUTING || !(progress.flops_total() > 0)) {
    return std::nullopt;
  }
  return progress.flops_done() / progress.flops_total();
}

// Of a scalar.
double Log10Magnitude(const client::ContractResult& result) {
  const absl::StatusOr<Tensor> wide = ConvertTensor(result.tensor, DType::kComplex128);
  if (!wide.ok()) return std::numeric_limits<double>::quiet_NaN();
  const auto* parts = wide->buffer.as<double>();
  const double mantissa = std::log10(std::hypot(parts[0], parts[1]));
  return std::isinf(mantissa) ? mantissa : mantissa + *result.log10_scale;
}

// The result without its scale, which is a power of two; it over- or underflows if it must.
absl::StatusOr<Tensor> Unscaled(const client::ContractResult& result) {
  TENON_ASSIGN_OR_RETURN(Tensor tensor, result.tensor.Clone());
  const double log10 = result.log10_scale.value_or(0);
  if (!std::isfinite(log10) || log10 == 0) return tensor;
  TENON_ASSIGN_OR_RETURN(const int64_t count, CheckedElementCount(tensor.spec.shape));
  ScaleByPowerOfTwo(tensor.spec.dtype, tensor.buffer.data(), tensor.buffer.data(), count,
                    std::llround(log10 / std::log10(2.0)));
  return tensor;
}

// "value" and "log10_scale" of one result.
absl::Status PrintResultJson(const client::ContractResult& result, bool value, std::ostream* out) {
  if (value) {
    *out << "\"value\": ";
    TENON_RETURN_IF_ERROR(WriteTensorJson(result.tensor, out));
  }
  if (!result.log10_scale.has_value()) return absl::OkStatus();
  *out << (value ? ", " : "") << "\"log10_scale\": " << Dump(*result.log10_scale);
  return absl::OkStatus();
}

absl::Status PrintJson(const client::ContractOutcome& outcome, double client_seconds,
                       const Arguments& arguments, std::ostream* out) {
  const bool value = !arguments.Has("no-value");
  *out << "{";
  if (arguments.Has("varying")) {
    *out << "\"sets\": [";
    for (const client::ContractResult& result : outcome.results) {
      *out << (result.set == 0 ? "{" : ", {");
      TENON_RETURN_IF_ERROR(PrintResultJson(result, value, out));
      *out << "}";
    }
    *out << "], ";
  } else {
    const client::ContractResult& result = outcome.results[0];
    TENON_RETURN_IF_ERROR(PrintResultJson(result, value, out));
    if (value || result.log10_scale.has_value()) *out << ", ";
  }
  Json report = ReportToJson(outcome.report);
  report["client_seconds"] = client_seconds;
  *out << "\"report\": " << Dump(report) << "}\n";
  return absl::OkStatus();
}

void PrintText(const client::ContractOutcome& outcome, const Arguments& arguments,
               std::ostream* out) {
  for (const client::ContractResult& result : outcome.results) {
    if (arguments.Has("no-value")) break;
    if (arguments.Has("varying")) *out << "set " << result.set << "\n";
    *out << FormatTensor(result.tensor) << "\n";
    if (result.log10_scale.has_value()) {
      *out << "times 10 to the power " << FormatNumber(*result.log10_scale, 17) << "\n";
      if (result.tensor.spec.shape.empty()) {
        *out << "log10 of the magnitude: " << FormatNumber(Log10Magnitude(result), 17) << "\n";
      }
    }
  }
  *out << FormatReport(outcome.report);
}

// One array with the results along a new first axis.
absl::StatusOr<Tensor> Stacked(const std::vector<client::ContractResult>& results) {
  TensorSpec spec = results[0].tensor.spec;
  spec.shape.insert(spec.shape.begin(), static_cast<int64_t>(results.size()));
  TENON_ASSIGN_OR_RETURN(Tensor stacked, Tensor::Allocate(spec));
  std::byte* to = stacked.buffer.data();
  for (const client::ContractResult& result : results) {
    to = std::copy_n(result.tensor.buffer.data(), result.tensor.buffer.size_bytes(), to);
  }
  return stacked;
}

// To an archive as "result", or "set0" and so on of --varying, with "log10_scale" beside it; to a
// .npy file without the scale, and those of --varying along a new first axis.
absl::Status WriteResults(const std::string& path, const Arguments& arguments,
                          const std::vector<client::ContractResult>& results) {
  const bool varying = arguments.Has("varying");
  if (!IsNpz(path)) {
    if (!varying) return WriteNpyFile(path, results[0].tensor);
    if (results.empty()) {
      return Error(Reason::kBadParameter, "there are no results to write").Field("--output");
    }
    TENON_ASSIGN_OR_RETURN(const Tensor stacked, Stacked(results));
    return WriteNpyFile(path, stacked);
  }
  std::vector<std::pair<std::string, const Tensor*>> arrays;
  for (const client::ContractResult& result : results) {
    arrays.emplace_back(varying ? StrCat("set", result.set) : "result", &result.tensor);
  }
  if (results.empty() || !results[0].log10_scale.has_value()) return WriteNpzFile(path, arrays);
  const std::vector<int64_t> shape =
      varying ? std::vector<int64_t>{static_cast<int64_t>(results.size())} : std::vector<int64_t>();
  TENON_ASSIGN_OR_RETURN(Tensor scales, Tensor::Allocate({DType::kFloat64, shape}));
  for (size_t k = 0; k < results.size(); ++k) {
    scales.buffer.as<double>()[k] = results[k].log10_scale.value_or(0);
  }
  arrays.emplace_back("log10_scale", &scales);
  return WriteNpzFile(path, arrays);
}

// Prints how the result compares; false when it does not pass.
absl::StatusOr<bool> Check(const std::string& path, const std::string& name,
                           const client::ContractResult& result, std::ostream* out) {
  TENON_ASSIGN_OR_RETURN(const Tensor tensor, Unscaled(result));
  TENON_ASSIGN_OR_RETURN(const CheckOutcome outcome, CheckResult(path, name, tensor));
  if (!outcome.reference.empty()) *out << outcome.reference << "  (reference)\n";
  *out << StrCat(
      outcome.passed() ? "agrees" : "DISAGREES", " with the reference: ", outcome.compared,
      " elements compared, relative difference ", FormatNumber(outcome.relative_difference, 3),
      ", tolerance ", FormatNumber(outcome.tolerance, 3), "\n");
  return outcome.passed();
}

// Lets the server derive everything that a plan file tells, before anything is sent or run.
absl::Status CheckPlan(const NetworkInput& input, const Arguments& arguments,
                       client::Client& client, const client::CallOptions& options) {
  TENON_ASSIGN_OR_RETURN(const v1::EstimateResponse estimate,
                         client.Estimate(input.request, options));
  if (!estimate.has_plan()) return absl::OkStatus();  // it is refused, and the call says why
  return NamePlanFile(CheckPlanFigures(*input.plan, estimate.plan()),
                      arguments.Get("plan").value_or(""));
}

absl::StatusOr<client::ContractOutcome> Call(NetworkInput& input, const Arguments& arguments,
                                             const Session& session) {
  TENON_ASSIGN_OR_RETURN(client::Client client, Connect(arguments));
  TENON_ASSIGN_OR_RETURN(const client::CallOptions options, CallOptionsOf(arguments, session));
  if (input.plan.has_value()) {
    TENON_RETURN_IF_ERROR(CheckPlan(input, arguments, client, options));
  }
  TENON_ASSIGN_OR_RETURN(input.request.pool, OpenPool(arguments, client, options));
  ProgressBar bar(session.err, session.err_is_terminal);
  client::ContractCallbacks callbacks;
  if (bar.enabled()) {
    callbacks.on_progress = [&bar](const v1::ContractProgress& progress) {
      bar.Update(Fraction(progress), ProgressText(progress));
    };
  }
  return client.Contract(input.request, options, callbacks);
}

absl::StatusOr<int> Run(const Arguments& arguments, const Session& session) {
  TENON_ASSIGN_OR_RETURN(NetworkInput input, LoadNetworkInput(arguments, true));
  if (session.err_is_terminal) {
    input.request.execution.set_progress_interval_seconds(kProgressSeconds);
  }
  const auto reference = arguments.Get("check");
  if (reference.has_value() && arguments.Has("varying")) {
    return Error(Reason::kBadParameter, "a reference has one result, --varying many")
        .Field("--check");
  }
  input.request.request_id = arguments.Get("request-id").value_or("");
  if (reference.has_value()) TENON_RETURN_IF_ERROR(CheckReference(*reference, input.name));
  const auto start = std::chrono::steady_clock::now();
  TENON_ASSIGN_OR_RETURN(const client::ContractOutcome outcome, Call(input, arguments, session));
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  if (const auto path = arguments.Get("output")) {
    TENON_RETURN_IF_ERROR(WriteResults(*path, arguments, outcome.results));
  }
  const bool json = arguments.Has("json");
  if (json) {
    TENON_RETURN_IF_ERROR(PrintJson(outcome, elapsed.count(), arguments, session.out));
  } else {
    PrintText(outcome, arguments, session.out);
  }
  if (!reference.has_value()) return kExitOk;
  TENON_ASSIGN_OR_RETURN(const bool passed, Check(*reference, input.name, outcome.results[0],
                                                  json ? session.err : session.out));
  return passed ? kExitOk : kExitCheckFailed;
}

}  // namespace

CommandSpec ContractSpec() {
  CommandSpec spec;
  spec.name = "contract";
  spec.usage = "NETWORK.json | 'ab,bc->ac' A.npy B.npy ...";
  spec.summary = "Contracts a tensor network and prints the result with a report.";
  spec.details =
      "The arrays of a network file are made by the corpus rule from its 'seed' and 'scales', "
      "unless\n"
      "--operand gives them; its path and slices are used unless --replan is given. Operands of "
      "an\n"
      "einsum are FILE.npy, FILE.npz:NAME, all arrays of FILE.npz in their order, or tensors/...\n"
      "that the server keeps; --varying takes some of them out of the line.";
  spec.exit_codes =
      "0 success, 1 --check failed, 2 usage or input, 3 the server refused, 4 the server can't be "
      "reached, 130 interrupted.";
  spec.example = "tenon contract 'ab,bc->ac' a.npy b.npy --output c.npy";
  spec.options = NetworkOptions();
  for (Option& option : PlanChoiceOptions()) spec.options.push_back(std::move(option));
  spec.options.push_back(
      {"output", "FILE",
       "Write the result to FILE.npy, with --normalize without its scale, and with --varying along "
       "a new first axis; or to FILE.npz as 'result', or 'set0', 'set1', ..., and 'log10_scale'."});
  spec.options.push_back(
      {"request-id", "TEXT", "Name of the request in logs (default: one is drawn)."});
  spec.options.push_back(
      {"json", "",
       "Print one JSON object: 'value' (row-major nested lists, complex numbers as [re, im], NaN "
       "and infinity as null), with --normalize 'log10_scale' (null for a zero result), and "
       "'report'; with --varying a list 'sets' of the former."});
  spec.options.push_back({"no-value", "", "Print the report alone."});
  spec.options.push_back({"check", "REFERENCE.json",
                          "Compare with the reference of the network's name in this file; with "
                          "--json the outcome goes to the standard error."});
  spec.options.push_back(SharedMemoryOption());
  for (Option& option : ConnectionOptions()) spec.options.push_back(std::move(option));
  spec.min_positionals = 1;
  spec.max_positionals = 100000;
  return spec;
}

int RunContract(const Arguments& arguments, const Session& session) {
  const absl::StatusOr<int> code = Run(arguments, session);
  return code.ok() ? *code : Fail(session, code.status());
}

}  // namespace tenon::tool
