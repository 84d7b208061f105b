// Very short work is done where it is found, unless others compute or wait.

#include <gtest/gtest.h>

#include <thread>

#include "tests/server/contraction_test_server.h"

namespace tenon::server {
namespace {

class AtOnceTest : public ::testing::Test {
 protected:
  AtOnceTest() {
    // Without the provider's time model nobody knows what is short.
    EXPECT_TRUE((*server_.state().providers.Find("cpu"))->Calibrate(nullptr).ok());
    warm_ = Contract(&server_, MatrixProduct());
    EXPECT_TRUE(warm_.accepted->has_estimated_seconds());
    // Its thread is busy for a moment after the answer is there.
    while (server_.state().executor.running() > 0) std::this_thread::yield();
  }

  ContractionTestServer server_;
  Answer warm_;
};

TEST_F(AtOnceTest, AWarmSmallCallNeedsNoThreadOfTheExecutor) {
  const size_t begun = server_.state().executor.begun();
  const Answer answer = Contract(&server_, MatrixProduct());
  ASSERT_TRUE(answer.status.ok());
  EXPECT_TRUE(answer.single);
  EXPECT_EQ(answer.order_error, "");
  EXPECT_EQ(answer.results.at(0).bytes, warm_.results.at(0).bytes);
  EXPECT_EQ(answer.report->plan().program_fingerprint(),
            warm_.report->plan().program_fingerprint());
  EXPECT_EQ(answer.report->sets(), 1);
  EXPECT_EQ(server_.state().executor.begun(), begun);
  EXPECT_TRUE(server_.AllReleased());
}

TEST_F(AtOnceTest, SetsOfAnOpenCallTakeTheirTurnsInOrder) {
  v1::ContractHeader header = MatrixProduct(/*with_values=*/false);
  for (int k = 0; k < 2; ++k) {
    header.mutable_network()->mutable_operands(k)->set_varying(true);
  }
  ContractClient client(&server_);
  client.SendHeader(header);
  constexpr int kSets = 300;
  std::thread sender([&] {
    for (int64_t set = 0; set < kSets; ++set) {
      auto left = kLeft;
      for (auto& value : left) value *= static_cast<double>(set);
      client.SendSet(set, {{0, Encode(v1::DATA_TYPE_FLOAT64, left)},
                           {1, Encode(v1::DATA_TYPE_FLOAT64, kRight)}});
    }
    client.HalfClose();
  });
  const Answer answer = client.Finish();
  sender.join();
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.order_error, "");
  ASSERT_EQ(answer.results.size(), kSets);
  for (int set = 0; set < kSets; ++set) {
    auto expected = kProduct;
    for (auto& value : expected) value *= static_cast<double>(set);
    EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, answer.results[set].bytes), expected) << set;
  }
  EXPECT_TRUE(server_.AllReleased());
}

TEST_F(AtOnceTest, WithoutAFreeThreadItWaitsLikeAllOthers) {
  BusyExecutor busy(&server_.state().executor, 2);
  ContractClient client(&server_);
  client.SendHeader(MatrixProduct());
  while (server_.state().executor.queued() == 0) std::this_thread::yield();
  busy.Release();
  const Answer answer = client.Finish();
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.results.at(0).bytes, warm_.results.at(0).bytes);
}

}  // namespace
}  // namespace tenon::server
