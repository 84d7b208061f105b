#include "backends/core/dtype.h"

#include <array>

#include "backends/core/error.h"

namespace tenon {
namespace {

struct DTypeEntry {
  std::string_view name;
  int64_t size;
};

constexpr std::array<DTypeEntry, 14> kDTypes = {{{"unspecified", 0},
                                                 {"bool", 1},
                                                 {"int8", 1},
                                                 {"int16", 2},
                                                 {"int32", 4},
                                                 {"int64", 8},
                                                 {"uint8", 1},
                                                 {"uint16", 2},
                                                 {"uint32", 4},
                                                 {"uint64", 8},
                                                 {"float32", 4},
                                                 {"float64", 8},
                                                 {"complex64", 8},
                                                 {"complex128", 16}}};

const DTypeEntry& Entry(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return kDTypes[index < kDTypes.size() ? index : 0];
}

}  // namespace

int64_t DTypeSize(DType dtype) { return Entry(dtype).size; }

std::string_view DTypeName(DType dtype) { return Entry(dtype).name; }

absl::StatusOr<DType> DTypeFromName(std::string_view name) {
  for (size_t i = 1; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return Error(Reason::kUnsupportedDtype, StrCat("'", name, "' is not a known element type"));
}

bool IsContractionDType(DType dtype) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kComplex64 ||
         dtype == DType::kComplex128;
}

bool IsComplex(DType dtype) { return dtype == DType::kComplex64 || dtype == DType::kComplex128; }

DType PromoteDTypes(DType a, DType b) {
  const bool is_double = a == DType::kFloat64 || a == DType::kComplex128 || b == DType::kFloat64 ||
                         b == DType::kComplex128;
  if (IsComplex(a) || IsComplex(b)) return is_double ? DType::kComplex128 : DType::kComplex64;
  return is_double ? DType::kFloat64 : DType::kFloat32;
}

}  // namespace tenon
