#include "client/cpp/tool/text.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <cstdio>

#include "backends/core/figure.h"
#include "backends/core/strings.h"
#include "backends/core/utf8.h"

namespace tenon::tool {
namespace {

constexpr int64_t kMostPrinted = 256;
constexpr int64_t kFirstPrinted = 6;

std::string ElementText(float value, int digits) { return FormatNumber(value, digits); }
std::string ElementText(double value, int digits) { return FormatNumber(value, digits); }
template <typename T>
std::string ElementText(const std::complex<T>& value, int digits) {
  const double imaginary = value.imag();
  return StrCat(FormatNumber(value.real(), digits), std::signbit(imaginary) ? " - " : " + ",
                FormatNumber(std::fabs(imaginary), digits), "i");
}

// As many digits as an element of type T can need.
template <typename T>
constexpr int kFullDigits = sizeof(T) <= 8 && !std::is_same_v<T, double> ? 9 : 17;

template <typename T>
void AppendNested(const std::vector<int64_t>& shape, size_t axis, const T** element,
                  std::string* out) {
  if (axis == shape.size()) {
    *out += ElementText(*(*element)++, 8);
    return;
  }
  const bool innermost = axis + 1 == shape.size();
  *out += "[";
  for (int64_t i = 0; i < shape[axis]; ++i) {
    if (i > 0) *out += innermost ? ", " : StrCat(",\n", std::string(axis + 1, ' '));
    AppendNested(shape, axis + 1, element, out);
  }
  *out += "]";
}

template <typename T>
std::string Summary(const Tensor& tensor, int64_t count) {
  const T* elements = tensor.buffer.as<T>();
  std::complex<double> sum = 0;
  double squares = 0;
  double largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const std::complex<double> value = elements[i];
    sum += value;
    squares += std::norm(value);
    largest = std::max(largest, std::abs(value));
  }
  std::string first;
  for (int64_t i = 0; i < std::min(count, kFirstPrinted); ++i) {
    first += StrCat(i == 0 ? "" : ", ", ElementText(elements[i], 8));
  }
  constexpr bool kReal = std::is_floating_point_v<T>;
  return StrCat(DTypeName(tensor.spec.dtype), " tensor of shape ", FormatShape(tensor.spec.shape),
                ", ", count, " elements\n",
                FormatPairs({{"first", first + (count > kFirstPrinted ? ", ..." : "")},
                             {"sum", kReal ? ElementText(sum.real(), 17) : ElementText(sum, 17)},
                             {"norm", FormatNumber(std::sqrt(squares), 17)},
                             {"largest magnitude", FormatNumber(largest, 17)}}));
}

template <typename T>
std::string TensorText(const Tensor& tensor) {
  const absl::StatusOr<int64_t> count = CheckedElementCount(tensor.spec.shape);
  if (!count.ok() || *count == 0) {
    return StrCat("an empty tensor of shape ", FormatShape(tensor.spec.shape));
  }
  const T* elements = tensor.buffer.as<T>();
  if (tensor.spec.shape.empty()) return ElementText(*elements, kFullDigits<T>);
  if (*count > kMostPrinted) {
    std::string text = Summary<T>(tensor, *count);
    text.pop_back();  // the last line end
    return text;
  }
  std::string text;
  AppendNested(tensor.spec.shape, 0, &elements, &text);
  return text;
}

size_t Width(std::string_view text) {
  size_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xC0u) != 0x80u ? 1 : 0;
  return width;
}

bool LooksNumeric(const std::string& text) {
  return !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) != 0 ||
                           (text[0] == '-' && text.size() > 1));
}

std::string KernelsText(const v1::ProviderReport& provider) {
  std::string text;
  for (const v1::KernelUse& kernel : provider.kernels()) {
    text += StrCat(text.empty() ? "" : ", ", kernel.name(), " (",
                   FormatCount(kernel.steps(), "step"), ")");
  }
  return text;
}

std::string PeakText(const v1::MemoryReport& memory) {
  std::string text =
      StrCat("planned ", FormatBytes(static_cast<double>(memory.planned_peak_bytes())));
  if (memory.has_measured_peak_bytes()) {
    text += StrCat(", measured ", FormatBytes(static_cast<double>(memory.measured_peak_bytes())));
  }
  return text;
}

}  // namespace

std::string FormatNumber(double value, int digits) {
  std::array<char, 64> text{};
  const int size = std::snprintf(text.data(), text.size(), "%.*g", digits, value);
  return std::string(text.data(), static_cast<size_t>(size));
}

std::string FormatBytes(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return StrCat(FormatNumber(bytes, bytes >= 1000 ? 4 : 3), " ", kUnits[unit]);
}

std::string FormatPlannedPeak(int64_t bytes) {
  if (bytes == 0) return "unknown";
  if (bytes >= kMostPlannedBytes) return PlannedBytesText(bytes);
  return FormatBytes(static_cast<double>(bytes));
}

std::string FormatCount(int64_t count, std::string_view thing) {
  return StrCat(count, " ", thing, count == 1 ? "" : "s");
}

std::string FormatSeconds(double seconds) {
  if (seconds >= 1 || seconds <= 0) return StrCat(FormatNumber(seconds, 4), " s");
  if (seconds >= 1e-3) return StrCat(FormatNumber(seconds * 1e3, 4), " ms");
  return StrCat(FormatNumber(seconds * 1e6, 4), " us");
}

std::string FormatShape(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += StrCat(i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

std::string FormatTensor(const Tensor& tensor) {
  switch (tensor.spec.dtype) {
    case DType::kFloat32:
      return TensorText<float>(tensor);
    case DType::kFloat64:
      return TensorText<double>(tensor);
    case DType::kComplex64:
      return TensorText<std::complex<float>>(tensor);
    case DType::kComplex128:
      return TensorText<std::complex<double>>(tensor);
    default:
      return StrCat(DTypeName(tensor.spec.dtype), " tensor of shape ",
                    FormatShape(tensor.spec.shape));
  }
}

std::string Pad(std::string_view text, size_t width, bool right) {
  size_t have = Width(text);
  if (have >= width) return std::string(text);
  const std::string blanks(width - have, ' ');
  return right ? StrCat(blanks, text) : StrCat(text, blanks);
}

std::string FormatPairs(const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t width = 0;
  for (const auto& row : rows) width = std::max(width, Width(row.first));
  std::string text;
  for (const auto& [name, value] : rows) {
    text += StrCat("  ", Pad(name, width), "  ", value, "\n");
  }
  return text;
}

std::string FormatTable(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (size_t column = 0; column < header.size(); ++column) {
    widths.push_back(Width(header[column]));
    for (const auto& row : rows) widths[column] = std::max(widths[column], Width(row[column]));
  }
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (size_t column = 0; column < cells.size(); ++column) {
      text += StrCat(column == 0 ? "" : "  ",
                     Pad(cells[column], widths[column], LooksNumeric(cells[column])));
    }
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text + "\n";
  };
  std::string text = line(header);
  for (const auto& row : rows) text += line(row);
  return text;
}

std::string FormatReport(const v1::ContractionReport& report) {
  const v1::Timing& timing = report.timing();
  std::vector<std::pair<std::string, std::string>> rows;
  rows.emplace_back("execution", timing.has_execution_seconds()
                                     ? FormatSeconds(timing.execution_seconds())
                                     : std::string("not verified"));
  rows.emplace_back("setup", FormatSeconds(timing.setup_seconds()));
  rows.emplace_back("whole request", FormatSeconds(timing.request_seconds()));
  if (timing.has_cold_init_seconds()) {
    rows.emplace_back("cold start", FormatSeconds(timing.cold_init_seconds()));
  }
  rows.emplace_back("peak memory", PeakText(report.memory()));
  rows.emplace_back("slices",
                    StrCat(report.slices(), " in ", FormatCount(report.slice_groups(), "group")));
  std::string work = StrCat(FormatNumber(report.flops(), 4), " multiply-adds");
  if (report.has_gflops()) work += StrCat(", ", FormatNumber(report.gflops(), 4), " GFLOP/s");
  rows.emplace_back("work", work);
  for (const v1::ProviderReport& provider : report.providers()) {
    rows.emplace_back(StrCat("provider ", provider.provider()),
                      StrCat(FormatCount(provider.slices(), "slice"), ", ",
                             FormatCount(provider.workers(), "worker")));
    const std::string kernels = KernelsText(provider);
    if (!kernels.empty()) rows.emplace_back("kernels", kernels);
  }
  if (!report.plan().program_fingerprint().empty()) {
    rows.emplace_back("fingerprint", report.plan().program_fingerprint());
  }
  return FormatPairs(rows);
}

}  // namespace tenon::tool
