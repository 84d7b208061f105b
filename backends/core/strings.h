// absl::StrCat for our string types.

#ifndef TENON_BACKENDS_CORE_STRINGS_H_
#define TENON_BACKENDS_CORE_STRINGS_H_

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace tenon {

// The distribution's Abseil is built with a string_view of its own, to which std::string_view does
// not convert.
inline absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }
inline std::string_view ToStd(absl::string_view text) { return {text.data(), text.size()}; }

namespace strings_internal {
template <typename T>
decltype(auto) Piece(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return ToAbsl(value);
  } else {
    return (value);
  }
}
}  // namespace strings_internal

// Joins the text forms of strings and numbers.
template <typename... Args>
std::string StrCat(const Args&... args) {
  return absl::StrCat(strings_internal::Piece(args)...);
}

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_STRINGS_H_
