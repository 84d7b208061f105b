#include "backends/core/npy.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "backends/core/error.h"
#include "backends/core/file.h"
#include "backends/core/utf8.h"

namespace tenon {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are moved without swapping");

constexpr std::string_view kMagic = "\x93NUMPY";
// Bytes before the header's text end at a multiple of this, so that the data is aligned.
constexpr size_t kHeaderAlignment = 64;
// Bytes of the file's own text that a message quotes at most.
constexpr size_t kMaxQuote = 64;
// More axes than any NumPy can make; bounds what a hostile shape can take.
constexpr size_t kMaxRank = 1024;

struct DescrEntry {
  std::string_view code;  // kind and size, without the byte order
  DType dtype;
};

constexpr DescrEntry kDescrs[] = {
    {"b1", DType::kBool},        {"i1", DType::kInt8},    {"i2", DType::kInt16},
    {"i4", DType::kInt32},       {"i8", DType::kInt64},   {"u1", DType::kUint8},
    {"u2", DType::kUint16},      {"u4", DType::kUint32},  {"u8", DType::kUint64},
    {"f4", DType::kFloat32},     {"f8", DType::kFloat64}, {"c8", DType::kComplex64},
    {"c16", DType::kComplex128}, {"?", DType::kBool},
};

Error Malformed(std::string_view field, std::string_view what) {
  return Error(Reason::kBadParameter, StrCat("malformed .npy file: ", what))
      .Field(std::string(field));
}

// Reads the Python literal {'descr': '<f8', 'fortran_order': False, 'shape': (3, 4), }, with keys
// in any order, either kind of quotes and any white space between tokens.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  absl::StatusOr<NpyHeader> Parse() {
    if (!Accept('{')) return Malformed("header", "the header is not a dictionary");
    while (!Accept('}')) {
      TENON_RETURN_IF_ERROR(ParseEntry());
      if (Accept(',')) continue;
      if (!Accept('}')) return Malformed("header", "',' or '}' expected after a value");
      break;
    }
    SkipSpace();
    if (!text_.empty()) return Malformed("header", "there is text after the dictionary");
    if (!has_descr_) return Malformed("descr", "'descr' is missing");
    if (!has_order_) return Malformed("fortran_order", "'fortran_order' is missing");
    if (!has_shape_) return Malformed("shape", "'shape' is missing");
    return std::move(header_);
  }

 private:
  absl::Status ParseEntry() {
    const std::optional<std::string_view> key = ParseString();
    if (!key.has_value() || !Accept(':')) return Malformed("header", "a key and ':' expected");
    if (*key == "descr" && !std::exchange(has_descr_, true)) return ParseDescr();
    if (*key == "fortran_order" && !std::exchange(has_order_, true)) return ParseFortranOrder();
    if (*key == "shape" && !std::exchange(has_shape_, true)) return ParseShape();
    return Malformed("header",
                     StrCat("key '", Utf8Prefix(*key, kMaxQuote), "' is unknown or given twice"));
  }

  absl::Status ParseDescr() {
    SkipSpace();
    if (text_.starts_with('[') || text_.starts_with('(')) {
      return Error(Reason::kUnsupportedDtype, "structured arrays are not supported").Field("descr");
    }
    const std::optional<std::string_view> descr = ParseString();
    if (!descr.has_value() || descr->empty()) return Malformed("descr", "it is not a string");
    std::string_view code = *descr;
    const bool big_endian = code.starts_with('>');
    if (std::string_view("<>|=").find(code[0]) != std::string_view::npos) code.remove_prefix(1);
    for (const DescrEntry& entry : kDescrs) {
      if (entry.code != code) continue;
      if (big_endian && DTypeSize(entry.dtype) > 1) {
        return Malformed("descr", StrCat("'", *descr, "' is big-endian, expected little-endian"));
      }
      header_.spec.dtype = entry.dtype;
      return absl::OkStatus();
    }
    return Error(Reason::kUnsupportedDtype,
                 StrCat("element type '", Utf8Prefix(*descr, kMaxQuote), "' is not supported"))
        .Field("descr");
  }

  absl::Status ParseFortranOrder() {
    if (AcceptWord("True")) {
      header_.fortran_order = true;
    } else if (AcceptWord("False")) {
      header_.fortran_order = false;
    } else {
      return Malformed("fortran_order", "it is neither True nor False");
    }
    return absl::OkStatus();
  }

  absl::Status ParseShape() {
    if (!Accept('(')) return Malformed("shape", "it is not a tuple");
    std::vector<int64_t> shape;
    while (!Accept(')')) {
      int64_t extent = 0;
      if (!ParseExtent(&extent)) {
        return Malformed("shape", "an extent is not an integer from 0 to 2^63 - 1");
      }
      if (shape.size() == kMaxRank) {
        return Malformed("shape", StrCat("it has more than ", kMaxRank, " axes"));
      }
      shape.push_back(extent);
      if (Accept(',')) continue;
      // (3) is a number in Python and no tuple.
      if (shape.size() == 1 || !Accept(')')) return Malformed("shape", "it is not a tuple");
      break;
    }
    header_.spec.shape = std::move(shape);
    return absl::OkStatus();
  }

  bool ParseExtent(int64_t* extent) {
    SkipSpace();
    const char* end = text_.data() + text_.size();
    if (text_.empty() || std::isdigit(static_cast<unsigned char>(text_[0])) == 0) return false;
    const auto [next, error] = std::from_chars(text_.data(), end, *extent);
    if (error != std::errc()) return false;
    text_.remove_prefix(next - text_.data());
    if (text_.starts_with('L')) text_.remove_prefix(1);  // a long integer of Python 2
    return true;
  }

  // A quoted string without escapes: no name or type that matters has one.
  std::optional<std::string_view> ParseString() {
    SkipSpace();
    if (!text_.starts_with('\'') && !text_.starts_with('"')) return std::nullopt;
    const size_t end = text_.find(text_[0], 1);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view value = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return value;
  }

  bool AcceptWord(std::string_view word) {
    SkipSpace();
    if (!text_.starts_with(word)) return false;
    text_.remove_prefix(word.size());
    return true;
  }

  bool Accept(char c) { return AcceptWord(std::string_view(&c, 1)); }

  void SkipSpace() {
    text_.remove_prefix(std::min(text_.find_first_not_of(" \t\r\n"), text_.size()));
  }

  std::string_view text_;
  NpyHeader header_;
  bool has_descr_ = false, has_order_ = false, has_shape_ = false;
};

// Splits a file into the text of its header and its data.
absl::StatusOr<std::pair<std::string_view, std::string_view>> SplitFile(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) return Malformed("magic", "it does not start with \\x93NUMPY");
  bytes.remove_prefix(kMagic.size());
  if (bytes.size() < 2) return Malformed("version", "the file ends before its version");
  const int major = static_cast<unsigned char>(bytes[0]);
  const int minor = static_cast<unsigned char>(bytes[1]);
  if (major < 1 || major > 3 || minor != 0) {
    return Malformed("version", StrCat("version ", major, ".", minor, " is not 1.0, 2.0 or 3.0"));
  }
  bytes.remove_prefix(2);
  const size_t length_bytes = major == 1 ? 2 : 4;
  uint32_t length = 0;
  if (bytes.size() >= length_bytes) std::memcpy(&length, bytes.data(), length_bytes);
  if (bytes.size() < length_bytes || bytes.size() - length_bytes < length) {
    return Malformed("header", "the file ends inside its header");
  }
  bytes.remove_prefix(length_bytes);
  return std::make_pair(bytes.substr(0, length), bytes.substr(length));
}

// The array as tiles over its first and last axis, of which the first is contiguous in Fortran
// order and the last in C order: a tile keeps both sides in cache.
struct Transposition {
  int64_t rows, columns;              // extents of the first and the last axis
  int64_t row_stride, column_stride;  // of the first axis in C order, of the last in Fortran order
};

template <size_t kSize>
void CopyPlane(const Transposition& plane, const char* from, std::byte* to) {
  constexpr int64_t kTile = 32;
  for (int64_t i0 = 0; i0 < plane.rows; i0 += kTile) {
    for (int64_t j0 = 0; j0 < plane.columns; j0 += kTile) {
      for (int64_t i = i0; i < std::min(i0 + kTile, plane.rows); ++i) {
        for (int64_t j = j0; j < std::min(j0 + kTile, plane.columns); ++j) {
          std::memcpy(to + (i * plane.row_stride + j) * kSize,
                      from + (i + j * plane.column_stride) * kSize, kSize);
        }
      }
    }
  }
}

// Copies a Fortran-order array of at least two axes and one element to C order.
template <size_t kSize>
void CopyFromFortran(std::span<const int64_t> shape, const char* from, std::byte* to) {
  const size_t rank = shape.size();
  const std::vector<int64_t> to_strides = RowMajorStrides(shape);
  std::vector<int64_t> from_strides(rank, 1);
  for (size_t axis = 1; axis < rank; ++axis) {
    from_strides[axis] = from_strides[axis - 1] * shape[axis - 1];
  }
  const Transposition plane{shape.front(), shape.back(), to_strides.front(), from_strides.back()};
  std::vector<int64_t> position(rank, 0);  // on the axes between the first and the last
  int64_t from_offset = 0, to_offset = 0;
  for (;;) {
    CopyPlane<kSize>(plane, from + from_offset * kSize, to + to_offset * kSize);
    size_t axis = rank - 2;
    for (; axis > 0; --axis) {
      from_offset += from_strides[axis];
      to_offset += to_strides[axis];
      if (++position[axis] < shape[axis]) break;
      from_offset -= shape[axis] * from_strides[axis];
      to_offset -= shape[axis] * to_strides[axis];
      position[axis] = 0;
    }
    if (axis == 0) return;
  }
}

void CopyFromFortran(const TensorSpec& spec, const char* from, std::byte* to) {
  switch (DTypeSize(spec.dtype)) {
    case 1:
      return CopyFromFortran<1>(spec.shape, from, to);
    case 2:
      return CopyFromFortran<2>(spec.shape, from, to);
    case 4:
      return CopyFromFortran<4>(spec.shape, from, to);
    case 8:
      return CopyFromFortran<8>(spec.shape, from, to);
    default:
      return CopyFromFortran<16>(spec.shape, from, to);
  }
}

std::string_view DescrOf(DType dtype) {
  for (const DescrEntry& entry : kDescrs) {
    if (entry.dtype == dtype) return entry.code;
  }
  return "V0";
}

// Everything before the data.
std::string FormatHeader(const TensorSpec& spec) {
  std::string text =
      StrCat("{'descr': '", DTypeSize(spec.dtype) > 1 ? "<" : "|", DescrOf(spec.dtype),
             "', 'fortran_order': False, 'shape': (", absl::StrJoin(spec.shape, ", "),
             spec.shape.size() == 1 ? "," : "", "), }");
  // Version 1.0 keeps the length in two bytes; only a shape of thousands of axes needs four.
  const bool is_long = text.size() > 65000;
  const size_t preamble = kMagic.size() + 2 + (is_long ? 4 : 2);
  const size_t total =
      (preamble + text.size() + kHeaderAlignment) / kHeaderAlignment * kHeaderAlignment;
  text.append(total - preamble - text.size() - 1, ' ');
  text += '\n';
  std::string header(kMagic);
  header += is_long ? '\x02' : '\x01';
  header += '\0';
  const auto length = static_cast<uint32_t>(text.size());
  header.append(reinterpret_cast<const char*>(&length), is_long ? 4 : 2);
  return header + text;
}

std::string_view DataOf(const Tensor& tensor) { return AsText(tensor.buffer); }

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view bytes) {
  TENON_ASSIGN_OR_RETURN(const auto parts, SplitFile(bytes));
  TENON_ASSIGN_OR_RETURN(NpyHeader header, HeaderParser(parts.first).Parse());
  header.data_offset = parts.second.data() - bytes.data();
  if (CheckedByteCount(header.spec).ok()) return header;
  return Malformed("shape", "the array's bytes do not fit in 63 bits");
}

absl::Status CheckNpyDataSize(const NpyHeader& header, int64_t bytes) {
  TENON_ASSIGN_OR_RETURN(const int64_t expected, CheckedByteCount(header.spec));
  if (bytes == expected) return absl::OkStatus();
  return Malformed("data", StrCat("the array has ", bytes, " bytes, expected ", expected))
      .Meta("bytes", bytes)
      .Meta("expected_bytes", expected);
}

absl::StatusOr<Tensor> ParseNpy(std::string_view bytes) {
  TENON_ASSIGN_OR_RETURN(NpyHeader header, ParseNpyHeader(bytes));
  const std::string_view data = bytes.substr(static_cast<size_t>(header.data_offset));
  TENON_RETURN_IF_ERROR(CheckNpyDataSize(header, static_cast<int64_t>(data.size())));
  TENON_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(std::move(header.spec)));
  if (data.empty()) return tensor;
  if (header.fortran_order && tensor.spec.shape.size() > 1) {
    CopyFromFortran(tensor.spec, data.data(), tensor.buffer.data());
  } else {
    std::memcpy(tensor.buffer.data(), data.data(), data.size());
  }
  if (tensor.spec.dtype == DType::kBool) {
    auto* values = tensor.buffer.as<uint8_t>();
    std::transform(values, values + data.size(), values, [](uint8_t x) { return x != 0; });
  }
  return tensor;
}

absl::StatusOr<Tensor> ReadNpyFile(const std::string& path) {
  TENON_ASSIGN_OR_RETURN(const Buffer bytes, ReadFile(path));
  absl::StatusOr<Tensor> tensor = ParseNpy(AsText(bytes));
  if (!tensor.ok()) return PrefixMessage(tensor.status(), StrCat("'", path, "': "));
  return tensor;
}

std::string FormatNpy(const Tensor& tensor) {
  std::string result = FormatHeader(tensor.spec);
  const std::string_view data = DataOf(tensor);
  result.reserve(result.size() + data.size());
  return result.append(data);
}

absl::Status WriteNpyFile(const std::string& path, const Tensor& tensor) {
  const std::string header = FormatHeader(tensor.spec);
  return WriteFile(path, {header, DataOf(tensor)});
}

}  // namespace tenon
