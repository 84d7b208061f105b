// What a contraction tells about itself: plan, memory, times.

#ifndef TENON_SERVER_CONTRACTION_REPORT_H_
#define TENON_SERVER_CONTRACTION_REPORT_H_

#include <cstdint>
#include <optional>

#include "backends/schedule/contraction_job.h"
#include "server/contraction_codec.h"
#include "server/timeline.h"
#include "tenon/v1/contraction.pb.h"

namespace tenon::server {

// What the server measured itself, in seconds and bytes; the job knows the rest.
struct CallFigures {
  double queue_seconds = 0;
  double input_receive_seconds = 0;
  double input_prepare_seconds = 0;
  double result_send_seconds = 0;
  double request_seconds = 0;
  int64_t received_bytes = 0;
  int64_t sent_bytes = 0;
  int64_t planned_peak_bytes = 0;  // staging included
  int64_t staging_bytes = 0;
  int64_t sets = 0;
  const Timeline* timeline = nullptr;  // null: nothing is told of it
};

// Multiply-adds of elements for real operations of this type: a complex one is one of eight.
double MultiplyAdds(double real_flops, DType dtype);

TensorSpec ResultSpec(const ContractCall& call, const schedule::ContractionJob& job);

// Of the program, without costs, provenance and path: what brief answers tell.
void WritePlanFigures(const ContractCall& call, const schedule::ContractionJob& job,
                      v1::PlanSummary* out);
void WritePlanSummary(const ContractCall& call, const schedule::ContractionJob& job,
                      v1::PlanSummary* out);
// Costs and slices of the plan in the call's request. `seconds`: predicted; absent without a model.
absl::Status WritePlanCosts(const ContractCall& call, std::optional<double> seconds,
                            v1::PlanImprovement* out);
// What WritePlanSummary tells where no program could be compiled: its flops are without hoisting.
absl::Status WritePlanWithoutProgram(const ContractCall& call, v1::PlanSummary* out);
void WriteMemoryPlan(const schedule::ContractionJob& job, int64_t staging_bytes,
                     v1::MemoryPlan* out);
// `plan`: by WritePlanSummary. `deadline_seconds`: until the call's deadline, absent without one.
void WriteAccepted(const ContractCall& call, const schedule::ContractionJob& job,
                   const v1::PlanSummary& plan, int64_t staging_bytes, const Limits& limits,
                   std::optional<double> deadline_seconds, v1::ContractAccepted* out);
void WriteContractionReport(const ContractCall& call, const schedule::ContractionJob& job,
                            const v1::PlanSummary& plan, const CallFigures& figures,
                            v1::ContractionReport* out);
// The kernels of the first provider.
void WriteKernels(const schedule::ContractionReport::PerProvider& provider, DType dtype,
                  google::protobuf::RepeatedPtrField<v1::KernelUse>* out);

}  // namespace tenon::server

#endif  // TENON_SERVER_CONTRACTION_REPORT_H_
