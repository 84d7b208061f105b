// Printing the answers of a measurement as they come.

#ifndef TENON_CLIENT_CPP_TOOL_MEASURE_OUTPUT_H_
#define TENON_CLIENT_CPP_TOOL_MEASURE_OUTPUT_H_

#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "client/cpp/tool/json.h"
#include "tenon/measure.h"

namespace tenon::tool {

// Seconds that a projection took: to completion where that is known, else of its parts.
double SecondsOf(const v1::RunInfo& info);

// {"index", "name", "scores", "specs", "seconds"} or {"index", "name", "error"}. `scores` holds
// the scores of all specs; of a key that several specs have, the first one's.
Json ItemToJson(const client::MeasureItem& item);

// A table whose rows are printed one by one. Its columns are those of the first scores; a key that
// several specs have is followed by the spec's text in brackets. When that is wider than
// `max_width` every projection is a block of lines instead, a line for each score.
class MeasureTable {
 public:
  MeasureTable(std::vector<std::string> specs, size_t name_width, size_t max_width,
               std::ostream* out)
      : specs_(std::move(specs)), name_width_(name_width), max_width_(max_width), out_(out) {}
  void Print(const client::MeasureItem& item);

 private:
  struct Column {
    int spec;
    std::string key;
    std::string title;
  };
  void ChooseColumns(const v1::MeasureScores& scores);
  void PrintHeader();
  static std::string Cell(const Column& column, const v1::MeasureScores& scores);
  void PrintBlock(const std::string& start, const client::MeasureItem& item);

  std::vector<std::string> specs_;
  size_t name_width_;
  size_t max_width_;
  std::ostream* out_;
  bool has_columns_ = false;
  bool in_blocks_ = false;
  std::vector<Column> columns_;
};

// Writes local arrays, named INDEX.SPEC.KEY: to a folder as .npy files, as they come, or to an
// archive, at the end.
class LocalOutput {
 public:
  // Nothing is written without a path.
  explicit LocalOutput(std::optional<std::string> path) : path_(std::move(path)) {}
  // Takes the arrays of the item away.
  absl::Status Add(client::MeasureItem* item);
  absl::Status Close();

 private:
  std::optional<std::string> path_;
  std::vector<std::pair<std::string, Tensor>> arrays_;
};

// Totals, for the end of the table.
std::string FormatSummary(const v1::MeasureSummary& summary);

}  // namespace tenon::tool

#endif  // TENON_CLIENT_CPP_TOOL_MEASURE_OUTPUT_H_
