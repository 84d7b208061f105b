// Strict UTF-8: what the engine reads from outside, and what it sends out, holds no ill-formed
// text.

#ifndef TENON_BACKENDS_CORE_UTF8_H_
#define TENON_BACKENDS_CORE_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace tenon {

// Bytes of the code point that `text` starts with, 1 to 4; 0 when `text` is empty or does not start
// with a well-formed one (overlong forms, surrogates, values over U+10FFFF and cut sequences are
// ill-formed).
size_t Utf8Length(std::string_view text);

// The longest prefix of at most `max_bytes` bytes that does not end inside a code point. Ill-formed
// bytes count as one code point each.
std::string_view Utf8Prefix(std::string_view text, size_t max_bytes);

// `text` with every ill-formed byte replaced by U+FFFD.
std::string ReplaceInvalidUtf8(std::string_view text);

}  // namespace tenon

#endif  // TENON_BACKENDS_CORE_UTF8_H_
