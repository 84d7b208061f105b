// Many operand sets on one stream that the server computes together.

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/server/contraction_test_server.h"

namespace tenon::server {
namespace {

constexpr v1::DataType kDouble = v1::DATA_TYPE_FLOAT64;
using Values = std::vector<std::complex<double>>;

class ContractionSetsTest : public ::testing::Test {
 protected:
  // v_a M_ab N_bc w_c with varying v and w; M_ab = a + b, N_bc = b - c.
  static v1::ContractHeader Header(v1::DataType varying, int64_t expected_sets) {
    v1::ContractHeader header;
    AddOperand(&header, {"a"}, varying, {2})->set_varying(true);
    AddOperand(&header, {"a", "b"}, kDouble, {2, 3}, {0, 1, 2, 1, 2, 3});
    AddOperand(&header, {"b", "c"}, kDouble, {3, 2}, {0, -1, 1, 0, 2, 1});
    AddOperand(&header, {"c"}, varying, {2})->set_varying(true);
    SetOutput(&header, {});
    header.set_expected_sets(expected_sets);
    return header;
  }
  // M N = [[5, 2], [8, 2]].
  static Values Left(int set) { return {1.0 * set, 1}; }
  static Values Right(int set) { return {2, -1.0 * (set % 10)}; }
  static double Expected(int set) {
    const double x = set, y = -(set % 10);
    return x * (5 * 2 + 2 * y) + (8 * 2 + 2 * y);
  }
  static bool Send(ContractClient* client, int set, v1::DataType varying = kDouble) {
    return client->SendSet(set,
                           {{0, Encode(varying, Left(set))}, {3, Encode(varying, Right(set))}});
  }
  static void ExpectResult(const ReceivedResult& result, int set) {
    EXPECT_EQ(result.report.set(), set);
    EXPECT_EQ(Decode(kDouble, result.bytes), Values{Expected(set)}) << set;
  }

  ContractionTestServer server_;
};

// It is a hint, and nothing is lost when it is beyond all counting.
TEST_F(ContractionSetsTest, AsManySetsAsCanBeExpected) {
  for (const int64_t expected : {INT64_MAX, INT64_MAX - 126}) {
    ContractClient client(&server_);
    client.SendHeader(Header(kDouble, expected));
    for (int set = 0; set < 3; ++set) Send(&client, set);
    client.HalfClose();
    const Answer answer = client.Finish();
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    ASSERT_EQ(answer.results.size(), 3u);
    for (int set = 0; set < 3; ++set) ExpectResult(answer.results[set], set);
  }
}

TEST_F(ContractionSetsTest, ThreeHundredSetsInOrder) {
  constexpr int kSets = 300;
  for (const v1::DataType varying : {kDouble, v1::DATA_TYPE_FLOAT32}) {
    ContractClient client(&server_);
    client.SendHeader(Header(varying, kSets));
    std::thread writer([&] {
      for (int set = 0; set < kSets; ++set) Send(&client, set, varying);
      client.HalfClose();
    });
    const Answer answer = client.Finish();
    writer.join();
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    EXPECT_EQ(answer.order_error, "");
    EXPECT_EQ(answer.accepted->sets_together(), 104);
    ASSERT_EQ(answer.results.size(), static_cast<size_t>(kSets));
    double runs = 0;
    for (int set = 0; set < kSets; ++set) {
      ExpectResult(answer.results[set], set);
      const v1::SetReport& report = answer.results[set].report;
      ASSERT_GE(report.sets_together(), 1);
      EXPECT_EQ(report.has_execution_seconds(), report.sets_together() == 1);
      runs += 1.0 / report.sets_together();
    }
    const v1::ContractionReport& report = *answer.report;
    EXPECT_EQ(report.sets(), kSets);
    EXPECT_GT(report.plan().shared_flops(), 0);
    const double each = answer.results[0].report.flops();
    EXPECT_DOUBLE_EQ(report.plan().flops(), report.plan().shared_flops() + each);
    EXPECT_NEAR(report.flops(), report.plan().shared_flops() + 104 * runs * each, 1e-6);
    EXPECT_LE(report.memory().measured_peak_bytes(), report.memory().planned_peak_bytes());
    EXPECT_TRUE(server_.AllReleased());
  }
}

// Each result comes although the rest of its stack has not been sent.
TEST_F(ContractionSetsTest, ClientThatWaitsForEachResult) {
  ContractClient client(&server_);
  client.SendHeader(Header(kDouble, 50));
  ASSERT_TRUE(client.Read().has_accepted());
  for (int set = 0; set < 5; ++set) {
    Send(&client, set);
    const v1::ContractResponse frame = client.Read();
    ASSERT_TRUE(frame.has_result()) << frame.ShortDebugString();
    EXPECT_EQ(frame.result().set(), set);
    EXPECT_EQ(frame.result().report().sets_together(), 1);
    EXPECT_EQ(Decode(kDouble, frame.result().inline_data()), Values{Expected(set)});
  }
  client.HalfClose();
  const Answer answer = client.Finish();
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.report->sets(), 5);
}

// More or fewer sets than expected are no error.
TEST_F(ContractionSetsTest, ExpectationIsAHint) {
  for (const int sets : {3, 45}) {
    ContractClient client(&server_);
    client.SendHeader(Header(kDouble, 20));
    std::thread writer([&] {
      for (int set = 0; set < sets; ++set) Send(&client, set);
      client.HalfClose();
    });
    const Answer answer = client.Finish();
    writer.join();
    ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
    ASSERT_EQ(answer.results.size(), static_cast<size_t>(sets));
    for (int set = 0; set < sets; ++set) ExpectResult(answer.results[set], set);
  }
}

// All sets are sent before a result is read: the server must neither stall nor hoard.
TEST_F(ContractionSetsTest, ClientThatReadsLate) {
  constexpr int kSets = 200;
  ContractClient client(&server_);
  client.SendHeader(Header(kDouble, 12));
  for (int set = 0; set < kSets; ++set) ASSERT_TRUE(Send(&client, set));
  client.HalfClose();
  const Answer answer = client.Finish();
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  ASSERT_EQ(answer.results.size(), static_cast<size_t>(kSets));
  for (int set = 0; set < kSets; ++set) ExpectResult(answer.results[set], set);
  EXPECT_TRUE(server_.AllReleased());
}

TEST_F(ContractionSetsTest, CancelledBetweenStacks) {
  ContractClient client(&server_);
  client.SendHeader(Header(kDouble, 1000));
  ASSERT_TRUE(client.Read().has_accepted());
  Send(&client, 0);
  ASSERT_TRUE(client.Read().has_result());
  client.Cancel();
  EXPECT_EQ(client.Finish().status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(server_.AllReleased());
}

// The staging of a stack counts too: a small budget makes smaller stacks, not a refusal.
TEST_F(ContractionSetsTest, BudgetBoundsTheStack) {
  v1::ContractHeader header;
  AddOperand(&header, {"a"}, kDouble, {4096})->set_varying(true);
  AddOperand(&header, {"b"}, kDouble, {2}, {1, 2});
  SetOutput(&header, {"b", "a"});
  header.set_expected_sets(100);
  header.mutable_execution()->set_memory_budget_bytes(4 << 20);
  constexpr int kSets = 30;
  ContractClient client(&server_);
  client.SendHeader(header);
  std::thread writer([&] {
    for (int set = 0; set < kSets; ++set) {
      client.SendOperand(set, 0, Encode(kDouble, Values(4096, 1.0 * set)), 1 << 20);
    }
    client.HalfClose();
  });
  const Answer answer = client.Finish();
  writer.join();
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_GT(answer.accepted->sets_together(), 1);
  EXPECT_LT(answer.accepted->sets_together(), 20);
  EXPECT_LE(answer.accepted->planned_peak_bytes(), 4 << 20);
  ASSERT_EQ(answer.results.size(), static_cast<size_t>(kSets));
  for (int set = 0; set < kSets; ++set) {
    Values expected(4096, 1.0 * set);
    expected.resize(8192, 2.0 * set);
    EXPECT_EQ(Decode(kDouble, answer.results[set].bytes), expected) << set;
  }
  EXPECT_LE(answer.report->memory().measured_peak_bytes(), 4 << 20);
}

}  // namespace
}  // namespace tenon::server
