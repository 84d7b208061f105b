// Operands and results of contractions in shared memory, frame by frame.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "backends/core/crc32c.h"
#include "server/shared_memory.h"
#include "tests/server/contraction_test_server.h"
#include "tests/server/measurement_test_server.h"
#include "tests/server/shared_memory_support.h"

namespace tenon::server {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
// Where things lie in the pool.
constexpr int64_t kA = 0, kB = 4096, kOut = 8192;

class ContractionSharedTest : public ::testing::Test {
 protected:
  ContractionSharedTest() {
    server_.state().shared_memory = std::make_shared<SharedMemory>(
        &server_.state().budget, SharedMemory::Options{"", 64 * kMiB, 64 * kMiB, 8});
    const auto token = server_.state().shared_memory->Add(memory_.fd());
    EXPECT_TRUE(token.ok()) << token.status();
    token_ = *token;
    memory_.Put(kA, Encode(v1::DATA_TYPE_FLOAT64, kLeft));
    memory_.Put(kB, Encode(v1::DATA_TYPE_FLOAT64, kRight));
  }

  // The matrix product with operands, and the result, in the pool.
  v1::ContractHeader Shared(bool result = true) {
    v1::ContractHeader header = MatrixProduct(false);
    header.set_shared_pool(token_);
    *header.mutable_network()->mutable_operands(0)->mutable_shared() = Region(kA, 32);
    *header.mutable_network()->mutable_operands(1)->mutable_shared() = Region(kB, 32);
    if (result) *header.mutable_result()->mutable_shared() = Region(kOut, 4096);
    return header;
  }
  std::string Fault(const v1::ContractHeader& header) {
    return Summary(Contract(&server_, header).status);
  }
  std::string Product() { return memory_.Get(kOut, 32); }
  static std::string Expected() { return Encode(v1::DATA_TYPE_FLOAT64, kProduct); }

  ContractionTestServer server_;
  TestMemory memory_{"contraction", 4 * kMiB};
  std::string token_;
};

TEST_F(ContractionSharedTest, ReadsAndWritesInPlace) {
  const Answer answer = Contract(&server_, Shared());
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.order_error, "");
  EXPECT_TRUE(answer.single);  // nothing had to be sent
  ASSERT_EQ(answer.results.size(), 1u);
  ASSERT_TRUE(answer.results[0].shared.has_value());
  EXPECT_FALSE(answer.results[0].in_line);
  EXPECT_EQ(answer.results[0].shared->offset_bytes(), kOut);
  EXPECT_EQ(answer.results[0].shared->size_bytes(), 32);
  EXPECT_EQ(answer.results[0].report.result_bytes(), 32);
  EXPECT_EQ(Product(), Expected());
}

TEST_F(ContractionSharedTest, EitherSideAlone) {
  const Answer sent = Contract(&server_, Shared(false));
  ASSERT_TRUE(sent.status.ok()) << sent.status.error_message();
  EXPECT_FALSE(sent.results.at(0).shared.has_value());
  EXPECT_EQ(sent.results.at(0).bytes, Expected());
  v1::ContractHeader header = MatrixProduct();
  header.set_shared_pool(token_);
  *header.mutable_result()->mutable_shared() = Region(kOut, 32);
  ASSERT_TRUE(Contract(&server_, header).status.ok());
  EXPECT_EQ(Product(), Expected());
}

TEST_F(ContractionSharedTest, TheLongFormToo) {
  v1::ContractHeader header = Shared();
  header.mutable_execution()->set_progress_interval_seconds(1000);
  header.mutable_result()->set_checksums(true);
  const Answer answer = Contract(&server_, header);
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.order_error, "");
  EXPECT_FALSE(answer.single);
  ASSERT_TRUE(answer.results.at(0).shared.has_value());
  EXPECT_EQ(answer.results.at(0).chunks, 0);
  EXPECT_EQ(answer.results.at(0).report.result_crc32c(), Crc32c(Expected()));
  EXPECT_EQ(Product(), Expected());
}

TEST_F(ContractionSharedTest, OtherTypesAreCopiedFirst) {
  v1::ContractHeader header = Shared();
  header.mutable_network()->mutable_operands(0)->mutable_spec()->set_dtype(v1::DATA_TYPE_FLOAT32);
  *header.mutable_network()->mutable_operands(0)->mutable_shared() = Region(kA, 16);
  memory_.Put(kA, Encode(v1::DATA_TYPE_FLOAT32, kLeft));
  ASSERT_TRUE(Contract(&server_, header).status.ok());
  EXPECT_EQ(Product(), Expected());
  header.mutable_result()->set_dtype(v1::DATA_TYPE_COMPLEX64);
  const Answer wide = Contract(&server_, header);
  ASSERT_TRUE(wide.status.ok()) << wide.status.error_message();
  EXPECT_EQ(Product(), Encode(v1::DATA_TYPE_COMPLEX64, kProduct));
}

TEST_F(ContractionSharedTest, SetsHavePlacesOfTheirOwn) {
  v1::ContractHeader header = Shared();
  header.mutable_network()->mutable_operands(0)->set_varying(true);
  ContractClient client(&server_);
  ASSERT_TRUE(client.SendHeader(header));
  const std::vector<std::vector<std::complex<double>>> lefts = {kLeft, {1, 0, 0, 1}, {0, 0, 0, 0}};
  for (int64_t set = 1; set < 3; ++set) {
    memory_.Put(64 * set, Encode(v1::DATA_TYPE_FLOAT64, lefts[set]));
    v1::ContractRequest frame;
    v1::OperandSet* operands = frame.mutable_operand_set();
    operands->set_set(set);
    *operands->mutable_result() = Region(kOut + 64 * set, 32);
    *operands->add_operands()->mutable_shared() = Region(64 * set, 32);
    ASSERT_TRUE(client.Send(frame));
  }
  // One that is sent, and whose result is.
  ASSERT_TRUE(client.SendSet(3, {{0, Encode(v1::DATA_TYPE_FLOAT64, {2, 0, 0, 2})}}));
  client.HalfClose();
  const Answer answer = client.Finish();
  ASSERT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(answer.order_error, "");
  ASSERT_EQ(answer.results.size(), 4u);
  EXPECT_EQ(Product(), Expected());
  EXPECT_EQ(memory_.Get(kOut + 64, 32), Encode(v1::DATA_TYPE_FLOAT64, kRight));
  EXPECT_EQ(memory_.Get(kOut + 128, 32), std::string(32, '\0'));
  EXPECT_FALSE(answer.results[3].shared.has_value());
  EXPECT_EQ(answer.results[3].bytes, Encode(v1::DATA_TYPE_FLOAT64, {10, 12, 14, 16}));
}

TEST_F(ContractionSharedTest, RefusesAtTheHeader) {
  const auto with = [&](const auto& change) {
    v1::ContractHeader header = Shared();
    change(header);
    return Fault(header);
  };
  const auto operand = [](v1::ContractHeader& header) {
    return header.mutable_network()->mutable_operands(1);
  };
  const std::string at = "header.network.operands[1].shared";
  EXPECT_EQ(with([](auto& h) { h.set_shared_pool(std::string(16, 'x')); }),
            "NOT_FOUND NOT_FOUND header.shared_pool");
  EXPECT_EQ(with([](auto& h) { h.clear_shared_pool(); }),
            "INVALID_ARGUMENT MISSING_FIELD header.shared_pool");
  EXPECT_EQ(with([&](auto& h) { operand(h)->mutable_shared()->set_offset_bytes(8); }),
            "INVALID_ARGUMENT BAD_PARAMETER " + at + ".offset_bytes");
  EXPECT_EQ(with([&](auto& h) { operand(h)->mutable_shared()->set_offset_bytes(-64); }),
            "INVALID_ARGUMENT BAD_PARAMETER " + at + ".offset_bytes");
  EXPECT_EQ(with([&](auto& h) { operand(h)->mutable_shared()->set_offset_bytes(4 * kMiB); }),
            "INVALID_ARGUMENT BAD_PARAMETER " + at + ".size_bytes");
  EXPECT_EQ(with([&](auto& h) { operand(h)->mutable_shared()->set_size_bytes(40); }),
            "INVALID_ARGUMENT SHAPE_MISMATCH " + at + ".size_bytes");
  EXPECT_EQ(with([&](auto& h) { operand(h)->set_inline_data(std::string(32, 'x')); }),
            "INVALID_ARGUMENT BAD_HEADER " + at);
  EXPECT_EQ(with([&](auto& h) { operand(h)->set_handle("tensors/x"); }),
            "INVALID_ARGUMENT BAD_HEADER " + at);
  EXPECT_EQ(with([](auto& h) { h.mutable_result()->mutable_shared()->set_size_bytes(31); }),
            "INVALID_ARGUMENT BAD_PARAMETER header.result.shared.size_bytes");
  EXPECT_EQ(with([](auto& h) { h.mutable_result()->mutable_shared()->set_offset_bytes(kB); }),
            "INVALID_ARGUMENT BAD_PARAMETER header.result.shared");
  EXPECT_EQ(
      with([](auto& h) { h.mutable_result()->mutable_shared()->set_offset_bytes(INT64_MAX); }),
      "INVALID_ARGUMENT BAD_PARAMETER header.result.shared.offset_bytes");
  server_.state().shared_memory.reset();
  EXPECT_EQ(Fault(Shared()), "UNIMPLEMENTED NOT_IMPLEMENTED header.shared_pool");
}

TEST_F(ContractionSharedTest, RefusesInASet) {
  const auto with = [&](const auto& change) {
    v1::ContractHeader header = Shared(false);
    header.mutable_network()->mutable_operands(0)->set_varying(true);
    header.mutable_network()->mutable_operands(0)->clear_shared();
    ContractClient client(&server_);
    v1::ContractRequest frame;
    *frame.mutable_operand_set()->add_operands()->mutable_shared() = Region(kA, 32);
    *frame.mutable_operand_set()->mutable_result() = Region(kOut, 32);
    change(header, *frame.mutable_operand_set());
    client.SendHeader(header);
    client.Send(frame);
    client.HalfClose();
    return Summary(client.Finish().status);
  };
  using Header = v1::ContractHeader;
  using Set = v1::OperandSet;
  EXPECT_EQ(with([](Header&, Set&) {}), "OK");
  const std::string operand = "operand_set.operands[0].shared", result = "operand_set.result";
  EXPECT_EQ(with([](Header&, Set& s) { s.mutable_operands(0)->set_data("x"); }),
            "INVALID_ARGUMENT BAD_PARAMETER " + operand);
  EXPECT_EQ(
      with([](Header&, Set& s) { s.mutable_operands(0)->mutable_shared()->set_size_bytes(8); }),
      "INVALID_ARGUMENT SHAPE_MISMATCH " + operand + ".size_bytes");
  EXPECT_EQ(
      with([](Header&, Set& s) { s.mutable_operands(0)->mutable_shared()->set_offset_bytes(4); }),
      "INVALID_ARGUMENT BAD_PARAMETER " + operand + ".offset_bytes");
  EXPECT_EQ(with([](Header&, Set& s) { *s.add_operands() = s.operands(0); }),
            "INVALID_ARGUMENT CHUNK_ORDER operand_set.operands[1].shared");
  EXPECT_EQ(with([](Header&, Set& s) { s.mutable_operands(0)->set_operand(1); }),
            "INVALID_ARGUMENT CHUNK_ORDER operand_set.operands[0].operand");
  EXPECT_EQ(with([](Header&, Set& s) { s.mutable_result()->set_size_bytes(24); }),
            "INVALID_ARGUMENT BAD_PARAMETER " + result + ".size_bytes");
  EXPECT_EQ(with([](Header& h, Set&) {
              *h.mutable_result()->mutable_shared() = Region(kOut + 4096, 32);
            }),
            "INVALID_ARGUMENT BAD_PARAMETER " + result + ".offset_bytes");
  EXPECT_EQ(with([](Header& h, Set& s) {
              h.clear_shared_pool();
              h.mutable_network()->mutable_operands(1)->clear_shared();
              h.mutable_network()->mutable_operands(1)->set_inline_data(std::string(32, '\0'));
              s.clear_operands();
            }),
            "INVALID_ARGUMENT MISSING_FIELD " + result + ".offset_bytes");
}

// What the client holds is reserved once, with the pool.
TEST_F(ContractionSharedTest, IsNotCountedTwice) {
  v1::ContractHeader sent = MatrixProduct();
  const Answer with_room = Contract(&server_, sent), without = Contract(&server_, Shared());
  ASSERT_TRUE(with_room.status.ok() && without.status.ok());
  // 32 bytes each of two operands and the result, in the client's memory; and no copies of them.
  EXPECT_LE(without.accepted->planned_peak_bytes(), with_room.accepted->planned_peak_bytes() - 96);
  EXPECT_GE(without.accepted->planned_peak_bytes(), 0);
  EXPECT_EQ(without.report->memory().plan().total_bytes(),
            without.report->memory().planned_peak_bytes());
  EXPECT_EQ(without.report->memory().plan().total_bytes(),
            without.accepted->memory().total_bytes());
}

// More than the whole budget, if it were counted a second time.
TEST_F(ContractionSharedTest, LargeOperandsFitTheRequestsOwnBudget) {
  TestMemory large("large", 32 * kMiB);
  const auto token = server_.state().shared_memory->Add(large.fd());
  ASSERT_TRUE(token.ok()) << token.status();
  v1::ContractHeader header;
  header.set_shared_pool(*token);
  *AddOperand(&header, {"a", "b"}, v1::DATA_TYPE_FLOAT64, {2048, 1024})->mutable_shared() =
      Region(0, 16 * kMiB);
  SetOutput(&header, {"b"});
  header.mutable_execution()->set_memory_budget_bytes(12 * kMiB);
  header.mutable_execution()->set_threads(1);
  *header.mutable_result()->mutable_shared() = Region(16 * kMiB, 8192);
  const Answer answer = Contract(&server_, header);
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
}

// R15, the server's half: the pool's connection ends while a call runs.
TEST_F(ContractionSharedTest, APoolThatIsVoidServesTheCallsThatHaveIt) {
  BusyExecutor busy(&server_.state().executor, 2);
  ContractClient client(&server_);
  ASSERT_TRUE(client.SendHeader(Shared()));
  client.HalfClose();
  while (server_.state().executor.queued() == 0) std::this_thread::yield();
  server_.state().shared_memory->Remove(token_);
  EXPECT_EQ(Fault(Shared()), "NOT_FOUND NOT_FOUND header.shared_pool");
  EXPECT_EQ(server_.state().shared_memory->figures().pools, 1);
  busy.Release();
  const Answer answer = client.Finish();
  EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
  EXPECT_EQ(Product(), Expected());
  EXPECT_TRUE(ComesToMappings("contraction", 1));  // ours
  // The mapping is counted until it is gone, so a moment longer.
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (server_.state().shared_memory->figures().bytes != 0 &&
         std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  EXPECT_EQ(server_.state().shared_memory->figures().bytes, 0);
  EXPECT_TRUE(server_.AllReleased());
}

TEST_F(ContractionSharedTest, AnEstimateNeedsNoPool) {
  v1::EstimateRequest request;
  *request.mutable_header() = Shared();
  request.mutable_header()->set_shared_pool("gone");
  v1::EstimateResponse response;
  grpc::ClientContext context;
  const grpc::Status status = server_.stub().Estimate(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
}

// The client changes operands while they are read: any numbers may come, nothing else.
TEST_F(ContractionSharedTest, ChangesMeanwhileHurtOnlyTheNumbers) {
  constexpr int64_t kExtent = 200, kBytes = kExtent * kExtent * 8;
  v1::ContractHeader header;
  header.set_shared_pool(token_);
  *AddOperand(&header, {"a", "b"}, v1::DATA_TYPE_FLOAT64, {kExtent, kExtent})->mutable_shared() =
      Region(0, kBytes);
  *AddOperand(&header, {"b", "c"}, v1::DATA_TYPE_FLOAT64, {kExtent, kExtent})->mutable_shared() =
      Region(kBytes, kBytes);
  SetOutput(&header, {"a", "c"});
  *header.mutable_result()->mutable_shared() = Region(2 * kBytes, kBytes);
  std::atomic<bool> done{false};
  std::thread scribbler([&] {
    for (uint32_t x = 1; !done; x = x * 1664525 + 1013904223) {
      auto* words = reinterpret_cast<volatile uint32_t*>(memory_.data());
      words[x % (3 * kBytes / 4)] = x * 2654435761u;
    }
  });
  for (const bool normalize : {false, true}) {
    header.mutable_execution()->set_normalize(normalize);
    for (int i = 0; i < 20; ++i) {
      const Answer answer = Contract(&server_, header);
      EXPECT_TRUE(answer.status.ok()) << answer.status.error_message();
      EXPECT_EQ(answer.results.at(0).report.result_bytes(), kBytes);
    }
  }
  done = true;
  scribbler.join();
}

}  // namespace
}  // namespace tenon::server
