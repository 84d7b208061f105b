#include "tests/load/frame_scripts.h"

#include <cstdint>
#include <utility>

#include "tenon/v1/contraction.pb.h"
#include "tenon/v1/dataset.pb.h"
#include "tenon/v1/job.pb.h"
#include "tenon/v1/measurement.pb.h"

namespace tenon::testing {
namespace {

constexpr int64_t kRows = 12;

template <typename Request>
GoodCall Call(const char* method, const std::vector<Request>& frames) {
  GoodCall call{method, &Request::default_instance(), {}};
  for (const Request& frame : frames) call.frames.push_back(frame.SerializeAsString());
  return call;
}

// Values that are all different.
std::string Values(int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(static_cast<double>(i * i % 17 + i));
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)};
}

void SetSpec(const std::vector<int64_t>& shape, v1::TensorSpec* spec) {
  spec->set_dtype(v1::DATA_TYPE_FLOAT64);
  spec->mutable_shape()->Assign(shape.begin(), shape.end());
}

v1::TensorChunk Chunk(int64_t set, int32_t operand, int64_t offset, std::string data) {
  v1::TensorChunk chunk;
  chunk.set_set(set);
  chunk.set_operand(operand);
  chunk.set_offset_bytes(offset);
  chunk.set_data(std::move(data));
  return chunk;
}

v1::ContractHeader Product(bool with_values) {
  v1::ContractHeader header;
  header.mutable_einsum()->set_subscripts("ab,bc->ac");
  for (int k = 0; k < 2; ++k) {
    v1::Operand* operand = header.mutable_einsum()->add_operands();
    SetSpec({4, 4}, operand->mutable_spec());
    if (with_values) operand->set_inline_data(Values(16));
  }
  return header;
}

// The operands of Product in chunks of half an operand.
template <typename Request>
std::vector<Request> ProductChunks() {
  std::vector<Request> frames;
  const std::string bytes = Values(16);
  for (const int32_t operand : {0, 1}) {
    for (const int64_t offset : {0, 64}) {
      *frames.emplace_back().mutable_chunk() =
          Chunk(0, operand, offset, bytes.substr(static_cast<size_t>(offset), 64));
    }
  }
  return frames;
}

GoodCall ContractInline() {
  v1::ContractRequest frame;
  *frame.mutable_header() = Product(true);
  return Call("/tenon.v1.ContractionService/Contract", std::vector{frame});
}

GoodCall ContractChunks() {
  std::vector<v1::ContractRequest> frames(1);
  *frames[0].mutable_header() = Product(false);
  frames[0].mutable_header()->mutable_execution()->set_progress_interval_seconds(0.001);
  for (auto& frame : ProductChunks<v1::ContractRequest>()) frames.push_back(std::move(frame));
  return Call("/tenon.v1.ContractionService/Contract", frames);
}

// Of named indices, along a path with a slice; the second operand varies.
GoodCall ContractSets() {
  std::vector<v1::ContractRequest> frames(1);
  v1::ContractHeader* header = frames[0].mutable_header();
  const std::vector<std::vector<std::string>> indices = {{"i", "j"}, {"j", "k"}, {"k", "i"}};
  for (const auto& names : indices) {
    v1::Operand* operand = header->mutable_network()->add_operands();
    for (const std::string& name : names) operand->add_indices(name);
    SetSpec({4, 4}, operand->mutable_spec());
    operand->set_varying(names[0] == "j");
  }
  header->mutable_network()->add_output("i");
  v1::ExplicitPlan* plan = header->mutable_path();
  plan->mutable_path()->set_format(v1::PATH_FORMAT_SSA);
  for (const auto& [a, b] : {std::pair{0, 1}, std::pair{3, 2}}) {
    auto* step = plan->mutable_path()->add_steps();
    step->add_operands(a);
    step->add_operands(b);
  }
  plan->add_sliced_indices("k");
  *frames.emplace_back().mutable_chunk() = Chunk(0, 0, 0, Values(16));
  *frames.emplace_back().mutable_chunk() = Chunk(0, 2, 0, Values(16));
  for (int64_t set = 0; set < 3; ++set) {
    v1::OperandSet* operands = frames.emplace_back().mutable_operand_set();
    operands->set_set(set);
    operands->add_operands()->set_operand(1);
    operands->mutable_operands(0)->set_data(Values(16));
  }
  return Call("/tenon.v1.ContractionService/Contract", frames);
}

v1::MeasureRequest MeasureHeader(bool with_dataset) {
  v1::MeasureRequest frame;
  v1::MeasureHeader* header = frame.mutable_header();
  header->add_specs()->set_id("stress");
  v1::DatasetInput* input = header->mutable_dataset_input();
  SetSpec({kRows, 3}, input->mutable_spec());
  if (with_dataset) input->set_inline_data(Values(kRows * 3));
  return frame;
}

v1::Projection Projection(int64_t index, bool with_values) {
  v1::Projection projection;
  projection.set_index(index);
  SetSpec({kRows, 2}, projection.mutable_spec());
  if (with_values) projection.set_inline_data(Values(kRows * 2));
  return projection;
}

GoodCall MeasureInline() {
  v1::MeasureRequest frame = MeasureHeader(true);
  auto* projections = frame.mutable_header()->mutable_inline_projections();
  for (const int64_t index : {0, 1}) *projections->add_projections() = Projection(index, true);
  return Call("/tenon.v1.MeasurementService/Measure", std::vector{frame});
}

// Everything in frames of its own, labels too; the data set is kept.
GoodCall MeasureStream() {
  std::vector<v1::MeasureRequest> frames = {MeasureHeader(false)};
  v1::MeasureHeader* header = frames[0].mutable_header();
  auto* spec = header->add_specs();
  spec->set_id("nh");
  spec->mutable_neighborhood_hit()->set_k(3);
  header->set_labels_follow(true);
  header->mutable_client_stream()->set_expected_projections(3);
  header->mutable_dataset_input()->set_keep(true);
  header->set_return_local(true);
  const std::string dataset = Values(kRows * 3), projection = Values(kRows * 2);
  *frames.emplace_back().mutable_dataset_chunk() = Chunk(0, 0, 0, dataset.substr(0, 80));
  *frames.emplace_back().mutable_dataset_chunk() = Chunk(0, 0, 80, dataset.substr(80));
  for (int i = 0; i < kRows; ++i) {
    if (i % 6 == 0) frames.emplace_back();
    frames.back().mutable_labels()->mutable_int64s()->add_values(i % 2);
  }
  *frames.emplace_back().mutable_projection() = Projection(0, true);
  *frames.emplace_back().mutable_projection() = Projection(1, false);
  *frames.emplace_back().mutable_projection_chunk() = Chunk(1, 0, 0, projection.substr(0, 64));
  *frames.emplace_back().mutable_projection_chunk() = Chunk(1, 0, 64, projection.substr(64));
  *frames.emplace_back().mutable_projection() = Projection(2, true);
  return Call("/tenon.v1.MeasurementService/Measure", frames);
}

GoodCall MeasureStopped() {
  std::vector<v1::MeasureRequest> frames = {MeasureHeader(true)};
  frames[0].mutable_header()->mutable_client_stream();
  *frames.emplace_back().mutable_projection() = Projection(0, true);
  frames.emplace_back().mutable_stop();
  return Call("/tenon.v1.MeasurementService/Measure", frames);
}

template <typename Request>
GoodCall Upload(const char* method, bool with_values) {
  std::vector<Request> frames(1);
  SetSpec({kRows, 3}, frames[0].mutable_header()->mutable_spec());
  const std::string bytes = Values(kRows * 3);
  if (with_values) {
    frames[0].mutable_header()->set_inline_data(bytes);
  } else {
    *frames.emplace_back().mutable_chunk() = Chunk(0, 0, 0, bytes.substr(0, 80));
    *frames.emplace_back().mutable_chunk() = Chunk(0, 0, 80, bytes.substr(80));
  }
  return Call(method, frames);
}

template <typename Request>
GoodCall AboutJob(const char* method, const std::string& name) {
  Request request;
  request.set_name(name);
  return Call(method, std::vector{request});
}

}  // namespace

std::vector<GoodCall> GoodCalls() {
  constexpr char kCreateDataset[] = "/tenon.v1.DatasetService/CreateDataset";
  constexpr char kCreateTensor[] = "/tenon.v1.DatasetService/CreateTensor";
  return {ContractInline(),
          ContractChunks(),
          ContractSets(),
          MeasureInline(),
          MeasureStream(),
          MeasureStopped(),
          Upload<v1::CreateDatasetRequest>(kCreateDataset, true),
          Upload<v1::CreateDatasetRequest>(kCreateDataset, false),
          Upload<v1::CreateTensorRequest>(kCreateTensor, true),
          Upload<v1::CreateTensorRequest>(kCreateTensor, false),
          Submission(false),
          Submission(true)};
}

std::vector<GoodCall> JobCalls(const std::vector<std::string>& jobs) {
  size_t next = 0;
  const auto name = [&] { return jobs[next++ % jobs.size()]; };
  return {AboutJob<v1::GetJobRequest>("/tenon.v1.JobService/GetJob", name()),
          AboutJob<v1::WatchJobRequest>("/tenon.v1.JobService/WatchJob", name()),
          AboutJob<v1::ReadResultRequest>("/tenon.v1.JobService/ReadResult", name()),
          AboutJob<v1::CancelJobRequest>("/tenon.v1.JobService/CancelJob", name()),
          AboutJob<v1::DeleteJobRequest>("/tenon.v1.JobService/DeleteJob", name()),
          Call("/tenon.v1.JobService/ListJobs", std::vector{v1::ListJobsRequest()})};
}

GoodCall Submission(bool with_values) {
  std::vector<v1::SubmitContractionRequest> frames(1);
  v1::SubmitContractionHeader* header = frames[0].mutable_header();
  *header->mutable_contraction() = Product(with_values);
  header->set_ttl_seconds(1);
  if (with_values) {  // sent again it is the same job
    header->mutable_contraction()->set_request_id("request");
  } else {
    for (auto& frame : ProductChunks<v1::SubmitContractionRequest>()) {
      frames.push_back(std::move(frame));
    }
  }
  return Call("/tenon.v1.JobService/SubmitContraction", frames);
}

}  // namespace tenon::testing
