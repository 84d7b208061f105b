// The table of client frames of ContractionService, cell by cell, and what a legal frame can still
// do wrong.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backends/core/crc32c.h"
#include "tests/server/contraction_test_server.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

enum class State { kStart, kReading, kBetweenSets, kComplete };
enum class Event { kHeader, kChunk, kOperandSet, kHalfClose, kEmptyFrame };

constexpr char kLegal[] = "OK";

struct Cell {
  State state;
  Event event;
  const char* expected;  // Summary of the status, or kLegal
};

std::string Name(const ::testing::TestParamInfo<Cell>& info) {
  static const char* const kStates[] = {"Start", "Reading", "BetweenSets", "Complete"};
  static const char* const kEvents[] = {"Header", "Chunk", "OperandSet", "HalfClose", "Empty"};
  return std::string(kStates[static_cast<int>(info.param.state)]) + "_" +
         kEvents[static_cast<int>(info.param.event)];
}

std::string Bytes(const std::vector<std::complex<double>>& values) {
  return Encode(v1::DATA_TYPE_FLOAT64, values);
}

// The product with the right operand varying; set 0 is complete with the header.
v1::ContractHeader VaryingProduct() {
  v1::ContractHeader header = MatrixProduct();
  header.mutable_network()->mutable_operands(1)->set_varying(true);
  return header;
}

class FrameTableTest : public ::testing::TestWithParam<Cell> {
 protected:
  static constexpr int kThreads = 2;

  // Brings the stream into the state; `busy_` keeps a complete request from being answered.
  void Enter(State state) {
    switch (state) {
      case State::kStart:
        return;
      case State::kReading:
        client_.SendHeader(MatrixProduct(false));
        ASSERT_TRUE(client_.Read().has_accepted());
        return;
      case State::kBetweenSets:
        client_.SendHeader(VaryingProduct());
        ASSERT_TRUE(client_.Read().has_accepted());
        return;
      case State::kComplete:
        busy_ = std::make_unique<BusyExecutor>(&server_.state().executor, kThreads);
        client_.SendHeader(MatrixProduct());
        return;
    }
  }

  void Send(Event event, int64_t set) {
    switch (event) {
      case Event::kHeader:
        client_.SendHeader(MatrixProduct());
        return;
      case Event::kChunk:
        client_.SendChunk(set, 1, 0, Bytes(kRight));
        return;
      case Event::kOperandSet:
        client_.SendSet(set, {{1, Bytes(kRight)}});
        return;
      case Event::kHalfClose:
        client_.HalfClose();
        return;
      case Event::kEmptyFrame:
        client_.Send(v1::ContractRequest());
        return;
    }
  }

  // Makes a legal call whole, so that it must end well.
  void Complete(State state, Event event) {
    if (state == State::kReading && event != Event::kHalfClose) {
      client_.SendChunk(0, 0, 0, Bytes(kLeft));
    }
    if (event != Event::kHalfClose && state != State::kStart) client_.HalfClose();
    busy_.reset();
  }

  ContractionTestServer server_;
  ContractClient client_{&server_};
  std::unique_ptr<BusyExecutor> busy_;
};

TEST_P(FrameTableTest, Cell) {
  const Cell& cell = GetParam();
  Enter(cell.state);
  Send(cell.event, cell.state == State::kBetweenSets ? 1 : 0);
  if (cell.expected == std::string(kLegal)) Complete(cell.state, cell.event);
  const Answer answer = client_.Finish();
  busy_.reset();
  EXPECT_EQ(Summary(answer.status), cell.expected) << answer.status.error_message();
  EXPECT_EQ(answer.order_error, "");
  for (const ReceivedResult& result : answer.results) {
    EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, result.bytes), kProduct);
  }
  if (answer.status.ok()) {
    const bool second_set = cell.state == State::kBetweenSets && cell.event != Event::kHalfClose;
    EXPECT_EQ(answer.results.size(), second_set ? 2u : 1u);
  }
  if (ErrorOf(answer.status).reason == "FRAME_ORDER") {
    static const char* const kStates[] = {"START", "READING", "BETWEEN_SETS", "COMPLETE"};
    EXPECT_EQ(ErrorOf(answer.status).metadata["state"], kStates[static_cast<int>(cell.state)]);
    EXPECT_EQ(ErrorOf(answer.status).metadata["frame"], ErrorOf(answer.status).field);
  }
  EXPECT_TRUE(server_.AllReleased());
}

INSTANTIATE_TEST_SUITE_P(
    All, FrameTableTest,
    ::testing::Values(
        Cell{State::kStart, Event::kHeader, kLegal},
        Cell{State::kStart, Event::kChunk, "INVALID_ARGUMENT FRAME_ORDER chunk"},
        Cell{State::kStart, Event::kOperandSet, "INVALID_ARGUMENT FRAME_ORDER operand_set"},
        Cell{State::kStart, Event::kHalfClose, "INVALID_ARGUMENT TRUNCATED_UPLOAD header"},
        Cell{State::kStart, Event::kEmptyFrame, "INVALID_ARGUMENT MISSING_FIELD frame"},
        Cell{State::kReading, Event::kHeader, "INVALID_ARGUMENT FRAME_ORDER header"},
        Cell{State::kReading, Event::kChunk, kLegal},
        Cell{State::kReading, Event::kOperandSet, kLegal},
        Cell{State::kReading, Event::kHalfClose,
             "INVALID_ARGUMENT TRUNCATED_UPLOAD header.network.operands[0]"},
        Cell{State::kReading, Event::kEmptyFrame, "INVALID_ARGUMENT MISSING_FIELD frame"},
        Cell{State::kBetweenSets, Event::kHeader, "INVALID_ARGUMENT FRAME_ORDER header"},
        Cell{State::kBetweenSets, Event::kChunk, kLegal},
        Cell{State::kBetweenSets, Event::kOperandSet, kLegal},
        Cell{State::kBetweenSets, Event::kHalfClose, kLegal},
        Cell{State::kBetweenSets, Event::kEmptyFrame, "INVALID_ARGUMENT MISSING_FIELD frame"},
        Cell{State::kComplete, Event::kHeader, "INVALID_ARGUMENT FRAME_ORDER header"},
        Cell{State::kComplete, Event::kChunk, "INVALID_ARGUMENT FRAME_ORDER chunk"},
        Cell{State::kComplete, Event::kOperandSet, "INVALID_ARGUMENT FRAME_ORDER operand_set"},
        Cell{State::kComplete, Event::kHalfClose, kLegal},
        Cell{State::kComplete, Event::kEmptyFrame, "INVALID_ARGUMENT MISSING_FIELD frame"}),
    Name);

class LegalFrameTest : public ::testing::Test {
 protected:
  // Starts a call whose bytes come in frames.
  std::unique_ptr<ContractClient> Begin(const v1::ContractHeader& header) {
    auto client = std::make_unique<ContractClient>(&server_);
    client->SendHeader(header);
    EXPECT_TRUE(client->Read().has_accepted());
    return client;
  }
  std::unique_ptr<ContractClient> Begin() { return Begin(MatrixProduct(false)); }

  ContractionTestServer server_;
  const std::string left_ = Bytes(kLeft), right_ = Bytes(kRight);
};

TEST_F(LegalFrameTest, TwoHeadersWithBytesMissing) {
  auto client = Begin();
  client->SendHeader(MatrixProduct());
  EXPECT_EQ(Summary(client->Finish().status), "INVALID_ARGUMENT FRAME_ORDER header");
}

// After the last byte nothing may come, whoever brought it.
TEST_F(LegalFrameTest, ChunkAfterTheLastByte) {
  auto client = Begin();
  BusyExecutor busy(&server_.state().executor, 2);
  client->SendChunk(0, 0, 0, left_);
  client->SendChunk(0, 1, 0, right_);
  client->SendChunk(0, 1, 32, "x");
  const Answer answer = client->Finish();
  EXPECT_EQ(Summary(answer.status), "INVALID_ARGUMENT FRAME_ORDER chunk");
  EXPECT_EQ(ErrorOf(answer.status).metadata["state"], "COMPLETE");
  busy.Release();
  EXPECT_TRUE(server_.AllReleased());
}

TEST_F(LegalFrameTest, OperandsMayInterleave) {
  auto client = Begin();
  client->SendChunk(0, 1, 0, right_.substr(0, 5));
  client->SendChunk(0, 0, 0, left_.substr(0, 17));
  client->SendChunk(0, 1, 5, right_.substr(5));
  client->SendChunk(0, 0, 17, left_.substr(17));
  const Answer answer = client->Finish();  // without half-close
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, answer.results.at(0).bytes), kProduct);
}

struct BadChunk {
  const char* name;
  int64_t set;
  int32_t operand;
  int64_t offset;
  size_t bytes;
  const char* expected;
};

class BadChunkTest : public LegalFrameTest, public ::testing::WithParamInterface<BadChunk> {};

// After 8 of the 32 bytes of operand 0.
TEST_P(BadChunkTest, IsRefused) {
  const BadChunk& bad = GetParam();
  auto client = Begin();
  client->SendChunk(0, 0, 0, left_.substr(0, 8));
  client->SendChunk(bad.set, bad.operand, bad.offset, std::string(bad.bytes, '\0'));
  EXPECT_EQ(Summary(client->Finish().status), bad.expected);
  EXPECT_TRUE(server_.AllReleased());
}

INSTANTIATE_TEST_SUITE_P(
    All, BadChunkTest,
    ::testing::Values(
        BadChunk{"Gap", 0, 0, 16, 8, "INVALID_ARGUMENT CHUNK_ORDER chunk.offset_bytes"},
        BadChunk{"Overlap", 0, 0, 0, 8, "INVALID_ARGUMENT CHUNK_ORDER chunk.offset_bytes"},
        BadChunk{"NegativeOffset", 0, 0, -8, 8, "INVALID_ARGUMENT CHUNK_ORDER chunk.offset_bytes"},
        BadChunk{"TooManyBytes", 0, 0, 8, 25, "INVALID_ARGUMENT CHUNK_OVERFLOW chunk.data"},
        BadChunk{"NoBytes", 0, 0, 8, 0, "INVALID_ARGUMENT MISSING_FIELD chunk.data"},
        BadChunk{"AboveTheGrantedSize", 0, 0, 8, 4'193'281,
                 "INVALID_ARGUMENT CHUNK_OVERFLOW chunk.data"},
        BadChunk{"NextSet", 1, 0, 8, 8, "INVALID_ARGUMENT CHUNK_ORDER chunk.set"},
        BadChunk{"NegativeSet", -1, 0, 8, 8, "INVALID_ARGUMENT CHUNK_ORDER chunk.set"},
        BadChunk{"UnknownOperand", 0, 2, 0, 8, "INVALID_ARGUMENT CHUNK_ORDER chunk.operand"},
        BadChunk{"NegativeOperand", 0, -1, 0, 8, "INVALID_ARGUMENT CHUNK_ORDER chunk.operand"}),
    [](const auto& info) { return info.param.name; });

TEST_F(LegalFrameTest, BytesThatTheHeaderHasBrought) {
  v1::ContractHeader header = MatrixProduct();
  header.mutable_network()->mutable_operands(1)->clear_inline_data();
  auto client = Begin(header);
  client->SendChunk(0, 0, 0, left_);
  EXPECT_EQ(Summary(client->Finish().status), "INVALID_ARGUMENT CHUNK_ORDER chunk.offset_bytes");
  client = Begin(header);
  client->SendSet(0, {{0, left_}});
  EXPECT_EQ(Summary(client->Finish().status),
            "INVALID_ARGUMENT CHUNK_ORDER operand_set.operands[0].data");
}

TEST_F(LegalFrameTest, BadOperandSets) {
  const auto refusal = [&](int64_t set,
                           const std::vector<std::pair<int32_t, std::string>>& operands) {
    auto client = Begin();
    client->SendSet(set, operands);
    return Summary(client->Finish().status);
  };
  EXPECT_EQ(refusal(1, {{0, left_}}), "INVALID_ARGUMENT CHUNK_ORDER operand_set.set");
  EXPECT_EQ(refusal(0, {{0, left_}, {2, left_}}),
            "INVALID_ARGUMENT CHUNK_ORDER operand_set.operands[1].operand");
  EXPECT_EQ(refusal(0, {{0, left_.substr(1)}}),
            "INVALID_ARGUMENT SHAPE_MISMATCH operand_set.operands[0].data");
  EXPECT_EQ(refusal(0, {{0, left_}, {0, left_}}),
            "INVALID_ARGUMENT CHUNK_ORDER operand_set.operands[1].data");
  EXPECT_EQ(refusal(0, {{0, std::string(65536, 'x')}}),
            "FAILED_PRECONDITION EXCEEDS_SERVER_LIMIT operand_set.operands[0].data");
}

TEST_F(LegalFrameTest, ChecksumsAreChecked) {
  auto client = Begin();
  client->SendChunk(0, 0, 0, left_, Crc32c(left_));
  client->SendChunk(0, 1, 0, right_, Crc32c(right_) ^ 1);
  EXPECT_EQ(Summary(client->Finish().status), "DATA_LOSS CHECKSUM_MISMATCH chunk.crc32c");
  client = Begin();
  client->SendChunk(0, 0, 0, left_, Crc32c(left_));
  client->SendChunk(0, 1, 0, right_, Crc32c(right_));
  EXPECT_TRUE(client->Finish().status.ok());
}

TEST_F(LegalFrameTest, HalfCloseInsideAnOperandTellsWhatIsMissing) {
  auto client = Begin();
  client->SendChunk(0, 0, 0, left_);
  client->SendChunk(0, 1, 0, right_.substr(0, 8));
  client->HalfClose();
  CallError error = ErrorOf(client->Finish().status);
  EXPECT_EQ(error.reason, "TRUNCATED_UPLOAD");
  EXPECT_EQ(error.field, "header.network.operands[1]");
  EXPECT_EQ(error.metadata["operand"], "1");
  EXPECT_EQ(error.metadata["expected_bytes"], "32");
  EXPECT_EQ(error.metadata["actual_bytes"], "8");
}

// (*) of the table: only varying operands are missing, and nothing of them has come.
TEST_F(LegalFrameTest, HalfCloseBeforeTheFirstSet) {
  v1::ContractHeader header = VaryingProduct();
  header.mutable_network()->mutable_operands(1)->clear_inline_data();
  auto client = Begin(header);
  client->HalfClose();
  const Answer answer = client->Finish();
  EXPECT_TRUE(answer.status.ok()) << Summary(answer.status);
  EXPECT_TRUE(answer.results.empty());
  EXPECT_EQ(answer.report->sets(), 0);

  client = Begin(header);
  client->SendChunk(0, 1, 0, right_.substr(0, 8));
  client->HalfClose();
  EXPECT_EQ(ErrorOf(client->Finish().status).reason, "TRUNCATED_UPLOAD");
}

TEST_F(LegalFrameTest, FixedOperandsComeInSetZeroOnly) {
  auto client = Begin(VaryingProduct());
  client->SendChunk(1, 0, 0, left_);
  EXPECT_EQ(Summary(client->Finish().status), "INVALID_ARGUMENT CHUNK_ORDER chunk.operand");
  client = Begin(VaryingProduct());
  client->SendChunk(2, 1, 0, right_);
  EXPECT_EQ(Summary(client->Finish().status), "INVALID_ARGUMENT CHUNK_ORDER chunk.set");
}

// A set of operands without bytes is announced by an empty operand_set.
TEST_F(LegalFrameTest, SetsWithoutBytes) {
  v1::ContractHeader header;
  AddOperand(&header, {"a", "b"}, v1::DATA_TYPE_FLOAT64, {2, 0})->set_varying(true);
  SetOutput(&header, {"a"});
  auto client = Begin(header);
  client->SendSet(1, {});
  client->SendSet(2, {});
  client->HalfClose();
  const Answer answer = client->Finish();
  ASSERT_TRUE(answer.status.ok()) << Summary(answer.status);
  ASSERT_EQ(answer.results.size(), 3u);
  for (const ReceivedResult& result : answer.results) {
    EXPECT_EQ(result.bytes, std::string(16, '\0'));
  }
}

}  // namespace
}  // namespace tenon::server
