// Data sets and projections in shared memory, frame by frame.

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/shared_memory.h"
#include "tests/server/measurement_test_server.h"
#include "tests/server/shared_memory_support.h"

namespace tenon::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kDataset = 0, kProjection = 65536;

class MeasurementSharedTest : public ::testing::Test {
 protected:
  MeasurementSharedTest() {
    server_.state().shared_memory = std::make_shared<SharedMemory>(
        &server_.state().budget, SharedMemory::Options{"", 8 * kMiB, 8 * kMiB, 8});
    token_ = *server_.state().shared_memory->Add(memory_.fd());
    memory_.Put(kDataset, dataset_.bytes());
    memory_.Put(kProjection, projection_.bytes());
  }

  v1::MeasureHeader Shared() {
    v1::MeasureHeader header = Header(dataset_, {"trustworthiness_continuity", "stress"}, 5);
    header.mutable_dataset_input()->clear_inline_data();
    header.set_shared_pool(token_);
    *header.mutable_dataset_input()->mutable_shared() =
        Region(kDataset, static_cast<int64_t>(dataset_.bytes().size()));
    return header;
  }
  v1::Projection SharedProjection(int64_t index) {
    v1::Projection projection = InlineProjection(index, projection_);
    projection.clear_inline_data();
    *projection.mutable_shared() =
        Region(kProjection, static_cast<int64_t>(projection_.bytes().size()));
    return projection;
  }
  std::vector<v1::MeasureResponse> Run(const v1::MeasureHeader& header,
                                       const std::vector<v1::Projection>& projections,
                                       std::string* summary) {
    MeasureClient client(&server_);
    v1::MeasureRequest frame;
    *frame.mutable_header() = header;
    std::vector<v1::MeasureRequest> frames = {frame};
    for (const v1::Projection& projection : projections) frames.push_back(Frame(projection));
    auto answers = client.Exchange(frames);
    *summary = Summary(client.Finish());
    return answers;
  }
  std::string Fault(const v1::MeasureHeader& header) {
    std::string summary;
    Run(header, {}, &summary);
    return summary;
  }
  static std::vector<std::string> Scores(const std::vector<v1::MeasureResponse>& answers) {
    std::vector<std::string> scores;
    for (const v1::MeasureResponse& answer : answers) {
      if (!answer.has_scores()) continue;
      for (const auto& score : answer.scores().specs()) {
        for (const auto& [key, value] :
             std::map<std::string, double>(score.values().begin(), score.values().end())) {
          char text[64];
          std::snprintf(text, sizeof(text), "%s %a", key.c_str(), value);
          scores.emplace_back(text);
        }
      }
    }
    return scores;
  }

  TestServer server_;
  const Matrix dataset_ = MakeMatrix(60, 7, 1), projection_ = MakeMatrix(60, 2, 2);
  TestMemory memory_{"measurement", kMiB};
  std::string token_;
};

TEST_F(MeasurementSharedTest, ScoresAreThoseOfBytesThatWereSent) {
  std::string summary;
  const auto sent =
      Run(Header(dataset_, {"trustworthiness_continuity", "stress"}, 5),
          {InlineProjection(0, projection_), InlineProjection(1, projection_)}, &summary);
  ASSERT_EQ(summary, "OK");
  const auto shared = Run(Shared(), {SharedProjection(0), SharedProjection(1)}, &summary);
  ASSERT_EQ(summary, "OK");
  EXPECT_FALSE(Scores(sent).empty());
  EXPECT_EQ(Scores(shared), Scores(sent));
}

TEST_F(MeasurementSharedTest, RefusesAtTheHeader) {
  v1::MeasureHeader header = Shared();
  header.set_shared_pool("somebody else's");
  EXPECT_EQ(Fault(header), "NOT_FOUND NOT_FOUND header.shared_pool");
  header = Shared();
  header.clear_shared_pool();
  EXPECT_EQ(Fault(header), "INVALID_ARGUMENT MISSING_FIELD header.shared_pool");
  header = Shared();
  header.mutable_dataset_input()->set_inline_data(dataset_.bytes());
  EXPECT_EQ(Fault(header), "INVALID_ARGUMENT BAD_HEADER header.dataset_input.shared");
  header = Shared();
  header.mutable_dataset_input()->mutable_shared()->set_offset_bytes(kMiB);
  EXPECT_EQ(Fault(header), "INVALID_ARGUMENT BAD_PARAMETER header.dataset_input.shared.size_bytes");
  header = Shared();
  header.mutable_dataset_input()->mutable_shared()->set_size_bytes(64);
  EXPECT_EQ(Fault(header),
            "INVALID_ARGUMENT SHAPE_MISMATCH header.dataset_input.shared.size_bytes");
  server_.state().shared_memory.reset();
  EXPECT_EQ(Fault(Shared()), "UNIMPLEMENTED NOT_IMPLEMENTED header.shared_pool");
  EXPECT_TRUE(ComesToMappings("measurement", 1));
}

// A projection's own fault is its own: the next one is scored.
TEST_F(MeasurementSharedTest, ABadRegionCostsOneProjection) {
  v1::Projection outside = SharedProjection(0), twice = SharedProjection(1);
  outside.mutable_shared()->set_offset_bytes(1);
  twice.set_inline_data(projection_.bytes());
  std::string summary;
  const auto answers = Run(Shared(), {outside, twice, SharedProjection(2)}, &summary);
  ASSERT_EQ(summary, "OK");
  std::vector<std::string> errors;
  for (const v1::MeasureResponse& answer : answers) {
    if (answer.has_item_error()) errors.push_back(Summary(answer.item_error().error()));
  }
  EXPECT_EQ(errors, (std::vector<std::string>{
                        "INVALID_ARGUMENT BAD_PARAMETER projection.shared.offset_bytes",
                        "INVALID_ARGUMENT BAD_PARAMETER projection.shared"}));
  EXPECT_FALSE(Scores(answers).empty());
}

// Values are checked after they have been copied: what is not finite is found.
TEST_F(MeasurementSharedTest, ChecksTheValues) {
  const double nan = std::nan("");
  memory_.Put(kProjection, std::string(reinterpret_cast<const char*>(&nan), sizeof(nan)));
  std::string summary;
  const auto answers = Run(Shared(), {SharedProjection(0)}, &summary);
  ASSERT_EQ(summary, "OK");
  bool found = false;
  for (const v1::MeasureResponse& answer : answers) {
    found |= answer.item_error().error().reason() == "NOT_FINITE";
  }
  EXPECT_TRUE(found);
  memory_.Put(kDataset, std::string(reinterpret_cast<const char*>(&nan), sizeof(nan)));
  EXPECT_EQ(Fault(Shared()).substr(0, 27), "INVALID_ARGUMENT NOT_FINITE");
}

TEST_F(MeasurementSharedTest, GivesThePoolBack) {
  std::string summary;
  Run(Shared(), {SharedProjection(0)}, &summary);
  server_.state().shared_memory->Remove(token_);
  EXPECT_TRUE(ComesToMappings("measurement", 1));
  EXPECT_TRUE(server_.AllReleased());
}

}  // namespace
}  // namespace tenon::server
