#include "client/cpp/tool/check.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "backends/core/error.h"
#include "backends/core/file.h"
#include "backends/core/json_error.h"
#include "client/cpp/tool/text.h"

namespace tenon::tool {
namespace {

using nlohmann::json;
using Complex = std::complex<double>;

Complex ReadNumber(const json& value) {
  if (value.is_array()) return {value.at(0).get<double>(), value.at(1).get<double>()};
  return value.get<double>();
}

// Rounding grows with the work; these bounds pass any sound computation of the corpus.
double Tolerance(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kComplex64 ? 1e-3 : 1e-9;
}

absl::StatusOr<CheckOutcome> Compare(const json& entry, const Tensor& result) {
  const DType wide = IsComplex(result.spec.dtype) ? DType::kComplex128 : DType::kFloat64;
  const json& reference = entry.at(std::string(DTypeName(wide)));
  const auto shape = reference.at("shape").get<std::vector<int64_t>>();
  if (shape != result.spec.shape) {
    return Error(Reason::kShapeMismatch, StrCat("the reference has the shape ", FormatShape(shape),
                                                ", the result ", FormatShape(result.spec.shape)));
  }
  TENON_ASSIGN_OR_RETURN(const Tensor values, ConvertTensor(result, DType::kComplex128));
  TENON_ASSIGN_OR_RETURN(const int64_t count, CheckedElementCount(shape));
  const bool sampled = reference.contains("sample_values");
  const json& expected = reference.at(sampled ? "sample_values" : "values");
  CheckOutcome outcome;
  outcome.tolerance = Tolerance(result.spec.dtype);
  outcome.compared = static_cast<int64_t>(expected.size());
  const double scale = reference.at("max_abs").get<double>();
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto at =
        sampled ? reference.at("sample_positions").at(i).get<int64_t>() : static_cast<int64_t>(i);
    if (at < 0 || at >= count) {
      return Error(Reason::kBadParameter, StrCat("the reference tells of element ", at));
    }
    const double difference = std::abs(values.buffer.as<Complex>()[at] - ReadNumber(expected[i]));
    const double relative = scale > 0 ? difference / scale : difference;
    // NaN must not pass, and std::max would drop it.
    outcome.relative_difference = std::isnan(relative)
                                      ? std::numeric_limits<double>::infinity()
                                      : std::max(outcome.relative_difference, relative);
  }
  if (shape.empty() && !expected.empty()) {
    const Complex value = ReadNumber(expected[0]);
    outcome.reference = FormatNumber(value.real(), 17);
    if (IsComplex(wide)) {
      outcome.reference += StrCat(std::signbit(value.imag()) ? " - " : " + ",
                                  FormatNumber(std::fabs(value.imag()), 17), "i");
    }
  }
  return outcome;
}

absl::StatusOr<json> FindReference(const std::string& path, const std::string& name) {
  TENON_ASSIGN_OR_RETURN(const Buffer bytes, ReadFile(path));
  const json file = json::parse(AsText(bytes), nullptr, false);
  if (!file.is_object()) {
    return Error(Reason::kBadParameter, StrCat("'", path, "' is not a JSON object"))
        .Field("--check");
  }
  const auto entry = file.find(name);
  if (entry == file.end()) {
    return Error(Reason::kNotFound, StrCat("'", path, "' has no entry '", name, "'"))
        .Field("--check");
  }
  return *entry;
}

}  // namespace

absl::Status CheckReference(const std::string& path, const std::string& name) {
  return FindReference(path, name).status();
}

absl::StatusOr<CheckOutcome> CheckResult(const std::string& path, const std::string& name,
                                         const Tensor& result) {
  TENON_ASSIGN_OR_RETURN(const json entry, FindReference(path, name));
  try {
    return Compare(entry, result);
  } catch (const json::exception& error) {
    return Error(Reason::kBadParameter, StrCat("'", path, "': ", JsonErrorText(error.what())))
        .Field("--check");
  }
}

}  // namespace tenon::tool
