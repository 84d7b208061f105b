#include "backends/core/utf8.h"

#include <algorithm>
#include <cstdint>

namespace tenon {
namespace {

struct Form {
  size_t length;
  uint32_t smallest;  // a smaller value in this form is overlong
  uint32_t lead_bits;
};

Form FormOf(unsigned char lead) {
  if (lead < 0x80) return {1, 0, lead};
  if ((lead & 0xE0) == 0xC0) return {2, 0x80, lead & 0x1Fu};
  if ((lead & 0xF0) == 0xE0) return {3, 0x800, lead & 0x0Fu};
  if ((lead & 0xF8) == 0xF0) return {4, 0x10000, lead & 0x07u};
  return {0, 0, 0};
}

}  // namespace

size_t Utf8Length(std::string_view text) {
  if (text.empty()) return 0;
  const Form form = FormOf(static_cast<unsigned char>(text[0]));
  if (form.length == 0 || form.length > text.size()) return 0;
  uint32_t value = form.lead_bits;
  for (size_t i = 1; i < form.length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0) != 0x80) return 0;
    value = value << 6 | (byte & 0x3Fu);
  }
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  return value < form.smallest || value > 0x10FFFF || surrogate ? 0 : form.length;
}

std::string_view Utf8Prefix(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  // A code point that straddles the limit starts at most three bytes before it.
  for (size_t back = 1; back <= std::min<size_t>(3, max_bytes); ++back) {
    const size_t start = max_bytes - back;
    if (Utf8Length(text.substr(start)) > back) return text.substr(0, start);
  }
  return text.substr(0, max_bytes);
}

std::string ReplaceInvalidUtf8(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const size_t length = Utf8Length(text);
    result.append(length == 0 ? "\xEF\xBF\xBD" : text.substr(0, length));
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result;
}

}  // namespace tenon
