// Large chunks, of every method that takes chunks: the server splits their frames itself. The same
// frame with a field that nobody knows is parsed by protobuf; the call must end in the same way.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backends/core/crc32c.h"
#include "tests/server/job_test_server.h"
#include "tests/server/measurement_test_server.h"
#include "tests/support/chunk_oracle.h"

namespace tenon::server {
namespace {

using ::testing::StartsWith;

constexpr int64_t kFirstBytes = 20'001;  // of the first chunk; the second has the rest

struct Change {
  std::function<void(v1::TensorChunk*)> change;
  const char* code;
  const char* reason;
  const char* field;  // of the chunk
};

std::vector<Change> Changes() {
  return {
      {[](auto*) {}, "OK", "", ""},
      {[](auto* c) { c->set_crc32c(Crc32c(c->data())); }, "OK", "", ""},
      {[](auto* c) { c->set_crc32c(Crc32c(c->data()) + 1); }, "DATA_LOSS", "CHECKSUM_MISMATCH",
       "crc32c"},
      {[](auto* c) { c->set_offset_bytes(kFirstBytes + 1); }, "INVALID_ARGUMENT", "CHUNK_ORDER",
       "offset_bytes"},
      {[](auto* c) { c->set_offset_bytes(-1); }, "INVALID_ARGUMENT", "CHUNK_ORDER", "offset_bytes"},
      {[](auto* c) { c->set_set(-1); }, "INVALID_ARGUMENT", "CHUNK_ORDER", "set"},
      {[](auto* c) { c->set_operand(-1); }, "INVALID_ARGUMENT", "CHUNK_ORDER", "operand"},
      {[](auto* c) { c->mutable_data()->push_back('x'); }, "INVALID_ARGUMENT", "CHUNK_OVERFLOW",
       "data"}};
}

std::string Outcome(const grpc::Status& status, const std::string& result) {
  std::string text = Summary(status) + "\n" + status.error_message() + "\n";
  for (const auto& [key, value] : ErrorOf(status).metadata) text += key + "=" + value + "\n";
  return text + result;
}

// `run` makes a call that sends these chunks, whose frames get an unknown field if `parsed`, and
// tells the outcome. `result` is that of the same bytes on another way.
using Run = std::function<std::string(const std::vector<v1::TensorChunk>& chunks, bool parsed)>;
void CompareWays(const std::string& bytes, const std::string& frame, const std::string& result,
                 const Run& run) {
  for (const Change& change : Changes()) {
    std::vector<v1::TensorChunk> chunks(2);
    chunks[0].set_data(bytes.substr(0, kFirstBytes));
    chunks[1].set_offset_bytes(kFirstBytes);
    chunks[1].set_data(bytes.substr(kFirstBytes));
    change.change(&chunks[1]);
    const std::string split = run(chunks, false);
    EXPECT_TRUE(split == run(chunks, true)) << change.reason << change.field << split.substr(0, 99);
    if (change.code == std::string("OK")) {
      EXPECT_TRUE(split == Outcome(grpc::Status::OK, result)) << split.substr(0, 99);
    } else {
      EXPECT_THAT(split, StartsWith(std::string(change.code) + " " + change.reason + " " + frame +
                                    "." + change.field + "\n"));
    }
  }
}

template <typename Request>
Request AsSent(Request frame, bool parsed) {
  if (parsed) testing::AddUnknownField(&frame);
  return frame;
}

// ab,bc->ac of matrices with 64 rows; without values of the first unless asked for.
v1::ContractHeader Product(const std::string* left = nullptr) {
  constexpr int64_t kRows = 64;
  v1::ContractHeader header;
  std::vector<std::complex<double>> values;
  for (int64_t i = 0; i < kRows * kRows; ++i) values.emplace_back(static_cast<double>(i % 11), 0);
  v1::Operand* operand = AddOperand(&header, {"a", "b"}, v1::DATA_TYPE_FLOAT64, {kRows, kRows});
  if (left != nullptr) operand->set_inline_data(*left);
  AddOperand(&header, {"b", "c"}, v1::DATA_TYPE_FLOAT64, {kRows, kRows}, values);
  SetOutput(&header, {"a", "c"});
  return header;
}

std::string LeftBytes() { return MakeMatrix(64, 64, 1).bytes(); }

TEST(LargeChunkTest, OfAContraction) {
  ContractionTestServer server;
  const std::string left = LeftBytes();
  const auto run = [&](const std::vector<v1::TensorChunk>& chunks, bool parsed) {
    ContractClient client(&server);
    client.SendHeader(Product());
    for (const v1::TensorChunk& chunk : chunks) {
      v1::ContractRequest frame;
      *frame.mutable_chunk() = chunk;
      client.Send(AsSent(frame, parsed));
    }
    client.HalfClose();
    const Answer answer = client.Finish();
    return Outcome(answer.status, answer.results.empty() ? "" : answer.results[0].bytes);
  };
  const Answer whole = Contract(&server, Product(&left));
  ASSERT_EQ(whole.results.size(), 1u) << whole.status.error_message();
  CompareWays(left, "chunk", whole.results[0].bytes, run);
  EXPECT_TRUE(server.AllReleased());
}

TEST(LargeChunkTest, BeforeTheHeader) {
  ContractionTestServer server;
  for (const bool parsed : {false, true}) {
    ContractClient client(&server);
    v1::ContractRequest frame;
    frame.mutable_chunk()->set_data(LeftBytes());
    client.Send(AsSent(frame, parsed));
    const grpc::Status status = client.Finish().status;
    EXPECT_EQ(Summary(status), "INVALID_ARGUMENT FRAME_ORDER chunk");
    EXPECT_EQ(ErrorOf(status).metadata["state"], "START");
  }
}

TEST(LargeChunkTest, OfAJob) {
  const TestFolder folder;
  JobTestServer server(folder.path());
  const std::string left = LeftBytes();
  const auto run = [&](const std::vector<v1::TensorChunk>& chunks, bool parsed) {
    grpc::ClientContext context;
    v1::SubmitContractionResponse response;
    const auto writer = server.stub().SubmitContraction(&context, &response);
    v1::SubmitContractionRequest header;
    *header.mutable_header()->mutable_contraction() = Product();
    writer->Write(header);
    for (const v1::TensorChunk& chunk : chunks) {
      v1::SubmitContractionRequest frame;
      *frame.mutable_chunk() = chunk;
      writer->Write(AsSent(frame, parsed));
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    if (!status.ok()) return Outcome(status, "");
    const v1::Job job = server.Wait(response.job().name());
    return Outcome(status, server.ReadAll(job.name()).bytes);
  };
  const Answer whole = Contract(&server.contraction(), Product(&left));
  ASSERT_EQ(whole.results.size(), 1u) << whole.status.error_message();
  CompareWays(left, "chunk", whole.results[0].bytes, run);
}

// Both kinds of uploads; `Create` is the method of the stub.
template <typename Request, typename Response, typename Create>
void CompareUploads(TestServer* server, Create create,
                    const std::function<std::string(const Response&)>& name) {
  const Matrix matrix = MakeMatrix(64, 64, 1);
  const auto upload = [&](const std::vector<v1::TensorChunk>& chunks, bool parsed) {
    grpc::ClientContext context;
    Response response;
    const auto writer = (server->datasets().*create)(&context, &response);
    Request header;
    SetSpec(matrix.rows, matrix.columns, header.mutable_header()->mutable_spec());
    if (chunks.empty()) header.mutable_header()->set_inline_data(matrix.bytes());
    writer->Write(header);
    for (const v1::TensorChunk& chunk : chunks) {
      Request frame;
      *frame.mutable_chunk() = chunk;
      writer->Write(AsSent(frame, parsed));
    }
    writer->WritesDone();
    const grpc::Status status = writer->Finish();
    return Outcome(status, name(response));
  };
  const std::string whole = upload({}, false);
  ASSERT_THAT(whole, StartsWith("OK\n\n"));
  CompareWays(matrix.bytes(), "chunk", whole.substr(std::strlen("OK\n\n")), upload);
  EXPECT_TRUE(server->AllReleased());
}

// The name is a hash of what is stored.
TEST(LargeChunkTest, OfADataset) {
  TestServer server;
  CompareUploads<v1::CreateDatasetRequest, v1::CreateDatasetResponse>(
      &server, &v1::DatasetService::Stub::CreateDataset,
      [](const v1::CreateDatasetResponse& response) { return response.dataset().name(); });
}

TEST(LargeChunkTest, OfATensor) {
  TestServer server;
  CompareUploads<v1::CreateTensorRequest, v1::CreateTensorResponse>(
      &server, &v1::DatasetService::Stub::CreateTensor,
      [](const v1::CreateTensorResponse& response) { return response.tensor().name(); });
}

// Scores, errors of projections, and how the call ended.
std::string Measure(TestServer* server, const std::vector<v1::MeasureRequest>& frames) {
  MeasureClient client(server);
  std::vector<v1::MeasureItem> items;
  for (const v1::MeasureResponse& frame : client.Exchange(frames)) {
    for (const v1::MeasureItem& item : frame.single().items()) items.push_back(item);
    if (frame.has_scores()) *items.emplace_back().mutable_scores() = frame.scores();
    if (frame.has_item_error()) *items.emplace_back().mutable_error() = frame.item_error();
  }
  std::string result;
  for (const v1::MeasureItem& item : items) {
    if (item.has_error()) result += Summary(item.error().error()) + item.error().error().message();
    for (const auto& spec : item.scores().specs()) {
      const std::map<std::string, double> values(spec.values().begin(), spec.values().end());
      for (const auto& [key, value] : values) result += key + "=" + std::to_string(value) + "\n";
    }
  }
  return Outcome(client.Finish(), result);
}

class LargeMeasureChunkTest : public ::testing::Test {
 protected:
  v1::MeasureRequest WholeHeader() const {
    v1::MeasureRequest frame;
    *frame.mutable_header() = Header(dataset_, {"stress"});
    return frame;
  }

  TestServer server_;
  const Matrix dataset_ = MakeMatrix(256, 16, 1), projection_ = MakeMatrix(256, 16, 2);
  const std::string whole_ =
      Measure(&server_, {WholeHeader(), Frame(InlineProjection(0, projection_))});
};

TEST_F(LargeMeasureChunkTest, OfTheDataset) {
  ASSERT_THAT(whole_, StartsWith("OK\n\nstress="));
  const auto run = [&](const std::vector<v1::TensorChunk>& chunks, bool parsed) {
    std::vector<v1::MeasureRequest> frames = {WholeHeader()};
    frames[0].mutable_header()->mutable_dataset_input()->clear_inline_data();
    for (const v1::TensorChunk& chunk : chunks) {
      v1::MeasureRequest frame;
      *frame.mutable_dataset_chunk() = chunk;
      frames.push_back(AsSent(frame, parsed));
    }
    frames.push_back(Frame(InlineProjection(0, projection_)));
    return Measure(&server_, frames);
  };
  CompareWays(dataset_.bytes(), "dataset_chunk", whole_.substr(std::strlen("OK\n\n")), run);
  EXPECT_TRUE(server_.AllReleased());
}

// A projection that is wrong does not end the call.
TEST_F(LargeMeasureChunkTest, OfAProjection) {
  const std::string bytes = projection_.bytes();
  for (const Change& change : Changes()) {
    std::vector<std::string> outcomes;
    for (const bool parsed : {false, true}) {
      v1::Projection described = InlineProjection(0, projection_);
      described.clear_inline_data();
      v1::MeasureRequest rest = ProjectionChunk(0, kFirstBytes, bytes.substr(kFirstBytes));
      change.change(rest.mutable_projection_chunk());
      outcomes.push_back(
          Measure(&server_, {WholeHeader(), Frame(described),
                             AsSent(ProjectionChunk(0, 0, bytes.substr(0, kFirstBytes)), parsed),
                             AsSent(rest, parsed)}));
    }
    EXPECT_EQ(outcomes[0], outcomes[1]);
    if (change.code == std::string("OK")) {
      EXPECT_EQ(outcomes[0], whole_);
    } else {
      EXPECT_THAT(outcomes[0], ::testing::HasSubstr(std::string(change.reason) +
                                                    " projection_chunk." + change.field));
    }
  }
}

}  // namespace
}  // namespace tenon::server
