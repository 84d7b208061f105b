// The table of client frames of SubmitContraction, cell by cell.

#include <gtest/gtest.h>

#include <string>

#include "tests/server/job_test_server.h"
#include "tests/server/measurement_test_server.h"

namespace tenon::server {
namespace {

enum class State { kStart, kUpload, kComplete };
enum class Event { kHeader, kChunk, kOperandSet, kHalfClose, kEmptyFrame };

struct Cell {
  State state;
  Event event;
  const char* expected;  // Summary of the status
};

std::string Name(const ::testing::TestParamInfo<Cell>& info) {
  static const char* const kStates[] = {"Start", "Upload", "Complete"};
  static const char* const kEvents[] = {"Header", "Chunk", "OperandSet", "HalfClose", "Empty"};
  return std::string(kStates[static_cast<int>(info.param.state)]) + "_" +
         kEvents[static_cast<int>(info.param.event)];
}

class SubmitTableTest : public ::testing::TestWithParam<Cell> {
 protected:
  static std::string Bytes(const std::vector<std::complex<double>>& values) {
    return Encode(v1::DATA_TYPE_FLOAT64, values);
  }
  v1::SubmitContractionRequest Header(bool with_values) {
    v1::SubmitContractionRequest frame;
    *frame.mutable_header() = ProductJob("request", with_values);
    return frame;
  }
  void Chunk(int32_t operand, const std::string& bytes) {
    v1::SubmitContractionRequest frame;
    frame.mutable_chunk()->set_operand(operand);
    frame.mutable_chunk()->set_data(bytes);
    stream_->Write(frame);
  }
  void Send(Event event) {
    v1::SubmitContractionRequest frame;
    switch (event) {
      case Event::kHeader:
        stream_->Write(Header(true));
        return;
      case Event::kChunk:
        return Chunk(1, Bytes(kRight));
      case Event::kOperandSet: {
        v1::OperandData* data = frame.mutable_operand_set()->add_operands();
        data->set_operand(1);
        data->set_data(Bytes(kRight));
        stream_->Write(frame);
        return;
      }
      case Event::kHalfClose:
        stream_->WritesDone();
        return;
      case Event::kEmptyFrame:
        stream_->Write(frame);
        return;
    }
  }

  TestFolder folder_;
  JobTestServer server_{folder_.path()};
  grpc::ClientContext context_;
  v1::SubmitContractionResponse response_;
  std::unique_ptr<grpc::ClientWriter<v1::SubmitContractionRequest>> stream_ =
      server_.stub().SubmitContraction(&context_, &response_);
};

TEST_P(SubmitTableTest, Cell) {
  const Cell& cell = GetParam();
  if (cell.state != State::kStart) stream_->Write(Header(cell.state == State::kComplete));
  Send(cell.event);
  const bool legal = std::string(cell.expected) == "OK";
  if (legal && cell.event != Event::kHalfClose) {
    if (cell.state == State::kUpload) Chunk(0, Bytes(kLeft));
    stream_->WritesDone();
  }
  const grpc::Status status = stream_->Finish();
  EXPECT_EQ(Summary(status), cell.expected) << status.error_message();
  if (legal) {
    const v1::Job job = server_.Wait(response_.job().name());
    EXPECT_EQ(job.state(), v1::JOB_STATE_SUCCEEDED) << job.error().message();
    EXPECT_EQ(Decode(v1::DATA_TYPE_FLOAT64, server_.ReadAll(job.name()).bytes), kProduct);
  } else {
    static const char* const kStates[] = {"START", "UPLOAD", "COMPLETE"};
    const std::string reason = ErrorOf(status).reason;
    if (reason == "FRAME_ORDER" || reason == "TRUNCATED_UPLOAD") {
      EXPECT_EQ(ErrorOf(status).metadata["state"], kStates[static_cast<int>(cell.state)]);
    }
    v1::ListJobsResponse list;
    EXPECT_TRUE(server_.List({}, &list).ok());
    EXPECT_EQ(list.jobs_size(), 0);  // it leaves no job
  }
  EXPECT_TRUE(server_.contraction().AllReleased());
}

INSTANTIATE_TEST_SUITE_P(
    All, SubmitTableTest,
    ::testing::Values(
        Cell{State::kStart, Event::kHeader, "OK"},
        Cell{State::kStart, Event::kChunk, "INVALID_ARGUMENT FRAME_ORDER chunk"},
        Cell{State::kStart, Event::kOperandSet, "INVALID_ARGUMENT FRAME_ORDER operand_set"},
        Cell{State::kStart, Event::kHalfClose, "INVALID_ARGUMENT TRUNCATED_UPLOAD header"},
        Cell{State::kStart, Event::kEmptyFrame, "INVALID_ARGUMENT MISSING_FIELD frame"},
        Cell{State::kUpload, Event::kHeader, "INVALID_ARGUMENT FRAME_ORDER header"},
        Cell{State::kUpload, Event::kChunk, "OK"}, Cell{State::kUpload, Event::kOperandSet, "OK"},
        Cell{State::kUpload, Event::kHalfClose,
             "INVALID_ARGUMENT TRUNCATED_UPLOAD header.contraction.network.operands[0]"},
        Cell{State::kUpload, Event::kEmptyFrame, "INVALID_ARGUMENT MISSING_FIELD frame"},
        Cell{State::kComplete, Event::kHeader, "INVALID_ARGUMENT FRAME_ORDER header"},
        Cell{State::kComplete, Event::kChunk, "INVALID_ARGUMENT FRAME_ORDER chunk"},
        Cell{State::kComplete, Event::kOperandSet, "INVALID_ARGUMENT FRAME_ORDER operand_set"},
        Cell{State::kComplete, Event::kHalfClose, "OK"},
        Cell{State::kComplete, Event::kEmptyFrame, "INVALID_ARGUMENT MISSING_FIELD frame"}),
    Name);

}  // namespace
}  // namespace tenon::server
