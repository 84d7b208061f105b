// Input that has no scores: every kind has a stable reason, and leaves the server as it was.

#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

constexpr int64_t kRows = 20;

struct Bad {
  const char* name;
  std::vector<std::string> ids;
  std::function<void(v1::MeasureHeader*, v1::Projection*)> change;
  const char* summary;  // of the call, or of the projection
};

class BadInputTest : public ::testing::TestWithParam<Bad> {};

void SetData(const Matrix& matrix, v1::MeasureHeader* header) {
  *header->mutable_dataset_input() = InlineDataset(matrix);
}
void SetLabels(const std::vector<int64_t>& labels, v1::MeasureHeader* header) {
  header->mutable_labels()->mutable_int64s()->mutable_values()->Assign(labels.begin(),
                                                                       labels.end());
}
Matrix WithValue(int64_t columns, double value) {
  Matrix matrix = MakeMatrix(kRows, columns, 1);
  matrix.values[7] = value;
  return matrix;
}
Matrix Constant(int64_t columns) {
  return {kRows, columns, std::vector<double>(static_cast<size_t>(kRows * columns), 2.5)};
}

TEST_P(BadInputTest, HasItsReason) {
  TestServer server;
  v1::MeasureHeader header = Header(MakeMatrix(kRows, 4, 1), GetParam().ids, 3);
  v1::Projection projection = InlineProjection(0, MakeMatrix(kRows, 2, 2));
  GetParam().change(&header, &projection);
  MeasureClient client(&server);
  client.Send(header);
  const auto frames = client.Exchange({Frame(projection)});
  std::string summary = Summary(client.Finish());
  if (summary == "OK") {
    ASSERT_EQ(frames.size(), 3u);
    ASSERT_TRUE(frames[1].has_item_error());
    summary = Summary(frames[1].item_error().error());
    EXPECT_FALSE(frames[1].item_error().error().message().empty());
  }
  EXPECT_EQ(summary, GetParam().summary);
  EXPECT_TRUE(server.AllReleased());
}

const double kNaN = std::numeric_limits<double>::quiet_NaN();
const double kInf = std::numeric_limits<double>::infinity();

const Bad kBad[] = {
    {"NanInTheDataset",
     {"stress"},
     [](auto* h, auto*) { SetData(WithValue(4, kNaN), h); },
     "INVALID_ARGUMENT NOT_FINITE header.dataset_input"},
    {"InfInTheProjection",
     {"tnc"},
     [](auto*, auto* p) { *p = InlineProjection(0, WithValue(2, kInf)); },
     "INVALID_ARGUMENT NOT_FINITE projection"},
    {"NoColumns",
     {"stress"},
     [](auto*, auto* p) { p->mutable_spec()->set_shape(1, 0); },
     "INVALID_ARGUMENT SHAPE_MISMATCH projection.spec.shape[1]"},
    {"OtherRows",
     {"stress"},
     [](auto*, auto* p) { *p = InlineProjection(0, MakeMatrix(kRows - 1, 2, 1)); },
     "INVALID_ARGUMENT SHAPE_MISMATCH projection.spec.shape[0]"},
    {"ConstantData",
     {"stress"},
     [](auto* h, auto*) { SetData(Constant(4), h); },
     "INVALID_ARGUMENT UNDEFINED_SCORE header.dataset_input"},
    {"ConstantProjection",
     {"srho"},
     [](auto*, auto* p) { *p = InlineProjection(0, Constant(2)); },
     "INVALID_ARGUMENT UNDEFINED_SCORE projection"},
    {"DuplicatesInTopo",
     {"topo"},
     [](auto* h, auto* p) {
       h->mutable_specs(0)->mutable_topographic_product()->set_k(3);
       *p = InlineProjection(0, Constant(2));
     },
     "INVALID_ARGUMENT UNDEFINED_SCORE projection"},
    {"OneClass",
     {"dsc"},
     [](auto* h, auto*) { SetLabels(std::vector<int64_t>(kRows, 4), h); },
     "INVALID_ARGUMENT BAD_LABELS header.labels"},
    {"ThreeColumnsForGaps",
     {"gi"},
     [](auto*, auto* p) { *p = InlineProjection(0, MakeMatrix(kRows, 3, 1)); },
     "INVALID_ARGUMENT SHAPE_MISMATCH projection"},
    {"KOfHalf",
     {"tnc"},
     [](auto* h, auto*) { h->mutable_specs(0)->mutable_trustworthiness_continuity()->set_k(10); },
     "INVALID_ARGUMENT K_OUT_OF_RANGE header.specs[0].trustworthiness_continuity.k"},
    {"KOfN",
     {"lcmc"},
     [](auto* h, auto*) {
       h->mutable_specs(0)->mutable_local_continuity_meta_criteria()->set_k(kRows);
     },
     "INVALID_ARGUMENT K_OUT_OF_RANGE header.specs[0].local_continuity_meta_criteria.k"},
};

INSTANTIATE_TEST_SUITE_P(Kinds, BadInputTest, ::testing::ValuesIn(kBad),
                         [](const auto& info) { return info.param.name; });

TEST(ManyBadTest, MemoryStaysFlatWhileEachIsRefusedInItsPlace) {
  TestServer server;
  MeasureClient client(&server);
  client.Send(Header(MakeMatrix(kRows, 4, 1), {"stress"}));
  constexpr int64_t kMany = 20'000;
  std::vector<v1::MeasureRequest> frames;
  for (int64_t i = 0; i < kMany; ++i) {
    frames.push_back(Frame(InlineProjection(i, MakeMatrix(1, 2, 1))));
  }
  const auto answers = client.Exchange(frames);
  EXPECT_EQ(Summary(client.Finish()), "OK");
  ASSERT_EQ(answers.size(), kMany + 2u);
  for (int64_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(answers[static_cast<size_t>(i) + 1].item_error().index(), i);
  }
  const v1::MeasureReport& report = answers.back().summary().report();
  EXPECT_EQ(answers.back().summary().error_count(), kMany);
  ASSERT_EQ(report.errors_size(), 1);
  EXPECT_EQ(report.errors(0).count(), kMany);
  EXPECT_LE(report.max_in_flight_observed(), 8);
  EXPECT_TRUE(server.AllReleased());
}

TEST(LabelsTest, GapsAndTextsAreClassesLikeAnyOthers) {
  TestServer server;
  std::vector<double> values;
  for (int kind = 0; kind < 2; ++kind) {
    v1::MeasureHeader header = Header(MakeMatrix(kRows, 4, 1), {"dsc", "nh"}, 3);
    for (int64_t i = 0; i < kRows; ++i) {
      if (kind == 0) {
        header.mutable_labels()->mutable_int64s()->add_values(i % 3 * 1000 - 7);
      } else {
        header.mutable_labels()->mutable_strings()->add_values(std::string(1 + i % 3, 'x'));
      }
    }
    MeasureClient client(&server);
    client.Send(header);
    const auto frames = client.Exchange({Frame(InlineProjection(0, MakeMatrix(kRows, 2, 2)))});
    EXPECT_EQ(Summary(client.Finish()), "OK");
    ASSERT_EQ(frames.size(), 3u);
    values.push_back(frames[1].scores().specs(0).values().at("distance_consistency"));
    values.push_back(frames[1].scores().specs(1).values().at("neighborhood_hit"));
  }
  EXPECT_EQ(values[0], values[2]);
  EXPECT_EQ(values[1], values[3]);
}

}  // namespace
}  // namespace tenon::server
