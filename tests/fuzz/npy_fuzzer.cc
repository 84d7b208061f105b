// Files of NumPy. An array that is accepted has exactly the bytes that its header declares.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "backends/core/file.h"
#include "backends/core/npy.h"
#include "tests/fuzz/check.h"

namespace tenon::fuzz {
namespace {

// The bytes of an array by wide arithmetic; saturates.
__int128 DeclaredBytes(const TensorSpec& spec) {
  for (const int64_t extent : spec.shape) {
    if (extent == 0) return 0;
  }
  constexpr __int128 kTooMany = __int128{1} << 63;
  auto bytes = static_cast<__int128>(DTypeSize(spec.dtype));
  for (const int64_t extent : spec.shape) bytes = std::min(bytes * extent, kTooMany);
  return bytes;
}

void CheckHeaderOnly(std::string_view bytes, const NpyHeader& header) {
  const std::string_view text = bytes.substr(0, static_cast<size_t>(header.data_offset));
  const auto alone = ParseNpyHeader(text);
  FUZZ_CHECK(alone.ok() && alone->spec == header.spec && alone->data_offset == header.data_offset);
}

// Element `position` of a C-order array, found in a Fortran-order one.
size_t FortranPosition(const TensorSpec& spec, size_t position) {
  size_t result = 0, weight = 1;
  std::vector<size_t> index(spec.shape.size());
  for (size_t axis = spec.shape.size(); axis-- > 0;) {
    index[axis] = position % static_cast<size_t>(spec.shape[axis]);
    position /= static_cast<size_t>(spec.shape[axis]);
  }
  for (size_t axis = 0; axis < spec.shape.size(); ++axis) {
    result += index[axis] * weight;
    weight *= static_cast<size_t>(spec.shape[axis]);
  }
  return result;
}

void CheckElements(std::string_view data, const NpyHeader& header, const Tensor& tensor) {
  if (header.spec.dtype == DType::kBool) {
    for (size_t i = 0; i < data.size(); ++i) FUZZ_CHECK(tensor.buffer.as<uint8_t>()[i] <= 1);
    return;
  }
  const size_t size = DTypeSize(header.spec.dtype);
  for (size_t i = 0; i < data.size() / size; ++i) {
    const size_t from = header.fortran_order ? FortranPosition(header.spec, i) : i;
    FUZZ_CHECK(std::memcmp(tensor.buffer.as<char>() + i * size, data.data() + from * size, size) ==
               0);
  }
}

void CheckOne(std::string_view bytes) {
  const auto header = ParseNpyHeader(bytes);
  const auto tensor = ParseNpy(bytes);
  if (!header.ok()) CheckError(header.status());
  if (!tensor.ok()) CheckError(tensor.status());
  FUZZ_CHECK(header.ok() || !tensor.ok());
  if (!header.ok()) return;
  FUZZ_CHECK(header->data_offset >= 0 && static_cast<size_t>(header->data_offset) <= bytes.size());
  const __int128 rest = static_cast<__int128>(bytes.size()) - header->data_offset;
  FUZZ_CHECK(tensor.ok() == (DeclaredBytes(header->spec) == rest));
  CheckHeaderOnly(bytes, *header);
  if (!tensor.ok()) return;
  FUZZ_CHECK(tensor->spec == header->spec && tensor->buffer.size_bytes() == rest);
  CheckElements(bytes.substr(static_cast<size_t>(header->data_offset)), *header, *tensor);
  const std::string printed = FormatNpy(*tensor);
  const auto again = ParseNpy(printed);
  FUZZ_CHECK(again.ok() && again->spec == tensor->spec);
  FUZZ_CHECK(AsText(again->buffer) == AsText(tensor->buffer));
  FUZZ_CHECK(FormatNpy(*again) == printed);
}

}  // namespace
}  // namespace tenon::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenon::fuzz::CheckOne({reinterpret_cast<const char*>(data), size});
  return 0;
}
