// Frames that are no messages, in every state of every method that a client streams to.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tenon/v1/contraction.pb.h"
#include "tenon/v1/dataset.pb.h"
#include "tenon/v1/measurement.pb.h"
#include "tests/integration/raw_call.h"
#include "tests/integration/test_server.h"

namespace tenon::testing {
namespace {

v1::TensorSpec Spec(int64_t rows, int64_t columns) {
  v1::TensorSpec spec;
  spec.set_dtype(v1::DATA_TYPE_FLOAT64);
  spec.add_shape(rows);
  spec.add_shape(columns);
  return spec;
}

// Values that are all different.
std::string Values(int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i * i % 17 + i));
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

v1::TensorChunk Chunk(int64_t set, int64_t offset, const std::string& data) {
  v1::TensorChunk chunk;
  chunk.set_set(set);
  chunk.set_offset_bytes(offset);
  chunk.set_data(data);
  return chunk;
}

// Good frames of a call, after any number of which it goes on waiting.
struct Script {
  std::string method;
  std::vector<std::string> frames;
};

// So many that some of the chunks are split without protobuf.
constexpr int64_t kRows = 300;

Script MeasureScript() {
  v1::MeasureRequest header, projection, announced, chunk;
  header.mutable_header()->add_specs()->set_id("stress");
  *header.mutable_header()->mutable_dataset_input()->mutable_spec() = Spec(kRows, 3);
  v1::MeasureRequest dataset_begin, dataset_end;
  const std::string dataset = Values(kRows * 3);
  *dataset_begin.mutable_dataset_chunk() = Chunk(0, 0, dataset.substr(0, 80));
  *dataset_end.mutable_dataset_chunk() = Chunk(0, 80, dataset.substr(80));
  header.mutable_header()->mutable_client_stream();
  *projection.mutable_projection()->mutable_spec() = Spec(kRows, 2);
  announced = projection;
  projection.mutable_projection()->set_inline_data(Values(kRows * 2));
  announced.mutable_projection()->set_index(1);
  *chunk.mutable_projection_chunk() = Chunk(1, 0, Values(1));
  Script script{"/tenon.v1.MeasurementService/Measure", {}};
  for (const auto& frame : {header, dataset_begin, dataset_end, projection, announced, chunk}) {
    script.frames.push_back(frame.SerializeAsString());
  }
  return script;
}

// ab,bc->ac, of which the second operand varies: between sets more may always come.
Script ContractScript() {
  v1::ContractRequest header, left, set, chunk;
  v1::Einsum* einsum = header.mutable_header()->mutable_einsum();
  einsum->set_subscripts("ab,bc->ac");
  constexpr int64_t kOrder = 24;
  *einsum->add_operands()->mutable_spec() = Spec(kOrder, kOrder);
  *einsum->add_operands()->mutable_spec() = Spec(kOrder, kOrder);
  einsum->mutable_operands(1)->set_varying(true);
  *left.mutable_chunk() = Chunk(0, 0, Values(kOrder * kOrder));
  v1::OperandData* data = set.mutable_operand_set()->add_operands();
  data->set_operand(1);
  data->set_data(Values(kOrder * kOrder));
  *chunk.mutable_chunk() = Chunk(1, 0, Values(1));
  chunk.mutable_chunk()->set_operand(1);
  Script script{"/tenon.v1.ContractionService/Contract", {}};
  for (const auto& frame : {header, left, set, chunk}) {
    script.frames.push_back(frame.SerializeAsString());
  }
  return script;
}

template <typename Request>
Script UploadScript(const std::string& method) {
  Request header, first, rest;
  *header.mutable_header()->mutable_spec() = Spec(kRows, 3);
  const std::string bytes = Values(kRows * 3);
  *first.mutable_chunk() = Chunk(0, 0, bytes.substr(0, 80));
  *rest.mutable_chunk() = Chunk(0, 80, bytes.substr(80));
  Script script{"/tenon.v1.DatasetService/" + method, {}};
  for (const auto& frame : {header, first, rest}) {
    script.frames.push_back(frame.SerializeAsString());
  }
  return script;
}

std::vector<Script> Scripts() {
  return {MeasureScript(), ContractScript(),
          UploadScript<v1::CreateDatasetRequest>("CreateDataset"),
          UploadScript<v1::CreateTensorRequest>("CreateTensor")};
}

// What no method takes: garbage, a frame that is cut off, a text that is not UTF-8, a large chunk
// that is cut off or has something behind it.
std::vector<std::string> BadFrames(const Script& script) {
  v1::MeasureRequest text, chunk;  // the same fields in all four methods
  text.mutable_header()->set_request_id("\xff");
  *chunk.mutable_dataset_chunk() = Chunk(0, 0, Values(kRows * 3));
  const std::string large = chunk.SerializeAsString();
  return {std::string(7, '\xff'), script.frames[0].substr(0, script.frames[0].size() - 1),
          text.SerializeAsString(), large.substr(0, large.size() - 1), large + '\xff'};
}

google::rpc::ErrorInfo ErrorInfoOf(const grpc::Status& status) {
  google::rpc::Status details;
  google::rpc::ErrorInfo info;
  details.ParseFromString(status.error_details());
  for (const auto& any : details.details()) {
    if (any.UnpackTo(&info)) break;
  }
  return info;
}

TEST(MalformedFrameTest, EndsEveryStreamInEveryStateAndIsNoHalfClose) {
  const auto server = StartOrDie(TestConfig());
  ASSERT_TRUE(server->WaitUntilReady());
  const auto channel = ChannelTo(server->addresses()[0]);
  for (const Script& script : Scripts()) {
    for (const std::string& bad : BadFrames(script)) {
      for (size_t good = 0; good <= script.frames.size(); ++good) {
        RawCall call(channel, script.method);
        for (size_t i = 0; i < good; ++i) ASSERT_TRUE(call.Write(script.frames[i]));
        call.Write(bad);
        while (call.Read().has_value()) {
        }
        const grpc::Status status = call.Finish();
        const google::rpc::ErrorInfo info = ErrorInfoOf(status);
        EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << script.method << good;
        ASSERT_EQ(info.reason(), "MALFORMED_FRAME") << script.method << status.error_message();
        EXPECT_EQ(info.metadata().at("frame_number"), std::to_string(good + 1)) << script.method;
        EXPECT_EQ(info.metadata().at("actual_bytes"), std::to_string(bad.size())) << script.method;
      }
    }
  }
}

}  // namespace
}  // namespace tenon::testing
