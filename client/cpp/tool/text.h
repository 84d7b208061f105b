// Output for people.

#ifndef TENON_CLIENT_CPP_TOOL_TEXT_H_
#define TENON_CLIENT_CPP_TOOL_TEXT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/core/tensor.h"
#include "tenon/v1/contraction.pb.h"

namespace tenon::tool {

// "1.50 GiB", "312 bytes".
std::string FormatBytes(double bytes);
// The planned peak of a plan, which is unknown (0) without a program and counted to 2^50 bytes.
std::string FormatPlannedPeak(int64_t bytes);
// "1 slice", "2 slices".
std::string FormatCount(int64_t count, std::string_view thing);
// "1.23 s", "45.6 ms", "7.8 us".
std::string FormatSeconds(double seconds);
// `digits` significant digits, as %g.
std::string FormatNumber(double value, int digits = 6);
// "[2, 3, 4]".
std::string FormatShape(const std::vector<int64_t>& shape);

// A scalar in full, a small tensor in nested brackets, a large one as its shape, its first
// elements, sum and norm. Contraction types only; no line end.
std::string FormatTensor(const Tensor& tensor);

// Lines "  name   value", the values in one column.
std::string FormatPairs(const std::vector<std::pair<std::string, std::string>>& rows);

// A table with a header line, columns as wide as they must be; numbers stand right.
std::string FormatTable(const std::vector<std::string>& header,
                        const std::vector<std::vector<std::string>>& rows);

// Cut or padded to `width` characters (code points); with `right` padded on the left.
std::string Pad(std::string_view text, size_t width, bool right = false);

// The report of a contraction in short.
std::string FormatReport(const v1::ContractionReport& report);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_TEXT_H_
