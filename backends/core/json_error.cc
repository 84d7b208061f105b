#include "backends/core/json_error.h"

#include "backends/core/strings.h"
#include "backends/core/utf8.h"

namespace tenon {
namespace {

constexpr size_t kMaxTextBytes = 256;
constexpr std::string_view kEllipsis = "...";

void Strip(std::string_view prefix, std::string_view* text) {
  if (text->substr(0, prefix.size()) == prefix) text->remove_prefix(prefix.size());
}

}  // namespace

std::string JsonErrorText(std::string_view what) {
  constexpr std::string_view kId = "[json.exception.", kEndOfId = "] ";
  if (what.substr(0, kId.size()) == kId) {
    const size_t end = what.find(kEndOfId);
    if (end != std::string_view::npos) what.remove_prefix(end + kEndOfId.size());
  }
  Strip("parse error at ", &what);
  if (what.size() <= kMaxTextBytes) return std::string(what);
  return StrCat(Utf8Prefix(what, kMaxTextBytes - kEllipsis.size()), kEllipsis);
}

}  // namespace tenon
