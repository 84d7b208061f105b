#include "client/cpp/tool/progress_bar.h"

#include <algorithm>

#include "backends/core/strings.h"

namespace tenon::tool {

std::string FormatProgress(std::optional<double> fraction, std::string_view text) {
  if (!fraction.has_value() || !(*fraction >= 0)) return std::string(text);
  constexpr int kWidth = 30;
  const double share = std::min(*fraction, 1.0);
  const int done = static_cast<int>(share * kWidth);
  std::string bar(static_cast<size_t>(done), '=');
  if (done < kWidth) bar += ">";
  bar.resize(kWidth, ' ');
  return StrCat("[", bar, "] ", static_cast<int>(share * 100), " %  ", text);
}

void ProgressBar::Update(std::optional<double> fraction, std::string_view text) {
  if (!enabled_) return;
  *out_ << "\r" << FormatProgress(fraction, text) << "\x1b[K" << std::flush;
  shown_ = true;
}

void ProgressBar::Clear() {
  if (shown_) *out_ << "\r\x1b[K" << std::flush;
  shown_ = false;
}

}  // namespace tenon::tool
