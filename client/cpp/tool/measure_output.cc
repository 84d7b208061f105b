#include "client/cpp/tool/measure_output.h"

#include <algorithm>
#include <map>
#include <utility>

#include "backends/core/error.h"
#include "backends/core/npy.h"
#include "client/cpp/tool/npz.h"
#include "client/cpp/tool/text.h"
#include "tenon/call.h"

namespace tenon::tool {
namespace {

constexpr size_t kIndexWidth = 5;
constexpr size_t kMinScoreWidth = 12;
constexpr int kScoreDigits = 8;

Json ErrorToJson(const absl::Status& status) {
  const client::ServerError error = client::ServerErrorOf(status).value_or(client::ServerError());
  Json json;
  json["code"] = std::string(absl::StatusCodeToString(status.code()));
  json["reason"] = error.reason;
  json["field"] = error.fields.empty() ? "" : error.fields[0].first;
  json["message"] = error.message;
  json["metadata"] = error.metadata;
  return json;
}

// Map fields of messages have no order; output has.
std::map<std::string, double> Sorted(const v1::SpecScores& scores) {
  return {scores.values().begin(), scores.values().end()};
}

// File names must not lead out of their folder.
std::string SafeName(std::string name) {
  for (char& c : name) {
    if (c == '/' || c == '\0') c = '_';
  }
  return name;
}

std::string TimeOf(const client::MeasureItem& item) {
  return item.scores.has_run_info() ? FormatSeconds(SecondsOf(item.scores.run_info())) : "-";
}

}  // namespace

double SecondsOf(const v1::RunInfo& info) {
  return info.timing().has_execution_seconds() ? info.timing().execution_seconds()
                                               : info.resource_seconds() + info.metric_seconds();
}

Json ItemToJson(const client::MeasureItem& item) {
  Json json;
  json["index"] = item.index;
  json["name"] = item.name;
  if (!item.status.ok()) {
    json["error"] = ErrorToJson(item.status);
    return json;
  }
  Json merged = Json::object();
  Json specs = Json::array();
  for (const v1::SpecScores& scores : item.scores.specs()) {
    Json spec;
    spec["id"] = scores.id();
    spec["scores"] = Json::object();
    for (const auto& [key, value] : Sorted(scores)) {
      spec["scores"][key] = value;
      if (!merged.contains(key)) merged[key] = value;
    }
    if (scores.has_seed()) spec["seed"] = scores.seed();
    if (scores.has_error()) {
      spec["error"] = ErrorToJson(client::StatusFromDetail(scores.error()));
    }
    specs.push_back(std::move(spec));
  }
  json["scores"] = std::move(merged);
  json["specs"] = std::move(specs);
  json["seconds"] =
      item.scores.has_run_info() ? Json(SecondsOf(item.scores.run_info())) : Json(nullptr);
  return json;
}

void MeasureTable::ChooseColumns(const v1::MeasureScores& scores) {
  std::map<std::string, int> uses;
  for (int spec = 0; spec < scores.specs_size(); ++spec) {
    for (const auto& [key, value] : Sorted(scores.specs(spec))) {
      columns_.push_back({spec, key, key});
      ++uses[key];
    }
  }
  for (Column& column : columns_) {
    const auto spec = static_cast<size_t>(column.spec);
    if (uses[column.key] > 1 && spec < specs_.size()) {
      column.title = StrCat(column.key, "[", specs_[spec], "]");
    }
  }
  has_columns_ = true;
  PrintHeader();
}

void MeasureTable::PrintHeader() {
  std::string line = StrCat(Pad("#", kIndexWidth, true), "  ", Pad("projection", name_width_));
  size_t width = kIndexWidth + 2 + name_width_;
  for (const Column& column : columns_) {
    const size_t column_width = std::max(kMinScoreWidth, column.title.size());
    line += StrCat("  ", Pad(column.title, column_width, true));
    width += 2 + column_width;
  }
  in_blocks_ = width + 2 + kMinScoreWidth > max_width_;
  if (!in_blocks_) *out_ << line << "  " << Pad("time", kMinScoreWidth, true) << "\n";
}

std::string MeasureTable::Cell(const Column& column, const v1::MeasureScores& scores) {
  if (column.spec >= scores.specs_size()) return "-";
  const v1::SpecScores& spec = scores.specs(column.spec);
  if (spec.has_error()) return spec.error().reason();
  const auto value = spec.values().find(column.key);
  return value != spec.values().end() ? FormatNumber(value->second, kScoreDigits) : "-";
}

void MeasureTable::PrintBlock(const std::string& start, const client::MeasureItem& item) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const Column& column : columns_) {
    rows.emplace_back(StrCat("    ", column.title), Cell(column, item.scores));
  }
  rows.emplace_back("    time", TimeOf(item));
  *out_ << start << "\n" << FormatPairs(rows) << std::flush;
}

void MeasureTable::Print(const client::MeasureItem& item) {
  if (item.status.ok() && !has_columns_) ChooseColumns(item.scores);
  std::string line =
      StrCat(Pad(StrCat(item.index), kIndexWidth, true), "  ", Pad(item.name, name_width_));
  if (!item.status.ok()) {
    const auto error = client::ServerErrorOf(item.status).value_or(client::ServerError());
    line += StrCat("  ", error.reason, ": ", error.message);
    for (const auto& [path, description] : error.fields) line += StrCat(" (", path, ")");
    *out_ << line << "\n" << std::flush;
    return;
  }
  if (in_blocks_) return PrintBlock(line, item);
  for (const Column& column : columns_) {
    line += StrCat(
        "  ", Pad(Cell(column, item.scores), std::max(kMinScoreWidth, column.title.size()), true));
  }
  *out_ << line << "  " << Pad(TimeOf(item), kMinScoreWidth, true) << "\n" << std::flush;
}

absl::Status LocalOutput::Add(client::MeasureItem* item) {
  if (!path_.has_value()) return absl::OkStatus();
  for (client::LocalScores& local : item->local) {
    std::string name = StrCat(item->index, ".", local.spec, ".", SafeName(local.key));
    if (IsNpz(*path_)) {
      arrays_.emplace_back(std::move(name), std::move(local.tensor));
    } else {
      TENON_RETURN_IF_ERROR(WriteNpyFile(StrCat(*path_, "/", name, ".npy"), local.tensor));
    }
  }
  return absl::OkStatus();
}

absl::Status LocalOutput::Close() {
  if (!path_.has_value() || !IsNpz(*path_)) return absl::OkStatus();
  std::vector<std::pair<std::string, const Tensor*>> arrays;
  for (const auto& [name, tensor] : arrays_) arrays.emplace_back(name, &tensor);
  return WriteNpzFile(*path_, arrays);
}

std::string FormatSummary(const v1::MeasureSummary& summary) {
  const v1::MeasureReport& report = summary.report();
  std::vector<std::pair<std::string, std::string>> rows;
  rows.emplace_back("projections",
                    StrCat(summary.scored_count(), " scored, ", summary.error_count(), " failed",
                           summary.stream_complete() ? "" : ", stopped early"));
  rows.emplace_back("data set", report.original_resources_reused()
                                    ? std::string("was prepared")
                                    : FormatSeconds(report.original_resource_seconds()));
  if (report.has_first_projection_seconds()) {
    rows.emplace_back("first projection", FormatSeconds(report.first_projection_seconds()));
  }
  if (report.has_further_projection_seconds()) {
    rows.emplace_back("each further one", FormatSeconds(report.further_projection_seconds()));
  }
  std::string memory =
      StrCat("planned ", FormatBytes(static_cast<double>(report.memory().planned_peak_bytes())));
  if (report.memory().has_measured_peak_bytes()) {
    memory += StrCat(", measured ",
                     FormatBytes(static_cast<double>(report.memory().measured_peak_bytes())));
  }
  rows.emplace_back("peak memory", memory);
  if (!summary.dataset_handle().empty()) rows.emplace_back("kept as", summary.dataset_handle());
  return FormatPairs(rows);
}

}  // namespace tenon::tool
