// From the header of a contraction to the engine's request. Nothing here keeps state.

#ifndef TENON_SERVER_CONTRACTION_CODEC_H_
#define TENON_SERVER_CONTRACTION_CODEC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "backends/contraction/expression.h"
#include "backends/core/tensor.h"
#include "backends/plugin/provider.h"
#include "backends/schedule/contraction_job.h"
#include "server/content_store.h"
#include "server/search_options.h"
#include "server/state.h"
#include "tenon/v1/contraction.pb.h"

namespace tenon::server {

// Buffers of a call with varying operands: of sets that arrive or are being computed, and of
// results that are being computed or wait for the client. As many for each set of those that are
// computed together.
constexpr int kInputBuffers = 2;
constexpr int kResultBuffers = 2;

// Where the bytes of one operand come from: `stored`, `inline_bytes`, or frames that follow.
struct OperandSource {
  TensorSpec spec;  // as on the wire or in the store
  bool varying = false;
  std::optional<std::string> inline_bytes;  // as many as the spec says
  std::shared_ptr<const StoredContent> stored;
};

// A checked header.
struct ContractCall {
  std::string request_id;  // never empty
  schedule::ContractionRequest request;
  std::vector<std::shared_ptr<plugin::Provider>> providers;
  std::vector<OperandSource> operands;
  DType result_dtype = DType::kUnspecified;
  int64_t result_chunk_bytes = 0;
  bool checksums = false;
  v1::ReportDetail detail = v1::REPORT_DETAIL_FULL;
  std::optional<double> progress_interval_seconds;
  std::optional<double> max_queue_seconds;
  std::string required_fingerprint;
  // Bytes that staging buffers and the engine's plan may have together.
  int64_t memory_budget_bytes = 0;
  bool budget_is_the_servers = false;                                 // the request named none
  std::string budget_field = "header.execution.memory_budget_bytes";  // that set it
  // Prefixes of the wire's fields for errors of the engine.
  std::string expression_field;  // "header.network." or "header.einsum."
  std::string plan_field;        // "header.path." or "header.search.initial."
  v1::PlanSource plan_source = v1::PLAN_SOURCE_SEARCH;
  // What is asked of the planner; absent when the request brings its path, or names a plan.
  std::optional<PlanQuestion> question;
  std::string plan_id;  // the plan that the request names, or that was found
  // How the plan was made; absent for the request's own path and the engine's own.
  std::optional<v1::PlanProvenance> provenance;

  bool varies() const;
  // Every operand came with the header, so that no frame may follow.
  bool complete() const;
};

// What a header is for: an estimate needs no bytes (inline data is ignored, a handle only tells the
// type and shape, and neither need be there), and operands without a spec take their shape from the
// index sizes and have the default type.
enum class HeaderUse { kContract, kEstimate };

// Checks everything that can be checked without planning and moves the inline data out. Errors'
// fields start with "header.". Options that are accepted and have no effect yet: priority (one
// class), deterministic (one provider always is; several with it are refused) and reduced precision
// (never used).
absl::StatusOr<ContractCall> DecodeHeader(v1::ContractHeader* header, const ServerState& state,
                                          HeaderUse use, DType default_dtype = DType::kComplex128);

// An error of the engine with its fields as paths of the header. A memory budget that the request
// did not name is the server's limit: EXCEEDS_MEMORY_BUDGET becomes EXCEEDS_SERVER_LIMIT then.
absl::Status AsContractHeaderError(const absl::Status& status, const ContractCall& call);

// An error of a request whose fields are those of a header but stand alone: "search.seed".
absl::Status WithoutHeader(const absl::Status& status);

// The expression of the call's operands. Errors as MakeExpression, with the header's fields.
absl::StatusOr<contraction::Expression> ExpressionOf(const ContractCall& call);

// The request's plan of memory with what the server holds beside it; all in bytes, capped at 2^50.
//
// The engine's plan counts every operand and the result once, in the compute type. Beyond that are:
// bytes of another type as they arrive; a second buffer for varying operands, so that a set is
// received while the one before runs; a second result, so that one is sent while the next is
// computed; results that are rounded to another type.
int64_t StagingBytes(const ContractCall& call, const schedule::ContractionJob& job);

// Plans, with the staging within the budget too. Errors as ContractionJob::Prepare, with the
// header's fields, and FINGERPRINT_MISMATCH. What is prepared is kept in `cache`.
absl::StatusOr<std::unique_ptr<schedule::ContractionJob>> PrepareCall(
    const ContractCall& call, const CancelToken* cancel, schedule::ProgramCache* cache);

}  // namespace tenon::server

#endif  // TENON_SERVER_CONTRACTION_CODEC_H_
