#include "client/cpp/tool/measure_output.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <sstream>

#include "backends/core/npy.h"
#include "tenon/call.h"

namespace tenon::tool {
namespace {

using ::testing::HasSubstr;

void AddScores(const std::string& id, std::map<std::string, double> values,
               client::MeasureItem* item) {
  auto* spec = item->scores.add_specs();
  spec->set_id(id);
  spec->mutable_values()->insert(values.begin(), values.end());
}

client::MeasureItem Scored() {
  client::MeasureItem item;
  item.index = 3;
  item.name = "pca.npy";
  AddScores("trustworthiness_continuity", {{"trustworthiness", 0.5}, {"continuity", 0.25}}, &item);
  AddScores("trustworthiness_continuity", {{"trustworthiness", 0.75}}, &item);
  item.scores.mutable_run_info()->mutable_timing()->set_execution_seconds(0.125);
  return item;
}

client::MeasureItem Failed() {
  client::MeasureItem item;
  item.index = 4;
  item.name = "bad.npy";
  v1::ErrorDetail detail;
  detail.set_code(3);
  detail.set_reason("NOT_FINITE");
  detail.set_field("projection");
  detail.set_message("a NaN");
  item.status = client::StatusFromDetail(detail);
  return item;
}

TEST(MeasureOutputTest, JsonOfScores) {
  const Json json = ItemToJson(Scored());
  EXPECT_EQ(json["index"], 3);
  EXPECT_EQ(json["name"], "pca.npy");
  EXPECT_EQ(json["scores"], Json({{"continuity", 0.25}, {"trustworthiness", 0.5}}));
  EXPECT_EQ(json["specs"][1]["scores"]["trustworthiness"], 0.75);
  EXPECT_EQ(json["specs"][0]["id"], "trustworthiness_continuity");
  EXPECT_EQ(json["seconds"], 0.125);
  EXPECT_FALSE(json.contains("error"));
}

TEST(MeasureOutputTest, JsonOfErrors) {
  const Json json = ItemToJson(Failed());
  EXPECT_EQ(json["index"], 4);
  EXPECT_EQ(json["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(json["error"]["reason"], "NOT_FINITE");
  EXPECT_EQ(json["error"]["field"], "projection");
  EXPECT_EQ(json["error"]["message"], "a NaN");
  EXPECT_FALSE(json.contains("scores"));
}

TEST(MeasureOutputTest, SecondsFallBackToTheParts) {
  v1::RunInfo info;
  info.set_resource_seconds(1);
  info.set_metric_seconds(2);
  EXPECT_EQ(SecondsOf(info), 3);
  info.mutable_timing()->set_execution_seconds(2.5);
  EXPECT_EQ(SecondsOf(info), 2.5);
}

TEST(MeasureOutputTest, TableRowsAsTheyCome) {
  std::ostringstream out;
  MeasureTable table({"tnc:k=5", "tnc:k=9"}, 10, 120, &out);
  table.Print(Failed());
  EXPECT_THAT(out.str(), HasSubstr("NOT_FINITE: a NaN (projection)"));
  table.Print(Scored());
  for (const char* part : {"trustworthiness[tnc:k=5]", "trustworthiness[tnc:k=9]", "continuity",
                           "0.75", "0.25", "125 ms", "pca.npy"}) {
    EXPECT_THAT(out.str(), HasSubstr(part));
  }
  // The header stands once.
  const size_t header = out.str().find("trustworthiness[tnc:k=5]");
  table.Print(Scored());
  EXPECT_EQ(out.str().find("trustworthiness[tnc:k=5]", header + 1), std::string::npos);
}

size_t LongestLine(const std::string& text) {
  size_t longest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST(MeasureOutputTest, AWideTableBecomesBlocks) {
  client::MeasureItem item = Scored();
  for (int i = 0; i < 20; ++i) {
    AddScores("some", {{"some_long_score_" + std::to_string(i), i}}, &item);
  }
  for (const size_t width : {80, 2000}) {
    std::ostringstream out;
    MeasureTable table({}, 10, width, &out);
    table.Print(item);
    EXPECT_EQ(LongestLine(out.str()) > 80, width > 80) << out.str();
    EXPECT_THAT(out.str(), HasSubstr("some_long_score_19"));
    EXPECT_THAT(out.str(), HasSubstr("125 ms"));
  }
}

TEST(MeasureOutputTest, LocalArraysBecomeFiles) {
  const std::string folder = ::testing::TempDir() + "/tenon_local_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  client::MeasureItem item = Scored();
  Tensor tensor = *Tensor::Allocate({DType::kFloat64, {2}});
  tensor.buffer.as<double>()[0] = 1.5;
  tensor.buffer.as<double>()[1] = -2;
  item.local.push_back({1, "../local", std::move(tensor)});
  ASSERT_TRUE(LocalOutput(folder).Add(&item).ok());
  const auto read = ReadNpyFile(folder + "/3.1..._local.npy");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->buffer.as<double>()[1], -2);
  std::filesystem::remove_all(folder);
}

TEST(MeasureOutputTest, Summary) {
  v1::MeasureSummary summary;
  summary.set_scored_count(2);
  summary.set_error_count(1);
  summary.set_dataset_handle("datasets/ab");
  const std::string text = FormatSummary(summary);
  EXPECT_THAT(text, HasSubstr("2 scored, 1 failed, stopped early"));
  EXPECT_THAT(text, HasSubstr("datasets/ab"));
}

}  // namespace
}  // namespace tenon::tool
