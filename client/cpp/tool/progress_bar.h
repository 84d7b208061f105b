// One line on a terminal that tells how far the work is.

#ifndef TENON_CLIENT_CPP_TOOL_PROGRESS_BAR_H_
#define TENON_CLIENT_CPP_TOOL_PROGRESS_BAR_H_

#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace tenon::tool {

// "[=====>    ] 53 %  text". Without a fraction only the text.
std::string FormatProgress(std::optional<double> fraction, std::string_view text);

// Writes over its own line; does nothing unless enabled. Clears the line at its end.
class ProgressBar {
 public:
  ProgressBar(std::ostream* out, bool enabled) : out_(out), enabled_(enabled) {}
  ~ProgressBar() { Clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  bool enabled() const { return enabled_; }
  void Update(std::optional<double> fraction, std::string_view text);
  // Before other output on the same terminal.
  void Clear();

 private:
  std::ostream* out_;
  bool enabled_;
  bool shown_ = false;
};

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_PROGRESS_BAR_H_
